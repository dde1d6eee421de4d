"""The Transformer of *Attention Is All You Need* (2017), from embeddings to logits.

This module owns the forward pass. Decoding a token at a time is in `translate.pytorch.incremental`,
the search in `translate.search.beam`, and the loss in `train.loss`. It reads from leaf to root, and
follows Section 3 of the paper:

    positions            3.5    `sinusoidal_positions`
    linear maps                 `Linear`
    attention            3.2    `SelfAttention`, `CrossAttention`; computed in attention.py
    feed-forward         3.3    `FeedForward`
    residual and norm    3.1    `Residual`
    layers and stacks    3.1    `EncoderLayer`, `DecoderLayer`
    the model            3, 3.4 `Transformer`

Letters in shapes and tensor names: B sentences, S source length, T target length, D model width,
H heads, K width of their keys, Kv of their values, F feed-forward width, V vocabulary, W beam
width. Ids are int64. A boolean mask is True where attention may look.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtkit.attention import attention, local_attention
from mtkit.base.errors import MtkitError
from mtkit.config import ModelConfig
from mtkit.kernels import bf16
from mtkit.kernels.cpu_loss import output_layer
from mtkit.kernels.dropout import Dropout
from mtkit.narrow import NarrowLinear
from mtkit.packing import UNPACKED, Blocks, Mask, Packing


def sinusoidal_positions(length: int, d_model: int) -> Tensor:
    """Position encodings as Section 3.5 writes them, sines and cosines interleaved.

    Returns:
        (length, D): ``[pos, 2i] = sin(pos / 10000^(2i/D))``, ``[pos, 2i+1] = cos(...)``.
    """
    # In float64, because float32 is already off in the fourth digit at position 10,000.
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    exponent = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    angle = position / 10000.0**exponent
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)


class Linear(nn.Linear):
    """PyTorch's linear layer; in bfloat16 on a CPU a faster form of the same."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return bf16.linear(x, self.weight, self.bias)


class Attention(nn.Module):
    """Multi-head attention (Section 3.2.2).

    Where queries, keys and values come from is what the two kinds below add.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        self.query_factor = config.query_factor
        self.q_width = config.n_heads * config.key_width
        self.v_width = config.n_heads * config.value_width
        self.dropout = config.attention_dropout
        self.out_proj = Linear(self.v_width, config.d_model)

    def join_heads(self, heads: Tensor) -> Tensor:
        """The results of all heads (B, H, T, Kv), joined and projected: (B, T, D)."""
        joined: Tensor = self.out_proj(heads.transpose(1, 2).flatten(2))
        return joined

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, T, H·K) to (B, H, T, K)."""
        return x.view(*x.shape[:2], self.n_heads, -1).transpose(1, 2)

    def queries(self, x: Tensor) -> Tensor:
        """(B, T, H·K) to (B, H, T, K), with the factor for `attention_scale`."""
        q = self.split_heads(x)
        return q if self.query_factor == 1.0 else q * self.query_factor


class SelfAttention(Attention):
    """Attention of a sequence to itself, restricted to neighbours if the model is.

    The projections of queries, keys and values are one matrix of H·(K + K + Kv) rows.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.window = config.attention_window
        self.in_proj: nn.Linear
        if config.narrow_attention:
            self.in_proj = NarrowLinear(config.d_model, config.n_heads)
        else:
            self.in_proj = Linear(config.d_model, 2 * self.q_width + self.v_width)

    def forward(self, x: Tensor, *, mask: Mask | None = None, causal: bool = False) -> Tensor:
        """(B, T, D) to (B, T, D).

        Args:
            x: (B, T, D).
            mask: (B, 1, 1, T), False at padding; None if there is none that matters.
            causal: let position t see positions up to t. That hides padding too, which follows the
                sentence, so the mask need not.
        """
        q, k, v = self.project(x)
        attend = attention
        if self.window is not None:
            attend = partial(local_attention, window=self.window)
        dropout = self.dropout if self.training else 0.0
        return self.join_heads(attend(q, k, v, mask, causal=causal, dropout=dropout))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys of (B, T, D), both (B, H, T, K), and values (B, H, T, Kv)."""
        width = self.q_width
        q, k, v = self.in_proj(x).split((width, width, self.v_width), dim=-1)
        return self.queries(q), self.split_heads(k), self.split_heads(v)


