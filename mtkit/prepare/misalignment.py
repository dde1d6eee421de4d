"""Finds misaligned segments, where the translation of a line is some lines above or below it."""

from __future__ import annotations

import functools
import itertools
import operator
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mtkit.base.text import UNSPACED
from mtkit.prepare.filters import KEPT, PairRecords


@dataclass(frozen=True)
class Misalignment:
    """The pairs from `start` to before `end`, whose translations are `offset` lines later."""

    start: int
    end: int
    offset: int


# Pairs whose lengths are compared at a time.
_SPAN = 1 << 17
# The largest offset that is tried.
_FARTHEST = 3
# The number of pairs that must show the misalignment.
_WINDOW = 20
# How much better lengths must fit with a shift than without, in nats: 1 in half a billion.
_EVIDENCE = 20.0
# The cost of a change of the shift, in nats, when the exact ends of a segment are searched.
_CHANGE = 8.0
# The highest cost of a line: one that is not a translation says nothing about its neighbours.
_MAX_COST = 4.5


def find_misaligned(records: PairRecords, start: int, end: int) -> list[Misalignment]:
    """Misaligned segments of a source, for example after one file lost a line.

    The lengths of a sentence and its translation are correlated (Gale and Church 1993). If, over 20
    pairs, the lengths fit better with targets one to three lines off, the pairs are misaligned.
    Nothing is found if pairs are in random order or all have the same length.

    The pairs of the source are those from `start` to before `end`. Pairs at the ends of the
    segments that may belong to them are included.
    """
    if end - start < 4 * _WINDOW:
        return []
    mean, deviation = _usual_ratio(records, start, min(end, start + _SPAN))
    segments: list[Misalignment] = []
    for begin in range(start, end, _SPAN):
        # A shift at the border of two spans is visible on both sides of it.
        low, high = max(start, begin - 4 * _WINDOW), min(end, begin + _SPAN + 4 * _WINDOW)
        # (offsets, pairs): how badly each source fits the target at each offset, in nats.
        off = (_log_ratios(records, low, high) - mean) / deviation
        costs = np.minimum(off * off / 2, _MAX_COST)
        for first, last in _suspicious(costs):
            segments += [
                Misalignment(a + low, b + low, offset)
                for a, b, offset in _cut_out(costs, first, last)
            ]
    return _joined(segments)


# The pairs of a block, the lowest correlation of their lengths, and the deviation from which there
# is one. Of 300 pairs of Multi30k, Europarl, newstest and Tatoeba it was at least 0.78, of random
# ones at most 0.19, and at most 0.39 if the targets were moved by ten lines.
BLOCK_PAIRS = 300
_MIN_CORRELATION, _MIN_DEVIATION = 0.3, 0.15


def find_unrelated(records: PairRecords, start: int, end: int) -> list[int]:
    """The first pairs of the blocks of `BLOCK_PAIRS` whose lengths have nothing in common.

    Only kept pairs count. The pairs of the source are those from `start` to before `end`.
    """
    unrelated = []
    for first in range(start, end - BLOCK_PAIRS + 1, BLOCK_PAIRS):
        sides = np.stack(
            [records.read(name, first, BLOCK_PAIRS) for name in ("src_chars", "tgt_chars")]
        )
        is_kept = records.read("codes", first, BLOCK_PAIRS) == KEPT
        lengths = np.log(sides[:, is_kept] + 8.0)
        if lengths.shape[1] < BLOCK_PAIRS // 2 or lengths.std(axis=1).min() < _MIN_DEVIATION:
            continue
        if np.corrcoef(lengths)[0, 1] < _MIN_CORRELATION:
            unrelated.append(first)
    return unrelated


_OFFSETS = range(-_FARTHEST, _FARTHEST + 1)


def _usual_ratio(records: PairRecords, start: int, end: int) -> tuple[float, float]:
    """Mean and deviation of the log of target over source length, at the offset that fits best."""
    fits = []
    for row in _log_ratios(records, start, end):
        row = row[np.isfinite(row)]
        mean = float(np.median(row))
        # The standard deviation of a normal distribution with this median deviation.
        spread = 1.4826 * float(np.median(np.abs(row - mean)))
        fits.append((mean, max(spread, 0.1)))
    return min(fits, key=operator.itemgetter(1))


def _log_ratios(records: PairRecords, start: int, end: int) -> npt.NDArray[np.float64]:
    """(offsets, pairs): log of target over source length; infinite beyond the ends."""
    # Adding a few characters reduces the variation of short lines, which is largest.
    src, tgt = (
        np.log(records.read(name, start, end - start) + 8.0) for name in ("src_chars", "tgt_chars")
    )
    ratios = np.full((len(_OFFSETS), len(src)), np.inf)
    for row, offset in zip(ratios, _OFFSETS, strict=True):
        here = slice(max(0, -offset), len(src) - max(0, offset))
        there = slice(max(0, offset), len(src) + min(0, offset))
        row[here] = tgt[there] - src[here]
    return ratios


def _suspicious(costs: npt.NDArray[np.float64]) -> list[tuple[int, int]]:
    """Ranges where pairs fit better with some shift than without, roughly."""
    sums = np.cumsum(costs, axis=1)
    windows = sums[:, _WINDOW - 1 :].copy()
    windows[:, 1:] -= sums[:, :-_WINDOW]
    unshifted = windows[_FARTHEST]
    best = np.delete(windows, _FARTHEST, axis=0).min(axis=0)
    # If neither fits, or if both do, nothing can be concluded.
    is_bad = (unshifted - best > _EVIDENCE) & (best < _WINDOW) & (unshifted > 1.5 * _WINDOW)
    bad = np.flatnonzero(is_bad)
    runs = np.split(bad, np.flatnonzero(np.diff(bad) > _WINDOW) + 1) if len(bad) else []
    return [(int(run[0]), int(run[-1]) + _WINDOW) for run in runs]


