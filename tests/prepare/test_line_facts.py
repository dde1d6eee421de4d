"""What is recorded about the training lines: how many have several sentences, and lengths."""

import pytest

from mtkit.base.sentences import LineFacts
from mtkit.data import PreparedData
from mtkit.prepare.results import LineCounts

SINGLE, SEVERAL = b"One man sits here.", b"One man sits. Two men run."


@pytest.mark.parametrize("sizes", [[10], [3, 7], [1] * 10, [4, 0, 6]])
def test_the_sample_does_not_depend_on_how_the_pairs_are_divided(sizes):
    lines = [SEVERAL if number % 3 == 0 else SINGLE for number in range(10)]
    counts, start = LineCounts(), 0
    for size in sizes:
        part = lines[start : start + size]
        counts.add((part, part), every=3, language="en")
        start += size
    # Of ten pairs the first, the fourth, the seventh and the tenth.
    assert (counts.sampled, counts.several) == (4, 4)


def test_the_longest_line_is_the_longest_of_all_and_not_only_of_the_sample():
    counts = LineCounts()
    counts.add(([SINGLE, SINGLE, b"x" * 500], [b"x"] * 3), every=3, language="en")
    assert counts.facts().longest == 500


def test_one_target_in_a_thousand_is_shorter_than_the_recorded_ratio():
    counts = LineCounts()
    source = b"x" * 100
    sizes = [2] * 5 + [50] * 9995
    counts.add(([source] * 10_000, [b"y" * size for size in sizes]), every=1, language="en")
    # 5 of 10,000 are fewer than one in a thousand; the next ratio is 0.5.
    assert counts.facts().shortest == pytest.approx(0.5, rel=0.05)


def test_short_lines_say_nothing_about_the_ratio():
    counts = LineCounts()
    counts.add(([b"short"] * 10, [b"x"] * 10), every=1, language="en")
    assert counts.facts().shortest == LineFacts().shortest


def test_prepared_data_records_what_the_lines_are_like(place):
    for side in ("en", "de"):
        lines = [f"A dog number {n} runs. It is late." for n in range(30)]
        lines += [f"A dog number {n} sleeps here." for n in range(30, 100)]
        lines.append("!" * 500)
        (place.folder / f"train.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (place.folder / f"valid.{side}").write_text("A dog runs.\n", encoding="utf-8")
    place.done(
        *("prepare", "tiny", "--src-lang", "en", "--tgt-lang", "de", "--vocab-size", "290"),
        *("--train", "train.en", "train.de", "--valid", "valid.en", "valid.de"),
        *("--set", "drop_identical=false"),
    )
    lines = PreparedData.open(place.folder / "data" / "tiny").manifest.lines
    assert lines is not None
    # The last pair is dropped, because it has no letters.
    assert (lines.sampled, lines.several) == (100, 30)
    assert lines.longest == len("A dog number 10 runs. It is late.")
