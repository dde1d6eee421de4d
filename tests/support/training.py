"""What the tests of training share: reading runs, and events in the middle of a training."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mtkit.config import Config
from mtkit.data import PreparedData
from mtkit.run_folder import Run
from mtkit.train import assembly as train
from mtkit.train.trainer import Trainer


def rows_of(run: Path, key: str) -> list[tuple[int, float]]:
    """Step and value of every row of metrics with this key."""
    return [(row["step"], row[key]) for row in Run.open(run).metrics() if key in row]


def assert_same_state(one: Path, other: Path) -> None:
    """The newest checkpoints of two runs are equal to the last bit."""
    first, second = (Run.open(path).checkpoints()[-1] for path in (one, other))
    assert first.step == second.step
    states = first.load_state(), second.load_state()
    assert states[0]["batches"] == states[1]["batches"]
    for counter in ("tokens", "flops"):
        assert states[0]["cost"][counter] == states[1]["cost"][counter]
    for mine, theirs in (
        (first.load_weights(), second.load_weights()),
        (first.load_optimizer(), second.load_optimizer()),
    ):
        assert mine.keys() == theirs.keys()
        assert mine
        for name, tensor in mine.items():
            assert torch.equal(tensor, theirs[name]), name


def events_of(run: Run, tag: str) -> list[tuple[int, float]]:
    """Step and value of every event of a kind, in the order of their files."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    found = []
    for file in sorted((run.path / "tensorboard").iterdir()):
        content = file.read_bytes()
        while content:
            # A record: its length, a checksum, the message, a checksum.
            end = 12 + int.from_bytes(content[:8], "little")
            assert int.from_bytes(content[8:12], "little") == masked_crc32c(content[:8])
            assert int.from_bytes(content[end : end + 4], "little") == masked_crc32c(
                content[12:end]
            )
            event = Event.FromString(content[12:end])
            found += [(event.step, v.simple_value) for v in event.summary.value if v.tag == tag]
            content = content[end + 4 :]
    return found


def last_weights(run: Path) -> dict[str, Tensor]:
    return Run.open(run).checkpoints()[-1].load_weights()


def tune(config: Config, data: PreparedData, place: Path, base: Run, **given: Any) -> None:
    """Train from the weights of a run."""
    train.run(config, data, place, device="cpu", init_from=f"{base.path}:last", **given)


def gradients_of(trainer: Trainer, groups: list[np.ndarray]) -> dict[str, Tensor]:
    """What one update on these micro-batches hands to the optimizer."""
    found: dict[str, Tensor] = {}

    def take(*_: object) -> None:
        for name, parameter in trainer.model.named_parameters():
            assert parameter.grad is not None
            found[name] = parameter.grad.clone()

    trainer.optimizer.step = take  # type: ignore[method-assign]
    trainer.micro_batches.per_batch = 1
    trainer.update(groups)
    return found


def before_update(patch: pytest.MonkeyPatch, step: int, action: Callable[[], object]) -> None:
    """Have something happen in every training right before the update `step`."""
    original = Trainer.update

    def update(self: Trainer, *given: Any) -> Tensor:
        if self.step + 1 == step:
            action()
        return original(self, *given)

    patch.setattr(Trainer, "update", update)


def kill() -> None:
    """End a training at once, without saving."""
    raise KeyboardInterrupt


def interrupt() -> None:
    """Ask a training to save and stop, as Ctrl-C does."""
    os.kill(os.getpid(), signal.SIGINT)
