"""Decodes in several worker processes.

`Pool` has the interface of `decoder.Decoder` and sends batches to worker processes. On a CPU the
workers share the memory of the packed weights. Each worker creates its own 8-bit weights, or its
own copy on a GPU, from the shared weights.

A worker ends at once when its parent ends, because then its input pipe is closed. If a worker is
lost, this is reported in one line, and all other workers are ended.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from multiprocessing import reduction
from multiprocessing.connection import wait
from typing import Any, Self

import torch
from torch import Tensor, nn

from mtkit.base.devices import Precision, choose_precision, prepare_gpu, select_matmul_backend
from mtkit.base.errors import MtkitError
from mtkit.base.memory import disable_malloc_trim
from mtkit.base.processes import Worker
from mtkit.config import DecodeConfig, ModelConfig
from mtkit.model import Transformer
from mtkit.parsing import Task
from mtkit.tokenizer import PAD_ID, Tokenizer
from mtkit.translate.decoder import Decoder
from mtkit.translate.linear import pack_weights, weight_places
from mtkit.translate.requests import BaseDecoder, PendingBatch, Sentence, Translation

CPU = torch.device("cpu")
# Sentences of a batch, and how many translations of each are wanted.
_Request = tuple[Sequence[Sentence], int]

# Batches that a worker has at a time: the one that it decodes, and the next one.
_AT_A_TIME = 2
# Bytes to whose multiples weights are aligned: a cache line.
_ALIGNMENT = 64


class Pool(BaseDecoder):
    """Decodes in worker processes, which are started when there are batches.

    A new process imports the main script again, as always with Python's `spawn`: a script that
    creates a pool must do so under `if __name__ == "__main__":`.

    Threads may share a pool; only one at a time receives results.

    Args:
        models: on the CPU, in evaluation mode, not packed. They are changed in place: their
            weights are moved to shared memory, and for a CPU they are packed.
        tokenizer: of the target language of all models.
        devices: one for each worker.
    """

    def __init__(
        self,
        models: Sequence[Transformer],
        tokenizer: Tokenizer,
        config: DecodeConfig,
        *,
        devices: Sequence[torch.device],
        task: Task | None = None,
    ) -> None:
        precision = choose_precision(config.precision, devices[0], exact=True)
        on_cpu = devices[0].type == "cpu"
        # PyTorch cannot share the memory of packed 8-bit weights.
        prepared = on_cpu and precision != "int8"
        together = nn.ModuleList(models)
        if prepared:
            pack_weights(together, precision, CPU)
        self._setup = _Setup(
            [(model.config, model.src_vocab_size) for model in models],
            _shared(together, tokenizer.model),
            len(tokenizer.model),
            config,
            task,
            precision=precision,
            prepared=prepared,
            threads=max(1, torch.get_num_threads() // len(devices)),
            device=devices[0],
        )
        if on_cpu and not prepared:
            pack_weights(together, precision, CPU)
        self.capacity = _AT_A_TIME * len(devices)
        self.device_type = devices[0].type
        self._devices = devices
        self._workers: list[_Worker] = []
        self._queue: deque[PendingBatch] = deque()
        self._lock = threading.RLock()

    def begin(self, batches: Sequence[PendingBatch]) -> None:
        """Accept batches, to be decoded in this order, and start workers if there are too few."""
        with self._talking():
            self._queue.extend(batches)
            busy = sum(bool(worker.pending) for worker in self._workers)
            wanted = min(len(self._devices), busy + len(self._queue))
            while len(self._workers) < wanted:
                device = self._devices[len(self._workers)]
                self._workers.append(_Worker(replace(self._setup, device=device)))
            self._feed()

    def finish(self, pending: PendingBatch) -> list[list[Translation]]:
        """The translations of a batch.

        Raises:
            MtkitError: if a worker ended, or raised this error.
        """
        while not pending.is_done:
            with self._talking():
                if not pending.is_done:
                    self._receive(timeout=None)
        if pending.error is not None:
            raise pending.error
        assert pending.found is not None
        return pending.found

    def forget(self, pending: Sequence[PendingBatch]) -> None:
        """Cancel batches that no worker has yet."""
        with self._lock:
            self._queue = deque(batch for batch in self._queue if batch not in pending)

    def has_backlog(self, besides: Sequence[PendingBatch]) -> bool:
        """Whether every worker has two batches besides these."""
        with self._talking():
            self._receive(timeout=0)
            of_work = sum(not item.is_done for item in besides)
            ahead = len(self._queue) + sum(len(worker.pending) for worker in self._workers)
            return ahead - of_work >= self.capacity

    def close(self) -> None:
        """End the workers, even if they are busy; the next batch starts new ones.

        If another thread waits in `finish`, this waits until that returns.
        """
        with self._lock:
            self._stop(MtkitError("translating was stopped"))

    @property
    def processes(self) -> list[int]:
        """Ids of the running processes."""
        return [worker.pid for worker in self._workers]

    def _feed(self) -> None:
        """Send waiting batches to the workers that have the fewest."""
        while self._queue:
            worker = min(self._workers, key=lambda worker: len(worker.pending))
            if len(worker.pending) >= _AT_A_TIME:
                return
            # It stays in the queue until it is sent, so that it gets the error if sending fails.
            worker.send((self._queue[0].sentences, self._queue[0].n_best))
            worker.pending.append(self._queue.popleft())

    def _receive(self, timeout: float | None) -> None:
        """Receive all available answers; wait at most `timeout` seconds for the first one."""
        by_pipe: dict[Any, _Worker] = {w.pipe: w for w in self._workers if w.pending}
        if not by_pipe and timeout is None:
            raise RuntimeError("no worker has the batch that is waited for")
        for pipe in wait(list(by_pipe), timeout):
            answer = by_pipe[pipe].receive()
            batch = by_pipe[pipe].pending.popleft()
            if isinstance(answer, Exception):
                batch.error = answer
            else:
                batch.found = answer
        self._feed()

    def _stop(self, error: MtkitError) -> None:
        """End the workers; all pending batches get this error."""
        for worker in self._workers:
            self._queue.extend(worker.pending)
            worker.end()
        self._workers.clear()
        for pending in self._queue:
            pending.error = error
        self._queue.clear()

    @contextmanager
    def _talking(self) -> Iterator[None]:
        """Within it, only this thread communicates with the workers; an error ends them."""
        with self._lock:
            try:
                yield
            except MtkitError as error:
                self._stop(error)
                raise
            except BaseException:
                # For example an interrupt: an answer may have been read only in part.
                self.close()
                raise


class _Worker(Worker[_Request, list[list[Translation]]]):
    """The parent's view of a worker process, with its batches in order."""

    def __init__(self, setup: _Setup) -> None:
        super().__init__(
            setup,
            what="a translation worker",
            advice="fewer --workers or a smaller --batch-tokens need less",
        )
        self.pending: deque[PendingBatch] = deque()


