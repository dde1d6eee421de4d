"""Beam search over a scoring callable (Section 6.1), after tensor2tensor's.

This module does not depend on models or text. A step function returns the log-probabilities of the
next token of every live hypothesis, and its cache is reordered with the hypotheses.

A sentence has W slots for hypotheses. The device chooses the best continuations of each of R live
hypotheses; beam search chooses among these in float64 on the host, where ties are always resolved
in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from mtkit.translate.constrainer import Constrainer
from mtkit.translate.constraints import Array
from mtkit.translate.settings import Hypothesis, SearchSettings

# With fewer scores than this, two stages are slower than one.
TWO_STAGES_FROM = 100_000
BLOCK = 64
# Finished sentences stay in the batch until they are this share of it: removing them copies all
# caches, and keeping them costs only their share of attention.
DONE_PART = 0.25


class StepCache(Protocol):
    """The state that a step function keeps of its hypotheses."""

    def reorder(self, parents: Tensor) -> None:
        """Slot w of sentence b continues the hypothesis of slot `parents[b, w]`."""

    def select(self, sentences: Tensor) -> None:
        """Keep these sentences, in that order."""


Cache = TypeVar("Cache", bound=StepCache)
# From newest tokens (R,), their slots among B·W (R,), and a cache that it changes, to (R, V).
Step = Callable[[Tensor, Tensor, Cache], Tensor]


def top_k(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row (R, V) and where they are, each (R, k), largest first.

    For many long rows this has two stages: the k largest are in the k blocks with the largest
    maxima.
    """
    R, V = values.shape
    blocks = V // BLOCK
    if R * V < TWO_STAGES_FROM or blocks < 2 * k:
        return values.topk(k)
    whole = torch.unflatten(values[:, : blocks * BLOCK], 1, (blocks, BLOCK))
    best = whole.amax(-1).topk(k, sorted=False).indices
    row = torch.arange(R, device=values.device).unsqueeze(1)
    candidates = whole[row, best].flatten(1)
    index = (best.unsqueeze(-1) * BLOCK + torch.arange(BLOCK, device=values.device)).flatten(1)
    if V % BLOCK:
        rest = torch.arange(blocks * BLOCK, V, device=values.device).expand(R, -1)
        candidates = torch.cat((candidates, values[:, blocks * BLOCK :]), dim=1)
        index = torch.cat((index, rest), dim=1)
    top, at = candidates.topk(k)
    return top, index.gather(1, at)


class Choice(NamedTuple):
    """What becomes of the hypotheses of B sentences in a decoding step.

    Attributes:
        ended: those with EOS now, in the order of the batch, the most probable of a sentence first:
            row of the batch, slot of the hypothesis, log-probability.
        log_probs: (B, W), of those that continue, most probable first; -inf in an empty slot.
        tokens: (B, W), their newest tokens.
        parents: (B, W), the slots of the hypotheses that they continue.
    """

    ended: Iterable[tuple[int, int, float]]
    log_probs: Array
    tokens: Array
    parents: Array


