"""Checks of what only a GPU does. Each gives what it finds, so that a test can plant a fault."""

import re
import statistics
from collections.abc import Callable, Iterable, Sequence

import pytest
import torch

from mtkit.base.errors import MtkitError


def first_wait(call: Callable[[], object]) -> str | None:
    """Where the host waits for the GPU in a call, as PyTorch says it; None if it never does."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
    except RuntimeError as error:
        if "synchronizing CUDA operation" not in str(error):
            raise
        return str(error)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return None


def kernels_of(call: Callable[[], object]) -> list[str]:
    """The names of all kernels that a call starts on a GPU."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        call()
        torch.cuda.synchronize()
    kind = torch.autograd.DeviceType.CUDA
    return [event.name for event in profile.events() or () if event.device_type == kind]


def cudnn_attention(kernels: Iterable[str]) -> list[str]:
    """The kernels of cuDNN's attention among these names."""
    return [name for name in kernels if re.search("cudnn.*(sdpa|attention|fmha)", name)]


def slow_when_new(new: Sequence[float], known: Sequence[float]) -> bool:
    """Whether new shapes of a batch take more than twice as long as known ones, in the median.

    The median, because the allocator may ask for memory now and then.
    """
    return statistics.median(new) > 2 * statistics.median(known)


def assert_advice_helps(train: Callable[[int | None], bool]) -> None:
    """A training that lacks memory names a `train.device_batch_tokens` with which it succeeds.

    `train` trains with such a value, or with None for the one that is too large.
    """
    with pytest.raises(MtkitError, match=r"--set train\.device_batch_tokens=\d+$") as error:
        train(None)
    assert train(int(str(error.value).rpartition("=")[2]))
