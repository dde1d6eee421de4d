"""The one exception that is a message to the user, and how a message becomes a line."""

from __future__ import annotations

import re

# What would end a line, move the cursor, or is no character at all: a name that is not UTF-8 has
# lone surrogates in place of its bytes.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# Characters of a message; longer than the longest path of Linux, with something said about it.
_LONGEST = 6000


class MtkitError(Exception):
    """A mistake the user can mend, told in one line.

    The text names the file, line, option or key and says what to do.
    `cli` prints it and exits with `status`; every other exception is our bug and keeps its
    traceback.

    Attributes:
        status: exit status of the program.
        told: whether another process of this run has printed the same already.
    """

    status = 1
    told = False


class LostWorkerError(MtkitError):
    """A process that worked for this one ended, most often because memory ran out."""


def one_line(text: str) -> str:
    r"""A message as one line that can be printed anywhere: a new line in it becomes \\n.

    Control characters and the bytes of names that are not UTF-8 are written as a shell or Python
    would write them in quotes. What is too long to be read loses its middle.
    """
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]}...{text[-_LONGEST // 2 :]}"
    return _UNPRINTABLE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:
        # As which Python has the byte.
        return f"\\x{code - 0xDC00:02x}"
    return match[0].encode("unicode_escape").decode()
