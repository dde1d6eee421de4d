"""Swapped pairs, pairs in a third language and damaged ones are seen in a sample, and dropped."""

import gzip
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import write_pairs
from support.demo_grammar import SEED, sentences

from mtkit.prepare import passes, prepare_files
from mtkit.prepare.results import Report

Pair = tuple[str, str]
FRENCH = [
    f"{who} {what} {where} depuis {count} ans."
    for count in range(2, 14)
    for who in ("Les enfants de la voisine", "Le vieux médecin du village", "Ma tante de Marseille")
    for what in ("cherchent un chien perdu", "attend toujours ses amis", "lit de longues lettres")
    for where in ("devant la maison", "chez le boulanger")
]
WORDS = 6
PLANTED: dict[str, Callable[[Pair, int], Pair]] = {
    "swapped": lambda pair, _: pair[::-1],
    "a source in French": lambda pair, number: (FRENCH[number % len(FRENCH)], pair[1]),
    "a target in French": lambda pair, number: (pair[0], FRENCH[number % len(FRENCH)]),
    # As if UTF-8 were read as Windows-1252.
    "damaged": lambda pair, _: (pair[0], f"{pair[1]} Schön!".encode().decode("cp1252")),
}


@pytest.fixture(scope="module")
def clean() -> list[Pair]:
    """600 pairs of six words or more of the built-in grammar."""
    some = (sides for sides, _ in itertools.islice(sentences(SEED), 6000))
    long = (pair for pair in some if min(len(side.split()) for side in pair) >= WORDS)
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


def seen_in(line: str) -> int:
    """The pairs with a fault of any kind that a sentence counts."""
    return sum(map(int, re.findall(r"(\d+) have", line)))


@pytest.mark.parametrize("every", [3, 4, 30])
@pytest.mark.parametrize("fault", PLANTED)
def test_pairs_with_faults_are_dropped_and_no_others(fault, every, clean, tmp_path):
    report = prepared(tmp_path, planted(clean[:600], fault, every), clean[600:])
    reason = "finding" if fault == "damaged" else "wrong language"
    assert dropped(report) == {(line, reason) for line in range(1, 601, every)}
    (line,) = report.warnings
    assert line.startswith("train.en and train.de: of 600 sampled pairs, ")
    assert line.endswith("; such pairs are dropped")
    assert seen_in(line) == 600 // every
    what = {"swapped": "in German and a target in English", "damaged": "damaged characters"}
    assert f"have {what.get(fault, fault)}" in line.replace("a source in German", "in German")


def test_of_clean_text_nothing_is_said_and_nothing_dropped(clean, tmp_path):
    report = prepared(tmp_path, clean[:600], clean[600:])
    assert (report.warnings, report.dropped) == ([], {})


@pytest.mark.parametrize(("fault", "every"), [("swapped", 2), ("damaged", 2), ("damaged", 1)])
def test_of_too_many_faults_none_is_dropped(fault, every, clean, tmp_path):
    report = prepared(tmp_path, planted(clean[:600], fault, every), clean[600:])
    assert report.dropped == {}
    (line,) = report.warnings
    assert "of 600 sampled pairs, " in line
    assert seen_in(line) == 600 // every
    assert "none is dropped; correct the files" in line


@pytest.mark.parametrize("fault", ["swapped", "damaged"])
def test_settings_keep_pairs_with_faults(fault, clean, tmp_path):
    train = planted(clean[:600], fault, 4)
    off = {"drop_wrong_language": False, "drop_control_characters": False}
    report = prepared(tmp_path, train, clean[600:], **off)
    assert report.kept == 600
    (line,) = report.warnings
    assert seen_in(line) == 150
    assert "none is dropped" in line


@pytest.mark.parametrize("fault", PLANTED)
def test_faults_of_a_held_out_set_are_named_and_kept(fault, clean, tmp_path):
    report = prepared(tmp_path, clean[:600], planted(clean[600:], fault, 5))
    assert report.dropped == {}
    (line,) = report.warnings
    assert line.startswith("valid.en and valid.de: of 100 sampled pairs, ")
    assert seen_in(line) == 20
    assert "none is dropped" in line


def test_the_same_pairs_are_dropped_in_other_blocks_and_processes(clean, tmp_path, monkeypatch):
    train = planted(clean[:600], "swapped", 4)
    once = dropped(prepared(tmp_path, train, clean[600:]))
    monkeypatch.setattr(passes, "BLOCK", 70)
    assert dropped(prepared(tmp_path, train, clean[600:], name="two", workers=2)) == once
