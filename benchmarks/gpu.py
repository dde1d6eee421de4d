"""Measure what a GPU does with mtkit: one command, at most six minutes, no data and no network.

    python benchmarks/gpu.py [--json gpu.json] [--only PART ...] [--smallest]

Every model has random weights, and every text is random, with the lengths of sentences of WMT14
(log-normal, 29 subwords in the mean). A part that fails, or lacks something, says so in one line,
and the next one begins. A part ends after its seconds and the program after six minutes, with what
was measured until then; the file of JSON is written anew after every part.

- `card`: what the GPU can do. The rate of products is the peak that the other parts are shares of.
- `attention`: forward and backward, of 3,000 tokens. A new shape is one that was not seen before.
- `loss`: the output layer with its loss, forward and backward. A gigabyte counts here if it cannot
  be avoided: the logits in bf16, written, read, and overwritten with their gradient.
- `training`: updates of 25,000 target tokens. The first twenty are timed apart: memory is allocated
  in them, and layers are compiled. Tokens are target tokens without padding. Operations are those
  of the paper's arithmetic (`mtkit.train.flops`). The GPU is idle where no kernel runs.
- `gpus`: the same on 1, 2, … and all GPUs.
- `translating`: 3,000 lines, from text to text. An output may be as long as its input, and random
  weights hardly ever end it earlier.
- `marian`: Hugging Face's model of the same size, trained on whole updates in bf16 by autocast.

`--smallest` runs all parts on a CPU in less than a minute, to test this program.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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
from mtkit.kernels.loss import loss_of_logits, output_layer
from mtkit.model import Transformer
from mtkit.tokenizer import EOS_ID, FIXED_PIECES, PAD_ID, Tokenizer, Vocabularies
from mtkit.train.distributed import init_workers
from mtkit.train.trainer import Trainer
from mtkit.translate import Translator
from mtkit.translate.linear import pack_weights

MINUTES = 6.0
PLAIN, PACKED = "train.gpu_path=plain", "train.gpu_path=packed"
EAGER, COMPILED = "train.compile=false", "train.compile=true"
WAYS = {
    "group by group": [PLAIN, EAGER],
    "one pass": [PACKED, EAGER],
    "one pass, compiled": [PACKED, COMPILED],
}

# A row of a table. Rows of a part may have different columns.
Row = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        product: rows and columns of the matrices.
        attention: tokens, and lengths of sentences.
        rows: target tokens of the loss.
        settings: overrides of every model.
        mean: length of a sentence in subwords.
        single: lines that are translated one at a time.
    """

    product: int = 8192
    copied_bytes: int = 4 * 10**9
    launches: int = 5_000
    attention: tuple[int, tuple[int, ...]] = (3_000, (25, 250))
    repeats: int = 20
    rows: int = 24_576
    vocabulary: int = 37_000
    models: tuple[str, ...] = ("base", "big")
    settings: tuple[str, ...] = ()
    pairs: int = 60_000
    mean: float = 29.0
    updates: tuple[int, int] = (20, 100)
    lines: int = 3_000
    single: int = 40


SMALLEST = Sizes(
    product=64,
    copied_bytes=10**6,
    launches=10,
    attention=(60, (10,)),
    repeats=2,
    rows=50,
    vocabulary=600,
    settings=(
        "model.encoder_layers=1",
        "model.decoder_layers=1",
        "model.d_model=32",
        "model.d_ff=64",
        "model.n_heads=2",
        "train.batch_tokens=200",
        "train.batches_per_update=2",
    ),
    pairs=60,
    mean=6.0,
    updates=(2, 3),
    lines=4,
    single=2,
)


class TimeUp(BaseException):
    """The seconds of a part are over. Not an `Exception`, which a compiler might handle."""


