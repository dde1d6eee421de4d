"""The validation and test sets of a preparation, and their pairs that are in training too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mtkit.base.text import not_utf8
from mtkit.prepare.corpus import Corpus, DirectionSources
from mtkit.prepare.filters import Keys, PairRecords, kept_pairs_among, keys_of, salted
from mtkit.prepare.source import Block, Source

# Pairs that are read at a time.
_BLOCK = 10_000

# Above this share of a set in training there is a warning. Of the sets that Multi30k, Europarl and
# Tatoeba come with, and of random parts of these corpora, no pair is in the rest. A model that
# knows 1 % of the translations by heart can score about 0.6 BLEU more.
_MUCH_IN_TRAINING = 0.01


@dataclass(frozen=True)
class HeldOutSet:
    """A validation or test set of a direction: both sides, as they were read and as text."""

    pairs: Block = field(default_factory=lambda: ([], []))
    texts: list[list[str]] = field(default_factory=lambda: [[], []])

    def __len__(self) -> int:
        return len(self.pairs[0])


# The sets of a direction, by the names of the splits; without a test set, it is empty.
HeldOut = dict[str, HeldOutSet]


def read_held_out(corpus: Corpus) -> list[HeldOut]:
    """The sets of each direction.

    Raises:
        MtkitError: for text that is not UTF-8.
    """
    return [
        {split: HeldOutSet() if one is None else _read(one) for split, one in sources.items()}
        for sources in (direction.held_out for direction in corpus.directions)
    ]


def _read(source: Source) -> HeldOutSet:
    found = HeldOutSet()
    for block in source.blocks(_BLOCK):
        for pairs, texts, lines in zip(found.pairs, found.texts, block, strict=True):
            pairs += lines
            for line in lines:
                try:
                    texts.append(line.decode())
                except UnicodeDecodeError as error:
                    where = f"{source.name}, {source.unit} {len(texts) + 1}"
                    raise not_utf8(where, error) from None
    return found


def sentence_keys(corpus: Corpus, held_out: Sequence[HeldOut]) -> list[tuple[Keys, Keys]]:
    """For each direction the keys of the sources and of the targets in all its sets, sorted.

    A validation pair of one direction may be a training pair of the reverse one. So of multilingual
    data, the sentences of all directions in a language count.
    """

    def labels(direction: DirectionSources) -> tuple[str | int, str | int]:
        if corpus.is_multilingual:
            return direction.src_lang, direction.tgt_lang
        return 0, 1

    texts: dict[str | int, list[bytes]] = {}
    for direction, of_direction in zip(corpus.directions, held_out, strict=True):
        for one in of_direction.values():
            for label, lines in zip(labels(direction), one.pairs, strict=True):
                texts.setdefault(label, []).extend(lines)
    keys = {label: np.unique(keys_of(lines)) for label, lines in texts.items()}
    return [
        (keys[src], keys[tgt])
        for src, tgt in (labels(direction) for direction in corpus.directions)
    ]


def count_in_training(records: PairRecords, held_out: Sequence[HeldOut]) -> dict[str, int]:
    """The number of pairs of each split that are kept training pairs of their direction too."""
    splits, keys = [], []
    for direction, of_direction in enumerate(held_out):
        for split, one in of_direction.items():
            src, tgt = (salted(keys_of(lines), direction) for lines in one.pairs)
            splits.append(split)
            keys.append((src, tgt))
    found = dict.fromkeys(splits, 0)
    for split, count in zip(splits, kept_pairs_among(records, keys), strict=True):
        found[split] += count
    return found


def warnings_about(in_training: Mapping[str, int], held_out: Sequence[HeldOut]) -> list[str]:
    """A sentence for each split that shares many pairs with training (`count_in_training`)."""
    sentences = []
    for split, count in in_training.items():
        total = sum(len(sets[split]) for sets in held_out if split in sets)
        name = "validation" if split == "valid" else split
        if count > _MUCH_IN_TRAINING * total:
            sentences.append(
                f"{count:,} of the {total:,} {name} pairs ({count / total:.1%}) are training pairs "
                "too, so scores on them are too high; take other pairs, or keep them out of "
                "training with --set drop_overlap=true"
            )
    return sentences
