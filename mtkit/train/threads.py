"""Several micro-batches at a time, each on threads of its own.

PyTorch divides every operation among the threads of a CPU. In small micro-batches the threads then
wait for each other most of the time. Here each thread computes whole micro-batches, and the
gradients are added at the end. Which thread computes what, and the order of the sums, are fixed, so
a repeated run has the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Barrier
from typing import TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")
# Gives what is differentiated, and a result.
Task = Callable[[], tuple[Tensor, T]]
Gradients = list[Tensor | None]


class GradientThreads:
    """Threads that compute the gradients of several losses at the same time.

    Args:
        parameters: by which the losses are differentiated.
        count: of threads; PyTorch's own threads are divided among them.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, count: int) -> None:
        self.count = count
        self._parameters = list(parameters)
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="gradients")
        total = torch.get_num_threads()
        ready = Barrier(count)

        def prepare() -> None:
            torch.set_num_threads(max(1, total // count))
            # PyTorch takes the number for a thread when it is first needed there.
            torch.get_num_threads()
            ready.wait()

        for future in [self._pool.submit(prepare) for _ in range(count)]:
            future.result()
        # It is also that of the threads that start later.
        torch.set_num_threads(total)

    def differentiate(self, tasks: Sequence[Task[T]]) -> list[T]:
        """Set the gradients of the parameters to those of the sum of all losses.

        Args:
            tasks: each computes a loss, and is called in one of the threads.

        Returns:
            The results of the tasks, in their order.
        """
        futures = [
            self._pool.submit(self._add_up, tasks[first :: self.count])
            for first in range(min(self.count, len(tasks)))
        ]
        # An error must not leave a thread at work.
        wait(futures)
        results: list[T] = [None] * len(tasks)  # type: ignore[list-item]
        total: Gradients = [None] * len(self._parameters)
        for first, future in enumerate(futures):
            gradients, results[first :: self.count] = future.result()
            total = _sums(total, gradients)
        for parameter, gradient in zip(self._parameters, total, strict=True):
            parameter.grad = gradient
        return results

    def _add_up(self, tasks: Sequence[Task[T]]) -> tuple[Gradients, list[T]]:
        total: Gradients = [None] * len(self._parameters)
        results = []
        for task in tasks:
            loss, result = task()
            gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
            total = _sums(total, gradients)
            results.append(result)
        return total, results


def _sums(some: Sequence[Tensor | None], others: Sequence[Tensor | None]) -> Gradients:
    """The sums of two gradients for each parameter; None is zero."""
    # Not in place: PyTorch may give the same tensor for two parameters.
    return [
        b if a is None else a if b is None else a + b for a, b in zip(some, others, strict=True)
    ]
