"""Distributed training: the workers, and all communication between them.

Workers are processes, one per GPU, or several on a CPU. `launch` starts them on this machine,
`torchrun` on several machines; `init_workers` finds the other workers by the usual environment
variables (RANK, WORLD_SIZE, MASTER_ADDR, …). All communication goes through `Workers`.
"""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from mtkit.base.errors import MtkitError
from mtkit.base.launched import given_rank
from mtkit.checkpoint import Tensors
from mtkit.train.launcher import PEER_LOST, TRANSIENT, end_with_parent, is_launched, tell_launcher

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule

T = TypeVar("T")

# How long the workers may take to join.
_RENDEZVOUS_TIMEOUT = datetime.timedelta(minutes=10)
# Between two agreements of the workers whether to stop.
_AGREEMENT_SECONDS = 1.0
# How long the first worker may work on its own while the others wait: in effect, without end.
_PATIENCE = datetime.timedelta(days=365)


class Workers:
    """The group of processes that train one model, as seen by one of them.

    Every worker must make the same calls in the same order.
    """

    def __init__(self, rank: int = 0, world_size: int = 1) -> None:
        self.rank = rank
        self.world_size = world_size
        self._sharded: FSDPModule | None = None
        # The same workers, with more time for each other.
        self._patient: dist.ProcessGroup | None = None

    @property
    def is_rank_zero(self) -> bool:
        """Whether this is the worker that writes and prints."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of the tensors of all workers, in place."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Whether the flag of any worker is set."""
        return bool(self.sum(torch.tensor(int(flag))))

    def barrier(self) -> None:
        """Return when all workers have called this."""
        self.any(False)

    def wait_for_rank_zero(self) -> None:
        """Return when all workers have called this, the first one after long work on its own.

        It needs a sharded model. The time limit of all other calls does not apply.
        """
        if self._patient is not None:
            dist.all_reduce(torch.zeros(1), group=self._patient)

    def gather(self, value: Any) -> list[Any]:
        """The values of all workers, in the order of ranks; JSON must be able to hold them."""
        if self.world_size == 1:
            return [value]
        # As JSON, because PyTorch would pickle.
        text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        lengths = torch.zeros(self.world_size, dtype=torch.int64)
        lengths[self.rank] = len(text)
        # A row for each worker, padded with zeros.
        rows = torch.zeros(self.world_size, int(self.sum(lengths).max()), dtype=torch.uint8)
        rows[self.rank, : len(text)] = text
        return [json.loads(bytes(row).rstrip(b"\0")) for row in self.sum(rows).tolist()]

    def run_on_all_ranks(self, action: Callable[[], T]) -> T:
        """The local result of the action, after it has succeeded on all workers.

        An `MtkitError` is raised on all workers, naming those where the action raised one.
        """
        if self.world_size == 1:
            return action()
        reason = None
        try:
            result = action()
        except MtkitError as error:
            reason = str(error)
        reasons = self.gather(reason)
        failed = [rank for rank, message in enumerate(reasons) if message is not None]
        if failed:
            who = "" if len(failed) == self.world_size else f"{worker_names(failed)}: "
            raise MtkitError(f"{who}{reasons[failed[0]]}")
        return result

    def of_rank_zero(self, action: Callable[[], Any]) -> Any:
        """The result of an action of the first worker, which JSON can hold; raises likewise."""
        own = self.run_on_all_ranks(lambda: action() if self.is_rank_zero else None)
        return self.gather(own)[0]

    def share_gradients(self, model: nn.Module) -> nn.Module:
        """The model with a backward pass that gives all workers the mean of all gradients (DDP)."""
        if self.world_size == 1:
            return model
        # One bucket size: by default the first bucket is smaller, and then sums would depend on how
        # often the buckets were filled before.
        return DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=25)

    def shard(
        self, model: nn.Module, layers: Iterable[nn.Module], *, dtype: torch.dtype | None = None
    ) -> nn.Module:
        """The model sharded over the workers: each holds a part of every layer (FSDP2).

        With a `dtype`, the workers send each other the layers in it, as autocast would convert
        them. All else stays as it is: norms, embeddings, and the sums of gradients.
        """
        if self.world_size == 1:
            raise MtkitError("train.fsdp: needs several workers; give --workers")
        # Imported here, because it takes a second and few runs need it.
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        if dtype is not None:
            # Together, because they are small.
            fully_shard([part for part in model.modules() if isinstance(part, nn.LayerNorm)])
        sums = None if dtype is None else torch.float32
        policy = MixedPrecisionPolicy(dtype, sums, cast_forward_inputs=False)
        for layer in layers:
            fully_shard(layer, mp_policy=policy)
        self._sharded = fully_shard(model)
        # The others are waited for here, with the usual limit.
        self.barrier()
        self._patient = dist.new_group(backend="gloo", timeout=_PATIENCE)
        return model

    @contextmanager
    def no_sync(self, parallel: nn.Module) -> Iterator[None]:
        """Within it, a backward pass adds up gradients locally, without communication."""
        if isinstance(parallel, DistributedDataParallel):
            with parallel.no_sync():
                yield
        elif self._sharded is not None:
            self._sharded.set_requires_gradient_sync(False)
            yield
            self._sharded.set_requires_gradient_sync(True)
        else:
            yield


