"""A linear model of standardised features, fitted by a ridge or by a logistic regression."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mtkit.base.files import Record
from mtkit.check.rules import limits

FloatArray = npt.NDArray[np.float64]


class Linear(Record):
    """The mean and the deviation of each feature, and its weight; and what is added."""

    means: list[float]
    deviations: list[float]
    weights: list[float]
    bias: float

    def total(
        self,
        features: Sequence[float],
        low: Sequence[float],
        high: Sequence[float],
        *,
        outside: float,
    ) -> float:
        """The weighted sum; of what a value is below `low` or above `high`, `outside` counts.

        That never raises the sum: among features that go together, one may have the wrong sign.
        """
        total = self.bias
        columns = features, self.means, self.deviations, self.weights, low, high
        for value, mean, deviation, weight, least, most in zip(*columns, strict=True):
            if value < least or value > most:
                edge = least if value < least else most
                total += min(0.0, outside * weight * (value - edge) / deviation)
                value = edge
            total += weight * (value - mean) / deviation
        return total

    @staticmethod
    def columns(
        x: FloatArray, y: FloatArray, solve: Callable[[FloatArray, FloatArray], FloatArray]
    ) -> dict[str, Any]:
        """The fields, fitted by `ridge` or `logistic` to features (n, features) and values (n,)."""
        means, deviations = x.mean(axis=0), x.std(axis=0) + limits.MIN_DEVIATION
        *weights, bias = solve((x - means) / deviations, y).round(6).tolist()
        return {
            "means": means.round(6).tolist(),
            "deviations": deviations.round(6).tolist(),
            "weights": weights,
            "bias": bias,
        }


class Regression(Linear):
    """A logistic regression; with higher log-odds than `limit`, a pair is a finding."""

    limit: float

    def log_odds(self, features: Sequence[float]) -> float:
        """The log-odds of a pair. A feature counts up to `MAX_DEVIATIONS` from its mean."""
        return self.total(features, *self._range, outside=0.0)

    @functools.cached_property
    def _range(self) -> tuple[list[float], list[float]]:
        most = limits.MAX_DEVIATIONS
        columns = list(zip(self.means, self.deviations, strict=True))
        return (
            [mean - most * deviation for mean, deviation in columns],
            [mean + most * deviation for mean, deviation in columns],
        )

    @classmethod
    def fit(
        cls,
        rows: Sequence[Sequence[float]],
        is_faulty: Sequence[bool],
        *,
        share: float,
        lowest: float = 0.0,
    ) -> Regression:
        """Fit it to pairs; the limit is `lowest`, or where `share` of the right ones are above."""
        x, y = np.array(rows), np.array(is_faulty, np.float64)
        fitted = cls(**cls.columns(x, y, logistic), limit=0.0)
        right = [fitted.log_odds(row) for row, no in zip(rows, is_faulty, strict=True) if not no]
        limit = max(lowest, float(np.quantile(right, 1 - share)))
        return fitted.model_copy(update={"limit": round(limit, 5)})


def ridge(z: FloatArray, y: FloatArray) -> FloatArray:
    """(features + 1,): ridge weights and bias; z is standardised, (n, features), and y is (n,)."""
    penalty = limits.RIDGE_PENALTY * len(y) / 1000 * np.eye(z.shape[1])
    bias = y.mean()
    return np.append(np.linalg.solve(z.T @ z + penalty, z.T @ (y - bias)), bias)


def logistic(x: FloatArray, y: FloatArray) -> FloatArray:
    """(features + 1,): the weights of a logistic regression with a small penalty, and its bias.

    x is standardised, (n, features), and y, 0 or 1, is (n,).
    """
    x = x.clip(-limits.MAX_DEVIATIONS, limits.MAX_DEVIATIONS)
    x = np.column_stack([x, np.ones(len(x))])
    weights = np.zeros(x.shape[1])
    penalty = 0.5 * np.eye(x.shape[1])
    for _ in range(25):
        probability = 1 / (1 + np.exp(-(x @ weights).clip(-30, 30)))
        curvature = x.T @ (x * (probability * (1 - probability))[:, None]) + penalty
        weights += np.linalg.solve(curvature, x.T @ (y - probability) - penalty @ weights)
    return weights
