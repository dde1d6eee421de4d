"""Languages and characters that are added to a run (`prepare --add-language`, `--add-characters`).

Expected rows are taken from the weights of the run by the names of subwords.
"""

import logging
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import GERMAN, GREEK, changed, number_pairs, write_pairs
from support.kinds_of_runs import KINDS, USUAL, run_of_kind
from support.prepared import prepare_several
from support.training import assert_equal_tensors
from torch import Tensor

from mtkit.base.errors import MtkitError
from mtkit.config import load_config
from mtkit.convert import export, import_model
from mtkit.convert.export_record import Format
from mtkit.data import PreparedData
from mtkit.prepare import parallel_files, prepare_files
from mtkit.run_folder import Run
from mtkit.tokenizer import Tokenizer
from mtkit.train import assembly as train
from mtkit.train.start import initial_weights
from mtkit.translate import Translator

# Numbers in a language of its own, whose ř and ☃ no German or English text has.
NEW_WORDS = [f"{word}ř☃" for word in GERMAN]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    pytest.importorskip("transformers")
    return {kind: run_of_kind(tmp_path_factory.mktemp("run"), kind) for kind in KINDS}


def adapted(
    run: Run,
    folder: Path,
    code: str = "cs",
    like: str | None = "de",
    *,
    words: list[str] = NEW_WORDS,
    **options: Any,
) -> PreparedData:
    """Data of a new language for a run."""
    folder.mkdir(exist_ok=True)
    pairs = write_pairs(folder, f"new-{code}", number_pairs(60, seed=2, words=words))
    files = parallel_files(*pairs)
    src = "eng_Latn" if "eng_Latn" in run.tokenizers().src.language_tags else "en"
    direction = {"src_lang": src, "tgt_lang": code, "train": [files], "valid": files}
    added = {"added_languages": [f"{code}={like}"] if like else [], "add_characters": True}
    options = {**USUAL, **added, "tokenizer_from": run.path, **options}
    prepare_several("new", folder / "new", directions=[direction], **options)
    return PreparedData.open(folder / "new")


def fine_tuned(run: Run | None, data: PreparedData, place: Path, **settings: Any) -> Run:
    """A run that is trained further, or without one the run in the place."""
    usual = {"max_steps": 2, "checkpoint_every": 2, "valid_every": 4, "batch_tokens": 300}
    usual |= {"schedule": "constant", "learning_rate": 0.01, "warmup_steps": 1, "precision": "fp32"}
    config = load_config("fine-tune", ["decode.max_extra_length=5"])
    config = changed(config, "train", **{**usual, **settings})
    train.run(config, data, place, device="cpu", init_from=run and str(run.path))
    return Run.open(place)


def rows(weights: dict[str, Tensor], name: str, tokenizer: Tokenizer, pieces: list[str]) -> Tensor:
    ids = [next(i for i in range(len(tokenizer)) if tokenizer.piece(i) == x) for x in pieces]
    return weights[name][ids]


def bytes_of(character: str) -> list[str]:
    return [f"<0x{byte:02X}>" for byte in character.encode()]


@pytest.mark.parametrize("kind", KINDS)
def test_old_rows_stay_and_new_ones_begin_as_documented(kind, runs, tmp_path):
    run, code = runs[kind], "ces_Latn" if kind == "nllb" else "dsb"
    data = adapted(run, tmp_path, code)
    old, new = run.tokenizers(), data.tokenizers()
    before = run.select(None)[0]
    initial = initial_weights(run, None, data)
    after = initial.weights
    assert {name for name in before if not torch.equal(before[name], after[name])} <= {
        "embedding.weight",
        "src_embedding.weight",
        "output_bias",
    }
    is_one = "src_embedding.weight" not in before
    for side, name in enumerate(("src_embedding.weight", "embedding.weight")):
        if name not in before:
            continue
        ours, theirs = old[side], new[side]
        count = len(ours)
        assert torch.equal(after[name][:count], before[name])
        assert [theirs.piece(i) for i in range(count)] == [ours.piece(i) for i in range(count)]
        assert len(after[name]) == len(theirs)
        added = [theirs.piece(i) for i in range(count, len(theirs))]
        tags = [piece for piece in added if code in piece]
        # A vocabulary of the target alone has no tags of sources.
        assert len(tags) == (0 if name == "embedding.weight" and not is_one else 1)
        # The English side alone does not have them.
        has_new = is_one or name == "embedding.weight"
        assert {*added} - {*tags} == ({"ř", "☃"} if has_new else set())
        like = tags and tags[0].replace(code, "deu_Latn" if kind == "nllb" else "de")
        for piece, row in zip(added, after[name][count:], strict=True):
            if piece in tags:
                assert torch.equal(row, rows(before, name, ours, [like])[0])
            elif ours.has_bytes:
                expected = rows(before, name, ours, bytes_of(piece)).mean(0)
                torch.testing.assert_close(row, expected)
            else:
                # Its base letter as the first of a word, or else the unknown token.
                base = unicodedata.normalize("NFKD", piece)[0]
                known = base != piece
                spelled = ours.encode(base) if known else [3]
                spelled = [i for i in spelled if ours.piece(i) != "▁"]
                torch.testing.assert_close(row, before[name][spelled].mean(0))
    bias, ours = after["output_bias"], old.tgt
    assert torch.equal(bias[: len(ours)], before["output_bias"])
    assert len(bias) == len(new.tgt)
    assert bias[len(ours) :].abs().max() < 100
    assert "rows added to the embedding" in initial.added_rows
    # Old text has its old ids.
    lines = [line for pair in number_pairs(50, seed=3) for line in pair]
    for ours, theirs in zip(old, new, strict=True):
        assert ours.encode_batch(lines) == theirs.encode_batch(lines)
    assert not new.tgt.is_fallback[new.tgt.encode("ř☃")].any()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "tags" in kind or kind == "m2m100"])
