"""Several batches as one row of tokens, so that a GPU computes them in one pass.

All of the model but attention treats every token alike. There a row of R tokens (1, R) is a matrix
like any other, and each kernel is started once for all batches. Attention is computed batch by
batch: `Blocks` say which tokens of the row are a batch, and take the place of a mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from typing import Concatenate, ParamSpec

import torch
from torch import Tensor

P = ParamSpec("P")
Shape = tuple[int, int]

# Kernels of PyTorch read a bias only if its rows begin at a multiple of this many elements.
ALIGNED = 8


# Not frozen: the code that torch.compile makes would depend on every field of a frozen one.
@dataclass(eq=False)
class Blocks:
    """Where the batches of a row are, for attention.

    Attributes:
        queries: (B, T) of each batch; its B·T tokens are adjacent in the row.
        keys: (B, S) of each batch, in the row of keys and values.
        masks: (B, 1, 1, S) of each batch: False at padding, or numbers to add to the scores, 0 or
            -∞; None if it has no padding that matters.
        positions: (R,), of each query in its sentence, from 0.
    """

    queries: Sequence[Shape]
    keys: Sequence[Shape]
    masks: Sequence[Tensor | None]
    positions: Tensor

    @property
    def longest(self) -> int:
        """The tokens of the longest sentence of queries, with padding."""
        return max(length for _, length in self.queries)


# What attention may see: False at padding, or where the batches of a row are.
Mask = Tensor | Blocks


def each_batch(mask: Mask | None, *qkv: Tensor) -> list[tuple[list[Tensor], Tensor | None]]:
    """Queries, keys and whatever has their shape (B, H, S, K), with the mask, of each batch.

    Without `Blocks` the tensors are one batch. With them they are rows (1, H, R, K), which are
    divided without a copy.
    """
    if not isinstance(mask, Blocks):
        return [([*qkv], mask)]
    shapes = [mask.queries, *[mask.keys for _ in qkv[1:]]]
    batches = zip(*map(_batches, qkv, shapes), strict=True)
    return list(zip(map(list, batches), mask.masks, strict=True))


def by_blocks(
    attention: Callable[Concatenate[Tensor, Tensor, Tensor, Tensor | None, P], Tensor],
) -> Callable[Concatenate[Tensor, Tensor, Tensor, Mask | None, P], Tensor]:
    """`attention`, with `Blocks` as another kind of mask: it is then called for every batch.

    Queries are (1, H, R, K) then, keys and values (1, H, Rs, K); the result is (1, H, R, Kv).
    """

    @wraps(attention)
    def attend(
        q: Tensor, k: Tensor, v: Tensor, mask: Mask | None = None, /, *args: P.args, **how: P.kwargs
    ) -> Tensor:
        if not isinstance(mask, Blocks):
            return attention(q, k, v, mask, *args, **how)
        return _attend_each(attention, q, k, v, mask, *args, **how)

    return attend


def _attend_each(
    attention: Callable[Concatenate[Tensor, Tensor, Tensor, Tensor | None, P], Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocks: Blocks,
    *args: P.args,
    **how: P.kwargs,
) -> Tensor:
    outputs = [
        attention(q, k, v, own, *args, **how).transpose(1, 2).flatten(0, 1)
        for (q, k, v), own in each_batch(blocks, q, k, v)
    ]
    return torch.cat(outputs).transpose(0, 1).unsqueeze(0)


@cache
def leave_uncompiled() -> None:
    """Have torch.compile leave attention of several batches out of its graphs.

    Their number and shapes differ from update to update, and so would the graphs.
    """
    global _attend_each
    _attend_each = torch.compiler.disable(_attend_each)  # type: ignore[no-untyped-call]


def _batches(x: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
    """The batches (B, H, T, K) of a row (1, H, R, K), without a copy."""
    # By rows, which are outermost in memory: so the gradients of the parts are joined in the order
    # of the projections, and need no further copy.
    parts = x.squeeze(0).transpose(0, 1).split_with_sizes([B * T for B, T in shapes])
    return [
        part.view(*shape, *part.shape[1:]).transpose(1, 2)
        for part, shape in zip(parts, shapes, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class Packing:
    """How several batches are packed into one row of source and one of target tokens.

    Attributes:
        src: of the encoder's self-attention; None if the tensors are one batch.
        tgt: of the decoder's self-attention.
        cross: of the decoder's attention to the encoder's output.
    """

    src: Blocks | None = None
    tgt: Blocks | None = None
    cross: Blocks | None = None


UNPACKED = Packing()


def pack(
    src: Tensor,
    positions: tuple[Tensor, Tensor],
    shapes: Sequence[tuple[Shape, Shape]],
    padded: Sequence[bool],
    *,
    pad_id: int,
    bias_dtype: torch.dtype | None,
) -> Packing:
    """How some batches are packed, for the model.

    Args:
        src: (1, Rs), the row of source tokens.
        positions: (Rs,) and (R,), of source and target tokens in their sentences.
        shapes: (B, S) and (B, T) of each batch.
        padded: whether the source of each batch has padding.
        bias_dtype: of masks that are added, in which attention is computed; None for boolean masks.
    """
    src_shapes, tgt_shapes = zip(*shapes, strict=True)
    ids = src[0].split_with_sizes([B * S for B, S in src_shapes])
    masks = [
        _mask(part.view(shape) != pad_id, bias_dtype) if some else None
        for part, shape, some in zip(ids, src_shapes, padded, strict=True)
    ]
    # Padding follows the sentence, so causality already hides it.
    nothing = [None] * len(shapes)
    of_src, of_tgt = positions
    return Packing(
        src=Blocks(src_shapes, src_shapes, masks, of_src),
        tgt=Blocks(tgt_shapes, tgt_shapes, nothing, of_tgt),
        cross=Blocks(tgt_shapes, src_shapes, masks, of_tgt),
    )


def _mask(visible: Tensor, dtype: torch.dtype | None) -> Tensor:
    """(B, 1, 1, S) of (B, S): boolean, or in another type 0 or -∞, with rows that are aligned."""
    visible = visible[:, None, None]
    if dtype is None:
        return visible
    # Made once for all layers; from a boolean mask PyTorch would make one in each layer.
    S = visible.shape[-1]
    wide = torch.zeros(len(visible), 1, 1, S + -S % ALIGNED, dtype=dtype, device=visible.device)
    return wide[..., :S].masked_fill_(~visible, -math.inf)
