"""What decodes: which engine computes the model, which one searches, and in which precision.

The native engine does both wherever it can; PyTorch does the rest, and everything on a GPU. PyTorch
takes a second to load, so nothing here loads it unless there may be a GPU.
"""

from __future__ import annotations

import os
from typing import Literal, NamedTuple

from mtkit import native
from mtkit.base.errors import MtkitError
from mtkit.base.launched import available_cores
from mtkit.config import DecodeConfig

# What Linux has if a GPU can be used: by the driver of NVIDIA, in WSL, or by that of AMD.
_DRIVERS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
# The kernels with which bf16 is faster than float32 in large batches too.
FAST_BF16 = ("amx", "avx512bf16")

Engine = Literal["native", "PyTorch"]


class EngineChoice(NamedTuple):
    """What computes the model, what searches or samples, and the precision of matrix products.

    The reason is why the native engine does not do both; empty if it does, or is not wanted.
    """

    model: Engine
    search: Engine
    precision: native.Precision = "fp32"
    reason: str = ""

    def in_words(self, hardware: str) -> str:
        """All of it in one line, with the kernels or the device."""
        words = f"{self.model}, {self.precision}, {hardware}; search: {self.search}"
        return words + (f" ({self.reason})" if self.reason else "")

    @property
    def precision_label(self) -> str:
        """The precision, prefixed with the engine; in float32 both have the same texts."""
        is_own = self.model == "native" and self.precision != "fp32"
        return f"native {self.precision}" if is_own else self.precision


def choose(
    config: DecodeConfig,
    *,
    device: str = "cpu",
    exact: bool = True,
    has_terms: bool = False,
    n_runs: int = 1,
    prepared: bool = True,
) -> EngineChoice:
    """What decodes with these settings.

    Args:
        exact: `decode.precision` auto is fp32; otherwise bf16 where kernels of `FAST_BF16` are
            used, which are about twice as fast.
        prepared: False for PyTorch with the weights as they were trained.

    Raises:
        MtkitError: if `decode.engine` or `decode.precision` demands what is impossible here, or
            the device is unknown.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise MtkitError(f"device {device}: choose auto, cpu or cuda")
    on_gpu = may_have_gpu(device)
    # The library of the native engine is loaded only where it may be used.
    not_available = "" if on_gpu or config.engine == "torch" else native.available()
    # The first line that applies: why, what computes the model, and what searches.
    table: list[tuple[bool, str, Engine, Engine]] = [
        (config.engine == "torch", "", "PyTorch", "PyTorch"),
        (on_gpu, "a GPU needs PyTorch", "PyTorch", "PyTorch"),
        (not prepared, "weights as trained need PyTorch", "PyTorch", "PyTorch"),
        (config.gpu_path == "device", "gpu_path device needs PyTorch", "PyTorch", "PyTorch"),
        (not_available != "", not_available, "PyTorch", "PyTorch"),
        (n_runs > 1, "several runs need PyTorch", "native", "PyTorch"),
        (has_terms, "a glossary needs PyTorch", "native", "PyTorch"),
        (config.well_formed_trees, "well-formed trees need PyTorch", "native", "PyTorch"),
        (True, "", "native", "native"),
    ]
    _, reason, model, search = next(row for row in table if row[0])
    if reason and config.engine == "native":
        raise MtkitError(f"decode.engine native: {reason}; choose auto or torch")
    precision: native.Precision = "fp32"
    if model == "native":
        precision = native_precision(config.precision, exact=exact or search != model)
    elif prepared:
        precision = torch_precision(config, reason, on_gpu=on_gpu)
    return EngineChoice(model, search, precision, reason)


def native_precision(wanted: Literal["auto", native.Precision], *, exact: bool) -> native.Precision:
    """The precision of the native engine for `decode.precision`."""
    if wanted != "auto":
        return wanted
    return "bf16" if not exact and native.kernels("bf16") in FAST_BF16 else "fp32"


def torch_precision(config: DecodeConfig, reason: str, *, on_gpu: bool) -> Literal["fp32", "bf16"]:
    """The precision of PyTorch: on a CPU it is the reference, in float32."""
    if config.precision == "auto":
        return "fp32"
    if on_gpu:
        if config.precision == "int8":
            raise MtkitError("decode.precision int8: is for CPUs; choose fp32, or bf16 on a GPU")
    elif config.precision != "fp32":
        reason = reason or "decode.engine is torch"
        raise MtkitError(
            f"decode.precision {config.precision}: needs the native engine on a CPU, but {reason}; "
            "choose fp32"
        )
    return config.precision


def describe_engine() -> str:
    """The engine of `mtkit translate` on the CPU of this machine, in words."""
    if reason := native.available():
        from importlib.metadata import version

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
