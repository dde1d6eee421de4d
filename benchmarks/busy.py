"""Time translating and training beside programs that keep every core busy.

    python benchmarks/busy.py --data data/multi30k [--run runs/multi30k-small] [--rounds 5]

OpenMP's threads wait for each other some milliseconds in a loop by default, or for a moment in a
loop and then asleep, as the command line of mtkit lets them (`mtkit.cli.WAIT_BRIEFLY`). Both are
measured alone, and with one endless loop pinned to each core. A round has every combination once,
in an order that turns round from one round to the next, each in a process of its own; what is
reported are medians, the ratios of paired rounds, and their range.

Translating is the time of a whole process for the first lines of the data's test text. Training is
the time of updates after three that nobody counts.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from mtkit.cli import WAIT_BRIEFLY, WAITING

POLICIES = {
    "default": {},
    "mtkit": WAIT_BRIEFLY,
}
WORK = ("translate", "train")
WARM_UP = 3
SMALL = str(Path(__file__).with_name("small.yaml"))
# It ends with the benchmark, however that ends.
LOOP = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""

Key = tuple[str, str, bool]


def translate(options: argparse.Namespace) -> None:
    """Translate the lines on standard input, in this process."""
    from mtkit.translate.translator import Translator

    with Translator.load(options.run, device="cpu") as translator:
        for text in translator.translate(line.rstrip("\n") for line in sys.stdin):
            print(text)


def train(options: argparse.Namespace) -> None:
    """Make some updates in this process and print the seconds that they took."""
    import torch

    from mtkit.base.devices import disable_malloc_trim, select_matmul_backend
    from mtkit.config import load_config
    from mtkit.data import PreparedData
    from mtkit.train.trainer import Trainer

    disable_malloc_trim()
    select_matmul_backend(torch.device("cpu"))
    config = load_config(options.config)
    trainer = Trainer(config, PreparedData.open(options.data), device=torch.device("cpu"))
    for _ in range(WARM_UP):
        trainer.update(next(trainer.batches))
    started = time.perf_counter()
    for _ in range(options.steps):
        trainer.update(next(trainer.batches))
    print(time.perf_counter() - started)


def new_run(options: argparse.Namespace, folder: Path) -> Path:
    """A run that was hardly trained, to translate with where no other is given."""
    from mtkit.config import load_config
    from mtkit.data import PreparedData
    from mtkit.train import assembly as training

    # As long as its source, so that the time is that of a model that has learned to stop.
    few = [f"train.max_steps={WARM_UP}", "decode.max_extra_length=0"]
    training.run(
        load_config(options.config, few), PreparedData.open(options.data), folder, device="cpu"
    )
    return folder


@contextmanager
def busy_cores() -> Iterator[None]:
    """An endless loop on every core of this process."""
    cores = sorted(os.sched_getaffinity(0))
    loops = [subprocess.Popen([sys.executable, "-c", LOOP, str(core)]) for core in cores]
    try:
        time.sleep(0.5)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure(work: str, policy: str, options: argparse.Namespace, lines: str) -> float:
    """Seconds of a piece of work in a process of its own."""
    environment = {key: value for key, value in os.environ.items() if key not in WAITING}
    environment |= POLICIES[policy]
    command = [sys.executable, __file__, "--child", work, "--data", str(options.data)]
    command += ["--config", options.config, "--steps", str(options.steps)]
    command += ["--run", str(options.run)]
    started = time.perf_counter()
    done = subprocess.run(
        command, input=lines, env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        sys.exit(done.stderr)
    return float(done.stdout) if work == "train" else seconds


def spread(values: list[float], form: str) -> str:
    """A median with its range."""
    median, low, high = (format(f(values), form) for f in (statistics.median, min, max))
    return f"{median} ({low} to {high})"


def ratios(above: list[float], below: list[float]) -> str:
    """The ratio of two medians, and the range of the ratios of paired rounds."""
    pairs = [one / other for one, other in zip(above, below, strict=True)]
    ratio = statistics.median(above) / statistics.median(below)
    return f"{ratio:.2f} ({min(pairs):.2f} to {max(pairs):.2f})"


def report(taken: dict[Key, list[float]], options: argparse.Namespace) -> None:
    """Print versions and the tables."""
    import torch

    import mtkit

    print(
        f"mtkit {mtkit.__version__}, torch {torch.__version__}, Python "
        f"{platform.python_version()}; {torch.cpu.get_capabilities().get('cpu_name', '?')}, "
        f"{len(os.sched_getaffinity(0))} cores, {torch.get_num_threads()} threads; "
        f"{options.rounds} rounds\n"
    )
    print("| work | waiting | seconds alone | seconds beside busy cores | times as long |")
    print("|---|---|---|---|---|")
    what = {"translate": f"{options.lines} lines", "train": f"{options.steps} training steps"}
    for work, policy in product(WORK, POLICIES):
        alone, busy = (taken[work, policy, beside] for beside in (False, True))
        cells = what[work], policy, spread(alone, ".2f"), spread(busy, ".2f"), ratios(busy, alone)
        print(f"| {' | '.join(cells)} |")
    print("\n| work | waiting | over default, alone | over default, beside busy cores |")
    print("|---|---|---|---|")
    for work, policy in product(WORK, list(POLICIES)[1:]):
        cells = [
            ratios(taken[work, policy, beside], taken[work, "default", beside])
            for beside in (False, True)
        ]
        print(f"| {what[work]} | {policy} | {' | '.join(cells)} |")


def main() -> None:
    """Measure every combination, alternating, and report."""
    parser = argparse.ArgumentParser(description="Time mtkit beside busy cores.")
    parser.add_argument("--data", type=Path, required=True, help="a prepared folder with a test")
    parser.add_argument("--run", type=Path, help="to translate with; default: a new one")
    parser.add_argument("--config", default=SMALL)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--child", choices=WORK, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        {"translate": translate, "train": train}[options.child](options)
        return
    source = (options.data / "test.src.txt").read_text(encoding="utf-8").split("\n")
    lines = "".join(f"{line}\n" for line in source[: options.lines])
    with tempfile.TemporaryDirectory() as folder:
        options.run = options.run or new_run(options, Path(folder) / "run")
        taken: dict[Key, list[float]] = {}
        for number in range(options.rounds):
            policies = list(POLICIES) if number % 2 == 0 else list(POLICIES)[::-1]
            for beside, work, policy in product((False, True), WORK, policies):
                if beside:
                    with busy_cores():
                        seconds = measure(work, policy, options, lines)
                else:
                    seconds = measure(work, policy, options, lines)
                taken.setdefault((work, policy, beside), []).append(seconds)
                where = "beside busy cores" if beside else "alone"
                print(f"{number + 1}: {work}, {policy}, {where}: {seconds:.2f} s", file=sys.stderr)
    report(taken, options)


if __name__ == "__main__":
    main()
