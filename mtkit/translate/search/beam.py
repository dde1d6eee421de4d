"""Beam search over a scoring callable (Section 6.1), after tensor2tensor's.

This module does not depend on models or text. A step function returns the log-probabilities of the
next token of every live hypothesis, and its cache is reordered with the hypotheses.

A sentence has W slots for hypotheses. All sums are in float64, and of equal ones the first wins, on
every device. They stay on the device of the model: the host learns once in a block of steps which
sentences are finished. A block of one step computes only live hypotheses. A longer one, for a GPU,
computes all slots, and copies nothing else between host and device.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from mtkit.search_settings import LOOKAHEAD, Array, Hypothesis, SearchSettings
from mtkit.translate.search.constrainer import Constrainer
from mtkit.translate.search.on_device import indices_of, to_host, top_k

# Finished sentences stay in the batch until they are this share of it: removing them copies all
# caches, and keeping them costs only their share of attention.
DONE_PART = 0.25
# The rank of a hypothesis that the length limit cut off, after all finished ones.
LAST = float(np.finfo(np.float64).min)


class StepCache(Protocol):
    """The state that a step function keeps of its hypotheses."""

    def reorder(self, parents: Tensor) -> None:
        """Slot w of sentence b continues the hypothesis of slot `parents[b, w]`."""

    def select(self, sentences: Tensor) -> None:
        """Keep these sentences, in that order."""


Cache = TypeVar("Cache", bound=StepCache)
# From newest tokens (R,), their slots among B·W (R,), and a cache that it changes, to (R, V).
Step = Callable[[Tensor, Tensor, Cache], Tensor]


class Choice(NamedTuple):
    """What becomes of the hypotheses of B sentences in a decoding step.

    Attributes:
        log_probs: (B, W), of hypotheses that continue, most probable first; -inf in an empty slot.
        tokens: (B, W), their newest tokens.
        parents: (B, W), the slots of the hypotheses that they continue.
        ended: (B, C), log-probabilities of hypotheses with EOS now; -inf for no hypothesis.
        ended_parents: (B, C), their slots.
    """

    log_probs: Tensor
    tokens: Tensor
    parents: Tensor
    ended: Tensor
    ended_parents: Tensor


class Chooser:
    """Chooses the hypotheses that continue: the W most probable of 2·W candidates."""

    def __init__(self, settings: SearchSettings, slots: int) -> None:
        self.slots = slots
        self.eos_id = settings.eos_id
        self.constrainer = Constrainer(settings, slots)

    def choose(self, next_RV: Tensor, rows: Tensor, log_probs_BW: Tensor, done: int) -> Choice:
        """Choose among all continuations of the live hypotheses.

        Args:
            next_RV: log-probabilities of the next token; they are changed.
            rows: the slots of these hypotheses among B·W, (R,).
            log_probs_BW: of all hypotheses, -inf for dead ones.
            done: the number of tokens so far.
        """
        B, W = log_probs_BW.shape
        self.constrainer.forbid(next_RV, rows, done)
        top_RC, ids_RC = top_k(next_RV, min(2 * W, next_RV.shape[1]))
        # The candidates of a sentence, from all its hypotheses; NaN is no probability.
        C = top_RC.shape[1]
        sums_RC = log_probs_BW.view(-1, 1)[rows] + top_RC
        sums_RC.masked_fill_(sums_RC.isnan(), -torch.inf)
        sums = log_probs_BW.new_full((B * W, C), -torch.inf).index_copy_(0, rows, sums_RC)
        ids = rows.new_zeros(B * W, C).index_copy_(0, rows, ids_RC)
        sums, order = sums.view(B, -1).sort(dim=1, descending=True, stable=True)
        sums, order = sums[:, : 2 * W], order[:, : 2 * W]
        tokens, parents = ids.view(B, -1).gather(1, order), order // C
        is_eos = tokens == self.eos_id
        # The best W that continue, in order; of 2·W candidates at most W ended.
        kept, at = sums.masked_fill(is_eos, -torch.inf).sort(dim=1, descending=True, stable=True)
        kept, at = kept[:, :W], at[:, :W]
        ended = sums.masked_fill(~is_eos, -torch.inf)
        return Choice(kept, tokens.gather(1, at), parents.gather(1, at), ended, parents)

    def select(self, sentences: Tensor) -> None:
        """Keep these sentences."""
        self.constrainer.select(sentences)


def beam_search(
    step: Step[Cache],
    cache: Cache,
    settings: SearchSettings,
    *,
    beam_size: int,
    n_best: int = 1,
    rank_cut_off: bool = False,
    block: int = 1,
    chooser: Chooser | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of B sentences.

    Every decoding step considers 2·W candidates, so that even if W of them end, W continue. With
    W = 1 it still considers two; greedy search is in `independent`.

    Log-probabilities only fall, so the highest possible score of an unfinished hypothesis is its
    log-probability over the largest penalty that is still possible. A hypothesis that cannot beat
    the worst of `n_best` finished ones is pruned, and a sentence without live hypotheses is
    finished. This never changes the result: the hypotheses that a pruned one would have removed
    from the beam are even less probable. With the rule `likely`, a sentence is also finished when
    no live hypothesis would beat that worst one if it ended within `LOOKAHEAD` tokens, all of them
    with probability 1.

    Args:
        step: from tokens, slots and cache to log-probabilities.
        cache: of B sentences with W slots each.
        beam_size: W, hypotheses kept per sentence.
        n_best: hypotheses returned per sentence, at most W.
        rank_cut_off: whether hypotheses that the length limit cuts off are ranked among the
            finished ones, for a limit shorter than good outputs; otherwise they come after them.
        block: the host asks once in this many steps which sentences are finished.
        chooser: of the same settings; by default a `Chooser`.

    Returns:
        For each sentence up to `n_best` hypotheses, best first. Unfinished ones appear only if the
        length limit cut a sentence off.
    """
    if not 1 <= n_best <= beam_size:
        raise ValueError(f"n_best {n_best} is not between 1 and the beam size {beam_size}")
    chooser = chooser or Chooser(settings, beam_size)
    limits = np.array(settings.max_lengths, dtype=np.int64)
    finished = Finished(settings, chooser.slots, n_best, rank_cut_off=rank_cut_off)
    history = History(settings, chooser.slots, n_best)
    # The sentence of each row of the batch, and its hypotheses: all begin with the same token, so
    # only the first one is live.
    active = np.arange(len(limits))
    tokens_BW = torch.full_like(finished.limits, settings.bos_id).repeat(1, chooser.slots)
    log_probs_BW = torch.full_like(tokens_BW, -torch.inf, dtype=torch.float64)
    log_probs_BW[:, :1].masked_fill_(finished.limits > 0, 0.0)
    rows = torch.arange(log_probs_BW.numel(), device=settings.device)
    done, longest = 0, int(limits.max(initial=0))
    while done < longest:
        start = done
        while done < min(start + block, longest):
            if block == 1:
                rows = (log_probs_BW.view(-1) > -torch.inf).nonzero().squeeze(1)
            next_RV = step(tokens_BW.reshape(-1)[rows], rows, cache)
            choice = chooser.choose(next_RV, rows, log_probs_BW, done)
            log_probs_BW, tokens_BW, parents_BW, *_ = choice
            chooser.constrainer.advance(parents_BW, tokens_BW, log_probs_BW > -torch.inf, done)
            cache.reorder(parents_BW)
            history.append(choice)
            done += 1
            log_probs_BW = finished.update(choice, done, cuts_off=done in limits[active])
        live_B = (log_probs_BW > -torch.inf).any(1)
        live = history.copy(active, live_B, finished)
        if not live.any():
            break
        if live.mean() <= 1 - DONE_PART:
            kept = indices_of(live_B, int(live.sum()))
            cache.select(kept)
            chooser.select(kept)
            finished.select(kept)
            log_probs_BW, tokens_BW, active = log_probs_BW[kept], tokens_BW[kept], active[live]
            rows = rows[: log_probs_BW.numel()]
    return history.hypotheses()


