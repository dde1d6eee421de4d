"""Other toolkits, each in an environment and a process of its own, for the benchmarks beside this.

An environment is made under a folder of choice, all of them with the torch that mtkit has here. A
process is one worker, pinned to its cores, asked by lines of JSON and answering likewise.

Workers import this in every environment, so it needs nothing but Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import json
import logging
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Toolkit:
    """What an environment is made of.

    Attributes:
        title: in tables.
        package: with its version; installed without its requirements, which pin an old torch or
            bring what nobody needs here. None for what is where mtkit is, except for torch.
        needs: what it cannot be imported without, torch and numpy excepted.
        first: what must be installed before anything else.
    """

    title: str
    package: str | None = None
    needs: str = ""
    first: str = ""


TOOLKITS = {
    "mtkit": Toolkit("mtkit"),
    "mtkit-fp32": Toolkit("mtkit in float32"),
    "ctranslate2": Toolkit("CTranslate2"),
    "torch": Toolkit("torch.nn.Transformer, plain loop"),
    "torch-bf16": Toolkit("torch.nn.Transformer, plain loop in bf16"),
    "marian": Toolkit(
        "Hugging Face MarianMT",
        "transformers==5.23.0",
        "huggingface-hub>=1.31,<3 packaging pyyaml regex safetensors tokenizers>=0.23.1,<0.24 tqdm",
    ),
    "joeynmt": Toolkit(
        "JoeyNMT",
        "joeynmt==2.3.0",
        "importlib-metadata matplotlib packaging pyyaml sentencepiece==0.2.0 subword-nmt "
        "tensorboard",
    ),
    "sockeye": Toolkit(
        "Sockeye",
        "sockeye==3.1.34",
        "pyyaml sacrebleu",
    ),
    "eole": Toolkit(
        "eole",
        "eole==0.6.4",
        "aiohttp configargparse fastapi huggingface-hub pillow pydantic pyonmttok>=1.38.1,<2 "
        "pyyaml requests rich sacrebleu safetensors sentencepiece<=0.2.2 six tokenizers "
        "torch-optimi uvicorn",
    ),
    "fairseq": Toolkit(
        "fairseq",
        "fairseq==0.12.2",
        "bitarray cffi cython hydra-core==1.0.7 omegaconf==2.0.6 pyyaml regex sacrebleu tqdm",
        # A newer one refuses the metadata of this omegaconf.
        first="pip<24.1",
    ),
}


# ---------------------------------------------------------------------------------------------
# The environments


class LeftOutError(Exception):
    """A toolkit cannot take part; the message is the reason, in one line."""


def python_of(name: str, peers: Path) -> Path:
    """The interpreter of a toolkit's own environment, made if it is not there yet.

    Raises:
        LeftOutError: if it cannot be installed.
    """
    if name == "torch-bf16":
        return python_of("torch", peers)
    toolkit, folder = TOOLKITS[name], peers / name
    if toolkit.package is None and name != "torch":
        return Path(sys.executable)
    python = folder / "bin" / "python"
    if name == "torch":
        # As here, whatever the build is called.
        versions = {key: importlib.metadata.version(key) for key in ("torch", "numpy")}
        steps = [[f"{key}=={version.partition('+')[0]}" for key, version in versions.items()]]
    else:
        python_of("torch", peers)
        steps = [toolkit.first.split(), ["--no-deps", str(toolkit.package)], toolkit.needs.split()]
    # Kept beside what it describes, so that another version is another environment.
    made, wanted = folder / "made-of.json", json.dumps(steps)
    if made.is_file() and made.read_text() == wanted:
        return python
    print(f"installing {toolkit.title}", file=sys.stderr)
    run([sys.executable, "-m", "venv", "--clear", str(folder)])
    if name != "torch":
        # One torch for all of them: what the other environment has is seen after what this has.
        shared = site_packages(peers / "torch" / "bin" / "python")
        (site_packages(python) / "torch.pth").write_text(f"{shared}\n")
    for step in steps:
        if step:
            run([str(python), "-m", "pip", "install", "--quiet", *step])
    made.write_text(wanted)
    return python


def version_of(name: str) -> str:
    """The version of a toolkit, in its own process."""
    package = TOOLKITS[name].package or name.partition("-")[0]
    return importlib.metadata.version(package.partition("==")[0])


def last_cores(number: int) -> list[int] | None:
    """Cores to pin a worker to; None where the system cannot."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    # The last ones: a system's own work tends to be on the first.
    cores = sorted(os.sched_getaffinity(0))[-number:]
    if len(cores) < number:
        sys.exit(f"{number} threads on as many cores: there are {len(cores)}")
    return cores


