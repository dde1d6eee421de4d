"""Weights as NumPy arrays, read from safetensors files piece by piece, without PyTorch.

The `safetensors` library maps whole files into memory, and it has no bfloat16 for NumPy. Here the
mean of any number of files needs little more memory than one tensor.
"""

from __future__ import annotations

import json
import math
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mtkit.base.errors import MtkitError
from mtkit.base.files import naming_file

Array = npt.NDArray[Any]

# The types that weights have here, by their names in the header of the file. NumPy has no bfloat16,
# which is the first half of a float32.
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?"}
# Numbers that are averaged at a time: they stay in the CPU's caches, and malloc gives such blocks
# again and again, while larger ones would be new memory of the system for each tensor.
_BLOCK = 2**15


def other_checkpoint(folder: Path) -> str:
    """The advice about a checkpoint that cannot be used; exports and imports have one only."""
    if len(list(folder.parent.glob("step-*"))) < 2:
        return "it is the only checkpoint: copy the folder again, or train, export or import again"
    return (
        "use an earlier checkpoint (mtkit train does it by itself where it continues a run; else "
        "give its step: --checkpoint STEP, or --init-from RUN:STEP)"
    )


class NotFiniteError(MtkitError):
    """A tensor of a file has a weight that is infinite or not a number."""

    def __init__(self, file: Path, tensor: str) -> None:
        advice = other_checkpoint(file.parent)
        super().__init__(f"{file}: {tensor} has values that are not finite (NaN); {advice}")


class WeightFile:
    """The tensors of a safetensors file.

    Attributes:
        shapes: of each tensor, by name.

    Raises:
        MtkitError: if the file cannot be read, or is not such a file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shapes: dict[str, tuple[int, ...]] = {}
        # Of each tensor the name of its type, and where it begins in the file.
        self._places: dict[str, tuple[str, int]] = {}
        with naming_file(path):
            # Open as long as it is used: opening it for each tensor takes half as long as reading.
            self._file = path.open("rb", buffering=0)
            weakref.finalize(self, self._file.close)
            data = 8 + int.from_bytes(self._file.read(8), "little")
            size = path.stat().st_size
            header = self._file.read(data - 8) if data <= size else b""
        try:
            for name, tensor in json.loads(header).items():
                if name != "__metadata__":
                    start, end = map(int, tensor["data_offsets"])
                    shape, kind = tuple(map(int, tensor["shape"])), tensor["dtype"]
                    size_in_file = math.prod(shape) * np.dtype(_DTYPES[kind]).itemsize
                    is_inside = min(start, *shape, 0) == 0 and data + end <= size
                    if not is_inside or end - start != size_in_file:
                        raise ValueError(name)
                    self.shapes[name], self._places[name] = shape, (kind, data + start)
        except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
            raise MtkitError(f"{path}: is not a safetensors file of weights") from None

    def blocks(self, name: str, most: int) -> Iterator[Array]:
        """The numbers of a tensor, flat, at most `most` at a time; float32 for bfloat16.

        A block is valid until the next one is read.

        Raises:
            MtkitError: if the file cannot be read, or has become shorter.
        """
        kind, offset = self._places[name]
        left = math.prod(self.shapes[name])
        buffer = np.empty(min(left, most), _DTYPES[kind])
        with naming_file(self.path):
            while left:
                block = buffer[:left]
                if os.preadv(self._file.fileno(), [block.data], offset) != block.nbytes:
                    raise MtkitError(f"{self.path}: has become shorter while it was read")
                left -= len(block)
                offset += block.nbytes
                yield (block.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else block

    def is_mask(self, name: str) -> bool:
        """Whether a tensor has truth values."""
        return self._places[name][0] == "BOOL"

    def as_type_of(self, name: str, values: Array) -> Array:
        """Numbers in float64, rounded to the type of a tensor as PyTorch rounds them."""
        kind, _ = self._places[name]
        if kind != "BF16":
            return values.astype(_DTYPES[kind])
        bits = values.astype(np.float32).view(np.uint32)
        # To the nearest number whose second half is zero; of two the one that ends in an even bit.
        bits += np.uint32(0x7FFF) + (bits >> 16 & 1)
        return (bits & np.uint32(0xFFFF0000)).view(np.float32)


class Weights(Mapping[str, Array]):
    """The mean of the tensors of several files, each computed when it is asked for.

    It is summed in float64, and rounded to the type of the tensor. An array has the shape of its
    tensor, and is of float32, or of truth values.

    Raises:
        MtkitError: if a file does not have the tensors of the others; of a tensor, if it has
            values that are not finite.
    """

    def __init__(self, files: Sequence[WeightFile]) -> None:
        self.shapes = files[0].shapes
        self._files = files
        for other in files:
            if other.shapes != self.shapes:
                raise MtkitError(f"{other.path}: has other tensors than {files[0].path}")

    def __contains__(self, name: object) -> bool:
        return name in self.shapes  # that of Mapping would compute the tensor

    def __len__(self) -> int:
        return len(self.shapes)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __getitem__(self, name: str) -> Array:
        shape, first = self.shapes[name], self._files[0]
        size = math.prod(shape)
        result: Array = np.empty(size, np.bool_ if first.is_mask(name) else np.float32)
        sums = np.empty(min(size, _BLOCK))
        files = [file.blocks(name, _BLOCK) for file in self._files]
        starts = range(0, size, _BLOCK)
        for start, (block, *others) in zip(starts, zip(*files, strict=True), strict=True):
            end = start + len(block)
            if not others:
                result[start:end] = block
            else:
                total = sums[: len(block)]
                total[:] = block
                for other in others:
                    total += other
                total /= len(self._files)
                result[start:end] = first.as_type_of(name, total)
            # The mean of all files is finite only if each of them is.
            if not np.isfinite(result[start:end]).all():
                finite = (bool(np.isfinite(values).all()) for values in (block, *others))
                _, path = min(zip(finite, (file.path for file in self._files), strict=True))
                raise NotFiniteError(path, name)
        return result.reshape(shape)


def full_matrix(narrow: Array, heads: int) -> Array:
    """The matrix (3·D, D) of self-attention from that of `narrow.NarrowLinear`, (3·D, D/H)."""
    rows, block = narrow.shape
    full = np.zeros((rows, heads, block), narrow.dtype)
    of_row = np.arange(rows) // block % heads
    full[np.arange(rows), of_row] = narrow
    return full.reshape(rows, -1)
