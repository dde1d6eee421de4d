"""Measure what a GPU does with mtkit: one command, six minutes, no data and no network.

    python benchmarks/gpu.py [--json gpu.json] [--only PART ...] [--smallest]

Weights and text are random; lengths are log-normal, with 29 subwords in the mean, as in WMT14. A
part that fails, or lacks something, says so in one line, and the next one begins. A part ends after
its seconds, and the program after six minutes, with what was measured until then. If the GPU does
not answer, the program is ended 15 seconds later.

- `card`: the rate of products in bf16 is the peak that other parts are shares of.
- `attention`: forward and backward of 3,000 tokens, in bf16. A new shape was not seen before.
- `loss`: the output layer with its loss, forward and backward. Beside the products, the logits in
  bf16 must be written, read, and overwritten with their gradient: these bytes, in the other time.
- `training`: updates of 25,000 tokens. The first ones are timed apart: memory is allocated in them,
  and layers are compiled. Tokens are target tokens without padding, operations those of
  `mtkit.train.flops`. The GPU is idle while no kernel runs.
- `gpus`: the same on 1, 2, … and all GPUs.
- `translating`: 3,000 lines, from text to text. Random weights hardly ever end an output, so it is
  as long as it may be, which here is the length of the input.
- `marian`: Hugging Face's model of the size of base, trained in bf16 by autocast.

`--smallest` runs all parts on a CPU in less than a minute, to test this program.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import os
import signal
import socket
import statistics
import string
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from common import LeftOutError, markdown, one_line, run, versions
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from mtkit.base.devices import choose_device, select_matmul_backend
from mtkit.config import load_config
from mtkit.data import SentencePairs, TokenArray
from mtkit.kernels.cpu_loss import output_layer
from mtkit.kernels.gpu_loss import loss_on_gpu
from mtkit.model import Transformer
from mtkit.tokenizer import EOS_ID, FIXED_PIECES, PAD_ID, Tokenizer, Vocabularies
from mtkit.train.distributed import Workers, init_workers
from mtkit.train.loss import label_smoothed_loss
from mtkit.train.prefetch import Prefetcher
from mtkit.train.trainer import Trainer
from mtkit.translate import LoadedRuns, Translator
from mtkit.translate.pytorch.decoder import Torch

COMPILED = "train.compile=true"
WAYS = {
    "plain": ["train.gpu_path=plain", "train.compile=false"],
    "packed": ["train.gpu_path=packed", "train.compile=false"],
    "packed, compiled": ["train.gpu_path=packed", COMPILED],
}
# A row of a table; those of a part may have different columns.
Row = dict[str, Any]
Measurement = Callable[[float], Row]


@dataclass(frozen=True)
class Sizes:
    """How much is measured: rows of matrices, bytes, tokens, and so on.

    `attention` is tokens, and lengths of sentences; `updates` the first ones, and those that are
    timed; `lines` those that are translated together, and one by one.
    """

    product: int = 8192
    copied: int = 4 * 10**9
    launches: int = 5_000
    repeats: int = 20
    attention: tuple[int, tuple[int, ...]] = (3_000, (25, 250))
    rows: int = 24_576
    vocabulary: int = 37_000
    settings: tuple[str, ...] = ()
    budget: int = 25_000
    pairs: int = 60_000
    mean: float = 29.0
    updates: tuple[int, int] = (20, 100)
    lines: tuple[int, int] = (3_000, 40)


SMALL_MODEL = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "d_ff": 64, "n_heads": 2}
SMALL_UPDATES = ("train.batch_tokens=200", "train.batches_per_update=2")
SMALLEST = Sizes(
    product=64, copied=10**6, launches=10, repeats=2, attention=(60, (10,)), rows=50,
    settings=(*(f"model.{key}={n}" for key, n in SMALL_MODEL.items()), *SMALL_UPDATES),
    vocabulary=600, budget=200, pairs=60, mean=6.0, updates=(2, 3), lines=(4, 2),
)  # fmt: skip


class TimeUp(BaseException):
    """The seconds of a part are over. Not an `Exception`, which a compiler might handle."""


@dataclass
class Bench:
    """Where and how much is measured, and until when.

    Attributes:
        peak: operations a second of products in bf16; 0 if not known.
        end: of the part, on the clock of `time.monotonic`.
        tables: by part, `rows`, a `note` and `seconds`.
    """

    device: torch.device
    sizes: Sizes
    peak: float = 0.0
    end: float = 0.0
    tables: dict[str, Row] = field(default_factory=dict)

    @property
    def on_gpu(self) -> bool:
        """Whether it is not for a test."""
        return self.device.type == "cuda"

    def rows(self, measurements: dict[str, Measurement]) -> Iterator[Row]:
        """A row of each, which is given its share of the seconds, or the reason why not."""
        for number, (what, measure) in enumerate(measurements.items()):
            left = self.end - time.monotonic()
            try:
                row = measure(max(1.0, left / (len(measurements) - number)))
            except Exception as error:
                row = {"note": one_line(error)}
            yield {"what": what, **row}
            gc.collect()
            if self.on_gpu:
                torch.cuda.empty_cache()

    def seconds(self, call: Callable[[], object], number: int = 1) -> float:
        """Seconds of one of `number` calls, one after the other."""
        if not self.on_gpu:
            started = time.perf_counter()
            for _ in range(number):
                call()
            return (time.perf_counter() - started) / number
        torch.cuda.synchronize()
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(number):
            call()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / 1000 / number

    def memory(self, call: Callable[[], object]) -> Row:
        """The most memory of the GPU that is allocated in a call."""
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
        call()
        return {"GiB": torch.cuda.max_memory_allocated() / 2**30} if self.on_gpu else {}

    def draw(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        """A random tensor that has a gradient."""
        return torch.randn(*shape, device=self.device, dtype=dtype).requires_grad_()


def until(end: float, number: int) -> Iterator[int]:
    """Numbers from 0, as many as there is time for, but at least one."""
    for done in range(number):
        if done and time.monotonic() > end:
            return
        yield done


class RandomData:
    """What a training needs of a prepared corpus; all splits are the same."""

    name, task, path = "random", "translation", Path("random")
    language_pairs, directions, valid_also = (("xx", "yy"),), (), ()

    def __init__(self, sizes: Sizes) -> None:
        letters = itertools.product(string.ascii_lowercase, repeat=4)
        words = ["".join(word) for word in itertools.islice(letters, sizes.vocabulary)]
        tokenizer = Tokenizer.learn_from_counts([(word, 9) for word in words], sizes.vocabulary)
        self.vocabularies = Vocabularies.joint(tokenizer)
        draw, sigma = np.random.default_rng(1), 0.55
        src = draw.lognormal(np.log(sizes.mean) - sigma**2 / 2, sigma, sizes.pairs)
        sides = []
        for lengths in (src, src * draw.lognormal(0.0, 0.2, sizes.pairs)):
            lengths = np.clip(lengths.astype(np.int32), 2, 200)
            ids = draw.integers(FIXED_PIECES, len(tokenizer), lengths.sum())
            ids[np.cumsum(lengths) - 1] = EOS_ID
            sides.append(TokenArray(ids, lengths))
        self.all = SentencePairs(*sides)
        counts = np.clip(src[: sizes.lines[0]].astype(int), 1, 200)
        self.lines = [" ".join(draw.choice(words, count)) for count in counts]

    def tokenizers(self) -> Vocabularies:
        """One for both sides."""
        return self.vocabularies

    def pairs(self, _: str) -> SentencePairs:
        """Random subwords."""
        return self.all

    def text(self, _: str) -> tuple[list[str], list[str]]:
        """Something to validate with, which nobody does here."""
        return self.lines[:1], self.lines[:1]


# ---------------------------------------------------------------------------------------------
# Parts of a step


def card(bench: Bench) -> Iterator[Row]:
    """What it can do at most."""
    n, small = bench.sizes.product, torch.zeros(8, 64, device=bench.device)
    layer = nn.Linear(64, 64, device=bench.device)

    def product(dtype: torch.dtype, _: float) -> Row:
        x, y = (bench.draw(n, n, dtype=dtype).detach() for _ in range(2))
        bench.seconds(lambda: x @ y, 5)
        rate = 2 * n**3 / bench.seconds(lambda: x @ y, bench.sizes.repeats)
        if dtype == torch.bfloat16:
            bench.peak = rate
        return {"value": rate / 1e12, "unit": "TFLOP/s"}

    def copying(_: float) -> Row:
        x = torch.zeros(bench.sizes.copied, dtype=torch.uint8, device=bench.device)
        y = torch.zeros_like(x)
        bench.seconds(lambda: y.copy_(x))
        # Read and written.
        return {"value": 2e-12 * len(x) / bench.seconds(lambda: y.copy_(x), 5), "unit": "TB/s"}

    def launching(call: Callable[[], object], _: float) -> Row:
        with torch.autocast(bench.device.type, torch.bfloat16):
            bench.seconds(call, 10)
            return {"value": 1e6 * bench.seconds(call, bench.sizes.launches), "unit": "µs"}

    kinds = {"bf16": torch.bfloat16, "float32": torch.float32}
    measurements = {f"{n}² product in {name}": partial(product, kinds[name]) for name in kinds}
    measurements[f"copy of {bench.sizes.copied / 1e9:g} GB"] = copying
    measurements["launch of an addition"] = partial(launching, lambda: small.add_(1))
    measurements["launch of a linear layer by autocast"] = partial(launching, lambda: layer(small))
    yield from bench.rows(measurements)


def attention(bench: Bench) -> Iterator[Row]:
    """Each kernel for short and for long sentences, in known and in new shapes."""

    def fixed(backend: SDPBackend, masked: bool, B: int, T: int) -> Callable[[], object]:
        q, k, v = (bench.draw(B, T, 8, 64).transpose(1, 2) for _ in range(3))
        mask = torch.ones(B, 1, 1, T, dtype=torch.bool, device=bench.device)
        mask[::2, ..., -1] = False

        def call() -> object:
            how = {"attn_mask": mask} if masked else {"is_causal": True}
            with sdpa_kernel(backend):
                out = F.scaled_dot_product_attention(q, k, v, **how)  # type: ignore[arg-type]
            return torch.autograd.grad(out.sum(), (q, k, v))

        return call

    def varlen(B: int, T: int) -> Callable[[], object]:
        from torch.nn.attention.varlen import varlen_attn

        q, k, v = (bench.draw(B * T, 8, 64) for _ in range(3))
        starts = torch.arange(0, B * T + 1, T, dtype=torch.int32, device=bench.device)

        def call() -> object:
            out: Any = varlen_attn(q, k, v, starts, starts, T, T)
            return torch.autograd.grad(out.sum(), (q, k, v))

        return call

    def measure(make: Callable[[int, int], Callable[[], object]], T: int, seconds: float) -> Row:
        B, repeats = tokens // T, bench.sizes.repeats
        known, end = make(B, T), time.monotonic() + seconds
        bench.seconds(known, 3)
        row = {"known ms": 1e3 * bench.seconds(known, repeats)}
        new = [1e3 * bench.seconds(make(B - 1, T + 1 + i)) for i in until(end, repeats)]
        return row | {"new ms": statistics.median(new), "slowest new ms": max(new)}

    tokens, lengths = bench.sizes.attention
    forms: dict[str, Callable[[int, int], Callable[[], object]]] = {
        "flash, causal": partial(fixed, SDPBackend.FLASH_ATTENTION, False),
        "memory-efficient, padding": partial(fixed, SDPBackend.EFFICIENT_ATTENTION, True),
        "cuDNN (off in mtkit), padding": partial(fixed, SDPBackend.CUDNN_ATTENTION, True),
        "varlen_attn": varlen,
        "written out, padding": partial(fixed, SDPBackend.MATH, True),
    }
    cases = itertools.product(lengths, forms.items())
    yield from bench.rows({f"{name}, {T} tokens": partial(measure, m, T) for T, (name, m) in cases})


def loss(bench: Bench) -> Iterator[Row]:
    """The output layer with its loss: the formula, and the forms of mtkit."""
    N, V, D = bench.sizes.rows, bench.sizes.vocabulary, 512
    states, weight = bench.draw(N, D), bench.draw(V, D, dtype=torch.float32)
    targets = torch.randint(4, V, (N,), device=bench.device)

    def formula(**how: Any) -> Tensor:
        return label_smoothed_loss(output_layer(states, weight.bfloat16()), targets, **how)

    def own(compiled: bool, **how: Any) -> Tensor:
        how |= {"dtype": torch.bfloat16, "compiled": compiled}
        return loss_on_gpu(states, weight, targets, **how)

    def measure(form: Callable[..., Tensor], _: float) -> Row:
        def call() -> None:
            torch.autograd.grad(form(label_smoothing=0.1, pad_id=PAD_ID), (states, weight))

        bench.seconds(call, 2)
        memory, seconds = bench.memory(call), bench.seconds(call, bench.sizes.repeats)
        rest = max(1e-9, seconds - (6 * N * V * D / bench.peak if bench.peak else 0))
        return {"ms": 1e3 * seconds, "beside products, TB/s": 6e-12 * N * V / rest, **memory}

    forms = {"formula": formula, "mtkit's": partial(own, False)}
    if bench.on_gpu:
        forms["mtkit's, compiled"] = partial(own, True)
    yield from bench.rows({name: partial(measure, form) for name, form in forms.items()})


# ---------------------------------------------------------------------------------------------
# Training


def training(bench: Bench) -> Iterator[Row]:
    """Updates of base and big, in each way."""
    data = RandomData(bench.sizes)

    def measure(size: str, settings: list[str], seconds: float) -> Row:
        if COMPILED in settings and not bench.on_gpu:
            raise LeftOutError("a CPU takes too long to compile")
        return time_updates(bench, new_trainer(bench, data, size, settings), seconds)

    cases = itertools.product(("base", "big"), WAYS.items())
    yield from bench.rows({f"{s}, {way}": partial(measure, s, how) for s, (way, how) in cases})


def new_trainer(
    bench: Bench, data: Any, size: str, settings: list[str], workers: Workers | None = None
) -> Trainer:
    """A trainer of a preset."""
    config = load_config(size, [*bench.sizes.settings, *settings])
    return Trainer(config, data, device=bench.device, workers=workers)


def time_updates(bench: Bench, trainer: Trainer, seconds: float) -> Row:
    """First updates, as many more as there is time for, and one that the profiler watches."""
    # A thread makes batches and copies them, as in training.
    ahead = Prefetcher(trainer.batches, trainer.passes, done=trainer.step, last=sys.maxsize)
    with ahead:

        def update() -> None:
            some = ahead.next()
            trainer.update(some.batches, some.own)

        return timed_updates(bench, trainer, update, seconds)


def timed_updates(
    bench: Bench, trainer: Trainer, update: Callable[[], None], seconds: float
) -> Row:
    """The measurements of `time_updates`."""
    cost, (few, many) = trainer.cost, bench.sizes.updates
    end, some = time.monotonic() + seconds, min(10, many)
    first, begun = bench.seconds(update), bench.seconds(update, few - 1)
    memory, tokens, flops = bench.memory(update), cost.tokens, cost.flops
    times = [bench.seconds(update, some) for _ in until(end, many // some)]
    number, mean = some * len(times), statistics.fmean(times)
    row = {"tokens/s": (cost.tokens - tokens) / number / mean, "ms": 1e3 * mean}
    row |= {"slowest 10, ms": 1e3 * max(times), "updates": number, "first, s": first}
    row |= {f"2 to {few}, ms": 1e3 * begun, **memory}
    if bench.peak:
        row["share of the peak"] = (cost.flops - flops) / number / mean / bench.peak
    if bench.on_gpu:
        spans = kernels_of(update)
        row |= {"kernels": len(spans), "idle": max(0.0, 1 - covered(spans) / 1e6 / mean)}
    return row


def kernels_of(call: Callable[[], object]) -> list[tuple[float, float]]:
    """Start and end of every kernel of a call on a GPU, in microseconds."""
    activities = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activities.CPU, activities.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    on_gpu = torch.autograd.DeviceType.CUDA
    events = [event for event in profile.events() or () if event.device_type == on_gpu]
    return [(event.time_range.start, event.time_range.end) for event in events]


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """The length of the union of some intervals."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


