"""Pairs that are swapped, in a third language, damaged or marked are dropped; entities repaired."""

import gzip
import itertools
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import write_pairs
from support.demo_grammar import SEED, sentences

from mtkit.base.errors import MtkitError
from mtkit.data import PreparedData
from mtkit.prepare import passes, prepare_files
from mtkit.prepare.results import Report
from mtkit.prepare.source import repaired

Pair = tuple[str, str]
FRENCH = [
    f"{who} {what} {where} depuis {count} ans."
    for count in range(2, 14)
    for who in ("Les enfants de la voisine", "Le vieux médecin du village", "Ma tante de Marseille")
    for what in ("cherchent un chien perdu", "attend toujours ses amis", "lit de longues lettres")
    for where in ("devant la maison", "chez le boulanger")
]
PLANTED: dict[str, Callable[[Pair, int], Pair]] = {
    "swapped": lambda pair, _: pair[::-1],
    "a source in French": lambda pair, number: (FRENCH[number % len(FRENCH)], pair[1]),
    "a target in French": lambda pair, number: (pair[0], FRENCH[number % len(FRENCH)]),
    # As if UTF-8 were read as Windows-1252.
    "damaged": lambda pair, _: (pair[0], f"{pair[1]} Schön!".encode().decode("cp1252")),
}
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
    counts: Counter[str] = Counter()
    assert repaired(([line.encode()], [b"x"]), counts) == ([wanted.encode()], [b"x"])
    assert repaired(([b"x"], [line.encode()]), counts) == ([b"x"], [wanted.encode()])
    assert list(counts.values()) == [2]


@pytest.mark.parametrize("line", KEPT)
def test_what_is_no_entity_or_needs_it_stays(line):
    counts: Counter[str] = Counter()
    # Beside a pair that is repaired, and with bytes that are no text.
    block = [line.encode(), b"\xff&amp;"], [b"", b"\xfe"]
    assert repaired(block, counts) == ([line.encode(), b"\xff&"], [b"", b"\xfe"])
    assert list(counts.values()) == [1]
    assert block[0][1] == b"\xff&amp;"


def test_the_other_side_of_a_pair_with_a_tag_stays():
    block = [b"<i>A &amp; B</i>"], [b"A &amp; B"]
    assert repaired(block, Counter()) == block


@pytest.fixture(scope="module")
def clean() -> list[Pair]:
    """700 pairs of six words or more of the built-in grammar."""
    some = (sides for sides, _ in itertools.islice(sentences(SEED), 6000))
    long = (pair for pair in some if min(len(side.split()) for side in pair) >= 6)
    return list(itertools.islice(dict(long).items(), 700))


