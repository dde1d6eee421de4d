"""Imports of M2M-100 and NLLB-200, against transformers, and exports of them."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.errors import message_of
from support.m2m100 import CODES, LINES, Kind, write_m2m100
from support.marian import edit, lines_in

from mtkit.base.errors import MtkitError
from mtkit.base.sentencepiece_model import Piece, pieces_in, with_pieces
from mtkit.config import load_config
from mtkit.convert import export, import_model
from mtkit.convert.huggingface import MarianModel
from mtkit.convert.transformers_folder import read_transformers_folder
from mtkit.prepare import Corpus, DirectionSources, PrepareOptions, parallel_files, prepare
from mtkit.run_folder import Run
from mtkit.train import assembly as train
from mtkit.translate import Translator

pytest.importorskip("transformers")

KINDS: tuple[Kind, ...] = ("m2m100", "nllb")
# Some directions of each kind; the first and last language among them.
DIRECTIONS = {
    "m2m100": [("af", "zu"), ("en", "de"), ("zu", "af")],
    "nllb": [("deu_Latn", "zho_Hant"), ("eng_Latn", "tyv_Cyrl"), ("zho_Hant", "deu_Latn")],
}
CARD = "---\nlicense: cc-by-nc-4.0\n---\n# A model\n"
TEXT = LINES[280:330]


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> dict[Kind, Path]:
    place = tmp_path_factory.mktemp("m2m100")
    for kind in KINDS:
        # With these seeds some translations of both kinds end by themselves.
        write_m2m100(place / kind, kind, seed=1 if kind == "m2m100" else 4)
        (place / kind / "README.md").write_text(CARD)
    return {kind: place / kind for kind in KINDS}


@pytest.fixture(scope="module")
def imported(sources, tmp_path_factory):
    place = tmp_path_factory.mktemp("imported")
    return {kind: import_model(str(source), place / kind) for kind, source in sources.items()}


@pytest.fixture(params=KINDS)
def kind(request) -> Kind:
    return request.param


@pytest.fixture
def source(kind, sources, tmp_path) -> Path:
    """A copy of a model, to be changed."""
    shutil.copytree(sources[kind], tmp_path / kind)
    return tmp_path / kind


def theirs_of(source: Path, src: str, tgt: str) -> tuple[Any, Any, int]:
    """Model and tokenizer of transformers, and the id of the tag of the target language."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, src_lang=src, tgt_lang=tgt)
    tag = f"__{tgt}__" if "m2m100" in source.name else tgt
    i = getattr(tokenizer, "get_lang_id", tokenizer.convert_tokens_to_ids)(tgt)
    assert tokenizer.convert_ids_to_tokens(i) == tag
    model = AutoModelForSeq2SeqLM.from_pretrained(source).eval()
    # In mtkit padding has no probability.
    model.lm_head.bias = torch.nn.Parameter(torch.zeros(model.config.vocab_size))
    with torch.no_grad():
        model.lm_head.bias[1] = -1e9
    return model, tokenizer, i


def translator_of(run: Run, src: str, tgt: str, **decode: Any) -> Translator:
    usual = {"precision": "fp32", "max_extra_length": 20, "split_sentences": False}
    config = run.config.decode.model_copy(update=usual | {"copy_numbers": False} | decode)
    return Translator.load(run, config=config, src_lang=src, tgt_lang=tgt, device="cpu")


