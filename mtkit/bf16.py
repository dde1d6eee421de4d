"""Linear maps in bfloat16 on a CPU, with their gradients.

They give what autocast gives with PyTorch's linear layer, and are faster for two reasons:

- oneDNN, which computes the products, compiles a program for every new shape. That takes as long
  as several products, and only the last 1,024 programs are kept. Batches of sentences have
  hundreds of shapes, so the rows are rounded up to a few numbers; the rows that are added are
  zeros.
- Autocast converts and copies more than is needed.

Weights and their gradients are in float32.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# The matrix units of CPUs work on 16 rows at a time.
UNIT = 16
# Numbers of rows between one power of two and the next.
STEPS = 16


def is_wanted(x: Tensor) -> bool:
    """Whether a linear map of `x` is one of this module: with autocast on a CPU."""
    return (
        x.device.type == "cpu"
        and torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def rounded(rows: int) -> int:
    """The number of rows that are computed for so many, at most a sixteenth more.

    >>> [rounded(rows) for rows in (1, 16, 17, 256, 257, 1453)]
    [16, 16, 32, 256, 272, 1472]
    """
    unit = max(UNIT, 2 ** ((rows - 1).bit_length() - 1) // STEPS) if rows > 1 else UNIT
    return -(-rows // unit) * unit


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`x` times the rows of `weight`, plus `bias`.

    Args:
        x: (..., K), of any type.
        weight: (N, K), of float32.
        bias: (N,), or None.

    Returns:
        (..., N), of bfloat16.
    """
    if not torch.is_grad_enabled():
        # Autocast converts the weights once for many calls.
        return _cut(F.linear(_rows(x), weight, bias), like=x)
    out: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return out


def feed_forward(
    x: Tensor, inner: Tensor, inner_bias: Tensor, outer: Tensor, outer_bias: Tensor
) -> Tensor:
    """Two linear maps with a ReLU between them (Section 3.3).

    Args:
        x: (..., D), of any type.
        inner, inner_bias: (F, D) and (F,), of float32.
        outer, outer_bias: (D, F) and (D,), of float32.

    Returns:
        (..., D), of bfloat16.
    """
    if not torch.is_grad_enabled():
        hidden = F.linear(_rows(x), inner, inner_bias).relu_()
        return _cut(F.linear(hidden, outer, outer_bias), like=x)
    out: Tensor = _FeedForward.apply(  # type: ignore[no-untyped-call]
        x, inner, inner_bias, outer, outer_bias
    )
    return out


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, narrow = _rows(x), weight.bfloat16()
        ctx.save_for_backward(rows, narrow)
        ctx.has_bias = bias is not None
        return _cut(F.linear(rows, narrow, None if bias is None else bias.bfloat16()), like=x)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        gradient = _rows(grad_outputs[0])
        of_weight, of_bias = _of_weights(gradient, rows)
        of_x = _cut(gradient @ weight, like=grad_outputs[0])
        return of_x, of_weight, of_bias if ctx.has_bias else None


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, inner: Tensor, inner_bias: Tensor, outer: Tensor, outer_bias: Tensor
    ) -> Tensor:
        rows, inner, outer = _rows(x), inner.bfloat16(), outer.bfloat16()
        hidden = F.linear(rows, inner, inner_bias.bfloat16()).relu_()
        ctx.save_for_backward(rows, hidden, inner, outer)
        return _cut(F.linear(hidden, outer, outer_bias.bfloat16()), like=x)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, ...]:
        rows, hidden, inner, outer = ctx.saved_tensors
        gradient = _rows(grad_outputs[0])
        of_outer, of_outer_bias = _of_weights(gradient, hidden)
        of_hidden = gradient @ outer
        # Of the ReLU, in place.
        torch.ops.aten.threshold_backward.grad_input(of_hidden, hidden, 0, grad_input=of_hidden)
        of_inner, of_inner_bias = _of_weights(of_hidden, rows)
        of_x = _cut(of_hidden @ inner, like=grad_outputs[0])
        return of_x, of_inner, of_inner_bias, of_outer, of_outer_bias


def _of_weights(gradient: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients (N, K) and (N,) of weight and bias, from (R, N) and (R, K)."""
    turned = gradient.t()
    if gradient.shape[1] < rows.shape[1]:
        # oneDNN is slow to transpose the left matrix; this pays where it is the smaller one.
        turned = turned.contiguous()
    return (turned @ rows).float(), gradient.sum(0).float()


def _rows(x: Tensor) -> Tensor:
    """`x` (..., K) as (R, K) in bfloat16, with R from `rounded`."""
    count, width = x.numel() // x.shape[-1], x.shape[-1]
    total = rounded(count)
    if count == total and x.dtype == torch.bfloat16:
        return x.reshape(count, width)
    out = x.new_empty(total, width, dtype=torch.bfloat16)
    out[:count].view(x.shape).copy_(x)
    out[count:].zero_()
    return out


def _cut(rows: Tensor, *, like: Tensor) -> Tensor:
    """(R, N) as (..., N), without the rows that `_rows` has added to `like` (..., K)."""
    count = like.numel() // like.shape[-1]
    return rows[:count].view(*like.shape[:-1], rows.shape[-1])
