"""What is prepared: the sources of one direction of translation, or of several."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mtkit.data import also_split
from mtkit.prepare.links import LinkFile, LinkLines
from mtkit.prepare.source import Block, Source
from mtkit.prepare.treebank import Linearisation
from mtkit.tokenizer import Tokenizer

BlockWithLinks = tuple[Block, LinkLines | None]


@dataclass(frozen=True)
class Sources:
    """The training, validation and test sources of a direction.

    Attributes:
        src_lang, tgt_lang: language codes.
        train, valid, test: the sources.
        valid_also: further validation sets, by name.
        links: files of word alignments, for each training source; empty if there are none.
        linearisation: of the trees on the target side; None for translations.
    """

    src_lang: str
    tgt_lang: str
    train: Sequence[Source]
    valid: Source
    test: Source | None = None
    valid_also: Mapping[str, Source] = field(default_factory=dict)
    links: Sequence[LinkFile] = ()
    linearisation: Linearisation | None = None

    @property
    def name(self) -> str:
        """Its name in the manifest and in messages."""
        return f"{self.src_lang}-{self.tgt_lang}"

    @property
    def held_out(self) -> dict[str, Source | None]:
        """The validation and test sets by the names of their splits; None for no test set."""
        also = {also_split(name): source for name, source in self.valid_also.items()}
        return {"valid": self.valid, "test": self.test, **also}


@dataclass(frozen=True)
class Corpus:
    """The sources of all directions of a prepared folder.

    Attributes:
        directions: one, or several of a multilingual model.
        is_multilingual: whether a source begins with the tag of its target language.
        temperature: of sampling between the directions: an epoch has pairs of a direction in
            proportion to ``size ** (1 / temperature)``.
    """

    directions: Sequence[Sources]
    is_multilingual: bool = False
    temperature: float = 1.0

    @cached_property
    def train(self) -> list[Source]:
        """The training sources of all directions, one after another."""
        return [source for one in self.directions for source in one.train]

    @cached_property
    def direction_of(self) -> list[int]:
        """The number of the direction of each of `train`."""
        return [number for number, one in enumerate(self.directions) for _ in one.train]

    @property
    def linearisation(self) -> Linearisation | None:
        """As in `Sources`; several directions have none."""
        return self.directions[0].linearisation

    @cached_property
    def has_links(self) -> bool:
        """Whether the training pairs have links."""
        return self.linearisation is not None or any(one.links for one in self.directions)

    @cached_property
    def labels(self) -> list[str]:
        """What files that may be passed on call each of `train`; no two the same."""
        found = [source.label for source in self.train]
        return [
            f"{label} (source {number})" if found.count(label) > 1 else label
            for number, label in enumerate(found, start=1)
        ]

    @property
    def tagged_languages(self) -> list[str]:
        """The target languages of a multilingual model, each once, in alphabetical order."""
        return sorted({one.tgt_lang for one in self.directions}) if self.is_multilingual else []

    @property
    def corpus_tags(self) -> list[str]:
        """The names of the tags of the training sources, each once, in alphabetical order."""
        return sorted({source.tag for source in self.train if source.tag is not None})

    def direction_prefixes(self, tokenizer: Tokenizer) -> list[list[int]]:
        """What the encoded sources of each direction begin with: the language tag, or nothing."""
        if not self.is_multilingual:
            return [[] for _ in self.directions]
        return [[tokenizer.language_tags[one.tgt_lang]] for one in self.directions]

    def train_prefixes(self, tokenizer: Tokenizer) -> list[list[int]]:
        """What those of each of `train` begin with: that of its direction, and its own tag."""
        of_directions = self.direction_prefixes(tokenizer)
        return [
            of_directions[number]
            + ([] if source.tag is None else [tokenizer.corpus_tags[source.tag]])
            for number, source in zip(self.direction_of, self.train, strict=True)
        ]

    def tag_counts(self, kept: Sequence[int]) -> dict[str, int]:
        """The kept pairs with each of `corpus_tags`, from the number of each of `train`."""
        return {
            tag: sum(
                count for count, source in zip(kept, self.train, strict=True) if source.tag == tag
            )
            for tag in self.corpus_tags
        }

    def blocks(self, number: int, blocks: Generator[Block, None, None]) -> Iterator[BlockWithLinks]:
        """The blocks of a training source, with the links of their pairs if there are any."""
        links = self._links[number]
        if links is None:
            return zip(blocks, itertools.repeat(None))
        return links.beside(blocks, of=self.train[number].name)

    def sources(self) -> dict[str, list[Source]]:
        """The sources of each split, the training data first; the test set may have none."""
        found: dict[str, list[Source]] = {"train": self.train}
        for one in self.directions:
            for split, source in one.held_out.items():
                found.setdefault(split, []).extend([source] if source else [])
        return found

    def facts(self, split: str) -> list[dict[str, Any]]:
        """The entries of the sources of a split in the manifest."""
        of_split = [source.facts() for source in self.sources()[split]]
        if split == "train":
            for facts, links in zip(of_split, self._links, strict=True):
                if links is not None:
                    facts["alignments"] = links.facts()
        return of_split

    def factors(self, sizes: Sequence[float]) -> list[float]:
        """What the weights of each direction are multiplied with; the largest direction has 1.

        Args:
            sizes: the number of pairs of each direction, each as often as it is used.
        """
        largest = max(sizes)
        return [(size / largest) ** (1 / self.temperature - 1) if size else 1.0 for size in sizes]

    @cached_property
    def _links(self) -> list[LinkFile | None]:
        found: list[LinkFile | None] = []
        for one in self.directions:
            found += one.links or [None] * len(one.train)
        return found
