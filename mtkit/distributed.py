"""Where a run works: devices, arithmetic, and the workers that train one model together.

Workers are processes, one per GPU, or some on a CPU. `launch` starts them on this machine through
PyTorch's elastic engine, and `torchrun` starts them on several; either way `joined` finds the
others by the usual environment variables (RANK, WORLD_SIZE, MASTER_ADDR, …). Everything they say
to each other goes through `Workers`.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from mtkit.errors import MtkitError

log = logging.getLogger(__name__)

Precision = Literal["auto", "fp32", "bf16"]
Tensors = dict[str, Tensor]

# Exit statuses of a worker, besides those of every command, for `launch` to act on.
BROKEN = 70  # something that may go well the next time: a traceback, a stall
LEFT_ALONE = 75  # another worker went away first
_LAUNCHED = "MTKIT_LAUNCHED"


# ---------------------------------------------------------------------------------------------
# Devices and arithmetic


def choose_device(name: str) -> torch.device:
    """The device for `auto`, `cpu` or `cuda`; `auto` takes a GPU if there is one.

    Of several workers on a machine, each gets its own GPU.

    Raises:
        MtkitError: if `cuda` is asked for and there is none.
    """
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise MtkitError("--device cuda: PyTorch sees no CUDA device; use --device cpu")
    if name == "cpu" or not available:
        return torch.device("cpu")
    if "LOCAL_RANK" not in os.environ:
        return torch.device("cuda")
    local_rank, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if local_rank >= gpus:
        raise MtkitError(f"worker {local_rank + 1} on this machine has no GPU; there are {gpus}")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def workers_wanted(device: str) -> int:
    """How many workers train if nobody says: one for each GPU, one on a CPU."""
    if device == "cpu" or not torch.cuda.is_available():
        return 1
    return torch.cuda.device_count()


def describe_device(device: torch.device) -> str:
    """A few words that name the device."""
    if device.type == "cuda":
        return f"GPU ({torch.cuda.get_device_name(device)})"
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"


def has_native_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 matrices in hardware."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    able = torch.cpu.get_capabilities()
    return any(able.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def choose_precision(wanted: Precision, device: torch.device) -> Literal["fp32", "bf16"]:
    """The arithmetic of matrix products; `auto` is bf16 where the hardware has it."""
    native = has_native_bf16(device)
    if wanted == "bf16" and not native:
        log.warning("this %s has no bf16 units: fp32 would be faster", device.type.upper())
    if wanted == "auto":
        return "bf16" if native else "fp32"
    return wanted


def arithmetic(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Within it, matrix products are in `precision`; weights and sums stay in float32."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def choose_matrix_route(device: torch.device) -> str:
    """Have float32 matrix products computed by the faster of PyTorch's two libraries.

    On AMD CPUs with AVX-512, MKL runs at less than half the speed of oneDNN. The switch is
    `torch.set_float32_matmul_precision("medium")`, which on some CPUs computes in bfloat16, so the
    result of one product decides: oneDNN stays only if it is as exact as float32 is.

    Returns:
        A few words for the log. The choice depends on the CPU alone, never on a clock, because a
        repeated run is to give the same weights.
    """
    if device.type != "cpu":
        return "cuBLAS"
    able = torch.cpu.get_capabilities()
    if "AMD" in str(able.get("cpu_name", "")) and able.get("avx512_f", False):
        torch.set_float32_matmul_precision("medium")
        generator = torch.Generator().manual_seed(1)
        x, y = (torch.randn(256, 256, generator=generator) for _ in range(2))
        exact = x.double() @ y.double().t()
        error = (nn.functional.linear(x, y) - exact).abs().max() / exact.abs().max()
        if error < 1e-6:
            return "oneDNN"
        torch.set_float32_matmul_precision("highest")
    return "MKL" if torch.backends.mkl.is_available() else "PyTorch's default"  # type: ignore[no-untyped-call]


def keep_freed_memory() -> None:
    """Have glibc keep large freed blocks instead of returning them to the system.

    A training step on a CPU frees and asks again for the same hundreds of megabytes. By default
    each of them comes back as fresh pages that the kernel must zero and map, which was a quarter
    of a step of the `small` preset. Other systems are left as they are.
    """
    if not sys.platform.startswith("linux"):
        return
    trim_threshold, mmap_max = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(mmap_max, 0)


# ---------------------------------------------------------------------------------------------
# Workers


class Workers:
    """The processes that train one model together, as one of them sees them.

    Every worker must make the same calls in the same order.

    Attributes:
        rank: of this process, from 0.
        size: how many there are.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size

    @property
    def first(self) -> bool:
        """Whether this is the worker that writes and prints."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of everybody's tensor, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Whether anybody's flag is set."""
        return bool(self.sum(torch.tensor(int(flag))))

    def wait(self) -> None:
        """Return when everybody is here."""
        self.any(False)

    def gather(self, value: Any) -> list[Any]:
        """Everybody's value, which JSON can hold, in the order of ranks."""
        if self.size == 1:
            return [value]
        # As JSON, because PyTorch would pickle.
        text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = len(text)
        self.sum(lengths)
        padded = nn.functional.pad(text, (0, int(lengths.max()) - len(text)))
        found = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(found, padded)
        return [
            json.loads(bytes(row[:length].tolist()))
            for row, length in zip(found, lengths.tolist(), strict=True)
        ]

    def share_gradients(self, model: nn.Module) -> nn.Module:
        """The model with a backward pass that leaves everybody the mean of all gradients."""
        if self.size == 1:
            return model
        # One size of bucket: by default the first is smaller, so that sums would depend on how
        # often the buckets were filled before.
        return DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=25)

    def shard(self, model: nn.Module, layers: Iterable[nn.Module]) -> nn.Module:
        """The model, each worker from now on holding a part of every layer (FSDP2)."""
        if self.size == 1:
            raise MtkitError("train.sharded: needs several workers; give --workers")
        for layer in layers:
            fully_shard(layer)
        fully_shard(model)
        return model

    def gradients_stay(self, parallel: nn.Module, *, stay: bool) -> AbstractContextManager[Any]:
        """Within it, a backward pass adds up gradients here without telling the others."""
        if isinstance(parallel, DistributedDataParallel):
            return parallel.no_sync() if stay else nullcontext()
        if self.size > 1:
            assert isinstance(parallel, FSDPModule)
            parallel.set_requires_gradient_sync(not stay)
        return nullcontext()