class Finished:
    """The finished hypotheses of the sentences in the batch, best first; all are of B rows.

    Attributes:
        limits: (B, 1), the maximum lengths.
        ranks: (B, n_best), what they are sorted by, -inf for none: the score, or `LAST`.
        totals: (B, n_best), their log-probabilities.
        pointers: (B, n_best), where they are, in one number: length, whether finished, slot.
    """

    def __init__(
        self, settings: SearchSettings, slots: int, n_best: int, *, rank_cut_off: bool
    ) -> None:
        self._rank_cut_off = rank_cut_off
        self._stops_likely = settings.stop == "likely"
        limits = np.array(settings.max_lengths, dtype=np.int64)[:, None]
        # By length. A GPU multiplies by the reciprocal of a number of the host, which would round
        # differently; by one of its own it divides.
        penalties = np.array([1.0, *settings.penalties(int(limits.max(initial=0)) + LOOKAHEAD)])
        self._penalties = torch.as_tensor(penalties, device=settings.device)
        self._own = torch.arange(slots, device=settings.device)
        self.limits = torch.as_tensor(limits, device=settings.device)
        self._last_penalties = torch.as_tensor(penalties[limits], device=settings.device)
        self.pointers = self.limits.new_zeros(len(limits), n_best)
        self.ranks = torch.full_like(self.pointers, -torch.inf, dtype=torch.float64)
        self.totals = self.ranks

    def update(self, choice: Choice, length: int, *, cuts_off: bool) -> Tensor:
        """Add the hypotheses that ended with this length.

        Args:
            cuts_off: whether it is the limit of a sentence.

        Returns:
            Log-probabilities (B, W) of hypotheses that continue; -inf also for those that cannot
            win any more, are at their limit, or whose sentence is finished.
        """
        penalty, W = self._penalties[length], len(self._own)
        pointers = choice.ended_parents + (2 * length + 1) * W
        self._add(choice.ended / penalty, choice.ended, pointers)
        # The penalty rises or falls with the length (sign of alpha), so one end is the largest.
        bounds = choice.log_probs / torch.maximum(self._penalties[length + 1], self._last_penalties)
        log_probs = choice.log_probs.masked_fill(bounds <= self.ranks[:, -1:], -torch.inf)
        if cuts_off:
            cut = log_probs.masked_fill(self.limits > length, -torch.inf)
            ranks = cut / penalty if self._rank_cut_off else cut.clamp(max=LAST)
            self._add(ranks, cut, (self._own + 2 * length * W).expand_as(cut))
            log_probs = log_probs.masked_fill(self.limits <= length, -torch.inf)
        if self._stops_likely:
            near = self._penalties[length + 1 : length + LOOKAHEAD + 1].max()
            best = log_probs[:, :1] / near  # of the most probable
            log_probs = log_probs.masked_fill(best <= self.ranks[:, -1:], -torch.inf)
        return log_probs

    def _add(self, ranks: Tensor, totals: Tensor, pointers: Tensor) -> None:
        """Of equal ranks, that of the first hypothesis stays first."""
        n_best = self.ranks.shape[1]
        ranks, order = torch.cat((self.ranks, ranks), 1).sort(dim=1, descending=True, stable=True)
        self.ranks, order = ranks[:, :n_best], order[:, :n_best]
        self.totals = torch.cat((self.totals, totals), 1).gather(1, order)
        self.pointers = torch.cat((self.pointers, pointers), 1).gather(1, order)

    def select(self, sentences: Tensor) -> None:
        """Keep these sentences."""
        for name in ("limits", "_last_penalties", "ranks", "totals", "pointers"):
            setattr(self, name, getattr(self, name)[sentences])


