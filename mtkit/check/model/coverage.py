"""Whether a translation has the whole text of its source, and nothing else: omission, addition.

For each word of a side that the lexicon knows, the other side has translations of it with some
probability. How probable that is for a word without a translation, against one with it, was counted
on the validation set: the log-odds of the word. A run of words with positive log-odds is a sign
that they are not translated. It is one feature of a logistic regression, with the lengths of both
sides and the coverage of all words. The regression is trained on the validation set, on pairs as
they are, pairs with a part of one side deleted, and pairs of different lines.
"""

from __future__ import annotations

import math
import random
import re
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from mtkit.base.files import Record
from mtkit.base.text import END_MARKS
from mtkit.check.model.lexicon import Entries, Lexicon
from mtkit.check.model.linear import Regression
from mtkit.check.rules import limits
from mtkit.check.rules.facts import missing_mark
from mtkit.check.rules.findings import Finding
from mtkit.check.rules.marks import Text

Kind = Literal["omission", "addition"]

_COLUMNS = (len(limits.CHANCE_STEPS) + 1) * (len(limits.BEST_STEPS) + 1)
# Features of a pair for a regression (`PairCoverage.features`).
_FEATURES = 15
# Punctuation marks that are counted.
_MARKS = ",;:.!?()–-"
# A clause ends here, for a pair with a part deleted.
_CLAUSE = re.compile(r"[^,;:.!?–()\"«»„“”]+")


class CoverageSettings(Record):
    """What was counted on the validation set.

    Attributes:
        src_odds, tgt_odds: log-odds by class, flat, in the order of `FOUND_STEPS`, `CHANCE_STEPS`
            and `BEST_STEPS`.
        ratio: characters of a target over those of its source.
        most_new: with a larger share of new words, nothing is said of omissions.
        contrast: of what `omission` says and what the model does (`Contrast`); None for a run
            that was fitted to too few such pairs, or by an older version.
    """

    src_odds: list[float]
    tgt_odds: list[float]
    ratio: float
    most_new: float
    omission: Regression
    addition: Regression
    contrast: Regression | None = None

    def _check(self) -> None:
        odds = (len(limits.FOUND_STEPS) + 1) * _COLUMNS
        if {len(self.src_odds), len(self.tgt_odds)} != {odds}:
            raise ValueError(f"log-odds of {odds} classes are needed")
        for model in (self.omission, self.addition):
            if {len(model.means), len(model.deviations), len(model.weights)} != {_FEATURES}:
                raise ValueError(f"{_FEATURES} features are needed")


class Contrast(NamedTuple):
    """How probable a translation is, and how much more without a part of its source.

    Attributes:
        mean, lowest, last: of the log-probabilities of its subwords; the mark at the end is one of
            them, also if the translation lacks it.
        gain, mean_gain, last_gain: by how much the sum, the mean and the last one are higher
            without the part.
    """

    mean: float
    lowest: float
    last: float
    gain: float
    mean_gain: float
    last_gain: float


@dataclass(frozen=True)
class SideCoverage:
    """How the words of one side are covered by the other.

    Attributes:
        log_odds: of each word; 0 if nothing is known of it.
        worst: the first and the last word, exclusive, of the run with the highest sum; equal if no
            word has positive log-odds.
        worst_sum: its sum.
        new: the share of words that were in few lines of the training text, or in none.
        frequency: the mean of the log of the share of lines that have a word.
        certainty: the mean probability of the best translation of a word in the lexicon.
    """

    log_odds: Sequence[float]
    worst: tuple[int, int]
    worst_sum: float
    new: float
    frequency: float
    certainty: float

    @property
    def mean(self) -> float:
        """The mean log-odds of a word; low if the words are covered."""
        return sum(self.log_odds) / (len(self.log_odds) + limits.EXTRA_WORDS)

    @property
    def uncovered(self) -> float:
        """The sum of the positive log-odds."""
        return sum(value for value in self.log_odds if value > 0)


class _Word(NamedTuple):
    """What is known of a word; without an entry in the lexicon there are no odds."""

    translations: Sequence[tuple[str, float]]
    odds: Sequence[float]
    log_share: float
    best: float


# The log of the share of lines of a word that is in none.
_LOWEST_SHARE = math.log(limits.UNSEEN_SHARE)
_UNKNOWN = _Word((), (), _LOWEST_SHARE, 0.0)


