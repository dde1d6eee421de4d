"""Workers that train together, and what they left behind."""

import json
import socket
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from conftest import changed
from support import worker
from support.forked import Forked
from support.training import Trainings, last_weights

from mtkit.config import dump_config
from mtkit.train import launcher

# Three batches an update, and a row and a checkpoint now and then.
THREE_BATCHES = {"device_batch_tokens": None, "batches_per_update": 3, "valid_every": 6}


class Team:
    """Workers that train a configuration in a folder, started as `torchrun` starts them."""

    def __init__(self, trainings: Trainings, name: str, **facts: Any) -> None:
        """The worker takes the facts, but for `max_steps`."""
        config, run = trainings.config, trainings.folder / name
        if "max_steps" in facts:
            config = changed(config, "train", max_steps=facts.pop("max_steps"))
        self.run = run
        self._config = run.parent / f"{run.name}.yaml"
        self._config.write_text(dump_config(config), encoding="utf-8")
        self._facts = run.parent / f"{run.name}.json"
        places = {"config": str(self._config), "data": str(trainings.data.path), "run": str(run)}
        self._facts.write_text(json.dumps(places | facts), encoding="utf-8")

    def start(
        self, count: int, *, ranks: Sequence[int] | None = None, port: int | None = None
    ) -> list[Forked]:
        """Start all of them, or some ranks only; they meet at a free port, or at a given one."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            meeting = {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port or free.getsockname()[1]),
            }
        together = {"WORLD_SIZE": str(count)} | meeting
        return [
            Forked(
                worker.train_as_described,
                self._facts,
                environment=(
                    together | {"RANK": str(r), "LOCAL_RANK": str(r)} if count > 1 else {}
                ),
                err=self.run.parent / f"{self.run.name}.{r}.err",
            )
            for r in (range(count) if ranks is None else ranks)
        ]

    def train(self, count: int) -> None:
        """Run to the end."""
        statuses, said = self.end(self.start(count))
        assert statuses == [0] * count, "\n".join(said)

    def end(self, team: list[Forked]) -> tuple[list[int | None], list[str]]:
        """What becomes of them by themselves: statuses, and what they say."""
        said = [process.communicate(timeout=600)[1].decode() for process in team]
        return [process.returncode for process in team], said

    def use_command_line(self, *options: str) -> None:
        """Have them be `mtkit train`, which handles errors, with these options."""
        facts = json.loads(self._facts.read_text(encoding="utf-8"))
        places = [f"--{name}={facts[name]}" for name in ("config", "data", "run")]
        facts["arguments"] = ["train", "--device=cpu", *places, *options]
        self._facts.write_text(json.dumps(facts), encoding="utf-8")

    def launch(self, count: int, *options: str, max_restarts: int = 0) -> int:
        """Have `launch` start them, from this process."""
        self.use_command_line(*options)
        command = [worker.__file__, str(self._facts)]
        return launcher.launch(command, count, max_restarts=max_restarts)


def assert_nearly_same(trainings: Trainings, run: str, other: str) -> None:
    """All but the last digits of losses, weights and validations are the same."""
    losses, other_losses = (trainings.values(name, "loss") for name in (run, other))
    assert losses == pytest.approx(other_losses, rel=1e-9)
    # Adam divides by small numbers.
    assert_equal_weights(trainings, run, other, within=1e-6)
    first, second = (
        [row for row in trainings.open(name).metrics() if "valid_loss" in row][-1]
        for name in (run, other)
    )
    assert first == pytest.approx(second, rel=1e-6)


def assert_equal_weights(
    trainings: Trainings, run: str, other: str, *, within: float = 0.0
) -> None:
    first, second = (last_weights(trainings.folder / name) for name in (run, other))
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.allclose(tensor, second[name], rtol=0, atol=within), name
