"""The checks of the memory before the first update, so that it does not run out hours later."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from mtkit.base import devices
from mtkit.base.errors import MtkitError
from mtkit.base.memory import is_out_of_memory, memory_explained
from mtkit.batches import TokenBatches
from mtkit.config import Config
from mtkit.data import IntArray, PreparedData, SentencePairs
from mtkit.train.distributed import Workers
from mtkit.train.gradients import Gradients
from mtkit.train.memory_forecast import MemoryForecast, gigabytes, memory_forecast, sizes_of
from mtkit.train.micro_batches import Pass, padded_tokens

log = logging.getLogger(__name__)


def check_room(
    config: Config, data: PreparedData, device: torch.device, *, world_size: int
) -> MemoryForecast:
    """What a model needs; refuses, before anything is allocated, one larger than the memory.

    Raises:
        MtkitError: naming the needed and the available memory.
    """
    memory = memory_forecast(config, sizes_of(data), device.type)
    needed = memory.state
    if config.train.fsdp and device.type == "cuda":
        needed //= world_size
    available = devices.total_memory(device)
    if needed > available:
        raise MtkitError(
            f"a model of {memory.parameters:,} parameters needs {gigabytes(needed)} for weights, "
            f"gradients and optimizer, and {devices.describe_device(device)} has "
            f"{gigabytes(available)}; choose a smaller one (model.d_model, model.d_ff, the number "
            "of layers), or train less of it (train.freeze)"
        )
    return memory


class DoesNotFitError(MtkitError):
    """The largest micro-batch does not fit in memory, and one of `tokens` does."""

    def __init__(self, message: str, tokens: int) -> None:
        super().__init__(f"{message}; give --set train.device_batch_tokens={tokens}")
        self.tokens = tokens


def check_memory(
    gradients: Gradients, batches: TokenBatches, optimizer: torch.optim.Optimizer, *, where: str
) -> None:
    """Run the largest pass forward and backward, beside room for the optimizer's state.

    If several are computed at the same time, each thread computes the largest one as often as in
    an update, but at most twice. `where` follows "memory" in a message, such as " on worker 1".
    If it does not fit, `train.device_batch_tokens: auto` takes fewer tokens at a time.

    Raises:
        MtkitError: if it does not fit, with the setting to lower and a value that fits.
    """
    # Before the memory is limited, because the stacks of the threads may not fit within the limit.
    gradients.start_threads()
    moments = moments_to_come(optimizer)
    reserve = moments + _copied_bytes(gradients.model, optimizer)
    # On a GPU nothing can be reserved, so it is allocated.
    moments = moments if gradients.device.type == "cuda" else 0
    what = f"for the state of the optimizer{where}; choose a smaller model (model.d_model)"
    with memory_explained(what):
        held = torch.empty(moments, dtype=torch.uint8, device=gradients.device)
    with devices.limited_to_free_memory(gradients.device, reserve=reserve):
        if gradients.settings.has_auto_tokens:
            _lower_until_it_fits(gradients, batches)
        _try_largest(gradients, batches, where=where)
    del held


def moments_to_come(optimizer: torch.optim.Optimizer) -> int:
    """Bytes that the first update allocates for Adam's two moments; Muon needs at most as much.

    0 for a run that continues, which has them already.
    """
    if optimizer.state:
        return 0
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    # Of a sharded parameter a worker has a part.
    own = [p.to_local() if hasattr(p, "to_local") else p for p in parameters]
    return sum(2 * part.numel() * part.element_size() for part in own)


def _copied_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The size of the copies from which a checkpoint is written."""
    trained = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    copies = [*model.parameters(), *trained.values(), *trained.values()]
    # Of a matrix with a low-rank change, what it was before.
    copies += [p for p in model.parameters() if p.requires_grad and id(p) not in trained]
    return sum(int(parameter.nbytes) for parameter in copies)


def _lower_until_it_fits(gradients: Gradients, batches: TokenBatches) -> None:
    """Have all workers compute as many tokens at a time as fit on each of them."""
    micro_batches, workers, alone = gradients.micro_batches, gradients.workers, gradients
    if workers.world_size > 1:
        # Without gradients for workers that run out of memory, and would not send theirs.
        alone = replace(gradients, parallel=gradients.model, workers=Workers())

    def fitting() -> int:
        try:
            _try_largest(alone, batches, where="")
        except DoesNotFitError as error:
            return error.tokens
        return micro_batches.limit

    while (tokens := min(workers.gather(workers.run_on_all_ranks(fitting)))) < micro_batches.limit:
        micro_batches.lower(tokens, batches)
    if workers.is_rank_zero:
        log.info("train.device_batch_tokens: auto takes %s tokens at a time", f"{tokens:,}")


def _try_largest(gradients: Gradients, batches: TokenBatches, *, where: str) -> None:
    micro_batches, model = gradients.micro_batches, gradients.model
    indices, largest = micro_batches.largest(batches)
    at_once = micro_batches.at_once
    # The second pass of a thread is computed beside the gradients of its first.
    number = 2 * at_once if at_once > 1 else 1
    number = min(number, batches.per_update * micro_batches.per_batch)

    def fits(pairs: SentencePairs, some: IntArray) -> bool:
        """Whether a micro-batch can be computed alone."""
        loss = partial(gradients.translation_loss, model, pairs, some, label_smoothing=0.1)
        return _succeeds(lambda: torch.autograd.backward(loss()), model)

    model.train()
    # This is also the first exchange of gradients between workers.
    if _succeeds(lambda: gradients.add_up([Pass(0, [largest])] * number, step=0, tokens=1), model):
        return
    if at_once > 1 and fits(*largest):
        raise DoesNotFitError(
            f"{at_once} passes of {padded_tokens(*largest)} tokens at the same time do not "
            "fit in memory, one does",
            max(padded_tokens(*largest), micro_batches.grown_tokens(micro_batches.longest))
            if micro_batches.packed
            else micro_batches.most_tokens(batches),
        )
    for some in micro_batches.smaller(indices):
        if fits(*micro_batches.grown(some)):
            tokens = micro_batches.grown_tokens(padded_tokens(gradients.pairs, some))
            raise DoesNotFitError(
                f"a micro-batch of {padded_tokens(*largest)} tokens does not fit in "
                f"memory{where}, one of {tokens} does",
                tokens,
            )
    raise MtkitError(
        f"even the longest pair alone, {micro_batches.longest} tokens, does not fit in memory; "
        "use a smaller model (model.d_model), or a device with more memory"
    )


def _succeeds(compute: Callable[[], object], model: nn.Module) -> bool:
    """Whether there is memory to compute some gradients, which are deleted."""
    try:
        compute()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return False
    finally:
        model.zero_grad()
    return True
