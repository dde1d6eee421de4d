"""A model for tests of searches: any distribution for each prefix, and a cache of prefixes."""

import functools
import random

import torch
from torch import Tensor

BOS, EOS = 0, 1


class Prefixes:
    """A cache that holds the prefixes themselves, B by W."""

    def __init__(self, tables: list[int], width: int) -> None:
        self.tables = tables
        self.prefixes: list[list[tuple[int, ...]]] = [[()] * width for _ in tables]
        self.selected: list[list[int]] = []

    def reorder(self, parents: Tensor) -> None:
        self.prefixes = [
            [row[parent] for parent in chosen]
            for row, chosen in zip(self.prefixes, parents.tolist(), strict=True)
        ]

    def select(self, rows: Tensor) -> None:
        self.selected.append(rows.tolist())
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]
        self.tables = [self.tables[row] for row in rows.tolist()]


@functools.cache
def log_probs(table: int, prefix: tuple[int, ...], vocab: int) -> list[float]:
    """Any distribution that depends on the whole prefix, the same at every call."""
    draw = random.Random(f"{table} {prefix}")
    weights = torch.tensor([draw.gauss(0, 2) for _ in range(vocab)], dtype=torch.float64)
    weights[BOS] = -torch.inf
    return weights.log_softmax(0).tolist()


def step_of(width: int, vocab: int):
    """A step that looks distributions up by the whole prefix."""

    def step(tokens: Tensor, slots: Tensor, cache: Prefixes) -> Tensor:
        rows = []
        for token, slot in zip(tokens.tolist(), slots.tolist(), strict=True):
            sentence, w = divmod(slot, width)
            cache.prefixes[sentence][w] = (*cache.prefixes[sentence][w], token)
            rows.append(log_probs(cache.tables[sentence], cache.prefixes[sentence][w][1:], vocab))
        return torch.tensor(rows, dtype=torch.float64)

    return step


def total(table: int, tokens: tuple[int, ...], vocab: int) -> float:
    return sum(log_probs(table, tokens[:i], vocab)[token] for i, token in enumerate(tokens))
