"""Subwords: learning them from counted words and applying them, on SentencePiece.

This module owns the special ids and the normal form of text. Raw text goes in and detokenised text
comes out; nobody else tokenises.

**Normal form.** SentencePiece's `nmt_nfkc`: Unicode NFKC, most control characters removed, every
run of white space one plain space, none at the ends. For text in normal form,
``decode(encode(text)) == text``: a character without a piece of its own is spelled in bytes.
"""

from __future__ import annotations

import io
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import sentencepiece as spm

from mtkit.errors import MtkitError

PAD_ID, BOS_ID, EOS_ID, UNK_ID = range(4)

FIXED_PIECES = 4 + 256

_TO_SPACE = str.maketrans("\t\n\r", "   ")

SENTENCEPIECE_VERSION: str = spm.__version__

ModelType = Literal["bpe", "unigram"]

# Lines that are counted at a time.
_BLOCK = 10_000
# What an entry of a dictionary takes beside its word: a slot of a table that may be half empty
# and is copied when it grows, and what the allocator rounds up.
_ENTRY_BYTES = 80
# Bytes of a word, and so letters too, beyond which SentencePiece does not learn from it.
_LONGEST_LEARNT = 1 << 16
# A longer run without spaces is hardly met a second time.
_LONGEST_CACHED = 200


class WordCounts:
    """The words of a corpus and how often each occurs, in bounded memory.

    When the words would take more than `max_bytes`, some are left out: of the words seen once
    only every second stays, then every fourth and so on, chosen by a checksum of the word. Where
    words seen twice or three times take more room than those, they are thinned in the same way,
    and so on for each doubling of the count. Those that stay count for those that are gone. So
    frequent words keep their counts, and rare ones are an even sample of the whole corpus with
    the weight of all of them, also where nearly every word is a sentence because the language is
    written without spaces. The result is a pure function of the blocks that are added and of
    their order.

    Args:
        max_bytes: room for words and counts.
    """

    def __init__(self, *, max_bytes: int = 128 << 20) -> None:
        self.max_bytes = max_bytes
        self._counts: dict[str, int] = {}
        self._bytes = 0
        # Of the words whose count has n binary digits, one in 2 ** levels[n] stays.
        self._levels = [0] * 65

    @property
    def sampled(self) -> bool:
        """Whether words were left out for want of room."""
        return any(self._levels)

    def add(self, words: Mapping[str, int]) -> None:
        """Add the counts of a block of the corpus, as `count_words` gives them."""
        counts, size, room = self._counts, self._bytes, self.max_bytes
        for word, count in words.items():
            if word in counts:
                counts[word] += count
            elif len(word) <= _LONGEST_LEARNT:
                counts[word] = count
                size += _room(word)
                if size > room:
                    size = self._thin()
                    counts = self._counts
        self._bytes = size

    def items(self) -> Iterator[tuple[str, int]]:
        """The words, each with its count and that of the words it stands for."""
        for word, count in self._counts.items():
            level = self._levels[count.bit_length()]
            if _stays(word, level):
                yield word, count << level

    def _thin(self) -> int:
        """Leave words out until an eighth of the room is free; gives the bytes still in use."""
        while True:
            self._counts = {
                word: count
                for word, count in self._counts.items()
                if _stays(word, self._levels[count.bit_length()])
            }
            sizes = [0] * len(self._levels)
            for word, count in self._counts.items():
                sizes[count.bit_length()] += _room(word)
            if sum(sizes) <= self.max_bytes - self.max_bytes // 8:
                return sum(sizes)
            self._levels[sizes.index(max(sizes))] += 1


def _stays(word: str, level: int) -> bool:
    """Whether a word is among the one in ``2 ** level`` that are kept."""
    # Of words that differ in one letter, too, the leading bits of a CRC-32 choose evenly.
    return not level or zlib.crc32(word.encode("utf-8", "surrogatepass")) << level < 1 << 32


def _room(word: str) -> int:
    return sys.getsizeof(word) + _ENTRY_BYTES


def count_words(lines: Iterable[str]) -> Counter[str]:
    """How often each word occurs, a word being what stands between two spaces.

    SentencePiece learns the same from them as from the lines, because no piece reaches over a
    space.
    """
    # A tab is the same to SentencePiece, and would end the word in a table.
    words = Counter(" ".join(lines).replace("\t", " ").split(" "))
    del words[""]
    return words


