"""Measures the loss and the speed of a training, and shows its progress on a terminal."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from mtkit.base.launched import given_world_size
from mtkit.run_folder import Run
from mtkit.train.checkpoints import CONTINUE, TrainingCost
from mtkit.train.distributed import Workers
from mtkit.train.launcher import is_launched
from mtkit.train.schedule import Schedule

log = logging.getLogger(__name__)

# Older updates count less for the pace: after this number of seconds 1/e.
_MEMORY = 300.0
# Seconds after which training reports that it is still running, and renews the text of the bar.
SILENCE = 60.0
_RENEWAL = 5.0


class Pace(NamedTuple):
    """The speed of a training over the last minutes, pauses for validations etc. included."""

    tokens_per_second: float
    seconds_per_step: float


class Meter:
    """Loss and speed between two rows of metrics, without pauses; and the pace with them.

    The seconds of `cost`, the cost of the run, are counted here.
    """

    def __init__(
        self, cost: TrainingCost, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.first_not_finite: tuple[int, float] | None = None
        self._cost, self._clock = cost, clock
        self._marked = clock()
        self._begun = False
        # Updates, tokens and seconds of the last minutes, the older the less.
        self._recent = (0.0, 0.0, 0.0)
        self._counted = cost.tokens
        # Of each kind of pause: number, seconds in all, and after how many updates it comes.
        self._pauses: dict[str, tuple[int, float, int]] = {}
        self._start_row()

    def add(self, loss: Tensor, alignment: Tensor | None = None) -> None:
        """Count one update, with its `Losses`, which stay on their device until they are read."""
        if not self._begun:
            # Wait for the device, because the speed of the first update is reported at once.
            loss.item()
            self._begun = True
        self._losses.append(loss)
        if alignment is not None:
            self._alignments.append(alignment)
        self._accumulate_time(steps=1)

    def pace(self) -> Pace:
        """The speed over the last minutes, after the first update."""
        steps, tokens, seconds = self._recent
        each = seconds / steps
        each += sum(total / count / every for count, total, every in self._pauses.values())
        return Pace(tokens / steps / each, each)

    def read(self, step: int, workers: Workers) -> dict[str, float | int]:
        """A row of metrics, from the losses of all workers; counting starts again."""
        losses = workers.sum(torch.stack(self._losses)).tolist()
        self._accumulate_time()
        numbered = enumerate(losses, step - len(losses) + 1)
        self.first_not_finite = next((row for row in numbered if not math.isfinite(row[1])), None)
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

        The pace includes a kind of pause that comes again after `every` so many updates.
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
        self._before = self._cost.model_copy()

    def _accumulate_time(self, *, steps: int = 0) -> None:
        now, tokens = self._clock(), self._cost.tokens - self._counted
        seconds = now - self._marked
        self._cost.seconds += seconds
        self._marked = now
        self._counted += tokens
        kept = math.exp(-seconds / _MEMORY)
        old = self._recent
        self._recent = kept * old[0] + steps, kept * old[1] + tokens, kept * old[2] + seconds


@dataclass(eq=False)
class TrainingProgress(AbstractContextManager["TrainingProgress"]):
    """A line for each row of metrics, and below them a progress bar on a terminal.

    Attributes:
        done: the updates so far.
        left: the time left as it was last shown; empty before the first update.
    """

    done: int
    last_step: int
    _: KW_ONLY
    active: bool
    clock: Callable[[], float] = time.monotonic
    left: str = ""

    def __post_init__(self) -> None:
        self._logged = self._shown = -float("inf")
        self._bar: tqdm[Any] = tqdm(
            total=self.last_step,
            initial=self.done,
            dynamic_ncols=True,
            # None: off where standard error is not a terminal.
            disable=None if self.active else True,
            bar_format="training {n_fmt}/{total_fmt} {bar} {desc}",
        )

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def step(self) -> None:
        """Count one update."""
        self.done += 1
        self._bar.update()

    def report_row(self, row: dict[str, float | int], pace: Pace) -> None:
        """Report a row of metrics, with the pace of the last minutes."""
        facts = self._show(pace)
        self._log(f"loss {row['loss']:.3f}, lr {row['lr']:.2e}, {facts}")

    def report_pace(self, pace: Pace) -> None:
        """Between two rows: after the first update, and then when nothing was reported for long."""
        now = self.clock()
        if not self._bar.disable:
            if now - self._shown >= _RENEWAL:
                self._show(pace)
        elif now - self._logged >= SILENCE:
            self._log(self._show(pace))

    def _show(self, pace: Pace) -> str:
        self.left = hours_and_minutes((self.last_step - self.done) * pace.seconds_per_step)
        text = f"{pace.tokens_per_second:,.0f} tok/s, {self.left} left"
        self._shown = self.clock()
        self._bar.set_description_str(text)
        return text

    def _log(self, facts: str) -> None:
        log.info("step %d of %d: %s", self.done, self.last_step, facts)
        self._logged = self.clock()


def report_stop(run: Run, schedule: Schedule, step: int, pace: Pace) -> None:
    """Report a run that was stopped and saved, how to continue it, and how to finish it early."""
    text = CONTINUE
    if (count := schedule.finish_in(step)) is not None:
        workers = f" --workers {given_world_size()}" if is_launched() else ""
        time_left = hours_and_minutes(count * pace.seconds_per_step)
        text += (
            f"; to finish it early, at step {step + count:,} (in {time_left}), run: "
            f"mtkit train --run {run.in_command} --finish-in {count}{workers}"
        )
    log.info("saved step %d in %s; %s", step, run.path, text)


def hours_and_minutes(seconds: float) -> str:
    """A duration in readable form, such as 1:05:09."""
    hours, rest = divmod(round(seconds), 3600)
    days, hours = divmod(hours, 24)
    text = f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
    return f"{days} d {text}" if days else text
