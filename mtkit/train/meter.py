"""Measures loss and speed of training between two rows of metrics."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from mtkit.train.distributed import Workers
from mtkit.train.flops import TrainingCost

# Seconds after which training reports that it is still running.
SILENCE = 60.0


class Meter:
    """Loss and speed between two rows of metrics; pauses do not count."""

    def __init__(self, cost: TrainingCost) -> None:
        self.first_not_finite: tuple[int, float] | None = None
        self._cost = cost
        self._marked = time.perf_counter()
        self._begun = False
        self._reported: float | None = None
        self._start_row()

    def add(self, loss: Tensor, alignment: Tensor | None = None) -> None:
        """Count one update; losses stay on their device until they are read.

        Args:
            loss: the sum over target tokens.
            alignment: (2,), the sum of the loss of guided alignment, and what it is summed over.
        """
        if not self._begun:
            # Wait for the device, because the speed of the first update is reported at once.
            loss.item()
            self._begun = True
        self._losses.append(loss)
        if alignment is not None:
            self._alignments.append(alignment)
        self._charge()

    @property
    def is_silent(self) -> bool:
        """Whether nothing was reported yet, or nothing for a minute."""
        return self._reported is None or time.perf_counter() - self._reported >= SILENCE

    def was_reported(self) -> None:
        """Record that the user has just seen the progress."""
        self._reported = time.perf_counter()

    def speed(self) -> tuple[float, float]:
        """Target tokens a second and seconds an update, since the last row."""
        seconds = self._cost.seconds - self._before.seconds
        tokens = self._cost.tokens - self._before.tokens
        return tokens / seconds, seconds / len(self._losses)

    def read(self, step: int, workers: Workers) -> dict[str, float | int]:
        """A row of metrics, from the losses of all workers; counting starts again."""
        losses = workers.sum(torch.stack(self._losses)).tolist()
        self._charge()
        self.first_not_finite = next(
            (
                (step - len(losses) + 1 + place, loss)
                for place, loss in enumerate(losses)
                if not math.isfinite(loss)
            ),
            None,
        )
        tokens = self._cost.tokens - self._before.tokens
        seconds = self._cost.seconds - self._before.seconds
        row: dict[str, float | int] = {
            "step": step,
            "loss": sum(losses) / tokens,
            "tokens_per_second": tokens / seconds,
            "seconds_per_step": seconds / len(self._losses),
            "tokens": self._cost.tokens,
            "flops": self._cost.flops,
        }
        if self._alignments:
            total, count = workers.sum(torch.stack(self._alignments).sum(0)).tolist()
            row["alignment_loss"] = total / max(count, 1)
        self._start_row()
        return row

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time inside from the speed."""
        yield
        self._marked = time.perf_counter()

    def _start_row(self) -> None:
        self._losses: list[Tensor] = []
        self._alignments: list[Tensor] = []
        self._before = replace(self._cost)

    def _charge(self) -> None:
        now = time.perf_counter()
        self._cost.seconds += now - self._marked
        self._marked = now
