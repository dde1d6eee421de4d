"""Subwords: learning them from counted words and applying them, on SentencePiece.

This module owns the special ids and the normal form of text. Raw text goes in and detokenised text
comes out; nobody else tokenises.

**Normal form.** SentencePiece's `nmt_nfkc`: from left to right, what its table of Unicode NFKC has
is replaced; most control characters go; white space, most characters without width and U+FFFD
become spaces; every run of spaces is one, and none stands at the ends. Symbols of the vocabulary
are left as they are. ``decode(encode(text))`` is the normal form of any text: a character without
a piece of its own is spelled in bytes. Texts in normal form stay as they are; but in rare cases
the normal form has another one itself, as when a ligature had an accent behind it.
"""

from __future__ import annotations

import io
import re
import sys
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import sentencepiece as spm

from mtkit.errors import MtkitError

PAD_ID, BOS_ID, EOS_ID, UNK_ID = range(4)

_SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")

FIXED_PIECES = len(_SPECIAL) + 256

_TO_SPACE = str.maketrans("\t\n\r", "   ")

SENTENCEPIECE_VERSION: str = spm.__version__

ModelType = Literal["bpe", "unigram"]

IntArray = npt.NDArray[np.integer[Any]]

# Lines that are counted or encoded at a time, so that what is known of them stays in the caches
# of a processor.
_BLOCK = 8192
# What an entry of a dictionary takes beside its word: a slot of a table that may be half empty
# and is copied when it grows, and what the allocator rounds up.
_ENTRY_BYTES = 80
# Bytes of a word, and so letters too, beyond which SentencePiece does not learn from it.
_LONGEST_LEARNT = 1 << 16
# Bytes of a word beyond which it is hardly met a second time.
_LONGEST_REMEMBERED = 400
# Places at which a remembered word may stand.
_PLACES = 4
# What a remembered word takes beside its ids.
_PLACE_BYTES = 40
# Of eight bytes the first n.
_FIRST = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
# Odd numbers whose binary digits have no pattern.
_MIXERS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93], np.uint64)


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
    counts: dict[str, int] = {}
    rest = iter(lines)
    while block := list(islice(rest, _BLOCK)):
        # A tab is the same to SentencePiece, and would end the word in a table.
        words = _Words(" ".join(block).replace("\t", " "), longest=_LONGEST_LEARNT)
        occurrences = np.bincount(words.alike(words.short)[words.short])
        found = np.flatnonzero(occurrences)
        for word, count in zip(words.texts(found), occurrences[found].tolist(), strict=True):
            counts[word] = counts.get(word, 0) + count
    counts.pop("", None)
    return Counter(counts)


class _Words:
    """What stands between the spaces of a text, in arrays with an element for each word.

    Words are told apart by their length and two numbers, `heads` and `tails`. Up to 16 bytes
    these are the bytes of the word; of longer ones they are checksums of 128 bits together, which
    no two words of a corpus share.

    Args:
        text: the words.
        longest: bytes of a word beyond which it is not `short` and has no such numbers.
    """

    def __init__(self, text: str, *, longest: int) -> None:
        encoded = text.encode()
        # Padded, because eight bytes are read at a time.
        self._text = encoded + bytes(16)
        spaces = np.flatnonzero(np.frombuffer(encoded, np.uint8) == ord(" "))
        self._ends = np.append(spaces, len(encoded))
        self._starts = starts = np.append(0, spaces + 1)
        self.lengths = lengths = self._ends - starts
        self.short = np.flatnonzero(lengths <= longest)
        eight = np.ndarray(len(encoded) + 9, "<u8", self._text, strides=(1,))
        self.heads = eight[starts] & _FIRST[np.minimum(lengths, 8)]
        self.tails = eight[starts + 8] & _FIRST[np.clip(lengths - 8, 0, 8)]
        rest = np.flatnonzero((lengths > 16) & (lengths <= longest))
        offset = 16
        while len(rest):
            more = eight[starts[rest] + offset] & _FIRST[np.minimum(lengths[rest] - offset, 8)]
            self.heads[rest] = mixed(self.heads[rest] ^ more, 0)
            self.tails[rest] = mixed(self.tails[rest] + more, 1)
            offset += 8
            rest = rest[lengths[rest] > offset]
        self.hashes = mixed(mixed(self.heads, 1) ^ (self.tails + lengths.astype(np.uint64)), 2)

    def __len__(self) -> int:
        return len(self._starts)

    def texts(self, indices: IntArray) -> list[str]:
        """The words themselves."""
        text = self._text
        sides = (self._starts[indices].tolist(), self._ends[indices].tolist())
        return [text[start:end].decode() for start, end in zip(*sides, strict=True)]

    def alike(self, indices: IntArray) -> IntArray:
        """At each of the indices, the last of them that is of the same word."""
        last = np.zeros(len(self), np.int64)
        bits = max(4, len(indices).bit_length())
        places = np.empty(1 << bits, np.int64)
        hashes = self.hashes[indices]
        while len(indices):
            # Every word writes itself at the place of its hash, and what then stands there is the
            # last of the words that wrote there. Those of another word try another place.
            at = (hashes >> np.uint64(64 - bits)).view(np.int64)
            places[at] = indices
            other = places.take(at)
            same = (
                (self.heads.take(other) == self.heads.take(indices))
                & (self.tails.take(other) == self.tails.take(indices))
                & (self.lengths.take(other) == self.lengths.take(indices))
            )
            last[indices[same]] = other[same]
            indices, hashes = indices[~same], mixed(hashes[~same], 2)
        return last


