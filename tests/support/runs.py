"""Run folders with checkpoints of a few numbers."""

from pathlib import Path
from typing import Any

import torch

from mtkit.config import Config
from mtkit.data import PreparedData
from mtkit.run_folder import Run
from mtkit.run_manifest import DataOrigin, RunManifest


def new_run(path: Path, config: Config, data: PreparedData) -> Run:
    manifest = RunManifest(data=DataOrigin(fingerprint=data.fingerprint, path=str(data.path)))
    return Run.create(path, config, data.tokenizers(), manifest=manifest)


def remade(
    run: Run,
    place: Path,
    *,
    config: Config | None = None,
    weights: dict[str, torch.Tensor] | None = None,
    **manifest: Any,
) -> Run:
    """A run as another one at its newest step, with other settings, weights or entries."""
    changed = run.manifest.model_copy(update=manifest)
    made = Run.create(place, config or run.config, run.tokenizers(), manifest=changed)
    newest = run.checkpoints()[-1]
    made.save(newest.step, weights=weights or newest.load_weights(), optimizer={}, state={})
    return made


def save(run: Run, step: int, value: float | None = None, *, bleu: float | None = None) -> None:
    """A checkpoint whose every weight is `value`, or the step."""
    value = float(step) if value is None else value
    state = {"batches": {"epoch": 0, "position": step}}
    run.save(
        step,
        weights={"w": torch.full((2, 3), value)},
        optimizer={"w.exp_avg": torch.full((2, 3), -value)},
        state=state if bleu is None else state | {"valid_bleu": bleu},
    )


def steps(run: Run) -> list[int]:
    return [saved.step for saved in run.checkpoints()]


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder, by their paths in it."""
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}
