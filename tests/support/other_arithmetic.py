"""Runs the tests that use a trained model with other weights, and with the sums of other CPUs.

    python tests/support/other_arithmetic.py [OPTIONS OF PYTEST]

A toy model learns something else with every seed, and on every CPU. A test that fails here rests on
what it happened to learn. Without options it runs what `make test` has, in one process; the whole
output of each setting is in `build/other-arithmetic/`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# PyTorch's own kernels, those of oneDNN in it, and those of the native engine.
OTHER_CPUS = [
    {"ATEN_CPU_CAPABILITY": "avx2"},
    {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MTKIT_KERNELS": "avx2"},
]
SETTINGS = [{"MTKIT_TEST_SEED": seed} for seed in "0123"] + OTHER_CPUS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """As a plugin of pytest: leave out the tests without a model that is trained."""
    # Every configuration of a training comes from this fixture, or has this seed.
    chosen = [
        item
        for item in items
        if isinstance(item, pytest.Function)
        and ("tiny_config" in item.fixturenames or hasattr(item.module, "OTHER_SEED"))
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def main(options: list[str]) -> int:
    """Print a line for each setting, and the failures below it; 1 if there are any."""
    folder = ROOT / "build" / "other-arithmetic"
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow and not gpu"]
    command += ["-p", "support.other_arithmetic", "-p", "no:cacheprovider", *options]
    status = 0
    for setting in SETTINGS:
        name = " ".join(f"{key}={value}" for key, value in setting.items())
        environment = os.environ | setting | {"PYTHONPATH": str(ROOT / "tests")}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        (folder / f"{name}.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
        *_, last = (done.stdout + done.stderr).splitlines()
        print(f"{name}: {last.strip('= ')}", flush=True)
        for line in done.stdout.splitlines():
            if line.startswith(("FAILED ", "ERROR ")):
                print(f"    {line}", flush=True)
        status = max(status, done.returncode)
    return min(status, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
