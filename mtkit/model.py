"""The Transformer of *Attention Is All You Need* (2017), from attention to single-step decoding.

This module owns the forward pass and its cache; the search over translations is `search`'s and
the loss is `train`'s. It reads from leaf to root, and follows Section 3 of the paper:

    positions            3.5    `sinusoidal_positions`
    attention            3.2    `SelfAttention`, `CrossAttention`
    restricted           4      `attend_nearby`, where `attention_window` asks for it
    feed-forward         3.3    `FeedForward`
    residual and norm    3.1    `Residual`
    layers and stacks    3.1    `EncoderLayer`, `DecoderLayer`
    decoding             -      `DecoderCache`
    the model            3, 3.4 `Transformer`

Letters in shapes and tensor names: B sentences, S source length, T target length, D model width,
H heads, K width of a head, F feed-forward width, V vocabulary, W beam width. Ids are int64. A
boolean mask is True where attention may look.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtkit.config import ModelConfig
from mtkit.errors import MtkitError

# tensor2tensor's value. PyTorch's default is 1e-5.
LAYER_NORM_EPSILON = 1e-6
# Matrix units of GPUs work on tiles, and a vocabulary that ends inside one makes the largest
# product of a step slower than a few rows of zeros.
GPU_TILE = 128
# Restricted attention works on blocks of positions; smaller ones waste time on bookkeeping.
SMALLEST_BLOCK = 32


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


class Dropout(nn.Module):
    """Dropout (Section 5.4), on a CPU with random bits that cost little.

    PyTorch draws one float at a time, which was a twentieth of a training step of the `small`
    preset. Here a 64-bit generator decides about four elements at once, each with a probability
    that is a multiple of 1/65,536. The generator is seeded by PyTorch's.
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
        dropped = round(self.p * 65_536)
        generator = np.random.SFC64(int(torch.randint(2**63 - 1, ())))
        count = x.numel()
        bits = torch.from_numpy(generator.random_raw(-(-count // 4)).view(np.int16)[:count])
        keep = torch.empty(x.shape, dtype=x.dtype)
        # Written as 0 and 1 of the type that is multiplied: conversions cost more than drawing.
        torch.ge(bits.view(x.shape), dropped - 32_768, out=keep)
        return x * keep.mul_(65_536 / (65_536 - dropped))


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


def attend_nearby(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window: int,
    causal: bool,
    visible: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Self-attention restricted to neighbours (Section 4): O(T·r) where full attention is O(T²).

    The sequence is cut into blocks at least as long as the window, so what a block may see lies
    in itself and in the blocks beside it. Short sequences get one mask over everything, which is
    faster there and gives the same.

    Args:
        q, k: (B, H, T, K).
        v: (B, H, T, Kv).
        window: r, the number of positions seen to either side; only to the left if `causal`.
        causal: hide the positions to the right.
        visible: (B, 1, 1, T), False at padding; None if there is none that matters.
        dropout: on the attention weights.

    Returns:
        (B, H, T, Kv). Rows at padding are meaningless.
    """
    B, H, T, _ = q.shape
    after = 0 if causal else window
    block = max(window, SMALLEST_BLOCK)
    if 4 * block >= T:
        mask = _band(T, T, first=0, before=window, after=after, device=q.device)
        if visible is not None:
            mask = mask & visible | _band(T, T, first=0, before=0, after=0, device=q.device)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    blocks = -(-T // block)
    tail = blocks * block - T
    margin = (block, tail + (0 if causal else block))
    span = block + sum(margin) - tail

    def neighbourhoods(x: Tensor) -> Tensor:
        """(B, H, T, K) to (B·blocks, H, span, K), what each block may look at."""
        windows = F.pad(x, (0, 0, *margin)).unfold(2, span, block)
        return windows.permute(0, 2, 1, 4, 3).flatten(0, 1)

    # Keys of a block begin one block before its queries.
    near = _band(block, span, first=-block, before=window, after=after, device=q.device)
    real = q.new_ones(1, T, dtype=torch.bool) if visible is None else visible[:, 0, 0]
    mask = near & F.pad(real, margin).unfold(1, span, block).unsqueeze(2)
    # A row that sees nothing at all, far out in the padding, is NaN on some devices; nobody reads
    # those rows, so they may see themselves.
    itself = _band(block, span, first=-block, before=0, after=0, device=q.device)
    mask = (mask | itself).expand(B, -1, -1, -1).reshape(B * blocks, 1, block, span)
    queries = F.pad(q, (0, 0, 0, tail)).view(B, H, blocks, block, -1)
    out = F.scaled_dot_product_attention(
        queries.transpose(1, 2).flatten(0, 1),
        neighbourhoods(k),
        neighbourhoods(v),
        attn_mask=mask,
        dropout_p=dropout,
    )
    joined = out.view(B, blocks, H, block, -1).transpose(1, 2).flatten(2, 3)
    return joined[:, :, :T]


class Attention(nn.Module):
    """Multi-head attention (Section 3.2.2) on PyTorch's scaled dot-product attention.

    Where queries, keys and values come from is what the two kinds below add.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        self.q_width = config.n_heads * config.key_width
        self.v_width = config.n_heads * config.value_width
        self.dropout = config.attention_dropout
        self.out_proj = nn.Linear(self.v_width, config.d_model)

    def reset_parameters(self) -> None:
        """Glorot uniform over the matrices that the paper's first public code had.

        It drew queries, keys and values of self-attention as one matrix, and keys and values of
        cross-attention as one, which lowers their scale by √½ and √⅔.
        """
        for linear in self.children():
            if isinstance(linear, nn.Linear):
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
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal
        )
        return self._join(out)

    def _attend_step(
        self, q: Tensor, keys: Tensor, values: Tensor, bias: Tensor, cache: DecoderCache
    ) -> Tensor:
        """Attention of few queries, which PyTorch's own is slow at; (R, D).

        Args:
            q: (B, H, W, K).
            keys, values: (B·H, N, K).
            bias: what is added to the scores, to be broadcast to (B·H, W, N).
            cache: which knows the live hypotheses.
        """
        B, H, W, K = q.shape
        scores = torch.baddbmm(
            bias, q.reshape(B * H, W, K), keys.transpose(1, 2), alpha=1 / math.sqrt(K)
        )
        heads = torch.bmm(scores.softmax(-1), values).view(B, H, W, -1)
        joined: Tensor = self.out_proj(cache.gather(heads.transpose(1, 2).flatten(2).flatten(0, 1)))
        return joined

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
        self.in_proj = nn.Linear(config.d_model, 2 * self.q_width + self.v_width)

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

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of (B, T, D), each (B, H, T, K)."""
        width = self.q_width
        q, k, v = self.in_proj(x).tensor_split((width, 2 * width), dim=-1)
        return self._heads(q), self._heads(k), self._heads(v)

    def step(self, x: Tensor, own: LayerCache, cache: DecoderCache) -> Tensor:
        """The newest token (R, D) of every live hypothesis, looking at its ancestors; (R, D)."""
        width = self.q_width
        q, k, v = cache.spread(self.in_proj(x)).tensor_split((width, 2 * width), dim=-1)
        keys, values = own.append(self._heads(k), self._heads(v), newest=cache.seen)
        return self._attend_step(self._heads(q), keys, values, cache.ancestor_bias, cache)


class CrossAttention(Attention):
    """Attention to the encoder's output; its keys and values are one matrix of H·(K + Kv) rows."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.q_proj = nn.Linear(config.d_model, self.q_width)
        self.kv_proj = nn.Linear(config.d_model, self.q_width + self.v_width)

    def forward(self, x: Tensor, memory_kv: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D); keys and values from `project_memory`, `mask` (B, 1, 1, S)."""
        return self.attend(self._heads(self.q_proj(x)), *memory_kv, mask=mask)

    def project_memory(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the encoder's output (B, S, D), each (B, H, S, K)."""
        k, v = self.kv_proj(states).tensor_split((self.q_width,), dim=-1)
        return self._heads(k), self._heads(v)

    def step(self, x: Tensor, memory_kv: tuple[Tensor, Tensor], cache: DecoderCache) -> Tensor:
        """The newest token (R, D) of every live hypothesis, looking at the source; (R, D)."""
        q = self._heads(cache.spread(self.q_proj(x)))
        return self._attend_step(q, *memory_kv, cache.memory_bias, cache)


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between them, at each position alike (Section 3.3)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.d_ff)
        self.outer = nn.Linear(config.d_ff, config.d_model)
        self.dropout = Dropout(config.activation_dropout)

    def reset_parameters(self) -> None:
        """Glorot uniform weights, zero biases."""
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        out: Tensor = self.outer(self.dropout(F.relu(self.inner(x))))
        return out


class Residual(nn.Module):
    """What surrounds every sub-layer: LayerNorm(x + Dropout(sublayer(x))) (Sections 3.1, 5.4).

    With `norm: pre` it is x + Dropout(sublayer(LayerNorm(x))), which is not the paper's but the
    later habit, and each stack ends in one more norm.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPSILON)
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

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        """(B, S, D) to (B, S, D); `visible` (B, 1, 1, S) is False at padding."""

        def attend(y: Tensor) -> Tensor:
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

    def forward(self, x: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D); a position sees those before it.

        Args:
            x: (B, T, D).
            memory: the encoder's output (B, S, D).
            memory_mask: (B, 1, 1, S), False at padding.
        """

        def attend_to_prefix(y: Tensor) -> Tensor:
            attended: Tensor = self.self_attention(y, causal=True)
            return attended

        def attend_to_memory(y: Tensor) -> Tensor:
            memory_kv = self.cross_attention.project_memory(memory)
            attended: Tensor = self.cross_attention(y, memory_kv, memory_mask)
            return attended

        x = self.residuals[0](x, attend_to_prefix)
        x = self.residuals[1](x, attend_to_memory)
        out: Tensor = self.residuals[2](x, self.feed_forward)
        return out

    def step(
        self, x: Tensor, memory_kv: tuple[Tensor, Tensor], own: LayerCache, cache: DecoderCache
    ) -> Tensor:
        """The same for one decoding step: (R, D) to (R, D), of the live hypotheses only."""
        x = self.residuals[0](x, lambda y: self.self_attention.step(y, own, cache))
        x = self.residuals[1](x, lambda y: self.cross_attention.step(y, memory_kv, cache))
        out: Tensor = self.residuals[2](x, self.feed_forward)
        return out


@dataclass(frozen=True)
class Memory:
    """The encoder's output: `states` (B, S, D) and `mask` (B, 1, 1, S), False at padding."""

    states: Tensor
    mask: Tensor


class LayerCache:
    """Self-attention keys and values of one decoder layer, (B·H, steps·W, K), room doubling."""

    def __init__(self) -> None:
        self.length = 0
        self._k: Tensor | None = None
        self._v: Tensor | None = None

    def append(self, k: Tensor, v: Tensor, *, newest: int) -> tuple[Tensor, Tensor]:
        """Add the (B, H, W, K) of one step; return the `newest` so far, (B·H, newest, K)."""
        start, end = self.length, self.length + k.shape[2]
        self._k = self._store(self._k, k, start, end)
        self._v = self._store(self._v, v, start, end)
        self.length = end
        seen = slice(end - newest, end)
        return self._k.flatten(0, 1)[:, seen], self._v.flatten(0, 1)[:, seen]

    def select(self, sentences: Tensor) -> None:
        """Keep these sentences."""
        if self._k is not None and self._v is not None:
            # Room that is not used yet need not be copied.
            used = slice(0, self.length)
            self._k = self._k[:, :, used].index_select(0, sentences)
            self._v = self._v[:, :, used].index_select(0, sentences)

    @staticmethod
    def _store(buffer: Tensor | None, new: Tensor, start: int, end: int) -> Tensor:
        if buffer is None or buffer.shape[2] < end:
            B, H, W, K = new.shape
            grown = new.new_empty(B, H, max(2 * start, 16 * W), K)
            if buffer is not None:
                grown[:, :, :start] = buffer[:, :, :start]
            buffer = grown
        buffer[:, :, start:end] = new
        return buffer


class DecoderCache:
    """What single-step decoding remembers of B sentences with up to W hypotheses each.

    A sentence has W slots for hypotheses, of which any number are live. Linear layers work on the
    R live ones alone; attention on all slots, where what a dead one gets is nobody's business.

    The keys and values of the encoder's output are projected once per sentence and shared by its
    beams. Those of the decoder are written once and never moved: `ancestors` (B, W, steps·W)
    says which of a sentence's cached positions belong to each hypothesis, so reordering a beam
    moves booleans only. With restricted attention it covers the steps that are seen, and no more.
    """

    def __init__(
        self, memory_kv: list[tuple[Tensor, Tensor]], memory_mask: Tensor, beam_size: int
    ) -> None:
        self.n_heads = memory_kv[0][0].shape[1]
        self.memory_kv = [(k.flatten(0, 1), v.flatten(0, 1)) for k, v in memory_kv]
        self.beam_size = beam_size
        self.steps = 0
        self.layers = [LayerCache() for _ in memory_kv]
        self.ancestors = memory_mask.new_zeros(memory_mask.shape[0], beam_size, 0)
        like = self.memory_kv[0][0]
        # (B·H, 1, S) and (B·H, W, N): what attention adds to its scores, 0 or -inf.
        self.memory_bias = _bias(memory_mask[:, 0], self.n_heads, like=like)
        self.ancestor_bias = like.new_zeros(1, 1, 1)
        self._rows: Tensor | None = None

    @property
    def seen(self) -> int:
        """How many cached positions of a sentence the step in progress looks at."""
        return self.ancestors.shape[-1]

    def reorder(self, parents: Tensor) -> None:
        """Let hypothesis w of a sentence continue what was hypothesis `parents[b, w]`; (B, W)."""
        rows = parents.unsqueeze(-1).expand(-1, -1, self.seen)
        self.ancestors = self.ancestors.gather(1, rows)

    def select(self, sentences: Tensor) -> None:
        """Keep these sentences (an int64 vector of indices), in that order."""
        rows = (sentences.unsqueeze(1) * self.n_heads).add(
            torch.arange(self.n_heads, device=sentences.device)
        )
        rows = rows.flatten()
        self.memory_kv = [
            (k.index_select(0, rows), v.index_select(0, rows)) for k, v in self.memory_kv
        ]
        self.memory_bias = self.memory_bias.index_select(0, rows)
        self.ancestors = self.ancestors.index_select(0, sentences)
        for layer in self.layers:
            layer.select(sentences)

    def advance(self, rows: Tensor, window: int | None) -> None:
        """Open the next step, in which the slots `rows` (R,) of all B·W are live."""
        B, W = self.ancestors.shape[:2]
        self._rows = None if len(rows) == B * W else rows
        own = torch.eye(W, dtype=torch.bool, device=self.ancestors.device).expand(B, W, W)
        self.ancestors = torch.cat((self.ancestors, own), dim=-1)
        self.steps += 1
        if window is not None:
            self.ancestors = self.ancestors[:, :, -(window + 1) * W :]
        # A single hypothesis descends from everything.
        if W > 1:
            self.ancestor_bias = _bias(self.ancestors, self.n_heads, like=self.memory_bias)

    def spread(self, x: Tensor) -> Tensor:
        """Live hypotheses (R, D) in their slots, (B, W, D), zeros elsewhere."""
        B, W = self.ancestors.shape[:2]
        if self._rows is not None:
            x = x.new_zeros(B * W, x.shape[-1]).index_copy_(0, self._rows, x)
        return x.view(B, W, -1)

    def gather(self, x: Tensor) -> Tensor:
        """The live ones (R, D) among all slots (B·W, D)."""
        return x if self._rows is None else x.index_select(0, self._rows)


class Transformer(nn.Module):
    """The encoder-decoder of Figure 1, its embeddings shared three ways (Section 3.4).

    Args:
        config: the shape of the model.
        vocab_size: V, of the joint vocabulary.
        pad_id: the id that masks derive from.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, pad_id: int) -> None:
        super().__init__()
        self.config = config
        self.pad_id = pad_id
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        # Post-norm stacks end in a norm by construction.
        final = config.norm == "pre"
        self.encoder_norm = _layer_norm(config) if final else nn.Identity()
        self.decoder_norm = _layer_norm(config) if final else nn.Identity()
        if config.positions == "learned":
            self.learned_positions = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        # Takes the place of the output layer where inference has another form of the matrix.
        self.output: nn.Module | None = None
        self._sinusoids: Tensor | None = None
        self.reset_parameters()

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.embedding.num_embeddings

    def reset_parameters(self) -> None:
        """Draw all initial values: Glorot uniform, and N(0, D^-½) for the embeddings."""
        std = self.config.d_model**-0.5
        nn.init.normal_(self.embedding.weight, std=std)
        with torch.no_grad():
            self.embedding.weight[self.pad_id].zero_()
        if self.config.positions == "learned":
            nn.init.normal_(self.learned_positions, std=std)
        for module in self.modules():
            if isinstance(module, Attention | FeedForward):
                module.reset_parameters()

    def forward(
        self,
        src: Tensor,
        tgt_in: Tensor,
        *,
        output: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Logits of every next target token.

        Args:
            src: (B, S), each sentence ended by EOS, then padding.
            tgt_in: (B, T), each sentence begun by BOS, then padding.
            output: takes the place of the output layer, and gets what that works on: the states
                (B, T, D) and the matrix (V, D). A loss need not see all logits at once.

        Returns:
            (B, T, V), or what `output` returns. Rows at padding are meaningless.
        """
        memory = self.encode(src)
        # Padding follows the sentence, so causality already hides it from every real position.
        x = self._embed(tgt_in)
        for layer in self._decoder_layers():
            x = layer(x, memory.states, memory.mask)
        if output is not None:
            return output(self.decoder_norm(x), self.embedding.weight)
        return self._logits(x)

    def encode(self, src: Tensor) -> Memory:
        """The encoder's output for `src` (B, S), ended by EOS and padded."""
        visible = (src != self.pad_id)[:, None, None, :]
        x = self._embed(src)
        for layer in self.encoder:
            x = layer(x, visible)
        return Memory(self.encoder_norm(x), visible)

    def start(self, memory: Memory, beam_size: int) -> DecoderCache:
        """A cache for decoding `beam_size` hypotheses of each sentence from the beginning."""
        kv = [
            layer.cross_attention.project_memory(memory.states) for layer in self._decoder_layers()
        ]
        return DecoderCache(kv, memory.mask, beam_size)

    def decode_step(self, tokens: Tensor, rows: Tensor, cache: DecoderCache) -> Tensor:
        """Log-probabilities of the token after `tokens`, for the R live hypotheses.

        Args:
            tokens: (R,), the newest token of each; BOS at first.
            rows: (R,), the slot of each among the B·W, ascending.
            cache: of the steps before; it is changed in place.

        Returns:
            (R, V) natural logarithms in float32 (float64 for a float64 model).
        """
        x = self.embedding(tokens) * math.sqrt(self.config.d_model)
        x = x + self._positions(cache.steps, cache.steps + 1, like=x)
        cache.advance(rows, self.config.attention_window)
        layers = zip(self._decoder_layers(), cache.memory_kv, cache.layers, strict=True)
        for layer, memory_kv, own in layers:
            x = layer.step(x, memory_kv, own, cache)
        logits = self._logits(x)
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)

    def layers(self) -> list[nn.Module]:
        """All layers, in the order in which they run."""
        return [*self.encoder, *self.decoder]

    def compile_layers(self) -> None:
        """Compile every layer with torch.compile; layers of one kind share their graphs."""
        for layer in self.layers():
            layer.compile(dynamic=True)

    def _decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]

    def _embed(self, ids: Tensor) -> Tensor:
        """Scaled embeddings plus positions, (B, T, D)."""
        # √D brings embeddings of deviation D^-½ to the size of the position encoding (Section 3.4).
        x = self.embedding(ids) * math.sqrt(self.config.d_model)
        dropped: Tensor = self.dropout(x + self._positions(0, ids.shape[1], like=x))
        return dropped

    def _positions(self, start: int, end: int, *, like: Tensor) -> Tensor:
        """Encodings of the positions `start` to `end`, (end - start, D)."""
        if self.config.positions == "learned":
            if end > self.config.max_positions:
                raise MtkitError(
                    f"a sequence of {end} tokens is longer than model.max_positions "
                    f"({self.config.max_positions}), the limit of learned positions"
                )
            return self.learned_positions[start:end]
        table = self._sinusoids
        # Kept between calls, no part of the weights, and as long as the longest sequence so far.
        if table is None or len(table) < end or table.dtype != like.dtype:
            table = sinusoidal_positions(max(2 * end, 256), self.config.d_model)
        self._sinusoids = table = table.to(like)
        return table[start:end]

    def _logits(self, x: Tensor) -> Tensor:
        # The output layer is the embedding matrix itself, without a bias (Section 3.4).
        x, weight = self.decoder_norm(x), self.embedding.weight
        if self.output is not None:
            logits: Tensor = self.output(x)
            return logits
        if x.is_cuda:
            return output_layer(x, weight, multiple=GPU_TILE)
        return F.linear(x, weight)


def parameter_counts(model: Transformer) -> dict[str, int]:
    """Parameters per part, each shared matrix counted once; the values sum to the whole."""
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = name.split(".")[0].removesuffix("_norm")
        counts[part] = counts.get(part, 0) + parameter.numel()
    return counts


def _layer_norm(config: ModelConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPSILON)


def _bias(mask: Tensor, n_heads: int, *, like: Tensor) -> Tensor:
    """0 where the (B, W, N) `mask` is True and -inf elsewhere, for each head: (B·H, W, N)."""
    B, W, N = mask.shape
    bias = like.new_zeros(B, W, N).masked_fill_(~mask, -torch.inf)
    return bias.unsqueeze(1).expand(B, n_heads, W, N).reshape(B * n_heads, W, N)


def _band(
    queries: int, keys: int, *, first: int, before: int, after: int, device: torch.device
) -> Tensor:
    """(queries, keys) mask: query t sees the keys t - before to t + after, key 0 being `first`."""
    t = torch.arange(queries, device=device).unsqueeze(1)
    offset = torch.arange(first, first + keys, device=device) - t
    return (offset >= -before) & (offset <= after)
