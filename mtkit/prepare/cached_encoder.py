"""Fast encoding of many lines to ids, with a cache of encoded words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from mtkit.base.arrays import IntArray, concat_ranges, hash64
from mtkit.base.words import BLOCK, Words
from mtkit.tokenizer import EOS_ID, Tokenizer

# Words of more bytes than this are not cached, because they rarely occur again.
_MAX_CHARACTERS = 400
# The number of slots in which a cached word may be.
_PLACES = 4
# Bytes that a cached word needs besides its ids.
_PLACE_BYTES = 40


class CachedEncoder:
    """Encodes many lines fast, to the same ids as `Tokenizer.encode`.

    The text between two spaces is encoded once and then cached, in a cache of `max_bytes`. An id
    has the type `dtype`, `<u2` or `<u4`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        dtype: np.dtype[np.unsignedinteger[Any]],
        max_bytes: int = 64 << 20,
    ) -> None:
        if len(tokenizer) - 1 > np.iinfo(dtype).max:
            raise ValueError(f"{len(tokenizer)} pieces do not fit in {dtype}")
        self._tokenizer = tokenizer
        self._dtype = dtype
        self._cuts = tokenizer.cuts_at_spaces
        # Half of the memory is for the positions of the ids of each word, half for the ids.
        self._bits = max(4, (max_bytes // 2 // _PLACE_BYTES).bit_length() - 1)
        self._most_ids = max_bytes // 2 // dtype.itemsize
        self._forget()

    def encode(self, lines: Sequence[str]) -> list[bytes]:
        """The ids of each line, followed by EOS, as bytes."""
        if not self._cuts:
            rows = self._tokenizer.encode_batch(lines)
            return [np.array([*ids, EOS_ID], self._dtype).tobytes() for ids in rows]
        encoded = []
        for start in range(0, len(lines), BLOCK):
            encoded += self._encode(lines[start : start + BLOCK])
        return encoded

    def _encode(self, lines: Sequence[str]) -> list[bytes]:
        if self._used > self._most_ids or self._known > len(self._table) * 3 // 4:
            self._forget()
        words = Words(" ".join(lines), longest=_MAX_CHARACTERS)
        # Where the ids of each word begin, and their number.
        begins, sizes = np.zeros((2, len(words)), np.int64)
        new = self._recall(words, begins, sizes)
        if len(new):
            equal = words.last_equal(new)
            once = np.flatnonzero(np.bincount(equal[new]))
            begins[once], sizes[once] = self._add(words.texts(once))
            self._remember(words, once, begins, sizes)
            begins[new], sizes[new] = begins[equal[new]], sizes[equal[new]]
        if len(words.short) < len(words):
            long = np.setdiff1d(np.arange(len(words)), words.short)
            begins[long], sizes[long] = self._add(words.texts(long))
        last = np.cumsum([line.count(" ") + 1 for line in lines]) - 1
        sizes[last] += 1  # For EOS.
        ends = np.cumsum(sizes)
        ids = self._ids.take(concat_ranges(begins, sizes))
        ids[ends[last] - 1] = EOS_ID
        flat = ids.tobytes()
        line_ends = (ends[last] * self._dtype.itemsize).tolist()
        return [flat[start:end] for start, end in pairwise([0, *line_ends])]

    def _forget(self) -> None:
        # A row: head, tail, length plus one (0 if empty), where the ids begin, and their number.
        # All in one array, because every row that is read costs a memory access.
        self._table = np.zeros((1 << self._bits, 5), np.uint64)
        self._known = 0
        self._ids = np.zeros(1 << 16, self._dtype)
        self._used = 0

    def _places(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        return (hashes >> np.uint64(64 - self._bits)).view(np.int64)

    def _recall(self, words: Words, begins: IntArray, sizes: IntArray) -> IntArray:
        """Fill in the cached words; returns the short words that are not cached."""
        rest, hashes = words.short, words.hashes[words.short]
        for _ in range(_PLACES):
            # Much faster than indexing with brackets.
            rows = self._table.take(self._places(hashes), axis=0)
            same = (
                (rows[:, 0] == words.heads.take(rest))
                & (rows[:, 1] == words.tails.take(rest))
                & (rows[:, 2] == words.lengths.take(rest) + 1)
            )
            known, at = rest[same], np.flatnonzero(same)
            begins[known], sizes[known] = rows[:, 3].take(at), rows[:, 4].take(at)
            rest, hashes = rest[~same], hash64(hashes[~same], 2)
        return rest

    def _remember(self, words: Words, indices: IntArray, begins: IntArray, sizes: IntArray) -> None:
        """Cache new words, each only once in `indices`, while there are free slots."""
        columns = (words.heads, words.tails, words.lengths + 1, begins, sizes)
        rows = np.stack([column[indices].astype(np.uint64) for column in columns], axis=1)
        hashes = words.hashes[indices]
        for _ in range(_PLACES):
            at = self._places(hashes)
            free = self._table[at, 2] == 0
            # Of several words at one free slot the last is kept; the others are tried again.
            self._table[at[free]] = rows[free]
            self._known += int(free.sum())
            rows, hashes = rows[~free], hash64(hashes[~free], 2)

    def _add(self, words: list[str]) -> tuple[IntArray, IntArray]:
        """Encode words; returns where the ids of each begin, and their number."""
        rows = self._tokenizer.encode_batch(words)
        sizes = np.array([len(row) for row in rows], np.int64)
        begin, self._used = self._used, self._used + int(sizes.sum())
        if self._used >= len(self._ids):  # there is always one id after the last
            self._ids = np.append(self._ids, np.zeros(self._used, self._dtype))
        self._ids[begin : self._used] = list(chain.from_iterable(rows))
        return begin + np.cumsum(sizes) - sizes, sizes
