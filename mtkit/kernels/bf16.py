"""Linear maps in bfloat16 on a CPU, with their gradients.

They compute what PyTorch's linear layer computes under autocast, and are faster for two reasons:

- oneDNN, which computes the products, compiles a kernel for every new shape. That takes as long as
  several products, and oneDNN keeps only the last 1,024 kernels. Batches of sentences have hundreds
  of shapes. So the number of rows is rounded up, with rows of zeros, to one of few numbers.
- Autocast converts and copies more than is needed.

Weights and their gradients are in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# The matrix units of CPUs work on 16 rows at a time.
UNIT = 16
# `rounded` has this many different results between one power of two and the next. More would save
# a few rows of zeros, and cost memory: a kernel takes about a megabyte.
STEPS = 8


# Within `weights_unchanged`: weights, and the same in bfloat16, by the identity of the weight.
_converted: dict[int, tuple[Tensor, Tensor]] | None = None


@contextmanager
def weights_unchanged() -> Iterator[None]:
    """Within it no weight changes, so each is converted to bfloat16 only once, for all threads.

    It is for the micro-batches of an update. To convert a matrix takes as long as its product with
    a few rows.
    """
    global _converted
    _converted = {}
    try:
        yield
    finally:
        _converted = None


def converted(weight: Tensor) -> Tensor:
    """A weight in bfloat16, which must not be changed."""
    known = _converted
    if known is None:
        return weight.bfloat16()
    if id(weight) not in known:
        # Two threads may both do this. They get the same numbers.
        known[id(weight)] = weight, weight.bfloat16()
    return known[id(weight)][1]


def applies_to(x: Tensor) -> bool:
    """True on a CPU under autocast to bfloat16, except while torch.compile traces."""
    return (
        x.device.type == "cpu"
        and torch.is_autocast_enabled("cpu")
        and torch.get_autocast_dtype("cpu") == torch.bfloat16
        and not torch.compiler.is_compiling()
    )


def rounded(rows: int) -> int:
    """The number of rows that are computed: at most 15 or an eighth more than `rows`.

    >>> [rounded(rows) for rows in (1, 16, 17, 256, 257, 1453)]
    [16, 16, 32, 256, 288, 1536]
    """
    unit = max(UNIT, 2 ** ((rows - 1).bit_length() - 1) // STEPS) if rows > 1 else UNIT
    return -(-rows // unit) * unit


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`x` (..., K) times the rows of `weight` (N, K), plus `bias` (N,).

    Returns:
        (..., N). In bfloat16 and in training it may not be changed in place.
    """
    if not applies_to(x):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        # Autocast converts the weights once for many calls.
        return _unpad(F.linear(_pad_rows(x), weight, bias), like=x)
    out: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return out


def feed_forward(
    x: Tensor, inner: Tensor, inner_bias: Tensor, outer: Tensor, outer_bias: Tensor
) -> Tensor:
    """Two linear maps with a ReLU between them (Section 3.3), where `applies_to` is true.

    Its plain form is `model.FeedForward`.

    Args:
        x: (..., D), of any type.
        inner, inner_bias: (F, D) and (F,), of float32.
        outer, outer_bias: (D, F) and (D,), of float32.

    Returns:
        (..., D), of bfloat16. In training it may not be changed in place.
    """
    if not torch.is_grad_enabled():
        hidden = F.linear(_pad_rows(x), inner, inner_bias).relu_()
        return _unpad(F.linear(hidden, outer, outer_bias), like=x)
    out: Tensor = _FeedForward.apply(  # type: ignore[no-untyped-call]
        x, inner, inner_bias, outer, outer_bias
    )
    return out


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, narrow = _pad_rows(x), converted(weight)
        ctx.save_for_backward(rows, narrow)
        ctx.has_bias = bias is not None
        return _unpad(F.linear(rows, narrow, None if bias is None else bias.bfloat16()), like=x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        grad = _pad_rows(grad_outputs[0])
        grad_weight, grad_bias = _of_weights(grad, rows)
        grad_x = _unpad(grad @ weight, like=grad_outputs[0])
        return grad_x, grad_weight, grad_bias if ctx.has_bias else None


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, inner: Tensor, inner_bias: Tensor, outer: Tensor, outer_bias: Tensor
    ) -> Tensor:
        rows, inner, outer = _pad_rows(x), converted(inner), converted(outer)
        hidden = F.linear(rows, inner, inner_bias.bfloat16()).relu_()
        ctx.save_for_backward(rows, hidden, inner, outer)
        return _unpad(F.linear(hidden, outer, outer_bias.bfloat16()), like=x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, ...]:
        rows, hidden, inner, outer = ctx.saved_tensors
        grad = _pad_rows(grad_outputs[0])
        grad_outer, grad_outer_bias = _of_weights(grad, hidden)
        grad_hidden = grad @ outer
        # Of the ReLU, in place.
        torch.ops.aten.threshold_backward.grad_input(grad_hidden, hidden, 0, grad_input=grad_hidden)
        grad_inner, grad_inner_bias = _of_weights(grad_hidden, rows)
        grad_x = _unpad(grad_hidden @ inner, like=grad_outputs[0])
        return grad_x, grad_inner, grad_inner_bias, grad_outer, grad_outer_bias


def _of_weights(grad: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients (N, K) and (N,) of weight and bias, from (R, N) and (R, K)."""
    transposed = grad.t()
    if grad.shape[1] < rows.shape[1]:
        # oneDNN is slow to transpose the left matrix; this pays where it is the smaller one.
        transposed = transposed.contiguous()
    return (transposed @ rows).float(), grad.sum(0).float()


def _pad_rows(x: Tensor) -> Tensor:
    """`x` (..., K) as (R, K) in bfloat16, with R from `rounded`."""
    count, width = x.numel() // x.shape[-1], x.shape[-1]
    total = rounded(count)
    if count == total and x.dtype == torch.bfloat16:
        return x.reshape(count, width)
    out = x.new_empty(total, width, dtype=torch.bfloat16)
    out[:count].view(x.shape).copy_(x)
    out[count:].zero_()
    return out


def _unpad(rows: Tensor, *, like: Tensor) -> Tensor:
    """(R, N) as (..., N), without the rows that `_pad_rows` has added to `like` (..., K)."""
    count = like.numel() // like.shape[-1]
    return rows[:count].view(*like.shape[:-1], rows.shape[-1])
