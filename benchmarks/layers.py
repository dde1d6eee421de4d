"""Table 1 of the paper, measured: what one layer of each kind costs as sequences grow.

    python benchmarks/layers.py [--svg FILE] [--quick]
    python benchmarks/layers.py --additive [--quick]

Times the forward pass of one layer at batch 1 for several lengths n and widths d: self-attention
and restricted self-attention by mtkit's `Attention`, a recurrent layer by `torch.nn.RNN`, and by
`torch.nn.Conv1d` a convolutional one, a dilated one, and a separable one: a convolution of each
channel alone, then a product with a d × d matrix (Section 4). With `--additive` it compares the two
attention functions of Section 3.2.1 instead: the dot product, and additive attention, whose scores
are a feed-forward network of one hidden layer.

The kinds take turns in every round, a sample is repeated until 50 ms have passed, and what is
reported is the median of the rounds with its range. From the medians the growth is fitted: the
exponent of n over the longer half of the lengths, that of d between the widths, and for
self-attention the shares of its projections (n·d²) and of the attention itself (n²·d), which is all
that Table 1 counts.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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


def convolutional(width: int, dilation: int = 1) -> Callable[[int], Layer]:
    """A builder of a convolution with a kernel of `width` positions, `dilation` apart."""

    def build(d: int) -> Layer:
        padding = dilation * (width // 2)
        layer = nn.Conv1d(d, d, width, padding=padding, dilation=dilation).eval()
        return lambda x: layer(x.transpose(1, 2))

    return build


def separable(width: int) -> Callable[[int], Layer]:
    """A builder of a depthwise separable convolution (Chollet 2017)."""

    def build(d: int) -> Layer:
        of_each = nn.Conv1d(d, d, width, padding=width // 2, groups=d).eval()
        mixed = nn.Conv1d(d, d, 1).eval()
        return lambda x: mixed(of_each(x.transpose(1, 2)))

    return build


def kinds(window: int, kernel: int) -> list[Kind]:
    """The four rows of Table 1, and the other convolutions of Section 4."""
    near = f"restricted, r = {window}"
    return [
        Kind("self-attention", "n²·d", "1", "1", attention(None)),
        Kind(near, "r·n·d", "1", "n/r", attention(window)),
        Kind("recurrent", "n·d²", "n", "n", recurrent),
        Kind(f"convolutional, k = {kernel}", "k·n·d²", "1", "n/k", convolutional(kernel)),
        # A stack of them reaches all positions in log_k(n) layers, if each dilates k times as far.
        Kind(f"dilated, k = {kernel}", "k·n·d²", "1", "log_k(n)", convolutional(kernel, kernel)),
        Kind(f"separable, k = {kernel}", "k·n·d + n·d²", "1", "n/k", separable(kernel)),
    ]


def dot_product(q: Tensor, k: Tensor, _: Tensor) -> Tensor:
    """Scores (n, n) of queries and keys, (n, d_k) each."""
    return q @ k.T / math.sqrt(q.shape[1])


def additive(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Scores vᵀ·tanh(q + k), as Bahdanau et al. (2014) have them; `v` is (d_k,)."""
    return (q[:, None] + k).tanh_() @ v


def attend(qkv: Tensor, scores: Callable[..., Tensor], v: Tensor) -> Tensor:
    """Attention of queries, keys and values (3, n, d_k) by one kind of scores."""
    q, k, values = qkv
    return scores(q, k, v).softmax(-1) @ values


@torch.inference_mode()
def compare_scores(widths: list[int], n: int, rounds: int) -> str:
    """Time and memory of both attention functions at several widths of keys.

    Projections are left out: both have the same. Memory is what scores and weights need at once,
    as the profiler of PyTorch counts it.
    """
    rows = []
    for d_k in widths:
        qkv, cells = torch.randn(3, n, d_k), [str(d_k)]
        for scores in (dot_product, additive):
            function = partial(attend, scores=scores, v=torch.randn(d_k))
            times = [sample(function, qkv) for _ in range(rounds + 1)][1:]
            with torch.profiler.profile(profile_memory=True) as profile:
                function(qkv)
            cells += [f"{statistics.median(times):.3g}", f"{most_memory(profile) / 2**20:.2f}"]
        rows.append(cells)
    names = ("dot product", "additive")
    columns = [f"{name}: {unit}" for name in names for unit in ("milliseconds", "MiB")]
    return markdown(["d_k", *columns], rows)


def most_memory(profile: torch.profiler.profile) -> int:
    """The most bytes that were allocated at a time, of what was allocated in a profile."""
    events = sorted(
        (event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"),
        key=lambda event: event.start_ns(),
    )
    return max(itertools.accumulate(event.nbytes() for event in events))


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
            cells.append(f"n^{power:.2f}" + ("" if math.isnan(error) else f" ± {error:.2f}"))
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
    colours = ["#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
    figure, panels = plt.subplots(
        1, len(widths), figsize=(4.6 * len(widths), 4.2), sharey=True, squeeze=False
    )
    for panel, d in zip(panels[0], widths, strict=True):
        for kind, colour, marker in zip(rows, colours, "os^Dvx", strict=True):
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
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="few lengths and rounds")
    parser.add_argument("--svg", type=Path, help="draw the times here")
    parser.add_argument("--additive", action="store_true", help="compare attention functions")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.lengths, arguments.rounds = [64, 256, 1024], 2
    torch.set_num_threads(arguments.threads)
    # As in training; else every kind pays for fresh pages at some length.
    disable_malloc_trim()
    torch.manual_seed(1)
    if arguments.additive:
        print(f"threads: {arguments.threads}, rounds: {arguments.rounds}, n = 256. {versions()}\n")
        print(compare_scores([16, 32, 64, 128, 256], 256, arguments.rounds))
        return
    rows = kinds(arguments.window, arguments.kernel)
    timings = measure(rows, arguments.lengths, arguments.widths, arguments.rounds)
    print(f"threads: {arguments.threads}, rounds: {arguments.rounds}. {versions()}\n")
    print(report(rows, timings, arguments.lengths, arguments.widths))
    if arguments.svg:
        plot(rows, timings, arguments.widths, arguments.svg)


if __name__ == "__main__":
    main()
