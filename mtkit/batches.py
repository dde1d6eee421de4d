"""Batches: which sentence pairs a run sees together, and in which order.

The order is a pure function of seed, epoch, lengths and budget.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mtkit.arrays import pad_rows
from mtkit.data import IntArray, SentencePairs
from mtkit.errors import MtkitError
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID

Batching = Literal["length", "approximate"]
Numbers = npt.NDArray[np.uint32]
SomeLengths = npt.NDArray[np.signedinteger[Any]]
Number = TypeVar("Number", bound=np.generic)

# Of ranges of lengths, as the paper's own code has them (tensor2tensor, data_reader.py).
_FIRST_BOUNDARY, _BOUNDARY_GROWTH = 8, 1.1
_BLOCK = 1 << 16
_KEY_BITS = 64


@dataclass(frozen=True)
class Batch:
    """Sentence pairs side by side, padded with `PAD_ID`.

    Attributes:
        src: (B, S), each sentence ended by EOS.
        tgt_in: (B, T), begun by BOS: what the decoder reads.
        tgt_out: (B, T), ended by EOS: what it must predict.
        num_tokens: target tokens, EOS counted, padding not.
    """

    src: Tensor
    tgt_in: Tensor
    tgt_out: Tensor
    num_tokens: int

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        if device.type == "cpu":
            return self
        src, tgt_in, tgt_out = (
            t.pin_memory().to(device, non_blocking=True)
            for t in (self.src, self.tgt_in, self.tgt_out)
        )
        return Batch(src, tgt_in, tgt_out, self.num_tokens)


def make_batch(pairs: SentencePairs, indices: IntArray) -> Batch:
    """The pairs of `indices` as one batch."""
    src, tgt_out = (torch.from_numpy(side.padded(indices)) for side in (pairs.src, pairs.tgt))
    # Section 3.1 shifts the outputs right by one position. The paper's code put a zero vector
    # there; a BOS token costs nothing and lets every position be an embedding.
    tgt_in = torch.cat((torch.full((len(indices), 1), BOS_ID), tgt_out[:, :-1]), dim=1)
    # The shifted row keeps EOS where the sentence is shorter than the batch.
    tgt_in = tgt_in.masked_fill(tgt_in == EOS_ID, PAD_ID)
    return Batch(
        src=src,
        tgt_in=tgt_in,
        tgt_out=tgt_out,
        num_tokens=int(pairs.tgt.lengths[indices].sum()),
    )


def pad_ids(sentences: Sequence[Sequence[int]]) -> Tensor:
    """(B, longest) ids of sentences, padded with `PAD_ID`."""
    sizes = np.array([len(ids) for ids in sentences], np.int64)
    flat = np.fromiter(itertools.chain.from_iterable(sentences), np.int64, sizes.sum())
    return torch.from_numpy(pad_rows(flat, np.cumsum(sizes) - sizes, sizes, PAD_ID))


class Plan(Sequence[IntArray]):
    """Batches: the numbers of their pairs in one array, and where in it each batch lies.

    Attributes:
        pairs: of all batches.
        starts, ends: of each batch in `pairs`, which the batches share out without a rest.
    """

    def __init__(self, pairs: Numbers, starts: IntArray, ends: IntArray) -> None:
        self.pairs = pairs
        self.starts = starts
        self.ends = ends

    @classmethod
    def empty(cls) -> Plan:
        """No batches."""
        return cls(np.zeros(0, np.uint32), np.zeros(0, np.int64), np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> IntArray: ...

    @overload
    def __getitem__(self, index: slice) -> list[IntArray]: ...

    def __getitem__(self, index: int | slice) -> IntArray | list[IntArray]:
        """The pairs of a batch."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.pairs[self.starts[index] : self.ends[index]].astype(np.int64)

    def parts(self, count: int) -> tuple[IntArray, IntArray]:
        """Start and size of what `split` makes of the batches, in the order of `pairs`."""
        starts, ends = np.sort(self.starts)[:, None], np.sort(self.ends)[:, None]
        size, larger = np.divmod(ends - starts, count)
        place = np.arange(count)
        # What is empty starts where another part does.
        starts = np.unique(starts + place * size + np.minimum(place, larger))
        starts = starts[starts < len(self.pairs)]
        return starts, np.diff(starts, append=len(self.pairs))


