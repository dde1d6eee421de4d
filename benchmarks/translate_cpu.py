"""Time translating on one core against CTranslate2 and other toolkits, in one run.

    python benchmarks/translate_cpu.py --run RUN --input SRC --reference REF [--json FILE]
    python benchmarks/translate_cpu.py --random base [--json FILE]

With `--run`, both engines of mtkit, CTranslate2 and Hugging Face's `MarianMTModel` have the weights
of the run, by the conversions of `mtkit export`, and translate the same sentences; what they make
of them is scored with sacreBLEU. With `--random`, everyone has random weights, and every output is
forced to be of one length (`--length`), so that what is timed is arithmetic and bookkeeping: all
but fairseq, which has a model of its own of that size, have the same weights.

CTranslate2 has no bf16 on a CPU, so where mtkit computes in bf16 it computes in float32.

A row is an engine with a precision, a beam and a batch size. It has a process of its own, pinned to
one core, with one thread (`--threads`: as many cores and threads, each with a batch at a time);
those of one setting take turns: A B, B A, and so on. Only one computes at a time. The sentences are
sorted by length and cut into batches. What is timed is from subwords to subwords, all of the text
once; cutting text into subwords and joining them is not timed. Before the rounds each translates
the longest batch, or eight batches of one, untimed. Ratios are of seconds for the same sentences,
paired by round, by the clock and by the time that the CPU has worked. Tokens are those of the best
translations, EOS not counted.

Everyone has the same limit on an output: the longest source of the batch, EOS counted, and 50 more.
The searches are each toolkit's own. Greedy search is the same everywhere; with a beam the length
penalty differs (mtkit: the run's, ((5 + n) / 6) ** 0.6 by default; CTranslate2, fairseq,
MarianMTModel: log-probability over length, their default or usual setting), and so does when a
search may end. fairseq counts the EOS that ends an output at the limit as its last token; the
number of steps is the same. CTranslate2 chooses its matrix library itself, and mtkit does; 8 bits
are made when a model is loaded or, for CTranslate2, exported.

The toolkits' environments are those of train_cpu.py, and so is the model of fairseq. It is searched
by its own beam search, called as its own command calls it.

This file runs in every environment, so at its top it imports nothing but common.py, and not even
torch, which CTranslate2 does not need and whose memory is not to count as its.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Last, because the modules beside this file are not for the toolkits to import.
sys.path.append(str(Path(__file__).parent))
from common import (
    BOS,
    EOS,
    PAD,
    TOOLKITS,
    Process,
    Race,
    clock,
    markdown,
    serve,
    spread,
    version_of,
    versions,
)

EXTRA_LENGTH = 50
SEED = 1
PRECISIONS: dict[str, Any] = {"float32": "fp32", "int8": "int8", "bf16": "bf16"}
# Which take part in every setting.
OURS = ("mtkit", "mtkit-torch", "ctranslate2")
LARGE = 64
# Sentences of which as many whole batches as there are, at least one, are translated untimed.
WARM_UP = 8

# Sentences as subwords: without EOS.
Ids = list[int]


@dataclass(frozen=True)
class Setting:
    """What a worker gets when it starts.

    Attributes:
        precision: float32, int8 or bf16.
        beam: hypotheses of a sentence.
        batch: sentences at a time.
        folder: with the exported models and `case.json`: sentences, and what they are for.
        run: the run folder; None for random weights.
        size: of random weights, a name.
        vocabulary: number of pieces.
        length: that all outputs are forced to have; None for free ones.
        threads: batches at a time, one in each thread.
    """

    precision: str
    beam: int
    batch: int
    folder: str
    run: str | None
    size: str | None
    vocabulary: int
    length: int | None
    threads: int


@dataclass(frozen=True)
class Engine:
    """A toolkit that is ready to translate.

    Attributes:
        translate: from a batch of sentences and the most tokens of an output to the best
            translations, each without EOS unless outputs are forced.
        note: what to know about it that shows only when it runs.
    """

    translate: Callable[[list[Ids], int], list[Ids]]
    note: str = ""


def padded(sentences: Sequence[Ids]) -> Any:
    """(B, S) of sentences, ended by EOS and padded."""
    import torch

    rows = [torch.tensor([*ids, EOS]) for ids in sentences]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def until_eos(tokens: Sequence[int]) -> Ids:
    """What comes before the first EOS."""
    return list(itertools.takewhile(lambda token: token != EOS, map(int, tokens)))


# ---------------------------------------------------------------------------------------------
# The toolkits, one function each, which imports its toolkit when it is called and not before


def random_model(size: str, vocabulary: int) -> Any:
    """mtkit's model with the same random weights in every process."""
    import torch

    from mtkit.config import load_config
    from mtkit.model import Transformer

    torch.manual_seed(SEED)
    return Transformer(load_config(size).model, vocabulary, PAD).eval()


