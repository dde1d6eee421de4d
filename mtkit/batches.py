"""Batches of training pairs, and their order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mtkit.base.arrays import pad_rows
from mtkit.base.devices import copied_to
from mtkit.base.errors import MtkitError
from mtkit.data import IntArray, SentencePairs
from mtkit.packing import UNPACKED, Packing, pack
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID

Batching = Literal["length", "approximate"]
Numbers = npt.NDArray[np.uint32]
SomeLengths = npt.NDArray[np.signedinteger[Any]]
Number = TypeVar("Number", bound=np.generic)

# The length buckets of the paper's own code (tensor2tensor, data_reader.py).
_FIRST_BOUNDARY, _BOUNDARY_GROWTH = 8, 1.1
_BLOCK = 1 << 16
_KEY_BITS = 64


@dataclass(frozen=True)
class Batch:
    """Sentence pairs, padded with `PAD_ID`.

    Attributes:
        src: (B, S), with EOS at the end.
        tgt_in: (B, T), with BOS at the beginning: the input of the decoder.
        tgt_out: (B, T), with EOS at the end: the tokens to predict.
        num_tokens: target tokens, with EOS and without padding.
        packing: of several batches in one row; B is 1 then.
    """

    src: Tensor
    tgt_in: Tensor
    tgt_out: Tensor
    num_tokens: int
    packing: Packing = UNPACKED

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        src, tgt_in, tgt_out = (copied_to(device, t) for t in (self.src, self.tgt_in, self.tgt_out))
        return replace(self, src=src, tgt_in=tgt_in, tgt_out=tgt_out)


def make_batch(pairs: SentencePairs, indices: IntArray) -> Batch:
    """The pairs of `indices` as one batch."""
    src, tgt_out = (torch.from_numpy(side.padded(indices)) for side in (pairs.src, pairs.tgt))
    # Section 3.1 shifts the outputs right by one position. The paper's code put a zero vector
    # there; a BOS token costs nothing and lets every position be an embedding.
    tgt_in = torch.cat((torch.full((len(indices), 1), BOS_ID), tgt_out[:, :-1]), dim=1)
    # A shifted row keeps its EOS if the sentence is shorter than the batch.
    tgt_in = tgt_in.masked_fill(tgt_in == EOS_ID, PAD_ID)
    return Batch(src, tgt_in, tgt_out, num_tokens=int(pairs.tgt.lengths[indices].sum()))


def pack_batches(
    batches: Sequence[Batch], device: torch.device, *, bias_dtype: torch.dtype | None
) -> Batch:
    """Batches as one row on a device, to which they are copied together.

    Args:
        bias_dtype: as for `packing.pack`.
    """
    sides = [[getattr(batch, name) for batch in batches] for name in ("src", "tgt_in", "tgt_out")]
    places = [[torch.arange(ids.shape[1]).expand_as(ids) for ids in side] for side in sides[:2]]
    rows = [torch.cat([ids.flatten() for ids in side]) for side in (*sides, *places)]
    copied = copied_to(device, torch.cat(rows)).split_with_sizes([len(row) for row in rows])
    src, tgt_in, tgt_out, *positions = (row.unsqueeze(0) for row in copied)
    packing = pack(
        src,
        (positions[0][0], positions[1][0]),
        [((*src.shape,), (*tgt.shape,)) for src, tgt in zip(*sides[:2], strict=True)],
        [bool((ids == PAD_ID).any()) for ids in sides[0]],
        pad_id=PAD_ID,
        bias_dtype=bias_dtype,
    )
    return Batch(src, tgt_in, tgt_out, sum(batch.num_tokens for batch in batches), packing)


def pad_ids(sentences: Sequence[Sequence[int]]) -> Tensor:
    """(B, longest) ids of sentences, padded with `PAD_ID`."""
    sizes = np.array([len(ids) for ids in sentences], np.int64)
    flat = np.fromiter(itertools.chain.from_iterable(sentences), np.int64, sizes.sum())
    return torch.from_numpy(pad_rows(flat, np.cumsum(sizes) - sizes, sizes, PAD_ID))


@dataclass(frozen=True, eq=False)
class Plan(Sequence[IntArray]):
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

    @overload
    def __getitem__(self, index: int) -> IntArray: ...

    @overload
    def __getitem__(self, index: slice) -> list[IntArray]: ...

    def __getitem__(self, index: int | slice) -> IntArray | list[IntArray]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.pairs[self.starts[index] : self.ends[index]].astype(np.int64)

    def parts(self, count: int) -> tuple[IntArray, IntArray]:
        """Start and size of the micro-batches that `split` makes, in the order of `pairs`."""
        starts, ends = np.sort(self.starts)[:, None], np.sort(self.ends)[:, None]
        size, larger = np.divmod(ends - starts, count)
        part = np.arange(count)
        # An empty part has the start of another part.
        starts = np.unique(starts + part * size + np.minimum(part, larger))
        starts = starts[starts < len(self.pairs)]
        return starts, np.diff(starts, append=len(self.pairs))


_NO_BATCHES = Plan(np.zeros(0, np.uint32), np.zeros(0, np.int64), np.zeros(0, np.int64))


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
    including padding.

    With `length`, pairs are sorted by their longer side, and within one length by the other,
    alternately ascending and descending, so that neighbours have similar lengths on both sides:
    about 98 % of the slots hold tokens if a corpus has some hundred batches.

    `approximate` is the method of the paper's own code (tensor2tensor): a batch has pairs whose
    longer side is in one bucket, as many as fit in the budget if all had the largest length of the
    bucket.

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
    if batching == "length":
        widest = 2 * longest + 1

        def key(src: IntArray, tgt: IntArray) -> IntArray:
            """The longer side, then the other one, alternately ascending and descending."""
            longer = np.maximum(src, tgt)
            other: IntArray = np.where(longer % 2, src - tgt, tgt - src)
            return longer * widest + (other + longest)

        keys = (longest + 1) * widest
        order, sizes = _sorted_by_key(order, src_lengths, tgt_lengths, key, keys, widest)
        ends = _ends_by_length(sizes, budget)
    else:
        limits = _boundaries(longest)

        def key(src: IntArray, tgt: IntArray) -> IntArray:
            """The bucket of the longer side; a boundary belongs to the bucket above it."""
            return np.searchsorted(limits[:-1], np.maximum(src, tgt), side="right")

        order, sizes = _sorted_by_key(order, src_lengths, tgt_lengths, key, len(limits), 1)
        ends = _ends_by_bucket(sizes, limits, budget)
    starts = np.concatenate((np.zeros(min(1, len(ends)), np.int64), ends[:-1]))
    if rng is not None:
        turn = rng.permutation(len(ends))
        starts, ends = starts[turn], ends[turn]
    return Plan(order, starts, ends)


def _sorted_by_key(
    order: Numbers,
    src_lengths: SomeLengths,
    tgt_lengths: SomeLengths,
    key: Callable[[IntArray, IntArray], IntArray],
    keys: int,
    per_group: int,
) -> tuple[Numbers, IntArray]:
    """Pairs sorted by their keys (a stable sort); the number of pairs in each group.

    `key` computes keys, from 0 to below `keys`, from lengths; a group has `per_group` of them.
    """
    count = len(order)
    of_pairs = np.empty(len(src_lengths), np.uint32 if keys <= 1 << 32 else np.uint64)
    for block in _blocks(len(src_lengths)):
        sides = (side[block].astype(np.int64) for side in (src_lengths, tgt_lengths))
        of_pairs[block] = key(*sides)
    groups = np.arange(0, keys + 1, per_group, dtype=np.uint64)
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
    return _taken(order, places), sizes


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


def _ends_by_bucket(sizes: IntArray, limits: IntArray, budget: int) -> IntArray:
    """Ends of batches in each bucket, which has a number of pairs and a limit of their length."""
    ends = [np.zeros(0, np.int64)]
    stop = 0
    for size, limit in zip(sizes.tolist(), limits.tolist(), strict=True):
        start, stop = stop, stop + size
        if size:
            ends.append(np.append(np.arange(start, stop, budget // limit)[1:], stop))
    return np.concatenate(ends)


def _boundaries(longest: int) -> IntArray:
    """The upper limit of each length bucket, in whole tokens; the last is the longest pair."""
    limits = [_FIRST_BOUNDARY]
    while limits[-1] < longest:
        limits.append(max(limits[-1] + 1, int(limits[-1] * _BOUNDARY_GROWTH)))
    return np.array([*limits[:-1], max(1, longest)])


def _blocks(count: int) -> Iterator[slice]:
    """Slices that cover the whole; each is short enough for the processor's cache."""
    return (slice(i, min(i + _BLOCK, count)) for i in range(0, count, _BLOCK))


