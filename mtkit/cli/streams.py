"""Standard streams that are there, write UTF-8, and whose failures are an error of one line.

Whatever the locale and PYTHONIOENCODING say, what mtkit writes to standard output is UTF-8. While
`standard_streams` holds, a write that fails raises at once, where the program can still say so,
and leaves nothing that Python would try to write when it ends. Standard error never raises: that
nobody reads the notes must not change how the program ends.
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

from mtkit.errors import MtkitError


class _Output(io.BufferedWriter):
    """Bytes for a file descriptor.

    What follows a write that failed is thrown away: it would be out of order, and a buffer whose
    writing failed is written once more when the program ends.

    Args:
        descriptor: to write to.
        name: of the file, in messages.
        is_there: False if the file was closed, which is told when something is written.
        is_heard: whether anybody is told of what fails.
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
        # Written by C: an interrupt in the middle of Python would have a line written twice.
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
            # Without what could not be written.
            self.raw.close()
        else:
            super().close()

    def _wait(self) -> None:
        """Another program has set the file not to wait; this one does all the same."""
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
    """Guard standard output and standard error, and have something at the place of closed ones.

    Streams that are not files, as a test may put there, stay as they are.
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
                # After an error nobody needs another one.
                with suppress(OSError, MtkitError):
                    stream.flush()


def _fill_descriptors() -> None:
    """Open what is closed of 0 to 2, or the next files would have these numbers.

    Then whatever a library writes to standard error would be written into them.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest number that is free is this one.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)


def _guarded(
    stream: Any, number: int, name: str, *, encoding: str | None, is_heard: bool = True
) -> io.TextIOWrapper | None:
    """A stream in the place of Python's own; None if that is no file."""
    # Of what is closed this is the null device by now.
    descriptor = number
    if stream is not None:
        try:
            stream.flush()
            descriptor = stream.fileno()
        except (OSError, AttributeError, ValueError):
            return None
        encoding = encoding or stream.encoding
    output = _Output(descriptor, name, is_there=stream is not None, is_heard=is_heard)
    # A name that is not UTF-8 is written as Python would quote it.
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
    """Its bytes, for a thread that may still wait for them when the program ends.

    Python takes the lock of its own object at the end, and aborts if a thread has it.

    Raises:
        MtkitError: if it is closed.
    """
    if not has_input():
        raise MtkitError("standard input is closed")
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except OSError:  # it is no file
        return sys.stdin.buffer  # type: ignore[return-value]


@contextmanager
def output_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write bytes to; what fails is told with its name.

    Raises:
        MtkitError: if it cannot be opened or written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    except OSError as error:
        raise MtkitError(f"{path}: {error.strerror}") from error
    with _Output(descriptor, str(path), owned=True) as file:
        yield file
