"""Time a training step and decoding on the CPU, each against its plain form.

    python benchmarks/cpu.py [--rounds 5] [--threads 2]

The variants of a comparison run in one process, alternating, on the same synthetic batches; what is
reported is the ratio of paired rounds, its median and its range, and then the absolute speeds. The
model of `small.yaml` with 8,000 pieces, sentences of 15 tokens.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from common import markdown, spread, versions
from torch import Tensor, nn
from train_cpu import SIZES, PlainModel

from mtkit.base.memory import disable_malloc_trim
from mtkit.config import load_config
from mtkit.kernels.cpu_loss import loss_of_states
from mtkit.model import Transformer
from mtkit.search_settings import SearchSettings
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID
from mtkit.translate.pytorch.incremental import Engine
from mtkit.translate.search.independent import greedy_search

SHAPE = load_config(str(Path(__file__).with_name("small.yaml"))).model
VOCABULARY, LENGTH = 8_000, 15
SMOOTHING = 0.1


def training_step(model: nn.Module, *, plain: bool, sentences: int) -> Callable[[], int]:
    """A function that makes one update and returns its target tokens."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=not plain)
    src = torch.randint(4, VOCABULARY, (sentences, LENGTH))
    tgt = torch.randint(4, VOCABULARY, (sentences, LENGTH + 1))

    def step() -> int:
        model.train()
        target = tgt[:, 1:]
        if plain:
            logits = model(src, tgt[:, :-1])
            loss = F.cross_entropy(
                logits.flatten(0, 1), target.flatten(), label_smoothing=SMOOTHING, reduction="sum"
            )
        else:
            states = model(src, tgt[:, :-1], states_only=True)
            how = {"label_smoothing": SMOOTHING, "pad_id": PAD_ID}
            loss = loss_of_states(states, model.embedding.weight, target, **how)
        (loss / target.numel()).backward()
        optimizer.step()
        optimizer.zero_grad()
        return target.numel()

    return step


def decoding(model: Transformer, *, cached: bool, sentences: int) -> Callable[[], int]:
    """A function that decodes greedily to a fixed length and returns its target tokens.

    Without the cache every step runs the decoder over the whole prefix.
    """
    src = torch.randint(4, VOCABULARY, (sentences, LENGTH))

    @torch.inference_mode()
    def decode() -> int:
        model.eval()
        if cached:
            engine = Engine(model)
            greedy_search(
                # No sentence may end, so that both decode the same number of tokens.
                lambda *arguments: _without_eos(engine.step(*arguments)),
                engine.start(src, 1),
                SearchSettings([LENGTH] * sentences, BOS_ID, EOS_ID, alpha=0.0),
            )
        else:
            prefix = torch.full((sentences, 1), BOS_ID)
            for _ in range(LENGTH):
                logits = model(src, prefix)[:, -1]
                prefix = torch.cat((prefix, logits.argmax(-1, keepdim=True)), dim=1)
        return sentences * LENGTH

    return decode


def _without_eos(log_probs: Tensor) -> Tensor:
    log_probs[:, EOS_ID] = -torch.inf
    return log_probs


def compare(
    title: str, ours: Callable[[], int], plain: Callable[[], int], rounds: int
) -> list[str]:
    """The row of a table: the ratio of the speeds of two functions that take turns, and both."""
    speed(ours), speed(plain)
    pairs = [(speed(ours), speed(plain)) for _ in range(rounds)]
    medians = [f"{statistics.median(speeds):,.0f}" for speeds in zip(*pairs, strict=True)]
    return [title, spread([mine / theirs for mine, theirs in pairs], ".2f"), *medians]


def speed(step: Callable[[], int]) -> float:
    """Tokens per second of two calls."""
    started = time.perf_counter()
    return (step() + step()) / (time.perf_counter() - started)


def main() -> None:
    """Parse, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    rounds = arguments.rounds
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    print(f"{arguments.threads} threads, {rounds} rounds. {versions()}\n")
    ours, plain = Transformer(SHAPE, VOCABULARY, PAD_ID), PlainModel(SIZES["small"], VOCABULARY)
    step = training_step(ours, plain=False, sentences=100)
    other = training_step(plain, plain=True, sentences=100)
    rows = [compare("training step against torch.nn.Transformer", step, other, rounds)]
    for sentences in (64, 512):
        cached, plainly = (
            decoding(ours, cached=cached, sentences=sentences) for cached in (True, False)
        )
        title = f"greedy decoding of {sentences} sentences against no cache"
        rows.append(compare(title, cached, plainly, rounds))
    # The setting of the C library cannot be taken back, so this row is the last and not in turns.
    default = statistics.median(speed(step) for _ in range(rounds))
    disable_malloc_trim()
    kept = statistics.median(speed(step) for _ in range(rounds))
    title = "training step, freed memory kept against returned"
    rows.append(
        [title, f"{kept / default:.2f} (not alternating)", f"{kept:,.0f}", f"{default:,.0f}"]
    )
    columns = ["what", "mtkit / plain, median (range)", "mtkit tokens/s", "plain tokens/s"]
    print(markdown(columns, rows))


if __name__ == "__main__":
    main()
