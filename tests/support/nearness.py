"""How near results on a device are to the same in float64 on a CPU."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

# Largest relative errors. Float32 has 24 bits, and sums of some hundred products lose a few of
# them. TF32 has 11 bits, and is noticed.
EXACT = 2e-5
# bfloat16 has 8 bits.
ROUGH = 3e-2


@contextmanager
def float64() -> Iterator[None]:
    """Within it, new tensors and models are of float64."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def error_of(result: Tensor, wanted: Tensor) -> float:
    """The norm of the difference, relative to what is wanted."""
    result, wanted = (x.detach().cpu().double() for x in (result, wanted))
    return float((result - wanted).norm() / wanted.norm())


def assert_near(
    given: Mapping[str, Tensor], wanted: Mapping[str, Tensor], within: float, *, whole: bool = False
) -> None:
    """Each tensor is near the one of its name, or with `whole` all of them as one vector are."""
    assert given.keys() == wanted.keys()
    if whole:
        given, wanted = (
            {"all": torch.cat([x.detach().cpu().double().flatten() for x in some.values()])}
            for some in (given, wanted)
        )
    errors = {name: error_of(given[name], tensor) for name, tensor in wanted.items()}
    # Not a number is not near.
    far = {name: error for name, error in errors.items() if not error <= within}
    assert not far, f"relative errors above {within:g}: {far}"


def in_tf32(weight: Tensor) -> Tensor:
    """What matrix units of a GPU see of a float32 weight in TF32: 10 bits of the mantissa."""
    return ((weight.detach().view(torch.int32) + 4096) & ~8191).view(torch.float32)
