"""Shows the progress of training: log lines, and a bar on a terminal."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tqdm import tqdm

from mtkit.train.meter import Pace

log = logging.getLogger(__name__)

# Seconds after which training reports that it is still running, and renews the text of the bar.
SILENCE = 60.0
_RENEWAL = 5.0


class TrainingProgress:
    """A line for each row of metrics, and below them a progress bar on a terminal.

    Args:
        step: updates made so far.
        last_step: of the run.
        active: whether this worker prints.
        clock: gives seconds.

    Attributes:
        left: the time left as it was last shown; empty before the first update.
    """

    def __init__(
        self,
        step: int,
        last_step: int,
        *,
        active: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.left = ""
        self._step = step
        self._last_step = last_step
        self._clock = clock
        self._logged = self._shown = -float("inf")
        self._bar: tqdm[Any] = tqdm(
            total=last_step,
            initial=step,
            dynamic_ncols=True,
            # None: off where standard error is not a terminal.
            disable=None if active else True,
            bar_format="training {n_fmt}/{total_fmt} {bar} {desc}",
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

    def report_row(self, row: dict[str, float | int], pace: Pace) -> None:
        """Report a row of metrics, with the pace of the last minutes."""
        facts = self._show(pace)
        self._log(f"loss {row['loss']:.3f}, lr {row['lr']:.2e}, {facts}")

    def report_pace(self, pace: Pace) -> None:
        """Between two rows: after the first update, and then when nothing was reported for long."""
        now = self._clock()
        if not self._bar.disable:
            if now - self._shown >= _RENEWAL:
                self._show(pace)
        elif now - self._logged >= SILENCE:
            self._log(self._show(pace))

    def _show(self, pace: Pace) -> str:
        self.left = clock((self._last_step - self._step) * pace.seconds_per_step)
        text = f"{pace.tokens_per_second:,.0f} tok/s, {self.left} left"
        self._shown = self._clock()
        self._bar.set_description_str(text)
        return text

    def _log(self, facts: str) -> None:
        log.info("step %d of %d: %s", self._step, self._last_step, facts)
        self._logged = self._clock()


def clock(seconds: float) -> str:
    """A duration in readable form, such as 1:05:09."""
    hours, rest = divmod(round(seconds), 3600)
    days, hours = divmod(hours, 24)
    text = f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
    return f"{days} d {text}" if days else text
