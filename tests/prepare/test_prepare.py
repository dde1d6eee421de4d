"""From files and names to a prepared folder: the same bytes, every pair accounted for."""

import dataclasses
import gzip
import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from conftest import TinyText, write_pairs
from support.errors import message_of
from support.runs import contents

import mtkit
from mtkit.base.errors import LostWorkerError, MtkitError
from mtkit.data import PreparedData
from mtkit.prepare import passes, prepare_files, results
from mtkit.prepare.catalogue import demo_corpus
from mtkit.prepare.readers import parallel_files, parse_source
from mtkit.prepare.results import Report
from mtkit.prepare.run import PrepareOptions, prepare
from mtkit.prepare.statistics import write_page
from mtkit.tokenizer import Tokenizer

# A token has at least one character and at most all of a word, so with 300 words a side is longer
# than the 256 tokens allowed, and 40 words are more than four times the tokens of "one".
TOO_LONG = "one " * 300
LONGISH = "one " * 40


def dropped_rows(data: Path) -> list[list[str]]:
    """The table of dropped pairs, without its heading."""
    heading, *rows = gzip.decompress((data / "dropped.tsv.gz").read_bytes()).decode().splitlines()
    assert heading == "file\tline\treason"
    return [row.split("\t") for row in rows]


@dataclasses.dataclass
class Corpus:
    """Files that a test may spoil before they are prepared."""

    folder: Path
    arguments: dict[str, Any]

    @property
    def train(self) -> tuple[Path, Path]:
        src, tgt = self.arguments["train"][0]
        return src, tgt

    def prepare(self, name: str = "out", **changes: Any) -> Report:
        return prepare_files("tiny", self.folder / name, **{**self.arguments, **changes})

    def refused(self, **changes: Any) -> str:
        """The one line with which preparing is refused; nothing is left behind."""
        before = sorted(self.folder.rglob("*"))
        error = message_of(self.prepare, **changes)
        assert sorted(self.folder.rglob("*")) == before
        return error


@pytest.fixture
def corpus(tiny_text, tmp_path):
    files = {
        split: tuple(Path(shutil.copy(file, tmp_path)) for file in getattr(tiny_text, split))
        for split in ("train", "valid", "test")
    }
    return Corpus(tmp_path, TinyText(tmp_path, **files).prepare_arguments())


def plant(files: tuple[Path, Path], pairs: Sequence[tuple[int, str, str]]) -> None:
    """Put pairs in place of the lines of these numbers."""
    for side, file in enumerate(files):
        lines = file.read_text(encoding="utf-8").split("\n")
        for line, *texts in pairs:
            lines[line - 1] = texts[side]
        file.write_text("\n".join(lines), encoding="utf-8", newline="")


def test_a_vocabulary_for_each_side_is_learned_from_that_side_alone(corpus):
    report = corpus.prepare(shared_vocab=False, vocab_size=290)
    data = PreparedData.open(corpus.folder / "out")
    src, tgt = data.tokenizers()
    assert report.vocab_sizes == (len(src), len(tgt)) == (290, 290)
    assert report.vocabulary == "source 290, target 290"
    for tokenizer, file in zip((src, tgt), corpus.train, strict=True):
        lines = file.read_text(encoding="utf-8").splitlines()
        assert tokenizer.model == Tokenizer.learn(lines, 290).model
    pairs = data.pairs("train")
    texts = [file.read_text(encoding="utf-8").splitlines() for file in corpus.train]
    assert [src.decode(pairs.src[i]) for i in range(200)] == texts[0]
    assert [tgt.decode(pairs.tgt[i]) for i in range(200)] == texts[1]
    assert data.manifest.settings["shared_vocab"] is False


def test_the_report_counts_tokens_with_their_ends(corpus):
    report = corpus.prepare()
    data = PreparedData.open(corpus.folder / "out")
    tokenizer, _ = data.tokenizers()
    expected = [
        sum(len(tokenizer.encode(line)) + 1 for line in file.read_text().splitlines())
        for file in corpus.train
    ]
    assert report.tokens == {"src": expected[0], "tgt": expected[1]}
    assert data.manifest.counts["tokens"] == report.tokens
    assert report.vocab_sizes == (len(tokenizer),) == (300,)
    assert report.vocabulary == "300"