def whole_state(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[Tensors, dict[str, Tensors]]:
    """Weights of a sharded model, and its optimizer's state by parameter name, put together.

    The first worker gets them, on the CPU, and the others nothing.
    """
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights, state = get_state_dict(model, optimizer, options=options)
    return weights, state.get("state", {})  # type: ignore[return-value]


def load_whole_state(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    weights: Tensors,
    moments: Mapping[str, Tensors],
) -> None:
    """Give a sharded model what `whole_state` gave; every worker has read all of it."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

    groups = [{**group, "params": list(moments)} for group in optimizer.param_groups]
    set_state_dict(
        model,
        optimizer,
        model_state_dict=weights,  # type: ignore[arg-type]
        optim_state_dict={"state": dict(moments), "param_groups": groups},  # type: ignore[arg-type]
        options=StateDictOptions(full_state_dict=True),
    )


@contextmanager
def joined(device: torch.device) -> Iterator[Workers]:
    """The workers this process was started among; itself alone where nobody started others."""
    if "RANK" not in os.environ or "MASTER_ADDR" not in os.environ:
        yield Workers()
        return
    # Gloo carries what is said about tensors on the CPU, also between workers with GPUs.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    # Stalls are found by `Watch`, which can say whose they are.
    patience = datetime.timedelta(days=1)
    try:
        dist.init_process_group(backend, timeout=patience)
    except (dist.DistError, RuntimeError, ValueError) as error:
        raise MtkitError(f"the workers did not find each other: {_first_line(error)}") from error
    try:
        yield Workers(rank, size)
    except MtkitError as error:
        if size > 1:
            error.told = _was_told(str(error))
        raise
    except RuntimeError as error:
        if size > 1 and _is_about_others(error):
            raise LeftAloneError(rank) from error
        raise
    dist.destroy_process_group()


class LeftAloneError(MtkitError):
    """Another worker went away, and this one cannot go on; that one's message says why."""

    status = LEFT_ALONE

    def __init__(self, rank: int) -> None:
        super().__init__(f"worker {rank}: lost contact with the other workers")
        # One line for a machine is enough, and `launch` says more.
        self.told = is_launched() or os.environ.get("LOCAL_RANK", "0") != "0"


def _was_told(message: str) -> bool:
    """Whether another worker has met the same error and said so, as with wrong settings."""
    try:
        count: int = dist.distributed_c10d._get_default_store().add(f"told/{message}", 1)
    except (dist.DistError, RuntimeError):
        # The first worker keeps the store; it has ended, and not without a word.
        return True
    return count > 1


def is_worker() -> bool:
    """Whether this process is one of several workers."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


def is_launched() -> bool:
    """Whether `launch` started this process."""
    return _LAUNCHED in os.environ


def _is_about_others(error: RuntimeError) -> bool:
    if isinstance(error, dist.DistError):
        return True
    text = str(error)
    return "gloo" in text or "NCCL" in text or "Connection closed by peer" in text


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


class Watch:
    """Names the worker that stalls: each tells the first how far it is, once a second.

    A worker that is stopped or swapped out falls silent. One that hangs in its own work is silent
    about progress while the others report that they wait for it.

    Args:
        workers: all of them.
        patience: seconds without progress.
        interval: seconds between two reports.
    """

    def __init__(self, workers: Workers, *, patience: float, interval: float = 1.0) -> None:
        self._workers = workers
        self._patience = patience
        self._interval = min(interval, patience / 4)
        self._count = 0
        self._waiting = False
        self._parent = os.getppid()
        self._done = threading.Event()
        self._seen = {rank: _Seen() for rank in range(workers.size)}

    def __enter__(self) -> Watch:
        if self._workers.size > 1:
            # Two threads, because talking to a worker that is stopped may take for ever.
            threading.Thread(target=self._talk, name="talk", daemon=True).start()
        if self._workers.size > 1 or is_launched():
            threading.Thread(target=self._look, name="watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def progress(self) -> None:
        """Something was done."""
        self._count += 1
        self._waiting = False

    def waiting(self) -> None:
        """What comes next depends on the others."""
        self._count += 1
        self._waiting = True

    def _talk(self) -> None:
        """Report to the first worker, which hears of everybody; the others hear of it."""
        mine = self._workers.rank
        store: Any = dist.distributed_c10d._get_default_store().clone()  # type: ignore[attr-defined]
        others = [rank for rank in self._seen if self._workers.first or rank == 0]
        beats = 0
        while not self._done.wait(self._interval):
            beats += 1
            report = [beats, self._count, self._waiting, socket.gethostname()]
            try:
                store.set(f"watch/{mine}", json.dumps(report))
                for rank in others:
                    if rank == mine:
                        self._seen[rank].hear(report)
                    elif store.check([f"watch/{rank}"]):
                        self._seen[rank].hear(json.loads(store.get(f"watch/{rank}")))
            except (dist.DistError, RuntimeError):
                # The first worker, which keeps the store, has ended, and so will training.
                return

    def _look(self) -> None:
        """End the process when somebody has stalled, or has left it alone in the world."""
        while not self._done.wait(self._interval):
            if is_launched() and os.getppid() != self._parent:
                # Whoever started the workers was killed; nobody else would ever stop them.
                os.kill(os.getpid(), signal.SIGINT)
                return
            if self._workers.first:
                self._judge_all()
            elif self._workers.size > 1 and self._seen[0].silent_for() > self._patience:
                self._give_up("worker 0 has been silent", self._seen[0].silent_for())

    def _judge_all(self) -> None:
        if self._workers.size == 1:
            return
        for rank, record in self._seen.items():
            if record.silent_for() > self._patience:
                self._give_up(f"worker {rank}{record.place} has been silent", record.silent_for())
        stuck = min(record.stuck_for() for record in self._seen.values())
        if stuck > self._patience:
            working = [rank for rank, record in self._seen.items() if not record.waiting]
            names = ", ".join(f"worker {rank}{self._seen[rank].place}" for rank in working)
            if working:
                self._give_up(f"{names} made no progress, and the others wait,", stuck)
            self._give_up("all workers wait for each other", stuck)

    def _give_up(self, what: str, seconds: float) -> None:
        # The main thread may hang where no exception reaches it.
        message = f"{what} for {seconds:.0f} seconds (train.stall_timeout is {self._patience:g})"
        log.error("%s; stopping the run", message)
        sys.stderr.flush()
        os._exit(BROKEN)


class _Seen:
    """What was last heard of a worker, and when."""

    def __init__(self) -> None:
        self._beats = self._count = -1
        self._beat_at = self._moved_at = time.monotonic()
        self.waiting = False
        self.place = ""

    def hear(self, report: list[Any]) -> None:
        beats, count, self.waiting, host = report
        now = time.monotonic()
        if beats != self._beats:
            self._beats, self._beat_at = beats, now
        if count != self._count:
            self._count, self._moved_at = count, now
        self.place = "" if host == socket.gethostname() else f" on {host}"

    def silent_for(self) -> float:
        return time.monotonic() - self._beat_at

    def stuck_for(self) -> float:
        return time.monotonic() - self._moved_at


# ---------------------------------------------------------------------------------------------
# Starting workers on this machine


def launch(arguments: Sequence[str], count: int, *, max_restarts: int = 0) -> int:
    """Run `mtkit` with these arguments in `count` workers, again if they break down.

    Ctrl-C and SIGTERM are passed on to the workers, which save and stop.

    Args:
        arguments: of the command line.
        count: workers.
        max_restarts: how often to start them again; never after an error that the same command
            would meet again, which is one that comes with an explanation.

    Returns:
        The exit status. What went wrong was said by the worker, or is said here.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, start_processes

    # What it has to say is said below in one line.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    for attempt in range(max_restarts + 1):
        context = start_processes(
            name="mtkit",
            entrypoint=sys.executable,
            args=dict.fromkeys(range(count), ("-m", "mtkit", *arguments)),
            envs=_environments(count, attempt),
            logs_specs=DefaultLogsSpecs(redirects=Std.NONE),
        )
        with _passing_signals_on(context.pids) as stopped:
            result = context.wait(timeout=-1, period=0.1)
        assert result is not None  # it waits for ever
        context.close()
        if not result.failures:
            return 0
        # Whoever fails first takes the others with it, by a signal or because they are left alone.
        consequences = (-signal.SIGTERM, LEFT_ALONE)
        cause = min(
            result.failures.values(),
            key=lambda f: consequences.index(f.exitcode) + 1 if f.exitcode in consequences else 0,
        )
        if stopped or cause.exitcode in (1, 2, 130):
            return 130 if stopped and cause.exitcode < 0 else abs(cause.exitcode)
        what = f"worker {cause.local_rank} {_how(cause.exitcode)}"
        if attempt < max_restarts:
            log.warning(
                "%s; starting again from the last checkpoint (%d of %d)",
                what,
                attempt + 1,
                max_restarts,
            )
        else:
            log.error("%s; the same command goes on from the last checkpoint", what)
    return 1


def _environments(count: int, attempt: int) -> dict[int, dict[str, str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": str(attempt),
        _LAUNCHED: "1",
    }
    if "OMP_NUM_THREADS" not in os.environ:
        # By default every worker would take all cores.
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        common["OMP_NUM_THREADS"] = str(max(1, (cores or 1) // count))
    return {rank: {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)}


@contextmanager
def _passing_signals_on(pids: Callable[[], dict[int, int]]) -> Iterator[list[int]]:
    """Send workers SIGINT for every SIGINT or SIGTERM received, which are put into the list."""
    received: list[int] = []

    def pass_on(number: int, _: Any) -> None:
        received.append(number)
        for pid in pids().values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)

    previous = {
        number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _how(exitcode: int) -> str:
    if exitcode < 0:
        return f"was killed by {signal.Signals(-exitcode).name}"
    return "broke down" if exitcode == BROKEN else f"ended with status {exitcode}"
