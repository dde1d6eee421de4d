"""How a model translates by default, as the files of other software say it.

Marian, transformers and CTranslate2 divide the score of a translation of n subwords, its end
included, by ``n ** exponent``. The paper divides it by ``((5 + n) / 6) ** alpha``, which they
cannot express. So an export has two records: the nearest exponent, for the other software, and the
exact settings of mtkit, which an import reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtkit.base.files import parse_record
from mtkit.base.sentences import LineFacts
from mtkit.config import DecodeConfig, change_decoding, parse_config

# A translation of usual length, in subwords.
_USUAL_LENGTH = 25
# Where the files of a model do not say it: what transformers does, and OPUS-MT models are made for.
_IMPORTED = DecodeConfig(length_penalty=1.0, length_penalty_form="power")


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


def exported_settings(record: Mapping[str, Any], file: Path) -> DecodeConfig | None:
    """The settings in the record of an export of mtkit; None if it has none.

    Raises:
        MtkitError: naming a setting that is not possible.
    """
    found = record.get("decode")
    if not isinstance(found, dict):
        return None
    # A later version may have more settings.
    known = {key: value for key, value in found.items() if key in DecodeConfig.model_fields}
    return parse_config({"decode": known}, origin=str(file)).decode


def exported_lines(record: Mapping[str, Any], file: Path) -> LineFacts | None:
    """What the record of an export of mtkit says of the training lines; None if nothing.

    Raises:
        MtkitError: naming a value that is not possible.
    """
    found = record.get("lines")
    if not isinstance(found, dict):
        return None
    return parse_record(found, LineFacts, name=str(file), advice="export the model again")


def given_settings(beam_size: Any, length_penalty: Any) -> DecodeConfig:
    """The settings that the files of a model give; what is not a possible value is left out.

    Args:
        beam_size: such as 6, or "6".
        length_penalty: the exponent, likewise.
    """
    found: dict[str, Any] = {}
    for key, value, kind in (
        ("beam_size", beam_size, int),
        ("length_penalty", length_penalty, float),
    ):
        try:
            number = None if isinstance(value, bool) else kind(str(value)[:20])
        except ValueError:
            continue
        if number is not None and math.isfinite(number) and _is_possible(key, number):
            found[key] = number
    return change_decoding(_IMPORTED, found)


def _is_possible(key: str, number: float) -> bool:
    return 1 <= number <= 1000 if key == "beam_size" else -10 <= number <= 10
