"""Treebanks as sources of pairs: the words of each sentence, and its tree in brackets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mtkit.prepare.source import Block, Reading, Source, check_file, file_sha256
from mtkit.text import decode_lines
from mtkit.trees import linearise, parse_trees


class Treebank(Source):
    """A file of bracketed trees, plain or compressed, as `trees.parse_trees` reads them.

    The source of a pair is the words of a sentence, separated by spaces, as they are in the tree;
    its target is the tree on one line.

    Args:
        path: the file.
        weight: the oversampling factor.

    Raises:
        MtkitError: for a file that is missing, or that cannot be read more than once. While
            reading: for damaged compression, text that is not UTF-8, and malformed trees, with
            the line.
    """

    def __init__(self, path: Path, *, weight: float = 1.0) -> None:
        check_file(path)
        super().__init__(str(path), unit="tree", weight=weight)
        self._path = path

    def _read(self, size: int, reading: Reading) -> Iterator[Block]:
        with reading.open(self._path) as stream:
            trees = parse_trees(decode_lines(stream, name=self.name), name=self.name)
            while block := list(itertools.islice(trees, size)):
                yield [t.sentence.encode() for t in block], [str(t).encode() for t in block]

    def _place(self) -> dict[str, Any]:
        return {"kind": "trees", "path": str(self._path), "sha256": file_sha256(self._path)}


def linearised(line: str, *, tags: bool) -> str:
    """The linearised form of a tree in brackets on one line; `tags` as in `linearise`."""
    (tree,) = parse_trees([line], name="tree")
    return linearise(tree, tags=tags)