@dataclass
class _Side:
    """One side of the lexicon: log-odds by class, and the shares of lines with each word."""

    entries: Entries
    known: Mapping[str, float]
    others: Mapping[str, float]
    odds: Sequence[float]
    words: dict[str, _Word] = field(default_factory=dict)

    def column(self, key: str) -> int:
        """The class of a word that is in the lexicon, whatever the other side has."""
        entry, shares = self.entries[key], self.others
        chance = sum(value * shares.get(word, 0.0) for word, value in entry.items())
        by_chance = bisect(limits.CHANCE_STEPS, chance)
        return by_chance * (len(limits.BEST_STEPS) + 1) + bisect(
            limits.BEST_STEPS, max(entry.values())
        )

    def step_of(self, key: str, others: set[str]) -> int | None:
        """The class of what the other side has of a word; None if it is not in the lexicon."""
        entry = self.entries.get(key)
        if entry is None:
            return None
        return bisect(
            limits.FOUND_STEPS, sum(value for word, value in entry.items() if word in others)
        )

    def _word(self, key: str) -> _Word:
        share, entry = self.known.get(key), self.entries.get(key)
        if share is None:
            # They are not remembered, because a text may have any number of them.
            return _UNKNOWN
        word = _Word((), (), math.log(share), 0.0)
        if entry is not None:
            odds = self.odds[self.column(key) :: _COLUMNS]
            word = _Word(tuple(entry.items()), odds, math.log(share), max(entry.values()))
        self.words[key] = word
        return word

    def cover(self, keys: Sequence[str], others: set[str]) -> SideCoverage:
        words, values = self.words, []
        highest = current = 0.0
        start, worst, new = 0, (0, 0), 0
        frequency = certainty = 0.0
        for index, key in enumerate(keys):
            translations, row, log_share, best = words.get(key) or self._word(key)
            frequency += log_share
            certainty += best
            if key in others:
                value = limits.COPIED_LOG_ODDS
            elif row:
                total = 0.0
                for translation, probability in translations:
                    if translation in others:
                        total += probability
                value = row[bisect(limits.FOUND_STEPS, total)]
            else:
                value = 0.0
                new += log_share == _LOWEST_SHARE
            values.append(value)
            current += value
            if current <= 0:
                current, start = 0.0, index + 1
            elif current > highest:
                highest, worst = current, (start, index + 1)
        count = max(1, len(keys))
        return SideCoverage(
            values, worst, highest, new / count, frequency / count, certainty / count
        )


@dataclass(frozen=True)
class PairCoverage:
    """The coverage of both sides of a pair, and how many words the source has.

    `length` is the log of the length of the translation over the usual one, in characters; `marks`
    says how many more punctuation marks the translation has.
    """

    src: SideCoverage
    tgt: SideCoverage
    length: float
    words: int
    marks: int

    @property
    def new(self) -> float:
        """The share of new words, of the side that has more of them."""
        return max(self.src.new, self.tgt.new)

    def features(self, kind: Kind) -> list[float]:
        """What the regression of a kind is given."""
        this, other = (self.src, self.tgt) if kind == "omission" else (self.tgt, self.src)
        sign = -1 if kind == "omission" else 1
        length, marks = sign * self.length, sign * self.marks
        size = math.log(self.words + limits.EXTRA_WORDS)
        return [
            this.worst_sum,
            this.worst_sum / math.sqrt(len(this.log_odds) + limits.EXTRA_WORDS),
            this.uncovered,
            this.mean,
            other.mean,
            other.worst_sum,
            length,
            length * size,
            length * abs(length),
            size,
            this.worst_sum * length,
            this.mean * length,
            marks,
            marks / (abs(marks) + size),
            max(0, marks),
        ]


