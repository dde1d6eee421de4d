"""Beam search over a scoring callable (Section 6.1), after tensor2tensor's.

The search knows nothing of models or text. It asks a step function for the log-probabilities of
the next token of every hypothesis and tells the function's cache how hypotheses moved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, TypeVar

import torch
from torch import Tensor


class StepCache(Protocol):
    """What a step function remembers of its hypotheses."""

    def reorder(self, parents: Tensor) -> None:
        """Hypothesis w of sentence b continues hypothesis `parents[b, w]`."""

    def select(self, rows: Tensor) -> None:
        """Keep the sentences `rows`, in that order."""


Cache = TypeVar("Cache", bound=StepCache)
Step = Callable[[Tensor, Cache], tuple[Tensor, Cache]]
PenaltyForm = Literal["gnmt", "power"]


@dataclass(frozen=True)
class Hypothesis:
    """A translation as the search found it.

    Attributes:
        tokens: ids without BOS and EOS.
        log_prob: sum of the natural log-probabilities of its tokens, EOS counted if it ended.
        score: `log_prob` over the length penalty.
        finished: False if it was cut off at the length limit.
    """

    tokens: tuple[int, ...]
    log_prob: float
    score: float
    finished: bool


def length_penalty(length: int, alpha: float, form: PenaltyForm = "gnmt") -> float:
    """What log-probabilities of hypotheses are divided by; EOS counts in the length.

    `gnmt` is ((5 + length) / 6) ** alpha, of Wu et al. 2016, and the paper's. `power` is
    length ** alpha: what fairseq and others have under the same name is another search.
    """
    return float(length**alpha if form == "power" else ((5 + length) / 6) ** alpha)


def beam_search(
    step: Step[Cache],
    cache: Cache,
    *,
    max_lengths: list[int],
    beam_size: int,
    bos_id: int,
    eos_id: int,
    alpha: float,
    penalty_form: PenaltyForm = "gnmt",
    n_best: int = 1,
    device: torch.device | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of B sentences.

    Every decoding step considers 2·W candidates, so that even if W of them end, W go on. With
    W = 1 it considers one: that is greedy search, which ends where the best token is EOS. A
    sentence is done when it has `n_best` finished hypotheses and no unfinished one can still
    beat the worst of those, whatever follows: log-probabilities only fall, so the best that an
    unfinished hypothesis can become is its log-probability over the largest penalty ahead.

    Args:
        step: from newest tokens (B, W) and cache to log-probabilities (B, W, V) and cache.
        cache: of B sentences with W hypotheses each.
        max_lengths: per sentence, the most tokens of an output, EOS counted.
        beam_size: W, hypotheses kept per sentence.
        bos_id: first token of every hypothesis.
        eos_id: the token that ends one.
        alpha: strength of the length penalty; 0 ranks by log-probability.
        penalty_form: of `length_penalty`.
        n_best: hypotheses wanted per sentence, at most W.
        device: where `step` works.

    Returns:
        For each sentence up to `n_best` hypotheses, best first. Finished ones come before
        unfinished ones, which appear only where the limit cut a sentence off.
    """
    if not 1 <= n_best <= beam_size:
        raise ValueError(f"n_best {n_best} is not between 1 and the beam size {beam_size}")
    penalty = partial(length_penalty, alpha=alpha, form=penalty_form)
    beams = [_Sentence(limit, n_best, penalty) for limit in max_lengths]
    results: list[list[Hypothesis]] = [[] for _ in beams]
    active = list(range(len(beams)))
    W = beam_size
    # All hypotheses of a sentence begin alike; only the first may have offspring.
    log_probs_BW = torch.full((len(active), W), -torch.inf, device=device)
    log_probs_BW[:, 0] = 0.0
    tokens_BW = torch.full((len(active), W), bos_id, device=device)
    prefixes_BWT = torch.empty((len(active), W, 0), dtype=torch.int64, device=device)

    for length in range(1, max(max_lengths, default=0) + 1):
        next_BWV, cache = step(tokens_BW, cache)
        V = next_BWV.shape[-1]
        log_probs_BW = log_probs_BW.to(next_BWV.dtype)
        scores_BV = (log_probs_BW.unsqueeze(-1) + next_BWV).flatten(1)
        top_BC, index_BC = scores_BV.topk(min(2 * W, W * V) if W > 1 else 1, dim=1)
        parents_BC = index_BC // V
        tokens_BC = index_BC % V
        ended_BC = tokens_BC == eos_id

        # One transfer to the host per step; the bookkeeping of finished hypotheses is there.
        ended, top, parents = ended_BC.tolist(), top_BC.tolist(), parents_BC.tolist()
        for row, sentence in enumerate(active):
            for rank, has_ended in enumerate(ended[row]):
                if has_ended and top[row][rank] > -torch.inf:
                    prefix = prefixes_BWT[row, parents[row][rank]]
                    beams[sentence].finish(prefix, top[row][rank], length)

        # The best W that go on, in order; they are among 2·W candidates of which at most W ended.
        keep_BW = ended_BC.to(torch.int8).argsort(dim=1, stable=True)[:, :W]
        log_probs_BW = top_BC.gather(1, keep_BW).masked_fill(
            ended_BC.gather(1, keep_BW), -torch.inf
        )
        parents_BW = parents_BC.gather(1, keep_BW)
        tokens_BW = tokens_BC.gather(1, keep_BW)
        prefixes_BWT = prefixes_BWT.gather(1, parents_BW.unsqueeze(-1).expand(-1, -1, length - 1))
        prefixes_BWT = torch.cat((prefixes_BWT, tokens_BW.unsqueeze(-1)), dim=-1)
        cache.reorder(parents_BW)

        alive = log_probs_BW.tolist()
        rows = []
        for row, sentence in enumerate(active):
            if beams[sentence].is_done(alive[row][0], length):
                results[sentence] = beams[sentence].best(prefixes_BWT[row], alive[row], length)
            else:
                rows.append(row)
        if not rows:
            break
        if len(rows) < len(active):
            kept = torch.tensor(rows, device=device)
            active = [active[row] for row in rows]
            cache.select(kept)
            tokens_BW, log_probs_BW = tokens_BW[kept], log_probs_BW[kept]
            prefixes_BWT = prefixes_BWT[kept]
    return results


