"""Which engine decodes: the native one, or PyTorch.

PyTorch computes what the native engine cannot, and everything on a GPU. It takes a second to load,
so nothing here loads it unless there may be a GPU.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Literal, NamedTuple

from mtkit import native
from mtkit.base.errors import MtkitError
from mtkit.base.launched import available_cores
from mtkit.config import DecodeConfig

# What Linux has if a GPU can be used: by the driver of NVIDIA, in WSL, or by that of AMD.
_DRIVERS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


class Choice(NamedTuple):
    """An engine.

    Attributes:
        is_native: whether it is the native engine.
        precision: of the native engine: `fp32`, `bf16` or `int8`.
        reason: why it is PyTorch, if the native engine was possible on this device.
    """

    is_native: bool
    precision: native.Precision = "fp32"
    reason: str = ""


def choose(config: DecodeConfig, *, device: str, exact: bool, unable: str = "") -> Choice:
    """The engine for `decode.engine`.

    Args:
        device: `auto`, `cpu` or `cuda`.
        exact: `decode.precision` auto is fp32; otherwise bf16 on a CPU with AMX, where it is twice
            as fast.
        unable: what the native engine cannot do of what is wanted; nothing if it can.

    Raises:
        MtkitError: if the native engine is demanded and impossible.
    """
    if config.engine == "torch":
        return Choice(False)
    reason = "a GPU needs PyTorch" if may_have_gpu(device) else unable or native.available()
    if not reason:
        return Choice(True, native_precision(config.precision, exact=exact))
    if config.engine == "native":
        raise MtkitError(f"decode.engine native: {reason}; choose auto or torch")
    return Choice(False, reason=reason)


def has_native_steps(config: DecodeConfig, device_type: str) -> bool:
    """Whether the native engine computes the steps of a search in Python."""
    return (
        config.engine != "torch"
        and config.gpu_path != "device"
        and device_type == "cpu"
        and not native.available()
    )


def native_precision(wanted: Literal["auto", native.Precision], *, exact: bool) -> native.Precision:
    """The precision of the native engine for `decode.precision`."""
    if wanted != "auto":
        return wanted
    return "bf16" if not exact and "amx" in native.kernels("bf16") else "fp32"


def torch_precision(config: DecodeConfig, device_type: str) -> Literal["fp32", "bf16"]:
    """The precision of PyTorch without the native engine; on a CPU it is the reference, float32.

    Raises:
        MtkitError: if `decode.precision` demands another one than PyTorch has on this device.
    """
    wanted = config.precision
    if wanted == "auto" or wanted == "fp32":
        return "fp32"
    if device_type == "cpu":
        reason = native.available() or f"decode.gpu_path is {config.gpu_path}"
        if config.engine == "torch":
            reason = "decode.engine is torch"
        raise MtkitError(
            f"decode.precision {wanted}: needs the native engine on a CPU, but {reason}; "
            "choose fp32"
        )
    if wanted == "int8":
        raise MtkitError("decode.precision int8: is for CPUs; choose fp32, or bf16 on a GPU")
    return wanted


def in_results(precision: str, *, is_native: bool) -> str:
    """A precision, and whose; in float32 both engines have the same texts."""
    return f"native {precision}" if is_native and precision != "fp32" else precision


def describe_engine() -> str:
    """The engine of `mtkit translate` on the CPU of this machine, in words."""
    if reason := native.available():
        return f"PyTorch {version('torch')} ({reason})"
    kernels = ", ".join(f"{name} by {native.kernels(name)}" for name in native.PRECISIONS)
    chosen = native_precision("auto", exact=False)
    return f"native; {kernels}; translate --precision auto is {chosen}"


def may_have_gpu(device: str) -> bool:
    """Whether `auto`, `cpu` or `cuda` may be a GPU; PyTorch is asked if there is a driver."""
    if device != "auto":
        return device == "cuda"
    if not any(map(os.path.exists, _DRIVERS)):
        return False
    import torch

    return torch.cuda.is_available()


def threads_wanted() -> int:
    """The default number of threads of the native engine: as for PyTorch, one per core."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else available_cores()
