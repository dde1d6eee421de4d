"""Which words of two languages translate each other, learned from pairs of lines.

A word is represented by its key: lower-cased, and only its first letters, so that the forms of a
word are one key. In scripts that are written without spaces, each character is a word.

The probabilities are those of IBM Model 1 (Brown et al. 1993, https://aclanthology.org/J93-2003),
in both directions. Words that are in a fifth of all lines have no entry: they say nothing about
whether a text was translated, and most of the time would be spent on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mtkit.base.arrays import IntArray, concat_ranges
from mtkit.base.errors import MtkitError
from mtkit.base.files import naming_file, write_whole
from mtkit.check.rules import limits
from mtkit.check.rules.marks import Text

# Probability that a word of one language translates to a word of the other, by their keys.
Entries = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Lexicon:
    """The translations of words, by their keys.

    For each key of one side, the probability of each key of the other side; and of each key, the
    share of lines that have it.
    """

    src_to_tgt: Entries
    tgt_to_src: Entries
    src_shares: dict[str, float]
    tgt_shares: dict[str, float]

    @classmethod
    def learn(cls, pairs: Iterable[tuple[str, str]]) -> Lexicon:
        """Learn it from the first pairs of lines, up to some millions of words."""
        src, tgt = _KeyLines(), _KeyLines()
        cells = 0
        for source, target in pairs:
            cells += src.add(source) * tgt.add(target)
            # Half of the words are too frequent, so a quarter of the cells is used.
            if cells > 4 * limits.MAX_CELLS:
                break
        (src_ids, src_shares), (tgt_ids, tgt_shares) = src.ids(), tgt.ids()
        src_keys, tgt_keys = list(src_shares), list(tgt_shares)
        table = _Cells(src_ids, tgt_ids, len(tgt_keys))
        forward, backward = table.learn()
        return cls(
            _entries(table.src, table.tgt, forward, src_keys, tgt_keys),
            _entries(table.tgt, table.src, backward, tgt_keys, src_keys),
            src_shares,
            tgt_shares,
        )

    def rows(self) -> list[str]:
        """The rows of a file: two keys and both probabilities, or a key and its share."""
        rows = {(key, ""): (share, 0.0) for key, share in self.src_shares.items()}
        rows |= {("", key): (share, 0.0) for key, share in self.tgt_shares.items()}
        rows |= {
            (src, tgt): (forward, self.tgt_to_src.get(tgt, {}).get(src, 0.0))
            for src, targets in self.src_to_tgt.items()
            for tgt, forward in targets.items()
        }
        for tgt, sources in self.tgt_to_src.items():
            for src, backward in sources.items():
                rows.setdefault((src, tgt), (0.0, backward))
        return [
            f"{src}\t{tgt}\t{forward:.3g}\t{backward:.3g}\n"
            for (src, tgt), (forward, backward) in sorted(rows.items())
        ]

    @classmethod
    def of_rows(cls, rows: Iterable[str]) -> Lexicon:
        """The lexicon of such rows."""
        entries: tuple[Entries, Entries] = {}, {}
        shares: tuple[dict[str, float], dict[str, float]] = {}, {}
        for row in rows:
            src, tgt, *probabilities = row.rstrip("\n").split("\t")
            forward, backward = map(float, probabilities)
            if not (src and tgt):
                shares[not src][src or tgt] = forward
                continue
            if forward:
                entries[0].setdefault(src, {})[tgt] = forward
            if backward:
                entries[1].setdefault(tgt, {})[src] = backward
        return cls(*entries, *shares)


def save_rows(path: Path, by_language: Mapping[str, Iterable[str]]) -> None:
    """Write rows with tabs into one file; with several languages, a row names that of the next."""
    rows: list[str] = []
    for language, rows_of_it in by_language.items():
        rows += [f"{language}\n"] if len(by_language) > 1 else []
        rows += rows_of_it
    write_whole(path, rows)


def load_rows(path: Path, language: str) -> list[str]:
    """The rows of a language, or of the only one, of a file that was not changed.

    Raises:
        MtkitError: if the file cannot be read, or has rows of other languages only.
    """
    rows: list[str] = []
    is_included = is_mine = True
    with naming_file(path), path.open(encoding="utf-8", newline="\n") as file:
        for number, row in enumerate(file):
            if "\t" not in row:
                is_mine = row == f"{language}\n"
                is_included = is_mine or (is_included and number > 0)
            elif is_mine:
                rows.append(row)
    if not is_included:
        raise MtkitError(f"{path}: has no rows of {language}; run mtkit check --fit")
    return rows


class _KeyLines:
    """The keys of the lines of one side."""

    def __init__(self) -> None:
        self._lines: list[list[str]] = []
        self._counts: Counter[str] = Counter()

    def add(self, text: str) -> int:
        """Add a line; returns the number of its different keys."""
        # In order, because that of a set changes from one start of Python to the next.
        keys = sorted(set(Text(text).keys))
        self._lines.append(keys)
        self._counts.update(keys)
        return len(keys)

    def ids(self) -> tuple[list[IntArray], dict[str, float]]:
        """The numbers of the keys of each line that are in the lexicon, and the shares of these."""
        shares = {
            key: count / len(self._lines)
            for key, count in self._counts.most_common(limits.MAX_KEYS)
            if count >= limits.MIN_LINES
        }
        most = max(limits.MAX_LINE_SHARE, limits.MIN_LINES / max(1, len(self._lines)))
        number = {key: index for index, key in enumerate(shares) if shares[key] <= most}
        lines: list[IntArray] = [
            np.array([number[key] for key in line if key in number], np.int64)
            for line in self._lines
        ]
        return lines, shares


class _Cells:
    """Pairs of a source key and a target key that occur twice or more, and the pairs of lines."""

    def __init__(self, src: Sequence[IntArray], tgt: Sequence[IntArray], n_tgt: int) -> None:
        sizes = [np.array([len(line) for line in side], np.int64) for side in (src, tgt)]
        ends = int(np.searchsorted(np.cumsum(sizes[0] * sizes[1]), limits.MAX_CELLS, side="right"))
        src, tgt, (n, m) = src[:ends], tgt[:ends], [side[:ends] for side in sizes]
        src_flat, tgt_flat = (np.concatenate([*side, np.zeros(0, np.int64)]) for side in (src, tgt))
        # Of a cell, which word of the source and of the target it is, counted over all lines.
        src_at = np.repeat(np.arange(len(src_flat)), np.repeat(m, n))
        tgt_at = concat_ranges(np.repeat(np.cumsum(m) - m, n), np.repeat(m, n))
        codes = src_flat[src_at] * n_tgt + tgt_flat[tgt_at]
        cells, at, counts = np.unique(codes, return_inverse=True, return_counts=True)
        several = counts > 1
        used = several[at]
        self.src, self.tgt = cells[several] // n_tgt, cells[several] % n_tgt
        self._cell = (np.cumsum(several) - 1)[at[used]].astype(np.int32)
        self._src_at, self._tgt_at = src_at[used].astype(np.int32), tgt_at[used].astype(np.int32)

    def learn(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The probability of the target key of each cell, and of its source key; 0 if it is low."""
        return self._model_1(self.src, self._tgt_at), self._model_1(self.tgt, self._src_at)

    def _model_1(self, given: IntArray, words: IntArray) -> npt.NDArray[np.float64]:
        """IBM Model 1: each of the `words` was translated from a word of its line."""
        probability = np.full(len(given), 1.0)
        for _ in range(limits.ROUNDS if len(given) else 0):
            share = probability[self._cell]
            total = np.bincount(words, share) + limits.NULL_COUNT
            count = np.bincount(self._cell, share / total[words], minlength=len(given))
            probability = count / np.bincount(given, count)[given]
            kept = (probability >= limits.MIN_PROBABILITY) & (count >= limits.MIN_COUNT)
        return np.where(kept, probability, 0.0) if len(given) else probability


def _entries(
    given: IntArray,
    other: IntArray,
    probability: npt.NDArray[np.float64],
    given_keys: Sequence[str],
    other_keys: Sequence[str],
) -> Entries:
    entries: Entries = {}
    kept = np.flatnonzero(probability)
    columns = given[kept].tolist(), other[kept].tolist(), probability[kept].tolist()
    for i, j, value in zip(*columns, strict=True):
        entries.setdefault(given_keys[i], {})[other_keys[j]] = value
    return entries
