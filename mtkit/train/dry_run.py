"""What a training will take: the forecast that `--dry-run` prints."""

from __future__ import annotations

import logging
import os
import sys
import time
from functools import partial
from itertools import chain, islice
from pathlib import Path

import torch

from mtkit.base.arguments import checks_arguments
from mtkit.base.devices import choose_device, describe_device
from mtkit.base.errors import MtkitError, one_line
from mtkit.base.memory import disable_malloc_trim, memory_explained
from mtkit.config import Config, dump_config
from mtkit.data import PreparedData
from mtkit.model import Transformer, parameter_counts
from mtkit.prepare_config import PrepareConfig
from mtkit.tokenizer import PAD_ID
from mtkit.train.assembly import check_task, parameters_in_words, warn_of_start
from mtkit.train.checkpoints import check_disk
from mtkit.train.diagnostics import rate_in_words, unusual_rate
from mtkit.train.flops import cost_in_words, training_flops
from mtkit.train.launcher import threads_for
from mtkit.train.memory import check_room, gigabytes, memory_in_words, sizes_of
from mtkit.train.prefetch import Prefetcher
from mtkit.train.progress_meter import Meter, hours_and_minutes
from mtkit.train.start import start_of
from mtkit.train.trainer import Trainer

log = logging.getLogger(__name__)

# The forecast measures whole updates if one takes less.
_QUICK_SECONDS = 3.0
# How many updates are timed after the first one; on a GPU, how many run before any is timed.
_TIMED_UPDATES = 5
_WARM_UP = 30
# Updates that are timed together on a GPU, because it is some of them behind the program.
_TIMED_TOGETHER = 10
# What a measurement should not take longer than, in seconds.
_MEASURED_SECONDS = 10.0
# Target tokens in a pass that keep a GPU busy.
_ENOUGH_FOR_A_GPU = 2000


