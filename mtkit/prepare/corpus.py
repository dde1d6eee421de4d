"""What is prepared: the training, validation and test sources of one direction, or of several."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mtkit.base.arguments import checks_arguments
from mtkit.base.errors import MtkitError
from mtkit.base.text import check_language
from mtkit.data import TaskName, also_split
from mtkit.prepare.link_files import LinkFile, LinkLines
from mtkit.prepare.source import Block, Source
from mtkit.prepare.tmx import language_subtags
from mtkit.tokenizer import Prefixes, TagScheme, Vocabularies

BlockWithLinks = tuple[Block, LinkLines | None]

# The code of the target language of a parser.
TREES = "trees"


@checks_arguments
@dataclass(frozen=True)
class DirectionSources:
    """The sources of a direction.

    Attributes:
        src_lang, tgt_lang: language codes; of a treebank the language and `TREES`.
        valid_also: further validation sets by name, which training measures too. They do not select
            the best checkpoint.
        links: for each training source the word alignments of its pairs, for
            `train.guided_alignment`; or none.
    """

    src_lang: str
    tgt_lang: str
    train: Sequence[Source]
    valid: Source
    test: Source | None = None
    valid_also: Mapping[str, Source] = field(default_factory=dict)
    links: Sequence[LinkFile] = ()

    @property
    def name(self) -> str:
        """Its name in the manifest and in messages."""
        return f"{self.src_lang}-{self.tgt_lang}"

    @property
    def held_out(self) -> dict[str, Source]:
        """The validation and test sets that there are, by the names of their splits."""
        sources = {"valid": self.valid} | ({"test": self.test} if self.test else {})
        return sources | {also_split(name): source for name, source in self.valid_also.items()}


@checks_arguments
@dataclass(frozen=True)
class Corpus:
    """The sources of all directions of a prepared folder.

    With `is_multilingual`, the vocabulary of the source has a tag for each target language,
    `Tokenizer.language_tags`, and every encoded source begins with the tag of its target language,
    before the tag of its training source if there is one. Filters compare the pairs of a direction
    with each other only; but a training pair counts as overlap with the sets of all directions that
    have its languages.

    With the task `parsing` (Section 6.3), the sources are treebanks: sentences are sources, trees
    are targets. Of the filters only the limit of tokens applies. The target has a vocabulary of its
    own, with one subword for each bracket and each tag.

    Attributes:
        tags: the scheme of a new vocabulary, by default `source`; of a given one, what it must
            have.
        temperature: of sampling between the directions, at least 1: an epoch has pairs of each in
            proportion to ``size ** (1 / temperature)``; all pairs of the largest direction once.
    """

    name: str
    directions: Sequence[DirectionSources]
    is_multilingual: bool = False
    tags: TagScheme | None = None
    temperature: float = 1.0
    task: TaskName = "translation"
    licence: str | None = None

    def check(self) -> None:
        """Refuse what cannot be prepared together, naming what must be changed."""
        with_links = any(direction.links for direction in self.directions)
        if not self.directions:
            raise MtkitError("directions: give at least one")
        for direction in self.directions:
            check_language("src_lang", direction.src_lang)
            if self.task == "translation":
                check_language("tgt_lang", direction.tgt_lang)
            if not direction.train:
                raise MtkitError("train: there is no training data; give at least one source")
            if with_links and len(direction.links) != len(direction.train):
                where = f" of {direction.name}" if self.is_multilingual else ""
                raise MtkitError(
                    f"alignments: give a file for each of the {len(direction.train)} training "
                    f"sources{where}, not {len(direction.links)}"
                )
            for source in direction.held_out.values():
                if source.tag is not None:
                    raise MtkitError(
                        f"{source.name}: only training data can have a tag; remove {source.tag}"
                    )
        if not (math.isfinite(self.temperature) and self.temperature >= 1):
            raise MtkitError(f"temperature: must be at least 1, not {self.temperature}")
        if self.is_multilingual:
            _check_pairs(self.language_pairs)
        _check_set_names(self.directions, is_multilingual=self.is_multilingual)

    @property
    def is_parsing(self) -> bool:
        """Whether the sources are treebanks."""
        return self.task == "parsing"

    @property
    def language_pairs(self) -> list[tuple[str, str]]:
        """Source and target language of each direction."""
        return [(direction.src_lang, direction.tgt_lang) for direction in self.directions]

    @cached_property
    def train(self) -> list[Source]:
        """The training sources of all directions, one after another."""
        return [source for direction in self.directions for source in direction.train]

    @property
    def files(self) -> list[Path]:
        """All files that are read on this machine."""
        sources = itertools.chain.from_iterable(self.sources().values())
        paths = [file for source in sources for file in source.files]
        return paths + [links.path for links in self._links if links is not None]

    @cached_property
    def direction_of(self) -> list[int]:
        """The number of the direction of each of `train`."""
        return [number for number, direction in enumerate(self.directions) for _ in direction.train]

    @cached_property
    def has_links(self) -> bool:
        """Whether the training pairs have links."""
        return self.is_parsing or any(direction.links for direction in self.directions)

    @cached_property
    def labels(self) -> list[str]:
        """What files that may be passed on call each of `train`; no two the same."""
        names = [source.label for source in self.train]
        return [
            f"{label} (source {number})" if names.count(label) > 1 else label
            for number, label in enumerate(names, start=1)
        ]

    @property
    def tagged_languages(self) -> list[str]:
        """The languages of a multilingual model that have a tag, each once, in order."""
        sources = {d.src_lang for d in self.directions if self.tags == "both"}
        targets = {d.tgt_lang for d in self.directions if self.is_multilingual}
        return sorted(sources | targets)

    @property
    def corpus_tags(self) -> list[str]:
        """The names of the tags of the training sources, each once, in alphabetical order."""
        return sorted({source.tag for source in self.train if source.tag is not None})

    def direction_prefixes(self, vocabularies: Vocabularies) -> list[Prefixes]:
        """What the encoded pairs of each direction begin with: the language tags, or nothing."""
        return [vocabularies.prefixes(*languages) for languages in self.language_pairs]

    def train_prefixes(self, vocabularies: Vocabularies) -> list[Prefixes]:
        """What those of each of `train` begin with: that of its direction, and its own tag."""
        of_directions, tags = self.direction_prefixes(vocabularies), vocabularies.src.corpus_tags
        own = ([] if source.tag is None else [tags[source.tag]] for source in self.train)
        return [
            Prefixes([*of_directions[number].src, *tag], of_directions[number].tgt)
            for number, tag in zip(self.direction_of, own, strict=True)
        ]

    def tag_counts(self, kept: Sequence[int]) -> dict[str, int]:
        """The kept pairs with each of `corpus_tags`, from the number of each of `train`."""
        counts = dict.fromkeys(self.corpus_tags, 0)
        for source, count in zip(self.train, kept, strict=True):
            if source.tag is not None:
                counts[source.tag] += count
        return counts

    def blocks(self, number: int, blocks: Generator[Block, None, None]) -> Iterator[BlockWithLinks]:
        """The blocks of a training source, with the links of their pairs if there are any."""
        links = self._links[number]
        if links is None:
            return zip(blocks, itertools.repeat(None))
        return links.beside(blocks, of=self.train[number].name)

    def sources(self) -> dict[str, list[Source]]:
        """The sources of each split, the training data first; the test set may have none."""
        of_split: dict[str, list[Source]] = {"train": self.train, "valid": [], "test": []}
        for direction in self.directions:
            for split, source in direction.held_out.items():
                of_split.setdefault(split, []).append(source)
        return of_split

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

        `sizes` are the numbers of pairs of the directions, each pair as often as it is used.
        """
        largest = max(sizes)
        return [(size / largest) ** (1 / self.temperature - 1) if size else 1.0 for size in sizes]

    @cached_property
    def _links(self) -> Sequence[LinkFile | None]:
        links = [link for direction in self.directions for link in direction.links]
        return links or [None] * len(self.train)


