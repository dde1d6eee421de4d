"""Preparing text with the subwords of a run or of other data (`prepare --tokenizer-from`)."""

import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from conftest import GREEK, number_pairs, write_pairs
from support.errors import message_of
from support.prepared import prepare_trees

from mtkit.base.errors import MtkitError
from mtkit.data import PreparedData
from mtkit.prepare import Treebank, passes, prepare_files
from mtkit.tokenizer import VOCABULARY_FILES


def new_pairs(folder: Path, *, words: list[str] | None = None) -> tuple[Path, Path]:
    """Pairs of numbers in English and in another language, as `prepare_files` takes them."""
    folder.mkdir()
    more = {} if words is None else {"words": words}
    return write_pairs(folder, "new", number_pairs(60, seed=7, **more))


def adapt(out: Path, text: tuple[Path, Path], origin: Path, **changes: Any) -> PreparedData:
    arguments = {"src_lang": "en", "tgt_lang": "de", "train": [text], "valid": text}
    prepare_files("new", out, **{**arguments, "tokenizer_from": origin, **changes})
    return PreparedData.open(out)


def refused(tmp_path: Path, text: tuple[Path, Path], origin: Path, **changes: Any) -> str:
    before = sorted(tmp_path.rglob("*"))
    error = message_of(adapt, tmp_path / "refused", text, origin, **changes)
    assert sorted(tmp_path.rglob("*")) == before
    return error


@pytest.mark.parametrize("kind", ["prepared folder", "run folder"])
def test_the_tokenizer_is_copied_byte_by_byte_and_its_settings_and_checksum_are_recorded(
    kind, tiny_data, tiny_run, tmp_path
):
    origin = tiny_data.path if kind == "prepared folder" else tiny_run.path
    data = adapt(tmp_path / "out", new_pairs(tmp_path / "text"), origin)
    name = VOCABULARY_FILES.joint
    assert (data.path / name).read_bytes() == (tiny_data.path / name).read_bytes()
    checksum = tiny_data.manifest.files[name].sha256
    record = {"kind": kind, "path": origin.name, "files": {name: checksum}}
    assert data.manifest.tokenizer_from == record
    assert data.manifest.settings == tiny_data.manifest.settings
    tokenizer = tiny_data.tokenizers().src
    pairs, (src, tgt) = data.pairs("valid"), data.text("valid")
    for place, (source, target) in enumerate(zip(src, tgt, strict=True)):
        assert pairs.src[place] == [*tokenizer.encode(source), 2]
        assert pairs.tgt[place] == [*tokenizer.encode(target), 2]


@pytest.mark.parametrize("is_reversed", [False, True])
def test_separate_vocabularies_keep_their_languages_when_the_direction_is_reversed(
    is_reversed, greek_data, tmp_path
):
    src, tgt = new_pairs(tmp_path / "text", words=GREEK)
    if is_reversed:
        changes: dict[str, Any] = {"src_lang": "el", "tgt_lang": "en"}
        data = adapt(tmp_path / "out", (tgt, src), greek_data.path, **changes)
    else:
        data = adapt(tmp_path / "out", (src, tgt), greek_data.path, tgt_lang="el")
    ours, theirs = data.tokenizers(), greek_data.tokenizers()
    models = [tokenizer.model for tokenizer in theirs]
    assert [tokenizer.model for tokenizer in ours] == (models[::-1] if is_reversed else models)
    assert (data.manifest.tokenizer_from or {}).get("reversed", False) == is_reversed


def test_a_joint_tokenizer_is_for_both_directions(tiny_data, tmp_path):
    src, tgt = new_pairs(tmp_path / "text")
    data = adapt(tmp_path / "out", (tgt, src), tiny_data.path, src_lang="de-AT", tgt_lang="en")
    assert data.tokenizers().is_same(tiny_data.tokenizers())


def test_another_language_is_refused_and_those_of_the_tokenizer_are_named(
    tiny_data, greek_data, tmp_path
):
    text = new_pairs(tmp_path / "text")
    error = refused(tmp_path, text, tiny_data.path, tgt_lang="fr")
    assert "was learned for en and de, not for en to fr" in error
    error = refused(tmp_path, text, greek_data.path, src_lang="el", tgt_lang="el")
    assert "was learned for en to el, not for el to el" in error


@pytest.mark.parametrize(
    ("settings", "overrides", "named"),
    [
        ({"vocab_size": 8000}, (), "--vocab-size asks for 8000"),
        ({}, ("vocab_size=301",), "--vocab-size asks for 301"),
        ({}, ("shared_vocab=false",), "--set shared_vocab asks for false"),
        ({}, ("model_type=unigram",), '--set model_type asks for "unigram"'),
        ({}, ('user_defined_symbols=["<a>"]',), '--set user_defined_symbols asks for ["<a>"]'),
        ({}, ("learn_from_pairs=10",), "--set learn_from_pairs has no effect"),
    ],
)
def test_a_setting_that_contradicts_the_tokenizer_is_refused_by_name(
    settings, overrides, named, tiny_data, tmp_path
):
    text = new_pairs(tmp_path / "text")
    error = refused(tmp_path, text, tiny_data.path, overrides=overrides, **settings)
    assert named in error
    assert "leave it out" in error