def _taken(values: npt.NDArray[Number], indices: npt.NDArray[Any]) -> npt.NDArray[Number]:
    """`values[indices]`, without a copy of the indices in 64 bits."""
    taken = np.empty(len(indices), values.dtype)
    for block in _blocks(len(indices)):
        taken[block] = values[indices[block]]
    return taken


def _drawn(pairs: SentencePairs, rng: np.random.Generator) -> Numbers | None:
    """The pairs of an epoch, oversampled by the weights of their sources; None: each once."""
    drawn = [np.zeros(0, np.uint32)]
    end = 0
    for source in pairs.sources:
        own = np.arange(end, end + source.kept, dtype=np.uint32)
        end += source.kept
        whole = math.floor(source.weight)
        drawn += [own] * whole
        if once_more := round((source.weight - whole) * source.kept):
            shuffled = own.copy()
            rng.shuffle(shuffled)
            drawn.append(shuffled[:once_more])
    return np.concatenate(drawn) if pairs.sources else None


class TokenBatches:
    """The endless stream of a run's updates, epoch after epoch.

    An update is a few batches, each of pairs of similar length. The stream is a pure function of
    the arguments: it does not depend on the number of workers or on the memory of a device, for
    which `split` is used.

    Args:
        budget: maximum source slots, and maximum target slots, of a batch.
        per_update: batches per update.

    Attributes:
        epoch: of the next batch, from 0.

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
        self.epoch = -1
        self._plan = _NO_BATCHES
        self._enter_epoch(0)

    @property
    def updates_in_epoch(self) -> float:
        """Updates in the current epoch; the last one may include batches of the next epoch."""
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
                self._enter_epoch(self.epoch + 1)
        return update

    def largest(self, parts: int = 1) -> IntArray:
        """The micro-batch of an epoch with the most slots of both sides, of those of `split`."""
        starts, sizes = self._plan.parts(parts)
        src, tgt = self._longest(starts)
        index = np.argmax(sizes * (src + tgt))
        start, size = int(starts[index]), int(sizes[index])
        return self._plan.pairs[start : start + size].astype(np.int64)

    def most_slots(self, parts: int = 1) -> int:
        """The slots per side of the micro-batch with the most, of those that `split` makes."""
        starts, sizes = self._plan.parts(parts)
        return int((sizes * np.maximum(*self._longest(starts))).max())

    def parts_that_fit(self, slots: int) -> int:
        """How many parts `split` must make of a batch so that none has more slots per side."""
        starts, sizes = self._plan.parts(1)
        rows = slots // np.maximum(*self._longest(starts))
        return int((-(-sizes // rows)).max())

    def state_dict(self) -> dict[str, int]:
        """The position in the stream."""
        return {"epoch": self.epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from a position returned by `state_dict`."""
        self._enter_epoch(state["epoch"])
        self._position = state["position"]

    def _longest(self, starts: IntArray) -> tuple[IntArray, IntArray]:
        """The longest source and target of the parts of the plan that start at these pairs."""
        src, tgt = (
            np.maximum.reduceat(_taken(side.lengths, self._plan.pairs), starts).astype(np.int64)
            for side in (self._pairs.src, self._pairs.tgt)
        )
        return src, tgt

    def _enter_epoch(self, epoch: int) -> None:
        self._position = 0
        if epoch == self.epoch:
            return
        self.epoch = epoch
        rng = np.random.default_rng((self._seed, epoch))
        # Free the old plan first, so that two need not fit in memory.
        self._plan = _NO_BATCHES
        pairs = _drawn(self._pairs, rng)
        if pairs is not None and not len(pairs):
            raise MtkitError("with these weights of the sources an epoch has no pairs; raise them")
        self._plan = plan_batches(
            self._pairs.src.lengths,
            self._pairs.tgt.lengths,
            budget=self.budget,
            rng=rng,
            batching=self._batching,
            pairs=pairs,
        )


def split(batches: Sequence[IntArray], parts: int) -> list[IntArray]:
    """Micro-batches: every batch divided into `parts` of nearly equal numbers of pairs.

    The parts of one batch are adjacent, in the order of their lengths; some may be empty.
    """
    return [part for batch in batches for part in np.array_split(batch, parts)]
