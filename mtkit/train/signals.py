"""Signal handling: stops training after the current step."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from mtkit.train.launcher import is_launched

log = logging.getLogger(__name__)


@contextmanager
def stop_on_signal(*, quiet: bool) -> Iterator[list[int]]:
    """A list to which the first SIGINT or SIGTERM is appended; the second has its usual effect."""
    received: list[int] = []
    previous: dict[int, Any] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if not quiet:
            # If the signal comes while a note is written, Python refuses to write another one.
            with suppress(RuntimeError):
                log.warning(
                    "saving after this step, then stopping; press Ctrl-C again to stop without "
                    "saving"
                )
        for signum, handler in previous.items():
            signal.signal(signum, handler)

    try:
        # `launch` sends workers SIGINT to save and stop; SIGTERM keeps its usual effect.
        for wanted in (signal.SIGINT,) if is_launched() else (signal.SIGINT, signal.SIGTERM):
            previous[wanted] = signal.signal(wanted, handle)
    except ValueError:
        # Python handles signals only in the main thread; in others the caller handles them.
        yield received
        return
    try:
        yield received
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