class Coverage:
    """Finds omissions and additions with the lexicon of a run."""

    def __init__(self, lexicon: Lexicon, settings: CoverageSettings) -> None:
        self.lexicon, self.settings = lexicon, settings
        self._src, self._tgt = _sides(lexicon, settings.src_odds, settings.tgt_odds)

    def of(self, src: Text, tgt: Text) -> PairCoverage:
        """The coverage of a pair of lines."""
        return _pair_coverage(self._src, self._tgt, src, tgt, self.settings.ratio)

    @property
    def has_contrast(self) -> bool:
        """Whether it can judge what `shortened` is for."""
        return self.settings.contrast is not None

    def shortened(self, src: Text, tgt: Text, pair: PairCoverage) -> str | None:
        """A source without words that seem lost, if the lexicon is unsure or a mark is missing."""
        if max(len(src.raw), len(tgt.raw)) > limits.MAX_CONTRASTED:
            return None
        is_near = self._excess("omission", pair) > -limits.MAX_DISTANCE
        if pair.new > self.settings.most_new or not (is_near or missing_mark(src.raw, tgt.raw)):
            return None
        first, end = pair.src.worst
        if first == end:
            return src.raw
        spans = src.spans()
        left = src.raw[: spans[first][0]] + src.raw[spans[end - 1][1] :]
        return re.sub(r"\s+(?=[,.;:!?])", "", " ".join(left.split()))

    def contrast_features(self, pair: PairCoverage, contrast: Contrast) -> list[float]:
        """What the regression is given of a pair and of what the model says."""
        first, end = pair.src.worst
        return [self._excess("omission", pair), end - first, *contrast]

    def _excess(self, kind: Kind, pair: PairCoverage) -> float:
        """The log-odds of a finding above the limit."""
        regression: Regression = getattr(self.settings, kind)
        excess = regression.log_odds(pair.features(kind)) - regression.limit
        return excess - limits.NEW_WORDS_PENALTY * pair.new

    def findings(
        self, src: Text, tgt: Text, pair: PairCoverage, contrast: Contrast | None = None
    ) -> Iterator[Finding]:
        """Omission and addition, with the words of the worst run of them.

        Of a line with many new words nothing can be said but that. `contrast` is what the model
        says of an omission, if it was asked.
        """
        if pair.new > self.settings.most_new:
            yield from self._new_words(src, set(tgt.keys))
            return
        sides: tuple[tuple[Kind, SideCoverage, Text], ...] = (
            ("omission", pair.src, src),
            ("addition", pair.tgt, tgt),
        )
        for kind, side, text in sides:
            excess, of_both = self._excess(kind, pair), self.settings.contrast
            if kind == "omission" and contrast and of_both is not None:
                excess = of_both.log_odds(self.contrast_features(pair, contrast)) - of_both.limit
            if excess > 0 and side.log_odds:
                yield _missing(kind, side, text, severity=1 - math.exp(-1 - excess))

    def _new_words(self, src: Text, translated: set[str]) -> Iterator[Finding]:
        """That many words of a source are new, but for names that the translation has too."""
        keys = src.keys
        new = [
            src.raw[start:end]
            for key, (start, end) in zip(keys, src.spans(), strict=True)
            if key not in self._src.known and key not in translated
        ]
        if len(new) >= limits.MIN_NEW_WORDS and len(new) > self.settings.most_new * len(keys):
            more = ", …" if len(new) > limits.MAX_SHOWN_NEW else ""
            shown = ", ".join(new[: limits.MAX_SHOWN_NEW]) + more
            reason = f"{len(new)} of {len(keys)} words are new to the model: {shown}"
            yield Finding("unknown", reason, min(0.8, len(new) / len(keys)))

    @classmethod
    def fit(cls, lexicon: Lexicon, pairs: Sequence[tuple[str, str]]) -> CoverageSettings:
        """Count the log-odds on pairs that the lexicon was not learned from, and fit the rest."""
        texts = [(Text(src), Text(tgt)) for src, tgt in pairs]
        blank = [0.0] * (len(limits.FOUND_STEPS) + 1) * _COLUMNS
        keys = [[text.keys for text in side] for side in zip(*texts, strict=True)]
        odds = [
            _count_odds(side, this, other)
            for side, this, other in zip(
                _sides(lexicon, blank, blank), keys, reversed(keys), strict=True
            )
        ]
        characters = [sum(map(len, side)) for side in zip(*pairs, strict=True)]
        ratio = (characters[1] + limits.EXTRA_LENGTH) / (characters[0] + limits.EXTRA_LENGTH)
        sides = _sides(lexicon, *odds)
        new = [_pair_coverage(*sides, *pair, ratio).new for pair in texts]
        most_new = max(limits.MAX_NEW, float(np.quantile(new, limits.NEW_QUANTILE)))
        pick = random.Random(1)
        regressions = {}
        for kind, share in limits.MAX_FOUND_SHARE.items():
            rows = [
                (_pair_coverage(*sides, source, translation, ratio).features(kind), is_faulty)
                for source, translation, is_faulty in examples(kind, texts, pick)
            ]
            regressions[kind] = Regression.fit(*zip(*rows, strict=True), share=share)
        return CoverageSettings(
            src_odds=odds[0], tgt_odds=odds[1], ratio=ratio, most_new=most_new, **regressions
        )


