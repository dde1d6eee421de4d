"""Programs in processes of their own, without waiting for each to import PyTorch.

They are forked from a process that has imported everything; a fresh one would spend most of the
time of a test on that.
"""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing import forkserver, reduction
from multiprocessing.context import ForkServerContext
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from unittest import mock

# What the programs import on their way too, so that not every one does.
LIBRARIES = ["conftest", "support.worker", "torch._dynamo", "jinja2", "sacrebleu", "portalocker"]
LIBRARIES += ["safetensors.torch", "matplotlib.figure", "matplotlib.backends.backend_svg"]
LIBRARIES += ["tensorboardX.proto.event_pb2", "tensorboardX.record_writer"]

PIPE = subprocess.PIPE


class Forked:
    """A function in a process of its own, to be used as a `subprocess.Popen`.

    Its standard streams are `PIPE`, a descriptor, or None, which is that of the tests; its standard
    input is then empty. `err` is a file for its standard error. The attributes `stdin`, `stdout`
    and `stderr` are the other ends of its pipes.
    """

    def __init__(
        self,
        function: Callable[..., None],
        *arguments: Any,
        environment: Mapping[str, str] | None = None,
        err: Path | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        self._err = err
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        given: dict[int, _Descriptor] = {}
        ours: list[int] = []
        for number, (name, stream) in enumerate(
            {"stdin": stdin, "stdout": stdout, "stderr": stderr}.items()
        ):
            if stream == PIPE:
                reader, writer = os.pipe()
                stream, other = (reader, writer) if number == 0 else (writer, reader)
                setattr(self, name, os.fdopen(other, "wb" if number == 0 else "rb"))
                ours.append(stream)
            if stream is not None:
                given[number] = _Descriptor(stream)
        whole = (function, arguments, dict(environment or {}), err, given)
        self._process = _context().Process(target=_call, args=whole)
        self._process.start()
        for descriptor in ours:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.kill()
        for stream in (self.stdout, self.stderr, self.stdin):
            if stream is not None:
                # It may not have read what was written last.
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self._process.join()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, or the signal below zero; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float) -> int | None:
        self._process.join(timeout)
        if self._process.is_alive():
            raise subprocess.TimeoutExpired(str(self._process), timeout)
        return self.returncode

    def communicate(
        self, input: bytes | None = None, timeout: float | None = None
    ) -> tuple[bytes, bytes]:
        """What it has written to its pipes, and to its file of errors, once it has ended."""
        output = {1: b"", 2: b""}

        def read(number: int, stream: IO[bytes]) -> None:
            output[number] = stream.read()

        threads = [
            threading.Thread(target=read, args=(number, stream), daemon=True)
            for number, stream in ((1, self.stdout), (2, self.stderr))
            if stream is not None
        ]
        for thread in threads:
            thread.start()
        if self.stdin is not None:
            # It may have ended, or not read everything.
            with contextlib.suppress(BrokenPipeError):
                self.stdin.write(input or b"")
                self.stdin.close()
        self.wait(timeout if timeout is not None else 60.0)
        for thread in threads:
            thread.join()
        return output[1], self._err.read_bytes() if self._err else output[2]

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


class _Descriptor:
    """A file descriptor that a new process gets."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __getstate__(self) -> Any:
        return reduction.DupFd(self.number)

    def __setstate__(self, state: Any) -> None:
        self.number = state.detach()


def run_mtkit(arguments: list[str], folder: Path | None = None) -> None:
    import torch

    from mtkit.__main__ import program

    if folder is not None:
        os.chdir(folder)
    torch.set_num_threads(1)
    sys.argv = ["mtkit", *arguments]
    program()


def _context() -> ForkServerContext:
    """Where the processes come from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    given = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    with mock.patch.dict(os.environ, given):
        forkserver.ensure_running()
    return context


def _call(
    function: Callable[..., None],
    arguments: tuple[Any, ...],
    environment: dict[str, str],
    err: Path | None,
    given: dict[int, _Descriptor],
) -> None:
    # Python does not say what could not be loaded before.
    assert "support.worker" in sys.modules
    os.environ.update(environment)
    if err is not None:
        with err.open("wb") as file:
            os.dup2(file.fileno(), 2)
    for number, descriptor in given.items():
        os.dup2(descriptor.number, number)
        os.close(descriptor.number)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if number in given:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    function(*arguments)
