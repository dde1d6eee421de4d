"""Weights as NumPy arrays, read from safetensors files piece by piece, without PyTorch.

The `safetensors` library maps whole files into memory, and it has no bfloat16 for NumPy. Here the
mean of any number of files needs little more memory than one tensor.
"""

from __future__ import annotations

import json
import math
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
# Numbers that are averaged at a time.
_BLOCK = 2**18


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
        with naming_file(path), path.open("rb") as file:
            data = 8 + int.from_bytes(file.read(8), "little")
            size = path.stat().st_size
            header = file.read(data - 8) if data <= size else b""
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

    def read(self, name: str, start: int = 0, count: int = -1) -> Array:
        """Numbers of a tensor, flat: float32 for bfloat16, else of its own type."""
        kind, offset = self._places[name]
        dtype = np.dtype(_DTYPES[kind])
        left = math.prod(self.shapes[name]) - start
        count = left if count < 0 else min(count, left)
        with naming_file(self.path):
            found = np.fromfile(self.path, dtype, count, offset=offset + start * dtype.itemsize)
        return (found.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else found

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

    The numbers are those of `checkpoint.average`. An array has the shape of its tensor, and is of
    float32, or of truth values.

    Raises:
        MtkitError: if a file does not have the tensors of the others.
    """

    def __init__(self, files: Sequence[WeightFile]) -> None:
        self.shapes = files[0].shapes
        self._files = files
        for other in files:
            if other.shapes != self.shapes:
                raise MtkitError(f"{other.path}: has other tensors than {files[0].path}")

    def __len__(self) -> int:
        return len(self.shapes)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __getitem__(self, name: str) -> Array:
        shape, (first, *others) = self.shapes[name], self._files
        size = math.prod(shape)
        is_mask = first.read(name, 0, 0).dtype == np.bool_
        result: Array = np.empty(size, np.bool_ if is_mask else np.float32)
        for start in range(0, size, _BLOCK):
            total = first.read(name, start, _BLOCK).astype(np.float64)
            for other in others:
                total += other.read(name, start, _BLOCK)
            total /= len(self._files)
            result[start : start + len(total)] = first.as_type_of(name, total)
        return result.reshape(shape)
