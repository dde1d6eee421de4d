"""The third pass over a corpus: the kept pairs of a block as ids, with the filters on subwords."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mtkit.config import PrepareConfig
from mtkit.prepare.filters import KEPT, LanguageOdds, ReasonCodes, reason_code
from mtkit.prepare.links import LinkLines, encode_links
from mtkit.prepare.source import Block
from mtkit.prepare.text_to_ids import CachedEncoder
from mtkit.tokenizer import Vocabularies

# Memory for the cache of encoded words of a process.
_CACHE_BYTES = 32 << 20


@dataclass(frozen=True)
class Place:
    """The origin of a block.

    Attributes:
        source: the number of its training source, from 0.
        first: the number of its first pair there, from 1.
        direction: the number of its direction, from 0.
    """

    source: int
    first: int
    direction: int = 0


class CheckedBlock(NamedTuple):
    """A block with its links, if any, and the reason codes of the first stage on its pairs."""

    place: Place
    block: Block
    codes: ReasonCodes
    links: LinkLines | None


class EncodedBlock(NamedTuple):
    """The kept pairs of a block, and a reason code for each of its pairs.

    Attributes:
        src, tgt: the ids of both sides of the kept pairs.
        links: their links, if there are any.
        codes: of all pairs.
    """

    src: list[bytes]
    tgt: list[bytes]
    links: list[bytes]
    codes: ReasonCodes


class BlockEncoding:
    """Segments the kept pairs of a block into subwords, and applies the subword-level filters.

    Args:
        vocabularies: of both sides.
        odds: of the two sides of each direction.
        config: of the filters.
        dtype: of an id.
        target_text: as in `Sources`.
        tags: what the sources of each direction begin with, as ids.
    """

    def __init__(
        self,
        vocabularies: Vocabularies,
        odds: Sequence[tuple[LanguageOdds, LanguageOdds]],
        config: PrepareConfig,
        dtype: np.dtype[Any],
        target_text: Callable[[str], str] | None,
        tags: Sequence[bytes],
    ) -> None:
        self._tags = tags
        self._target_text = target_text
        self._vocabularies = vocabularies
        self._odds = odds
        self._config = config
        self._dtype = dtype

    @functools.cached_property
    def _encoders(self) -> list[CachedEncoder]:
        # Each process has its own encoders, which are not sent.
        return block_encoders(self._vocabularies, self._dtype)

    def __call__(self, decided: CheckedBlock) -> EncodedBlock:
        """The kept pairs of a block, encoded."""
        codes = decided.codes.copy()
        (indices,) = np.nonzero(codes == KEPT)
        block = taken(decided.block, indices.tolist())
        src, tgt, codes[indices] = self._encode(block, decided.place.direction)
        links: list[bytes] = []
        if decided.links is not None:
            kept = np.flatnonzero(codes == KEPT).tolist()
            lines = [[line.decode() for line in side] for side in taken(decided.block, kept)]
            links = encode_links(self._vocabularies, lines, decided.links.parsed(kept))
        return EncodedBlock(src, tgt, links, codes)

    def _encode(self, block: Block, direction: int) -> tuple[list[bytes], list[bytes], ReasonCodes]:
        """The same for a block whose pairs were all kept so far."""
        ids = [
            encoder.encode(lines)
            for encoder, lines in zip(
                self._encoders, model_texts(block, self._target_text), strict=True
            )
        ]
        # With EOS; the tag, which every source has, counts for the limit of tokens alone.
        tag = self._tags[direction]
        tagged = len(tag) // self._dtype.itemsize
        lengths = np.array([[len(of_line) for of_line in side] for side in ids], np.int64)
        lengths //= self._dtype.itemsize
        longer, shorter = lengths.max(axis=0), lengths.min(axis=0)
        codes = np.zeros(len(longer), np.uint8)
        if self._config.drop_wrong_language:
            for odds, side, of_side in zip(self._odds[direction], ids, lengths, strict=True):
                foreign = odds.foreign(np.frombuffer(b"".join(side), self._dtype), of_side)
                codes[foreign] = reason_code("wrong language")
        codes[longer > self._config.max_ratio * shorter] = reason_code("length ratio")
        most = self._config.max_tokens
        codes[(lengths[0] + tagged > most) | (lengths[1] > most)] = reason_code("too long")
        codes[shorter == 1] = reason_code("empty")
        kept = np.flatnonzero(codes == KEPT).tolist()
        src_ids, tgt_ids = ([side[index] for index in kept] for side in ids)
        return [tag + ids for ids in src_ids], tgt_ids, codes


def model_texts(block: Block, target_text: Callable[[str], str] | None) -> list[list[str]]:
    """What the model reads and writes for each pair: the text of both sides, or `target_text`."""
    src, tgt = ([line.decode() for line in lines] for lines in block)
    return [src, tgt if target_text is None else list(map(target_text, tgt))]


def taken(block: Block, indices: list[int]) -> Block:
    """The pairs of a block with these indices."""
    src, tgt = block
    if len(indices) == len(src):
        return block
    return [src[index] for index in indices], [tgt[index] for index in indices]


def block_encoders(vocabularies: Vocabularies, dtype: np.dtype[Any]) -> list[CachedEncoder]:
    """The encoders of source and target; for a joint vocabulary one, with one cache."""
    encoders = {
        tokenizer: CachedEncoder(tokenizer, dtype=dtype, max_bytes=_CACHE_BYTES)
        for tokenizer in vocabularies.distinct
    }
    return [encoders[tokenizer] for tokenizer in vocabularies]
