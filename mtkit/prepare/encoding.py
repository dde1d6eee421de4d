"""The third pass over a corpus: the kept pairs of a block as ids, with the filters on subwords."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mtkit.base.arrays import IntArray
from mtkit.prepare.filters import KEPT, LanguageOdds, ReasonCodes, reason_code
from mtkit.prepare.links import LinkLines, encode_links
from mtkit.prepare.noise import Noise
from mtkit.prepare.source import Block
from mtkit.prepare.text_to_ids import CachedEncoder
from mtkit.prepare.treebank import Linearisation
from mtkit.prepare_config import PrepareConfig
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
        noise: number of kept pairs with each kind of noise.
    """

    src: list[bytes]
    tgt: list[bytes]
    links: list[bytes]
    codes: ReasonCodes
    noise: dict[str, int]


class BlockEncoding:
    """Segments the kept pairs of a block into subwords, and applies the subword-level filters.

    Some pairs then get noise, which the filters do not see.

    Args:
        vocabularies: of both sides.
        odds: of the two sides of each direction.
        config: of the filters.
        dtype: of an id.
        linearisation: as in `Sources`.
        prefixes: the tags that encoded sources begin with, of each training source.
        noises: the noise of each direction; empty if there is none.
    """

    def __init__(
        self,
        vocabularies: Vocabularies,
        odds: Sequence[tuple[LanguageOdds, LanguageOdds]],
        config: PrepareConfig,
        dtype: np.dtype[Any],
        linearisation: Linearisation | None,
        prefixes: Sequence[Sequence[int]],
        noises: Sequence[Noise],
    ) -> None:
        self._noises = noises
        self._prefixes = [as_bytes(prefix, dtype) for prefix in prefixes]
        self._linearisation = linearisation
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
        (chosen,) = np.nonzero(codes == KEPT)
        texts = model_texts(taken(decided.block, chosen.tolist()), self._linearisation)
        ids, codes[chosen] = self._encode(texts, decided.place)
        is_kept = codes[chosen] == KEPT
        src, tgt = (list(itertools.compress(side, is_kept)) for side in ids)
        texts = [list(itertools.compress(side, is_kept)) for side in texts]
        kept = chosen[is_kept]
        noise = self._add_noise(decided.place, kept, texts, (src, tgt)) if self._noises else {}
        links = self._links(texts, decided.links, kept.tolist())
        return EncodedBlock(src, tgt, links, codes, noise)

    def _add_noise(
        self, place: Place, kept: IntArray, texts: list[list[str]], ids: tuple[list[bytes], ...]
    ) -> dict[str, int]:
        """Replace the texts and ids of some kept pairs, which had the indices `kept`."""
        noise = self._noises[place.direction]
        found = noise(texts, source=place.source, lines=place.first + kept)
        encoded = [
            encoder.encode(lines)
            for encoder, lines in zip(self._encoders, found.texts, strict=True)
        ]
        size = self._dtype.itemsize
        prefix = self._prefixes[place.source]
        counts: Counter[str] = Counter()
        for number, (index, kind) in enumerate(zip(found.places, found.kinds, strict=True)):
            src, tgt = encoded[0][number], encoded[1][number]
            most = self._config.max_tokens * size
            if max(len(prefix + src), len(tgt)) > most or min(len(src), len(tgt)) == size:
                # Capitals have more subwords; the pair is kept without them.
                continue
            counts[kind] += 1
            ids[0][index], ids[1][index] = prefix + src, tgt
            for side in (0, 1):
                texts[side][index] = found.texts[side][number]
        return dict(counts)

    def _links(
        self, texts: list[list[str]], lines: LinkLines | None, indices: list[int]
    ) -> list[bytes]:
        """The links of kept pairs, which had these indices in `lines`."""
        if self._linearisation is not None:
            links = [self._linearisation.links(text) for text in texts[1]]
        elif lines is not None:
            links = lines.parsed(indices)
        else:
            return []
        return encode_links(self._vocabularies, texts, links)

    def _encode(
        self, texts: list[list[str]], place: Place
    ) -> tuple[list[list[bytes]], ReasonCodes]:
        """The ids of both sides, and the reason codes of the filters on subwords."""
        ids = [encoder.encode(lines) for encoder, lines in zip(self._encoders, texts, strict=True)]
        # With EOS; tags, which are not text, count for the limit of tokens alone.
        prefix = self._prefixes[place.source]
        lengths = np.array([[len(of_line) for of_line in side] for side in ids], np.int64)
        lengths //= self._dtype.itemsize
        longer, shorter = lengths.max(axis=0), lengths.min(axis=0)
        codes = np.zeros(len(longer), np.uint8)
        if self._config.drop_wrong_language:
            for odds, side, of_side in zip(self._odds[place.direction], ids, lengths, strict=True):
                foreign = odds.foreign(np.frombuffer(b"".join(side), self._dtype), of_side)
                codes[foreign] = reason_code("wrong language")
        codes[longer > self._config.max_ratio * shorter] = reason_code("length ratio")
        most = self._config.max_tokens
        tags = len(prefix) // self._dtype.itemsize
        codes[(lengths[0] + tags > most) | (lengths[1] > most)] = reason_code("too long")
        codes[shorter == 1] = reason_code("empty")
        return [[prefix + of_line for of_line in ids[0]], ids[1]], codes


def model_texts(block: Block, linearisation: Linearisation | None) -> list[list[str]]:
    """What the model reads and writes: the text of both sides, or words and a linearised tree."""
    src, tgt = ([line.decode() for line in lines] for lines in block)
    if linearisation is None:
        return [src, tgt]
    return [list(map(linearisation.source, src)), list(map(linearisation.text, tgt))]


def as_bytes(ids: Sequence[int], dtype: np.dtype[Any]) -> bytes:
    """Ids as an encoded sentence has them."""
    return np.array(ids, dtype).tobytes()


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
