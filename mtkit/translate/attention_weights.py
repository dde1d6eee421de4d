"""The attention weights of a Transformer, for given sources and translations.

Training and search compute attention without storing its weights. Here a model runs once over whole
pairs, and the layers that are asked for compute their weights as well.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mtkit.model import Keep, Transformer


@dataclass(frozen=True)
class AttentionWeights:
    """Weights by the number of the layer, from 0; (B, H, queries, keys), of float32 at least.

    Attributes:
        encoder: self-attention of the encoder, (B, H, S, S).
        decoder: masked self-attention of the decoder, (B, H, T, T).
        cross: attention of the decoder to the encoder's output, (B, H, T, S).
    """

    encoder: dict[int, Tensor] = field(default_factory=dict)
    decoder: dict[int, Tensor] = field(default_factory=dict)
    cross: dict[int, Tensor] = field(default_factory=dict)


@torch.no_grad()
def weights_of_pairs(
    model: Transformer,
    src: Tensor,
    tgt_in: Tensor,
    *,
    encoder: Collection[int] = (),
    decoder: Collection[int] = (),
    cross: Collection[int] = (),
) -> AttentionWeights:
    """Run a model over pairs, and return the attention weights of some of its layers.

    Args:
        model: in evaluation mode.
        src: (B, S), each sentence ended by EOS, then padding.
        tgt_in: (B, T), each sentence begun by BOS, then padding.
        encoder, decoder, cross: numbers of layers, from 0. The decoder runs to the last of them.

    Returns:
        The weights of these layers. Rows at padding are meaningless.
    """
    found = AttentionWeights()

    def of_encoder(number: int) -> Keep | None:
        def keep(kind: str, weights: Tensor) -> None:
            found.encoder[number] = weights

        return keep if number in encoder else None

    def of_decoder(number: int) -> Keep | None:
        def keep(kind: str, weights: Tensor) -> None:
            if kind == "self" and number in decoder:
                found.decoder[number] = weights
            if kind == "cross" and number in cross:
                found.cross[number] = weights

        return keep if number in decoder or number in cross else None

    visible = (src != model.pad_id)[:, None, None, :]
    x = model.embed_src(src)
    for number, layer in enumerate(model.encoder):
        x = layer(x, visible, keep=of_encoder(number))
    memory = model.encoder_norm(x)
    x = model.embed_tgt(tgt_in)
    last = max([*decoder, *cross], default=-1)
    for number, layer in enumerate(model.decoder_layers()[: last + 1]):
        x = layer(x, memory, visible, keep=of_decoder(number))
    return found
