"""Decoding of hypotheses that do not compete: greedy search, and sampling.

Like `beam`, this module does not depend on models or text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add

import numpy as np
import torch
from torch import Tensor

from mtkit.search_settings import Array, Hypothesis, Sampling, SearchSettings
from mtkit.translate.search.beam import DONE_PART, Cache, Step
from mtkit.translate.search.constrainer import Constrainer
from mtkit.translate.search.on_device import indices_of, to_host, top_k

# The number of probabilities summed in float64 at a time: on a CPU they fit in its cache, on a GPU
# they are enough for a call.
DRAWN_AT_ONCE_CPU, DRAWN_AT_ONCE_GPU = 2**18, 2**24
# The end of the nucleus is first searched among this many most probable tokens, then among all.
NUCLEUS = 64


def greedy_search(
    step: Step[Cache], cache: Cache, settings: SearchSettings, *, block: int = 1
) -> list[list[Hypothesis]]:
    """One hypothesis for each of B sentences: the most probable token at every step, until EOS.

    Arguments are those of `beam_search`, with a cache of B slots. A sentence has no hypothesis if
    the constraints excluded all tokens.
    """
    return decode_independently(step, cache, settings, _most_probable, slots=1, block=block)


def decode_independently(
    step: Step[Cache],
    cache: Cache,
    settings: SearchSettings,
    choose: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]],
    *,
    slots: int,
    block: int = 1,
) -> list[list[Hypothesis]]:
    """Independent hypotheses: each continues with the token that is chosen for it.

    Args:
        choose: from (R, V) log-probabilities, the indices (R,) of their hypotheses among all B·W,
            and the number of tokens so far, to tokens and their log-probabilities, (R,) each.
        block: as in `beam_search`.

    Returns:
        Per sentence its hypotheses in the order of slots, without those that had no possible token.
    """
    limits = np.array(settings.max_lengths, dtype=np.int64)
    longest = int(limits.max(initial=0))
    constrainer = Constrainer(settings, slots)
    # Of all hypotheses: tokens, and their log-probabilities, -inf where none was possible.
    tokens_BWT = np.zeros((len(limits), slots, longest), dtype=np.int64)
    gains_BWT = np.full(tokens_BWT.shape, -np.inf)
    # The sentence of each row of the batch, and its hypotheses.
    active = np.arange(len(limits))
    limits_B = torch.as_tensor(limits, device=settings.device)
    live_BW = (limits_B > 0).unsqueeze(1).expand(-1, slots)
    newest_BW = torch.full_like(live_BW, settings.bos_id, dtype=torch.int64)
    rows = hypotheses = torch.arange(newest_BW.numel(), device=settings.device)
    done = 0
    while done < longest:
        start, steps = done, []
        while done < min(start + block, longest):
            if block == 1:
                rows = live_BW.flatten().nonzero().squeeze(1)
            next_RV = step(newest_BW.view(-1)[rows], rows, cache)
            constrainer.forbid(next_RV, rows, done)
            tokens_R, gains_R = choose(next_RV, hypotheses[rows], done)
            newest_BW = newest_BW.flatten().index_copy(0, rows, tokens_R).view_as(live_BW)
            gains_N = torch.full_like(newest_BW, -torch.inf, dtype=torch.float64).flatten()
            gains_BW = gains_N.index_copy_(0, rows, gains_R.double()).view_as(live_BW)
            gains_BW.masked_fill_(~live_BW, -torch.inf)
            steps += [newest_BW, gains_BW]
            live_BW = (gains_BW > -torch.inf) & (newest_BW != settings.eos_id)
            live_BW &= (limits_B > done + 1).unsqueeze(1)
            constrainer.advance(None, newest_BW, live_BW, done)
            done += 1
        live_B = live_BW.any(1)
        live, *arrays = to_host([live_B.long(), *steps])
        tokens_BWT[active, :, start:done] = np.stack(arrays[::2], -1)
        gains_BWT[active, :, start:done] = np.stack(arrays[1::2], -1)
        if not live.any():
            break
        if live.mean() <= 1 - DONE_PART:
            kept = indices_of(live_B, int(live.sum()))
            cache.select(kept)
            constrainer.select(kept)
            hypotheses = hypotheses.view(-1, slots)[kept].flatten()
            active, limits_B, newest_BW = active[live > 0], limits_B[kept], newest_BW[kept]
            live_BW, rows = live_BW[kept], rows[: newest_BW.numel()]
    return [
        [
            hypothesis
            for tokens, gains in zip(*of_sentence, strict=True)
            if (hypothesis := _hypothesis(tokens, gains[gains > -np.inf].tolist(), limit, settings))
        ]
        for limit, *of_sentence in zip(limits, tokens_BWT, gains_BWT, strict=True)
    ]


def _hypothesis(
    tokens: Array, gains: list[float], limit: int, settings: SearchSettings
) -> Hypothesis | None:
    """The hypothesis of these tokens as far as they have log-probabilities; None without an end."""
    ids = tokens[: len(gains)].tolist()
    finished = ids[-1:] == [settings.eos_id]
    if not ids or not (finished or len(ids) == limit):
        return None
    # In order: `sum` compensates for rounding in some versions of Python.
    log_prob = reduce(add, gains)
    score = log_prob / settings.penalty(len(ids))
    return Hypothesis(tuple(ids[: len(ids) - finished]), log_prob, score, finished, tuple(gains))


def _most_probable(log_probs_RV: Tensor, hypotheses_R: Tensor, done: int) -> tuple[Tensor, Tensor]:
    """The best token of each row and its log-probability; of equal ones the lowest id."""
    if log_probs_RV.device.type == "cpu":
        # PyTorch's function takes twenty times as long.
        tokens_R = torch.from_numpy(log_probs_RV.numpy().argmax(1))
        return tokens_R, log_probs_RV.gather(1, tokens_R.unsqueeze(1)).squeeze(1)
    gains_R, tokens_R = log_probs_RV.max(-1)
    return tokens_R, gains_R


def sample(
    step: Step[Cache],
    cache: Cache,
    settings: SearchSettings,
    sampling: Sampling,
    uniforms_BWT: Array,
) -> list[list[Hypothesis]]:
    """W independent samples of each of B sentences.

    A token is sampled by inverting the cumulative distribution, with tokens in the order of their
    ids, at its random number. With the numbers of `uniforms`, a hypothesis depends only on the
    seed, its line and its index among the samples, and not on the rest of the batch (if `step`
    does not).

    Args:
        cache: of B sentences with W slots each; it is never reordered.
        settings: the probability of a token that its constraints exclude goes to the others.
        uniforms_BWT: for each step of each sample a number in [0, 1); T is at least the largest
            of `max_lengths`.

    Returns:
        For each sentence W hypotheses, in sampling order and not by score; fewer if the
        constraints excluded all tokens for some of them. Equal ones are not merged.
        Log-probabilities and scores are those of the model, also with temperature, top-k or top-p.
    """
    B, W, T = uniforms_BWT.shape
    numbers = torch.as_tensor(uniforms_BWT.reshape(B * W, T), device=settings.device)

    def choose(log_probs_RV: Tensor, hypotheses_R: Tensor, done: int) -> tuple[Tensor, Tensor]:
        tokens_R = _draw_tokens(log_probs_RV, numbers[hypotheses_R, done], sampling)
        return tokens_R, log_probs_RV.gather(1, tokens_R.unsqueeze(1)).squeeze(1)

    return decode_independently(step, cache, settings, choose, slots=W)


def _draw_tokens(log_probs_RV: Tensor, uniforms_R: Tensor, sampling: Sampling) -> Tensor:
    """A token for each row, (R,), on the same device; probabilities need not sum to 1."""
    R, V = log_probs_RV.shape
    at_once = DRAWN_AT_ONCE_CPU if log_probs_RV.device.type == "cpu" else DRAWN_AT_ONCE_GPU
    tokens_R = torch.empty(R, dtype=torch.int64, device=log_probs_RV.device)
    rows = max(1, at_once // V)
    for start in range(0, R, rows):
        some = slice(start, start + rows)
        weights = _weights(log_probs_RV[some], sampling)
        sums = weights.cumsum(-1, dtype=torch.float64)
        falls_at = uniforms_R[some].unsqueeze(1) * sums[:, -1:]
        tokens_R[some] = torch.searchsorted(sums, falls_at, right=True).squeeze(1)
    # A row without any possible token has no sums.
    return tokens_R.clamp_(max=V - 1)


def _weights(log_probs_RV: Tensor, sampling: Sampling) -> Tensor:
    """Unnormalised sampling probabilities, (R, V); the largest is 1."""
    V = log_probs_RV.shape[1]
    weights = log_probs_RV - log_probs_RV.amax(-1, keepdim=True)
    weights.div_(sampling.temperature).exp_()
    if 0 < sampling.top_k < V:
        least = top_k(log_probs_RV, sampling.top_k)[0][:, -1:]
        count = torch.full_like(least, sampling.top_k, dtype=torch.int64)
        weights.masked_fill_(~_largest(log_probs_RV, count, least), 0)
    if sampling.top_p < 1:
        wanted = sampling.top_p * weights.sum(-1, keepdim=True, dtype=torch.float64)
        weights.masked_fill_(~_largest(weights, *_nucleus(weights, wanted, NUCLEUS)), 0)
    return weights


def _nucleus(weights_RV: Tensor, wanted_R1: Tensor, among: int) -> tuple[Tensor, Tensor]:
    """How many of the largest values sum to `wanted`, and the smallest of them, (R, 1)."""
    among = min(among, weights_RV.shape[1])
    largest = top_k(weights_RV, among)[0]
    sums = largest.cumsum(-1, dtype=torch.float64)
    # By rounding, even the sum of all can be less than `wanted`.
    count = ((sums < wanted_R1).sum(-1, keepdim=True) + 1).clamp_(max=among)
    least = largest.gather(1, count - 1)
    short = sums[:, -1] < wanted_R1[:, 0]
    if among < weights_RV.shape[1] and short.any():
        rest = _nucleus(weights_RV[short], wanted_R1[short], weights_RV.shape[1])
        count[short], least[short] = rest
    return count, least


def _largest(values_RV: Tensor, count_R1: Tensor, least_R1: Tensor) -> Tensor:
    """A mask of the `count` largest, down to `least`, (R, V); of equal ones the lowest ids."""
    reached = values_RV >= least_R1
    if (reached.sum(-1, keepdim=True) == count_R1).all():
        return reached
    above = values_RV > least_R1
    equal = reached & ~above
    room = count_R1 - above.sum(-1, keepdim=True)
    return above | (equal & (equal.cumsum(-1) <= room))
