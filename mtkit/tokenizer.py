"""Subword tokenizers: learning a vocabulary and applying it, with SentencePiece.

This module defines the special ids, the normalisation of text, and the files of vocabularies. It
takes raw text and returns detokenised text; no other module tokenises.

**Normal form.** Invisible characters that mean nothing are removed (`base.invisible`), except those
of symbols of the vocabulary. Then follows SentencePiece's `nmt_nfkc`: characters
are replaced from left to right by its table of Unicode NFKC; most control characters are removed;
white space, U+200B and U+200C where they were left, and U+FFFD become spaces; runs of spaces become
one, and spaces at the ends are removed. Symbols of the vocabulary are not changed.
``decode(encode(text))`` is the normal form of any text: a character that is not in the vocabulary
is encoded as bytes. (The vocabulary of an imported model may have no bytes and another normal form;
a character that it does not have is then encoded as the unknown token, and lost.) Normalised text
is usually not changed again; a rare exception is a ligature that was followed by an accent.
"""

from __future__ import annotations

import io
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import sentencepiece as spm

from mtkit.base.errors import MtkitError, reason_of
from mtkit.base.invisible import bounds_in, visible
from mtkit.base.sentencepiece_model import Piece, is_bpe, pieces_in, with_pieces
from mtkit.base.words import MAX_WORD_BYTES, count_words

