"""The output layer and its loss on a GPU, with the gradient, in few kernels.

The plain form is the formula in `train.loss`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from mtkit.kernels.cpu_loss import in_whole_tiles, possible_tokens, widened

# Size of the buffer of logits. There are float32 copies of it if the loss is not compiled; if it
# is, an update seldom needs two such buffers, and their indices have 32 bits.
MAX_BYTES = 2**29
MAX_BYTES_COMPILED = 2**31


def loss_on_gpu(
    states: Tensor,
    weight: Tensor,
    tgt_out: Tensor,
    *,
    label_smoothing: float,
    pad_id: int,
    bias: Tensor | None = None,
    dtype: torch.dtype | None = None,
    compiled: bool = False,
) -> Tensor:
    """The loss of `kernels.cpu_loss.loss_of_states`, and its arguments; it works on any device.

    The matrix is filled up to whole tiles, and the logits are never cut: that would be a copy. The
    host never waits for the device, so rows of padding are computed as well, and count nothing.

    Args:
        compiled: whether to use torch.compile.
    """
    function = functools.partial(
        _compiled_losses_and_gradient() if compiled else losses_and_gradient_in_place,
        V=len(weight),
        label_smoothing=label_smoothing,
        pad_id=pad_id,
    )
    most = MAX_BYTES_COMPILED if compiled else MAX_BYTES
    rows, targets, dtype = states.flatten(0, -2), tgt_out.flatten(), dtype or weight.dtype
    loss: Tensor = _OutputLossOnGpu.apply(  # type: ignore[no-untyped-call]
        rows, weight, bias, targets, function, dtype, most
    )
    return loss


def losses_and_gradient(
    logits: Tensor,
    targets: Tensor,
    bias: Tensor | None,
    *,
    V: int,
    label_smoothing: float,
    pad_id: int,
) -> Tensor:
    """The losses (N,) of `logits` (N, P), which become their gradient.

    Everything about a row is in one function, because torch.compile makes one kernel of it: it
    reads the logits from memory once, and writes the gradient in their place.

    Args:
        logits: without the bias. Those from `V` on do not exist, and get the gradient 0.
        targets: (N,).
        bias: (V,).
    """
    P = logits.shape[-1]
    token = torch.arange(P, device=logits.device)
    possible = exists = token < V
    wide = widened(logits)
    count: int | Tensor = V
    if bias is not None:
        bias = F.pad(bias.to(wide.dtype), (0, P - V))
        wide = wide + bias
        possible = exists & possible_tokens(bias)
        # Kept on the device, which the host would have to wait for.
        count = possible.sum(dtype=wide.dtype)
    low = label_smoothing / (count - 1)
    extra = 1.0 - label_smoothing - low
    true, real = token == targets.unsqueeze(-1), targets != pad_id
    normaliser = wide.masked_fill(~exists, -torch.inf).logsumexp(-1)
    # The loss is -Σ q·log p with Σ q = 1. The true logit is a sum, which needs no pass of its own.
    true_logit = wide.where(true, 0.0).sum(-1)
    losses = normaliser - extra * true_logit - low * wide.where(possible, 0.0).sum(-1)
    gradient = (wide - normaliser.unsqueeze(-1)).exp()
    gradient = gradient - possible.to(wide.dtype) * low - true.to(wide.dtype) * extra
    logits.copy_(gradient.where(exists & real.unsqueeze(-1), 0.0))
    return losses * real


def losses_and_gradient_in_place(
    logits: Tensor,
    targets: Tensor,
    bias: Tensor | None,
    *,
    V: int,
    label_smoothing: float,
    pad_id: int,
) -> Tensor:
    """The result of `losses_and_gradient`, by few of PyTorch's operators over one buffer."""
    exist, wide = logits[:, :V], torch.promote_types(logits.dtype, torch.float32)
    count: int | Tensor = V
    if bias is None:
        log_probs = exist.log_softmax(-1, dtype=wide)
        summed = log_probs.sum(-1)
    else:
        possible = possible_tokens(bias).to(wide)
        count = possible.sum()
        log_probs = (exist + bias).log_softmax(-1, dtype=wide)
        summed = log_probs @ possible
    low = label_smoothing / (count - 1)
    extra = 1.0 - label_smoothing - low
    truth, real = targets.unsqueeze(-1), targets != pad_id
    losses = -(extra * log_probs.gather(-1, truth).squeeze(-1) + low * summed)
    gradient = log_probs.exp_().sub_(low if bias is None else possible * low)
    gradient.scatter_add_(-1, truth, -(gradient.new_ones(1, 1) * extra).expand_as(truth))
    exist.copy_(gradient.mul_(real.unsqueeze(-1)))
    logits[:, V:] = 0.0
    return losses * real


@functools.cache
def _compiled_losses_and_gradient() -> Callable[..., Tensor]:
    function = torch.compile(losses_and_gradient)

    def for_any_rows(logits: Tensor, targets: Tensor, bias: Tensor | None, **how: Any) -> Tensor:
        for array in (logits, targets):
            torch._dynamo.maybe_mark_dynamic(array, 0)
        return function(logits, targets, bias, **how)

    return for_any_rows


class _OutputLossOnGpu(torch.autograd.Function):
    """Output layer and smoothed cross-entropy with their gradients, all rows if they fit."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        function: Callable[..., Tensor],
        dtype: torch.dtype,
        most: int,
    ) -> Tensor:
        (N, V), wide = (len(states), len(weight)), weight.dtype
        rows, matrix = states.to(dtype), in_whole_tiles(weight.to(dtype))
        chunks = max(1, -(-N * len(matrix) * dtype.itemsize // most))
        size = max(1, -(-N // chunks))
        rows_gradient = torch.empty_like(rows)
        weight_gradient: Tensor | None = None
        bias_gradient: Tensor | None = None
        losses = []
        # The types are chosen here.
        with torch.autocast(states.device.type, enabled=False):
            for start in range(0, N, size):
                chunk = slice(start, start + size)
                logits = torch.mm(rows[chunk], matrix.t())
                losses.append(function(logits, targets[chunk], bias).sum())
                torch.mm(logits, matrix, out=rows_gradient[chunk])
                if ctx.needs_input_grad[1]:
                    product = torch.mm(logits.t(), rows[chunk])[:V].to(wide)
                    weight_gradient = (
                        product if weight_gradient is None else weight_gradient.add_(product)
                    )
                if bias is not None:
                    summed = logits.sum(0, dtype=bias.dtype)[:V]
                    bias_gradient = summed if bias_gradient is None else bias_gradient + summed
                # The memory is for the next ones.
                del logits
        ctx.save_for_backward(rows_gradient.to(states.dtype), weight_gradient, bias_gradient)
        return torch.stack(losses).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        return tuple(
            None if gradient is None else gradient * grad_outputs[0]
            for gradient in ctx.saved_tensors
        ) + 4 * (None,)
