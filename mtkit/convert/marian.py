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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mtkit.base.errors import MtkitError, reason_of
from mtkit.base.sentencepiece_model import Piece, pieces_in, with_pieces
from mtkit.base.sentences import LineFacts
from mtkit.checkpoint import Tensors
from mtkit.config import DecodeConfig, ModelConfig
from mtkit.convert.untrusted import damage
from mtkit.kernels.cpu_loss import NEVER
from mtkit.model import Transformer
from mtkit.run_manifest import OldIds, OldIdsOfSides
from mtkit.tokenizer import (
    BOS_ID,
    EOS_ID,
    LARGEST_VOCABULARY,
    PAD_ID,
    SPECIAL_IDS,
    UNK_ID,
    Tokenizer,
    Vocabularies,
)

# Rows of an embedding without a subword: a matrix may be larger than its vocabulary, so that its
# size is a round number.
_MAX_ROWS_WITHOUT_SUBWORD = 2_000
_IN_TEXT = ("normal", "symbol", "byte")
# The names of ids without a subword; those that are made up decode to nothing.
WITHOUT_SUBWORD, MADE_UP = "<no subword {}>", "<made-up {}>"
# Settings that have the same names and values in transformers.
DROPOUTS = {"dropout", "attention_dropout", "activation_dropout"}
# Subwords that no text has: the tags of languages, and made-up words.
_NOT_TEXT = re.compile(">>.+<<|<lang:.+>|<made-up [0-9]+>")


@dataclass(frozen=True)
class Subwords:
    """The subwords of one side by id, and the SentencePiece model that segments its text."""

    pieces: list[str]
    eos: int
    unk: int
    pad: int
    model: bytes
    file: Path


@dataclass(frozen=True)
class MarianSource:
    """A Marian model that was read: tensors by the names of Hugging Face's class, in float32.

    `shared_embedding` of `config` is not set yet. `start` is the id that begins a translation, and
    `longest` the longest sequence in subwords. `decode` are the settings of translation that its
    files give, and `lacking` those that mtkit does not have, with their values. `folder` has the
    same model for transformers; its tensors may have names that begin with `module.`. `positions`
    (positions, D) is a table of another kind than Marian's, in the order of mtkit. Languages that
    are not known are empty.
    """

    config: ModelConfig
    tensors: Tensors
    src: Subwords
    tgt: Subwords
    start: int
    longest: int
    decode: DecodeConfig
    lacking: Sequence[str] = ()
    folder: Path | None = None
    positions: Tensor | None = None
    has_prefixes: bool = False
    src_lang: str = ""
    tgt_lang: str = ""
    lines: LineFacts = field(default_factory=LineFacts)

    @property
    def has_one_matrix(self) -> bool:
        """Whether both sides share one embedding matrix."""
        return "model.shared.weight" in self.tensors


def new_ids(old: OldIds) -> list[int]:
    """Our id of each old one."""
    new = {i: ours for ours, i in enumerate(_rest(old), UNK_ID + 1)}
    new |= {old.pad: PAD_ID, old.eos: EOS_ID, old.unk: UNK_ID}
    return [new[i] for i in range(old.size)]


def _rest(old: OldIds) -> list[int]:
    """The old ids of the subwords after the special ones, in the order of the new ids."""
    return [i for i in range(old.size) if i not in (old.pad, old.eos, old.unk)]


class Part(NamedTuple):
    """A linear map or a norm of a layer: our name, and one or several, joined, of `MarianMTModel`.

    The axis of the weights that has the width of the model is 1 for a map from it, and 0 for
    a map to it, its bias, and a norm.
    """

    ours: str
    theirs: list[str]
    axis: int

    def permuted(self, tensor: Tensor, order: Tensor) -> Tensor:
        """A weight or bias with the width of the model in another order."""
        if self.axis == 0:
            return tensor[order]
        return tensor[:, order] if tensor.dim() == 2 else tensor


def layer_parts(config: ModelConfig) -> Iterator[Part]:
    """The parts of all layers, and the norms behind them."""
    for stack, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for number in range(count):
            ours, theirs = f"{stack}.{number}", f"model.{stack}.layers.{number}"
            own, cross = f"{theirs}.self_attn", f"{theirs}.encoder_attn"
            names = [f"{own}.{part}_proj" for part in "qkv"]
            yield Part(f"{ours}.self_attention.in_proj", names, 1)
            yield Part(f"{ours}.self_attention.out_proj", [f"{own}.out_proj"], 0)
            norms = ["self_attn", "final"]
            if stack == "decoder":
                norms.insert(1, "encoder_attn")
                names = [f"{cross}.k_proj", f"{cross}.v_proj"]
                yield Part(f"{ours}.cross_attention.q_proj", [f"{cross}.q_proj"], 1)
                yield Part(f"{ours}.cross_attention.kv_proj", names, 1)
                yield Part(f"{ours}.cross_attention.out_proj", [f"{cross}.out_proj"], 0)
            yield Part(f"{ours}.feed_forward.inner", [f"{theirs}.fc1"], 1)
            yield Part(f"{ours}.feed_forward.outer", [f"{theirs}.fc2"], 0)
            for i, norm in enumerate(norms):
                yield Part(f"{ours}.residuals.{i}.norm", [f"{theirs}.{norm}_layer_norm"], 0)
        if config.norm == "pre":
            yield Part(f"{stack}_norm", [f"model.{stack}.layer_norm"], 0)