# The cost of a line without its translation, in nats: above the average cost of one that has it.
_LOST = 1.5


def _cut_out(
    costs: npt.NDArray[np.float64], first: int, last: int
) -> Iterable[tuple[int, int, int]]:
    """The segments in and around a suspicious range, with their shifts: the cheapest path.

    If targets are n lines late, n sources at the end of the segment have lost their translations;
    if targets are early, n sources at its beginning.
    """
    low, high = max(0, first - 2 * _WINDOW), min(costs.shape[1], last + 2 * _WINDOW)
    states, change = _paths()
    here = costs[[offset + _FARTHEST for offset, _ in states], low:high]
    here[[is_lost for _, is_lost in states]] = _LOST
    total, came_from = here[:, 0].copy(), []
    for pair in range(1, here.shape[1]):
        ways = total + change
        came_from.append(ways.argmin(axis=1))
        total = ways.min(axis=1) + here[:, pair]
    path = [int(total.argmin())]
    for step in reversed(came_from):
        path.append(int(step[path[-1]]))
    path.reverse()
    offsets = [states[state][0] for state in path]
    end = 0
    for offset, group in itertools.groupby(offsets):
        begin, end = end, end + len(list(group))
        if offset == 0:
            continue
        # The path prefers no shift; the ends are moved out while it is unclear.
        gain = costs[offset + _FARTHEST, low:high] - costs[_FARTHEST, low:high]
        before, behind = _unclear(gain[:begin][::-1]), _unclear(gain[end:])
        yield begin - before + low, end + behind + low, offset


@functools.cache
def _paths() -> tuple[list[tuple[int, bool]], npt.NDArray[np.float64]]:
    """States of a line (shift, and whether its translation is lost), and costs (to, from)."""
    states = [(offset, False) for offset in _OFFSETS]
    ways = {(number, number): 0.0 for number in range(len(states))}
    for offset in _OFFSETS:
        if offset == 0:
            continue
        # Late targets: the segment, then the lost lines. Early targets: the other way round.
        lost = [len(states) + number for number in range(abs(offset))]
        states += [(offset, True)] * abs(offset)
        chain = [offset + _FARTHEST, *lost] if offset > 0 else [*lost, offset + _FARTHEST]
        chain = [_FARTHEST, *chain, _FARTHEST]
        for old, new in itertools.pairwise(chain):
            ways[new, old] = _CHANGE if _FARTHEST in (old, new) else 0.0
    change = np.full((len(states), len(states)), np.inf)
    for way, cost in ways.items():
        change[way] = cost
    return states, change


# A line is clearly not shifted from this many nats on: 3,000 to 1, because losing a few good pairs
# is better than keeping a bad one.
_CLEAR = 8.0


def _unclear(gain: npt.NDArray[np.float64]) -> int:
    """The number of next pairs that may still be shifted."""
    is_clear = np.cumsum(gain) >= _CLEAR
    return int(is_clear.argmax()) if is_clear.any() else len(gain)


# Pairs of a segment, and words of a line, whose words are compared.
WORD_PAIRS = 100
_MAX_WORDS = 40
# How much better words fit without the shift. In 69 right segments of similar texts that lengths
# alone took for shifted it was at least 1.15; in 954 shifted segments of Multi30k, Europarl,
# Tatoeba and the texts of OmegaT in German, Japanese and Chinese at most 1.08.
_FITTING = 1.1
_WORD = re.compile(rf"[{UNSPACED}]|(?:(?![{UNSPACED}])\w)+")


def is_right(pairs: Sequence[tuple[bytes, bytes]], offset: int) -> bool:
    """Whether the words of a segment show that it is not shifted by `offset`.

    Lines of similar texts, such as "Open file" and "Close file" in turn, can have lengths that fit
    their neighbours better. But words that are repeated are translated in their own line.
    """
    if len(pairs) <= abs(offset):
        return False
    src, tgt = (
        [{*_WORD.findall(line.decode(errors="replace").lower())[:_MAX_WORDS]} for line in side]
        for side in zip(*pairs, strict=True)
    )
    return _association(src, tgt, 0) > _FITTING * _association(src, tgt, offset)


def _association(src: list[set[str]], tgt: list[set[str]], offset: int) -> float:
    """How well the words of the lines fit their best translations there, by Dice's coefficient."""
    pairs = list(zip(src[max(0, -offset) :], tgt[max(0, offset) :], strict=False))
    of_src, of_tgt = (Counter(itertools.chain(*side)) for side in zip(*pairs, strict=True))
    both = Counter(itertools.chain(*(itertools.product(*pair) for pair in pairs)))
    fits = 0.0
    for src_words, tgt_words in pairs:
        for word in src_words:
            counts = ((both[word, other], of_tgt[other]) for other in tgt_words)
            dice = (2 * n / (of_src[word] + count) for n, count in counts if n > 1)
            fits += max(dice, default=0.0)
    return fits / len(pairs)


def _joined(segments: Iterable[Misalignment]) -> list[Misalignment]:
    """The same segments, with overlapping ones merged."""
    joined: list[Misalignment] = []
    for segment in sorted(segments, key=lambda segment: segment.start):
        if joined and segment.start < joined[-1].end and segment.offset == joined[-1].offset:
            last = joined.pop()
            segment = Misalignment(last.start, max(last.end, segment.end), segment.offset)
        joined.append(segment)
    return joined
