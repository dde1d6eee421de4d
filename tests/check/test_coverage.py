"""Omissions and additions, by a lexicon."""

import random

import numpy as np
import pytest
from support.paired_words import WORDS, coverage_of_words, pair_of_words

from mtkit.check.model.coverage import Coverage, delete_end, delete_part
from mtkit.check.model.linear import logistic
from mtkit.check.rules.findings import Finding
from mtkit.check.rules.marks import Text


@pytest.fixture(scope="module")
def coverage():
    return coverage_of_words()


def _found(coverage: Coverage, source: str, translation: str) -> list[Finding]:
    pair = Text(source), Text(translation)
    return list(coverage.findings(*pair, coverage.of(*pair)))


def test_whole_translations_have_no_findings(coverage):
    pick = random.Random(2)
    assert not [
        pair for pair in (pair_of_words(pick) for _ in range(200)) if _found(coverage, *pair)
    ]


def test_the_words_that_are_not_translated_are_named(coverage):
    pick = random.Random(3)
    for _ in range(50):
        source, translation = pair_of_words(pick)
        words, kept = source.split(), translation.split()
        start = pick.randint(0, len(kept) - 5)
        (finding,) = _found(coverage, source, " ".join(kept[:start] + kept[start + 5 :]))
        assert finding.kind == "omission"
        assert finding.src is not None
        named = source[finding.src.start : finding.src.stop].split()
        # Of a word whose translation the lexicon is not sure of, nothing can be said.
        assert len(named) >= 4
        assert set(named) <= set(words[start : start + 5])
        assert finding.reason == f'not translated: "{" ".join(named)}"'


def test_the_words_that_are_added_are_named(coverage):
    source, translation = pair_of_words(random.Random(4))
    words = source.split()
    (finding,) = _found(coverage, " ".join(words[:3] + words[8:]), translation)
    assert finding.kind == "addition"
    assert finding.tgt is not None
    span = translation[finding.tgt.start : finding.tgt.stop]
    assert span == " ".join(translation.split()[3:8])
    assert finding.reason == f'not in the source: "{span}"'


def test_the_translation_of_another_line_is_both(coverage):
    source, _ = pair_of_words(random.Random(5))
    others = [f"t{word[1:]}" for word in WORDS if word not in source.split()][:10]
    kinds = [finding.kind for finding in _found(coverage, source, " ".join(others))]
    assert kinds == ["omission", "addition"]


def test_of_lines_with_many_new_words_only_that_is_said(coverage):
    (finding,) = _found(coverage, "these are quite other Names", "hier steht nichts von Names")
    assert finding.kind == "unknown"
    assert finding.reason == "4 of 5 words are new to the model: these, are, quite, other"
    # Too few words to say so.
    assert not _found(coverage, "quite other", "ganz anders")


def test_words_that_both_sides_have_are_covered(coverage):
    source, translation = pair_of_words(random.Random(6))
    pair = coverage.of(Text(f"{source} Anna"), Text(f"{translation} Anna"))
    assert pair.src.log_odds[-1] < 0
    assert pair.tgt.log_odds[-1] < 0


@pytest.mark.parametrize("pair", [("", ""), ("...", "!"), ("saaa", "")])
def test_texts_without_words_are_accepted(coverage, pair):
    _found(coverage, *pair)


def test_the_worst_run_has_the_highest_sum(coverage):
    pick = random.Random(7)
    for _ in range(30):
        source, translation = pair_of_words(pick)
        kept = [word for word in translation.split() if pick.random() < 0.6]
        side = coverage.of(Text(source), Text(" ".join(kept))).src
        odds = side.log_odds
        sums = {
            (a, b): sum(odds[a:b]) for a in range(len(odds)) for b in range(a + 1, len(odds) + 1)
        }
        best = max(0.0, *sums.values())
        assert side.worst_sum == pytest.approx(best)
        if best:
            assert sums[side.worst] == pytest.approx(best)


def test_the_regression_is_at_the_optimum_of_its_likelihood():
    draw = np.random.default_rng(1)
    x = draw.normal(size=(300, 3))
    y = (x @ [2.0, -1.0, 0.5] + 0.3 + draw.logistic(size=300) > 0).astype(float)
    weights = logistic(x, y)
    # There the gradient of the penalised likelihood is zero.
    ones = np.column_stack([x, np.ones(300)])
    gradient = ones.T @ (y - 1 / (1 + np.exp(-ones @ weights))) - 0.5 * weights
    assert np.abs(gradient).max() < 1e-6


def test_a_clause_is_deleted_where_there_are_several():
    text = "We agree with this report, and that is all we want."
    found = {delete_part(text, random.Random(seed)) for seed in range(20)}
    assert found == {", and that is all we want.", "We agree with this report."}


def test_of_a_text_without_clauses_some_words_are_deleted():
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
    for seed in range(20):
        shorter = delete_part(" ".join(words), random.Random(seed))
        assert shorter is not None
        left = shorter.split()
        assert 3 <= len(left) <= 4
        assert left == [word for word in words if word in left]
    assert delete_part("too short to cut", random.Random(1)) is None


@pytest.mark.parametrize(
    ("text", "shorter"),
    [
        ("A man in a red coat walks down, it rains.", "A man in a red coat."),
        ("A man in a red coat walks down slowly", "A man in a red coat"),
        ("A man in a red coat walks.", None),
    ],
)
def test_the_last_third_is_deleted_before_the_mark(text, shorter):
    assert delete_end(text) == shorter
