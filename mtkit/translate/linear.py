"""Linear layers that are fast in decoding.

`pack_weights` replaces the linear layers of a model that only translates: with a layout for few
rows, in half precision, or in 8 bits.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtkit.base.devices import Precision
from mtkit.kernels.loss import GPU_TILE
from mtkit.model import Transformer

# oneDNN's packed weights are faster if weights are read from memory and not from a cache, that is
# for large matrices and in large models. With one row, reading a transposed matrix is faster; from
# this many rows on, every layout is equally fast.
PACKED_SIZE, PACKED_MODEL = 2_000_000, 2**24
PACKED_FROM, PACKED_TO = 2, 64
HAS_ONEDNN = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
# The largest 8-bit weight and 7-bit activation. CPUs without VNNI add pairs of products in 16 bits,
# which would saturate with one bit more; with these limits the sums are exact on all CPUs.
WEIGHT_MAX = 127
ACTIVATION_MAX = 63
# Smaller matrices stay in float32, because rounding costs more time than 8 bits save.
INT8_SIZE = 2**18
# The divisor of an all-zero row.
TINY = 1e-30


class DenseLinear(nn.Module):
    """A float32 linear layer on a CPU, with a matrix layout for decoding steps.

    PyTorch's linear layer converts its matrix at every call, which takes longer than the
    arithmetic if there are few rows. The weight is (N, K); the weights of a large model are too
    many for a cache.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, large_model: bool = False) -> None:
        super().__init__()
        # Plain attributes, because their access is faster than that of buffers.
        self.transposed = weight.detach().t().contiguous()
        self.bias = weight.new_zeros(len(weight)) if bias is None else bias.detach().clone()
        self._packs = (large_model or weight.numel() >= PACKED_SIZE) and HAS_ONEDNN
        # Created when first needed, because only small batches need it.
        self._packed: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """(..., K) to (..., N)."""
        if x.dim() > 2:
            return self.forward(x.flatten(0, -2)).view(*x.shape[:-1], -1)
        rows = len(x)
        if not self._packs or not PACKED_FROM <= rows <= PACKED_TO:
            return torch.addmm(self.bias, x, self.transposed)
        if self._packed is None:
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self.transposed.t(), rows)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return out


class PaddedLinear(nn.Module):
    """The output layer on a GPU: its matrix gets its rows of zeros once, and not at every step.

    The weight is (N, K).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self._size, self._bias = len(weight), bias
        self._padded = F.pad(weight.detach(), (0, 0, 0, -len(weight) % GPU_TILE))

    def forward(self, x: Tensor) -> Tensor:
        """(..., K) to (..., N)."""
        logits = F.linear(x, self._padded)[..., : self._size]
        return logits if self._bias is None else logits + self._bias


class Int8Linear(nn.Module):
    """A linear layer with 8-bit weights; activations are quantized row by row.

    A row is scaled by its own largest value, so it does not depend on the other rows, and the sums
    of products are exact integers. The weight is (N, K), of float32.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        weight = weight.detach()
        scale = weight.abs().amax(1).clamp_min(TINY).double() / WEIGHT_MAX
        with warnings.catch_warnings():
            # Quantized tensors are deprecated, but PyTorch has no other 8-bit product for CPUs
            # without VNNI.
            warnings.simplefilter("ignore")
            rounded = torch.quantize_per_channel(
                weight, scale, torch.zeros(len(weight), dtype=torch.int64), 0, torch.qint8
            )
        self._packed: Any = torch.ops.quantized.linear_prepack(rounded, None)
        self._bias = None if bias is None else bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """(..., K) to (..., N), in float32."""
        # The infinity norm would be one call, but it is ten times slower.
        largest = x.abs().amax(-1, keepdim=True).clamp_min_(TINY)
        out: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            x / largest, 1 / ACTIVATION_MAX, ACTIVATION_MAX + 1, self._packed
        )
        if self._bias is None:
            return out.mul_(largest)
        return torch.addcmul(self._bias, out, largest, out=out)


def pack_weights(model: nn.Module, precision: Precision, device: torch.device) -> None:
    """Replace the linear layers of a model on `device` by layers for fast decoding, in place.

    The model cannot be trained afterwards.
    """
    if precision == "bf16":
        model.to(torch.bfloat16)
    if device.type != "cpu":
        for module in model.modules():
            if isinstance(module, Transformer) and module.vocab_size % GPU_TILE:
                module.output = PaddedLinear(module.embedding.weight, module.output_bias)
        return
    if precision == "bf16":
        return

    large_model = sum(weight.numel() for weight in model.parameters()) >= PACKED_MODEL

    def laid_out(weight: Tensor, bias: Tensor | None) -> nn.Module:
        if precision == "int8" and weight.numel() >= INT8_SIZE:
            return Int8Linear(weight, bias)
        return DenseLinear(weight, bias, large_model=large_model)

    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, laid_out(child.weight, child.bias))
        if isinstance(module, Transformer):
            # The output layer is the target's embedding matrix (Section 3.4).
            module.output = laid_out(module.embedding.weight, module.output_bias)
