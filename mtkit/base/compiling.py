"""Whether torch.compile can be used here, and compiling the layers of a model."""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import shlex
import shutil
import sysconfig
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from mtkit.base.errors import MtkitError, reason_of

log = logging.getLogger(__name__)


@functools.cache
def is_compiled(wanted: bool | Literal["auto"], device_type: str) -> bool:
    """Whether to compile for a kind of device; if `auto` cannot on a GPU, the log says why, once.

    Raises:
        MtkitError: if it cannot and `wanted` is True.
    """
    if not wanted or (wanted == "auto" and device_type != "cuda"):
        return False
    obstacle = _obstacle(device_type)
    if obstacle and wanted == "auto":
        log.warning("train.compile: off, which makes training slower; %s", obstacle)
    elif obstacle:
        raise MtkitError(f"train.compile: {obstacle}; set it to auto or false")
    return not obstacle


def _obstacle(device_type: str) -> str | None:
    """Why PyTorch cannot compile for a kind of device, if it cannot."""
    if device_type != "cuda":
        # For CPUs it writes C++.
        compilers = [*shlex.split(os.environ.get("CXX", ""))[:1], "g++", "clang++", "cl"]
        return None if any(map(shutil.which, compilers)) else "there is no C++ compiler (g++)"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed (pip install triton)"
    # Triton compiles what starts a kernel, an extension of Python in C.
    compilers = shlex.split(os.environ.get("CC", ""))[:1] or ["gcc", "clang"]
    if not any(map(shutil.which, compilers)):
        return f"there is no C compiler ({compilers[0]})"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "the C headers of Python are not installed (python3-dev)"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.compile(lambda x: x + 1)(torch.zeros(2, device=device_type))
    except Exception as error:
        return f"torch.compile failed: {reason_of(error, most=200)}"
    return None


def compile_layers(layers: Iterable[nn.Module]) -> None:
    """Compile every layer with torch.compile; layers of one kind share their graphs."""
    # PyTorch reuses compiled code from disk, and does not look for which vector instructions it
    # was made: code for AVX2 that runs with AVX-512 writes beyond the end of its tensors.
    config = torch.compiler.config
    capability = torch.backends.cpu.get_cpu_capability()
    if capability not in config.cache_key_tag:
        config.cache_key_tag += f" {capability}"
    # Training, validation and each kind of mask have their own code, and by default there are only
    # eight forms of a function before PyTorch gives up.
    torch._dynamo.config.recompile_limit = 64
    # There is a setting for it.
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")
    for layer in layers:
        layer.compile(dynamic=True)
