"""Smaller vocabularies (`export --keep-text`): a text is segmented as before, by the same rows."""

import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import number_pairs, random_run, write_pairs
from support.errors import message_of
from support.kinds_of_runs import KINDS, USUAL, run_of_kind
from support.marian import lines_in
from support.prepared import prepare_several

from mtkit.base.errors import MtkitError
from mtkit.base.sentencepiece_model import Piece
from mtkit.convert import export
from mtkit.data import PreparedData
from mtkit.prepare import parallel_files
from mtkit.run_folder import Run
from mtkit.tokenizer import Tokenizer, Vocabularies
from mtkit.train.start import initial_weights
from mtkit.translate import Translator

LINES = ["one two three", "eins zwei drei", "seven", "seben xyz", "  two   nine "]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Run]:
    pytest.importorskip("transformers")
    return {kind: run_of_kind(tmp_path_factory.mktemp("run"), kind) for kind in KINDS}


@pytest.fixture
def text(tmp_path) -> Path:
    return lines_in(tmp_path / "text", LINES)


@pytest.fixture
def run(runs) -> Run:
    return runs["bpe with tags on both sides"]


def trimmed(run: Run, out: Path, *files: Path, **options: Any) -> Run:
    export(run, out, format="safetensors", keep_text=files, **options)
    return Run.open(out)


def names(tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.piece(i) for i in range(len(tokenizer))]


def pieces(tokenizer: Tokenizer, line: str) -> list[str]:
    return [tokenizer.piece(i) for i in tokenizer.encode(line)]


@pytest.mark.parametrize("kind", KINDS)
def test_text_is_segmented_as_before_and_rows_are_those_of_the_same_subwords(
    kind, runs, text, tmp_path
):
    run = runs[kind]
    small = trimmed(run, tmp_path / "out", text)
    old, new = run.tokenizers(), small.tokenizers()
    before, after = run.select(None)[0], small.select(None)[0]
    for ours, theirs in zip(old, new, strict=True):
        assert len(theirs) < len(ours)
        # In the same order, without some.
        assert names(theirs) == [name for name in names(ours) if name in {*names(theirs)}]
        for line in LINES:
            assert pieces(ours, line) == pieces(theirs, line)
        assert theirs.language_tags.keys() == ours.language_tags.keys()
        one_character = {name for name in names(ours) if len(name) == 1}
        byte_names = {name for name in names(ours) if name.startswith("<0x")}
        assert one_character | byte_names <= {*names(theirs)}
    sides = {"src_embedding.weight": 0, "embedding.weight": 1, "output_bias": 1}
    for name, tensor in before.items():
        if name not in sides:
            assert torch.equal(after[name], tensor)
            continue
        ours, theirs = old[sides[name]], new[sides[name]]
        place = {piece: i for i, piece in enumerate(names(ours))}
        assert torch.equal(after[name], tensor[[place[piece] for piece in names(theirs)]])


@pytest.mark.parametrize(
    "kind", ["bpe with tags on both sides", "unigram with tags on the source", "nllb"]
)
def test_a_trimmed_run_is_a_usual_run(kind, runs, text, tmp_path):
    small = trimmed(runs[kind], tmp_path / "out", text)
    codes = ("eng_Latn", "deu_Latn") if kind == "nllb" else ("en", "de")
    languages: dict[str, Any] = dict(zip(("src_lang", "tgt_lang"), codes, strict=True))
    texts = {}
    for engine in ("native", "torch"):
        decode = small.config.decode.model_copy(
            update={"engine": engine, "precision": "fp32", "max_extra_length": 10}
        )
        with Translator.load(small, config=decode, **languages) as loaded:
            texts[engine] = list(loaded.translate([*LINES, "☃ ř", ""]))
    assert texts["native"] == texts["torch"]
    files = parallel_files(*write_pairs(tmp_path, "new", number_pairs(60, seed=2)))
    directions = [{**languages, "train": [files], "valid": files}]
    prepare_several(
        "new", tmp_path / "data", directions=directions, tokenizer_from=small.path, **USUAL
    )
    weights = initial_weights(small, None, PreparedData.open(tmp_path / "data")).weights
    assert len(weights["embedding.weight"]) == len(small.tokenizers().tgt)
    # And it is exported again.
    assert trimmed(small, tmp_path / "again", text).tokenizers().is_same(small.tokenizers())


