"""Sets up a training run: run folder, data and workers.

`run` only connects the parts; the training loop is in `trainer`.
"""

from __future__ import annotations

import importlib.metadata
import logging
import platform
import sys
from contextlib import nullcontext, suppress
from pathlib import Path

import torch

import mtkit
from mtkit.base.devices import choose_device, describe_device, disable_malloc_trim, memory_explained
from mtkit.base.errors import MtkitError
from mtkit.base.files import FileLock
from mtkit.config import (
    MAY_CHANGE,
    Config,
    differences,
    dump_config,
)
from mtkit.data import Direction, PreparedData
from mtkit.model import parameter_counts
from mtkit.run_folder import PAGE, Run
from mtkit.run_manifest import DataOrigin, RunManifest, path_of_data, shareable_command
from mtkit.train.diagnostics import unusual_rate
from mtkit.train.distributed import Workers, init_workers, worker_names
from mtkit.train.finishing import report_finish, with_finish
from mtkit.train.flops import cost_in_words
from mtkit.train.init_from import Initial, config_to_start, initial_weights, split_checkpoint
from mtkit.train.launcher import is_restarted, launch_id
from mtkit.train.memory import check_room
from mtkit.train.progress import clock
from mtkit.train.schedule import Schedule
from mtkit.train.trainer import Trainer

