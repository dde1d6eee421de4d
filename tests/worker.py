"""One worker of a training run, as `torchrun` would start it: worker.py FACTS, a file of JSON.

Facts are the places of `config`, `data` and `run`; or `arguments` of the command line, which then
handles errors too. A worker may be told to misbehave.

`Worker` starts one by forking a process that has imported everything, because a fresh one spends
most of its time on importing PyTorch.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import torch

from mtkit import cli, distributed, train
from mtkit.checkpoint import Checkpoint, Run
from mtkit.config import load_config
from mtkit.data import PreparedData
from mtkit.devices import given_rank
from mtkit.errors import MtkitError
from mtkit.trainer import Trainer


def fail() -> None:
    """An error with an explanation."""
    raise MtkitError("the disk of worker 1 is on fire")


def crash() -> None:
    """An error without one."""
    raise ValueError("a bug")


def lose_contact() -> None:
    """What PyTorch raises when another worker is gone, and sometimes for other reasons."""
    raise RuntimeError("NCCL error: the cable is loose\nand many lines more")


def exhaust() -> None:
    """What PyTorch raises when a device is full."""
    raise torch.OutOfMemoryError("CUDA out of memory")


HOW: dict[str, Callable[[], None]] = {
    "die": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "hang": lambda: time.sleep(1000),
    "fail": fail,
    "crash": crash,
    "lose contact": lose_contact,
    "exhaust": exhaust,
}
WHERE: dict[str, tuple[Any, str]] = {
    "start": (Trainer, "__init__"),
    "update": (Trainer, "update"),
    "save": (Run, "save"),
    "read": (Checkpoint, "load_weights"),
}


def misbehave(
    how: str, *, rank: int | None = None, where: str = "update", step: int = 5, once: bool = False
) -> None:
    """Have a worker do what workers should not.

    Args:
        how: what it does.
        rank: of whom; None is everybody.
        where: before what.
        step: of the update.
        once: not when started again.
    """
    if rank not in (None, given_rank() or 0) or (once and distributed.is_restarted()):
        return
    owner, name = WHERE[where]
    original = getattr(owner, name)

    def patched(self: Any, *arguments: Any, **options: Any) -> Any:
        if where != "update" or self.step + 1 == step:
            HOW[how]()
        return original(self, *arguments, **options)

    setattr(owner, name, patched)


def see_otherwise(rank: int, what: str) -> None:
    """Have a worker see other data, or no checkpoints."""
    if given_rank() != rank:
        return
    if what == "data":
        PreparedData.fingerprint = "another"  # type: ignore[assignment,method-assign]
    else:
        Run.checkpoints = lambda _: []  # type: ignore[assignment,method-assign]


def train_as_told(facts_file: Path) -> None:
    """Train as the facts say."""
    facts = json.loads(facts_file.read_text(encoding="utf-8"))
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    torch.set_default_dtype(getattr(torch, facts.get("dtype", "float32")))
    if "misbehaviour" in facts:
        misbehave(**facts["misbehaviour"])
    if "sees" in facts:
        see_otherwise(*facts["sees"])
    if "meeting" in facts:
        distributed._MEETING = timedelta(seconds=facts["meeting"])
    if "arguments" in facts:
        sys.argv = ["mtkit", *facts["arguments"]]
        cli.main()
    data = PreparedData.open(Path(facts["data"]))
    train.run(load_config(facts["config"]), data, Path(facts["run"]), device="cpu")


class Worker:
    """A forked worker, to be used as a `subprocess.Popen` with standard error in a pipe.

    Args:
        facts: what it is to do.
        environment: what it finds in its environment besides what is there anyway.
        err: a file for its standard error.
    """

    def __init__(self, facts: Path, environment: Mapping[str, str], err: Path) -> None:
        self._err = err
        # A name, because the process that forks has imported this file as `worker`.
        self._process = _forking().Process(target=_work, args=(facts, dict(environment), err))
        self._process.start()

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Nothing, and what it has said, once it has ended."""
        self._process.join(timeout)
        if self._process.is_alive():
            raise subprocess.TimeoutExpired("worker", timeout or 0.0)
        return b"", self._err.read_bytes()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()


# What a run imports on its way, so that not every worker does.
_LIBRARIES = ["torch._dynamo", "matplotlib.figure", "matplotlib.backends.backend_svg"]
_LIBRARIES += ["tensorboardX.proto.event_pb2", "tensorboardX.record_writer"]


def _forking() -> multiprocessing.context.ForkServerContext:
    """Where processes come from that have imported all that a worker needs."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["worker", *_LIBRARIES])
    given = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return context


def _work(facts: Path, environment: dict[str, str], err: Path) -> None:
    os.environ.update(environment)
    with err.open("wb") as file:
        os.dup2(file.fileno(), 2)
    train_as_told(facts)


if __name__ == "__main__":
    train_as_told(Path(sys.argv[-1]))
