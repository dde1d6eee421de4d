"""Dropout (Section 5.4), on a CPU with random bits that cost little.

Its plain form is PyTorch's `dropout`, which is used elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

# The generator of `Dropout` in a thread; None for that of PyTorch.
_generator: ContextVar[torch.Generator | None] = ContextVar("_generator", default=None)


@contextmanager
def dropout_seeded(seed: int) -> Iterator[None]:
    """In this thread, have `Dropout` draw from a generator of its own, on a CPU.

    All threads share the generator of PyTorch. Both generators give the same numbers for a seed.
    """
    before = _generator.set(torch.Generator().manual_seed(seed))
    try:
        yield
    finally:
        _generator.reset(before)


class Dropout(nn.Module):
    """Dropout (Section 5.4).

    PyTorch draws one float at a time, which was a twentieth of a training step of the `small`
    preset. Here, on a CPU, a 64-bit generator decides about four elements at once, each with a
    probability that is a multiple of 1/65,536. It is seeded by PyTorch's generator, or by that of
    `dropout_seeded`. The result is of float32 at least, because 1 / (1 - p) is not a bfloat16
    number.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """`x` in evaluation; in training, elements are dropped and the others scaled up."""
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        # With p < 1, something is kept.
        dropped = min(round(self.p * 65_536), 65_535)
        seed = torch.randint(2**63 - 1, (), generator=_generator.get())
        generator = np.random.SFC64(int(seed))
        count = x.numel()
        bits = torch.from_numpy(generator.random_raw(-(-count // 4)).view(np.int16)[:count])
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        keep = torch.empty(x.shape, dtype=x.dtype)
        # Written as 0 and 1 of the type that is multiplied: conversions cost more than drawing.
        torch.ge(bits.view(x.shape), dropped - 32_768, out=keep)
        return x * keep.mul_(65_536 / (65_536 - dropped))
