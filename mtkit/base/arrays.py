"""Numpy helpers that several modules use: hashes, ranges, padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.integer[Any]]

# Odd numbers whose binary digits have no pattern.
_MIXERS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93], np.uint64)


def hash64(numbers: npt.NDArray[np.uint64], mixer: int) -> npt.NDArray[np.uint64]:
    """A hash of each number, without a visible pattern; `mixer` 0, 1 and 2 give different ones."""
    product: npt.NDArray[np.uint64] = numbers * _MIXERS[mixer]
    return product ^ (product >> np.uint64(32))


def concat_ranges(begins: IntArray, sizes: IntArray) -> IntArray:
    """Ranges of integers, concatenated: `sizes[i]` numbers from `begins[i]` on."""
    ends = np.cumsum(sizes)
    return np.repeat(begins - (ends - sizes), sizes) + np.arange(ends[-1] if len(ends) else 0)


def pad_rows(
    values: npt.NDArray[np.integer[Any]], begins: IntArray, sizes: IntArray, padding: int
) -> npt.NDArray[np.int64]:
    """(rows, longest): row i has `sizes[i]` values from `begins[i]` on, then padding."""
    column = np.arange(sizes.max(initial=0))
    inside = column < sizes[:, None]
    where = np.where(inside, begins[:, None] + column, 0)
    return np.where(inside, values[where].astype(np.int64), padding)
