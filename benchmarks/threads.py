"""Time updates whose micro-batches are computed at the same time, against one after the other.

    OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=10000 python benchmarks/threads.py --data data/NAME

Two trainings of the same model on a CPU take turns, with updates of four batches. The variables are
those that the `mtkit` command sets, for how threads wait for each other. What is reported is the
ratio of paired rounds, its median and its range, and then the absolute speeds. `--config`,
`--rounds`, `--updates` and `--threads` change what is measured.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from pathlib import Path

import torch

import mtkit
from mtkit.base.devices import disable_malloc_trim
from mtkit.config import Config, load_config
from mtkit.data import PreparedData
from mtkit.train.trainer import Trainer


def trainer_of(config: Config, data: PreparedData, *, precision: str, tokens: int) -> Trainer:
    """A training with updates of four batches."""
    changes = {"precision": precision, "batch_tokens": tokens, "batches_per_update": 4}
    train = config.train.model_copy(update=changes)
    return Trainer(config.model_copy(update={"train": train}), data, device=torch.device("cpu"))


def speed(trainer: Trainer, updates: int) -> float:
    """Target tokens per second over the next updates."""
    before, started = trainer.cost.tokens, time.perf_counter()
    for _ in range(updates):
        trainer.update(next(trainer.batches))
    return (trainer.cost.tokens - before) / (time.perf_counter() - started)


def compare(threads: Trainer, plain: Trainer, rounds: int, updates: int) -> str:
    """Cells of a table: the ratio of the speeds, and both."""
    found: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        # Each is the first one in every second round.
        order = (threads, plain) if number % 2 else (plain, threads)
        speeds = {id(trainer): speed(trainer, updates) for trainer in order}
        pair = speeds[id(threads)], speeds[id(plain)]
        # The first round is not counted: oneDNN compiles its kernels in it.
        if number:
            found.append(pair)
    ratios = sorted(a / b for a, b in found)
    medians = [statistics.median(speeds) for speeds in zip(*found, strict=True)]
    return (
        f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) | "
        f"{medians[0]:,.0f} | {medians[1]:,.0f}"
    )


def main() -> None:
    """Parse, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--config", default="small")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    disable_malloc_trim()
    config, data = load_config(arguments.config), PreparedData.open(Path(arguments.data))
    print(
        f"mtkit {mtkit.__version__}, torch {torch.__version__}, Python "
        f"{platform.python_version()}, {arguments.threads} threads, {arguments.rounds} rounds of "
        f"{arguments.updates} updates\n"
    )
    print("| precision | tokens of an update | at a time | ratio | tokens/s | one by one |")
    print("|---|---|---|---|---|---|")
    for precision in ("bf16", "fp32"):
        for tokens in (1000, 2000, 4000):
            threads, plain = (
                trainer_of(config, data, precision=precision, tokens=tokens) for _ in range(2)
            )
            if threads.batches.per_update != 4:
                raise SystemExit(f"a pair is too long for four batches of {tokens // 4} tokens")
            plain.micro_batches.at_once = 1
            cells = compare(threads, plain, arguments.rounds, arguments.updates)
            at_once = threads.micro_batches.at_once
            print(f"| {precision} | {tokens:,} | {at_once} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
