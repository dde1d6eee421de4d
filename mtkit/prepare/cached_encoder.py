"""Fast encoding of many lines to ids, with a cache of encoded words."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import accumulate, chain, filterfalse, pairwise
from typing import Any

import numpy as np

from mtkit.base.words import ENTRY_BYTES
from mtkit.tokenizer import EOS_ID, Tokenizer

# A "word" of more characters is not cached: in text without spaces it is a whole line, which
# does not come again, and would displace the words that do.
MAX_CACHED = 400


class CachedEncoder:
    """Encodes many lines fast, to the same ids as `Tokenizer.encode`.

    The text between two spaces is encoded once and then cached, in a cache of about `max_bytes`.
    An id has the type `dtype`, `<u2` or `<u4`.
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
        self._max_bytes = max_bytes
        self._ids_of: dict[str, bytes] = {}
        self._bytes = 0

    def encode(self, lines: Sequence[str]) -> list[bytes]:
        """The ids of each line, followed by EOS, as bytes."""
        eos = np.array(EOS_ID, self._dtype).tobytes()
        if not self._cuts:
            return [ids + eos for ids in self._encode(lines)]
        if self._bytes > self._max_bytes:
            self._ids_of.clear()
            self._bytes = 0
        ids_of = self._ids_of
        rows = [line.split(" ") for line in lines]
        new = list(dict.fromkeys(filterfalse(ids_of.__contains__, chain.from_iterable(rows))))
        for word, ids in zip(new, self._encode(new), strict=True):
            ids_of[word] = ids
            if len(word) <= MAX_CACHED:
                self._bytes += sys.getsizeof(word) + sys.getsizeof(ids) + ENTRY_BYTES
        encoded = [b"".join(map(ids_of.__getitem__, row)) + eos for row in rows]
        for word in new:
            if len(word) > MAX_CACHED:
                del ids_of[word]
        return encoded

    def _encode(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text, as bytes."""
        rows = self._tokenizer.encode_batch(texts)
        flat = np.fromiter(chain.from_iterable(rows), self._dtype).tobytes()
        ends = accumulate((len(row) * self._dtype.itemsize for row in rows), initial=0)
        return [flat[start:end] for start, end in pairwise(ends)]
