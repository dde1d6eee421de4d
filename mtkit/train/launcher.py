"""Starts the workers of a training on this machine, and stops a training on a signal.

PyTorch's elastic engine runs the workers. On several machines `torchrun` starts them instead; how
they find each other and communicate is in `distributed`.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtkit.base.errors import FAULT, MtkitError, status_after
from mtkit.base.launched import available_cores

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

log = logging.getLogger(__name__)

# Exit statuses of a worker, besides those of every command, for `launch` to act on.
TRANSIENT = 74  # may succeed the next time: a wait in vain, an error of a file
PEER_LOST = 75  # another worker ended first
_LAUNCH = "MTKIT_LAUNCH"
# The signals for which PyTorch installs a handler that raises when it starts processes.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def is_launched() -> bool:
    """Whether `launch` started this process."""
    return _LAUNCH in os.environ


def launch_id() -> str:
    """An id of the launch, the same for all workers and after restarts."""
    return os.environ.get(_LAUNCH) or os.environ.get("TORCHELASTIC_RUN_ID", "")


def is_restarted() -> bool:
    """Whether this process replaces one that ended; workers may have different answers."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"


def end_with_parent() -> None:
    """Interrupt this process when its parent, which launched it, is gone: nothing else would."""
    parent = os.getppid()

    def observe() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=observe, name="parent", daemon=True).start()


def tell_launcher(error: MtkitError) -> None:
    """Leave an error for `launch` to report; it becomes the `ProcessFailure.message`."""
    if is_launched() and (file := os.environ.get("TORCHELASTIC_ERROR_FILE")):
        Path(file).write_text(json.dumps({"message": str(error)}), encoding="utf-8")


