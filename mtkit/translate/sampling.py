"""Drawing outputs from a scoring callable: sampling, with the usual filters.

As in `search`, nothing here knows of models or text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from mtkit.translate.search import (
    Array,
    Cache,
    Constraints,
    Hypothesis,
    PenaltyForm,
    Step,
    decode_independently,
    length_penalty,
    top_k,
)

# Probabilities to draw from are added up in float64, so many at a time: on a CPU as many as stay in
# its cache, on a GPU as many as are worth a call.
DRAWN_AT_ONCE_CPU, DRAWN_AT_ONCE_GPU = 2**18, 2**24
# The most probable tokens among which the end of the nucleus is looked for before all are sorted.
NUCLEUS = 64


@dataclass(frozen=True)
class Sampling:
    """What tokens are drawn from; in this order, each from what the one before leaves.

    Attributes:
        temperature: log-probabilities are divided by it; above 0. Below 1 it makes the probable
            more probable.
        top_k: only so many of the most probable tokens are drawn; 0 for all.
        top_p: only the fewest of the most probable tokens that have this much of the probability
            together, and always one; above 0, and 1 for all. Known as nucleus sampling (Holtzman
            et al. 2020).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


def uniforms(seed: int, lines: Sequence[int], *, n_samples: int, steps: int) -> Array:
    """Random numbers for `sample`, of which none depends on how many others are asked for.

    Philox (Salmon et al. 2011) is a function of a key, here the seed and the line, and of a
    counter, here the sample and the step.

    Args:
        seed: from 0, in 64 bits.
        lines: a number for each of B sentences, likewise.
        n_samples: W, drawn for each sentence.
        steps: T, the most tokens of a hypothesis.

    Returns:
        (B, W, T) in [0, 1), multiples of 2 ** -53.
    """
    bits = np.empty((len(lines), n_samples, steps), dtype=np.uint64)
    for of_line, line in zip(bits, lines, strict=True):
        philox = np.random.Philox(key=np.array([seed, line], dtype=np.uint64))
        for of_sample in of_line:
            of_sample[:] = philox.random_raw(steps)
            # Four numbers come with every count, and a sample has 2 ** 64 counts.
            philox.advance(2**64 - -(-steps // 4))
    return (bits >> np.uint64(11)) * 2.0**-53


def sample(
    step: Step[Cache],
    cache: Cache,
    *,
    max_lengths: Sequence[int],
    uniforms_BWT: Array,
    bos_id: int,
    eos_id: int,
    alpha: float,
    penalty_form: PenaltyForm = "gnmt",
    sampling: Sampling | None = None,
    constraints: Constraints | None = None,
    device: torch.device | None = None,
) -> list[list[Hypothesis]]:
    """Hypotheses of B sentences, W of each, every one drawn by itself.

    A token is where its random number falls when the probabilities, of all tokens that may come
    in order of their ids, are laid side by side. With the numbers of `uniforms`, a hypothesis
    depends on the seed, its line and its place among the samples, and on nothing else in the
    batch, as far as `step` does not.

    Args:
        step: from tokens, slots and cache to log-probabilities.
        cache: of B sentences with W slots each; it is never reordered.
        max_lengths: per sentence, the most tokens of an output, EOS counted.
        uniforms_BWT: for each step of each sample a number in [0, 1); T is the largest of
            `max_lengths` or more.
        bos_id: first token of every hypothesis.
        eos_id: the token that ends one.
        alpha: strength of the length penalty.
        penalty_form: of `length_penalty`.
        sampling: what is drawn from; by default the model's own distribution.
        constraints: on outputs; a token that they exclude leaves its probability to the others.
        device: where `step` works.

    Returns:
        For each sentence W hypotheses, in the order of its samples and not by score; fewer if
        constraints left some of them no token to go on with. Equal ones are not put together.
        Log-probabilities and scores are those of the model, whatever was drawn from.
    """
    sampling = sampling or Sampling()
    B, W, T = uniforms_BWT.shape
    numbers = uniforms_BWT.reshape(B * W, T)

    def choose(log_probs_RV: Tensor, own_R: Array, done: int) -> tuple[Array, Array]:
        falls_at = torch.as_tensor(numbers[own_R, done], device=device)
        tokens_R = _draw(log_probs_RV, falls_at, sampling)
        gains_R = log_probs_RV.gather(1, tokens_R.unsqueeze(1)).squeeze(1)
        return tokens_R.cpu().numpy(), gains_R.cpu().numpy()

    return decode_independently(
        step,
        cache,
        choose,
        max_lengths=max_lengths,
        slots=W,
        bos_id=bos_id,
        eos_id=eos_id,
        penalty=partial(length_penalty, alpha=alpha, form=penalty_form),
        constraints=constraints,
        device=device,
    )


def _draw(log_probs_RV: Tensor, uniforms_R: Tensor, sampling: Sampling) -> Tensor:
    """A token for each row, (R,), on the same device.

    Args:
        log_probs_RV: need not add up to a probability of 1.
        uniforms_R: in [0, 1), float64.
        sampling: what is drawn from.
    """
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
    # A row without any token that may come has no sums.
    return tokens_R.clamp_(max=V - 1)


def _weights(log_probs_RV: Tensor, sampling: Sampling) -> Tensor:
    """What the probabilities of draws are proportional to, (R, V); the largest is 1."""
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
    """How many of the largest of each row add up to `wanted`, and the smallest of these, (R, 1).

    They are looked for among so many largest first.
    """
    among = min(among, weights_RV.shape[1])
    largest = top_k(weights_RV, among)[0]
    sums = largest.cumsum(-1, dtype=torch.float64)
    # All together can have less than is wanted by rounding.
    count = ((sums < wanted_R1).sum(-1, keepdim=True) + 1).clamp_(max=among)
    least = largest.gather(1, count - 1)
    short = sums[:, -1] < wanted_R1[:, 0]
    if among < weights_RV.shape[1] and short.any():
        rest = _nucleus(weights_RV[short], wanted_R1[short], weights_RV.shape[1])
        count[short], least[short] = rest
    return count, least


def _largest(values_RV: Tensor, count_R1: Tensor, least_R1: Tensor) -> Tensor:
    """Where the `count` largest of each row are, (R, V); of equal ones those with the least ids.

    `least` is the smallest of them.
    """
    reached = values_RV >= least_R1
    if (reached.sum(-1, keepdim=True) == count_R1).all():
        return reached
    above = values_RV > least_R1
    equal = reached & ~above
    room = count_R1 - above.sum(-1, keepdim=True)
    return above | (equal & (equal.cumsum(-1) <= room))