def plan_batches(
    src_lengths: SomeLengths,
    tgt_lengths: SomeLengths,
    *,
    budget: int,
    rng: np.random.Generator | None = None,
    batching: Batching = "length",
    pairs: Numbers | None = None,
) -> Plan:
    """Batches of pairs of approximately the same length (Section 5.1).

    Every pair is in one batch. No batch has more than `budget` source slots or target slots,
    padding counted.

    By `length`, pairs are sorted by their longer side, and within one length by the other, from
    short to long and from long to short in turn, so that neighbours are alike on both sides: some
    98 % of the slots hold tokens where a corpus fills some hundred batches.

    `approximate` is what the paper's own code did (tensor2tensor): a batch has any pairs whose
    longer side is from one boundary to below the next, as many as the budget has room for if all
    were as long as that; boundaries are 8 and from there 1.1 times the one before, in whole tokens.

    For 36 million pairs this takes 16 bytes a pair, of which 4 stay.

    Args:
        src_lengths, tgt_lengths: tokens of each pair, EOS counted.
        budget: of one batch.
        rng: breaks ties between pairs of one length and shuffles the batches; without it the
            plan runs from short to long.
        batching: which lengths go together.
        pairs: numbers of the pairs to plan, each as often as it is to occur; all of them, each
            once, if not given.

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
        # Draws what a permutation of 64-bit numbers draws.
        rng.shuffle(order)
    if batching == "length":
        order, sizes = _sorted_by_length(order, src_lengths, tgt_lengths, longest)
        ends = _ends_by_length(sizes, budget)
    else:
        limits = _boundaries(longest)
        order, sizes = _sorted_by_range(order, src_lengths, tgt_lengths, limits)
        ends = _ends_by_range(sizes, limits, budget)
    starts = np.concatenate((np.zeros(min(1, len(ends)), np.int64), ends[:-1]))
    if rng is not None:
        turn = rng.permutation(len(ends))
        starts, ends = starts[turn], ends[turn]
    return Plan(order, starts, ends)


def _sorted_by_length(
    order: Numbers, src_lengths: SomeLengths, tgt_lengths: SomeLengths, longest: int
) -> tuple[Numbers, IntArray]:
    """The pairs by their longer and then by their other side; how many of each longer side."""
    widest = 2 * longest + 1

    def key(src: IntArray, tgt: IntArray) -> IntArray:
        longer = np.maximum(src, tgt)
        turn: IntArray = np.where(longer % 2, src - tgt, tgt - src)
        keys: IntArray = longer * widest + (turn + longest)
        return keys

    return _sorted_by_key(
        order, src_lengths, tgt_lengths, key, keys=(longest + 1) * widest, per_group=widest
    )


def _sorted_by_range(
    order: Numbers, src_lengths: SomeLengths, tgt_lengths: SomeLengths, limits: IntArray
) -> tuple[Numbers, IntArray]:
    """The pairs by the range that their longer side is in; how many of each range."""

    def key(src: IntArray, tgt: IntArray) -> IntArray:
        # A boundary belongs to the range above it; what is as long as the last, to the last.
        found: IntArray = np.searchsorted(limits[:-1], np.maximum(src, tgt), side="right")
        return found

    return _sorted_by_key(order, src_lengths, tgt_lengths, key, keys=len(limits), per_group=1)


def _sorted_by_key(
    order: Numbers,
    src_lengths: SomeLengths,
    tgt_lengths: SomeLengths,
    key: Callable[[IntArray, IntArray], IntArray],
    *,
    keys: int,
    per_group: int,
) -> tuple[Numbers, IntArray]:
    """Pairs in the order of their keys, those of one key as they were; how many of each group.

    Args:
        order: the pairs.
        src_lengths, tgt_lengths: of all pairs.
        key: of pairs of some lengths, from 0.
        keys: how many there are, used or not.
        per_group: how many of them, side by side, make up a group.
    """
    count = len(order)
    of_pairs = np.empty(len(src_lengths), np.uint32 if keys <= 1 << 32 else np.uint64)
    for block in _blocks(len(src_lengths)):
        sides = (side[block].astype(np.int64) for side in (src_lengths, tgt_lengths))
        of_pairs[block] = key(*sides)
    groups = np.arange(0, keys + 1, per_group, dtype=np.uint64)
    bits = max(1, (count - 1).bit_length())
    if keys < 1 << (_KEY_BITS - bits):
        # A key and the place in one number: to sort numbers is several times as fast as to ask
        # where each would go, takes less memory, and the place makes the sort a stable one.
        places = np.empty(count, np.uint64)
        for block in _blocks(count):
            places[block] = of_pairs[order[block]]
            places[block] <<= np.uint64(bits)
            places[block] |= np.arange(block.start, block.stop, dtype=np.uint64)
        places.sort()
        sizes = np.diff(np.searchsorted(places, groups << np.uint64(bits)))
        places &= np.uint64((1 << bits) - 1)
    else:
        # Millions of pairs, and among them one of a hundred thousand tokens.
        keyed = of_pairs[order]
        places = np.argsort(keyed, kind="stable").view(np.uint64)
        sizes = np.diff(np.searchsorted(keyed[places], groups))
    del of_pairs
    return _taken(order, places), sizes


def _ends_by_length(sizes: IntArray, budget: int) -> IntArray:
    """Ends of batches of pairs sorted by length, each filled before the next is begun.

    Args:
        sizes: how many pairs there are of each length, from 0.
        budget: of one batch.
    """
    ends = [np.zeros(0, np.int64)]
    start = stop = 0
    for longest in np.flatnonzero(sizes).tolist():
        room = budget // longest
        if start + room <= stop:
            # What is begun has no room for a pair that makes all of it so long.
            ends.append(np.array([stop]))
            start = stop
        stop += int(sizes[longest])
        full = np.arange(start + room, stop + 1, room)
        ends.append(full)
        start = int(full[-1]) if len(full) else start
    if start < stop:
        ends.append(np.array([stop]))
    return np.concatenate(ends)


def _ends_by_range(sizes: IntArray, limits: IntArray, budget: int) -> IntArray:
    """Ends of batches of pairs sorted by range of lengths, none of which has pairs of two.

    Args:
        sizes: how many pairs there are of each range.
        limits: of the ranges, in tokens.
        budget: of one batch.
    """
    ends = [np.zeros(0, np.int64)]
    stop = 0
    for size, limit in zip(sizes.tolist(), limits.tolist(), strict=True):
        start, stop = stop, stop + size
        if size:
            ends.append(np.append(np.arange(start, stop, budget // limit)[1:], stop))
    return np.concatenate(ends)


def _boundaries(longest: int) -> IntArray:
    """Up to where each range of lengths goes; the last one to the longest pair."""
    limits = []
    limit = _FIRST_BOUNDARY
    while limit < longest:
        limits.append(limit)
        limit = max(limit + 1, int(limit * _BOUNDARY_GROWTH))
    return np.array([*limits, max(1, longest)])


def _blocks(count: int) -> Iterator[slice]:
    """Slices that together are the whole, so short that what is computed of one stays in cache."""
    return (slice(i, min(i + _BLOCK, count)) for i in range(0, count, _BLOCK))


def _taken(values: npt.NDArray[Number], indices: npt.NDArray[Any]) -> npt.NDArray[Number]:
    """`values[indices]`, without a copy of the indices in 64 bits."""
    taken = np.empty(len(indices), values.dtype)
    for block in _blocks(len(indices)):
        taken[block] = values[indices[block]]
    return taken


def _drawn(pairs: SentencePairs, rng: np.random.Generator) -> Numbers | None:
    """The pairs of an epoch, each as often as its source's weight says; None: each once."""
    drawn = []
    end = 0
    for source in pairs.sources:
        own = np.arange(end, end + source.pairs, dtype=np.uint32)
        end += source.pairs
        whole = math.floor(source.weight)
        drawn += [own] * whole
        if once_more := round((source.weight - whole) * source.pairs):
            shuffled = own.copy()
            rng.shuffle(shuffled)
            drawn.append(shuffled[:once_more])
    if not pairs.sources:
        return None
    return np.concatenate(drawn) if drawn else np.zeros(0, np.uint32)


