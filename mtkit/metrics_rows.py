"""The rows of `metrics.jsonl` and `samples.jsonl` in a run folder."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

from pydantic import BaseModel, Field

from mtkit.base.files import Record
from mtkit.base.models import Limits

# Damaged rows may have steps that no chart can show.
Step = Annotated[int, Limits(ge=0, le=10**15)]


class MetricsRow(BaseModel, frozen=True, extra="allow", strict=True):
    """A row of `metrics.jsonl`: numbers by their names.

    Rows of training have `loss`, rows of validations `valid_loss`, and `valid_bleu` and the like.
    """

    __pydantic_extra__: dict[str, Annotated[int, Field(ge=-(2**63), lt=2**63)] | float | None]

    step: Step
    # Of further validation sets, by their names.
    valid_also: dict[str, dict[str, float]] | None = None


class _Sample(Record):
    src: str
    ref: str
    hyp: str


class SamplesRow(Record):
    """A row of `samples.jsonl`."""

    step: Step
    samples: list[_Sample]
    # Half the width of the 95 % interval of a score, by its name, such as bleu or bleu@news.
    intervals: dict[str, float] = field(default_factory=dict)