class Tokenizer:
    """A joint BPE of source and target language (Section 5.1), or a unigram model.

    Attributes:
        pad_id, bos_id, eos_id, unk_id: the special ids; `encode` gives none of them.
        model: the SentencePiece model, as `save` writes it.
    """

    pad_id = PAD_ID
    bos_id = BOS_ID
    eos_id = EOS_ID
    unk_id = UNK_ID

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._pieces = spm.SentencePieceProcessor(model_proto=model)

    def __len__(self) -> int:
        """V: number of pieces, special and byte pieces included."""
        return int(self._pieces.get_piece_size())

    @classmethod
    def learn(
        cls,
        lines: Iterable[str],
        vocab_size: int,
        *,
        model_type: ModelType = "bpe",
        symbols: Sequence[str] = (),
    ) -> Tokenizer:
        """Learn `vocab_size` pieces from lines of text.

        Args:
            lines: sentences of both languages, read once.
            vocab_size, model_type, symbols: as `learn_from_counts` takes them.

        Raises:
            MtkitError: as `learn_from_counts` does.
        """
        counts = WordCounts()
        rest = iter(lines)
        while block := list(islice(rest, _BLOCK)):
            counts.add(count_words(block))
        return cls.learn_from_counts(
            counts.items(), vocab_size, model_type=model_type, symbols=symbols
        )

    @classmethod
    def learn_from_counts(
        cls,
        counts: Iterable[tuple[str, int]],
        vocab_size: int,
        *,
        model_type: ModelType = "bpe",
        symbols: Sequence[str] = (),
    ) -> Tokenizer:
        """Learn `vocab_size` pieces from words and how often each occurs.

        Args:
            counts: words of both languages without spaces, each once, as `WordCounts` has them.
            vocab_size: V, the 4 special and 256 byte pieces included.
            model_type: `bpe`, or the unigram language model of Kudo (2018).
            symbols: texts that are one piece wherever they occur.

        Raises:
            MtkitError: if there is no text, or too little for that many pieces; the message
                says how many it supports.
        """
        model = io.BytesIO()
        if vocab_size <= FIXED_PIECES:
            raise MtkitError(
                f"a vocabulary of {vocab_size} has no room beside its {FIXED_PIECES} fixed pieces "
                "(special and byte pieces)"
            )
        try:
            spm.SentencePieceTrainer.train(
                sentence_iterator=(f"{word}\t{count}" for word, count in counts),
                input_format="tsv",
                model_writer=model,
                model_type=model_type,
                vocab_size=vocab_size,
                user_defined_symbols=list(symbols),
                character_coverage=1.0 - 1e-6,
                byte_fallback=True,
                normalization_rule_name="nmt_nfkc",
                max_sentence_length=_LONGEST_LEARNT,
                pad_id=PAD_ID,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                unk_id=UNK_ID,
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise _explain(error, vocab_size) from error
        return cls(model.getvalue())

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """The tokenizer saved at `path`."""
        try:
            model = path.read_bytes()
        except OSError as error:
            raise MtkitError(f"{path}: {error.strerror}; the tokenizer cannot be read") from error
        try:
            return cls(model)
        except RuntimeError as error:
            raise MtkitError(f"{path}: not a SentencePiece model, or a damaged one") from error

    def save(self, path: Path) -> None:
        """Write the SentencePiece model."""
        path.write_bytes(self.model)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without BOS and EOS."""
        ids: list[int] = self._pieces.encode(text)
        return ids

    def encode_batch(self, lines: Sequence[str], *, threads: int = 1) -> list[list[int]]:
        """Ids of each line, as `encode` gives them."""
        ids: list[list[int]] = self._pieces.encode(list(lines), num_threads=threads)
        return ids

    @property
    def cuts_at_spaces(self) -> bool:
        """Whether the ids of a text are those of the parts between its spaces, one after another.

        So it is with BPE, whose merges know no neighbours. A unigram model adds up the
        probabilities of a line, and where two segmentations are equally good, the roundings of
        all that stands before decide between them.
        """
        return _is_bpe(self.model) and not any(
            "▁" in self.piece(i)[1:] for i in range(FIXED_PIECES, len(self))
        )

    def piece(self, piece_id: int) -> str:
        """The subword of an id as the model has it, `▁` for a space before it."""
        piece: str = self._pieces.id_to_piece(piece_id)
        return piece

    def decode(self, ids: Sequence[int]) -> str:
        """Detokenised text on one line; special ids are skipped."""
        text: str = self._pieces.decode([i for i in ids if i > UNK_ID])
        # Byte pieces can spell any character; a translation stays in its line and column.
        return text.translate(_TO_SPACE)


class BlockEncoder:
    """Encodes many lines fast, to the ids that `Tokenizer.encode` gives.

    What stands between two spaces is encoded once and then remembered.

    Args:
        tokenizer: whose ids.
        dtype: of an id, `<u2` or `<u4`.
        max_bytes: room for what is remembered.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        dtype: np.dtype[np.unsignedinteger],
        max_bytes: int = 64 << 20,
    ) -> None:
        if len(tokenizer) - 1 > np.iinfo(dtype).max:
            raise ValueError(f"{len(tokenizer)} pieces do not fit in {dtype}")
        self._tokenizer = tokenizer
        self._dtype = dtype
        self._max_bytes = max_bytes
        self._eos = self._bytes([EOS_ID])
        self._cuts = tokenizer.cuts_at_spaces
        self._known: dict[str, bytes] = {}
        self._used = 0

    def encode(self, lines: Sequence[str]) -> list[bytes]:
        """The ids of each line with EOS behind them, as bytes."""
        eos = self._eos
        if not self._cuts:
            return [self._bytes(ids) + eos for ids in self._tokenizer.encode_batch(lines)]
        if self._used > self._max_bytes:
            self._known, self._used = {}, 0
        known = self._known
        encoded = [b""] * len(lines)
        late = []
        for number, line in enumerate(lines):
            words = line.split(" ")
            try:
                encoded[number] = b"".join([*map(known.__getitem__, words), eos])
            except KeyError:
                late.append((number, words))
        new = list(set[str]().union(*(words for _, words in late)) - known.keys())
        for word, ids in zip(new, self._tokenizer.encode_batch(new), strict=True):
            known[word] = self._bytes(ids)
        for number, words in late:
            encoded[number] = b"".join([*map(known.__getitem__, words), eos])
        for word in new:
            if len(word) > _LONGEST_CACHED:
                del known[word]
            else:
                self._used += _room(word) + sys.getsizeof(known[word])
        return encoded

    def _bytes(self, ids: Sequence[int]) -> bytes:
        return np.array(ids, self._dtype).tobytes()


