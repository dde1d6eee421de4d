"""Time translating on one core against CTranslate2 and other toolkits, in one run.

    python benchmarks/translate_cpu.py --run RUN --input SRC --reference REF [--json FILE]
    python benchmarks/translate_cpu.py --random base [--json FILE]

With `--run`, CTranslate2 and Hugging Face's `MarianMTModel` have the weights of the run, by the
conversions of `mtkit export`, and translate the same sentences; what they make of them is scored
with sacreBLEU. With `--random`, everyone has random weights, and every output is forced to be of
one length (`--length`), so that what is timed is arithmetic and bookkeeping: mtkit, CTranslate2 and
MarianMTModel the same ones, the other toolkits models of their own of that size.

A row is an engine with a precision, a beam and a batch size. It has a process of its own, pinned to
one core, with one thread; those of one setting take turns: A B, B A, and so on. Only one computes
at a time. The sentences are sorted by length and cut into batches. What is timed is from subwords
to subwords, all of the text once; cutting text into subwords and joining them is nobody's. Before
the rounds each translates the longest batch, or eight batches of one, untimed.
Ratios are of seconds for the same sentences, paired by round, by the clock
and by the time that the CPU has worked. Tokens are those of the best
translations, EOS not counted.

Everyone has the same limit on an output: the longest source of the batch, EOS counted, and 50 more.
The searches are each toolkit's own. Greedy search is the same everywhere; with a beam the length
penalty differs (mtkit: the run's, ((5 + n) / 6) ** 0.6 by default; CTranslate2, fairseq, JoeyNMT,
MarianMTModel: log-probability over length, their default or usual setting; the others none), and so
does when a search may end. CTranslate2 chooses its matrix library itself, and mtkit does; 8 bits
are made when a model is loaded or, for CTranslate2, exported.

The toolkits' environments are those of train_cpu.py, and so are the models of JoeyNMT, Sockeye,
eole and fairseq, each searched by its own beam search, called as its own translation command calls
it:

- JoeyNMT has no cache: each step decodes all of the output again.
- fairseq and Sockeye count the EOS that ends an output at the limit as its last token; the number
  of steps is the same.
- Sockeye has no minimum length; the bias of EOS is set so low that it never comes before.
- eole's model is pre-norm.

This file runs in every environment, so at its top it imports nothing but peers.py, and not even
torch, which CTranslate2 does not need and whose memory is not to count as its.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Last, because the modules beside this file are not for the toolkits to import.
sys.path.append(str(Path(__file__).parent))
from peers import (
    TOOLKITS,
    LeftOutError,
    Process,
    last_cores,
    peak_bytes,
    processor,
    python_of,
    serve,
    spread,
    version_of,
)

# Those of mtkit.tokenizer, which the peers' environments do not have.
PAD, BOS, EOS = 0, 1, 2
EXTRA_LENGTH = 50
SEED = 1
LARGE = 64
# Sentences of which as many whole batches as there are, at least one, are translated untimed.
WARM_UP = 8
SHARED_WEIGHTS = ("mtkit", "ctranslate2", "marian")
RANDOM_WEIGHTS = ("joeynmt", "sockeye", "eole", "fairseq")

# Sentences as subwords: without EOS.
Ids = list[int]


@dataclass(frozen=True)
class Setting:
    """What a worker gets when it starts.

    Attributes:
        precision: float32 or int8.
        beam: hypotheses of a sentence.
        batch: sentences at a time.
        folder: with the exported models and `case.json`: sentences, and what they are for.
        run: the run folder; None for random weights.
        size: of random weights, a name.
        vocabulary: number of pieces.
        length: that all outputs are forced to have; None for free ones.
    """

    precision: str
    beam: int
    batch: int
    folder: str
    run: str | None
    size: str | None
    vocabulary: int
    length: int | None


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
    """What `mtkit translate` does with a batch of subwords."""
    import torch

    from mtkit.base.devices import choose_device, disable_malloc_trim, select_matmul_backend
    from mtkit.config import DecodeConfig
    from mtkit.translate import Translator
    from mtkit.translate.constraints import Constraints
    from mtkit.translate.engine import Engine as Decoder
    from mtkit.translate.linear import pack_weights
    from mtkit.translate.search import beam_search

    device = choose_device("cpu")
    precision: Any = {"float32": "fp32", "int8": "int8"}[setting.precision]
    if setting.run is not None:
        from mtkit.run_folder import Run

        run = Run.open(Path(setting.run))
        config = run.config.decode.model_copy(update={"precision": precision})
        decoder = Decoder(Translator.load(run, config=config, device="cpu").model)
    else:
        assert setting.size is not None
        config = DecodeConfig()
        model = random_model(setting.size, setting.vocabulary)
        pack_weights(model, precision, device)
        decoder = Decoder(model)
    route = select_matmul_backend(device)
    disable_malloc_trim()

    @torch.inference_mode()
    def translate(sentences: list[Ids], limit: int) -> list[Ids]:
        found = beam_search(
            decoder.step,
            decoder.start(padded(sentences), setting.beam),
            max_lengths=[limit] * len(sentences),
            beam_size=setting.beam,
            bos_id=BOS,
            eos_id=EOS,
            alpha=config.length_penalty,
            penalty_form=config.length_penalty_form,
            constraints=Constraints(min_length=setting.length or 0),
            device=device,
        )
        return [list(hypotheses[0].tokens) for hypotheses in found]

    penalty = f"length penalty {config.length_penalty_form} {config.length_penalty:g}"
    return Engine(translate, f"matrices by {route}, {penalty}")


def ctranslate2(setting: Setting) -> Engine:
    """`translate_batch` of a whole batch at once, with CTranslate2's own choice of backends."""
    # It imports torch if it can, for conversions.
    sys.modules["torch"] = None  # type: ignore[assignment]
    import ctranslate2 as library

    folder = Path(setting.folder)
    engine = library.Translator(
        str(folder / f"ctranslate2-{setting.precision}"),
        device="cpu",
        compute_type=setting.precision,
        inter_threads=1,
        intra_threads=1,
    )
    pieces = json.loads((folder / "pieces.json").read_text())
    ids = {piece: number for number, piece in enumerate(pieces)}

    def translate(sentences: list[Ids], limit: int) -> list[Ids]:
        found = engine.translate_batch(
            [[pieces[number] for number in sentence] for sentence in sentences],
            beam_size=setting.beam,
            max_decoding_length=limit,
            # Its default of 1 forbids the empty translation.
            min_decoding_length=setting.length or 0,
            max_batch_size=0,
        )
        return [[ids[piece] for piece in one.hypotheses[0]] for one in found]

    return Engine(translate, f"compute type {engine.compute_type}, length penalty 1")


