"""One worker of a training run, as `torchrun` would start it: worker.py FACTS, a file of JSON.

Facts are the places of `config`, `data` and `run`, `init_from` and `device`; or `arguments` of the
command line, which then handles errors too. A worker can be made to misbehave.
"""

import atexit
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partialmethod
from pathlib import Path
from typing import Any

import torch
from support.other_arithmetic import draw_other_weights
from support.small_memory import hold

from mtkit import cli
from mtkit.base import compiling
from mtkit.base.errors import MtkitError
from mtkit.base.launched import given_rank
from mtkit.checkpoint import Checkpoint
from mtkit.config import load_config
from mtkit.data import PreparedData
from mtkit.kernels import bf16
from mtkit.run_folder import Run
from mtkit.train import assembly as train
from mtkit.train import distributed, launcher, metrics
from mtkit.train.trainer import Trainer
from mtkit.train.validation import Validator


def fail() -> None:
    """An error with an explanation."""
    raise MtkitError("the disk of worker 1 is on fire")


def crash() -> None:
    """An error without one."""
    raise ValueError("a bug")


def lose_contact() -> None:
    """What PyTorch raises when another worker is gone, and sometimes for other reasons."""
    raise RuntimeError("NCCL error: the cable is loose\nand many lines more")


HOW: dict[str, Callable[[], None]] = {
    "die": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "hang": lambda: time.sleep(1000),
    "pause": lambda: time.sleep(12),
    "fail": fail,
    "crash": crash,
    "lose contact": lose_contact,
    "abort at exit": lambda: atexit.register(os.abort),
}
WHERE: dict[str, tuple[Any, str]] = {
    "start": (Trainer, "__init__"),
    "update": (Trainer, "update"),
    "validation": (Validator, "run"),
    "save": (Run, "save"),
    "read": (Checkpoint, "load_weights"),
}


def misbehave(
    how: str, *, rank: int | None = None, where: str = "update", step: int = 5, once: bool = False
) -> None:
    """Have a worker, or all, do what workers should not; with `once`, not when started again."""
    if rank not in (None, given_rank() or 0) or (once and launcher.is_restarted()):
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


def shard_in(dtype: torch.dtype) -> None:
    """Have the sharded layers be sent in this type, as between GPUs, and look which are."""
    shard: Any = distributed.Workers.shard

    def patched(self: distributed.Workers, model: Any, layers: Any, **_: Any) -> Any:
        def look(linear: torch.nn.Module, *_: object) -> None:
            assert linear.weight.dtype == dtype

        for layer in layers:
            for part in filter(lambda module: isinstance(module, torch.nn.Linear), layer.modules()):
                part.register_forward_hook(look)
        return shard(self, model, layers, dtype=dtype)

    distributed.Workers.shard = patched  # type: ignore[method-assign]


def compile_with(backend: str) -> None:
    """Have the layers be compiled by a backend of torch.compile, also without a C++ compiler."""
    module: Any = torch.nn.Module
    module.compile = partialmethod(module.compile, backend=backend)
    compiling._obstacle = lambda _: None  # type: ignore[assignment]


def train_as_described(facts_file: Path) -> None:
    """Train as the facts say."""
    draw_other_weights()
    # Charts and syncing to disk would take more time than these trainings.
    metrics.run_page = lambda _: "<!doctype html>\n"
    os.fsync = lambda _: None
    facts = json.loads(facts_file.read_text(encoding="utf-8"))
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    torch.set_default_dtype(getattr(torch, facts.get("dtype", "float32")))
    if "misbehaviour" in facts:
        misbehave(**facts["misbehaviour"])
    if "holds" in facts:
        hold(**facts["holds"])
    if "sees" in facts:
        see_otherwise(*facts["sees"])
    if "shards_in" in facts:
        shard_in(getattr(torch, facts["shards_in"]))
    if "linear_maps_of_pytorch" in facts:
        bf16.applies_to = lambda _: False
    if "compile_with" in facts:
        compile_with(facts["compile_with"])
    if "meeting" in facts:
        distributed._RENDEZVOUS_TIMEOUT = timedelta(seconds=facts["meeting"])
    if "arguments" in facts:
        sys.argv = ["mtkit", *facts["arguments"]]
        cli.main()
    data = PreparedData.open(Path(facts["data"]))
    train.run(
        load_config(facts["config"]),
        data,
        Path(facts["run"]),
        device=facts.get("device", "cpu"),
        init_from=facts.get("init_from"),
    )
    if "compile_with" in facts:
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"]


if __name__ == "__main__":
    train_as_described(Path(sys.argv[-1]))