def _is_bpe(model: bytes) -> bool:
    """Whether a model says that it is BPE: field 3 of the trainer's settings, field 2 of it."""
    settings = [value for field, value in _fields(model) if field == 2]
    return any(
        field == 3 and value == 2
        for part in settings
        if isinstance(part, bytes)
        for field, value in _fields(part)
    )


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of the fields of a message of Protocol Buffers."""
    position = 0

    def number() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while position < len(message):
        tag = number()
        if tag & 7 == 0:
            yield tag >> 3, number()
            continue
        size = {1: 8, 5: 4}.get(tag & 7) or number()
        yield tag >> 3, message[position : position + size]
        position += size


def _explain(error: RuntimeError, vocab_size: int) -> MtkitError:
    message = str(error)
    if limit := re.search(r"value <= (\d+)", message):
        return MtkitError(
            f"a vocabulary of {vocab_size} is more than this text supports; "
            f"the largest possible is {limit[1]} (--vocab-size {limit[1]})"
        )
    if limit := re.search(r"smaller than required_chars\. (\d+) vs (\d+)", message):
        return MtkitError(
            f"a vocabulary of {vocab_size} is smaller than the characters of this text need; "
            f"the least possible is {limit[2]} (--vocab-size {limit[2]})"
        )
    if "empty" in message.lower() or "all_chars_count" in message:
        return MtkitError("no text to learn subwords from")
    return MtkitError(f"the subwords could not be learned: {' '.join(message.split())}")
