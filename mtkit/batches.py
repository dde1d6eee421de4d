"""Batches: which sentence pairs a run sees together, and in which order.

The order is a pure function of seed, epoch, lengths and budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mtkit.data import IntArray, SentencePairs
from mtkit.errors import MtkitError
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID


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


def plan_batches(
    src_lengths: IntArray,
    tgt_lengths: IntArray,
    *,
    budget: int,
    rng: np.random.Generator | None = None,
) -> list[IntArray]:
    """Batches of pairs of approximately the same length (Section 5.1).

    Every pair is in one batch. No batch has more than `budget` source slots or target slots,
    padding counted. Pairs are sorted by their longer side, and within one length by the other,
    from short to long and from long to short in turn, so that neighbours are alike on both sides:
    some 98 % of the slots hold tokens where a corpus fills some hundred batches.

    Args:
        src_lengths, tgt_lengths: tokens of each pair, EOS counted.
        budget: of one batch.
        rng: breaks ties between pairs of one length and shuffles the batches; without it the
            plan runs from short to long.

    Returns:
        Indices of the pairs of each batch.

    Raises:
        MtkitError: if a single pair is longer than the budget.
    """
    longest = np.maximum(src_lengths, tgt_lengths)
    if len(longest) and longest.max() > budget:
        raise MtkitError(
            f"train.batch_tokens: a batch of {budget} tokens cannot hold the longest pair, "
            f"which has {longest.max()}; raise it"
        )
    order = np.arange(len(longest)) if rng is None else rng.permutation(len(longest))
    # Signed, because lengths are stored unsigned.
    longer_src = src_lengths[order].astype(np.int64) - tgt_lengths[order]
    turn = np.where(longest[order] % 2, longer_src, -longer_src)
    # A stable sort, so that the permutation decides between pairs of the same lengths.
    order = order[np.lexsort((turn, longest[order]))]
    longest = longest[order]
    batches = []
    start = 0
    while start < len(order):
        # Lengths rise, so slots rise with every pair that is added.
        window = longest[start : start + budget // longest[start]]
        slots = window * np.arange(1, len(window) + 1)
        end = start + int(np.searchsorted(slots, budget, side="right"))
        batches.append(order[start:end])
        start = end
    if rng is not None:
        batches = [batches[i] for i in rng.permutation(len(batches))]
    return batches


class TokenBatches:
    """The endless stream of a run's updates, epoch after epoch.

    An update is a few batches, the pairs of each about equally long. The stream is a pure
    function of seed, epoch, lengths, budget and `per_update`: it does not depend on how many
    workers there are or on what fits a device, which `split` sees to.

    Args:
        pairs: the training pairs.
        budget: most source slots, and most target slots, of a batch.
        per_update: batches of an update.
        seed: of the order.
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
        self._epoch = -1
        self._position = 0
        self._plan: list[IntArray] = []
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

        def slots(indices: IntArray) -> int:
            sides = (side.lengths[indices] for side in (self._pairs.src, self._pairs.tgt))
            return len(indices) * sum(int(lengths.max(initial=0)) for lengths in sides)

        return max(split(self._plan, parts), key=slots)

    def parts_that_fit(self, slots: int) -> int:
        """Into how many parts `split` must cut every batch so that none has more slots a side."""
        parts = 1
        for indices in self._plan:
            sides = (side.lengths[indices].max() for side in (self._pairs.src, self._pairs.tgt))
            rows = slots // int(max(sides))
            parts = max(parts, -(-len(indices) // rows))
        return parts

    def state_dict(self) -> dict[str, int]:
        """The position in the stream."""
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a position that `state_dict` gave."""
        self._enter_epoch(state["epoch"])
        self._position = state["position"]

    def _enter_epoch(self, epoch: int) -> None:
        self._position = 0
        if epoch == self._epoch:
            return
        self._epoch = epoch
        self._plan = plan_batches(
            self._pairs.src.lengths,
            self._pairs.tgt.lengths,
            budget=self.budget,
            rng=np.random.default_rng((self._seed, epoch)),
        )


def split(batches: Sequence[IntArray], parts: int) -> list[IntArray]:
    """Micro-batches: every batch cut into `parts` of about equally many pairs.

    Those of one batch follow each other, in the order of their lengths. A batch of fewer pairs
    than parts leaves some of them empty.
    """
    return [part for batch in batches for part in np.array_split(batch, parts)]
