"""How far a long translation is: a bar for a person who waits, and what to say of an interrupt."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtkit.errors import MtkitError
from mtkit.text import damage_told, open_binary

if TYPE_CHECKING:
    from tqdm import tqdm

_CHUNK = 1 << 20


class Progress:
    """Counts lines that are done, and shows a bar if there is one.

    Attributes:
        done: lines from the first on that are done.
    """

    def __init__(self, bar: tqdm[Any] | None = None) -> None:
        self.done = 0
        self._bar = bar
        self._begun = False

    def begin(self, first_line: int) -> None:
        """A window is taken on; what stands before the first of them was done earlier."""
        if self._begun:
            return
        self._begun = True
        self.done = first_line - 1
        if self._bar is not None:
            # So that the speed is that of this start.
            self._bar.initial = self._bar.n = self.done
            self._bar.refresh()

    def advance(self, lines: float) -> None:
        """So many lines more are translated, though not in order."""
        if self._bar is not None:
            self._bar.update(lines)

    def finish(self, last_line: int) -> None:
        """Everything up to this line is done."""
        self.done = last_line
        if self._bar is not None:
            self._bar.update(last_line - self._bar.n)


@contextmanager
def shown_progress(total: int | None, *, is_wanted: bool = True) -> Iterator[Progress]:
    """Progress with a bar, if standard error is a terminal and a bar is wanted.

    Args:
        total: lines, if that is known.
        is_wanted: whether there is to be a bar.
    """
    if not is_wanted or not sys.stderr.isatty():
        yield Progress()
        return
    from tqdm import tqdm

    # Lines are counted in parts, when sentences are translated one by one.
    form = "{l_bar}{bar}| {n:.0f}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}]"
    with tqdm(
        desc="translating",
        total=total,
        unit=" lines",
        leave=False,
        # Batches come seldom enough to show each at once.
        mininterval=0,
        miniters=0,
        bar_format=form if total else None,
    ) as bar:
        yield Progress(bar)


def count_lines(path: Path) -> int | None:
    """Lines of a plain or compressed file; None if it cannot be read, which its reader tells."""
    count, last = 0, b"\n"
    with suppress(MtkitError), damage_told(path), open_binary(path) as file:
        while chunk := file.read(_CHUNK):
            count += chunk.count(b"\n")
            last = chunk[-1:]
        return count + (last != b"\n")
    return None