def mtkit(setting: Setting) -> Engine:
    """What `mtkit translate` does with a batch of subwords, with its native engine."""
    from mtkit.config import DecodeConfig
    from mtkit.native import NativeModel, kernels
    from mtkit.search_settings import Constraints, SearchSettings

    precision = PRECISIONS[setting.precision]
    if setting.run is not None:
        from mtkit.run_folder import Run

        run = Run.open(Path(setting.run))
        config, model_config = run.config.decode, run.config.model
        weights = run.selection(None).arrays()
        vocabularies = run.tokenizers()
        sizes = len(vocabularies.tgt), vocabularies.own_src_size
    else:
        assert setting.size is not None
        source = random_model(setting.size, setting.vocabulary)
        config, model_config = DecodeConfig(), source.config
        weights = {name: tensor.numpy() for name, tensor in source.state_dict().items()}
        sizes = setting.vocabulary, None
    model = NativeModel(weights, model_config, *sizes, precision=precision)

    def translate(sentences: list[Ids], limit: int) -> list[Ids]:
        settings = SearchSettings(
            [limit] * len(sentences),
            BOS,
            EOS,
            config.length_penalty,
            config.length_penalty_form,
            Constraints(min_length=setting.length or 0),
            stop="exact" if config.stop == "exact" else "likely",
        )
        sources = [[*ids, EOS] for ids in sentences]
        results = model.translate(sources, settings, beam_size=setting.beam)
        return [list(hypotheses[0].tokens) for hypotheses in results]

    penalty = f"length penalty {config.length_penalty_form} {config.length_penalty:g}"
    return Engine(translate, f"kernels {kernels(precision)}, {penalty}")


def mtkit_torch(setting: Setting) -> Engine:
    """The same with PyTorch."""
    import torch

    from mtkit.base.devices import choose_device, select_matmul_backend
    from mtkit.base.memory import disable_malloc_trim
    from mtkit.config import DecodeConfig
    from mtkit.search_settings import Constraints, SearchSettings
    from mtkit.translate import Translator
    from mtkit.translate.pytorch.incremental import Engine as Decoder
    from mtkit.translate.search.beam import beam_search
    from mtkit.translate.search.independent import greedy_search

    device = choose_device("cpu")
    precision = PRECISIONS[setting.precision]
    if setting.run is not None:
        from mtkit.run_folder import Run

        run = Run.open(Path(setting.run))
        config = run.config.decode.model_copy(update={"precision": precision, "engine": "torch"})
        decoder = Decoder(Translator.load(run, config=config, device="cpu").model)
    else:
        assert setting.size is not None
        config = DecodeConfig()
        decoder = Decoder(random_model(setting.size, setting.vocabulary))
    route = select_matmul_backend(device)
    disable_malloc_trim()

    @torch.inference_mode()
    def translate(sentences: list[Ids], limit: int) -> list[Ids]:
        settings = SearchSettings(
            [limit] * len(sentences),
            BOS,
            EOS,
            config.length_penalty,
            config.length_penalty_form,
            Constraints(min_length=setting.length or 0),
            device,
            stop="exact" if config.stop == "exact" else "likely",
        )
        cache = decoder.start(padded(sentences), setting.beam)
        if setting.beam == 1:
            results = greedy_search(decoder.step, cache, settings)
        else:
            results = beam_search(decoder.step, cache, settings, beam_size=setting.beam)
        return [list(hypotheses[0].tokens) for hypotheses in results]

    penalty = f"length penalty {config.length_penalty_form} {config.length_penalty:g}"
    return Engine(translate, f"matrices by {route}, {penalty}")


