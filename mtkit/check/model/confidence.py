"""The confidence of a translation: a forecast of the sentence chrF that it would get.

A ridge regression on what is known without a reference: the log-probabilities of the model, the
lengths, and how the words of both sides cover each other. It is fitted to the translations of the
validation set. `Verdict` says what the forecasts of its lines say of a text.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mtkit.base.errors import in_words
from mtkit.base.files import Record
from mtkit.check.model.coverage import PairCoverage
from mtkit.check.model.linear import FloatArray, Linear, ridge
from mtkit.check.rules import limits

# The names of the features, in their order.
FEATURES = (
    "mean log-probability",
    "mean probability",
    "lowest log-probability",
    "lowest tenth",
    "share below one in ten",
    "deviation",
    "log of the subwords",
    "log of the words",
    "length",
    "absolute length",
    "coverage of the source",
    "coverage of the translation",
    "uncovered source words",
    "uncovered translated words",
    "worst run of source words",
    "worst run of translated words",
    "new source words",
    "new translated words",
    "frequency of the source words",
    "frequency of the translated words",
    "certainty of the source words",
    "subwords of a translated word",
    "probability of two subwords in a row",
    "probability of three subwords in a row",
)
# The last of them, which older files were fitted without.
_NEW_FEATURES = 2
# Further ones of a translation with samples beside it.
OF_SAMPLES = (
    "chrF to the samples",
    "chrF of the samples to all others",
    "mean log-probability of samples",
)

# A further one where training pairs are beside the run.
OF_EXAMPLES = ("chrF to the targets of the nearest training sources",)

# Of a text whose confidences are far below those of the validation set.
FOREIGN = "this is not the kind of text that the run was trained on"
# Of given translations.
OF_OTHERS = (
    "confidence is fitted to translations by the run; those by others, as by people, have less"
)


class Tenth(Record):
    """A tenth of the validation set, by forecast; the mean chrF corrects later forecasts."""

    forecast: float
    chrf: float


class Quality(Record):
    """How good the forecasts of lines are that it was not fitted to.

    Spearman's correlation of forecasts and chrF, and as a baseline that of the mean log-
    probability; the mean absolute error in points of chrF; and the tenths, the lowest forecasts
    first.
    """

    lines: int
    correlation: float
    baseline: float
    error: float
    tenths: list[Tenth]


class Forecast(Linear):
    """Forecasts the chrF of a translation; its quality is that of held-out lines.

    What is outside of the range of a feature in the validation set lowers the forecast a little,
    and never raises it, because the relation was not seen there.
    """

    low: list[float]
    high: list[float]
    quality: Quality

    def _check(self) -> None:
        columns = self.means, self.deviations, self.weights, self.low, self.high
        lengths = {len(column) for column in columns}
        known = len(FEATURES), len(FEATURES + OF_SAMPLES), len(FEATURES + OF_SAMPLES + OF_EXAMPLES)
        if len(lengths) != 1 or not lengths.issubset({*known, *(n - _NEW_FEATURES for n in known)}):
            raise ValueError("{}, {} or {} features are needed".format(*known))

    def of(self, features: Sequence[float]) -> float:
        """The forecast, 0 to 100."""
        if len(self.weights) < len(features):
            end = len(FEATURES)
            features = [*features[: end - _NEW_FEATURES], *features[end:]]
        forecast = self.total(features, self.low, self.high, outside=limits.OUTSIDE)
        if self.quality.tenths:
            mean, _ = self.of_validation
            forecast = mean + limits.SPREAD * (forecast + self._correction(forecast) - mean)
        return min(max(forecast, 0.0), 100.0)

    def _correction(self, forecast: float) -> float:
        """What the tenths of the validation set say that forecasts of this height are wrong by.

        A higher forecast stays higher.
        """
        forecasts, chrf = self._tenths
        nearest = min(max(forecast, float(forecasts[0])), float(forecasts[-1]))
        return float(np.interp(nearest, forecasts, chrf)) - nearest

    @functools.cached_property
    def _tenths(self) -> tuple[FloatArray, FloatArray]:
        """The mean forecasts, and the highest mean chrF up to each of them."""
        tenths = np.array([(tenth.forecast, tenth.chrf) for tenth in self.quality.tenths])
        return tenths[:, 0], np.maximum.accumulate(tenths[:, 1])

    @functools.cached_property
    def of_validation(self) -> tuple[float, float]:
        """The mean and the deviation of the forecasts of the validation set."""
        tenths = np.array([tenth.chrf for tenth in self.quality.tenths])
        return float(tenths.mean()), limits.SPREAD * float(tenths.std())

    @classmethod
    def fit(cls, features: Sequence[Sequence[float]], chrf: Sequence[float]) -> Forecast:
        """Fit it to (n, features) and chrF (n,), 0 to 100, and measure it on held-out folds."""
        x, y = np.array(features), np.array(chrf)
        forecasts = np.zeros(len(y))
        fold = np.arange(len(y)) % limits.FOLDS
        none = Quality(lines=0, correlation=0.0, baseline=0.0, error=0.0, tenths=[])
        for number in range(limits.FOLDS):
            model = cls._fitted(x[fold != number], y[fold != number], none)
            forecasts[fold == number] = list(map(model.of, x[fold == number].tolist()))
        return cls._fitted(x, y, _quality(forecasts, x[:, 0], y))

    @classmethod
    def _fitted(cls, x: FloatArray, y: FloatArray, quality: Quality) -> Forecast:
        low, high = (side(axis=0).round(6).tolist() for side in (x.min, x.max))
        return cls(**cls.columns(x, y, ridge), low=low, high=high, quality=quality)


def features_of(log_probs: Sequence[float], pair: PairCoverage) -> list[float]:
    """The features of a translation and its coverage, in the order of `FEATURES`.

    The log-probabilities, in natural logarithm, are of each subword and of EOS; at least one.
    """
    ordered = sorted(log_probs)
    count = len(ordered)
    tenth = ordered[: max(1, count // 10)]
    mean = sum(ordered) / count
    words = pair.words + 1
    return [
        mean,
        math.exp(mean),
        ordered[0],
        sum(tenth) / len(tenth),
        sum(value < -2.3026 for value in ordered) / count,
        math.sqrt(sum((value - mean) ** 2 for value in ordered) / count),
        math.log(count),
        math.log(words),
        pair.length,
        abs(pair.length),
        pair.src.mean,
        pair.tgt.mean,
        pair.src.uncovered / words,
        pair.tgt.uncovered / words,
        pair.src.worst_sum,
        pair.tgt.worst_sum,
        pair.src.new,
        pair.tgt.new,
        pair.src.frequency,
        pair.tgt.frequency,
        pair.src.certainty,
        count / (len(pair.tgt.log_odds) + 1),
        _mean_probability(log_probs, 2),
        _mean_probability(log_probs, 3),
    ]


def _mean_probability(log_probs: Sequence[float], length: int) -> float:
    """The mean probability of `length` subwords in a row, as n-grams count in chrF."""
    starts = range(max(1, len(log_probs) - length + 1))
    return sum(math.exp(sum(log_probs[i : i + length])) for i in starts) / len(starts)


def _quality(forecasts: FloatArray, log_probs: FloatArray, chrf: FloatArray) -> Quality:
    parts = np.array_split(np.argsort(forecasts, kind="stable"), 10)
    return Quality(
        lines=len(chrf),
        correlation=round(spearman(forecasts, chrf), 4),
        baseline=round(spearman(log_probs, chrf), 4),
        error=round(float(np.abs(forecasts - chrf).mean()), 3),
        tenths=[
            Tenth(
                forecast=round(float(forecasts[part].mean()), 2),
                chrf=round(float(chrf[part].mean()), 2),
            )
            for part in parts
        ],
    )


def spearman(values: npt.ArrayLike, other: npt.ArrayLike) -> float:
    """Spearman's rank correlation, with mean ranks for equal values; 0 if a side is constant."""
    ranks = [_ranks(np.asarray(side, np.float64)) for side in (values, other)]
    a, b = (side - side.mean() for side in ranks)
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale else 0.0


