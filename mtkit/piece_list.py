"""The list of subwords inside a SentencePiece model: read, and replaced.

A SentencePiece model is a Protocol Buffers message. Its subwords are in field 1, each with its
text, score and type; the settings of its training are in field 2. Only these are read here, so no
further library is needed. `tokenizer` decides what the subwords mean.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["normal", "unknown", "control", "symbol", "unused", "byte"]
_KINDS: tuple[Kind, ...] = ("normal", "unknown", "control", "symbol", "unused", "byte")

# Fields of the message, of a subword, and of the settings of the training.
_PIECES, _SETTINGS, _SELF_TEST = 1, 2, 4
_TEXT, _SCORE, _KIND = 1, 2, 3
_MODEL_TYPE, _BPE = 3, 2
_SPECIAL_IDS = {"unk": 40, "bos": 41, "eos": 42, "pad": 43}
_SPECIAL_PIECES = {"unk": 45, "bos": 46, "eos": 47, "pad": 48}
# How a field is encoded.
_VARINT, _BYTES, _FIXED64, _FIXED32 = 0, 2, 1, 5


@dataclass(frozen=True)
class Piece:
    """A subword of a model.

    Attributes:
        text: with `▁` for a space.
        score: log-probability of a unigram model, or the priority of a merge.
        kind: `control` is never found in a text and decodes to nothing; `unused` is never found
            by segmentation and decodes to itself; `symbol` is always one subword.
    """

    text: str
    score: float = 0.0
    kind: Kind = "normal"


def pieces_in(model: bytes) -> list[Piece]:
    """The subwords of a model, in the order of their ids.

    Raises:
        ValueError: if it is not a SentencePiece model.
    """
    return [
        _piece(part) for field, part in fields(model) if field == _PIECES if type(part) is bytes
    ]


def with_pieces(model: bytes, pieces: Sequence[Piece], special_ids: dict[str, int]) -> bytes:
    """The model with another list of subwords.

    A text is segmented as before if the list has the same normal subwords, symbols and bytes.

    Args:
        model: a SentencePiece model.
        pieces: the new subwords; the texts must be different.
        special_ids: the ids of `unk`, `bos`, `eos` and `pad`.

    Raises:
        ValueError: if it is not a SentencePiece model.
    """
    written = [_field(_PIECES, _encoded(piece)) for piece in pieces]
    # The tests inside a model are for its own ids.
    written += [
        _field(field, value) for field, value in fields(model) if field not in (_PIECES, _SELF_TEST)
    ]
    settings = b""
    for name, number in special_ids.items():
        settings += _field(_SPECIAL_IDS[name], number)
        settings += _field(_SPECIAL_PIECES[name], pieces[number].text.encode())
    # Of a field that is given twice, the last one counts, also inside of a message.
    return b"".join([*written, _field(_SETTINGS, settings)])


def is_bpe(model: bytes) -> bool:
    """Whether a model is BPE, and not a unigram model."""
    settings = [value for field, value in fields(model) if field == _SETTINGS]
    return any(
        field == _MODEL_TYPE and value == _BPE
        for part in settings
        if isinstance(part, bytes)
        for field, value in fields(part)
    )


def _piece(message: bytes) -> Piece:
    text, score, kind = "", 0.0, 1
    for field, value in fields(message):
        if field == _TEXT and isinstance(value, bytes):
            text = value.decode()
        elif field == _SCORE and isinstance(value, bytes):
            if len(value) != 4:
                raise ValueError(f"a score of {len(value)} bytes")
            (score,) = struct.unpack("<f", value)
        elif field == _KIND and isinstance(value, int):
            kind = value
    if not 1 <= kind <= len(_KINDS):
        raise ValueError(f"a subword of the type {kind}")
    return Piece(text, score, _KINDS[kind - 1])


def _encoded(piece: Piece) -> bytes:
    score = _number(_SCORE << 3 | _FIXED32) + struct.pack("<f", piece.score)
    return _field(_TEXT, piece.text.encode()) + score + _field(_KIND, _KINDS.index(piece.kind) + 1)


def _field(number: int, value: int | bytes) -> bytes:
    """A field of a message: a number, or a text or message."""
    if isinstance(value, int):
        return _number(number << 3 | _VARINT) + _number(value)
    return _number(number << 3 | _BYTES) + _number(len(value)) + value


def _number(value: int) -> bytes:
    """A number that is not negative, seven bits in a byte, the lowest first."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of the fields of a Protocol Buffers message.

    Raises:
        ValueError: if it is not such a message.
    """
    position = 0

    def number() -> int:
        nonlocal position
        value = shift = 0
        while True:
            if position >= len(message):
                raise ValueError("the message ends in the middle")
            byte = message[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while position < len(message):
        tag = number()
        kind = tag & 7
        if kind == _VARINT:
            yield tag >> 3, number()
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if size is None:
            if kind != _BYTES:
                raise ValueError(f"a field of the kind {kind}")
            size = number()
        if position + size > len(message):
            raise ValueError("the message ends in the middle")
        yield tag >> 3, message[position : position + size]
        position += size
