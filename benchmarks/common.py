"""What the benchmarks share: other toolkits, turns, ratios, and versions.

Each toolkit gets an environment of its own under a folder of choice, all of them with the torch
that mtkit has here. A worker is one process, pinned to its cores, that is asked by lines of JSON
and answers likewise. Only one worker computes at a time. They take turns: A B C, C B A, and so on.

Workers import this module in every environment, so it needs nothing but Python.
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
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Those of mtkit.tokenizer, which the environments of the other toolkits do not have.
PAD, BOS, EOS, UNK = range(4)


@dataclass(frozen=True)
class Toolkit:
    """What an environment is made of.

    Attributes:
        title: in tables.
        package: with its version; installed without its requirements, which pin an old torch or
            bring what nobody needs here. None for what is where mtkit is, except for torch.
        needs: what it cannot be imported without, torch and numpy excepted.
        first: must be installed before anything else.
    """

    title: str
    package: str | None = None
    needs: str = ""
    first: str = ""


TOOLKITS = {
    "mtkit": Toolkit("mtkit"),
    "mtkit-fp32": Toolkit("mtkit in float32"),
    "mtkit-torch": Toolkit("mtkit with PyTorch"),
    "ctranslate2": Toolkit("CTranslate2"),
    "torch": Toolkit("torch.nn.Transformer, plain loop"),
    "torch-bf16": Toolkit("torch.nn.Transformer, plain loop in bf16"),
    "marian": Toolkit(
        "Hugging Face MarianMT",
        "transformers==5.23.0",
        "huggingface-hub>=1.31,<3 packaging pyyaml regex safetensors tokenizers>=0.23.1,<0.24 tqdm",
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
    package = (TOOLKITS[name].package or name.partition("-")[0]).partition("==")[0]
    if package == "mtkit":
        import mtkit  # need not be installed

        return mtkit.__version__
    return importlib.metadata.version(package)


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
        script: that runs as a worker when it is called with `--worker NAME SETTING`.
        setting: the argument SETTING, as JSON.
        peers: folder of the environments and of the logs.
        threads: number of threads, and of cores that it is pinned to where the system can.

    Raises:
        LeftOutError: if it does not start.
    """

    def __init__(
        self, name: str, *, script: str, setting: dict[str, Any], peers: Path, threads: int
    ) -> None:
        variables = os.environ | {"OMP_NUM_THREADS": str(threads)}
        variables |= {"MKL_NUM_THREADS": str(threads), "PYTHONNOUSERSITE": "1"}
        if not name.startswith("mtkit"):
            variables.pop("PYTHONPATH", None)
        peers.mkdir(parents=True, exist_ok=True)
        python, cores = python_of(name, peers.resolve()), last_cores(threads)
        log = peers / f"{name}-{Path(script).stem}.log"
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
# Turns


@dataclass
class Row:
    """What is known of one toolkit.

    Attributes:
        facts: version, and what to know about it.
        rounds: of each, what the worker's `race` returned: at least `seconds`, `cpu_seconds` (that
            the CPU worked for it, which other load on the machine hardly changes), `tokens` and
            `peak_bytes`.
        answers: what else the worker returned, in order.
    """

    facts: dict[str, Any]
    rounds: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)

    def all(self, key: str) -> list[float]:
        """A number of each round."""
        return [measurement[key] for measurement in self.rounds]

    def speeds(self) -> list[float]:
        """Tokens per second, of each round."""
        return [measurement["tokens"] / measurement["seconds"] for measurement in self.rounds]

    @property
    def peak(self) -> str:
        """The most memory it had."""
        bytes_ = self.rounds[-1]["peak_bytes"] if self.rounds else None
        return "–" if bytes_ is None else f"{bytes_ / 2**20:,.0f} MiB"


class Race:
    """Workers that take turns.

    Attributes:
        rows: by name, in the order of the table.
        left_out: by name, why a toolkit is not in the table.
    """

    def __init__(self, names: Sequence[str], start: Callable[[str], Process]) -> None:
        self._processes: dict[str, Process] = {}
        self.rows: dict[str, Row] = {}
        self.left_out: dict[str, str] = {}
        for name in names:
            with self._may_drop_out(name):
                process = self._processes[name] = start(name)
                self.rows[name] = Row(process.facts)

    def __enter__(self) -> Race:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes.values():
            process.close()

    def ask(self, do: str, **arguments: Any) -> None:
        """Have a method of every worker called."""
        for name, row in list(self.rows.items()):
            with self._may_drop_out(name):
                row.answers.append(self._processes[name].ask(do, **arguments))

    def run(self, rounds: int, **arguments: Any) -> None:
        """Time everyone, in turns."""
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
            names = list(self.rows)
            for name in names if number % 2 == 0 else reversed(names):
                with self._may_drop_out(name):
                    timed = self._processes[name].ask("race", **arguments)
                    self.rows[name].rounds.append(timed)

    def ratio(self, name: str, key: str = "seconds", *, ours: str = "mtkit") -> str:
        """How many times as fast mtkit is: median and range of the paired rounds."""
        if ours == name or ours not in self.rows:
            return "1" if ours == name else "–"
        pairs = zip(self.rows[ours].all(key), self.rows[name].all(key), strict=True)
        return spread([theirs / mine for mine, theirs in pairs], ".2f")

    def notes(self) -> list[str]:
        """A line for each toolkit."""
        facts = {name: row.facts["note"] for name, row in self.rows.items()}
        facts |= {name: f"left out: {reason}" for name, reason in self.left_out.items()}
        return [f"- {TOOLKITS[name].title}: {note}" for name, note in facts.items()]

    @contextlib.contextmanager
    def _may_drop_out(self, name: str) -> Iterator[None]:
        try:
            yield
        except LeftOutError as error:
            print(f"{TOOLKITS[name].title}: left out: {error}", file=sys.stderr)
            self.left_out[name] = str(error)
            self.rows.pop(name, None)
            if name in self._processes:
                self._processes.pop(name).close()


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


@contextlib.contextmanager
def clock(result: dict[str, Any]) -> Iterator[None]:
    """Write into `result` how many seconds the block took, and the most memory so far."""
    started, worked = time.perf_counter(), time.process_time()
    yield
    result |= {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - worked,
        "peak_bytes": peak_bytes(),
    }


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


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def versions() -> str:
    """mtkit, torch and Python, and the processor with its load."""
    named = [f"{name} {version_of(name)}" for name in ("mtkit", "torch")]
    named += [f"Python {platform.python_version()}", processor()]
    return ", ".join([*named, f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"])
