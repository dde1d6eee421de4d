"""The list of subwords inside a SentencePiece model: read, and replaced.

A SentencePiece model is a message of Protocol Buffers. `tokenizer` decides what the subwords mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

# In the order of their numbers, from 1.
Kind = Literal["normal", "unknown", "control", "symbol", "unused", "byte"]
_KINDS: tuple[Kind, ...] = ("normal", "unknown", "control", "symbol", "unused", "byte")
_BPE = 2


class Piece(NamedTuple):
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
    """The subwords of a SentencePiece model, in the order of their ids; else `ValueError`."""
    pieces = _parsed(model).pieces
    return [Piece(piece.piece, piece.score, _KINDS[piece.type - 1]) for piece in pieces]


def with_pieces(model: bytes, pieces: Sequence[Piece], special_ids: dict[str, int]) -> bytes:
    """The model with another list of subwords; raises as `pieces_in`.

    A text is segmented as before if the list has the same normal subwords, symbols and bytes.

    Args:
        pieces: the new subwords; the texts must be different.
        special_ids: the ids of `unk`, `bos`, `eos` and `pad`.
    """
    message = _parsed(model)
    # Among them are tests, which are for its own ids.
    message.DiscardUnknownFields()
    message.ClearField("pieces")
    for piece in pieces:
        kind = _KINDS.index(piece.kind) + 1
        message.pieces.add(piece=piece.text, score=piece.score, type=kind)
    for name, number in special_ids.items():
        setattr(message.trainer_spec, f"{name}_id", number)
        setattr(message.trainer_spec, f"{name}_piece", pieces[number].text)
    content: bytes = message.SerializeToString()
    return content


class Normalization(NamedTuple):
    """How a model normalises text.

    Attributes:
        name: of the rule for characters, such as `nmt_nfkc`; `identity` if there is none.
        removes_spaces: at both ends, and all but one of several.
        begins_with_space: whether one is put before every text that is not empty.
    """

    name: str
    removes_spaces: bool
    begins_with_space: bool


def normalization_of(model: bytes) -> Normalization:
    """How a SentencePiece model normalises text; `ValueError` for anything else."""
    spec = _parsed(model).normalizer_spec
    name = spec.name if spec.precompiled_charsmap else "identity"
    return Normalization(name, spec.remove_extra_whitespaces, spec.add_dummy_prefix)


def is_bpe(model: bytes) -> bool:
    """Whether a model is BPE, and not a unigram model."""
    return bool(_parsed(model).trainer_spec.model_type == _BPE)


def _parsed(model: bytes) -> Any:
    # On first use: a tokenizer that is only applied does not need it.
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2

    # Its classes are made when it is loaded, so type checkers do not see them.
    message: Any = sentencepiece_model_pb2.ModelProto  # type: ignore[attr-defined]
    try:
        return message.FromString(model)
    except DecodeError as error:
        raise ValueError(str(error)) from error
