"""Preparations that are stopped again and again: stopped.py SIGNAL TIMES SEED ARGUMENTS...

Each run is the command line in a fork, because a fresh process would spend its time on imports.
It gets the signal after a random part of the time that an undisturbed run takes. What is finished
nevertheless is put aside, and the next run begins anew. Prints what happened as JSON.
"""

import json
import os
import random
import shutil
import signal
import sys
import time

from mtkit.__main__ import program
from mtkit.cli import prepare as command
from mtkit.prepare import parse_source, passes, prepare, write_page

# Loaded once, and not by each run.
LOADED = command, parse_source, prepare, write_page


def run(arguments: list[str], out: str) -> int:
    """Start one; returns its process."""
    child = os.fork()
    if child == 0:
        sys.argv = ["mtkit", *arguments, "--out", out]
        status = 1
        try:
            program()
        except SystemExit as end:
            status = int(end.code or 0)
        os._exit(status)
    return child


def ended(child: int, within: float | None = None) -> int | None:
    """Its status; None if it has not ended within so many seconds."""
    until = None if within is None else time.monotonic() + within
    while True:
        done, status = os.waitpid(child, 0 if until is None else os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if until is not None and time.monotonic() >= until:
            return None
        time.sleep(0.001)


def main() -> None:
    """Stop as often as wanted, then let the last one end."""
    how, times = signal.Signals[sys.argv[1]], int(sys.argv[2])
    rng, arguments = random.Random(int(sys.argv[3])), sys.argv[4:]
    passes.BLOCK, passes.PART = 100, 3
    # Which is against a loss of power. A kill loses nothing that was written, and on a busy disk
    # the runs would do nothing but wait.
    os.fsync = lambda _: None
    started = time.monotonic()
    assert ended(run(arguments, "undisturbed")) == 0
    whole = time.monotonic() - started
    statuses: list[int | None] = []
    finished = 0
    while True:
        child, started = run(arguments, "out"), time.monotonic()
        status = None
        if len(statuses) < times:
            status = ended(child, within=rng.uniform(0, whole))
        if status is None:
            if len(statuses) < times:
                os.kill(child, how)
            status = ended(child)
        if status != 0:
            statuses.append(status)
        # The folder may be in its place already when the signal comes.
        if not os.path.isdir("out"):
            continue
        finished += 1
        # The first one may have had to wait for others.
        whole = min(whole, time.monotonic() - started)
        shutil.move("out", f"finished-{finished}")
        if len(statuses) >= times:
            break
    print(json.dumps({"statuses": statuses, "finished": finished, "seconds": whole}))


if __name__ == "__main__":
    main()
