"""The training pairs that a thorough check compares with."""

import logging
import math
from collections import Counter
from itertools import pairwise

import pytest
import sacrebleu
from conftest import copied_run, number_pairs

from mtkit.base.errors import MtkitError
from mtkit.check import load_checker
from mtkit.check.model.confidence import FEATURES, OF_SAMPLES
from mtkit.check.model.examples import Examples
from mtkit.check.rules.marks import Text
from mtkit.convert import export
from mtkit.run_folder import EXAMPLES, Run

PAIRS = number_pairs(60, 21)


def _terms(line: str) -> set[str]:
    words = line.split()
    return {*words, *map(" ".join, pairwise(words))}


def _cosine(source: str, other: str) -> float:
    """Of TF-IDF vectors of words and pairs of words, but for the length of the first one."""
    lines = [_terms(line) for line, _ in PAIRS]
    counts = Counter(term for line in lines for term in line)
    weight = {term: math.log(len(lines) / count) for term, count in counts.items()}
    common = sum(weight[term] ** 2 for term in _terms(source) & _terms(other))
    return common / math.sqrt(sum(weight[term] ** 2 for term in _terms(other)))


@pytest.mark.parametrize("source", [*(source for source, _ in PAIRS[:10]), "one two unknown three"])
def test_the_nearest_pairs_have_the_largest_cosines(source):
    expected = sorted((_cosine(source, other) for other, _ in PAIRS), reverse=True)[:8]
    nearest = Examples(PAIRS).nearest(Text(source))
    assert [_cosine(source, PAIRS[row][0]) for row in nearest] == pytest.approx(expected)


def test_of_equally_near_pairs_the_first_ones_are_taken():
    examples = Examples([("one", "eins"), *[("two three", "zwei drei")] * 20])
    assert examples.nearest(Text("three")) == list(range(1, 9))
    assert examples.nearest(Text("one")) == [0]
    assert examples.nearest(Text("four")) == examples.nearest(Text("")) == []
    assert Examples([]).nearest(Text("one")) == []


def test_the_likeness_is_the_mean_chrf_to_the_nearest_targets():
    examples = Examples([("one two", "eins zwei"), ("two", "zwei"), ("three", "drei")])
    by_hand = [sacrebleu.sentence_chrf("zwei", [other]).score for other in ("eins zwei", "zwei")]
    assert examples.likeness(Text("Two"), "zwei") == pytest.approx(sum(by_hand) / 2)
    assert examples.likeness(Text("four"), "vier") == 0


def test_a_run_has_the_pairs_that_were_not_held_out(fitted):
    examples = Examples.load(fitted.path / EXAMPLES, "de")
    pairs = [pair for number, pair in enumerate(number_pairs(700, 11)) if number % 5]
    assert examples.rows() == [f"{source}\t{target}\n" for source, target in pairs]
    assert Examples([("a\tb", "c")]).rows() == ["a b\tc\n"]


def _features(run: Run) -> int:
    thorough = load_checker(run, thorough=True).thorough
    assert thorough is not None
    return len(thorough.weights)


def test_without_the_pairs_a_thorough_check_uses_samples_only(fitted, tmp_path, caplog):
    run = Run.open(copied_run(fitted, tmp_path / "run"))
    assert _features(run) == len(FEATURES + OF_SAMPLES) + 1
    (run.path / EXAMPLES).unlink()
    caplog.set_level(logging.INFO)
    assert _features(run) == len(FEATURES + OF_SAMPLES)
    assert f"no training pairs are compared with: {run.path / EXAMPLES} is missing" in caplog.text


def test_changed_pairs_are_refused_by_a_thorough_check_only(fitted, tmp_path):
    run = Run.open(copied_run(fitted, tmp_path / "run"))
    with (run.path / EXAMPLES).open("a", encoding="utf-8") as file:
        file.write("one\teins\n")
    load_checker(run)
    with pytest.raises(MtkitError, match=r"was changed since .* --fit --run .*/run, or delete it$"):
        load_checker(run, thorough=True)


def test_an_export_has_no_training_pairs(fitted, tmp_path):
    export(fitted, tmp_path / "out", format="safetensors")
    assert _features(Run.open(tmp_path / "out")) == len(FEATURES + OF_SAMPLES)
    assert not (tmp_path / "out" / EXAMPLES).exists()
