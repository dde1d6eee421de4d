"""Subwords: learning a joint BPE and applying it, on SentencePiece.

This module owns the special ids and the normal form of text. Raw text goes in and detokenised text
comes out; nobody else tokenises.

**Normal form.** SentencePiece's `nmt_nfkc`: Unicode NFKC, most control characters removed, every
run of white space one plain space, none at the ends. For text in normal form,
``decode(encode(text)) == text``: a character without a piece of its own is spelled in bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece as spm

from mtkit.errors import MtkitError

PAD_ID, BOS_ID, EOS_ID, UNK_ID = range(4)

FIXED_PIECES = 4 + 256

_TO_SPACE = str.maketrans("\t\n\r", "   ")

SENTENCEPIECE_VERSION: str = spm.__version__


class Tokenizer:
    """A joint BPE of source and target language (Section 5.1).

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
    def learn(cls, lines: Iterable[str], vocab_size: int) -> Tokenizer:
        """Learn `vocab_size` pieces from lines of text.

        Args:
            lines: sentences of both languages, read once.
            vocab_size: V, the 4 special and 256 byte pieces included.

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
                sentence_iterator=iter(lines),
                model_writer=model,
                model_type="bpe",
                vocab_size=vocab_size,
                character_coverage=1.0 - 1e-6,
                byte_fallback=True,
                normalization_rule_name="nmt_nfkc",
                max_sentence_length=1 << 16,
                pad_id=PAD_ID,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                unk_id=UNK_ID,
                num_threads=1,
                train_extremely_large_corpus=True,
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

    def piece(self, piece_id: int) -> str:
        """The subword of an id as the model has it, `▁` for a space before it."""
        piece: str = self._pieces.id_to_piece(piece_id)
        return piece

    def decode(self, ids: Sequence[int]) -> str:
        """Detokenised text on one line; special ids are skipped."""
        text: str = self._pieces.decode([i for i in ids if i > UNK_ID])
        # Byte pieces can spell any character; a translation stays in its line and column.
        return text.translate(_TO_SPACE)


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