def test_training_goes_on_and_what_comes_out_is_a_usual_run(kind, runs, tmp_path, caplog):
    run = runs[kind]
    data = adapted(run, tmp_path, "dsb")
    with caplog.at_level(logging.INFO):
        fine_tuned(run, data, tmp_path / "tuned", max_steps=4)
    (line,) = [line for line in caplog.messages if "added to the embedding" in line]
    assert line == (
        "3 rows added to the embedding: the tag of dsb from that of de; 2 characters from what "
        "they were spelled with (ř ☃)"
    )
    # It continues without the first run.
    tuned = fine_tuned(None, data, tmp_path / "tuned", max_steps=6)
    assert tuned.checkpoints()[-1].step == 6
    texts = {}
    for engine in ("native", "torch"):
        decode = tuned.config.decode.model_copy(update={"engine": engine, "precision": "fp32"})
        with Translator.load(tuned, config=decode, src_lang="en", tgt_lang="dsb") as loaded:
            texts[engine] = list(loaded.translate(["one two", "nine ř☃"]))
            assert loaded.tgt_lang == "dsb"
    assert texts["native"] == texts["torch"]
    export(tuned, tmp_path / "copy", format="safetensors")
    assert Run.open(tmp_path / "copy").tokenizers().is_same(data.tokenizers())
    # And once more, with another language: the rows that it has stay.
    again = adapted(tuned, tmp_path / "more", "hsb", "dsb")
    first, second = tuned.select(None)[0], initial_weights(tuned, None, again).weights
    count = len(tuned.tokenizers().tgt)
    assert torch.equal(second["embedding.weight"][:count], first["embedding.weight"])
    tag = tuned.tokenizers().src.language_tags["dsb"]
    assert torch.equal(second["embedding.weight"][count], first["embedding.weight"][tag])


def test_data_that_was_prepared_from_such_data_fits_the_first_run_too(runs, tmp_path):
    run = runs["bpe with tags on both sides"]
    first = adapted(run, tmp_path / "first")
    second = adapted(run, tmp_path / "second", "sk", "cs", tokenizer_from=first.path)
    weights = initial_weights(run, None, second).weights["embedding.weight"]
    tags = second.tokenizers().src.language_tags
    assert torch.equal(weights[tags["sk"]], weights[tags["de"]])
    assert torch.equal(weights[tags["cs"]], weights[tags["de"]])


def test_without_missing_characters_only_the_tag_is_added(runs, tmp_path):
    run = runs["bpe with tags on both sides"]
    data = adapted(run, tmp_path, add_characters=False, words=GERMAN)
    assert len(data.tokenizers().src) == len(run.tokenizers().src) + 1
    assert data.manifest.settings["vocab_size"] == len(data.tokenizers().src)
    assert data.manifest.tokenizer_from["added_languages"] == {"cs": "de"}


def test_a_new_script_suits_a_vocabulary_that_gets_its_characters(runs, tmp_path):
    run = runs["bpe with tags on both sides"]
    with pytest.raises(MtkitError, match="was not learned for this script"):
        adapted(run, tmp_path, "el", words=GREEK, add_characters=False)
    data = adapted(run, tmp_path, "el", words=GREEK)
    assert {letter for word in GREEK for letter in word} <= {*data.tokenizers().src.characters}
    assert data.manifest.settings["vocab_size"] == len(data.tokenizers().src)


