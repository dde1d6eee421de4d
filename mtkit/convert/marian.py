"""A Marian model as other software stores it, and the same model as mtkit stores it.

`MarianSource` is what `transformers_folder` and `marian_npz` read. Its tensors have the names of
Hugging Face's `MarianMTModel`; its subwords have the ids of that model. Three things are different
in mtkit:

- ids: padding, start, EOS and the unknown token are 0 to 3; all other subwords follow in the order
  of their old ids.
- the width: Marian has first all sines and then all cosines of the position encodings, so all
  matrices are permuted. The numbers themselves do not change.
- start: Marian begins a translation with a vector of zeros. Here that is the row of BOS. Padding
  and BOS get an output bias that is so low that they are never produced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtkit.base.errors import MtkitError, reason_of
from mtkit.base.sentencepiece_model import Piece, pieces_in, with_pieces
from mtkit.base.sentences import LineFacts
from mtkit.checkpoint import Tensors
from mtkit.config import DecodeConfig, ModelConfig
from mtkit.convert.foreign import open_file
from mtkit.imported import OldIds, OldIdsOfSides
from mtkit.kernels.loss import NEVER
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer, Vocabularies

_SPECIAL_IDS = {"unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID, "pad": PAD_ID}
# What a file begins with that git-lfs has not downloaded.
_POINTER = b"version https://git-lfs"
# A subword that names a target language, at the beginning of a source.
TAG = re.compile(">>.+<<")


@dataclass(frozen=True)
class Subwords:
    """The subwords of one side.

    Attributes:
        pieces: by id.
        eos, unk, pad: ids.
        model: the SentencePiece model that segments the text of this side.
        file: its path, for messages.
    """

    pieces: list[str]
    eos: int
    unk: int
    pad: int
    model: bytes
    file: Path


@dataclass(frozen=True)
class MarianSource:
    """A Marian model that was read.

    Attributes:
        config: its shape; `shared_embedding` is not set yet.
        tensors: by the names of Hugging Face's class, in float32.
        src, tgt: the subwords of both sides.
        start: the id that begins a translation.
        longest: the longest sequence that it was made for, in subwords.
        src_lang, tgt_lang: codes of the languages; empty if they are not known.
        folder: of the same model for transformers; None if there is none.
        decode: the settings of translation that its files give.
        lines: what is known of its training lines.
    """

    config: ModelConfig
    tensors: Tensors
    src: Subwords
    tgt: Subwords
    start: int
    longest: int
    src_lang: str
    tgt_lang: str
    folder: Path | None
    decode: DecodeConfig
    lines: LineFacts

    @property
    def has_one_vocabulary(self) -> bool:
        """Whether a subword has the same id on both sides."""
        return self.src.pieces == self.tgt.pieces

    @property
    def has_one_matrix(self) -> bool:
        """Whether both sides share one embedding matrix."""
        return "model.shared.weight" in self.tensors


def new_ids(old: OldIds) -> list[int]:
    """The new id of each old one."""
    new = [0] * old.size
    for place, i in enumerate(_rest(old), UNK_ID + 1):
        new[i] = place
    new[old.pad], new[old.eos], new[old.unk] = PAD_ID, EOS_ID, UNK_ID
    return new


def _rest(old: OldIds) -> list[int]:
    """The old ids of the subwords after the special ones, in the order of the new ids."""
    return [i for i in range(old.size) if i not in (old.pad, old.eos, old.unk)]


# ---------------------------------------------------------------------------------------------
# Names and shapes


def tensor_shapes(
    config: ModelConfig, src_size: int, tgt_size: int, *, one_matrix: bool
) -> dict[str, tuple[int, ...]]:
    """The tensors of a Marian model by name, each matrix once, and their shapes."""
    D, F = config.d_model, config.d_ff
    shapes: dict[str, tuple[int, ...]] = {"final_logits_bias": (1, tgt_size)}
    if one_matrix:
        shapes["model.shared.weight"] = (tgt_size, D)
    else:
        shapes["model.encoder.embed_tokens.weight"] = (src_size, D)
        shapes["model.decoder.embed_tokens.weight"] = (tgt_size, D)
    sizes = {"fc1": (F, D), "fc2": (D, F)}
    for name in linear_names(config):
        rows, columns = sizes.get(name.rpartition(".")[2], (D, D))
        shapes |= {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}
    for name in norm_names(config):
        shapes |= {f"{name}.weight": (D,), f"{name}.bias": (D,)}
    return shapes


def check_tensor(
    name: str, tensor: Tensor, shape: tuple[int, ...], file: Path, *, asked: str
) -> None:
    """Refuse a tensor of another shape, or with values that are not finite.

    Args:
        name: of the tensor.
        tensor: as it was read.
        shape: that it should have.
        file: that it was read from.
        asked: the words of the message that say who asks for the shape.

    Raises:
        MtkitError: naming the file and the tensor.
    """
    if tensor.shape != shape:
        raise MtkitError(
            f"{file}: {name} has the shape {list(tensor.shape)}{asked} for {list(shape)}"
        )
    if not tensor.isfinite().all():
        raise MtkitError(f"{file}: {name} has values that are not finite")


def layer_names(config: ModelConfig) -> Iterator[tuple[str, list[str]]]:
    """The layers, each with the names of its attentions."""
    counts = {"encoder": config.encoder_layers, "decoder": config.decoder_layers}
    for stack, count in counts.items():
        attentions = ["self_attn", "encoder_attn"][: 1 + (stack == "decoder")]
        for number in range(count):
            yield f"model.{stack}.layers.{number}", attentions


def linear_names(config: ModelConfig) -> Iterator[str]:
    """The linear maps."""
    for layer, attentions in layer_names(config):
        for attention in attentions:
            yield from (f"{layer}.{attention}.{part}_proj" for part in ("q", "k", "v", "out"))
        yield from (f"{layer}.fc1", f"{layer}.fc2")


def norm_names(config: ModelConfig) -> Iterator[str]:
    """The layer norms."""
    for layer, attentions in layer_names(config):
        yield from (f"{layer}.{name}_layer_norm" for name in (*attentions, "final"))


def halves(width: int) -> Tensor:
    """(D,): our places in Marian's order, which has first all sines and then all cosines."""
    return torch.cat((torch.arange(0, width, 2), torch.arange(1, width, 2)))