def test_several_training_files_are_read_one_after_another(corpus):
    second = corpus.folder / "more.en", corpus.folder / "more.de"
    second[0].write_text("one two\n\nnine\n")
    second[1].write_text("zwei eins\nnull\nneun\n")
    assert corpus.prepare(train=[corpus.train, second]).pairs["train"] == 203
    # Lines are counted in each file from 1.
    ((file, line, reason),) = dropped_rows(corpus.folder / "out")
    assert (file, line, reason) == ("more.en and more.de", "2", "empty")
    data = PreparedData.open(corpus.folder / "out")
    assert data.tokenizers()[1].decode(data.pairs("train").tgt[201]) == "neun"


def test_validation_and_test_pairs_are_never_dropped(corpus):
    hard = [(1, "", "null"), (2, TOO_LONG, "eins"), (3, "one", LONGISH), (4, "a\u2028b", "")]
    plant(corpus.arguments["valid"], hard)
    plant(corpus.arguments["test"], hard)
    corpus.prepare()
    data = PreparedData.open(corpus.folder / "out")
    assert len(data.pairs("valid")) == 20
    for split in ("valid", "test"):
        src, tgt = data.text(split)
        assert (src[0], src[1], src[3], tgt[3]) == ("", TOO_LONG, "a\u2028b", "")
        assert len(src) == len(tgt) == 20
    assert data.pairs("valid").src[0] == [data.tokenizers()[1].eos_id]


def test_the_manifest_suffices_to_repeat_the_preparation_beside_its_files(corpus, monkeypatch):
    monkeypatch.chdir(corpus.train[0].parent)
    plant(corpus.train, [(5, "", "null")])
    train = [parallel_files(*corpus.train, weight=2.5)]
    corpus.prepare("first", train=train, max_ratio=2.0, user_defined_symbols=("<2de>",))
    manifest = json.loads((corpus.folder / "first" / "manifest.json").read_text(encoding="utf-8"))
    sources = {
        split: [
            parallel_files(Path(facts["src"]), Path(facts["tgt"]), weight=facts["weight"])
            for facts in of_split
        ]
        for split, of_split in manifest["sources"].items()
    }
    prepare_files(
        manifest["name"],
        corpus.folder / "second",
        src_lang=manifest["src_lang"],
        tgt_lang=manifest["tgt_lang"],
        train=sources["train"],
        valid=sources["valid"][0],
        test=sources["test"][0],
        **manifest["settings"],
    )
    assert manifest["versions"]["mtkit"] == mtkit.__version__
    assert manifest["versions"]["sentencepiece"]
    assert contents(corpus.folder / "first") == contents(corpus.folder / "second")


# A name of bytes that are not UTF-8, with white space that ends rows and columns.
ODD = b"\xff\n\t\\ \xc3"


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_names_of_files_may_hold_any_bytes(workers, corpus, monkeypatch):
    plant(corpus.train, [(5, "", "null")])
    monkeypatch.setattr(passes, "BLOCK", 60)
    folder = corpus.folder / os.fsdecode(ODD)
    folder.mkdir()
    for split in ("valid", "test"):
        files = corpus.arguments[split]
        corpus.arguments[split] = tuple(Path(shutil.move(file, folder)) for file in files)
    train = [folder / os.fsdecode(ODD + b"." + side) for side in (b"en", b"de")]
    for old, new in zip(corpus.train, train, strict=True):
        old.rename(new)
    page = folder / "page.html"
    report = prepare_files(
        os.fsdecode(ODD),
        folder / os.fsdecode(b"out" + ODD),
        **{**corpus.arguments, "train": [tuple(train)]},
        workers=workers,
        on_finished=lambda data, report: write_page(page, data, report),
    )
    data = PreparedData.open(report.path)
    data.verify()
    assert len(data.pairs("train")) == 199
    ((name, line, reason),) = dropped_rows(report.path)
    assert (line, reason) == ("5", "empty")
    # Spelled so that every byte can be seen.
    assert name == r"\xff\n\t\\ \xc3.en and \xff\n\t\\ \xc3.de"
    (sample,) = report.samples
    assert "\n" not in sample.file
    assert r"\xff\n\t\ \xc3.en" in sample.file
    assert r"\xff" in data.manifest.name
    assert r"\xff" in page.read_text(encoding="utf-8")


