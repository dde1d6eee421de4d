"""A long translation that is stopped, killed, or resumed by mistake."""

import bz2
import contextlib
import gzip
import json
import lzma
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch
from conftest import slow
from support.forked import Forked

import mtkit.translate.reading
from mtkit.base.errors import MtkitError
from mtkit.base.sentences import LineFacts
from mtkit.base.text import zstd
from mtkit.cli import main
from mtkit.translate.doubts import IncompleteTranslations
from mtkit.translate.resumable import ResumableOutput

WINDOWS = [(1, ["one", "two"]), (3, ["", "a\u2028b"]), (5, ["three"])]
HOW = {"run": "a", "checkpoint": "1", "--json": "False", "decode.beam_size": "4"}


Windows = Iterable[tuple[int, list[str]]]


def upper(windows: Windows) -> Iterator[tuple[int, bytes]]:
    for first_line, window in windows:
        rows = [f"{first_line + i} {line.upper()}\n" for i, line in enumerate(window)]
        yield first_line, "".join(rows).encode()


WHOLE = "1 ONE\n2 TWO\n3 \n4 A\u2028B\n5 THREE\n"


def stop_at(line: int, output: Path) -> None:
    """Begin an output, and stop before the window with this line."""

    def until(windows: Windows) -> Windows:
        for first_line, window in windows:
            if first_line >= line:
                raise KeyboardInterrupt
            yield first_line, window

    with pytest.raises(KeyboardInterrupt):
        ResumableOutput(output, HOW).run(WINDOWS, lambda windows: upper(until(windows)))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_done_is_not_done_again(tmp_path: Path):
    stop_at(5, tmp_path / "out")
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
        ("", bytes),
        (".gz", gzip.decompress),
        (".BZ2", bz2.decompress),
        (".xz", lzma.decompress),
        (".zst", zstd.decompress),
    ],
)
def test_the_output_has_all_windows_compressed_if_its_name_ends_so(ending, decompress, tmp_path):
    first, second = tmp_path / f"first{ending}", tmp_path / f"second{ending}"
    stop_at(5, first)
    for output in (first, second):
        ResumableOutput(output, HOW).run(WINDOWS, upper)
    assert decompress(first.read_bytes()).decode() == WHOLE
    assert first.read_bytes() == second.read_bytes()
    assert names(tmp_path) == [first.name, second.name]


def test_a_translator_may_ask_for_windows_ahead_of_what_it_gives(tmp_path: Path):
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


def test_a_start_that_did_nothing_leaves_nothing(tmp_path: Path):
    stop_at(1, tmp_path / "out")
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("how", "windows", "message"),
    [
        (HOW | {"decode.beam_size": "5"}, WINDOWS,
         "started with decode.beam_size 4, now with decode.beam_size 5"),
        (HOW | {"run": "b", "checkpoint": "2"}, WINDOWS, "started with run a, now with run b"),
        (HOW | {"--json": "True"}, WINDOWS, "started without --json, now with --json;"),
        (HOW | {"--alignments": "True 5e"}, WINDOWS, "now with --alignments 5e;"),
        (HOW | {"--glossary": "none", "--x": "1"}, WINDOWS, "without --x, now with --x 1;"),
        (HOW, [WINDOWS[0], (3, ["other"])], r"different input \(from line 3 on\)"),
        (HOW, WINDOWS[:1], "started with more input"),
    ],
)  # fmt: skip
def test_something_else_is_never_mixed_in(how, windows, message, tmp_path):
    stop_at(5, tmp_path / "out")
    with pytest.raises(MtkitError, match=message):
        ResumableOutput(tmp_path / "out", how).run(windows, upper)
    # Nothing of the first is lost by that.
    ResumableOutput(tmp_path / "out", HOW).run(WINDOWS, upper)
    assert (tmp_path / "out").read_text() == WHOLE


def test_restart_begins_again(tmp_path: Path):
    stop_at(5, tmp_path / "out")
    ResumableOutput(tmp_path / "out", {"run": "b"}, restart=True).run(WINDOWS[:1], upper)
    assert (tmp_path / "out").read_text() == "1 ONE\n2 TWO\n"