def _missing(kind: Kind, side: SideCoverage, text: Text, *, severity: float) -> Finding:
    """An omission or an addition, with the words that nothing on the other side is for."""
    first, end = side.worst
    if first == end:
        than = "shorter" if kind == "omission" else "longer"
        return Finding(kind, f"the translation is {than} than usual", severity)
    spans = text.spans()
    span = range(spans[first][0], spans[end - 1][1])
    words = text.raw[span.start : span.stop]
    if kind == "omission":
        return Finding(kind, f'not translated: "{words}"', severity, src=span)
    return Finding(kind, f'not in the source: "{words}"', severity, tgt=span)


def _sides(
    lexicon: Lexicon, src_odds: Sequence[float], tgt_odds: Sequence[float]
) -> tuple[_Side, _Side]:
    return (
        _Side(lexicon.src_to_tgt, lexicon.src_shares, lexicon.tgt_shares, src_odds),
        _Side(lexicon.tgt_to_src, lexicon.tgt_shares, lexicon.src_shares, tgt_odds),
    )


def _pair_coverage(
    src: _Side, tgt: _Side, source: Text, translation: Text, ratio: float
) -> PairCoverage:
    characters = len(source.raw), len(translation.raw)
    return PairCoverage(
        src.cover(source.keys, set(translation.keys)),
        tgt.cover(translation.keys, set(source.keys)),
        math.log(
            (characters[1] + limits.EXTRA_LENGTH) / (ratio * characters[0] + limits.EXTRA_LENGTH)
        ),
        len(source.keys),
        _marks(translation.raw) - _marks(source.raw),
    )


def _marks(text: str) -> int:
    return sum(map(text.count, _MARKS))


def _count_odds(
    side: _Side, lines: Sequence[Sequence[str]], others: Sequence[Sequence[str]]
) -> list[float]:
    """The log-odds of each class: of a pair of different lines against a pair of lines."""
    counts = np.full((2, len(limits.FOUND_STEPS) + 1, _COLUMNS), 0.5)
    # Each line with the translation of the one half of the lines later.
    moved = [*others[len(others) // 2 :], *others[: len(others) // 2]]
    for of, translations in enumerate((others, moved)):
        for keys, other in zip(lines, map(set, translations), strict=True):
            for key in keys:
                step = side.step_of(key, other)
                if step is not None and key not in other:
                    counts[of, step, side.column(key)] += 1
    right, different = np.log(counts / counts.sum(axis=1, keepdims=True))
    odds = (different - right).clip(-limits.MAX_LOG_ODDS, limits.MAX_LOG_ODDS).round(3)
    return [float(value) for value in odds.ravel()]


def examples(
    kind: Kind, pairs: Sequence[tuple[Text, Text]], pick: random.Random
) -> Iterator[tuple[Text, Text, bool]]:
    """Pairs, and whether they are faulty: as they are, with a part deleted, of different lines."""
    for number, (source, translation) in enumerate(pairs):
        yield source, translation, False
        # An addition is a part that the source does not have.
        pair = [source, translation]
        changed = 1 if kind == "omission" else 0
        if (shorter := delete_part(pair[changed].raw, pick)) is not None:
            pair[changed] = Text(shorter)
            yield pair[0], pair[1], True
        if number % 4 == 0:
            yield source, pairs[pick.randrange(len(pairs))][1], True


def delete_part(text: str, pick: random.Random) -> str | None:
    """A text without one of its clauses, or some of its words; None if it is too short."""
    parts = [match.span() for match in _CLAUSE.finditer(text)]
    clauses = [
        (start, end) for start, end in parts if len(text[start:end].split()) >= limits.MIN_DELETED
    ]
    several = sum(bool(text[start:end].strip()) for start, end in parts) > 1
    if clauses and several:
        start, end = pick.choice(clauses)
        return " ".join((text[:start].rstrip(" ,;:–") + text[end:]).split())
    words = text.split()
    longest = min(limits.MAX_DELETED, len(words) - 3)
    if longest < limits.MIN_DELETED:
        return None
    size = pick.randint(limits.MIN_DELETED, longest)
    start = pick.randint(1, len(words) - size)
    return " ".join(words[:start] + words[start + size :])


def delete_end(text: str) -> str | None:
    """A text without its last third, but with its mark at the end; None if it is too short."""
    words, mark = text.split(), text.rstrip()[-1:]
    if len(words) < limits.MIN_CUT_WORDS:
        return None
    kept = " ".join(words[: len(words) * 2 // 3]).rstrip(" ,;:–")
    return kept + mark if mark in END_MARKS else kept
