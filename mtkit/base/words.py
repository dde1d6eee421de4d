"""Counts the words of a corpus in bounded memory.

A word is the text between two spaces. No subword crosses a space, so subwords are learned from
words, and a word always has the same subwords.
"""

from __future__ import annotations

import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from mtkit.base.invisible import visible

# Bytes that a dictionary entry needs besides its word: a slot of a table that may be half empty and
# is copied when it grows, and rounding by the allocator.
ENTRY_BYTES = 80
# SentencePiece does not learn from words of more bytes (and so letters) than this.
MAX_WORD_BYTES = 1 << 16


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
                size += sys.getsizeof(word) + ENTRY_BYTES
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
                sizes[count.bit_length()] += sys.getsizeof(word) + ENTRY_BYTES
            if sum(sizes) <= self.max_bytes - self.max_bytes // 8:
                return sum(sizes)
            self._levels[sizes.index(max(sizes))] += 1


def _is_sampled(word: str, level: int) -> bool:
    """Whether a word is among the one in ``2 ** level`` that are kept."""
    # The leading bits of a CRC-32 are evenly distributed, also for words that differ in one letter.
    return not level or zlib.crc32(word.encode("utf-8", "surrogatepass")) << level < 1 << 32


def count_words(lines: Iterable[str]) -> Counter[str]:
    """The count of each word, without its invisible characters."""
    # SentencePiece treats a tab like a space, and in a table it would end the word.
    counts = Counter(visible(" ".join(lines).replace("\t", " ")).split(" "))
    del counts[""]
    return counts
