"""Finds the shared library of the native engine, and declares its functions and structures.

The declarations are those of `src/mtkit.h`, `src/shape.h` and `src/search.h`, in the same order.
"""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mtkit.base.errors import MtkitError, reason_of

Precision = Literal["fp32", "int8", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "int8", "bf16")
POSITIONS = ("sinusoidal", "learned", "words")

# The library must be of this version of the interface.
ABI = 1


class Shape(ctypes.Structure):
    """`Shape` in shape.h."""

    _fields_ = (
        *(
            (name, c_int32)
            for name in (
                "d_model",
                "d_ff",
                "heads",
                "key_width",
                "value_width",
                "encoder_layers",
                "decoder_layers",
                "src_vocabulary",
                "tgt_vocabulary",
                "own_src_embedding",
                "pre_norm",
                "silu",
                "window",
                "positions",
                "max_positions",
            )
        ),
        ("norm_epsilon", c_float),
    )


class Settings(ctypes.Structure):
    """`Settings` in search.h."""

    _fields_ = (
        ("beam_size", c_int32),
        ("n_best", c_int32),
        ("rank_cut_off", c_int32),
        ("power_penalty", c_int32),
        ("alpha", c_double),
        ("bos", c_int32),
        ("eos", c_int32),
        ("min_length", c_int32),
        ("no_repeat_ngram", c_int32),
        ("samples", c_int32),
        ("top_k", c_int32),
        ("temperature", c_double),
        ("top_p", c_double),
    )


class Request(ctypes.Structure):
    """`Request` in search.h."""

    _fields_ = (
        ("ids", c_void_p),
        ("lengths", c_void_p),
        ("sentences", c_int),
        ("limits", c_void_p),
        ("prefixes", c_void_p),
        ("prefix_lengths", c_void_p),
        ("forbidden", c_void_p),
        ("forbidden_count", c_int),
        ("uniforms", c_void_p),
        ("uniform_steps", c_int),
        ("stop", c_void_p),
    )


# Of each function its result and its arguments. Arrays are given by their addresses.
FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "mtkit_abi": (c_int32, ()),
    "mtkit_error": (c_char_p, ()),
    "mtkit_kernels": (c_char_p, (c_int32,)),
    "mtkit_new": (c_void_p, (ctypes.POINTER(Shape), c_int32)),
    "mtkit_set_linear": (
        c_int,
        (c_void_p, c_char_p, c_int32, c_void_p, c_void_p, c_int64, c_int64),
    ),
    "mtkit_set_norm": (c_int, (c_void_p, c_char_p, c_int32, c_void_p, c_void_p, c_int64)),
    "mtkit_set_table": (c_int, (c_void_p, c_char_p, c_void_p, c_int64, c_int64)),
    "mtkit_set_words": (c_int, (c_void_p, c_char_p, c_void_p, c_int64)),
    "mtkit_ready": (c_int, (c_void_p,)),
    "mtkit_free": (None, (c_void_p,)),
    "mtkit_start": (
        c_void_p,
        (c_void_p, c_void_p, c_int64, c_void_p, c_int32, c_int32, c_int32),
    ),
    "mtkit_step": (c_int, (c_void_p, c_void_p, c_void_p, c_int32, c_void_p)),
    "mtkit_reorder": (c_int, (c_void_p, c_void_p, c_int64)),
    "mtkit_select": (c_int, (c_void_p, c_void_p, c_int32)),
    "mtkit_end": (None, (c_void_p,)),
    "mtkit_translate": (
        c_int,
        (
            c_void_p,
            ctypes.POINTER(Settings),
            ctypes.POINTER(Request),
            c_int32,
            *[c_void_p] * 6,
        ),
    ),
}


def available() -> str:
    """Why the native engine cannot be used, in one line; nothing if it can."""
    try:
        library()
    except MtkitError as error:
        return str(error)
    return ""


def kernels(precision: Precision) -> str:
    """The name of the kernels that this CPU uses for a precision, such as "avx512".

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
    chosen = os.environ.get("MTKIT_NATIVE_LIBRARY")
    path = Path(chosen) if chosen else _beside_the_package()
    if path is None:
        raise MtkitError("the native engine was not built when mtkit was installed")
    try:
        loaded = ctypes.CDLL(str(path))
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise MtkitError(f"the native engine cannot be loaded: {reason_of(error)}") from None
    if loaded.mtkit_abi() != ABI:
        raise MtkitError(f"{path}: is a native engine of another version of mtkit")
    return loaded


def check(result: Any) -> Any:
    """The pointer that a function of the library returned; its message is raised if it is null.

    Raises:
        MtkitError: with the library's message.
        MemoryError: if memory ran out.
    """
    if not result:
        raise _error()
    return result


def check_done(status: int) -> None:
    """Raise the message of a function of the library that did not return 0; as `check`."""
    if status:
        raise _error()


def address(array: npt.NDArray[Any] | None) -> int | None:
    """Where the numbers of an array are; it must live as long as the address is used."""
    if array is None:
        return None
    assert array.flags.c_contiguous
    return array.ctypes.data


def int32s(values: Any) -> npt.NDArray[np.int32]:
    """Whole numbers as the library reads them."""
    return np.ascontiguousarray(values, dtype=np.int32)


def _error() -> Exception:
    text = str(library().mtkit_error().decode())
    return MemoryError(text) if text == "out of memory" else MtkitError(text)


def _beside_the_package() -> Path | None:
    folder = Path(__file__).parent
    found = [
        file for ending in ("so", "dylib", "pyd") for file in folder.glob(f"_engine*.{ending}")
    ]
    return min(found, default=None)
