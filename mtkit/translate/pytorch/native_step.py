"""The native engine under the searches in Python: for ensembles, terms, trees and other masks."""

from __future__ import annotations

import torch
from torch import Tensor

from mtkit import native
from mtkit.model import Transformer


class NativeStep:
    """The native engine in the place of `incremental.Engine`, with copies of a model's weights."""

    def __init__(self, model: Transformer, precision: native.Precision) -> None:
        self.model = model
        weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
        self._native = native.NativeModel(
            weights, model.config, model.vocab_size, model.src_vocab_size, precision=precision
        )

    def start(self, src: Tensor, beam_size: int, _: object = None) -> native.NativeDecoding:
        """As `Engine.start`."""
        lengths = (src != self.model.pad_id).sum(1).tolist()
        sentences = [ids[:length] for ids, length in zip(src.tolist(), lengths, strict=True)]
        return self._native.start(sentences, beam_size)

    def step(self, tokens: Tensor, rows: Tensor, cache: native.NativeDecoding) -> Tensor:
        """As `Engine.step`."""
        return torch.from_numpy(cache.step(tokens.numpy(), rows.numpy()))
