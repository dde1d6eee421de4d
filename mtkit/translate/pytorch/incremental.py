"""Incremental decoding: one token per step, with cached keys and values.

`Engine` runs the decoder of a Transformer step by step, with a `DecoderCache`. It computes the
same as `Transformer.forward`, but with few function calls, because a step has little arithmetic.
It works on any model, also on one in training.

Letters in shapes are those of `model`; also, R is the number of live hypotheses and N that of
cached positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtkit.kernels.cpu_loss import in_whole_tiles, output_by_tiles, widened
from mtkit.model import DecoderLayer, Residual, Transformer
from mtkit.narrow import NarrowLinear

Sublayer = Callable[[Tensor], Tensor]


class Engine:
    """A Transformer for incremental decoding: the sources at once, then one token per step.

    Args:
        model: in evaluation mode; its weights are not copied.
    """

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.window = model.config.attention_window
        pre = model.config.norm == "pre"
        self.layers = [_Layer(layer, pre=pre) for layer in model.decoder_layers()]
        weight, bias = model.embedding.weight, model.output_bias
        self._output: Sublayer = partial(F.linear, weight=weight, bias=bias)
        if weight.is_cuda:
            # Filled up once, and not at every step.
            matrix = in_whole_tiles(weight.detach())
            self._output = partial(output_by_tiles, matrix=matrix, bias=bias, size=len(weight))

    def start(self, src: Tensor, beam_size: int, block: int = 1) -> DecoderCache:
        """Encode `src` (B, S), padded and with EOS, for decoding W hypotheses of each sentence.

        `block` is that of the search: the shapes of its steps stay the same.
        """
        memory = self.model.encode(src)
        kv = [layer.project_memory(memory.states) for layer in self.layers]
        cache = DecoderCache(kv, memory.mask, beam_size, block)
        cache.scale *= self.model.config.query_factor
        return cache

    def step(self, tokens: Tensor, rows: Tensor, cache: DecoderCache) -> Tensor:
        """Log-probabilities of the token after `tokens`, for the R live hypotheses.

        Args:
            tokens: (R,), the newest token of each hypothesis; BOS in the first step.
            rows: (R,), the slot of each hypothesis among the B·W, ascending.
            cache: of the previous steps; it is changed in place.

        Returns:
            (R, V) natural logarithms in float32 (float64 for a float64 model).
        """
        model = self.model
        x = torch.embedding(model.embedding.weight, tokens) * math.sqrt(model.config.d_model)
        x = x + self._positions(tokens, rows, cache, like=x)
        cache.advance(rows, self.window)
        for layer, memory_kv, past in zip(self.layers, cache.memory_kv, cache.layers, strict=True):
            x = layer.step(x, memory_kv, past, cache)
        return widened(self._output(model.decoder_norm(x))).log_softmax(-1)

    def _positions(
        self, tokens: Tensor, rows: Tensor, cache: DecoderCache, *, like: Tensor
    ) -> Tensor:
        """The encodings of the position of these tokens, (R, D) or (1, D)."""
        model, step = self.model, cache.steps
        if model.config.positions != "words":
            return model.positions(step, step + 1, like=like)
        words = cache.read_words(model.get_buffer("tgt_words")[tokens], rows)
        return model.positions(step, step + 1, like=like, words=words.unsqueeze(1)).squeeze(1)


class _Layer:
    """One decoder layer, with direct access to its parts."""

    def __init__(self, layer: DecoderLayer, *, pre: bool) -> None:
        own, cross, feed_forward = layer.self_attention, layer.cross_attention, layer.feed_forward
        self.sizes = [own.q_width, own.q_width, own.v_width]
        self.project_memory = cross.project_memory
        self.in_proj, self.own_out = _linear(own.in_proj), _linear(own.out_proj)
        self.q_proj, self.cross_out = _linear(cross.q_proj), _linear(cross.out_proj)
        self.inner, self.outer = _linear(feed_forward.inner), _linear(feed_forward.outer)
        self.activation = _IN_PLACE[feed_forward.activation]
        norms: list[Sublayer] = [
            _norm(residual.norm) for residual in layer.residuals if isinstance(residual, Residual)
        ]
        nothing: list[Sublayer] = [lambda x: x] * len(norms)
        self.before, self.after = (norms, nothing) if pre else (nothing, norms)

    def step(
        self, x: Tensor, memory_kv: tuple[Tensor, Tensor], past: LayerCache, cache: DecoderCache
    ) -> Tensor:
        """(R, D) to (R, D)."""
        y = self.before[0](x)
        q, k, v = torch.split(cache.spread(self.in_proj(y)), self.sizes, dim=-1)
        keys, values = past.append(k, v, start=cache.start, seen=cache.seen)
        attended = cache.attend(q, keys.transpose(1, 2), values, cache.ancestor_bias)
        x = self.after[0](torch.add(x, self.own_out(attended)))
        y = self.before[1](x)
        q = cache.spread(self.q_proj(y))
        attended = cache.attend(q, *memory_kv, cache.memory_bias)
        x = self.after[1](torch.add(x, self.cross_out(attended)))
        y = self.before[2](x)
        return self.after[2](torch.add(x, self.outer(self.activation(self.inner(y)))))


def _linear(layer: nn.Linear) -> Sublayer:
    """The same linear map, without the overhead of calling a module."""
    if isinstance(layer, NarrowLinear):
        return layer
    return partial(F.linear, weight=layer.weight, bias=layer.bias)


def _norm(norm: nn.LayerNorm) -> Sublayer:
    """The same layer norm, without the overhead of calling a module."""
    shape, weight, bias = list(norm.normalized_shape), norm.weight, norm.bias
    return partial(torch.layer_norm, normalized_shape=shape, weight=weight, bias=bias, eps=norm.eps)


# Of each activation of the model, the same in place.
_IN_PLACE: dict[Sublayer, Sublayer] = {F.relu: torch.relu_, F.silu: partial(F.silu, inplace=True)}


class LayerCache:
    """Keys and values of a decoder layer, each (B·H, room, K), for whole blocks; else zero."""

    def __init__(self, sentences: int, slots: int, n_heads: int) -> None:
        self.shape = sentences, slots, n_heads
        self._room = 0
        self._kv: list[Tensor] = []

    def append(self, k: Tensor, v: Tensor, *, start: int, seen: range) -> list[Tensor]:
        """Write the (B·W, H·K) of a step at `start`; return the positions `seen` of all."""
        B, W, H = self.shape
        if seen.stop > self._room:
            # Not copied for every step: the room grows by half.
            room, self._room = self._room, seen.stop + self._room // 2 // W * W
            grown = [x.new_zeros(B * H, self._room, x.shape[-1] // H) for x in (k, v)]
            for new, old in zip(grown, self._kv, strict=False):
                new[:, :room] = old
            self._kv = grown
        for buffer, new in zip(self._kv, (k, v), strict=True):
            buffer[:, start : start + W] = _by_head(new, self.shape)
        return [buffer[:, seen.start : seen.stop] for buffer in self._kv]

    def select(self, sentences: Tensor, rows: Tensor) -> None:
        """Keep these sentences; `rows` are theirs of all B·H."""
        self.shape = len(sentences), *self.shape[1:]
        self._kv = [buffer.index_select(0, rows) for buffer in self._kv]


class DecoderCache:
    """The decoding state of B sentences with up to W hypotheses each.

    A sentence has W slots for hypotheses, of which any number are live. Linear layers compute only
    the R live ones; attention computes all slots, and the values of dead slots are never read.

    The keys and values of the encoder's output are projected once per sentence and shared by its
    beams. Those of the decoder are written once and never moved: `ancestors` (B, W, steps·W) is
    0 at the cached positions that belong to a hypothesis and -inf at the others, so reordering a
    beam moves only few numbers. Attention covers whole blocks of steps; positions that are not
    written yet have a bias of -inf too.

    Args:
        memory_kv: keys and values of each layer, (B, H, S, K).
        memory_mask: (B, 1, 1, S), False at padding.
        slots: W.
        block: of steps.
    """

    def __init__(
        self, memory_kv: list[tuple[Tensor, Tensor]], memory_mask: Tensor, slots: int, block: int
    ) -> None:
        like = memory_kv[0][0]
        B, H, _, K = like.shape
        self.shape = B, slots, H
        self.scale = 1 / math.sqrt(K)
        self._block = block * slots
        # The step, where it is written, and the cached positions that attention covers.
        self.steps, self.start, self.seen = 0, 0, range(0)
        self.memory_kv = [(k.flatten(0, 1).transpose(1, 2), v.flatten(0, 1)) for k, v in memory_kv]
        self.layers = [LayerCache(B, slots, H) for _ in memory_kv]
        # The bias of attention scores, broadcast to (B·H, W, N).
        bias = like.new_zeros(B, 1, memory_mask.shape[-1])
        self.memory_bias = self._for_heads(bias.masked_fill_(~memory_mask[:, 0], -torch.inf))
        self.ancestor_bias = like.new_zeros(1, 1, 1)
        # With a single hypothesis, all sentences share it.
        self.ancestors = like.new_zeros(B if slots > 1 else 1, slots, 0)
        # (B, W): words of the source that each hypothesis has read, once they are counted.
        self._words: Tensor | None = None
        self._own = like.new_full((slots, slots), -torch.inf).fill_diagonal_(0)
        self._rows: Tensor | None = None

    def reorder(self, parents: Tensor) -> None:
        """Slot w of sentence b continues the hypothesis of slot `parents[b, w]`; (B, W)."""
        if self.shape[1] == 1:
            return
        rows = parents.unsqueeze(-1).expand(-1, -1, self.ancestors.shape[-1])
        self.ancestors = self.ancestors.gather(1, rows)
        if self._words is not None:
            self._words = self._words.gather(1, parents)

    def select(self, sentences: Tensor) -> None:
        """Keep these sentences (an int64 vector of indices), in that order."""
        _, W, H = self.shape
        self.shape = len(sentences), W, H
        heads = torch.arange(H, device=sentences.device)
        rows = (sentences.unsqueeze(1) * H + heads).flatten()
        self.memory_kv = [
            (k.index_select(0, rows), v.index_select(0, rows)) for k, v in self.memory_kv
        ]
        if len(self.memory_bias) > 1:
            self.memory_bias = self.memory_bias.index_select(0, rows)
        if len(self.ancestors) > 1:
            self.ancestors = self.ancestors.index_select(0, sentences)
        if self._words is not None:
            self._words = self._words.index_select(0, sentences)
        for layer in self.layers:
            layer.select(sentences, rows)

    def read_words(self, is_word: Tensor, rows: Tensor) -> Tensor:
        """The words (R,) read by the live hypotheses in `rows`, whose newest token may be one."""
        if self._words is None:
            B, W, _ = self.shape
            self._words = torch.zeros(B, W, dtype=torch.int64, device=rows.device)
        self._words.view(-1).index_add_(0, rows, is_word.long())
        return self._words.view(-1)[rows]

    def advance(self, rows: Tensor, window: int | None) -> None:
        """Start the next step, in which the slots `rows` (R,) of all B·W are live."""
        B, W, _ = self.shape
        self._rows = None if len(rows) == B * W else rows
        self.start, self.steps = self.steps * W, self.steps + 1
        first, end = 0, self._in_blocks(self.start + W)
        if end > self.ancestors.shape[-1]:
            self.ancestors = F.pad(self.ancestors, (0, end - self.start), value=-torch.inf)
        self.ancestors[:, :, self.start : self.start + W] = self._own
        if window is not None and self.steps > window + 1:
            left = (self.steps - window - 1) * W
            self.ancestors[:, :, left - W : left].fill_(-torch.inf)
            first = self._in_blocks(left + 1) - self._block
        self.seen = range(first, end)
        seen = self.ancestors[:, :, first:]
        self.ancestor_bias = self._for_heads(seen) if W > 1 else seen

    def _in_blocks(self, positions: int) -> int:
        """Cached positions rounded up to whole blocks of steps."""
        return -(-positions // self._block) * self._block

    def spread(self, x: Tensor) -> Tensor:
        """Live hypotheses (R, D) in their slots, (B·W, D), zeros elsewhere."""
        if self._rows is None:
            return x
        B, W, _ = self.shape
        return x.new_zeros(B * W, x.shape[-1]).index_copy_(0, self._rows, x)

    def attend(self, q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        """Attention of few queries, for which PyTorch's own function is slow.

        Args:
            q: (B·W, H·K), of all slots.
            keys: (B·H, K, N).
            values: (B·H, N, K).
            bias: added to the scores, broadcast to (B·H, W, N).

        Returns:
            (R, H·K), of the live hypotheses.
        """
        B, W, H = self.shape
        scores = torch.baddbmm(bias, _by_head(q, self.shape), keys, alpha=self.scale)
        heads = torch.bmm(torch.softmax(scores, -1), values)
        if W == 1:
            joined = heads.view(B, -1)
        else:
            joined = heads.view(B, H, W, -1).transpose(1, 2).reshape(B * W, -1)
        return joined if self._rows is None else joined.index_select(0, self._rows)

    def _for_heads(self, bias: Tensor) -> Tensor:
        """(B, W, N) in a shape that broadcasts to (B·H, W, N)."""
        B, _, H = self.shape
        return bias if B == 1 else bias.repeat_interleave(H, dim=0)


def _by_head(x: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """(B·W, H·K) as (B·H, W, K)."""
    B, W, H = shape
    if W == 1:
        return x.reshape(B * H, 1, -1)
    return x.view(B, W, H, -1).transpose(1, 2).reshape(B * H, W, -1)
