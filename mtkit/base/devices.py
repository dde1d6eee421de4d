"""Devices and precision."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from mtkit.base.errors import MtkitError
from mtkit.base.launched import given_rank, given_world_size

log = logging.getLogger(__name__)

Precision = Literal["auto", "fp32", "bf16"]

# The user's own options for PyTorch's memory on a GPU.
_ALLOCATOR_VARIABLES = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"}


def choose_device(name: str, *, tf32: bool = False) -> torch.device:
    """The device for `auto`, `cpu` or `cuda`; `auto` takes a GPU if there is one.

    With several workers on a machine, each gets its own GPU. A GPU is prepared by `prepare_gpu`.

    Raises:
        MtkitError: if there is no GPU, none for this worker, or one that PyTorch does not support.
    """
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise MtkitError("--device cuda: PyTorch sees no CUDA device; use --device cpu")
    if name == "cpu" or not available:
        return torch.device("cpu")
    if given_rank() is None:
        device = torch.device("cuda")
        prepare_gpu(device, tf32=tf32)
        return device
    local_rank, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local_rank >= gpus > 1:
        raise MtkitError(f"worker {local_rank + 1} on this machine has no GPU; there are {gpus}")
    # A launcher such as Slurm may show every worker only its own GPU. Whether two workers have the
    # same one is known when they have joined.
    device = torch.device("cuda", local_rank if gpus > 1 else 0)
    prepare_gpu(device, tf32=tf32)
    torch.cuda.set_device(device)
    return device


def prepare_gpu(device: torch.device, *, tf32: bool = False) -> None:
    """Set PyTorch up to compute on a GPU, before the first allocation there.

    Args:
        tf32: whether products of float32 matrices may be in TF32, with 10 mantissa bits
            instead of 23.

    Raises:
        MtkitError: if this PyTorch has no kernels for the GPU.
    """
    if sys.platform.startswith("linux") and not os.environ.keys() & _ALLOCATOR_VARIABLES:
        # Batches have thousands of shapes. Blocks of fixed sizes would leave gaps between them.
        os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    _check_capability(device)
    # cuDNN's attention compiles a plan for each new shape of a batch: the first updates of `small`
    # took 720 ms each on an H100, and 19 ms with PyTorch's other kernels.
    torch.backends.cuda.enable_cudnn_sdp(False)
    if torch.get_float32_matmul_precision() == "medium":
        # A model on the CPU has chosen oneDNN, and the older switch would undo that.
        torch.backends.cuda.matmul.fp32_precision = "tf32" if tf32 else "ieee"
    else:
        torch.backends.cuda.matmul.allow_tf32 = tf32


def _check_capability(device: torch.device) -> None:
    with warnings.catch_warnings():
        # PyTorch has a warning of many lines for such a GPU.
        warnings.simplefilter("ignore")
        capability = torch.cuda.get_device_capability(device)
    kernels = []
    # Such as sm_80, sm_90a, or compute_120: PTX, which newer GPUs compile for themselves. With
    # ROCm there are other names.
    for name in torch.cuda.get_arch_list():
        kind, _, number = name.rstrip("af").partition("_")
        if kind in ("sm", "compute") and number.isdecimal():
            kernels.append((kind, divmod(int(number), 10)))
    if not kernels or any(
        code <= capability and (kind == "compute" or code[0] == capability[0])
        for kind, code in kernels
    ):
        return
    codes = sorted({code for _, code in kernels})
    supported = ", ".join(f"{major}.{minor}" for major, minor in codes)
    raise MtkitError(
        f"{torch.cuda.get_device_name(device)} has compute capability "
        f"{capability[0]}.{capability[1]}, and this PyTorch supports {supported}; install a "
        f"PyTorch build for {'an older' if capability < codes[0] else 'a newer'} CUDA, or use "
        "--device cpu"
    )


def workers_wanted(device: str) -> int:
    """The default number of training workers: one per GPU, or one on a CPU; in a worker, all."""
    if given_rank() is not None:
        return given_world_size()
    if device == "cpu" or not torch.cuda.is_available():
        return 1
    return torch.cuda.device_count()


def describe_device(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return f"GPU ({torch.cuda.get_device_name(device)})"
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"


def has_native_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 matrices in hardware."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    able = torch.cpu.get_capabilities()
    if any(able.get(name, False) for name in ("avx512_bf16", "amx_bf16")):
        # oneDNN computes the products, and the user may have disabled these units in it. With only
        # AVX-512 it supports bfloat16 by converting to float32, which is slow.
        limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
        is_limited = limit in ("AVX512_CORE", "AVX512_CORE_VNNI")
        return not is_limited and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(able.get("bf16", False))


def choose_precision(wanted: Precision, device: torch.device) -> Literal["fp32", "bf16"]:
    """The arithmetic of matrix products; `auto` is bf16 if the hardware has it."""
    if wanted == "auto":
        return "bf16" if has_native_bf16(device) else "fp32"
    if wanted == "bf16" and not has_native_bf16(device):
        log.warning("this %s has no bf16 units: fp32 would be faster", device.type.upper())
    return wanted


def arithmetic(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Within it, matrix products are in `precision`; weights and sums stay in float32."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


@contextmanager
def float32_arithmetic(device: torch.device) -> Iterator[None]:
    """Within it, matrix products are in float32, with the faster library, and not autocast."""
    before = torch.get_float32_matmul_precision()
    select_matmul_backend(device)
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def select_matmul_backend(device: torch.device, precision: Precision = "fp32") -> str:
    """Use the faster of PyTorch's libraries for matrix products.

    On AMD CPUs with AVX-512, MKL has less than half the speed of oneDNN. The switch is
    `torch.set_float32_matmul_precision("medium")`, which on some CPUs computes in bfloat16, so the
    result of one product is tested: oneDNN is used only if it is as exact as float32.

    Products in bfloat16 are oneDNN's on every CPU. There the switch would concern only the float32
    products of attention, of which oneDNN would compile a kernel for each shape.

    Returns:
        The name of the library, for the log. The choice depends only on the CPU and not on timing,
        so that a repeated run gives the same weights.
    """
    if device.type != "cpu":
        in_tf32 = precision == "fp32" and torch.backends.cuda.matmul.fp32_precision == "tf32"
        return "cuBLAS in TF32" if in_tf32 else "cuBLAS"
    # The switch is for the whole process, and an earlier model may have used it.
    torch.set_float32_matmul_precision("highest")
    if precision == "bf16":
        return "oneDNN"
    able = torch.cpu.get_capabilities()
    if "AMD" in str(able.get("cpu_name", "")) and able.get("avx512_f", False):
        torch.set_float32_matmul_precision("medium")
        generator = torch.Generator().manual_seed(1)
        x, y = (torch.randn(256, 256, generator=generator) for _ in range(2))
        exact = x.double() @ y.double().t()
        error = (nn.functional.linear(x, y) - exact).abs().max() / exact.abs().max()
        if error < 1e-6:
            return "oneDNN"
        torch.set_float32_matmul_precision("highest")
    return "MKL" if torch.backends.mkl.is_available() else "PyTorch's default"  # type: ignore[no-untyped-call]


def copied_to(device: torch.device, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the CPU on a device. The program does not wait until it is copied."""
    if device.type == "cpu":
        return tensor
    # Only memory that is not paged can be copied while the program goes on.
    return tensor.pin_memory().to(device, non_blocking=True)


def total_memory(device: torch.device) -> int:
    """Bytes of memory of a GPU, or of this machine for its CPU."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_memory() -> int | None:
    """Bytes of memory that programs can have without swapping; None where Linux does not say."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


@contextmanager
def limited_to_free_memory(device: torch.device, *, reserve: int = 0) -> Iterator[None]:
    """Within it, an allocation on a CPU fails where the free memory does not suffice.

    Without it Linux promises more memory than there is, and kills a program that uses it.
    `reserve` bytes are kept free for later.
    """
    free = free_memory() if device.type == "cpu" else None
    if free is None:
        yield
        return
    # Linux is what knows the free memory; other systems may not have the module.
    import resource

    workers_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = used + max(0, free // workers_here - reserve)
    bounds = [bound for bound in before if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([limit, *bounds]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
