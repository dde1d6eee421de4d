"""How this process was launched: as a worker or alone, and on how many cores.

It is apart from `processes`, which takes longer to load.
"""

from __future__ import annotations

import os


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def given_rank() -> int | None:
    """The rank of this process; None if it was not started as a worker, which only this checks."""
    if all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR")):
        return int(os.environ["RANK"])
    return None


def given_world_size() -> int:
    """The number of workers started together; 1 if this process is not a worker."""
    return 1 if given_rank() is None else int(os.environ["WORLD_SIZE"])