log = logging.getLogger(__name__)


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
        config: the configuration.
        data: the training data.
        run_path: the run folder, created if needed.
        device: `auto`, `cpu` or `cuda`.
        restart: delete existing checkpoints.
        command: recorded in the run's manifest.
        init_from: the run whose weights a new run starts from, instead of random ones, and its
            checkpoint: RUN or RUN:CHECKPOINT. The model and the settings of decoding come from RUN
            too, as `Config.for_weights_of` says.
        finish_in: end a run that continues after so many updates, in which its learning rate falls
            to zero.

    Returns:
        False if a signal ended the training early; a checkpoint was saved then.

    Raises:
        MtkitError: if the folder has a run with another configuration, other data or other
            initial weights, which the message names, or if the workers have different ones.
    """
    config, initial = start_of(config, data, run_path, init_from, restart=restart)
    config = config.shareable()
    place = choose_device(device)
    with init_workers(place, stall_timeout=config.train.stall_timeout) as workers:
        check_task(config, data)
        _check_agreed(workers, config, data, initial)
        # The first worker decides: on a shared file system the others may see an older state.
        if workers.is_rank_zero and not Run.may_create(run_path):
            if run_path.is_dir() and not Run.is_run(run_path):
                Run.open(run_path)  # reports a run that has lost its manifest
            raise MtkitError(f"{run_path}: exists and is not a run folder; give another --run")
        with Run.lock(run_path) if workers.is_rank_zero else nullcontext() as held:
            return _run_locked(
                config,
                data,
                run_path,
                place,
                workers,
                initial,
                held,
                restart=restart,
                command=command,
                finish_in=finish_in,
            )


def start_of(
    config: Config,
    data: PreparedData,
    run_path: Path | None,
    init_from: str | None,
    *,
    restart: bool = False,
) -> tuple[Config, Initial | None]:
    """The configuration for the weights that training starts from, and these weights.

    The weights are None if they are random, or if a run continues without `init_from`. The
    arguments are as in `run`; without `run_path` nothing is trained.
    """
    begun = None
    if run_path is not None and Run.is_run(run_path):
        # A restart is also for a run that cannot be opened any more.
        with suppress(MtkitError) if restart else nullcontext():
            begun = Run.open(run_path)
    if begun is not None:
        _check_trained(begun)
    origin = begun.manifest.started_from if begun is not None else None
    is_own = begun is not None and is_restarted() and _was_begun_by_launch(begun)
    continues = begun is not None and bool(begun.checkpoints()) and (not restart or is_own)
    if init_from is not None:
        path, which = split_checkpoint(init_from)
        is_same = origin is not None and origin.run_name == path.resolve().name
        # Restarted workers have the command that began the run, whatever RUN has become.
        if not (continues and is_same and (is_own or not path.exists())):
            run = Run.open(path)
            if run_path is not None and run_path.exists() and path.samefile(run_path):
                raise MtkitError(f"{path}: a run cannot start from itself; give another --run")
            return config_to_start(config, run), initial_weights(run, which, data)
    if begun is not None and origin is not None:
        # It continues without the weights that it was started from, but with their settings.
        if not continues:
            why = "was started from other weights" if restart else "has no checkpoint yet"
            raise MtkitError(
                f"{run_path}: {why}; give --init-from again, for {origin.description}, "
                "or another --run"
            )
        return config_to_start(config, begun), None
    if config.train.lora_rank and not continues:
        raise MtkitError(
            "train.lora_rank: only changes the weights of another run; give --init-from RUN"
        )
    return config, None


def _check_trained(run: Run) -> None:
    """Refuse to continue, or to replace, a run that no training made."""
    if run.manifest.exported is not None or run.manifest.imported is not None:
        by = "export" if run.manifest.imported is None else "import"
        raise MtkitError(
            f"{run.path}: was made by mtkit {by}, and has no state of a training; to train it "
            f"further, give another --run, and --init-from {run.path}"
        )


def _run_locked(
    config: Config,
    data: PreparedData,
    run_path: Path,
    place: torch.device,
    workers: Workers,
    initial: Initial | None,
    held: FileLock | None,
    *,
    restart: bool,
    command: list[str] | None,
    finish_in: int | None,
) -> bool:
    """Train in a folder that the first worker has locked."""
    if workers.is_rank_zero:
        data.verify()
    existing = _existing_run(workers, run_path, config, data, initial, restart=restart)
    config = with_finish(config, existing, finish_in, workers)
    disable_malloc_trim()
    check_room(config, data, place, world_size=workers.world_size)
    with memory_explained("building the model; choose a smaller one (model.d_model)"):
        weights = initial.weights if initial is not None and existing is None else None
        trainer = Trainer(config, data, device=place, workers=workers, initial=weights)
    if initial is not None:
        # The model has its own copy. This frees the memory.
        initial.weights.clear()
    # No worker may write before all workers have looked.
    workers.barrier()
    folder = existing.with_config(config) if existing else Run(run_path, config, RunManifest())
    if workers.is_rank_zero:
        parallel = f", {workers.world_size} workers" if workers.world_size > 1 else ""
        if trainer.micro_batches.at_once > 1:
            parallel += f", {trainer.micro_batches.at_once} micro-batches at a time"
        log.info(
            "training %s on %s: %s%s, %s, matrices by %s, %s",
            run_path,
            data.path,
            describe_device(place),
            parallel,
            trainer.precision,
            trainer.matmul_backend,
            parameters_in_words(trainer),
        )
        log.info("report: %s", run_path / PAGE)
        if existing is None:
            first = min(config.train.valid_every, config.train.last_step)
            log.info("the first validation is after %s updates", f"{first:,}")
            manifest = _manifest(config, data, run_path, command, initial)
            if initial is not None:
                origin = initial.origin
                licence = f"; licence: {origin.licence}" if origin.licence else ""
                log.info("starting from %s of %s%s", origin.weights, initial.run, licence)
                warn_of_start(initial, config)
            folder = Run.create(run_path, config, trainer.vocabularies, manifest=manifest)
    if held is not None:
        folder.attach_lock(held)
    if existing is not None:
        if workers.is_rank_zero:
            folder.restore_tokenizers(trainer.vocabularies, data.path)
        trainer.resume(folder)
        if trainer.step >= config.train.last_step:
            if workers.is_rank_zero:
                _report_finished(run_path, config, trainer.step)
            return True
        if workers.is_rank_zero:
            folder.write_config()
            report_finish(config)
    if workers.is_rank_zero and (warning := unusual_rate(config)) is not None:
        log.warning("%s", warning)
    trainer.check_memory()
    finished = trainer.fit(folder)
    cost = trainer.cost
    if workers.is_rank_zero:
        log.info(
            "trained on %s target tokens in %s: %s",
            f"{cost.tokens:,}",
            clock(cost.seconds),
            cost_in_words(cost.flops, cost.seconds, config),
        )
    return finished


def _existing_run(
    workers: Workers,
    path: Path,
    config: Config,
    data: PreparedData,
    initial: Initial | None,
    *,
    restart: bool,
) -> Run | None:
    """The run that all workers continue, as the first one decides; None to start a new one."""
    restarted = workers.any(is_restarted())
    continues = workers.any(
        workers.run_on_all_ranks(
            lambda: (
                workers.is_rank_zero
                and _continues(path, config, data, initial, restart=restart, restarted=restarted)
            )
        )
    )
    return workers.run_on_all_ranks(
        lambda: _run_to_continue(path, config, data, initial) if continues else None
    )


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


def _report_finished(run_path: Path, config: Config, step: int) -> None:
    """Say that a run is finished, and how to train further."""
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


def _manifest(
    config: Config,
    data: PreparedData,
    run_path: Path,
    command: list[str] | None,
    initial: Initial | None,
) -> RunManifest:
    return RunManifest(
        started_from=initial and initial.origin,
        data=DataOrigin(
            name=data.name,
            path=path_of_data(data.path, run_path),
            fingerprint=data.fingerprint,
            src_lang=data.src_lang,
            tgt_lang=data.tgt_lang,
            **({"directions": _directions(data)} if data.directions else {}),
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
        seed=config.train.seed,
        command=shareable_command(command or sys.argv),
        launch=launch_id(),
    )


def _check_agreed(
    workers: Workers, config: Config, data: PreparedData, initial: Initial | None
) -> None:
    """Refuse workers that were started with different settings, data or weights."""
    for what, value in (
        ("data", data.fingerprint),
        ("settings", dump_config(config)),
        ("initial weights", initial and initial.origin.sha256),
    ):
        values = workers.gather(value)
        if others := [rank for rank, theirs in enumerate(values) if theirs != values[0]]:
            raise MtkitError(f"{worker_names(others)}: started with other {what} than worker 0")


def _continues(
    path: Path,
    config: Config,
    data: PreparedData,
    initial: Initial | None,
    *,
    restart: bool,
    restarted: bool,
) -> bool:
    """Whether there is a run to continue.

    Args:
        path: the run folder.
        config, data, initial: the configuration, data and initial weights of this training.
        restart: whether the command line has --restart.
        restarted: whether these workers are restarted after a failure.

    Raises:
        MtkitError: if there is a different run without checkpoints.
    """
    if not Run.is_run(path):
        return False
    if restart and not restarted:
        return False
    if not Run(path, config, RunManifest()).checkpoints():
        if not restart:
            # The same run, killed before its first checkpoint, has nothing to lose.
            _run_to_continue(path, config, data, initial)
        return False
    return not restart or _was_begun_by_launch(Run.open(path))


def _was_begun_by_launch(run: Run) -> bool:
    """Whether these workers, or those that they replace, have begun a run.

    Restarted workers continue such a run, and never an older one, regardless of --restart.
    """
    return run.manifest.launch == launch_id()


def _run_to_continue(
    path: Path, config: Config, data: PreparedData, initial: Initial | None
) -> Run:
    run = Run.open(path)
    if run.data_fingerprint != data.fingerprint:
        raise MtkitError(
            f"{run.path}: was trained on other data than {data.path} "
            f"({run.manifest.data.name}, by checksum); give another --run, or --restart"
        )
    begun = run.manifest.started_from
    if initial is not None and (begun is None or begun.sha256 != initial.origin.sha256):
        before = begun.description if begun is not None else "random weights"
        advice = "to continue it, leave out --init-from"
        if begun is not None and not run.checkpoints():
            advice = "to begin it again, give --init-from for the weights that it was started from"
        raise MtkitError(
            f"{run.path}: was not started from {initial.origin.description}, "
            f"but from {before}; {advice}; else give another --run, or --restart"
        )
    changed = differences(run.config, config, ignore=MAY_CHANGE)
    if changed:
        raise MtkitError(
            f"{run.path}: was begun with other settings: {', '.join(changed)}; "
            "give another --run, or --restart"
        )
    return run


def check_task(config: Config, data: PreparedData) -> None:
    """Refuse data of other languages than the configuration, and a metric of another task."""
    for key in ("src_lang", "tgt_lang"):
        wanted, found = getattr(config.data, key), getattr(data, key)
        if wanted is not None and wanted != found:
            raise MtkitError(
                f"data.{key}: the configuration wants {wanted}, {data.path} has {found}"
            )
    metric = config.train.best_metric
    suitable = ("f1", "loss") if data.task == "parsing" else ("bleu", "chrf", "loss")
    if metric not in suitable:
        raise MtkitError(
            f"train.best_metric: {metric} is not a metric of {data.task}, the task of {data.path}; "
            f"set it to {' or '.join(suitable)}"
        )


def _directions(data: PreparedData) -> list[Direction]:
    return [Direction(src_lang=one.src_lang, tgt_lang=one.tgt_lang) for one in data.directions]
