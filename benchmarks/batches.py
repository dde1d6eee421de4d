"""How full batches are, what a plan of them costs, and whether packing would train faster.

    python benchmarks/batches.py --data data/NAME [--data data/OTHER] [--pairs 36000000]

For each prepared folder: how many slots hold tokens in batches by length (`train.batching`), by
approximate length as in the paper's own code, and when random pairs are packed, into one row as
long as the budget or into rows of 256 slots. Then a training step on a CPU, the same pairs padded
and packed, the layouts taking turns: a plain Transformer of the shape in `small.yaml`, with
additive masks, that gives the same loss for each of them. With `--pairs`, also the time and the
memory that it takes to open so many lengths and to plan an epoch, each in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mtkit
from mtkit.base.devices import disable_malloc_trim
from mtkit.batches import Batching, plan_batches
from mtkit.config import load_config
from mtkit.data import IntArray, PreparedData, TokenArray
from mtkit.model import sinusoidal_positions

SHAPE = load_config(str(Path(__file__).with_name("small.yaml"))).model
VOCABULARY, ROW = 8_000, 256
# Rows that a pair may still go into when random pairs are packed into rows.
OPEN_ROWS = 64

Lengths = tuple[IntArray, IntArray]
# The pairs of each row of each batch.
Packed = list[list[list[int]]]


# ---------------------------------------------------------------------------------------------
# How full batches are


@dataclass(frozen=True)
class Fill:
    """Batches of an epoch.

    Attributes:
        src, tgt: share of the slots that hold tokens.
        shapes: different pairs of widths of source and target.
        pairs: of a batch, mean.
        spread: standard deviation of the target tokens of a batch over their mean.
    """

    src: float
    tgt: float
    shapes: int
    pairs: float
    spread: float

    def row(self) -> str:
        """Cells of a table."""
        return (
            f"{100 * self.src:.1f} % | {100 * self.tgt:.1f} % | {self.pairs:,.0f} | "
            f"{self.shapes:,} | {100 * self.spread:.0f} %"
        )


def padded_fill(lengths: Lengths, budget: int, batching: Batching) -> Fill:
    """Of the batches that mtkit makes."""
    plan = plan_batches(*lengths, budget=budget, rng=np.random.default_rng(1), batching=batching)
    widths = [[int(side[batch].max()) for side in lengths] for batch in plan]
    sizes = np.array([len(batch) for batch in plan])
    src, tgt = (
        side.sum() / (sizes * [width[i] for width in widths]).sum()
        for i, side in enumerate(lengths)
    )
    tokens = np.array([lengths[1][batch].sum() for batch in plan])
    shapes = len({(int(n), *width) for n, width in zip(sizes, widths, strict=True)})
    return Fill(src, tgt, shapes, sizes.mean(), tokens.std() / tokens.mean())


def flat_fill(lengths: Lengths, budget: int) -> Fill:
    """Of random pairs one after the other, in a row as long as the budget on either side."""
    order = np.random.default_rng(1).permutation(len(lengths[0]))
    ends = [np.cumsum(side[order]) for side in lengths]
    sizes, tokens, start = [], [], 0
    before = [0, 0]
    while start < len(order):
        stop = min(
            int(np.searchsorted(end, end_before + budget, side="right"))
            for end, end_before in zip(ends, before, strict=True)
        )
        now = [int(end[stop - 1]) for end in ends]
        sizes.append(stop - start)
        tokens.append([b - a for a, b in zip(before, now, strict=True)])
        start, before = stop, now
    # The last is what is left over.
    src, tgt = np.array(tokens[:-1] or tokens).T
    return Fill(src.mean() / budget, tgt.mean() / budget, 1, np.mean(sizes), tgt.std() / tgt.mean())


def rows_of(lengths: Lengths, pairs: Sequence[int]) -> list[list[int]]:
    """The pairs in rows with room for `ROW` tokens on either side, each where least is left.

    The source and the target of a pair are in rows of the same number.
    """
    src, tgt = (side.tolist() for side in lengths)
    done: list[list[int]] = []
    rooms: list[tuple[int, int, list[int]]] = []
    for pair in pairs:
        best, least = -1, 2 * ROW + 1
        for place, (src_room, tgt_room, _) in enumerate(rooms):
            left = src_room + tgt_room
            if src[pair] <= src_room and tgt[pair] <= tgt_room and left < least:
                best, least = place, left
        if best < 0:
            if len(rooms) == OPEN_ROWS:
                fullest = min(range(OPEN_ROWS), key=lambda i: min(rooms[i][:2]))
                done.append(rooms.pop(fullest)[2])
            rooms.append((ROW, ROW, []))
            best = len(rooms) - 1
        src_room, tgt_room, row = rooms[best]
        rooms[best] = src_room - src[pair], tgt_room - tgt[pair], [*row, pair]
    return [*done, *(row for _, _, row in rooms)]


def rows_fill(lengths: Lengths, budget: int, most: int = 100_000) -> Fill:
    """Of random pairs in rows, as many rows in a batch as the budget has room for."""
    order = np.random.default_rng(1).permutation(len(lengths[0]))[:most].tolist()
    rows = rows_of(lengths, order)
    per_batch = budget // ROW
    batches = [
        list(itertools.chain.from_iterable(rows[i : i + per_batch]))
        for i in range(0, len(rows) - per_batch + 1, per_batch)
    ]
    tokens = np.array([[side[batch].sum() for side in lengths] for batch in batches])
    src, tgt = tokens.mean(0) / (per_batch * ROW)
    spread = tokens[:, 1].std() / tokens[:, 1].mean()
    return Fill(src, tgt, 1, float(np.mean([len(batch) for batch in batches])), spread)


def print_fill(names: Sequence[str], data: Sequence[Lengths], budgets: Sequence[int]) -> None:
    """A table, a row for each folder, budget and planner."""
    planners: dict[str, Callable[[Lengths, int], Fill]] = {
        "by length": lambda lengths, budget: padded_fill(lengths, budget, "length"),
        "approximate": lambda lengths, budget: padded_fill(lengths, budget, "approximate"),
        "packed, one row": flat_fill,
        f"packed, rows of {ROW}": rows_fill,
    }
    print(
        "| data | budget | batches | source slots with tokens | target slots | pairs a batch "
        "| shapes | spread of target tokens |\n|---|---|---|---|---|---|---|---|"
    )
    for name, lengths in zip(names, data, strict=True):
        for budget in budgets:
            for title, planner in planners.items():
                print(f"| {name} | {budget:,} | {title} | {planner(lengths, budget).row()} |")


# ---------------------------------------------------------------------------------------------
# A training step, padded and packed


@dataclass(frozen=True)
class Side:
    """One side of a batch.

    Attributes:
        ids, positions: (R, N), rows of slots.
        sentence: (R, N), which pair of the row a slot belongs to; -1 where there is none.
    """

    ids: Tensor
    positions: Tensor
    sentence: Tensor

    def mask(self, keys: Side, *, causal: bool = False) -> Tensor:
        """(R, 1, N, M): what is added to the scores; a slot sees its own sentence."""
        seen = self.sentence[:, :, None] == keys.sentence[:, None, :]
        # An empty slot sees the empty ones, since a softmax over nothing is not a number.
        if causal:
            seen = seen & torch.ones(seen.shape[1:], dtype=torch.bool).tril()
        return torch.zeros(seen.shape).masked_fill(~seen, -math.inf)[:, None]


def side_of(rows: Sequence[Sequence[int]], lengths: IntArray, width: int) -> Side:
    """Sentences one after the other in rows; their ids depend on the pair and the position."""
    ids, positions = (np.zeros((len(rows), width), np.int64) for _ in range(2))
    sentence = np.full((len(rows), width), -1)
    for row, pairs in enumerate(rows):
        start = 0
        for number, pair in enumerate(pairs):
            inside = slice(start, start + int(lengths[pair]))
            places = np.arange(lengths[pair])
            ids[row, inside] = 4 + (pair * 7919 + places * 104_729) % (VOCABULARY - 4)
            positions[row, inside] = places
            sentence[row, inside] = number
            start = inside.stop
    return Side(*map(torch.from_numpy, (ids, positions, sentence)))


class Attention(nn.Module):
    """Multi-head attention with an additive mask."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.heads = n_heads
        self.q, self.k, self.v, self.out = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """(R, N, D) from queries (R, N, D), what they look at (R, M, D), and a mask."""
        q, k, v = (
            layer(y).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer, y in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        seen = F.scaled_dot_product_attention(q, k, v, mask)
        merged: Tensor = self.out(seen.transpose(1, 2).flatten(2))
        return merged


class Plain(nn.Module):
    """The Transformer of the paper without dropout, which knows of rows and masks only."""

    def __init__(self) -> None:
        super().__init__()
        self.width = width = SHAPE.d_model

        def layer(attentions: int) -> nn.ModuleDict:
            return nn.ModuleDict(
                {
                    "attend": nn.ModuleList(
                        Attention(width, SHAPE.n_heads) for _ in range(attentions)
                    ),
                    "norms": nn.ModuleList(nn.LayerNorm(width) for _ in range(attentions + 1)),
                    "feed": nn.Sequential(
                        nn.Linear(width, SHAPE.d_ff), nn.ReLU(), nn.Linear(SHAPE.d_ff, width)
                    ),
                }
            )

        self.embedding = nn.Embedding(VOCABULARY, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.encoder = nn.ModuleList(layer(1) for _ in range(SHAPE.encoder_layers))
        self.decoder = nn.ModuleList(layer(2) for _ in range(SHAPE.decoder_layers))
        self.register_buffer("places", sinusoidal_positions(ROW, width).float())

    def forward(self, src: Side, tgt: Side) -> Tensor:
        """The summed loss over the target tokens, each predicted from those before it."""
        x = self.embed(src, src.ids)
        within = src.mask(src)
        for layer in self.encoder:
            x = self.run(layer, x, [(None, within)])
        # Shifted right within a sentence, as the decoder reads it; 1 begins one.
        y = self.embed(tgt, tgt.ids.roll(1, 1).masked_fill(tgt.positions == 0, 1))
        before, across = tgt.mask(tgt, causal=True), tgt.mask(src)
        # A slot that is no token's has nothing to look at where its side alone is padded.
        across = across.masked_fill((tgt.sentence < 0)[:, None, :, None], 0.0)
        for layer in self.decoder:
            y = self.run(layer, y, [(None, before), (x, across)])
        target = tgt.ids.masked_fill(tgt.sentence < 0, -100).flatten()
        logits = F.linear(y, self.embedding.weight).flatten(0, 1)
        return F.cross_entropy(logits, target, reduction="sum")

    def embed(self, side: Side, ids: Tensor) -> Tensor:
        """Scaled embeddings plus positions."""
        return self.embedding(ids) * self.width**0.5 + self.places[side.positions]

    def run(self, layer: nn.Module, x: Tensor, looks: list[tuple[Tensor | None, Tensor]]) -> Tensor:
        """A layer: attention to itself or to a memory, in turn, and the feed-forward network."""
        for attend, norm, (memory, mask) in zip(
            layer["attend"], layer["norms"], looks, strict=False
        ):
            x = norm(x + attend(x, x if memory is None else memory, mask))
        done: Tensor = layer["norms"][-1](x + layer["feed"](x))
        return done


def step_on(model: Plain, batches: list[tuple[Side, Side]]) -> Callable[[], float]:
    """A function that makes one update on the batches and returns the loss per target token."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, fused=True)
    tokens = sum(int((tgt.sentence >= 0).sum()) for _, tgt in batches)

    def step() -> float:
        total = 0.0
        for src, tgt in batches:
            loss = model(src, tgt) / tokens
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step


def filled(sides: Sequence[Side]) -> float:
    """Share of the slots that hold tokens."""
    return sum(int((side.sentence >= 0).sum()) for side in sides) / sum(
        side.ids.numel() for side in sides
    )


def print_speed(
    names: Sequence[str], data: Sequence[Lengths], budget: int, count: int, rounds: int
) -> None:
    """A table, a row for each folder and layout: time padded over time packed."""
    print(
        "| data | layout | padded / it, seconds, median (range) | target tokens/s "
        "| source slots with tokens | target slots | loss |\n|---|---|---|---|---|---|---|"
    )
    model = Plain()
    for name, lengths in zip(names, data, strict=True):
        rng = np.random.default_rng(1)
        # Many small batches, since the pairs of a single one are all of one kind.
        plan = plan_batches(*lengths, budget=budget, rng=rng)
        padded: Packed = [[[int(i)] for i in batch] for batch in plan[:count]]
        pairs = [pair for batch in padded for row in batch for pair in row]
        rng.shuffle(pairs)
        rows = rows_of(lengths, pairs)
        packed = [[rows[i] for i in part] for part in np.array_split(np.arange(len(rows)), count)]
        layouts: dict[str, list[tuple[Side, Side]]] = {}
        for title, batches in (("padded, by length", padded), (f"rows of {ROW}", packed)):
            layouts[title] = []
            for batch in batches:
                sides = []
                for side in lengths:
                    widest = max(int(side[row].sum()) for row in batch)
                    sides.append(side_of(batch, side, ROW if batches is packed else widest))
                layouts[title].append((sides[0], sides[1]))
        steps = {title: step_on(model, batches) for title, batches in layouts.items()}
        losses = {title: step() for title, step in steps.items()}
        seconds: dict[str, list[float]] = {title: [] for title in steps}
        for number in range(rounds):
            # Whoever comes second finds the caches as the first left them, so they swap.
            for title in list(steps)[:: 1 if number % 2 else -1]:
                started = time.perf_counter()
                steps[title]()
                seconds[title].append(time.perf_counter() - started)
        tokens = int(lengths[1][pairs].sum())
        for title, batches in layouts.items():
            ratios = sorted(
                a / b for a, b in zip(seconds["padded, by length"], seconds[title], strict=True)
            )
            src, tgt = zip(*batches, strict=True)
            print(
                f"| {name} | {title} | {statistics.median(ratios):.2f} ({ratios[0]:.2f} to "
                f"{ratios[-1]:.2f}) | {tokens / statistics.median(seconds[title]):,.0f} "
                f"| {100 * filled(src):.1f} % | {100 * filled(tgt):.1f} % | {losses[title]:.5f} |"
            )


# ---------------------------------------------------------------------------------------------
# What a plan costs


def synthetic_lengths(count: int) -> Lengths:
    """Log-normal lengths as of news: mean 27, one of a hundred above 98, logarithms 0.9 alike."""
    percentile, mean, highest, alike = 2.3263, 27, 98, 0.9
    spread = percentile - math.sqrt(percentile**2 - 2 * math.log(highest / mean))
    rng = np.random.default_rng(7)
    src, other = (rng.standard_normal(count, dtype=np.float32) for _ in range(2))
    tgt = alike * src + math.sqrt(1 - alike**2) * other
    middle = math.log(mean) - spread**2 / 2
    sides = (np.rint(np.exp(middle + spread * side)).clip(1, 256) for side in (src, tgt))
    first, second = (side.astype(np.uint32) for side in sides)
    return first, second  # type: ignore[return-value]


def print_plan(sources: dict[str, Lengths], budgets: Sequence[int]) -> None:
    """A table, a row for each task, each in a fresh process."""
    print("| lengths | task | seconds | of the processor | memory beyond the lengths | batches |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, lengths in sources.items():
            files = []
            for number, side in enumerate(lengths):
                files.append(f"{folder}/{number}.npy")
                np.save(files[-1], side)
            for budget in (0, *budgets):
                command = [sys.executable, __file__, "--task", str(budget), *files]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                task = json.loads(done.stdout)
                title = f"plan, budget {budget:,}" if budget else "open"
                print(
                    f"| {name} | {title} | {task['seconds']:.1f} | {task['processor']:.1f} "
                    f"| {task['bytes'] / 2**20:,.0f} MiB | {task['batches']:,} |"
                )


def task(budget: int, files: Sequence[str]) -> None:
    """Open the lengths, and plan an epoch if there is a budget; print what it took as JSON."""

    def peak() -> int:
        # What `getrusage` gives begins, on Linux, with the peak of the process that started it.
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        # macOS counts in bytes.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    lengths = [np.load(file) for file in files]
    if budget:
        # A plan before, so that no code is loaded or compiled within what is timed.
        plan_batches(np.ones(9, np.int32), np.ones(9, np.int32), budget=9)
        src, tgt = (side.view(np.int32) for side in lengths)
    before, wall, processor = peak(), time.perf_counter(), time.process_time()
    if budget:
        batches = len(plan_batches(src, tgt, budget=budget, rng=np.random.default_rng((1, 0))))
    else:
        batches = 0
        arrays = [TokenArray(np.zeros(1, np.uint16), side) for side in lengths]
        assert all(len(array) for array in arrays)
    print(
        json.dumps(
            {
                "seconds": time.perf_counter() - wall,
                "processor": time.process_time() - processor,
                "bytes": peak() - before,
                "batches": batches,
            }
        )
    )


def main() -> None:
    """Parse, measure, print tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, action="append", default=[])
    parser.add_argument("--pairs", type=int, help="plan epochs of so many pairs")
    parser.add_argument("--budgets", type=int, nargs="+", default=[25_000, 4_096, 3_125])
    parser.add_argument("--step-budget", type=int, default=1_024, help="of batches that are timed")
    parser.add_argument("--batches", type=int, default=16, help="of a step that is timed")
    parser.add_argument("--rounds", type=int, default=5, help="0 times no step")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--task", type=int, help=argparse.SUPPRESS)
    parser.add_argument("files", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task is not None:
        task(arguments.task, arguments.files)
        return
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    # As in training.
    disable_malloc_trim()
    print(
        f"mtkit {mtkit.__version__}, torch {torch.__version__}, numpy {np.__version__}, Python "
        f"{platform.python_version()}, {arguments.threads} threads, {arguments.rounds} rounds\n"
    )
    names, data = [], []
    for folder in arguments.data:
        pairs = PreparedData.open(folder).pairs("train")
        names.append(folder.name)
        data.append((pairs.src.lengths.astype(np.int64), pairs.tgt.lengths.astype(np.int64)))
    if data:
        print_fill(names, data, arguments.budgets)
        print()
    if data and arguments.rounds:
        print_speed(names, data, arguments.step_budget, arguments.batches, arguments.rounds)
        print()
    if arguments.pairs:
        count = arguments.pairs
        sources = {f"{count:,} log-normal": synthetic_lengths(count)}
        for name, (src, tgt) in zip(names, data, strict=True):
            repeated = [np.resize(side.astype(np.uint32), count) for side in (src, tgt)]
            sources[f"{count:,} of {name}, repeated"] = (repeated[0], repeated[1])
        print_plan(sources, [25_000, 3_125])


if __name__ == "__main__":
    main()
