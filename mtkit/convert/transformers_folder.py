"""Reads a folder of Hugging Face's `MarianMTModel` or M2M-100, without that library.

Every setting that changes what the model computes is read and checked; none is assumed.
"""

from __future__ import annotations

import io
import json
import pickletools
import re
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import torch
from pydantic import BaseModel, Field
from safetensors.torch import load_file, save_file
from torch import Tensor

from mtkit.base.errors import MtkitError
from mtkit.checkpoint import Tensors
from mtkit.config import (
    DecodeConfig,
    Heads,
    Layers,
    ModelConfig,
    Probability,
    Width,
    change_decoding,
)
from mtkit.convert.export_record import RECORD, given_settings, recorded
from mtkit.convert.m2m100 import SENTENCEPIECE, SPECIAL, fairseq_positions, read_subwords
from mtkit.convert.marian import (
    MADE_UP,
    WITHOUT_SUBWORD,
    MarianSource,
    Subwords,
    check_tensors,
    halves,
    listed_pieces,
    most_rows,
)
from mtkit.convert.untrusted import (
    MAX_SENTENCEPIECE,
    MAX_VOCABULARY,
    damage,
    open_file,
    parse_settings,
    read_bytes,
    read_json,
)
from mtkit.model import sinusoidal_positions
from mtkit.prepare_config import VocabSize

