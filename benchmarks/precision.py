"""Does bf16 cost quality? The same training in float32 and in bf16, with several seeds.

    python benchmarks/precision.py --data FOLDER --runs FOLDER [--seeds 3] [--svg FILE]

Trains a configuration once for every precision and seed, one run after the other, and scores the
test set with each. Complete runs are not trained again, and an interrupted run is resumed. The
table has the mean and the standard deviation over the seeds. "difference" is the difference of the
means, with its standard error.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import mtkit
from mtkit.run_folder import Run

PRECISIONS = ("fp32", "bf16")
TITLES = {"fp32": "float32", "bf16": "bf16"}
SMALL = str(Path(__file__).with_name("small.yaml"))
MTKIT = [sys.executable, "-m", "mtkit"]


@dataclass(frozen=True)
class Result:
    """One finished run.

    Attributes:
        losses: step and training loss (nats per target token, smoothed), as recorded.
        valid_losses: step and validation loss (nats per target token, not smoothed).
        bleu: BLEU of the test set.
    """

    losses: list[tuple[int, float]]
    valid_losses: list[tuple[int, float]]
    bleu: float


def train(run: Path, data: Path, config: str, precision: str, seed: int) -> None:
    """Train one run, or resume it; the command does nothing if the run is complete."""
    command = [*MTKIT, "train", "--config", config, "--data", str(data), "--run", str(run)]
    settings = [f"train.seed={seed}", f"train.precision={precision}"]
    subprocess.run([*command, *(x for s in settings for x in ("--set", s))], check=True)


def measure(run: Path) -> Result:
    """Translate and score the test set, and read the records of the run."""
    command = [*MTKIT, "-q", "score", "--run", str(run), "--json"]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = Run.open(run).metrics()
    return Result(
        [(row["step"], row["loss"]) for row in rows if "loss" in row],
        [(row["step"], row["valid_loss"]) for row in rows if "valid_loss" in row],
        float(json.loads(printed)["systems"][0]["scores"][0]["value"]),
    )


def spread(values: Sequence[float], digits: int) -> str:
    """Mean and standard deviation, and each value."""
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    each = ", ".join(f"{value:.{digits}f}" for value in values)
    return f"{statistics.mean(values):.{digits}f}{deviation} ({each})"


def difference(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Mean of `b` minus mean of `a`, and the standard error of that."""
    variances = (statistics.variance(x) / len(x) for x in (a, b))
    return statistics.mean(b) - statistics.mean(a), math.sqrt(sum(variances))


def report(results: dict[str, list[Result]]) -> str:
    """A table with a row for each precision, and the difference."""
    text = [
        "| precision | validation loss | BLEU, test set |",
        "|---" * 3 + "|",
    ]
    for precision, group in results.items():
        valid = spread([r.valid_losses[-1][1] for r in group], 3)
        bleu = spread([r.bleu for r in group], 2)
        text.append(f"| {TITLES[precision]} | {valid} | {bleu} |")
    if all(len(group) > 1 for group in results.values()) and len(results) == 2:
        a, b = results.values()
        loss = difference(*([r.valid_losses[-1][1] for r in g] for g in (a, b)))
        bleu_difference = difference(*([r.bleu for r in g] for g in (a, b)))
        text.append(
            f"| difference | {loss[0]:+.3f} ± {loss[1]:.3f} | "
            f"{bleu_difference[0]:+.2f} ± {bleu_difference[1]:.2f} |"
        )
    return "\n".join(text)


def plot(results: dict[str, list[Result]], path: Path) -> None:
    """Draw the losses of all runs as SVG: training on the left, validation on the right."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "mtkit", "svg.fonttype": "none", "font.size": 10}
    from matplotlib import pyplot as plt

    # Okabe and Ito's colours, which the colour-blind can tell apart.
    lines = {"fp32": ("#0072B2", "-"), "bf16": ("#D55E00", "--")}
    figure, panels = plt.subplots(1, 2, figsize=(9.2, 3.8))
    for precision, group in results.items():
        for number, result in enumerate(group):
            label = TITLES[precision] if number == 0 else None
            colour, dashes = lines[precision]
            style = {"color": colour, "linestyle": dashes, "label": label, "linewidth": 1.3}
            panels[0].plot(*zip(*result.losses, strict=True), **style)
            panels[1].plot(*zip(*result.valid_losses, strict=True), marker="o", ms=4, **style)
    panels[0].set(title="training", xlabel="updates", ylabel="smoothed loss, nats per token")
    panels[1].set(title="validation", xlabel="updates", ylabel="loss, nats per token")
    for panel in panels:
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Train, score, print the table; draw the curves where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="prepared folder with a test set")
    parser.add_argument("--runs", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--config", default=SMALL)
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 1")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--svg", type=Path, help="draw the losses here")
    arguments = parser.parse_args()
    results: dict[str, list[Result]] = {precision: [] for precision in arguments.precisions}
    for seed in range(1, arguments.seeds + 1):
        for precision in arguments.precisions:
            run = arguments.runs / f"{precision}-{seed}"
            train(run, arguments.data, arguments.config, precision, seed)
            results[precision].append(measure(run))
    print(
        f"mtkit {mtkit.__version__}, torch {torch.__version__}, Python "
        f"{platform.python_version()}, {torch.get_num_threads()} threads, "
        f"{Path(arguments.config).stem}, {arguments.seeds} seeds\n"
    )
    print(report(results))
    if arguments.svg:
        plot(results, arguments.svg)


if __name__ == "__main__":
    main()