def planted(pairs: list[Pair], fault: str, every: int) -> list[Pair]:
    """The pairs, of which every n-th has a fault, from the first one on."""
    return [
        pair if number % every else PLANTED[fault](pair, number // every)
        for number, pair in enumerate(pairs)
    ]


def prepared(folder: Path, train: list[Pair], valid: list[Pair], **more: Any) -> Report:
    return prepare_files(
        "faults",
        folder / more.pop("name", "out"),
        src_lang="en",
        tgt_lang="de",
        train=[write_pairs(folder, "train", train)],
        valid=write_pairs(folder, "valid", valid),
        vocab_size=600,
        **{"workers": 1, "overrides": ["max_repeats=null"], **more},
    )


def dropped(report: Report) -> set[tuple[int, str]]:
    rows = gzip.decompress((report.path / "dropped.tsv.gz").read_bytes()).decode().splitlines()
    return {(int(line), reason) for _, line, reason in (row.split("\t") for row in rows[1:])}


@pytest.mark.parametrize("every", [3, 30])
@pytest.mark.parametrize("fault", PLANTED)
def test_pairs_with_faults_are_dropped_and_no_others(fault, every, clean, tmp_path, monkeypatch):
    train = planted(clean[:600], fault, every)
    report = prepared(tmp_path, train, clean[600:])
    reason = "finding" if fault == "damaged" else "wrong language"
    assert dropped(report) == {(line, reason) for line in range(1, 601, every)}
    (line,) = report.warnings
    assert line.startswith("train.en and train.de: of 600 sampled pairs, ")
    assert line.endswith("; such pairs are dropped")
    assert sum(map(int, re.findall(r"(\d+) ha(?:ve|s)", line))) == 600 // every
    what = {"swapped": "in German and a target in English", "damaged": "damaged characters"}
    assert f"have {what.get(fault, fault)}" in line.replace("a source in German", "in German")
    # In other blocks too, and of each kind in other processes.
    monkeypatch.setattr(passes, "BLOCK", 170)
    workers = 2 if every == 3 and fault in ("swapped", "damaged") else 1
    again = prepared(tmp_path, train, clean[600:], name="two", workers=workers)
    assert dropped(again) == dropped(report)


def test_of_clean_text_nothing_is_said_and_nothing_dropped(clean, tmp_path):
    report = prepared(tmp_path, clean[:600], clean[600:])
    assert (report.warnings, report.dropped) == ([], {})


OFF = {"drop_wrong_language": False, "drop_control_characters": False}


@pytest.mark.parametrize(
    ("split", "fault", "every", "settings"),
    [
        # Too many, switched off, and held out.
        *(("train", *row, {}) for row in (("swapped", 2), ("damaged", 2), ("damaged", 1))),
        *(("train", fault, 4, OFF) for fault in ("swapped", "damaged")),
        *(("valid", fault, 5, {}) for fault in PLANTED),
    ],
)
def test_other_faults_are_named_and_kept(split, fault, every, settings, clean, tmp_path):
    texts = {"train": clean[:600], "valid": clean[600:]}
    count = len(texts[split])
    texts[split] = planted(texts[split], fault, every)
    report = prepared(tmp_path, **texts, **settings)
    assert report.dropped == {}
    (line,) = report.warnings
    assert line.startswith(f"{split}.en and {split}.de: of {count} sampled pairs, ")
    assert sum(map(int, re.findall(r"(\d+) ha(?:ve|s)", line))) == count // every
    assert "none is dropped; correct the files" in line


def test_pairs_with_chosen_findings_are_dropped(clean, tmp_path, monkeypatch):
    text = clean[:600]
    text[99] = text[99][0], f"{text[99][1]} {' '.join(['immer wieder'] * 5)}"
    text[299] = text[299][0], FRENCH[0]
    text[499] = f"{text[499][0]} {{x}}", text[499][1]
    kinds = ("loop", "language")
    report = prepared(tmp_path, text, clean[600:], drop_findings=kinds)
    assert dropped(report) == {(line, "finding") for line in (100, 300)}
    assert report.dropped == {"finding": 2}
    assert {sample.line for sample in report.samples} == {100, 300}
    # In other blocks and processes too.
    monkeypatch.setattr(passes, "BLOCK", 170)
    again = prepared(tmp_path, text, clean[600:], name="two", drop_findings=kinds, workers=2)
    assert dropped(again) == dropped(report)
    # By default nothing is.
    assert dropped(prepared(tmp_path, text, clean[600:], name="three")) == set()


def test_entities_are_repaired_and_counted(clean, tmp_path):
    text = clean[:600]
    text[9] = text[9][0], f"{text[9][1]} &amp; &uuml;"
    report = prepared(tmp_path, text, clean[600:])
    assert report.fixed == {"pair with entities such as &amp; (they are repaired)": 1}
    data = PreparedData.open(report.path)
    assert data.tokenizers()[1].decode(data.pairs("train").tgt[9]).endswith(" & ü")
    assert prepared(tmp_path, text, clean[600:], name="off", repair_entities=False).fixed == {}


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (("loops",), "drop_findings: loops is none of loop, omission"),
        (("loop,foo",), r"loop,foo is none of .*; for a list, write \[loop,foo\]$"),
    ],
)
def test_an_unknown_kind_is_refused(kinds, message, clean, tmp_path):
    with pytest.raises(MtkitError, match=message):
        prepared(tmp_path, clean, clean, drop_findings=kinds)
