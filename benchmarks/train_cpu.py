"""Time training on the CPU against other toolkits, on the same batches, in one run.

    python benchmarks/train_cpu.py --data data/multi30k [--quick] [--size base] [--threads 2]

`--data` is a prepared corpus with 8,000 pieces (examples/multi30k). Each toolkit is installed
into an environment of its own under `--peers-dir`, all of them with the torch that mtkit has here,
and runs there in a process of its own, pinned to one core (or to two): its model, its loss and its
optimizer, driven from here one update at a time. One that cannot be installed or started is named
and left out. Only one process computes at a time, and they take turns: A B C, C B A, and so on.

What is timed is whole updates on the same batches in the same order, of about one length, padding
at the end; what is counted is real target tokens, EOS included and padding not. A round begins with
an update that is not timed, because between its turns a process gives back the memory it has free.
What is reported is the ratio of the rounds, paired, with its range, by the clock and by the time
that the CPU has worked, which other load on the machine hardly changes, and then the speeds.

Speed without learning is worth nothing, so before it is timed each toolkit makes 200 updates, and
is judged by one definition: the mean negative log-likelihood of a target token, in nats, without
smoothing and without dropout, of every fifth batch before it is trained on, and of the validation
set at the end. All begin with values drawn alike; `--seeds 3` shows what is noise.

All have the paper's settings: label smoothing and dropout of 0.1 (dropout on attention weights and
inside the feed-forward network is off, as in the paper, wherever a toolkit can switch it off), Adam
with (0.9, 0.98), the paper's schedule with 4,000 steps of warm-up, no clipping of gradients,
sinusoidal positions, and one matrix for both embeddings and the output.

This file runs in every environment, so at its top it imports nothing but torch, numpy and
common.py, which makes the environments.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Last, because the modules beside this file are not for the toolkits to import.
sys.path.append(str(Path(__file__).parent))
from common import (
    BOS,
    EOS,
    PAD,
    TOOLKITS,
    Process,
    Race,
    clock,
    malloc_trim,
    markdown,
    serve,
    spread,
    version_of,
    versions,
)

SMOOTHING = DROPOUT = 0.1
BETAS, EPSILON = (0.9, 0.98), 1e-9
WARMUP_STEPS = 4000
MAX_LENGTH = 512
EVALUATE_EVERY = 5
TOKENS_PER_ROUND = 12_000
SETTLING_UPDATES = 3


@dataclass(frozen=True)
class Size:
    """The shape of a model, the same for encoder and decoder."""

    layers: int
    d_model: int
    d_ff: int
    heads: int


SIZES = {"small": Size(3, 256, 1024, 4), "base": Size(6, 512, 2048, 8)}


@dataclass(frozen=True)
class Setting:
    """What a worker gets when it starts.

    `vocabulary` is the number of pieces, `batches` the file that `write_batches` wrote, `budget`
    the most slots of a batch on either side; `overrides` are settings of mtkit.
    """

    size: Size
    vocabulary: int
    seed: int
    threads: int
    data: str
    batches: str
    budget: int
    overrides: list[str]


@dataclass(frozen=True)
class Batch:
    """Sentence pairs side by side, padded at the end.

    Attributes:
        src: (B, S), each sentence ended by EOS.
        tgt_in: (B, T), begun by BOS.
        tgt_out: (B, T), ended by EOS.
        indices: (B,), which pairs of the corpus they are.
    """

    src: Tensor
    tgt_in: Tensor
    tgt_out: Tensor
    indices: np.ndarray

    @classmethod
    def of(cls, src: np.ndarray, tgt: np.ndarray, indices: np.ndarray) -> Batch:
        """The batch of two padded arrays of sentences that EOS ends."""
        tgt_out = torch.from_numpy(tgt).long()
        tgt_in = F.pad(tgt_out[:, :-1], (1, 0), value=BOS)
        tgt_in = tgt_in.masked_fill(tgt_in == EOS, PAD)
        return cls(torch.from_numpy(src).long(), tgt_in, tgt_out, indices)

    @property
    def num_tokens(self) -> int:
        """Target tokens, EOS counted, padding not."""
        return int((self.tgt_out != PAD).sum())


def learning_rate(step: int, d_model: int) -> float:
    """The paper's, of update `step`, counted from 1 (Section 5.3, equation 3)."""
    return float(d_model**-0.5 * min(step**-0.5, step * WARMUP_STEPS**-1.5))


