"""The validation and test sets of a preparation, and their pairs that are in training too.

A model knows much of the translation of a pair by heart that is nearly the same as a training pair.
Pairs that have three words in a row in common are compared by RapidFuzz: the characters of the
longest common sequence, of both sides. For a training pair of Multi30k this takes 0.02 ms; a
MinHash of datasketch takes 0.1 ms for one side, before anything is compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mtkit.base.errors import MtkitError
from mtkit.base.text import encoding_fault
from mtkit.data import NEAR_DUPLICATES
from mtkit.prepare.blocks import PairBlock, decoded, taken
from mtkit.prepare.corpus import Corpus
from mtkit.prepare.filters import Keys, PairRecords, kept_pairs_among, keys_of, salted
from mtkit.prepare.source import Block, Source

# Pairs that are read at a time.
_BLOCK = 10_000

# What is said of a set of which many pairs are in training.
IN_TRAINING = (
    "are training pairs too, so scores on them are too high; take other pairs, or keep them out of "
    "training with --set drop_overlap=true"
)
NEARLY_IN_TRAINING = (
    f"are nearly the same as a training pair ({NEAR_DUPLICATES}), so scores on them are too high; "
    "mtkit score also says the score without those of the test set"
)
# Above this share of a set in training there is a warning. Of the sets that Multi30k, Europarl and
# Tatoeba come with, and of random parts of these corpora, no pair is in the rest. A model that
# knows 1 % of the translations by heart can score about 0.6 BLEU more.
_MUCH_IN_TRAINING = 0.01

# The similarity of both sides, 0 to 100, from which pairs are nearly the same. At 85 they are 6 of
# 1,000 in Multi30k and 111 of 2,000 in Tatoeba; at 75 half of those of Multi30k are about something
# else.
MIN_SIMILARITY = 85
_WORD = re.compile(r"\w+")
# Words in a row that both have, and the most held-out lines with them: others say little.
_WORDS, _MAX_LINES = 3, 20
# With more characters to a word, the language has no spaces, and each character is one.
_MAX_WORD = 15

# The sets of a direction, by the names of the splits; the test set may be missing.
HeldOut = dict[str, Block]


def read_sets(corpus: Corpus) -> list[HeldOut]:
    """The sets of each direction; `MtkitError` for text that is not UTF-8."""
    return [
        {split: _read(source) for split, source in direction.held_out.items()}
        for direction in corpus.directions
    ]


def _read(source: Source) -> Block:
    texts: Block = ([], [])
    for block in source.blocks(_BLOCK):
        for side, lines in zip(texts, block, strict=True):
            for number, line in enumerate(lines, start=len(side) + 1):
                if fault := encoding_fault(line, is_escaped=source.is_escaped):
                    raise MtkitError(f"{source.name}, {source.unit} {number}: {fault}")
            side += lines
    return texts


def sentence_keys(corpus: Corpus, held_out: Sequence[HeldOut]) -> list[tuple[Keys, Keys]]:
    """For each direction the keys of the sources and of the targets in all its sets, sorted.

    A validation pair of one direction may be a training pair of the reverse one. So of multilingual
    data, the sentences of all directions in a language count.
    """

    labels = [pair if corpus.is_multilingual else ("src", "tgt") for pair in corpus.language_pairs]
    texts: dict[str, list[bytes]] = {}
    for of_sides, of_direction in zip(labels, held_out, strict=True):
        for pairs in of_direction.values():
            for label, lines in zip(of_sides, pairs, strict=True):
                texts.setdefault(label, []).extend(lines)
    keys = {label: np.unique(keys_of(lines)) for label, lines in texts.items()}
    return [(keys[src], keys[tgt]) for src, tgt in labels]


def count_in_training(records: PairRecords, held_out: Sequence[HeldOut]) -> dict[str, int]:
    """The number of pairs of each split that are kept training pairs of their direction too."""
    splits = [split for of_direction in held_out for split in of_direction]
    keys = [
        (salted(keys_of(src), direction), salted(keys_of(tgt), direction))
        for direction, of_direction in enumerate(held_out)
        for src, tgt in of_direction.values()
    ]
    counts = dict.fromkeys(["valid", "test", *splits], 0)
    for split, count in zip(splits, kept_pairs_among(records, keys), strict=True):
        counts[split] += count
    return counts


def warnings_about(counts: Mapping[str, int], held_out: Sequence[HeldOut], what: str) -> list[str]:
    """A sentence that says `what` for each split of which training has many pairs."""
    sentences = []
    for split, count in counts.items():
        total = sum(len(sets[split][0]) for sets in held_out if split in sets)
        name = "validation" if split == "valid" else split
        if count > _MUCH_IN_TRAINING * total:
            sentences.append(
                f"{count:,} of the {total:,} {name} pairs ({count / total:.1%}) {what}"
            )
    return sentences


# ---------------------------------------------------------------------------------------------
# Pairs that are nearly the same


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


def grams_of(held_out: Sequence[HeldOut]) -> list[Grams]:
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
