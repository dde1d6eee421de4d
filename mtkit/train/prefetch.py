"""The next update, drawn and prepared by a thread while the current one is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from mtkit.batches import TokenBatches
from mtkit.data import IntArray
from mtkit.train.micro_batches import Shares


@dataclass(frozen=True)
class Update:
    """What an optimizer step is computed from.

    Attributes:
        batches: the pairs of the update, batch by batch.
        shares: the micro-batches of this worker.
        position: of the stream after this update, for a checkpoint.
    """

    batches: Sequence[IntArray]
    shares: Shares
    position: dict[str, int]


class Prefetcher:
    """Prepares each update while the one before it is computed.

    Preparing takes time where sentences are segmented anew (`train.bpe_dropout`) and where an epoch
    begins. It depends on the seed and on the number of the update, so the results are those of
    preparing without a thread.

    Args:
        batches: the stream. Nothing else may draw from it before `close`, which puts it back to the
            position after the last update that `next` has returned.
        prepare: gives the micro-batches of this worker, from the batches of an update and its
            number, counted from 1.
        done: updates before the first one here.
        last: the last update that is wanted.
    """

    def __init__(
        self,
        batches: TokenBatches,
        prepare: Callable[[Sequence[IntArray], int], Shares],
        *,
        done: int,
        last: int,
    ) -> None:
        self._batches = batches
        self._prepare = prepare
        self._step = done
        self._last = last
        self._position = batches.state_dict()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._ahead: Future[Update] | None = None

    def close(self) -> None:
        """End the thread, and put the stream back to its position."""
        self._thread.shutdown(cancel_futures=True)
        self._batches.load_state_dict(self._position)

    def next(self) -> Update:
        """The next update.

        Raises:
            Exception: what was raised while it was prepared.
        """
        ready = self._ahead or self._thread.submit(self._draw, self._step + 1)
        self._step += 1
        update = ready.result()
        self._position = update.position
        self._ahead = None
        if self._step < self._last:
            self._ahead = self._thread.submit(self._draw, self._step + 1)
        return update

    def _draw(self, step: int) -> Update:
        batches = next(self._batches)
        position = self._batches.state_dict()
        return Update(batches, self._prepare(batches, step), position)
