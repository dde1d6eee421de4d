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
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mtkit.base.errors import MtkitError
from mtkit.base.sentencepiece_model import pieces_in
from mtkit.base.sentences import LineFacts
from mtkit.checkpoint import Tensors
from mtkit.config import DecodeConfig, ModelConfig
from mtkit.convert.decode_settings import given_settings
from mtkit.convert.foreign import (
    MOST_SENTENCEPIECE,
    MOST_VOCABULARY,
    MOST_YAML,
    most_rows,
    open_file,
    read_bytes,
    read_text,
    yaml_mapping,
)
from mtkit.convert.marian import (
    MarianSource,
    Subwords,
    check_tensor,
    damage,
    layer_names,
    tensor_shapes,
)
from mtkit.prepare_config import LARGEST_VOCABULARY

_SETTINGS = "special:model.yml"
# Marian adds this to the variance in its layer norms.
_NORM_EPSILON = 1e-6
# Marian has no limit of its own; it is trained with shorter sentences.
_LONGEST = 512
# The names of the settings of a training, or of a decoder, beside a model.
_DECODER, _OF_MODEL = "decoder.yml", (".decoder.yml", ".yml")
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
_MOST_COMPRESSION = 10
# Arrays in a file, and characters that say the shape of one.
_MOST_ARRAYS, _LONGEST_HEADER = 100_000, 1_000
# Of a number in YAML; more than any limit has.
_MOST_DIGITS = 9


def npz_of(source: Path) -> Path | None:
    """The `.npz` file that is meant, if this is one or a folder with one.

    Raises:
        MtkitError: if a folder has several, and no `decoder.yml` that names one.
    """
    if source.is_file():
        return source if source.suffix == ".npz" else None
    if (source / _DECODER).is_file():
        named = _yaml(source / _DECODER).get("models")
        if isinstance(named, list) and len(named) == 1 and isinstance(named[0], str):
            return source / Path(named[0]).name
    found = sorted(source.glob("*.npz"))
    if len(found) > 1:
        raise MtkitError(
            f"{source}: has {len(found)} models; give one, such as {found[0]}, as SOURCE"
        )
    return found[0] if found else None


def read_npz(file: Path, vocabularies: tuple[Path, Path] | None) -> MarianSource:
    """The model in a file of Marian.

    Args:
        file: the `.npz` file.
        vocabularies: of source and target; by default those that the files beside it name.

    Raises:
        MtkitError: if the model has settings that mtkit has not, or if a file is missing or
            damaged.
    """
    arrays = _arrays(file)
    settings = _settings(arrays, file)
    config = _model_config(settings, file)
    src, tgt = _subwords(file, vocabularies or _named_vocabularies(file))
    tensors = _tensors(arrays, config, file)
    one_matrix = "model.shared.weight" in tensors
    if one_matrix and src.pieces != tgt.pieces:
        raise MtkitError(f"{file}: has one embedding matrix, but the vocabularies are different")
    for side, stack in ((src, "encoder"), (tgt, "decoder")):
        name = "model.shared.weight" if one_matrix else f"model.{stack}.embed_tokens.weight"
        # Padding is not in a vocabulary of Marian: a last row, of zeros.
        rows = len(tensors[name]) if name in tensors else 0
        if rows != len(side.pieces) - 1 and not (one_matrix and rows == len(side.pieces)):
            raise MtkitError(
                f"{file}: has {rows} embeddings for the {len(side.pieces) - 1} subwords of "
                f"{side.file}"
            )
        if rows != len(side.pieces):
            tensors[name] = torch.nn.functional.pad(tensors[name], (0, 0, 0, 1))
    tensors["final_logits_bias"] = torch.nn.functional.pad(tensors["final_logits_bias"], (0, 1))
    wanted = tensor_shapes(config, len(src.pieces), len(tgt.pieces), one_matrix=one_matrix)
    for name, shape in wanted.items():
        check_tensor(name, tensors[name], shape, file, asked=" where the settings ask")
    return MarianSource(
        config=config,
        tensors=tensors,
        src=src,
        tgt=tgt,
        start=tgt.pad,
        longest=_LONGEST,
        src_lang="",
        tgt_lang="",
        folder=None,
        decode=_decode(file),
        lines=LineFacts(),
    )


