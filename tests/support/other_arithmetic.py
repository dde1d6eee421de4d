"""Runs the tests that use a trained model with other weights and the arithmetic of other CPUs.

    python tests/support/other_arithmetic.py [OPTIONS OF PYTEST]

A toy model learns something else from other random weights, and on every CPU. A test that fails
here rests on what it happened to learn. All settings run in one process, one after another; the
whole output of each is in `build/other-arithmetic/`.
"""

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
# What `draw_other_weights` reads.
SEED = "MTKIT_TEST_SEED"
# PyTorch's own kernels, those of oneDNN in it, and those of the native engine.
OTHER_CPUS = [
    {"ATEN_CPU_CAPABILITY": "avx2"},
    {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MTKIT_KERNELS": "avx2"},
]
# They compare a model of this process with that of another process, which has its usual weights.
ACROSS_PROCESSES = {
    "test_a_full_disk_ends_in_one_line_and_nothing_is_lost",
    "test_the_command_starts_workers_and_prints_once",
}
SETTINGS = [{SEED: seed} for seed in "0123"] + OTHER_CPUS


def draw_other_weights() -> None:
    """Have every model that is made in this process begin with other random weights."""
    import torch

    from mtkit.model import Transformer

    init, count = Transformer.__init__, int(os.environ.get(SEED, "0"))

    def draw_first(model: Transformer, *given: Any, **named: Any) -> None:
        torch.rand(count)
        init(model, *given, **named)

    Transformer.__init__ = draw_first  # type: ignore[method-assign]


def pytest_sessionstart() -> None:
    """As a plugin of pytest: change the models."""
    draw_other_weights()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """As a plugin of pytest: leave out the tests that train nothing."""

    def trains(item: pytest.Item) -> bool:
        # The configurations of all trainings come from this fixture, or the test has a file.
        assert isinstance(item, pytest.Function)
        if os.environ.get(SEED, "0") != "0" and item.originalname in ACROSS_PROCESSES:
            return False
        return "tiny_config" in item.fixturenames or "--config" in inspect.getsource(item.function)

    config.hook.pytest_deselected(items=[item for item in items if not trains(item)])
    items[:] = filter(trains, items)


def main(options: list[str]) -> int:
    """Print a line for each setting, and its failures below; 1 if there are any."""
    folder = ROOT / "build" / "other-arithmetic"
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow and not gpu"]
    command += ["-p", "support.other_arithmetic", "-p", "no:cacheprovider", *options]
    status = 0
    for setting in SETTINGS:
        name = " ".join(f"{key}={value}" for key, value in setting.items())
        environment = os.environ | setting | {"PYTHONPATH": str(ROOT / "tests")}
        with (folder / f"{name}.txt").open("w+", encoding="utf-8") as file:
            done = subprocess.run(command, cwd=ROOT, env=environment, stdout=file, check=False)
            file.seek(0)
            lines = file.read().splitlines()
        print(f"{name}: {lines[-1].strip('= ')}", flush=True)
        for line in lines:
            if line.startswith(("FAILED ", "ERROR ")):
                print(f"    {line}", flush=True)
        status |= done.returncode
    return min(status, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