CONFIG, GENERATION = "config.json", "generation_config.json"
SAFETENSORS, PICKLED = "model.safetensors", "pytorch_model.bin"
# One file, or an index of several; the first that there is.
WEIGHTS = (SAFETENSORS, f"{SAFETENSORS}.index.json", PICKLED, f"{PICKLED}.index.json")
# The files that an index names.
SHARD = re.compile(r"(model|pytorch_model)-[0-9]{5}-of-[0-9]{5}\.(safetensors|bin)")
# What an import reads besides the weights.
OTHER_FILES = (
    *(CONFIG, GENERATION, RECORD, SENTENCEPIECE, "vocab.json", "target_vocab.json", "source.spm"),
    *("target.spm", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    "README.md",
)
# The epsilon of PyTorch's layer norms, which no setting of this class changes.
_NORM_EPSILON = 1e-5
# What a file of PyTorch 1.6 or later begins with. Older ones begin with pickles.
_ZIP, _PICKLES = b"PK\3\4", 5
# Weights of twelve layers have a pickle of 3,400 operations.
_MAX_PICKLE_BYTES, _MAX_OPERATIONS = 10_000_000, 300_000
# The operations that make names and tensors.
_USED_TWICE = ("GLOBAL", "BINUNICODE", "REDUCE")
# Bytes of the names and shapes in a file of safetensors.
_MAX_HEADER_BYTES = 10**6
# An index has the names of up to some thousand tensors.
_MAX_INDEX = 10**6
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# Copies of matrices that are stored once.
_COPIES = (
    "lm_head.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "model.shared.weight",
)
_POSITIONS = [
    f"model.{stack}.embed_positions.{name}"
    for stack in ("encoder", "decoder")
    for name in ("weight", "weights")
]
# What training with several GPUs puts before the names of tensors.
_PREFIX = "module."
# Stored position encodings are in half precision at least.
_CLOSE = 2e-3
# Settings of `generate`, and those of mtkit with what they count more: the start token is a part of
# the length. Of two for one length, the second wins.
_TAKEN = {
    "no_repeat_ngram_size": ("no_repeat_ngram", 0),
    "min_length": ("min_length", 1),
    "min_new_tokens": ("min_length", 0),
    "max_length": ("max_length", 1),
    "max_new_tokens": ("max_length", 0),
}
# Every OPUS-MT model has this `max_length`, which only very long lines reach, and M2M-100 and
# NLLB-200 have the other.
_USUAL_MAX_LENGTH, _USUAL_MAX_LENGTH_OF_M2M100 = 512, 200
# Other models that translate, as users call them.
_OTHERS = {
    "mbart": "mBART",
    "mt5": "mT5",
    "nllb-moe": "NLLB-200, a mixture of experts",
    "t5": "T5 or MADLAD-400",
    "umt5": "UMT5",
}
# Settings of `generate` in transformers 5 that change translations and that mtkit does not have: by
# the value with which they change nothing.
_LACKING: dict[Any, str] = {
    None: "begin_suppress_tokens constraints dola_layers exponential_decay_length_penalty "
    "force_words_ids forced_bos_token_id forced_decoder_ids max_time sequence_bias stop_strings "
    "suppress_tokens watermarking_config",
    0: "diversity_penalty encoder_no_repeat_ngram_size epsilon_cutoff eta_cutoff min_p "
    "penalty_alpha top_h",
    1: "encoder_repetition_penalty guidance_scale num_beam_groups num_return_sequences "
    "repetition_penalty typical_p",
    # The search of mtkit always ends in this way, and that of transformers nearly.
    "never": "early_stopping",
}
# Characters of a value in a message.
_MAX_SHOWN = 100


class _Shape(BaseModel, strict=True, allow_inf_nan=False):
    """What `config.json` says of the computation; other keys have no effect on it."""

    encoder_layers: Layers
    decoder_layers: Layers
    encoder_attention_heads: Heads
    decoder_attention_heads: Heads
    encoder_ffn_dim: Width
    decoder_ffn_dim: Width
    d_model: Width
    activation_function: Literal["relu", "swish", "silu"]
    dropout: Probability = 0.0
    attention_dropout: Probability = 0.0
    activation_dropout: Probability = 0.0
    vocab_size: VocabSize
    eos_token_id: int | list[int]
    pad_token_id: int
    decoder_start_token_id: int
    max_position_embeddings: int


class _Settings(_Shape):
    """Those of Marian."""

    # If this is missing, it is false for transformers.
    scale_embedding: Literal[True]
    normalize_before: Literal[False] = False
    normalize_embedding: Literal[False] = False
    add_final_layer_norm: Literal[False] = False
    static_position_embeddings: Literal[True] = True
    share_encoder_decoder_embeddings: bool = True
    decoder_vocab_size: VocabSize | None = None


class _M2M100Settings(_Shape):
    """Those of M2M-100 and NLLB-200."""

    activation_function: Literal["relu"] = "relu"
    scale_embedding: Literal[True] = True
    tie_word_embeddings: Literal[True] = True
    eos_token_id: Literal[2]
    pad_token_id: Literal[1]
    decoder_start_token_id: Literal[2]
    # The table of positions is as long.
    max_position_embeddings: Annotated[int, Field(ge=1, le=2**16)] = 1024


def is_transformers_folder(folder: Path) -> bool:
    """Whether the folder has a model for transformers."""
    return (folder / CONFIG).is_file()


def read_transformers_folder(folder: Path) -> MarianSource:
    """The model in a folder: one of Marian, or M2M-100 or NLLB-200.

    MtkitError if it is of another kind, or a file is missing, damaged or does not fit the others.
    """
    file = folder / CONFIG
    content = read_json(file)
    kind = content.get("model_type")
    is_m2m100 = kind == "m2m_100"
    if kind != "marian" and not is_m2m100:
        name = f" ({_OTHERS[kind]})" if isinstance(kind, str) and kind in _OTHERS else ""
        raise MtkitError(
            f"{file}: model_type is {str(kind)[:100]!r}{name}; mtkit import reads models of the "
            "types 'marian' (MarianMTModel) and 'm2m_100' (M2M-100, NLLB-200) only"
        )
    if is_m2m100:
        content = SPECIAL | content
    # What it says of the search wins over config.json, where older models have all of it.
    generation = read_json(folder / GENERATION, required=False)
    given = content | {key: value for key, value in generation.items() if value is not None}
    ids = {key: given[key] for key in ("eos_token_id", "decoder_start_token_id") if key in given}
    shape = given | content | ids
    kind_of_settings = _M2M100Settings if is_m2m100 else _Settings
    others = [key for key, value in shape.items() if value != content.get(key)]
    files = dict.fromkeys(others, folder / GENERATION)
    settings = parse_settings(shape, kind_of_settings, file, files=files)
    config = _model_config(settings, file)
    words = read_json(folder / "tokenizer_config.json", required=False)
    # transformers reads it too, without limits.
    read_json(folder / "special_tokens_map.json", required=False)
    sizes, shared = (settings.vocab_size, settings.vocab_size), True
    if isinstance(settings, _Settings):
        src, tgt = _subwords(folder, words, settings)
        shared = settings.share_encoder_decoder_embeddings
        sizes = settings.vocab_size, settings.decoder_vocab_size or settings.vocab_size
    else:
        src = tgt = read_subwords(folder, words, settings.vocab_size)
        # Each translation is given its language.
        given.pop("forced_bos_token_id", None)
    if shared and (src.pieces != tgt.pieces or sizes[0] != sizes[1]):
        raise MtkitError(
            f"{file}: share_encoder_decoder_embeddings is true, but the vocabularies are different"
        )
    keys = ("vocab_size", "decoder_vocab_size")
    name = MADE_UP if is_m2m100 else WITHOUT_SUBWORD
    for side, size, key in zip((src, tgt), sizes, keys, strict=True):
        if not len(side.pieces) <= size <= most_rows(len(side.pieces)):
            raise MtkitError(
                f"{file}: {key} is {size}, but the vocabulary has {len(side.pieces)} subwords"
            )
        # A matrix may have more rows, so that their number is a round one.
        side.pieces.extend(name.format(i) for i in range(len(side.pieces), size))
    start = settings.decoder_start_token_id
    if not 0 <= start < len(tgt.pieces):
        raise MtkitError(f"{folder}: decoder_start_token_id is {start}, which is not a subword")
    weights, tensors, has_prefixes = _weights(folder)
    _remove_copies(tensors, config, shared=shared, file=weights)
    tensors.setdefault("final_logits_bias", torch.zeros(1, len(tgt.pieces)))
    check_tensors(tensors, config, sizes, one_matrix=shared, file=weights)
    decode_of_record, lines = recorded(folder)
    longest = settings.max_position_embeddings
    usual = _USUAL_MAX_LENGTH_OF_M2M100 if is_m2m100 else _USUAL_MAX_LENGTH
    decode, lacking = _decoding(given, tgt, longest, usual)
    return MarianSource(
        config=config,
        tensors=tensors,
        src=src,
        tgt=tgt,
        start=start,
        longest=longest,
        positions=fairseq_positions(longest, config.d_model) if is_m2m100 else None,
        has_prefixes=has_prefixes,
        decode=decode_of_record or decode,
        lacking=lacking,
        folder=folder,
        src_lang=_language(words.get("source_lang")),
        tgt_lang=_language(words.get("target_lang")),
        lines=lines,
    )


def _decoding(
    given: dict[str, Any], tgt: Subwords, longest: int, usual: int
) -> tuple[DecodeConfig, list[str]]:
    """The settings of search that mtkit has, and in words the others."""
    decode = given_settings(given.get("num_beams"), given.get("length_penalty"))
    # Values that need no word.
    same: dict[str, Any]
    same = {key: (value, False) for value, keys in _LACKING.items() for key in keys.split()}
    same |= dict.fromkeys(("eos_token_id", "forced_eos_token_id"), (tgt.eos, [tgt.eos]))
    same |= {"pad_token_id": (tgt.pad,), "bad_words_ids": ([[tgt.pad]],), "do_sample": (False,)}
    same |= {"num_beams": (decode.beam_size,), "length_penalty": (decode.length_penalty,)}
    for key, (setting, more) in _TAKEN.items():
        if (value := given.get(key)) is not None:
            same[key] = ()
            with suppress(TypeError, MtkitError):
                new = min(value - more, longest) if value else value
                decode, same[key] = change_decoding(decode, {setting: new}), (value,)
    if decode.max_length and decode.max_length + 1 >= min(longest, usual):
        decode = decode.model_copy(update={"max_length": None})
    if given.get("do_sample") is True and given.get("num_beams") in (None, 1):
        # With `top_k` as it is by default.
        sampling: dict[str, Any] = {"sample": True, "top_k": 50}
        sampling |= {key: given[key] for key in ("temperature", "top_k", "top_p") if key in given}
        with suppress(MtkitError):
            decode = change_decoding(decode, sampling)
            same["do_sample"] = (True,)
    return decode, [
        f"{key} {json.dumps(given[key])[:_MAX_SHOWN]}"
        for key, values in same.items()
        if given.get(key) not in (None, [], {}, *values)
    ]


def _language(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else ""


def _model_config(settings: _Shape, file: Path) -> ModelConfig:
    more: dict[str, Any] = settings.model_dump(include=ModelConfig.model_fields.keys())
    is_m2m100 = isinstance(settings, _M2M100Settings)
    if is_m2m100:
        # Of the sines and cosines that `fairseq_positions` computes.
        more |= {"positions": "learned", "max_positions": settings.max_position_embeddings}
        more["norm"] = "pre"
    for key in ("attention_heads", "ffn_dim"):
        of_encoder, of_decoder = (getattr(settings, f"{s}_{key}") for s in ("encoder", "decoder"))
        if of_encoder != of_decoder:
            both = f"encoder_{key} is {of_encoder} and decoder_{key} is {of_decoder}"
            raise MtkitError(f"{file}: {both}; they must be equal")
    width, heads = settings.d_model, settings.encoder_attention_heads
    if width % 2 or width % heads or (is_m2m100 and width < 4):
        raise MtkitError(f"{file}: d_model {width} cannot be divided by 2 and by {heads} heads")
    return ModelConfig(
        d_ff=settings.encoder_ffn_dim,
        n_heads=heads,
        activation="relu" if settings.activation_function == "relu" else "silu",
        output_bias=True,
        norm_epsilon=_NORM_EPSILON,
        **more,
    )


def _subwords(
    folder: Path, words: dict[str, Any], settings: _Settings
) -> tuple[Subwords, Subwords]:
    tgt_list = "target_vocab.json" if words.get("separate_vocabs") is True else "vocab.json"
    sides = []
    for model, name in (("source.spm", "vocab.json"), ("target.spm", tgt_list)):
        file = folder / name
        pieces = listed_pieces(read_json(file, MAX_VOCABULARY), file)
        special = {}
        for key, default in (("eos", "</s>"), ("unk", "<unk>"), ("pad", "<pad>")):
            text = words.get(f"{key}_token", default)
            text = text.get("content") if isinstance(text, dict) else text
            if text not in pieces:
                raise MtkitError(f"{file}: has no subword {str(text)[:100]!r}, the {key} token")
            special[key] = pieces.index(text)
        if len({*special.values()}) < len(special):
            raise MtkitError(f"{file}: the eos, unk and pad tokens are not different")
        content = read_bytes(folder / model, MAX_SENTENCEPIECE, what="SentencePiece model")
        sides.append(Subwords(pieces, **special, model=content, file=folder / model))
    for key, given in (("eos", settings.eos_token_id), ("pad", settings.pad_token_id)):
        token = getattr(sides[1], key)
        if token not in (given if isinstance(given, list) else [given]):
            wrong = f"{key}_token_id is {given}, but the {key} token has the id {token}"
            raise MtkitError(f"{folder}: {wrong} in {tgt_list}")
    return sides[0], sides[1]


def _weights(folder: Path) -> tuple[Path, Tensors, bool]:
    """The file with the weights or its index, the tensors in float32, and `has_prefixes`."""
    first, *shards = weight_files(folder)
    tensors: Tensors = {}
    has_prefixes = False
    for file in shards or [first]:
        for given, tensor in _weights_in(file).items():
            has_prefixes |= given.startswith(_PREFIX)
            if (name := given.removeprefix(_PREFIX)) in tensors:
                raise MtkitError(f"{file}: has a second tensor {name[:100]}")
            tensors[name] = tensor
    return first, tensors, has_prefixes


def weight_files(folder: Path) -> list[Path]:
    """The file with the weights, or an index and its files; MtkitError if there is none."""
    first = next((folder / name for name in WEIGHTS if (folder / name).exists()), None)
    if first is None:
        raise MtkitError(
            f"{folder}: has no weights, neither {SAFETENSORS} nor {PICKLED} nor an index"
        )
    if first.suffix != ".json":
        return [first]
    names = read_json(first, _MAX_INDEX).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise MtkitError(f"{first}: has no weight_map with the files of tensors")
    for name in names.values():
        if not isinstance(name, str) or not SHARD.fullmatch(name):
            raise MtkitError(f"{first}: names the file {str(name)[:100]!r}, which is no shard")
    return [first, *(folder / name for name in sorted({*names.values()}))]


def link_known_files(source: MarianSource, folder: Path, place: Path) -> None:
    """Link the files of a model, as far as they are known, from another folder.

    Other files could change what transformers loads. It does not know tensors with a prefix either,
    so these are written again.
    """
    for file in (*weight_files(folder), *(folder / name for name in OTHER_FILES)):
        if file.exists():
            (place / file.name).symlink_to(file.resolve())
    if source.has_prefixes:
        # It prefers this file.
        (place / SAFETENSORS).unlink(missing_ok=True)
        save_file(source.tensors, place / SAFETENSORS, metadata={"format": "pt"})


def _weights_in(file: Path) -> Tensors:
    """The tensors of a file in float32."""
    if file.suffix == ".safetensors":
        try:
            # By its file descriptor, because safetensors refuses a path that is not UTF-8.
            with open_file(file) as opened:
                if int.from_bytes(opened.read(8), "little") > _MAX_HEADER_BYTES:
                    raise ValueError(f"a header of more than {_MAX_HEADER_BYTES:,} bytes")
                opened.seek(0)
                tensors = load_file(f"/dev/fd/{opened.fileno()}")
        except Exception as error:
            # A damaged file can raise any exception.
            raise MtkitError(f"{file}: damaged ({damage(file, error)})") from error
    else:
        tensors = _unpickled(file)
    for name, tensor in tensors.items():
        if tensor.dtype not in _FLOATS:
            raise MtkitError(f"{file}: {name[:100]} has dtype {tensor.dtype}")
    # Only the copies of the embedding matrix may share their numbers.
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in tensors.items()}
    copies = [sizes.pop(prefix + name, 0) for name in _COPIES for prefix in ("", _PREFIX)]
    if max(copies, default=0) + sum(sizes.values()) > file.stat().st_size:
        raise MtkitError(f"{file}: damaged, or its tensors share their numbers")
    return {name: tensor.float() for name, tensor in tensors.items()}


def _unpickled(file: Path) -> Tensors:
    try:
        with open_file(file) as opened:
            # In the format of today, storages are parts of the file and never beyond its end.
            maps = opened.read(len(_ZIP)) == _ZIP
            opened.seek(0)
            _check_pickles(opened, is_zip=maps)
            # This reads tensors and plain values only, and never executes code.
            tensors = torch.load(
                f"/dev/fd/{opened.fileno()}", map_location="cpu", mmap=maps, weights_only=True
            )
    except Exception as error:
        # A damaged file can raise any exception.
        fault = damage(file, error)
        raise MtkitError(f"{file}: damaged, or has more than weights ({fault})") from error
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in tensors.items()
    ):
        raise MtkitError(f"{file}: does not have weights by name")
    return dict(tensors)