def marian(setting: Setting) -> Engine:
    """`generate` of the exported `MarianMTModel`."""
    import torch
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(Path(setting.folder) / "marian").eval()

    @torch.inference_mode()
    def translate(sentences: list[Ids], limit: int) -> list[Ids]:
        src = padded(sentences)
        found = model.generate(
            input_ids=src,
            attention_mask=(src != PAD).long(),
            num_beams=setting.beam,
            do_sample=False,
            max_new_tokens=limit,
            min_new_tokens=setting.length,
            max_length=None,
            length_penalty=1.0,
        )
        return [until_eos(row) for row in found[:, 1:].tolist()]

    return Engine(translate, "generate, length penalty 1")


def trained_as(name: str, setting: Setting) -> Any:
    """The model of train_cpu.py, with random weights and ready to translate."""
    import torch
    import train_cpu

    size = train_cpu.SIZES[str(setting.size)]
    theirs = train_cpu.Setting(
        size=size,
        vocabulary=setting.vocabulary,
        seed=SEED,
        threads=1,
        data="",
        batches="",
        budget=4096,
        overrides=[],
    )
    sentence = [[4, 5, 6, EOS]]
    example = train_cpu.Batch.of(*[train_cpu.np.array(sentence)] * 2, train_cpu.np.array([0]))
    torch.manual_seed(SEED)
    start, _ = train_cpu.PEERS[name]
    model = start(theirs, example).model
    train_cpu.initialise(model, theirs)
    return model.eval()


