"""The page about prepared data: its numbers are those of the text, counted once more here."""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import TinyText, number_pairs, write_pairs
from support.browsed import HOSTILE, Page, loaded_by, well_formed

from mtkit.base.errors import MtkitError
from mtkit.data import PreparedData
from mtkit.prepare.filters import KEPT, REASONS
from mtkit.prepare.pipeline import prepare_files
from mtkit.prepare.report import Report
from mtkit.prepare.report_page import RATIO_STEPS, DataFacts, Side, Vocabulary, data_page
from mtkit.prepare.statistics import _MEANINGS, check_page, data_facts, findings, write_page

Pairs = list[tuple[str, str]]

GOOD = number_pairs(200, seed=1)
# What stands in training at these lines, and why it is dropped.
PLANTED = {
    11: ("", "null", "empty"),
    12: ("one", " ", "empty"),
    40: ("one \x07 two", "zwei eins", "control characters"),
    90: (*GOOD[0], "duplicate"),
    91: (*GOOD[1], "duplicate"),
    92: (*GOOD[1], "duplicate"),
    150: ("one two", "один два", "wrong script"),
    151: ("one " * 300, "eins " * 300, "too long"),
}
TRAIN: Pairs = [
    PLANTED[line][:2] if line in PLANTED else pair for line, pair in enumerate(GOOD, start=1)
]
KEPT_PAIRS = [pair for line, pair in enumerate(TRAIN, start=1) if line not in PLANTED]
# Lines 2 and 3 are in training, the second with another translation; ∀ has no piece.
VALID: Pairs = [("∀ one", "∀∀ eins"), GOOD[4], (GOOD[5][0], "sieben sieben"), *number_pairs(9, 2)]


@dataclass(frozen=True)
class Prepared:
    """A finished folder, and what was done to make it."""

    data: PreparedData
    report: Report

    @property
    def facts(self) -> DataFacts:
        return data_facts(self.data, self.report)

    @property
    def page(self) -> Page:
        return well_formed(data_page(self.facts))


def prepared(folder: Path, train: Pairs = TRAIN, name: str = "out", **changes: Any) -> Prepared:
    arguments = {
        "src_lang": "en",
        "tgt_lang": "de",
        "train": [write_pairs(folder, "train", train)],
        "valid": write_pairs(folder, "valid", VALID),
        "vocab_size": 300,
        "workers": 1,
        **changes,
    }
    report = prepare_files("tiny", folder / name, **arguments)
    return Prepared(PreparedData.open(folder / name), report)


