"""The page about prepared data: its numbers are those of the text, counted once more here."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import number_pairs, write_pairs
from support.browsed import HOSTILE, Page, loaded_by, well_formed

from mtkit.data import PreparedData
from mtkit.prepare import prepare_files
from mtkit.prepare.results import Report
from mtkit.prepare.statistics import data_page, write_page

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
    def page(self) -> Page:
        return well_formed(data_page(self.data, self.report))


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
def both(request, tmp_path_factory):
    """The corpus above, with a joint vocabulary and with one for each side."""
    return prepared(tmp_path_factory.mktemp("audit"), shared_vocab=request.param)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
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


def test_kept_and_dropped_pairs_are_shown_with_shares(tiny):
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
    assert summary["Validation pairs"] == "12"
    assert summary["Vocabulary size"] == "300"
    assert summary["Training pairs in validation or test"].startswith("source: 2 target")


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


def test_numbers_of_subwords_are_those_of_the_text(both):
    columns = [
        of_text([pair[side] for pair in pairs], tokenizer)
        for side, tokenizer in enumerate(both.data.tokenizers())
        for pairs in (KEPT_PAIRS, VALID)
    ]
    # Three bytes for a character without a piece.
    assert columns[1][4] != columns[0][4] == "0.00%"
    rows = table(both.page, "words")
    labels = ["sentences", "words", "tokens, with the end of each sentence", "subwords per word"]
    labels += ["single bytes among subwords", "median length in tokens"]
    labels += ["95% are not longer than", "longest"]
    for place, label in enumerate(labels):
        assert rows[label] == [column[place] for column in columns], label


def test_subwords_are_counted_by_their_use_in_training(both):
    tokenizers = both.data.tokenizers()
    counts = [
        Counter(i for pair in KEPT_PAIRS for i in tokenizer.encode(pair[side]))
        for side, tokenizer in enumerate(tokenizers)
    ]
    if tokenizers.is_joint:
        counts = [counts[0] + counts[1]]
    rows = table(both.page, "learned")
    for column, (tokenizer, uses) in enumerate(zip(tokenizers, counts, strict=False)):
        learned = [uses[i] for i in range(260, len(tokenizer))]
        rare = sum(1 <= use < 10 for use in learned)
        assert rows["size"][column] == f"{len(tokenizer)}"
        assert rows["learned"][column] == f"{len(learned)}"
        assert rows["never used in training"][column].split()[0] == f"{learned.count(0)}"
        assert rows["used 1 to 9 times"][column].split()[0] == f"{rare}"
    assert len(rows["size"]) == len(counts)


def test_ratios_and_lengths_are_those_of_the_pairs(both):
    tokenizers = both.data.tokenizers()
    lengths = [
        [len(tok.encode(text)) + 1 for tok, text in zip(tokenizers, pair, strict=True)]
        for pair in KEPT_PAIRS
    ]
    ratios = sorted(tgt / src for src, tgt in lengths)
    rows = table(both.page, "50%")
    for label, rank in (("5%", 0.05), ("50%", 0.5), ("95%", 0.95), ("99%", 0.99)):
        (shown,) = rows[label]
        expected = ratios[math.ceil(rank * len(ratios)) - 1]
        assert float(shown) == pytest.approx(expected, rel=0.02)
    (chart,) = both.page.all("div", role="img")
    assert (
        f"source: median {sorted(src for src, _ in lengths)[95]}." in chart["attrs"]["aria-label"]
    )
    assert len(both.page.all("svg")) == 1
    assert "each step is one token" in " ".join(both.page.texts("figure")).replace(
        "1 token", "one token"
    )


def test_few_long_sentences_do_not_flatten_the_chart(tmp_path):
    train = [*number_pairs(1000, seed=3), ("one " * 150, "eins " * 150)]
    page = prepared(tmp_path, train, vocab_size=330).page
    assert "6 sentences are longer, up to 151." in " ".join(page.texts("figure"))
    assert "150" not in page.texts("text")


def test_a_large_corpus_is_counted_in_part_which_the_page_says(tiny, monkeypatch):
    whole = data_page(tiny.data, tiny.report)
    monkeypatch.setattr("mtkit.prepare.statistics._BLOCK_PAIRS", 10)
    assert data_page(tiny.data, tiny.report) == whole
    # Every third of 20 blocks, the last of two pairs.
    monkeypatch.setattr("mtkit.prepare.statistics._MAX_PAIRS", 64)
    words = "Counted in 70 of the 192 pairs, in blocks sampled evenly from the whole corpus."
    assert tiny.page.texts("p").count(words) == 1


def test_dropped_pairs_are_shown_under_their_reason_with_place_and_sentence(tiny):
    page = tiny.page
    shown = {text.split("Pairs dropped")[0].strip(): text for text in page.texts("details")}
    for line, (_, tgt, reason) in PLANTED.items():
        (text,) = (text for heading, text in shown.items() if heading.startswith(f"{reason} "))
        assert f"{tiny.report.samples[0].file}, {line}" in text
        assert tgt.strip()[:100] in text
    assert any("256 subwords" in text and "5,000 characters" in text for text in shown.values())


def test_sources_are_shown_with_their_counts(tiny):
    source = tiny.data.manifest.sources["train"][0]
    (row,) = (text for text in tiny.page.texts("tr") if "96.00%" in text and "train" in text)
    assert row.replace(" ", "").startswith(f"train{source['src']},{source['tgt']}200192(96.00%)1")


def test_what_may_be_wrong_is_said_in_sentences(tmp_path):
    # Half of the lines came before, and one pair is in the validation set.
    train = GOOD[:100] + GOOD[:50] * 2
    said = " ".join(prepared(tmp_path, train, vocab_size=330).page.texts("li"))
    assert "50% of the training pairs were dropped, most of them (100)" in said
    assert "“duplicate”" in said
    # Line 5 of training, thrice there.
    assert "1 of the 12 validation pairs (8.3%) are training pairs too" in said


def test_misaligned_lines_are_a_finding(tiny):
    shifted = replace(tiny.report, misaligned=[("a", 11, 20, 1), ("b", 31, 40, -2)])
    said = " ".join(well_formed(data_page(tiny.data, shifted)).texts("li"))
    assert "2 parts of the files, 20 lines in all, such as lines 11 to 20 of a." in said


def test_data_without_faults_has_no_findings(tiny_text, tmp_path):
    report = prepare_files("tiny", tmp_path / "out", **tiny_text.prepare_arguments())
    page = well_formed(data_page(PreparedData.open(tmp_path / "out"), report))
    assert page.texts("li") == []
    assert "Nothing was dropped." in page.texts("p")


def test_hostile_text_is_escaped_and_nothing_is_loaded(tmp_path):
    train = [(f"{HOSTILE} {i}", f"{HOSTILE} {i} {pair[1]}") for i, pair in enumerate(GOOD[:50])]
    train += [(HOSTILE, HOSTILE), ("", HOSTILE)]
    bad = prepared(tmp_path, [*GOOD, *train], vocab_size=400)
    write_page(tmp_path / "page.html", bad.data, bad.report)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = well_formed(text)
    assert page.texts("td", **{"data-label": "Target"}).count(HOSTILE) == 2
    assert {element["tag"] for element in page.elements}.isdisjoint({"script", "b", "textarea"})
    assert all(address.startswith("#") or address == "data:," for address in loaded_by(text))