# ---------------------------------------------------------------------------------------------
# Settings


def _yaml(file: Path) -> dict[str, Any]:
    return yaml_mapping(read_text(file, MOST_YAML), str(file))


def _settings(arrays: Mapping[str, Any], file: Path) -> dict[str, Any]:
    if _SETTINGS not in arrays:
        raise MtkitError(f"{file}: has no {_SETTINGS}, so it is not a model of Marian")
    content = np.asarray(arrays[_SETTINGS]).tobytes().rstrip(b"\0")
    return yaml_mapping(content.decode("utf-8", errors="replace"), f"{file} ({_SETTINGS})")


def _model_config(settings: dict[str, Any], file: Path) -> ModelConfig:
    for key, wanted in _WANTED.items():
        value = settings.get(key, wanted)
        if value != wanted and not (wanted == "false" and str(value).lower() in _FALSE):
            raise MtkitError(
                f"{file}: {key} is {str(value)[:100]!r}; only models with {wanted!r} can be "
                "imported"
            )
    if "n" in str(settings.get("transformer-postprocess-emb", "")):
        raise MtkitError(
            f"{file}: transformer-postprocess-emb normalises embeddings, which mtkit does not"
        )

    def number(key: str, most: int) -> int:
        value = settings.get(key)
        if (
            not isinstance(value, str)
            or not value.isdecimal()
            or not _is_at_most(most, value)
            or int(value) == 0
        ):
            raise MtkitError(
                f"{file}: {key} is {str(value)[:100]!r}, which is not a number from 1 to {most}"
            )
        return int(value)

    activation = settings.get("transformer-ffn-activation", "swish")
    if activation not in ("relu", "swish"):
        raise MtkitError(
            f"{file}: transformer-ffn-activation is {str(activation)[:100]!r}; mtkit has relu and "
            "swish"
        )
    width, heads = number("dim-emb", 2**20), number("transformer-heads", 4096)
    if width % 2 or width % heads:
        raise MtkitError(f"{file}: dim-emb {width} cannot be divided by 2 and by {heads} heads")
    inner = number("transformer-dim-ffn", 2**20)
    if settings.get("transformer-decoder-dim-ffn", "0") not in ("0", str(inner)):
        raise MtkitError(f"{file}: transformer-decoder-dim-ffn is not transformer-dim-ffn")
    return ModelConfig(
        encoder_layers=number("enc-depth", 1000),
        decoder_layers=number("dec-depth", 1000),
        d_model=width,
        d_ff=inner,
        n_heads=heads,
        activation="relu" if activation == "relu" else "silu",
        output_bias=True,
        norm_epsilon=_NORM_EPSILON,
    )


# ---------------------------------------------------------------------------------------------
# Subwords


def _named_vocabularies(file: Path) -> tuple[Path, Path]:
    """The vocabularies of source and target that a file beside the model names."""
    for place in _settings_files(file):
        if place.is_file():
            named = _yaml(place).get("vocabs")
            if isinstance(named, list) and len(named) == 2:
                src, tgt = (Path(str(one)).name for one in named)
                if not src or not tgt:
                    raise MtkitError(f"{place}: vocabs has a name that is empty")
                return file.with_name(src), file.with_name(tgt)
    found = sorted(file.parent.glob("*vocab*.yml")) or sorted(file.parent.glob("*vocab*.spm"))
    if len(found) == 1:
        return found[0], found[0]
    raise MtkitError(
        f"{file}: no {_DECODER} beside it names two vocabularies; give them as --vocabs SRC TGT"
    )


