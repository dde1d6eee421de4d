"""Builds the parts of a training: data, model, optimizer, and what updates and validations need."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from mtkit.base import compiling, devices
from mtkit.base.errors import MtkitError
from mtkit.batches import TokenBatches
from mtkit.checkpoint import Tensors
from mtkit.config import Config, TrainConfig
from mtkit.data import PreparedData, SentencePairs
from mtkit.model import Transformer, parameter_counts
from mtkit.packing import leave_uncompiled
from mtkit.parsing import counted_words
from mtkit.tokenizer import PAD_ID, Vocabularies
from mtkit.train.distributed import Workers
from mtkit.train.gradients import Gradients
from mtkit.train.guided_alignment import GuidedAlignment
from mtkit.train.micro_batches import MicroBatches
from mtkit.train.optimizer import new_optimizer
from mtkit.train.parameters import TrainedParameters
from mtkit.train.validation import Validator


class Parts(NamedTuple):
    """The parts of a training.

    Attributes:
        matmul_backend: the library that multiplies matrices.
        facts: what the page of the run says about them, by its label.
    """

    precision: devices.Precision
    matmul_backend: str
    vocabularies: Vocabularies
    pairs: SentencePairs
    micro_batches: MicroBatches
    batches: TokenBatches
    model: Transformer
    trained: TrainedParameters
    optimizer: torch.optim.Optimizer
    gradients: Gradients
    validator: Validator
    facts: dict[str, str]


def build(
    config: Config,
    data: PreparedData,
    device: torch.device,
    *,
    workers: Workers,
    initial: Tensors | None = None,
) -> Parts:
    """Build the parts; arguments as for `Trainer`."""
    settings = config.train
    precision = devices.choose_precision(settings.precision, device)
    matmul_backend = devices.select_matmul_backend(device, precision)

    vocabularies, pairs = data.tokenizers(), data.pairs("train")
    micro_batches = MicroBatches(
        config, pairs, vocabularies, device_type=device.type, task=data.task
    )
    batches = _plan(settings, pairs, longest=micro_batches.longest)
    micro_batches.choose(batches, workers.world_size)

    torch.manual_seed(settings.seed)
    model = new_model(config, vocabularies).to(device)
    if config.model.positions == "words":
        tokens = map(torch.from_numpy, counted_words(vocabularies))
        model.set_word_tokens(*(tensor.to(device) for tensor in tokens))
    if initial is not None:
        model.load_state_dict(initial)
    is_compiled = _compile(model, config, device)
    # Sharding replaces the parameters, so it comes before they are chosen, and sharing after that.
    parallel: nn.Module = _shard(model, workers, precision, device) if settings.fsdp else model
    trained = TrainedParameters(model, settings)
    if not settings.fsdp:
        parallel = workers.share_gradients(model)

    optimizer = new_optimizer(
        trained.named, settings, dtype=torch.bfloat16 if precision == "bf16" else torch.float32
    )
    guided = None
    if settings.guided_alignment:
        guided = GuidedAlignment(config, pairs, vocabularies)
        guided.observe(model)
    gradients = Gradients(
        settings,
        model,
        parallel,
        pairs,
        micro_batches=micro_batches,
        workers=workers,
        precision=precision,
        guided=guided,
        compiled=is_compiled,
    )
    validator = Validator(
        config,
        vocabularies,
        data,
        device=device,
        precision=precision,
        loss=partial(gradients.translation_loss, label_smoothing=0.0),
        budget=min(batches.budget, micro_batches.limit),
    )
    directions = [f"{src} to {tgt}" for src, tgt in data.language_pairs]
    others = f" × {workers.world_size}" if workers.world_size > 1 else ""
    count = sum(parameter_counts(model).values())
    facts = {
        "Data": f"{data.name}, {len(pairs):,} pairs, {', '.join(directions)}",
        "Parameters": f"{count:,}",
        "Trained parameters": f"{trained.count:,}" if trained.count != count else "",
        "Device": f"{devices.describe_device(device)}{others}, {precision}",
    }
    return Parts(
        precision,
        matmul_backend,
        vocabularies,
        pairs,
        micro_batches,
        batches,
        model,
        trained,
        optimizer,
        gradients,
        validator,
        facts,
    )


def new_model(config: Config, vocabularies: Vocabularies) -> Transformer:
    """A model with random weights."""
    return Transformer(config.model, len(vocabularies.tgt), PAD_ID, vocabularies.own_src_size)


def _plan(settings: TrainConfig, pairs: SentencePairs, *, longest: int) -> TokenBatches:
    """The division of the data into updates."""
    if settings.batching != "length":
        raise MtkitError(f"train.batching: {settings.batching} was removed; take length")
    wanted = settings.batch_tokens
    # Every batch must be able to hold the longest pair; otherwise `plan_batches` refuses.
    groups = max(1, min(settings.batches_per_update, wanted // longest))
    return TokenBatches(pairs, budget=wanted // groups, per_update=groups, seed=settings.seed)


def _compile(model: Transformer, config: Config, device: torch.device) -> bool:
    """Compile the layers if that is wanted; returns whether it is."""
    settings = config.train
    # The plain path is compiled only if the user asks for it.
    is_plain = settings.gpu_path == "plain" and settings.compile == "auto"
    if is_plain or not compiling.is_compiled(settings.compile, device.type):
        return False
    leave_uncompiled()
    # Guided alignment has a hook in its layer, which a compiled one would not call.
    hooked = model.decoder[config.guided_layer - 1] if settings.guided_alignment else None
    layers = [*model.encoder, *model.decoder]
    compiling.compile_layers(layer for layer in layers if layer is not hooked)
    return True


def _shard(
    model: Transformer, workers: Workers, precision: devices.Precision, device: torch.device
) -> nn.Module:
    in_bf16 = precision == "bf16" and device.type == "cuda"
    layers = [*model.encoder, *model.decoder]
    return workers.shard(model, layers, dtype=torch.bfloat16 if in_bf16 else None)