def test_nothing_but_the_folders_own_files_remains(corpus):
    before = set(corpus.folder.iterdir())
    corpus.prepare()
    assert set(corpus.folder.iterdir()) - before == {corpus.folder / "out"}
    sides = {f"{split}.{side}" for split in ("train", "valid") for side in ("src", "tgt")}
    assert contents(corpus.folder / "out").keys() == {
        "manifest.json",
        "tokenizer.model",
        "dropped.tsv.gz",
        *(f"{side}.bin" for side in sides),
        *(f"{side}.lengths.bin" for side in sides),
        *(f"{split}.{side}.txt" for split in ("valid", "test") for side in ("src", "tgt")),
    }


@pytest.mark.parametrize(("name", "src", "tgt"), [("demo-en-de", 0, 1), ("demo-de-en", 1, 0)])
def test_the_demo_corpus_is_prepared_in_both_directions(name, src, tgt, small_demo, tmp_path):
    prepare(name, tmp_path / name, PrepareOptions(settings={"vocab_size": 600}))
    data = PreparedData.open(tmp_path / name)
    assert (data.src_lang, data.tgt_lang) == (name[5:7], name[8:10])
    for side, text in zip((src, tgt), data.text("test"), strict=True):
        assert text == [pair[side] for pair in small_demo["test"]]
    assert data.tokenizers()[1].decode(data.pairs("train").src[7]) == small_demo["train"][7][src]


def test_similar_texts_whose_lengths_fit_their_neighbours_are_kept(tmp_path, monkeypatch):
    pairs = demo_corpus()["train"][:400]
    nouns = ["Datei", "Ordner", "Fenster", "Dokument", "Bild", "Seite", "Projekt", "Konto", "Liste"]
    verbs = [("Cut", "ausschneiden"), ("Download", "laden"), ("Unsubscribe from", "abbestellen")]
    pairs[200:200] = [(f"{a} {noun[::-1]}", f"{noun} {b}") for noun in nouns * 2 for a, b in verbs]
    files = write_pairs(tmp_path, "a", pairs)
    corpus = Corpus(tmp_path, {"src_lang": "en", "tgt_lang": "de", "vocab_size": 400})
    given = {"train": [files], "valid": files}
    assert corpus.prepare(**given).misaligned == []
    # By their lengths alone they are misaligned.
    monkeypatch.setattr("mtkit.prepare.passes.is_right", lambda *_: False)
    assert corpus.prepare("by lengths", **given).misaligned != []


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_files_of_unequal_length_are_refused_with_both_counts(split, corpus):
    src, tgt = corpus.train if split == "train" else corpus.arguments[split]
    count = len(src.read_bytes().splitlines())
    tgt.write_bytes(b"eins\n" * (count + 5))
    message = corpus.refused()
    assert f"{src} has {count} lines" in message
    assert f"{tgt} has {count + 5}" in message


def test_a_file_of_another_encoding_is_refused_with_its_first_such_line(corpus):
    tgt = corpus.train[1]
    text = tgt.read_text(encoding="utf-8")
    first = 1 + next(n for n, line in enumerate(text.split("\n")) if "ü" in line)
    tgt.write_bytes(text.encode("latin-1"))
    message = corpus.refused()
    assert str(tgt) in message
    assert f"line {first}" in message
    assert "iconv" in message


@pytest.mark.parametrize("split", ["train", "valid", "test"])
@pytest.mark.parametrize(
    ("text", "half"),
    [
        (r"bad \ud800 x", "d800"),
        (r"\uD83D", "d83d"),
        (r"\udc00 is low", "dc00"),
        (r"fine \ud83d\ude00, then \uDFFF", "dfff"),
        (r"two \ude00\ud83d turned", "de00"),
    ],
)
def test_half_of_a_character_in_json_is_named(split, text, half, corpus):
    rows = [f'{{"en": "{text if n % 3 == 1 else "x"}", "de": "{n} y"}}' for n in range(30)]
    file = corpus.folder / "a.jsonl"
    file.write_text("\n".join(rows), encoding="ascii")
    source = parse_source(str(file), src_lang="en", tgt_lang="de")
    message = corpus.refused(**{split: [source] if split == "train" else source})
    place = "10 of the first 30 pairs are not valid text; line 2" if split == "train" else "line 2"
    assert re.fullmatch(rf"{file}[,:] {place}: has \\u{half} alone, .*; remove it", message)


