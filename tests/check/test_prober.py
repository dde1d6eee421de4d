"""What a model is asked beside its translation."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest
from conftest import number_pairs
from support.paired_words import coverage_of_words, pair_of_words

from mtkit.check import Prober, load_checker
from mtkit.check.model.coverage import Contrast, Coverage
from mtkit.check.model.linear import Regression
from mtkit.check.model.prober import contrasts_of
from mtkit.check.rules.marks import Text
from mtkit.translate import ForcedDecoder, Translation, Translator

# Of 8 features, in the order of `Coverage.contrast_features`: each with weight 0 but the last.
BY_HAND = Regression(
    means=[0.0] * 8, deviations=[1.0] * 8, weights=[0.0] * 7 + [1.0], bias=0.0, limit=0.5
)


class _Forced:
    """Knows the log-probabilities of each source."""

    def __init__(self, known: dict[str, list[float]]) -> None:
        self._known = known
        self.asked: list[tuple[str, str]] = []

    def log_probs(self, sources: Sequence[str], texts: Sequence[str]) -> list[list[float]]:
        self.asked += zip(sources, texts, strict=True)
        return [self._known[source] for source in sources]


def test_a_contrast_is_worked_by_hand():
    forced = cast(ForcedDecoder, _Forced({"a b": [-1.0, -3.0], "a": [-0.5, -1.5], "": []}))
    pair = ("a b", "x y", "a")
    by_hand = Contrast(mean=-2.0, lowest=-3.0, last=-3.0, gain=2.0, mean_gain=1.0, last_gain=1.5)
    assert contrasts_of(forced, [pair, ("a b", "x y", "")]) == [by_hand, None]
    assert contrasts_of(forced, []) == []
    # What is known is not asked for, if it is of as many subwords.
    assert contrasts_of(forced, [pair], [[-1.0, -1.0]]) == [(-1.0, -1.0, -1.0, 0.0, 0.0, -0.5)]
    assert contrasts_of(forced, [pair], [[-1.0]]) == [by_hand]


@pytest.mark.parametrize(
    ("source", "translation", "completed"),
    [
        ("a b.", "x y", "x y."),
        ('"a b?"', "x y", "x y?"),
        ("a b.", "x y!", "x y!"),
        ("a b", "x y", "x y"),
    ],
)
def test_the_model_is_asked_with_the_mark_that_the_source_ends_with(source, translation, completed):
    forced = _Forced({source: [-1.0, -3.0], "a": [-0.5, -1.5]})
    known = [[-1.0, -1.0]]
    contrasts_of(cast(ForcedDecoder, forced), [(source, translation, "a")], known)
    # With another end, what is known of the translation does not help.
    expected = [("a", completed)] + [(source, completed)] * (completed != translation)
    assert forced.asked == expected


@pytest.fixture(scope="module")
def coverage():
    found = coverage_of_words()
    return Coverage(found.lexicon, found.settings.model_copy(update={"contrast": BY_HAND}))


def _cut(pick: random.Random) -> tuple[str, str, str]:
    """A pair whose translation lacks five words, and the source without these."""
    source, translation = pair_of_words(pick)
    words, kept = source.split(), translation.split()
    start = pick.randint(1, len(kept) - 6)
    cut = " ".join([*kept[:start], *kept[start + 5 :]])
    return source, cut, " ".join([*words[:start], *words[start + 5 :]])


def _shortened(coverage: Coverage, source: str, translation: str) -> str | None:
    src, tgt = Text(source), Text(translation)
    return coverage.shortened(src, tgt, coverage.of(src, tgt))


def test_a_source_loses_the_words_that_have_no_translation(coverage):
    pick = random.Random(3)
    for _ in range(20):
        source, cut, expected = _cut(pick)
        shorter = _shortened(coverage, source, cut)
        assert shorter is not None
        # The lexicon may be unsure of a word.
        assert set(expected.split()) <= set(shorter.split()) < set(source.split())
        assert len(shorter.split()) <= len(expected.split()) + 1
        assert _shortened(coverage, *pair_of_words(pick)) is None
    assert _shortened(coverage, f"{source} " * 200, cut) is None


def test_where_only_the_mark_is_missing_the_whole_source_is_asked(coverage):
    source, translation = pair_of_words(random.Random(6))
    assert _shortened(coverage, f"{source}.", translation) == f"{source}."
    assert _shortened(coverage, f"{source}.", f"{translation}!") is None


@pytest.mark.parametrize(("last", "is_omission"), [(0.4, False), (0.6, True)])
def test_near_the_limit_the_model_decides(coverage, last, is_omission):
    source, cut, _ = _cut(random.Random(4))
    src, tgt = Text(source), Text(cut)
    findings = list(coverage.findings(src, tgt, coverage.of(src, tgt), Contrast(*[0.0] * 5, last)))
    assert [finding.kind for finding in findings] == ["omission"] * is_omission
    # Without it, the lexicon does.
    assert [x.kind for x in coverage.findings(src, tgt, coverage.of(src, tgt))] == ["omission"]


def test_what_a_model_is_asked_does_not_depend_on_the_other_lines(fitted, coverage):
    checker = load_checker(fitted)
    checker.coverage = coverage
    pick = random.Random(5)
    cut = [_cut(pick)[:2] for _ in range(5)]
    pairs = [cut[0], ("", ""), *number_pairs(10, 3), pair_of_words(pick), *cut]
    sources, texts = map(list, zip(*pairs, strict=True))
    translations = list(map(Translation, texts))
    with (
        Translator.load(fitted, device="cpu") as translator,
        Prober(translator, checker, with_samples=True, of_own=False) as prober,
        Prober(translator, checker, with_samples=True, of_own=True) as of_own,
    ):
        together = prober.decoded(sources, translations)
        own = of_own.decoded(sources, translations)
        alone = [prober.decoded([s], [t])[0] for s, t in zip(sources, translations, strict=True)]
    for one, other in zip(together, alone, strict=True):
        assert replace(one, covered=None) == replace(other, covered=None)
    assert [line.contrast is not None for line in together] == [True, *[False] * 12, *[True] * 5]
    # About its own translations a model is not asked.
    assert [replace(x, contrast=None, covered=None) for x in together] == [
        replace(x, covered=None) for x in own
    ]
