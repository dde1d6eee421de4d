"""The gradient of an update and its losses, on any device and in any precision."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mtkit.base.devices import Precision, arithmetic, copied_to
from mtkit.base.errors import MtkitError
from mtkit.base.memory import is_out_of_memory
from mtkit.batches import Batch, make_batch, pack_batches
from mtkit.config import TrainConfig
from mtkit.data import IntArray, SentencePairs
from mtkit.kernels import bf16
from mtkit.kernels.cpu_loss import loss_of_states
from mtkit.kernels.dropout import dropout_seeded
from mtkit.kernels.gpu_loss import loss_on_gpu
from mtkit.model import Transformer
from mtkit.tokenizer import PAD_ID
from mtkit.train.distributed import Workers
from mtkit.train.guided_alignment import GuidedAlignment
from mtkit.train.loss import label_smoothed_loss
from mtkit.train.micro_batches import MicroBatches, Pass
from mtkit.train.threads import GradientThreads

log = logging.getLogger(__name__)


class Losses(NamedTuple):
    """The losses of an update, summed over target tokens; `alignment` as in `GuidedAlignment`."""

    translation: Tensor
    alignment: Tensor | None


@dataclass(eq=False)
class Gradients:
    """Computes losses and gradients of passes, one after the other or several at a time.

    They are computed through `parallel`: the model, or its wrapper for several workers.
    """

    settings: TrainConfig
    model: Transformer
    parallel: nn.Module
    pairs: SentencePairs
    micro_batches: MicroBatches
    workers: Workers
    precision: Precision
    guided: GuidedAlignment | None
    compiled: bool = False
    _threads: GradientThreads | None = None
    _is_sending: bool = False

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.model.embedding.weight.device

    @property
    def _bias_dtype(self) -> torch.dtype | None:
        """The type in which masks are added to the scores of attention; None: they are boolean."""
        if self.device.type == "cpu" or self.guided or self.model.config.attention_window:
            return None
        return torch.bfloat16 if self.precision == "bf16" else self.model.embedding.weight.dtype

    def start_threads(self) -> None:
        """Start the threads for several passes at a time, if there will be any.

        Otherwise `add_up` does it. Raises `MtkitError` if the system allows no more threads.
        """
        at_once = self.micro_batches.at_once
        if at_once > 1 and (self._threads is None or self._threads.count != at_once):
            changing = [p for p in self.model.parameters() if p.requires_grad]
            try:
                self._threads = GradientThreads(changing, count=at_once)
            except RuntimeError as error:
                if "start new thread" not in str(error):
                    raise
                raise MtkitError(
                    f"{at_once} threads for {at_once} passes at a time cannot be started "
                    f"({error}); raise the limit of processes (ulimit -u), or set OMP_NUM_THREADS=1"
                ) from error

    def add_up(self, own: Sequence[Pass], *, step: int, tokens: int, retry: bool = False) -> Losses:
        """Add the gradients of the mean loss per target token to those of the model.

        Args:
            own: the passes of this worker, whose summed losses are returned.
            tokens: the target tokens of the update over all workers.
            retry: if passes do not fit in memory, compute them in smaller ones: packed passes, and
                all with `train.device_batch_tokens: auto`, but not several at a time.
        """
        with bf16.weights_unchanged():
            if self.micro_batches.at_once > 1:
                of_passes = self._at_the_same_time(own, step=step, tokens=tokens)
            elif retry and (self.micro_batches.packed or self.settings.has_auto_tokens):
                of_passes = self._in_halves_if_needed(own, step=step, tokens=tokens)
            else:
                of_passes = self._one_after_the_other(own, step=step, tokens=tokens)
        summed = torch.zeros((), device=self.device)
        aligned = torch.zeros(2, device=self.device)
        for losses in of_passes:
            summed += losses.translation
            if losses.alignment is not None:
                aligned += losses.alignment
        return Losses(summed, None if self.guided is None else aligned)

    def prepared(self, pass_: Pass) -> Pass:
        """A pass with its batch, which is copied to the device while the program goes on."""
        if pass_.is_empty:
            # The others wait for the gradient of this pass, which is zero.
            some = make_batch(self.pairs, np.zeros(1, np.int64))
            return replace(pass_, batch=some.to(self.device), guidance=None)
        made = [make_batch(*micro_batch) for micro_batch in pass_.micro_batches]
        guidance = None
        if self.guided is not None and pass_.micro_batches[0][0].links is not None:
            guidance = [
                copied_to(self.device, self.guided.targets(batch, *micro_batch))
                for batch, micro_batch in zip(made, pass_.micro_batches, strict=True)
            ]
        if self.micro_batches.packed:
            batch = pack_batches(made, self.device, bias_dtype=self._bias_dtype)
        else:
            batch = made[0].to(self.device)
        return replace(pass_, batch=batch, guidance=guidance)

    def losses(self, pass_: Pass) -> Losses:
        """The losses of a pass, whose backward pass sends the gradients to all workers."""
        pass_ = pass_ if pass_.batch is not None else self.prepared(pass_)
        assert pass_.batch is not None
        if pass_.is_empty:
            return Losses(0.0 * self._loss(self.parallel, pass_.batch, label_smoothing=0.0), None)
        smoothing = self.settings.label_smoothing
        loss = partial(self._loss, self.parallel, pass_.batch, label_smoothing=smoothing)
        if self.guided is None or pass_.guidance is None:
            return Losses(loss(), None)
        return Losses(*self.guided.losses(loss, pass_.guidance))

    def translation_loss(
        self, model: nn.Module, pairs: SentencePairs, indices: IntArray, *, label_smoothing: float
    ) -> Tensor:
        """The summed loss of a micro-batch by a given model, without guided alignment."""
        batch = make_batch(pairs, indices).to(self.device)
        return self._loss(model, batch, label_smoothing=label_smoothing)

    def _in_halves_if_needed(self, own: Sequence[Pass], *, step: int, tokens: int) -> list[Losses]:
        """As `_one_after_the_other`, again with half of each pass as long as memory runs out."""
        workers = self.workers
        # With `auto`, all workers try again as soon as memory runs out on one. Then nothing is sent
        # before all have their gradients; else the first are sent while others are computed.
        is_joint = self.settings.has_auto_tokens and workers.world_size > 1
        while True:
            self._is_sending, is_full = self.settings.fsdp, False
            halves = [half for pass_ in own for half in pass_.halves()]
            try:
                with workers.no_sync(self.parallel) if is_joint else nullcontext():
                    losses = self._one_after_the_other(own, step=step, tokens=tokens)
            except (RuntimeError, MemoryError) as error:
                # What the other workers have begun to receive cannot be sent again.
                is_last = not is_joint and (self._is_sending or len(halves) == len(own))
                if is_last or not is_out_of_memory(error):
                    raise
                is_full = True
            if not (workers.any(is_full) if is_joint else is_full):
                break
            if is_joint and workers.any(is_full and len(halves) == len(own)):
                raise MemoryError("a single pair does not fit")
            # Here the exception no longer refers to the tensors of the pass.
            self.model.zero_grad()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            own = halves
            # The console shows only the errors of the other workers.
            report = log.warning if workers.is_rank_zero else log.error
            where = f" on worker {workers.rank}" if workers.world_size > 1 and not is_joint else ""
            if workers.is_rank_zero or not is_joint:
                report("step %d: out of memory%s; trying again in %d passes", step, where, len(own))
        if is_joint:
            # A pass without pairs adds zeros, and sends the sums.
            torch.autograd.backward(self.losses(Pass(0, [])).translation)
        return losses

    def _one_after_the_other(self, own: Sequence[Pass], *, step: int, tokens: int) -> list[Losses]:
        of_passes = []
        for number, pass_ in enumerate(own, 1):
            torch.manual_seed(self._seed(step, pass_.index))
            last = number == len(own)
            with nullcontext() if last else self.workers.no_sync(self.parallel):
                objective, losses = self._objective(pass_, tokens=tokens)
                self._is_sending |= last and self.workers.world_size > 1
                torch.autograd.backward(objective)
            of_passes.append(losses)
        return of_passes

    def _at_the_same_time(self, own: Sequence[Pass], *, step: int, tokens: int) -> list[Losses]:
        self.start_threads()
        assert self._threads is not None

        def seeded_objective(pass_: Pass) -> tuple[Tensor, Losses]:
            with dropout_seeded(self._seed(step, pass_.index)):
                return self._objective(pass_, tokens=tokens)

        return self._threads.differentiate([partial(seeded_objective, pass_) for pass_ in own])

    def _seed(self, step: int, index: int) -> int:
        """A 63-bit seed for the dropout of a pass."""
        # A resumed run needs no random state, and any worker or thread may compute a pass.
        numbers = np.random.SeedSequence((self.settings.seed, step, index))
        return int(numbers.generate_state(1, np.uint64)[0] >> 1)

    def _objective(self, pass_: Pass, *, tokens: int) -> tuple[Tensor, Losses]:
        """What is differentiated for a pass, and its losses."""
        loss, alignment = self.losses(pass_)
        losses = Losses(loss.detach(), None if alignment is None else alignment.detach())
        if alignment is not None:
            loss = loss + self.settings.guided_alignment * alignment[0]
        # Gradients are averaged over the workers.
        return loss * (self.workers.world_size / tokens), losses

    def _loss(self, model: nn.Module, batch: Batch, *, label_smoothing: float) -> Tensor:
        """The summed loss by a given model, or by the wrapper of the model of this run."""
        whole = model if isinstance(model, Transformer) else self.model
        device, bias = batch.src.device, whole.output_bias
        with arithmetic(self.precision, device):
            if torch.is_grad_enabled():
                # Gradients are computed faster without storing all logits.
                loss_of_all = loss_of_states
                if device.type != "cpu":
                    loss_of_all = partial(loss_on_gpu, compiled=self.compiled)
                return loss_of_all(
                    model(batch.src, batch.tgt_in, batch.packing, states_only=True),
                    whole.embedding.weight,
                    batch.tgt_out,
                    label_smoothing=label_smoothing,
                    pad_id=PAD_ID,
                    bias=bias,
                    dtype=torch.bfloat16 if self.precision == "bf16" else None,
                )
            logits: Tensor = model(batch.src, batch.tgt_in, batch.packing)
        return label_smoothed_loss(
            logits, batch.tgt_out, label_smoothing=label_smoothing, pad_id=PAD_ID, bias=bias
        )
