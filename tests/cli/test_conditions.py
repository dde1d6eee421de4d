"""Every command, whatever a shell or a system does to it: no traceback, one error line at most."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.conditions import CONDITIONS, OUTPUTS, Outcome, commands

from mtkit.run_folder import Run

HERE = Path(__file__).parents[1]
CELLS = [(command, condition) for condition in CONDITIONS for command in commands("tiny")]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Outcome]:
    """What became of each, by command and condition."""
    file = tmp_path_factory.mktemp("conditions") / "outcomes.json"
    path = os.pathsep.join([str(HERE), str(HERE.parent), *filter(None, sys.path)])
    subprocess.run(
        [sys.executable, HERE / "support/conditions.py", file],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        check=True,
    )
    found = [Outcome(**one) for one in json.loads(file.read_text(encoding="utf-8"))]
    return {(one.command, one.condition): one for one in found}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("command", "condition"), CELLS)
def test_a_command_does_its_work_or_says_in_one_line_why_not(
    command: str, condition: str, outcomes: dict[tuple[str, str], Outcome]
) -> None:
    found, plain = outcomes[command, condition], outcomes[command, "plain"]
    assert "Traceback" not in found.err
    assert "Exception ignored" not in found.err
    assert found.status == found.expected, found.err
    lines = found.err.split("\n")
    errors = [line for line in lines if line.startswith("mtkit: error: ")]
    is_silent = condition in ("reader gone", "all closed", "stderr closed", "stderr full")
    assert len(errors) == (found.status != 0 and not is_silent), found.err
    if errors:
        # Nothing comes after it.
        assert lines[-2:] == [errors[0], ""]
    elif found.status == 0:
        found.out.encode()  # It is UTF-8, whatever the locale.
        if CONDITIONS[condition].name == "tiny":
            assert data_of(found) == data_of(plain)
        # A page has the name of its run.
        if command in OUTPUTS and command != "inspect --output":
            assert found.written == plain.written


def data_of(outcome: Outcome) -> list[str]:
    """What a command prints, without the comments of a forecast, which measures memory."""
    lines = outcome.out.split("\n")
    return [line for line in lines if not line.startswith("#")]


# ---------------------------------------------------------------------------------------------
# What cannot be had in a fork: an interpreter that starts in another locale


LOCALES = {
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "C": {"LC_ALL": "C"},
    "ASCII": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


@pytest.mark.parametrize("locale", LOCALES)
def test_what_is_printed_is_utf8_in_every_locale(
    locale: str, tiny_run: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "größe"
    folder.mkdir()
    for name, text in (("hyp", "Straße 日本\n"), ("ref", "Straße 日本\n")):
        (folder / name).write_text(text, encoding="utf-8")
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("LC_", "PYTHON"))
    }
    environment = kept | {"PYTHONPATH": str(HERE.parent)} | LOCALES[locale]
    command = ["score", "größe/hyp", "--reference", "größe/ref", "--sentence"]
    done = subprocess.run(
        [sys.executable, "-m", "mtkit", *command],
        cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode("utf-8").split("\t")[-2:] == ["Straße 日本", "Straße 日本\n"]
    missing = subprocess.run(
        [sys.executable, "-m", "mtkit", "score", "größe/hyp", "--reference", "größe/no\udcff\n"],
        cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    assert missing.returncode == 1
    assert missing.stderr.count(b"\n") == 1
    assert missing.stderr.endswith(b"No such file or directory\n")
