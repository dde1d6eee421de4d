"""The benchmark of a GPU, all parts of it, small and on a CPU."""

import json
import os
import re
import subprocess
import sys

import pytest
from support.benchmarks import BENCHMARKS, benchmark


@pytest.mark.slow
def test_every_part_runs_on_a_cpu_or_says_in_one_line_what_it_lacks(tmp_path):
    file = tmp_path / "gpu.json"
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), "--smallest", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    parts = json.loads(file.read_text())["parts"]
    rows = {row["what"]: row for part in parts.values() for row in part["rows"]}
    assert list(parts) == ["card", "attention", "loss", "training", "gpus", "translating", "marian"]
    for part in parts.values():
        assert part["note"] == ""
    measured = {what: row for what, row in rows.items() if "note" not in row}
    for what in ("base, plain", "base, packed", "big, packed", "base, 2"):
        assert measured[what]["tokens/s"] > 0
    for what in ("beam 4, fp32", "beam 1, one by one", "64² product in bf16"):
        assert what in measured
    assert measured["beam 4, bf16"]["lines"] == 4
    for what in rows.keys() - measured.keys():
        assert "\n" not in rows[what]["note"]
        # Kernels of a GPU, compiling, and what need not be installed.
        assert any(word in what for word in ("padding", "varlen", "compiled", "MarianMT")), what
    # The same are the rows of tables.
    for what in rows:
        assert f"\n| {what} | " in done.stdout


def test_the_script_of_all_steps_takes_15_minutes_and_names_what_there_is(monkeypatch):
    script = BENCHMARKS / "gpu.sh"
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    text = script.read_text()
    # A step is killed ten seconds after its end.
    limits = [int(seconds) + 10 for seconds in re.findall(r"seconds=(\d+) options", text)]
    assert sum(limits) <= 15 * 60
    parts = " ".join(re.findall(r"--only ([a-z ]+) --minutes", text)).split()
    assert sorted(parts) == sorted(benchmark("gpu", monkeypatch).PARTS)
    for option in re.findall(r" (--[a-z]+)", text):
        assert f'"{option}"' in (BENCHMARKS / "gpu.py").read_text()


@pytest.mark.slow
def test_the_script_writes_each_step_and_refuses_a_step_that_there_is_not(tmp_path):
    command = ["bash", str(BENCHMARKS / "gpu.sh"), "--smallest", "attention", "trainings"]
    environment = os.environ | {"OUT": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "gpu.sh: unknown step: trainings\n")
    assert "## translating" in (tmp_path / "attention.log").read_text()
    assert json.loads((tmp_path / "attention.json").read_text())["parts"]["translating"]["rows"]
