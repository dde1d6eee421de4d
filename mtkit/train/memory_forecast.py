"""The memory that a training needs, from the shapes of its tensors: nothing is loaded or built."""

from __future__ import annotations

from typing import NamedTuple

import torch

from mtkit.base.devices import choose_precision
from mtkit.config import Config
from mtkit.data import PreparedData
from mtkit.model import Transformer
from mtkit.tokenizer import PAD_ID
from mtkit.train.micro_batches import DEFAULT_DEVICE_TOKENS
from mtkit.train.parameters import TrainedParameters

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
        precision = choose_precision("auto", torch.device("cpu")) if on_cpu else "bf16"
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
