"""A long translation that is stopped, killed, shared out, or gone on with by mistake."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from conftest import slow
from support.forked import Forked

import mtkit.translate.reading
from mtkit.base.errors import MtkitError
from mtkit.base.text import zstd
from mtkit.cli import main
from mtkit.run_folder import Run
from mtkit.translate.resumable import ResumableOutput

WINDOWS = [["one", "two"], ["", "a\u2028b"], ["three"]]
HOW = {"run": "a", "decode.beam_size": "4"}


Windows = Iterable[tuple[int, list[str]]]


def upper(windows: Windows) -> Iterator[tuple[int, bytes]]:
    for first_line, window in windows:
        rows = [f"{first_line + i} {line.upper()}\n" for i, line in enumerate(window)]
        yield first_line, "".join(rows).encode()


WHOLE = "1 ONE\n2 TWO\n3 \n4 A\u2028B\n5 THREE\n"


def stopping_at(line: int) -> Callable[[Windows], Iterator[tuple[int, bytes]]]:
    def until(windows: Windows) -> Windows:
        for first_line, window in windows:
            if first_line >= line:
                raise KeyboardInterrupt
            yield first_line, window

    return lambda windows: upper(until(windows))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_output_is_that_of_all_windows_and_nothing_else_is_left(tmp_path: Path) -> None:
    ResumableOutput(tmp_path / "out", HOW).run(WINDOWS, upper)
    assert (tmp_path / "out").read_text() == WHOLE
    assert names(tmp_path) == ["out"]


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        ResumableOutput(tmp_path / "out", HOW).run(WINDOWS, stopping_at(5))
    assert names(tmp_path) == [".out.parts"]
    asked = []

    def translate(windows: Windows) -> Iterator[tuple[int, bytes]]:
        given = list(windows)
        asked.extend(given)
        return upper(given)

    ResumableOutput(tmp_path / "out", HOW).run(WINDOWS, translate)
    assert asked == [(5, ["three"])]
    assert (tmp_path / "out").read_text() == WHOLE
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("ending", "decompress"),
    [
        (".gz", gzip.decompress),
        (".BZ2", bz2.decompress),
        (".xz", lzma.decompress),
        (".zst", zstd.decompress),
    ],
)
def test_an_output_whose_name_ends_so_is_compressed_to_the_same_bytes_every_time(
    ending: str, decompress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    first, second = tmp_path / f"first{ending}", tmp_path / f"second{ending}"
    with pytest.raises(KeyboardInterrupt):
        ResumableOutput(first, HOW).run(WINDOWS, stopping_at(5))
    for output in (first, second):
        ResumableOutput(output, HOW).run(WINDOWS, upper)
    assert decompress(first.read_bytes()).decode() == WHOLE
    assert first.read_bytes() == second.read_bytes()
    assert names(tmp_path) == [first.name, second.name]


def test_a_translator_may_ask_for_windows_ahead_of_what_it_gives(tmp_path: Path) -> None:
    def stopping(windows: Windows) -> Iterator[tuple[int, bytes]]:
        ahead = list(windows)
        yield from upper(ahead[:1])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ResumableOutput(tmp_path / "out", HOW).run(WINDOWS, stopping)
    (part,) = (tmp_path / ".out.parts").glob("0*")
    assert part.read_text() == "1 ONE\n2 TWO\n"
    ResumableOutput(tmp_path / "out", HOW).run(WINDOWS, lambda windows: upper(list(windows)))
    assert (tmp_path / "out").read_text() == WHOLE


def test_a_start_that_did_nothing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        ResumableOutput(tmp_path / "out", HOW).run(WINDOWS, stopping_at(1))
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("how", "windows", "message"),
    [
        (HOW | {"decode.beam_size": "5"}, WINDOWS, "started with decode.beam_size 4, not 5"),
        (HOW, [["one", "two"], ["other"], ["three"]], r"different input \(from line 3 on\)"),
        (HOW, WINDOWS[:1], "started with more input"),
    ],
)
def test_something_else_is_never_mixed_in(
    how: dict[str, str], windows: list[list[str]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        ResumableOutput(tmp_path / "out", HOW).run(WINDOWS, stopping_at(5))
    with pytest.raises(MtkitError, match=message):
        ResumableOutput(tmp_path / "out", how).run(windows, upper)
    # Nothing of the first is lost by that.
    ResumableOutput(tmp_path / "out", HOW).run(WINDOWS, upper)
    assert (tmp_path / "out").read_text() == WHOLE


def test_restart_begins_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        ResumableOutput(tmp_path / "out", HOW).run(WINDOWS, stopping_at(5))
    ResumableOutput(tmp_path / "out", {"run": "b"}, restart=True).run(WINDOWS[:1], upper)
    assert (tmp_path / "out").read_text() == "1 ONE\n2 TWO\n"


def test_several_processes_share_the_windows_out(tmp_path: Path) -> None:
    done: list[tuple[int, int]] = []

    def work(rank: int) -> None:
        def translate(windows: Windows) -> Iterator[tuple[int, bytes]]:
            for first_line, window in windows:
                done.append((rank, first_line))
                yield from upper([(first_line, window)])

        ResumableOutput(tmp_path / "out", HOW, rank=rank, world_size=2).run(WINDOWS, translate)

    # The first comes early and waits for the parts of the other.
    first = threading.Thread(target=work, args=(0,))
    first.start()
    time.sleep(0.1)
    work(1)
    first.join(timeout=100)
    assert sorted(done) == [(0, 1), (0, 5), (1, 3)]
    assert (tmp_path / "out").read_text() == WHOLE
    assert names(tmp_path) == ["out"]


@contextmanager
def in_background(rank: int, folder: Path, how: dict[str, str]) -> Iterator[threading.Thread]:
    """One of two processes that write an output, which has ended at the end of the context."""
    output = ResumableOutput(folder / "out", how, rank=rank, world_size=2)
    thread = threading.Thread(target=output.run, args=(WINDOWS[:1], upper), daemon=True)
    thread.start()
    yield thread
    thread.join(timeout=100)
    assert not thread.is_alive()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def still_waits(monkeypatch: pytest.MonkeyPatch) -> Callable[[threading.Thread], None]:
    """Assert that a process looks three more times, and does not end."""
    looks: list[int] = []

    def sleep(seconds: float) -> None:
        looks.append(threading.get_ident())
        original(seconds)

    original = time.sleep
    monkeypatch.setattr("mtkit.translate.resumable.time.sleep", sleep)

    def check(thread: threading.Thread) -> None:
        assert thread.ident is not None
        before = looks.count(thread.ident)
        wait_until(lambda: looks.count(thread.ident or 0) >= before + 3)
        assert thread.is_alive()

    return check


def test_a_process_may_start_when_the_output_is_complete_without_it(tmp_path: Path) -> None:
    # The only window is that of the first process.
    with in_background(0, tmp_path, HOW):
        wait_until((tmp_path / "out").exists)
        ResumableOutput(tmp_path / "out", HOW, rank=1, world_size=2).run(WINDOWS[:1], upper)
    assert (tmp_path / "out").read_text() == "1 ONE\n2 TWO\n"
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("has_part", [True, False])
def test_the_first_process_waits_for_others_that_had_ended_before_a_kill(
    has_part: bool, tmp_path: Path, still_waits: Callable[[threading.Thread], None]
) -> None:
    parts = tmp_path / ".out.parts"
    parts.mkdir()
    for name in ("launch", "ended-1"):
        (parts / name).write_text("an earlier start")
    if has_part:
        with pytest.raises(KeyboardInterrupt):
            ResumableOutput(tmp_path / "out", HOW).run(WINDOWS, stopping_at(3))
    with in_background(0, tmp_path, HOW) as thread:
        wait_until((tmp_path / "out").exists)
        still_waits(thread)
        with in_background(1, tmp_path, HOW):
            pass
    assert names(tmp_path) == ["out"]


def test_a_process_waits_for_the_first_one_to_change_the_settings(
    tmp_path: Path, still_waits: Callable[[threading.Thread], None]
) -> None:
    # A kill before the first part leaves the settings of then.
    (tmp_path / ".out.parts").mkdir()
    (tmp_path / ".out.parts" / "launch").write_text("an earlier start")
    (tmp_path / ".out.parts" / "job.json").write_text("other settings")
    with in_background(1, tmp_path, HOW) as second:
        still_waits(second)
        with in_background(0, tmp_path, HOW):
            pass
    assert names(tmp_path) == ["out"]


def test_a_process_that_resumes_ends_after_the_first_one_has_begun(
    tmp_path: Path, still_waits: Callable[[threading.Thread], None]
) -> None:
    # All parts are there, from one process alone.
    with pytest.raises(KeyboardInterrupt):
        ResumableOutput(tmp_path / "out", HOW).run(WINDOWS, stopping_at(3))
    with in_background(1, tmp_path, HOW) as second:
        still_waits(second)
        with in_background(0, tmp_path, HOW):
            pass
    assert names(tmp_path) == ["out"]


def test_a_process_ends_with_its_own_lines_when_the_first_one_fails(tmp_path: Path) -> None:
    both_at_work, done = threading.Barrier(2), []

    def fails(windows: Windows) -> Iterator[tuple[int, bytes]]:
        both_at_work.wait(timeout=100)
        raise OSError("the disk is full")
        yield from upper(windows)

    def works(windows: Windows) -> Iterator[tuple[int, bytes]]:
        both_at_work.wait(timeout=100)
        for first_line, text in upper(windows):
            done.append(first_line)
            yield first_line, text

    outputs = [ResumableOutput(tmp_path / "out", HOW, rank=r, world_size=2) for r in range(2)]
    other = threading.Thread(target=outputs[1].run, args=(WINDOWS, works), daemon=True)
    other.start()
    with pytest.raises(OSError, match="the disk is full"):
        outputs[0].run(WINDOWS, fails)
    other.join(timeout=100)
    assert not other.is_alive()
    assert done == [3]
    # What is done stays, and one process can finish the rest.
    ResumableOutput(tmp_path / "out", HOW).run(WINDOWS, upper)
    assert (tmp_path / "out").read_text() == WHOLE


def translate_in_short_windows(folder: Path, arguments: list[str]) -> None:
    """The command in a folder, with windows of 20 lines, so that a short text has many."""
    os.chdir(folder)
    mtkit.translate.reading.WINDOW_LINES = 20
    torch.set_num_threads(1)
    sys.argv = ["mtkit", "-q", "translate", *arguments]
    main()


# Each start has a number of workers of its own; the first is not killed.
@pytest.mark.parametrize(("seed", "workers"), [(1, "112"), slow(1, "11111"), slow(2, "12122")])
def test_a_killed_translation_resumes_to_the_same_output(
    seed: int, workers: str, tiny_run: Run, tmp_path: Path
) -> None:
    lines = [f"one two {'three ' * (i % (5 + seed))}nine" if i % 7 else "" for i in range(400)]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))

    arguments = ["--run", str(tiny_run.path), "--device", "cpu", "--input", "in"]
    turns = iter(workers)

    def start(output: str) -> Forked:
        options = ["--output", output, "--workers", next(turns)]
        return Forked(translate_in_short_windows, tmp_path, [*arguments, *options])

    assert start("whole").wait(timeout=120) == 0
    killed = 0
    parts = tmp_path / ".out.parts"
    kills = len(workers) - 2
    for enough in (2, 6, 11)[:kills]:
        child = start("out")
        while child.returncode is None and len(list(parts.glob("0*"))) < enough:
            time.sleep(0.002)
        child.kill()
        killed += child.wait(timeout=60) == -signal.SIGKILL
    assert killed >= min(kills, 2)
    assert start("out").wait(timeout=120) == 0
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert names(tmp_path) == ["in", "out", "whole"]


def test_before_a_part_is_done_a_job_may_begin_otherwise(tmp_path: Path) -> None:
    # As a kill leaves it that comes before the first part.
    ResumableOutput(tmp_path / "out", HOW)
    ResumableOutput(tmp_path / "out", HOW | {"decode.beam_size": "9"})