def translate_in_short_windows(folder: Path, arguments: list[str]) -> None:
    """The command in a folder, with windows of 20 lines, so that a short text has many."""
    os.chdir(folder)
    mtkit.translate.reading.WINDOW_LINES = 20
    torch.set_num_threads(1)
    sys.argv = ["mtkit", "-q", "translate", *arguments]
    main()


# Each start has a number of workers of its own; the first is not killed.
@pytest.mark.parametrize(("seed", "workers"), [(1, "112"), slow(1, "11111"), slow(2, "12122")])
def test_a_killed_translation_resumes_to_the_same_output(seed, workers, tiny_run, tmp_path):
    lines = [f"one two {'three ' * (i % (5 + seed))}nine" if i % 7 else "" for i in range(300)]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))

    arguments = ["--run", str(tiny_run.path), "--device", "cpu", "--input", "in"]
    turns = iter(workers)

    def start(output: str) -> Forked:
        options = ["--output", output, "--workers", next(turns)]
        return Forked(translate_in_short_windows, tmp_path, [*arguments, *options])

    assert start("whole").wait(timeout=600) == 0
    killed = 0
    parts = tmp_path / ".out.parts"
    kills = len(workers) - 2
    for enough in (2, 6, 11)[:kills]:
        child = start("out")
        while child.returncode is None and len(list(parts.glob("0*"))) < enough:
            time.sleep(0.002)
        child.kill()
        killed += child.wait(timeout=600) == -signal.SIGKILL
    assert killed >= min(kills, 2)
    assert start("out").wait(timeout=600) == 0
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert names(tmp_path) == ["in", "out", "whole"]


def warned(
    output: Path, caplog: pytest.LogCaptureFixture, *, stop: int = 0, run: str = "a"
) -> list[str]:
    """What a start warns of, which doubts each window; `stop` interrupts it in one of them."""
    caplog.clear()
    doubts = IncompleteTranslations(LineFacts())

    def translate(windows: Windows) -> Iterator[tuple[int, bytes]]:
        for first_line, text in upper(windows):
            doubts.add_missing(first_line)
            doubts.copied += 1
            if first_line == stop:
                raise KeyboardInterrupt
            yield first_line, text

    resumable = ResumableOutput(output, HOW | {"run": run}, doubts=doubts)
    with contextlib.suppress(KeyboardInterrupt):
        resumable.run(WINDOWS, translate)
        doubts.report()
    return [record.getMessage() for record in caplog.records if "wrote" not in record.msg]


@pytest.mark.parametrize("kind", ["none", "list", "missing", "part", "other job", "killed"])
def test_warnings_of_an_earlier_start_count_once(kind, tmp_path, caplog):
    caplog.set_level("INFO")
    parts = tmp_path / ".out.parts"
    warned(tmp_path / "out", caplog, stop=5)
    saved = parts / "doubts-00000001.json"
    # What a window found is saved once, not again for every later one.
    assert (json.loads(saved.read_text())["copied"], len(names(parts))) == (1, 5)
    part = next(parts.glob("00000001-*"))
    if kind == "list":
        saved.write_text("[1]")
    elif kind == "missing":
        saved.unlink()
    elif kind == "part":
        part.write_text("changed")
    elif kind == "other job":
        # As a kill leaves it that comes before the first part.
        for path in parts.glob("0*"):
            path.unlink()
    elif kind == "killed":
        part.unlink()
    messages = warned(tmp_path / "out", caplog, run="b" if kind == "other job" else "a")
    assert [message for message in messages if "done already" not in message][-2:] == [
        "check the translations: 3 lines are without a translation (lines 1, 3, 5)",
        "copied 3 texts without letters, or with addresses and placeholders only; "
        "--no-copy translates them",
    ]
    changed = [message for message in messages if "translated again" in message]
    assert len(changed) == (kind in ("list", "missing", "part"))
    assert (tmp_path / "out").read_text() == WHOLE
    assert names(tmp_path) == ["out"]