# ---------------------------------------------------------------------------------------------
# The toolkits, one function each, which imports its toolkit when it is called and not before


@dataclass(frozen=True)
class Peer:
    """A toolkit's model, loss and optimizer.

    Attributes:
        model: what is trained.
        update: one optimizer step, of this number, on the mean loss of a target token.
        logits: (B, T, V), of the next target tokens.
        note: what to know about it that shows only when it runs.
    """

    model: nn.Module
    update: Callable[[Batch, int], None]
    logits: Callable[[Batch], Tensor]
    note: str = ""


def mtkit(setting: Setting, *settings: str) -> Peer:
    """`mtkit.train.trainer.Trainer`, as `mtkit train` sets it up on a CPU.

    By default it uses bfloat16 where the CPU has it.
    """
    from mtkit.base.devices import choose_device
    from mtkit.base.memory import disable_malloc_trim
    from mtkit.config import load_config
    from mtkit.data import PreparedData
    from mtkit.train.trainer import Trainer

    size = setting.size
    config = load_config(
        "base",
        [
            f"model.encoder_layers={size.layers}",
            f"model.decoder_layers={size.layers}",
            f"model.d_model={size.d_model}",
            f"model.d_ff={size.d_ff}",
            f"model.n_heads={size.heads}",
            f"model.dropout={DROPOUT}",
            f"train.batch_tokens={setting.budget}",
            f"train.device_batch_tokens={setting.budget}",
            "train.batches_per_update=1",
            f"train.label_smoothing={SMOOTHING}",
            f"train.warmup_steps={WARMUP_STEPS}",
            f"train.seed={setting.seed}",
            *setting.overrides,
            *settings,
        ],
    )
    device = choose_device("cpu")
    disable_malloc_trim()
    trainer = Trainer(config, PreparedData.open(Path(setting.data)), device=device)

    def update(batch: Batch, step: int) -> None:
        # It puts the batch together itself, from the pairs of the corpus.
        trainer.update([batch.indices])

    return Peer(
        trainer.model,
        update,
        lambda batch: trainer.model(batch.src, batch.tgt_in),
        ", ".join([trainer.precision, f"matrices by {trainer.matmul_backend}", *setting.overrides]),
    )


