"""The parts of a training: data, model, optimizer, and what updates and validations need."""

from __future__ import annotations

from functools import partial

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


class Parts:
    """The parts of a training.

    Args:
        workers: the group of workers; by default only this process.
        initial: the weights to start from; by default random ones.

    Attributes:
        matmul_backend: the library that multiplies matrices.
    """

    def __init__(
        self,
        config: Config,
        data: PreparedData,
        *,
        device: torch.device,
        workers: Workers | None = None,
        initial: Tensors | None = None,
    ) -> None:
        self.config, self.settings, self.device = config, config.train, device
        self.workers = workers = workers or Workers()
        settings = config.train
        self.precision = precision = devices.choose_precision(settings.precision, device)
        self.matmul_backend = devices.select_matmul_backend(device, precision)

        self.vocabularies, self.pairs = data.tokenizers(), data.pairs("train")
        self.tokenizer, self.valid_text = self.vocabularies.tgt, data.text("valid")
        self.micro_batches = MicroBatches(
            config, self.pairs, self.vocabularies, device_type=device.type, task=data.task
        )
        self.batches = _plan(settings, self.pairs, longest=self.micro_batches.longest)
        self.micro_batches.choose(self.batches, workers.world_size)

        torch.manual_seed(settings.seed)
        self.model = model = new_model(config, self.vocabularies).to(device)
        if config.model.positions == "words":
            tokens = map(torch.from_numpy, counted_words(self.vocabularies))
            model.set_word_tokens(*(tensor.to(device) for tensor in tokens))
        if initial is not None:
            model.load_state_dict(initial)
        is_compiled = _compile(model, config, device)
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        parallel: nn.Module = model
        # Sharding replaces the parameters, so it comes before they are chosen, and sharing after.
        if settings.fsdp:
            shard_dtype = dtype if precision == "bf16" and device.type == "cuda" else None
            parallel = workers.shard(model, [*model.encoder, *model.decoder], dtype=shard_dtype)
        self.trained = TrainedParameters(model, settings)
        if not settings.fsdp:
            parallel = workers.share_gradients(model)
        self.optimizer = new_optimizer(self.trained.named, settings, dtype=dtype)
        guided = None
        if settings.guided_alignment:
            guided = GuidedAlignment(config, self.pairs, self.vocabularies)
            guided.observe(model)
        self._gradients = Gradients(
            settings,
            model,
            parallel,
            self.pairs,
            micro_batches=self.micro_batches,
            workers=workers,
            precision=precision,
            guided=guided,
            compiled=is_compiled,
        )
        self._validator = Validator(
            config,
            self.vocabularies,
            data,
            device=device,
            precision=precision,
            loss=partial(self._gradients.translation_loss, label_smoothing=0.0),
            budget=lambda: min(self.batches.budget, self.micro_batches.limit),
        )
        directions = [f"{src} to {tgt}" for src, tgt in data.language_pairs]
        others = f" × {workers.world_size}" if workers.world_size > 1 else ""
        count, trained = sum(parameter_counts(model).values()), self.trained.count
        # What the page of the run says about them, by its label.
        self._facts = {
            "Data": f"{data.name}, {len(self.pairs):,} pairs, {', '.join(directions)}",
            "Parameters": f"{count:,}",
            "Trained parameters": f"{trained:,}" if trained != count else "",
            "Device": f"{devices.describe_device(device)}{others}, {precision}",
        }


def new_model(config: Config, vocabularies: Vocabularies) -> Transformer:
    """A model with random weights."""
    return Transformer(config.model, len(vocabularies.tgt), PAD_ID, vocabularies.own_src_size)


def _plan(settings: TrainConfig, pairs: SentencePairs, *, longest: int) -> TokenBatches:
    """The division of the data into updates."""
    if settings.batching != "length":
        raise MtkitError(
            f"train.batching: {settings.batching} was removed; take length, in a new run"
        )
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
