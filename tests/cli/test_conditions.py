"""Commands whose streams are closed, full or of another encoding, and files of odd names."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.command_line import prepare_arguments
from support.forked import PIPE, Forked
from support.program import python, succeeded

from mtkit import cli

HERE = Path(__file__).parents[1]
NOBODY = 65534
TEXT = "one two\n\nthree ü\n"

COMMANDS = {
    "--help": ["--help"],
    "train --list": ["train", "--list"],
    "score": ["score", "in.txt", "--reference", "in.txt"],
    "translate": ["translate", "--device=cpu"],
    "translate --output": ["translate", "--device=cpu", "--input=in.txt", "--output=out.txt"],
    "align": ["align", "in.txt", "in.txt", "--device=cpu"],
    "check": ["check", "in.txt", "in.txt", "--src-lang=en", "--tgt-lang=de", "--json"],
    "inspect": ["inspect", "one two", "--json", "--device=cpu"],
    "inspect --output": ["inspect", "one two", "--output=out.txt", "--device=cpu"],
}
WRITE = {"translate --output", "inspect --output"}
PRINT = COMMANDS.keys() - WRITE


def close(descriptor: int, name: str) -> None:
    """As a program finds it that a shell has started with this one closed."""
    os.close(descriptor)
    setattr(sys, name, None)


def lose_reader() -> None:
    """As behind `| head -1`, when that has seen its line."""
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)


def cannot_write() -> None:
    """As an ordinary user in a folder of another user."""
    os.chmod(".", 0o555)
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


# What happens to a process before the program begins, and the commands that cannot do their work.
CONDITIONS: dict[str, tuple[Callable[[], object], set[str]]] = {
    "plain": (lambda: None, set()),
    "stdin closed": (lambda: close(0, "stdin"), {"translate"}),
    "stdout closed": (lambda: close(1, "stdout"), PRINT),
    "stderr closed": (lambda: close(2, "stderr"), set()),
    "stdout full": (lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1), PRINT),
    "stderr full": (lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 2), set()),
    "reader gone": (lose_reader, PRINT),
    "read-only": (cannot_write, WRITE),
}


def run(folder: Path, condition: str, arguments: list[str]) -> None:
    """The program under a condition, and what Python does at its exit."""
    os.chdir(folder)
    torch.set_num_threads(1)
    CONDITIONS[condition][0]()
    sys.argv = ["mtkit", *arguments]
    try:
        cli.main()
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize(
    "command",
    [pytest.param(c, marks=[] if c in ("score", "check") else pytest.mark.slow) for c in COMMANDS],
)
def test_a_command_does_its_work_or_says_in_one_line_why_not(
    command, condition, trained, monkeypatch
):
    for folder in (trained.folder, *trained.folder.parents[:2]):
        folder.chmod(0o755)
    trained.write("in.txt", TEXT)
    monkeypatch.chdir(trained.folder)
    expected = trained.mtkit(*COMMANDS[command], stdin=TEXT.encode())
    written = [path.read_bytes() for path in trained.folder.glob("out.txt")]
    for path in trained.folder.glob("out.txt"):
        path.unlink()
    streams = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}
    with Forked(run, trained.folder, condition, COMMANDS[command], **streams) as process:
        out, err = (text.decode() for text in process.communicate(TEXT.encode()))
    fails = command in CONDITIONS[condition][1]
    assert process.returncode == fails, err
    assert "Traceback" not in err
    errors = [line for line in err.splitlines() if line.startswith("mtkit: error: ")]
    assert errors == err.splitlines()[-1:] * (fails and condition != "reader gone")
    if fails and condition.endswith("closed"):
        assert "is closed; give a file" in err
    if not fails:
        assert out == expected.out
        assert [path.read_bytes() for path in trained.folder.glob("out.txt")] == written


@pytest.mark.parametrize("name", ["caf\udce9", "a\nb", "a\tb", "-x y"])
def test_files_and_folders_may_have_any_name(name, trained, tiny_text):
    run, text = trained.folder / "runs" / name, trained.folder / name
    (trained.folder / "runs" / "tiny").rename(run)
    text.write_text(TEXT, encoding="utf-8")
    options = ["--run", run, "--device", "cpu"]
    for command in (
        ["translate", *options, "--input", text, "--output", f"{text}.out"],
        ["align", text, text, *options, "--output", f"{text}.links"],
        ["inspect", "one two", *options, "--output", f"{text}.html"],
        ["score", text, "--reference", text],
        ["export", run, f"{text}.export", "--format", "safetensors", "--check", text],
        [*prepare_arguments(tiny_text, test=(text, text)), "--out", f"{text}.data"],
    ):
        trained.done(*command)
    for ending in ("out", "links", "html"):
        assert Path(f"{text}.{ending}").stat().st_size


LOCALES = {
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "C": {"LC_ALL": "C"},
    "ASCII": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


@pytest.mark.parametrize("locale", LOCALES)
def test_what_is_printed_is_utf8_in_every_locale(locale, tiny_run, tmp_path):
    folder = tmp_path / "größe"
    folder.mkdir()
    for name, text in (("hyp", "Straße 日本\n"), ("ref", "Straße 日本\n")):
        (folder / name).write_text(text, encoding="utf-8")
    usual = dict[str, str | None].fromkeys(k for k in os.environ if k.startswith(("LC_", "PYTHON")))
    environment = usual | {"PYTHONPATH": str(HERE.parent)} | LOCALES[locale]
    score = ["-m", "mtkit", "score", "größe/hyp", "--reference"]
    done = succeeded(*score, "größe/ref", "--sentence", cwd=tmp_path, **environment)
    assert done.stdout.split("\t")[-2:] == ["Straße 日本", "Straße 日本\n"]
    missing = python(*score, "größe/no\udcff\n", cwd=tmp_path, **environment)
    assert missing.returncode == 1
    assert missing.stderr.count("\n") == 1
    assert missing.stderr.endswith("No such file or directory\n")