class PlainModel(nn.Module):
    """A translation model put together from `torch.nn.Transformer`, as a tutorial would."""

    def __init__(self, size: Size, vocabulary: int) -> None:
        super().__init__()
        self.scale = size.d_model**0.5
        self.embedding = nn.Embedding(vocabulary, size.d_model, padding_idx=PAD)
        self.dropout = nn.Dropout(DROPOUT)
        self.transformer = nn.Transformer(
            size.d_model,
            size.heads,
            size.layers,
            size.layers,
            size.d_ff,
            DROPOUT,
            batch_first=True,
        )
        rates = torch.exp(torch.arange(0, size.d_model, 2) * (-math.log(10_000) / size.d_model))
        angles = torch.arange(MAX_LENGTH)[:, None] * rates
        self.register_buffer("positions", torch.stack((angles.sin(), angles.cos()), -1).flatten(1))

    def embed(self, ids: Tensor) -> Tensor:
        """Scaled embeddings plus positions, (B, T, D)."""
        return self.dropout(self.embedding(ids) * self.scale + self.positions[: ids.shape[1]])

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits (B, T, V)."""
        hidden = src == PAD
        length = tgt_in.shape[1]
        out = self.transformer(
            self.embed(src),
            self.embed(tgt_in),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(length, dtype=torch.bool),
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
            tgt_is_causal=True,
        )
        return F.linear(out, self.embedding.weight)


def plain(setting: Setting, *, is_fast: bool = False) -> Peer:
    """The loop that one writes first: float32, `torch.optim.Adam`, logits at every position.

    With `is_fast` as one makes it fast: matrix products in bfloat16, and Adam in one kernel.
    """
    model = PlainModel(setting.size, setting.vocabulary)
    optimizer = torch.optim.Adam(model.parameters(), betas=BETAS, eps=EPSILON, fused=is_fast)

    def update(batch: Batch, step: int) -> None:
        set_rate(optimizer, setting.size, step)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_fast):
            loss = F.cross_entropy(
                model(batch.src, batch.tgt_in).flatten(0, 1),
                batch.tgt_out.flatten(),
                ignore_index=PAD,
                label_smoothing=SMOOTHING,
            )
        loss.backward()
        optimizer.step()

    return Peer(model, update, lambda batch: model(batch.src, batch.tgt_in))


def marian(setting: Setting) -> Peer:
    """Hugging Face's `MarianMTModel`, trained by what their `Trainer` would train it by.

    That is its `LabelSmoother` and fused AdamW, here without weight decay, which makes it Adam.
    """
    from transformers import MarianConfig, MarianMTModel
    from transformers.trainer_pt_utils import LabelSmoother

    size = setting.size
    model = MarianMTModel(
        MarianConfig(
            vocab_size=setting.vocabulary,
            d_model=size.d_model,
            encoder_layers=size.layers,
            decoder_layers=size.layers,
            encoder_attention_heads=size.heads,
            decoder_attention_heads=size.heads,
            encoder_ffn_dim=size.d_ff,
            decoder_ffn_dim=size.d_ff,
            dropout=DROPOUT,
            attention_dropout=0.0,
            activation_dropout=0.0,
            activation_function="relu",
            scale_embedding=True,
            share_encoder_decoder_embeddings=True,
            max_position_embeddings=MAX_LENGTH,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
        )
    )
    smoother = LabelSmoother(epsilon=SMOOTHING)
    optimizer = torch.optim.AdamW(
        model.parameters(), betas=BETAS, eps=EPSILON, weight_decay=0.0, fused=True
    )

    def forward(batch: Batch) -> Any:
        return model(
            input_ids=batch.src,
            attention_mask=(batch.src != PAD).long(),
            decoder_input_ids=batch.tgt_in,
            use_cache=False,
        )

    def update(batch: Batch, step: int) -> None:
        set_rate(optimizer, size, step)
        labels = batch.tgt_out.masked_fill(batch.tgt_out == PAD, smoother.ignore_index)
        smoother(forward(batch), labels).backward()
        optimizer.step()
        model.zero_grad()

    return Peer(model, update, lambda batch: forward(batch).logits)


def fairseq(setting: Setting) -> Peer:
    """fairseq's `Trainer`, from options of its command line, one `train_step` at a time.

    Its encoder has a second copy of its matrices, for inference, which counts among its parameters
    and is never trained.
    """
    # numpy has given up these names for Python's types.
    np.float, np.int = float, int
    with hashable_dataclasses():
        from fairseq import options
        from fairseq.data import Dictionary
        from fairseq.dataclass.utils import convert_namespace_to_omegaconf
        from fairseq.tasks.translation import TranslationTask
        from fairseq.trainer import Trainer

    size = setting.size
    pieces = Dictionary()
    for i in range(len(pieces), setting.vocabulary):
        pieces.add_symbol(f"piece{i}")
    # It numbers these two the other way round; only the attributes are read.
    pieces.pad_index, pieces.bos_index = PAD, BOS
    values = {
        "arch": "transformer",
        "dropout": DROPOUT,
        "criterion": "label_smoothed_cross_entropy",
        "label-smoothing": SMOOTHING,
        "optimizer": "adam",
        "adam-betas": BETAS,
        "adam-eps": EPSILON,
        "clip-norm": 0.0,
        "max-tokens": MAX_LENGTH,
        "seed": setting.seed,
    }
    for stack in ("encoder", "decoder"):
        values |= {
            f"{stack}-layers": size.layers,
            f"{stack}-embed-dim": size.d_model,
            f"{stack}-ffn-embed-dim": size.d_ff,
            f"{stack}-attention-heads": size.heads,
        }
    arguments = [f"--{key}={value}" for key, value in values.items()]
    config = convert_namespace_to_omegaconf(
        options.parse_args_and_arch(
            options.get_training_parser(),
            [os.devnull, "--share-all-embeddings", "--cpu", *arguments],
        )
    )
    task = TranslationTask(config.task, pieces, pieces)
    model = task.build_model(config.model)
    trainer = Trainer(config, task, model, task.build_criterion(config.criterion))

    def inputs(batch: Batch) -> dict[str, Tensor]:
        return {
            "src_tokens": batch.src,
            "src_lengths": (batch.src != PAD).sum(1),
            "prev_output_tokens": batch.tgt_in,
        }

    def update(batch: Batch, step: int) -> None:
        trainer.optimizer.set_lr(learning_rate(step, size.d_model))
        sample = {
            "id": torch.arange(len(batch.src)),
            "nsentences": len(batch.src),
            "ntokens": batch.num_tokens,
            "net_input": inputs(batch),
            "target": batch.tgt_out,
        }
        trainer.train_step([sample])

    return Peer(model, update, lambda batch: model(**inputs(batch))[0])


@contextlib.contextmanager
def hashable_dataclasses() -> Iterator[None]:
    """Have dataclasses be defaults of each other's fields, which Python 3.11 began to refuse."""
    original = dataclasses.dataclass
    dataclasses.dataclass = functools.partial(original, unsafe_hash=True)
    try:
        yield
    finally:
        dataclasses.dataclass = original