# ---------------------------------------------------------------------------------------------
# In a worker


@dataclass(frozen=True)
class _Setup:
    """The settings of a worker; it decodes batches.

    It is small, because the parent waits until a new process has read it.

    `models` has the size of the source's own vocabulary beside each configuration, if it has one.
    `memory` has the weights of all models, in the order of `weight_places`, and then the vocabulary
    of this size in bytes.
    """

    models: list[tuple[ModelConfig, int | None]]
    memory: _Memory
    vocabulary: int
    decode: DecodeConfig
    task: Task | None
    precision: Precision
    prepared: bool
    threads: int
    device: torch.device

    def __call__(self, request: _Request) -> list[list[Translation]]:
        return self._decoder.decode(*request)

    @cached_property
    def _decoder(self) -> Decoder:
        torch.set_num_threads(self.threads)
        tokenizer = Tokenizer(self.memory.bytes[-self.vocabulary :].numpy().tobytes())
        with torch.device("meta"):
            models = [
                Transformer(config, len(tokenizer), PAD_ID, src_vocab_size)
                for config, src_vocab_size in self.models
            ]
        together = nn.ModuleList(models)
        if self.prepared:
            pack_weights(together, self.precision, CPU)
        _place(together, self.memory)
        if self.device.type == "cuda":
            prepare_gpu(self.device)
            torch.cuda.set_device(self.device)
        together.to(self.device).eval()
        if not self.prepared:
            pack_weights(together, self.precision, self.device)
        select_matmul_backend(self.device)
        disable_malloc_trim()
        decoder = Decoder(models, tokenizer, self.decode, device=self.device, task=self.task)
        decoder.weights = "the model"
        return decoder


# ---------------------------------------------------------------------------------------------
# Shared memory


class _Memory:
    """Memory that this process shares with those to which it sends this object.

    It is freed with the last of these processes. PyTorch would use /dev/shm, which is often too
    small in a container, and a process that writes to it is then killed.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)
        self.bytes = torch.frombuffer(mmap.mmap(descriptor, 0), dtype=torch.uint8)

    @classmethod
    def new(cls, size: int) -> Self:
        """New memory."""
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("mtkit")
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, size)
        return cls(descriptor)

    def __reduce__(self) -> tuple[Any, ...]:
        return _attached, (reduction.DupFd(self._descriptor),)


def _attached(descriptor: Any) -> _Memory:
    return _Memory(descriptor.detach())


def _shared(models: nn.Module, vocabulary: bytes) -> _Memory:
    """New shared memory with the weights of models, which are moved there, and a vocabulary."""
    weights = sum(_room(getattr(*place)) for place in weight_places(models))
    memory = _Memory.new(weights + len(vocabulary))
    _place(models, memory)
    memory.bytes[weights:] = torch.frombuffer(bytearray(vocabulary), dtype=torch.uint8)
    return memory


def _place(models: nn.Module, memory: _Memory) -> None:
    """Place the weights of models in shared memory; weights that exist are copied there."""
    start = 0
    for module, name in list(weight_places(models)):
        weight: Tensor = getattr(module, name)
        size = weight.numel() * weight.element_size()
        there = memory.bytes[start : start + size].view(weight.dtype).view(weight.shape)
        if not weight.is_meta:
            there.copy_(weight.detach())
        start += _room(weight)
        if isinstance(weight, nn.Parameter):
            there = nn.Parameter(there, requires_grad=False)
        setattr(module, name, there)


def _room(weight: Tensor) -> int:
    return math.ceil(weight.numel() * weight.element_size() / _ALIGNMENT) * _ALIGNMENT
