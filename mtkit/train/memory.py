"""The check of the memory before the first update, so that it does not run out hours later."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from mtkit.batches import TokenBatches
from mtkit.data import IntArray, SentencePairs
from mtkit.devices import is_out_of_memory, limited_to_free_memory
from mtkit.errors import MtkitError
from mtkit.model import Transformer, parameter_counts
from mtkit.train.gradients import Gradients
from mtkit.train.micro_batches import MicroBatches, padded_tokens

# The moments of the optimizer (8 bytes), which the first update makes, and the copy of them and of
# the weights (12) that a checkpoint is written from.
_LATER_BYTES_PER_PARAMETER = 20


class MemoryCheck:
    """Computes the gradients of the largest micro-batch, and finds a size that fits if needed.

    Args:
        model: that is trained, on its device.
        pairs: the training pairs.
        batches: of the run.
        micro_batches: how they are divided.
        gradients: what computes them.
        where: follows "memory" in a message, such as " on worker 1".
    """

    def __init__(
        self,
        model: Transformer,
        pairs: SentencePairs,
        batches: TokenBatches,
        *,
        micro_batches: MicroBatches,
        gradients: Gradients,
        where: str,
    ) -> None:
        self._model = model
        self._pairs = pairs
        self._batches = batches
        self._micro_batches = micro_batches
        self._gradients = gradients
        self._where = where

    def run(self, device: torch.device) -> None:
        """Run the largest micro-batch forward and backward.

        If several are computed at the same time, each thread computes the largest one as often as
        in an update, but at most twice.

        Args:
            device: of the model.

        Raises:
            MtkitError: if it does not fit, with the setting to lower and a value that fits.
        """
        parameters = sum(parameter_counts(self._model).values())
        # Before the memory is limited, because the stacks of the threads may not fit within the
        # limit.
        self._gradients.start_threads()
        with limited_to_free_memory(device, reserve=_LATER_BYTES_PER_PARAMETER * parameters):
            self._try_largest()

    def _try_largest(self) -> None:
        indices, largest = self._micro_batches.largest(self._batches)
        at_once = self._micro_batches.at_once
        # The second micro-batch of a thread is computed beside the gradients of its first.
        number = 2 * at_once if at_once > 1 else 1
        number = min(number, self._batches.per_update * self._micro_batches.per_batch)
        self._model.train()
        # This is also the first exchange of gradients between workers.
        if _succeeds(
            lambda: self._gradients.add_up([(0, largest)] * number, step=0, tokens=1), self._model
        ):
            return
        if at_once > 1 and self._fits(*largest):
            raise MtkitError(
                f"{at_once} micro-batches of {padded_tokens(*largest)} tokens at the same time do "
                "not fit in memory, one does; give --set "
                f"train.device_batch_tokens={self._micro_batches.most_tokens(self._batches)}"
            )
        for some in self._micro_batches.smaller(indices):
            if self._fits(self._pairs, some):
                fits = padded_tokens(self._pairs, some)
                raise MtkitError(
                    f"a micro-batch of {padded_tokens(self._pairs, indices)} tokens does not fit "
                    f"in memory{self._where}, one of {fits} does; "
                    f"give --set train.device_batch_tokens={fits}"
                )
        raise MtkitError(
            f"not even the longest pair alone, {self._micro_batches.longest} tokens, fits in "
            "memory; a smaller model would (model.d_model), or more memory"
        )

    def _fits(self, pairs: SentencePairs, indices: IntArray) -> bool:
        """Whether a micro-batch can be computed alone."""

        def compute() -> None:
            loss = self._gradients.translation_loss(
                self._model, pairs, indices, label_smoothing=0.1
            )
            torch.autograd.backward(loss)

        return _succeeds(compute, self._model)


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
