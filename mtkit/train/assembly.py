"""Runs a training from its configuration: opens data and run folder, starts the workers.

`run` only connects the parts; the training loop is in `trainer`.
"""

from __future__ import annotations

import importlib.metadata
import logging
import platform
import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

import mtkit
from mtkit.base.arguments import checks_arguments
from mtkit.base.devices import choose_device, describe_device
from mtkit.base.errors import MtkitError, reason_of
from mtkit.base.files import FileLock
from mtkit.base.launched import given_world_size
from mtkit.base.memory import disable_malloc_trim, memory_explained
from mtkit.check import fit_run
from mtkit.config import Config, dump_config
from mtkit.data import Direction, PreparedData
from mtkit.model import parameter_counts
from mtkit.run_folder import CONFIDENCE, PAGE, Run
from mtkit.run_manifest import DataOrigin, RunManifest, path_of_data, shareable_command
from mtkit.score import check_seed
from mtkit.train.checkpoints import check_disk
from mtkit.train.diagnostics import unusual_rate
from mtkit.train.distributed import Workers, init_workers, worker_names
from mtkit.train.flops import cost_in_words
from mtkit.train.launcher import interrupt_on_signal, launch_id
from mtkit.train.memory import check_room
from mtkit.train.progress_meter import hours_and_minutes
from mtkit.train.schedule import Schedule
from mtkit.train.start import Initial, Job, existing_run, start_of, with_finish
from mtkit.train.trainer import Trainer

log = logging.getLogger(__name__)


@checks_arguments
def run(
    config: Config,
    data: PreparedData,
    run_path: Path,
    *,
    device: str = "auto",
    restart: bool = False,
    command: list[str] | None = None,
    init_from: str | None = None,
    finish_in: int | None = None,
) -> bool:
    """Train in a run folder, from its last checkpoint if it has one.

    Args:
        run_path: the run folder, created if needed.
        device: `auto`, `cpu` or `cuda`.
        restart: delete existing checkpoints.
        command: recorded in the run's manifest.
        init_from: the run whose weights a new run starts from, instead of random ones, and its
            checkpoint: RUN or RUN:CHECKPOINT. The model and the settings of decoding come from RUN
            too, as `Config.for_weights_of` says.
        finish_in: end a run that continues after this number of updates, in which its learning rate
            falls to zero.

    Returns:
        False if a signal ended the training early; a checkpoint was saved then.

    Raises:
        MtkitError: if the folder has a run with another configuration, other data or other
            initial weights, which the message names, or if the workers have different ones.
    """
    worker_device = choose_device(device, tf32=config.train.tf32)
    check = partial(check_room, data=data, device=worker_device, world_size=given_world_size())
    config, initial = start_of(config, data, run_path, init_from, restart=restart, check=check)
    job = Job(config.shareable(), data, run_path, initial, restart, finish_in, command)
    with init_workers(worker_device, stall_timeout=config.train.stall_timeout) as workers:
        check_task(config, data)
        _check_agreed(workers, job)
        _check_own_gpus(workers, worker_device)
        # The first worker decides: on a shared file system the others may see an older state.
        if workers.is_rank_zero and not Run.may_create(run_path):
            if run_path.is_dir() and not Run.is_run(run_path):
                Run.open(run_path)  # reports a run that has lost its manifest
            raise MtkitError(f"{run_path}: exists and is not a run folder; give another --run")
        with Run.lock(run_path) if workers.is_rank_zero else nullcontext() as held:
            return _run_locked(job, worker_device, workers, held)


