"""Pairs that the rules mark are dropped, and entities are repaired."""

import gzip
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import write_pairs
from support.demo_grammar import SEED, sentences

from mtkit.base.errors import MtkitError
from mtkit.data import PreparedData
from mtkit.prepare import passes, prepare_files
from mtkit.prepare.readers import memory
from mtkit.prepare.results import Report
from mtkit.prepare.source import repaired

# The references of the HTML standard: https://html.spec.whatwg.org/entities.json
REPAIRED = [
    ("Tom &amp; Jerry", "Tom & Jerry"),
    ("20&nbsp;km", "20\u00a0km"),
    ("&quot;Ja&quot;, sagte er.", '"Ja", sagte er.'),
    ("caf&eacute;", "café"),
    ("don&#39;t", "don't"),
    ("it&#x2019;s", "it\u2019s"),
    ("1&nbsp;&ndash;&nbsp;2 &hellip;", "1\u00a0–\u00a02 …"),
    # Once, as it was escaped once.
    ("&amp;amp;", "&amp;"),
    ("&shy;", "\u00ad"),
    ("M&uuml;ller & S&ouml;hne", "Müller & Söhne"),
]
KEPT = [
    "R&D; AT&T",
    "fish & chips",
    "&File; &As;",
    "a &lt; b &gt; c",
    "&#10;",
    "&#0;",
    "&#xD800;",
    "&#99999999999;",
    "see http://x.org/?a=1&copy;=2",
    "<b>Tom &amp; Jerry</b>",
    "&amp",
    "",
]


@pytest.mark.parametrize(("line", "wanted"), REPAIRED)
def test_entities_become_their_characters(line, wanted):
    found: Counter[str] = Counter()
    assert repaired(([line.encode()], [b"x"]), found) == ([wanted.encode()], [b"x"])
    assert repaired(([b"x"], [line.encode()]), found) == ([b"x"], [wanted.encode()])
    assert list(found.values()) == [2]


@pytest.mark.parametrize("line", KEPT)
def test_what_is_no_entity_or_needs_it_stays(line):
    found: Counter[str] = Counter()
    # Beside a pair that is repaired, and with bytes that are no text.
    block = [line.encode(), b"\xff&amp;"], [b"", b"\xfe"]
    assert repaired(block, found) == ([line.encode(), b"\xff&"], [b"", b"\xfe"])
    assert list(found.values()) == [1]
    assert block[0][1] == b"\xff&amp;"


def test_the_other_side_of_a_pair_with_a_tag_stays():
    block = [b"<i>A &amp; B</i>"], [b"A &amp; B"]
    assert repaired(block, Counter()) == block


def pairs() -> list[tuple[str, str]]:
    """1,000 pairs of the built-in grammar."""
    # The grammar makes sentences without end.
    some = itertools.islice(sentences(SEED), 3000)
    return list(dict(sides for sides, _ in some).items())[:1000]


def prepared(text: list[tuple[str, str]], folder: Path, **more: Any) -> tuple[Report, list[str]]:
    """The report, and the rows of what is dropped; the pairs stand in files."""
    report = prepare_files(
        "marked",
        folder / more.pop("name", "out"),
        src_lang="en",
        tgt_lang="de",
        train=[write_pairs(folder, "train", text)],
        valid=memory("valid", pairs()[:20]),
        vocab_size=600,
        **{"workers": 1, **more},
    )
    rows = gzip.decompress((report.path / "dropped.tsv.gz").read_bytes()).decode().splitlines()
    return report, rows[1:]


def test_pairs_with_chosen_findings_are_dropped(tmp_path, monkeypatch):
    text = pairs()
    loop = " ".join(["immer wieder"] * 5)
    third = "Les enfants jouent dans le jardin de la maison avec leur grand-père."
    text[99] = text[99][0], f"{text[99][1]} {loop}"
    text[299] = text[299][0], third
    text[499] = f"{text[499][0]} {{x}}", text[499][1]
    report, rows = prepared(text, tmp_path, drop_findings=("loop", "language"))
    assert rows == [f"train.en and train.de\t{line}\tfinding" for line in (100, 300)]
    assert report.dropped == {"finding": 2}
    assert {sample.line for sample in report.samples} == {100, 300}
    # In other blocks and processes too.
    monkeypatch.setattr(passes, "BLOCK", 170)
    assert (
        prepared(text, tmp_path, name="two", drop_findings=("loop", "language"), workers=2)[1]
        == rows
    )
    # By default nothing is.
    assert prepared(text, tmp_path, name="three")[1] == []


def test_entities_are_repaired_and_counted(tmp_path):
    text = pairs()
    text[9] = text[9][0], f"{text[9][1]} &amp; &uuml;"
    report, _ = prepared(text, tmp_path)
    assert report.fixed == {"pair with entities such as &amp; (they are repaired)": 1}
    data = PreparedData.open(report.path)
    assert data.tokenizers()[1].decode(data.pairs("train").tgt[9]).endswith(" & ü")
    report, _ = prepared(text, tmp_path, name="off", repair_entities=False)
    assert report.fixed == {}


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (("loops",), "drop_findings: loops is none of loop, omission"),
        (("loop,foo",), r"loop,foo is none of .*; for a list, write \[loop,foo\]$"),
    ],
)
def test_an_unknown_kind_is_refused(kinds, message, tmp_path):
    with pytest.raises(MtkitError, match=message):
        prepared(pairs(), tmp_path, drop_findings=kinds)