@dataclass
class Bench:
    """Where and how much is measured, and until when.

    Attributes:
        peak: operations a second that the card reaches; 0 if it is not known.
        end: of the part, on the clock of `time.monotonic`.
    """

    device: torch.device
    sizes: Sizes
    peak: float = 0.0
    end: float = 0.0
    tables: dict[str, Row] = field(default_factory=dict)

    @property
    def left(self) -> float:
        """Seconds of the part."""
        return self.end - time.monotonic()

    def rounds(self, number: int, *, seconds: float) -> Iterator[int]:
        """Numbers from 0, as many as fit into some seconds, but at least one."""
        end = min(self.end, time.monotonic() + seconds)
        for done in range(number):
            if done and time.monotonic() > end:
                return
            yield done

    def wait(self) -> None:
        """Until the GPU has done everything."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def seconds(self, call: Callable[[], object], number: int = 1) -> float:
        """Seconds of one call, of `number` calls one after the other."""
        self.wait()
        if self.device.type != "cuda":
            started = time.perf_counter()
            for _ in range(number):
                call()
            return (time.perf_counter() - started) / number
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(number):
            call()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / 1000 / number

    def draw(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        """A random tensor that has a gradient."""
        return torch.randn(*shape, device=self.device, dtype=dtype).requires_grad_()


def each(bench: Bench, calls: dict[str, Callable[[float], Row]]) -> Iterator[Row]:
    """A row of each call, which is given its share of the seconds, or the reason why not."""
    for number, (what, call) in enumerate(calls.items()):
        try:
            row = call(max(1.0, bench.left / (len(calls) - number)))
        except Exception as error:
            row = {"note": one_line(error)}
        yield {"what": what, **row}
        if bench.device.type == "cuda":
            torch.cuda.empty_cache()


# ---------------------------------------------------------------------------------------------
# Random data


def words(number: int) -> list[str]:
    """Different words of four letters."""
    draw, found = random.Random(1), dict[str, None]()
    while len(found) < number:
        found["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=4))] = None
    return list(found)


class RandomData:
    """What a training needs of a prepared corpus."""

    name, task, path = "random", "translation", Path("random")
    language_pairs, directions, valid_also = [("xx", "yy")], (), ()

    def __init__(self, sizes: Sizes) -> None:
        known = words(sizes.vocabulary)
        tokenizer = Tokenizer.learn_from_counts([(word, 9) for word in known], sizes.vocabulary)
        self._vocabularies = Vocabularies.joint(tokenizer)
        draw, sigma = np.random.default_rng(1), 0.55
        middle = np.log(sizes.mean) - sigma**2 / 2
        src = draw.lognormal(middle, sigma, sizes.pairs)
        tgt = src * draw.lognormal(0.0, 0.2, sizes.pairs)
        sides = []
        for lengths in (src, tgt):
            lengths = np.clip(lengths.astype(np.int32), 2, 200)
            ids = draw.integers(FIXED_PIECES, len(tokenizer), lengths.sum())
            ids[np.cumsum(lengths) - 1] = EOS_ID
            sides.append(TokenArray(ids, lengths))
        self._pairs = SentencePairs(*sides)
        counts = np.clip(src[: sizes.lines].astype(int), 1, 200)
        self.lines = [" ".join(known[i] for i in draw.integers(0, len(known), n)) for n in counts]

    def tokenizers(self) -> Vocabularies:
        """One vocabulary for both sides."""
        return self._vocabularies

    def pairs(self, split: str) -> SentencePairs:
        """The same for every split."""
        return self._pairs

    def text(self, split: str) -> tuple[list[str], list[str]]:
        """Something to validate with, which nobody does here."""
        return self.lines[:1], self.lines[:1]


# ---------------------------------------------------------------------------------------------
# The card


def card(bench: Bench) -> Iterator[Row]:
    """Products, copies and launches."""
    sizes, n = bench.sizes, bench.sizes.product

    def product(dtype: torch.dtype) -> Callable[[float], Row]:
        def measure(_: float) -> Row:
            x, y = (bench.draw(n, n, dtype=dtype).detach() for _ in range(2))
            bench.seconds(lambda: x @ y, 5)
            rate = 2 * n**3 / bench.seconds(lambda: x @ y, sizes.repeats)
            if dtype == torch.bfloat16:
                bench.peak = rate
            return {"value": rate / 1e12, "unit": "TFLOP/s"}

        return measure

    def copying(_: float) -> Row:
        x = torch.zeros(sizes.copied_bytes, dtype=torch.uint8, device=bench.device)
        y = torch.zeros_like(x)
        bench.seconds(lambda: y.copy_(x))
        # Read and written.
        rate = 2 * len(x) / bench.seconds(lambda: y.copy_(x), 5)
        return {"value": rate / 1e12, "unit": "TB/s"}

    def launching(call: Callable[[], object]) -> Callable[[float], Row]:
        def measure(_: float) -> Row:
            bench.seconds(call, 100)
            return {"value": 1e6 * bench.seconds(call, sizes.launches), "unit": "µs"}

        return measure

    one, layer = torch.zeros(1, device=bench.device), nn.Linear(64, 64, device=bench.device)
    few = torch.zeros(8, 64, device=bench.device)

    def linear() -> Tensor:
        with torch.autocast(bench.device.type, torch.bfloat16):
            return layer(few)  # type: ignore[no-any-return]

    calls = {
        f"product of {n}² matrices in bf16": product(torch.bfloat16),
        f"product of {n}² matrices in float32": product(torch.float32),
        f"copy of {sizes.copied_bytes / 1e9:g} GB": copying,
        "one small operator": launching(lambda: one.add_(1)),
        "one small linear layer by autocast": launching(linear),
    }
    yield from each(bench, calls)


# ---------------------------------------------------------------------------------------------
# Attention


def attention(bench: Bench) -> Iterator[Row]:
    """Each kernel for short and for long sentences, in known and in new shapes."""
    tokens, lengths = bench.sizes.attention

    def sdpa(backend: SDPBackend, *, masked: bool) -> Callable[[int, int], Callable[[], None]]:
        def make(B: int, T: int) -> Callable[[], None]:
            q, k, v = (bench.draw(B, T, 8, 64).transpose(1, 2) for _ in range(3))
            mask = torch.ones(B, 1, 1, T, dtype=torch.bool, device=bench.device)
            mask[::2, ..., T - 1 :] = False

            def call() -> None:
                with sdpa_kernel(backend):
                    out = F.scaled_dot_product_attention(
                        q, k, v, attn_mask=mask if masked else None, is_causal=not masked
                    )
                torch.autograd.grad(out.sum(), (q, k, v))

            return call

        return make

    def varlen(B: int, T: int) -> Callable[[], None]:
        from torch.nn.attention.varlen import varlen_attn

        q, k, v = (bench.draw(B * T, 8, 64) for _ in range(3))
        starts = torch.arange(0, B * T + 1, T, dtype=torch.int32, device=bench.device)
        return lambda: torch.autograd.grad(
            varlen_attn(q, k, v, starts, starts, T, T).sum(),  # type: ignore[union-attr]
            (q, k, v),
        )

    def measured(make: Callable[[int, int], Callable[[], None]], T: int) -> Callable[[float], Row]:
        def measure(seconds: float) -> Row:
            B = tokens // T
            known = make(B, T)
            bench.seconds(known, 3)
            row = {"known ms": 1e3 * bench.seconds(known, bench.sizes.repeats)}
            new = [
                1e3 * bench.seconds(make(B - 1 - number % 5, T + 1 + number))
                for number in bench.rounds(bench.sizes.repeats, seconds=seconds)
            ]
            return row | {"new ms": statistics.median(new), "slowest new ms": max(new)}

        return measure

    forms = {
        "flash, causal": sdpa(SDPBackend.FLASH_ATTENTION, masked=False),
        "memory-efficient, with padding": sdpa(SDPBackend.EFFICIENT_ATTENTION, masked=True),
        "cuDNN, with padding (off in mtkit)": sdpa(SDPBackend.CUDNN_ATTENTION, masked=True),
        "varlen_attn": varlen,
        "written out, with padding": sdpa(SDPBackend.MATH, masked=True),
    }
    calls = {
        f"{name}, {T} tokens a sentence": measured(make, T)
        for T in lengths
        for name, make in forms.items()
    }
    yield from each(bench, calls)


# ---------------------------------------------------------------------------------------------
# The loss


def loss(bench: Bench) -> Iterator[Row]:
    """The output layer with its loss, as written and compiled."""
    N, V, D = bench.sizes.rows, bench.sizes.vocabulary, 512
    states, weight = bench.draw(N, D), bench.draw(V, D)
    targets = torch.randint(4, V, (N,), device=bench.device)

    def eager() -> None:
        logits = output_layer(states, weight)
        summed = loss_of_logits(logits, targets, label_smoothing=0.1, pad_id=PAD_ID)
        torch.autograd.grad(summed, (states, weight))

    def measured(call: Callable[[], None]) -> Callable[[float], Row]:
        def measure(_: float) -> Row:
            bench.seconds(call, 2)
            memory = peak_memory(bench, call)
            seconds = bench.seconds(call, bench.sizes.repeats)
            products = 6 * N * V * D / bench.peak if bench.peak else 0.0
            rest = max(seconds - products, 1e-9)
            row = {"ms": 1e3 * seconds, "ms without products": 1e3 * rest}
            return row | {"TB/s": 6 * N * V / rest / 1e12, **memory}

        return measure

    yield from each(bench, {"eager": measured(eager)})


def peak_memory(bench: Bench, call: Callable[[], object]) -> Row:
    """The most memory of the GPU that a call had allocated."""
    if bench.device.type != "cuda":
        call()
        return {}
    torch.cuda.reset_peak_memory_stats()
    call()
    return {"GiB": torch.cuda.max_memory_allocated() / 2**30}


# ---------------------------------------------------------------------------------------------
# Training


def training(bench: Bench) -> Iterator[Row]:
    """Updates of base and big, in each way."""
    data: Any = RandomData(bench.sizes)

    def measured(size: str, settings: list[str]) -> Callable[[float], Row]:
        def measure(seconds: float) -> Row:
            if COMPILED in settings and bench.device.type == "cpu":
                raise LeftOutError("a CPU takes too long to compile")
            config = load_config(size, [*bench.sizes.settings, *settings])
            return time_updates(bench, Trainer(config, data, device=bench.device), seconds)

        return measure

    calls = {
        f"{size}, {way}": measured(size, settings)
        for size in bench.sizes.models
        for way, settings in WAYS.items()
    }
    yield from each(bench, calls)


def time_updates(bench: Bench, trainer: Trainer, seconds: float) -> Row:
    """First updates, then the speed, then what the profiler sees of three more."""
    cost, (few, many) = trainer.cost, bench.sizes.updates

    def update() -> None:
        trainer.update(next(trainer.batches))

    end = time.monotonic() + seconds
    first = bench.seconds(update)
    begun = bench.seconds(update, few - 1)
    memory = peak_memory(bench, update)
    tokens, flops, times = cost.tokens, cost.flops, []
    while len(times) * 10 < many and (not times or time.monotonic() < end):
        times.append(bench.seconds(update, min(10, many)))
    each_update = statistics.fmean(times)
    number = len(times) * min(10, many)
    tokens, flops = (cost.tokens - tokens) / number, (cost.flops - flops) / number
    kernels, busy = profiled(bench, update, 3)
    row: Row = {
        "tokens/s": tokens / each_update,
        "ms": 1e3 * each_update,
        "slowest ten, ms": 1e3 * max(times),
        "updates": number,
        "first, s": first,
        f"2 to {few}, ms": 1e3 * begun,
        "share of the peak": flops / each_update / bench.peak if bench.peak else None,
        **memory,
    }
    if bench.device.type == "cuda":
        row |= {"kernels": kernels, "idle": max(0.0, 1 - busy / each_update)}
    return row


def profiled(bench: Bench, call: Callable[[], None], number: int) -> tuple[int, float]:
    """Kernels of a call, and the seconds in which any of them ran."""
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if bench.device.type == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as profile:
        for _ in range(number):
            call()
        bench.wait()
    spans = [
        (event.time_range.start, event.time_range.end)
        for event in profile.events() or ()
        if event.device_type == torch.autograd.DeviceType.CUDA
    ]
    return round(len(spans) / number), covered(spans) / 1e6 / number


def covered(spans: list[tuple[float, float]]) -> float:
    """The length of the union of some intervals."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


