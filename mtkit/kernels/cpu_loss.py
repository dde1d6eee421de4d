"""The output layer and its loss, with few passes over arrays as wide as the vocabulary.

The plain form of all losses here is the formula in `train.loss`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from mtkit.kernels import bf16

# The output bias of a token that is never produced, such as padding. It is finite, so that products
# with zero stay zero, and far below every sum of products.
NEVER = -1e9
# Matrix units of GPUs work on tiles, and a vocabulary that ends inside one makes the largest
# product of a step slower than a few rows of zeros.
GPU_TILE = 128
# Size of the buffer of logits, and, for each thread, of the logits that are processed together so
# that they stay in a cache. More rows in the buffer are not faster.
MAX_BYTES, MAX_ROWS = 2**26, 1024
CACHED_BYTES = 2**20


def output_layer(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Logits (..., V): `x` (..., D) times the rows of `weight` (V, D), plus `bias` (V,)."""
    if not x.is_cuda:
        return bf16.linear(x, weight, bias)
    return output_by_tiles(x, in_whole_tiles(weight), bias, size=len(weight))


def output_by_tiles(x: Tensor, matrix: Tensor, bias: Tensor | None, *, size: int) -> Tensor:
    """As `output_layer`, (..., size), with the matrix of `in_whole_tiles`."""
    logits = F.linear(x, matrix)[..., :size]
    return logits if bias is None else logits + bias.to(logits.dtype)


def in_whole_tiles(weight: Tensor) -> Tensor:
    """(V, D) to (P, D): with rows of zeros that fill the last tile."""
    V = len(weight)
    return F.pad(weight, (0, 0, 0, -V % GPU_TILE)) if V % GPU_TILE else weight


def possible_tokens(bias: Tensor) -> Tensor:
    """(V,): the tokens that a model with this output bias may produce."""
    return bias > NEVER / 2


def smoothed_targets(
    label_smoothing: float, V: int, possible: Tensor | None
) -> tuple[float, float]:
    """The target probability of every possible token, and what the true token has more."""
    count = V if possible is None else int(possible.sum())
    low = label_smoothing / (count - 1)
    return low, 1.0 - label_smoothing - low


def widened(logits: Tensor) -> Tensor:
    """Logits in at least float32, for sums over the vocabulary."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def loss_of_states(
    states: Tensor,
    weight: Tensor,
    tgt_out: Tensor,
    *,
    label_smoothing: float,
    pad_id: int,
    bias: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The loss of `train.loss.label_smoothed_loss`, from the input of the output layer.

    The full (N, V) logits are never stored: some rows at a time are computed, turned into their
    gradient, and multiplied back, while they are in a cache; padding is skipped. On a CPU this is
    faster, and needs a fraction of the memory.

    Args:
        states: (..., D), the decoder's output.
        weight: (V, D), of the output layer.
        tgt_out: (...), the true tokens.
        label_smoothing: ε.
        pad_id: targets that do not count.
        bias: (V,), of the output layer; a token that it never produces gets no share of ε.
        dtype: of the matrix products; by default that of the weight, in which all sums stay.
    """
    targets = tgt_out.flatten()
    real = (targets != pad_id).nonzero().squeeze(-1)
    rows = states.flatten(0, -2).index_select(0, real)
    loss: Tensor = _OutputLoss.apply(  # type: ignore[no-untyped-call]
        rows, weight, bias, targets.index_select(0, real), label_smoothing, dtype or weight.dtype
    )
    return loss