def gpus(bench: Bench) -> Iterator[Row]:
    """Packed updates of base, on more and more GPUs."""

    def measure(count: int, seconds: float) -> Row:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        command = [sys.executable, __file__, "--worker", *([] if bench.on_gpu else ["--smallest"])]
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count)}
        team = []
        for rank in map(str, range(count)):
            given = os.environ | meeting | {"RANK": rank, "LOCAL_RANK": rank}
            # A full pipe that is not read would block its worker.
            pipe = subprocess.PIPE if rank == "0" else subprocess.DEVNULL
            team.append(subprocess.Popen(command, env=given, text=True, stdout=pipe, stderr=pipe))
        try:
            out, err = team[0].communicate(timeout=seconds)
        finally:
            for process in team:
                process.kill()
                process.wait()
        if team[0].returncode:
            raise LeftOutError((err.strip().splitlines() or ["no reason"])[-1])
        row: Row = json.loads(out.splitlines()[-1])
        return row

    total = torch.cuda.device_count()
    counts = {*(2**i for i in range(10) if 2**i < total), total} if bench.on_gpu else {2}
    yield from bench.rows({f"base, {n}": partial(measure, n) for n in sorted(counts)})


def work(bench: Bench) -> None:
    """Be one of several workers. All make as many updates, so nobody looks at the clock."""
    with init_workers(bench.device, stall_timeout=60.0) as workers:
        how, data = WAYS["packed"], RandomData(bench.sizes)
        trainer = new_trainer(bench, data, "base", how, workers)
        row = time_updates(bench, trainer, float("inf"))
        if workers.is_rank_zero:
            print(json.dumps(row))


