"""Shared by all export formats: file names, subwords, matrices and lengths of a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from mtkit.base.files import json_text
from mtkit.config import Config
from mtkit.model import (
    Attention,
    CrossAttention,
)
from mtkit.tokenizer import Tokenizer, VocabularyFiles

Quantization = Literal["float32", "float16", "int8"]
ROWS_AT_A_TIME = 32
# The record of an export; a folder with this file is an export.
FACTS = "export.json"
# Marian always has a file for each side.
SENTENCEPIECE_FILES = VocabularyFiles("sentencepiece.model", "source.spm", "target.spm")


def longest_sequence(config: Config) -> int:
    """Positions that a model needs: the longest input that is not cut, and its output."""
    if config.model.positions == "learned":
        return config.model.max_positions
    return config.decode.max_source_tokens + config.decode.max_extra_length


def joined(attention: Attention, kind: str) -> Tensor:
    """The weights or biases of queries, keys and values, concatenated."""
    if isinstance(attention, CrossAttention):
        return torch.cat([getattr(p, kind) for p in (attention.q_proj, attention.kv_proj)])
    whole: Tensor = attention.in_proj.get_parameter(kind)  # type: ignore[union-attr]
    return whole


def pieces_of(tokenizer: Tokenizer) -> list[str]:
    """All subwords of a vocabulary, in the order of their ids."""
    return [tokenizer.piece(i) for i in range(len(tokenizer))]


def split_pieces(line: str, tokenizer: Tokenizer) -> list[str]:
    """The subwords of a line."""
    return [tokenizer.piece(i) for i in tokenizer.encode(line)]


def rows_by_length(sentences: Sequence[Sequence[Any]]) -> list[tuple[int, list[int]]]:
    """Groups of sentences of equal length, because the length limit is set per call."""
    rows: dict[int, list[int]] = {}
    for row, sentence in enumerate(sentences):
        rows.setdefault(len(sentence), []).append(row)
    return sorted(rows.items())


def write_json(path: Path, value: Any) -> None:
    """Write a value as readable JSON."""
    path.write_text(json_text(value, indent=2) + "\n", encoding="utf-8")
