"""Blocks of pairs, and what every process does with one: check it, count its words, encode it."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, compress, filterfalse, pairwise
from typing import Any, NamedTuple

import numpy as np

from mtkit.base.arrays import IntArray
from mtkit.base.words import ENTRY_BYTES, count_words
from mtkit.prepare import filters
from mtkit.prepare.link_files import LinkLines, encode_links
from mtkit.prepare.noise import Noise, NoisyPair
from mtkit.prepare.source import Block
from mtkit.prepare.treebank import Linearisation
from mtkit.prepare_config import PrepareConfig
from mtkit.tokenizer import EOS_ID, Prefixes, Tokenizer, Vocabularies

# The tags that the sources and the targets of some pairs begin with, as they are encoded.
Tags = tuple[bytes, bytes]
# Memory for the cache of encoded words of a process.
_CACHE_BYTES = 32 << 20
# A "word" of more characters is not cached: in text without spaces it is a whole line, which
# does not come again, and would displace the words that do.
MAX_CACHED = 400


@dataclass(frozen=True)
class PairBlock:
    """Some pairs of a training source, in order.

    Attributes:
        direction, source: their numbers, from 0.
        lines: (n,): the number of each pair in its source, from 1.
        codes: (n,): the reason codes so far; before the first stage, all are `filters.KEPT`.
        start: the number of the first pair among those of all training sources, from 0.
    """

    direction: int
    source: int
    lines: IntArray
    pairs: Block
    links: LinkLines | None
    codes: filters.ReasonCodes
    start: int = 0

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def kept(self) -> IntArray:
        """The indices of the pairs that are kept so far."""
        return np.flatnonzero(self.codes == filters.KEPT)

    def select(self, indices: IntArray) -> PairBlock:
        """The pairs with these indices, without links."""
        return replace(
            self,
            lines=self.lines[indices],
            pairs=taken(self.pairs, indices.tolist()),
            links=None,
            codes=self.codes[indices],
        )


# ---------------------------------------------------------------------------------------------
# Check and count


def check_block(cleaners: Sequence[filters.Cleaner], block: PairBlock) -> filters.PairChecks:
    """The filters of the first stage, one for each direction, applied to a block."""
    if block.links is not None:
        block.links.check(block.pairs)
    checks = cleaners[block.direction](block.pairs)
    # The same sentence in another direction is not a repetition.
    src_keys, tgt_keys = (
        filters.salted(keys, block.direction) for keys in (checks.src_keys, checks.tgt_keys)
    )
    return replace(checks, src_keys=src_keys, tgt_keys=tgt_keys)


def count_block(
    linearisation: Linearisation | None, noise: Noise | None, block: PairBlock
) -> list[Counter[str]]:
    """The words of both sides of all pairs, and of both sides of the pairs that noise changes."""
    texts = model_texts(block.pairs, linearisation)
    noisy = noise(texts, source=block.source, lines=block.lines) if noise else []
    texts += [[pair.src for pair in noisy], [pair.tgt for pair in noisy]]
    return list(map(count_words, texts))


# ---------------------------------------------------------------------------------------------
# Encode


class CachedEncoder:
    """Encodes many lines fast, to the same ids as `Tokenizer.encode`.

    The text between two spaces is encoded once and then cached, in a cache of about `max_bytes`.
    An id has the type `dtype`, `<u2` or `<u4`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        dtype: np.dtype[np.unsignedinteger[Any]],
        max_bytes: int = 64 << 20,
    ) -> None:
        if len(tokenizer) - 1 > np.iinfo(dtype).max:
            raise ValueError(f"{len(tokenizer)} pieces do not fit in {dtype}")
        self._tokenizer = tokenizer
        self._dtype = dtype
        self._cuts = tokenizer.cuts_at_spaces
        self._max_bytes = max_bytes
        self._ids_of: dict[str, bytes] = {}
        self._bytes = 0

    def encode(self, lines: Sequence[str]) -> list[bytes]:
        """The ids of each line, followed by EOS, as bytes."""
        eos = np.array(EOS_ID, self._dtype).tobytes()
        if not self._cuts:
            return [ids + eos for ids in self._encode(lines)]
        if self._bytes > self._max_bytes:
            self._ids_of.clear()
            self._bytes = 0
        ids_of = self._ids_of
        rows = [line.split(" ") for line in lines]
        new = list(dict.fromkeys(filterfalse(ids_of.__contains__, chain.from_iterable(rows))))
        for word, ids in zip(new, self._encode(new), strict=True):
            ids_of[word] = ids
            if len(word) <= MAX_CACHED:
                self._bytes += sys.getsizeof(word) + sys.getsizeof(ids) + ENTRY_BYTES
        encoded = [b"".join(map(ids_of.__getitem__, row)) + eos for row in rows]
        for word in new:
            if len(word) > MAX_CACHED:
                del ids_of[word]
        return encoded

    def _encode(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text, as bytes."""
        rows = self._tokenizer.encode_batch(texts)
        flat = np.fromiter(chain.from_iterable(rows), self._dtype).tobytes()
        ends = accumulate((len(row) * self._dtype.itemsize for row in rows), initial=0)
        return [flat[start:end] for start, end in pairwise(ends)]


class EncodedBlock(NamedTuple):
    """The ids of the kept pairs of a block, their links if there are any, and noise by kind.

    `codes` has the reason code of each of its pairs.
    """

    src: list[bytes]
    tgt: list[bytes]
    links: list[bytes]
    codes: filters.ReasonCodes
    noise: dict[str, int]


@dataclass(frozen=True)
class BlockEncoder:
    """Segments the kept pairs of a block into subwords, and applies the subword-level filters.

    Some pairs then get noise, which the filters do not see.

    `prefixes` are the tags that encoded pairs begin with, of each training source.
    """

    vocabularies: Vocabularies
    odds: Sequence[tuple[filters.LanguageOdds, filters.LanguageOdds]]
    config: PrepareConfig
    dtype: np.dtype[Any]
    linearisation: Linearisation | None
    prefixes: Sequence[Tags]
    noise: Noise | None

    @functools.cached_property
    def _encoders(self) -> list[CachedEncoder]:
        # Each process has its own encoders, which are not sent.
        return block_encoders(self.vocabularies, self.dtype)

    def __call__(self, block: PairBlock) -> EncodedBlock:
        """The kept pairs of a block, encoded."""
        codes, chosen = block.codes.copy(), block.kept
        texts = model_texts(taken(block.pairs, chosen.tolist()), self.linearisation)
        ids, codes[chosen] = self._encode(texts, block)
        is_kept = codes[chosen] == filters.KEPT
        src, tgt = (list(compress(side, is_kept)) for side in ids)
        texts = [list(compress(side, is_kept)) for side in texts]
        kept = chosen[is_kept]
        noise: Counter[str] = Counter()
        if self.noise is not None:
            noisy = self.noise(texts, source=block.source, lines=block.lines[kept])
            for pair, src_ids, tgt_ids in self._short_enough(noisy, self.prefixes[block.source]):
                noise[pair.kind] += 1
                texts[0][pair.place], texts[1][pair.place] = pair.src, pair.tgt
                src[pair.place], tgt[pair.place] = src_ids, tgt_ids
        links = self._links(texts, block.links, kept.tolist())
        return EncodedBlock(src, tgt, links, codes, dict(noise))

    def _segmented(self, texts: Sequence[list[str]]) -> list[list[bytes]]:
        """The ids of the lines of both sides, with EOS."""
        return list(map(CachedEncoder.encode, self._encoders, texts))

    def _short_enough(
        self, pairs: Sequence[NoisyPair], prefix: Tags
    ) -> Iterator[tuple[NoisyPair, bytes, bytes]]:
        """The pairs that noise has made neither empty nor too long, with their ids."""
        texts = [pair.src for pair in pairs], [pair.tgt for pair in pairs]
        size = self.dtype.itemsize
        for pair, *ids in zip(pairs, *self._segmented(texts), strict=True):
            src, tgt = map(bytes.__add__, prefix, ids)
            longest = max(len(src), len(tgt)) // size
            # Capitals have more subwords; the pair is kept without them.
            if longest <= self.config.max_tokens and min(map(len, ids)) > size:
                yield pair, src, tgt

    def _links(
        self, texts: list[list[str]], lines: LinkLines | None, indices: list[int]
    ) -> list[bytes]:
        """The links of kept pairs, which had these indices in `lines`."""
        if self.linearisation is not None:
            links = [self.linearisation.links(text) for text in texts[1]]
        elif lines is not None:
            links = lines.parsed(indices)
        else:
            return []
        return encode_links(self.vocabularies, texts, links)

    def _encode(
        self, texts: list[list[str]], block: PairBlock
    ) -> tuple[list[list[bytes]], filters.ReasonCodes]:
        """The ids of both sides, and the reason codes of the filters on subwords."""
        ids = self._segmented(texts)
        # With EOS; tags, which are not text, count for the limit of tokens alone.
        prefix = self.prefixes[block.source]
        lengths = np.array([[len(of_line) for of_line in side] for side in ids], np.int64)
        lengths //= self.dtype.itemsize
        longer, shorter = lengths.max(axis=0), lengths.min(axis=0)
        codes = np.zeros(len(longer), np.uint8)
        if self.config.drop_wrong_language:
            for odds, side, of_side in zip(self.odds[block.direction], ids, lengths, strict=True):
                foreign = odds.foreign(np.frombuffer(b"".join(side), self.dtype), of_side)
                codes[foreign] = filters.reason_code("wrong language")
        codes[longer > self.config.max_ratio * shorter] = filters.reason_code("length ratio")
        most = self.config.max_tokens
        with_tags = lengths + [[len(of_side) // self.dtype.itemsize] for of_side in prefix]
        codes[(with_tags > most).any(axis=0)] = filters.reason_code("too long")
        codes[shorter == 1] = filters.reason_code("empty")
        return tagged(prefix, ids), codes


def decoded(pairs: Block) -> list[list[str]]:
    """The text of both sides."""
    return [[line.decode() for line in lines] for lines in pairs]


def model_texts(pairs: Block, linearisation: Linearisation | None) -> list[list[str]]:
    """What the model reads and writes: the text of both sides, or words and a linearised tree."""
    src, tgt = decoded(pairs)
    if linearisation is None:
        return [src, tgt]
    return [list(map(linearisation.source, src)), list(map(linearisation.text, tgt))]


def as_bytes(prefixes: Prefixes, dtype: np.dtype[Any]) -> Tags:
    """The ids of tags as an encoded sentence has them."""
    src, tgt = (np.array(ids, dtype).tobytes() for ids in prefixes)
    return src, tgt


def tagged(tags: Tags, sides: Iterable[Iterable[bytes]]) -> list[list[bytes]]:
    """The encoded lines of both sides, after their tags."""
    return [[tag + line for line in lines] for tag, lines in zip(tags, sides, strict=True)]


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
