"""Lines in windows: read as they become available, or until a window is full."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from mtkit.base.arguments import ArgumentError
from mtkit.base.yaml import shown

# A window has at most this many lines, and ends earlier after this many characters.
WINDOW_LINES = 2048
WINDOW_CHARACTERS = 1_000_000
_NO_LINE = object()

T = TypeVar("T")


class Window(NamedTuple):
    """Lines that are sorted by length and translated together; the first has a number from 1.

    Each translation must begin with its prefix. If lines are parts of lines of the input, `numbers`
    says of which.
    """

    first_line: int
    lines: list[str]
    prefixes: list[str] | None = None
    numbers: Sequence[int] | None = None

    def number_of(self, index: int) -> int:
        """The number of the line of the input."""
        return self.first_line + index if self.numbers is None else self.numbers[index]


def ready_lines(lines: Iterable[str]) -> Iterator[list[str]]:
    """Windows of the lines that are available: many from a file, one at a time from a terminal.

    A thread reads at most one window in advance, so memory is bounded, and a line need not wait for
    a full window. If no line is available, the window is empty. An error while reading is raised
    here, after the lines before it.
    """
    waiting: queue.Queue[str | BaseException | None] = queue.Queue(maxsize=WINDOW_LINES)

    def read() -> None:
        try:
            for line in lines:
                waiting.put(line)
            waiting.put(None)
        except BaseException as error:  # raised in the consumer's thread
            waiting.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        if waiting.empty():
            yield []
        item = waiting.get()
        window: list[str] = []
        characters = 0
        while isinstance(item, str):
            window.append(item)
            characters += len(item)
            if len(window) == WINDOW_LINES or characters > WINDOW_CHARACTERS:
                break
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                break
        if window:
            yield window
        if item is None:
            return
        if isinstance(item, BaseException):
            raise item


def pair_windows(
    sources: Iterable[str], others: Iterable[str]
) -> Iterator[tuple[int, list[str], list[str]]]:
    """Full windows of pairs of lines, each with the number of its first line, from 1.

    Raises:
        ArgumentError: if there are more or fewer of the others, or an item is not text, when this
            is detected.
    """
    pairs: Iterator[tuple[Any, Any]] = itertools.zip_longest(sources, others, fillvalue=_NO_LINE)
    if isinstance(others, itertools.repeat):
        pairs = zip(sources, others, strict=False)
    numbers = itertools.count(1)

    def size(pair: tuple[Any, Any]) -> int:
        number = next(numbers)
        for text, longer in zip(pair, ("second", "first"), strict=True):
            if text is _NO_LINE:
                raise ArgumentError(f"lines: only the {longer} list has a line {number:,}")
            if not isinstance(text, str):
                raise ArgumentError(f"lines: line {number:,}: {shown(text)} is not text")
        return len(pair[0]) + len(pair[1])

    for first, window in windows(pairs, size=size):
        yield first, [source for source, _ in window], [other for _, other in window]


def windows(
    items: Iterable[T], *, size: Callable[[T], int], count: int | None = None
) -> Iterator[tuple[int, list[T]]]:
    """Full windows of `count` lines, with the number of the first, from 1; sizes are characters."""
    first, window, characters = 1, [], 0
    for item in items:
        window.append(item)
        characters += size(item)
        if len(window) == (count or WINDOW_LINES) or characters > WINDOW_CHARACTERS:
            yield first, window
            first, window, characters = first + len(window), [], 0
    if window:
        yield first, window