def _decode(file: Path) -> DecodeConfig:
    """The settings of translation that a file beside the model gives."""
    given: dict[str, Any] = {}
    for place in reversed(_settings_files(file)):
        given |= _yaml(place) if place.is_file() else {}
    # Marian's `normalize` is the exponent of the length.
    return given_settings(given.get("beam-size"), given.get("normalize"))


def _settings_files(file: Path) -> list[Path]:
    """The files beside a model that may have its settings, those that count most first."""
    return [file.with_name(_DECODER), *(file.with_name(f"{file.name}{end}") for end in _OF_MODEL)]


def _subwords(file: Path, vocabularies: tuple[Path, Path]) -> tuple[Subwords, Subwords]:
    names = ("source.spm", "target.spm")
    src, tgt = (
        _side(vocabulary, file.with_name(name))
        for vocabulary, name in zip(vocabularies, names, strict=True)
    )
    return src, tgt


def _side(vocabulary: Path, model: Path) -> Subwords:
    """The subwords of one side, with padding added at the end."""
    if vocabulary.suffix in _SENTENCEPIECE:
        content = read_bytes(vocabulary, MOST_SENTENCEPIECE, what="SentencePiece model")
        try:
            pieces = [piece.text for piece in pieces_in(content)]
        except (ValueError, UnicodeDecodeError) as error:
            raise MtkitError(
                f"{vocabulary}: not a SentencePiece model, or a damaged one "
                f"({damage(vocabulary, error)})"
            ) from error
        model = vocabulary
    elif vocabulary.suffix in _YAML:
        pieces = _listed(vocabulary)
        content = read_bytes(model, MOST_SENTENCEPIECE, what="SentencePiece model")
    else:
        raise MtkitError(
            f"{vocabulary}: a vocabulary of Marian ends in {' or '.join(_YAML + _SENTENCEPIECE)}"
        )
    for name in (_EOS, _UNK):
        if name not in pieces:
            raise MtkitError(f"{vocabulary}: has no subword {name}")
    pad = _PAD
    while pad in pieces:
        pad = f"<{pad}>"
    return Subwords(
        [*pieces, pad], pieces.index(_EOS), pieces.index(_UNK), len(pieces), content, model
    )


def _listed(vocabulary: Path) -> list[str]:
    """The subwords of a YAML file, by id."""
    listed, other = {}, []
    for line in read_text(vocabulary, MOST_VOCABULARY, what="vocabulary").split("\n"):
        if match := _SUBWORD.fullmatch(line):
            listed[match[1] or match[2]] = match[3]
        else:
            other.append(line)
    rest = "\n".join(other)
    if rest.strip() or not listed:
        listed |= yaml_mapping(rest, str(vocabulary))
    ids: dict[int, str] = {}
    for text, number in listed.items():
        if not isinstance(number, str) or not number.isdecimal():
            raise MtkitError(f"{vocabulary}: {text[:100]!r} has no id")
        if not _is_at_most(LARGEST_VOCABULARY - 1, number) or int(number) in ids:
            raise MtkitError(f"{vocabulary}: the id {number[:20]} is too large, or given twice")
        ids[int(number)] = text
    size = max(ids, default=-1) + 1
    if size > most_rows(len(ids)):
        raise MtkitError(f"{vocabulary}: has the id {size - 1}, but only {len(ids)} subwords")
    return [ids.get(i, f"<no subword {i}>") for i in range(size)]


def _is_at_most(most: int, digits: str) -> bool:
    """Whether a number is not larger, without reading one of thousands of digits."""
    return len(digits) <= _MOST_DIGITS and int(digits) <= most


# ---------------------------------------------------------------------------------------------
# Weights


