"""Scores that another program or a person gave to each line: their files, means and tests.

The score of a system is the mean over its lines. Differences between systems are tested as those
of all other metrics are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mtkit.base.errors import MtkitError, in_words
from mtkit.score.scores import LineMetric, Score

# sacreBLEU adds scores in float32, whose largest number is 3.4e38.
_LARGEST = 1e30
# The name that many programs give to their scores.
_USUAL_NAME = "score"
# Characters of a field that an error shows.
_SHOWN = 40


@dataclass(frozen=True)
class SegmentScore(Score):
    """The mean of the scores of lines, on the scale of their metric."""

    # Many of these metrics go from 0 to 1.
    DECIMALS: ClassVar[int] = 4


@dataclass(frozen=True)
class SegmentMetric(LineMetric):
    """A metric that mtkit does not compute.

    Attributes:
        by_system: for every system the score of each line; all have the same number of lines.
    """

    kind = SegmentScore

    name: str
    by_system: Sequence[Sequence[float]]
    lower_is_better: bool = False

    @property
    def statistics(self) -> list[Any]:
        """Of each line its score and 1, so the sums of both give the mean."""
        return [np.array([[value, 1.0] for value in scores]) for scores in self.by_system]

    def _scorer(self, *, of_sentences: bool = False) -> _Mean:
        better = "lower" if self.lower_is_better else "higher"
        return _Mean(self.name, f"mean:lines|lines:{len(self.by_system[0])}|better:{better}")


class _Result(NamedTuple):
    name: str
    score: float


class _Mean:
    """The mean of given scores, with the interface of sacreBLEU's metrics and of their signatures.

    The signature says how the score of a system follows from those of its lines.
    """

    def __init__(self, name: str, signature: str) -> None:
        self._name, self._signature = name, signature

    def get_signature(self) -> _Mean:
        return self

    def update(self, key: str, value: object) -> None:
        self._signature += f"|{key}:{value}"

    def __str__(self) -> str:
        return self._signature

    def _aggregate_and_compute(self, lines: Any) -> _Result:
        # One after another, as sacreBLEU adds. Another rounding would change which of many equal
        # differences count as larger than that of the systems.
        return self._compute_score_from_stats(lines.cumsum(0)[-1].tolist())

    def _compute_score_from_stats(self, sums: Sequence[float]) -> _Result:
        total, count = sums
        return _Result(self._name, total / count)


def parse_scores(
    lines: Iterable[str], *, file: str, name: str, text: str, count: int
) -> list[float]:
    """The number on each line of a file.

    A file has numbers, rows with fields between tabs, or JSON lines. A first row with a field
    `name` or "score", or without any number, is a header. The column is the one under `name`, else
    under "score", else the last one that is a number in the first row below the header. In a JSON
    object, it is the value of `name`, else of "score", else the only number. Upper and lower case
    of the names are the same.

    Args:
        file: its name, for messages.
        name: of the metric.
        text: the name of the translations, which have `count` lines.

    Raises:
        MtkitError: if there are more or fewer lines, and for the first one without a number.
    """
    if count == 0:
        raise MtkitError("there is nothing to score: 0 translations")
    rows = list(lines)
    has_header = False
    column = 0
    is_json = bool(rows) and rows[0].lstrip().startswith(("{", "["))
    if rows and not is_json:
        cells = rows[0].split("\t")
        names = [cell.strip().casefold() for cell in cells]
        named = [names.index(key) for key in (name.casefold(), _USUAL_NAME) if key in names]
        if named or not any(_number(cell) is not None for cell in cells):
            has_header, rows = True, rows[1:]
            cells = rows[0].split("\t") if rows else cells
        numeric = [place for place, cell in enumerate(cells) if _number(cell) is not None]
        column = [*named[:1], *numeric[-1:], len(cells) - 1][0]
    scores = []
    for number, row in enumerate(rows, 1 + has_header):
        place = f"{file}, line {number:,}"
        value = _in_json(row, name, place) if is_json else _in_row(row, column, place)
        if not abs(value) <= _LARGEST:
            raise MtkitError(f"{place}: {value} is not a number from -1e30 to 1e30")
        scores.append(float(value))
    # After the numbers: a file of text is not one of scores.
    if len(scores) != count:
        below = " below its header" if has_header else ""
        raise MtkitError(
            f"{file} has {in_words(len(scores), 'score')}{below} and {text} has "
            f"{in_words(count)}; write one score for each line"
        )
    return scores


def _in_row(row: str, column: int, place: str) -> float:
    """The number in a column; columns are counted from 0."""
    cells = row.split("\t")
    if column >= len(cells):
        raise MtkitError(
            f"{place}: has {len(cells)} of the columns, and the scores are in column {column + 1}"
        )
    value = _number(cells[column])
    if value is None:
        where = f", column {column + 1}" if len(cells) > 1 else ""
        raise MtkitError(f"{place}{where}: '{cells[column][:_SHOWN]}' is not a number")
    return value


def _number(text: str) -> float | None:
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _in_json(row: str, name: str, place: str) -> float:
    try:
        value = json.loads(row)
    except (ValueError, RecursionError):
        raise MtkitError(f"{place}: is not JSON; write one whole object on each line") from None
    if isinstance(value, dict):
        named = {key.casefold(): field for key, field in value.items()}
        numbers = [number for number in value.values() if _is_number(number)]
        keys = [key for key in (name.casefold(), _USUAL_NAME) if key in named]
        if not keys and len(numbers) != 1:
            raise MtkitError(f"{place}: has neither the key {name} nor the key {_USUAL_NAME}")
        value = named[keys[0]] if keys else numbers[0]
    if not _is_number(value):
        raise MtkitError(f"{place}: {json.dumps(value)[:_SHOWN]} is not a number")
    number: float = value
    return number


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
