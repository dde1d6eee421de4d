"""Time a training step and decoding on the CPU, each against its plain form.

    python benchmarks/cpu.py [--rounds 5] [--threads 2]

The variants of a comparison run in one process, alternating, on the same synthetic batches; what is
reported is the ratio of paired rounds, its median and its range, and then the absolute speeds. The
model of `small.yaml` with 8,000 pieces, sentences of 15 tokens.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mtkit
from mtkit.base.devices import disable_malloc_trim
from mtkit.config import load_config
from mtkit.model import Transformer, sinusoidal_positions
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID
from mtkit.train.loss import label_smoothed_loss
from mtkit.translate.engine import Engine
from mtkit.translate.search import beam_search

SHAPE = load_config(str(Path(__file__).with_name("small.yaml"))).model
VOCABULARY, LENGTH = 8_000, 15
SMOOTHING = 0.1


class Plain(nn.Module):
    """The same model put together from `torch.nn.Transformer`, as a tutorial would."""

    def __init__(self) -> None:
        super().__init__()
        self.d_model = SHAPE.d_model
        self.embedding = nn.Embedding(VOCABULARY, SHAPE.d_model)
        self.transformer = nn.Transformer(
            SHAPE.d_model,
            SHAPE.n_heads,
            SHAPE.encoder_layers,
            SHAPE.decoder_layers,
            SHAPE.d_ff,
            SHAPE.dropout,
            batch_first=True,
        )
        self.register_buffer("positions", sinusoidal_positions(512, SHAPE.d_model).float())

    def embed(self, ids: Tensor) -> Tensor:
        """Scaled embeddings plus positions."""
        return self.embedding(ids) * self.d_model**0.5 + self.positions[: ids.shape[1]]

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits (B, T, V)."""
        pad = src == PAD_ID
        causal = nn.Transformer.generate_square_subsequent_mask(tgt_in.shape[1])
        out = self.transformer(
            self.embed(src),
            self.embed(tgt_in),
            tgt_mask=causal,
            src_key_padding_mask=pad,
            memory_key_padding_mask=pad,
            tgt_is_causal=True,
        )
        return F.linear(out, self.embedding.weight)


def training_step(model: nn.Module, *, plain: bool, sentences: int) -> Callable[[], int]:
    """A function that makes one update and returns its target tokens."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=not plain)
    src = torch.randint(4, VOCABULARY, (sentences, LENGTH))
    tgt = torch.randint(4, VOCABULARY, (sentences, LENGTH + 1))

    def step() -> int:
        model.train()
        logits, target = model(src, tgt[:, :-1]), tgt[:, 1:]
        if plain:
            loss = F.cross_entropy(
                logits.flatten(0, 1), target.flatten(), label_smoothing=SMOOTHING, reduction="sum"
            )
        else:
            loss, _ = label_smoothed_loss(logits, target, label_smoothing=SMOOTHING, pad_id=PAD_ID)
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
            beam_search(
                # No sentence may end, so that both decode the same number of tokens.
                lambda *arguments: _without_eos(engine.step(*arguments)),
                engine.start(src, 1),
                max_lengths=[LENGTH] * sentences,
                beam_size=1,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                alpha=0.0,
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


def compare(title: str, ours: Callable[[], int], plain: Callable[[], int], rounds: int) -> None:
    """Run the two in turn and print the ratio of their speeds."""
    for function in (ours, plain):
        function()
    speeds: dict[str, list[float]] = {"mtkit": [], "plain": []}
    for _ in range(rounds):
        for name, function in (("mtkit", ours), ("plain", plain)):
            started = time.perf_counter()
            tokens = function() + function()
            speeds[name].append(tokens / (time.perf_counter() - started))
    ratios = sorted(a / b for a, b in zip(speeds["mtkit"], speeds["plain"], strict=True))
    print(
        f"| {title} | {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) "
        f"| {statistics.median(speeds['mtkit']):,.0f} | {statistics.median(speeds['plain']):,.0f} |"
    )


def main() -> None:
    """Parse, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    print(
        f"mtkit {mtkit.__version__}, torch {torch.__version__}, Python "
        f"{platform.python_version()}, {arguments.threads} threads, {arguments.rounds} rounds\n"
    )
    print("| what | mtkit / plain, median (range) | mtkit tokens/s | plain tokens/s |")
    print("|---|---|---|---|")
    ours, plain = Transformer(SHAPE, VOCABULARY, PAD_ID), Plain()

    def steps(model: nn.Module, *, is_plain: bool) -> Callable[[], int]:
        return training_step(model, plain=is_plain, sentences=100)

    title = "training step against torch.nn.Transformer"
    compare(title, steps(ours, is_plain=False), steps(plain, is_plain=True), arguments.rounds)
    before = training_step(ours, plain=False, sentences=100)
    # The setting of the C library cannot be taken back, so this row comes after the others.
    for cached_rows in (64, 512):
        compare(
            f"greedy decoding of {cached_rows} sentences against no cache",
            decoding(ours, cached=True, sentences=cached_rows),
            decoding(ours, cached=False, sentences=cached_rows),
            arguments.rounds,
        )
    default = [_speed(before) for _ in range(arguments.rounds)]
    disable_malloc_trim()
    kept = [_speed(before) for _ in range(arguments.rounds)]
    print(
        f"| training step, freed memory kept against returned | "
        f"{statistics.median(kept) / statistics.median(default):.2f} (not alternating) "
        f"| {statistics.median(kept):,.0f} | {statistics.median(default):,.0f} |"
    )


def _speed(step: Callable[[], int]) -> float:
    started = time.perf_counter()
    return (step() + step()) / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
