"""Standard streams that always exist, write UTF-8, and report a failed write as one line.

mtkit writes UTF-8 to standard output, whatever the locale and PYTHONIOENCODING are. Inside
`standard_streams`, a write that fails raises at once, while the program can still report it, and
leaves nothing in a buffer that Python would try to write at its exit. Standard error never
raises: a failure to print notes must not change how the program ends.
"""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from mtkit.base.errors import MtkitError


class _Output(io.BufferedWriter):
    """Bytes for a file descriptor.

    After a write that failed, everything else is discarded: it would be out of order, and Python
    would write a buffer that failed once more at its exit.

    Args:
        descriptor: to write to.
        name: of the file, in messages.
        is_there: False if the file was closed, which is reported at the first write.
        is_heard: whether a failure is reported.
        owned: close the descriptor with this object.
    """

    def __init__(
        self,
        descriptor: int,
        name: str,
        *,
        is_there: bool = True,
        is_heard: bool = True,
        owned: bool = False,
    ) -> None:
        # Written in C: an interrupt in the middle of Python code could write a line twice.
        super().__init__(io.FileIO(descriptor, "wb", closefd=owned))
        self.is_there = is_there
        self._title = name
        self._is_heard = is_heard
        self._failed = False

    def write(self, data: Any) -> int:
        rest = memoryview(data)
        size = rest.nbytes
        if not self.is_there:
            self._fail(MtkitError(f"{self._title} is closed"))
        while not self._failed and rest:
            try:
                rest = rest[super().write(rest) :]
            except BlockingIOError as error:
                rest = rest[error.characters_written :]
                self._wait()
            except OSError as error:
                self._fail(error)
        return size

    def flush(self) -> None:
        while not self._failed and not self.closed:
            try:
                return super().flush()
            except BlockingIOError:
                self._wait()
            except OSError as error:
                self._fail(error)
        return None

    def close(self) -> None:
        if self._failed:
            # Without flushing what could not be written.
            self.raw.close()
        else:
            super().close()

    def _wait(self) -> None:
        """Wait until the file can be written; another program has set it to non-blocking."""
        select.select([], [self.fileno()], [])

    def _fail(self, error: Exception) -> None:
        self._failed = True
        if not self._is_heard:
            return
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise MtkitError(f"{self._title}: {error.strerror}") from error
        # The reader closed the pipe, as `| head -1` does; or it is an MtkitError already.
        raise error


@contextmanager
def standard_streams() -> Iterator[None]:
    """Guard standard output and standard error, and replace closed streams.

    Streams that are not files, such as those of a test, stay as they are.
    """
    _fill_descriptors()
    before = sys.stdout, sys.stderr
    out = _guarded(sys.stdout, 1, "standard output", encoding="utf-8")
    err = _guarded(sys.stderr, 2, "standard error", encoding=None, is_heard=False)
    sys.stdout, sys.stderr = out or sys.stdout, err or sys.stderr
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in (out, err):
            if stream is not None:
                # One error is enough.
                with suppress(OSError, MtkitError):
                    stream.flush()


def _fill_descriptors() -> None:
    """Open the null device for each closed descriptor from 0 to 2.

    Otherwise the next files would get these numbers, and what a library writes to standard error
    would end up in them.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The system gives the lowest free number, which is this one.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)


def _guarded(
    stream: Any, number: int, name: str, *, encoding: str | None, is_heard: bool = True
) -> io.TextIOWrapper | None:
    """A stream to use instead of Python's own; None if that is not a file."""
    # If the stream was closed, this is the null device by now.
    descriptor = number
    if stream is not None:
        try:
            stream.flush()
            descriptor = stream.fileno()
        except (OSError, AttributeError, ValueError):
            return None
        encoding = encoding or stream.encoding
    output = _Output(descriptor, name, is_there=stream is not None, is_heard=is_heard)
    # A file name that is not UTF-8 is written with escapes.
    return io.TextIOWrapper(
        output,
        encoding=encoding or "utf-8",
        errors="backslashreplace",
        newline="\n",
        line_buffering=not is_heard or output.isatty(),
    )


def has_output() -> bool:
    """Whether there is a standard output; a shell can close it, as in `>&-`."""
    if sys.stdout is None:
        return False
    buffer = getattr(sys.stdout, "buffer", None)
    return not isinstance(buffer, _Output) or buffer.is_there


def has_input() -> bool:
    """Whether there is a standard input; a shell can close it, as in `<&-`."""
    return sys.stdin is not None


def standard_input() -> io.BufferedIOBase:
    """The bytes of standard input, for a thread that may still wait for them at the exit.

    At its exit Python takes the lock of its own object, and aborts if a thread holds it.

    Raises:
        MtkitError: if it is closed.
    """
    if not has_input():
        raise MtkitError("standard input is closed")
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except OSError:  # it is not a file
        return sys.stdin.buffer  # type: ignore[return-value]


@contextmanager
def output_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write bytes to; an error names the file.

    Raises:
        MtkitError: if it cannot be opened or written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    except OSError as error:
        raise MtkitError(f"{path}: {error.strerror}") from error
    with _Output(descriptor, str(path), owned=True) as file:
        yield file
