"""BPE-dropout (Provilkov et al. 2020): random segmentations of the training pairs.

At every BPE merge of a word, each candidate pair of subwords is first skipped with a probability;
a word is finished when no candidate is left. This needs no text, because the subwords of a
sentence spell it. All words of a batch are merged in parallel.

The result is a pure function of seed, step and pair: it does not depend on the other pairs of a
batch or on the worker.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mtkit.base.arrays import concat_ranges, hash64
from mtkit.base.errors import MtkitError
from mtkit.data import IntArray, TokenArray
from mtkit.tokenizer import Tokenizer

# How much longer than the longest sentence of its batch without dropout a sentence may become.
GROWTH = 1.5


class BpeDropout:
    """Segments sentences differently at every step, by skipping merges with this probability.

    Raises:
        MtkitError: if the tokenizer is not BPE.
    """

    def __init__(self, tokenizer: Tokenizer, *, probability: float, seed: int) -> None:
        if not tokenizer.cuts_at_spaces:
            raise MtkitError(
                "train.bpe_dropout: the subwords of this data are from a unigram model, "
                "which has no merges to skip; set it to 0, or prepare the data with BPE"
            )
        self._least = np.uint64(min(int(probability * 2**64), 2**64 - 1))
        self._seed = seed
        self._size = size = len(tokenizer)
        first = tokenizer.fixed_pieces
        pieces = {tokenizer.piece(i): i for i in range(first, size)}
        letters: list[list[int]] = [[i] for i in range(size)]
        merges: dict[int, int] = {}
        for piece, i in pieces.items():
            if all(letter in pieces for letter in piece):
                letters[i] = [pieces[letter] for letter in piece]
            for cut in range(1, len(piece)):
                left, right = pieces.get(piece[:cut]), pieces.get(piece[cut:])
                if left is not None and right is not None:
                    merges[left * size + right] = i
        # The letters of each subword; special and byte subwords and symbols are not split.
        self._letters = np.array([i for spelling in letters for i in spelling])
        self._spelling = np.array([len(spelling) for spelling in letters])
        self._begins = np.cumsum(self._spelling) - self._spelling
        # Two subwords as one number, and the result of their merge; a lower id is a better merge.
        self._pairs = np.array([*sorted(merges), size * size])
        self._made = np.array([*(merges[pair] for pair in sorted(merges)), size])
        # No merge crosses the beginning of one of these.
        self._begins_word = np.arange(size) < first
        self._begins_word[[i for piece, i in pieces.items() if piece.startswith("▁")]] = True

    def sample(
        self, sentences: TokenArray, indices: IntArray, *, step: int, side: int, longest: int
    ) -> TokenArray:
        """The sentences of `indices`, in that order, in segmentations that differ by step and side.

        A result with more tokens than `longest`, including EOS, is not used.
        """
        if not len(indices):
            return TokenArray(indices, indices)
        ids, lengths = sentences.select(indices)
        starts = np.cumsum(lengths) - lengths
        spelling = self._spelling[ids]
        letters = self._letters[concat_ranges(self._begins[ids], spelling)]
        sizes = np.add.reduceat(spelling, starts)
        ends = np.cumsum(sizes)
        noise = indices.astype(np.uint64)
        for number in (self._seed, step, side):
            noise = _chance(noise + np.uint64(number))
        places = concat_ranges(np.zeros_like(sizes), sizes).astype(np.uint64)
        pieces, left = self._merge(letters, _chance(np.repeat(noise, sizes) + places))
        sampled = np.add.reduceat(left, ends - sizes, dtype=np.int64)
        # The original sentences are appended to the sampled ones, to choose from both.
        both = np.concatenate((pieces[left], ids))
        begins = np.cumsum(sampled) - sampled
        too_long = sampled > longest
        begins[too_long] = (starts + sampled.sum())[too_long]
        sampled[too_long] = lengths[too_long]
        return TokenArray(both[concat_ranges(begins, sampled)], sampled)

    def _merge(
        self, letters: IntArray, noise: npt.NDArray[np.uint64]
    ) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        """Merge the letters (N,) of all words to subwords, by random numbers (N,).

        The subwords (N,) are at the positions of their first letters, and the flags (N,) say where.
        """
        pieces, left = letters.copy(), np.ones(len(letters), bool)
        begins = self._begins_word[letters]
        # For the unfinished words: the position of each subword, its id, the result of merging it
        # with the next one, whether it begins a word, and its noise.
        place = np.arange(len(letters))
        piece = letters
        made = np.append(self._make(piece[:-1], piece[1:]), self._size)
        made[:-1][begins[1:]] = self._size
        for turn in range(len(letters)):
            stays = _chance(noise + _chance(np.array([turn], np.uint64))) >= self._least
            starts = np.flatnonzero(begins)
            # The lowest id is the merge that was learned first; of equal ones, the leftmost.
            choice = np.where(stays, made, self._size) << 32 | np.arange(len(place))
            best = np.minimum.reduceat(choice, starts)
            goes_on = best >> 32 < self._size
            if not goes_on.any():
                break
            at = best[goes_on] & 0xFFFFFFFF
            piece[at] = best[goes_on] >> 32
            pieces[place[at]] = piece[at]
            left[place[at + 1]] = False
            # Remove finished words, and the right half of each merge.
            keep = np.repeat(goes_on, np.diff(np.append(starts, len(place))))
            keep[at + 1] = False
            at = (np.cumsum(keep) - 1)[at]
            kept = np.flatnonzero(keep)
            place, piece, made = place.take(kept), piece.take(kept), made.take(kept)
            begins, noise = begins.take(kept), noise.take(kept)
            for changed in (at, at[~begins[at]] - 1):
                inside = changed + 1 < len(piece)
                inside[inside] = ~begins[changed[inside] + 1]
                made[changed] = self._size
                changed = changed[inside]
                made[changed] = self._make(piece[changed], piece[changed + 1])
        return pieces, left

    def _make(self, left: IntArray, right: IntArray) -> IntArray:
        """The results of merging pairs of subwords; V for none."""
        pairs = left * self._size + right
        indices = np.searchsorted(self._pairs, pairs)
        return np.where(self._pairs.take(indices) == pairs, self._made.take(indices), self._size)


def _chance(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A pseudo-random number below 2 ** 64 for each number."""
    # Mixed only once, the results of x and x + c would differ by nearly the same for every x.
    return hash64(hash64(numbers, 0), 1)
