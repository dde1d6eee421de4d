"""Applies a function to many items in several processes, with the results in order.

`concurrent.futures` is not used: after an error or Ctrl-C its busy workers keep running and the
parent waits for them, and a worker does not end with a parent that was killed.

A new process imports the main script again, as always with Python's `spawn`: a script must do its
work under `if __name__ == "__main__":`.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import multiprocessing
import os
import queue
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

from mtkit.base.errors import LostWorkerError, MtkitError, status_after
from mtkit.base.launched import available_cores

Item = TypeVar("Item")
Result = TypeVar("Result")

# Items that a worker has at a time: the current one and the next one.
_AT_A_TIME = 2
# With at most this many items no process is started, which takes half a second.
_FEW = 2
# The most processes per core; more would only use memory.
_MAX_PER_CORE = 8
# The exit status of a new process whose main script starts processes when it is imported. Neither
# Python nor a shell uses this status.
_IMPORTING = 86
# The signals that the parent handles for its workers.
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
# Seconds until a worker that has closed its pipe has ended.
_PATIENCE = 5.0

_spawn = multiprocessing.get_context("spawn")


def malloc_trim() -> None:
    """Return freed memory to the system, if its C library keeps it (glibc does)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], *, workers: int
) -> Iterator[tuple[Item, Result]]:
    """Each item with its result, in the order of the items.

    Only the items in work are read, so memory is bounded. With one worker, or only one or two
    items, everything is done in this process; of more workers, at most eight per core are started.

    Args:
        function: sent to each worker once; its results do not depend on earlier items.

    Raises:
        LostWorkerError: if a worker ended.
        MtkitError: if a worker met this error, or if the main script works when it is imported.
    """
    waiting = iter(items)
    first = list(itertools.islice(waiting, _FEW + 1))
    waiting = itertools.chain(first, waiting)
    if workers == 1 or len(first) <= _FEW:
        for item in waiting:
            yield item, function(item)
        return
    started: list[Worker[Item, Result]] = []
    try:
        most = min(workers, _MAX_PER_CORE * available_cores())
        started.extend(Worker(function) for _ in range(most))
        # Items are sent to the workers in turn, and results are read in the same order.
        turns = itertools.cycle(started)
        sent: deque[Item] = deque()

        def send(worker: Worker[Item, Result]) -> None:
            for item in itertools.islice(waiting, 1):
                worker.send(item)
                sent.append(item)

        for worker in _AT_A_TIME * started:
            send(worker)
        while sent:
            worker = next(turns)
            result = worker.receive()
            if isinstance(result, Exception):
                raise result
            yield sent.popleft(), result
            send(worker)
    finally:
        for worker in started:
            worker.end()


class Worker(Generic[Item, Result]):
    """The parent's view of a process that applies a function, which is sent to it once."""

    def __init__(self, function: Callable[[Item], Result]) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            # Python would print a long traceback here and in the parent.
            os._exit(_IMPORTING)
        self._pipe, its_end = _spawn.Pipe()
        # Daemonic, so that Python does not wait for it at exit.
        self._process = _spawn.Process(target=_serve, args=(its_end, function), daemon=True)
        # Python's resource tracker, started with the first process, would unblock the interrupt.
        resource_tracker.ensure_running()
        try:
            with _interrupt_delayed():
                self._process.start()
        except BrokenPipeError:
            raise self._lost() from None
        except BaseException:
            if self._process.pid is not None:
                # An interrupt came meanwhile, so the caller will never get this worker.
                self.end()
            raise
        finally:
            # Then only the worker has this end of the pipe, and it closes with the worker.
            its_end.close()
        # Python ends it by SIGTERM, which is blocked there.
        atexit.register(self._process.kill)

    def send(self, item: Item) -> None:
        """Send it an item; raises `LostWorkerError` if it has ended."""
        try:
            self._pipe.send(item)
        except OSError:
            raise self._lost() from None

    def receive(self) -> Result | Exception:
        """Its next result, or the exception of the function; raises as `send`."""
        try:
            answer: Result | Exception = self._pipe.recv()
        except (OSError, EOFError):
            raise self._lost() from None
        return answer

    def end(self) -> None:
        """Kill it; no data is lost."""
        atexit.unregister(self._process.kill)
        self._process.kill()
        self._process.join()
        self._process.close()
        self._pipe.close()

    def _lost(self) -> MtkitError:
        code = None
        if self._process.pid is not None:
            self._process.join(_PATIENCE)
            code = self._process.exitcode
        if code == _IMPORTING:
            return MtkitError(
                "this script starts workers when it is imported, and every worker imports it: "
                'put its code under `if __name__ == "__main__":`'
            )
        how = f"status {code}"
        if code is not None and code < 0:
            how = f"killed by {signal.Signals(-code).name}"
        error = LostWorkerError(
            f"a worker ended unexpectedly ({how}); if memory ran out, fewer --workers need less"
        )
        error.status = 1 if code is None else status_after(code)
        return error


@contextmanager
def _interrupt_delayed() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM while a process is started, and block them in the new process.

    The parent handles them, and ends its workers. A blocked signal stays blocked in a new process
    from its start. Another thread of the parent may still receive it, and Python would then raise
    in the main thread while it sends data to the new process.
    """
    received: list[int] = []
    handlers: dict[int, Any] = {}

    # Only the main thread may set a handler, and only there Python raises. A handler that was not
    # set from Python (None here) could not be restored.
    if threading.current_thread() is threading.main_thread():
        for kind in _INTERRUPTS:
            if signal.getsignal(kind) is not None:
                handlers[kind] = signal.signal(kind, lambda number, _: received.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in received[:1]:
            signal.raise_signal(number)


def _serve(pipe: Connection[Any, Any], function: Callable[[Any], Any]) -> None:
    """Apply the function to the items from the pipe; exit when it is closed."""
    items: queue.SimpleQueue[Any] = queue.SimpleQueue()
    # A thread reads, so that the end of the parent is noticed at once, and so that parent and
    # worker never wait for each other while both are sending.
    threading.Thread(target=_read_items, args=(pipe, items), daemon=True).start()
    while True:
        item = items.get()
        answer: Any
        try:
            answer = function(item)
        except MtkitError as error:
            answer = error
        except Exception:
            # Not every exception can be sent, but its text can.
            answer = RuntimeError(f"in a worker:\n\n{traceback.format_exc()}")
        try:
            pipe.send(answer)
        except OSError:
            os._exit(0)  # the parent has ended


def _read_items(pipe: Connection[Any, Any], items: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            items.put(pipe.recv())
    finally:
        os._exit(0)