class _Sentence:
    """The finished hypotheses of one sentence, and when to stop looking for more."""

    def __init__(self, limit: int, n_best: int, penalty: Callable[[int], float]) -> None:
        self.limit = limit
        self.n_best = n_best
        self.penalty = penalty
        self.finished: list[Hypothesis] = []

    def finish(self, prefix: Tensor, log_prob: float, length: int) -> None:
        """Take up a hypothesis of `length` tokens with EOS, if it is among the best so far."""
        score = log_prob / self.penalty(length)
        if len(self.finished) == self.n_best and score <= self.finished[-1].score:
            return
        found = Hypothesis(tuple(prefix.tolist()), log_prob, score, finished=True)
        self.finished.append(found)
        # Stable, so of two equal scores the one found first stays in front.
        self.finished.sort(key=lambda hypothesis: -hypothesis.score)
        del self.finished[self.n_best :]

    def is_done(self, best_alive: float, length: int) -> bool:
        """Whether nothing that goes on after `length` tokens can change the result."""
        if length >= self.limit:
            return True
        if best_alive == -torch.inf:
            return True
        if len(self.finished) < self.n_best:
            return False
        # The penalty grows or falls with the length, by the sign of alpha: one end is largest.
        ahead = max(self.penalty(n) for n in (length + 1, self.limit))
        return self.finished[-1].score >= best_alive / ahead

    def best(self, prefixes: Tensor, alive: list[float], length: int) -> list[Hypothesis]:
        """The result, filled up with unfinished hypotheses where too few ended."""
        missing = self.n_best - len(self.finished)
        penalty = self.penalty(length)
        cut_off = [
            Hypothesis(tuple(prefix.tolist()), log_prob, log_prob / penalty, finished=False)
            for prefix, log_prob in zip(prefixes[:missing], alive[:missing], strict=True)
            if log_prob > -torch.inf
        ]
        return self.finished + cut_off