PAD_ID, BOS_ID, EOS_ID, UNK_ID = range(4)
SPECIAL_IDS = {"unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID, "pad": PAD_ID}

_SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")

FIXED_PIECES = len(_SPECIAL) + 256
# SentencePiece allocates memory for all subwords at once.
LARGEST_VOCABULARY = 1 << 22

_LANGUAGE_TAG = re.compile(">>(.+)<<")
_TAG_OF_BOTH_SIDES = re.compile("<lang:(.+)>")
_CORPUS_TAG = re.compile("<tag:(.+)>")
_SPACES = re.compile(" {2,}")
# In SentencePiece's refusals of a vocabulary that is too large or too small.
_LIMIT = re.compile(r"value <= (\d+)")
_MIN_SIZE = re.compile(r"smaller than required_chars\. \d+ vs (\d+)")
_TO_SPACE = str.maketrans("\t\n\r", "   ")

SENTENCEPIECE_VERSION: str = spm.__version__

ModelType = Literal["bpe", "unigram"]
# Of a multilingual model: a source begins with the tag of the target language, or each side begins
# with the tag of its own language. The spelling of its tags says which.
TagScheme = Literal["source", "both"]


def language_tag(code: str, scheme: TagScheme) -> str:
    """The subword that is the tag of a language."""
    return f">>{code}<<" if scheme == "source" else f"<lang:{code}>"


class Tokenizer:
    """A joint BPE of source and target language (Section 5.1), or a unigram model.

    `encode` returns no special ids, except `unk_id` if the vocabulary has no bytes. `model` is the
    SentencePiece model, as written by `save`.
    """

    pad_id = PAD_ID
    bos_id = BOS_ID
    eos_id = EOS_ID
    unk_id = UNK_ID

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._pieces = spm.SentencePieceProcessor(model_proto=model)

    def __len__(self) -> int:
        """V: number of subwords, including special and byte subwords."""
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
        """Learn `vocab_size` subwords from sentences of both languages, as `learn_from_counts`."""
        counts = count_words(lines).items()
        return cls.learn_from_counts(counts, vocab_size, model_type=model_type, symbols=symbols)

    @classmethod
    def learn_from_counts(
        cls,
        counts: Iterable[tuple[str, int]],
        vocab_size: int | None,
        *,
        model_type: ModelType = "bpe",
        symbols: Sequence[str] = (),
        languages: Sequence[str] = (),
        corpus_tags: Sequence[str] = (),
        scheme: TagScheme = "source",
    ) -> Tokenizer:
        """Learn `vocab_size` subwords from words and their counts.

        Args:
            counts: words of both languages without spaces, each once, as from `WordCounts`.
            vocab_size: V, including the 4 special and 256 byte subwords; None, for BPE of a text
                with few different words, makes each of them one subword.
            symbols: strings that are always one subword, even if the normalisation would change
                them. Of several that match at one position, the longest is used.
            languages, corpus_tags: the keys of `language_tags` and `corpus_tags`.
            scheme: of the tags of languages.

        Returns:
            The tokenizer; it does not depend on the order of the words.

        Raises:
            MtkitError: if a symbol is not possible, if there is no text, or too little for this
                vocabulary size; the message then gives a usual size.
        """
        if vocab_size is None:
            return cls._learn_whole_words(list(counts), symbols)
        tags = [language_tag(language, scheme) for language in languages]
        tags += [f"<tag:{name}>" for name in corpus_tags]
        model = io.BytesIO()
        _check_symbols(symbols, tags)
        if not len(_SPECIAL) <= vocab_size <= LARGEST_VOCABULARY:
            raise MtkitError(
                f"a vocabulary of {vocab_size} cannot be learned; give a size from "
                f"{len(_SPECIAL)} to {LARGEST_VOCABULARY}"
            )
        if model_type == "unigram":
            # BPE does this itself; the unigram model sums probabilities in the given order.
            counts = sorted(counts)
        try:
            spm.SentencePieceTrainer.train(
                sentence_iterator=(f"{word}\t{count}" for word, count in counts),
                input_format="tsv",
                model_writer=model,
                model_type=model_type,
                vocab_size=vocab_size,
                user_defined_symbols=list(symbols),
                control_symbols=tags,
                character_coverage=1.0 - 1e-6,
                byte_fallback=True,
                normalization_rule_name="nmt_nfkc",
                max_sentence_length=MAX_WORD_BYTES,
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
            return cls(model.getvalue())
        except RuntimeError as error:
            raise _explain(error, vocab_size) from error

    @classmethod
    def _learn_whole_words(
        cls, counts: Sequence[tuple[str, int]], symbols: Sequence[str]
    ) -> Tokenizer:
        """The BPE in which every merge has been made, so that each word is one subword."""
        # A merge adds a subword and joins two parts of a word, so there are fewer than letters.
        letters = sum(len(word) + 1 for word, _ in counts)
        most = min(LARGEST_VOCABULARY, FIXED_PIECES + len(symbols) + letters + 1)
        try:
            return cls.learn_from_counts(counts, most, symbols=symbols)
        except MtkitError as error:
            # The exact number is known only to SentencePiece, which tells it.
            limit = _LIMIT.search(str(error.__cause__))
            if limit is None:
                raise
            return cls.learn_from_counts(counts, int(limit[1]), symbols=symbols)

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
        text = self._visible(text)
        ids: list[int] = self._pieces.encode(text)
        return self._with_listed(ids, text)

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each line, as from `encode`."""
        lines = list(map(self._visible, lines))
        ids: list[list[int]] = self._pieces.encode(lines, num_threads=1)
        if self.has_bytes:
            # Nothing is unknown.
            return ids
        return [self._with_listed(some, line) for some, line in zip(ids, lines, strict=True)]

    def encode_with_spans(self, lines: Sequence[str]) -> list[SpannedIds]:
        """Ids of each line, as from `encode`, and where each comes from in the line."""
        texts = list(map(self._visible, lines))
        encodings = self._pieces.encode(texts, return_type="offset_mapping")
        encoded = []
        for line, text, some in zip(lines, texts, encodings, strict=True):
            spans = some["offsets"]
            if text != line:
                bounds = bounds_in(line, text)
                spans = [(bounds[start], bounds[end]) for start, end in spans]
            encoded.append(SpannedIds(self._with_listed(some["ids"], text), spans))
        return encoded

    def _visible(self, text: str) -> str:
        """A text without invisible characters, except those of symbols."""
        shown = visible(text)
        if shown == text or not self._invisible_symbols:
            return shown
        parts = re.split(f"({self._invisible_symbols})", text)
        return "".join(part if i % 2 else visible(part) for i, part in enumerate(parts))

    @cached_property
    def _invisible_symbols(self) -> str:
        """A pattern of the symbols that have invisible characters, the longest first."""
        symbols = [symbol for symbol in self.symbols if visible(symbol) != symbol]
        return "|".join(map(re.escape, sorted(symbols, key=len, reverse=True)))

    def _with_listed(self, ids: list[int], text: str) -> list[int]:
        """Ids of a text, in which unknown characters become a subword if the list has them.

        The list of an imported model may have the subwords of two SentencePiece models. What this
        one cannot segment, a run of characters that it lacks, may be a subword of the other.
        """
        if UNK_ID not in ids or not self._found_by_text:
            return ids
        pieces: list[str] = self._pieces.encode(text, out_type=str)
        pairs = zip(ids, pieces, strict=True)
        return [self._found_by_text.get(piece, i) if i == UNK_ID else i for i, piece in pairs]

    @cached_property
    def _found_by_text(self) -> dict[str, int]:
        """The ids of subwords that segmentation never gives."""
        pieces = enumerate(pieces_in(self.model))
        return {piece.text: i for i, piece in pieces if piece.kind == "unused"}

    def with_more(self, pieces: Iterable[Piece]) -> Tokenizer:
        """The same with more subwords behind; of those that it has already, with another kind."""
        listed = {piece.text: piece for piece in [*pieces_in(self.model), *pieces]}
        return Tokenizer(with_pieces(self.model, list(listed.values()), SPECIAL_IDS))

    def lacking(self, words: Mapping[str, int]) -> dict[str, int]:
        """The characters that are not a subword, with their counts in words that have counts.

        They are those of the normal form.
        """
        known, counts = {*filter(self._has_character, self.characters)}, Counter[str]()
        for word, count in words.items():
            if not known.issuperset(word):
                for character in self._pieces.normalize(self._visible(word)):
                    counts[character] += count
        return {x: count for x, count in counts.items() if x != "▁" and x not in known}

    @property
    def least_score(self) -> float:
        """The lowest score of its subwords, with which another one changes no segmentation."""
        scores = [piece.score for piece in pieces_in(self.model) if piece.kind == "normal"]
        return min(scores, default=0.0)

    def _has_character(self, character: str) -> bool:
        number = self._pieces.piece_to_id(character)
        return number != UNK_ID and not self._pieces.is_unused(number)

    @property
    def has_bytes(self) -> bool:
        """Whether every character can be encoded, because the vocabulary has all bytes."""
        return int(self._pieces.piece_to_id("<0xFF>")) != UNK_ID

    @cached_property
    def characters(self) -> frozenset[str]:
        """The characters that its subwords have, without the bytes; spaces are left out."""
        pieces = (self.piece(i) for i in np.flatnonzero(~self.is_fallback).tolist())
        return frozenset("".join(pieces)) - {"▁"}

    @property
    def model_type(self) -> ModelType:
        """The kind of the subword model."""
        return "bpe" if is_bpe(self.model) else "unigram"

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The symbols that are always one subword (`learn`), in the order of their ids."""
        return tuple(piece.text for piece in pieces_in(self.model) if piece.kind == "symbol")

    @cached_property
    def language_tags(self) -> dict[str, int]:
        """The ids of the tags of languages, such as `>>fr<<`, by the codes of the languages.

        A tag is one subword, the first of a source, and says which language to translate to; or the
        first of either side, and says which language it is in (`scheme`). No text is encoded to a
        tag, and `decode` leaves tags out.
        """
        return self._tags_of_both_sides or self._tags(_LANGUAGE_TAG, b">>")

    @cached_property
    def _tags_of_both_sides(self) -> dict[str, int]:
        return self._tags(_TAG_OF_BOTH_SIDES, b"<lang:")

    @property
    def scheme(self) -> TagScheme:
        """Where the tags of languages stand."""
        return "both" if self._tags_of_both_sides else "source"

    @cached_property
    def corpus_tags(self) -> dict[str, int]:
        """The ids of the tags of training corpora, such as `<tag:bt>`, by their names.

        The sources of such a corpus begin with its tag, so that the model can tell them from those
        of other corpora. Otherwise they are as `language_tags`.
        """
        return self._tags(_CORPUS_TAG, b"<tag:")

    @cached_property
    def tag_ids(self) -> tuple[int, ...]:
        """The ids of all tags, of languages and of corpora, in order."""
        return tuple(sorted([*self.language_tags.values(), *self.corpus_tags.values()]))

    def _tags(self, form: re.Pattern[str], start: bytes) -> dict[str, int]:
        """The ids of the control subwords of this form, by what its group has."""
        if start not in self.model:
            return {}
        pieces = ((i, self.piece(i)) for i in range(len(self)) if self._pieces.is_control(i))
        return {tag[1]: i for i, piece in pieces if (tag := form.fullmatch(piece))}

    @cached_property
    def is_fallback(self) -> npt.NDArray[np.bool_]:
        """(V,): whether a subword is a byte or the unknown token."""
        sp = self._pieces
        return np.array([sp.is_byte(i) or sp.is_unknown(i) for i in range(len(self))])

    @property
    def fixed_pieces(self) -> int:
        """Number of subwords before the learned ones: special ones, symbols and bytes."""
        # Without bytes, this is the id of the unknown token.
        return int(self._pieces.piece_to_id("<0xFF>")) + 1

    @property
    def cuts_at_spaces(self) -> bool:
        """Whether the ids of a text are those of its words, concatenated.

        This is true for BPE, whose merges depend only on the word. A unigram model sums the
        log-probabilities of a line, and if two segmentations are equally good, rounding errors of
        the earlier words decide between them.
        """
        return is_bpe(self.model) and not any(
            "▁" in self.piece(i)[1:] for i in range(UNK_ID + 1, len(self))
        )

    @cached_property
    def begins_word(self) -> npt.NDArray[np.bool_]:
        """(V,): whether a subword begins with a space, so that a word begins with it.

        However a text is segmented, word n begins at the n-th of these.
        """
        return np.array([self.piece(i).startswith("▁") for i in range(len(self))])

    def piece(self, piece_id: int) -> str:
        """The subword of an id, with `▁` for a space before it."""
        piece: str = self._pieces.id_to_piece(piece_id)
        return piece

    def is_control(self, piece_id: int) -> bool:
        """Whether no text has a subword, and it decodes to nothing."""
        return bool(self._pieces.is_control(piece_id))

    def decode(self, ids: Sequence[int]) -> str:
        """Detokenised text on one line; special ids are skipped.

        Byte subwords that are not a valid character, or are U+FFFD, are also skipped.
        """
        kept = [i for i in ids if i > UNK_ID]
        text: str = self._pieces.decode(kept)
        if "\ufffd" in text:
            # The text between two spaces may have been removed.
            text = _SPACES.sub(" ", self._pieces.decode(self._drop_invalid_bytes(kept))).strip(" ")
        # Byte subwords can spell any character; a translation must stay in its line and column.
        return text.translate(_TO_SPACE)

    def _drop_invalid_bytes(self, ids: Sequence[int]) -> list[int]:
        """The ids without bytes that are not a valid character."""
        sound: list[int] = []
        for is_bytes, run in itertools.groupby(ids, self._pieces.is_byte):
            if not is_bytes:
                sound += run
                continue
            # `<0x41>` is byte 0x41.
            spelt = bytes(int(self.piece(i)[1:-1], 16) for i in run)
            text = spelt.decode(errors="ignore").replace("\ufffd", "")
            sound += [self._pieces.piece_to_id(f"<0x{byte:02X}>") for byte in text.encode()]
        return sound


class SpannedIds(NamedTuple):
    """Ids of a text, and the characters that each comes from.

    Attributes:
        ids: without BOS and EOS.
        spans: start and end, in characters of the text as it was given. A span begins with the
            spaces before it and ends with the invisible characters after it. It is empty for a
            subword that has no character of its own: one character may be several bytes, or become
            several letters when it is normalised.
    """

    ids: list[int]
    spans: list[tuple[int, int]]


class VocabularyFiles(NamedTuple):
    """The file names of vocabularies in a folder: of a joint one, or of one per side."""

    joint: str
    src: str
    tgt: str

    def used(self, *, is_joint: bool) -> tuple[str, ...]:
        """The names that are used: one, or those of both sides."""
        return (self.joint,) if is_joint else (self.src, self.tgt)


# In prepared folders and run folders.
VOCABULARY_FILES = VocabularyFiles("tokenizer.model", "tokenizer.src.model", "tokenizer.tgt.model")


class Prefixes(NamedTuple):
    """The ids that encoded sources and targets begin with, possibly none."""

    src: Sequence[int]
    tgt: Sequence[int]


class Vocabularies(NamedTuple):
    """The tokenizers of source and target: a joint one twice, or one for each side."""

    src: Tokenizer
    tgt: Tokenizer

    @classmethod
    def joint(cls, tokenizer: Tokenizer) -> Self:
        """One vocabulary for both sides."""
        return cls(tokenizer, tokenizer)

    @property
    def is_joint(self) -> bool:
        """Whether one vocabulary is for both sides."""
        return self.src is self.tgt

    @property
    def distinct(self) -> tuple[Tokenizer, ...]:
        """The joint vocabulary, or that of the source and that of the target."""
        return (self.src,) if self.is_joint else (self.src, self.tgt)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of subwords of each of `distinct`."""
        return tuple(map(len, self.distinct))

    @property
    def has_tags_on_both_sides(self) -> bool:
        """Whether each side begins with the tag of its language."""
        return self.src.scheme == "both"

    def prefixes(self, src_lang: str | None, tgt_lang: str | None) -> Prefixes:
        """What the ids of each side begin with: the language tags of a multilingual model.

        Raises:
            KeyError: for a language without a tag, unless no language has one.
        """
        if not (tags := self.src.language_tags):
            return Prefixes([], [])
        if self.has_tags_on_both_sides:
            return Prefixes([tags[src_lang or ""]], [self.tgt.language_tags[tgt_lang or ""]])
        return Prefixes([tags[tgt_lang or ""]], [])

    @property
    def own_src_size(self) -> int | None:
        """Size of the source's own vocabulary, for `Transformer`; None if joint."""
        return None if self.is_joint else len(self.src)

    def is_same(self, other: Vocabularies) -> bool:
        """Whether both sides have the same SentencePiece models."""
        return all(ours.model == theirs.model for ours, theirs in zip(self, other, strict=True))

    @classmethod
    def load(
        cls,
        folder: Path,
        files: VocabularyFiles = VOCABULARY_FILES,
        *,
        is_joint: bool | None = None,
    ) -> Self:
        """Load the vocabularies of a folder; without `is_joint`, its files decide.

        Raises:
            MtkitError: if a file is missing or damaged.
        """
        if is_joint is None:
            is_joint = (folder / files.joint).exists()
        if is_joint:
            return cls.joint(Tokenizer.load(folder / files.joint))
        return cls(Tokenizer.load(folder / files.src), Tokenizer.load(folder / files.tgt))

    def save(self, folder: Path, files: VocabularyFiles = VOCABULARY_FILES) -> tuple[str, ...]:
        """Write the SentencePiece models into a folder; returns the names of the files."""
        names = files.used(is_joint=self.is_joint)
        for tokenizer, name in zip(self.distinct, names, strict=True):
            tokenizer.save(folder / name)
        return names


def _check_symbols(symbols: Sequence[str], tags: Sequence[str]) -> None:
    for number, symbol in enumerate(symbols):
        if not symbol or " " in symbol or "▁" in symbol or not symbol.isprintable():
            raise MtkitError(
                f"the symbol {symbol!r} is empty, has white space, or cannot be printed"
            )
        if symbol in symbols[:number]:
            raise MtkitError(f"the symbol {symbol!r} is given twice")
        if symbol in (*_SPECIAL, *tags) or re.fullmatch("<0x[0-9A-F]{2}>", symbol):
            raise MtkitError(
                f"the symbol {symbol!r} has the name of a fixed subword; choose another"
            )
        if _joins(symbol[0]):
            raise MtkitError(
                f"the symbol {symbol!r} begins with a character that may become one with the "
                "character before it; choose another"
            )


def _joins(character: str) -> bool:
    """Whether the normalisation may combine a character with this one after it."""
    name = unicodedata.name(character, "")
    return unicodedata.category(character).startswith("M") or (
        # Letters of Korean syllables and the marks of half-width kana.
        name.startswith(("HANGUL", "HALFWIDTH")) and "SYLLABLE" not in name
    )


def _explain(error: RuntimeError, vocab_size: int) -> MtkitError:
    message = str(error)
    if limit := _LIMIT.search(message):
        return MtkitError(
            f"a vocabulary of {vocab_size} is too large for so little text; the largest possible "
            f"is {limit[1]}, and half is usual: --vocab-size {(FIXED_PIECES + int(limit[1])) // 2}"
        )
    if limit := _MIN_SIZE.search(message):
        return MtkitError(
            f"a vocabulary of {vocab_size} is smaller than the characters of this text need; "
            f"the least possible is {limit[1]} (--vocab-size {limit[1]})"
        )
    if "empty" in message.lower() or "all_chars_count" in message:
        return MtkitError("no text to learn subwords from")
    return MtkitError(f"the subwords could not be learned: {reason_of(error)}")