def joeynmt(setting: Setting) -> Engine:
    """`joeynmt.search.search`, which its prediction calls for each batch."""
    import torch
    from joeynmt.batch import Batch
    from joeynmt.search import search

    model = trained_as("joeynmt", setting)

    def translate(sentences: list[Ids], limit: int) -> list[Ids]:
        src = padded(sentences)
        batch = Batch(
            src=src,
            src_length=(src != PAD).sum(1),
            src_prompt_mask=None,
            trg=None,
            trg_prompt_mask=None,
            indices=torch.arange(len(src)),
            device=torch.device("cpu"),
            pad_index=PAD,
            eos_index=EOS,
        )
        with torch.no_grad():
            found, _, _ = search(
                model,
                batch,
                max_output_length=limit,
                beam_size=setting.beam,
                beam_alpha=1.0,
                min_output_length=setting.length or 1,
            )
        return [until_eos(row) for row in found]

    return Engine(translate, "search, without a cache; length penalty 1")


def fairseq(setting: Setting) -> Engine:
    """fairseq's `SequenceGenerator`, as its task builds it."""
    model = trained_as("fairseq", setting)
    from fairseq.sequence_generator import SequenceGenerator

    # As its command does before it generates.
    model.prepare_for_inference_(SimpleNamespace(generation=SimpleNamespace(beam=setting.beam)))
    length = setting.length
    assert length is not None

    def translate(sentences: list[Ids], limit: int) -> list[Ids]:
        src = padded(sentences)
        generator.max_len_b = limit - 1
        sample = {"net_input": {"src_tokens": src, "src_lengths": (src != PAD).sum(1)}}
        found = generator.generate([model], sample, bos_token=BOS)
        return [hypotheses[0]["tokens"].tolist() for hypotheses in found]

    generator = SequenceGenerator(
        [model], model.decoder.dictionary, beam_size=setting.beam, min_len=length - 1
    )
    return Engine(translate, "SequenceGenerator, length penalty 1")


def sockeye(setting: Setting) -> Engine:
    """Sockeye's `Translator`, from where it has cut text into subwords to where it joins them."""
    import torch
    from sockeye import constants
    from sockeye.beam_search import CandidateScorer
    from sockeye.inference import Translator

    model = trained_as("sockeye", setting)
    with torch.no_grad():
        model.output_layer.bias[constants.EOS_ID] = -1e9
    pieces = {f"piece{number}": number for number in range(setting.vocabulary)}
    translator = Translator(
        device=torch.device("cpu"),
        ensemble_mode="linear",
        scorer=CandidateScorer(1.0, 0.0, 0.0),
        batch_size=setting.batch,
        beam_search_stop="all",
        models=[model],
        source_vocabs=[pieces],
        target_vocabs=[pieces],
        beam_size=setting.beam,
    )

    def translate(sentences: list[Ids], limit: int) -> list[Ids]:
        src = padded(sentences)
        lengths = torch.stack([(src != PAD).sum(1), torch.zeros(len(src))], dim=1).int()
        limits = torch.full((len(src),), limit, dtype=torch.int32)
        with torch.inference_mode():
            found = translator._translate_np(src.int()[..., None], lengths, None, limits)
        return [[ids[0] for ids in one.target_ids] for one in found]

    return Engine(translate, "Translator, length penalty 1")


