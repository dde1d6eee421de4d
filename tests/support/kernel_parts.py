"""Calls single kernels of the native engine, by functions of `tests/native/parts.cpp`."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import mtkit

SOURCES = Path(mtkit.__file__).parent / "native" / "src"
PARTS = Path(__file__).parents[1] / "native" / "parts.cpp"


def compile_parts(folder: Path) -> ctypes.CDLL | None:
    """The functions that call a kernel; None where there is no C++ compiler."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        return None
    path = folder / "parts.so"
    options = ["-std=c++20", "-O2", "-fPIC", "-shared", "-ffp-contract=off", "-I", str(SOURCES)]
    subprocess.run([compiler, *options, PARTS, SOURCES / "pack.cpp", "-o", path], check=True)
    parts = ctypes.CDLL(str(path))
    parts.part_pack.restype = ctypes.c_void_p
    parts.part_peak.restype = ctypes.c_double
    return parts