@pytest.mark.parametrize("split", ["valid", "test"])
def test_the_other_splits_must_be_utf8(split, corpus):
    src, tgt = corpus.arguments[split]
    lines = tgt.read_bytes().split(b"\n")
    lines[6] = b"eins \xe4"
    tgt.write_bytes(b"\n".join(lines))
    assert f"{src} and {tgt}, line 7: not UTF-8 (byte 0xe4 at position 6)" in corpus.refused()


@pytest.mark.parametrize("split", ["train", "valid"])
def test_an_empty_corpus_is_refused_by_name(split, corpus):
    files = corpus.train if split == "train" else corpus.arguments[split]
    for file in files:
        file.write_bytes(b"")
    message = corpus.refused()
    assert str(files[0]) in message
    assert split in message


@pytest.mark.parametrize("is_blank", [True, False])
def test_a_corpus_of_which_nothing_is_kept_is_refused_with_the_reasons(is_blank, corpus):
    # Every pair has an empty side; in one case there is text to learn from.
    for file in corpus.train if is_blank else corpus.train[1:]:
        file.write_bytes(b"\n \n" * 100)
    assert "200 empty" in corpus.refused(vocab_size=290)


def test_a_folder_that_exists_is_refused_before_anything_is_read(corpus):
    corpus.prepare()
    before = contents(corpus.folder / "out")
    corpus.train[0].write_bytes(b"\xff\n")
    assert "--force" in corpus.refused()
    assert contents(corpus.folder / "out") == before


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000 + "y"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_name_that_no_folder_can_have_is_refused(name, dry_run, corpus):
    before = sorted(corpus.folder.rglob("*"))
    with pytest.raises(MtkitError, match="File name too long"):
        corpus.prepare(name, dry_run=dry_run)
    assert sorted(corpus.folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("argument", "values", "message"),
    [
        ("src_lang", ["", " ", "en us", "\n", "\udcff", "\0", "x" * 101, None, 5], "src_lang: "),
        ("tgt_lang", ["", " ", "en us", "\n", "\udcff", "\0", "x" * 101, None, 5], "tgt_lang: "),
        ("user_defined_symbols", [("x" * 100_000,)], "piece is too long"),
        ("train", [[]], "no training data"),
        ("workers", [0, -1], "workers: expected None, or a whole number of at"),
    ],
)
def test_what_no_preparation_can_have_is_refused(argument, values, message, corpus):
    for value in values:
        assert message in corpus.refused(**{argument: value})


def test_names_of_files_may_be_text(corpus):
    check = str(corpus.folder / "checked.tsv")
    report = corpus.prepare(train=[tuple(map(str, corpus.train))], check=check)
    assert report.pairs["train"] == 200


def stop(corpus: Corpus, error: type[BaseException] = KeyboardInterrupt, **given: Any) -> None:
    """Interrupt a preparation between its first two passes."""
    with pytest.MonkeyPatch.context() as patch:
        stopped = Mock(side_effect=error("a worker ended unexpectedly"))
        patch.setattr("mtkit.prepare.filters.LanguageOdds.from_counts", stopped)
        with pytest.raises(error):
            corpus.prepare(**given)


def test_what_was_done_is_kept_when_a_process_is_lost(corpus, monkeypatch):
    stop(corpus, LostWorkerError)
    # The first pass is not made again.
    monkeypatch.setattr("mtkit.prepare.filters.Cleaner.__call__", None)
    corpus.prepare()