class StopAgreement:
    """The agreement of the workers whether to stop after an update: a signal may reach only one.

    A single worker decides after every update. Several communicate only after as many updates as
    take about a second, so that even updates that become twice as slow end within two; and before
    and after something long, such as a validation, which follows `every` so many updates.
    """

    def __init__(
        self, workers: Workers, every: Sequence[int], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._workers, self._pauses, self._clock = workers, every, clock
        self._agreed_at = clock()
        # Updates since the last agreement, and from one to the next.
        self._updates, self._interval = 0, 1

    def reached(self, step: int, asked: bool) -> bool:
        """Whether all stop after this update; `asked` is whether this worker was asked to."""
        if self._workers.world_size == 1:
            return asked
        self._updates += 1
        is_near_pause = any((step + i) % every == 0 for every in self._pauses for i in (0, 1))
        if self._updates < self._interval and not is_near_pause:
            return False
        now = self._clock()
        # At most twice as many as before, because a GPU may be some updates behind the program.
        fit = int(self._updates * _AGREEMENT_SECONDS / max(now - self._agreed_at, 1e-6))
        interval = max(1, min(fit, 2 * self._interval))
        # The pace is that of the first worker, so that all count the same updates.
        mine = [int(asked), interval if self._workers.is_rank_zero else 0]
        stops, self._interval = self._workers.sum(torch.tensor(mine)).tolist()
        self._agreed_at, self._updates = now, 0
        return bool(stops)


def worker_names(ranks: Iterable[int]) -> str:
    """Such as "worker 1, worker 3"."""
    return ", ".join(f"worker {rank}" for rank in ranks)


def whole_state(
    model: nn.Module, *optimizers: torch.optim.Optimizer
) -> tuple[Tensors, dict[str, Tensors]]:
    """The full weights of a sharded model, and its optimizers' state by parameter name.

    The first worker gets them, on the CPU; the others get nothing.
    """
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights, state = get_state_dict(model, optimizers, options=options)
    return weights, state.get("state", {})  # type: ignore[return-value]


def load_whole_state(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    weights: Tensors,
    moments: Mapping[str, Tensors],
) -> None:
    """Load the result of `whole_state` into a sharded model; every worker has all of it."""
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
def init_workers(device: torch.device, *, stall_timeout: float) -> Iterator[Workers]:
    """The group of workers of this process; only itself if it was started alone.

    Raises:
        TransientError: if the workers cannot join each other.
        PeerLostError: if another worker is lost.
        StallError: if one has to be waited for longer than `stall_timeout` seconds.
    """
    rank = given_rank()
    if rank is None:
        yield Workers()
        return
    workers = Workers(rank, int(os.environ["WORLD_SIZE"]))
    if is_launched():
        end_with_parent()
    try:
        store: Store = next(rendezvous("env://", timeout=_RENDEZVOUS_TIMEOUT))[0]
        store.set(f"here/{rank}", "")
        store.wait([f"here/{other}" for other in range(workers.world_size)], _RENDEZVOUS_TIMEOUT)
    except (dist.DistError, RuntimeError, ValueError) as error:
        raise TransientError(f"rendezvous of the workers failed: {_first_line(error)}") from error
    # Gloo is used for CPU tensors, also between workers with GPUs.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    try:
        dist.init_process_group(
            backend,
            store=PrefixStore("group", store),
            rank=rank,
            world_size=workers.world_size,
            # Gloo then raises an error; NCCL ends the process, with its own message before that.
            timeout=datetime.timedelta(seconds=stall_timeout),
        )
        yield workers
        dist.destroy_process_group()
    except MtkitError as error:
        if workers.world_size > 1:
            error.reported = _was_reported(what_happened(str(error), rank), store)
        raise
    except RuntimeError as error:
        if workers.world_size > 1 and _is_about_others(error):
            if "timed out" in str(error).lower():
                raise StallError(rank, workers.world_size, stall_timeout) from error
            raise PeerLostError(rank, _first_line(error)) from error
        raise


class TransientError(MtkitError):
    """An error that may not occur again after a restart."""

    status = TRANSIENT


class PeerLostError(MtkitError):
    """Another worker was lost, so this one cannot continue; the other one's message says why."""

    status = PEER_LOST

    def __init__(self, rank: int, how: str) -> None:
        super().__init__(f"worker {rank}: lost contact with the other workers ({how})")
        # One line per machine is enough; `launch` prints it if there is no other error.
        self.reported = is_launched() or os.environ.get("LOCAL_RANK", "0") != "0"
        tell_launcher(self)


class StallError(MtkitError):
    """Another worker does not do its part, so this one waited for it in vain."""

    status = TRANSIENT

    def __init__(self, rank: int, world_size: int, seconds: float) -> None:
        other = f"worker {1 - rank}" if world_size == 2 else "another worker"
        super().__init__(
            f"worker {rank}: waited {seconds:g} seconds (train.stall_timeout) for {other}"
        )
        self.reported = is_launched()
        tell_launcher(self)


def what_happened(message: str, rank: int) -> str:
    """The part of an error that is the same on all workers; they may see other checkpoints."""
    return message.partition(";")[0].replace(f" on worker {rank}", "")


def _was_reported(message: str, store: Store) -> bool:
    """Whether another worker has reported the same error, for example wrong settings."""
    try:
        return store.add(f"reported/{message}", 1) > 1
    except (dist.DistError, RuntimeError):
        # The first worker holds the store; it has ended, and has reported its error.
        return True


def _is_about_others(error: RuntimeError) -> bool:
    if isinstance(error, dist.DistError):
        return True
    text = str(error)
    return "gloo" in text or "NCCL" in text or "Connection closed by peer" in text


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