def gpus(bench: Bench) -> Iterator[Row]:
    """Updates of base in one pass, on more and more GPUs."""
    all_gpus = torch.cuda.device_count()
    on_gpus = [2**i for i in range(all_gpus.bit_length()) if 2**i < all_gpus] + [all_gpus]

    def measured(count: int) -> Callable[[float], Row]:
        return lambda seconds: start_workers(bench, count, seconds)

    counts = on_gpus if bench.device.type == "cuda" else [2]
    yield from each(bench, {f"base on {count}": measured(count) for count in counts})


def start_workers(bench: Bench, count: int, seconds: float) -> Row:
    """Run this program as workers; what the first one answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    command = [sys.executable, __file__, "--worker", str(seconds / 2)]
    command += ["--smallest"] if bench.device.type == "cpu" else []
    processes = [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ
            | meeting
            | {"WORLD_SIZE": str(count), "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(count)
    ]
    try:
        out, err = processes[0].communicate(timeout=seconds)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    if processes[0].returncode:
        raise LeftOutError((err.strip().splitlines() or ["no reason"])[-1])
    row: Row = json.loads(out)
    return row


def work(bench: Bench, seconds: float) -> None:
    """Be one of several workers."""
    with init_workers(bench.device, stall_timeout=60.0) as workers:
        config = load_config("base", [*bench.sizes.settings, *WAYS["one pass"]])
        data: Any = RandomData(bench.sizes)
        trainer = Trainer(config, data, device=bench.device, workers=workers)
        few, many = bench.sizes.updates
        # Every worker makes as many updates, so none of them looks at the clock.
        bench.seconds(lambda: trainer.update(next(trainer.batches)), few)
        workers.barrier()
        before = trainer.cost.tokens
        each_update = bench.seconds(lambda: trainer.update(next(trainer.batches)), many // 2)
        if workers.is_rank_zero:
            tokens = (trainer.cost.tokens - before) / (many // 2)
            print(json.dumps({"tokens/s": tokens / each_update, "ms": 1e3 * each_update}))


# ---------------------------------------------------------------------------------------------
# Translating


def translating(bench: Bench) -> Iterator[Row]:
    """Random lines with base, all at once and one by one."""
    data, sizes = RandomData(bench.sizes), bench.sizes

    def measured(beam: int, precision: Any, *, single: bool = False) -> Callable[[float], Row]:
        def measure(seconds: float) -> Row:
            settings = [f"beam_size={beam}", f"precision={precision}", "max_extra_length=0"]
            overrides = [f"decode.{setting}" for setting in [*settings, "split_sentences=false"]]
            config = load_config("base", [*sizes.settings, *overrides])
            torch.manual_seed(1)
            model = Transformer(config.model, data.tokenizers().sizes[0], PAD_ID)
            model.to(bench.device).eval()
            pack_weights(model, precision, bench.device)
            select_matmul_backend(bench.device)
            translator = Translator([model], data.tokenizers(), config.decode, device=bench.device)
            list(translator.translate(data.lines[:8]))
            return time_lines(bench, translator, data.lines, seconds, single=single)

        return measure

    ways = {f"beam {beam}": beam for beam in (4, 1)}
    calls = {
        f"{way}, {precision}": measured(beam, precision)
        for way, beam in ways.items()
        for precision in ("fp32", "bf16")
    }
    calls |= {
        f"{way}, one by one": measured(beam, "fp32", single=True) for way, beam in ways.items()
    }
    yield from each(bench, calls)


def time_lines(
    bench: Bench, translator: Translator, lines: list[str], seconds: float, *, single: bool
) -> Row:
    """The speed of as many lines as there is time for."""
    texts = [[line] for line in lines[: bench.sizes.single]] if single else [lines]
    tokens = count = 0
    started = time.perf_counter()
    for number in bench.rounds(len(texts), seconds=seconds):
        for found in translator.translate_nbest(texts[number], n_best=1):
            tokens, count = tokens + len(found[0].pieces), count + 1
            if time.perf_counter() - started > seconds:
                break
    passed = time.perf_counter() - started
    return {"lines": count, "tokens/s": tokens / passed, "ms a line": 1e3 * passed / count}


# ---------------------------------------------------------------------------------------------
# Another toolkit


def marian(bench: Bench) -> Iterator[Row]:
    """Hugging Face's MarianMT of the size of base, on batches of as many tokens as an update."""
    from train_cpu import SIZES, Batch, Setting, Size, plan_batches
    from train_cpu import marian as new_peer

    sizes, device = bench.sizes, bench.device
    size = Size(1, 32, 64, 2) if sizes.settings else SIZES["base"]
    budget = 200 if sizes.settings else 25_000

    def measure(seconds: float) -> Row:
        if importlib.util.find_spec("transformers") is None:
            raise LeftOutError("transformers is not installed (pip install 'mtkit[bench]')")
        data = RandomData(sizes)
        pairs, vocabulary = data.pairs("train"), data.tokenizers().sizes[0]
        peer = new_peer(Setting(size, vocabulary, 1, 1, "", "", budget, []))
        peer.model.to(device).train()
        plan = plan_batches(pairs.src.lengths, pairs.tgt.lengths, budget=budget)
        batches = []
        for i in np.random.default_rng(1).permutation(len(plan))[: sum(sizes.updates)]:
            one = Batch.of(pairs.src.padded(plan[i]), pairs.tgt.padded(plan[i]), plan[i])
            inputs = (side.to(device) for side in (one.src, one.tgt_in, one.tgt_out))
            batches.append((Batch(*inputs, one.indices), one.num_tokens))
        tokens = step = 0

        def update() -> None:
            nonlocal tokens, step
            batch, number = batches[step % len(batches)]
            tokens, step = tokens + number, step + 1
            with torch.autocast(device.type, torch.bfloat16):
                peer.update(batch, step)

        bench.seconds(update, sizes.updates[0])
        memory, tokens, begun = peak_memory(bench, update), 0, step
        times = [bench.seconds(update) for _ in bench.rounds(sizes.updates[1], seconds=seconds / 2)]
        speed = {"tokens/s": tokens / sum(times), "ms": 1e3 * statistics.fmean(times)}
        return speed | {"updates": step - begun, **memory}

    yield from each(bench, {"MarianMT of the size of base": measure})


