"""Writes checkpoints in the background while training continues."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from mtkit.base.errors import MtkitError
from mtkit.checkpoint import Tensors
from mtkit.run_folder import Run

log = logging.getLogger(__name__)


class CheckpointWriter:
    """Saves checkpoints of a run in its own thread, one after the other.

    It must be given copies, because training continues meanwhile. As a context manager it waits
    for the current save before it ends, also after an exception.
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
        """Start to save a checkpoint, as `Run.save` does; waits for a running save first."""
        self.settle()

        def work() -> None:
            self._run.save(step, weights=weights, optimizer=optimizer, state=state, extra=extra)
            try:
                self._run.prune()
            except MtkitError as error:
                log.warning("an old checkpoint could not be deleted: %s", error)

        self._saving = (step, self._thread.submit(work))

    def settle(self, *, wait: bool = True) -> None:
        """Wait for the running save; without `wait`, only check whether it has ended.

        A failed save, for example because the disk is full, is reported as a warning, and training
        continues: there will be another save.
        """
        if self._saving is not None and (wait or self._saving[1].done()):
            try:
                self.finish()
            except MtkitError as error:
                log.warning("%s", error)

    def last_good(self) -> str:
        """As `Run.last_good`, after the running save."""
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