class History:
    """All hypotheses on the host, their tokens linked from the newest to the first."""

    def __init__(self, settings: SearchSettings, slots: int, n_best: int) -> None:
        self._settings = settings
        sentences = len(settings.max_lengths)
        self._shape = sentences, slots
        # Of each step: tokens, parents, and log-probabilities up to there, each (B, W).
        self._steps: list[list[Array]] = []
        self._on_device: list[Tensor] = []
        self._ranks, self._totals = (np.full((sentences, n_best), -np.inf) for _ in range(2))
        self._pointers = np.zeros((sentences, n_best), dtype=np.int64)

    def append(self, choice: Choice) -> None:
        """Append a token to the slots, each after that of its parent slot."""
        self._on_device += (choice.tokens, choice.parents, choice.log_probs)

    def copy(self, active: Array, live_B: Tensor, finished: Finished) -> Array:
        """Copy what was appended for the sentences `active` to the host; returns `live_B` there."""
        results = finished.ranks, finished.totals, finished.pointers
        live, *arrays = to_host([live_B.long(), *results, *self._on_device])
        self._on_device.clear()
        self._ranks[active], self._totals[active], self._pointers[active] = arrays[:3]
        for at in range(3, len(arrays), 3):
            step = [np.zeros(self._shape, array.dtype) for array in arrays[at : at + 3]]
            for of_all, array in zip(step, arrays[at : at + 3], strict=True):
                of_all[active] = array
            self._steps.append(step)
        return live > 0

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The finished hypotheses of each sentence, best first."""
        return [
            [
                self._hypothesis(sentence, float(total), int(pointer))
                for rank, total, pointer in zip(*of_sentence, strict=True)
                if rank > -np.inf
            ]
            for sentence, of_sentence in enumerate(
                zip(self._ranks, self._totals, self._pointers, strict=True)
            )
        ]

    def _hypothesis(self, sentence: int, log_prob: float, pointer: int) -> Hypothesis:
        """The hypothesis that a pointer of `Finished` means."""
        rest, slot = divmod(pointer, self._shape[1])
        length, finished = divmod(rest, 2)
        backwards, totals = [], []
        # EOS is in no slot.
        for tokens, parents, of_step in reversed(self._steps[: length - finished]):
            backwards.append(int(tokens[sentence, slot]))
            totals.append(float(of_step[sentence, slot]))
            slot = parents[sentence, slot]
        ends = [0.0, *reversed(totals), *([log_prob] if finished else [])]
        gains = tuple(total - before for before, total in pairwise(ends))
        score = log_prob / self._settings.penalty(length)
        return Hypothesis(tuple(reversed(backwards)), log_prob, score, bool(finished), gains)