def test_a_bilingual_run_takes_characters(tmp_path, tiny_run, tiny_data):
    pairs = write_pairs(tmp_path, "new", number_pairs(60, seed=2, words=NEW_WORDS))
    options = USUAL | {"tokenizer_from": tiny_run.path, "add_characters": True}
    arguments = {"src_lang": "en", "tgt_lang": "de", "train": [pairs], "valid": pairs}
    prepare_files("new", tmp_path / "new", **arguments, **options)
    data = PreparedData.open(tmp_path / "new")
    weights = initial_weights(tiny_run, None, data).weights["embedding.weight"]
    old = tiny_run.select(None)[0]["embedding.weight"]
    assert torch.equal(weights[: len(old)], old)
    assert len(weights) == len(old) + 2


def test_data_with_other_subwords_is_refused_as_before(runs, tmp_path):
    data = adapted(runs["bpe with tags on both sides"], tmp_path)
    for kind in ("unigram with tags on the source", "m2m100", "a vocabulary for each side"):
        with pytest.raises(MtkitError, match="was prepared with other subwords than those of"):
            initial_weights(runs[kind], None, data)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("cs=xx", "has no xx; it has de, en"),
        ("cs=", "write cs=LIKE, with a related language"),
        ("deu_Latn=en", "has de already; leave it out"),
        ("c s=de", "'c s' is not a language code"),
        ("sk=de", "no direction of the corpus has sk; its languages are cs, en"),
        ("cs=cs", "has no cs; it has de, en"),
    ],
)
def test_a_language_that_cannot_be_added_gets_one_line(pair, message, runs, tmp_path):
    run = runs["bpe with tags on both sides"]
    with pytest.raises(MtkitError) as caught:
        adapted(run, tmp_path, like=None, added_languages=[pair])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "new").exists()


def test_the_nearest_languages_are_named_and_codes_of_another_standard_are_known(runs, tmp_path):
    with pytest.raises(MtkitError) as caught:
        adapted(runs["m2m100"], tmp_path, "csb", "gsw")
    # By CLDR, who speaks Swiss German understands German.
    assert re.search(r" has no gsw; it has 100 languages; the nearest are de\b", str(caught.value))
    data = adapted(runs["nllb"], tmp_path, "ces_Latn", "de")
    assert data.manifest.tokenizer_from["added_languages"] == {"ces_Latn": "deu_Latn"}


def test_a_run_without_tags_and_a_preparation_without_a_run_get_one_line(tmp_path, tiny_run):
    pairs = write_pairs(tmp_path, "new", number_pairs(60, seed=2))
    arguments: dict[str, Any] = {"src_lang": "en", "tgt_lang": "de", "train": [pairs]}
    arguments |= {"valid": pairs, "added_languages": ["de=en"]}
    with pytest.raises(MtkitError, match="has no language tags, so it is not that of a multil"):
        prepare_files("new", tmp_path / "new", tokenizer_from=tiny_run.path, **arguments)
    with pytest.raises(MtkitError, match="require --tokenizer-from RUN"):
        prepare_files("new", tmp_path / "new", **arguments)


def test_the_command_has_the_options(place, runs, tmp_path):
    run = runs["bpe with tags on both sides"]
    pairs = write_pairs(tmp_path, "new", number_pairs(60, seed=2, words=NEW_WORDS))
    corpus = place.folder / "corpus.yaml"
    corpus.write_text(
        "directions:\n  - src_lang: en\n    tgt_lang: cs\n"
        f"    train: [[{pairs[0]}, {pairs[1]}]]\n    valid: [{pairs[0]}, {pairs[1]}]\n"
        "settings: {max_ratio: 100, min_script: 0, drop_wrong_language: false}\n"
    )
    options = ("--tokenizer-from", str(run.path), "--add-language", "cs=de", "--add-characters")
    outcome = place.mtkit("prepare", str(corpus), *options)
    assert outcome.status == 0, outcome.err
    assert "characters added to the vocabulary: 2 (ř, ☃)" in outcome.err
    assert f"--init-from {run.path}" in outcome.err