def eole(setting: Setting) -> Engine:
    """eole's `Translator`, a batch at a time."""
    from eole.config.inference import DecodingConfig
    from eole.predict.beam_search import GNMTGlobalScorer
    from eole.predict.translator import Translator

    model = trained_as("eole", setting)
    import pyonmttok

    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    pieces = pyonmttok.build_vocab_from_tokens(
        [f"piece{i}" for i in range(len(special), setting.vocabulary)],
        special_tokens=list(special.values()),
    )
    length = setting.length
    assert length is not None
    decoding = DecodingConfig(
        beam_size=setting.beam,
        min_length=length,
        max_length=length,
        max_length_ratio=0,
        length_penalty="avg",
        alpha=1.0,
    )
    defaults = {
        "transforms": [],
        "fuse_gate": False,
        "optional_eos": [],
        "dynamic_shapes": None,
        "context_length": 0,
        "replace_unk": False,
        "tgt_file_prefix": False,
        "phrase_table": "",
        "data_type": "text",
        "verbose": False,
        "report_time": False,
        "report_align": False,
        "gold_align": False,
        "seed": SEED,
        "with_score": False,
        "estim_only": False,
        "self_attn_backend": "pytorch",
    }
    shape = SimpleNamespace(encoder=None, add_estimator=False, estimator_type="average")
    translator = Translator(
        model,
        {"src": pieces, "tgt": pieces, "specials": special, "decoder_start_token": "<s>"},
        SimpleNamespace(**(defaults | decoding.model_dump())),
        shape,
        device_id=-1,
        global_scorer=GNMTGlobalScorer.from_config(decoding),
    )

    def translate(sentences: list[Ids], limit: int) -> list[Ids]:
        src = padded(sentences)
        batch = {"src": src, "srclen": (src != PAD).sum(1)}
        found = translator.predict_batch(batch, attn_debug=False)
        return [best[0].tolist() for best in found["predictions"]]

    return Engine(translate, "Translator, length penalty avg")


