"""The label-smoothed loss (Section 5.4): the formula.

Training calls `kernels.cpu_loss`, or `kernels.gpu_loss` on a GPU, which have the same loss with a
faster gradient; tests compare them. Change all three together.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from mtkit.kernels.cpu_loss import possible_tokens, widened


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
    logits, targets = widened(logits.flatten(0, -2)), tgt_out.flatten()
    real, correction = targets != pad_id, logits.new_zeros(())
    possible = None if bias is None else possible_tokens(bias)
    V = logits.shape[-1] if possible is None else int(possible.sum())
    # PyTorch gives each of the V tokens the same share of its ε, the true one too.
    share = label_smoothing * V / (V - 1)
    if possible is not None:
        # PyTorch needs a possible target: token 0 stands for an impossible one.
        replaced = (real & ~possible[targets]).nonzero().squeeze(-1)
        true = logits[replaced, targets[replaced]]
        # Possible tokens are numbered from 0.
        logits, targets = logits[:, possible], ((possible.cumsum(0) - 1) * possible)[targets]
        correction = (1.0 - share) * (logits[replaced, 0] - true).sum()
    # PyTorch ignores the target -100.
    targets = targets.where(real, -100)
    loss = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=share)
    return loss + correction