# ---------------------------------------------------------------------------------------------
# Translating, and another toolkit


def translating(bench: Bench) -> Iterator[Row]:
    """Random lines with base, all at once and one by one."""
    data, sizes = RandomData(bench.sizes), bench.sizes

    def measure(beam: int, precision: Any, path: str, single: bool, seconds: float) -> Row:
        given = [f"beam_size={beam}", f"precision={precision}", f"gpu_path={path}"]
        given += ["max_extra_length=0", "split_sentences=false"]
        overrides = [f"decode.{setting}" for setting in given]
        config = load_config("base", [*sizes.settings, *overrides])
        torch.manual_seed(1)
        model = Transformer(config.model, len(data.vocabularies.tgt), PAD_ID).to(bench.device)
        model.eval().to(torch.bfloat16 if precision == "bf16" else torch.float32)
        select_matmul_backend(bench.device)
        runs = LoadedRuns(data.vocabularies, config.decode)
        translator = Translator(runs, Torch([model], runs, bench.device))
        list(translator.translate(data.lines[:8]))
        texts = [[line] for line in data.lines[: sizes.lines[1]]] if single else [data.lines]
        tokens, count, started = 0, 0, time.monotonic()
        for number in until(started + seconds, len(texts)):
            for hypotheses in translator.translate_nbest(texts[number], n_best=1):
                tokens, count = tokens + len(hypotheses[0].pieces), count + 1
                if time.monotonic() > started + seconds:
                    break
        passed = time.monotonic() - started
        return {"lines": count, "tokens/s": tokens / passed, "ms a line": 1e3 * passed / count}

    kinds = itertools.product((4, 1), ("fp32", "bf16"), ("device",))
    cases = {f"beam {beam}, {kind}": (beam, kind, path, False) for beam, kind, path in kinds}
    cases["beam 4, fp32, asked in every step"] = (4, "fp32", "plain", False)
    cases |= {f"beam {beam}, one by one": (beam, "fp32", "device", True) for beam in (4, 1)}
    yield from bench.rows({name: partial(measure, *case) for name, case in cases.items()})


