"""The memory of a training: a forecast from the shapes of its tensors, and checks before it begins.

The checks are made before the first update, so that memory does not run out hours later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from mtkit.base import devices
from mtkit.base.errors import MtkitError
from mtkit.base.memory import is_out_of_memory, memory_explained
from mtkit.batches import TokenBatches
from mtkit.config import Config
from mtkit.data import IntArray, PreparedData, SentencePairs
from mtkit.model import Transformer
from mtkit.tokenizer import PAD_ID
from mtkit.train.distributed import Workers
from mtkit.train.gradients import Gradients
from mtkit.train.micro_batches import DEFAULT_DEVICE_TOKENS, Pass, padded_tokens
from mtkit.train.parameters import TrainedParameters

log = logging.getLogger(__name__)

# Of a process that has loaded PyTorch.
_PROCESS = 2**28
# What a layer keeps of a token until its gradients are computed: of the two stacks, in units of
# `d_model`, and of both in units of `d_ff`. Counted on a CPU, for widths of 64 to 128.
_BYTES_OF_TOKEN = {"bf16": (42, 79, 2), "fp32": (47, 87, 4)}


class MemoryForecast(NamedTuple):
    """The memory of a training, in bytes.

    Attributes:
        parameters: the number of weights.
        weights: float32.
        gradients: of all weights that change; of LoRA, of its matrices.
        optimizer: Adam's two moments of what is trained, and what LoRA and the moving average keep.
            Muon needs at most as much.
        computing: weights in bf16, and what the layers keep of a pass.
        copies: of weights and optimizer, from which a checkpoint is written; on a CPU the weights
            of the native engine, in a validation, are no more.
    """

    parameters: int
    weights: int
    gradients: int
    optimizer: int
    computing: int
    copies: int

    @property
    def state(self) -> int:
        """What stays from the first update to the last, and its gradients."""
        return self.weights + self.gradients + self.optimizer

    def peak(self, device_type: str) -> int:
        """At its highest; on a GPU without the memory of the host."""
        if device_type == "cuda":
            return self.state + self.computing
        updating = self.weights + self.optimizer + max(self.gradients + self.computing, self.copies)
        # At the start there are two copies of the weights.
        return _PROCESS + max(2 * self.weights, updating)


def gigabytes(count: float) -> str:
    """A number of bytes, such as "1.50 GiB"."""
    return f"{count / 2**30:.2f} GiB"


def sizes_of(data: PreparedData) -> tuple[int, int | None]:
    """The number of subwords of the target, and of the source if it has its own."""
    vocabularies = data.tokenizers()
    return len(vocabularies.tgt), vocabularies.own_src_size


def memory_in_words(config: Config, sizes: tuple[int, int | None]) -> str:
    """The memory of a training on a CPU, and on a GPU, and what it is for."""
    cpu, gpu = (memory_forecast(config, sizes, device) for device in ("cpu", "cuda"))
    parts = {"weights": cpu.weights, "gradients": cpu.gradients, "optimizer": cpu.optimizer}
    parts["a pass"] = cpu.computing
    named = ", ".join(f"{name} {count / 2**30:.2f}" for name, count in parts.items())
    return (
        f"memory: about {gigabytes(cpu.peak('cpu'))} on a CPU ({named}; or copies for a checkpoint "
        f"{cpu.copies / 2**30:.2f}), {gigabytes(gpu.peak('cuda'))} on a GPU"
    )


def memory_forecast(
    config: Config, sizes: tuple[int, int | None], device_type: str
) -> MemoryForecast:
    """What one worker needs, if it computes one pass at a time; `sizes` as of `sizes_of`.

    Raises `MtkitError` if `train.freeze` or `train.lora_matrices` do not fit the model.
    """
    settings, shape = config.train, config.model
    size, src_size = sizes
    with torch.device("meta"):
        model = Transformer(shape, size, PAD_ID, src_size)
        trained = TrainedParameters(model, settings)
    count = sum(parameter.numel() for parameter in model.parameters())
    changing = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    kept = sum(tensor.nbytes for _, tensor in trained.state())
    limit = str(settings.device_batch_tokens or DEFAULT_DEVICE_TOKENS[device_type])
    tokens = settings.batch_tokens
    if limit != "auto":
        tokens = min(tokens, int(limit.removeprefix("auto:")))
    precision = settings.precision
    if precision == "auto":
        # GPUs have it since 2020.
        on_cpu = device_type == "cpu"
        precision = devices.choose_precision("auto", torch.device("cpu")) if on_cpu else "bf16"
    encoder, decoder, inner = _BYTES_OF_TOKEN[precision]
    layers = shape.encoder_layers + shape.decoder_layers
    of_token = shape.d_model * (encoder * shape.encoder_layers + decoder * shape.decoder_layers)
    of_token += inner * layers * shape.d_ff
    return MemoryForecast(
        parameters=count,
        weights=4 * count,
        gradients=4 * changing,
        optimizer=8 * trained.count + kept,
        computing=tokens * of_token + (2 * count if precision == "bf16" else 0),
        copies=4 * count + 8 * trained.count + kept,
    )


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
        micro_batches.limit = tokens
        micro_batches.choose(batches, workers.world_size)
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
