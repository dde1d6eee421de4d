"""Saves the checkpoints of a training in the background, reads them again, and deletes old ones."""

from __future__ import annotations

import logging
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, model_validator

from mtkit.base.errors import MtkitError
from mtkit.base.files import NewerFormatError, Record, naming_file, parse_record, partial_name
from mtkit.base.models import Limits, Natural
from mtkit.checkpoint import Checkpoint, Tensors
from mtkit.metrics_rows import MetricsRow
from mtkit.run_folder import CHECKPOINTS, Run
from mtkit.train.distributed import Workers

log = logging.getLogger(__name__)

CONTINUE = "to continue, run the same command again"
# What a checkpoint has besides its tensors, and metrics, page and charts: at most about so much.
_BESIDE = 2**20


class _Position(Record):
    """As in `TokenBatches.state_dict`."""

    epoch: Natural
    position: Natural


class TrainingCost(BaseModel, extra="forbid", strict=True):
    """The cost of a run so far: target tokens, and floating-point operations counted for them.

    A token counts as often as it was seen. `seconds` are those in updates, without validation and
    saving.
    """

    tokens: Natural
    flops: Annotated[float, Limits(ge=0)]
    seconds: Annotated[float, Limits(ge=0)]


class _Scores(MetricsRow):
    """The scores of a validation; of a parser F1, of others BLEU, chrF and perhaps chrF++."""

    @model_validator(mode="after")
    def _check_scores(self) -> Self:
        names = {key for key, value in (self.model_extra or {}).items() if value is not None}
        both = {"valid_loss", "valid_perplexity"}
        names.discard("valid_chrf++")
        if names not in (both | {"valid_bleu", "valid_chrf"}, both | {"valid_f1"}):
            raise ValueError("must have valid_bleu and valid_chrf, or valid_f1, besides the loss")
        return self


class TrainerState(Record):
    """The counters of a checkpoint.

    Attributes:
        max_steps: of the run at that time; the learning rate may depend on it.
        precision: of the last update; `auto` depends on the machine.
        validations: all of them, oldest first; they determine the best one and early stopping.
        scores: of this step, if it was validated.
    """

    max_steps: Annotated[int, Limits(ge=1)]
    precision: str | None = None
    batches: _Position
    cost: TrainingCost
    validations: list[_Scores]
    scores: _Scores | None = None


Saved = tuple[Checkpoint, Tensors, Tensors, TrainerState]


def read_checkpoint(checkpoint: Checkpoint) -> Saved:
    """A checkpoint with its weights, its optimizer's tensors and its counters."""
    counters = checkpoint.load_state()
    scores = {key: counters.pop(key) for key in [*counters] if key.startswith("valid_")}
    if scores:
        counters["scores"] = {"step": checkpoint.step, **scores}
    advice = "use an earlier checkpoint"
    state = parse_record(counters, TrainerState, name=str(checkpoint.path), advice=advice)
    return checkpoint, checkpoint.load_weights(), checkpoint.load_optimizer(), state


def agreed_checkpoint(run: Run, workers: Workers) -> Saved:
    """The newest checkpoint that can be read, the same for all workers; damaged ones are reported.

    The first worker chooses it: on a shared file system the others may not see it yet.

    Raises:
        MtkitError: if every checkpoint is damaged, if a newer version wrote one, or if a worker
            cannot read the chosen one.
    """
    saved: Saved | None = None

    def choose() -> int | None:
        nonlocal saved
        for checkpoint in reversed(run.checkpoints()):
            try:
                saved = read_checkpoint(checkpoint)
                return checkpoint.step
            except NewerFormatError:  # it is not damaged
                raise
            except MtkitError as error:
                log.warning("%s", error)
        return None

    step = workers.of_rank_zero(choose)
    if step is None:
        raise MtkitError(f"{run.path}: all checkpoints are damaged; start over with --restart")
    return workers.run_on_all_ranks(lambda: saved or read_checkpoint(run.checkpoint(step)))


def set_aside_after(run: Run, step: int) -> list[str]:
    """Rename the checkpoints after `step`, which are damaged; returns their new names."""
    names = []
    for checkpoint in run.checkpoints():
        if checkpoint.step > step:
            path = checkpoint.path.with_name(f"damaged-{checkpoint.path.name}")
            with naming_file(path):
                shutil.rmtree(path, ignore_errors=True)
                checkpoint.path.rename(path)
            names.append(path.name)
    return names


