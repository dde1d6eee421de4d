"""Training pairs whose sources are near to a given one: what a model has seen of such text.

A translation that is like the targets of near sources is often right, whatever its probability is.
The nearest are those with the largest cosine of TF-IDF vectors (Salton and Buckley 1988,
https://doi.org/10.1016/0306-4573(88)90021-0) of words, and of pairs of words that follow each
other.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from mtkit.base.arrays import concat_ranges
from mtkit.check.model.lexicon import load_rows
from mtkit.check.rules import limits
from mtkit.check.rules.marks import Text
from mtkit.score import mutual_chrf


class Examples:
    """Pairs of a source and a target line, which are found by the source."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._pairs = pairs
        self._numbers: dict[Hashable, int] = {}
        number_of = self._numbers.setdefault
        by_line = [
            [number_of(term, len(self._numbers)) for term in _terms(Text(source))]
            for source, _ in pairs
        ]
        sizes = np.array([len(terms) for terms in by_line], np.int64)
        terms = np.array([number for line in by_line for number in line], np.int64)
        lines = np.repeat(np.arange(len(pairs)), sizes)
        # The lines of each term, one term after another.
        self._lines = lines[np.argsort(terms, kind="stable")]
        self._counts = np.bincount(terms, minlength=len(self._numbers))
        self._begins = np.cumsum(self._counts) - self._counts
        self._weights = np.log(len(pairs) / np.maximum(self._counts, 1)) ** 2
        self._lengths = np.sqrt(np.bincount(lines, self._weights[terms], minlength=len(pairs)))

    def nearest(self, source: Text) -> list[int]:
        """The numbers of the nearest pairs with a word of the source, the best first."""
        numbers = [self._numbers[term] for term in _terms(source) if term in self._numbers]
        known = np.array(numbers, np.int64)
        counts = self._counts[known]
        # The length of the vector of the source is the same for all.
        products = np.bincount(
            self._lines[concat_ranges(self._begins[known], counts)],
            np.repeat(self._weights[known], counts),
            minlength=len(self._pairs),
        )
        cosines = products / np.maximum(self._lengths, np.finfo(float).tiny)
        # Sorted by cosine, equal ones in their order: which of these a partition takes depends on
        # the processor.
        count = min(limits.EXAMPLES, len(cosines))
        lowest = np.partition(cosines, -count)[-count] if count else 0.0
        near = np.flatnonzero(cosines >= max(lowest, np.finfo(float).tiny))
        best = np.argsort(-cosines[near], kind="stable")[:count]
        return [int(row) for row in near[best]]

    def likeness(self, source: Text, translation: str) -> float:
        """The mean chrF of a translation to the targets of the nearest pairs, 0 to 100."""
        targets = [self._pairs[row][1] for row in self.nearest(source)]
        return mutual_chrf([translation, *targets])[0] if targets else 0.0

    def rows(self) -> list[str]:
        """The rows of a file: both lines of each pair."""
        return [
            "{}\t{}\n".format(*(line.replace("\t", " ") for line in pair)) for pair in self._pairs
        ]

    @classmethod
    def load(cls, path: Path, language: str) -> Examples:
        """Those of a target language, of a file that was not changed.

        Raises:
            MtkitError: if the file cannot be read, or has none of the language.
        """
        rows = (row.rstrip("\n").split("\t") for row in load_rows(path, language))
        return cls([(source, target) for source, target in rows])


def _terms(text: Text) -> dict[Hashable, None]:
    """The words of a text and the pairs of words, each once and in order."""
    return dict.fromkeys([*text.keys, *pairwise(text.keys)])
