"""The attention of the native engine, for word alignments without PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from mtkit import native
from mtkit.align import AlignmentHead, PairAttention
from mtkit.config import ModelConfig
from mtkit.tokenizer import BOS_ID

# Bytes of attention that are kept from the search until words are aligned: that of some 50,000
# translations of 20 words.
_MAX_KEPT = 100_000_000

_Ids = tuple[int, ...]
Floats = npt.NDArray[np.floating[Any]]


class NativeAttention(PairAttention):
    """The attention of one model; searches put in that of their translations.

    That of other pairs is computed when it is wanted. It has the same bits. Single heads are known
    to what `by_torch` makes.
    """

    def __init__(
        self,
        model: native.NativeModel,
        models: Sequence[ModelConfig],
        heads: Sequence[Sequence[AlignmentHead]],
        by_torch: Callable[[], PairAttention],
    ) -> None:
        super().__init__(models, heads)
        self.heads_of_models = [list(of_model) for of_model in heads]
        numbers = [(head.layer - 1, head.head - 1, head.step == "input") for head in self.heads]
        self.head_numbers = np.array(numbers, np.int32)
        self._model, self._by_torch = model, by_torch
        self._kept: dict[tuple[_Ids, _Ids], Floats] = {}
        self._bytes = 0
        self._lock = Lock()

    def put(self, source: Sequence[int], target: Sequence[int], weights: Floats) -> None:
        """Keep the weights of a pair, and forget the oldest if there are too many."""
        with self._lock:
            if (pair := (tuple(source), tuple(target))) in self._kept:
                return
            self._kept[pair] = weights
            self._bytes += weights.nbytes
            while self._bytes > _MAX_KEPT:
                self._bytes -= self._kept.pop(next(iter(self._kept))).nbytes

    def mean(self, src: list[list[int]], tgt: list[list[int]]) -> Sequence[Floats]:
        """As `PairAttention.mean`."""
        pairs = list(zip(map(tuple, src), map(tuple, tgt), strict=True))
        with self._lock:
            known = {pair: self._kept[pair] for pair in pairs if pair in self._kept}
        if missing := [pair for pair in dict.fromkeys(pairs) if pair not in known]:
            sources, targets = [[pair[side] for pair in missing] for side in (0, 1)]
            weights = self._model.attend(sources, targets, self.head_numbers, bos_id=BOS_ID)
            known |= zip(missing, weights, strict=True)
        return [known[pair] for pair in pairs]

    def by_head(self, src: list[list[int]], tgt: list[list[int]]) -> Iterator[Sequence[Floats]]:
        """As `PairAttention.by_head`."""
        return self._by_torch().by_head(src, tgt)
