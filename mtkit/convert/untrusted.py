"""Reads files of other software, which may be damaged, or made to do harm.

Each has a limit on its size and depth, so that none takes much memory or time. A file that is
refused is named in one line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from mtkit.base.errors import MtkitError, reason_of
from mtkit.base.models import explain
from mtkit.base.yaml import NotYamlError, parse_yaml

# Bytes: settings have some thousands, a vocabulary or a SentencePiece model of 64,000 subwords has
# 1.6 million. A second is enough to read YAML of the size that is allowed, and 200 MB of memory for
# a SentencePiece model, whose subwords may be empty.
MAX_YAML, MAX_JSON = 50_000, 500_000
MAX_VOCABULARY, MAX_SENTENCEPIECE = 10_000_000, 3_000_000
# That of NLLB-200, with 256,000 subwords, has 4.85 million, and needs 330 MB of memory at most.
MAX_LARGE_SENTENCEPIECE = 5_000_000
# Objects and lists within each other.
_MAX_DEPTH = 20
# What a file begins with that git-lfs has not downloaded.
_POINTER = b"version https://git-lfs"

SettingsT = TypeVar("SettingsT", bound=BaseModel)


def open_file(path: Path) -> Any:
    """A regular file, opened to read bytes; another kind, an OSError, could have no end."""
    if path.exists() and not path.is_file():
        raise OSError(0, "is not a file")
    return path.open("rb")


def read_bytes(path: Path, most: int, *, what: str = "file") -> bytes:
    """The content of a file of at most `most` bytes; MtkitError if it has more, or is not there."""
    try:
        with open_file(path) as file:
            content: bytes = file.read(most + 1)
    except (OSError, ValueError) as error:  # or an impossible name
        reason = getattr(error, "strerror", None) or error
        raise MtkitError(f"{path}: {reason}; the {what} is needed") from error
    if len(content) > most:
        raise MtkitError(f"{path}: has more than {most:,} bytes, which is too much for a {what}")
    return content


def read_text(path: Path, most: int, *, what: str = "file") -> str:
    """The text of a file; arguments and errors as for `read_bytes`."""
    try:
        return read_bytes(path, most, what=what).decode("utf-8")
    except UnicodeDecodeError as error:
        raise MtkitError(f"{path}: not UTF-8 ({reason_of(error, most=200)})") from error


def read_json(path: Path, most: int = MAX_JSON, *, required: bool = True) -> dict[str, Any]:
    """The object in a JSON file, not too deep (MtkitError); empty if it may be missing and is."""
    if not required and not path.exists():
        return {}
    try:
        value = json.loads(read_text(path, most))
    except (ValueError, RecursionError) as error:
        raise MtkitError(f"{path}: not JSON, or damaged ({reason_of(error, most=200)})") from error
    if not isinstance(value, dict):
        raise MtkitError(f"{path}: not a JSON object")
    if not _is_at_most(_MAX_DEPTH, value):
        raise MtkitError(f"{path}: has more than {_MAX_DEPTH} levels of brackets")
    return value


def _is_at_most(levels: int, value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_at_most(levels - 1, part) for part in parts)


def yaml_mapping(text: str, name: str) -> dict[str, Any]:
    """The mapping of words in at most `MAX_YAML` characters; MtkitError if it is something else."""
    if len(text) > MAX_YAML:
        raise MtkitError(f"{name}: has more than {MAX_YAML:,} characters of YAML, too many")
    try:
        content = parse_yaml(text, words=True)
    except NotYamlError as error:
        raise MtkitError(f"{name}: not YAML, or damaged ({reason_of(error, most=200)})") from error
    if not isinstance(content, dict):
        raise MtkitError(f"{name}: has no settings or subwords by name")
    return content


def parse_settings(
    settings: dict[str, Any],
    kind: type[SettingsT],
    file: Path | str,
    *,
    files: Mapping[str, Path] = {},
) -> SettingsT:
    """The settings in a file, some in other `files`; an MtkitError names the first wrong key."""
    try:
        return kind.model_validate(settings)
    except ValidationError as error:
        first = error.errors()[0]
        problem = explain(error)
        if first["type"] == "missing":
            problem = f"{first['loc'][0]} is missing"
        file = files.get(str(first["loc"][0]), file)
        raise MtkitError(f"{file}: {problem}; such a model cannot be imported") from None


def damage(file: Path, error: Exception) -> str:
    """Why a file cannot be read, for a message."""
    with suppress(OSError), open_file(file) as opened:
        if opened.read(len(_POINTER)) == _POINTER:
            return "a pointer of git-lfs; git lfs pull downloads the file"
    return reason_of(error, most=200)