def launch(arguments: Sequence[str], count: int, *, max_restarts: int = 0) -> int:
    """Run Python with these arguments in `count` workers, and restart them if they fail.

    Signals that ask this process to end (Ctrl-C, SIGTERM, a closed terminal) are passed on to the
    workers, which save and stop, unless this process ignores them, as after `nohup`.

    They are restarted at most `max_restarts` times, and never after an `MtkitError`, because the
    same command would fail again.

    Returns:
        The exit status. Errors are reported by the worker or here.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, start_processes

    # Its messages are replaced by one line below.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    identity = uuid.uuid4().hex
    for again in range(max_restarts + 1):
        with tempfile.TemporaryDirectory(prefix="mtkit-") as folder, _restored(_ENDING) as handlers:
            start = partial(
                start_processes,
                name="mtkit",
                entrypoint=sys.executable,
                args=dict.fromkeys(range(count), tuple(arguments)),
                envs=_environments(count, again, identity),
                logs_specs=DefaultLogsSpecs(log_dir=folder, redirects=Std.NONE),
            )
            workers: list[Any] = []
            stopped = _pass_on_signals(workers, handlers)
            # In the main thread it would take signals itself, and leave workers that nobody ends.
            with ThreadPoolExecutor(1) as starting:
                context: Any = starting.submit(start).result()
            workers += [handler.proc for handler in context.subprocess_handlers.values()]
            for worker in workers if stopped else []:
                worker.terminate()  # SIGINT would be an error of a Python that is just starting
            result = context.wait(timeout=-1, period=0.1)
        assert result is not None  # it waits without a time limit
        if not result.failures:
            return 0
        # The first worker that fails ends the others, by a signal or by the lost connection.
        consequences = (-signal.SIGTERM, PEER_LOST)
        failures = list(result.failures.values())
        causes = [f for f in failures if f.exitcode not in consequences][:1] or failures
        status = causes[0].exitcode
        if stopped or status in (1, 2, 130):
            return 130 if stopped and status < 0 else abs(status)
        # One of each kind; without a cause it is unknown which came first.
        what = "; ".join({f.exitcode: _how(f) for f in reversed(causes)}.values())
        if again < max_restarts:
            turn = f"{again + 1} of {max_restarts}"
            log.warning("%s; restarting from the last checkpoint (%s)", what, turn)
        else:
            log.error("%s; the same command continues from the last checkpoint", what)
    return 1 if status in (TRANSIENT, PEER_LOST) else status_after(status)


def threads_for(count: int) -> int:
    """Threads for each of `count` workers on this machine, so that together they take all cores."""
    return max(1, available_cores() // count)


def _environments(count: int, again: int, identity: str) -> dict[int, dict[str, str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        # Another process may take the port first; then the first worker ends as TRANSIENT.
        port = free.getsockname()[1]
    common = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": str(again),
        # The first worker holds the store, even if an outer torchrun has set something else.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        _LAUNCH: identity,
    }
    if "OMP_NUM_THREADS" not in os.environ:
        # By default every worker would take all cores.
        common["OMP_NUM_THREADS"] = str(threads_for(count))
    return {rank: {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)}


def _pass_on_signals(workers: list[Any], handlers: dict[int, Any]) -> list[int]:
    """Send SIGINT to the workers for every signal that asks this process to end.

    `workers` are filled in when they have been started, and `handlers` are the previous ones.
    Returns a list to which these signals are appended.
    """
    received: list[int] = []

    def pass_on(number: int, _: Any) -> None:
        received.append(number)
        for worker in workers:
            worker.send_signal(signal.SIGINT)  # does nothing to one that has ended

    for number, handler in handlers.items():
        # Ignored signals stay ignored, as with nohup.
        signal.signal(number, signal.SIG_IGN if handler == signal.SIG_IGN else pass_on)
    return received


@contextmanager
def _restored(numbers: Sequence[int]) -> Iterator[dict[int, Any]]:
    """The handlers of some signals, which are the same again after it."""
    previous = {number: signal.getsignal(number) for number in numbers}
    try:
        yield previous
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _how(failure: ProcessFailure) -> str:
    """How a worker ended."""
    who, exitcode = f"worker {failure.local_rank}", failure.exitcode
    if exitcode < 0:
        return f"{who} was killed by {signal.Signals(-exitcode).name}"
    if Path(failure.error_file).is_absolute():  # else `tell_launcher` wrote none
        return str(failure.message)
    is_known = exitcode in (FAULT, TRANSIENT)
    return f"{who} failed" if is_known else f"{who} ended with status {exitcode}"


@contextmanager
def stop_on_signal(*, quiet: bool) -> Iterator[list[int]]:
    """A list to which the first SIGINT or SIGTERM is appended; the second has its usual effect."""
    received: list[int] = []

    def handle(number: int, _: Any) -> None:
        received.append(number)
        if not quiet:
            # If the signal comes while a note is written, Python refuses to write another one.
            with suppress(RuntimeError):
                log.warning(
                    "saving after this step, then stopping; press Ctrl-C again to stop without "
                    "saving"
                )
        for signum, handler in previous.items():
            signal.signal(signum, handler)

    with _restored(_asking_to_stop()) as previous:
        for number in previous:
            signal.signal(number, handle)
        yield received


@contextmanager
def interrupt_on_signal(*, ignores: bool) -> Iterator[None]:
    """SIGINT and SIGTERM raise KeyboardInterrupt, or do nothing if this process `ignores` them."""
    with _restored(_asking_to_stop()) as previous:
        for number in previous:
            signal.signal(number, signal.SIG_IGN if ignores else signal.default_int_handler)
        yield


def _asking_to_stop() -> tuple[int, ...]:
    """The signals that ask this thread to stop."""
    # Python handles signals only in the main thread; in others the caller handles them.
    if threading.current_thread() is not threading.main_thread():
        return ()
    # `launch` sends workers SIGINT to save and stop; SIGTERM keeps its usual effect.
    return (signal.SIGINT,) if is_launched() else (signal.SIGINT, signal.SIGTERM)
