"""Checkpoints: writing, loading, verifying and averaging.

This module defines the names of a checkpoint and of its files. Weights and optimizer states are
safetensors, the rest is JSON, so loading never executes code.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from mtkit.base import files
from mtkit.base.errors import MtkitError, reason_of
from mtkit.base.files import sync
from mtkit.base.models import Natural
from mtkit.weights import NotFiniteError, WeightFile, Weights, other_checkpoint

if TYPE_CHECKING:
    from torch import Tensor, nn

Tensors = dict[str, "Tensor"]
_MODEL = "model.safetensors"
_OPTIMIZER = "optimizer.safetensors"
_STATE = "state.json"
_NAME = re.compile(r"step-(\d{8,})")
# The file of a checkpoint that is written last.
COMPLETE = f"step-*/{_STATE}"


class _Saved(files.Record):
    """The file of a checkpoint that is written last.

    `run` is `RunManifest.identity`, and `xxh3` has the checksums of the tensors' files by name.
    `extra` and `state` are as in `Run.save`.
    """

    newest_formats: ClassVar[Mapping[str, int]] = {"": 2}

    format: int = 1
    run: str
    step: Natural
    extra: bool
    # Every start checks all files that it reads: five of 18 MB take 50 ms by SHA-256 and 5 by XXH3,
    # which finds damage as surely. Against intent neither helps: anybody can compute a new one.
    # Size and time of change would take nothing, but a disk that loses bits changes neither.
    xxh3: dict[str, str] = field(default_factory=dict)
    sha256: dict[str, str] = field(default_factory=dict)  # instead, in format 1
    state: dict[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """One saved state of a run, by its folder, its step and the identity of the run."""

    path: Path
    step: int
    run: str

    def load_weights(self) -> Tensors:
        """The model's tensors, on the CPU.

        `MtkitError` if a file of the checkpoint is missing or was changed, or a weight not finite.
        """
        weights = self._load(_MODEL)
        for name, tensor in weights.items():
            if not is_finite(tensor):
                raise NotFiniteError(self.path / _MODEL, name)
        return weights

    def weight_file(self) -> WeightFile:
        """The file of the model's tensors; raises as `load_weights`."""
        with self._open(_MODEL) as file:
            return WeightFile(file)

    def load_optimizer(self) -> Tensors:
        """The optimizer's tensors, on the CPU; raises as `load_weights`."""
        return self._load(_OPTIMIZER)

    def load_state(self) -> dict[str, Any]:
        """The counters that `Run.save` was given; raises as `load_weights`."""
        return self._record().state

    def is_extra(self) -> bool | None:
        """Whether it was saved outside the schedule, as `Run.save` says; None if it is damaged.

        A damaged one is reported when it is loaded. The tensors are not checked here.
        """
        with contextlib.suppress(MtkitError):
            return self._record().extra
        return None

    def write(
        self, weights: Tensors, optimizer: Tensors | None, state: dict[str, Any], *, extra: bool
    ) -> None:
        """Write it, as `Run.save`; it appears under its name when it is complete."""
        path, partial = self.path, files.partial_name(self.path)
        with files.naming_target(partial, path), naming_tensors(path):
            try:
                # Also deletes what a killed save or prune left.
                for old in path.parent.glob(".*.partial"):
                    shutil.rmtree(old, ignore_errors=True)
                partial.mkdir()
                checksums = {}
                for name, tensors in ((_MODEL, weights), (_OPTIMIZER, optimizer)):
                    if tensors is not None:
                        _save_tensors(tensors, partial / name)
                        checksums[name] = files.xxh3_of(partial / name)
                record = _Saved(
                    format=2, run=self.run, step=self.step, extra=extra, xxh3=checksums, state=state
                )
                files.write_record(partial / _STATE, record)
                sync(partial)
                if path.exists():
                    shutil.rmtree(path)
                partial.rename(path)
                sync(path.parent)
            finally:
                shutil.rmtree(partial, ignore_errors=True)

    def _record(self) -> _Saved:
        self._check_exists()
        advice = other_checkpoint(self.path)
        record = files.read_record(self.path / _STATE, _Saved, advice=advice)
        if (record.step, record.run) != (self.step, self.run):
            raise MtkitError(
                f"{self.path}: belongs to another run (with other settings, data or tokenizers), "
                f"or its folder was renamed; {advice}"
            )
        return record

    def _check_exists(self) -> None:
        """Refuse to read a checkpoint that was deleted; its folder disappears at once."""
        if not self.path.exists():
            raise MtkitError(
                f"{self.path}: was deleted after it was chosen, probably by mtkit train, which "
                "keeps the newest checkpoints only (train.keep_checkpoints); start the command "
                "again to use those that exist now"
            )

    def _load(self, name: str) -> Tensors:
        from safetensors.torch import load_file

        # By its file descriptor, because safetensors refuses a path that is not UTF-8.
        with self._open(name) as file, naming_tensors(file), file.open("rb") as opened:
            return load_file(f"/dev/fd/{opened.fileno()}")

    @contextlib.contextmanager
    def _open(self, name: str) -> Iterator[Path]:
        """A file of tensors, unchanged since it was saved, to be read inside.

        Raises:
            MtkitError: if it cannot be read; it says that there are other checkpoints.
        """
        file, saved = self.path / name, self._record()
        try:
            checksum = files.xxh3_of if saved.xxh3 else files.sha256_of
            if checksum(file) != (saved.xxh3 or saved.sha256).get(name):
                raise MtkitError(f"{file}: damaged (its checksum is not the one it was saved with)")
            yield file
        except MtkitError as error:
            self._check_exists()
            raise MtkitError(f"{error}; {other_checkpoint(self.path)}") from error


