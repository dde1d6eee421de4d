"""Beam search as plainly as it can be written: one sentence, no cache, nothing left out early."""

from collections.abc import Callable

import torch
from torch import Tensor

from mtkit.tokenizer import BOS_ID, EOS_ID

Found = tuple[float, tuple[int, ...]]


@torch.inference_mode()
def plain_search(
    model: Callable[[Tensor, Tensor], Tensor],
    src: list[int],
    *,
    beam_size: int,
    alpha: float,
    limit: int,
) -> Found:
    """Score and tokens of the best hypothesis for `src`, which ends with EOS.

    `model` is a `Transformer`, or whatever else gives logits (B, T, V) for sources and prefixes.

    Every step runs the whole model over the whole prefix of every hypothesis, and there are
    `limit` steps, whatever has been found by then.
    """
    alive: list[Found] = [(0.0, (BOS_ID,))]
    finished: list[Found] = []
    considered = 2 * beam_size if beam_size > 1 else 1
    for length in range(1, limit + 1):
        prefixes = torch.tensor([tokens for _, tokens in alive])
        source = torch.tensor([src]).expand(len(alive), -1)
        log_probs = model(source, prefixes)[:, -1].double().log_softmax(-1)
        totals = torch.tensor([score for score, _ in alive]).double().unsqueeze(1) + log_probs
        best = totals.flatten().topk(considered)
        candidates = [
            (score, (*alive[index // totals.shape[1]][1], index % totals.shape[1]))
            for score, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]
        penalty = ((5 + length) / 6) ** alpha
        finished += [
            (score / penalty, tokens[1:-1]) for score, tokens in candidates if tokens[-1] == EOS_ID
        ]
        going_on = [candidate for candidate in candidates if candidate[1][-1] != EOS_ID][:beam_size]
        if not going_on:
            break
        alive = going_on
    if finished:
        return max(finished, key=lambda candidate: candidate[0])
    score, tokens = alive[0]
    return score / ((5 + limit) / 6) ** alpha, tokens[1:]
