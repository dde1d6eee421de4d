"""The models of runs for PyTorch: loaded on a device, and what decodes with them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from mtkit import native
from mtkit.base.devices import (
    choose_device,
    choose_precision,
    describe_device,
    select_matmul_backend,
)
from mtkit.base.memory import disable_malloc_trim
from mtkit.checkpoint import Selection, load_into
from mtkit.model import Transformer
from mtkit.tokenizer import PAD_ID
from mtkit.translate.choosing import EngineChoice
from mtkit.translate.loading import LoadedRuns, note_weights
from mtkit.translate.pytorch.decoder import CPU, Torch
from mtkit.translate.pytorch.ensemble import NativeStep

log = logging.getLogger(__name__)


def load_torch(
    runs: LoadedRuns,
    checkpoint: str | Selection | None,
    choice: EngineChoice,
    *,
    device: str,
    workers: int | None = None,
) -> Torch:
    """The backend of runs; arguments and errors are as in `Translator.load`."""
    on_device = choose_device(device)
    _note_process(workers, on_device)
    models, descriptions = load_models(runs, checkpoint, on_device)
    if choice.model == "native":
        return with_native_steps(models, runs, descriptions, choice)
    if choice.precision == "bf16":
        choose_precision("bf16", on_device)  # It warns of a GPU without bf16.
        models = [model.to(torch.bfloat16) for model in models]
    backend = Torch(models, runs, on_device)
    return backend.described(descriptions, choice, describe_device(on_device))


def load_models(
    runs: LoadedRuns, checkpoint: str | Selection | None, device: torch.device = CPU
) -> tuple[list[Transformer], list[str]]:
    """The models of runs in evaluation mode, on a device, and descriptions of their weights."""
    models, descriptions = [], []
    for run in runs.folders:
        weights, description = run.select(checkpoint)
        with torch.device("meta"):
            src_size = runs.vocabularies.own_src_size
            model = Transformer(run.config.model, len(runs.vocabularies.tgt), PAD_ID, src_size)
        load_into(model, weights, of=run.path)
        note_weights(run, description)
        models.append(model.eval().to(device))
        descriptions.append(description)
    disable_malloc_trim()
    select_matmul_backend(device)
    return models, descriptions


def with_native_steps(
    models: Sequence[Transformer],
    runs: LoadedRuns,
    descriptions: Sequence[str],
    choice: EngineChoice,
) -> Torch:
    """PyTorch's search over models of the native engine, which have copies of the weights."""
    steps = [NativeStep(model, choice.precision) for model in models]
    backend = Torch(models, runs, steps=steps)
    return backend.described(descriptions, choice, native.kernels(choice.precision))


def _note_process(workers: int | None, device: torch.device) -> None:
    """Say that one process computes, if `workers` or the number of GPUs ask for more."""
    gpus = torch.cuda.device_count() if device.type == "cuda" else 1
    if (workers or gpus) > 1:
        log.log(
            logging.WARNING if workers else logging.INFO,
            "PyTorch translates in one process, on the CPU or one GPU, whatever --workers says; to "
            "use several GPUs, start one job for each with --shard I/N",
        )