def set_rate(optimizer: torch.optim.Optimizer, size: Size, step: int) -> None:
    """Give every group of parameters the learning rate of this step."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, size.d_model)


def initialise(model: nn.Module, setting: Setting) -> None:
    """Draw initial values from the same distributions for every toolkit.

    N(0, D^-½) for the embeddings and Glorot's uniform for each matrix, of which some toolkits keep
    two or three in one, zero for biases. Theirs differ: of embeddings alone enough to make a loss
    of 9.0 at the start where others have 9.5, which no seed would explain.
    """
    width = setting.size.d_model
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                if name.endswith("bias"):
                    parameter.zero_()
            elif len(parameter) == setting.vocabulary:
                parameter.normal_(std=width**-0.5)[PAD].zero_()
            elif parameter.requires_grad:
                stacked = parameter.shape in ((2 * width, width), (3 * width, width))
                for matrix in parameter.split(width) if stacked else (parameter,):
                    nn.init.xavier_uniform_(matrix)


# By the names of `common.TOOLKITS`: how to make each, in its own process, and what to know of it.
PEERS: dict[str, tuple[Callable[[Setting], Peer], str]] = {
    "mtkit": (mtkit, ""),
    "mtkit-fp32": (lambda setting: mtkit(setting, "train.precision=fp32"), ""),
    "torch": (
        plain,
        "drops out attention weights and feed-forward activations too, and has one more norm at "
        "the end of either stack",
    ),
    "torch-bf16": (
        functools.partial(plain, is_fast=True),
        "the same in bfloat16 by autocast, with fused Adam",
    ),
    "marian": (marian, "the Trainer's LabelSmoother and default optimizer, without the Trainer"),
    "fairseq": (
        fairseq,
        "its own trainer, repaired where Python 3.11 and numpy 2 keep it from being imported",
    ),
}


# ---------------------------------------------------------------------------------------------
# The worker: one toolkit in its own process, asked by lines of JSON and answering likewise


class Worker:
    """Trains one peer with its settings."""

    def __init__(self, name: str, setting: Setting) -> None:
        torch.set_num_threads(setting.threads)
        torch.manual_seed(setting.seed)
        self.batches, self.valid = read_batches(setting.batches)
        start, note = PEERS[name]
        self.peer = start(setting)
        initialise(self.peer.model, setting)
        self.peer.model.train()
        self.facts = {"version": version_of(name), "note": self.peer.note or note}
        self.step = 0
        self.untimed = SETTLING_UPDATES

    def learn(self, updates: int) -> dict[str, Any]:
        """Make updates and watch the loss.

        Returns:
            The mean loss of a target token of every fifth batch before it is trained on, and of the
            validation set after the last update.
        """
        curve = []
        for number in range(updates):
            if number % EVALUATE_EVERY == 0:
                curve.append(self._loss([self._batch()]))
            self._update()
        valid = self._loss(self.valid)
        malloc_trim()
        return {"curve": curve, "valid": valid}

    def race(self, updates: int) -> dict[str, Any]:
        """Make updates, on the clock after the first one or, in the first round, three."""
        for _ in range(self.untimed):
            self._update()
        self.untimed = 1
        result: dict[str, Any] = {"tokens": 0}
        with clock(result):
            for _ in range(updates):
                result["tokens"] += self._update()
        malloc_trim()
        return result

    def _batch(self) -> Batch:
        return self.batches[self.step % len(self.batches)]

    def _update(self) -> int:
        batch = self._batch()
        self.step += 1
        self.peer.update(batch, self.step)
        return batch.num_tokens

    @torch.no_grad()
    def _loss(self, batches: Sequence[Batch]) -> float:
        self.peer.model.eval()
        summed = sum(
            F.cross_entropy(
                self.peer.logits(batch).flatten(0, 1),
                batch.tgt_out.flatten(),
                ignore_index=PAD,
                reduction="sum",
            ).item()
            for batch in batches
        )
        self.peer.model.train()
        return summed / sum(batch.num_tokens for batch in batches)


# ---------------------------------------------------------------------------------------------
# Batches, planned once for everyone


def write_batches(folder: Path, path: Path, *, budget: int) -> tuple[int, list[int]]:
    """Plan batches of a prepared corpus and write them, padded.

    Pairs of about the same length go together, and no batch has more than `budget` slots on
    either side, padding counted. The batches are in random order; those of the validation set run
    from short to long.

    Returns:
        Size of the vocabulary, and the target tokens of each training batch.
    """
    from mtkit.data import PreparedData

    data = PreparedData.open(folder)
    arrays: dict[str, np.ndarray] = {}
    tokens = []
    for split in ("train", "valid"):
        pairs = data.pairs(split)
        plan = plan_batches(pairs.src.lengths, pairs.tgt.lengths, budget=budget)
        if split == "train":
            plan = [plan[i] for i in np.random.default_rng(1).permutation(len(plan))]
            tokens = [int(pairs.tgt.lengths[indices].sum()) for indices in plan]
        for number, indices in enumerate(plan):
            for side, sentences in (("src", pairs.src), ("tgt", pairs.tgt)):
                padded = sentences.padded(indices).astype(np.int32)
                arrays[f"{split} {number:05} {side}"] = padded
            arrays[f"{split} {number:05} indices"] = indices
    np.savez(path, **arrays)
    return len(data.tokenizers()[1]), tokens


def plan_batches(
    src_lengths: np.ndarray, tgt_lengths: np.ndarray, *, budget: int
) -> list[np.ndarray]:
    """Indices of the pairs of each batch, from short to long."""
    longest = np.maximum(src_lengths, tgt_lengths)
    plan: list[np.ndarray] = []
    batch: list[int] = []
    for index in np.lexsort((src_lengths, tgt_lengths, longest)):
        # Lengths rise, so the newest pair is the widest.
        if batch and (len(batch) + 1) * longest[index] > budget:
            plan.append(np.array(batch))
            batch = []
        batch.append(int(index))
    return [*plan, np.array(batch)]


def read_batches(path: str) -> tuple[list[Batch], list[Batch]]:
    """The batches that `write_batches` wrote, of the training and of the validation set."""
    sets: dict[str, list[Batch]] = {"train": [], "valid": []}
    with np.load(path) as arrays:
        for name in sorted(arrays.files):
            batch, _, part = name.rpartition(" ")
            if part == "src":
                parts = (arrays[f"{batch} {other}"] for other in ("src", "tgt", "indices"))
                sets[batch.split()[0]].append(Batch.of(*parts))
    return sets["train"], sets["valid"]


# ---------------------------------------------------------------------------------------------
# The race


def table(race: Race, losses: dict[str, list[dict[str, Any]]]) -> str:
    """The rows in Markdown."""
    columns = [
        "implementation",
        "mtkit / it, median (range)",
        "the same by CPU time",
        "mtkit in float32 / it",
        "target tokens/s",
        "peak memory",
        "loss on the way",
        "validation loss",
    ]
    rows = [
        [
            f"{TOOLKITS[name].title} {row.facts['version']}",
            race.ratio(name),
            race.ratio(name, "cpu_seconds"),
            race.ratio(name, ours="mtkit-fp32"),
            spread(row.speeds(), ",.0f"),
            row.peak,
            spread([statistics.fmean(round_["curve"]) for round_ in losses[name]], ".3f"),
            spread([round_["valid"] for round_ in losses[name]], ".3f"),
        ]
        for name, row in race.rows.items()
    ]
    return markdown(columns, rows)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help="prepared corpus, such as data/multi30k")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument(
        "--batch-tokens", type=int, default=4096, help="most target tokens of a batch, padded"
    )
    parser.add_argument("--threads", type=int, default=1, help="and cores, for each toolkit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--updates", type=int, help="timed in a round; as many as make some 12,000 target tokens"
    )
    parser.add_argument(
        "--loss-updates", type=int, default=200, help="before the rounds, to watch the loss"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="about eight minutes: the same as --batch-tokens 1500 --loss-updates 0 --updates 6",
    )
    parser.add_argument("--seeds", type=int, default=1, help="to watch the loss with")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of mtkit's"
    )
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--peers-dir", type=Path, default=Path("build/peers"))
    parser.add_argument("--json", type=Path, help="file for all that was measured")
    arguments = parser.parse_args()
    if arguments.worker is None and arguments.data is None:
        parser.error("--data is required")
    if arguments.quick:
        arguments.batch_tokens, arguments.loss_updates, arguments.updates = 1500, 0, 6
    return arguments


def main() -> None:
    """Set up, race, print a table."""
    arguments = parse()
    if arguments.worker is not None:
        name, text = arguments.worker
        fields = json.loads(text)
        setting = Setting(**fields | {"size": Size(**fields["size"])})
        serve(name, lambda: Worker(name, setting))
        return
    about = versions()
    losses: dict[str, list[dict[str, Any]]] = {name: [] for name in arguments.only}
    with tempfile.TemporaryDirectory() as folder:
        batches = Path(folder) / "batches.npz"
        vocabulary, tokens = write_batches(arguments.data, batches, budget=arguments.batch_tokens)
        updates = arguments.updates or max(2, round(TOKENS_PER_ROUND / statistics.fmean(tokens)))

        def start(name: str, seed: int) -> Process:
            setting = Setting(
                size=SIZES[arguments.size],
                vocabulary=vocabulary,
                seed=seed,
                threads=arguments.threads,
                data=str(arguments.data.resolve()),
                batches=str(batches),
                budget=arguments.batch_tokens,
                overrides=arguments.set,
            )
            return Process(
                name,
                script=__file__,
                setting=asdict(setting),
                peers=arguments.peers_dir,
                threads=arguments.threads,
            )

        # The workers of the last seed go on to be timed.
        for seed in range(arguments.seeds, 0, -1):
            with Race(arguments.only, functools.partial(start, seed=seed)) as race:
                if arguments.loss_updates:
                    race.ask("learn", updates=arguments.loss_updates)
                    for name, row in race.rows.items():
                        losses[name] += row.answers
                if seed == 1:
                    race.run(arguments.rounds, updates=updates)
    print(
        f"`{arguments.size}`, {vocabulary:,} pieces, batches of {statistics.fmean(tokens):,.0f} "
        f"target tokens (at most {arguments.batch_tokens:,} with padding), {arguments.threads} "
        f"thread(s) on as many cores, {arguments.rounds} rounds of {updates} updates, losses of "
        f"the first {arguments.loss_updates} updates with {arguments.seeds} seed(s). {about}.\n"
    )
    print("\n".join([table(race, losses), "", *race.notes()]))
    if arguments.json:
        rows = {name: asdict(row) for name, row in race.rows.items()}
        result = {"about": about, "rows": rows, "losses": losses, "left_out": race.left_out}
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