def halves(width: int) -> Tensor:
    """(D,): our dimensions in Marian's order, which has first all sines and then all cosines."""
    return torch.cat((torch.arange(0, width, 2), torch.arange(1, width, 2)))


def marian_settings(model: Transformer, longest: int) -> dict[str, Any]:
    """The settings of a `MarianConfig` of the same shape, but for those about subwords."""
    config = model.config
    return {
        "d_model": config.d_model,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.n_heads,
        "decoder_attention_heads": config.n_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": {"relu": "relu", "silu": "swish"}[config.activation],
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": model.src_embedding is None,
        "max_position_embeddings": longest,
    }


def check_tensors(
    tensors: Tensors, config: ModelConfig, sizes: tuple[int, int], *, one_matrix: bool, file: Path
) -> None:
    """Refuse tensors of `MarianMTModel` that do not fit this shape, or are not finite.

    `sizes` are those of the vocabularies. An MtkitError names the file and the tensor.
    """
    D, F = config.d_model, config.d_ff
    shapes: dict[str, tuple[int, ...]] = {"final_logits_bias": (1, sizes[1])}
    names = ["model.shared"] * 2
    if not one_matrix:
        names = ["model.encoder.embed_tokens", "model.decoder.embed_tokens"]
    shapes |= {f"{name}.weight": (size, D) for name, size in zip(names, sizes, strict=True)}
    for part in layer_parts(config):
        for name in part.theirs:
            rows, columns = {"fc1": (F, D), "fc2": (D, F)}.get(name.rpartition(".")[2], (D, D))
            shapes[f"{name}.weight"] = (rows,) if name.endswith("norm") else (rows, columns)
            shapes[f"{name}.bias"] = (rows,)
    for name, shape in shapes.items():
        if name not in tensors:
            raise MtkitError(f"{file}: has no tensor {name}")
        if (own := tensors[name].shape) != shape:
            raise MtkitError(f"{file}: {name} has the shape {list(own)}, not {list(shape)}")
        if not tensors[name].isfinite().all():
            raise MtkitError(f"{file}: {name} has values that are not finite")
    if unknown := sorted(tensors.keys() - shapes.keys()):
        raise MtkitError(f"{file}: has a tensor that is not of a Marian model: {unknown[0][:100]}")


def new_weights(source: MarianSource, vocabulary: NewVocabulary) -> Tensors:
    """The state of a `Transformer` with the weights of a model."""
    theirs = source.tensors
    order = halves(source.config.d_model).argsort()
    bias = theirs["final_logits_bias"][0][vocabulary.tgt_rows]
    bias[[PAD_ID, BOS_ID]] = NEVER
    bias[len(bias) - vocabulary.tgt_lost :] = NEVER
    state = {"output_bias": bias}
    if source.positions is not None:
        order = torch.arange(source.config.d_model)
        state["learned_positions"] = source.positions
    tgt_matrix = "model.shared.weight"
    if not source.has_one_matrix:
        tgt_matrix = "model.decoder.embed_tokens.weight"
        src_matrix = theirs["model.encoder.embed_tokens.weight"]
        state["src_embedding.weight"] = src_matrix[vocabulary.src_rows][:, order]
    state["embedding.weight"] = theirs[tgt_matrix][vocabulary.tgt_rows][:, order]
    for part in layer_parts(source.config):
        for kind in ("weight", "bias"):
            joined = torch.cat([theirs[f"{name}.{kind}"] for name in part.theirs])
            state[f"{part.ours}.{kind}"] = part.permuted(joined, order)
    return state


@dataclass(frozen=True)
class NewVocabulary:
    """The vocabularies in the order of mtkit, and the old id of the row of each new one.

    The last `tgt_lost` ids of the target only a text can have: the SentencePiece model has them,
    and the model has not. `ids` is where the subwords were.
    """

    vocabularies: Vocabularies
    src_rows: list[int]
    tgt_rows: list[int]
    tgt_lost: int
    ids: OldIdsOfSides