class TokenBatches:
    """The endless stream of a run's updates, epoch after epoch.

    An update is a few batches, the pairs of each about equally long. The stream is a pure
    function of seed, epoch, lengths, weights, budget, `per_update` and `batching`: it does not
    depend on how many workers there are or on what fits a device, which `split` sees to.

    Args:
        pairs: the training pairs.
        budget: most source slots, and most target slots, of a batch.
        per_update: batches of an update.
        seed: of the order.
        batching: as for `plan_batches`.

    Raises:
        MtkitError: if an epoch has no pairs, or one is longer than the budget.
    """

    def __init__(
        self,
        pairs: SentencePairs,
        *,
        budget: int,
        per_update: int = 1,
        seed: int,
        batching: Batching = "length",
    ) -> None:
        if not len(pairs):
            raise MtkitError("there are no training pairs")
        self._pairs = pairs
        self.budget = budget
        self.per_update = per_update
        self._seed = seed
        self._batching = batching
        self._epoch = -1
        self._position = 0
        self._plan = Plan.empty()
        self._enter_epoch(0)

    @property
    def epoch(self) -> int:
        """Epoch of the next batch, from 0."""
        return self._epoch

    @property
    def updates_in_epoch(self) -> float:
        """Updates that the present epoch has batches for; the last may reach into the next."""
        return len(self._plan) / self.per_update

    def __iter__(self) -> Iterator[list[IntArray]]:
        return self

    def __next__(self) -> list[IntArray]:
        """The pairs of the next update, batch by batch."""
        update = []
        for _ in range(self.per_update):
            update.append(self._plan[self._position])
            self._position += 1
            if self._position == len(self._plan):
                self._enter_epoch(self._epoch + 1)
        return update

    def largest(self, parts: int = 1) -> IntArray:
        """Of what `split` makes of an epoch, the part with most slots: likeliest not to fit."""
        starts, sizes = self._plan.parts(parts)
        src, tgt = self._longest(starts)
        place = np.argmax(sizes * (src + tgt))
        start, size = int(starts[place]), int(sizes[place])
        return self._plan.pairs[start : start + size].astype(np.int64)

    def parts_that_fit(self, slots: int) -> int:
        """Into how many parts `split` must cut every batch so that none has more slots a side."""
        starts, sizes = self._plan.parts(1)
        rows = slots // np.maximum(*self._longest(starts))
        return int((-(-sizes // rows)).max())

    def state_dict(self) -> dict[str, int]:
        """The position in the stream."""
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a position that `state_dict` gave."""
        self._enter_epoch(state["epoch"])
        self._position = state["position"]

    def _longest(self, starts: IntArray) -> tuple[IntArray, IntArray]:
        """Of parts of the plan that start at these pairs, the longest source and target."""
        src, tgt = (
            np.maximum.reduceat(_taken(side.lengths, self._plan.pairs), starts).astype(np.int64)
            for side in (self._pairs.src, self._pairs.tgt)
        )
        return src, tgt

    def _enter_epoch(self, epoch: int) -> None:
        self._position = 0
        if epoch == self._epoch:
            return
        self._epoch = epoch
        rng = np.random.default_rng((self._seed, epoch))
        # There need not be memory for two.
        self._plan = Plan.empty()
        pairs = _drawn(self._pairs, rng)
        if pairs is not None and not len(pairs):
            raise MtkitError("the weights of the sources leave an epoch without pairs; raise them")
        self._plan = plan_batches(
            self._pairs.src.lengths,
            self._pairs.tgt.lengths,
            budget=self.budget,
            rng=rng,
            batching=self._batching,
            pairs=pairs,
        )


def split(batches: Sequence[IntArray], parts: int) -> list[IntArray]:
    """Micro-batches: every batch cut into `parts` of about equally many pairs.

    Those of one batch follow each other, in the order of their lengths. A batch of fewer pairs
    than parts leaves some of them empty.
    """
    return [part for batch in batches for part in np.array_split(batch, parts)]