def _arrays(file: Path) -> dict[str, Any]:
    try:
        with open_file(file) as opened, zipfile.ZipFile(opened) as archive:
            members = archive.infolist()
            if len(members) > _MOST_ARRAYS:
                raise ValueError(f"more than {_MOST_ARRAYS:,} arrays")
            if sum(one.file_size for one in members) > _MOST_COMPRESSION * file.stat().st_size:
                raise ValueError(f"arrays of more than {_MOST_COMPRESSION} times its size")
            return {one.filename.removesuffix(".npy"): _array(archive, one) for one in members}
    except MemoryError:
        raise
    except Exception as error:
        # A damaged file can raise any exception.
        raise MtkitError(
            f"{file}: not an .npz file, or a damaged one ({damage(file, error)})"
        ) from error


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    """An array of numbers, whose shape is checked before memory is reserved."""
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, is_fortran, dtype = read(stream, max_header_size=_LONGEST_HEADER)
        size = math.prod(shape) * dtype.itemsize
        if size != member.file_size - stream.tell():
            raise ValueError(f"{member.filename} has not the bytes of the shape {shape}")
        # This refuses objects, which would be pickles.
        numbers = np.frombuffer(stream.read(), dtype)
        return numbers.reshape(shape, order="F" if is_fortran else "C")


def _tensors(arrays: Mapping[str, Any], config: ModelConfig, file: Path) -> Tensors:
    """The tensors by the names of Hugging Face's class."""

    def take(name: str) -> Tensor:
        if name not in arrays:
            raise MtkitError(f"{file}: has no tensor {name}")
        array = arrays[name]
        if array.dtype.kind != "f":
            raise MtkitError(f"{file}: {name} has numbers of the type {array.dtype}")
        # What is too large for float32 becomes infinite, which is refused later.
        with np.errstate(over="ignore"):
            return torch.from_numpy(array.astype(np.float32))

    def matrix(name: str) -> Tensor:
        found = take(name)
        if found.dim() != 2:
            raise MtkitError(
                f"{file}: {name} has the shape {list(found.shape)}, which is not that of a matrix"
            )
        return found

    found: Tensors = {}
    if "Wemb" in arrays:
        found["model.shared.weight"] = matrix("Wemb")
    else:
        found["model.encoder.embed_tokens.weight"] = matrix("encoder_Wemb")
        found["model.decoder.embed_tokens.weight"] = matrix("decoder_Wemb")
    if "decoder_ff_logit_out_W" in arrays or "decoder_ff_logit_out_Wt" in arrays:
        raise MtkitError(
            f"{file}: has an output layer of its own; only models whose output layer is the "
            "embedding matrix (tied-embeddings) can be imported"
        )
    found["final_logits_bias"] = take("decoder_ff_logit_out_b").reshape(1, -1)
    letters = {"q": "q", "k": "k", "v": "v", "out": "o"}
    for layer, attentions in layer_names(config):
        stack, _, number = layer.removeprefix("model.").partition(".layers.")
        theirs = f"{stack}_l{int(number) + 1}"
        for attention in attentions:
            of = f"{theirs}_{'self' if attention == 'self_attn' else 'context'}"
            for part, letter in letters.items():
                found[f"{layer}.{attention}.{part}_proj.weight"] = matrix(f"{of}_W{letter}").T
                found[f"{layer}.{attention}.{part}_proj.bias"] = take(f"{of}_b{letter}").flatten()
            norm = f"{layer}.{attention}_layer_norm"
            found[f"{norm}.weight"] = take(f"{of}_Wo_ln_scale").flatten()
            found[f"{norm}.bias"] = take(f"{of}_Wo_ln_bias").flatten()
        for place in ("1", "2"):
            found[f"{layer}.fc{place}.weight"] = matrix(f"{theirs}_ffn_W{place}").T
            found[f"{layer}.fc{place}.bias"] = take(f"{theirs}_ffn_b{place}").flatten()
        found[f"{layer}.final_layer_norm.weight"] = take(f"{theirs}_ffn_ffn_ln_scale").flatten()
        found[f"{layer}.final_layer_norm.bias"] = take(f"{theirs}_ffn_ffn_ln_bias").flatten()
    return found