# ---------------------------------------------------------------------------------------------
# Vocabularies


@dataclass(frozen=True)
class NewVocabulary:
    """The vocabularies in the order of mtkit.

    Attributes:
        vocabularies: the tokenizers.
        src_rows, tgt_rows: the old id whose row of the embedding each new id has.
        tgt_lost: number of the last new ids of the target that only a text can have: subwords
            that the SentencePiece model has, and the model has not.
        ids: where the subwords were.
    """

    vocabularies: Vocabularies
    src_rows: list[int]
    tgt_rows: list[int]
    tgt_lost: int
    ids: OldIdsOfSides


def new_vocabulary(source: MarianSource) -> NewVocabulary:
    """The tokenizers of a model, whose ids are those of mtkit.

    A SentencePiece model and the list of subwords do not agree in general: the list has the
    subwords of both sides, and language tags, and may lack subwords of the SentencePiece model.
    Subwords of the list that the model of a side does not know are found only where they are a run
    of characters that it lacks. Those that the list lacks get an id of their own, with the
    embedding of the unknown token.

    Raises:
        MtkitError: if a SentencePiece model is damaged.
    """
    sides = (source.src, source.tgt)
    found = [_pieces_of(side) for side in sides]
    lost = [_lost(side, pieces) for side, pieces in zip(sides, found, strict=True)]
    if source.has_one_vocabulary:
        lost = [list(dict.fromkeys(lost[0] + lost[1]))] * 2
    tokenizers, rows = [], []
    for side, pieces, more in zip(sides, found, lost, strict=True):
        rest = _rest(_old_ids(side, source.start))
        names = _names(side, rest, more)
        by_text = {piece.text: piece for piece in pieces}
        listed = [_listed(name, place, by_text) for place, name in enumerate(names)]
        tokenizers.append(_tokenizer(side, listed))
        # The source has no start; its row is not used.
        start = source.start if side is source.tgt or source.has_one_matrix else side.pad
        rows.append([side.pad, start, side.eos, side.unk, *rest, *[side.unk] * len(more)])
    src, tgt = tokenizers
    if source.has_one_matrix and src.model == tgt.model:
        src = tgt
    pad_bias = float(source.tensors["final_logits_bias"][0, source.tgt.pad])
    ids = OldIdsOfSides(
        src=_old_ids(source.src, source.start),
        tgt=_old_ids(source.tgt, source.start),
        pad_bias=pad_bias,
    )
    return NewVocabulary(Vocabularies(src, tgt), rows[0], rows[1], len(lost[1]), ids)


def _old_ids(side: Subwords, start: int) -> OldIds:
    return OldIds(size=len(side.pieces), pad=side.pad, eos=side.eos, unk=side.unk, start=start)


def tags_of(tokenizer: Tokenizer) -> list[str]:
    """The language tags of a vocabulary, in the order of their ids."""
    return [tokenizer.piece(i) for i in tokenizer.language_tags.values()]


def _pieces_of(side: Subwords) -> list[Piece]:
    try:
        # It is loaded first, because a part of a model can look like a whole one.
        Tokenizer(side.model)
        return pieces_in(side.model)
    except (RuntimeError, ValueError) as error:
        raise MtkitError(
            f"{side.file}: not a SentencePiece model, or a damaged one ({damage(side.file, error)})"
        ) from error


def _lost(side: Subwords, pieces: list[Piece]) -> list[str]:
    """Subwords that text can have, and the vocabulary has not."""
    known = set(side.pieces)
    return [
        piece.text
        for piece in pieces
        if piece.kind in ("normal", "symbol", "byte") and piece.text not in known
    ]


