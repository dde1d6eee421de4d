"""The label-smoothed loss (Section 5.4): the formula.

Training calls `kernels.cpu_loss`, or `kernels.gpu_loss` on a GPU, which have the same loss with a
faster gradient; tests compare them. Change all three together.
"""

from __future__ import annotations

from torch import Tensor

from mtkit.kernels.cpu_loss import possible_tokens, smoothed_targets, widened


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
    # At least float32, for the sums.
    log_probs, real = widened(logits).log_softmax(-1), tgt_out != pad_id
    possible = None if bias is None else possible_tokens(bias)
    low, extra = smoothed_targets(label_smoothing, logits.shape[-1], possible)
    true = log_probs.gather(-1, tgt_out.unsqueeze(-1)).squeeze(-1)
    all_possible = log_probs if possible is None else log_probs.where(possible, 0.0)
    losses = -(extra * true + low * all_possible.sum(-1))
    return losses.where(real, 0.0).sum()
