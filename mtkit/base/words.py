"""Counts the words of a corpus in bounded memory, and splits lines into words as arrays.

A word is the text between two spaces. No subword crosses a space, so subwords are learned from
words, and a word always has the same subwords.
"""

from __future__ import annotations

import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import numpy as np

from mtkit.base.arrays import IntArray, hash64
from mtkit.base.invisible import visible

# Lines that are counted or encoded at a time, so that their data fit in the processor's caches.
BLOCK = 8192
# Bytes that a dictionary entry needs besides its word: a slot of a table that may be half empty and
# is copied when it grows, and rounding by the allocator.
_ENTRY_BYTES = 80
# SentencePiece does not learn from words of more bytes (and so letters) than this.
MAX_WORD_BYTES = 1 << 16
# Of eight bytes the first n.
_FIRST = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)


class WordCounts:
    """The words of a corpus and their counts, in bounded memory.

    If the words would take more than `max_bytes`, some are dropped: of the words seen once, every
    second is kept, then every fourth and so on, selected by a checksum of the word. If words seen
    two or three times take more memory than those, they are thinned in the same way, and so on for
    each doubling of the count. The kept words get the counts of the dropped ones. So frequent words
    have exact counts, and rare words are an even sample of the corpus with the weight of all of
    them, also if nearly every word is a sentence because the language has no spaces. The result is
    a pure function of the added blocks and their order.
    """

    def __init__(self, *, max_bytes: int = 128 << 20) -> None:
        self.max_bytes = max_bytes
        self._counts: dict[str, int] = {}
        self._bytes = 0
        # Of the words whose count has n binary digits, one in 2 ** levels[n] is kept.
        self._levels = [0] * 65

    def add(self, words: Mapping[str, int]) -> None:
        """Add the counts of a block of the corpus, as from `count_words`."""
        counts, size, room = self._counts, self._bytes, self.max_bytes
        for word, count in words.items():
            if word in counts:
                counts[word] += count
            elif len(word) <= MAX_WORD_BYTES:
                counts[word] = count
                size += sys.getsizeof(word) + _ENTRY_BYTES
                if size > room:
                    size = self._thin()
                    counts = self._counts
        self._bytes = size

    def items(self) -> Iterator[tuple[str, int]]:
        """The words, each with its count, including that of the dropped words it represents."""
        for word, count in self._counts.items():
            level = self._levels[count.bit_length()]
            if _is_sampled(word, level):
                yield word, count << level

    def _thin(self) -> int:
        """Drop words until an eighth of the memory is free; returns the bytes still in use."""
        while True:
            self._counts = {
                word: count
                for word, count in self._counts.items()
                if _is_sampled(word, self._levels[count.bit_length()])
            }
            sizes = [0] * len(self._levels)
            for word, count in self._counts.items():
                sizes[count.bit_length()] += sys.getsizeof(word) + _ENTRY_BYTES
            if sum(sizes) <= self.max_bytes - self.max_bytes // 8:
                return sum(sizes)
            self._levels[sizes.index(max(sizes))] += 1


def _is_sampled(word: str, level: int) -> bool:
    """Whether a word is among the one in ``2 ** level`` that are kept."""
    # The leading bits of a CRC-32 are evenly distributed, also for words that differ in one letter.
    return not level or zlib.crc32(word.encode("utf-8", "surrogatepass")) << level < 1 << 32


def count_words(lines: Iterable[str]) -> Counter[str]:
    """The count of each word, without its invisible characters."""
    counts: dict[str, int] = {}
    rest = iter(lines)
    while block := list(islice(rest, BLOCK)):
        # SentencePiece treats a tab like a space, and in a table it would end the word.
        words = Words(" ".join(block).replace("\t", " "), longest=MAX_WORD_BYTES)
        occurrences = np.bincount(words.last_equal(words.short)[words.short])
        indices = np.flatnonzero(occurrences)
        texts = visible(" ".join(words.texts(indices))).split(" ")
        for word, count in zip(texts, occurrences[indices].tolist(), strict=True):
            counts[word] = counts.get(word, 0) + count
    counts.pop("", None)
    return Counter(counts)


class Words:
    """The words of a text, in arrays with one element per word.

    A word is identified by its length and two numbers, `heads` and `tails`. Up to 16 bytes these
    are the bytes of the word; for longer words they are checksums with 128 bits together, which are
    different for all words of a corpus. Words of more than `longest` bytes are not `short` and have
    no such numbers.
    """

    def __init__(self, text: str, *, longest: int) -> None:
        encoded = text.encode()
        # Padded, because eight bytes are read at a time.
        self._text = encoded + bytes(16)
        spaces = np.flatnonzero(np.frombuffer(encoded, np.uint8) == ord(" "))
        self._ends = np.append(spaces, len(encoded))
        self._starts = starts = np.append(0, spaces + 1)
        self.lengths = lengths = self._ends - starts
        self.short = np.flatnonzero(lengths <= longest)
        eight = np.ndarray(len(encoded) + 9, "<u8", self._text, strides=(1,))
        self.heads = eight[starts] & _FIRST[np.minimum(lengths, 8)]
        self.tails = eight[starts + 8] & _FIRST[np.clip(lengths - 8, 0, 8)]
        rest = np.flatnonzero((lengths > 16) & (lengths <= longest))
        offset = 16
        while len(rest):
            more = eight[starts[rest] + offset] & _FIRST[np.minimum(lengths[rest] - offset, 8)]
            self.heads[rest] = hash64(self.heads[rest] ^ more, 0)
            self.tails[rest] = hash64(self.tails[rest] + more, 1)
            offset += 8
            rest = rest[lengths[rest] > offset]
        self.hashes = hash64(hash64(self.heads, 1) ^ (self.tails + lengths.astype(np.uint64)), 2)

    def __len__(self) -> int:
        return len(self._starts)

    def texts(self, indices: IntArray) -> list[str]:
        """The words themselves."""
        text = self._text
        sides = (self._starts[indices].tolist(), self._ends[indices].tolist())
        return [text[start:end].decode() for start, end in zip(*sides, strict=True)]

    def last_equal(self, indices: IntArray) -> IntArray:
        """For each of the indices, the last one with the same word."""
        last = np.zeros(len(self), np.int64)
        bits = max(4, len(indices).bit_length())
        places = np.empty(1 << bits, np.int64)
        hashes = self.hashes[indices]
        while len(indices):
            # Every word writes its index to the slot of its hash, which then has the last index
            # written. Different words with the same slot try another slot.
            at = (hashes >> np.uint64(64 - bits)).view(np.int64)
            places[at] = indices
            other = places.take(at)
            same = (
                (self.heads.take(other) == self.heads.take(indices))
                & (self.tails.take(other) == self.tails.take(indices))
                & (self.lengths.take(other) == self.lengths.take(indices))
            )
            last[indices[same]] = other[same]
            indices, hashes = indices[~same], hash64(hashes[~same], 2)
        return last