def test_what_was_interrupted_is_not_used_for_other_settings(corpus):
    stop(corpus)
    corpus.prepare(vocab_size=310, max_tokens=9)
    corpus.prepare("undisturbed", vocab_size=310, max_tokens=9)
    assert contents(corpus.folder / "out") == contents(corpus.folder / "undisturbed")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_that_is_stopped_after_each_of_its_stages_gives_the_same_bytes(
    when, corpus, monkeypatch
):
    # Parts with and without dropped pairs.
    plant(corpus.train, [(line, "", "null") for line in (3, 90, 91, 199)])
    monkeypatch.setattr("mtkit.prepare.passes.BLOCK", 10)
    monkeypatch.setattr("mtkit.prepare.passes.PART", 2)
    corpus.prepare("undisturbed", workers=1)
    original, stops, written = results.write_stage, 0, 0

    def write(path: Path, value: Any) -> None:
        nonlocal written
        written += 1
        if written == 2 and when == "before":
            raise KeyboardInterrupt
        original(path, value)
        if when == "after":
            raise KeyboardInterrupt

    monkeypatch.setattr(results, "write_stage", write)
    while not (corpus.folder / "out").exists():
        written = 0
        try:
            corpus.prepare(workers=1)
        except KeyboardInterrupt:
            stops += 1
    # One record of the first stage and ten of the last.
    assert stops == (11 if when == "after" else 10)
    assert contents(corpus.folder / "out") == contents(corpus.folder / "undisturbed")


def test_what_was_stopped_while_it_tidied_up_is_done_again(corpus, monkeypatch):
    corpus.prepare("undisturbed")
    original = shutil.rmtree

    def tidy_halfway(folder: Path, **options: Any) -> None:
        if folder.name == "scratch":
            for note in ("codes", "src_keys"):
                (folder / note).unlink()
            raise KeyboardInterrupt
        original(folder, **options)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", tidy_halfway)
        with pytest.raises(KeyboardInterrupt):
            corpus.prepare()
    corpus.prepare()
    assert contents(corpus.folder / "out") == contents(corpus.folder / "undisturbed")


def test_a_dry_run_leaves_nothing_however_it_ends(corpus):
    before = sorted(corpus.folder.rglob("*"))
    assert corpus.prepare(dry_run=True).pairs["train"] == 200
    assert sorted(corpus.folder.rglob("*")) == before
    stop(corpus, dry_run=True)
    assert sorted(corpus.folder.rglob("*")) == before
    # It does not touch what is there either, and so needs no --force.
    corpus.prepare()
    before = contents(corpus.folder)
    corpus.prepare(dry_run=True)
    assert contents(corpus.folder) == before


def test_dry_runs_neither_wait_for_others_nor_hold_them_up(corpus):
    pairs = list[int]()

    def meanwhile(_: PreparedData, report: Report) -> None:
        if len(pairs) < 3:
            pairs.append(report.pairs["train"])
            corpus.prepare(dry_run=len(pairs) < 3, on_finished=meanwhile)

    corpus.prepare(dry_run=True, on_finished=meanwhile)
    assert pairs == [200] * 3


def test_a_dry_run_removes_what_a_killed_one_left(corpus):
    before = contents(corpus.folder)
    left = corpus.folder / ".out.0123abcd.dry-run"
    left.mkdir()
    left.joinpath("pairs").write_text("pairs")
    corpus.prepare(dry_run=True)
    assert contents(corpus.folder) == before


def test_a_refused_preparation_leaves_none_of_the_folders_it_made(corpus):
    corpus.train[1].write_bytes(b"\n" * 200)
    before = sorted(corpus.folder.rglob("*"))
    with pytest.raises(MtkitError, match="200 empty"):
        corpus.prepare("some/where/deep")
    assert sorted(corpus.folder.rglob("*")) == before


def test_a_replacement_killed_halfway_leaves_nothing_beside_the_next(corpus, monkeypatch):
    corpus.prepare()
    before = contents(corpus.folder / "out")
    corpus.prepare("other", vocab_size=310)
    original = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self.name == ".out.partial":
            raise KeyboardInterrupt
        return original(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            corpus.prepare(force=True, vocab_size=310)
    # The folder is there at any time, the old one or the new one.
    assert contents(corpus.folder / "out") == before
    corpus.prepare(force=True, vocab_size=310)
    assert contents(corpus.folder / "out") == contents(corpus.folder / "other")
    assert [path.name for path in corpus.folder.iterdir() if path.name.startswith(".")] == []
