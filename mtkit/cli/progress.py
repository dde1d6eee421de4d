"""The progress of a long translation or alignment.

A progress bar, and a count for the message on Ctrl-C.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtkit.base.errors import MtkitError
from mtkit.base.text import damage_reported, open_binary

if TYPE_CHECKING:
    from tqdm import tqdm

log = logging.getLogger(__name__)

_CHUNK = 1 << 20


class Progress:
    """Counts the lines that are done, and moves the progress bar if there is one.

    Attributes:
        done: number of lines that are done, counted from the first line without a gap.
    """

    def __init__(self, bar: tqdm[Any] | None = None) -> None:
        self.done = 0
        self._bar = bar
        self._begun = False

    def begin(self, first_line: int) -> None:
        """Start with a window; the first one follows what an earlier run has done."""
        if self._begun:
            return
        self._begun = True
        self.done = first_line - 1
        if self._bar is not None:
            # The speed is that of this run.
            self._bar.initial = self._bar.n = self.done
            self._bar.refresh()

    def advance(self, lines: float) -> None:
        """Count lines that are translated, though perhaps not in order."""
        if self._bar is not None:
            self._bar.update(lines)

    def finish(self, last_line: int) -> None:
        """Count every line up to this one as done."""
        self.done = last_line
        if self._bar is not None:
            self._bar.update(last_line - self._bar.n)


@contextmanager
def shown_progress(
    total: int | None,
    *,
    what: str = "translating",
    unit: str = " lines",
    is_wanted: bool | None = None,
) -> Iterator[Progress]:
    """Progress with a bar, if standard error is a terminal and a bar is wanted.

    Args:
        total: number of lines, if it is known.
        what: is done.
        unit: of what is counted.
        is_wanted: whether to show a bar; by default, if notes are shown (without `-q`).
    """
    if is_wanted is None:
        is_wanted = log.isEnabledFor(logging.INFO)
    if not is_wanted or not sys.stderr.isatty():
        yield Progress()
        return
    from tqdm import tqdm

    # With split sentences, a part of a line counts as a fraction.
    form = "{l_bar}{bar}| {n:.0f}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}]"
    with tqdm(
        desc=what,
        total=total,
        unit=unit,
        leave=False,
        # Batches are rare enough to show each of them at once.
        mininterval=0,
        miniters=0,
        bar_format=form if total else None,
    ) as bar:
        yield Progress(bar)


def lines_to_show(source: Path | None, output: Path | None) -> int | None:
    """Lines of the input, for a progress bar; None where no bar is wanted or possible.

    Args:
        source, output: files; None for a standard stream.
    """
    # A bar would be in the way of results that are printed on the same terminal.
    is_wanted = sys.stderr.isatty() and (output is not None or not sys.stdout.isatty())
    if not is_wanted or not log.isEnabledFor(logging.INFO):
        return None
    return count_lines(source) if source is not None and source.is_file() else None


def count_lines(path: Path) -> int | None:
    """Lines of a plain or compressed file; None if it cannot be read, which its reader reports."""
    count, last = 0, b"\n"
    with suppress(MtkitError), damage_reported(path), open_binary(path) as file:
        while chunk := file.read(_CHUNK):
            count += chunk.count(b"\n")
            last = chunk[-1:]
        return count + (last != b"\n")
    return None
