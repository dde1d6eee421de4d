"""Shows the progress of training: a bar on a terminal, otherwise log lines."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any

from tqdm import tqdm

from mtkit.train.meter import Meter

log = logging.getLogger(__name__)


class TrainingProgress:
    """A progress bar, or log lines if standard error is not a terminal.

    Args:
        step: updates made so far.
        max_steps: of the run.
        active: whether this worker prints.
    """

    def __init__(self, step: int, max_steps: int, *, active: bool) -> None:
        self._step = step
        self._max_steps = max_steps
        self._bar: tqdm[Any] = tqdm(
            total=max_steps,
            initial=step,
            desc="training",
            unit="step",
            dynamic_ncols=True,
            # None: off where standard error is not a terminal.
            disable=None if active else True,
            bar_format="{desc} {n_fmt}/{total_fmt} {bar} {postfix} {remaining} left",
        )

    def __enter__(self) -> TrainingProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()

    def step(self) -> None:
        """An update was made."""
        self._step += 1
        self._bar.update()

    def report_row(self, row: dict[str, float | int], meter: Meter) -> None:
        """Report a row of metrics."""
        facts = f"loss {row['loss']:.3f}, lr {row['lr']:.2e}, {row['tokens_per_second']:,.0f} tok/s"
        self._bar.set_postfix_str(facts)
        if self._bar.disable:
            self._log(facts, row["seconds_per_step"])
        meter.was_reported()

    def report_speed(self, meter: Meter) -> None:
        """Between two rows: after the first update, and then when nothing was reported for long."""
        if not meter.is_silent:
            return
        tokens_per_second, seconds_per_step = meter.speed()
        facts = f"{tokens_per_second:,.0f} tok/s"
        if self._bar.disable:
            self._log(facts, seconds_per_step)
        elif not self._bar.postfix:
            # Rows of metrics have more information, and stay on the screen.
            self._bar.set_postfix_str(facts)
        meter.was_reported()

    def _log(self, facts: str, seconds_per_step: float) -> None:
        left = (self._max_steps - self._step) * seconds_per_step
        log.info("step %d of %d: %s, %s left", self._step, self._max_steps, facts, clock(left))


def clock(seconds: float) -> str:
    """A duration in readable form, such as 1:05:09."""
    hours, rest = divmod(round(seconds), 3600)
    days, hours = divmod(hours, 24)
    text = f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
    return f"{days} d {text}" if days else text