# ---------------------------------------------------------------------------------------------
# The command

# With the seconds of each.
PARTS: dict[str, tuple[Callable[[Bench], Iterator[Row]], float]] = {
    "card": (card, 15),
    "attention": (attention, 45),
    "loss": (loss, 20),
    "training": (training, 150),
    "gpus": (gpus, 40),
    "translating": (translating, 60),
    "marian": (marian, 30),
}


def measure_all(bench: Bench, names: list[str], write: Callable[[], None], *, limit: float) -> None:
    """Run parts, each within its seconds and all within `limit` seconds."""
    last = time.monotonic() + limit

    def stop(*_: object) -> None:
        raise TimeUp

    signal.signal(signal.SIGALRM, stop)
    for name in names:
        part, seconds = PARTS[name]
        started = time.monotonic()
        bench.end = min(last, started + seconds)
        table = bench.tables[name] = {"rows": [], "note": ""}
        print(f"{name}: up to {max(0.0, bench.left):.0f} s", file=sys.stderr)
        # The parts look at the clock; the signal is for what takes longer, such as compiling.
        signal.setitimer(signal.ITIMER_REAL, max(0.01, bench.left + 2))
        try:
            for row in part(bench):
                table["rows"].append(row)
        except TimeUp:
            table["note"] = f"stopped after {time.monotonic() - started:.0f} s"
        except Exception as error:
            table["note"] = one_line(error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        table["seconds"] = time.monotonic() - started
        write()


def shown(table: Row) -> str:
    """The rows of a part in Markdown, and its note."""
    rows = table["rows"]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[cell(row.get(column, "")) for column in columns] for row in rows]
    return "\n\n".join(filter(None, [markdown(columns, cells) if rows else "", table["note"]]))


