"""Lines are read in windows, in bounded memory."""

import threading
from collections.abc import Iterator

import pytest
from support.errors import message_of

from mtkit.translate.reading import WINDOW_CHARACTERS, WINDOW_LINES, pair_windows, ready_lines


class Counted:
    """Lines without end, and how many of them were taken."""

    def __init__(self, line: str = "") -> None:
        self.line = line
        self.taken = 0

    def __iter__(self) -> Iterator[str]:
        while True:
            self.taken += 1
            yield self.line


def test_no_more_lines_are_read_than_a_window_holds(translator):
    lines = Counted()
    texts = translator.translate(lines)
    assert lines.taken == 0
    next(texts)
    assert lines.taken <= WINDOW_LINES
    for _ in range(WINDOW_LINES):
        next(texts)
    assert lines.taken <= 2 * WINDOW_LINES


def test_a_window_of_long_lines_is_shorter(translator):
    lines = Counted(" " * 100_000)
    next(translator.translate(lines))
    assert lines.taken <= WINDOW_CHARACTERS // 100_000 + 1


def test_lines_that_are_ready_are_read_ahead_by_two_windows_at_most():
    lines = Counted("x")
    windows = filter(None, ready_lines(lines))
    for _ in range(3):
        assert len(next(windows)) <= WINDOW_LINES
    threading.Event().wait(0.2)  # time enough to read ahead
    assert lines.taken <= 5 * WINDOW_LINES


@pytest.mark.parametrize(
    ("sources", "others", "message"),
    [
        (["a", "b"], ["c"], "lines: only the first list has a line 2"),
        ([], ["c"], "lines: only the second list has a line 1"),
        (["a", "b"], ["c", None], "lines: line 2: None is not text"),
    ],
)
def test_lines_that_are_no_pairs_are_named(sources, others, message):
    assert message_of(list, pair_windows(sources, others)) == message


def test_an_empty_window_means_that_no_line_is_available_yet():
    more = threading.Event()

    def lines() -> Iterator[str]:
        yield "one"
        more.wait(600)
        yield "two"

    windows = ready_lines(lines())
    while next(windows) != ["one"]:
        pass
    assert next(windows) == []
    more.set()
    assert next(windows) == ["two"]
