"""Workers that train together, and what they left behind."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from support import worker
from support.forked import Forked
from support.training import last_weights

from mtkit.config import Config, dump_config
from mtkit.data import PreparedData
from mtkit.run_folder import Run
from mtkit.train import launcher


class Team:
    """Workers that train a configuration in a folder, started as `torchrun` starts them."""

    def __init__(self, config: Config, data: PreparedData, run: Path, **facts: Any) -> None:
        self.run = run
        run.parent.mkdir(exist_ok=True)
        self._config = run.parent / f"{run.name}.yaml"
        self._config.write_text(dump_config(config), encoding="utf-8")
        self._facts = run.parent / f"{run.name}.json"
        places = {"config": str(self._config), "data": str(data.path), "run": str(run)}
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
        said = [process.communicate(timeout=120)[1].decode() for process in team]
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


def losses(run: Path) -> list[float]:
    return [row["loss"] for row in Run.open(run).metrics() if "loss" in row]


def validation(run: Path) -> dict[str, float]:
    return [row for row in Run.open(run).metrics() if "valid_loss" in row][-1]


def assert_equal_weights(one: Path, other: Path, *, within: float = 0.0) -> None:
    first, second = last_weights(one), last_weights(other)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.allclose(tensor, second[name], rtol=0, atol=within), name