def ctranslate2(setting: Setting) -> Engine:
    """`translate_batch` of a whole batch at once, with CTranslate2's own choice of backends."""
    # It imports torch if it can, for conversions.
    sys.modules["torch"] = None  # type: ignore[assignment]
    import ctranslate2 as library

    folder = Path(setting.folder)
    # It has no bf16 on a CPU.
    precision = "int8" if setting.precision == "int8" else "float32"
    engine = library.Translator(
        str(folder / f"ctranslate2-{precision}"),
        device="cpu",
        compute_type=precision,
        inter_threads=setting.threads,
        intra_threads=1,
    )
    pieces = json.loads((folder / "pieces.json").read_text())
    ids = {piece: number for number, piece in enumerate(pieces)}

    def translate(sentences: list[Ids], limit: int) -> list[Ids]:
        results = engine.translate_batch(
            [[pieces[number] for number in sentence] for sentence in sentences],
            beam_size=setting.beam,
            max_decoding_length=limit,
            # Its default of 1 forbids the empty translation.
            min_decoding_length=setting.length or 0,
            max_batch_size=0,
        )
        return [[ids[piece] for piece in result.hypotheses[0]] for result in results]

    return Engine(translate, f"compute type {engine.compute_type}, length penalty 1")


def marian(setting: Setting) -> Engine:
    """`generate` of the exported `MarianMTModel`."""
    import torch
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(Path(setting.folder) / "marian").eval()

    @torch.inference_mode()
    def translate(sentences: list[Ids], limit: int) -> list[Ids]:
        src = padded(sentences)
        results = model.generate(
            input_ids=src,
            attention_mask=(src != PAD).long(),
            num_beams=setting.beam,
            do_sample=False,
            max_new_tokens=limit,
            min_new_tokens=setting.length,
            max_length=None,
            length_penalty=1.0,
        )
        return [until_eos(row) for row in results[:, 1:].tolist()]

    return Engine(translate, "generate, length penalty 1")


def fairseq(setting: Setting) -> Engine:
    """fairseq's `SequenceGenerator`, as its task builds it, with the model of train_cpu.py."""
    import torch
    import train_cpu

    theirs = train_cpu.Setting(
        size=train_cpu.SIZES[str(setting.size)],
        vocabulary=setting.vocabulary,
        seed=SEED,
        threads=1,
        data="",
        batches="",
        budget=4096,
        overrides=[],
    )
    torch.manual_seed(SEED)
    model = train_cpu.fairseq(theirs).model
    train_cpu.initialise(model, theirs)
    model.eval()
    from fairseq.sequence_generator import SequenceGenerator

    # As its command does before it generates.
    model.prepare_for_inference_(SimpleNamespace(generation=SimpleNamespace(beam=setting.beam)))
    length = setting.length
    assert length is not None

    def translate(sentences: list[Ids], limit: int) -> list[Ids]:
        src = padded(sentences)
        generator.max_len_b = limit - 1
        sample = {"net_input": {"src_tokens": src, "src_lengths": (src != PAD).sum(1)}}
        results = generator.generate([model], sample, bos_token=BOS)
        return [hypotheses[0]["tokens"].tolist() for hypotheses in results]

    generator = SequenceGenerator(
        [model], model.decoder.dictionary, beam_size=setting.beam, min_len=length - 1
    )
    return Engine(translate, "SequenceGenerator, length penalty 1")


# By the names of `common.TOOLKITS`.
ENGINES: dict[str, Callable[[Setting], Engine]] = {
    "mtkit": mtkit,
    "mtkit-torch": mtkit_torch,
    "ctranslate2": ctranslate2,
    "marian": marian,
    "fairseq": fairseq,
}


# ---------------------------------------------------------------------------------------------
# The worker


