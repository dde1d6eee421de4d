"""What every format needs: names of files, pieces, matrices and lengths of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mtkit.config import Config
from mtkit.model import (
    Attention,
    CrossAttention,
)
from mtkit.tokenizer import PAD_ID, Tokenizer, VocabularyFiles

Quantization = Literal["float32", "float16", "int8"]
ROWS_AT_A_TIME = 32
# Marian has the names of both sides always.
SENTENCEPIECE_FILES = VocabularyFiles("sentencepiece.model", "source.spm", "target.spm")


def longest_sequence(config: Config) -> int:
    """Positions that a model needs: the longest input that is not cut, and its output."""
    if config.model.positions == "learned":
        return config.model.max_positions
    return config.decode.max_source_tokens + config.decode.max_extra_length


def joined(attention: Attention, kind: str) -> Tensor:
    """The weights or biases of queries, keys and values, one below the other."""
    if isinstance(attention, CrossAttention):
        return torch.cat([getattr(p, kind) for p in (attention.q_proj, attention.kv_proj)])
    whole: Tensor = attention.in_proj.get_parameter(kind)  # type: ignore[union-attr]
    return whole


def pieces_of(tokenizer: Tokenizer) -> list[str]:
    """All pieces of a vocabulary, in the order of their ids."""
    return [tokenizer.piece(i) for i in range(len(tokenizer))]


def split_pieces(line: str, tokenizer: Tokenizer) -> list[str]:
    """The pieces of a line."""
    return [tokenizer.piece(i) for i in tokenizer.encode(line)]


def rows_by_length(sentences: Sequence[Sequence[Any]]) -> list[tuple[int, list[int]]]:
    """Sentences of one length together: how much they may grow is set for all of a call."""
    rows: dict[int, list[int]] = {}
    for row, sentence in enumerate(sentences):
        rows.setdefault(len(sentence), []).append(row)
    return sorted(rows.items())


def padded(sentences: Sequence[Sequence[int]]) -> Tensor:
    """Ids (B, T) of sentences, padded."""
    rows = [torch.tensor(ids) for ids in sentences]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD_ID)


def token_log_probs(logits: Tensor, outputs: Sequence[Sequence[int]]) -> list[Tensor]:
    """Of (B, T, V) logits the log-probability of each token that came out."""
    log_probs = logits.log_softmax(-1)
    return [log_probs[row, range(len(ids)), torch.tensor(ids)] for row, ids in enumerate(outputs)]
