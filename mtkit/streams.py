"""Standard streams that are there, write UTF-8, and whose failures are an error of one line.

Whatever the locale and PYTHONIOENCODING say, what mtkit writes to standard output is UTF-8. While
`standard_streams` holds, a write that fails raises at once, where the program can still say so,
and leaves nothing that Python would try to write when it ends. Standard error never raises: that
nobody reads the notes must not change how the program ends.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mtkit.errors import MtkitError


class _Descriptor(io.RawIOBase):
    """Writes to a file descriptor.

    What follows a write that failed is thrown away: it would be out of order, and a buffer whose
    writing failed is written once more when the program ends.

    Args:
        descriptor: to write to; None if there is none, which is told when something is written.
        name: of the file, in messages.
        is_heard: whether anybody is told of what fails.
        owned: close the descriptor with this object.
    """

    def __init__(
        self, descriptor: int | None, name: str, *, is_heard: bool = True, owned: bool = False
    ) -> None:
        self.descriptor = descriptor
        self.name = name
        self._is_heard = is_heard
        self._owned = owned
        self._failed = False

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self.descriptor is not None and os.isatty(self.descriptor)

    def fileno(self) -> int:
        if self.descriptor is None:
            raise io.UnsupportedOperation(f"{self.name} is closed")
        return self.descriptor

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self._failed:
            return size
        try:
            if self.descriptor is None:
                raise MtkitError(f"{self.name} is closed")
            return os.write(self.descriptor, data)
        except BrokenPipeError:
            # Whoever reads has enough, as in `| head -1`.
            self._failed = True
            if self._is_heard:
                raise
        except (OSError, MtkitError) as error:
            self._failed = True
            if self._is_heard:
                if isinstance(error, MtkitError):
                    raise
                raise MtkitError(f"{self.name}: {error.strerror}") from error
        return size

    def close(self) -> None:
        if self._owned and not self.closed and self.descriptor is not None:
            os.close(self.descriptor)
        super().close()


@contextmanager
def standard_streams() -> Iterator[None]:
    """Guard standard output and standard error, and have something at the place of closed ones.

    Streams that are not files, as a test may put there, stay as they are.
    """
    _fill_descriptors()
    before = sys.stdout, sys.stderr
    out = _guarded(sys.stdout, "standard output", encoding="utf-8")
    err = _guarded(sys.stderr, "standard error", encoding=None, is_heard=False)
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
                stream.detach().detach()  # type: ignore[attr-defined]


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
    stream: Any, name: str, *, encoding: str | None, is_heard: bool = True
) -> io.TextIOWrapper | None:
    """A stream in the place of Python's own; None if that is no file."""
    descriptor = None
    if stream is not None:
        try:
            stream.flush()
            descriptor = stream.fileno()
        except (OSError, AttributeError, ValueError):
            return None
        encoding = encoding or stream.encoding
    raw = _Descriptor(descriptor, name, is_heard=is_heard)
    # A name that is not UTF-8 is written as Python would quote it.
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=encoding or "utf-8",
        errors="backslashreplace",
        newline="\n",
        line_buffering=not is_heard or raw.isatty(),
    )


def has_output() -> bool:
    """Whether there is a standard output; a shell can close it, as in `>&-`."""
    if sys.stdout is None:
        return False
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return not (isinstance(raw, _Descriptor) and raw.descriptor is None)


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
def output_file(path: Path) -> Iterator[io.BufferedWriter]:
    """A file to write bytes to; what fails is told with its name.

    Raises:
        MtkitError: if it cannot be opened or written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    except OSError as error:
        raise MtkitError(f"{path}: {error.strerror}") from error
    with io.BufferedWriter(_Descriptor(descriptor, str(path), owned=True)) as file:
        yield file
