"""Narrow and wide self-attention, and the paper's form between them: the weights of a layer.

    python narrow_and_wide.py

D is the width of the model and h the number of heads. In the narrow form each head has small
matrices for its own D/h numbers of a vector; in the paper's form it projects the whole vector to
D/h numbers, and in the wide form to D numbers. The weights are counted without biases.
"""

from __future__ import annotations

import argparse

import torch

from mtkit.config import ModelConfig
from mtkit.model import SelfAttention

# Of each form, the weights of queries, keys and values, and those of the output.
FORMULAS = {
    "narrow": ("3·D²/h", lambda D, h: 3 * D**2 // h, "D²", lambda D, h: D**2),
    "paper": ("3·D²", lambda D, h: 3 * D**2, "D²", lambda D, h: D**2),
    "wide": ("3·h·D²", lambda D, h: 3 * h * D**2, "h·D²", lambda D, h: h * D**2),
}
SIZES = [(128, 4), (256, 4), (512, 8)]


def layer(form: str, d_model: int, heads: int) -> SelfAttention:
    """The self-attention of a model of this form."""
    settings = {
        "narrow": {"narrow_attention": True},
        "paper": {},
        "wide": {"d_k": d_model, "d_v": d_model},
    }
    with torch.device("meta"):
        return SelfAttention(ModelConfig(d_model=d_model, n_heads=heads, **settings[form]))


def main() -> None:
    """Print formulas and counts."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    print("| form | D | h | queries, keys and values | counted | output | counted |")
    print("|---|---|---|---|---|---|---|")
    for form, (text, of_input, output_text, of_output) in FORMULAS.items():
        for d_model, heads in SIZES:
            attention = layer(form, d_model, heads)
            counts = attention.in_proj.weight.numel(), attention.out_proj.weight.numel()
            right = (of_input(d_model, heads), of_output(d_model, heads))
            cells = [
                f"{formula} = {number:,} | {count:,}"
                for formula, number, count in zip((text, output_text), right, counts, strict=True)
            ]
            print(f"| {form} | {d_model} | {heads} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
