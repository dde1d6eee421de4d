"""The standard streams of the commands: results in UTF-8, notes, and one line for an error.

Inside `standard_streams`, a failed write to standard output raises an error that says so, and what
is left is discarded: Python would try to write it once more at its exit. Standard error never
raises, because a lost note must not change how a command ends.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import click

from mtkit.base.errors import MtkitError, one_line
from mtkit.base.launched import given_rank


class Output(io.BufferedWriter):
    """Bytes for a file, or for the descriptor of a stream; what comes after a failed write is lost.

    The writing itself is in C: an interrupt in the middle of Python code could write a line twice.
    """

    def __init__(self, file: Path | int, name: str, *, is_silent: bool = False) -> None:
        super().__init__(io.FileIO(file, "wb", closefd=isinstance(file, Path)))
        self._title, self._is_silent, self._failed = name, is_silent, False

    def write(self, data: Any) -> int:
        """Write bytes; `BrokenPipeError` if the reader has closed the pipe, else `MtkitError`."""
        self._attempt(super().write, data)
        return memoryview(data).nbytes

    def flush(self) -> None:
        """Write what is in the buffer; raises as `write` does."""
        if not self.closed:
            self._attempt(super().flush)

    def close(self) -> None:
        """Close the file; a buffer that could not be written is lost."""
        if self._failed:
            self.raw.close()
        else:
            super().close()

    def _attempt(self, action: Callable[..., object], *data: Any) -> None:
        if self._failed:
            return
        try:
            action(*data)
        except OSError as error:
            self._failed = True
            if self._is_silent:
                return
            if isinstance(error, BrokenPipeError):
                raise
            if error.errno == errno.EBADF:
                raise MtkitError(f"{self._title} is closed; give a file, as in > FILE") from error
            raise MtkitError(f"{self._title}: {error.strerror}") from error


@contextmanager
def standard_streams() -> Iterator[None]:
    """Replace standard output and standard error, except where a test has put its own."""
    # A closed stream becomes a file that cannot be written. Otherwise the next file would get its
    # number, and what a library prints would end up in it.
    while (unused := os.open(os.devnull, os.O_RDONLY)) <= 2:
        pass
    os.close(unused)
    before = sys.stdout, sys.stderr
    sys.stdout = _guarded(sys.stdout, Output(1, "standard output"))
    sys.stderr = _guarded(sys.stderr, Output(2, "standard error", is_silent=True))
    try:
        yield
    finally:
        # One error is enough.
        with suppress(OSError, MtkitError):
            sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def _guarded(stream: TextIO | None, output: Output) -> TextIO:
    """A stream to use instead of Python's own, in UTF-8 whatever the locale is."""
    if stream is not None:
        with suppress(OSError):
            stream.flush()
        try:
            if stream.fileno() != output.fileno():
                return stream
        except (OSError, AttributeError, ValueError):  # it is no file
            return stream
    # A file name that is not UTF-8 is written with escapes.
    return io.TextIOWrapper(
        output,
        encoding="utf-8",
        errors="backslashreplace",
        newline="\n",
        line_buffering=output.fileno() == 2 or output.isatty(),
    )


def standard_input() -> io.BufferedIOBase:
    """The bytes of standard input, for a thread that may still wait for them at the exit.

    At its exit Python takes the lock of its own object, and aborts if a thread holds it.

    Raises:
        MtkitError: if it is closed.
    """
    if sys.stdin is None:
        raise MtkitError("standard input is closed; give a file, as in < FILE")
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except OSError:  # it is no file
        return sys.stdin.buffer  # type: ignore[return-value]


def print_text(text: str) -> None:
    """Print text that ends in a newline already."""
    click.echo(text, nl=False)


def say(message: str) -> None:
    """Print a line on standard error."""
    click.echo(message, err=True)


def say_error(message: str) -> None:
    """Print an error as one line on standard error."""
    say(f"mtkit: error: {one_line(message)}")


def is_worker() -> bool:
    """Whether this process was started among workers."""
    return given_rank() is not None


def is_later_worker() -> bool:
    """Whether this is a worker other than the first, which prints for all of them."""
    return bool(given_rank())


class NoteHandler(logging.Handler):
    """Notes on standard error, above a progress bar where there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record as one line."""
        prefix = "mtkit: "
        if record.levelno >= logging.WARNING:
            prefix += f"{record.levelname.lower()}: "
        text = prefix + one_line(record.getMessage())
        if "tqdm" in sys.modules:
            from tqdm import tqdm

            # tqdm's own locking gives another error if Ctrl-C comes before it has the lock.
            with tqdm.get_lock():  # type: ignore[no-untyped-call]
                tqdm.write(text, file=sys.stderr, nolock=True)
        else:
            # No bar can be shown yet.
            say(text)


def configure_logging(*, quiet: bool) -> None:
    """Send the notes of the package to standard error; only warnings and errors if `quiet`."""
    package = logging.getLogger("mtkit")
    level = logging.WARNING if quiet else logging.INFO
    # The first worker prints notes and warnings for all; every worker prints its own errors.
    package.setLevel(logging.ERROR if is_later_worker() else level)
    package.handlers = [NoteHandler()]
    package.propagate = False
