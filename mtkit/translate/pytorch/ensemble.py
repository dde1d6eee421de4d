"""What takes the place of the engine of a model: several models as one, and the native engine."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mtkit import native
from mtkit.model import Transformer
from mtkit.translate.pytorch.incremental import Engine


class NativeStep:
    """The native engine in place of `Engine`, with a model's weights, for searches in Python."""

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


class Ensemble:
    """Models of one device and vocabulary as one engine: the mean of their probabilities."""

    def __init__(self, engines: Sequence[Engine | NativeStep]) -> None:
        self.engines = tuple(engines)

    def start(self, src: Tensor, beam_size: int, block: int = 1) -> EnsembleCache:
        """Encode `src` (B, S) with every model, as `Engine.start` does."""
        return EnsembleCache([engine.start(src, beam_size, block) for engine in self.engines])

    def step(self, tokens: Tensor, rows: Tensor, cache: EnsembleCache) -> Tensor:
        """Logarithms (R, V) of the mean probability of the token after `tokens`; see `Engine`."""
        return mean_probability(
            [
                engine.step(tokens, rows, past)
                for engine, past in zip(self.engines, cache.caches, strict=True)
            ]
        )


def mean_probability(log_probs: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean probability, from log-probabilities."""
    # By logsumexp, so that small probabilities do not become zero.
    return functools.reduce(torch.logaddexp, log_probs) - math.log(len(log_probs))


class EnsembleCache:
    """The caches of the models of an ensemble, each of its own kind, for the same hypotheses."""

    def __init__(self, caches: Sequence[Any]) -> None:
        self.caches = caches

    def reorder(self, parents: Tensor) -> None:
        """As `DecoderCache.reorder`."""
        for cache in self.caches:
            cache.reorder(parents)

    def select(self, sentences: Tensor) -> None:
        """As `DecoderCache.select`."""
        for cache in self.caches:
            cache.select(sentences)
