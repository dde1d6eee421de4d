"""Hostile input: whatever is in a line, it is one line, and the program goes on."""

import os
import re
import sys
from pathlib import Path

import pytest
import torch
from support.forked import Forked
from support.hostile import INVALID, hostile_lines

import mtkit.translate.reading
from mtkit.cli import main
from mtkit.run_folder import Run

SEED = 1
# Short translations, of which even a model that knows nothing makes some text.
SETTINGS = {"beam_size": 1, "min_length": 3, "max_length": 4, "no_repeat_ngram": 1}
OPTIONS = [f"--{key.replace('_', '-')}={value}" for key, value in SETTINGS.items()]
LINES, LONG_EVERY = 700, 100
# How often the lines are repeated, to see whether memory grows.
OFTEN = 10
# oneDNN, which computes float32 on some CPUs, keeps up to 1,024 kernels, one for each shape. This
# is a constant too; a smaller one is reached sooner.
FEW_KERNELS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64"}


def translate(folder: Path, run: Path, name: str) -> None:
    """Translate NAME.in to NAME.out with the command, and write its peak memory in bytes."""
    os.chdir(folder)
    torch.set_num_threads(1)
    # So that even a short text has many windows.
    mtkit.translate.reading.WINDOW_LINES = 100
    sys.argv = ["mtkit", "translate", f"--run={run}", f"--input={name}.in", *OPTIONS]
    # So that lines with placeholders are translated as from Python.
    sys.argv.append("--no-placeholders")
    with Path(f"{name}.out").open("wb") as out:
        os.dup2(out.fileno(), 1)
    try:
        main()
    finally:
        # Of this process since it was forked; getrusage would count that of its parent too.
        status = Path("/proc/self/status")
        peak = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
        Path(f"{name}.peak").write_text(str(int(peak[1]) * 1024 if peak else 0))


def translated(folder: Path, run: Run, lines: list[bytes]) -> tuple[int | None, bytes, str, int]:
    """Exit status, standard output, standard error and peak memory of the command."""
    (folder / "text.in").write_bytes(b"".join(line + b"\n" for line in lines))
    out, err, peak = (folder / f"text.{name}" for name in ("out", "err", "peak"))
    child = Forked(translate, folder, run.path, "text", err=err, environment=FEW_KERNELS)
    status = child.wait(timeout=600)
    return status, out.read_bytes(), err.read_text(encoding="utf-8"), int(peak.read_text())


@pytest.fixture(scope="module")
def answered(tiny_run, tmp_path_factory) -> dict[int, tuple[list[bytes], bytes, str, int]]:
    """Lines once, and again and again: what came out, what was said, and the peak of memory."""
    runs = {}
    for times in (1, OFTEN):
        lines = list(hostile_lines(LINES, SEED, long_every=LONG_EVERY)) * times
        folder = tmp_path_factory.mktemp("hostile")
        status, out, err, peak = translated(folder, tiny_run, lines)
        assert status == 0, err
        runs[times] = lines, out, err, peak
    return runs


def test_one_line_of_utf8_comes_out_for_each_and_what_is_blank_stays_blank(answered):
    blank = answers = 0
    for lines, out, err, _ in answered.values():
        assert out.endswith(b"\n")
        translations = out.decode("utf-8").split("\n")[:-1]
        assert "\0" not in err
        for line, translation in zip(lines, translations, strict=True):
            if not line.decode().strip():
                blank += 1
                assert translation == "", line
            answers += bool(translation)
    assert blank > 100
    # Not because the model has nothing to say.
    assert answers > 1000


def test_a_line_that_is_too_long_is_cut_and_named(answered):
    for lines, _, err, _ in answered.values():
        warned = {int(n) for n in re.findall(r"^mtkit: warning: line (\d+): cut from", err, re.M)}
        assert warned == {n for n, line in enumerate(lines, start=1) if len(line) > 1100}
        assert len(warned) == len(lines) // LONG_EVERY
        # The others: the first control character, and at the end the doubtful translations.
        assert len(re.findall(r"warning: line \d+ has the control character U\+00", err)) == 1
        assert err.count("warning: check the translations: ") == 1
        assert err.count("warning") == len(warned) + 2
        assert "Traceback" not in err


def test_memory_does_not_grow_with_the_number_of_lines(answered, tiny_run, tmp_path_factory):
    (_, _, _, once), (lines, _, _, peak) = answered.values()
    if not once:
        pytest.skip("reads the peak of memory from /proc/self/status")
    # A kilobyte for each line more would be too much. Other work on the machine can only raise a
    # peak, so the smallest of some runs counts.
    most = once + 950 * (OFTEN - 1) * LINES
    peaks = [peak]
    while min(peaks) >= most and len(peaks) < 4:
        peaks.append(translated(tmp_path_factory.mktemp("again"), tiny_run, lines)[3])
    assert min(peaks) < most


@pytest.mark.parametrize("broken", INVALID)
def test_invalid_utf8_is_refused_with_its_line_after_the_lines_before_it(broken, tiny_run, place):
    lines = list(hostile_lines(10, SEED))
    place.write("text.in", b"\n".join([*lines, b"one " + broken, b"two"]))
    command = ["translate", "--run", tiny_run.path, "--input", "text.in", *OPTIONS]
    outcome = place.mtkit(*command)
    assert (outcome.status, outcome.out.count("\n")) == (1, len(lines))
    assert "mtkit: error: text.in, line 11: not UTF-8 " in outcome.err
    # Which weights, which engine, the first control character, and what is wrong.
    assert outcome.err.count("\n") == 4
