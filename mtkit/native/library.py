"""Finds the shared library of the native engine, and declares its functions and structures.

The declarations are those of `src/mtkit.h`, `src/shape.h` and `src/search.h`, in the same order.
"""

from __future__ import annotations

import ctypes
import functools
import os
import stat
import struct
import sys
from ctypes import c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mtkit.base.errors import MtkitError, reason_of

Precision = Literal["fp32", "int8", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "int8", "bf16")

# The library must be of this version of the interface.
ABI = 6
# Bytes of the header of an ELF file of 64 bits, and of a row of its segments (System V ABI).
_ELF_HEADER, _ELF_SEGMENT = 64, 56


def _fields(names: str, kind: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((name, kind) for name in names.split())


class Shape(ctypes.Structure):
    """`Shape` in shape.h."""

    _fields_ = (
        *_fields("d_model d_ff heads key_width value_width encoder_layers decoder_layers", c_int32),
        *_fields("src_vocabulary tgt_vocabulary own_src_embedding pre_norm activation", c_int32),
        *_fields("output_bias window positions max_positions", c_int32),
        ("norm_epsilon", c_float),
    )


class Settings(ctypes.Structure):
    """`Settings` in search.h."""

    _fields_ = (
        *_fields("beam_size n_best rank_cut_off power_penalty lookahead", c_int32),
        ("alpha", c_double),
        *_fields("bos_id eos_id min_length no_repeat_ngram samples top_k", c_int32),
        *_fields("temperature top_p", c_double),
    )


class Request(ctypes.Structure):
    """`Request` in search.h."""

    _fields_ = (
        *_fields("ids lengths", c_void_p),
        ("sentences", c_int),
        *_fields("limits prefixes prefix_lengths forbidden", c_void_p),
        ("forbidden_count", c_int),
        ("uniforms", c_void_p),
        ("uniform_steps", c_int),
        *_fields("stop heads", c_void_p),
        ("head_count", c_int),
    )


_SIZE = ctypes.POINTER(c_int64)
# Of each function its result and its arguments. Arrays are given by their addresses.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "mtkit_abi": (c_int32,),
    "mtkit_error": (c_char_p,),
    "mtkit_kernels": (c_char_p, c_int32),
    "mtkit_new": (c_void_p, ctypes.POINTER(Shape), c_int32),
    "mtkit_tensor": (c_char_p, c_void_p, c_int32, _SIZE, _SIZE),
    "mtkit_set": (c_int, c_void_p, c_int32, c_void_p, c_int64),
    "mtkit_ready": (c_int, c_void_p),
    "mtkit_free": (None, c_void_p),
    "mtkit_start": (c_void_p, c_void_p, c_void_p, c_int64, c_void_p, c_int32, c_int32),
    "mtkit_step": (c_int, c_void_p, c_void_p, c_void_p, c_int32, c_void_p),
    "mtkit_reorder": (c_int, c_void_p, c_void_p, c_int64),
    "mtkit_select": (c_int, c_void_p, c_void_p, c_int32),
    "mtkit_end": (None, c_void_p),
    "mtkit_translate": (
        *(c_int, c_void_p, ctypes.POINTER(Settings), ctypes.POINTER(Request), c_int32),
        *[c_void_p] * 7,
    ),
    "mtkit_attend": (c_int, c_void_p, ctypes.POINTER(Request), c_int32, c_int32, c_void_p),
    "mtkit_find_kernels": (c_void_p, c_char_p),
}


def available() -> str:
    """Why the native engine cannot be used, in one line; nothing if it can."""
    try:
        library()
    except MtkitError as error:
        return str(error)
    return ""


def kernels(precision: Precision) -> str:
    """The name of the kernels that this CPU uses for a precision, such as "avx2".

    Raises:
        MtkitError: if there is no library, or `MTKIT_KERNELS` names kernels that this CPU lacks.
    """
    return str(check(library().mtkit_kernels(PRECISIONS.index(precision))).decode())


@functools.cache
def library() -> ctypes.CDLL:
    """The shared library, its functions declared; `MTKIT_NATIVE_LIBRARY` names another one.

    Raises:
        MtkitError: if there is none, or it cannot be loaded or is of another version.
    """
    beside = sorted(Path(__file__).parent.glob("_engine*.*"))
    path = os.environ.get("MTKIT_NATIVE_LIBRARY") or (str(beside[0]) if beside else "")
    if not path:
        raise MtkitError("the native engine was not built when mtkit was installed")
    try:
        _check_file(path)
        loaded = ctypes.CDLL(path)
        for name, (result, *arguments) in FUNCTIONS.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise MtkitError(f"the native engine cannot be loaded: {reason_of(error)}") from None
    if loaded.mtkit_abi() != ABI:
        raise MtkitError(f"{path}: is a native engine of another version of mtkit")
    return loaded


def _check_file(path: str) -> None:
    """Raise OSError for what the system cannot load, or loads without its end (a bus error)."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(f"{path} is not a file")
    if sys.platform != "linux":
        return
    # Python may be a script, which says nothing of the CPU.
    with open(sys.executable or "/proc/self/exe", "rb") as python, open(path, "rb") as file:
        own, header = python.read(_ELF_HEADER), file.read(_ELF_HEADER)
        if len(header) < _ELF_HEADER or header[:4] != b"\x7fELF":
            raise OSError(f"{path} is not a library for Linux")
        # The width of addresses, the order of bytes, and the instructions.
        if own[:4] == header[:4] and (header[4:6], header[18:20]) != (own[4:6], own[18:20]):
            raise OSError(f"{path} is for another kind of CPU")
        segments, sections, count, each, number = struct.unpack("=32xQQ8xHHH2x", header)
        size = file.seek(0, os.SEEK_END)
        file.seek(segments)
        table = file.read(_ELF_SEGMENT * count)
    if len(table) == _ELF_SEGMENT * count:
        # Where the table of sections and each segment begin, and their sizes.
        parts = [(sections, each * number), *struct.iter_unpack("=8xQ16xQ16x", table)]
        if max(map(sum, parts)) <= size:
            return
    raise OSError(f"{path} is cut off")


def check(result: Any) -> Any:
    """The pointer that a function of the library returned; its message is raised if it is null.

    Raises:
        MtkitError: with the library's message.
        MemoryError: if memory ran out.
    """
    if not result:
        # It may have a value of the environment in it.
        text = str(library().mtkit_error().decode(errors="replace"))
        raise MemoryError(text) if text == "out of memory" else MtkitError(text)
    return result


def check_done(status: int) -> None:
    """Raise the message of a function of the library that did not return 0; as `check`."""
    check(status == 0)


def address(array: npt.NDArray[Any] | None) -> int | None:
    """Where the numbers of an array are; it must live as long as the address is used."""
    if array is None:
        return None
    assert array.flags.c_contiguous
    return array.ctypes.data


def int32s(values: Any) -> npt.NDArray[np.int32]:
    """Whole numbers as the library reads them."""
    return np.ascontiguousarray(values, dtype=np.int32)
