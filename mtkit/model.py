"""The Transformer of *Attention Is All You Need* (2017), from embeddings to logits.

This module owns the forward pass. Decoding a token at a time is in `translate.engine`, the search
in `translate.search`, and the loss in `train.loss`. It reads from leaf to root, and follows
Section 3 of the paper:

    positions            3.5    `sinusoidal_positions`
    linear maps                 `Linear`
    attention            3.2    `SelfAttention`, `CrossAttention`; computed in attention.py
    feed-forward         3.3    `FeedForward`
    residual and norm    3.1    `Residual`
    layers and stacks    3.1    `EncoderLayer`, `DecoderLayer`
    the model            3, 3.4 `Transformer`

Letters in shapes and tensor names: B sentences, S source length, T target length, D model width,
H heads, K width of a head, F feed-forward width, V vocabulary, W beam width. Ids are int64. A
boolean mask is True where attention may look.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtkit.attention import (
    attend_nearby,
    attention,
    attention_log_weights,
    attention_weights,
    band,
)
from mtkit.base.errors import MtkitError
from mtkit.config import ModelConfig
from mtkit.kernels import bf16

# The output bias of a token that is never produced, such as padding. It is finite, so that products
# with zero stay zero, and far below every sum of products.
NEVER = -1e9
# Matrix units of GPUs work on tiles, and a vocabulary that ends inside one makes the largest
# product of a step slower than a few rows of zeros.
GPU_TILE = 128


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


class _DropoutGenerator(threading.local):
    """The generator of `Dropout` in a thread; None for that of PyTorch."""

    current: torch.Generator | None = None


_dropout_generator = _DropoutGenerator()


@contextmanager
def dropout_seeded(seed: int) -> Iterator[None]:
    """In this thread, have `Dropout` draw from a generator of its own, on a CPU.

    All threads share the generator of PyTorch. Both generators give the same numbers for a seed.
    """
    _dropout_generator.current = torch.Generator().manual_seed(seed)
    try:
        yield
    finally:
        _dropout_generator.current = None


class Dropout(nn.Module):
    """Dropout (Section 5.4), on a CPU with random bits that cost little.

    PyTorch draws one float at a time, which was a twentieth of a training step of the `small`
    preset. Here a 64-bit generator decides about four elements at once, each with a probability
    that is a multiple of 1/65,536. It is seeded by PyTorch's generator, or by that of
    `dropout_seeded`. The result is of float32 at least, because 1 / (1 - p) is not a bfloat16
    number.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """`x` in evaluation; in training, elements are dropped and the others scaled up."""
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        # With p < 1, something is kept.
        dropped = min(round(self.p * 65_536), 65_535)
        seed = torch.randint(2**63 - 1, (), generator=_dropout_generator.current)
        generator = np.random.SFC64(int(seed))
        count = x.numel()
        bits = torch.from_numpy(generator.random_raw(-(-count // 4)).view(np.int16)[:count])
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        keep = torch.empty(x.shape, dtype=x.dtype)
        # Written as 0 and 1 of the type that is multiplied: conversions cost more than drawing.
        torch.ge(bits.view(x.shape), dropped - 32_768, out=keep)
        return x * keep.mul_(65_536 / (65_536 - dropped))


class Linear(nn.Linear):
    """PyTorch's linear layer, which in bfloat16 on a CPU is computed by `bf16.linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        if bf16.applies_to(x):
            return bf16.linear(x, self.weight, self.bias)
        return F.linear(x, self.weight, self.bias)


def output_layer(x: Tensor, weight: Tensor, *, multiple: int) -> Tensor:
    """`x` times the rows of `weight`, worked out over a multiple of so many rows.

    The rows that are added are zeros, and their results are cut off again.

    Args:
        x: (..., D).
        weight: (V, D).
        multiple: of what.

    Returns:
        (..., V).
    """
    V = len(weight)
    padded = F.pad(weight, (0, 0, 0, -V % multiple)) if V % multiple else weight
    return F.linear(x, padded)[..., :V]


class Attention(nn.Module):
    """Multi-head attention (Section 3.2.2).

    Where queries, keys and values come from is what the two kinds below add.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        self.q_width = config.n_heads * config.key_width
        self.v_width = config.n_heads * config.value_width
        self.dropout = config.attention_dropout
        self.out_proj = Linear(self.v_width, config.d_model)

    def reset_parameters(self) -> None:
        """Glorot uniform over the matrices that the paper's first public code had.

        It drew queries, keys and values of self-attention as one matrix, and keys and values of
        cross-attention as one, which lowers their scale by √½ and √⅔.
        """
        for linear in self.children():
            if isinstance(linear, Linear):
                nn.init.xavier_uniform_(linear.weight)
                nn.init.zeros_(linear.bias)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """The weighted values of every query, heads joined and projected.

        Args:
            q: (B, H, T, K).
            k, v: (B, H, S, K).
            mask: broadcastable to (B, H, T, S).
            causal: let position t see positions up to t; instead of a mask.

        Returns:
            (B, T, D).
        """
        dropout = self.dropout if self.training else 0.0
        return self._join(attention(q, k, v, mask=mask, causal=causal, dropout=dropout))

    def _join(self, heads: Tensor) -> Tensor:
        joined: Tensor = self.out_proj(heads.transpose(1, 2).flatten(2))
        return joined

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.n_heads, -1).transpose(1, 2)


class SelfAttention(Attention):
    """Attention of a sequence to itself, restricted to neighbours if the model is.

    The projections of queries, keys and values are one matrix of H·(K + K + Kv) rows.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.window = config.attention_window
        self.in_proj = Linear(config.d_model, 2 * self.q_width + self.v_width)

    def forward(self, x: Tensor, *, visible: Tensor | None = None, causal: bool = False) -> Tensor:
        """(B, T, D) to (B, T, D).

        Args:
            x: (B, T, D).
            visible: (B, 1, 1, T), False at padding; None if there is none that matters.
            causal: let position t see positions up to t; without `visible`.
        """
        q, k, v = self.project(x)
        if self.window is None or self.window >= x.shape[1] - 1:
            return self.attend(q, k, v, mask=visible, causal=causal)
        dropout = self.dropout if self.training else 0.0
        out = attend_nearby(
            q, k, v, window=self.window, causal=causal, visible=visible, dropout=dropout
        )
        return self._join(out)

    def weights(self, x: Tensor, *, visible: Tensor | None = None, causal: bool = False) -> Tensor:
        """The attention weights (B, H, T, T) of `forward` with the same arguments.

        They are zero outside of the window of restricted attention, and rows sum to 1; a row of
        padding may be zeros.
        """
        q, k, _ = self.project(x)
        T = x.shape[1]
        before = T if self.window is None else self.window
        near = band(T, T, first=0, before=before, after=0 if causal else before, device=x.device)
        return attention_weights(q, k, near if visible is None else near & visible)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of (B, T, D), each (B, H, T, K)."""
        width = self.q_width
        q, k, v = self.in_proj(x).split((width, width, self.v_width), dim=-1)
        return self._heads(q), self._heads(k), self._heads(v)


class CrossAttention(Attention):
    """Attention to the encoder's output; its keys and values are one matrix of H·(K + Kv) rows."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.q_proj = Linear(config.d_model, self.q_width)
        self.kv_proj = Linear(config.d_model, self.q_width + self.v_width)

    def forward(self, x: Tensor, memory_kv: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D); keys and values from `project_memory`, `mask` (B, 1, 1, S)."""
        return self.attend(self._heads(self.q_proj(x)), *memory_kv, mask=mask)

    def weights(self, x: Tensor, memory_kv: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """The attention weights (B, H, T, S) of `forward` with the same arguments."""
        return attention_weights(self._heads(self.q_proj(x)), memory_kv[0], mask)

    def log_weights(
        self, x: Tensor, memory_kv: tuple[Tensor, Tensor], mask: Tensor, *, head: int
    ) -> Tensor:
        """The logarithms (B, T, S) of the weights of one head, from 0, in float32 at least."""
        wide = torch.promote_types(x.dtype, torch.float32)
        width = self.q_width // self.n_heads
        rows = slice(head * width, (head + 1) * width)
        # Small products of many shapes: in bfloat16 oneDNN would compile a kernel for each.
        with torch.autocast(x.device.type, enabled=False):
            weight, bias = self.q_proj.weight[rows], self.q_proj.bias[rows]
            q = F.linear(x.to(wide), weight.to(wide), bias.to(wide))
            return attention_log_weights(q, memory_kv[0][:, head], mask[:, 0])

    def project_memory(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the encoder's output (B, S, D), each (B, H, S, K)."""
        k, v = self.kv_proj(states).split((self.q_width, self.v_width), dim=-1)
        return self._heads(k), self._heads(v)


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between them, at each position alike (Section 3.3).

    With `activation: silu`, which is not the paper's, it is a SiLU.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = Linear(config.d_model, config.d_ff)
        self.outer = Linear(config.d_ff, config.d_model)
        self.dropout = Dropout(config.activation_dropout)
        self.has_relu = config.activation == "relu"

    def reset_parameters(self) -> None:
        """Glorot uniform weights, zero biases."""
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        inner, outer = self.inner, self.outer
        if self.has_relu and bf16.applies_to(x) and not (self.training and self.dropout.p):
            return bf16.feed_forward(x, inner.weight, inner.bias, outer.weight, outer.bias)
        activation = F.relu if self.has_relu else F.silu
        out: Tensor = outer(self.dropout(activation(inner(x))))
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


# Takes the kind of attention, its weights (B, H, queries, keys), and its values (B, H, keys, Kv).
Keep = Callable[[Literal["self", "cross"], Tensor, Tensor], None]
# Takes the log-weights (B, T, S) of the first head of cross-attention, with their gradients.
Guide = Callable[[Tensor], None]


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config)
        self.feed_forward = FeedForward(config)
        self.residuals = nn.ModuleList(Residual(config) for _ in range(2))

    def forward(self, x: Tensor, visible: Tensor, *, keep: Keep | None = None) -> Tensor:
        """(B, S, D) to (B, S, D); `visible` (B, 1, 1, S) is False at padding."""

        def attend(y: Tensor) -> Tensor:
            if keep is not None:
                attention = self.self_attention
                keep("self", attention.weights(y, visible=visible), attention.project(y)[2])
            attended: Tensor = self.self_attention(y, visible=visible)
            return attended

        x = self.residuals[0](x, attend)
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
        self,
        x: Tensor,
        memory: Tensor,
        memory_mask: Tensor,
        *,
        keep: Keep | None = None,
        guide: Guide | None = None,
    ) -> Tensor:
        """(B, T, D) to (B, T, D); a position sees those before it.

        Args:
            x: (B, T, D).
            memory: the encoder's output (B, S, D).
            memory_mask: (B, 1, 1, S), False at padding.
            keep: gets the weights and values of self-attention ("self") and of attention to the
                memory ("cross").
            guide: gets the weights of the head that learns word alignments.
        """

        def attend_to_prefix(y: Tensor) -> Tensor:
            if keep is not None:
                attention = self.self_attention
                keep("self", attention.weights(y, causal=True), attention.project(y)[2])
            attended: Tensor = self.self_attention(y, causal=True)
            return attended

        def attend_to_memory(y: Tensor) -> Tensor:
            memory_kv = self.cross_attention.project_memory(memory)
            if keep is not None:
                weights = self.cross_attention.weights(y, memory_kv, memory_mask)
                keep("cross", weights, memory_kv[1])
            if guide is not None:
                guide(self.cross_attention.log_weights(y, memory_kv, memory_mask, head=0))
            attended: Tensor = self.cross_attention(y, memory_kv, memory_mask)
            return attended

        x = self.residuals[0](x, attend_to_prefix)
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
        config: the shape of the model.
        vocab_size: V, of the joint vocabulary, or of the target's.
        pad_id: the id that masks derive from.
        src_vocab_size: of the source's own vocabulary; None if it is joint.

    Raises:
        MtkitError: if `model.shared_embedding` is set and the vocabularies differ in size.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        pad_id: int,
        src_vocab_size: int | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.pad_id = pad_id
        self.embedding = _embedding(vocab_size, config)
        self.src_embedding: nn.Embedding | None = None
        if src_vocab_size is not None and config.shared_embedding:
            if src_vocab_size != vocab_size:
                raise MtkitError(
                    f"model.shared_embedding: the source has {src_vocab_size} subwords and the "
                    f"target {vocab_size}; set it to false"
                )
        elif src_vocab_size is not None:
            self.src_embedding = _embedding(src_vocab_size, config)
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
            # (V,): the tokens that words are counted by. Part of the weights, though not trained.
            sizes = {"src": src_vocab_size or vocab_size, "tgt": vocab_size}
            for side, size in sizes.items():
                self.register_buffer(f"{side}_words", torch.zeros(size, dtype=torch.bool))
        self.output_bias: nn.Parameter | None = None
        if config.output_bias:
            self.output_bias = nn.Parameter(torch.empty(vocab_size))
        # Takes the place of the output layer where inference has another form of the matrix.
        self.output: nn.Module | None = None
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
        """Draw all initial values: Glorot uniform, and N(0, D^-½) for the embeddings."""
        if self.embedding.weight.is_meta:
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
            if isinstance(module, Attention | FeedForward):
                module.reset_parameters()

    def forward(
        self,
        src: Tensor,
        tgt_in: Tensor,
        *,
        output: Callable[..., Tensor] | None = None,
        guides: Mapping[int, Guide] | None = None,
    ) -> Tensor:
        """Logits of every next target token.

        Args:
            src: (B, S), each sentence ended by EOS, then padding.
            tgt_in: (B, T), each sentence begun by BOS, then padding.
            output: takes the place of the output layer, and gets what that works on: the states
                (B, T, D) and the matrix (V, D), and as `bias` the output bias (V,) if there is
                one. A loss need not see all logits at once.
            guides: of decoder layers, by their number from 0.

        Returns:
            (B, T, V), or what `output` returns. Rows at padding are meaningless.
        """
        memory = self.encode(src)
        # Padding follows the sentence, so causality already hides it from every real position.
        x = self.embed_tgt(tgt_in)
        for number, layer in enumerate(self.decoder_layers()):
            guide = guides.get(number) if guides else None
            x = layer(x, memory.states, memory.mask, guide=guide)
        if output is not None:
            more = {} if self.output_bias is None else {"bias": self.output_bias}
            return output(self.decoder_norm(x), self.embedding.weight, **more)
        return self.logits(x)

    def encode(self, src: Tensor) -> Memory:
        """The encoder's output for `src` (B, S), ended by EOS and padded."""
        visible = (src != self.pad_id)[:, None, None, :]
        x = self.embed_src(src)
        for layer in self.encoder:
            x = layer(x, visible)
        return Memory(self.encoder_norm(x), visible)

    def layers(self) -> list[nn.Module]:
        """All layers, in the order in which they run."""
        return [*self.encoder, *self.decoder]

    def compile_layers(self) -> None:
        """Compile every layer with torch.compile; layers of one kind share their graphs."""
        # PyTorch reuses compiled code from disk, and does not look for which vector instructions
        # it was made: code for AVX2 that runs with AVX-512 writes beyond the end of its tensors.
        config = torch.compiler.config
        capability = torch.backends.cpu.get_cpu_capability()
        if capability not in config.cache_key_tag:
            config.cache_key_tag += f" {capability}"
        for layer in self.layers():
            layer.compile(dynamic=True)

    def encoder_layers(self) -> list[EncoderLayer]:
        """Those of the encoder, as what they are."""
        return [layer for layer in self.encoder if isinstance(layer, EncoderLayer)]

    def decoder_layers(self) -> list[DecoderLayer]:
        """Those of the decoder, as what they are."""
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]

    def count_words(self, src: Tensor, tgt: Tensor) -> None:
        """Say which tokens words are counted by; with `positions: words`.

        Args:
            src: (V,), True for the tokens that begin a word, and EOS.
            tgt: (V,), True for the tokens that read a word of the source.
        """
        self.register_buffer("src_words", src)
        self.register_buffer("tgt_words", tgt)

    def embed_src(self, src: Tensor) -> Tensor:
        """The encoder's input (B, S, D): scaled embeddings plus positions."""
        words = None
        if self.config.positions == "words":
            words = (self.get_buffer("src_words")[src].cumsum(1) - 1).clamp_min(0)
        return self._embed(src, self.src_embedding or self.embedding, words)

    def embed_tgt(self, tgt_in: Tensor) -> Tensor:
        """The decoder's input (B, T, D), likewise."""
        words = None
        if self.config.positions == "words":
            words = self.get_buffer("tgt_words")[tgt_in].cumsum(1)
        return self._embed(tgt_in, self.embedding, words)

    def _embed(self, ids: Tensor, embedding: nn.Embedding, words: Tensor | None) -> Tensor:
        """Scaled embeddings plus positions, (B, T, D)."""
        # √D brings embeddings of deviation D^-½ to the size of the position encoding (Section 3.4).
        x = embedding(ids) * math.sqrt(self.config.d_model)
        positions = self.positions(0, ids.shape[1], like=x, words=words)
        dropped: Tensor = self.dropout(x + positions)
        return dropped

    def positions(
        self, start: int, end: int, *, like: Tensor, words: Tensor | None = None
    ) -> Tensor:
        """Encodings of positions.

        Args:
            start, end: the positions, without the last.
            like: a tensor of their type and device.
            words: (..., end - start), with `positions: words` the number of the word of the source
                at each position, from 0: that of a subword, or the one to be read next. It is at
                most the number of the position, which is the default.

        Returns:
            (end - start, D), or (..., end - start, D) with `words`.
        """
        if self.config.positions == "words":
            if words is None:
                words = torch.arange(start, end, device=like.device)
            # A token begins or reads at most one word, so there are not more words than positions.
            halves = self._sinusoids_to(end, like=like)
            tokens = halves[start:end].expand(*words.shape, -1)
            return torch.cat((tokens, halves[words]), dim=-1)
        if self.config.positions == "learned":
            if end > self.config.max_positions:
                raise MtkitError(
                    f"a sequence of {end} tokens is longer than model.max_positions "
                    f"({self.config.max_positions}), the limit of learned positions"
                )
            return self.learned_positions[start:end]
        return self._sinusoids_to(end, like=like)[start:end]

    def _sinusoids_to(self, end: int, *, like: Tensor) -> Tensor:
        """The encodings of at least so many positions, (length, D), or half as wide for words."""
        width = self.config.d_model // (2 if self.config.positions == "words" else 1)
        table = self._sinusoids
        # Kept between calls, no part of the weights, and as long as the longest sequence so far.
        if table is None or len(table) < end or table.dtype != like.dtype:
            table = sinusoidal_positions(max(2 * end, 256), width)
        self._sinusoids = table = table.to(like)
        return table

    def logits(self, x: Tensor) -> Tensor:
        """Of the next token, (..., V), from the last decoder layer's states (..., D)."""
        # The output layer is the embedding matrix itself (Section 3.4); the paper has no bias.
        x, weight, bias = self.decoder_norm(x), self.embedding.weight, self.output_bias
        if self.output is not None:
            logits: Tensor = self.output(x)
            return logits
        if x.is_cuda:
            on_gpu = output_layer(x, weight, multiple=GPU_TILE)
            return on_gpu if bias is None else on_gpu + bias.to(on_gpu.dtype)
        if bf16.applies_to(x):
            return bf16.linear(x, weight, bias)
        return F.linear(x, weight, bias)


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