def marian(bench: Bench) -> Iterator[Row]:
    """Hugging Face's MarianMT, on batches of as many tokens as an update."""
    import train_cpu as cpu

    sizes, device = bench.sizes, bench.device
    size = cpu.Size(1, 32, 64, 2) if sizes.settings else cpu.SIZES["base"]

    def measure(seconds: float) -> Row:
        data = RandomData(sizes)
        vocabulary, pairs = len(data.vocabularies.tgt), data.all
        peer = cpu.marian(cpu.Setting(size, vocabulary, 1, 1, "", "", sizes.budget, []))
        peer.model.to(device).train()
        plan = cpu.plan_batches(pairs.src.lengths, pairs.tgt.lengths, budget=sizes.budget)
        batches = []
        for i in np.random.default_rng(1).permutation(len(plan))[: sum(sizes.updates)]:
            batch = cpu.Batch.of(pairs.src.padded(plan[i]), pairs.tgt.padded(plan[i]), plan[i])
            sides = (side.to(device) for side in (batch.src, batch.tgt_in, batch.tgt_out))
            batches.append((cpu.Batch(*sides, plan[i]), batch.num_tokens))
        made: list[int] = []

        def update() -> None:
            batch, tokens = batches[len(made) % len(batches)]
            made.append(tokens)
            with torch.autocast(device.type, torch.bfloat16):
                peer.update(batch, len(made))

        end = time.monotonic() + seconds
        bench.seconds(update, sizes.updates[0])
        memory, before = bench.memory(update), len(made)
        times = [bench.seconds(update) for _ in until(end, sizes.updates[1])]
        speed = sum(made[before:]) / sum(times)
        return {"tokens/s": speed, "ms": 1e3 * statistics.fmean(times), **memory}

    yield from bench.rows({"MarianMT, base": measure})