def test_a_setting_that_agrees_with_the_tokenizer_is_accepted(tiny_data, greek_data, tmp_path):
    text = new_pairs(tmp_path / "text")
    adapt(tmp_path / "joint", text, tiny_data.path, vocab_size=300, shared_vocab=True)
    greek = new_pairs(tmp_path / "greek", words=GREEK)
    sizes = {"shared_vocab": False, "src_vocab_size": 300, "tgt_vocab_size": 300}
    adapt(tmp_path / "separate", greek, greek_data.path, tgt_lang="el", **sizes)


def test_a_script_that_the_tokenizer_has_not_seen_is_refused_before_the_training_text_is_read(
    tiny_data, tmp_path, monkeypatch
):
    text = new_pairs(tmp_path / "text", words=GREEK)
    monkeypatch.setattr(passes.Passes, "_check", None)
    error = refused(tmp_path, text, tiny_data.path)
    assert "does not suit the target side of" in error
    # Each Greek letter is two bytes, and each word has one subword more, for its space.
    letters = [len(word) for line in text[1].read_text().split("\n") for word in line.split()]
    share = 2 * sum(letters) / (2 * sum(letters) + len(letters))
    assert f"{share:.0%} of the subwords are single bytes or unknown" in error
    assert "; add its characters (--add-characters), or give another" in error


def test_a_script_that_only_the_training_text_has_is_refused_too(tiny_data, tiny_text, tmp_path):
    greek = new_pairs(tmp_path / "text", words=GREEK)
    changes = {"valid": tiny_text.valid, "overrides": ("min_script=0.0",)}
    error = refused(tmp_path, greek, tiny_data.path, **changes)
    assert "does not suit the target side of the training text" in error


def test_a_few_characters_that_the_tokenizer_has_not_seen_are_accepted(tiny_data, tmp_path):
    src, tgt = new_pairs(tmp_path / "text")
    tgt.write_text(tgt.read_text().replace("drei", "drei é", 5))
    adapt(tmp_path / "out", (src, tgt), tiny_data.path)


def test_the_tokenizer_of_a_parser_is_for_trees_and_no_other_is(
    tree_data, tiny_data, tree_files, tmp_path
):
    error = refused(tmp_path, new_pairs(tmp_path / "text"), tree_data.path)
    assert "its tokenizer is for parsing, not for translation" in error
    treebank = Treebank(tree_files["valid"])
    arguments: dict[str, Any] = {"train": [treebank], "valid": treebank}
    with pytest.raises(MtkitError, match="is for translation, not for parsing"):
        prepare_trees("new", tmp_path / "out", tokenizer_from=tiny_data.path, **arguments)
    prepare_trees("new", tmp_path / "out", tokenizer_from=tree_data.path, **arguments)
    assert PreparedData.open(tmp_path / "out").tokenizers().is_same(tree_data.tokenizers())
    with pytest.raises(MtkitError, match=r"\d+% of the brackets and tags are not in its vocab"):
        prepare_trees(
            "new", tmp_path / "xx", tokenizer_from=tree_data.path, tree_tags=False, **arguments
        )


def test_a_folder_without_a_tokenizer_and_a_changed_tokenizer_are_refused(tiny_data, tmp_path):
    text = new_pairs(tmp_path / "text")
    error = refused(tmp_path, text, tmp_path / "text")
    assert "text: is not a run folder or a prepared folder; give another --tokenizer-from" in error
    copy = tmp_path / "copy"
    shutil.copytree(tiny_data.path, copy)
    with (copy / VOCABULARY_FILES.joint).open("ab") as file:
        file.write(b"x")
    assert "tokenizer.model: changed since it was written" in refused(tmp_path, text, copy)


def test_a_preparation_that_was_killed_resumes_only_with_the_same_tokenizer(
    tiny_data, tmp_path, monkeypatch
):
    text = new_pairs(tmp_path / "text")
    wanted = adapt(tmp_path / "straight", text, tiny_data.path)
    counted: list[int] = []
    original = passes.Passes._checks

    def counting(self: passes.Passes, *arguments: Any) -> Any:
        counted.append(1)
        return original(self, *arguments)

    monkeypatch.setattr(passes.Passes, "_checks", counting)

    def stop() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(passes.Passes, "_encode", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                adapt(tmp_path / "out", text, origin)

    origin = tmp_path / "origin"
    shutil.copytree(tiny_data.path, origin)
    stop()
    data = adapt(tmp_path / "out", text, origin)
    assert counted == [1]  # its record was used
    for name in wanted.manifest.files:
        assert (data.path / name).read_bytes() == (wanted.path / name).read_bytes(), name
    shutil.rmtree(data.path)
    stop()
    shutil.rmtree(origin)
    other = {"train": [text], "valid": text, "vocab_size": 290}
    prepare_files("other", origin, src_lang="en", tgt_lang="de", **other)
    assert adapt(tmp_path / "out", text, origin).manifest.settings["vocab_size"] == 290
    assert counted == [1, 1, 1, 1]
