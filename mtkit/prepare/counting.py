"""The words of the kept pairs and their counts, from which subwords are learned.

The words of the clean text and those that noise adds are counted apart: the subwords are learned
from both, but what belongs to the filters comes from the clean text alone.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from mtkit.base.arrays import IntArray
from mtkit.base.processes import ordered_map
from mtkit.base.words import WordCounts, count_words
from mtkit.prepare.encoding import Place, model_texts
from mtkit.prepare.noise import Noise
from mtkit.prepare.source import Block
from mtkit.prepare.treebank import Linearisation

# Memory for the words of one side, of all directions.
_WORDS_BYTES = 32 << 20


class ChosenPairs(NamedTuple):
    """Kept pairs of a block, and their indices there."""

    place: Place
    pairs: Block
    indices: IntArray


class DirectionWords(NamedTuple):
    """The words of both sides of a direction, with their counts.

    Attributes:
        clean: of the text as it is.
        noisy: of the pairs with noise, as they are with it.
    """

    clean: tuple[Mapping[str, int], Mapping[str, int]]
    noisy: tuple[Mapping[str, int], Mapping[str, int]]


def count_pairs(
    chosen: Iterable[ChosenPairs],
    *,
    directions: int,
    linearisation: Linearisation | None,
    noises: Sequence[Noise],
    workers: int,
    advance: Callable[[int], object],
) -> list[DirectionWords]:
    """Count the words of some pairs of each direction, in bounded memory.

    Args:
        chosen: the pairs, in order.
        directions: number of directions.
        linearisation: as in `Sources`.
        noises: the noise of each direction; empty if there is none.
        workers: number of processes.
        advance: called with progress, in pairs.
    """
    room = _WORDS_BYTES // directions
    # Of source and target, and then of both with noise.
    counts = [[WordCounts(max_bytes=room) for _ in range(4)] for _ in range(directions)]
    count = functools.partial(_count_chosen, linearisation, noises)
    for one, of_sides in ordered_map(count, chosen, workers=workers):
        for side, of_side in zip(counts[one.place.direction], of_sides, strict=True):
            side.add(of_side)
        advance(len(one.indices))
    found = []
    for of_direction in counts:
        src, tgt, noisy_src, noisy_tgt = (dict(side.items()) for side in of_direction)
        found.append(DirectionWords((src, tgt), (noisy_src, noisy_tgt)))
    return found


def count_block(
    linearisation: Linearisation | None, block: Block
) -> tuple[Counter[str], Counter[str]]:
    """The words of the two sides of some pairs."""
    src, tgt = map(count_words, model_texts(block, linearisation))
    return src, tgt


def _count_chosen(
    linearisation: Linearisation | None, noises: Sequence[Noise], chosen: ChosenPairs
) -> list[Counter[str]]:
    """The words of both sides, and of both with noise."""
    texts = model_texts(chosen.pairs, linearisation)
    noisy: Sequence[Sequence[str]] = ((), ())
    if noises:
        place = chosen.place
        noise = noises[place.direction]
        noisy = noise(texts, source=place.source, lines=place.first + chosen.indices).texts
    return [count_words(lines) for lines in (*texts, *noisy)]


def words_to_learn(
    words: Sequence[DirectionWords], factors: Sequence[float]
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """The words of each side that subwords are learned from, with and without noise.

    Args:
        words: of each direction.
        factors: what the counts of each direction are multiplied with.
    """
    src, tgt = (
        _merged([(one.clean[side], one.noisy[side]) for one in words], factors) for side in (0, 1)
    )
    return src, tgt


def _merged(
    counts: Sequence[Sequence[Mapping[str, int]]], factors: Sequence[float]
) -> Mapping[str, int]:
    parts = [
        (of_text, factor)
        for of_direction, factor in zip(counts, factors, strict=True)
        for of_text in of_direction
        if of_text
    ]
    if len(parts) == 1:  # of the largest direction, whose factor is 1
        return parts[0][0]
    summed: Counter[str] = Counter()
    for of_text, factor in parts:
        for word, count in of_text.items():
            summed[word] += math.ceil(count * factor)
    return summed
