"""Narrow self-attention: each head projects its own part of the vector, by small matrices.

It is not the paper's, whose heads all see the whole vector. The name is that of Peter Bloem,
*Transformers from scratch* (2019), https://peterbloem.nl/blog/transformers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class NarrowLinear(nn.Linear):
    """Queries, keys and values of H heads, each from its own block of D/H numbers.

    The weight is (3·D, D/H). Its rows are those of the paper's matrix (3·D, D), and each has the
    columns of the block of its head; `weights.full_matrix` has zeros in the others.
    """

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__(d_model // heads, 3 * d_model)
        self.heads = heads
        # For Glorot's bound of the matrix of one head, (3·D/H, D/H), instead of all of them.
        self.gain = math.sqrt((1 + 3 * heads) / 4)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., 3·D)."""
        weight = self.weight.view(3, self.heads, -1, self.in_features)
        blocks = x.reshape(*x.shape[:-1], self.heads, -1)
        projected = torch.einsum("...hi,phki->...phk", blocks, weight).flatten(-3)
        return projected + self.bias.to(projected.dtype)  # bfloat16 under autocast, as `linear`
