"""Batches of training pairs as arrays, and the order in which training takes them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from mtkit.base.arrays import pad_rows
from mtkit.base.devices import copied_to
from mtkit.base.errors import MtkitError
from mtkit.batch_plan import NO_BATCHES, Numbers, plan_batches, taken
from mtkit.data import IntArray, SentencePairs
from mtkit.packing import UNPACKED, Packing, pack
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID


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
    """Batches as one row on a device, copied together; `bias_dtype` is as for `packing.pack`."""
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
        self, pairs: SentencePairs, *, budget: int, per_update: int = 1, seed: int
    ) -> None:
        if not len(pairs):
            raise MtkitError("there are no training pairs")
        self._pairs = pairs
        self.budget = budget
        self.per_update = per_update
        self._seed = seed
        self.epoch = -1
        self._plan = NO_BATCHES
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
            np.maximum.reduceat(taken(side.lengths, self._plan.pairs), starts).astype(np.int64)
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
        self._plan = NO_BATCHES
        pairs = _drawn(self._pairs, rng)
        if pairs is not None and not len(pairs):
            raise MtkitError("with these weights of the sources an epoch has no pairs; raise them")
        self._plan = plan_batches(
            self._pairs.src.lengths,
            self._pairs.tgt.lengths,
            budget=self.budget,
            rng=rng,
            pairs=pairs,
        )


def split(batches: Sequence[IntArray], parts: int) -> list[IntArray]:
    """Micro-batches: every batch divided into `parts` of nearly equal numbers of pairs.

    The parts of one batch are adjacent, in the order of their lengths; some may be empty.
    """
    return [part for batch in batches for part in np.array_split(batch, parts)]
