"""Exceptions with a message for the user, and the form of messages: one line, and numbers."""

from __future__ import annotations

import re
import signal

# The exit status after a fault of mtkit (EX_SOFTWARE of BSD's sysexits.h).
FAULT = 70
# The signals of a crash: of an invalid access or computation, and of the C function `abort`.
_CRASHES = (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE, -signal.SIGABRT)

# Control characters, line separators, and lone surrogates, which stand for the bytes of a file name
# that is not UTF-8 (PEP 383).
_UNPRINTABLE = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_UNENCODABLE = re.compile("[\ud800-\udfff]")
_NOT_IN_A_COLUMN = re.compile(rf"\\|{_UNPRINTABLE.pattern}")

# The longest message in characters; enough for two paths of the maximum length on Linux.
_MAX_CHARACTERS = 10_000


class MtkitError(Exception):
    """A mistake that the user can fix, in one line.

    The text names the file, line, option or key and says what to do. It is made `one_line`.
    `cli` prints it and exits with `status`; every other exception is our bug, keeps its traceback,
    and ends the program with `FAULT`.

    Attributes:
        status: exit status of the program.
        reported: whether another process of this run has printed the same already.
    """

    status = 1
    reported = False

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message))


class LostWorkerError(MtkitError):
    """A worker process ended unexpectedly, usually because memory ran out."""


def status_after(code: int) -> int:
    """The exit status of a program whose worker ended with this code (negative: by a signal).

    1 if it was killed from outside, as the system does when memory runs out; otherwise `FAULT`.
    """
    return FAULT if code >= 0 or code in _CRASHES else 1


def one_line(text: str) -> str:
    r"""A message as one line that can be printed anywhere.

    A newline in it becomes `\n`, a byte of a name that is not UTF-8 becomes `\xff`. The middle of
    a text that is too long is removed.
    """
    if len(text) > _MAX_CHARACTERS:
        text = f"{text[: _MAX_CHARACTERS // 2]} ... {text[-_MAX_CHARACTERS // 2 :]}"
    return _UNPRINTABLE.sub(_escaped, text)


def in_words(count: int, noun: str = "line") -> str:
    """A number of things, as "1 line" or "2 lines"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def reason_of(error: BaseException, *, most: int = _MAX_CHARACTERS) -> str:
    """The text of another library's error, for a message: without line breaks, cut at `most`."""
    return " ".join(str(error).split())[:most]


def encodable(text: str) -> str:
    r"""Text that can be written as UTF-8: a byte of a file name that is not becomes `\xff`."""
    return _UNENCODABLE.sub(_escaped, text)


def column(text: str) -> str:
    r"""Text for a column of a table: tab, newline, return and backslash are `\t`, `\n`, `\r`, `\\`.

    Other control characters are `\x1b` or, above ASCII, `\u0085`, and line separators `\u2028`.
    A byte of a file name that is not UTF-8 becomes `\xff`. So no two texts look the same.
    """
    return _NOT_IN_A_COLUMN.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    # From 128 on, \x is a byte of a name.
    return f"\\u{code:04x}" if 0x80 <= code <= 0xFF else ascii(match[0])[1:-1]