def listed_pieces(ids: dict[str, Any], file: Path) -> list[str]:
    """The subwords of a list by id; one without gets a name. MtkitError if an id is impossible."""
    pieces: dict[int, str] = {}
    for text, i in ids.items():
        if type(i) is not int or not 0 <= i < LARGEST_VOCABULARY:
            raise MtkitError(f"{file}: {text[:100]!r} has {str(i)[:20]!r}, which is not an id")
        if i in pieces:
            raise MtkitError(f"{file}: two subwords have the id {i}")
        pieces[i] = text
    if not pieces:
        raise MtkitError(f"{file}: has no subwords")
    size = max(pieces) + 1
    if size > most_rows(len(pieces)):
        raise MtkitError(f"{file}: has the id {size - 1}, but only {len(pieces)} subwords")
    return [pieces.get(i, WITHOUT_SUBWORD.format(i)) for i in range(size)]


def most_rows(subwords: int) -> int:
    """The largest number of embeddings for a vocabulary of this number of subwords."""
    return 2 * subwords + _MAX_ROWS_WITHOUT_SUBWORD


def new_vocabulary(source: MarianSource) -> NewVocabulary:
    """The tokenizers of a model, whose ids are those of mtkit; MtkitError if one is damaged.

    A SentencePiece model and the list of subwords do not agree in general: the list has the
    subwords of both sides, and language tags, and may lack subwords of the SentencePiece model.
    Subwords of the list that the model of a side does not know are found only where they are a run
    of characters that it lacks. Those that the list lacks get an id of their own, with the
    embedding of the unknown token.
    """
    sides = (source.src, source.tgt)
    pieces_of = [sentencepiece_pieces(side.model, side.file) for side in sides]
    # Subwords that text can have, and the list has not.
    lost = [
        [piece.text for piece in pieces if piece.kind in _IN_TEXT and piece.text not in listed]
        for pieces, listed in zip(pieces_of, (set(side.pieces) for side in sides), strict=True)
    ]
    if source.src.pieces == source.tgt.pieces:
        # A subword has the same id on both sides.
        lost = [list(dict.fromkeys(lost[0] + lost[1]))] * 2
    tokenizers, rows, old_ids = [], [], []
    for side, pieces, more in zip(sides, pieces_of, lost, strict=True):
        old = OldIds(
            size=len(side.pieces), pad=side.pad, eos=side.eos, unk=side.unk, start=source.start
        )
        rest = _rest(old)
        by_text, known = {piece.text: piece for piece in pieces}, side.pieces
        taken = {*known, *more}
        bos = next(name for name in ("<s>", "<start>", "<mtkit:start>") if name not in taken)
        names = [known[side.pad], bos, known[side.eos], known[side.unk]]
        names += [*(known[i] for i in rest), *more]
        listed = [_as_listed(name, i, by_text) for i, name in enumerate(names)]
        try:
            tokenizers.append(Tokenizer(with_pieces(side.model, listed, SPECIAL_IDS)))
        except (RuntimeError, ValueError) as error:
            reason = reason_of(error, most=200)
            raise MtkitError(f"{side.file}: does not fit the vocabulary: {reason}") from error
        # The source has no start; its row is not used.
        start = source.start if side is source.tgt or source.has_one_matrix else side.pad
        rows.append([side.pad, start, side.eos, side.unk, *rest, *[side.unk] * len(more)])
        old_ids.append(old)
    src, tgt = tokenizers
    if source.has_one_matrix and src.model == tgt.model:
        src = tgt
    pad_bias = float(source.tensors["final_logits_bias"][0, source.tgt.pad])
    ids = OldIdsOfSides(src=old_ids[0], tgt=old_ids[1], pad_bias=pad_bias)
    return NewVocabulary(Vocabularies(src, tgt), rows[0], rows[1], len(lost[1]), ids)


def sentencepiece_pieces(model: bytes, file: Path) -> list[Piece]:
    """The subwords of a SentencePiece model; MtkitError if it is damaged."""
    try:
        if not model:
            raise ValueError("it is empty")
        # It is loaded first, because a part of a model can look like a whole one.
        Tokenizer(model)
        return pieces_in(model)
    except (RuntimeError, ValueError) as error:
        fault = damage(file, error)
        raise MtkitError(f"{file}: no SentencePiece model, or a damaged one ({fault})") from error


def _as_listed(name: str, new_id: int, by_text: dict[str, Piece]) -> Piece:
    """A subword of the list as the SentencePiece model of one side gets it."""
    if new_id == UNK_ID:
        return Piece(name, kind="unknown")
    known = by_text.get(name, Piece(name, kind="unused"))
    is_control = new_id < UNK_ID or known.kind == "unknown" or _NOT_TEXT.fullmatch(name)
    return Piece(name, kind="control") if is_control else known
