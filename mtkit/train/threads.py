"""Several passes at a time, each on threads of its own.

PyTorch divides every operation among the threads of a CPU. In small passes the threads then wait
for each other most of the time. Here each thread computes whole passes, and the gradients are added
at the end. Which passes are added together, and in which order, is fixed, so a repeated run has the
same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Barrier, Event
from typing import TypeVar

import torch
from torch import Tensor, nn

from mtkit.base.memory import is_out_of_memory

T = TypeVar("T")
# Gives what is differentiated, and a result.
LossTask = Callable[[], tuple[Tensor, T]]
# Elements of a tensor that PyTorch divides among threads.
_LARGE = 2**18
# For each parameter; None is zero.
GradientList = list[Tensor | None]


class GradientThreads:
    """Threads that compute the gradients of several losses, by these parameters, at the same time.

    PyTorch's own threads are divided among them.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, count: int) -> None:
        self.count = count
        self._parameters = list(parameters)
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="gradients")
        total = torch.get_num_threads()

        def prepare() -> None:
            torch.set_num_threads(max(1, total // count))
            # A thread takes over the common number at its first operation, and starts the other
            # threads of its operations at the first large one.
            torch.zeros(_LARGE).exp()

        try:
            self._do_on_each(prepare)
        finally:
            # The caller's own number, and the common number for threads that start later.
            torch.set_num_threads(total)

    def _do_on_each(self, work: Callable[[], object]) -> None:
        """Do some work on each thread, after the tasks that it has begun."""
        ready = Barrier(self.count)

        def work_and_wait() -> None:
            work()
            ready.wait()

        futures: list[Future[None]] = []
        try:
            for _ in range(self.count):
                futures.append(self._pool.submit(work_and_wait))
            for future in futures:
                future.result()
        except BaseException:
            # Those that have started must not wait for the others.
            ready.abort()
            wait(futures)
            raise

    def differentiate(self, tasks: Sequence[LossTask[T]]) -> list[T]:
        """Add the gradients of all losses to those of the parameters.

        Each task computes a loss in one of the threads; their results are returned in their order.
        What a task raised is raised as soon as the tasks that were begun are done: `MemoryError` if
        memory ran out.
        """
        stop = Event()
        futures: list[Future[tuple[GradientList, list[T]]]] = []
        sums: list[tuple[GradientList, list[T]]] = []
        try:
            for first in range(min(self.count, len(tasks))):
                own = tasks[first :: self.count]
                futures.append(self._pool.submit(self._add_up, own, stop))
            wait(futures)
            while futures:
                # An error refers to this frame. If the frame referred to the error, through a
                # future, the memory of the failed task would stay until a garbage collection.
                sums.append(futures.pop(0).result())
        except BaseException:
            # Ctrl-C too: no thread may be at work after this. A future may be missing in the list.
            stop.set()
            self._do_on_each(lambda: None)
            futures.clear()
            raise
        results: list[T] = [None] * len(tasks)  # type: ignore[list-item]
        total: GradientList = [parameter.grad for parameter in self._parameters]
        for first, (gradients, some) in enumerate(sums):
            _add_to(total, gradients)
            results[first :: self.count] = some
        for parameter, gradient in zip(self._parameters, total, strict=True):
            parameter.grad = gradient
        return results

    def _add_up(self, tasks: Sequence[LossTask[T]], stop: Event) -> tuple[GradientList, list[T]]:
        """The summed gradients of some tasks, and their results; fewer after `stop`."""
        total: GradientList = [None] * len(self._parameters)
        results: list[T] = []
        try:
            for task in tasks:
                if stop.is_set():
                    break
                loss, result = task()
                _add_to(total, list(torch.autograd.grad(loss, self._parameters, allow_unused=True)))
                # The next task needs its memory.
                del loss
                results.append(result)
        except Exception as error:
            stop.set()
            # Decided here: when the caller handles the error, the memory is free again.
            if is_out_of_memory(error):
                raise MemoryError(str(error)) from error
            raise
        return total, results


def _add_to(total: GradientList, gradients: GradientList) -> None:
    """Add gradients to a total, one by one, and empty their list."""
    for place, gradient in enumerate(gradients):
        before = total[place]
        if gradient is not None:
            # Not in place: PyTorch may give the same tensor for two parameters.
            total[place] = gradient if before is None else before + gradient
        gradients[place] = None
