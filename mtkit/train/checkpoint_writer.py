"""Checkpoints written in the background while training continues."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from mtkit.checkpoint import Tensors
from mtkit.errors import MtkitError
from mtkit.run_folder import Run

log = logging.getLogger(__name__)


class CheckpointWriter:
    """Saves checkpoints of a run in a thread of its own, one after the other.

    What it is given must be nobody else's: training goes on meanwhile. As a context manager it
    ends when nothing is being saved any more, whatever happened inside.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._saving: tuple[int, Future[None]] | None = None

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.settle()
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
        """Begin to save a checkpoint, as `Run.save`; one being saved is waited for first."""
        self.settle()

        def work() -> None:
            self._run.save(step, weights=weights, optimizer=optimizer, state=state, extra=extra)
            try:
                self._run.prune()
            except MtkitError as error:
                log.warning("an old checkpoint could not be deleted: %s", error)

        self._saving = (step, self._thread.submit(work))

    def settle(self, *, wait: bool = True) -> None:
        """Return when nothing is being saved any more; without `wait`, look whether that is so.

        A checkpoint that could not be saved, because the disk is full for instance, is told of,
        and training goes on: there will be another.
        """
        if self._saving is not None and (wait or self._saving[1].done()):
            try:
                self.finish()
            except MtkitError as error:
                log.warning("%s", error)

    def last_good(self) -> str:
        """As `Run.last_good`, once nothing is being saved any more."""
        self.settle()
        return self._run.last_good()

    def finish(self) -> None:
        """Wait for the last checkpoint of a run.

        Raises:
            MtkitError: if it was not saved.
        """
        if self._saving is None:
            return
        step, saving = self._saving
        error = saving.exception()
        self._saving = None
        if isinstance(error, MtkitError):
            what = f"step {step} was not saved: {error}; {self._run.last_good()}"
            raise MtkitError(what) from error
        if error is not None:
            raise error