@pytest.mark.parametrize("kind", ["bpe with tags on both sides", "a vocabulary for each side"])
@pytest.mark.parametrize(
    "changes",
    [
        {"freeze": ["embedding", "src_embedding"]},
        {"lora_rank": 2},
        {"ema": 0.5, "freeze": ["embedding"]},
    ],
)
def test_of_a_frozen_embedding_the_new_rows_alone_are_trained(kind, changes, runs, tmp_path):
    run, data = runs[kind], adapted(runs[kind], tmp_path, "dsb")
    before, initial = run.select(None)[0], initial_weights(run, None, data).weights
    embeddings = [name for name in ("embedding", "src_embedding") if f"{name}.weight" in before]
    frozen = [name for name in embeddings if name in changes.get("freeze", embeddings)]
    if "freeze" in changes:
        changes = changes | {"freeze": tuple(frozen)}
    changes |= {"seed": 3}
    whole = fine_tuned(run, data, tmp_path / "whole", max_steps=4, **changes)
    for start, last in ((run, 2), (None, 4)):
        stopped = fine_tuned(start, data, tmp_path / "stopped", max_steps=last, **changes)
    tuned = whole.select("last")[0]
    assert_equal_tensors(tuned, stopped.select("last")[0])
    for name in (f"{name}.weight" for name in frozen):
        old, began, weight = before[name], initial[name], tuned[name]
        assert torch.equal(weight[: len(old)], old)
        assert len(weight) == len(began) > len(old)
        assert not torch.isclose(weight[len(old) :], began[len(old) :], atol=1e-6).all(1).any()


def test_of_an_import_of_m2m100_the_rows_of_start_and_eos_stay_the_same(runs, tmp_path):
    """So that it can leave again: there they are one row."""
    run, text = runs["nllb"], tmp_path / "text"
    data = adapted(run, tmp_path, "deu_Latn", None, words=GERMAN, add_characters=False)
    tuned = fine_tuned(run, data, tmp_path / "r", optimizer="muon", max_steps=4)
    weights = tuned.select(None)[0]["embedding.weight"]
    assert torch.equal(weights[1], weights[2])
    assert not torch.equal(weights[1], run.select(None)[0]["embedding.weight"][1])
    text.write_text("one two\nthree\n")
    export(tuned, tmp_path / "exported", format="huggingface", check=text)


def assert_stays(run: Run, out: Path, reason: str) -> None:
    """No format sends the user to another one that cannot express the run either."""
    formats: tuple[Format, ...] = ("ctranslate2", "onnx", "argos", "huggingface")
    for form in formats:
        with pytest.raises(MtkitError, match=reason) as caught:
            export(run, out.with_suffix(".argosmodel") if form == "argos" else out, format=form)
        message = str(caught.value)
        assert message.startswith(f"--format {form} cannot express")
        assert re.findall("--format (\\w+)", message) == [form, "safetensors"]


def test_a_run_that_no_other_software_can_have_is_told_so(runs, tmp_path):
    out = tmp_path / "out"
    own = runs["bpe with tags on both sides"]
    assert_stays(own, out, "not have the subwords of M2M-100 or NLLB-200")
    for kind, like, reason in (
        ("nllb", "deu_Latn", "codes such as eng_Latn, and not dsb;"),
        ("m2m100", "de", "list of languages of M2M-100 is fixed"),
    ):
        data = adapted(runs[kind], tmp_path / kind, "dsb", like)
        assert_stays(fine_tuned(runs[kind], data, tmp_path / f"tuned-{kind}"), out, reason)
    text = tmp_path / "text"
    text.write_text("one two\n")
    few, keep = tmp_path / "few", {"keep_text": [text], "keep_languages": ["en", "de"]}
    export(runs["m2m100"], few, format="safetensors", **keep)  # type: ignore[arg-type]
    assert_stays(Run.open(few), out, "list of languages of M2M-100 is fixed")


# NLLB-200 has the first of them, and not the second.
@pytest.mark.parametrize("code", ["ces_Latn", "dsb_Latn"])
def test_what_was_added_leaves_to_transformers_and_comes_back(code, runs, tmp_path):
    run, text, out = runs["nllb"], tmp_path / "text", tmp_path / "exported"
    tuned = fine_tuned(run, adapted(run, tmp_path, code, "deu_Latn"), tmp_path / "r")
    text.write_text("".join(f"{word} one\n" for word in NEW_WORDS) + "☃ neun ř\n")
    # Compared with transformers, whose tokenizer must know the characters.
    export(tuned, out, format="huggingface", check=text)
    assert code in (out / "tokenizer_config.json").read_text()
    tokenizer = import_model(str(out), tmp_path / "back", check=text).run.tokenizers().src
    assert code in tokenizer.language_tags
    assert {"ř", "☃"} <= {tokenizer.piece(i) for i in range(len(tokenizer))}


def test_a_language_under_another_code_is_named_as_the_run_has_it(runs, tmp_path):
    with pytest.raises(MtkitError, match="has de; write de and not deu_Latn"):
        adapted(runs["bpe with tags on both sides"], tmp_path, "deu_Latn", None)
