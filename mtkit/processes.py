"""A function applied to many things by several processes, the results in the order of the things.

Not `concurrent.futures`, whose parent can wait for ever when a worker dies while it answers, and
which leaves busy workers running after an error. A process that is started imports the main script
anew, as always with Python's `spawn`: a script must do its work under
`if __name__ == "__main__":`.

A worker that loses its parent, however that ended, ends at once: it reads from a pipe that nobody
else writes to.
"""

from __future__ import annotations

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
from types import FrameType
from typing import Any, Generic, TypeVar

from mtkit.errors import LostWorkerError, MtkitError

Item = TypeVar("Item")
Result = TypeVar("Result")

# Items that a worker has at a time: one that it works on, and one to go on with at once.
_AT_A_TIME = 2
# Items that are not worth a process, which takes half a second to start.
_FEW = 2
# How a process ends that is asked for processes while it is being started: the main script, which
# it imports, works when it is imported. Neither Python nor a shell gives this status.
_IMPORTING = 86
# Seconds until a worker that has closed its pipe has ended.
_PATIENCE = 5.0

_spawn = multiprocessing.get_context("spawn")


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def malloc_trim() -> None:
    """Return to the system what was freed, where its C library keeps it (glibc does)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], *, workers: int
) -> Iterator[tuple[Item, Result]]:
    """Each item with the function's result for it, in the order of the items.

    No more items are taken than are worked on, so memory is bounded however many there are. With
    one worker, or one or two items, all is done in this process.

    Args:
        function: sent to each worker once. It may keep what it likes between items, as long as
            its results do not depend on that.
        items: taken as they are needed.
        workers: processes.

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
        started.extend(Worker(function) for _ in range(workers))
        # Items go round, and so do their results: their order needs no other care.
        turns = itertools.cycle(started)
        sent: deque[Item] = deque()
        for item, worker in zip(
            itertools.islice(waiting, _AT_A_TIME * workers), itertools.cycle(started), strict=False
        ):
            worker.send(item)
            sent.append(item)
        while sent:
            worker = next(turns)
            result = worker.receive()
            if isinstance(result, Exception):
                raise result
            yield sent.popleft(), result
            for item in itertools.islice(waiting, 1):
                worker.send(item)
                sent.append(item)
    finally:
        for worker in started:
            worker.end()


class Worker(Generic[Item, Result]):
    """A process that applies a function, seen from the one that started it.

    Args:
        function: what to apply.
        what: the process is, where it is told that it was lost.
        advice: what needs less memory.

    Attributes:
        pipe: what its results come out of, to be waited for.
    """

    def __init__(
        self,
        function: Callable[[Item], Result],
        *,
        what: str = "a worker",
        advice: str = "fewer --workers need less",
    ) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            # Python would print a page of traceback here, and another where it was begun.
            os._exit(_IMPORTING)
        self._what = what
        self._advice = advice
        self.pipe, its_end = _spawn.Pipe()
        # Daemonic, so that Python ends it if nobody does.
        self._process = _spawn.Process(target=_serve, args=(its_end, function, what), daemon=True)
        # What is started with the first process would unblock the interrupt.
        resource_tracker.ensure_running()
        try:
            with _interrupt_delayed():
                self._process.start()
        except BrokenPipeError:
            raise self._lost() from None
        except BaseException:
            if self._process.pid is not None:
                # An interrupt came meanwhile, and who began this worker will never hold it.
                self.end()
            raise
        finally:
            # Its end is the only one then, and closes with it.
            its_end.close()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid or 0

    def send(self, item: Item) -> None:
        """Hand it something to do.

        Raises:
            LostWorkerError: if it has ended.
        """
        try:
            self.pipe.send(item)
        except OSError:
            raise self._lost() from None

    def receive(self) -> Result | Exception:
        """Its next result, or what the function raised.

        Raises:
            LostWorkerError: if it has ended.
        """
        try:
            answer: Result | Exception = self.pipe.recv()
        except (OSError, EOFError):
            raise self._lost() from None
        return answer

    def end(self) -> None:
        """Kill it: it has nothing to lose."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self.pipe.close()

    def _lost(self) -> MtkitError:
        code = None
        if self._process.pid is not None:
            self._process.join(_PATIENCE)
            code = self._process.exitcode
        if code == _IMPORTING:
            return MtkitError(
                "this script starts workers when it is imported, and every worker imports it: "
                'put what it does under `if __name__ == "__main__":`'
            )
        how = f"status {code}"
        if code is None:
            how = "it closed its pipe"
        elif code < 0:
            how = f"killed by {signal.Signals(-code).name}"
        return LostWorkerError(
            f"{self._what} ended unexpectedly ({how}); if memory ran out, {self._advice}"
        )


def given_rank() -> int | None:
    """The rank that this process was started with; None if nobody started it among workers.

    Every question whether this is a worker is answered here.
    """
    if all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR")):
        return int(os.environ["RANK"])
    return None


def given_world_size() -> int:
    """How many processes were started together; 1 if nobody started this one among workers."""
    return 1 if given_rank() is None else int(os.environ["WORLD_SIZE"])


@contextmanager
def _interrupt_delayed() -> Iterator[None]:
    """Let Ctrl-C wait while a process is started, and keep it away from the new process.

    Ctrl-C is meant for the parent, which ends its workers. A blocked signal stays blocked in a new
    process, from its first moment on. Another thread of the parent may receive it all the same,
    and Python would then raise in the first thread, in the middle of what the new process reads.
    """
    received = False

    def wait(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received = True

    # Only the first thread may set a handler, and only there Python raises. A handler that was not
    # set from Python, None here, could not be put back.
    is_first = threading.current_thread() is threading.main_thread()
    replaced = is_first and signal.getsignal(signal.SIGINT) is not None
    handler = signal.signal(signal.SIGINT, wait) if replaced else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        if received:
            signal.raise_signal(signal.SIGINT)


def _serve(pipe: Connection[Any, Any], function: Callable[[Any], Any], what: str) -> None:
    """Apply the function to what comes out of the pipe; its end is the process's."""
    items: queue.SimpleQueue[Any] = queue.SimpleQueue()
    # A thread reads, so that it is noticed at once when the parent is gone, and the parent never
    # waits with an item for one who waits with a result.
    threading.Thread(target=_read_items, args=(pipe, items), daemon=True).start()
    while True:
        item = items.get()
        answer: Any
        try:
            answer = function(item)
        except MtkitError as error:
            answer = error
        except Exception:
            # Not every exception can be sent; its text can.
            answer = RuntimeError(f"in {what}:\n\n{traceback.format_exc()}")
        try:
            pipe.send(answer)
        except OSError:
            os._exit(0)  # nobody is there to answer to


def _read_items(pipe: Connection[Any, Any], items: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            items.put(pipe.recv())
    finally:
        os._exit(0)
