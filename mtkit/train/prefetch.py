"""The next update, prepared by a thread while the current one is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

from mtkit.batches import TokenBatches
from mtkit.data import IntArray
from mtkit.train.micro_batches import Pass


class Update(NamedTuple):
    """What an optimizer step is computed from, and the position of the stream after it."""

    batches: Sequence[IntArray]
    own: list[Pass]
    position: dict[str, int]


@dataclass(eq=False)
class Prefetcher(AbstractContextManager["Prefetcher"]):
    """Prepares each update while the one before it is computed; a context manager.

    Preparing takes time where sentences are segmented anew (`train.bpe_dropout`), where batches are
    copied to a GPU, and where an epoch is planned, which also takes 16 bytes of memory per pair.
    The updates are those of the stream, in its order, so the thread changes no result.

    After an error the context ends without waiting for the thread: the message must not wait until
    an epoch is planned.

    Attributes:
        batches: the stream. Nothing else may draw from it within the context. Afterwards it may be
            one update ahead.
        prepare: gives the passes of this worker from the batches of an update and its number.
        done: updates before the next one.
    """

    batches: TokenBatches
    prepare: Callable[[Sequence[IntArray], int], list[Pass]]
    _: KW_ONLY
    done: int
    last: int

    def __post_init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._ahead: Future[Update] | None = None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.shutdown(wait=kind is None, cancel_futures=True)

    def next(self) -> Update:
        """The next update; raises what was raised while it was prepared, which ends the stream."""
        ready = self._ahead or self._thread.submit(self._draw, self.done + 1)
        self.done += 1
        update = ready.result()
        self._ahead = None
        if self.done < self.last:
            self._ahead = self._thread.submit(self._draw, self.done + 1)
        return update

    def _draw(self, step: int) -> Update:
        batches = next(self.batches)
        position = self.batches.state_dict()
        return Update(batches, self.prepare(batches, step), position)
