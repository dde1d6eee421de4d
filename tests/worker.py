"""One worker of a training run, as `torchrun` would start it: worker.py FACTS, a file of JSON."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtkit import train
from mtkit.config import load_config
from mtkit.data import PreparedData
from mtkit.errors import MtkitError
from mtkit.trainer import Trainer


def misbehave(how: str, rank: int, step: int) -> None:
    """Have a worker, before an update, do what workers should not."""
    if int(os.environ.get("RANK", "0")) != rank:
        return
    original = Trainer.update

    def update(self: Trainer, batches: Any) -> Tensor:
        if self.step + 1 == step:
            if how == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            if how == "hang":
                time.sleep(1000)
            if how == "fail":
                raise MtkitError("the disk of worker 1 is on fire")
            if how == "crash":
                raise ValueError("a bug")
        return original(self, batches)

    Trainer.update = update  # type: ignore[method-assign]


def main() -> None:
    """Train as the facts say."""
    facts = json.loads(Path(sys.argv[-1]).read_text(encoding="utf-8"))
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    torch.set_default_dtype(getattr(torch, facts.get("dtype", "float32")))
    if "misbehaviour" in facts:
        misbehave(*facts["misbehaviour"])
    data = PreparedData.open(Path(facts["data"]))
    train.run(load_config(facts["config"]), data, Path(facts["run"]), device="cpu")


if __name__ == "__main__":
    main()
