"""Held-out pairs that are nearly the same as a training pair."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import number_pairs, write_pairs

from mtkit.base.text import read_lines
from mtkit.data import NEAR_DUPLICATES, PreparedData
from mtkit.prepare import Report, prepare_files
from mtkit.prepare.blocks import PairBlock
from mtkit.prepare.held_out import NearDuplicate, grams_of, keep_nearest, near_duplicates

CLUB = (
    "The club was founded in the year 1890 by seven teachers of the town.",
    "Der Verein wurde im Jahr 1890 von sieben Lehrern der Stadt gegründet.",
)
DOG = ("A brown dog is jumping over a high fence.", "Ein brauner Hund springt über einen Zaun.")
TRAIN = [*number_pairs(300, 1), CLUB, DOG]
# Another year, another mark.
NEAR = [
    (CLUB[0].replace("1890", "1895"), CLUB[1].replace("1890", "1895")),
    (DOG[0].replace(".", "!"), DOG[1]),
]
# The same source with another translation, or half of the pair.
OTHER = [
    (CLUB[0], "Sieben Lehrer riefen anno 1890 einen Sportklub ins Leben, wie man hört."),
    ("A brown dog is jumping into the cold water of the lake.", DOG[1]),
    ("Nothing here is like the rest.", "Nichts hiervon gleicht dem Übrigen."),
]


def _prepared(folder: Path, test: Sequence[tuple[str, str]], *, workers: int = 1) -> Report:
    return prepare_files(
        "near",
        folder / "out",
        src_lang="en",
        tgt_lang="de",
        train=[write_pairs(folder, "train", TRAIN)],
        valid=write_pairs(folder, "valid", [OTHER[2]]),
        test=write_pairs(folder, "test", test),
        vocab_size=400,
        workers=workers,
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_they_are_counted_and_listed_with_the_training_pair(tmp_path, workers):
    report = _prepared(tmp_path, [OTHER[0], *NEAR, *OTHER[1:], CLUB], workers=workers)
    # The last one is the same, and counted as such.
    assert report.near_duplicates == {"test": 2}
    assert report.in_training["test"] == 1
    data = PreparedData.open(report.path)
    assert data.manifest.counts["near_duplicates"] == {"test": 2}
    heading, *rows = (row.split("\t") for row in read_lines(data.path / NEAR_DUPLICATES))
    assert heading == ["split", "line", "file", "training line", "similarity"]
    assert [row[:2] + row[3:4] for row in rows] == [
        ["test", "2", "301"],
        ["test", "3", "302"],
        ["test", "6", "301"],
    ]
    assert rows[-1][4] == "100.0"
    assert all(85 <= float(row[4]) < 100 for row in rows[:-1])
    (text,) = data.texts("test")
    assert text.near == {1, 2, 5}


def test_without_them_nothing_is_listed(tmp_path):
    report = _prepared(tmp_path, OTHER)
    assert report.near_duplicates == {}
    assert not (report.path / NEAR_DUPLICATES).exists()
    (text,) = PreparedData.open(report.path).texts("test")
    assert text.near == frozenset()


def test_the_list_is_no_part_of_the_data(tmp_path):
    path = _prepared(tmp_path, NEAR).path
    fingerprint = PreparedData.open(path).fingerprint
    (path / NEAR_DUPLICATES).unlink()
    data = PreparedData.open(path)
    assert data.fingerprint == fingerprint
    assert data.texts("test")[0].near == frozenset()


def test_in_a_script_without_spaces_characters_are_compared():
    train = "我们昨天在图书馆里看了一本很有意思的书。", "昨日、図書館でとても面白い本を読みました。"
    held_out = train[0].replace("昨天", "今天"), train[1].replace("昨日", "今日")
    pairs, sets = ([[side.encode()] for side in pair] for pair in (train, held_out))
    block = PairBlock(0, 0, np.array([5]), (pairs[0], pairs[1]), None, np.zeros(1, np.uint8))
    (near,) = near_duplicates(grams_of([{"test": (sets[0], sets[1])}]), block)
    assert near[:4] == ("test", 1, 0, 5)


def test_the_nearest_is_kept_and_of_equal_ones_the_first():
    nearest: dict[str, list[object]] = {}
    rows = [("test", 1, 0, line, x) for line, x in ((3, 90.0), (4, 95.0), (5, 95.0), (6, 91.0))]
    keep_nearest(nearest, [NearDuplicate(*row) for row in [*rows, ("valid", 1, 0, 9, 86.0)]])
    assert list(nearest.values()) == [["test", 1, 0, 4, 95.0], ["valid", 1, 0, 9, 86.0]]