def _check_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Refuse languages of directions whose tags or names would not tell them apart."""
    spelled: dict[tuple[str, ...], str] = {}
    for code in itertools.chain.from_iterable(pairs):
        if not re.fullmatch(r"[A-Za-z0-9_-]+", code):
            raise MtkitError(
                f"{code} has a character that a language tag cannot have; use letters, digits, "
                "hyphens and underscores of ASCII"
            )
        first = spelled.setdefault(tuple(language_subtags(code)), code)
        if first != code:
            raise MtkitError(f"{first} and {code} are codes of the same language; use one of them")
    if same := [src for src, tgt in pairs if src == tgt]:
        raise MtkitError(
            f"the direction {same[0]} to {same[0]} has the same language twice; give two languages"
        )
    if twice := _repeated([f"{src}-{tgt}" for src, tgt in pairs]):
        raise MtkitError(
            f"two directions have the name {twice[0]}; give all corpora of a direction together, "
            "or choose other language codes"
        )


def _check_set_names(directions: Sequence[DirectionSources], *, is_multilingual: bool) -> None:
    """Refuse names of validation sets that are given twice, or cannot be part of a file name."""
    names = [name for direction in directions for name in direction.valid_also]
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}", name):
            raise MtkitError(
                f"valid_also: {name!r} cannot be the name of a validation set; use at most 50 "
                "letters, digits, dots, hyphens and underscores of ASCII, a letter or digit first"
            )
    taken = [direction.name for direction in directions] if is_multilingual else []
    # Not all file systems distinguish capital letters.
    if twice := _repeated([name.lower() for name in (*taken, *names)]):
        raise MtkitError(
            f"valid_also: {twice[0]} is already the name of a validation set (capital letters "
            "make no difference); give another"
        )


def _repeated(values: Sequence[str]) -> list[str]:
    return [value for index, value in enumerate(values) if value in values[:index]]