def mixed(numbers: npt.NDArray[np.uint64], mixer: int) -> npt.NDArray[np.uint64]:
    """Each number as another that seems to have nothing to do with it, but always the same.

    Args:
        numbers: any.
        mixer: 0, 1 or 2, for three ways to mix.
    """
    product: npt.NDArray[np.uint64] = numbers * _MIXERS[mixer]
    return product ^ (product >> np.uint64(32))


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
            symbols: texts that are one piece wherever they occur, even where the normal form
                would change them. Of several that begin at one place it is the longest.

        Returns:
            The same for the same words and counts, whatever their order.

        Raises:
            MtkitError: if a symbol cannot be one; if there is no text, or too little for that
                many pieces, when the message says how many it supports.
        """
        model = io.BytesIO()
        _check_symbols(symbols)
        fixed = FIXED_PIECES + len(symbols)
        if vocab_size <= fixed:
            raise MtkitError(
                f"a vocabulary of {vocab_size} has no room beside its {fixed} fixed pieces "
                f"(special and byte pieces{' and symbols' if symbols else ''})"
            )
        if model_type == "unigram":
            # BPE goes by the counts and does so itself; this sums probabilities as they come.
            counts = sorted(counts)
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
                pad_piece=_SPECIAL[PAD_ID],
                bos_piece=_SPECIAL[BOS_ID],
                eos_piece=_SPECIAL[EOS_ID],
                unk_piece=_SPECIAL[UNK_ID],
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
    def fixed_pieces(self) -> int:
        """Number of pieces before those that were learnt: special ones, symbols and bytes."""
        return int(self._pieces.piece_to_id("<0xFF>")) + 1

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
        dtype: np.dtype[np.unsignedinteger[Any]],
        max_bytes: int = 64 << 20,
    ) -> None:
        if len(tokenizer) - 1 > np.iinfo(dtype).max:
            raise ValueError(f"{len(tokenizer)} pieces do not fit in {dtype}")
        self._tokenizer = tokenizer
        self._dtype = dtype
        self._cuts = tokenizer.cuts_at_spaces
        # Half of the room for where the ids of a word are, and half for the ids.
        self._bits = max(4, (max_bytes // 2 // _PLACE_BYTES).bit_length() - 1)
        self._most_ids = max_bytes // 2 // dtype.itemsize
        self._forget()

    def encode(self, lines: Sequence[str]) -> list[bytes]:
        """The ids of each line with EOS behind them, as bytes."""
        if not self._cuts:
            rows = self._tokenizer.encode_batch(lines)
            return [np.array([*ids, EOS_ID], self._dtype).tobytes() for ids in rows]
        encoded = []
        for start in range(0, len(lines), _BLOCK):
            encoded += self._encode(lines[start : start + _BLOCK])
        return encoded

    def _encode(self, lines: Sequence[str]) -> list[bytes]:
        if self._used > self._most_ids or self._known > len(self._table) * 3 // 4:
            self._forget()
        words = _Words(" ".join(lines), longest=_LONGEST_REMEMBERED)
        # Where the ids of each word begin and how many they are.
        begins, sizes = np.zeros((2, len(words)), np.int64)
        new = self._recall(words, begins, sizes)
        if len(new):
            alike = words.alike(new)
            once = np.flatnonzero(np.bincount(alike[new]))
            begins[once], sizes[once] = self._add(words.texts(once))
            self._remember(words, once, begins, sizes)
            begins[new], sizes[new] = begins[alike[new]], sizes[alike[new]]
        if len(words.short) < len(words):
            long = np.setdiff1d(np.arange(len(words)), words.short)
            begins[long], sizes[long] = self._add(words.texts(long))
        last = np.cumsum([line.count(" ") + 1 for line in lines]) - 1
        sizes[last] += 1  # For EOS.
        ends = np.cumsum(sizes)
        positions = np.repeat(begins - (ends - sizes), sizes) + np.arange(ends[-1])
        ids = self._ids.take(positions)
        ids[ends[last] - 1] = EOS_ID
        flat = ids.tobytes()
        line_ends = (ends[last] * self._dtype.itemsize).tolist()
        return [flat[start:end] for start, end in pairwise([0, *line_ends])]

    def _forget(self) -> None:
        # A row is head, tail, length and one, 0 in an empty one; where the ids begin, how many.
        # In one array, because a row that is read costs a wait for memory.
        self._table = np.zeros((1 << self._bits, 5), np.uint64)
        self._known = 0
        self._ids = np.zeros(1 << 16, self._dtype)
        self._used = 0

    def _places(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        return (hashes >> np.uint64(64 - self._bits)).view(np.int64)

    def _recall(self, words: _Words, begins: IntArray, sizes: IntArray) -> IntArray:
        """Fill in what is remembered of the words; gives the short ones that are not."""
        rest, hashes = words.short, words.hashes[words.short]
        for _ in range(_PLACES):
            # Much faster than by brackets.
            rows = self._table.take(self._places(hashes), axis=0)
            same = (
                (rows[:, 0] == words.heads.take(rest))
                & (rows[:, 1] == words.tails.take(rest))
                & (rows[:, 2] == words.lengths.take(rest) + 1)
            )
            found, at = rest[same], np.flatnonzero(same)
            begins[found], sizes[found] = rows[:, 3].take(at), rows[:, 4].take(at)
            rest, hashes = rest[~same], mixed(hashes[~same], 2)
        return rest

    def _remember(
        self, words: _Words, indices: IntArray, begins: IntArray, sizes: IntArray
    ) -> None:
        """Remember new words, each but once in `indices`, as far as there are places for them."""
        columns = (words.heads, words.tails, words.lengths + 1, begins, sizes)
        rows = np.stack([column[indices].astype(np.uint64) for column in columns], axis=1)
        hashes = words.hashes[indices]
        for _ in range(_PLACES):
            at = self._places(hashes)
            free = self._table[at, 2] == 0
            # Of several words at one free place the last stays; the others are new once more.
            self._table[at[free]] = rows[free]
            self._known += int(free.sum())
            rows, hashes = rows[~free], mixed(hashes[~free], 2)

    def _add(self, words: list[str]) -> tuple[IntArray, IntArray]:
        """Encode words; gives where the ids of each begin and how many they are."""
        rows = self._tokenizer.encode_batch(words)
        sizes = np.array([len(row) for row in rows], np.int64)
        begin, self._used = self._used, self._used + int(sizes.sum())
        if self._used >= len(self._ids):  # There is always one behind the last.
            self._ids = np.append(self._ids, np.zeros(self._used, self._dtype))
        self._ids[begin : self._used] = list(chain.from_iterable(rows))
        return begin + np.cumsum(sizes) - sizes, sizes


def _check_symbols(symbols: Sequence[str]) -> None:
    for number, symbol in enumerate(symbols):
        if not symbol:
            raise MtkitError("a symbol is empty; leave it out")
        if " " in symbol or "▁" in symbol or not symbol.isprintable():
            raise MtkitError(
                f"the symbol {symbol!r} has white space or a character that cannot be printed"
            )
        if symbol in symbols[:number]:
            raise MtkitError(f"the symbol {symbol!r} is given twice")
        if symbol in _SPECIAL or re.fullmatch("<0x[0-9A-F]{2}>", symbol):
            raise MtkitError(f"the symbol {symbol!r} has the name of a fixed piece; choose another")
        if _joins(symbol[0]):
            raise MtkitError(
                f"the symbol {symbol!r} begins with a character that may become one with the "
                "character before it; choose another"
            )


def _joins(character: str) -> bool:
    """Whether the normal form may make one of a character and this one behind it."""
    name = unicodedata.name(character, "")
    return unicodedata.category(character).startswith("M") or (
        # Letters of Korean syllables and the marks of half-width kana.
        name.startswith(("HANGUL", "HALFWIDTH")) and "SYLLABLE" not in name
    )


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
