"""Dot products grow with the width of keys, and their softmax saturates (Section 3.2.1).

    python scaled_scores.py

Random queries meet 64 random keys whose numbers have mean 0 and variance 1, at several widths d_k.
Of scores q·k, and of scores divided by √d_k, it prints the variance, the mean entropy of their
softmax (at most ln 64 = 4.16, where attention looks everywhere alike), and the gradient: the norm
of the matrix of derivatives of the 64 weights by the 64 scores, of the median query. It is small
where all weights are nearly 1/64, largest between, and becomes 0 where one weight is nearly 1.
"""

from __future__ import annotations

import argparse
import math

import torch

QUERIES, KEYS = 1024, 64


def row(width: int) -> str:
    """The line of the table for one width of keys."""
    generator = torch.Generator().manual_seed(width)
    q = torch.randn(QUERIES, 1, width, generator=generator)
    k = torch.randn(QUERIES // 64, KEYS, width, generator=generator)
    products = (q.view(-1, 64, width) @ k.transpose(1, 2)).flatten(0, 1)  # (QUERIES, KEYS)
    cells = [str(width)]
    for scale in (1.0, 1 / math.sqrt(width)):
        scores = (scale * products).double()
        weights = scores.softmax(-1)
        entropy = torch.special.entr(weights).sum(-1)
        # The derivative of weight i by score j is w_i·(δ_ij - w_j).
        derivative = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
        norm = derivative.flatten(1).norm(dim=1)
        cells += [f"{scores.var():.2f}", f"{entropy.mean():.2f}", f"{norm.median():.4f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    names = ["variance", "entropy", "gradient"]
    columns = ["d_k", *(f"{of} {name}" for of in ("q·k:", "q·k/√d_k:") for name in names)]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for width in (8, 16, 32, 64, 128, 256, 512):
        print(row(width))


if __name__ == "__main__":
    main()