@checks_arguments
def forecast(
    config: Config,
    data: PreparedData,
    *,
    device: str = "auto",
    world_size: int = 1,
    init_from: str | None = None,
    run_path: Path = Path(),
    restart: bool = False,
) -> str:
    """The output of `--dry-run`: the full configuration as YAML, then the forecast as comments.

    Builds the model, runs the largest batch, and measures the time of a few batches, as one of
    `world_size` workers with the whole model; writes nothing. Only the disk of `run_path` is looked
    at; with `restart` its checkpoints are to be deleted.
    """
    worker_device = choose_device(device, tf32=config.train.tf32)

    def check(config: Config) -> None:
        log.info("%s", memory_in_words(config, sizes_of(data)))
        check_room(config, data, worker_device, world_size=world_size)

    config, initial = start_of(config, data, None, init_from, check=check)
    check_task(config, data)
    data.verify()
    if initial is not None:
        warn_of_start(initial, config)
    if worker_device.type == "cpu" and world_size > 1 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads_for(world_size))
    # A single worker cannot shard the model.
    whole = config.model_copy(update={"train": config.train.model_copy(update={"fsdp": False})})
    memory = check_room(config, data, worker_device, world_size=world_size)
    disable_malloc_trim(model_bytes=memory.weights)
    with memory_explained("building the model; choose a smaller one (model.d_model)"):
        trainer = Trainer(whole if world_size > 1 else config, data, device=worker_device)
    trainer.micro_batches.choose(trainer.batches, world_size)
    saved_bytes = trainer.trained.saved_bytes(trainer.optimizer)
    disk = check_disk(run_path, saved_bytes, replaces=restart)
    try:
        trainer.check_memory()
    except MtkitError as error:
        if world_size == 1 or not config.train.fsdp:
            raise
        raise MtkitError(
            f"{error} (tried with the whole model on one device; train.fsdp leaves more room)"
        ) from error
    on_gpu, several = worker_device.type == "cuda", world_size > 1
    if on_gpu:
        speeds, measured = speeds_in_training(trainer, world_size), 0
    else:
        speeds, measured = _measured_speeds(trainer)
    low, speed, high = min(speeds), len(speeds) / sum(1 / speed for speed in speeds), max(speeds)
    pairs = data.pairs("train")
    updates = trainer.batches.updates_in_epoch
    tokens = pairs.epoch_tokens()
    flops = sum(
        weight * training_flops(config.model, len(trainer.tokenizer), src, tgt)
        for weight, src, tgt in pairs.epoch_lengths()
    )
    epochs = config.train.last_step / updates
    is_partial = trainer.trained.count != sum(parameter_counts(trainer.model).values())
    seconds, fastest, slowest = (epochs * tokens / rate / world_size for rate in (speed, high, low))
    spread = f"{low:,.0f} to {high:,.0f} in {len(speeds)} updates"
    sure = f"{hours_and_minutes(fastest)} to {hours_and_minutes(slowest)} at these speeds"
    if len(speeds) == 1:
        spread, sure = "one update", "a rough guess"
    over = f"over {measured} batch{'es' if measured > 1 else ''} ({spread})"
    if on_gpu:
        count = len(speeds) * _TIMED_TOGETHER
        over = f"over {count} updates after {_WARM_UP} others ({low:,.0f} to {high:,.0f})"
    of_update = partial(trainer.micro_batches.of_update, step=1, rank=0, world_size=world_size)
    # Forward and backward, in which a worker computes its share of an update.
    passes = max(len(of_update(some)) for some in islice(trainer.batches, _TIMED_UPDATES))
    return _forecast(
        config,
        [
            f"data: {one_line(str(data.path))} "
            f"({', '.join(f'{src} to {tgt}' for src, tgt in data.language_pairs)})",
            *_facts_of_model(trainer.model, config),
            *([f"trained: {parameters_in_words(trainer)}"] if is_partial else []),
            *([f"start: {initial.origin.weights} of {initial.run}"] if initial else []),
            *([initial.added_rows] if initial and initial.added_rows else []),
            f"learning rate: {rate_in_words(config, is_fine_tuning=initial is not None)}",
            f"an update: {tokens / updates:,.0f} target tokens, "
            + division_in_words(trainer, passes, several=several),
            *([pass_in_words(tokens / updates, passes, world_size)] if on_gpu else []),
            f"an epoch: {updates:,.0f} updates, {tokens:,} target tokens",
            f"device: {describe_device(worker_device)}"
            + (f", {world_size} workers" if several else "")
            + f", {trainer.precision}, matrices by {trainer.matmul_backend}",
            f"memory at the largest batch: {_peak(worker_device)}"
            + (", before the model is sharded" if several and config.train.fsdp else "")
            + "; validations and checkpoints need more",
            f"disk: {disk}",
            f"speed: {speed:,.0f} target tokens/s {over}"
            + (", by one worker alone" if several else ""),
            f"time: {hours_and_minutes(seconds)} ({sure}) for {config.train.last_step:,} updates, "
            "without validation"
            + (f", if all {world_size} workers keep that speed" if several else ""),
            f"cost: {cost_in_words(epochs * flops, seconds, config)}",
        ],
    )


