"""A checkpoint: loaded, checked, averaged with others.

Weights and optimizer states are safetensors, the rest is JSON, so loading never executes code.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from mtkit.errors import MtkitError
from mtkit.files import (
    Record,
    naming_file,
    read_record,
    sha256_of,
    sync,
)

log = logging.getLogger(__name__)

Tensors = dict[str, Tensor]
_MODEL = "model.safetensors"
_OPTIMIZER = "optimizer.safetensors"
_STATE = "state.json"
_STEP = re.compile(r"step-(\d{8,})")
_LAYER = re.compile(r"(encoder|decoder)\.(\d+)\.")
_OTHER_CHECKPOINT = (
    "use an earlier checkpoint (mtkit train does it by itself; else give its step: --checkpoint)"
)


class _Saved(Record):
    """The file that completes a checkpoint.

    Attributes:
        run: identity of the run that it belongs to, `RunManifest.identity`.
        step: updates made.
        extra: as for `Run.save`.
        sha256: checksums of the tensors' files, by name.
        state: what `Run.save` was given.
    """

    run: str
    step: int = Field(ge=0)
    extra: bool
    sha256: dict[str, str]
    state: dict[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """One saved state of a run.

    Attributes:
        path: its folder.
        step: updates made.
        run: identity of the run in whose folder it is.
    """

    path: Path
    step: int
    run: str

    def load_weights(self) -> Tensors:
        """The model's tensors, on the CPU.

        Raises:
            MtkitError: if a file of the checkpoint is missing, truncated or was changed.
        """
        return self._load(_MODEL)

    def load_optimizer(self) -> Tensors:
        """The optimizer's tensors, on the CPU; raises as `load_weights`."""
        return self._load(_OPTIMIZER)

    def load_state(self) -> dict[str, Any]:
        """The counters that `Run.save` was given; raises as `load_weights`."""
        return self._record().state

    def is_extra(self) -> bool:
        """Whether it was saved between two others because it was the best then."""
        # A damaged one is reported when it is loaded.
        with contextlib.suppress(MtkitError):
            return self._record().extra
        return False

    def is_readable(self) -> bool:
        """Whether its state is there and unchanged; the tensors are not looked at."""
        with contextlib.suppress(MtkitError):
            self._record()
            return True
        return False

    def _record(self) -> _Saved:
        record = read_record(self.path / _STATE, _Saved, advice=_OTHER_CHECKPOINT)
        if record.step != self.step:
            raise MtkitError(
                f"{self.path}: the folder was renamed (it holds step {record.step}); "
                f"{_OTHER_CHECKPOINT}"
            )
        if record.run != self.run:
            raise MtkitError(
                f"{self.path}: belongs to another run (with other settings, data or tokenizers); "
                f"{_OTHER_CHECKPOINT}"
            )
        return record

    def _load(self, name: str) -> Tensors:
        file = self.path / name
        saved_with = self._record().sha256.get(name)
        try:
            checksum = sha256_of(file)
        except MtkitError as error:
            raise MtkitError(f"{error}; {_OTHER_CHECKPOINT}") from error
        if checksum != saved_with:
            raise MtkitError(
                f"{file}: damaged (its checksum is not the one it was saved with); "
                f"{_OTHER_CHECKPOINT}"
            )
        try:
            # By its number, because safetensors refuses a path that is not UTF-8.
            with file.open("rb") as opened:
                return load_file(f"/dev/fd/{opened.fileno()}")
        except (OSError, SafetensorError) as error:
            raise MtkitError(f"{file}: cannot be loaded ({error}); {_OTHER_CHECKPOINT}") from error


def goodness(scores: Mapping[str, Any], best_metric: str) -> float | None:
    """How good a validation was, by its row of metrics or its saved state; higher is better.

    Args:
        scores: with `valid_bleu` and the like.
        best_metric: as `train.best_metric`.

    Returns:
        None if there was no such validation.
    """
    value: float | None = scores.get(f"valid_{best_metric}")
    return -value if best_metric == "loss" and value is not None else value


def all_goodness(rows: Sequence[Mapping[str, Any]], best_metric: str) -> list[float]:
    """How good every validation was, oldest first, as `goodness` has it."""
    found = (goodness(row, best_metric) for row in rows)
    return [value for value in found if value is not None]


def average(load: list[Callable[[], Tensors]]) -> Tensors:
    """The mean of several sets of weights, one in memory at a time, summed in float64."""
    total: Tensors = {}
    dtypes = {}
    for get in load:
        for name, tensor in get().items():
            dtypes[name] = tensor.dtype
            # Plus, not in place: the first may be somebody else's float64 tensor.
            total[name] = total[name] + tensor if name in total else tensor.double()
    return {name: (tensor / len(load)).to(dtypes[name]) for name, tensor in total.items()}


def _select_average(checkpoints: list[Checkpoint]) -> tuple[Tensors, str]:
    if len(checkpoints) == 1:
        return checkpoints[0].load_weights(), f"step {checkpoints[0].step}"
    weights = average([checkpoint.load_weights for checkpoint in checkpoints])
    first, last = checkpoints[0].step, checkpoints[-1].step
    return weights, f"the average of {len(checkpoints)} checkpoints, steps {first} to {last}"


@contextlib.contextmanager
def _naming_tensors(path: Path) -> Iterator[None]:
    """As `naming_file`, for what writes tensors too, which raises errors of its own."""
    try:
        with naming_file(path):
            yield
    except SafetensorError as error:
        raise MtkitError(f"{path}: {error}") from error


def _save_tensors(tensors: Tensors, path: Path) -> None:
    # The file gets the mode that the user's mask gives; safetensors would make it private.
    path.touch()
    mode = path.stat().st_mode
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    path.chmod(mode)
    sync(path)
