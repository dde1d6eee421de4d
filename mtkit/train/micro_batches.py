"""Splits an update into micro-batches that fit in the memory of a device.

The tokens of a micro-batch are those of its larger side with padding: pairs times longest sentence.
A worker computes several in a pass, packed into one row, or, the plain way, one.
"""

from __future__ import annotations

import bisect
import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
import torch
from torch import Tensor

from mtkit.base.errors import MtkitError
from mtkit.batches import Batch, TokenBatches, split
from mtkit.config import Config
from mtkit.data import IntArray, SentencePairs, TaskName, TokenArray
from mtkit.tokenizer import EOS_ID, Vocabularies
from mtkit.train.bpe_dropout import GROWTH, BpeDropout

log = logging.getLogger(__name__)

# Target tokens, and source tokens, that are assumed to fit on a device at a time.
DEFAULT_DEVICE_TOKENS = {"cuda": 25_000, "cpu": 4096}

# Pairs, and the indices of those that are used.
MicroBatch = tuple[SentencePairs, IntArray]

# A part of a batch of an update: the number of the batch, and some of its rows.
Part = tuple[int, IntArray]


@dataclass(frozen=True, eq=False)
class Pass:
    """What a worker computes in one forward and backward pass: one micro-batch, or a packed row.

    Attributes:
        index: among the passes of an update over all workers.
        batch: of their pairs, on the device; None if it is not made yet.
        guidance: what the head of guided alignment should attend to, for each micro-batch.
    """

    index: int
    micro_batches: list[MicroBatch]
    batch: Batch | None = None
    guidance: list[Tensor] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it has no pairs, because there are more workers than pairs."""
        return not any(len(indices) for _, indices in self.micro_batches)

    @property
    def target_tokens(self) -> int:
        """The target tokens of its pairs."""
        return sum(int(pairs.tgt.lengths[indices].sum()) for pairs, indices in self.micro_batches)

    def halves(self) -> list[Pass]:
        """Two passes with half of the tokens each, or itself if it has only one pair."""
        batches = [indices for _, indices in self.micro_batches]
        if sum(map(len, batches)) < 2:
            return [self]
        costs = [longest_side(*batch) for batch in self.micro_batches]
        return [
            # An index that no pass of an update has, for other random numbers.
            Pass(
                2 * self.index + half + (1 << 32),
                [(self.micro_batches[number][0], part) for number, part in share],
            )
            for half, share in enumerate(cut(batches, costs, 2))
        ]


def longest_side(pairs: SentencePairs, indices: IntArray) -> int:
    """The tokens of the longest sentence of a micro-batch, of either side."""
    lengths = (side.lengths[indices] for side in (pairs.src, pairs.tgt))
    return max(int(length.max(initial=0)) for length in lengths)


def padded_tokens(pairs: SentencePairs, indices: IntArray) -> int:
    """The tokens of the larger side of a micro-batch, with padding."""
    return len(indices) * longest_side(pairs, indices)


def cut(batches: Sequence[IntArray], costs: Sequence[int], pieces: int) -> list[list[Part]]:
    """Divide an update into adjacent pieces, of which the most expensive is as cheap as possible.

    The batches have at least one row together; `costs` are of a row of each batch.
    """
    sizes = [len(batch) for batch in batches]
    widths = np.repeat(costs, sizes)
    ends = np.cumsum(widths)

    def bounds(most: int) -> list[int]:
        """The rows at which pieces begin and end if each has as many as `most` allows."""
        cuts = [0]
        for _ in range(pieces):
            before = ends[cuts[-1] - 1] if cuts[-1] else 0
            cuts.append(int(np.searchsorted(ends, before + most, side="right")))
        return cuts

    widest = int(widths.max())
    least = max(widest, -(-int(ends[-1]) // pieces))
    possible = range(least, least + widest)
    index = bisect.bisect_left(possible, True, key=lambda most: bounds(most)[-1] == len(ends))
    starts = np.cumsum([0, *sizes[:-1]])
    return [
        [
            (number, part)
            for number, (batch, start) in enumerate(zip(batches, starts, strict=True))
            if len(part := batch[max(0, first - start) : max(0, last - start)])
        ]
        for first, last in itertools.pairwise(bounds(least + index))
    ]


def groups_of_threads(threads: int, number: int, *, at_most: int) -> int:
    """The most groups of threads, for a pass each, that leave threads idle a tenth of the time.

    4 threads in 4 groups need 3 rounds for 9 passes, and are idle in a quarter of that time; in 2
    groups they need 5 rounds, and are idle in a tenth.
    """
    for groups in range(min(threads, number, at_most), 1, -1):
        rounds = -(-number // groups)
        if threads % groups == 0 and 10 * number >= 9 * rounds * groups:
            return groups
    return 1


@dataclass(eq=False)
class MicroBatches:
    """Splits updates into micro-batches, and segments their sentences if BPE-dropout is on.

    The brackets of trees are never segmented by BPE-dropout.

    Attributes:
        limit: tokens on a device at a time.
        per_batch: micro-batches of a batch; `choose` sets it.
        at_once: passes that are computed at the same time; `choose` sets it.
        packed: whether a pass has several micro-batches.
    """

    config: Config
    pairs: SentencePairs
    vocabularies: Vocabularies
    _: KW_ONLY
    device_type: str
    task: TaskName = "translation"
    per_batch: int = 1
    at_once: int = 1

    def __post_init__(self) -> None:
        settings = self.config.train
        self.packed = settings.gpu_path != "plain"
        if self.packed and self.config.model.positions == "words":
            # Words are counted from the beginning of a sentence, which a row does not show.
            log.info("train.gpu_path: plain, because of model.positions words")
            self.packed = False
        given, self.limit = settings.device_batch_tokens, DEFAULT_DEVICE_TOKENS[self.device_type]
        if given == "auto":
            growth = GROWTH if settings.bpe_dropout else 1
            self.limit = max(self.limit, math.ceil(growth * self.longest) + 1)
        elif given is not None:
            self.limit = int(str(given).removeprefix("auto:"))
        # For source and target, or none.
        of_tgt = 0.0 if self.task == "parsing" else settings.bpe_dropout
        self._world_size = 1
        self._dropout = [
            BpeDropout(tokenizer, probability=probability, seed=settings.seed)
            for tokenizer, probability in zip(
                self.vocabularies, (settings.bpe_dropout, of_tgt), strict=True
            )
            if settings.bpe_dropout
        ]

    @property
    def are_resegmented(self) -> bool:
        """Whether only the worker that computes a micro-batch knows its lengths."""
        return bool(self._dropout)

    @property
    def longest(self) -> int:
        """Tokens of the longest side of a training pair."""
        return int(max(self.pairs.src.lengths.max(), self.pairs.tgt.lengths.max()))

    def choose(self, batches: TokenBatches, world_size: int) -> None:
        """Set `per_batch` so that all micro-batches fit, and `at_once` for the threads of a CPU.

        All workers have equally many. Raises `MtkitError` if the longest pair does not fit, or has
        more tokens than positions.
        """
        limit, self._world_size = self._limit, world_size
        if self.longest > limit:
            more = f", and up to {GROWTH} times as many with train.bpe_dropout"
            raise MtkitError(
                f"train.device_batch_tokens: {self.limit} tokens at a time cannot hold the longest "
                f"pair, which has {self.longest}{more if self._dropout else ''}; raise it"
            )
        most = self.config.model.max_tokens
        if most is not None and self.longest > most:
            raise MtkitError(
                f"model.max_positions: {most} learned positions cannot hold the "
                f"longest pair, which has {self.longest} tokens; raise it"
            )
        self.per_batch = batches.parts_that_fit(limit)
        while self.per_batch * batches.per_update % world_size:
            self.per_batch += 1
        self.at_once = self._number_at_once(batches, world_size)

    def of_update(
        self, batches: Sequence[IntArray], *, step: int, rank: int, world_size: int
    ) -> list[Pass]:
        """The passes of an update that a worker computes; all workers have equally many."""
        if self.packed:
            shares = self._fitting_shares(batches, world_size)
        else:
            parts = enumerate(split(batches, self.per_batch))
            shares = [[(index // self.per_batch, part)] for index, part in parts]
        return [
            Pass(index, [self._segmented(batches[number], part, step) for number, part in share])
            for index, share in list(enumerate(shares))[rank::world_size]
        ]

    def largest(self, batches: TokenBatches) -> tuple[IntArray, MicroBatch]:
        """The largest micro-batch of an epoch, without and with the growth by BPE-dropout."""
        indices = batches.largest(1 if self.packed else self.per_batch)
        if self.packed:
            # No update has more tokens than the largest batch repeated.
            update = [np.tile(indices, batches.per_update)]
            shares = self._fitting_shares(update, self._world_size)
            indices = max((part for share in shares for _, part in share), key=len)
        return indices, self.grown(indices)

    def grown(self, indices: IntArray) -> MicroBatch:
        """A micro-batch of these pairs, as long as BPE-dropout may make them."""
        if not self._dropout:
            return self.pairs, indices
        longest = self._may_grow_to(indices)
        # A subword of both vocabularies.
        least = min(self.vocabularies.sizes)
        ids = np.full((len(indices), longest), least - 1)
        ids[:, -1] = EOS_ID
        side = TokenArray(ids.ravel(), np.full(len(indices), longest))
        return SentencePairs(side, side), np.arange(len(indices))

    def most_tokens(self, batches: TokenBatches) -> int:
        """The tokens of the micro-batch with the most, with the growth by BPE-dropout.

        The smallest `train.device_batch_tokens` with which batches are divided as they are.
        """
        return self.grown_tokens(batches.most_slots(self.per_batch))

    def grown_tokens(self, tokens: int) -> int:
        """As many tokens with the growth by BPE-dropout; `_limit` of it is `tokens` again."""
        return math.ceil(GROWTH * tokens) if self._dropout else tokens

    def smaller(self, indices: IntArray) -> Iterator[IntArray]:
        """Half of a micro-batch, half of that, and so on; finally the longest pair alone."""
        tokens = padded_tokens(self.pairs, indices)
        width = tokens // len(indices)
        while tokens > self.longest:
            some = indices[: tokens // 2 // width]
            if padded_tokens(self.pairs, some) < self.longest:
                lengths = np.maximum(self.pairs.src.lengths, self.pairs.tgt.lengths)
                some = np.array([lengths.argmax()])
            tokens = padded_tokens(self.pairs, some)
            yield some

    @property
    def _limit(self) -> int:
        """The tokens at a time without the growth by BPE-dropout, for which there must be room."""
        return int(self.limit / GROWTH) if self._dropout else self.limit

    def _fitting_shares(self, batches: Sequence[IntArray], world_size: int) -> list[list[Part]]:
        """An update in as few passes for each worker, or each group of threads, as fit."""
        limit, groups = self._limit // self.at_once, world_size * self.at_once
        costs = [longest_side(self.pairs, batch) for batch in batches]
        tokens = sum(cost * len(batch) for cost, batch in zip(costs, batches, strict=True))
        for passes in itertools.count(max(1, tokens // (limit * groups))):
            shares = cut(batches, costs, passes * groups)
            if max(sum(costs[n] * len(batch) for n, batch in s) for s in shares) <= limit:
                break
        return shares

    def _number_at_once(self, batches: TokenBatches, world_size: int) -> int:
        compiled = self.config.train.compile is True
        if self.device_type != "cpu" or world_size > 1 or compiled:
            return 1
        if self.config.model.attention_dropout:
            # It draws from the generator of PyTorch, which all threads share.
            return 1
        number, threads = batches.per_update * self.per_batch, torch.get_num_threads()
        if number == 1 or threads == 1:
            return 1
        # Another epoch may have a longer pair.
        fit = self.limit // max(self.most_tokens(batches), self.grown_tokens(self.longest))
        return groups_of_threads(threads, number, at_most=fit)

    def _segmented(self, batch: IntArray, indices: IntArray, step: int) -> MicroBatch:
        """Pairs of a batch, in their segmentation for this step."""
        if not self._dropout or not len(indices):
            return self.pairs, indices
        # A limit that does not depend on how the batch is split.
        longest = self._may_grow_to(batch)
        sides = (self.pairs.src, self.pairs.tgt)
        src, tgt = (
            dropout.sample(side, indices, step=step, side=number, longest=longest)
            for number, (dropout, side) in enumerate(zip(self._dropout, sides, strict=True))
        )
        links = self.pairs.links
        own = None if links is None else TokenArray(*links.select(indices))
        return SentencePairs(src, tgt, links=own), np.arange(len(indices))

    def _may_grow_to(self, indices: IntArray) -> int:
        """Tokens that a sentence of these pairs may have with BPE-dropout."""
        longest = int(GROWTH * longest_side(self.pairs, indices))
        return min(longest, self.config.model.max_tokens or longest)