# By the names of `peers.TOOLKITS`.
ENGINES: dict[str, Callable[[Setting], Engine]] = {
    "mtkit": mtkit,
    "ctranslate2": ctranslate2,
    "marian": marian,
    "joeynmt": joeynmt,
    "sockeye": sockeye,
    "eole": eole,
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
        if name not in ("mtkit", "ctranslate2"):
            import torch

            torch.set_num_threads(1)
        self.engine = ENGINES[name](setting)
        self.outputs: list[Ids] = [[] for _ in sentences]
        for batch in self.batches[-1 : -1 - max(1, WARM_UP // setting.batch) : -1]:
            self._translate(batch)
        self.facts = {"version": version_of(name), "note": self.engine.note}

    def race(self) -> dict[str, Any]:
        """Translate everything once, on the clock."""
        started, worked = time.perf_counter(), time.process_time()
        for batch in self.batches:
            self._translate(batch)
        return {
            "seconds": time.perf_counter() - started,
            "cpu_seconds": time.process_time() - worked,
            "tokens": sum(map(len, self.outputs)),
            "peak_bytes": peak_bytes(),
        }

    def give(self) -> dict[str, Any]:
        """The translations, in the order of the text."""
        return {"outputs": self.outputs}

    def _translate(self, batch: list[int]) -> None:
        sentences = [self.sentences[row] for row in batch]
        length = self.setting.length
        limit = length or max(map(len, sentences)) + 1 + EXTRA_LENGTH
        found = self.engine.translate(sentences, limit)
        if length is not None and {len(ids) for ids in found} != {length}:
            lengths = sorted({len(ids) for ids in found})
            raise ValueError(f"outputs are to have {length} tokens, and have {lengths}")
        for row, ids in zip(batch, found, strict=True):
            self.outputs[row] = ids


# ---------------------------------------------------------------------------------------------
# The race


@dataclass
class Row:
    """One line of the table.

    Attributes:
        name: of the toolkit.
        precision: float32 or int8.
        beam: hypotheses of a sentence.
        batch: sentences at a time.
        facts: version, and what to know about it.
        seconds: of each round.
        cpu_seconds: that the CPU worked for it.
        tokens: of all outputs.
        sentences: translated in a round.
        peak_bytes: the most memory it had.
        bleu: of its translations.
        ratios: its seconds over mtkit's, of each round: how many times as fast mtkit is.
        cpu_ratios: the same of `cpu_seconds`, which other load on the machine hardly changes.
        left_out: why it was not measured.
    """

    name: str
    precision: str
    beam: int
    batch: int
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    tokens: int = 0
    sentences: int = 0
    peak_bytes: int | None = None
    bleu: float | None = None
    ratios: list[float] = field(default_factory=list)
    cpu_ratios: list[float] = field(default_factory=list)
    left_out: str | None = None


@contextmanager
def may_drop_out(row: Row) -> Iterator[None]:
    """Note why a row cannot be measured."""
    try:
        yield
    except LeftOutError as error:
        row.left_out = str(error)
        print(f"{TOOLKITS[row.name].title}: left out: {error}", file=sys.stderr)


def race(
    rows: list[Row],
    start: Callable[[Row], Process],
    *,
    rounds: int,
    bleu: Callable[[list[Ids]], float] | None,
) -> None:
    """Have the rows of one setting take turns, and fill them in."""
    processes: dict[str, Process] = {}
    try:
        for row in rows:
            with may_drop_out(row):
                processes[row.name] = start(row)
                row.facts = processes[row.name].facts
        for turn in range(rounds):
            for row in rows if turn % 2 == 0 else rows[::-1]:
                if row.left_out is not None:
                    continue
                with may_drop_out(row):
                    timed = processes[row.name].ask("race")
                    row.seconds.append(timed["seconds"])
                    row.cpu_seconds.append(timed["cpu_seconds"])
                    row.tokens, row.peak_bytes = timed["tokens"], timed["peak_bytes"]
        for row in rows:
            if row.left_out is None:
                with may_drop_out(row):
                    outputs = processes[row.name].ask("give")["outputs"]
                    row.sentences = len(outputs)
                    row.bleu = bleu(outputs) if bleu else None
        ours = rows[0]
        if ours.name == "mtkit" and ours.left_out is None:
            for row in rows:
                if row.left_out is None:
                    row.ratios, row.cpu_ratios = (
                        [b / a for a, b in zip(mine, theirs, strict=True)]
                        for mine, theirs in (
                            (ours.seconds, row.seconds),
                            (ours.cpu_seconds, row.cpu_seconds),
                        )
                    )
    finally:
        for process in processes.values():
            process.close()


def table(rows: list[Row]) -> str:
    """The rows in Markdown, what they are, and why some are missing."""
    columns = [
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
    lines = [columns, ["---"] * len(columns)]
    notes: dict[str, None] = {}
    for row in rows:
        title = TOOLKITS[row.name].title
        if row.left_out is not None:
            notes[f"- left out: {title}, {row.precision}, beam {row.beam}: {row.left_out}"] = None
            continue
        notes[f"- {title}, {row.precision}: {row.facts['note']}."] = None
        lines.append(
            [
                row.precision,
                str(row.beam),
                str(row.batch),
                f"{title} {row.facts['version']}",
                *(
                    "1" if row.name == "mtkit" else spread(values, ".2f")
                    for values in (row.ratios, row.cpu_ratios)
                ),
                spread(row.seconds, ".1f"),
                f"{row.tokens / statistics.median(row.seconds):,.0f}",
                "–" if row.peak_bytes is None else f"{row.peak_bytes / 2**20:,.0f} MiB",
                "–" if row.bleu is None else f"{row.bleu:.2f}",
            ]
        )
    return "\n".join([*(f"| {' | '.join(cells)} |" for cells in lines), "", *notes])


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
            Vocabularies.of(tokenizer),
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
        "--precisions", nargs="+", choices=["float32", "int8"], default=["float32", "int8"]
    )
    parser.add_argument("--beams", nargs="+", type=int, default=[4, 1])
    parser.add_argument("--batches", nargs="+", type=int, default=[LARGE, 1])
    parser.add_argument(
        "--only",
        nargs="+",
        choices=ENGINES,
        default=list(ENGINES),
        help="those but mtkit and CTranslate2 run in float32, with a beam and large batches",
    )
    parser.add_argument("--peers-dir", type=Path, default=Path("build/peers"))
    parser.add_argument("--json", type=Path, help="file for all that was measured")
    arguments = parser.parse_args()
    if arguments.worker is None:
        if (arguments.run is None) == (arguments.random is None):
            parser.error("either --run or --random is required")
        if arguments.run and not (arguments.input and arguments.reference):
            parser.error("--run needs --input and --reference")
    return arguments


def main() -> None:
    """Set up, race, print a table."""
    arguments = parse()
    if arguments.worker is not None:
        name, text = arguments.worker
        serve(name, lambda: Worker(name, Setting(**json.loads(text))))
        return
    import torch

    from mtkit.base.text import read_lines
    from mtkit.score import score
    from mtkit.translate import Translator

    load, cores = os.getloadavg()[0], last_cores(1)
    peers = arguments.peers_dir.resolve()
    peers.mkdir(parents=True, exist_ok=True)
    possible = SHARED_WEIGHTS if arguments.run else SHARED_WEIGHTS + RANDOM_WEIGHTS
    names = [name for name in possible if name in arguments.only]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        bleu: Callable[[list[Ids]], float] | None = None
        if arguments.run:
            translator = Translator.load(arguments.run, device="cpu", prepared=False)
            model, tokenizer = translator.model, translator.tokenizer
            lines, references = (
                list(itertools.islice(read_lines(path), arguments.sentences))
                for path in (arguments.input, arguments.reference)
            )
            sentences = tokenizer.encode_batch(lines)

            def bleu(outputs: list[Ids]) -> float:
                texts = [tokenizer.decode(ids) for ids in outputs]
                return float(score(texts, [references[: len(texts)]]).value)

        else:
            model = random_model(arguments.random, arguments.vocabulary)
            tokenizer = Pieces(arguments.vocabulary)
            draw = random.Random(SEED)
            sentences = [
                [draw.randrange(4, arguments.vocabulary) for _ in range(arguments.length)]
                for _ in range(arguments.sentences)
            ]
        write_models(
            model,
            tokenizer,
            folder,
            longest=max(map(len, sentences)) + 2 + EXTRA_LENGTH,
            precisions=arguments.precisions,
            marian="marian" in names,
        )
        (folder / "sentences.json").write_text(json.dumps(sentences))
        (folder / "one.json").write_text(json.dumps(arguments.sentences_one))

        def start(row: Row) -> Process:
            setting = Setting(
                precision=row.precision,
                beam=row.beam,
                batch=row.batch,
                folder=str(folder),
                run=str(arguments.run.resolve()) if arguments.run else None,
                size=arguments.random,
                vocabulary=len(tokenizer),
                length=None if arguments.run else arguments.length,
            )
            return Process(
                row.name,
                python_of(row.name, peers),
                script=__file__,
                setting=asdict(setting),
                threads=1,
                cores=cores,
                log=peers / f"{row.name}-translate.log",
                extra={},
            )

        for precision, beam, batch in itertools.product(
            arguments.precisions, arguments.beams, arguments.batches
        ):
            everyone = precision == "float32" and beam > 1 and batch > 1
            group = [
                Row(name, precision, beam, batch)
                for name in names
                if everyone or name in ("mtkit", "ctranslate2")
            ]
            print(f"{precision}, beam {beam}, batch {batch}", file=sys.stderr)
            race(group, start, rounds=arguments.rounds, bleu=bleu)
            rows += group
    facts = {
        "processor": processor(),
        "cores": cores,
        "load": load,
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocabulary": len(tokenizer),
        "weights": "random" if arguments.random else "trained",
        "sentences": len(sentences),
        "sentences_one": min(arguments.sentences_one, len(sentences)),
        "length": None if arguments.run else arguments.length,
        "rounds": arguments.rounds,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }
    forced = f", from {arguments.length} subwords to {arguments.length}, forced"
    print(
        f"{facts['parameters'] / 1e6:.1f} M {facts['weights']} weights, {len(tokenizer):,} pieces, "
        f"{facts['sentences']:,} sentences ({facts['sentences_one']:,} in batches of one)"
        f"{forced if arguments.random else ''}. {facts['processor']}, load before {load:.1f}; "
        f"1 thread on 1 of {os.cpu_count()} cores. Rounds: {arguments.rounds}. torch "
        f"{facts['torch']}, Python {facts['python']}.\n"
    )
    print(table(rows))
    if arguments.json:
        result = facts | {"rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
