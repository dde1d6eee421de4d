"""Treebanks as sources of pairs: the words of each sentence, and its tree in brackets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from mtkit.align import Links
from mtkit.base.text import decode_lines
from mtkit.parsing import linearise, model_source, parse_trees, read_bracket, split_words
from mtkit.prepare.source import Block, FileSource, Reading


class Treebank(FileSource):
    """A file of bracketed trees, plain or compressed, as `trees.parse_trees` reads them.

    The source of a pair is the words of a sentence, separated by spaces, as they are in the tree;
    its target is the tree on one line.

    Raises:
        MtkitError: for a file that is missing, or that cannot be read more than once. While
            reading: for damaged compression, text that is not UTF-8, and malformed trees, with
            the line.
    """

    kind, unit = "trees", "tree"

    def _read(self, size: int, reading: Reading) -> Iterator[Block]:
        with reading.open(self._path) as stream:
            trees = parse_trees(decode_lines(stream, name=self.name), name=self.name)
            while block := list(itertools.islice(trees, size)):
                yield [t.sentence.encode() for t in block], [str(t).encode() for t in block]


@dataclass(frozen=True)
class Linearisation:
    """The form of a tree that a model learns to write; `tags` is as in `linearise`."""

    tags: bool

    @staticmethod
    def source(line: str) -> str:
        """What a model reads for the words of a sentence, which are separated by spaces."""
        return model_source(split_words(line))

    def text(self, line: str) -> str:
        """The linearised form of a tree in brackets on one line."""
        (tree,) = parse_trees([line], name="tree")
        return linearise(tree, tags=self.tags)

    @staticmethod
    def links(text: str) -> Links:
        """Which word of the sentence a model needs after each part of a linearised tree.

        It is the first word that the parts up to there have not read. So a head with
        `train.guided_alignment` learns where in the sentence the tree is, which is hard to learn
        from the trees alone, because the words are not copied. Parts after the last word have no
        link.
        """
        parts = list(map(read_bracket, text.split()))
        is_word = [part is not None and part.kind == "word" for part in parts]
        read = list(itertools.accumulate(is_word))
        return frozenset((word, place) for place, word in enumerate(read) if word < read[-1])
