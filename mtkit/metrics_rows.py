"""The rows of `metrics.jsonl` and `samples.jsonl` in a run folder."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class MetricsRow(BaseModel):
    """A row of `metrics.jsonl`: numbers by their names.

    Rows of training have `loss`, rows of validations `valid_loss`, and `valid_bleu` and the like.
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    __pydantic_extra__: dict[str, Annotated[int, Field(ge=-(2**63), lt=2**63)] | float | None]

    step: int = Field(ge=0)
    # Of further validation sets, by their names.
    valid_also: dict[str, dict[str, float]] | None = None


class _Sample(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    src: str
    ref: str
    hyp: str


class SamplesRow(BaseModel):
    """A row of `samples.jsonl`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    step: int = Field(ge=0)
    samples: list[_Sample]
    # Half the width of the 95 % interval of a score, by its name, such as bleu or bleu@news.
    intervals: dict[str, float] = Field(default_factory=dict)