def prune(run: Run) -> None:
    """Delete the checkpoints that `train.keep_checkpoints` and similar settings do not keep.

    One with a damaged state is kept: it may be the best. `MtkitError` if one cannot be deleted.
    """
    run.check_held()
    settings = run.config.train
    saved = run.checkpoints()
    regular = [checkpoint for checkpoint in saved if not checkpoint.is_extra()]
    readable = [checkpoint for checkpoint in saved if checkpoint.is_extra() is not None]
    wanted = [*regular[-settings.keep_checkpoints :], *saved[-1:], run.best(readable)]
    for checkpoint in readable:
        kept = settings.keep_every is not None and checkpoint.step % settings.keep_every == 0
        if not kept and checkpoint not in wanted:
            with naming_file(checkpoint.path):
                # Renamed first: a kill must not leave an incomplete checkpoint with its name.
                shutil.rmtree(checkpoint.path.rename(partial_name(checkpoint.path)))


def check_disk(path: Path, saved_bytes: int, *, replaces: bool) -> str:
    """The size of a checkpoint, and the room on the disk of a run folder, in words.

    `saved_bytes` is the size of the tensors of a checkpoint; `replaces` is whether those that are
    there will be deleted. Raises `MtkitError` if there is not even room for one.
    """
    with naming_file(path):
        there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        disk = shutil.disk_usage(there)
        # What a killed save has left is deleted before the next one.
        left = (path / CHECKPOINTS).glob("*" if replaces else ".*.partial")
        files = (file for saved in left for file in saved.rglob("*"))
        disposable = sum(file.stat().st_size for file in files if file.is_file())
    size, room = saved_bytes + _BESIDE, disk.free + disposable
    sizes = f"a checkpoint takes {size / 1e6:,.0f} MB, and {room / 1e6:,.0f} MB are free"
    # Some network file systems do not say how large they are.
    if disk.total and room < size:
        raise MtkitError(
            f"{path}: not even one checkpoint fits on its disk: {sizes}; delete files there, or "
            "give --run with a folder on another disk"
        )
    return sizes


class CheckpointWriter(AbstractContextManager["CheckpointWriter"]):
    """Saves checkpoints of a run in its own thread, one after the other.

    It must be given copies, because training continues meanwhile. As a context manager it waits
    for the current save before it ends, also after an exception. If training is stopped at once, it
    says with `reports` from where it can resume.
    """

    def __init__(self, run: Run, *, reports: bool = False) -> None:
        self._run = run
        self._reports = reports
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._saving: tuple[int, Future[None]] | None = None
        # The saves that failed since the last good one.
        self._failed = 0

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._report_end()
        if self._reports and kind is not None and issubclass(kind, KeyboardInterrupt):
            advice = f"; {CONTINUE}" if self._run.checkpoints() else ""
            log.warning("stopped without saving; %s%s", self._run.last_good(), advice)
        self._thread.shutdown()

    def save(
        self,
        step: int,
        *,
        weights: Tensors,
        optimizer: Tensors,
        state: dict[str, Any],
        extra: bool = False,
    ) -> None:
        """Start to save a checkpoint, as `Run.save` does; waits for a running save first."""
        self.settle()

        def work() -> None:
            self._run.save(step, weights=weights, optimizer=optimizer, state=state, extra=extra)
            try:
                prune(self._run)
            except MtkitError as error:
                log.warning("an old checkpoint could not be deleted: %s", error)

        self._saving = (step, self._thread.submit(work))

    def settle(self, *, wait: bool = True) -> None:
        """Wait for the running save; without `wait`, only check whether it has ended.

        A failed save is reported as a warning, and training continues: there will be another one.
        `MtkitError` if a second in a row failed, and the run has no checkpoint at all.
        """
        if self._saving is not None and (wait or self._saving[1].done()):
            self._report_end()
            if self._failed > 1 and not self._run.checkpoints():
                raise MtkitError(
                    f"{self._run.path}: {self._failed} checkpoints in a row could not be saved, and"
                    " there is no other; make room, and run the same command again"
                )

    def _report_end(self) -> None:
        """Wait for the running save, and report its failure."""
        try:
            self.finish()
        except MtkitError as error:
            log.warning("%s", error)

    def last_good(self) -> str:
        """As `Run.last_good`, after the running save."""
        self._report_end()
        return self._run.last_good()

    def finish(self) -> None:
        """Wait for the last checkpoint of a run; `MtkitError` if it was not saved."""
        if self._saving is None:
            return
        step, saving = self._saving
        error = saving.exception()
        self._saving = None
        self._failed = self._failed + 1 if error is not None else 0
        if isinstance(error, MtkitError):
            what = f"step {step} was not saved: {error}; {self._run.last_good()}"
            raise MtkitError(what) from error
        if error is not None:
            raise error
