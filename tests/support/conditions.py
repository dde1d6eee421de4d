"""Every command under every condition that a shell or a system can put it in: conditions.py [JSON]

Prints a table of what became of each, or writes everything as JSON to a file. Each command is the
program in a fork, because a fresh process would spend its time on imports; what a real start does
to its streams and descriptors is done in the fork.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from conftest import number_pairs, write_pairs

from mtkit import cli

NOBODY = 65534
CONFIG = """
model: {encoder_layers: 1, decoder_layers: 1, d_model: 16, d_ff: 32, n_heads: 2}
train: {max_steps: 4, batch_tokens: 200, warmup_steps: 4, precision: fp32, seed: 1}
decode: {max_extra_length: 5, average_checkpoints: 1}
"""
# What the commands import on their way, so that not every fork does.
LIBRARIES = ["torch._dynamo", "matplotlib.figure", "matplotlib.backends.backend_svg"]
LIBRARIES += ["resource", "tensorboardX", "sacrebleu", "rich.table", "tqdm"]
LIBRARIES += [f"mtkit.{name}" for name in ("prepare", "train", "translate", "convert")]
LIBRARIES += ["mtkit.cli.progress", "mtkit.cli.tables", "mtkit.train.report_page", "mtkit.score"]

TEXT = "--src-lang=en --tgt-lang=de --vocab-size=300 --workers=1"


def commands(name: str) -> dict[str, list[str]]:
    """The command lines, with files and folders that have this in their names."""
    run, cpu = f"runs/{name}", "--device=cpu"
    own = ["prepare", "tiny", *TEXT.split(), "--train", f"{name}.en", f"{name}.de"]
    own += ["--valid", f"{name}.en", f"{name}.de", "--test", f"{name}.en", f"{name}.de"]
    trained = ["train", "--config", f"{name}.yaml", "--data", f"data/{name}", cpu]
    return {
        "--help": ["--help"],
        "--version": ["--version"],
        "prepare": [*own, "--out", f"data/new-{name}"],
        "prepare --list": ["prepare", "--list"],
        "prepare --settings": ["prepare", "--settings"],
        "prepare --dry-run": [*own, "--out", f"data/dry-{name}", "--dry-run"],
        "train": [*trained, "--run", f"runs/new-{name}"],
        "train --dry-run": [*trained, "--dry-run"],
        "train --list": ["train", "--list"],
        "train --settings": ["train", "--settings"],
        "translate": ["translate", "--run", run, cpu],
        "translate --output": [
            *("translate", "--run", run, cpu, "--input", f"{name}.en", "--output", f"{name}.out"),
        ],
        "align": ["align", f"{name}.en", f"{name}.de", "--run", run, cpu],
        "align --output": [
            *("align", f"{name}.en", f"{name}.de", "--run", run, cpu, "--output", f"{name}.links"),
        ],
        "inspect": ["inspect", "one two", "--json", "--run", run, cpu],
        "inspect --output": [
            *("inspect", "one two", "--run", run, cpu, "--output", f"{name}.html"),
        ],
        "score of a run": ["score", "--run", run, cpu, "--data", f"data/{name}"],
        "score of files": ["score", f"{name}.de", "--reference", f"{name}.de"],
        "export": [
            *("export", run, f"export-{name}", "--format", "safetensors", "--check", f"{name}.en"),
        ],
    }


PRINT = {
    *("--help", "--version", "prepare --list", "prepare --settings", "prepare --dry-run"),
    *("train --dry-run", "train --list", "train --settings"),
    *("translate", "align", "inspect", "score of a run", "score of files"),
}
# The endings of the files that these write.
OUTPUTS = {"translate --output": ".out", "align --output": ".links", "inspect --output": ".html"}
WRITE = {"prepare", "train", "export", *OUTPUTS}


def close(descriptor: int, stream: str) -> None:
    """As a program finds it that a shell has started with this one closed."""
    os.close(descriptor)
    setattr(sys, stream, None)


def speak(encoding: str, errors: str) -> None:
    """As Python does where PYTHONIOENCODING or the locale says so."""
    sys.stdout = stream(1, encoding, errors)
    sys.stderr = stream(2, encoding, "backslashreplace")


def stream(number: int, encoding: str = "utf-8", errors: str = "strict") -> io.TextIOWrapper:
    """A standard stream as Python opens it."""
    file = io.FileIO(number, "rb" if number == 0 else "wb", closefd=False)
    buffer = io.BufferedReader(file) if number == 0 else io.BufferedWriter(file)
    return io.TextIOWrapper(buffer, encoding=encoding, errors=errors)  # type: ignore[type-var]


def lose_reader() -> None:
    """As behind `| head -1`, when that has seen its line."""
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)


def forget_home() -> None:
    """As a service is started."""
    for variable in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "USER"):
        os.environ.pop(variable, None)


def cannot_write() -> None:
    """As an ordinary user in a folder of another user."""
    for folder in (".", "data", "runs"):
        os.chmod(folder, 0o555)
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


@dataclass(frozen=True)
class Condition:
    """One that a command is put in.

    Attributes:
        begin: what happens to the process before the program begins.
        name: in the names of files and folders.
        fails: the exit status of commands that cannot do their work.
    """

    begin: Callable[[], Any] = lambda: None
    name: str = "tiny"
    fails: tuple[tuple[str, int], ...] = ()


def all_to(status: int, which: set[str], **others: int) -> tuple[tuple[str, int], ...]:
    return tuple((dict.fromkeys(sorted(which), status) | others).items())


CONDITIONS = {
    "plain": Condition(),
    "stdin closed": Condition(lambda: close(0, "stdin"), fails=(("translate", 2),)),
    "stdout closed": Condition(lambda: close(1, "stdout"), fails=all_to(1, PRINT, translate=2)),
    "stderr closed": Condition(lambda: close(2, "stderr")),
    "all closed": Condition(
        lambda: (close(0, "stdin"), close(1, "stdout"), close(2, "stderr")),
        fails=all_to(1, PRINT, translate=2),
    ),
    "stdout full": Condition(
        lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1), fails=all_to(1, PRINT)
    ),
    "stderr full": Condition(lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 2)),
    "reader gone": Condition(lose_reader, fails=all_to(1, PRINT)),
    "latin-1": Condition(lambda: speak("latin-1", "strict")),
    "ASCII": Condition(lambda: speak("ascii", "surrogateescape")),
    "HOME unset": Condition(forget_home),
    "read-only": Condition(cannot_write, fails=all_to(1, WRITE | {"prepare --dry-run"})),
    "not UTF-8": Condition(name="caf\udce9"),
    "newline": Condition(name="a\nb"),
    "tab": Condition(name="a\tb"),
    "dash": Condition(name="-x y"),
}


@dataclass(frozen=True)
class Outcome:
    """What became of a command.

    Attributes:
        expected: exit status.
        status: exit status, or minus the signal.
        out, err: what it wrote; bytes that are not UTF-8 as surrogates.
        files: of the working folder, that are new, with the size of each.
    """

    command: str
    condition: str
    expected: int
    status: int
    out: str
    err: str
    written: str


def run(
    arguments: list[str], folder: Path, begin: Callable[[], Any] = lambda: None
) -> tuple[int, str, str]:
    """Status and what was written by the program in a fork."""
    out, err = (folder.parent / f"{folder.name}.{stream}" for stream in ("out", "err"))
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            os.chdir(folder)
            for number, (path, flags) in enumerate(
                [("in.txt", os.O_RDONLY), *((p, os.O_RDWR | os.O_CREAT) for p in (out, err))]
            ):
                os.dup2(os.open(path, flags, 0o666), number)
            sys.stdin, sys.stdout, sys.stderr = map(stream, range(3))
            sys.argv = ["mtkit", *arguments]
            begin()
            status = ended()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    texts = [path.read_bytes().decode("utf-8", "surrogateescape") for path in (out, err)]
    out.unlink()
    err.unlink()
    return os.waitstatus_to_exitcode(status), texts[0], texts[1]


def ended() -> int:
    """The status with which the interpreter would end."""
    import traceback

    try:
        cli.main()
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except Exception as error:
            # As Python would say, and end with this.
            os.write(2, f"Exception ignored in: {error!r}\n".encode())
            status = 120
    return status


def make(folder: Path) -> None:
    """A small corpus, prepared, and a run of it."""
    for path in (folder, folder / "data", folder / "runs"):
        path.mkdir()
    # One pair for a dry run to show.
    write_pairs(folder, "tiny", [*number_pairs(120, seed=1), ("one two", "one two")])
    (folder / "tiny.yaml").write_text(CONFIG, encoding="utf-8")
    (folder / "in.txt").write_text("one two\n\nthree ü\n", encoding="utf-8")
    for command, new, name in (
        ("prepare", "data/new-tiny", "data/tiny"),
        ("train", "runs/new-tiny", "runs/tiny"),
    ):
        status, _, err = run(commands("tiny")[command], folder)
        assert status == 0, err
        (folder / new).rename(folder / name)


def renamed(source: Path, folder: Path, name: str) -> None:
    """The same under another name."""
    shutil.copytree(source, folder)
    if name != "tiny":
        for path in [*folder.glob("tiny.*"), *folder.glob("*/tiny")]:
            path.rename(path.with_name(path.name.replace("tiny", name)))


def outcomes() -> list[Outcome]:
    """Of every command under every condition."""
    torch.set_num_threads(1)
    for library in LIBRARIES:
        importlib.import_module(library)
    top = Path(tempfile.mkdtemp(prefix="conditions-"))
    top.chmod(0o755)
    found = []
    try:
        make(top / "made")
        for number, (title, condition) in enumerate(CONDITIONS.items()):
            folder = top / str(number)
            renamed(top / "made", folder, condition.name)
            for command, arguments in commands(condition.name).items():
                before = set(folder.rglob("*"))
                words = [f"./{a}" if a.startswith(condition.name) and a[0] == "-" else a
                         for a in arguments]  # fmt: skip
                status, out, err = run(words, folder, condition.begin)
                new = {path.relative_to(folder).parts[0] for path in {*folder.rglob("*")} - before}
                ending = OUTPUTS.get(command, "")
                output = folder / f"{condition.name}{ending}"
                is_output = bool(ending) and output.is_file()
                written = output.read_text("utf-8") if is_output else ", ".join(sorted(new))
                expected = dict(condition.fails).get(command, 0)
                found.append(Outcome(command, title, expected, status, out, err, written))
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", top], check=True)
        shutil.rmtree(top)
    return found


def table(found: list[Outcome]) -> str:
    """A row for each command: the status, and in brackets the error."""
    rows = ["| command | " + " | ".join(CONDITIONS) + " |", "|---" * (len(CONDITIONS) + 1) + "|"]
    for command in commands("tiny"):
        cells = []
        for one in found:
            if one.command == command:
                is_bad = "Traceback" in one.err or "ignored" in one.err
                good = one.status == one.expected and not is_bad
                cells.append(f"{one.status}" if good else f"**{one.status}**")
        rows.append(f"| {command} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    """Print the table, or write the outcomes to a file."""
    found = outcomes()
    if sys.argv[1:]:
        Path(sys.argv[1]).write_text(json.dumps([asdict(one) for one in found]), encoding="utf-8")
    else:
        print(table(found))


if __name__ == "__main__":
    main()
