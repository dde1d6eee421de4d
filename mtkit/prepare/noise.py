"""Noise in training pairs: upper case, title case, typing errors, no full stop at the end.

A model that has only seen clean text may translate a line in capitals, or with a typing error,
badly. Some training pairs with noise show it such lines.

The noise of a pair depends on the seed, the number of its training source and its line alone, so
it is the same in any process, and in the pass that learns the subwords as in the one that encodes.
Words keep their number and order, except that last words which are only punctuation may be
missing, so word alignments stay right.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import regex

from mtkit.base.arrays import IntArray, hash64
from mtkit.base.text import END_MARKS
from mtkit.prepare_config import NoiseConfig

LETTERS_PER_TYPO = 40
_WORD = re.compile(r"\S+")
_FIRST_LETTER = re.compile(r"[^\w\s]*\w")
# Words with one of these are numbers, addresses, placeholders or code, and have no typing errors.
_CODE = re.compile(r"[\d@/\\_<>{}\[\]$%#&*=+|~^`]")
# Marks at the end of a sentence, and the spaces between them.
_END_MARKS = f"{END_MARKS} \u00a0\u202f\u3000\t"


class NoisyPair(NamedTuple):
    """The index of a pair that gets noise, the kind, and the two sides with noise."""

    place: int
    kind: str
    src: str
    tgt: str


class Noise:
    """The noise of training pairs.

    A pair that was chosen for a kind of noise stays as it is if its source would not change. A side
    with many letters that have no case, as in Chinese, has no upper or title case. Words with a
    user-defined symbol stay as they are.
    """

    def __init__(self, config: NoiseConfig, symbols: Sequence[str] = ()) -> None:
        self._kinds = list(config.probabilities)
        self._up_to = np.cumsum(list(config.probabilities.values()))
        self._seed = config.seed
        self._symbols = symbols

    def __call__(
        self, texts: Sequence[Sequence[str]], *, source: int, lines: IntArray
    ) -> list[NoisyPair]:
        """The pairs that get noise; `lines` (n,) are the numbers of the n pairs in their source."""
        keys = self._keys(source, lines)
        # In 53 bits, which a float has.
        chances = (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53
        chosen = np.searchsorted(self._up_to, chances, side="right")
        pairs = []
        for index in np.flatnonzero(chosen < len(self._kinds)).tolist():
            kind = self._kinds[chosen[index]]
            src, tgt = texts[0][index], texts[1][index]
            # Of this class only `random` gives the same numbers in every version of Python.
            noisy = self._changed(kind, src, tgt, random.Random(int(keys[index])).random)
            if noisy[0] != src:
                pairs.append(NoisyPair(index, kind, *noisy))
        return pairs

    def _keys(self, source: int, lines: IntArray) -> npt.NDArray[np.uint64]:
        """(n,): a random number for each pair."""
        seed, number = _mixed(np.array([self._seed, source], np.uint64))
        return _mixed(lines.astype(np.uint64) + (seed ^ (number << np.uint64(1))))

    def _changed(self, kind: str, src: str, tgt: str, rand: Callable[[], float]) -> tuple[str, str]:
        if kind == "typos":
            return self._with_typos(src, rand), tgt
        if kind == "punctuation":
            short_src, short_tgt = self._without_end_marks(src), self._without_end_marks(tgt)
            return (short_src, short_tgt) if short_src and short_tgt else (src, tgt)
        if not _has_case(src):
            return src, tgt
        change = str.upper if kind == "case" else _title

        def changed(word: re.Match[str]) -> str:
            return word[0] if self._is_fixed(word[0]) else change(word[0])

        return _WORD.sub(changed, src), _WORD.sub(changed, tgt) if _has_case(tgt) else tgt

    def _is_fixed(self, word: str) -> bool:
        return any(symbol in word for symbol in self._symbols)

    def _without_end_marks(self, text: str) -> str:
        """A text without the marks at its end; empty if it has none or nothing else."""
        rest = text.rstrip(_END_MARKS)
        is_fixed = any(text.count(symbol) != rest.count(symbol) for symbol in self._symbols)
        has_word = any(map(str.isalnum, rest))
        return rest if has_word and not is_fixed and rest != text.rstrip() else ""

    def _with_typos(self, text: str, rand: Callable[[], float]) -> str:
        """A text with typing errors, at most one in a word."""
        words = re.split(r"(\s+)", text)
        candidates = [
            index
            for index, word in enumerate(words)
            if _count_letters(word) > 1 and not _CODE.search(word) and not self._is_fixed(word)
        ]
        errors = -(-_count_letters(text) // LETTERS_PER_TYPO)
        for _ in range(min(errors, len(candidates))):
            index = candidates.pop(int(rand() * len(candidates)))
            words[index] = _with_typo(words[index], rand)
        return "".join(words)


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    return hash64(hash64(hash64(numbers, 0), 1), 2)


def _with_typo(word: str, rand: Callable[[], float]) -> str:
    """A word in which a letter is dropped, doubled, swapped with the next or replaced by it."""
    letters = regex.findall(r"\X", word)  # each with the marks that belong to it
    indices = [index for index, letter in enumerate(letters) if letter[0].isalpha()]
    if len(indices) < 2:
        return word
    number = int(rand() * len(indices))
    index, other = indices[number], indices[number + 1 if number + 1 < len(indices) else -2]
    letter, kind = letters[index], int(rand() * 4)
    if kind == 0:
        letters[index] = ""
    elif kind == 1 or letter == letters[other]:
        letters[index] = 2 * letter
    elif kind == 2:
        letters[index], letters[other] = letters[other], letter
    else:
        letters[index] = letters[other]
    return "".join(letters)


def _count_letters(text: str) -> int:
    return sum(map(str.isalpha, text))


def _has_case(text: str) -> bool:
    """Whether nine in ten letters of a text have a title or a lower case."""
    cased = sum(c.title() != c or c.lower() != c for c in text if c.isalpha())
    return cased > 0 and 10 * cased >= 9 * _count_letters(text)


def _title(word: str) -> str:
    """A word with a capital letter at its beginning; unlike in `str.title`, the others stay."""
    return _FIRST_LETTER.sub(lambda m: m[0].title(), word, count=1)