@pytest.fixture(scope="module", params=[True, False], ids=["joint", "of each side"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The corpus above, with a joint vocabulary and with one for each side."""
    return prepared(tmp_path_factory.mktemp("audit"), shared_vocab=request.param)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepared(tmp_path_factory.mktemp("audit"))


def table(page: Page, first: str) -> dict[str, list[str]]:
    """The cells of the rows of tables by the heading of the row, from the one with this heading."""
    rows: dict[str, list[str]] = {}
    row: list[str] = []
    for element in page.elements:
        text = " ".join(element["text"].split())
        if element["tag"] == "th" and element["attrs"].get("scope") == "row":
            row = rows.setdefault(text, [])
        elif element["tag"] == "td" and "details" not in element["inside"]:
            row.append(text)
    assert first in rows
    return rows


# ---------------------------------------------------------------------------------------------
# Numbers


def test_kept_and_dropped_pairs_are_shown_with_shares(tiny: Prepared) -> None:
    rows = table(tiny.page, "kept")
    assert rows["read"] == ["200", ""]
    assert rows["dropped: empty"] == ["2", "1.00%"]
    assert rows["dropped: too long"] == ["1", "0.50%"]
    assert rows["dropped: control characters"] == ["1", "0.50%"]
    assert rows["dropped: wrong script"] == ["1", "0.50%"]
    assert rows["dropped: duplicate"] == ["3", "1.50%"]
    assert rows["kept"][:2] == ["192", "96.00%"]
    summary = dict(zip(tiny.page.texts("dt"), tiny.page.texts("dd"), strict=True))
    assert summary["Languages"] == "en → de"
    assert summary["Training pairs read"] == "200"
    assert summary["Kept"] == "192 (96.00%)"
    assert summary["Dropped"] == "8 (4.00%)"
    assert summary["Validation pairs"] == "12"
    assert summary["Vocabulary size"] == "300"
    assert summary["Training pairs in validation or test"].startswith("source 2 target")


def of_text(lines: Sequence[str], tokenizer: Any) -> list[str]:
    """What the table of subwords says of a side, counted from its text."""
    ids = [tokenizer.encode(line) for line in lines]
    pieces = [tokenizer.piece(number) for line in ids for number in line]
    of_bytes = sum(piece.startswith("<0x") for piece in pieces)
    words = sum(len(line.split()) for line in lines)
    lengths = sorted(len(line) + 1 for line in ids)
    share = of_bytes / len(pieces)
    return [
        f"{len(lines):,}",
        f"{words:,}",
        f"{sum(lengths):,}",
        f"{len(pieces) / words:.3f}",
        f"{share:.2%}",
        f"{lengths[math.ceil(0.5 * len(lengths)) - 1]}",
        f"{lengths[math.ceil(0.95 * len(lengths)) - 1]}",
        f"{lengths[-1]}",
    ]


def test_numbers_of_subwords_are_those_of_the_text(both: Prepared) -> None:
    columns = [
        of_text([pair[side] for pair in pairs], tokenizer)
        for side, tokenizer in enumerate(both.data.tokenizers())
        for pairs in (KEPT_PAIRS, VALID)
    ]
    # Three bytes for a character without a piece.
    assert columns[1][4] != columns[0][4] == "0.00%"
    rows = table(both.page, "words")
    for place, label in enumerate(
        (
            "sentences",
            "words",
            "tokens, with the end of each sentence",
            "subwords per word",
            "single bytes among subwords",
            "median length in tokens",
            "95% are not longer than",
            "longest",
        )
    ):
        assert rows[label] == [column[place] for column in columns], label


def used(prepared: Prepared) -> list[Counter[str]]:
    """How often each piece is used in training: on both sides together if they are joint."""
    counts = [
        Counter(tokenizer.piece(i) for pair in KEPT_PAIRS for i in tokenizer.encode(pair[side]))
        for side, tokenizer in enumerate(prepared.data.tokenizers())
    ]
    src, tgt = prepared.data.tokenizers()
    return [counts[0] + counts[1]] if src is tgt else counts


def test_pieces_are_counted_by_their_use(both: Prepared) -> None:
    tokenizers = dict.fromkeys(both.data.tokenizers())
    facts = both.facts
    assert len(facts.vocabularies) == len(tokenizers)
    for vocabulary, tokenizer, counts in zip(
        facts.vocabularies, tokenizers, used(both), strict=True
    ):
        uses = [counts[tokenizer.piece(i)] for i in range(260, len(tokenizer))]
        assert vocabulary.size == len(tokenizer)
        assert vocabulary.learned == len(uses)
        assert vocabulary.unused == uses.count(0)
        assert vocabulary.rare == sum(1 <= use < 10 for use in uses)
    rows = table(both.page, "learned")
    assert rows["learned"] == [f"{len(one) - 260:,}" for one in tokenizers]
    assert [cell.split()[0] for cell in rows["never used in training"]] == [
        f"{one.unused:,}" for one in facts.vocabularies
    ]


def test_coverage_is_how_many_of_the_most_frequent_pieces_make_up_a_share(both: Prepared) -> None:
    for number, (tokenizer, side) in enumerate(
        zip(both.data.tokenizers(), both.facts.train, strict=True)
    ):
        counts = Counter(i for pair in KEPT_PAIRS for i in tokenizer.encode(pair[number]))
        frequent = [count for _, count in counts.most_common()]
        for share, pieces in zip((0.5, 0.9, 0.99), side.covering, strict=True):
            assert sum(frequent[:pieces]) >= share * sum(frequent)
            assert sum(frequent[: pieces - 1]) < share * sum(frequent)


def test_ratios_are_those_of_the_pairs(both: Prepared) -> None:
    tokenizers = both.data.tokenizers()
    ratios = []
    for pair in KEPT_PAIRS:
        src, tgt = (len(tok.encode(text)) + 1 for tok, text in zip(tokenizers, pair, strict=True))
        ratios.append(tgt / src)
    assert both.facts.ratios == Counter(round(RATIO_STEPS * math.log2(one)) for one in ratios)
    middle = sorted(ratios)[len(ratios) // 2 - 1]
    (shown,) = table(both.page, "median")["median"]
    assert float(shown) == pytest.approx(middle, rel=0.02)


def test_the_size_of_blocks_changes_nothing(tiny: Prepared) -> None:
    assert data_facts(tiny.data, tiny.report, block_pairs=7) == tiny.facts


def test_a_large_corpus_is_counted_in_part_which_the_page_says(tiny: Prepared) -> None:
    facts = data_facts(tiny.data, tiny.report, block_pairs=10, max_pairs=64)
    assert facts.counted == 70  # every third of 20 blocks, the last of two pairs
    words = "Counted in 70 of the 192 pairs, in blocks sampled evenly from the whole corpus."
    assert well_formed(data_page(facts)).texts("p").count(words) == 2
    # Samples come from everywhere nevertheless.
    assert len(facts.samples) == 20


# ---------------------------------------------------------------------------------------------
# Text


def test_dropped_pairs_are_shown_under_their_reason_with_place_and_sentence(
    tiny: Prepared,
) -> None:
    page = tiny.page
    shown = {text.split("Pairs dropped")[0].strip(): text for text in page.texts("details")}
    for line, (_, tgt, reason) in PLANTED.items():
        (text,) = (text for heading, text in shown.items() if heading.startswith(f"{reason} "))
        assert f"{tiny.report.samples[0].file}, {line}" in text
        assert tgt.strip()[:100] in text
    assert any("256 subwords" in text and "5,000 characters" in text for text in shown.values())


def test_every_reason_has_a_sentence() -> None:
    assert _MEANINGS.keys() == set(REASONS) - {REASONS[KEPT]}
    for sentence in _MEANINGS.values():
        assert sentence.endswith(".")


def test_kept_pairs_come_evenly_from_the_whole_corpus(both: Prepared) -> None:
    samples = both.facts.samples
    assert len(samples) == 20
    assert [number for number, *_ in samples] == [
        str((2 * i + 1) * 192 // 40 + 1) for i in range(20)
    ]
    assert [texts for _, *texts in samples] == [
        list(KEPT_PAIRS[int(number) - 1]) for number, *_ in samples
    ]


def test_sources_are_named_with_their_counts_and_digests(tiny: Prepared) -> None:
    page = tiny.page
    src = tiny.data.manifest.sources["train"][0]["src"]
    whole = hashlib.sha256((tiny.data.path.parent / src).read_bytes()).hexdigest()
    (code,) = page.all("code", title=whole)
    assert code["text"] == f"{whole[:12]}…"
    (row,) = (text for text in page.texts("tr") if "96.00%" in text and "train" in text)
    assert src in row
    assert "200 192 (96.00%)" in row.replace("200192", "200 192")


def test_settings_are_there_and_those_that_were_changed_are_marked(tiny: Prepared) -> None:
    rows = [text for text in tiny.page.texts("tr") if text.startswith(("vocab_size", "max_ratio"))]
    assert rows[0].startswith("vocab_size 300 changed")
    assert rows[1].startswith("max_ratio 4.0maximum")


def test_what_may_be_wrong_is_said_in_sentences(tmp_path: Path) -> None:
    # Half of the lines came before, and one pair is in the validation set.
    train = GOOD[:100] + GOOD[:50] * 2
    bad = prepared(tmp_path, train, vocab_size=330)
    said = " ".join(bad.facts.findings)
    assert "50% of the training pairs were dropped, most of them (100)" in said
    assert "“duplicate”" in said
    # Line 5 of training, thrice there.
    assert "1 of the 12 validation pairs (8.3%) are training pairs too" in said
    assert "A source word has" not in said
    assert well_formed(data_page(bad.facts)).texts("li") == list(bad.facts.findings)


def test_text_of_another_kind_and_bytes_and_lost_lines_are_said(tiny: Prepared) -> None:
    facts = tiny.facts
    usual = Side(
        tokens=1100, words=500, byte_tokens=4, rare_tokens=0, covering=(1, 1, 1), lengths={11: 100}
    )
    for side, expected in (
        (usual, ""),
        (
            replace(usual, words=400),
            "has 2.50 subwords in the validation set and 2.00 in the training set",
        ),
        (replace(usual, words=420), ""),
    ):
        changed = replace(facts, train=(usual, usual), valid=(usual, side), vocabularies=())
        said = " ".join(findings(changed, tiny.report))
        assert ("subwords in the validation set and" in said) == bool(expected)
        assert expected in said
    spelled = replace(facts, train=(replace(usual, byte_tokens=6), usual))
    said = " ".join(findings(spelled, tiny.report))
    assert "0.6% of the source subwords" in said
    shifted = replace(facts, misaligned=[("a", 11, 20, 1), ("a", 31, 40, -2)])
    said = " ".join(findings(shifted, tiny.report))
    assert "2 parts of the files, 20 lines in all" in said
    rare = Vocabulary("joint", size=300, learned=40, unused=3, rare=6)
    last = findings(replace(facts, vocabularies=[rare]), tiny.report)[-1]
    assert last.startswith("9 of the 40 subwords (joint) occur fewer than 10 times")


def test_data_without_faults_has_no_findings(tiny_text: TinyText, tmp_path: Path) -> None:
    report = prepare_files("tiny", tmp_path / "out", **tiny_text.prepare_arguments())
    facts = data_facts(PreparedData.open(tmp_path / "out"), report)
    assert [text for text in facts.findings if "occur fewer than" not in text] == []
    assert facts.dropped == []
    assert "Nothing was dropped." in well_formed(data_page(facts)).texts("p")


# ---------------------------------------------------------------------------------------------
# The file


def test_hostile_text_is_escaped_and_nothing_is_loaded(tmp_path: Path) -> None:
    train = [(f"{HOSTILE} {i}", f"{HOSTILE} {i} {pair[1]}") for i, pair in enumerate(GOOD[:50])]
    train += [(HOSTILE, HOSTILE), ("", HOSTILE)]
    bad = prepared(tmp_path, [*GOOD, *train], vocab_size=400)
    write_page(tmp_path / "page.html", bad.data, bad.report)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = well_formed(text)
    assert page.texts("td", **{"data-label": "Target"}).count(HOSTILE) == 2
    assert {element["tag"] for element in page.elements}.isdisjoint({"script", "b", "textarea"})
    assert all(address.startswith("#") or address == "data:," for address in loaded_by(text))


def test_the_same_text_gives_the_same_bytes(tmp_path: Path) -> None:
    pages = []
    for name in ("first", "second"):
        place = tmp_path / name
        place.mkdir()
        done = prepared(tmp_path, name=f"{name}/out")
        write_page(place / "page.html", done.data, done.report)
        pages.append((place / "page.html").read_bytes())
    assert pages[0] == pages[1]


def test_a_page_is_written_whole_or_not_at_all(
    tiny: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "page.html"
    place.write_text("of yesterday")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MtkitError, match=r"page\.html: No space left on device"):
        write_page(place, tiny.data, tiny.report)
    assert os.listdir(tmp_path) == ["page.html"]
    assert place.read_text() == "of yesterday"
    monkeypatch.undo()
    write_page(place, tiny.data, tiny.report)
    assert os.listdir(tmp_path) == ["page.html"]
    assert place.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_place_that_cannot_be_written_gives_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place, reason in (
        (tmp_path / "none" / "page.html", "there is no folder"),
        (tmp_path / "file" / "page.html", "there is no folder"),
        (tmp_path, "is a folder"),
    ):
        with pytest.raises(MtkitError, match=reason) as caught:
            check_page(place)
        assert str(caught.value).startswith(f"{place}: ")
        assert "\n" not in str(caught.value)
    check_page(tmp_path / "page.html")
    check_page(tmp_path / "file")


def test_a_folder_that_is_not_writable_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may everything
    with pytest.raises(MtkitError, match="not a writable folder"):
        check_page(tmp_path / "page.html")


def test_the_chart_of_lengths_is_described_in_words(tiny: Prepared) -> None:
    (chart,) = tiny.page.all("div", role="img")
    assert len(tiny.page.all("svg")) == 1
    lengths = sorted(len(tiny.data.tokenizers()[0].encode(src)) + 1 for src, _ in KEPT_PAIRS)
    assert f"source: median {lengths[95]}, " in chart["attrs"]["aria-label"]