# ---------------------------------------------------------------------------------------------
# The command

Part = Callable[[Bench], Iterator[Row]]
# With the seconds of each.
SECONDS: dict[Part, float] = {
    card: 15, attention: 45, loss: 20, training: 150, gpus: 40, translating: 60, marian: 30
}  # fmt: skip
# Before a part is interrupted that does not end by itself.
PATIENCE = 2.0
PARTS = {part.__name__: part for part in SECONDS}


def measure_all(bench: Bench, names: Iterable[str], limit: float) -> Iterator[str]:
    """Run parts, each within its seconds and all within `limit` seconds; their names when done."""
    last = time.monotonic() + limit

    def stop(*_: object) -> None:
        raise TimeUp

    signal.signal(signal.SIGALRM, stop)
    for name in names:
        started, table = time.monotonic(), {"rows": [], "note": ""}
        bench.tables[name] = table
        bench.end = min(last, started + SECONDS[PARTS[name]])
        # The parts look at the clock; the signal is for what takes longer, such as compiling.
        signal.setitimer(signal.ITIMER_REAL, max(0.01, bench.end - started + PATIENCE))
        try:
            for row in PARTS[name](bench):
                table["rows"].append(row)
        except TimeUp:
            table["note"] = "stopped, because the time was up"
        except Exception as error:
            table["note"] = one_line(error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        table["seconds"] = time.monotonic() - started
        yield name


def shown(table: Row) -> str:
    """The rows of a part in Markdown, and its note."""
    rows = table["rows"]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[cell(row.get(column, "")) for column in columns] for row in rows]
    return "\n\n".join(filter(None, [markdown(columns, cells) if rows else "", table["note"]]))