def _check_pickles(file: IO[bytes], *, is_zip: bool) -> None:
    """Refuse long pickles, and those that use a value twice that is neither name nor tensor."""
    pickles = [file] * _PICKLES
    if is_zip:
        with zipfile.ZipFile(file) as archive:
            members = [m for m in archive.infolist() if m.filename.endswith("data.pkl")]
            if any(member.file_size > _MAX_PICKLE_BYTES for member in members):
                raise ValueError(f"a pickle of more than {_MAX_PICKLE_BYTES:,} bytes")
            pickles = [io.BytesIO(archive.read(member)) for member in members]
    count, last = 0, ""
    for pickle in pickles:
        known = set()
        for operation, argument, _ in pickletools.genops(pickle):
            count += 1
            if count > _MAX_OPERATIONS:
                raise ValueError("a pickle that is too long")
            if "PUT" in operation.name and last in _USED_TWICE:
                known.add(argument)
            elif "PUT" in operation.name:
                known.discard(argument)
            elif "GET" in operation.name and argument not in known:
                # Nested tuples of twice the same one have few bytes, and are hashed for hours.
                raise ValueError("a value that is used twice")
            last = operation.name


def _remove_copies(tensors: Tensors, config: ModelConfig, *, shared: bool, file: Path) -> None:
    """Remove copies of matrices, and position encodings, which are computed here."""
    tied = {"lm_head.weight": "model.decoder.embed_tokens.weight"}
    if shared:
        tied = dict.fromkeys(_COPIES[:-1], _COPIES[-1])
    for copy, original in tied.items():
        # A file may have any one of the copies.
        other = tensors.pop(copy, None)
        if other is not None and not other.equal(tensors.setdefault(original, other)):
            raise MtkitError(f"{file}: {copy} and {original} are different, but must be the same")
    for name in _POSITIONS:
        stored = tensors.pop(name, None)
        if stored is not None and not _is_sinusoidal(stored, config):
            raise MtkitError(f"{file}: {name} has other positions than sines and cosines")


def _is_sinusoidal(stored: Tensor, config: ModelConfig) -> bool:
    is_table, width = config.positions == "learned", config.d_model
    # The rows before the first position are not used.
    first = 2 if is_table else 0
    if stored.dim() != 2 or stored.shape[1] != width or len(stored) <= first:
        return False
    count = len(stored) - first
    if is_table:
        computed = fairseq_positions(count, width)
    else:
        computed = sinusoidal_positions(count, width)[:, halves(width)].float()
    return bool((stored[first:] - computed).abs().max() < _CLOSE)
