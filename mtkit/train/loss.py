"""The learning rate schedule (Section 5.3) and the label-smoothed loss (Section 5.4).

Pure functions of numbers and tensors, with explicit gradients; `trainer` calls them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Rows of logits that are computed at a time: enough for the matrix units, few enough for a cache.
# bfloat16 has faster units, and takes half of the room.
CHUNK = 256


def learning_rate(
    step: int, d_model: int, warmup_steps: int, *, max_steps: int = 0, decay_steps: int = 0
) -> float:
    """The rate of update `step`, counted from 1 (Section 5.3, equation 3).

    With `decay_steps`, which the paper does not have, the rate falls linearly over the last
    `decay_steps` updates, or over all `max_steps` if those are fewer: the first of them still has
    the rate of the formula, and the update after the last one would have zero.
    """
    rate = float(d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))
    if not decay_steps:
        return rate
    return rate * min(1.0, (max_steps - step + 1) / min(decay_steps, max_steps))


def first_decayed(max_steps: int, decay_steps: int) -> int | None:
    """The first update whose rate is below the formula's; None without a decay."""
    return max_steps - min(decay_steps, max_steps) + 2 if decay_steps else None


def peak(
    last: int, d_model: int, warmup_steps: int, *, max_steps: int, decay_steps: int
) -> tuple[int, float]:
    """The update with the highest rate among the first `last` ones, and that rate."""
    # The rate rises in the warm-up and falls after it. If the decay begins within the warm-up, it
    # is the product of a rising and a falling line, highest midway between their zeros.
    turns = [warmup_steps, max_steps // 2, max_steps // 2 + 1]
    if (decayed := first_decayed(max_steps, decay_steps)) is not None:
        turns.append(decayed - 1)
    steps = sorted({max(1, min(step, last)) for step in (*turns, last)})
    rates = [
        learning_rate(step, d_model, warmup_steps, max_steps=max_steps, decay_steps=decay_steps)
        for step in steps
    ]
    return steps[rates.index(max(rates))], max(rates)


def label_smoothed_loss(
    logits: Tensor, tgt_out: Tensor, *, label_smoothing: float, pad_id: int
) -> tuple[Tensor, Tensor]:
    """Cross-entropy against smoothed targets (Section 5.4), as in the paper's code.

    The true token has probability 1 - ε, and ε is spread over the V - 1 others. (PyTorch's own
    `label_smoothing` gives the true token a share of ε as well.)

    Args:
        logits: (..., V).
        tgt_out: (...), the true tokens.
        label_smoothing: ε.
        pad_id: targets that do not count.

    Returns:
        The summed loss in natural logarithms, and the number of tokens it is summed over.
    """
    loss: Tensor = _SmoothedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        logits.flatten(0, -2), tgt_out.flatten(), label_smoothing, pad_id
    )
    return loss, (tgt_out != pad_id).sum()


class _SmoothedCrossEntropy(torch.autograd.Function):
    """The summed loss with its gradient, softmax minus smoothed target, in one buffer.

    Explicit, because the (N, V) arrays are the largest of a step, and a composition of PyTorch's
    functions reads them nine times.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, label_smoothing: float, pad_id: int
    ) -> Tensor:
        # Every token has the probability `low`; the true one has `extra` added.
        low = label_smoothing / (logits.shape[-1] - 1)
        extra = 1.0 - label_smoothing - low
        real = targets != pad_id
        wide = _widened(logits)
        normaliser = wide.logsumexp(-1)
        truth = wide.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        # -Σ q·log p, with log p = logit - normaliser and Σ q = 1.
        loss = normaliser - extra * truth - low * wide.sum(-1)
        ctx.save_for_backward(logits, normaliser, targets, real)
        ctx.low, ctx.extra = low, extra
        return (loss * real).sum()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None, None]:
        logits, normaliser, targets, real = ctx.saved_tensors
        gradient = (_widened(logits) - normaliser.unsqueeze(-1)).exp_().sub_(ctx.low)
        truth = targets.unsqueeze(-1)
        gradient.scatter_add_(-1, truth, gradient.new_full((1, 1), -ctx.extra).expand_as(truth))
        gradient.mul_((real * grad_outputs[0]).unsqueeze(-1))
        return gradient.to(logits.dtype), None, None, None


def loss_of_states(
    states: Tensor,
    weight: Tensor,
    tgt_out: Tensor,
    *,
    label_smoothing: float,
    pad_id: int,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The sum of `label_smoothed_loss`, from the input of the output layer.

    The full (N, V) logits are never stored: some rows at a time are computed, turned into their
    gradient, and multiplied back, while they are in a cache; padding is skipped. On a CPU this is
    faster, and needs a fraction of the memory.

    Args:
        states: (..., D), the decoder's output.
        weight: (V, D), of the output layer.
        tgt_out: (...), the true tokens.
        label_smoothing: ε.
        pad_id: targets that do not count.
        dtype: of the matrix products; by default that of the weight, in which all sums stay.
    """
    targets = tgt_out.flatten()
    real = (targets != pad_id).nonzero().squeeze(-1)
    rows = states.flatten(0, -2).index_select(0, real)
    loss: Tensor = _OutputLoss.apply(  # type: ignore[no-untyped-call]
        rows, weight, targets.index_select(0, real), label_smoothing, dtype or weight.dtype
    )
    return loss


class _OutputLoss(torch.autograd.Function):
    """Output layer and smoothed cross-entropy with their gradients, some rows at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        weight: Tensor,
        targets: Tensor,
        label_smoothing: float,
        dtype: torch.dtype,
    ) -> Tensor:
        V = len(weight)
        low = label_smoothing / (V - 1)
        extra = 1.0 - label_smoothing - low
        wide = weight.dtype
        rows_gradient = torch.empty(rows.shape, dtype=wide)
        weight_gradient = torch.zeros_like(weight)
        total = weight.new_zeros(())
        # The types are chosen here.
        with torch.autocast(rows.device.type, enabled=False):
            rows, weight = rows.to(dtype), weight.to(dtype)
            chunk = CHUNK if dtype == wide else 2 * CHUNK
            buffer = rows.new_empty(min(chunk, len(rows)), V)
            for start in range(0, len(rows), chunk):
                x = rows[start : start + chunk]
                truth = targets[start : start + chunk].unsqueeze(-1)
                logits = torch.mm(x, weight.t(), out=buffer[: len(x)]).to(wide)
                highest = logits.amax(-1, keepdim=True)
                total -= extra * logits.gather(-1, truth).sum() + low * logits.sum()
                powers = logits.sub_(highest).exp_()
                normaliser = powers.sum(-1, keepdim=True)
                total += (normaliser.log() + highest).sum()
                # Softmax minus smoothed target.
                gradient = powers.div_(normaliser).sub_(low)
                gradient.scatter_add_(-1, truth, gradient.new_full((1, 1), -extra).expand_as(truth))
                if dtype == wide:
                    torch.mm(gradient, weight, out=rows_gradient[start : start + chunk])
                    weight_gradient.addmm_(gradient.t(), x)
                else:
                    narrow = gradient.to(dtype)
                    rows_gradient[start : start + chunk] = torch.mm(narrow, weight)
                    weight_gradient += torch.mm(narrow.t(), x)
        ctx.save_for_backward(rows_gradient, weight_gradient)
        return total

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        rows_gradient, weight_gradient = ctx.saved_tensors
        factor = grad_outputs[0]
        return rows_gradient * factor, weight_gradient * factor, None, None, None


def _widened(logits: Tensor) -> Tensor:
    """Logits in at least float32, for sums over the vocabulary."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
