"""Scaled dot-product attention (Section 3.2.1), and attention restricted to neighbours (Section 4).

Functions of tensors; `model` has the layers that project queries, keys and values. Letters are
those of `model`: B sentences, H heads, T queries, S keys, K the width of a head.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from mtkit.kernels.cpu_attention import attend_by_products, is_fused_attention_slow
from mtkit.packing import by_blocks

# Restricted attention works on blocks of positions; smaller ones waste time on bookkeeping.
SMALLEST_BLOCK = 32


@by_blocks
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    /,
    *,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention: softmax(q·kᵀ/√K)·v.

    Args:
        q: (B, H, T, K).
        k: (B, H, S, K).
        v: (B, H, S, Kv).
        mask: (T, S), or (B, 1, 1 or T, S). Every query must see at least one key.
        causal: let position t see positions up to t; instead of a mask.
        dropout: on the attention weights.

    Returns:
        (B, H, T, Kv).
    """
    if is_fused_attention_slow(q, k):
        return attend_by_products(q, k, v, mask=mask, causal=causal, dropout=dropout)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal
    )


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """The weights that `attention` gives to the values: softmax(q·kᵀ/√K).

    Args:
        q: (B, H, T, K).
        k: (B, H, S, K).
        mask: broadcastable to (B, H, T, S). A query that sees no key has weights of zero.

    Returns:
        (B, H, T, S), of float32 at least; rows sum to 1.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    scores: Tensor = q.to(wide) @ k.to(wide).transpose(-2, -1) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    # Without a visible key the softmax is not a number.
    return scores.softmax(-1).nan_to_num(0.0) if mask is not None else scores.softmax(-1)


@by_blocks
def local_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    /,
    *,
    window: int,
    causal: bool,
    dropout: float = 0.0,
) -> Tensor:
    """Self-attention restricted to neighbours (Section 4): O(T·r) where full attention is O(T²).

    The sequence is cut into blocks at least as long as the window, so what a block may see lies
    in itself and in the blocks beside it. Short sequences get one mask over everything, which is
    faster there and gives the same.

    Args:
        q, k: (B, H, T, K).
        v: (B, H, T, Kv).
        mask: (B, 1, 1, T), False at padding; None if there is none that matters.
        window: r, the number of positions seen to either side; only to the left if `causal`.
        causal: hide the positions to the right.
        dropout: on the attention weights.

    Returns:
        (B, H, T, Kv). Rows at padding are meaningless.
    """
    B, H, T, _ = q.shape
    if window >= T - 1:
        return attention(q, k, v, mask, causal=causal, dropout=dropout)
    after = 0 if causal else window
    block = max(window, SMALLEST_BLOCK)
    if 4 * block >= T:
        seen = band(T, T, first=0, before=window, after=after, device=q.device)
        if mask is not None:
            seen = seen & mask | band(T, T, first=0, before=0, after=0, device=q.device)
        return attention(q, k, v, seen, dropout=dropout)
    blocks = -(-T // block)
    tail = blocks * block - T
    margin = (block, tail + (0 if causal else block))
    span = block + sum(margin) - tail

    def neighbourhoods(x: Tensor) -> Tensor:
        """(B, H, T, K) to (B·blocks, H, span, K), what each block may look at."""
        windows = F.pad(x, (0, 0, *margin)).unfold(2, span, block)
        return windows.permute(0, 2, 1, 4, 3).flatten(0, 1)

    # Keys of a block begin one block before its queries.
    near = band(block, span, first=-block, before=window, after=after, device=q.device)
    real = q.new_ones(1, T, dtype=torch.bool) if mask is None else mask[:, 0, 0]
    seen = near & F.pad(real, margin).unfold(1, span, block).unsqueeze(2)
    # A row that sees nothing at all, far out in the padding, is NaN on some devices; nobody reads
    # those rows, so they may see themselves.
    itself = band(block, span, first=-block, before=0, after=0, device=q.device)
    seen = (seen | itself).expand(B, -1, -1, -1).reshape(B * blocks, 1, block, span)
    queries = F.pad(q, (0, 0, 0, tail)).view(B, H, blocks, block, -1).transpose(1, 2).flatten(0, 1)
    out = attention(queries, neighbourhoods(k), neighbourhoods(v), seen, dropout=dropout)
    joined = out.view(B, blocks, H, block, -1).transpose(1, 2).flatten(2, 3)
    return joined[:, :, :T]


def band(
    queries: int, keys: int, *, first: int, before: int, after: int, device: torch.device
) -> Tensor:
    """(queries, keys) mask: query t sees the keys t - before to t + after, key 0 being `first`."""
    t = torch.arange(queries, device=device).unsqueeze(1)
    offset = torch.arange(first, first + keys, device=device) - t
    return (offset >= -before) & (offset <= after)