def site_packages(python: Path) -> Path:
    """Where an interpreter's packages are."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(run([str(python), "-c", code]).strip())


def run(command: list[str]) -> str:
    """What a command prints.

    Raises:
        LeftOutError: if it fails, with its last error.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise LeftOutError(one_line(error)) from error
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.lower().startswith("error")] or lines
        raise LeftOutError((errors or [f"exit status {done.returncode}"])[-1][:200])
    return done.stdout


class Process:
    """A worker, seen from the outside.

    Args:
        name: of its toolkit.
        python: the interpreter it runs with.
        script: that runs as a worker when it is called with `--worker NAME SETTING`.
        setting: the argument SETTING, as JSON.
        threads: to compute with.
        cores: that it may use; None where the system cannot pin.
        log: file for what it prints.
        extra: environment variables.

    Raises:
        LeftOutError: if it does not start.
    """

    def __init__(
        self,
        name: str,
        python: Path,
        *,
        script: str,
        setting: dict[str, Any],
        threads: int,
        cores: Sequence[int] | None,
        log: Path,
        extra: dict[str, str],
    ) -> None:
        variables = os.environ | extra | {"OMP_NUM_THREADS": str(threads)}
        variables |= {"MKL_NUM_THREADS": str(threads), "PYTHONNOUSERSITE": "1"}
        if not name.startswith("mtkit"):
            variables.pop("PYTHONPATH", None)
        with log.open("w") as stderr:
            self._process = subprocess.Popen(
                # -P: the modules beside this file are not for the toolkits to import.
                [str(python), "-P", script, "--worker", name, json.dumps(setting)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=variables,
                # Before anything is imported, so that every thread inherits it.
                preexec_fn=None if cores is None else lambda: os.sched_setaffinity(0, cores),
            )
        self._log = log
        self.facts = self._answer()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Have a method of the worker called, and wait for what it returns.

        Raises:
            LeftOutError: if it fails.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """Let it end."""
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            raise LeftOutError(f"ended with status {status}; see {self._log}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            self.close()
            raise LeftOutError(f"{answer['error']}; see {self._log}")
        return answer


# ---------------------------------------------------------------------------------------------
# In the worker


def serve(name: str, make: Callable[[], Any]) -> None:
    """Have the methods of what `make` returns called from standard input, until that ends.

    The first answer is its `facts`.
    """
    # What toolkits print must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(compute: Callable[[], dict[str, Any]]) -> bool:
        try:
            result = compute()
        except Exception as error:
            logging.exception(name)
            result = {"error": one_line(error)}
        answers.write(json.dumps(result) + "\n")
        return "error" not in result

    worker: Any = None

    def start() -> dict[str, Any]:
        nonlocal worker
        worker = make()
        facts: dict[str, Any] = worker.facts
        return facts

    if not answer(start):
        return
    for line in sys.stdin:
        request = json.loads(line)
        if not answer(functools.partial(getattr(worker, request.pop("do")), **request)):
            return


def one_line(error: BaseException) -> str:
    """An error as a reason in a list."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:200]


def malloc_trim() -> None:
    """Return what is free to the system, so that all toolkits fit into memory together."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def peak_bytes() -> int | None:
    """The most memory that this process has ever had, where Linux says so.

    Not `getrusage`: a process inherits that number from the one that started it.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


# ---------------------------------------------------------------------------------------------
# For tables


def spread(values: Sequence[float], form: str) -> str:
    """Median and range."""
    if not values:
        return "–"
    middle = format(statistics.median(values), form)
    if len(values) == 1:
        return middle
    return f"{middle} ({format(min(values), form)} to {format(max(values), form)})"


def processor() -> str:
    """The name of the CPU."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
