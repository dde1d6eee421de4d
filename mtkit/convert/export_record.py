"""The record in an exported folder: where it comes from, and its settings of search.

Marian, transformers and CTranslate2 divide the score of a translation of n subwords, its end
included, by ``n ** exponent``. The paper divides it by ``((5 + n) / 6) ** alpha``, which they
cannot express. So an export has both: the nearest exponent in the files of the other software, and
the exact settings of mtkit in its record, which an import reads.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from mtkit.base.errors import MtkitError
from mtkit.base.files import EXPORT, NewerFormatError, parse_record
from mtkit.base.sentences import LineFacts
from mtkit.config import Config, DecodeConfig, change_decoding, parse_config
from mtkit.convert.untrusted import read_json
from mtkit.tokenizer import VocabularyFiles

Format = Literal["ctranslate2", "huggingface", "onnx", "argos", "safetensors"]
Quantization = Literal["float32", "float16", "int8"]

# A folder with this file is an export.
RECORD = EXPORT
# Marian always has a file for each side.
SENTENCEPIECE_FILES = VocabularyFiles("sentencepiece.model", "source.spm", "target.spm")
# A translation of usual length, in subwords.
_USUAL_LENGTH = 25


@dataclass(frozen=True)
class ExportRecord:
    """The record of an export, in this order; `steps` are those of the averaged checkpoints.

    `data` has name and languages of the corpus; for an application, the languages of the export.
    `decode` and `lines` are what `mtkit import` reads back of search and training lines.
    """

    format: Format
    quantization: Quantization
    run: str
    checkpoint: str
    steps: list[int]
    data: dict[str, str]
    versions: dict[str, str]
    decode: dict[str, Any]
    lines: dict[str, Any] | None


def is_export(folder: Path) -> bool:
    """Whether a folder has a record of an export, which other programs' files lack."""
    with suppress(MtkitError):
        names = {field.name for field in fields(ExportRecord)} - {"lines", "decode"}
        return names <= read_json(folder / RECORD, required=False).keys()
    return False


def recorded(folder: Path) -> tuple[DecodeConfig | None, LineFacts]:
    """What the record in a folder says of search and of the training lines; nothing without one.

    MtkitError if a value is not possible, or `record_format` is above 1: a newer version.
    """
    file = folder / RECORD
    record = read_json(file, required=False)
    version = record.get("record_format", 1)
    if isinstance(version, int) and version > 1:
        raise NewerFormatError(file, version, 1)
    settings, facts = record.get("decode"), record.get("lines")
    decode, lines = None, LineFacts()
    if isinstance(settings, dict):
        # A later version may have more settings.
        known = {key: value for key, value in settings.items() if key in DecodeConfig.model_fields}
        decode = parse_config({"decode": known}, origin=str(file)).decode
    if isinstance(facts, dict):
        lines = parse_record(facts, LineFacts, name=str(file), advice="export the model again")
    return decode, lines


def given_settings(beam_size: Any, length_penalty: Any) -> DecodeConfig:
    """The settings in the files of a model, as numbers or texts; impossible values are left out."""
    # By default what transformers does, and OPUS-MT models are made for.
    decode = DecodeConfig(length_penalty=1.0, length_penalty_form="power")
    with suppress(ValueError, MtkitError):
        decode = change_decoding(decode, {"beam_size": int(str(beam_size)[:20])})
    with suppress(ValueError, MtkitError):
        decode = change_decoding(decode, {"length_penalty": float(str(length_penalty)[:20])})
    return decode


def plain_greedy(decode: DecodeConfig) -> DecodeConfig:
    """Greedy search in float32 without restrictions, which every software has."""
    free = {"no_repeat_ngram": 0, "min_length": 0, "max_length": None}
    return decode.greedy().model_copy(update={"precision": "fp32", **free})


def power_penalty(decode: DecodeConfig) -> float:
    """The exponent that is nearest to the length penalty of a run.

    Of the paper's form, it is the one that rises as fast at a translation of usual length.
    """
    if decode.length_penalty_form == "power":
        return decode.length_penalty
    return round(decode.length_penalty * _USUAL_LENGTH / (_USUAL_LENGTH + 5), 4)


def longest_sequence(config: Config) -> int:
    """Positions that a model needs: the longest input that is not cut, and its output."""
    if config.model.positions == "learned":
        return config.model.max_positions
    return config.decode.max_source_tokens + config.decode.max_extra_length


def longest_source(config: Config) -> int:
    """The most tokens of an input that is not cut."""
    return min(config.decode.max_source_tokens, longest_sequence(config))
