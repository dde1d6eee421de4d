"""The training loop of a run (Section 5): updates, validation and checkpoints.

`Trainer.fit` is the loop, `Trainer.update` one optimizer step. Every worker runs the same code on
its share of an update; the first one writes and prints.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from mtkit.base.errors import MtkitError
from mtkit.base.memory import memory_explained
from mtkit.checkpoint import Tensors, is_finite
from mtkit.config import Config
from mtkit.data import IntArray, PreparedData
from mtkit.model import Transformer
from mtkit.run_folder import Run
from mtkit.train import checkpoints
from mtkit.train.checkpoints import CheckpointWriter, TrainingCost
from mtkit.train.diagnostics import LearningCurve, findings, frequency_loss
from mtkit.train.distributed import StopAgreement, Workers, whole_state
from mtkit.train.flops import training_flops
from mtkit.train.gradients import Losses
from mtkit.train.launcher import stop_on_signal
from mtkit.train.memory import check_memory
from mtkit.train.metrics import MetricsLogger, truncate_rows
from mtkit.train.micro_batches import Pass
from mtkit.train.packed_check import use_plain_if_packed_differs
from mtkit.train.parts import Parts, new_model
from mtkit.train.prefetch import Prefetcher
from mtkit.train.progress_meter import Meter, TrainingProgress, report_stop
from mtkit.train.report_page import summary
from mtkit.train.schedule import Schedule, setting_of_rate
from mtkit.train.validation import Validation, ValidationHistory, report_validation

log = logging.getLogger(__name__)


class Trainer(Parts):
    """Owns the model, the optimizer, the batches and the counters of a run.

    Attributes:
        stopped: whether a signal asked `fit` to stop, if only in its last update.
        metrics: of the last `fit`.
    """

    def __init__(
        self,
        config: Config,
        data: PreparedData,
        *,
        device: torch.device,
        workers: Workers | None = None,
        initial: Tensors | None = None,
    ) -> None:
        super().__init__(config, data, device=device, workers=workers, initial=initial)
        self._is_fine_tuning = initial is not None
        # The counters. Checkpoints have them; the first worker alone fills the history.
        self.step = 0
        self.cost = TrainingCost(tokens=0, flops=0.0, seconds=0.0)
        self.history = ValidationHistory(config.train)
        self.stopped = False
        self.metrics: MetricsLogger | None = None
        # The position in the stream after the last update of `fit`. The stream itself may be
        # further, because a thread draws ahead.
        self._position = self.batches.state_dict()
        self.schedule = Schedule.from_config(config)

    def fit(self, run: Run) -> bool:
        """Train to the last step, to an early stop or to a signal, then save.

        Returns False if a signal ended it.
        """
        settings, first = self.settings, self.workers.is_rank_zero
        meter = Meter(self.cost)
        saved = self.step
        self.stopped = False
        pauses = [settings.valid_every, *settings.early_validations, settings.checkpoint_every]
        agreement = StopAgreement(self.workers, [*pauses, settings.last_step])
        validation: Validation | None = None
        self.batches.load_state_dict(self._position)
        with (
            stop_on_signal(quiet=not first) as signals,
            TrainingProgress(self.step, settings.last_step, active=first) as progress,
            CheckpointWriter(run, reports=first) as writer,
            Prefetcher(
                self.batches, self.passes, done=self.step, last=settings.last_step
            ) as updates,
            MetricsLogger(
                run, self.step, active=first, summary=partial(self._page_facts, run, progress)
            ) as metrics,
        ):
            self.metrics = metrics
            if self._is_fine_tuning and self.step == 0:
                with meter.paused("first validation"), self._memory_explained(writer):
                    self._record(metrics, self.validate(), last=False)
            early = self.workers.any(first and self.history.should_stop(metrics.initial()))
            while self.step < settings.last_step and not self.stopped and not early:
                # Here, so that a failure of the last save is an error.
                writer.settle(wait=False)
                with self._memory_explained(writer):
                    update = updates.next()
                    self._position = update.position
                    meter.add(*self.update(update.batches, update.own))
                progress.step()
                last = self.step == settings.last_step
                validation, best = None, False
                if last or self.step % settings.log_every == 0:
                    self._log(writer, metrics, meter, progress)
                elif first:
                    progress.report_pace(meter.pace())
                with meter.paused("page"):
                    metrics.refresh_page()
                if settings.is_validated(self.step):
                    pause = meter.paused("validation", every=settings.valid_every)
                    with pause, self._memory_explained(writer):
                        validation = self.validate()
                        early, best = self._record(metrics, validation, last=last)
                due = last or early or self.step % settings.checkpoint_every == 0
                if due or best:
                    if first:
                        run.check_held()
                    with meter.paused("checkpoint", every=settings.checkpoint_every):
                        self.save(writer, validation, extra=not due)
                        saved = self.step
                self.stopped = agreement.reached(self.step, bool(signals))
            if saved != self.step:
                # Stopped by a signal, between two checkpoints of the schedule.
                self.save(writer, validation, extra=True)
            writer.finish()
            unfinished = self.stopped and self.step < settings.last_step
            # One may have come during the last save.
            self.stopped = self.stopped or bool(signals)
            if not unfinished:
                metrics.is_finished, progress.left = True, ""
            self.workers.barrier()
        if unfinished and first:
            report_stop(run, self.schedule, self.step, meter.pace())
        return not unfinished

    def update(self, batches: Sequence[IntArray], own: Sequence[Pass] | None = None) -> Losses:
        """One optimizer step on the pairs of these batches, divided among all workers.

        The gradient is that of the mean loss per target token over all of them. `own` are the
        passes of this worker, if they are prepared; their losses are returned.
        """
        self.step += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.rate(self.step)
        self.model.train()
        if own is None:
            own = self.passes(batches, self.step)
        tokens = self._count(batches, own)
        losses = self._gradients.add_up(own, step=self.step, tokens=tokens, retry=True)
        self.trained.before_update()
        self.optimizer.step()
        self.model.zero_grad()
        self.trained.after_update(self.step)
        return losses

    def passes(
        self, batches: Sequence[IntArray], step: int, *, world_size: int | None = None
    ) -> list[Pass]:
        """The passes of an update that this worker computes; on a GPU with their batches.

        `world_size` is that of the run; by default that of the group.
        """
        world_size = world_size or self.workers.world_size
        own = self.micro_batches.of_update(
            batches, step=step, rank=self.workers.rank, world_size=world_size
        )
        if self.device.type == "cpu":
            return own
        # A thread that prefetches has not chosen its GPU.
        with torch.cuda.device(self.device):
            return [self._gradients.prepared(pass_) for pass_ in own]

    def _count(self, batches: Sequence[IntArray], own: Sequence[Pass]) -> int:
        """Count the cost of an update; returns its target tokens over all workers."""
        resegmented = self.micro_batches.are_resegmented
        tokens = flops = 0.0
        # Without BPE-dropout every worker knows all lengths.
        counted = [(self.pairs, np.concatenate(batches))]
        if resegmented:
            counted = [micro_batch for pass_ in own for micro_batch in pass_.micro_batches]
        for pairs, indices in counted:
            src, tgt = pairs.src.lengths[indices], pairs.tgt.lengths[indices]
            tokens += int(tgt.sum())
            flops += training_flops(self.config.model, len(self.tokenizer), src, tgt)
        if resegmented:
            cost = torch.tensor([tokens, flops], dtype=torch.float64)
            tokens, flops = self.workers.sum(cost).tolist()
        self.cost.tokens += int(tokens)
        self.cost.flops += flops
        return int(tokens)

    def validate(self) -> Validation:
        """Loss and scores on the validation sets; workers share the work."""
        model, workers = self.model, self.workers
        if self.settings.fsdp:
            # The number of search steps is not predictable, so the shards cannot be gathered
            # during it: the first worker gets the full model and validates alone.
            model, workers = self._whole_model(), Workers()
            if not self.workers.is_rank_zero:
                self.workers.wait_for_rank_zero()
                return Validation(math.nan, {}, [])
        with self.trained.averaged(), torch.inference_mode():
            validation = self._validator.run(model.eval(), workers)
        if self.settings.fsdp:
            self.workers.wait_for_rank_zero()
        return validation

    def check_memory(self) -> None:
        """Run the largest micro-batch before the first update; raises as `check_memory`.

        Before that, where passes are packed by default, one is compared with its batches.
        """
        use_plain_if_packed_differs(self._gradients)
        check_memory(self._gradients, self.batches, self.optimizer, where=self._on_worker())

    def save(
        self, writer: CheckpointWriter, validation: Validation | None = None, *, extra: bool = False
    ) -> None:
        """Start to write a checkpoint, with the validation of this step if there was one.

        `extra` is as for `Run.save`. Raises `MtkitError`, and saves nothing, if a weight is not a
        finite number.
        """
        if not (self.workers.is_rank_zero or self.settings.fsdp):
            return
        # Of a sharded model the first worker gets the whole.
        weights, optimizer = self.trained.training_state(self.optimizer)
        if not self.workers.is_rank_zero:
            return
        if not all(map(is_finite, weights.values())):
            raise self._diverged(writer, self.step, "the weights are not finite")
        state: dict[str, Any] = {
            "max_steps": self.settings.max_steps,
            "precision": self.precision,
            "batches": self._position,
            "cost": self.cost.model_dump(),
            # A copy, because training goes on while it is written.
            "validations": [*self.history.rows],
        }
        if validation is not None:
            state |= validation.row()
        writer.save(self.step, weights=weights, optimizer=optimizer, state=state, extra=extra)

    def resume(self, run: Run) -> None:
        """Resume from the newest undamaged checkpoint; raises as `agreed_checkpoint`."""
        checkpoint, weights, optimizer, state = checkpoints.agreed_checkpoint(run, self.workers)
        step = checkpoint.step
        self.schedule.check_end(state.max_steps, step, name=run.path)
        self.trained.load_training_state(self.optimizer, weights, optimizer)
        self._position = state.batches.model_dump()
        self.batches.load_state_dict(self._position)
        self.cost = state.cost
        self.history.rows = [row.model_dump(exclude_none=True) for row in state.validations]
        self.step = step
        aside = self.workers.of_rank_zero(lambda: checkpoints.set_aside_after(run, step))
        if self.workers.is_rank_zero:
            try:
                truncate_rows(run, self.step)
            except MtkitError as error:
                log.warning("%s; its rows after step %d stay", error, self.step)
            if state.precision not in (None, self.precision):
                change = (
                    f"in {state.precision} up to step {step}, and continues in {self.precision}"
                )
                setting = self.settings.precision
                log.warning("%s: was trained %s (train.precision: %s)", run.path, change, setting)
            renamed = f"; set aside: {', '.join(aside)}" if aside else ""
            log.info("continuing from step %d of %s%s", self.step, run.path, renamed)

    def _memory_explained(self, writer: CheckpointWriter) -> AbstractContextManager[None]:
        return memory_explained(
            lambda: (
                f"step {self.step}: out of memory{self._on_worker()}; {writer.last_good()}; "
                "run the same command with a lower train.device_batch_tokens (now "
                f"{self.micro_batches.limit})"
            )
        )

    def _on_worker(self) -> str:
        return f" on worker {self.workers.rank}" if self.workers.world_size > 1 else ""

    def _whole_model(self) -> Transformer:
        """A full copy of the sharded model; on the first worker only."""
        weights, _ = whole_state(self.model)
        with torch.device("meta"):
            model = new_model(self.config, self.vocabularies)
        if weights:
            model.load_state_dict(weights, assign=True)
            model = model.to(self.device)
        return model

    def _log(
        self,
        writer: CheckpointWriter,
        metrics: MetricsLogger,
        meter: Meter,
        progress: TrainingProgress,
    ) -> None:
        row = meter.read(self.step, self.workers)
        row["lr"] = self.optimizer.param_groups[0]["lr"]
        row["epoch"] = self._position["epoch"]
        if (bad := meter.first_not_finite) is not None:
            step, loss = bad
            writer.settle()
            # All workers reach this, and report the same error after the first has saved.
            self.workers.barrier()
            raise self._diverged(writer, step, f"the loss is {loss}")
        metrics.log(row)
        if self.workers.is_rank_zero:
            progress.report_row(row, meter.pace())

    def _diverged(self, writer: CheckpointWriter, step: int, what: str) -> MtkitError:
        rate = self.schedule.rate(step)
        setting = setting_of_rate(self.settings)
        return MtkitError(
            f"step {step}: {what} at learning rate {rate:.3g}; {writer.last_good()}; "
            f"try a longer train.warmup_steps or a lower {setting}"
        )

    def _record(
        self, metrics: MetricsLogger, validation: Validation, *, last: bool
    ) -> tuple[bool, bool]:
        """Log a validation; whether training should stop early, and whether it is the best."""
        early = best = False
        if self.workers.is_rank_zero:
            row = report_validation(self.step, validation)
            metrics.log(row)
            metrics.add_samples(self.step, *self.valid_text, validation)
            # No checkpoint has the weights that fine-tuning starts from: they cannot be the best.
            if self.step:
                self.history.rows.append(row)
                early = self.history.should_stop(metrics.initial())
                best = self.history.best_step() == self.step
                self._find_problems(metrics, validation, finished=last or early)
        return self.workers.any(early), self.workers.any(best)

    def _find_problems(
        self, metrics: MetricsLogger, validation: Validation, *, finished: bool
    ) -> None:
        curve = LearningCurve(
            steps=self.step,
            epochs=self.cost.tokens / self.pairs.epoch_tokens(),
            frequency_loss=self._frequency_loss,
            losses=metrics.losses(),
            valid_losses=[row["valid_loss"] for row in self.history.rows],
            initial_valid_loss=metrics.initial().get("valid_loss"),
        )
        translations = [translation.text for translation in validation.translations]
        of_curve = findings(self.config, curve, *self.valid_text, translations)
        metrics.findings = [*of_curve, *self.history.forgetting(metrics.initial())]
        self.history.report(metrics.findings, finished=finished)
        if not finished:  # else the page is written at the end
            metrics.write_page()

    @cached_property
    def _frequency_loss(self) -> float:
        """The loss of guessing target tokens by their frequency in the training data."""
        return frequency_loss(self.pairs.tgt.counts(len(self.tokenizer)))

    def _page_facts(
        self, run: Run, progress: TrainingProgress
    ) -> tuple[dict[str, str], int | None]:
        """Facts about the run for its page, and the step of its best validation."""
        facts = summary(run, self._facts, step=self.step, cost=self.cost, left=progress.left)
        return facts, self.history.best_step()
