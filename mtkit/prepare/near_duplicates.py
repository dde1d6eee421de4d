"""Pairs of the validation and test sets that are nearly the same as a training pair.

A model that was trained on them knows much of their translation by heart. Pairs that have three
words in a row in common are compared by RapidFuzz: the characters of the longest common sequence,
of both sides. For a training pair of Multi30k this takes 0.02 ms; a MinHash of datasketch takes
0.1 ms for one side, before anything is compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mtkit.prepare.blocks import PairBlock, decoded, taken
from mtkit.prepare.held_out import HeldOut

# The similarity of both sides, 0 to 100, from which pairs are nearly the same. At 85 they are 6 of
# 1,000 in Multi30k and 111 of 2,000 in Tatoeba; at 75 half of those of Multi30k are about something
# else.
MIN_SIMILARITY = 85
_WORD = re.compile(r"\w+")
# Words in a row that both have, and the most held-out lines with them: others say little.
_WORDS, _MAX_LINES = 3, 20
# With more characters to a word, the language has no spaces, and each character is one.
_MAX_WORD = 15


class NearDuplicate(NamedTuple):
    """A held-out pair, by split and line from 1, the training pair, and how similar they are."""

    split: str
    line: int
    source: int
    training_line: int
    similarity: float


def keep_nearest(nearest: dict[str, list[Any]], pairs: Sequence[NearDuplicate]) -> None:
    """Keep the most similar, and of these the first one, of each held-out pair."""
    for split, line, *rest in pairs:
        place = f"{split} {line}"
        if place not in nearest or rest[-1] > nearest[place][-1]:
            nearest[place] = [split, line, *rest]


@dataclass
class Grams:
    """The held-out pairs of a direction, each with its split and line, and where grams are."""

    pairs: list[tuple[str, str]]
    places: list[tuple[str, int]]
    lines: dict[tuple[str, ...], list[int]]


def held_out_grams(held_out: Sequence[HeldOut]) -> list[Grams]:
    """What `near_duplicates` compares with, of each direction."""
    counts: dict[str, int] = {}
    result = []
    for of_direction in held_out:
        sets = Grams([], [], {})
        for split, texts in of_direction.items():
            for pair in zip(*decoded(texts), strict=True):
                counts[split] = counts.get(split, 0) + 1
                for gram in _grams(*pair):
                    sets.lines.setdefault(gram, []).append(len(sets.pairs))
                sets.pairs.append(pair)
                sets.places.append((split, counts[split]))
        sets.lines = {gram: x for gram, x in sets.lines.items() if len(x) <= _MAX_LINES}
        result.append(sets)
    return result


def near_duplicates(sets: Sequence[Grams], block: PairBlock) -> list[NearDuplicate]:
    """The held-out pairs that a kept pair of a block is nearly the same as; in any process."""
    from rapidfuzz.fuzz import ratio

    near = []
    own, kept = sets[block.direction], block.kept.tolist()
    pairs = zip(*decoded(taken(block.pairs, kept)), strict=True)
    for number, (src, tgt) in zip(kept, pairs, strict=True):
        grams = own.lines.keys() & _grams(src, tgt)
        for other in sorted({index for gram in grams for index in own.lines[gram]}):
            other_src, other_tgt = own.pairs[other]
            similarity = ratio(src, other_src, score_cutoff=MIN_SIMILARITY)
            if similarity:
                of_target = ratio(tgt, other_tgt, score_cutoff=MIN_SIMILARITY)
                similarity = min(similarity, of_target)
            if similarity:
                place, line = own.places[other], int(block.lines[number])
                near.append(NearDuplicate(*place, block.source, line, round(similarity, 1)))
    return near


def _grams(*sides: str) -> set[tuple[str, ...]]:
    """The words in a row of each side, or all of a short one."""
    grams = set()
    for side in sides:
        words = _WORD.findall(side.casefold())
        if len(side) > _MAX_WORD * len(words):
            words = list("".join(words))
        grams |= {tuple(words[i : i + _WORDS]) for i in range(max(1, len(words) - _WORDS + 1))}
    return grams - {()}
