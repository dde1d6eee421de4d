"""The models of runs for PyTorch: loaded, prepared for fast decoding, and their decoder."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtkit import native
from mtkit.base.devices import (
    choose_device,
    choose_precision,
    describe_device,
    select_matmul_backend,
)
from mtkit.base.memory import disable_malloc_trim
from mtkit.checkpoint import Selection, load_into
from mtkit.config import DecodeConfig
from mtkit.kernels.loss import GPU_TILE
from mtkit.model import Transformer
from mtkit.parsing import Task
from mtkit.run_folder import Run
from mtkit.tokenizer import PAD_ID, Vocabularies
from mtkit.translate.choosing import (
    has_native_steps,
    in_results,
    native_precision,
    torch_precision,
)
from mtkit.translate.decoder import Decoder
from mtkit.translate.loading import note_weights
from mtkit.translate.native_step import NativeStep

log = logging.getLogger(__name__)


class TorchModels(NamedTuple):
    """Models in evaluation mode, and what decodes with them.

    Attributes:
        checkpoint: which weights of each run these are.
        device: where the models are.
        decoder: what decodes with them.
        engine: the engine in words.
        precision: of the results; see `in_results`.
    """

    models: list[Transformer]
    checkpoint: str
    device: torch.device
    decoder: Decoder
    engine: str
    precision: str


def load_models(
    runs: Sequence[Run],
    vocabularies: Vocabularies,
    checkpoint: str | Selection | None,
    config: DecodeConfig,
    *,
    device: str,
    workers: int | None = None,
    prepared: bool = True,
    task: Task | None = None,
) -> TorchModels:
    """The models of one run, or of an ensemble; arguments are those of `Translator.load`.

    Raises:
        MtkitError: if the checkpoint or the device does not exist.
    """
    on_device = choose_device(device)
    _note_process(workers, on_device)
    loaded = [_load(run, vocabularies, checkpoint) for run in runs]
    models = [model for model, _ in loaded]
    is_native = prepared and has_native_steps(config, on_device.type)
    precision: native.Precision = "fp32"
    if is_native:
        precision = native_precision(config.precision, exact=True)
    elif prepared:
        precision = choose_precision(torch_precision(config, on_device.type), on_device)
    engine = f"PyTorch, {precision}, {describe_device(on_device)}"
    together, steps = nn.ModuleList(models).to(on_device), []
    if is_native:
        steps = [NativeStep(model, precision) for model in models]
        engine = f"PyTorch with the native engine, {precision}, {native.kernels(precision)}"
    elif prepared and on_device.type != "cpu":
        pack_weights(together, precision)
    disable_malloc_trim()
    decoder = Decoder(models, vocabularies.tgt, config, device=on_device, task=task, steps=steps)
    decoder.weights = ", ".join(
        f"{run.path}, {of}" for run, (_, of) in zip(runs, loaded, strict=True)
    )
    select_matmul_backend(on_device)
    descriptions = ", ".join(description for _, description in loaded)
    named = in_results(precision, is_native=is_native)
    return TorchModels(models, descriptions, on_device, decoder, engine, named)


class PaddedLinear(nn.Module):
    """The output layer on a GPU: its matrix gets its rows of zeros once, and not at every step.

    The weight is (N, K).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self._size, self._bias = len(weight), bias
        self._padded = F.pad(weight.detach(), (0, 0, 0, -len(weight) % GPU_TILE))

    def forward(self, x: Tensor) -> Tensor:
        """(..., K) to (..., N)."""
        logits = F.linear(x, self._padded)[..., : self._size]
        return logits if self._bias is None else logits + self._bias


def pack_weights(model: nn.Module, precision: native.Precision) -> None:
    """Prepare a model on a GPU, in place, for fast decoding; it cannot be trained afterwards."""
    if precision == "bf16":
        model.to(torch.bfloat16)
    for module in model.modules():
        if isinstance(module, Transformer) and module.vocab_size % GPU_TILE:
            module.output = PaddedLinear(module.embedding.weight, module.output_bias)


def _note_process(workers: int | None, device: torch.device) -> None:
    """Say that one process computes, if `workers` or the number of GPUs ask for more."""
    gpus = torch.cuda.device_count() if device.type == "cuda" else 1
    if (workers or gpus) > 1:
        log.log(
            logging.WARNING if workers else logging.INFO,
            "PyTorch translates in one process, on the CPU or one GPU, whatever --workers says; to "
            "use several GPUs, start one job for each with --shard I/N",
        )


def _load(
    run: Run, vocabularies: Vocabularies, checkpoint: str | Selection | None
) -> tuple[Transformer, str]:
    """The model of a run, and a description of its weights."""
    weights, description = run.select(checkpoint)
    with torch.device("meta"):
        config, size = run.config.model, len(vocabularies.tgt)
        model = Transformer(config, size, PAD_ID, vocabularies.own_src_size)
    load_into(model, weights, of=run.path)
    note_weights(run, description)
    return model.eval(), description