def checkpoint_name(step: int) -> str:
    """The folder name of the checkpoint of a step."""
    return f"step-{step:08d}"


def step_of(name: str) -> int | None:
    """The step of the checkpoint with this folder name; None if it is not such a name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


class ValidationScore(NamedTuple):
    """The score of a validation: the highest is the best, and of equal ones the newest."""

    value: float
    step: int


def validation_scores(
    validations: Iterable[Mapping[str, Any]], best_metric: str, best_set: str | None = None
) -> list[ValidationScore]:
    """The scores of validations, which are rows of metrics or saved states, in their order.

    A validation without the metric is left out. `best_set` names a further set.
    """
    sign = -1 if best_metric == "loss" else 1
    key = f"valid_{best_metric}"
    values = (
        (further_scores(row, best_metric).get(best_set) if best_set else row.get(key), row["step"])
        for row in validations
    )
    return [ValidationScore(sign * value, step) for value, step in values if value is not None]


def further_scores(row: Mapping[str, Any], metric: str) -> dict[str, float]:
    """A score of the further sets and of the directions of a validation, by name."""
    sets = row.get("valid_also") or {}
    return {name: scores[metric] for name, scores in sets.items() if metric in scores}


class Selection(NamedTuple):
    """The checkpoint that a model is made of, or those that are averaged, and what to call them."""

    checkpoints: list[Checkpoint]
    description: str

    def load(self) -> Tensors:
        """The weights, on the CPU, in float32 or as truth values."""
        import torch

        # Copies, because the memory of PyTorch is aligned for its kernels.
        return {name: torch.from_numpy(array).clone() for name, array in self.arrays().items()}

    def arrays(self) -> Weights:
        """The same weights as NumPy arrays, without PyTorch."""
        return Weights([checkpoint.weight_file() for checkpoint in self.checkpoints])


def is_finite(tensor: Tensor) -> bool:
    """Whether all numbers of a tensor are finite."""
    # A sum is fast and makes no copy, but that of large numbers may be infinite too.
    return bool(tensor.sum().isfinite() or tensor.isfinite().all())


def load_into(model: nn.Module, weights: Tensors, *, of: Path) -> None:
    """Load weights into a model; raises `MtkitError` if those of the run `of` do not fit it."""
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise MtkitError(
            f"{of}: the weights do not fit config.yaml: {reason_of(error, most=200)}"
        ) from error


@contextlib.contextmanager
def naming_tensors(path: Path) -> Iterator[None]:
    """As `naming_file`, also for the errors of safetensors."""
    from safetensors import SafetensorError

    try:
        with files.naming_file(path):
            yield
    except SafetensorError as error:
        raise MtkitError(f"{path}: {error}") from error


def _save_tensors(tensors: Tensors, path: Path) -> None:
    from safetensors.torch import save_file

    # The file gets the mode of the user's umask; safetensors would make it private.
    path.touch()
    mode = path.stat().st_mode
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    path.chmod(mode)
    sync(path)