def _measured_speeds(trainer: Trainer) -> tuple[list[float], int]:
    """Target tokens per second of some updates, and the batches of each."""
    # After a first update, which is slower, they are whole ones if that is quick. Otherwise they
    # are of one batch, or of as many as it takes to use all threads.
    meter = Meter(trainer.cost)
    batches = chain.from_iterable(trainer.batches)
    number = -(-trainer.micro_batches.at_once // trainer.micro_batches.per_batch)
    speeds: list[float] = []
    while len(speeds) <= _TIMED_UPDATES and trainer.cost.seconds < _MEASURED_SECONDS:
        meter.add(*trainer.update(list(islice(batches, number))))
        speeds.append(meter.read(trainer.step, trainer.workers)["tokens_per_second"])
        measured = number
        if trainer.cost.seconds / number * trainer.batches.per_update < _QUICK_SECONDS:
            number = trainer.batches.per_update
    return speeds[1:] or speeds, measured


def speeds_in_training(trainer: Trainer, world_size: int) -> list[float]:
    """Target tokens per second of a worker in the training loop, several times.

    The program waits for the device only at the end of each time, as in training it does not wait
    at all. The updates before are slower: kernels are chosen or compiled, and memory is allocated.
    """
    speeds: list[float] = []
    tokens, seconds, began = 0, 0.0, 0.0
    prepare = partial(trainer.passes, world_size=world_size)
    last = _WARM_UP + _TIMED_UPDATES * _TIMED_TOGETHER
    with Prefetcher(trainer.batches, prepare, done=0, last=last) as updates:
        for step in range(1, last + 1):
            update = updates.next()
            losses = trainer.update(update.batches, update.own)
            tokens += sum(pass_.target_tokens for pass_ in update.own)
            if step < _WARM_UP or (step - _WARM_UP) % _TIMED_TOGETHER:
                continue
            losses.translation.item()
            now = time.perf_counter()
            if step > _WARM_UP:
                speeds.append(tokens / (now - began))
                seconds += now - began
            if seconds > _MEASURED_SECONDS:
                break
            tokens, began = 0, now
    return speeds


def division_in_words(trainer: Trainer, passes: int, *, several: bool) -> str:
    """Such as "8 micro-batches, 2 at a time", or "in one pass"."""
    micro_batches = trainer.micro_batches
    at_once = f", {micro_batches.at_once} at a time" if micro_batches.at_once > 1 else ""
    if micro_batches.packed:
        in_passes = "in one pass" if passes == 1 else f"in {passes} passes"
        return in_passes + (" of each worker" if several else at_once)
    number = trainer.batches.per_update * micro_batches.per_batch
    return f"{number} micro-batch{'es' if number > 1 else ''}{at_once}"


def pass_in_words(tokens: float, passes: int, world_size: int) -> str:
    """How many of the target tokens of an update a GPU computes at a time, and if too few."""
    share = tokens / passes / world_size
    advice = ""
    if share < _ENOUGH_FOR_A_GPU:
        fewer = " or use fewer GPUs" if world_size > 1 else ""
        advice = f", too few to keep it busy: raise train.batch_tokens{fewer}"
    return f"a pass of a GPU: {share:,.0f} target tokens{advice}"


@checks_arguments
def forecast_without_data(config: Config) -> str:
    """The forecast of `--dry-run` for a configuration without data.

    It assumes the vocabulary of the paper, and sentences of 30 tokens, about the average of WMT14.
    """
    vocab_size = PrepareConfig().vocab_size
    with torch.device("meta"):
        model = Transformer(config.model, vocab_size, PAD_ID)
    tokens = config.train.batch_tokens * config.train.last_step
    flops = training_flops(config.model, vocab_size, [30], [30]) / 30 * tokens
    return _forecast(
        config,
        [
            "data: none yet; vocabulary as in the paper, sentences of 30 tokens",
            *_facts_of_model(model, config),
            f"learning rate: {rate_in_words(config)}",
            f"an update: {config.train.batch_tokens:,} target tokens",
            f"cost: {cost_in_words(flops, None, config)}, for {config.train.last_step:,} updates",
        ],
    )


def _forecast(config: Config, lines: list[str]) -> str:
    if (warning := unusual_rate(config)) is not None:
        log.warning("%s", warning)
    # The forecast is the end, where a terminal shows it.
    return dump_config(config) + "".join(f"# {line}\n" for line in lines)


def _facts_of_model(model: Transformer, config: Config) -> list[str]:
    counts = parameter_counts(model)
    total = sum(counts.values())
    parts = ", ".join(f"{part} {count:,}" for part, count in counts.items())
    pieces = f"{model.vocab_size:,}"
    if model.src_vocab_size is not None:
        pieces = f"{model.src_vocab_size:,} source and {pieces} target"
    return [
        f"vocabulary: {pieces} subwords",
        f"parameters: {total:,} ({parts})",
        memory_in_words(config, (model.vocab_size, model.src_vocab_size)),
    ]


def _peak(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{gigabytes(torch.cuda.max_memory_allocated(device))} on the device"
    import resource

    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return f"{gigabytes(peak)} for the whole process"
