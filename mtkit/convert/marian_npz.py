"""Reads models of Marian itself: an `.npz` file, and its vocabularies.

The settings of a model are YAML inside of the file. Its vocabularies are named by `decoder.yml` or
by the settings of its training, or are given. A vocabulary is YAML, with two SentencePiece models
`source.spm` and `target.spm` beside it, or is itself a SentencePiece model.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor

from mtkit.base.errors import MtkitError
from mtkit.checkpoint import Tensors
from mtkit.config import Heads, Layers, ModelConfig, Width
from mtkit.convert.export_record import given_settings
from mtkit.convert.marian import (
    MarianSource,
    Subwords,
    check_tensors,
    layer_parts,
    listed_pieces,
    sentencepiece_pieces,
)
from mtkit.convert.untrusted import (
    MAX_SENTENCEPIECE,
    MAX_VOCABULARY,
    MAX_YAML,
    damage,
    open_file,
    parse_settings,
    read_bytes,
    read_text,
    yaml_mapping,
)

_SETTINGS = "special:model.yml"
# Marian adds this to the variance in its layer norms.
_NORM_EPSILON = 1e-6
# Marian has no limit of its own; it is trained with shorter sentences.
_MAX_LENGTH = 512
# The names of the settings of a training, or of a decoder, beside a model.
_DECODER, _OF_MODEL = "decoder.yml", (".yml", ".decoder.yml")
_YAML, _SENTENCEPIECE = (".yml", ".yaml"), (".spm", ".model")
_EOS, _UNK, _PAD = "</s>", "<unk>", "<pad>"
# Settings that change the computation, with the only value that is read; those that are missing
# have it.
_WANTED = {
    "type": "transformer",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-top": "",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-train-position-embeddings": "false",
    "transformer-no-projection": "false",
    "transformer-ffn-depth": "2",
    "transformer-decoder-ffn-depth": "0",
    "transformer-pool": "false",
    "transformer-tied-layers": [],
    "right-left": "false",
    "ulr": "false",
    "lemma-dim-emb": "0",
    "factors-combine": "sum",
}
_FALSE = ("false", "no", "off", "n")
# A line of a vocabulary: a subword, in quotes or without, and its id. Lines that are written in
# another way are left to the reader of YAML, which takes fifty times as long.
_SUBWORD = re.compile(
    r"""(?:"([^"\\\x00-\x1f\x7f-\x9f\u2028\u2029]+)"
    |([^-?:,\[\]{}\#&*!|>'"%@`\s\x00-\x1f\x7f-\x9f\ufeff][^:\#\s\x00-\x1f\x7f-\x9f\ufeff]*)
    ):\ +([0-9]+)\s*""",
    re.VERBOSE,
)
# A compressed file of weights has not many times fewer bytes than they.
_MAX_COMPRESSION = 10
# Arrays in a file, and characters that say the shape of one.
_MAX_ARRAYS, _MAX_HEADER_CHARACTERS = 100_000, 1_000
# Of an id in a vocabulary; more than any limit has.
_MAX_DIGITS = 9
# Marian's names of the weight and the bias of each part of a layer in Hugging Face's class.
_ATTENTIONS = {"self_attn": "self", "encoder_attn": "context"}
_NAMES = {
    "fc1": ("ffn_W1", "ffn_b1"),
    "fc2": ("ffn_W2", "ffn_b2"),
    "final_layer_norm": ("ffn_ffn_ln_scale", "ffn_ffn_ln_bias"),
    **{
        f"{theirs}_layer_norm": (f"{own}_Wo_ln_scale", f"{own}_Wo_ln_bias")
        for theirs, own in _ATTENTIONS.items()
    },
    **{
        f"{theirs}.{part}_proj": (f"{own}_W{part[0]}", f"{own}_b{part[0]}")
        for theirs, own in _ATTENTIONS.items()
        for part in ("q", "k", "v", "out")
    },
}


class _Settings(BaseModel, alias_generator=lambda name: name.replace("_", "-")):
    """The shape of a model; numbers are texts."""

    enc_depth: Layers
    dec_depth: Layers
    dim_emb: Width
    transformer_dim_ffn: Width
    transformer_decoder_dim_ffn: int = 0
    transformer_heads: Heads
    transformer_ffn_activation: Literal["relu", "swish"] = "swish"


def npz_of(source: Path) -> Path | None:
    """The `.npz` file that is meant, this one or that of a folder; MtkitError if it has several."""
    if source.is_file():
        return source if source.suffix == ".npz" else None
    if (source / _DECODER).is_file():
        named = _yaml(source / _DECODER).get("models")
        if isinstance(named, list) and len(named) == 1 and isinstance(named[0], str):
            return source / Path(named[0]).name
    files = sorted(source.glob("*.npz"))
    if len(files) > 1:
        raise MtkitError(f"{source}: has {len(files)} models; give one, such as {files[0]}")
    return files[0] if files else None


def read_npz(file: Path, vocabularies: tuple[Path, Path] | None) -> MarianSource:
    """The model in an `.npz` file; its vocabularies are by default those that files beside it name.

    MtkitError if it has settings that mtkit has not, or a file is missing or damaged.
    """
    arrays = _arrays(file)
    config = _model_config(arrays, file)
    given = _settings_beside(file)
    named = vocabularies or _named_vocabularies(file, given.get("vocabs"))
    pairs = zip(named, ("source", "target"), strict=True)
    src, tgt = (_subwords(listed, file.with_name(f"{name}.spm")) for listed, name in pairs)
    tensors = _tensors(arrays, config, file)
    one_matrix = "model.shared.weight" in tensors
    if one_matrix and src.pieces != tgt.pieces:
        raise MtkitError(f"{file}: has one embedding matrix, but the vocabularies are different")
    for side, stack in ((src, "encoder"), (tgt, "decoder")):
        name = "model.shared.weight" if one_matrix else f"model.{stack}.embed_tokens.weight"
        # Padding is not in a vocabulary of Marian: a last row, of zeros.
        rows, count = len(tensors[name]), len(side.pieces) - 1
        if rows != count and not (one_matrix and rows == count + 1):
            raise MtkitError(
                f"{file}: has {rows} embeddings for the {count} subwords of {side.file}"
            )
        if rows == count:
            tensors[name] = torch.nn.functional.pad(tensors[name], (0, 0, 0, 1))
    tensors["final_logits_bias"] = torch.nn.functional.pad(tensors["final_logits_bias"], (0, 1))
    sizes = len(src.pieces), len(tgt.pieces)
    check_tensors(tensors, config, sizes, one_matrix=one_matrix, file=file)
    return MarianSource(
        config=config,
        tensors=tensors,
        src=src,
        tgt=tgt,
        start=tgt.pad,
        longest=_MAX_LENGTH,
        # Marian's `normalize` is the exponent of the length.
        decode=given_settings(given.get("beam-size"), given.get("normalize")),
    )


def _yaml(file: Path) -> dict[str, Any]:
    return yaml_mapping(read_text(file, MAX_YAML), str(file))


def _model_config(arrays: Mapping[str, Any], file: Path) -> ModelConfig:
    if _SETTINGS not in arrays:
        raise MtkitError(f"{file}: has no {_SETTINGS}, so it is not a model of Marian")
    text = np.asarray(arrays[_SETTINGS]).tobytes().rstrip(b"\0").decode("utf-8", errors="replace")
    content = yaml_mapping(text, f"{file} ({_SETTINGS})")
    for key, wanted in _WANTED.items():
        value = content.get(key, wanted)
        if value != wanted and not (wanted == "false" and str(value).lower() in _FALSE):
            shown = str(value)[:100]
            raise MtkitError(
                f"{file}: {key} is {shown!r}; only models with {wanted!r} can be imported"
            )
    if "n" in str(content.get("transformer-postprocess-emb", "")):
        raise MtkitError(f"{file}: transformer-postprocess-emb normalises, which mtkit does not")
    settings = parse_settings(content, _Settings, file)
    width, heads = settings.dim_emb, settings.transformer_heads
    if width % 2 or width % heads:
        raise MtkitError(f"{file}: dim-emb {width} cannot be divided by 2 and by {heads} heads")
    if settings.transformer_decoder_dim_ffn not in (0, settings.transformer_dim_ffn):
        raise MtkitError(f"{file}: transformer-decoder-dim-ffn is not transformer-dim-ffn")
    return ModelConfig(
        encoder_layers=settings.enc_depth,
        decoder_layers=settings.dec_depth,
        d_model=width,
        d_ff=settings.transformer_dim_ffn,
        n_heads=heads,
        activation="relu" if settings.transformer_ffn_activation == "relu" else "silu",
        output_bias=True,
        norm_epsilon=_NORM_EPSILON,
    )


def _settings_beside(file: Path) -> dict[str, Any]:
    """The settings in the files beside a model, of which those that count most are read last."""
    names = (*(f"{file.name}{end}" for end in _OF_MODEL), _DECODER)
    paths = [path for path in map(file.with_name, names) if path.is_file()]
    return {key: value for path in paths for key, value in _yaml(path).items()}


def _named_vocabularies(file: Path, named: Any) -> tuple[Path, Path]:
    """The vocabularies of both sides that the settings name, or that are beside the model."""
    if isinstance(named, list) and len(named) == 2:
        src, tgt = (Path(str(name)).name for name in named)
        if not src or not tgt:
            raise MtkitError(f"{file}: the vocabs beside it have a name that is empty")
        return file.with_name(src), file.with_name(tgt)
    files = sorted(file.parent.glob("*vocab*.yml")) or sorted(file.parent.glob("*vocab*.spm"))
    if len(files) == 1:
        return files[0], files[0]
    raise MtkitError(
        f"{file}: no {_DECODER} beside it names two vocabularies; give them as --vocabs SRC TGT"
    )


def _subwords(vocabulary: Path, model: Path) -> Subwords:
    """The subwords of one side, with padding added at the end."""
    if vocabulary.suffix in _SENTENCEPIECE:
        model = vocabulary
    elif vocabulary.suffix not in _YAML:
        endings = " or ".join(_YAML + _SENTENCEPIECE)
        raise MtkitError(f"{vocabulary}: a vocabulary of Marian ends in {endings}")
    content = read_bytes(model, MAX_SENTENCEPIECE, what="SentencePiece model")
    if model == vocabulary:
        pieces = [piece.text for piece in sentencepiece_pieces(content, model)]
    else:
        pieces = _listed(vocabulary)
    for name in (_EOS, _UNK):
        if name not in pieces:
            raise MtkitError(f"{vocabulary}: has no subword {name}")
    pad = _PAD
    while pad in pieces:
        pad = f"<{pad}>"
    eos, unk = pieces.index(_EOS), pieces.index(_UNK)
    return Subwords([*pieces, pad], eos, unk, pad=len(pieces), model=content, file=model)


def _listed(vocabulary: Path) -> list[str]:
    """The subwords of a YAML file, by id."""
    listed, other = {}, []
    for line in read_text(vocabulary, MAX_VOCABULARY, what="vocabulary").split("\n"):
        if match := _SUBWORD.fullmatch(line):
            listed[match[1] or match[2]] = match[3]
        else:
            other.append(line)
    is_complete = all(line.strip() in ("", "---") or line.startswith("#") for line in other)
    if not listed or not is_complete:
        listed |= yaml_mapping("\n".join(other), str(vocabulary))
    is_id = re.compile(rf"\d{{1,{_MAX_DIGITS}}}").fullmatch
    ids = {text: int(i) if is_id(str(i)) else i for text, i in listed.items()}
    return listed_pieces(ids, vocabulary)


def _arrays(file: Path) -> dict[str, Any]:
    try:
        with open_file(file) as opened, zipfile.ZipFile(opened) as archive:
            members = archive.infolist()
            if len(members) > _MAX_ARRAYS:
                raise ValueError(f"more than {_MAX_ARRAYS:,} arrays")
            if sum(member.file_size for member in members) > _MAX_COMPRESSION * file.stat().st_size:
                raise ValueError(f"arrays of more than {_MAX_COMPRESSION} times its size")
            return {m.filename.removesuffix(".npy"): _array(archive, m) for m in members}
    except MemoryError:
        raise
    except Exception as error:
        # A damaged file can raise any exception.
        fault = damage(file, error)
        raise MtkitError(f"{file}: not an .npz file, or a damaged one ({fault})") from error


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    """An array of numbers, whose shape is checked before memory is reserved."""
    with archive.open(member) as stream:
        # Longer headers have another version.
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError(f"{member.filename} has an unknown version")
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(
            stream, max_header_size=_MAX_HEADER_CHARACTERS
        )
        size = math.prod(shape) * dtype.itemsize
        if size != member.file_size - stream.tell():
            raise ValueError(f"{member.filename} has not the bytes of the shape {shape}")
        # This refuses objects, which would be pickles.
        numbers = np.frombuffer(stream.read(), dtype)
        return numbers.reshape(shape, order="F" if is_fortran else "C")


def _tensors(arrays: Mapping[str, Any], config: ModelConfig, file: Path) -> Tensors:
    """The tensors by the names of Hugging Face's class."""

    def take(name: str, *, is_matrix: bool = False) -> Tensor:
        if name not in arrays:
            raise MtkitError(f"{file}: has no tensor {name}")
        array = arrays[name]
        if array.dtype.kind != "f":
            raise MtkitError(f"{file}: {name} has dtype {array.dtype}")
        if is_matrix and array.ndim != 2:
            raise MtkitError(f"{file}: {name} has the shape {list(array.shape)} and is no matrix")
        # What is too large for float32 becomes infinite, which is refused later.
        with np.errstate(over="ignore"):
            return torch.from_numpy(array.astype(np.float32))

    names = {"model.shared": "Wemb"}
    if "Wemb" not in arrays:
        stacks = ("encoder", "decoder")
        names = {f"model.{stack}.embed_tokens": f"{stack}_Wemb" for stack in stacks}
    tensors = {f"{theirs}.weight": take(own, is_matrix=True) for theirs, own in names.items()}
    if "decoder_ff_logit_out_W" in arrays or "decoder_ff_logit_out_Wt" in arrays:
        raise MtkitError(f"{file}: has an output layer of its own; only tied-embeddings are read")
    tensors["final_logits_bias"] = take("decoder_ff_logit_out_b").reshape(1, -1)
    for name in (name for part in layer_parts(config) for name in part.theirs):
        _, stack, _, number, kind = name.split(".", 4)
        weight, bias = (f"{stack}_l{int(number) + 1}_{own}" for own in _NAMES[kind])
        is_norm = kind.endswith("norm")
        values = take(weight, is_matrix=not is_norm)
        tensors[f"{name}.weight"] = values.flatten() if is_norm else values.T
        tensors[f"{name}.bias"] = take(bias).flatten()
    return tensors
