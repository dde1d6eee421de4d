"""The validation and test sets of a preparation, and their pairs that are in training too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mtkit.base.errors import MtkitError
from mtkit.base.text import encoding_fault
from mtkit.data import NEAR_DUPLICATES
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
