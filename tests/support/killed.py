"""A run that is killed again and again: killed.py FACTS KILLS SEED.

Forks, because a fresh process would spend its time on importing PyTorch. Kills come after so much
work, not after so much time, so that a run ends no earlier on a faster machine.
"""

import importlib
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from mtkit import checkpoint
from mtkit.config import load_config
from mtkit.data import PreparedData
from mtkit.train import assembly as train
from mtkit.train.trainer import Trainer


def die_at(owner: Any, name: str, after: int) -> None:
    """Be killed when a function is about to be called, the `after`-th time from now."""
    original, count = getattr(owner, name), 0

    def patched(*given: Any) -> Any:
        nonlocal count
        count += 1
        if count == after:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*given)

    setattr(owner, name, patched)


def main() -> None:
    """Kill as often as wanted, then let the run end."""
    facts = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    kills, rng = int(sys.argv[2]), random.Random(int(sys.argv[3]))
    torch.set_num_threads(1)
    # What a run imports on its way, so that not every child does.
    for library in ("torch._dynamo", "matplotlib.figure", "tensorboardX"):
        importlib.import_module(library)
    config, data = load_config(facts["config"]), PreparedData.open(Path(facts["data"]))
    killed = 0
    while True:
        # Half of the kills come between two updates, while the one before may be being saved, and
        # half in the middle of a save.
        while_saving, after = killed % 2, rng.randint(1, 15 if killed % 2 else 5)
        # A file of a checkpoint is about to be synced, or an update to be made.
        place = (checkpoint, "sync") if while_saving else (Trainer, "update")
        child = os.fork()
        if child == 0:
            if killed < kills:
                die_at(*place, after)
            train.run(config, data, Path(facts["run"]), device="cpu", command=["killed"])
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == -signal.SIGKILL:
            killed += 1
            continue
        print(json.dumps({"killed": killed, "status": status}))
        return


if __name__ == "__main__":
    main()
