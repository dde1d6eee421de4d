"""Which sentence pairs make a batch: sorted by length, up to a number of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mtkit.base.errors import MtkitError
from mtkit.data import IntArray

Numbers = npt.NDArray[np.uint32]
SomeLengths = npt.NDArray[np.signedinteger[Any]]
Number = TypeVar("Number", bound=np.generic)

_BLOCK = 1 << 16
_KEY_BITS = 64


@dataclass(frozen=True, eq=False)
class Plan:
    """Batches: the indices of their pairs in one array, and the range of each batch in it.

    Attributes:
        pairs: the pairs of all batches.
        starts, ends: of each batch in `pairs`; every pair is in one batch.
    """

    pairs: Numbers
    starts: IntArray
    ends: IntArray

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> IntArray:
        return self.pairs[self.starts[index] : self.ends[index]].astype(np.int64)

    def __iter__(self) -> Iterator[IntArray]:
        return map(self.__getitem__, range(len(self)))

    def parts(self, count: int) -> tuple[IntArray, IntArray]:
        """Start and size of the micro-batches that `split` makes, in the order of `pairs`."""
        starts, ends = np.sort(self.starts)[:, None], np.sort(self.ends)[:, None]
        size, larger = np.divmod(ends - starts, count)
        part = np.arange(count)
        # An empty part has the start of another part.
        starts = np.unique(starts + part * size + np.minimum(part, larger))
        starts = starts[starts < len(self.pairs)]
        return starts, np.diff(starts, append=len(self.pairs))


NO_BATCHES = Plan(np.zeros(0, np.uint32), np.zeros(0, np.int64), np.zeros(0, np.int64))


def plan_batches(
    src_lengths: SomeLengths,
    tgt_lengths: SomeLengths,
    *,
    budget: int,
    rng: np.random.Generator | None = None,
    pairs: Numbers | None = None,
) -> Plan:
    """Batches of pairs of approximately the same length (Section 5.1).

    Every pair is in one batch. No batch has more than `budget` source slots or target slots,
    including padding.

    Pairs are sorted by their longer side, and within one length by the other, alternately ascending
    and descending, so that neighbours have similar lengths on both sides: about 98 % of the slots
    hold tokens if a corpus has some hundred batches. The paper's own code (tensor2tensor) takes
    any pairs of one range of lengths.

    For 36 million pairs this takes 16 bytes per pair, of which 4 are kept.

    Args:
        src_lengths, tgt_lengths: tokens of each pair, including EOS.
        rng: breaks ties between pairs of one length and shuffles the batches; without it the
            batches are sorted from short to long.
        pairs: indices of the pairs to use, repeated as often as they occur; by default all pairs,
            each once.

    Raises:
        MtkitError: if a single pair is longer than the budget.
    """
    longest = int(max(src_lengths.max(initial=0), tgt_lengths.max(initial=0)))
    if longest > budget:
        raise MtkitError(
            f"train.batch_tokens: a batch of {budget} tokens cannot hold the longest pair, "
            f"which has {longest}; raise it"
        )
    order = np.arange(len(src_lengths), dtype=np.uint32) if pairs is None else pairs.copy()
    if rng is not None:
        # Gives the same order as a permutation of 64-bit numbers.
        rng.shuffle(order)
    order, sizes = _sorted_by_length(order, src_lengths, tgt_lengths, longest)
    ends = _ends_by_length(sizes, budget)
    starts = np.concatenate((np.zeros(min(1, len(ends)), np.int64), ends[:-1]))
    if rng is not None:
        turn = rng.permutation(len(ends))
        starts, ends = starts[turn], ends[turn]
    return Plan(order, starts, ends)


def _sorted_by_length(
    order: Numbers, src_lengths: SomeLengths, tgt_lengths: SomeLengths, longest: int
) -> tuple[Numbers, IntArray]:
    """Pairs sorted by their longer side and then the other; the number of pairs of each length."""
    count, widest = len(order), 2 * longest + 1
    keys = (longest + 1) * widest
    of_pairs = np.empty(len(src_lengths), np.uint32 if keys <= 1 << 32 else np.uint64)
    for block in _blocks(len(src_lengths)):
        src, tgt = (side[block].astype(np.int64) for side in (src_lengths, tgt_lengths))
        longer = np.maximum(src, tgt)
        # The other side alternately ascends and descends.
        of_pairs[block] = longer * widest + np.where(longer % 2, src - tgt, tgt - src) + longest
    groups = np.arange(0, keys + 1, widest, dtype=np.uint64)
    bits = max(1, (count - 1).bit_length())
    if keys < 1 << (_KEY_BITS - bits):
        # Key and position in one number: sorting numbers is several times as fast as argsort, takes
        # less memory, and the position makes the sort stable.
        places = np.empty(count, np.uint64)
        for block in _blocks(count):
            places[block] = of_pairs[order[block]]
            places[block] <<= np.uint64(bits)
            places[block] |= np.arange(block.start, block.stop, dtype=np.uint64)
        places.sort()
        sizes = np.diff(np.searchsorted(places, groups << np.uint64(bits)))
        places &= np.uint64((1 << bits) - 1)
    else:
        # Millions of pairs, one of which has a hundred thousand tokens.
        keyed = of_pairs[order]
        places = np.argsort(keyed, kind="stable").view(np.uint64)
        sizes = np.diff(np.searchsorted(keyed[places], groups))
    del of_pairs
    return taken(order, places), sizes


def _ends_by_length(sizes: IntArray, budget: int) -> IntArray:
    """Ends of batches, each filled before the next; `sizes` are the pairs of each length from 0."""
    ends = [np.zeros(0, np.int64)]
    start = stop = 0
    for longest in np.flatnonzero(sizes).tolist():
        room = budget // longest
        if start + room <= stop:
            # The current batch has no room for a pair of this length.
            ends.append(np.array([stop]))
            start = stop
        stop += int(sizes[longest])
        full = np.arange(start + room, stop + 1, room)
        ends.append(full)
        start = int(full[-1]) if len(full) else start
    if start < stop:
        ends.append(np.array([stop]))
    return np.concatenate(ends)


def _blocks(count: int) -> Iterator[slice]:
    """Slices that cover the whole; each is short enough for the processor's cache."""
    return (slice(i, min(i + _BLOCK, count)) for i in range(0, count, _BLOCK))


def taken(values: npt.NDArray[Number], indices: npt.NDArray[Any]) -> npt.NDArray[Number]:
    """`values[indices]`, without a copy of the indices in 64 bits."""
    taken = np.empty(len(indices), values.dtype)
    for block in _blocks(len(indices)):
        taken[block] = values[indices[block]]
    return taken
