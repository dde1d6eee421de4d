"""Where a run works: the device, and the process settings that make it fast."""

from __future__ import annotations

import ctypes
import sys

import torch

from mtkit.errors import MtkitError


def choose_device(name: str) -> torch.device:
    """The device for `auto`, `cpu` or `cuda`; `auto` takes a GPU if there is one.

    Raises:
        MtkitError: if `cuda` is asked for and there is none.
    """
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise MtkitError("--device cuda: PyTorch sees no CUDA device; use --device cpu")
    if name == "cpu" or not available:
        return torch.device("cpu")
    return torch.device("cuda")


def describe_device(device: torch.device) -> str:
    """A few words that name the device."""
    if device.type == "cuda":
        return f"GPU ({torch.cuda.get_device_name(device)})"
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"


def keep_freed_memory() -> None:
    """Have glibc keep large freed blocks instead of returning them to the system.

    A training step on a CPU frees and asks again for the same hundreds of megabytes. By default
    each of them comes back as fresh pages that the kernel must zero and map, which was a quarter
    of a step of the `small` preset. Other systems are left as they are.
    """
    if not sys.platform.startswith("linux"):
        return
    trim_threshold, mmap_max = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(mmap_max, 0)
