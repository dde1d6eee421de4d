"""What guided alignment costs: the time of an update with it and without, on the same batches.

    mtkit prepare linked --src-lang de --tgt-lang en --train … --alignments links.txt
    python benchmarks/guided_alignment.py --data data/linked

The two trainers take turns, update by update, and change places after each pair of updates.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import statistics
import time
from pathlib import Path

import torch

from mtkit.base.devices import choose_device, describe_device
from mtkit.config import load_config
from mtkit.data import PreparedData
from mtkit.train.trainer import Trainer

SMALL = str(Path(__file__).with_name("small.yaml"))


def timed_update(trainer: Trainer, batches: list) -> float:
    """Seconds of one update."""
    start = time.perf_counter()
    trainer.update(batches)
    if trainer.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    """Measure, and print a row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="prepared with --alignments")
    parser.add_argument("--config", default=SMALL)
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--updates", type=int, default=100, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    data, device = PreparedData.open(options.data), choose_device(options.device)
    without, with_it = (
        Trainer(
            load_config(options.config, [*options.overrides, f"train.guided_alignment={weight}"]),
            data,
            device=device,
        )
        for weight in (0.0, 0.05)
    )
    batches = without.batches
    for _ in range(10):
        some = next(batches)
        for trainer in (without, with_it):
            trainer.update(some)
    ratios = []
    for _ in range(options.rounds):
        seconds = {False: 0.0, True: 0.0}
        for number, some in enumerate(itertools.islice(batches, options.updates)):
            for is_guided in (False, True) if number % 2 else (True, False):
                seconds[is_guided] += timed_update(with_it if is_guided else without, some)
        ratios.append(seconds[True] / seconds[False])
        print(
            f"{1000 * seconds[False] / options.updates:.1f} ms without, "
            f"{1000 * seconds[True] / options.updates:.1f} ms with, ratio {ratios[-1]:.3f}",
            flush=True,
        )
    print(
        f"ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}); "
        f"{options.config}, {without.precision}, {describe_device(device)}, "
        f"torch {torch.__version__}, {platform.processor() or platform.machine()}"
    )


if __name__ == "__main__":
    main()