class _OutputLoss(torch.autograd.Function):
    """Output layer and smoothed cross-entropy with their gradients, some rows at a time.

    Every token has the target probability `low`, and the true token has `extra` more. The gradient
    of a logit is its probability minus the target probability. A probability is
    exp(logit - highest logit) divided by the sum of these exponentials over the row.

    A pass over the (N, V) array takes nearly as long as a product, so the array gets only the
    exponentials, and the share of the true token. The rows are divided by their sums before or
    after the products, where they are short. `low` is the same for all tokens, so its products are
    sums of rows, in float32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        label_smoothing: float,
        dtype: torch.dtype,
    ) -> Tensor:
        N, V, wide = len(rows), len(weight), weight.dtype
        possible = None if bias is None else possible_tokens(bias)
        low, extra = smoothed_targets(label_smoothing, V, possible)
        chunks = max(1, -(-N // MAX_ROWS), -(-N * V * dtype.itemsize // MAX_BYTES))
        size = max(1, -(-N // chunks))
        if dtype == torch.bfloat16:
            size = bf16.rounded(size)
        # Rows of zeros add nothing to the gradient of the weight; their own results are cut off.
        targets = F.pad(targets, (0, -N % size)).unsqueeze(-1)
        rows = F.pad(rows.to(wide), (0, 0, 0, -N % size))
        rows_gradient = torch.empty_like(rows)
        # What is frozen needs none; an embedding may be the largest matrix of a model.
        of_weight, of_bias = ctx.needs_input_grad[1:3]
        weight_gradient: Tensor | None = None
        bias_gradient = torch.zeros_like(bias) if bias is not None and of_bias else None
        sums, losses = (rows.new_empty(len(rows), 1) for _ in range(2))
        in_cache = max(1, torch.get_num_threads() * CACHED_BYTES // (V * wide.itemsize))
        # The types are chosen here.
        with torch.autocast(rows.device.type, enabled=False):
            narrow = rows.to(dtype)
            matrix = bf16.converted(weight) if dtype == torch.bfloat16 else weight.to(dtype)
            buffer = matrix.new_empty(size, V)
            for start in range(0, len(rows), size):
                chunk = slice(start, start + size)
                torch.mm(narrow[chunk], matrix.t(), out=buffer)
                for first in range(0, size, in_cache):
                    logits = buffer[first : first + in_cache]
                    part = slice(start + first, start + first + len(logits))
                    exps = logits.to(wide)
                    if bias is not None:
                        exps.add_(bias)
                    highest = exps.amax(-1, keepdim=True)
                    true_logits = exps.gather(-1, targets[part])
                    exps.sub_(highest).exp_()
                    torch.sum(exps, -1, keepdim=True, out=sums[part])
                    normaliser = sums[part].log() + highest
                    torch.sub(normaliser, true_logits, alpha=extra, out=losses[part])
                    exps.scatter_add_(-1, targets[part], -extra * sums[part])
                    if dtype != wide:
                        logits.copy_(exps)
                product = torch.mm(buffer, matrix).to(wide)
                torch.div(product, sums[chunk], out=rows_gradient[chunk])
                scaled = (rows[chunk] / sums[chunk]).to(dtype)
                if not of_weight:
                    pass
                elif weight_gradient is None:
                    # Not added to zeros, which takes as long as adding a chunk.
                    weight_gradient = torch.mm(buffer.t(), scaled).to(wide)
                elif dtype == wide:
                    weight_gradient.addmm_(buffer.t(), scaled)
                else:
                    weight_gradient += torch.mm(buffer.t(), scaled)
                if bias_gradient is not None:
                    # Rows that were added have no targets.
                    shares = (1 / sums[chunk]).to(dtype)
                    shares[max(0, N - start) :] = 0
                    bias_gradient += torch.mm(buffer.t(), shares).squeeze(1)
        if weight_gradient is None and of_weight:
            weight_gradient = torch.zeros_like(weight)
        # The parts that are the same for all tokens of the vocabulary.
        row_sum = rows.sum(0)
        weight_sum = weight.sum(0)
        if possible is not None:
            # Not the sum of the others, which would be a copy of nearly all rows.
            weight_sum -= weight[~possible].sum(0)
        total = losses[:N].sum() - low * torch.dot(row_sum, weight_sum)
        rows_gradient = rows_gradient[:N].sub_(low * weight_sum)
        if weight_gradient is not None:
            if possible is None:
                weight_gradient -= low * row_sum
            else:
                weight_gradient.addr_(possible.to(wide), row_sum, alpha=-low)
        if bias is not None:
            total -= low * N * bias[possible].sum()
        if bias_gradient is not None:
            bias_gradient[possible] -= low * N
        ctx.save_for_backward(rows_gradient, weight_gradient, bias_gradient)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        rows_gradient, weight_gradient, bias_gradient = ctx.saved_tensors
        factor = grad_outputs[0]
        of_weight, of_bias = (
            None if gradient is None else gradient * factor
            for gradient in (weight_gradient, bias_gradient)
        )
        return rows_gradient * factor, of_weight, of_bias, None, None, None
