"""The counters of a run in a checkpoint, and loading the newest undamaged checkpoint."""

from __future__ import annotations

import logging
from typing import Self

from pydantic import Field, model_validator
from torch import Tensor

from mtkit.base.errors import MtkitError
from mtkit.base.files import Record, parse_record
from mtkit.checkpoint import Checkpoint, Tensors
from mtkit.run_folder import Run

log = logging.getLogger(__name__)


class _Position(Record):
    """The position of a run in the data, as in `TokenBatches.state_dict`."""

    epoch: int = Field(ge=0)
    position: int = Field(ge=0)


class _Scores(Record):
    """The scores of an earlier validation."""

    step: int = Field(ge=1)
    valid_loss: float
    valid_perplexity: float
    # Of a parser F1, of others BLEU and chrF.
    valid_bleu: float | None = None
    valid_chrf: float | None = None
    valid_f1: float | None = None
    # Of further validation sets, by name.
    valid_also: dict[str, dict[str, float]] | None = None

    @model_validator(mode="after")
    def _check_scores(self) -> Self:
        given = {
            key
            for key in ("valid_bleu", "valid_chrf", "valid_f1")
            if getattr(self, key) is not None
        }
        if given not in ({"valid_bleu", "valid_chrf"}, {"valid_f1"}):
            raise ValueError("must have valid_bleu and valid_chrf, or valid_f1")
        return self


class _Cost(Record):
    """The cost of a run so far, as in `TrainingCost`."""

    tokens: int = Field(ge=0)
    flops: float = Field(ge=0)
    seconds: float = Field(ge=0)


class TrainerState(Record):
    """The counters of a checkpoint.

    Attributes:
        max_steps: of the run at that time; the learning rate may depend on it.
        precision: of the last update; `auto` depends on the machine.
        batches: the position in the data.
        cost: the cost so far.
        validations: all of them, oldest first; they determine the best one and early stopping.
        valid_loss, valid_perplexity, valid_bleu, valid_chrf, valid_f1, valid_also: of this step,
            if it was validated.
    """

    max_steps: int = Field(ge=1)
    precision: str | None = None
    batches: _Position
    cost: _Cost
    validations: list[_Scores]
    valid_loss: float | None = None
    valid_perplexity: float | None = None
    valid_bleu: float | None = None
    valid_chrf: float | None = None
    valid_f1: float | None = None
    valid_also: dict[str, dict[str, float]] | None = None


Saved = tuple[Checkpoint, Tensors, Tensors, TrainerState]


def read_checkpoint(checkpoint: Checkpoint) -> Saved:
    """A checkpoint with its weights, its optimizer's tensors and its counters."""
    state = parse_record(
        checkpoint.load_state(),
        TrainerState,
        name=str(checkpoint.path),
        advice="use an earlier checkpoint",
    )
    return checkpoint, checkpoint.load_weights(), checkpoint.load_optimizer(), state


def newest_whole_checkpoint(run: Run) -> Saved | None:
    """The newest checkpoint that can be read; damaged ones are reported."""
    for checkpoint in reversed(run.checkpoints()):
        try:
            return read_checkpoint(checkpoint)
        except MtkitError as error:
            log.warning("%s", error)
    return None


def copy_to_cpu(tensor: Tensor) -> Tensor:
    """A separate copy on the CPU."""
    tensor = tensor.detach()
    return tensor.clone() if tensor.device.type == "cpu" else tensor.cpu()
