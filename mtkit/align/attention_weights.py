"""The attention weights of a Transformer, for given sources and translations.

Training and search compute attention without storing its weights. Here a model runs once over whole
pairs, and the layers that are asked for compute their weights as well.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mtkit.model import Attention, Keep, Transformer


@dataclass(frozen=True)
class LayerWeights:
    """The attention of one layer.

    Attributes:
        weights: (B, H, queries, keys), of float32 at least.
        sizes: (B, H, queries), the Euclidean norm of what each head adds to the output of the
            attention; None if it was not wanted. Weights alone do not say how much a head matters,
            because the values that they are for may be small (Kobayashi et al. 2020,
            https://aclanthology.org/2020.emnlp-main.574).
    """

    weights: Tensor
    sizes: Tensor | None


@dataclass(frozen=True)
class AttentionWeights:
    """Attention by the number of the layer, from 0.

    Attributes:
        encoder: self-attention of the encoder, S queries and S keys.
        decoder: masked self-attention of the decoder, T queries and T keys.
        cross: attention of the decoder to the encoder's output, T queries and S keys.
    """

    encoder: dict[int, LayerWeights] = field(default_factory=dict)
    decoder: dict[int, LayerWeights] = field(default_factory=dict)
    cross: dict[int, LayerWeights] = field(default_factory=dict)


@torch.no_grad()
def weights_of_pairs(
    model: Transformer,
    src: Tensor,
    tgt_in: Tensor,
    *,
    encoder: Collection[int] = (),
    decoder: Collection[int] = (),
    cross: Collection[int] = (),
    sizes: bool = False,
) -> AttentionWeights:
    """Run a model over pairs, and return the attention weights of some of its layers.

    Args:
        model: in evaluation mode.
        src: (B, S), each sentence ended by EOS, then padding.
        tgt_in: (B, T), each sentence begun by BOS, then padding.
        encoder, decoder, cross: numbers of layers, from 0. The decoder runs to the last of them.
        sizes: whether to compute the sizes of heads.

    Returns:
        The weights of these layers. Rows at padding are meaningless.
    """
    found = AttentionWeights()

    def layer_weights(attention: Attention, weights: Tensor, values: Tensor) -> LayerWeights:
        return LayerWeights(weights, _sizes(attention, weights, values) if sizes else None)

    def of_encoder(number: int) -> Keep | None:
        def keep(kind: str, weights: Tensor, values: Tensor) -> None:
            attention = model.encoder_layers()[number].self_attention
            found.encoder[number] = layer_weights(attention, weights, values)

        return keep if number in encoder else None

    def of_decoder(number: int) -> Keep | None:
        def keep(kind: str, weights: Tensor, values: Tensor) -> None:
            layer = model.decoder_layers()[number]
            if kind == "self" and number in decoder:
                found.decoder[number] = layer_weights(layer.self_attention, weights, values)
            if kind == "cross" and number in cross:
                found.cross[number] = layer_weights(layer.cross_attention, weights, values)

        return keep if number in decoder or number in cross else None

    visible = (src != model.pad_id)[:, None, None, :]
    x = model.embed_src(src)
    for number, layer in enumerate(model.encoder_layers()):
        x = layer(x, visible, keep=of_encoder(number))
    memory = model.encoder_norm(x)
    x = model.embed_tgt(tgt_in)
    last = max([*decoder, *cross], default=-1)
    for number, decoder_layer in enumerate(model.decoder_layers()[: last + 1]):
        x = decoder_layer(x, memory, visible, keep=of_decoder(number))
    return found


def _sizes(attention: Attention, weights: Tensor, values: Tensor) -> Tensor:
    """The norm of what each head adds, (B, H, queries)."""
    summed = weights.to(values) @ values
    B, H, T, width = summed.shape
    # The output projection of one head at a time, the others being zero. Its matrix is not used
    # directly, because translation packs it.
    alone = summed.new_zeros(H, B, T, H, width)
    for head in range(H):
        alone[head, :, :, head] = summed[:, head]
    added = attention.out_proj(alone.view(H * B, T, H * width))
    bias = attention.out_proj(summed.new_zeros(1, 1, H * width))
    norms: Tensor = (added - bias).norm(dim=-1)
    return norms.view(H, B, T).transpose(0, 1)
