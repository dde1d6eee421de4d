"""Programs in processes of their own, without waiting for each to import PyTorch.

They are forked from a process that has imported everything; a fresh one would spend most of the
time of a test on that.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

# What the programs import on their way too, so that not every one does.
LIBRARIES = ["worker", "torch._dynamo", "matplotlib.figure", "matplotlib.backends.backend_svg"]
LIBRARIES += ["tensorboardX.proto.event_pb2", "tensorboardX.record_writer"]


class Forked:
    """A function in a process of its own, to be used as a `subprocess.Popen`.

    Args:
        function: of a module.
        arguments: of it.
        environment: what it finds in its environment besides what is there anyway.
        err: a file for its standard error; by default it goes where that of the tests goes.
    """

    def __init__(
        self,
        function: Callable[..., None],
        *arguments: Any,
        environment: Mapping[str, str] | None = None,
        err: Path | None = None,
    ) -> None:
        self._err = err
        whole = (function, arguments, dict(environment or {}), err)
        self._process = _context().Process(target=_call, args=whole)
        self._process.start()

    @property
    def returncode(self) -> int | None:
        """The exit status, or the signal below zero; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int | None:
        """The exit status, once it has ended."""
        self._process.join(timeout)
        if self._process.is_alive():
            raise subprocess.TimeoutExpired(str(self._process), timeout)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Nothing, and what it has said, once it has ended."""
        self.wait(timeout if timeout is not None else 60.0)
        return b"", self._err.read_bytes() if self._err else b""

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()


def _context() -> ForkServerContext:
    """Where the processes come from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    given = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return context


def _call(
    function: Callable[..., None],
    arguments: tuple[Any, ...],
    environment: dict[str, str],
    err: Path | None,
) -> None:
    os.environ.update(environment)
    if err is not None:
        with err.open("wb") as file:
            os.dup2(file.fileno(), 2)
    function(*arguments)
