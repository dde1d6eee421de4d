"""Measures a training: loss and speed between two rows of metrics, and the pace over minutes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mtkit.train.distributed import Workers
from mtkit.train.flops import TrainingCost

# Older updates count less for the pace: after so many seconds 1/e.
_MEMORY = 300.0


@dataclass(frozen=True)
class Pace:
    """The speed of a training over the last minutes, pauses included.

    Attributes:
        tokens_per_second: target tokens.
        seconds_per_step: of an update, with its share of validations and checkpoints.
    """

    tokens_per_second: float
    seconds_per_step: float


class Meter:
    """Loss and speed between two rows of metrics, without pauses; and the pace with them.

    Args:
        cost: of the run, which is counted on here.
        clock: gives seconds.
    """

    def __init__(
        self, cost: TrainingCost, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.first_not_finite: tuple[int, float] | None = None
        self._cost = cost
        self._clock = clock
        self._marked = clock()
        self._begun = False
        # Updates, tokens and seconds of the last minutes, the older the less.
        self._recent = (0.0, 0.0, 0.0)
        self._counted = cost.tokens
        # Of each kind of pause: number, seconds in all, and after how many updates it comes.
        self._pauses: dict[str, tuple[int, float, int]] = {}
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
        self._charge(steps=1)

    def pace(self) -> Pace:
        """The speed over the last minutes, after the first update."""
        steps, tokens, seconds = self._recent
        each = seconds / steps
        each += sum(total / count / every for count, total, every in self._pauses.values())
        return Pace(tokens / steps / each, each)

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
    def paused(self, what: str, *, every: int | None = None) -> Iterator[None]:
        """Exclude the time inside from the speed of a row.

        Args:
            what: kind of pause.
            every: after how many updates it comes again, so that the pace includes it.
        """
        began = self._clock()
        yield
        self._marked = self._clock()
        if every is not None:
            count, seconds, _ = self._pauses.get(what, (0, 0.0, every))
            self._pauses[what] = count + 1, seconds + self._marked - began, every

    def _start_row(self) -> None:
        self._losses: list[Tensor] = []
        self._alignments: list[Tensor] = []
        self._before = replace(self._cost)

    def _charge(self, *, steps: int = 0) -> None:
        now, tokens = self._clock(), self._cost.tokens - self._counted
        seconds = now - self._marked
        self._cost.seconds += seconds
        self._marked = now
        self._counted += tokens
        kept = math.exp(-seconds / _MEMORY)
        old = self._recent
        self._recent = kept * old[0] + steps, kept * old[1] + tokens, kept * old[2] + seconds
