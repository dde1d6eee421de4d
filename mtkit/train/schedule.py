"""The learning rate of each update: the formula of Section 5.3, and the schedules of fine-tuning.

Pure functions of the number of an update, which is counted from 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from mtkit.base.errors import MtkitError
from mtkit.config import Config, TrainConfig


def learning_rate(step: int, d_model: int, warmup_steps: int) -> float:
    """The rate of update `step` in the paper (Section 5.3, equation 3)."""
    return float(d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


@dataclass(frozen=True)
class Schedule:
    """The learning rates of a run.

    `paper` is the formula of Section 5.3 times `train.learning_rate_scale`. The others rise
    linearly to `train.learning_rate` over the warm-up, then stay (`constant`), or fall to the end
    of the training in a line (`linear`) or in half a cosine (`cosine`). The update after the last
    one would have zero.

    With `train.decay_steps` the rate also falls linearly over the last updates, or over all of them
    if those are fewer: the first of them still has the full rate, and the update after the last one
    would have zero.

    With `train.finish_steps` the planned rates are used up to `train.finish_after`. Over that many
    more updates the rate falls linearly: the one after them would have zero. A warm-up goes on
    first, for at most three quarters of them. `demo`, stopped at 50 and finished in 100 updates,
    then has a validation loss of 2.26, with half of them 2.55, and without them 3.58.
    """

    settings: TrainConfig
    d_model: int

    @classmethod
    def from_config(cls, config: Config) -> Schedule:
        """The schedule of a run."""
        return cls(config.train, config.model.d_model)

    def rate(self, step: int) -> float:
        """The rate of an update."""
        first, end = self.finish_start, self.settings.last_step + 1
        if not self.settings.finish_steps or step < first:
            return self._planned(step)
        return self._planned(first) * ((end - step) / (end - first))

    @property
    def finish_start(self) -> int:
        """The last update with the planned rate, if there is `train.finish_steps`."""
        settings, after = self.settings, self.settings.finish_after
        ends = [settings.warmup_steps, after + 3 * settings.finish_steps // 4]
        return max(after + 1, min(ends + ([self._last_full] if settings.decay_steps else [])))

    @property
    def _last_full(self) -> int:
        """The last update that `train.decay_steps` does not change."""
        settings = self.settings
        return settings.max_steps - min(settings.decay_steps, settings.max_steps) + 1

    def finish_in_words(self) -> str:
        """How the rate falls, if there is `train.finish_steps`."""
        first, text = self.finish_start, ""
        if first > self.settings.finish_after + 1:
            share = 100 * self._planned(first) / self.peak
            text = f"the warm-up goes on to update {first}, to {share:.0f} % of its end; then "
        return f"{text}the learning rate falls to zero from update {first} on"

    def finish_in(self, step: int) -> int | None:
        """After how many more updates than `step` a run can end well; None if it ends by itself.

        A fifth of the updates so far, or as many as let the warm-up end in three quarters of them.
        """
        settings = self.settings
        count = max(-(-step // 5), -(-4 * (settings.warmup_steps - step) // 3))
        ends_sooner = not settings.finish_steps and step + count < settings.max_steps
        return count if ends_sooner and self.rate(step + 1) else None

    def _planned(self, step: int) -> float:
        settings = self.settings
        rate = self._undecayed(step)
        if not settings.decay_steps:
            return rate
        last = min(settings.decay_steps, settings.max_steps)
        return rate * min(1.0, (settings.max_steps - step + 1) / last)

    @property
    def peak(self) -> float:
        """The rate at the end of the warm-up, where no decay has begun."""
        return self._undecayed(self.settings.warmup_steps)

    def _undecayed(self, step: int) -> float:
        settings, warmup = self.settings, self.settings.warmup_steps
        if settings.schedule == "paper":
            return learning_rate(step, self.d_model, warmup) * settings.learning_rate_scale
        assert settings.learning_rate is not None
        if step <= warmup:
            return settings.learning_rate * step / warmup
        if settings.schedule == "constant":
            return settings.learning_rate
        # From 0 at the end of the warm-up to 1 after the last update.
        progress = min(1.0, (step - warmup) / (settings.max_steps + 1 - warmup))
        if settings.schedule == "linear":
            return settings.learning_rate * (1.0 - progress)
        return settings.learning_rate * 0.5 * (1.0 + math.cos(math.pi * progress))

    def decay_start(self) -> int | None:
        """The first update whose rate falls towards the end of the run; None if there is none."""
        settings = self.settings
        starts = [self.finish_start + 1] if settings.finish_steps else []
        if settings.schedule in ("linear", "cosine"):
            starts.append(settings.warmup_steps + 1)
        if settings.decay_steps:
            starts.append(self._last_full + 1)
        return min(starts, default=None)

    def check_end(self, old: int, step: int, *, name: Path) -> None:
        """Refuse another `train.max_steps` than the old one if it is too late for that.

        That is if the new one is below `step`, or if an update up to `step` had a rate that decays
        towards the old end, or would have had one that decays towards the new end.
        """
        new = self.settings.max_steps
        if old == new:
            return
        advice = f"keep train.max_steps={old}, or give another --run, or --restart"
        refused = f"{name}: train.max_steps: cannot become {new}"
        if self.settings.last_step < step:
            raise MtkitError(f"{refused} because step {step} is reached; {advice}")
        for end, verb in ((old, "began"), (new, "would have begun")):
            settings = self.settings.model_copy(update={"max_steps": end})
            decayed = replace(self, settings=settings).decay_start()
            if decayed is not None and step >= decayed:
                why = "train.decay_steps" if settings.decay_steps else "train.schedule"
                why = "train --finish-in" if settings.finish_steps else why
                raise MtkitError(
                    f"{refused} at step {step}, because the learning rate {verb} to decay at step "
                    f"{decayed} ({why}); {advice}"
                )

    def highest(self, last: int) -> tuple[int, float]:
        """The update with the highest rate among the first `last` ones, and that rate."""
        # The rate rises in the warm-up and falls after it. If the decay begins within the warm-up,
        # it is the product of a rising and a falling line, highest midway between their zeros.
        settings = self.settings
        turns = [settings.warmup_steps, settings.max_steps // 2, settings.max_steps // 2 + 1]
        if settings.decay_steps:
            turns.append(self._last_full)
        if settings.finish_steps:
            last = min(last, self.finish_start)
        steps = sorted({max(1, min(step, last)) for step in (*turns, last)})
        rates = [self.rate(step) for step in steps]
        return steps[rates.index(max(rates))], max(rates)


def setting_of_rate(settings: TrainConfig) -> str:
    """The setting that all learning rates of a run are proportional to."""
    by_formula = settings.schedule == "paper"
    return "train.learning_rate_scale" if by_formula else "train.learning_rate"
