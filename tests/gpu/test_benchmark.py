"""The benchmark of a GPU, all parts of it, small and on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from support.benchmarks import BENCHMARKS, benchmark


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, as a module."""
    return benchmark("gpu", monkeypatch)


@pytest.mark.slow
def test_every_part_runs_on_a_cpu_or_says_in_one_line_what_it_lacks(tmp_path: Path) -> None:
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


def test_parts_that_fail_or_take_too_long_are_a_line_and_the_others_follow(
    gpu: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(bench: Any) -> Iterator[dict[str, Any]]:
        yield from bench.rows({"good": lambda _: {"ms": 1.0}, "bad": lambda _: 1 / 0})
        raise RuntimeError("no kernel\nimage")

    def hangs(bench: Any) -> Iterator[dict[str, Any]]:
        yield {"what": "first"}
        time.sleep(100)

    parts = {"fails": fails, "hangs": hangs, "late": hangs}
    monkeypatch.setattr(gpu, "PARTS", parts)
    monkeypatch.setattr(gpu, "SECONDS", {fails: 200.0, hangs: 1.0})
    monkeypatch.setattr(gpu, "PATIENCE", 0.0)
    bench = gpu.Bench(torch.device("cpu"), gpu.SMALLEST)
    assert list(gpu.measure_all(bench, ["fails", "hangs"], 300.0)) == ["fails", "hangs"]
    # Nothing is left of the seconds of all.
    assert list(gpu.measure_all(bench, ["late"], 0.0)) == ["late"]
    rows = {name: bench.tables[name]["rows"] for name in parts}
    notes = {name: bench.tables[name]["note"] for name in parts}
    assert rows["fails"][0] == {"what": "good", "ms": 1.0}
    assert rows["fails"][1] == {"what": "bad", "note": "ZeroDivisionError: division by zero"}
    assert notes["fails"] == "RuntimeError: no kernel image"
    assert rows["hangs"] == [{"what": "first"}]
    assert notes["hangs"] == notes["late"] == "stopped, because the time was up"
    assert "| good | 1 |  |\n| bad |  | ZeroDivisionError" in gpu.shown(bench.tables["fails"])