def cell(value: object) -> str:
    """A number with three digits, or more before the point."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def about(device: torch.device) -> str:
    """Versions, and what the driver says of the card."""
    said = [versions()]
    if device.type == "cuda":
        query = "--query-gpu=name,driver_version,memory.total,power.limit,clocks.max.sm"
        with contextlib.suppress(LeftOutError):
            said += run(["nvidia-smi", query, "--format=csv,noheader"]).splitlines()
        capability = ".".join(map(str, torch.cuda.get_device_capability(device)))
        said.append(f"CUDA {torch.version.cuda}, compute capability {capability}")
    return "; ".join(said)


def main() -> None:
    """Parse, measure, print tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="file for all that was measured")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=6.0, help="the most it may take")
    parser.add_argument("--smallest", action="store_true", help="everything small, on a CPU")
    given = parser.parse_args()
    if not given.smallest and not torch.cuda.is_available():
        sys.exit("PyTorch sees no CUDA device; --smallest runs on a CPU")
    device = choose_device("cpu" if given.smallest else "cuda")
    bench = Bench(device, SMALLEST if given.smallest else Sizes())
    if given.smallest:
        torch.set_num_threads(1)
        # A test does not depend on the clock.
        SECONDS.update(dict.fromkeys(SECONDS, 300.0))
    if given.worker:
        work(bench)
        return
    # A GPU that does not answer cannot be interrupted otherwise.
    guard = threading.Timer(60 * given.minutes + 15, os._exit, [1])
    guard.daemon = True
    guard.start()
    result = {"about": about(device), "parts": bench.tables}
    print(result["about"])
    for name in measure_all(bench, given.only, 60 * given.minutes):
        print(f"\n## {name}\n\n{shown(bench.tables[name])}", flush=True)
        if given.json:
            given.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
