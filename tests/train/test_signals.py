"""Signals that ask a training to stop."""

from __future__ import annotations

import io
import logging
import os
import signal
from collections.abc import Iterator

import pytest

from mtkit.train.launcher import stop_on_signal


class Interrupted(io.RawIOBase):
    """A file in whose first writing this process gets SIGINT."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        is_first = not self.written
        self.written += bytes(data)
        if is_first:
            os.kill(os.getpid(), signal.SIGINT)
        return len(data)


class Notes(logging.Handler):
    """Notes that are written at once, as on standard error."""

    def __init__(self, file: Interrupted) -> None:
        super().__init__()
        self._stream = io.BufferedWriter(file)

    def emit(self, record: logging.LogRecord) -> None:
        self._stream.write(record.getMessage().encode())
        self._stream.flush()


@pytest.fixture
def file() -> Iterator[Interrupted]:
    """What the notes of the package are written to."""
    package, file = logging.getLogger("mtkit"), Interrupted()
    handler = Notes(file)
    before = package.level
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    yield file
    package.setLevel(before)
    package.removeHandler(handler)


def test_a_signal_while_a_note_is_written_asks_the_training_to_stop(file: Interrupted):
    with stop_on_signal(quiet=False) as signals:
        logging.getLogger("mtkit.train").info("a note")
        assert signals == [signal.SIGINT]
        # The second one ends the program, as it always does.
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert file.written == b"a note"