class Chooser:
    """Chooses the hypotheses that continue: the W most probable of 2·W candidates.

    Args:
        settings: those of the search.
        slots: W, hypotheses kept per sentence.
    """

    def __init__(self, settings: SearchSettings, slots: int) -> None:
        self.slots = slots
        self.eos_id = settings.eos_id
        self.constrainer = Constrainer(settings.constraints, slots, settings.eos_id)

    def choose(
        self, next_RV: Tensor, rows_R: Array, log_probs_BW: Array, active: Array, history: History
    ) -> Choice:
        """Choose among all continuations of the live hypotheses.

        Args:
            next_RV: log-probabilities of the next token; they are changed.
            rows_R: the slots of the live hypotheses among B·W.
            log_probs_BW: of all hypotheses, -inf for dead ones.
            active: the sentence of each row of the batch.
            history: the tokens so far.
        """
        W, considered = self.slots, 2 * self.slots
        B = len(active)
        self.constrainer.forbid(next_RV, history, active[rows_R // W], rows_R % W)
        top_RC, ids_RC = top_k(next_RV, min(considered, next_RV.shape[1]))

        # The candidates of a sentence, from all its hypotheses.
        candidates = np.full((B * W, top_RC.shape[1]), -np.inf)
        candidates[rows_R] = log_probs_BW.flat[rows_R][:, None] + top_RC.double().cpu().numpy()
        candidates = candidates.reshape(B, -1)
        ids = np.zeros((B * W, top_RC.shape[1]), dtype=np.int64)
        ids[rows_R] = ids_RC.cpu().numpy()
        order_BC = np.argsort(-candidates, axis=1, kind="stable")[:, :considered]
        top_BC = np.take_along_axis(candidates, order_BC, axis=1)
        tokens_BC = np.take_along_axis(ids.reshape(B, -1), order_BC, axis=1)
        parents_BC = order_BC // top_RC.shape[1]

        possible_BC = top_BC > -np.inf
        ended_BC = (tokens_BC == self.eos_id) & possible_BC
        ended = [
            (row, int(parents_BC[row, rank]), float(top_BC[row, rank]))
            for row, rank in zip(*ended_BC.nonzero(), strict=True)
        ]
        # The best W that continue, in order; of 2·W candidates at most W ended.
        keep_BW = np.argsort(ended_BC | ~possible_BC, axis=1, kind="stable")[:, :W]
        unfinished = ~np.take_along_axis(ended_BC, keep_BW, axis=1)
        log_probs_BW = np.where(unfinished, np.take_along_axis(top_BC, keep_BW, axis=1), -np.inf)
        parents_BW = np.take_along_axis(parents_BC, keep_BW, axis=1)
        tokens_BW = np.take_along_axis(tokens_BC, keep_BW, axis=1)
        rows, slots = (log_probs_BW > -np.inf).nonzero()
        self.constrainer.advance(
            active[rows], slots, parents_BW[rows, slots], tokens_BW[rows, slots]
        )
        return Choice(ended, log_probs_BW, tokens_BW, parents_BW)


def beam_search(
    step: Step[Cache],
    cache: Cache,
    settings: SearchSettings,
    *,
    beam_size: int,
    n_best: int = 1,
    rank_cut_off: bool = False,
    chooser: Chooser | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of B sentences.

    Every decoding step considers 2·W candidates, so that even if W of them end, W continue. With
    W = 1 it still considers two; greedy search is in `independent`.

    Log-probabilities only fall, so the highest possible score of an unfinished hypothesis is its
    log-probability over the largest penalty that is still possible. A hypothesis that cannot beat
    the worst of `n_best` finished ones is pruned, and a sentence without live hypotheses is
    finished. This never changes the result: the hypotheses that a pruned one would have removed
    from the beam are even less probable.

    Args:
        step: from tokens, slots and cache to log-probabilities.
        cache: of B sentences with W slots each.
        beam_size: W, hypotheses kept per sentence.
        n_best: hypotheses returned per sentence, at most W.
        rank_cut_off: whether hypotheses that the length limit cuts off are ranked among the
            finished ones, for a limit shorter than good outputs; otherwise they come after them.
        chooser: of the same settings; by default a `Chooser`.

    Returns:
        For each sentence up to `n_best` hypotheses, best first. Unfinished ones appear only if the
        length limit cut a sentence off.
    """
    if not 1 <= n_best <= beam_size:
        raise ValueError(f"n_best {n_best} is not between 1 and the beam size {beam_size}")
    chooser = chooser or Chooser(settings, beam_size)
    limits = np.array(settings.max_lengths, dtype=np.int64)
    finished = [Finished(n_best) for _ in limits]
    cut_off: list[list[Hypothesis]] = [[] for _ in limits]
    history = History(len(limits), chooser.slots)
    # The sentence of each row of the batch, and its hypotheses: all begin with the same token, so
    # only the first one is live.
    active = np.arange(len(limits))
    log_probs_BW = np.full((len(active), chooser.slots), -np.inf)
    log_probs_BW[limits > 0, 0] = 0.0
    tokens_BW = np.full(log_probs_BW.shape, settings.bos_id, dtype=np.int64)
    on_device = partial(torch.as_tensor, device=settings.device)
    while (log_probs_BW > -np.inf).any():
        length = len(history) + 1
        rows_R = np.flatnonzero(log_probs_BW > -np.inf)
        next_RV = step(on_device(tokens_BW.flat[rows_R]), on_device(rows_R), cache)
        choice = chooser.choose(next_RV, rows_R, log_probs_BW, active, history)
        for row, slot, log_prob in choice.ended:
            sentence, score = active[row], log_prob / settings.penalty(length)
            if score > finished[sentence].worst:
                finished[sentence].add(
                    history.hypothesis(sentence, slot, length - 1, log_prob, score, finished=True)
                )
        _, log_probs_BW, tokens_BW, parents_BW = choice
        history.append(active, tokens_BW, parents_BW, log_probs_BW)
        live = _prune(
            log_probs_BW, active, history, finished, cut_off, settings, rank_cut_off=rank_cut_off
        )
        if not live.any():
            break
        cache.reorder(on_device(parents_BW))
        if live.mean() <= 1 - DONE_PART:
            kept = live.nonzero()[0]
            cache.select(on_device(kept))
            active, log_probs_BW, tokens_BW = active[kept], log_probs_BW[kept], tokens_BW[kept]
    return [one.best + rest for one, rest in zip(finished, cut_off, strict=True)]


def _prune(
    log_probs_BW: Array,
    active: Array,
    history: History,
    finished: Sequence[Finished],
    cut_off: Sequence[list[Hypothesis]],
    settings: SearchSettings,
    *,
    rank_cut_off: bool,
) -> Array:
    """Remove, in place, the hypotheses that cannot win any more, and those at the length limit.

    Those at the limit are added to `cut_off`, or with `rank_cut_off` to `finished`.

    Returns:
        Which rows of the batch have a live hypothesis, (B,).
    """
    length, penalty = len(history), settings.penalty
    limits = np.array(settings.max_lengths)[active]
    # The penalty rises or falls with the length (sign of alpha), so one end is the largest.
    worst = np.array([finished[sentence].worst for sentence in active])
    ahead = [max(penalty(length + 1), penalty(limit)) for limit in limits.tolist()]
    log_probs_BW[log_probs_BW / np.array(ahead)[:, None] <= worst[:, None]] = -np.inf

    at_limit = limits <= length
    for row in at_limit.nonzero()[0]:
        alive = np.flatnonzero(log_probs_BW[row] > -np.inf)
        sentence = active[row]
        missing = finished[sentence].n_best - len(finished[sentence].best)
        for slot in alive if rank_cut_off else alive[:missing]:
            log_prob = float(log_probs_BW[row, slot])
            score = log_prob / penalty(length)
            hypothesis = history.hypothesis(sentence, slot, length, log_prob, score, finished=False)
            if rank_cut_off:
                finished[sentence].add(hypothesis)
            else:
                cut_off[sentence].append(hypothesis)
    log_probs_BW[at_limit] = -np.inf
    live: Array = np.any(log_probs_BW > -np.inf, axis=1)
    return live


class Finished:
    """The finished hypotheses of one sentence, best first."""

    def __init__(self, n_best: int) -> None:
        self.n_best = n_best
        self.best: list[Hypothesis] = []

    @property
    def worst(self) -> float:
        """The score to beat; -inf if any score is accepted."""
        return self.best[-1].score if len(self.best) == self.n_best else -np.inf

    def add(self, hypothesis: Hypothesis) -> None:
        """Insert it by its score; the worst of more than `n_best` is dropped."""
        self.best.append(hypothesis)
        # A stable sort, so of two equal scores the one found first stays first.
        self.best.sort(key=lambda other: -other.score)
        del self.best[self.n_best :]


class History:
    """The tokens of all hypotheses of all sentences, linked from the newest to the first."""

    def __init__(self, sentences: int, slots: int) -> None:
        self._shape = sentences, slots
        self._steps: list[tuple[Array, Array, Array]] = []

    def __len__(self) -> int:
        return len(self._steps)

    def append(
        self, sentences: Array, tokens_BW: Array, parents_BW: Array, log_probs_BW: Array
    ) -> None:
        """Append a token to the slots of these sentences, each after that of its parent slot.

        `log_probs_BW` are those of the whole hypotheses up to that token. `parents_BW` must
        broadcast to that shape.
        """
        tokens, parents = np.zeros(self._shape, np.int64), np.zeros(self._shape, np.int64)
        totals = np.zeros(self._shape)
        tokens[sentences], parents[sentences] = tokens_BW, parents_BW
        totals[sentences] = log_probs_BW
        self._steps.append((tokens, parents, totals))

    def tokens(self, sentence: int, slot: int, length: int) -> tuple[int, ...]:
        """The tokens of the hypothesis in a slot after `length` steps."""
        return tuple(self._trace(sentence, slot, length)[0])

    def hypothesis(
        self,
        sentence: int,
        slot: int,
        length: int,
        log_prob: float,
        score: float,
        *,
        finished: bool,
    ) -> Hypothesis:
        """The hypothesis in a slot after `length` steps; `log_prob` includes EOS if finished."""
        tokens, totals = self._trace(sentence, slot, length)
        if finished:
            totals.append(log_prob)
        gains = tuple(total - before for before, total in pairwise([0.0, *totals]))
        return Hypothesis(tuple(tokens), log_prob, score, finished, gains)

    def _trace(self, sentence: int, slot: int, length: int) -> tuple[list[int], list[float]]:
        """Tokens, and the log-probability up to each."""
        backwards, totals_backwards = [], []
        for tokens, parents, totals in reversed(self._steps[:length]):
            backwards.append(int(tokens[sentence, slot]))
            totals_backwards.append(float(totals[sentence, slot]))
            slot = parents[sentence, slot]
        return backwards[::-1], totals_backwards[::-1]