class Worker:
    """Translates one text with one engine with its settings."""

    def __init__(self, name: str, setting: Setting) -> None:
        sentences: list[Ids] = json.loads((Path(setting.folder) / "sentences.json").read_text())
        if setting.batch == 1:
            count = json.loads((Path(setting.folder) / "one.json").read_text())
            sentences = sentences[:count]
        self.setting = setting
        self.sentences = sentences
        order = sorted(range(len(sentences)), key=lambda row: len(sentences[row]))
        self.batches = [
            order[start : start + setting.batch] for start in range(0, len(order), setting.batch)
        ]
        if name not in OURS:
            import torch

            torch.set_num_threads(1)
        self.engine = ENGINES[name](setting)
        self.outputs: list[Ids] = [[] for _ in sentences]
        for batch in self.batches[-1 : -1 - max(1, WARM_UP // setting.batch) : -1]:
            self._translate(batch)
        self.facts = {"version": version_of(name), "note": self.engine.note}

    def race(self) -> dict[str, Any]:
        """Translate everything once, on the clock."""
        result: dict[str, Any] = {}
        with clock(result):
            if self.setting.threads == 1:
                for batch in self.batches:
                    self._translate(batch)
            else:
                # The longest first, so that no thread is late.
                with ThreadPoolExecutor(self.setting.threads) as pool:
                    list(pool.map(self._translate, self.batches[::-1]))
        return result | {"tokens": sum(map(len, self.outputs))}

    def give(self) -> dict[str, Any]:
        """The translations, in the order of the text."""
        return {"outputs": self.outputs}

    def _translate(self, batch: list[int]) -> None:
        sentences = [self.sentences[row] for row in batch]
        length = self.setting.length
        limit = length or max(map(len, sentences)) + 1 + EXTRA_LENGTH
        results = self.engine.translate(sentences, limit)
        if length is not None and {len(ids) for ids in results} != {length}:
            lengths = sorted({len(ids) for ids in results})
            raise ValueError(f"outputs are to have {length} tokens, and have {lengths}")
        for row, ids in zip(batch, results, strict=True):
            self.outputs[row] = ids


# ---------------------------------------------------------------------------------------------
# The table

COLUMNS = [
    "precision",
    "beam",
    "batch",
    "implementation",
    "mtkit / it, median (range)",
    "the same by CPU time",
    "seconds",
    "output tokens/s",
    "peak memory",
    "BLEU",
]


def cells(
    race: Race, setting: tuple[str, int, int], bleu: Callable[[list[Ids]], float] | None
) -> list[list[str]]:
    """The rows of one setting: precision, beam and batch."""
    rows = []
    for name, row in race.rows.items():
        seconds = row.all("seconds")
        speed = row.rounds[-1]["tokens"] / statistics.median(seconds)
        rows.append(
            [
                *map(str, setting),
                f"{TOOLKITS[name].title} {row.facts['version']}",
                race.ratio(name),
                race.ratio(name, "cpu_seconds"),
                spread(seconds, ".1f"),
                f"{speed:,.0f}",
                row.peak,
                f"{bleu(row.answers[0]['outputs']):.2f}" if bleu else "–",
            ]
        )
    return rows


# ---------------------------------------------------------------------------------------------
# Setting up


class Pieces:
    """What an export needs of a tokenizer, for random weights."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __len__(self) -> int:
        return self._number

    def piece(self, number: int) -> str:
        """A name for a subword."""
        return ("<pad>", "<s>", "</s>", "<unk>")[number] if number < 4 else f"piece{number}"


def write_models(
    model: Any, tokenizer: Any, folder: Path, *, longest: int, precisions: list[str], marian: bool
) -> None:
    """Write the weights for CTranslate2 and, if it takes part, for MarianMTModel."""
    from mtkit.convert.ctranslate2 import write_ctranslate2
    from mtkit.convert.huggingface import to_marian
    from mtkit.tokenizer import Vocabularies

    for precision in precisions:
        write_ctranslate2(
            model,
            Vocabularies.joint(tokenizer),
            folder / f"ctranslate2-{precision}",
            longest=longest,
            quantization=precision,  # type: ignore[arg-type]
        )
    pieces = [tokenizer.piece(number) for number in range(len(tokenizer))]
    (folder / "pieces.json").write_text(json.dumps(pieces))
    if marian:
        import transformers

        transformers.utils.logging.disable_progress_bar()
        theirs: Any = to_marian(model, longest=longest)
        # `generate` takes its defaults from there.
        theirs.generation_config.max_length = None
        theirs.save_pretrained(folder / "marian")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--run", type=Path, help="run folder")
    parser.add_argument("--input", type=Path, help="source text")
    parser.add_argument("--reference", type=Path, help="its translation, to score against")
    parser.add_argument("--random", choices=["small", "base"], help="random weights of this size")
    parser.add_argument("--vocabulary", type=int, default=37_000, help="of random weights")
    parser.add_argument("--length", type=int, default=25, help="of sources and outputs at random")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--sentences-one", type=int, default=100, help="of them in batches of one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        help="batches at a time; more than 1 only for mtkit and"
        " CTranslate2, which share one copy of the weights",
    )
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=["float32", "int8"])
    parser.add_argument("--beams", nargs="+", type=int, default=[4, 1])
    parser.add_argument("--batches", nargs="+", type=int, default=[LARGE, 1])
    parser.add_argument(
        "--only",
        nargs="+",
        choices=ENGINES,
        default=list(ENGINES),
        help="MarianMTModel and fairseq run in float32, with a beam and large batches",
    )
    parser.add_argument("--peers-dir", type=Path, default=Path("build/peers"))
    parser.add_argument("--json", type=Path, help="file for all that was measured")
    arguments = parser.parse_args()
    if arguments.worker is None:
        if (arguments.run is None) == (arguments.random is None):
            parser.error("either --run or --random is required")
        if arguments.run and not (arguments.input and arguments.reference):
            parser.error("--run needs --input and --reference")
        if arguments.threads > 1 and not {"mtkit", "ctranslate2"}.issuperset(arguments.only):
            parser.error("--threads needs --only mtkit ctranslate2")
    return arguments


def main() -> None:
    """Set up, race, print a table."""
    arguments = parse()
    if arguments.worker is not None:
        name, text = arguments.worker
        serve(name, lambda: Worker(name, Setting(**json.loads(text))))
        return
    about = versions()
    rows: list[list[str]] = []
    notes: dict[str, None] = {}
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        model, tokenizer, sentences, bleu = task(arguments)
        # fairseq cannot have the weights of a run.
        names = [
            name
            for name in ENGINES
            if name in arguments.only and (arguments.random or name != "fairseq")
        ]
        write_models(
            model,
            tokenizer,
            folder,
            longest=max(map(len, sentences)) + 2 + EXTRA_LENGTH,
            precisions=["float32", "int8"],
            marian="marian" in names,
        )
        (folder / "sentences.json").write_text(json.dumps(sentences))
        (folder / "one.json").write_text(json.dumps(arguments.sentences_one))

        for precision, beam, batch in itertools.product(
            arguments.precisions, arguments.beams, arguments.batches
        ):
            setting = Setting(
                precision=precision,
                beam=beam,
                batch=batch,
                folder=str(folder),
                run=str(arguments.run.resolve()) if arguments.run else None,
                size=arguments.random,
                vocabulary=len(tokenizer),
                length=None if arguments.run else arguments.length,
                threads=arguments.threads,
            )

            def start(name: str, setting: Setting = setting) -> Process:
                return Process(
                    name,
                    script=__file__,
                    setting=asdict(setting),
                    peers=arguments.peers_dir,
                    threads=arguments.threads,
                )

            everyone = precision == "float32" and beam > 1 and batch > 1
            group = [name for name in names if everyone or name in OURS]
            if precision != "float32":
                # PyTorch is the reference on a CPU, in float32 only.
                group = [name for name in group if name != "mtkit-torch"]
            print(f"{precision}, beam {beam}, batch {batch}", file=sys.stderr)
            with Race(group, start) as race:
                race.run(arguments.rounds)
                race.ask("give")
            rows += cells(race, (precision, beam, batch), bleu)
            notes |= dict.fromkeys(f"{note} ({precision})" for note in race.notes())
            results += [
                {"name": name, "precision": precision, "beam": beam, "batch": batch}
                | {"facts": row.facts, "rounds": row.rounds}
                for name, row in race.rows.items()
            ]
    forced = f", from {arguments.length} subwords to {arguments.length}, forced"
    print(
        f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M "
        f"{'random' if arguments.random else 'trained'} weights, {len(tokenizer):,} pieces, "
        f"{len(sentences):,} sentences ({arguments.sentences_one:,} in batches of one)"
        f"{forced if arguments.random else ''}, {arguments.threads} thread"
        f"{'s' if arguments.threads > 1 else ''}, {arguments.rounds} rounds. {about}.\n"
    )
    print("\n".join([markdown(COLUMNS, rows), "", *notes]))
    if arguments.json:
        arguments.json.write_text(json.dumps({"about": about, "rows": results}, indent=2) + "\n")


def task(
    arguments: argparse.Namespace,
) -> tuple[Any, Any, list[Ids], Callable[[list[Ids]], float] | None]:
    """The model, its tokenizer, the sentences, and what scores their translations."""
    from mtkit.base.text import read_lines
    from mtkit.score import score
    from mtkit.translate import Translator

    if arguments.random:
        draw = random.Random(SEED)
        sentences = [
            [draw.randrange(4, arguments.vocabulary) for _ in range(arguments.length)]
            for _ in range(arguments.sentences)
        ]
        model = random_model(arguments.random, arguments.vocabulary)
        return model, Pieces(arguments.vocabulary), sentences, None
    translator = Translator.load(arguments.run, device="cpu", prepared=False)
    tokenizer = translator.tokenizer
    lines, references = (
        list(itertools.islice(read_lines(path), arguments.sentences))
        for path in (arguments.input, arguments.reference)
    )

    def bleu(outputs: list[Ids]) -> float:
        texts = [tokenizer.decode(ids) for ids in outputs]
        return float(score(texts, [references[: len(texts)]]).value)

    return translator.model, tokenizer, tokenizer.encode_batch(lines), bleu


if __name__ == "__main__":
    main()
