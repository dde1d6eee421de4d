"""Table 1 of the paper, measured: what one layer of each kind costs as sequences grow.

    python benchmarks/layers.py [--svg FILE] [--quick]

Times the forward pass of one layer at batch 1 for several lengths n and widths d: self-attention
and restricted self-attention by mtkit's `Attention`, a recurrent layer by `torch.nn.RNN`, a
convolutional one by `torch.nn.Conv1d`. The kinds take turns in every round, a sample is repeated
until 50 ms have passed, and what is reported is the median of the rounds with its range. From the
medians the growth is fitted: the exponent of n over the longer half of the lengths, that of d
between the widths, and for self-attention the shares of its projections (n·d²) and of the attention
itself (n²·d), which is all that Table 1 counts.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from common import markdown, versions
from torch import Tensor, nn

from mtkit.base.memory import disable_malloc_trim
from mtkit.config import ModelConfig
from mtkit.model import SelfAttention

HEAD_WIDTH = 64
# Long enough for the clock, and for the operating system to be a small part of it.
SAMPLE_SECONDS = 0.05


Layer = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Kind:
    """A row of Table 1: its name, what the paper says of it, and how to build one of a width."""

    name: str
    complexity: str
    sequential: str
    path: str
    build: Callable[[int], Layer]


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one layer: median, least and most of the rounds."""

    kind: str
    n: int
    d: int
    median: float
    least: float
    most: float