def _run_locked(job: Job, device: torch.device, workers: Workers, held: FileLock | None) -> bool:
    """Train in a folder that the first worker has locked."""
    data, run_path, initial = job.data, job.run_path, job.initial
    if workers.is_rank_zero:
        data.verify()
    existing = existing_run(workers, job)
    config = with_finish(job, existing, workers)
    memory = check_room(config, data, device, world_size=workers.world_size)
    disable_malloc_trim(model_bytes=memory.weights)
    with memory_explained("building the model; choose a smaller one (model.d_model)"):
        weights = initial.weights if initial is not None and existing is None else None
        trainer = Trainer(config, data, device=device, workers=workers, initial=weights)
    if initial is not None:
        # The model has its own copy. This frees the memory.
        initial.weights.clear()
    # No worker may write before all workers have looked.
    workers.barrier()
    folder = existing or Run(run_path, config, RunManifest())
    folder = replace(folder, config=config, held=held)
    saved_bytes = trainer.trained.saved_bytes(trainer.optimizer)
    if workers.is_rank_zero:
        _report_start(job, trainer)
        if existing is None:
            check_disk(run_path, saved_bytes, replaces=True)
            early = config.train.early_validations
            first = min(*early, config.train.valid_every, config.train.last_step)
            log.info("the first validation is after update %s", f"{first:,}")
            if initial is not None:
                origin = initial.origin
                licence = f"; licence: {origin.licence}" if origin.licence else ""
                log.info("starting from %s of %s%s", origin.weights, initial.run, licence)
                if initial.added_rows:
                    log.info("%s", initial.added_rows)
                warn_of_start(initial, config)
            manifest = _manifest(job)
            folder = Run.create(run_path, config, trainer.vocabularies, manifest=manifest)
            folder.held = held
    if existing is not None:
        if workers.is_rank_zero:
            folder.tokenizers()  # refuses those that nothing could be translated with
        trainer.resume(folder)
        if trainer.step >= config.train.last_step:
            if workers.is_rank_zero:
                _report_finished(run_path, config, trainer.step)
            return True
        if workers.is_rank_zero:
            check_disk(run_path, saved_bytes, replaces=False)
            folder.write_config()
            if config.train.finish_steps:
                falls, last = trainer.schedule.finish_in_words(), config.train.last_step
                log.info("%s; the run ends at step %d (--finish-in)", falls, last)
    if workers.is_rank_zero and (warning := unusual_rate(config)) is not None:
        log.warning("%s", warning)
    trainer.check_memory()
    if config.train.has_auto_tokens:
        # Every resume takes the same number.
        known = {"device_batch_tokens": f"auto:{trainer.micro_batches.limit}"}
        settings = folder.config.train.model_copy(update=known)
        folder = replace(folder, config=folder.config.model_copy(update={"train": settings}))
        if workers.is_rank_zero:
            folder.write_config()
    finished = trainer.fit(folder)
    if finished and workers.is_rank_zero:
        _fit_checks(folder, data, trainer)
    cost = trainer.cost
    if workers.is_rank_zero:
        tokens, seconds = f"{cost.tokens:,}", hours_and_minutes(cost.seconds)
        spent = cost_in_words(cost.flops, cost.seconds, config)
        log.info("trained on %s target tokens in %s: %s", tokens, seconds, spent)
    # If the others ended first, stopped by a signal, the first would be ended before it says that.
    # At the end of a run, they need not wait while it is checked.
    if not finished:
        with nullcontext() if workers.is_rank_zero else interrupt_on_signal(ignores=True):
            workers.barrier()
    return finished


def _report_start(job: Job, trainer: Trainer) -> None:
    count, at_once = trainer.workers.world_size, trainer.micro_batches.at_once
    facts = [
        describe_device(trainer.device),
        *([f"{count} workers"] if count > 1 else []),
        *([f"{at_once} passes at a time"] if at_once > 1 else []),
        trainer.precision,
        f"matrices by {trainer.matmul_backend}",
        parameters_in_words(trainer),
    ]
    log.info("training %s on %s: %s", job.run_path, job.data.path, ", ".join(facts))
    log.info("report: %s", job.run_path / PAGE)


def warn_of_start(initial: Initial, config: Config) -> None:
    """Warn of fine-tuning that takes longer, or destroys what the model has learned."""
    if config.train.schedule == "paper":
        log.warning(
            "train.schedule: the rates of paper are for random weights; to fine-tune, use --config "
            "fine-tune, or set it to constant, linear or cosine"
        )
    if initial.new_directions:
        log.warning(
            "%s was trained on data without %s; to learn that, expect to train longer",
            initial.run,
            ", ".join(f"{src} to {tgt}" for src, tgt in initial.new_directions),
        )


def _fit_checks(run: Run, data: PreparedData, trainer: Trainer) -> None:
    """Fit what checks the translations of a finished run; a run without it is complete too."""
    if data.task != "translation":
        return
    run.check_held()
    # Those of an earlier end do not belong to the weights any more.
    (run.path / CONFIDENCE).unlink(missing_ok=True)
    failure = "an interrupt"
    try:
        with interrupt_on_signal(ignores=False):
            if not trainer.stopped:
                fit_run(run, data, device=trainer.device.type)
                failure = ""
    except KeyboardInterrupt:
        pass
    # Whatever it is, days of training are not lost because of it.
    except Exception as error:
        failure = f"an error: {reason_of(error) or type(error).__name__}"
    if failure:
        log.warning(
            "confidence: not fitted, because of %s; the run is complete; to fit it: "
            "mtkit check --run %s --fit",
            failure,
            run.in_command,
        )
    assert trainer.metrics is not None
    trainer.metrics.write_page("finished")


