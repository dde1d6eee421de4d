"""Ends a run early and well: `train --finish-in`.

The learning rate falls to zero over the next updates, and the last of them ends the run. From which
step, over how many, is kept in the configuration of the run (`train.finish_after` and
`train.finish_steps`), and `schedule` computes the rates. So a run that is resumed needs no option.
"""

from __future__ import annotations

import logging

from mtkit.base.errors import MtkitError
from mtkit.config import Config
from mtkit.run_folder import Run
from mtkit.train.distributed import Workers
from mtkit.train.schedule import Schedule

log = logging.getLogger(__name__)


def with_finish(config: Config, run: Run | None, finish_in: int | None, workers: Workers) -> Config:
    """The configuration with the end that `--finish-in` sets, now or in an earlier training.

    Args:
        config: of this training.
        run: the run that continues; None for a new one.
        finish_in: the value of `--finish-in`.
        workers: the first one decides, because the others may see an older state of the run.

    Raises:
        MtkitError: if there is nothing to finish, or if the run has another end already.
    """
    if run is None:
        if finish_in is not None:
            raise MtkitError(
                "--finish-in: is for a run that has a checkpoint; for a new run, set "
                "train.max_steps"
            )
        return config
    mine = workers.run_on_all_ranks(
        lambda: _finish(config, run, finish_in) if workers.is_rank_zero else None
    )
    after, steps = workers.gather(mine)[0]
    return _changed(config, after, steps)


def _finish(config: Config, run: Run, finish_in: int | None) -> tuple[int, int]:
    """From which step over how many updates; 0 updates if the run ends as planned."""
    recorded = run.config.train.finish_after, run.config.train.finish_steps
    given = config.train.finish_after, config.train.finish_steps
    if given not in ((0, 0), recorded):
        raise MtkitError(
            f"{run.path}: train.finish_after and train.finish_steps: cannot be changed while a run "
            "continues; leave them out, and give --finish-in"
        )
    after, steps = recorded
    if finish_in is None or finish_in == steps:
        return recorded
    if steps:
        raise MtkitError(
            f"{run.path}: ends at step {after + steps} already (--finish-in {steps} at step "
            f"{after}); leave out --finish-in"
        )
    after = run.checkpoints()[-1].step
    if not Schedule.from_config(config).rate(after + 1):
        raise MtkitError(
            f"{run.path}: its learning rate has fallen to zero after {after} updates; to train "
            f"further, start a new run with --init-from {run.path}"
        )
    return after, finish_in


def _changed(config: Config, after: int, steps: int) -> Config:
    settings = config.train.model_copy(update={"finish_after": after, "finish_steps": steps})
    return config.model_copy(update={"train": settings})


def report_finish(config: Config) -> None:
    """Say from which update on the learning rate falls, and where the run ends."""
    settings = config.train
    if settings.finish_steps:
        log.info(
            "the learning rate falls to zero from update %d on; the run ends at step %d "
            "(--finish-in)",
            settings.finish_after + 1,
            settings.last_step,
        )