@pytest.mark.parametrize("kind", ["marian", "marian with two matrices", "nllb", "m2m100"])
def test_a_trimmed_import_leaves_for_transformers(kind, runs, text, tmp_path):
    small = trimmed(runs[kind], tmp_path / "out", text)
    # Compared with transformers, which keeps spaces at the end.
    text.write_text("".join(f"{line.strip()}\n" for line in LINES))
    export(small, tmp_path / "hf", format="huggingface", check=text)
    assert json.loads((tmp_path / "hf" / "export.json").read_text())["check"]["difference"] < 1e-4


def test_only_the_tags_of_the_languages_asked_for_stay(runs, text, tmp_path):
    nllb = trimmed(runs["nllb"], tmp_path / "nllb", text, keep_languages=["de", "eng_Latn"])
    assert [*nllb.tokenizers().src.language_tags] == ["deu_Latn", "eng_Latn"]
    kind = "unigram with tags on the source"
    small = trimmed(runs[kind], tmp_path / "one", text, keep_languages=["de"])
    assert [*small.tokenizers().src.language_tags] == ["de"]
    data = small.manifest.data
    assert [(d.src_lang, d.tgt_lang) for d in data.directions] == [("en", "de")]
    assert (data.src_lang, data.tgt_lang) == ("en", "de")
    with Translator.load(small) as loaded:
        assert len([*loaded.translate(LINES)]) == len(LINES)
    assert "en to de" in (tmp_path / "one" / "README.md").read_text()


def test_what_is_left_is_said(run, text, tmp_path, caplog):
    other = tmp_path / "other"
    other.write_text("one two\nfour\n")
    text.write_text("one two\n" * 20)
    with caplog.at_level(logging.INFO):
        small = trimmed(run, tmp_path / "out", text, check=other)
    sizes = len(small.tokenizers().src), len(run.tokenizers().src)
    assert f"subwords: {sizes[0]} of {sizes[1]} are left; 20 lines of text" in caplog.text
    assert f"{other}: 50.0 % of its lines are segmented as before" in caplog.text
    assert "of 1 lines, " in caplog.text
    peer = "(against the whole run without the subwords that were left out) identical"
    assert f"checked: 1 of 1 line of {other} {peer}" in caplog.text
    weights = sum(tensor.numel() for tensor in small.select(None)[0].values())
    assert f"{weights:,} parameters" in (tmp_path / "out" / "README.md").read_text()


def test_lines_that_are_held_back_tell_of_other_text(run, text, tmp_path, caplog):
    # The first of ten lines is held back; half of these have words that no other line has.
    lines_in(text, ["one two"] + ["one two"] * 9 + ["nine four"] + ["one two"] * 9)
    with caplog.at_level(logging.INFO):
        trimmed(run, tmp_path / "out", text)
    assert "a tenth of the text, if it is held back: 50.0 % of its lines" in caplog.text


def test_several_files_are_one_text(run, tmp_path):
    files = []
    for number, line in enumerate(("one two", "acht neun", "Ω ☃")):
        files.append(tmp_path / str(number))
        files[-1].write_text(f"{line}\n\n{line}", encoding="utf-8")
    small = trimmed(run, tmp_path / "out", *files)
    for line in ("one two", "acht neun", "Ω ☃"):
        assert pieces(small.tokenizers().src, line) == pieces(run.tokenizers().src, line)


def test_a_text_in_another_script_keeps_bytes_and_loses_nothing(run, tmp_path):
    file = tmp_path / "greek"
    file.write_text("ένα δύο τρία\n", encoding="utf-8")
    tokenizer = trimmed(run, tmp_path / "out", file).tokenizers().src
    for line in ("ένα δύο", "seventeen zwölf", "漢字"):
        assert tokenizer.decode(tokenizer.encode(line)) == line


@pytest.mark.parametrize("content", [b"", b"\n\n", b"  \n\t\n"])
def test_a_file_without_text_is_refused(content, run, text, tmp_path):
    text.write_bytes(content)
    with pytest.raises(MtkitError, match="--keep-text: there is no text in "):
        trimmed(run, tmp_path / "out", text)
    assert not (tmp_path / "out").exists()


HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "a file that is missing": ({"keep_text": ["missing"]}, "missing"),
    "a folder": ({"keep_text": ["."]}, ""),
    "another format": ({"format": "huggingface"}, "requires --format safetensors"),
    "argos": ({"format": "argos"}, "requires --format safetensors"),
    "a language alone": ({"keep_text": [], "keep_languages": ["de"]}, "requires --keep-text FILE"),
    "an unknown language": ({"keep_languages": ["xx"]}, "does not have it; it has de, en"),
    "an empty language": ({"keep_languages": [""]}, "does not have it; it has de, en"),
    "one language of a direction": ({"keep_languages": ["de"]}, "has no direction between de; "),
    "one language twice": ({"keep_languages": ["de", "de"]}, "has no direction between de; "),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_cannot_be_trimmed_gets_one_line(case, run, text, tmp_path):
    changes, message = HOSTILE[case]
    options = {"format": "safetensors", "keep_text": [text], **changes}
    options["keep_text"] = [Path(tmp_path, file) for file in options["keep_text"]]
    out = tmp_path / ("out.argosmodel" if case == "argos" else "out")
    error = message_of(export, run, out, **options)
    assert message in error
    assert "\n" not in error
    assert not out.exists()


