"""Reads a folder of Hugging Face's `MarianMTModel`, without that library.

Every setting that changes what the model computes is read and checked; none is assumed.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
from pathlib import Path
from typing import IO, Any, Literal

import torch
from safetensors.torch import load_file
from torch import Tensor

from mtkit.base.errors import MtkitError
from mtkit.base.sentences import LineFacts
from mtkit.checkpoint import Tensors
from mtkit.config import DecodeConfig, ModelConfig
from mtkit.convert.decode_settings import exported_lines, exported_settings, given_settings
from mtkit.convert.foreign import (
    MOST_SENTENCEPIECE,
    MOST_VOCABULARY,
    most_rows,
    open_file,
    read_bytes,
    read_json,
)
from mtkit.convert.marian import (
    MarianSource,
    Subwords,
    check_tensor,
    damage,
    halves,
    setting,
    tensor_shapes,
)
from mtkit.convert.parts import FACTS
from mtkit.model import sinusoidal_positions
from mtkit.prepare_config import LARGEST_VOCABULARY

CONFIG, GENERATION = "config.json", "generation_config.json"
SAFETENSORS, PICKLED = "model.safetensors", "pytorch_model.bin"
# What an import reads besides the weights.
OTHER_FILES = (
    CONFIG,
    GENERATION,
    FACTS,
    "vocab.json",
    "target_vocab.json",
    "source.spm",
    "target.spm",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "README.md",
)
# The epsilon of PyTorch's layer norms, which no setting of this class changes.
_NORM_EPSILON = 1e-5
_ACTIVATIONS: dict[str, Literal["relu", "silu"]] = {
    "relu": "relu",
    "swish": "silu",
    "silu": "silu",
}
# The limits of the settings of `ModelConfig`, by the last word of their names here.
_LARGEST = {"layers": 1000, "model": 2**20, "dim": 2**20, "heads": 4096}
# What a file of PyTorch 1.6 or later begins with. Older ones begin with so many pickles.
_ZIP, _PICKLES = b"PK\3\4", 5
# Weights of twelve layers have a pickle of 3,400 operations.
_LONGEST_PICKLE, _MOST_OPERATIONS = 10_000_000, 300_000
# The operations that make names and tensors.
_USED_TWICE = ("GLOBAL", "BINUNICODE", "REDUCE")
# Bytes of the names and shapes in a file of safetensors.
_LONGEST_HEADER = 10**6
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# Copies of matrices that are stored once.
_COPIES = {
    "lm_head.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "model.shared.weight",
}
_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
# Stored position encodings are in half precision at least.
_CLOSE = 2e-3


def is_transformers_folder(folder: Path) -> bool:
    """Whether the folder has a model for transformers."""
    return (folder / CONFIG).is_file()


def read_transformers_folder(folder: Path) -> MarianSource:
    """The Marian model in a folder.

    Raises:
        MtkitError: if it is another kind of model, if a file is missing or damaged, or if the files
            do not fit each other.
    """
    file = folder / CONFIG
    settings = read_json(file)
    kind = settings.get("model_type")
    if kind != "marian":
        raise MtkitError(
            f"{file}: model_type is {str(kind)[:100]!r}; mtkit import reads models of the type "
            "'marian' (MarianMTModel) only"
        )
    config = _model_config(settings, file)
    words = read_json(folder / "tokenizer_config.json", required=False)
    # transformers reads it too, without limits.
    read_json(folder / "special_tokens_map.json", required=False)
    src, tgt = _subwords(folder, words, settings)
    shared = settings.get("share_encoder_decoder_embeddings", True) is not False
    sizes = _size(settings, "vocab_size", file), _size(settings, "decoder_vocab_size", file)
    if shared and (src.pieces != tgt.pieces or sizes[0] != sizes[1]):
        raise MtkitError(
            f"{file}: share_encoder_decoder_embeddings is true, but source and target have "
            "different vocabularies"
        )
    keys = ("vocab_size", "decoder_vocab_size")
    for side, size, key in zip((src, tgt), sizes, keys, strict=True):
        if not len(side.pieces) <= size <= most_rows(len(side.pieces)):
            raise MtkitError(
                f"{file}: {key} is {size}, but the vocabulary has {len(side.pieces)} subwords"
            )
        # Rows without a subword, which a matrix may have so that its size is a round number.
        side.pieces.extend(f"<no subword {i}>" for i in range(len(side.pieces), size))
    start = setting(settings, "decoder_start_token_id", int, file=file)
    if not 0 <= start < len(tgt.pieces):
        raise MtkitError(f"{file}: decoder_start_token_id is {start}, which is not a subword")
    weights, tensors = _weights(folder)
    _check_weights(tensors, config, src, tgt, shared=shared, file=weights)
    longest = setting(settings, "max_position_embeddings", int, file=file)
    record = read_json(folder / FACTS, required=False)
    return MarianSource(
        config=config,
        tensors=tensors,
        src=src,
        tgt=tgt,
        start=start,
        longest=longest,
        src_lang=_language(words.get("source_lang")),
        tgt_lang=_language(words.get("target_lang")),
        folder=folder,
        decode=exported_settings(record, folder / FACTS) or _decode(folder, settings),
        lines=exported_lines(record, folder / FACTS) or LineFacts(),
    )


def _decode(folder: Path, settings: dict[str, Any]) -> DecodeConfig:
    # Older folders have the settings of translation in config.json.
    given = settings | read_json(folder / GENERATION, required=False)
    return given_settings(given.get("num_beams"), given.get("length_penalty"))


def _language(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else ""


def _size(settings: dict[str, Any], key: str, file: Path) -> int:
    # The target has the size of the source, unless it has its own.
    value = settings.get(key)
    size: int = setting(settings, key if value is not None else "vocab_size", int, file=file)
    _check_range(size, key, LARGEST_VOCABULARY, file)
    return size


def _check_range(value: int, key: str, most: int, file: Path) -> None:
    if not 1 <= value <= most:
        raise MtkitError(f"{file}: {key} is {str(value)[:30]}, which is not between 1 and {most}")


def _model_config(settings: dict[str, Any], file: Path) -> ModelConfig:
    """The shape of the model."""
    for key, wanted in {
        "scale_embedding": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "static_position_embeddings": True,
    }.items():
        # A missing key is the library's default, which for scaling is not what models have.
        value = settings.get(key, False if key == "scale_embedding" else wanted)
        if value is not wanted:
            raise MtkitError(
                f"{file}: {key} is {str(value)[:100]}; only models with {key} "
                f"{str(wanted).lower()} can be imported"
            )

    def number(key: str) -> int:
        value: int = setting(settings, key, int, file=file)
        _check_range(value, key, _LARGEST[key.rpartition("_")[2]], file)
        return value

    def same(key: str) -> int:
        of_encoder, of_decoder = number(f"encoder_{key}"), number(f"decoder_{key}")
        if of_encoder != of_decoder:
            raise MtkitError(
                f"{file}: encoder_{key} is {of_encoder} and decoder_{key} is {of_decoder}; "
                "they must be equal"
            )
        return of_encoder

    activation = setting(settings, "activation_function", str, file=file)
    if activation not in _ACTIVATIONS:
        raise MtkitError(
            f"{file}: activation_function is {activation[:100]!r}; mtkit has "
            f"{', '.join(_ACTIVATIONS)}"
        )
    width, heads = number("d_model"), same("attention_heads")
    if width % 2 or width % heads:
        raise MtkitError(f"{file}: d_model {width} cannot be divided by 2 and by {heads} heads")
    dropout: dict[str, Any] = {}
    for key in ("dropout", "attention_dropout", "activation_dropout"):
        value = setting({key: 0.0} | settings, key, (int, float), file=file)
        if not 0 <= value < 1:
            raise MtkitError(
                f"{file}: {key} is {str(value)[:30]}, which is not a probability below 1"
            )
        dropout[key] = float(value)
    return ModelConfig(
        encoder_layers=number("encoder_layers"),
        decoder_layers=number("decoder_layers"),
        d_model=width,
        d_ff=same("ffn_dim"),
        n_heads=heads,
        activation=_ACTIVATIONS[activation],
        output_bias=True,
        norm_epsilon=_NORM_EPSILON,
        **dropout,
    )


# ---------------------------------------------------------------------------------------------
# Subwords


def _subwords(
    folder: Path, words: dict[str, Any], settings: dict[str, Any]
) -> tuple[Subwords, Subwords]:
    """The subwords of source and target."""
    lists = [folder / "vocab.json"] * 2
    if words.get("separate_vocabs") is True:
        lists[1] = folder / "target_vocab.json"
    sides = []
    for name, file in zip(("source.spm", "target.spm"), lists, strict=True):
        ids = _ids(file)
        special = {}
        for key, default in (("eos", "</s>"), ("unk", "<unk>"), ("pad", "<pad>")):
            text = words.get(f"{key}_token", default)
            text = text.get("content") if isinstance(text, dict) else text
            if not isinstance(text, str) or text not in ids:
                raise MtkitError(f"{file}: has no subword {str(text)[:100]!r}, the {key} token")
            special[key] = ids[text]
        if len({*special.values()}) < len(special):
            raise MtkitError(f"{file}: the eos, unk and pad tokens are not different")
        model = read_bytes(folder / name, MOST_SENTENCEPIECE, what="SentencePiece model")
        if not model:
            raise MtkitError(f"{folder / name}: is empty; the SentencePiece model is needed")
        pieces = [f"<no subword {i}>" for i in range(max(ids.values()) + 1)]
        for text, i in ids.items():
            pieces[i] = text
        sides.append(Subwords(pieces, **special, model=model, file=folder / name))
    for key in ("eos", "pad"):
        given = setting(settings, f"{key}_token_id", int, file=folder / CONFIG)
        if given != getattr(sides[1], key):
            raise MtkitError(
                f"{folder / CONFIG}: {key}_token_id is {given}, but the {key} token has the id "
                f"{getattr(sides[1], key)} in {lists[1].name}"
            )
    if lists[0] == lists[1]:
        # One vocabulary is one list, also where rows are added.
        sides[1].pieces[:] = sides[0].pieces
    return sides[0], sides[1]


def _ids(file: Path) -> dict[str, int]:
    found = read_json(file, MOST_VOCABULARY)
    seen: set[int] = set()
    for text, i in found.items():
        if type(i) is not int or not 0 <= i < LARGEST_VOCABULARY:
            raise MtkitError(f"{file}: {text[:100]!r} has {str(i)[:100]}, which is not an id")
        if i in seen:
            raise MtkitError(f"{file}: two subwords have the id {i}")
        seen.add(i)
    if not found:
        raise MtkitError(f"{file}: has no subwords")
    if max(seen) >= most_rows(len(seen)):
        raise MtkitError(f"{file}: has the id {max(seen)}, but only {len(seen)} subwords")
    return found


# ---------------------------------------------------------------------------------------------
# Weights


def _weights(folder: Path) -> tuple[Path, Tensors]:
    """The file with the weights, and its tensors in float32."""
    file = folder / SAFETENSORS
    if file.exists():
        try:
            # By its file descriptor, because safetensors refuses a path that is not UTF-8.
            with open_file(file) as opened:
                if int.from_bytes(opened.read(8), "little") > _LONGEST_HEADER:
                    raise ValueError(f"a header of more than {_LONGEST_HEADER:,} bytes")
                opened.seek(0)
                found = load_file(f"/dev/fd/{opened.fileno()}")
        except Exception as error:
            # A damaged file can raise any exception.
            raise MtkitError(f"{file}: damaged ({damage(file, error)})") from error
    else:
        file = folder / PICKLED
        if not file.exists():
            raise MtkitError(f"{folder}: has no weights, neither {SAFETENSORS} nor {PICKLED}")
        found = _unpickled(file)
    for name, tensor in found.items():
        if tensor.dtype not in _FLOATS:
            raise MtkitError(f"{file}: {name[:100]} has numbers of the type {tensor.dtype}")
    # Only the copies of the embedding matrix may share their numbers.
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in found.items()}
    copies = [sizes.pop(name, 0) for name in _COPIES]
    if max(copies, default=0) + sum(sizes.values()) > file.stat().st_size:
        raise MtkitError(f"{file}: damaged, or its tensors share their numbers")
    return file, {name: tensor.float() for name, tensor in found.items()}


def _unpickled(file: Path) -> Tensors:
    """The tensors of a file of PyTorch, which is a pickle."""
    try:
        with open_file(file) as opened:
            # In the format of today, storages are parts of the file and never beyond its end.
            maps = opened.read(len(_ZIP)) == _ZIP
            opened.seek(0)
            _check_pickles(opened, is_zip=maps)
            # This reads tensors and plain values only, and never executes code.
            found = torch.load(
                f"/dev/fd/{opened.fileno()}", map_location="cpu", mmap=maps, weights_only=True
            )
    except Exception as error:
        # A damaged file can raise any exception.
        raise MtkitError(
            f"{file}: damaged, or has more than weights, which is not loaded "
            f"({damage(file, error)})"
        ) from error
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in found.items()
    ):
        raise MtkitError(f"{file}: does not have weights by name")
    return dict(found)


def _check_pickles(file: IO[bytes], *, is_zip: bool) -> None:
    """Refuse pickles that are too long, or use a value twice that is neither a name nor a tensor.

    A tuple of twice the same tuple, of twice the same tuple, and so on, has few bytes, but it takes
    hours to compute its hash.

    Raises:
        ValueError: or any other exception if they are damaged.
    """
    pickles = [file] * _PICKLES
    if is_zip:
        with zipfile.ZipFile(file) as archive:
            members = [one for one in archive.infolist() if one.filename.endswith("data.pkl")]
            if any(one.file_size > _LONGEST_PICKLE for one in members):
                raise ValueError(f"a pickle of more than {_LONGEST_PICKLE:,} bytes")
            pickles = [io.BytesIO(archive.read(one)) for one in members]
    count, last = 0, ""
    for pickle in pickles:
        known = set()
        for operation, argument, _ in pickletools.genops(pickle):
            count += 1
            if count > _MOST_OPERATIONS:
                raise ValueError("a pickle that is too long")
            if "PUT" in operation.name and last in _USED_TWICE:
                known.add(argument)
            elif "PUT" in operation.name:
                known.discard(argument)
            elif "GET" in operation.name and argument not in known:
                raise ValueError("a value that is used twice")
            last = operation.name


def _check_weights(
    tensors: Tensors,
    config: ModelConfig,
    src: Subwords,
    tgt: Subwords,
    *,
    shared: bool,
    file: Path,
) -> None:
    """Check names and shapes; remove copies and position encodings."""
    tied = {"lm_head.weight": "model.decoder.embed_tokens.weight"}
    if shared:
        tied = dict.fromkeys(_COPIES - {"model.shared.weight"}, "model.shared.weight")
        # A file may have any one of the copies.
        present = sorted(_COPIES & tensors.keys(), key=lambda name: name != "model.shared.weight")
        if present:
            tensors.setdefault("model.shared.weight", tensors[present[0]])
    elif "lm_head.weight" in tensors:
        tensors.setdefault("model.decoder.embed_tokens.weight", tensors["lm_head.weight"])
    for copy, original in tied.items():
        other = tensors.pop(copy, None)
        if other is not None and not other.equal(tensors[original]):
            raise MtkitError(
                f"{file}: {copy} and {original} are different; only models whose output layer "
                "is the embedding matrix can be imported"
            )
    for name in _POSITIONS:
        stored = tensors.pop(name, None)
        if stored is not None and not _is_sinusoidal(stored, config.d_model):
            raise MtkitError(f"{file}: {name} has other positions than sines and cosines")
    wanted = tensor_shapes(config, len(src.pieces), len(tgt.pieces), one_matrix=shared)
    tensors.setdefault("final_logits_bias", torch.zeros(1, len(tgt.pieces)))
    for name, shape in wanted.items():
        if name not in tensors:
            raise MtkitError(f"{file}: has no tensor {name}")
        check_tensor(name, tensors[name], shape, file, asked=f", but {CONFIG} asks")
    if unknown := sorted(tensors.keys() - wanted.keys()):
        raise MtkitError(f"{file}: has a tensor that is not of a Marian model: {unknown[0][:100]}")


def _is_sinusoidal(stored: Tensor, width: int) -> bool:
    if stored.dim() != 2 or stored.shape[1] != width or not len(stored):
        return False
    computed = sinusoidal_positions(len(stored), width)[:, halves(width)].float()
    return bool((stored - computed).abs().max() < _CLOSE)
