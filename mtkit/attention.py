"""Scaled dot-product attention (Section 3.2.1), and attention restricted to neighbours (Section 4).

Functions of tensors; `model` has the layers that project queries, keys and values. Letters are
those of `model`: B sentences, H heads, T queries, S keys, K the width of a head.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# Restricted attention works on blocks of positions; smaller ones waste time on bookkeeping.
SMALLEST_BLOCK = 32
# With at most this many keys, two products and a softmax replace PyTorch's fused function where it
# is slow on a CPU. With about 320 keys both take the same time; from there on the fused function is
# faster, and the stored scores of all heads need as much memory as the rest of a training step.
MOST_KEYS = 256
# PyTorch's softmax is ten times slower over rows that are shorter than one of its vectors.
SOFTMAX_ROW = 16


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
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
    if _is_fused_attention_slow(q, k):
        return attend_by_products(q, k, v, mask=mask, causal=causal, dropout=dropout)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal
    )


def attend_by_products(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """The same as `attention`, as two products and a softmax whose result is stored."""
    B, H, T, _ = q.shape
    S = k.shape[2]
    # Scores and their softmax are in float32 at least, as in PyTorch's fused function.
    wide = torch.promote_types(q.dtype, torch.float32)
    if causal:
        mask = band(T, S, first=0, before=T, after=0, device=q.device)
    elif mask is None:
        mask = q.new_ones(1, S, dtype=torch.bool)
    mask = F.pad(mask, (0, -S % SOFTMAX_ROW))
    bias = torch.zeros(mask.shape, dtype=wide, device=q.device).masked_fill_(~mask, -math.inf)
    if bias.dim() == 4:
        bias = bias.expand(B, H, -1, -1).flatten(0, 1)
    keep = None
    if dropout:
        ones = torch.ones(B * H, T, bias.shape[-1], dtype=wide, device=q.device)
        keep = F.dropout(ones, dropout)
    out: Tensor = _Products.apply(q, k, v, bias, keep)  # type: ignore[no-untyped-call]
    return out


class _Products(torch.autograd.Function):
    """Attention and its gradients; each product is one call for all heads.

    The gradients are written out because autograd makes more copies. For short sentences copies
    take as long as the products. Tensors in bfloat16 are multiplied in float32 too: lengths
    differ from batch to batch, and oneDNN would compile a kernel for each.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, keep: Tensor | None
    ) -> Tensor:
        B, H, T, K = q.shape
        padded, wide = bias.shape[-1], bias.dtype
        rows, keys, values = (
            _by_head(x, length, wide) for x, length in ((q, T), (k, padded), (v, padded))
        )
        with torch.autocast(q.device.type, enabled=False):
            scores = torch.baddbmm(bias, rows, keys.transpose(1, 2), alpha=K**-0.5)
            weights = scores.softmax(-1)
            kept = weights if keep is None else weights * keep
            out = torch.bmm(kept, values)
        ctx.save_for_backward(rows, keys, values, weights, keep)
        ctx.shape = B, H, T, k.shape[2]
        return out.to(v.dtype).view(B, H, T, v.shape[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        rows, keys, values, weights, keep = ctx.saved_tensors
        B, H, T, S = ctx.shape
        dtype, wide = grad_outputs[0].dtype, weights.dtype
        grad = grad_outputs[0].reshape(B * H, T, values.shape[-1]).to(wide)
        kept = weights if keep is None else weights * keep
        with torch.autocast(grad.device.type, enabled=False):
            grad_values = torch.bmm(kept.transpose(1, 2), grad)
            grad_weights = torch.bmm(grad, values.transpose(1, 2))
            if keep is not None:
                grad_weights *= keep
            # Of the softmax, and of the division by √K.
            inner = (grad_weights * weights).sum(-1, keepdim=True)
            grad_scores = grad_weights.sub_(inner).mul_(weights).mul_(rows.shape[-1] ** -0.5)
            grad_rows = torch.bmm(grad_scores, keys)
            grad_keys = torch.bmm(grad_scores.transpose(1, 2), rows)
        return (
            grad_rows.to(dtype).view(B, H, T, rows.shape[-1]),
            grad_keys.to(dtype).view(B, H, *keys.shape[1:])[:, :, :S],
            grad_values.to(dtype).view(B, H, *values.shape[1:])[:, :, :S],
            None,
            None,
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


def attention_log_weights(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    """The logarithms of `attention_weights`, for one head and with gradients.

    Args:
        q: (B, T, K).
        k: (B, S, K).
        mask: broadcastable to (B, T, S). Keys that may not be seen have very low finite values.

    Returns:
        (B, T, S), of float32 at least.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    scores: Tensor = torch.bmm(q.to(wide), k.to(wide).transpose(1, 2)) * q.shape[-1] ** -0.5
    return scores.masked_fill(~mask, torch.finfo(wide).min / 2).log_softmax(-1)


def _by_head(x: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """(B, H, T, K) to a copy (B·H, length, K) of another type, padded with zeros to `length`."""
    B, H, T, K = x.shape
    out = x.new_empty(B, H, length, K, dtype=dtype)
    out[:, :, :T] = x
    out[:, :, T:] = 0
    return out.view(B * H, length, K)


def _is_fused_attention_slow(q: Tensor, k: Tensor) -> bool:
    """Whether PyTorch's fused attention is slower than two products and a softmax.

    On a CPU it is, up to four times at the lengths of sentences: backward in bfloat16, and in
    float32 where `select_matmul_backend` has chosen oneDNN.
    """
    if q.device.type != "cpu" or k.shape[2] > MOST_KEYS:
        return False
    if q.dtype == torch.bfloat16:
        return q.requires_grad
    return q.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"


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
        mask = band(T, T, first=0, before=window, after=after, device=q.device)
        if visible is not None:
            mask = mask & visible | band(T, T, first=0, before=0, after=0, device=q.device)
        return attention(q, k, v, mask=mask, dropout=dropout)
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
    real = q.new_ones(1, T, dtype=torch.bool) if visible is None else visible[:, 0, 0]
    mask = near & F.pad(real, margin).unfold(1, span, block).unsqueeze(2)
    # A row that sees nothing at all, far out in the padding, is NaN on some devices; nobody reads
    # those rows, so they may see themselves.
    itself = band(block, span, first=-block, before=0, after=0, device=q.device)
    mask = (mask | itself).expand(B, -1, -1, -1).reshape(B * blocks, 1, block, span)
    queries = F.pad(q, (0, 0, 0, tail)).view(B, H, blocks, block, -1)
    out = attention(
        queries.transpose(1, 2).flatten(0, 1),
        neighbourhoods(k),
        neighbourhoods(v),
        mask=mask,
        dropout=dropout,
    )
    joined = out.view(B, blocks, H, block, -1).transpose(1, 2).flatten(2, 3)
    return joined[:, :, :T]


def band(
    queries: int, keys: int, *, first: int, before: int, after: int, device: torch.device
) -> Tensor:
    """(queries, keys) mask: query t sees the keys t - before to t + after, key 0 being `first`."""
    t = torch.arange(queries, device=device).unsqueeze(1)
    offset = torch.arange(first, first + keys, device=device) - t
    return (offset >= -before) & (offset <= after)
