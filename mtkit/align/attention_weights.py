"""The attention weights of a Transformer, for given sources and translations.

Training and search compute attention without storing its weights. Here a model runs once over whole
pairs, and the layers that are asked for compute their weights as well.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

import torch
from torch import Tensor

from mtkit.align.aligner import AlignmentHead, FloatArray, PairAttention
from mtkit.attention import attention_weights, band
from mtkit.batches import pad_ids
from mtkit.model import Attention, CrossAttention, SelfAttention, Transformer
from mtkit.tokenizer import BOS_ID


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
    """Attention of encoder, decoder (masked) and decoder to source, by the layer, from 0."""

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

    Rows at padding are meaningless.

    Args:
        model: in evaluation mode.
        src: (B, S), each sentence ended by EOS, then padding.
        tgt_in: (B, T), each sentence begun by BOS, then padding.
        encoder, decoder, cross: numbers of layers, from 0. The decoder runs to the last of them.
        sizes: whether to compute the sizes of heads.
    """
    recorded, thread = AttentionWeights(), get_ident()
    with ExitStack() as hooks:

        def observe(attention: Attention, into: dict[int, LayerWeights], number: int) -> None:
            def hook(_: object, args: Any, kwargs: Any) -> None:
                # Other threads may run the same model.
                if get_ident() == thread:
                    weights, values = weights_and_values(attention, *args, **kwargs)
                    norms = _sizes(attention, weights, values) if sizes else None
                    into[number] = LayerWeights(weights, norms)

            handle = attention.register_forward_pre_hook(hook, with_kwargs=True)
            hooks.callback(handle.remove)

        decoder_layers = model.decoder_layers()
        for number in encoder:
            observe(model.encoder_layers()[number].self_attention, recorded.encoder, number)
        for number in decoder:
            observe(decoder_layers[number].self_attention, recorded.decoder, number)
        for number in cross:
            observe(decoder_layers[number].cross_attention, recorded.cross, number)
        memory = model.encode(src)
        x = model.embed_tgt(tgt_in)
        for layer in decoder_layers[: max([*decoder, *cross], default=-1) + 1]:
            x = layer(x, memory.states, memory.mask)
    return recorded


class TorchAttention(PairAttention):
    """The attention of models of PyTorch, on their device, in evaluation mode."""

    def __init__(
        self, models: Sequence[Transformer], heads: Sequence[Sequence[AlignmentHead]]
    ) -> None:
        super().__init__([model.config for model in models], heads)
        self._models = list(zip(models, heads, strict=True))
        self._device = next(models[0].parameters()).device
        self.device_type = self._device.type

    def mean(self, src: list[list[int]], tgt: list[list[int]]) -> Sequence[FloatArray]:
        """As `PairAttention.mean`."""
        summed = functools.reduce(torch.add, self._weights(src, tgt))
        return [*(summed / len(self.heads)).cpu().numpy()]

    def by_head(self, src: list[list[int]], tgt: list[list[int]]) -> Iterator[Sequence[FloatArray]]:
        """As `PairAttention.by_head`."""
        return ([*weights.cpu().numpy()] for weights in self._weights(src, tgt))

    def _weights(self, src: list[list[int]], tgt: list[list[int]]) -> Iterator[Tensor]:
        """For each head (B, T, S): the attention of the target subwords of a batch."""
        src_ids = pad_ids(src).to(self._device)
        tgt_in = pad_ids([[BOS_ID, *ids] for ids in tgt]).to(self._device)
        for model, heads in self._models:
            layers = {head.layer - 1 for head in heads}
            cross = weights_of_pairs(model, src_ids, tgt_in, cross=layers).cross
            for head in heads:
                weights = cross[head.layer - 1].weights[:, head.head - 1]
                # Row t of the decoder's input has target subword t - 1, and predicts t.
                yield weights[:, 1:] if head.step == "input" else weights[:, :-1]


def weights_and_values(
    attention: Attention, x: Tensor, *args: Any, **kwargs: Any
) -> tuple[Tensor, Tensor]:
    """The weights (B, H, queries, keys) of an attention, and its values (B, H, keys, Kv).

    The arguments are those of `SelfAttention.forward` or `CrossAttention.forward`. Weights are zero
    outside of the window of restricted attention, and rows sum to 1; a row of padding may be zeros.
    """
    if isinstance(attention, CrossAttention):
        (keys, values), mask = args
        return attention_weights(attention.queries(attention.q_proj(x)), keys, mask), values
    assert isinstance(attention, SelfAttention)
    mask, causal = kwargs.get("mask"), kwargs.get("causal", False)
    q, k, v = attention.project(x)
    T = x.shape[1]
    before = T if attention.window is None else attention.window
    near = band(T, T, first=0, before=before, after=0 if causal else before, device=x.device)
    return attention_weights(q, k, near if mask is None else near & mask), v


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
