"""A run that is killed again and again: killed.py FACTS KILLS SEED.

Forks, because a fresh process would spend its time on importing PyTorch.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from mtkit import checkpoint, train
from mtkit.config import load_config
from mtkit.data import PreparedData


def die_while_saving(after: int) -> None:
    """Be killed when a file of a checkpoint is about to be synced, the `after`-th from now."""
    original, count = checkpoint._sync, 0

    def sync(path: Path) -> None:
        nonlocal count
        count += 1
        if count == after:
            os.kill(os.getpid(), signal.SIGKILL)
        original(path)

    checkpoint._sync = sync


def main() -> None:
    """Kill as often as told, then let the run end."""
    facts = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    kills, rng = int(sys.argv[2]), random.Random(int(sys.argv[3]))
    torch.set_num_threads(1)
    config, data = load_config(facts["config"]), PreparedData.open(Path(facts["data"]))
    killed = 0
    while True:
        # Half of the kills come at any time, and half in the middle of a save.
        while_saving = rng.randint(1, 15) if killed % 2 else 0
        child = os.fork()
        if child == 0:
            if killed < kills and while_saving:
                die_while_saving(while_saving)
            train.run(config, data, Path(facts["run"]), device="cpu", command=["killed"])
            os._exit(0)
        if killed < kills and not while_saving:
            time.sleep(rng.uniform(0.02, 0.6))
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == -signal.SIGKILL:
            killed += 1
            continue
        print(json.dumps({"killed": killed, "status": status}))
        return


if __name__ == "__main__":
    main()
