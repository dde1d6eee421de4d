"""Decoding of hypotheses that do not compete, as in greedy search and in sampling.

Like `beam`, this module does not depend on models or text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add

import numpy as np
import torch
from torch import Tensor

from mtkit.search_settings import Array, Hypothesis, SearchSettings
from mtkit.translate.search.beam import DONE_PART, Cache, Step
from mtkit.translate.search.constrainer import Constrainer
from mtkit.translate.search.on_device import indices_of, to_host


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
