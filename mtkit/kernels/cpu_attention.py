"""Attention on a CPU, where PyTorch's fused function is slow.

Its plain form is PyTorch's `scaled_dot_product_attention`, which `mtkit.attention` calls elsewhere.
Letters are those of `model`: B sentences, H heads, T queries, S keys, K the width of a head.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# With at most this many keys, two products and a softmax replace PyTorch's fused function where it
# is slow on a CPU. With about 320 keys both take the same time; from there on the fused function is
# faster, and the stored scores of all heads need as much memory as the rest of a training step.
MAX_KEYS = 256
# PyTorch's softmax is ten times slower over rows that are shorter than one of its vectors.
SOFTMAX_ROW = 16


def is_fused_attention_slow(q: Tensor, k: Tensor) -> bool:
    """Whether PyTorch's fused attention is slower than two products and a softmax.

    On a CPU it is, up to four times at the lengths of sentences: backward in bfloat16, and in
    float32 where `select_matmul_backend` has chosen oneDNN.
    """
    if q.device.type != "cpu" or k.shape[2] > MAX_KEYS:
        return False
    if q.dtype == torch.bfloat16:
        return q.requires_grad
    return q.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"


def attend_by_products(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """As PyTorch's `scaled_dot_product_attention`: two products, and a softmax that is stored.

    The arguments are those of `mtkit.attention.attention`.
    """
    B, H, T, _ = q.shape
    S = k.shape[2]
    # Scores and their softmax are in float32 at least, as in PyTorch's fused function.
    wide = torch.promote_types(q.dtype, torch.float32)
    if causal:
        mask = q.new_ones(T, S, dtype=torch.bool).tril_()
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


def _by_head(x: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """(B, H, T, K) to a copy (B·H, length, K) of another type, padded with zeros to `length`."""
    B, H, T, K = x.shape
    out = x.new_empty(B, H, length, K, dtype=dtype)
    out[:, :, :T] = x
    out[:, :, T:] = 0
    return out.view(B * H, length, K)