def attention(window: int | None) -> Callable[[int], Layer]:
    """A builder of self-attention over a whole sequence without padding."""

    def build(d: int) -> Layer:
        shape = ModelConfig(d_model=d, n_heads=max(1, d // HEAD_WIDTH), attention_window=window)
        layer = SelfAttention(shape).eval()
        for linear in (layer.in_proj, layer.out_proj):
            torch.nn.init.xavier_uniform_(linear.weight)
        return layer

    return build


def recurrent(d: int) -> Layer:
    """The plainest recurrent layer: one d × d product a position, after the one of the input."""
    layer = nn.RNN(d, d, batch_first=True).eval()
    return lambda x: layer(x)[0]


def convolutional(width: int) -> Callable[[int], Layer]:
    """A builder of a convolution with a kernel of `width` positions."""

    def build(d: int) -> Layer:
        layer = nn.Conv1d(d, d, width, padding=width // 2).eval()
        return lambda x: layer(x.transpose(1, 2))

    return build


def kinds(window: int, kernel: int) -> list[Kind]:
    """The four rows of Table 1."""
    near = f"restricted, r = {window}"
    return [
        Kind("self-attention", "n²·d", "1", "1", attention(None)),
        Kind(near, "r·n·d", "1", "n/r", attention(window)),
        Kind("recurrent", "n·d²", "n", "n", recurrent),
        Kind(f"convolutional, k = {kernel}", "k·n·d²", "1", "log_k(n)", convolutional(kernel)),
    ]


@torch.inference_mode()
def measure(rows: list[Kind], lengths: list[int], widths: list[int], rounds: int) -> list[Timing]:
    """Time every kind at every length and width, the kinds taking turns."""
    timings = []
    for d in widths:
        functions = {kind.name: kind.build(d) for kind in rows}
        for n in lengths:
            x = torch.randn(1, n, d)
            samples: dict[str, list[float]] = {name: [] for name in functions}
            for _ in range(rounds + 1):
                for name, function in functions.items():
                    samples[name].append(sample(function, x))
            for name, values in samples.items():
                # The first round warms up.
                counted = values[1:]
                middle = statistics.median(counted)
                timings.append(Timing(name, n, d, middle, min(counted), max(counted)))
            print(f"n {n:,}, d {d}: done", file=sys.stderr)
    return timings


def sample(function: Callable[[Tensor], Tensor], x: Tensor) -> float:
    """Milliseconds of one call, over as many as fill the sample."""
    calls, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < SAMPLE_SECONDS or calls == 0:
        function(x)
        calls += 1
    return 1000 * passed / calls


def exponent(sizes: list[int], times: list[float]) -> tuple[float, float]:
    """The power of the size that times grow with, by least squares on logarithms.

    Returns:
        The exponent, and its standard error; not a number where two points leave no error.
    """
    x, y = np.log(sizes), np.log(times)
    x = x - x.mean()
    slope = float((x * y).sum() / (x**2).sum())
    residual = y - y.mean() - slope * x
    if len(sizes) == 2:
        return slope, math.nan
    return slope, float(np.sqrt((residual**2).sum() / (len(sizes) - 2) / (x**2).sum()))


def shares(timings: list[Timing]) -> tuple[float, float]:
    """Self-attention as a·n·d² + b·n²·d, in milliseconds, by least squares of relative errors."""
    n, d, t = (np.array([getattr(row, key) for row in timings]) for key in ("n", "d", "median"))
    terms = np.stack((n * d.astype(float) ** 2, n.astype(float) ** 2 * d), axis=1) / t[:, None]
    (a, b), *_ = np.linalg.lstsq(terms, np.ones(len(t)), rcond=None)
    return float(a), float(b)


def report(rows: list[Kind], timings: list[Timing], lengths: list[int], widths: list[int]) -> str:
    """The paper's complexities beside the measured growth, then the times."""
    long = lengths[len(lengths) // 2 :]
    by = {(t.kind, t.n, t.d): t for t in timings}
    growth = []
    for kind in rows:
        cells = [f"O({cell})" for cell in (kind.complexity, kind.sequential, kind.path)]
        for d in widths:
            power, error = exponent(long, [by[kind.name, n, d].median for n in long])
            cells.append(f"n^{power:.2f} ± {error:.2f}")
        power, _ = exponent(widths, [by[kind.name, long[-1], d].median for d in widths])
        growth.append([kind.name, *cells, f"d^{power:.2f}"])
    columns = ["layer", "complexity", "sequential", "path"]
    columns += [f"growth with n, d = {d}" for d in widths] + [f"growth with d, n = {long[-1]:,}"]
    a, b = shares([t for t in timings if t.kind == rows[0].name])
    times = [
        [
            f"{kind.name}, d = {d}",
            *(
                f"{t.median:.3g} ({t.least:.3g} to {t.most:.3g})"
                for t in (by[kind.name, n, d] for n in lengths)
            ),
        ]
        for d in widths
        for kind in rows
    ]
    return (
        f"{markdown(columns, growth)}\n\n"
        f"Growth is fitted from n = {long[0]:,} to {long[-1]:,}. Self-attention takes "
        f"{a:.1e}·n·d² + {b:.1e}·n²·d milliseconds: its quadratic part is the larger one "
        f"beyond n = {a / b:.1f}·d.\n\n"
        + markdown(["milliseconds", *(f"n = {n:,}" for n in lengths)], times)
    )


def plot(rows: list[Kind], timings: list[Timing], widths: list[int], path: Path) -> None:
    """Draw the times as SVG, a panel for every width."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "mtkit", "svg.fonttype": "none", "font.size": 10}
    from matplotlib import pyplot as plt

    # Okabe and Ito's colours, which the colour-blind can tell apart.
    colours = ["#D55E00", "#0072B2", "#009E73", "#CC79A7"]
    figure, panels = plt.subplots(
        1, len(widths), figsize=(4.6 * len(widths), 4.2), sharey=True, squeeze=False
    )
    for panel, d in zip(panels[0], widths, strict=True):
        for kind, colour, marker in zip(rows, colours, "os^D", strict=True):
            mine = [t for t in timings if (t.kind, t.d) == (kind.name, d)]
            middle = [t.median for t in mine]
            bars = [[t.median - t.least for t in mine], [t.most - t.median for t in mine]]
            panel.errorbar(
                [t.n for t in mine], middle, bars, label=kind.name, color=colour, marker=marker,
                markersize=4, linewidth=1.5, capsize=2,
            )  # fmt: skip
        panel.set(xscale="log", yscale="log", xlabel="sequence length n", title=f"d = {d}")
        ticks = sorted({t.n for t in timings})
        panel.set_xticks(ticks, [f"{n:,}" for n in ticks], rotation=45)
        panel.minorticks_off()
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_ylabel("milliseconds a layer")
    panels[0][0].legend(frameon=False, loc="upper left")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Parse, measure, print; draw the plot where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[2**i for i in range(6, 13)])
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--window", type=int, default=32, help="r of restricted self-attention")
    parser.add_argument("--kernel", type=int, default=3, help="k of the convolution")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="few lengths and rounds")
    parser.add_argument("--svg", type=Path, help="draw the times here")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.lengths, arguments.rounds = [64, 256, 1024], 2
    torch.set_num_threads(arguments.threads)
    # As in training; else every kind pays for fresh pages at some length.
    disable_malloc_trim()
    torch.manual_seed(1)
    rows = kinds(arguments.window, arguments.kernel)
    timings = measure(rows, arguments.lengths, arguments.widths, arguments.rounds)
    print(f"{arguments.threads} threads, {arguments.rounds} rounds. {versions()}\n")
    print(report(rows, timings, arguments.lengths, arguments.widths))
    if arguments.svg:
        plot(rows, timings, arguments.widths, arguments.svg)


if __name__ == "__main__":
    main()