def test_one_language_of_an_import_without_directions_gets_one_line(runs, text, tmp_path):
    assert not runs["nllb"].manifest.data.directions
    with pytest.raises(
        MtkitError, match="no direction between deu_Latn; give both languages of one"
    ):
        trimmed(runs["nllb"], tmp_path / "out", text, keep_languages=["de"])


def test_a_run_without_tags_and_a_parser_are_refused(tiny_run, tree_data, text, tmp_path):
    with pytest.raises(MtkitError, match="has no language tags; leave it out"):
        trimmed(tiny_run, tmp_path / "out", text, keep_languages=["de"])
    with pytest.raises(MtkitError, match="is for translation, and not for a parser"):
        trimmed(random_run(tmp_path / "parser", tree_data, 1), tmp_path / "out", text)


def test_a_run_and_its_trimmed_copy_are_no_ensemble(run, text, tmp_path):
    small = trimmed(run, tmp_path / "out", text)
    with pytest.raises(MtkitError, match="has another vocabulary than"):
        Translator.load([run, small], src_lang="en", tgt_lang="de")


def test_terms_of_a_glossary_may_have_subwords_that_were_left_out(run, text, tmp_path):
    text.write_text("seven\n")
    small = trimmed(run, tmp_path / "out", text)
    terms = tmp_path / "terms.tsv"
    terms.write_text("seven\tzwölfeins\n", encoding="utf-8")
    decode = small.config.decode.model_copy(update={"max_extra_length": 30})
    with Translator.load(
        small, config=decode, src_lang="en", tgt_lang="de", glossary=terms
    ) as loaded:
        assert "zwölfeins" in next(iter(loaded.translate(["seven"])))


def test_a_vocabulary_without_bytes_says_which_characters_are_lost(runs, tmp_path, text, caplog):
    shutil.copytree(runs["nllb"].path, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    tokenizer = run.tokenizers().src.with_more([Piece("ↄↀ", -9.0)])
    weights = run.select(None)[0]
    for name in ("embedding.weight", "output_bias"):
        weights[name] = torch.cat((weights[name], weights[name][:1]))
    vocabularies = Vocabularies.joint(tokenizer)
    made = Run.create(tmp_path / "other", run.config, vocabularies, manifest=run.manifest)
    made.save(0, weights=weights, optimizer=None, state={})
    trimmed(Run.open(tmp_path / "other"), tmp_path / "out", text)
    assert "unknown from now on" in caplog.text
    assert "2 characters (ↀ ↄ)" in caplog.text


@pytest.mark.parametrize("is_kept", [True, False])
def test_text_without_translations_is_said(is_kept, runs, tmp_path, text, caplog):
    run = runs["nllb"]
    tokenizer = run.tokenizers().src
    used = {i for line in LINES for i in tokenizer.encode(line)}
    # Words, of which all translations then are.
    words = [i for i in range(len(tokenizer)) if re.fullmatch("[▁a-z]{3,}", tokenizer.piece(i))]
    always = next(i for i in words if (i in used) == is_kept)
    weights = run.select(None)[0]
    weights["output_bias"][always] += 1e4
    made = Run.create(tmp_path / "run", run.config, run.tokenizers(), manifest=run.manifest)
    made.save(0, weights=weights, optimizer=None, state={})
    trimmed(Run.open(tmp_path / "run"), tmp_path / "out", text)
    advice = "give text in the target language too, with a further --keep-text"
    assert (advice in caplog.text) != is_kept


def test_the_command_has_the_options(place, run, text):
    arguments = ("export", str(run.path), "small", "--format", "safetensors")
    outcome = place.done(
        *arguments, "--keep-text", str(text), "--keep-language", "de", "--keep-language", "en"
    )
    assert "are segmented as before" in outcome.err
    assert "mtkit translate --run small --src-lang en --tgt-lang de" in outcome.err
    outcome = place.mtkit(*arguments, "--keep-language", "de")
    assert outcome.status == 1
    assert outcome.err.count("\n") == 1