def _ranks(values: FloatArray) -> FloatArray:
    _, at, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    mean_ranks: FloatArray = (ends - counts + ends - 1) / 2
    return mean_ranks[at]


@dataclass
class Verdict:
    """What the forecasts of the lines of a text say of it as a whole.

    `lines` have a forecast, which is added to the `total`; `low` are those below the limit. The
    forecast of the run is None if its validation set is not known.
    """

    below: float = limits.BELOW
    forecast: Forecast | None = None
    lines: int = 0
    total: float = 0.0
    low: int = 0

    def add(self, confidence: float | None) -> None:
        """Count a line; None if it has no forecast."""
        if confidence is not None:
            self.lines += 1
            self.total += confidence
            self.low += confidence < self.below

    @property
    def is_foreign(self) -> bool:
        """Whether the mean lies far below that of the validation set, in deviations of a line."""
        if self.forecast is None or not self.lines:
            return False
        mean, deviation = self.forecast.of_validation
        least = limits.MIN_FOREIGN + limits.MIN_FOREIGN_LINE / math.sqrt(self.lines)
        return self.total / self.lines < mean - least * deviation

    def sentences(self, unit: str = "lines") -> list[str]:
        """The verdict, for a person; nothing without forecasts. `unit` is what each line is."""
        if not self.lines:
            return []
        of_valid = ""
        if self.forecast is not None:
            of_valid = f" (of the validation set: {self.forecast.of_validation[0]:.0f})"
        first = (
            f"the mean confidence is {self.total / self.lines:.0f}{of_valid}, and "
            f"{self.low:,} of {in_words(self.lines, unit[:-1])} "
            f"{'is' if 1 in (self.low, self.lines) else 'are'} below {self.below:g}; most faults "
            "are not marked, and a low confidence finds more of them"
        )
        if self.forecast is None:
            return [first, OF_OTHERS]
        return [first, *([FOREIGN] if self.is_foreign else [])]