def cell(value: Any) -> str:
    """A number with three digits, or more before the point."""
    if not isinstance(value, float):
        return "–" if value is None else str(value)
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
    parser.add_argument("--worker", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="file for all that was measured")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--smallest", action="store_true", help="everything small, on a CPU")
    arguments = parser.parse_args()
    sizes = SMALLEST if arguments.smallest else Sizes()
    if not arguments.smallest and not torch.cuda.is_available():
        sys.exit("PyTorch sees no CUDA device; --smallest runs on a CPU")
    bench = Bench(choose_device("cpu" if arguments.smallest else "cuda"), sizes)
    if arguments.worker is not None:
        work(bench, arguments.worker)
        return
    limit, facts = 60 * arguments.minutes, about(bench.device)

    def write() -> None:
        if arguments.json:
            result = {"about": facts, "parts": bench.tables}
            arguments.json.write_text(json.dumps(result, indent=2) + "\n")

    # A GPU that does not answer cannot be interrupted.
    guard = threading.Timer(limit + 15, os._exit, [1])
    guard.daemon = True
    guard.start()
    measure_all(bench, [name for name in PARTS if name in arguments.only], write, limit=limit)
    print(facts)
    for name, table in bench.tables.items():
        print(f"\n## {name}\n\n{shown(table)}")


if __name__ == "__main__":
    main()
