"""Word alignments of training pairs, for guided alignment (`train.guided_alignment`).

A file in the Pharaoh format, as any aligner writes it, gives the links of the words between spaces
of the lines as they are. Training needs subwords, and with BPE-dropout their number changes. So
links are stored between the words of the tokenizer: a word begins at each subword that begins with
a space (`▁`), however it is segmented.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mtkit.align import Links, index_doubt, parse_links, refuse_words, word_spans, words_of_subwords
from mtkit.base.errors import MtkitError
from mtkit.base.files import shareable_name
from mtkit.base.text import read_lines
from mtkit.data import LINK_TYPE
from mtkit.prepare.source import Block, check_file, file_sha256
from mtkit.tokenizer import Tokenizer, Vocabularies

log = logging.getLogger(__name__)

_FROM_0 = "subtract 1 from each index"


class LinkLines(NamedTuple):
    """The lines of a file of links that belong to a block of pairs, from number `first` on."""

    file: str
    first: int
    lines: list[str]

    def parsed(self, indices: Sequence[int]) -> list[Links]:
        """The links of some pairs of the block; `MtkitError` with file and line."""
        return [parse_links(self.lines[index], place=self._place(index)) for index in indices]

    def check(self, block: Block) -> None:
        """Refuse links of words that a pair does not have, with file and line."""
        for index, links in enumerate(self.parsed(range(len(self.lines)))):
            # Lines that are not UTF-8 are dropped later.
            pair = [side[index].decode(errors="replace") for side in block]
            refuse_words(links, pair, place=self._place(index), advice=_FROM_0)

    def _place(self, index: int) -> str:
        return f"{self.file}, line {self.first + index}"


class LinkFile:
    """The word alignments of a training corpus: line n of the file has the links of pair n.

    Raises:
        MtkitError: if the file is missing, or can be read only once.
    """

    def __init__(self, path: Path) -> None:
        check_file(path)
        if doubt := index_doubt(read_lines(path)):
            log.warning("%s: %s; if so, %s", path, doubt, _FROM_0)
        self.path = path

    def facts(self) -> dict[str, Any]:
        """The entry in the manifest."""
        return {"path": shareable_name(self.path), "sha256": file_sha256(self.path)}

    def beside(
        self, blocks: Generator[Block, None, None], *, of: str
    ) -> Iterator[tuple[Block, LinkLines]]:
        """Blocks of pairs, each with its lines of the file, which must be as many as the pairs."""
        count = 0
        # Closed at once after an error too.
        with closing(read_lines(self.path)) as lines, closing(blocks):
            for block in blocks:
                size = len(block[0])
                texts = list(itertools.islice(lines, size))
                if len(texts) < size:
                    more = size - len(texts) + sum(len(rest[0]) for rest in blocks)
                    self._refuse_count(count + len(texts), count + len(texts) + more, of)
                yield block, LinkLines(str(self.path), count + 1, texts)
                count += size
            if rest := sum(1 for _ in lines):
                self._refuse_count(count + rest, count, of)

    def _refuse_count(self, lines: int, pairs: int, of: str) -> None:
        raise MtkitError(
            f"{self.path} has {lines} lines, but there are {pairs} pairs in {of}; line n must have "
            "the links of pair n"
        )


def encode_links(
    vocabularies: Vocabularies, block: Sequence[Sequence[str]], links: Sequence[Links]
) -> list[bytes]:
    """Links between the words of the tokenizers, from links between the words of the lines.

    Returns:
        For each pair its links in order, each as the numbers of two words, of `LINK_TYPE`.
    """
    src, tgt = (
        _tokenizer_words(tokenizer, lines)
        for tokenizer, lines in zip(vocabularies, block, strict=True)
    )
    encoded = []
    for src_words, tgt_words, of_pair in zip(src, tgt, links, strict=True):
        linked = {
            (i, j)
            for src_word, tgt_word in of_pair
            for i in src_words.get(src_word, ())
            for j in tgt_words.get(tgt_word, ())
        }
        encoded.append(np.array(sorted(linked), LINK_TYPE).tobytes())
    return encoded


def _tokenizer_words(tokenizer: Tokenizer, lines: Sequence[str]) -> Iterator[dict[int, set[int]]]:
    """For each line: the words of the tokenizer that each word of the line has subwords of."""
    begins = tokenizer.begins_word
    for line, (ids, spans) in zip(lines, tokenizer.encode_with_spans(lines), strict=True):
        words = word_spans(line)
        numbers_of: dict[int, set[int]] = {}
        if words and ids:
            numbers = np.maximum(np.cumsum(begins[ids]) - 1, 0)
            owners = words_of_subwords(words, [start for start, _ in spans])
            for owner, number in zip(owners, numbers.tolist(), strict=True):
                numbers_of.setdefault(owner, set()).add(number)
        yield numbers_of
