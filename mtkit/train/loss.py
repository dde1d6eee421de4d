"""The label-smoothed loss (Section 5.4): the formula.

Training calls `kernels.loss`, or `kernels.gpu_loss` on a GPU, which have the same loss with a
faster gradient; tests compare them. A change belongs into all three.
"""

from __future__ import annotations

from torch import Tensor

from mtkit.kernels.loss import possible_tokens, widened


def label_smoothed_loss(
    logits: Tensor,
    tgt_out: Tensor,
    *,
    label_smoothing: float,
    pad_id: int,
    bias: Tensor | None = None,
) -> Tensor:
    """Cross-entropy against smoothed targets (Section 5.4), as in the paper's code: -Σ q·log p.

    The true token has the target probability q = 1 - ε, and each of the V - 1 others ε/(V - 1).
    (PyTorch's own `label_smoothing` gives the true token a share of ε as well.)

    Args:
        logits: (..., V), with the output bias.
        tgt_out: (...), the true tokens: the input of the decoder, shifted left by one.
        label_smoothing: ε.
        pad_id: targets that do not count.
        bias: (V,), of the output layer, if it has one. It says which tokens are possible: with a
            bias far below zero, such as that of padding, a token is never produced, and gets no
            share of ε.

    Returns:
        The summed loss in natural logarithms.
    """
    logits, targets = logits.flatten(0, -2), tgt_out.flatten()
    real = targets != pad_id
    possible = None if bias is None else possible_tokens(bias)
    # At least float32, for the sums.
    logits = widened(logits)
    V = logits.shape[-1] if possible is None else int(possible.sum())
    low, high = label_smoothing / (V - 1), 1.0 - label_smoothing
    # log p = logit - normaliser, and the sum of all q is 1.
    normaliser = logits.logsumexp(-1)
    true = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    others = (logits if possible is None else logits.where(possible, 0.0)).sum(-1)
    loss = normaliser - (high - low) * true - low * others
    return (loss * real).sum()