def test_log_probabilities_are_those_of_transformers_to_1e5(kind, sources, imported):
    for src, tgt in DIRECTIONS[kind]:
        model, tokenizer, tag = theirs_of(sources[kind], src, tgt)
        inputs = tokenizer(TEXT, padding=True, return_tensors="pt")
        targets = TEXT[::-1]
        labels = tokenizer(text_target=targets)["input_ids"]
        with translator_of(imported[kind].run, src, tgt) as ours:
            scored = list(ours.score_given(TEXT, targets))
        longest = max(map(len, labels))
        padded = torch.tensor([[2, *row[:-1], *[1] * (longest - len(row))] for row in labels])
        with torch.no_grad():
            logits = model(**inputs, decoder_input_ids=padded).logits
        log_probs = logits.log_softmax(-1)
        for row, (label, result) in enumerate(zip(labels, scored, strict=True)):
            assert label[0] == tag
            expected = log_probs[row, range(1, len(label)), torch.tensor(label[1:])]
            assert result.log_probs[0] == 0.0
            assert torch.tensor(result.log_probs[1:]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_of_both_engines_are_those_of_generate(kind, beam_size, sources, imported):
    src, tgt = DIRECTIONS[kind][1]
    model, tokenizer, tag = theirs_of(sources[kind], src, tgt)
    run = imported[kind].run
    # The tags of languages stand only at the beginning here, and padding nowhere.
    theirs = MarianModel(sources[kind], run.config.decode)
    codes = run.tokenizers().src.language_tags
    banned = [[1], *([theirs.id_of(code)] for code in codes)]
    options = {"beam_size": beam_size, "length_penalty": 1.0, "length_penalty_form": "power"}
    translations = []
    for engine in ("native", "torch"):
        with translator_of(run, src, tgt, stop="exact", engine=engine, **options) as ours:
            translations.append([best for best, *_ in ours.translate_nbest(TEXT, n_best=1)])
    same: list[set[str]] = [set(), set()]
    for line, *of_engines in zip(TEXT, *translations, strict=True):
        inputs = tokenizer([line], return_tensors="pt")
        result = model.generate(
            **inputs,
            num_beams=beam_size,
            do_sample=False,
            early_stopping="never" if beam_size > 1 else None,
            length_penalty=1.0,
            forced_bos_token_id=tag,
            bad_words_ids=banned,
            max_new_tokens=inputs["input_ids"].shape[1] + 20,
            return_dict_in_generate=True,
            output_scores=True,
        )
        (ids,) = result.sequences
        # It writes made-up words so.
        text = tokenizer.decode(ids[2:], skip_special_tokens=True).replace("<unk>", "")
        for best, texts in zip(of_engines, same, strict=True):
            is_same = " ".join(text.split()) == best.text
            if beam_size == 1:
                assert is_same
            elif ids[-1] == 2:
                # transformers lets a hypothesis end only if this is among the W best ways to go
                # on, and mtkit among the 2 W best, which is never worse. (At the limit of length,
                # mtkit prefers one that has ended.)
                score, equal = result.sequences_scores.item(), pytest.approx(best.score, abs=1e-4)
                assert score == equal if is_same else score < best.score
            if is_same:
                texts.add(text)
    assert min(map(len, same)) > 5


def test_a_model_of_transformers_with_other_positions_is_noticed(source, tmp_path, monkeypatch):
    from mtkit.convert import transformers_folder

    right = transformers_folder.fairseq_positions
    monkeypatch.setattr(
        transformers_folder, "fairseq_positions", lambda n, width: right(n + 1, width)[1:]
    )
    with pytest.raises(MtkitError, match="does not agree with transformers"):
        import_model(str(source), tmp_path / "out")


def test_weights_in_several_files_with_prefixes_are_the_same(kind, source, tmp_path, imported):
    tensors = load_file(source / "model.safetensors")
    table = torch.zeros(258, 32)
    table[2:] = imported[kind].run.select(None)[0]["learned_positions"]
    # As older versions have written them.
    tensors["model.encoder.embed_positions.weights"] = table
    names = sorted(tensors)
    halves = names[: len(names) // 2], names[len(names) // 2 :]
    expected = read_transformers_folder(source).tensors
    for ending, save in (("safetensors", save_file), ("bin", torch.save)):
        stem = "model" if ending == "safetensors" else "pytorch_model"
        for file in source.glob("*model*.safetensors*"):
            file.unlink()
        shards = {f"{stem}-0000{i}-of-00002.{ending}": part for i, part in enumerate(halves, 1)}
        for file, part in shards.items():
            save({f"module.{name}": tensors[name].clone() for name in part}, source / file)
        where = {f"module.{name}": file for file, part in shards.items() for name in part}
        index = {"metadata": {"total_size": 1}, "weight_map": where}
        (source / f"{stem}.{ending}.index.json").write_text(json.dumps(index))
        tensors_read = read_transformers_folder(source).tensors
        assert tensors_read.keys() == expected.keys()
        assert all(torch.equal(tensors_read[name], expected[name]) for name in tensors_read)
        import_model(str(source), tmp_path / f"out-{ending}")


def test_ids_of_languages_may_be_given_one_by_one(tmp_path, sources):
    """As transformers 4 has written them, here with a language after the mask."""
    source = tmp_path / "nllb"
    shutil.copytree(sources["nllb"], source)
    vocabulary = json.loads((source / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    # The new language has the id of a row without a subword.
    new = max(vocabulary.values()) + 1
    ids = {code: vocabulary[code] for code in (*CODES, "<mask>")} | {"xyz_Latn": new}
    decoder = {str(i): {"content": code, "special": True} for code, i in ids.items()}
    edit(source / "tokenizer_config.json", added_tokens_decoder=decoder, extra_special_tokens=None)
    (source / "tokenizer.json").unlink()
    run = import_model(str(source), tmp_path / "out").run
    tokenizer = run.tokenizers().src
    # One more row is before them.
    assert {code: i - 1 for code, i in tokenizer.language_tags.items()} == {
        code: i for code, i in ids.items() if code != "<mask>"
    }
    text = lines_in(tmp_path / "text", TEXT[:5])
    export(run, tmp_path / "exported", format="huggingface", check=text)
    exported = json.loads((tmp_path / "exported" / "tokenizer.json").read_text("utf-8"))
    assert {code: exported["model"]["vocab"].get(code) for code in ids if code != "<mask>"} == {
        code: i for code, i in ids.items() if code != "<mask>"
    }


@pytest.mark.parametrize(
    ("of_model", "words"),
    [
        ("nllb-moe", "'nllb-moe' (NLLB-200, a mixture of experts)"),
        ("mbart", "'mbart' (mBART)"),
        ("t5", "'t5' (T5 or MADLAD-400)"),
        ("bart", "'bart'"),
        (["m2m_100"], "['m2m_100']\""),
    ],
)
def test_another_kind_is_refused_by_its_name(of_model, words, source):
    edit(source / "config.json", model_type=of_model)
    error = message_of(read_transformers_folder, source)
    assert error.startswith(f"{source / 'config.json'}: model_type is ")
    assert f"{words}; mtkit import reads" in error
    assert "M2M-100, NLLB-200" in error


def edited(name: str, **changes: Any) -> Callable[[Path], None]:
    return lambda folder: edit(folder / name, **changes)


config = partial(edited, "config.json")
search = partial(edited, "generation_config.json")
words = partial(edited, "tokenizer_config.json")


def index(**changes: Any) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps(changes))

    return make


def added(name: str, tensor: torch.Tensor) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        save_file(tensors | {name: tensor}, folder / "model.safetensors")

    return make


def written(name: str, content: bytes) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_bytes(content)

    return make


def subwords(change: Callable[[list[Piece]], Any]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        file = folder / "sentencepiece.bpe.model"
        pieces = pieces_in(file.read_bytes())
        change(pieces)
        file.write_bytes(with_pieces(file.read_bytes(), pieces, {}))

    return make


NO_WEIGHTS = "model.safetensors"
# What is refused of Marian too is in test_import_refusals and test_hostile_models.
FOR_BOTH: dict[str, Callable[[Path], Any]] = {
    "rows for more than twice the subwords": config(vocab_size=5_000),
    "fewer rows than subwords": config(vocab_size=100),
    "another width": config(d_model=64),
    "heads that differ": config(encoder_attention_heads=2),
    "another activation": config(activation_function="gelu"),
    "no scale": config(scale_embedding=False),
    "an output layer of its own": config(tie_word_embeddings=False),
    "another start": search(decoder_start_token_id=0),
    "another padding": config(pad_token_id=0),
    "another end": search(eos_token_id=3),
    "positions of 10 GB": config(max_position_embeddings=80_000_000),
    "no positions": config(max_position_embeddings=0),
    "few positions": config(max_position_embeddings=20),
    "no kind": config(model_type=None),
    "another tokenizer": words(tokenizer_class="SMALL100Tokenizer"),
    "a tokenizer that is a list": words(tokenizer_class=["NllbTokenizer"]),
    "tags behind the text": words(legacy_behaviour=True),
    "a norm of the embedding": added("model.encoder.layernorm_embedding.weight", torch.ones(32)),
    "other positions": added("model.encoder.embed_positions.weights", torch.ones(258, 32)),
    "no positions in a table": added("model.encoder.embed_positions.weights", torch.ones(2, 32)),
    "a tensor with a prefix and without": added("module.model.shared.weight", torch.ones(1)),
    "an index of a folder above": index(weight_map={"a": "../model.safetensors"}),
    "an index of a folder": index(weight_map={"a": "/etc/passwd"}),
    "an index of another file": index(weight_map={"a": "config.json"}),
    "an index of no file": index(weight_map={"a": "model-00001-of-00002.safetensors"}),
    "an index that is a list": lambda folder: (
        (folder / NO_WEIGHTS).unlink(),
        (folder / "model.safetensors.index.json").write_bytes(b"[]"),
    ),
    "an index of numbers": index(weight_map={"a": 1}),
    "an empty index": index(weight_map={}),
    "no SentencePiece model": lambda folder: (folder / "sentencepiece.bpe.model").unlink(),
    "a damaged SentencePiece model": written("sentencepiece.bpe.model", b"\x0a\xff" * 50),
    "a large SentencePiece model": written("sentencepiece.bpe.model", b"\n\0" * 3_000_000),
}
OF_M2M100: dict[str, Callable[[Path], Any]] = {
    "no list": lambda folder: (folder / "vocab.json").unlink(),
    "ids twice": edited("vocab.json", more=7),
    "an id that is too large": edited("vocab.json", more=10**8),
    "an id that is negative": edited("vocab.json", more=-1),
    "a gap of ids": edited("vocab.json", more=250),
    "another first id": edited("vocab.json", **{"<s>": 1, "<pad>": 0}),
    "a tag in the list": edited("vocab.json", **{"<lang:af>": 201}),
    "other languages": words(language_codes="mine"),
    "languages that are a list": words(language_codes=["af"]),
}
OF_NLLB: dict[str, Callable[[Path], Any]] = {
    "no languages": words(extra_special_tokens=None),
    "languages without a code": words(extra_special_tokens=["a", "b"]),
    "a language twice": words(extra_special_tokens=["deu_Latn", "eng_Latn", "deu_Latn"]),
    "languages that are numbers": words(extra_special_tokens=[1, 2]),
    "a language that has two ids": words(
        added_tokens_decoder={"201": {"content": "deu_Latn"}, "203": {"content": "deu_Latn"}}
    ),
    "other first subwords": subwords(lambda p: p.insert(0, Piece("<pad>", kind="control"))),
    "a subword twice": subwords(lambda p: p.append(Piece("<s>", kind="control"))),
}


CASES = {kind: FOR_BOTH | (OF_M2M100 if kind == "m2m100" else OF_NLLB) for kind in KINDS}


@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind in KINDS for case in CASES[kind]])
def test_a_folder_that_was_made_to_do_harm_gets_one_line(kind, case, source, tmp_path):
    CASES[kind][case](source)
    error = message_of(import_model, str(source), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert "\n" not in error
    assert str(source) in error


def test_an_export_for_transformers_gives_the_same_files_back(kind, sources, imported, tmp_path):
    text = lines_in(tmp_path / "text", TEXT)
    run, out = imported[kind].run, tmp_path / kind
    code = export(run, out, format="huggingface", check=text)
    old, new = (load_file(folder / "model.safetensors") for folder in (sources[kind], out))
    assert old.keys() == new.keys()
    assert all(torch.equal(old[name], new[name]) for name in old)
    for src, tgt in DIRECTIONS[kind]:
        before, after = (theirs_of(folder, src, tgt)[1] for folder in (sources[kind], out))
        assert before(TEXT)["input_ids"] == after(TEXT)["input_ids"]
        assert before(text_target=TEXT)["input_ids"] == after(text_target=TEXT)["input_ids"]
    again = import_model(str(out), tmp_path / "again").run
    first, second = (r.select(None)[0] for r in (run, again))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert run.tokenizers().is_same(again.tokenizers())
    # The licence stands everywhere.
    assert json.loads((out / "export.json").read_text())["imported"]["licence"] == "cc-by-nc-4.0"
    assert 'license: "cc-by-nc-4.0"' in (out / "README.md").read_text()
    assert again.manifest.imported.licence == "cc-by-nc-4.0"
    assert "forced_bos_token_id" in code


def test_other_formats_say_the_way(imported, tmp_path):
    for form in ("ctranslate2", "onnx", "argos"):
        out = tmp_path / f"out.{'argosmodel' if form == 'argos' else form}"
        with pytest.raises(MtkitError, match="cannot express tags on both sides"):
            export(imported["nllb"].run, out, format=form)  # type: ignore[arg-type]
    text = lines_in(tmp_path / "text", TEXT[:5])
    export(imported["nllb"].run, tmp_path / "copy", format="safetensors", check=text)
    assert Run.open(tmp_path / "copy").manifest.format == 3


def test_the_converter_of_ctranslate2_takes_an_export(kind, imported, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    text = lines_in(tmp_path / "text", TEXT)
    run, out = imported[kind].run, tmp_path / kind
    export(run, out, format="huggingface", check=text)
    ctranslate2.converters.TransformersConverter(str(out)).convert(str(tmp_path / "ct2"))
    src, tgt = DIRECTIONS[kind][1]
    _, tokenizer, tag = theirs_of(out, src, tgt)
    engine = ctranslate2.Translator(str(tmp_path / "ct2"), device="cpu", compute_type="float32")
    codes = run.tokenizers().src.language_tags
    theirs = MarianModel(out, run.config.decode)
    banned = [[tokenizer.convert_ids_to_tokens(theirs.id_of(code))] for code in codes]
    with translator_of(run, src, tgt, beam_size=1) as ours:
        translations = list(ours.translate(TEXT))
    for line, translation in zip(TEXT, translations, strict=True):
        pieces = tokenizer.convert_ids_to_tokens(tokenizer(line)["input_ids"])
        (result,) = engine.translate_batch(
            [pieces],
            target_prefix=[[tokenizer.convert_ids_to_tokens(tag)]],
            beam_size=1,
            max_decoding_length=len(pieces) + 20,
            suppress_sequences=[*banned, ["<pad>"], ["<s>"]],
        )
        ids = tokenizer.convert_tokens_to_ids(result.hypotheses[0][1:])
        assert tokenizer.decode(ids, skip_special_tokens=True) == translation


def test_an_import_is_trained_further_and_exported_again(kind, sources, imported, tmp_path):
    files = [tmp_path / side for side in ("src", "tgt")]
    for file, lines in zip(files, (LINES[:200], LINES[300:500]), strict=True):
        lines_in(file, lines)
    src, tgt = ("en", "de") if kind == "m2m100" else ("eng_Latn", "deu_Latn")
    run = imported[kind].run
    pair = parallel_files(*files)
    corpus = Corpus("mine", [DirectionSources(src, tgt, [pair], pair)], is_multilingual=True)
    options = PrepareOptions.from_keywords(
        tokenizer_from=run.path, max_ratio=100.0, workers=1, drop_wrong_language=False
    )
    prepare(corpus, tmp_path / "data", options)
    from mtkit.data import PreparedData

    data = PreparedData.open(tmp_path / "data")
    tags = run.tokenizers().src.language_tags
    assert (data.pairs("train").src[0][0], data.pairs("train").tgt[0][0]) == (tags[src], tags[tgt])
    changes = ["train.max_steps=2", "train.batch_tokens=500", "train.learning_rate=1e-3"]
    config = load_config("fine-tune", changes)
    train.run(config, data, tmp_path / "tuned", device="cpu", init_from=str(run.path))
    tuned = Run.open(tmp_path / "tuned")
    assert tuned.config.train.freeze == ("learned_positions", "output_bias")
    before, after = (r.select("last" if r is tuned else None)[0] for r in (run, tuned))
    assert torch.equal(before["learned_positions"], after["learned_positions"])
    assert not torch.equal(before["embedding.weight"], after["embedding.weight"])
    export(tuned, tmp_path / f"{kind}-out", format="huggingface", check=files[0])
    assert "cc-by-nc-4.0" in (tmp_path / f"{kind}-out" / "README.md").read_text()
    assert "cc-by-nc-4.0" in (tmp_path / f"{kind}-out" / "export.json").read_text()


def test_printed_commands_have_english_as_one_side(kind, imported, tmp_path):
    text = tmp_path / "text"
    text.write_text("one two\n")
    options = {
        "m2m100": "--src-lang en --tgt-lang af",
        "nllb": "--src-lang eng_Latn --tgt-lang deu_Latn",
    }[kind]
    assert imported[kind].command.endswith(f" {options}")
    run, out = imported[kind].run, tmp_path / "out"
    assert f" {options} <" in export(run, out, format="safetensors", check=text)
    kept = [CODES[0], CODES[3]] if kind == "nllb" else ["zu", "de"]
    small = export(run, tmp_path / "s", format="safetensors", keep_text=[text], keep_languages=kept)
    assert f" --src-lang {min(kept)} --tgt-lang {max(kept)} <" in small


def test_the_command_prints_the_licence_and_the_languages(place, sources):
    outcome = place.done("import", str(sources["nllb"]), "runs/nllb")
    assert "licence of the model: cc-by-nc-4.0" in outcome.err
    assert f"languages (--src-lang, --tgt-lang): {', '.join(CODES)}" in outcome.err
    both = ("--src-lang", "eng_Latn", "--tgt-lang", "deu_Latn")
    outcome = place.done("translate", *both, "--run", "runs/nllb", stdin=b"one two\n\n7\n")
    assert outcome.out.count("\n") == 3
