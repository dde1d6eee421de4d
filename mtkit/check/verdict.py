"""What the forecasts of the lines of a text say of it as a whole."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mtkit.check.model.confidence import Forecast
from mtkit.check.rules import limits

# Of a text whose confidences are far below those of the validation set.
FOREIGN = "this is not the kind of text that the run was trained on"
# Of given translations.
OF_OTHERS = (
    "confidence is fitted to translations by the run; those by others, as by people, have less"
)


@dataclass
class Verdict:
    """What the forecasts of the lines of a text say of it as a whole.

    `lines` have a forecast, which is added to the `total`; `low` are those below the limit. The
    forecast of the run is None if its validation set is not known.
    """

    below: float = limits.BELOW
    forecast: Forecast | None = None
    lines: int = 0
    total: float = 0.0
    low: int = 0

    def add(self, confidence: float | None) -> None:
        """Count a line; None if it has no forecast."""
        if confidence is not None:
            self.lines += 1
            self.total += confidence
            self.low += confidence < self.below

    @property
    def is_foreign(self) -> bool:
        """Whether the mean lies far below that of the validation set, in deviations of a line."""
        if self.forecast is None or not self.lines:
            return False
        mean, deviation = self.forecast.of_validation
        least = limits.MIN_FOREIGN + limits.MIN_FOREIGN_LINE / math.sqrt(self.lines)
        return self.total / self.lines < mean - least * deviation

    def sentences(self, unit: str = "lines") -> list[str]:
        """The verdict, for a person; nothing without forecasts. `unit` is what each line is."""
        if not self.lines:
            return []
        of_valid = ""
        if self.forecast is not None:
            of_valid = f" (of the validation set: {self.forecast.of_validation[0]:.0f})"
        first = (
            f"the mean confidence is {self.total / self.lines:.0f}{of_valid}, and "
            f"{self.low:,} of {self.lines:,} {unit} are below {self.below:g}; most faults are not "
            "marked, and a low confidence finds more of them"
        )
        if self.forecast is None:
            return [first, OF_OTHERS]
        return [first, *([FOREIGN] if self.is_foreign else [])]
