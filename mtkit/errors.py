"""The one exception that is a message to the user, and how what cannot be printed is spelled."""

from __future__ import annotations

import re

# Controls, separators of lines, and halves of surrogate pairs, as which Python has the bytes of a
# file name that are not UTF-8 (PEP 383).
_UNPRINTABLE = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_UNENCODABLE = re.compile("[\ud800-\udfff]")
_NOT_IN_A_COLUMN = re.compile("[\\\\\t\n\r\ud800-\udfff]")

# Characters of a message; two paths as long as Linux allows have room.
_LONGEST = 10_000


class MtkitError(Exception):
    """A mistake the user can mend, told in one line.

    The text names the file, line, option or key and says what to do. Whatever is in a name, it is
    one line, because it is made `printable`, and of a length that can be read.
    `cli` prints it and exits with `status`; every other exception is our bug and keeps its
    traceback.

    Attributes:
        status: exit status of the program.
        told: whether another process of this run has printed the same already.
    """

    status = 1
    told = False

    def __init__(self, message: str = "") -> None:
        if len(message) > _LONGEST:
            message = f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 2 :]}"
        super().__init__(printable(message))


class LostWorkerError(MtkitError):
    """A process that worked for this one ended, most often because memory ran out."""


def printable(text: str) -> str:
    r"""Text for one line of a message: a newline in it is `\n`, a byte that is not UTF-8 `\xff`."""
    return _UNPRINTABLE.sub(_spelled, text)


def encodable(text: str) -> str:
    r"""Text that can be written as UTF-8: a byte of a file name that is not is spelled `\xff`."""
    return _UNENCODABLE.sub(_spelled, text)


def column(text: str) -> str:
    r"""Text for a column of a table: tab, newline, return and backslash are `\t`, `\n`, `\r`, `\\`.

    A byte of a file name that is not UTF-8 is spelled `\xff`, so no two names look the same.
    """
    return _NOT_IN_A_COLUMN.sub(_spelled, text)


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return match[0].encode("unicode_escape").decode()
