"""Counts the floating-point operations of training, from the model and the sentences.

The paper's Table 2 compares systems by this number, and estimates it as time times the hardware's
sustained rate (footnote 5). Here the matrix products of the model are counted: two operations for
every weight that a token is multiplied with, and for every pair of positions that attend to each
other; three times that for training, because the backward pass has two products for each one of
the forward pass. As usual, norms, softmax, embeddings, the optimizer and padding are not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mtkit.config import Config, ModelConfig

Lengths = Sequence[int] | npt.NDArray[Any]


def training_flops(
    config: ModelConfig, vocab_size: int, src_lengths: Lengths, tgt_lengths: Lengths
) -> float:
    """Floating-point operations to train once on sentence pairs of these lengths (EOS counted).

    `vocab_size` is that of the target; looking up the source embeddings costs nothing.
    """
    D, heads = config.d_model, config.n_heads
    keys, values = heads * config.key_width, heads * config.value_width
    S = np.asarray(src_lengths, dtype=np.float64)
    T = np.asarray(tgt_lengths, dtype=np.float64)
    # The weights that a token is multiplied with.
    seen = D // heads if config.narrow_attention else D
    self_attention = seen * (2 * keys + values) + values * D
    from_target, from_source = D * keys + values * D, D * (keys + values)
    feed_forward = 2 * D * config.d_ff
    encoder, decoder = config.encoder_layers, config.decoder_layers
    weights = (
        encoder * S * (self_attention + feed_forward)
        + decoder * T * (self_attention + from_target + feed_forward)
        + decoder * S * from_source
        + T * D * vocab_size
    )
    # A pair of positions needs a product of a query with a key, and of a weight with a value.
    pairs = (
        encoder * _pairs(S, config.attention_window, causal=False)
        + decoder * _pairs(T, config.attention_window, causal=True)
        + decoder * S * T
    )
    return 3 * float(2 * (weights + pairs * (keys + values)).sum())


def _pairs(
    length: npt.NDArray[np.float64], window: int | None, *, causal: bool
) -> npt.NDArray[np.float64]:
    """Pairs of positions that may attend to each other in sequences of these lengths."""
    hidden = np.zeros_like(length)
    if window is not None:
        beyond = np.maximum(length - window, 1.0)
        hidden = beyond * (beyond - 1)
    pairs: npt.NDArray[np.float64] = length**2 - hidden
    # Half of the positions off the diagonal, and the diagonal.
    return (pairs + length) / 2 if causal else pairs


def cost_in_words(flops: float, seconds: float | None, config: Config) -> str:
    """The counted operations, and the paper's estimate if it can be made."""
    text = f"{flops:.2e} floating-point operations by the model and its tokens"
    if seconds is None:
        return text
    text += f" ({flops / max(seconds, 1e-9):.1e} a second)"
    if (sustained := config.train.sustained_flops) is not None:
        text += (
            f"; {seconds * sustained:.2e} as the paper estimates it, "
            f"time times {sustained:.2g} a second"
        )
    return text
