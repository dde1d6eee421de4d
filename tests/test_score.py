"""Scores."""

from __future__ import annotations

import math

import pytest
import sacrebleu

from mtkit.errors import MtkitError
from mtkit.score import score

HYP = ["the cat sat on the mat", "a dog runs"]
REF = ["the cat sat on a mat", "a dog runs fast"]


def test_identical_text_scores_100() -> None:
    assert score(REF, [REF]).value == pytest.approx(100.0)


def test_bleu_equals_a_case_worked_by_hand() -> None:
    # 9 words, 8 of them right; bigrams 5 of 7; trigrams 3 of 5; four-grams 1 of 3; 9 against 10.
    precision = (8 / 9 * 5 / 7 * 3 / 5 * 1 / 3) ** 0.25
    assert score(HYP, [REF]).value == pytest.approx(100 * math.exp(1 - 10 / 9) * precision)


@pytest.mark.parametrize(
    ("metric", "function"),
    [
        ("bleu", sacrebleu.corpus_bleu),
        ("chrf", sacrebleu.corpus_chrf),
        ("ter", sacrebleu.corpus_ter),
    ],
)
def test_values_are_those_of_sacrebleu(metric, function) -> None:
    assert score(HYP, [REF], metric=metric).value == pytest.approx(function(HYP, [REF]).score)


def test_the_signature_says_what_was_measured() -> None:
    signature = score(HYP, [REF, HYP]).signature
    for part in ("nrefs:2", "case:mixed", "tok:13a", f"version:{sacrebleu.__version__}"):
        assert part in signature


def test_a_second_reference_counts() -> None:
    assert score(HYP, [REF, HYP]).value == pytest.approx(100.0)


def test_texts_that_do_not_line_up_are_refused_with_both_counts() -> None:
    with pytest.raises(MtkitError, match=r"2 translations .* 3 references"):
        score(HYP, [REF, [*REF, "more"]])


def test_nothing_to_score_is_refused() -> None:
    with pytest.raises(MtkitError, match="nothing to score"):
        score([], [[]])