def _names(side: Subwords, rest: list[int], lost: list[str]) -> list[str]:
    old = side.pieces
    taken = {*old, *lost}
    bos = next(name for name in ("<s>", "<start>", "<mtkit:start>") if name not in taken)
    special = [old[side.pad], bos, old[side.eos], old[side.unk]]
    return [*special, *(old[i] for i in rest), *lost]


def _listed(name: str, place: int, by_text: dict[str, Piece]) -> Piece:
    """A subword of the list as the SentencePiece model of one side gets it."""
    if place < UNK_ID or TAG.fullmatch(name):
        return Piece(name, kind="control")
    if place == UNK_ID:
        return Piece(name, kind="unknown")
    known = by_text.get(name)
    if known is None:
        return Piece(name, kind="unused")
    return known if known.kind != "unknown" else Piece(name, kind="control")


def _tokenizer(side: Subwords, pieces: list[Piece]) -> Tokenizer:
    try:
        return Tokenizer(with_pieces(side.model, pieces, _SPECIAL_IDS))
    except (RuntimeError, ValueError) as error:
        raise MtkitError(
            f"{side.file}: does not fit the vocabulary: {reason_of(error, most=200)}"
        ) from error


# ---------------------------------------------------------------------------------------------
# Weights


def new_weights(source: MarianSource, vocabulary: NewVocabulary) -> Tensors:
    """The state of a `Transformer` with the weights of a Marian model."""
    theirs, config = source.tensors, source.config
    width = halves(config.d_model).argsort()
    bias = theirs["final_logits_bias"][0][vocabulary.tgt_rows]
    bias[[PAD_ID, BOS_ID]] = NEVER
    if vocabulary.tgt_lost:
        bias[-vocabulary.tgt_lost :] = NEVER
    state = {"output_bias": bias}

    def embed(name: str, key: str, rows: list[int]) -> None:
        state[name] = theirs[key][rows][:, width]

    if source.has_one_matrix:
        embed("embedding.weight", "model.shared.weight", vocabulary.tgt_rows)
    else:
        embed("embedding.weight", "model.decoder.embed_tokens.weight", vocabulary.tgt_rows)
        embed("src_embedding.weight", "model.encoder.embed_tokens.weight", vocabulary.src_rows)

    def put(name: str, maps: list[str], *, into: bool = True) -> None:
        """Linear maps one below the other, from the width of the model, or else to it."""
        weight = torch.cat([theirs[f"{one}.weight"] for one in maps])
        offset = torch.cat([theirs[f"{one}.bias"] for one in maps])
        state[f"{name}.weight"] = weight[:, width] if into else weight[width]
        state[f"{name}.bias"] = offset if into else offset[width]

    for layer, attentions in layer_names(config):
        stack, _, number = layer.removeprefix("model.").partition(".layers.")
        ours = f"{stack}.{number}"
        own = f"{layer}.self_attn"
        put(f"{ours}.self_attention.in_proj", [f"{own}.{part}_proj" for part in "qkv"])
        put(f"{ours}.self_attention.out_proj", [f"{own}.out_proj"], into=False)
        if stack == "decoder":
            cross = f"{layer}.encoder_attn"
            put(f"{ours}.cross_attention.q_proj", [f"{cross}.q_proj"])
            put(f"{ours}.cross_attention.kv_proj", [f"{cross}.k_proj", f"{cross}.v_proj"])
            put(f"{ours}.cross_attention.out_proj", [f"{cross}.out_proj"], into=False)
        put(f"{ours}.feed_forward.inner", [f"{layer}.fc1"])
        put(f"{ours}.feed_forward.outer", [f"{layer}.fc2"], into=False)
        for place, norm in enumerate((*attentions, "final")):
            for kind in ("weight", "bias"):
                tensor = theirs[f"{layer}.{norm}_layer_norm.{kind}"]
                state[f"{ours}.residuals.{place}.norm.{kind}"] = tensor[width]
    return state


# ---------------------------------------------------------------------------------------------


def setting(
    settings: dict[str, Any], key: str, kind: type | tuple[type, ...], *, file: Path | str
) -> Any:
    """A setting of a file, of this type.

    Raises:
        MtkitError: if it is missing, or has another type.
    """
    if key not in settings:
        raise MtkitError(f"{file}: {key} is missing")
    value = settings[key]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join(one.__name__ for one in kinds)
        raise MtkitError(f"{file}: {key} is {str(value)[:100]!r}, which is not of type {wanted}")
    return value


def damage(file: Path, error: Exception) -> str:
    """Why a file cannot be read, for a message."""
    with suppress(OSError), open_file(file) as opened:
        if opened.read(len(_POINTER)) == _POINTER:
            return "a pointer of git-lfs; git lfs pull downloads the file"
    return reason_of(error, most=200)