def _report_finished(run_path: Path, config: Config, step: int) -> None:
    further = "to train longer, set train.max_steps above that"
    decayed = Schedule.from_config(config).decay_start()
    if decayed is not None and step >= decayed:
        further = (
            "to train longer, start a new run with a higher train.max_steps (--run, or --restart), "
            "because the learning rate of this one has decayed"
        )
    log.info("%s is finished: step %d of %d; %s", run_path, step, config.train.last_step, further)


def parameters_in_words(trainer: Trainer) -> str:
    """Such as "60,000 parameters, 2,000 trained"."""
    count = sum(parameter_counts(trainer.model).values())
    trained = trainer.trained.count
    return f"{count:,} parameters" + (f", {trained:,} trained" if trained != count else "")


def _manifest(job: Job) -> RunManifest:
    data = job.data
    directions = [Direction(src_lang=d.src_lang, tgt_lang=d.tgt_lang) for d in data.directions]
    return RunManifest(
        started_from=job.initial and job.initial.origin,
        data=DataOrigin(
            name=data.name,
            path=path_of_data(data.path, job.run_path),
            fingerprint=data.fingerprint,
            src_lang=data.src_lang,
            tgt_lang=data.tgt_lang,
            **({"directions": directions} if directions else {}),
            task=data.task,
            pairs=data.manifest.counts.get("kept"),
            licence=data.manifest.licence or "",
            lines=data.manifest.lines,
        ),
        versions={
            "mtkit": mtkit.__version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "sacrebleu": importlib.metadata.version("sacrebleu"),
        },
        seed=job.config.train.seed,
        command=shareable_command(job.command or sys.argv),
        launch=launch_id(),
    )


def _check_agreed(workers: Workers, job: Job) -> None:
    """Refuse workers that were started with different settings, data or weights."""
    for what, value in (
        ("data", job.data.fingerprint),
        ("settings", dump_config(job.config)),
        ("initial weights", job.initial and job.initial.origin.sha256),
    ):
        values = workers.gather(value)
        if others := [rank for rank, theirs in enumerate(values) if theirs != values[0]]:
            raise MtkitError(f"{worker_names(others)}: started with other {what} than worker 0")


def _check_own_gpus(workers: Workers, device: torch.device) -> None:
    if device.type != "cuda":
        return
    gpus = workers.gather(str(torch.cuda.get_device_properties(device).uuid))
    if sharing := [rank for rank, gpu in enumerate(gpus) if gpus.count(gpu) > 1]:
        raise MtkitError(
            f"{worker_names(sharing)}: share a GPU, and each needs its own; start one "
            "worker for each GPU that CUDA_VISIBLE_DEVICES shows"
        )


def check_task(config: Config, data: PreparedData) -> None:
    """Refuse data of other languages than the configuration, and a metric of another task.

    Also a SACREBLEU_SEED with which the first validation, hours later, would fail.
    """
    for key in ("src_lang", "tgt_lang"):
        wanted, actual = getattr(config.data, key), getattr(data, key)
        if wanted is not None and wanted != actual:
            raise MtkitError(
                f"data.{key}: the configuration wants {wanted}, {data.path} has {actual}"
            )
    metric = config.train.best_metric
    suitable: tuple[str, ...] = ("bleu", "chrf", "chrf++", "loss")
    if data.task == "parsing":
        suitable = ("f1", "loss")
    if metric not in suitable:
        raise MtkitError(
            f"train.best_metric: {metric} is not a metric of {data.task}, the task of {data.path}; "
            f"set it to {' or '.join(suitable)}"
        )
    named, known = config.train.best_set, [*data.valid_also, *(d.name for d in data.directions)]
    if named is not None and named not in known:
        raise MtkitError(
            f"train.best_set: {data.path} has no further validation set {named}; it has "
            f"{', '.join(known) or 'none'}"
        )
    if data.task == "translation":
        check_seed()