class CrossAttention(Attention):
    """Attention to the encoder's output; its keys and values are one matrix of H·(K + Kv) rows."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.q_proj = Linear(config.d_model, self.q_width)
        self.kv_proj = Linear(config.d_model, self.q_width + self.v_width)

    def forward(self, x: Tensor, memory_kv: tuple[Tensor, Tensor], mask: Mask) -> Tensor:
        """(B, T, D) to (B, T, D); keys and values from `project_memory`, `mask` (B, 1, 1, S)."""
        q = self.queries(self.q_proj(x))
        dropout = self.dropout if self.training else 0.0
        return self.join_heads(attention(q, *memory_kv, mask, dropout=dropout))

    def project_memory(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (B, H, S, K) and values (B, H, S, Kv) of the encoder's output (B, S, D)."""
        k, v = self.kv_proj(states).split((self.q_width, self.v_width), dim=-1)
        return self.split_heads(k), self.split_heads(v)


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between them, at each position alike (Section 3.3).

    With `activation: silu`, which is not the paper's, it is a SiLU.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = Linear(config.d_model, config.d_ff)
        self.outer = Linear(config.d_ff, config.d_model)
        self.dropout = Dropout(config.activation_dropout)
        self.activation = {"relu": F.relu, "silu": F.silu}[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        inner, outer = self.inner, self.outer
        has_kernel = self.activation is F.relu and bf16.applies_to(x)
        if has_kernel and not (self.training and self.dropout.p):
            return bf16.feed_forward(x, inner.weight, inner.bias, outer.weight, outer.bias)
        out: Tensor = outer(self.dropout(self.activation(inner(x))))
        return out


class Residual(nn.Module):
    """What surrounds every sub-layer: LayerNorm(x + Dropout(sublayer(x))) (Sections 3.1, 5.4).

    With `norm: pre` it is x + Dropout(sublayer(LayerNorm(x))), which is not the paper's but the
    later habit, and each stack ends in one more norm.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = _layer_norm(config)
        self.dropout = Dropout(config.dropout)
        self.pre = config.norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        if self.pre:
            summed: Tensor = x + self.dropout(sublayer(self.norm(x)))
            return summed
        normed: Tensor = self.norm(x + self.dropout(sublayer(x)))
        return normed


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config)
        self.feed_forward = FeedForward(config)
        self.residuals = nn.ModuleList(Residual(config) for _ in range(2))

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """(B, S, D) to (B, S, D); `mask` (B, 1, 1, S) is False at padding."""
        x = self.residuals[0](x, lambda y: self.self_attention(y, mask=mask))
        out: Tensor = self.residuals[1](x, self.feed_forward)
        return out


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config)
        self.cross_attention = CrossAttention(config)
        self.feed_forward = FeedForward(config)
        self.residuals = nn.ModuleList(Residual(config) for _ in range(3))

    def forward(
        self, x: Tensor, memory: Tensor, memory_mask: Mask, own: Blocks | None = None
    ) -> Tensor:
        """(B, T, D) to (B, T, D); a position sees those before it, in its batch of `own`.

        `memory` (B, S, D) is the encoder's output, `memory_mask` (B, 1, 1, S) False at padding.
        """

        def attend_to_memory(y: Tensor) -> Tensor:
            memory_kv = self.cross_attention.project_memory(memory)
            attended: Tensor = self.cross_attention(y, memory_kv, memory_mask)
            return attended

        x = self.residuals[0](x, lambda y: self.self_attention(y, mask=own, causal=True))
        x = self.residuals[1](x, attend_to_memory)
        out: Tensor = self.residuals[2](x, self.feed_forward)
        return out


@dataclass(frozen=True)
class Memory:
    """The encoder's output: `states` (B, S, D) and `mask` (B, 1, 1, S), False at padding."""

    states: Tensor
    mask: Tensor


class Transformer(nn.Module):
    """The encoder-decoder of Figure 1, its embeddings shared three ways (Section 3.4).

    Where the source has a vocabulary of its own, the encoder has a matrix of its own, and the
    target's embedding and the output layer stay one (Press and Wolf 2017,
    https://aclanthology.org/E17-2025).

    Args:
        vocab_size: V, of the joint vocabulary, or of the target's.
        pad_id: the id that masks derive from.
        src_vocab_size: of the source's own vocabulary; None if it is joint.

    Raises:
        MtkitError: if `model.shared_embedding` is set and the vocabularies differ in size.
    """

    def __init__(
        self, config: ModelConfig, vocab_size: int, pad_id: int, src_vocab_size: int | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.pad_id = pad_id
        self.embedding = _embedding(vocab_size, config)
        self.src_embedding: nn.Embedding | None = None
        if src_vocab_size is not None and not config.shared_embedding:
            self.src_embedding = _embedding(src_vocab_size, config)
        elif src_vocab_size not in (None, vocab_size):
            raise MtkitError(
                f"model.shared_embedding: the source has {src_vocab_size} subwords and the "
                f"target {vocab_size}; set it to false"
            )
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        # Post-norm stacks end in a norm by construction.
        final = config.norm == "pre"
        self.encoder_norm = _layer_norm(config) if final else nn.Identity()
        self.decoder_norm = _layer_norm(config) if final else nn.Identity()
        if config.positions == "learned":
            self.learned_positions = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        if config.positions == "words":
            # Part of the weights, but not trained: set by the trainer, or read from a checkpoint.
            self.set_word_tokens(
                torch.zeros(src_vocab_size or vocab_size, dtype=torch.bool),
                torch.zeros(vocab_size, dtype=torch.bool),
            )
        self.output_bias: nn.Parameter | None = None
        if config.output_bias:
            self.output_bias = nn.Parameter(torch.empty(vocab_size))
        self._sinusoids: Tensor | None = None
        self.reset_parameters()

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.embedding.num_embeddings

    @property
    def src_vocab_size(self) -> int | None:
        """Of the source's own vocabulary; None if it is joint."""
        return None if self.src_embedding is None else self.src_embedding.num_embeddings

    def reset_parameters(self) -> None:
        """Draw all initial values: Glorot uniform, and N(0, D^-½) for the embeddings.

        As in the paper's first public code, queries, keys and values of self-attention are one
        matrix, and keys and values of cross-attention: their scale is lower by √½ and √⅔.
        """
        if self.embedding.weight.is_meta:
            # It has no memory yet; trained weights follow.
            return
        std = self.config.d_model**-0.5
        for embedding in filter(None, (self.embedding, self.src_embedding)):
            nn.init.normal_(embedding.weight, std=std)
            with torch.no_grad():
                embedding.weight[self.pad_id].zero_()
        if self.config.positions == "learned":
            nn.init.normal_(self.learned_positions, std=std)
        if self.output_bias is not None:
            nn.init.zeros_(self.output_bias)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, gain=getattr(module, "gain", 1.0))
                nn.init.zeros_(module.bias)

    def forward(
        self, src: Tensor, tgt_in: Tensor, packing: Packing = UNPACKED, *, states_only: bool = False
    ) -> Tensor:
        """Logits of every next target token.

        Args:
            src: (B, S), each sentence ended by EOS, then padding.
            tgt_in: (B, T), each sentence begun by BOS, then padding.
            packing: of several batches in one row; B is 1 then.
            states_only: return what the output layer is applied to, for a loss that need not see
                all logits at once.

        Returns:
            (B, T, V), or (B, T, D) with `states_only`. Rows at padding are meaningless.
        """
        mask: Mask = packing.src or self._mask(src)
        memory, memory_mask = self._encoded(src, mask), packing.cross or mask
        # Padding follows the sentence, so causality already hides it from every real position.
        x = self.embed_tgt(tgt_in, packing.tgt)
        for layer in self.decoder:
            x = layer(x, memory, memory_mask, packing.tgt)
        if states_only:
            states: Tensor = self.decoder_norm(x)
            return states
        return self.logits(x)

    def encode(self, src: Tensor) -> Memory:
        """The encoder's output for `src` (B, S), ended by EOS and padded."""
        mask = self._mask(src)
        return Memory(self._encoded(src, mask), mask)

    def _encoded(self, src: Tensor, mask: Mask) -> Tensor:
        x = self.embed_src(src, mask if isinstance(mask, Blocks) else None)
        for layer in self.encoder:
            x = layer(x, mask)
        states: Tensor = self.encoder_norm(x)
        return states

    def _mask(self, src: Tensor) -> Tensor:
        """(B, 1, 1, S), False at padding."""
        return (src != self.pad_id)[:, None, None, :]

    def encoder_layers(self) -> list[EncoderLayer]:
        """The layers of the encoder, typed."""
        return [layer for layer in self.encoder if isinstance(layer, EncoderLayer)]

    def decoder_layers(self) -> list[DecoderLayer]:
        """The layers of the decoder, typed."""
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]

    def set_word_tokens(self, src: Tensor, tgt: Tensor) -> None:
        """Set the tokens that words are counted by; with `positions: words`, for parsers.

        Args:
            src: (V,), True for the tokens that begin a word, and EOS.
            tgt: (V,), True for the tokens that read a word of the source.
        """
        self.register_buffer("src_words", src)
        self.register_buffer("tgt_words", tgt)

    def embed_src(self, src: Tensor, own: Blocks | None = None) -> Tensor:
        """The encoder's input (B, S, D): scaled embeddings plus positions."""
        words = None
        if self.config.positions == "words":
            words = (self.get_buffer("src_words")[src].cumsum(1) - 1).clamp_min(0)
        return self._embed(src, self.src_embedding or self.embedding, own, words)

    def embed_tgt(self, tgt_in: Tensor, own: Blocks | None = None) -> Tensor:
        """The decoder's input (B, T, D), likewise."""
        words = None
        if self.config.positions == "words":
            words = self.get_buffer("tgt_words")[tgt_in].cumsum(1)
        return self._embed(tgt_in, self.embedding, own, words)

    def _embed(
        self, ids: Tensor, embedding: nn.Embedding, own: Blocks | None, words: Tensor | None
    ) -> Tensor:
        # √D brings embeddings of deviation D^-½ to the size of the position encoding (Section 3.4).
        x = embedding(ids) * math.sqrt(self.config.d_model)
        positions = self.positions(0, own.longest if own else ids.shape[1], like=x, words=words)
        if own:
            positions = F.embedding(own.positions, positions)
        dropped: Tensor = self.dropout(x + positions)
        return dropped

    def positions(
        self, start: int, end: int, *, like: Tensor, words: Tensor | None = None
    ) -> Tensor:
        """Encodings (end - start, D) of the positions from `start` to `end` - 1.

        Args:
            like: a tensor of their type and device.
            words: (..., end - start), with `positions: words` the word of the source at each
                position, from 0: that of a subword, or the one to be read next. By default the
                position itself, which it never exceeds. The result is (..., end - start, D).
        """
        if self.config.positions == "learned":
            if end > self.config.max_positions:
                raise MtkitError(
                    f"a sequence of {end} tokens is longer than model.max_positions "
                    f"({self.config.max_positions}), the limit of learned positions"
                )
            return self.learned_positions[start:end]
        if self.config.positions == "none":
            return like.new_zeros(end - start, self.config.d_model)
        by_words = self.config.positions == "words"
        table = self._sinusoids
        # Kept between calls, no part of the weights, and as long as the longest sequence so far.
        if table is None or len(table) < end or table.dtype != like.dtype:
            width = self.config.d_model // (2 if by_words else 1)
            table = sinusoidal_positions(max(2 * end, 256), width)
        self._sinusoids = table = table.to(like)
        if not by_words:
            return table[start:end]
        if words is None:
            words = torch.arange(start, end, device=like.device)
        # Half for the position, half for the word.
        return torch.cat((table[start:end].expand(*words.shape, -1), table[words]), dim=-1)

    def logits(self, x: Tensor) -> Tensor:
        """Of the next token, (..., V), from the last decoder layer's states (..., D)."""
        # The output layer is the embedding matrix itself (Section 3.4); the paper has no bias.
        return output_layer(self.decoder_norm(x), self.embedding.weight, self.output_bias)


def parameter_counts(model: Transformer) -> dict[str, int]:
    """Parameters per part, each shared matrix counted once; the values sum to the whole."""
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = name.split(".")[0].removesuffix("_norm")
        counts[part] = counts.get(part, 0) + parameter.numel()
    return counts


def _embedding(vocab_size: int, config: ModelConfig) -> nn.Embedding:
    # To draw numbers on the meta device, PyTorch would import modules for two seconds.
    is_meta = torch.get_default_device().type == "meta"
    nothing = torch.empty(vocab_size, config.d_model) if is_meta else None
    return nn.Embedding(vocab_size, config.d_model, _weight=nothing)


def _layer_norm(config: ModelConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.d_model, eps=config.norm_epsilon)
