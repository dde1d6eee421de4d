"""What the tests of training share: reading runs, and events in the middle of a training."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from conftest import changed
from torch import Tensor

from mtkit.config import Config, dump_config
from mtkit.data import PreparedData
from mtkit.run_folder import Run
from mtkit.train import assembly as train
from mtkit.train.gradients import Losses
from mtkit.train.trainer import Trainer


class Trainings:
    """Trainings with one configuration on one data set, each in the folder of its name."""

    def __init__(
        self, config: Config, data: PreparedData, folder: Path, base: Run | None = None
    ) -> None:
        self.config, self.data, self.folder, self.base = config, data, folder, base

    def change(self, section: str, **settings: Any) -> None:
        """Other settings from now on."""
        self.config = changed(self.config, section, **settings)

    def run(
        self,
        name: str,
        *,
        config: Config | None = None,
        data: PreparedData | None = None,
        base: Run | None = None,
        **given: Any,
    ) -> bool:
        """Train from random weights, or the newest of `base`; False if it was stopped.

        Args:
            given: options of `mtkit.train.run`, and settings of `train`.
        """
        start = {} if base is None else {"init_from": f"{base.path}:last"}
        names = {"device", "init_from", "finish_in", "restart"} & given.keys()
        options = {"device": "cpu"} | start | {name: given.pop(name) for name in names}
        config = changed(config or self.config, "train", **given)
        return train.run(config, data or self.data, self.folder / name, **options)

    def tune(self, name: str, **given: Any) -> bool:
        """Train from the weights of a run, which is `base` if no other is given."""
        return self.run(name, **{"base": self.base} | given)

    def stopped(self, name: str, step: int, action: Callable[[], object], **given: Any) -> None:
        """A training that something ends right before the update `step`."""
        with pytest.MonkeyPatch.context() as patch:
            before_update(patch, step, action)
            try:
                assert not self.run(name, **given)
            except KeyboardInterrupt:
                assert action is kill

    def command(self, run: Path) -> list[str]:
        """Arguments of `mtkit` for a training in this folder."""
        file = self.folder / "config.yaml"
        file.write_text(dump_config(self.config), encoding="utf-8")
        places = {"config": file, "data": self.data.path, "run": run}
        return ["train", "--device=cpu", *(f"--{name}={place}" for name, place in places.items())]

    def start(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        """The program itself, whose interpreter also starts and ends."""
        return subprocess.Popen(
            [sys.executable, "-m", "mtkit", *self.command(self.folder / name), *options],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def open(self, name: str) -> Run:
        return Run.open(self.folder / name)

    def steps(self, name: str) -> list[int]:
        return [saved.step for saved in self.open(name).checkpoints()]

    def rows(self, name: str, key: str) -> list[tuple[int, float]]:
        return rows_of(self.folder / name, key)

    def values(self, name: str, key: str) -> list[float]:
        """The values of a key of metrics, row by row."""
        return [value for _, value in self.rows(name, key)]

    def assert_same(self, name: str, other: str, *keys: str) -> None:
        """The newest checkpoints are equal to the last bit, and all metrics of these keys."""
        assert_same_state(self.folder / name, self.folder / other)
        for key in keys:
            assert self.rows(name, key) == self.rows(other, key)


def wait_for(condition: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    """While a process runs, which must not end before."""
    deadline = time.monotonic() + 600
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def rows_of(run: Path, key: str) -> list[tuple[int, float]]:
    """Step and value of every row of metrics with this key."""
    return [(row["step"], row[key]) for row in Run.open(run).metrics() if key in row]


def assert_same_state(run: Path, other: Path) -> None:
    """The newest checkpoints of two runs are equal to the last bit."""
    first, second = (Run.open(path).checkpoints()[-1] for path in (run, other))
    assert first.step == second.step
    states = first.load_state(), second.load_state()
    assert states[0]["batches"] == states[1]["batches"]
    for counter in ("tokens", "flops"):
        assert states[0]["cost"][counter] == states[1]["cost"][counter]
    assert_equal_tensors(first.load_weights(), second.load_weights())
    assert_equal_tensors(first.load_optimizer(), second.load_optimizer())


def assert_equal_tensors(mine: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    """To the last bit."""
    assert mine
    assert mine.keys() == theirs.keys()
    for name, tensor in mine.items():
        assert torch.equal(tensor, theirs[name]), name


def events_of(run: Run, tag: str) -> list[tuple[int, float]]:
    """Step and value of every event of a kind, in the order of their files."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    events = []
    for file in sorted((run.path / "tensorboard").iterdir()):
        content = file.read_bytes()
        while content:
            # A record: its length, a checksum, the message, a checksum.
            end = 12 + int.from_bytes(content[:8], "little")
            assert int.from_bytes(content[8:12], "little") == masked_crc32c(content[:8])
            message = content[12:end]
            assert int.from_bytes(content[end : end + 4], "little") == masked_crc32c(message)
            event = Event.FromString(message)
            events += [(event.step, v.simple_value) for v in event.summary.value if v.tag == tag]
            content = content[end + 4 :]
    return events


def last_weights(run: Path) -> dict[str, Tensor]:
    return Run.open(run).checkpoints()[-1].load_weights()


def gradients_of(trainer: Trainer, groups: list[np.ndarray]) -> dict[str, Tensor]:
    """What one update on these micro-batches hands to the optimizer."""
    gradients = _taken(trainer)
    trainer.micro_batches.per_batch = 1
    trainer.update(groups)
    return gradients


def _taken(trainer: Trainer) -> dict[str, Tensor]:
    """The gradients of an update, when it was made; the optimizer changes nothing."""
    gradients: dict[str, Tensor] = {}

    def take() -> None:
        for name, parameter in trainer.model.named_parameters():
            if parameter.grad is not None:
                gradients[name] = parameter.grad.clone()

    trainer.optimizer.step = take  # type: ignore[method-assign,assignment]
    return gradients


class UpdateOf(NamedTuple):
    """What an update did: passes of this worker, losses, gradients."""

    passes: int
    losses: Losses
    gradients: dict[str, Tensor]


def update_of(config: Config, data: PreparedData) -> UpdateOf:
    """The first update of a training."""
    trainer = Trainer(config, data, device=torch.device("cpu"))
    gradients = _taken(trainer)
    batches = next(trainer.batches)
    own = trainer.passes(batches, 1)
    return UpdateOf(len(own), trainer.update(batches, own), gradients)


def assert_same(update: UpdateOf, wanted: UpdateOf) -> None:
    """Losses and gradients are equal but for the last digits of float64."""
    torch.testing.assert_close(update.losses, wanted.losses, rtol=1e-12, atol=0)
    assert update.gradients.keys() == wanted.gradients.keys()
    for name, gradient in wanted.gradients.items():
        assert (update.gradients[name] - gradient).norm() <= 1e-12 * gradient.norm(), name


def before_update(patch: pytest.MonkeyPatch, step: int, action: Callable[[], object]) -> None:
    """Have something happen in every training right before the update `step`."""
    original = Trainer.update

    def update(self: Trainer, *given: Any) -> Tensor:
        if self.step + 1 == step:
            action()
        return original(self, *given)

    patch.setattr(Trainer, "update", update)


def kill() -> None:
    raise KeyboardInterrupt


def interrupt() -> None:
    """Ask a training to save and stop, as Ctrl-C does."""
    os.kill(os.getpid(), signal.SIGINT)
