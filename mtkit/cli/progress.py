"""The progress of a long translation or alignment.

A progress bar, and a count for the message on Ctrl-C.
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mtkit.base.errors import MtkitError
from mtkit.base.text import damage_reported, open_binary

if TYPE_CHECKING:
    from tqdm import tqdm

log = logging.getLogger(__name__)

_CHUNK = 1 << 20

Line = TypeVar("Line")


class Progress:
    """Counts lines that were read, and those that are done without a gap; moves the bar, if any."""

    def __init__(self, first_line: int, bar: tqdm[Any] | None) -> None:
        self.lines = self.done = 0
        self._first_line = first_line
        self._bar = bar
        self._begun = False

    def numbered(self, windows: Iterable[list[str]]) -> Iterator[tuple[int, list[str]]]:
        """Each window with the number of its first line."""
        for window in windows:
            self.lines += len(window)
            yield self._first_line + self.lines - len(window), window

    def begin(self, first_line: int) -> None:
        """Start with a window; the first one follows what an earlier run has done."""
        if self._begun:
            return
        self._begun = True
        self.done = first_line - self._first_line
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
        self.done = last_line + 1 - self._first_line
        if self._bar is not None:
            self._bar.update(self.done - self._bar.n)


@contextmanager
def shown_progress(
    total: int | None,
    *,
    first_line: int = 1,
    what: str = "translating",
    unit: str = " lines",
    is_wanted: bool = True,
) -> Iterator[Progress]:
    """Progress of a number of lines, with a bar if notes are shown on a terminal."""
    if not (is_wanted and log.isEnabledFor(logging.INFO) and sys.stderr.isatty()):
        yield Progress(first_line, None)
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
        yield Progress(first_line, bar)


@contextmanager
def part_with_progress(
    lines: Iterable[Line],
    source: Path | None,
    output: Path | None,
    shard: tuple[int, int] | None,
    *,
    what: str = "translating",
) -> Iterator[tuple[Iterable[Line], Progress]]:
    """The lines of the shard, or all, with their progress; the files are None for a stream."""
    first_line, total = 1, None
    # A bar would be in the way of results that are printed on the same terminal.
    is_wanted = sys.stderr.isatty() and (output is not None or not sys.stdout.isatty())
    if shard and source:
        whole, (index, count) = count_lines(source), shard
        before, end = (whole * number // count for number in (index - 1, index))
        first_line, total = before + 1, end - before
        # The last part reads to the end, for an error of another input there.
        lines = itertools.islice(lines, before, None if index == count else end)
    elif is_wanted and source is not None and source.is_file():
        with suppress(MtkitError):  # which its reader reports
            total = count_lines(source)
    is_wanted &= total is not None
    with shown_progress(total, first_line=first_line, what=what, is_wanted=is_wanted) as progress:
        yield lines, progress


def count_lines(path: Path) -> int:
    """Lines of a plain or compressed file; `MtkitError` if it cannot be read."""
    count, last = 0, b"\n"
    with open_binary(path) as file, damage_reported(path):
        while chunk := file.read(_CHUNK):
            count += chunk.count(b"\n")
            last = chunk[-1:]
    return count + (last != b"\n")
