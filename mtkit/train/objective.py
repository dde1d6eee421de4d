"""The loss of a micro-batch, on any device and in any precision."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mtkit.batches import Batch, make_batch
from mtkit.config import Config
from mtkit.data import IntArray, SentencePairs
from mtkit.devices import arithmetic
from mtkit.model import Guide
from mtkit.tokenizer import PAD_ID
from mtkit.train.guided_alignment import GuidedAlignment, alignment_loss
from mtkit.train.loss import label_smoothed_loss, loss_of_states


class Objective:
    """Computes losses, with the model that is given: the trained one, or that of a validation.

    Args:
        config: of the run.
        precision: of the matrix products.
        device: of the model.
        guided: what guided alignment needs, if it is on.
    """

    def __init__(
        self,
        config: Config,
        *,
        precision: str,
        device: torch.device,
        guided: GuidedAlignment | None,
    ) -> None:
        self._has_bias = config.model.output_bias
        self._precision = precision
        self._device = device
        self._guided = guided

    def of_pairs(
        self, model: nn.Module, pairs: SentencePairs, indices: IntArray, *, label_smoothing: float
    ) -> tuple[Tensor, Tensor | None]:
        """Summed loss of a micro-batch, and (2,) that of guided alignment and its count."""
        batch = make_batch(pairs, indices).to(self._device)
        guided = self._guided
        if guided is None or pairs.links is None:
            return self._of_batch(model, batch, label_smoothing=label_smoothing), None
        targets = guided.targets(batch, pairs, indices)
        found: list[Tensor] = []
        loss = self._of_batch(
            model,
            batch,
            label_smoothing=label_smoothing,
            guides={guided.layer - 1: lambda log_weights: found.append(log_weights)},
        )
        return loss, torch.stack((alignment_loss(found[0], targets), targets.sum()))

    def of_translation(
        self, model: nn.Module, pairs: SentencePairs, indices: IntArray, *, label_smoothing: float
    ) -> Tensor:
        """Summed loss of a micro-batch, without guided alignment."""
        batch = make_batch(pairs, indices).to(self._device)
        return self._of_batch(model, batch, label_smoothing=label_smoothing)

    def _of_batch(
        self,
        model: nn.Module,
        batch: Batch,
        *,
        label_smoothing: float,
        guides: Mapping[int, Guide] | None = None,
    ) -> Tensor:
        # An argument only where it is needed.
        more: dict[str, Any] = {"guides": guides} if guides else {}
        if torch.is_grad_enabled() and self._device.type == "cpu":
            output = partial(
                loss_of_states,
                tgt_out=batch.tgt_out,
                label_smoothing=label_smoothing,
                pad_id=PAD_ID,
                dtype=torch.bfloat16 if self._precision == "bf16" else None,
            )
            with arithmetic(self._precision, self._device):
                summed: Tensor = model(batch.src, batch.tgt_in, output=output, **more)
            return summed
        with arithmetic(self._precision, self._device):
            logits = model(batch.src, batch.tgt_in, **more)
        summed, _ = label_smoothed_loss(
            logits,
            batch.tgt_out,
            label_smoothing=label_smoothing,
            pad_id=PAD_ID,
            has_bias=self._has_bias,
        )
        return summed
