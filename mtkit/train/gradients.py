"""The gradient of an update and its losses, on any device and in any precision."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mtkit.base.devices import arithmetic
from mtkit.base.errors import MtkitError
from mtkit.batches import Batch, make_batch
from mtkit.config import Config
from mtkit.data import IntArray, SentencePairs
from mtkit.kernels import bf16
from mtkit.model import Guide, dropout_seeded
from mtkit.tokenizer import PAD_ID
from mtkit.train.distributed import Workers
from mtkit.train.guided_alignment import GuidedAlignment, alignment_loss
from mtkit.train.loss import label_smoothed_loss, loss_of_states
from mtkit.train.micro_batches import MicroBatches, Selected, Shares
from mtkit.train.threads import GradientThreads


class Losses(NamedTuple):
    """The losses of an update.

    Attributes:
        translation: the sum over target tokens.
        alignment: (2,), with guided alignment: its sum, and the number of target subwords of the
            pairs with links.
    """

    translation: Tensor
    alignment: Tensor | None


class Gradients:
    """Computes losses and gradients of micro-batches, one after the other or several at a time.

    Args:
        config: of the run.
        model: what the gradients are computed through: the model, or its wrapper for several
            workers.
        pairs: the training pairs.
        micro_batches: how many are computed at a time.
        workers: that share an update.
        precision: of the matrix products.
        device: of the model.
        guided: what guided alignment needs, if it is on.
    """

    def __init__(
        self,
        config: Config,
        model: nn.Module,
        pairs: SentencePairs,
        *,
        micro_batches: MicroBatches,
        workers: Workers,
        precision: str,
        device: torch.device,
        guided: GuidedAlignment | None,
    ) -> None:
        self._settings = config.train
        self._has_bias = config.model.output_bias
        self._model = model
        self.pairs = pairs
        self.micro_batches = micro_batches
        self._workers = workers
        self._precision = precision
        self.device = device
        self._guided = guided
        self._threads: GradientThreads | None = None

    def start_threads(self) -> None:
        """Start the threads for several micro-batches at a time, if there will be any.

        Otherwise the first call of `add_up` does it.

        Raises:
            MtkitError: if the system allows no more threads.
        """
        at_once = self.micro_batches.at_once
        if at_once > 1 and self._threads is None:
            changing = [p for p in self._model.parameters() if p.requires_grad]
            try:
                self._threads = GradientThreads(changing, count=at_once)
            except RuntimeError as error:
                if "start new thread" not in str(error):
                    raise
                raise MtkitError(
                    f"{at_once} threads for {at_once} micro-batches at a time cannot be started "
                    f"({error}); raise the limit of processes (ulimit -u), or set OMP_NUM_THREADS=1"
                ) from error

    def add_up(self, shares: Shares, *, step: int, tokens: int) -> Losses:
        """Add the gradients of the mean loss per target token to those of the model.

        Args:
            shares: the micro-batches of this worker.
            step: number of the update.
            tokens: target tokens of the update, over all workers.

        Returns:
            The summed losses of these micro-batches.
        """
        with bf16.weights_unchanged():
            if self.micro_batches.at_once > 1:
                found = self._at_the_same_time(shares, step=step, tokens=tokens)
            else:
                found = self._one_after_the_other(shares, step=step, tokens=tokens)
        summed = torch.zeros((), device=self.device)
        aligned = torch.zeros(2, device=self.device)
        for losses in found:
            summed += losses.translation
            if losses.alignment is not None:
                aligned += losses.alignment
        return Losses(summed, None if self._guided is None else aligned)

    def micro_batch_losses(self, pairs: SentencePairs, indices: IntArray) -> Losses:
        """The losses of a micro-batch, through which gradients can be computed.

        Their backward pass sends the gradients to all workers.
        """
        smoothing = self._settings.label_smoothing
        if not len(indices):
            # This micro-batch is empty, but the others wait for its gradient, which is zero.
            some = self._batch(self.pairs, np.zeros(1, np.int64))
            return Losses(0.0 * self._loss(self._model, some, label_smoothing=0.0), None)
        batch = self._batch(pairs, indices)
        guided = self._guided
        if guided is None or pairs.links is None:
            return Losses(self._loss(self._model, batch, label_smoothing=smoothing), None)
        targets = guided.targets(batch, pairs, indices)
        weights: list[Tensor] = []
        loss = self._loss(
            self._model,
            batch,
            label_smoothing=smoothing,
            guides={guided.layer - 1: lambda log_weights: weights.append(log_weights)},
        )
        return Losses(loss, torch.stack((alignment_loss(weights[0], targets), targets.sum())))

    def translation_loss(
        self, model: nn.Module, pairs: SentencePairs, indices: IntArray, *, label_smoothing: float
    ) -> Tensor:
        """The summed loss of a micro-batch by a given model, without guided alignment."""
        return self._loss(model, self._batch(pairs, indices), label_smoothing=label_smoothing)

    def _batch(self, pairs: SentencePairs, indices: IntArray) -> Batch:
        return make_batch(pairs, indices).to(self.device)

    def _one_after_the_other(self, shares: Shares, *, step: int, tokens: int) -> list[Losses]:
        found = []
        for number, (place, selected) in enumerate(shares, 1):
            torch.manual_seed(self._seed(step, place))
            last = number == len(shares)
            with self._workers.waiting() if last else self._workers.no_sync(self._model):
                objective, losses = self._objective(selected, tokens=tokens)
                torch.autograd.backward(objective)
            found.append(losses)
        return found

    def _at_the_same_time(self, shares: Shares, *, step: int, tokens: int) -> list[Losses]:
        self.start_threads()
        assert self._threads is not None

        def seeded_objective(place: int, selected: Selected) -> tuple[Tensor, Losses]:
            with dropout_seeded(self._seed(step, place)):
                return self._objective(selected, tokens=tokens)

        return self._threads.differentiate([partial(seeded_objective, *share) for share in shares])

    def _seed(self, step: int, place: int) -> int:
        """A 63-bit seed for the dropout of a micro-batch.

        It depends only on seed, step and index: a resumed run needs no random state, and it does
        not matter which worker or thread computes a micro-batch.
        """
        numbers = np.random.SeedSequence((self._settings.seed, step, place))
        return int(numbers.generate_state(1, np.uint64)[0] >> 1)

    def _objective(self, selected: Selected, *, tokens: int) -> tuple[Tensor, Losses]:
        """What is differentiated for a micro-batch, and its losses."""
        loss, alignment = self.micro_batch_losses(*selected)
        losses = Losses(loss.detach(), None if alignment is None else alignment.detach())
        if self._guided is not None and alignment is not None:
            loss = loss + self._guided.weight * alignment[0]
        # Gradients are averaged over the workers.
        return loss * (self._workers.world_size / tokens), losses

    def _loss(
        self,
        model: nn.Module,
        batch: Batch,
        *,
        label_smoothing: float,
        guides: Mapping[int, Guide] | None = None,
    ) -> Tensor:
        # The argument is given only where there are guides.
        more: dict[str, Any] = {"guides": guides} if guides else {}
        if torch.is_grad_enabled() and self.device.type == "cpu":
            output = partial(
                loss_of_states,
                tgt_out=batch.tgt_out,
                label_smoothing=label_smoothing,
                pad_id=PAD_ID,
                dtype=torch.bfloat16 if self._precision == "bf16" else None,
            )
            with arithmetic(self._precision, self.device):
                summed: Tensor = model(batch.src, batch.tgt_in, output=output, **more)
            return summed
        with arithmetic(self._precision, self.device):
            logits = model(batch.src, batch.tgt_in, **more)
        summed, _ = label_smoothed_loss(
            logits,
            batch.tgt_out,
            label_smoothing=label_smoothing,
            pad_id=PAD_ID,
            has_bias=self._has_bias,
        )
        return summed
