"""Translates the sentences of many requests together, in batches and in turn.

There is one queue. When a thread is free, it gets a batch at once: of each waiting request one
sentence after another, so that a long document does not hold up short requests. Translations do not
depend on their neighbours (a promise of mtkit), so each request gets what it would get alone.
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from mtkit.serve.http_errors import RequestError
from mtkit.translate import Sentence, Translation, Translator

Result = TypeVar("Result")

# Waiting tokens are divided among the free threads, but not into smaller batches than this.
MIN_TOKENS = 256
# The fewest tokens that a sentence counts for: a batch has no more rows than its tokens over this.
_MIN_LENGTH = 8
# Number of tokens that take as long as a term of a glossary, at most: with beam 4 a term takes a
# third of a second, and a token a millisecond. So a sentence with several has its own batch.
_TERM = 256
# Seconds after which a client that was refused may try again: at least, and at most.
_MIN_RETRY, _MAX_RETRY = 1, 60


class _QueuedSentence(NamedTuple):
    """A sentence that waits: its tokens with EOS, and where its translations go."""

    sentence: Sentence
    tokens: int
    translations: asyncio.Future[list[Translation]]

    def finish(self, result: list[Translation] | Exception) -> None:
        """Set the translations, or the error, unless nobody waits for them any more."""
        if self.translations.done():
            return
        if isinstance(result, Exception):
            self.translations.set_exception(result)
        else:
            self.translations.set_result(result)

    @property
    def work(self) -> int:
        """The tokens that take as long to decode."""
        return self.tokens + _TERM * len(self.sentence.terms)


class _ThreadGroup:
    """Threads that decode: one for PyTorch, others for the native engine."""

    def __init__(self, threads: int, name: str) -> None:
        self.free = threads
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix=name)


class Request:
    """A request in the queue: the sentences of it that wait, and their tokens.

    Sentences of requests with the same translator and `n_best` may be decoded together.
    """

    def __init__(self, scheduler: Scheduler, translator: Translator, n_best: int) -> None:
        self.translator, self.n_best = translator, n_best
        self.waiting: deque[_QueuedSentence] = deque()
        self.tokens = 0
        self._scheduler = scheduler
        self._is_served = False

    async def translate(self, sentences: Sequence[Sentence]) -> list[list[Translation]]:
        """The translations of sentences, which have ids.

        RequestError as `Scheduler.check`, before it has had any; or the error of the translator.
        """
        if not sentences:
            return []
        sizes = [max(_MIN_LENGTH, len(sentence.ids) + 1) for sentence in sentences]
        if not self._is_served:
            self._scheduler.check(self.tokens + sum(sizes), self)
        loop = asyncio.get_running_loop()
        translations = [loop.create_future() for _ in sentences]
        items = list(map(_QueuedSentence, sentences, sizes, translations))
        # Sentences of similar length come into the same batch.
        items.sort(key=lambda item: -item.tokens)
        self._scheduler.add(self, items)
        results = await asyncio.gather(*translations)
        self._is_served = True
        return results

    def take(self) -> _QueuedSentence:
        """Its next sentence, which waits no longer."""
        item = self.waiting.popleft()
        self.tokens -= item.tokens
        return item


@dataclass
class Scheduler:
    """The queue and the threads of the native engine. All methods are called in the event loop.

    `most_waiting` tokens may wait, and a batch has `batch_tokens` at most, or those of the run.
    """

    threads: int
    most_waiting: int
    batch_tokens: int

    def __post_init__(self) -> None:
        # What was decoded since the start; the seconds are those of all threads.
        self.counts = dict.fromkeys(("batches", "sentences", "tokens", "seconds"), 0.0)
        self._queue: deque[Request] = deque()
        self._groups = _ThreadGroup(1, "mtkit-torch"), _ThreadGroup(self.threads, "mtkit-native")
        # Each of these has one thread, so that none of them holds up another.
        self._others = {
            name: ThreadPoolExecutor(1, thread_name_prefix=f"mtkit-{name}")
            for name in ("check", "document")
        }
        self._is_planned = False
        self._rate = 0.0

    @contextmanager
    def request(self, translator: Translator, n_best: int) -> Iterator[Request]:
        """A place in the queue for a request; at the end, what of it still waits is dropped."""
        request = Request(self, translator, n_best)
        try:
            yield request
        finally:
            request.waiting.clear()
            request.tokens = 0
            if request in self._queue:
                self._queue.remove(request)

    @property
    def waiting(self) -> int:
        """The tokens that wait."""
        return sum(request.tokens for request in self._queue)

    async def in_thread(
        self,
        task: Literal["torch", "check", "document"],
        function: Callable[..., Result],
        *arguments: object,
    ) -> Result:
        """Call a function that uses PyTorch, checks translations, or reads or writes a document."""
        pool = self._groups[0].pool if task == "torch" else self._others[task]
        return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)

    def check(self, tokens: float, request: Request | None = None) -> None:
        """Refuse more tokens than may wait, with those of other requests.

        RequestError: 413 if they are too many for the queue, 429 if they are too many now.
        """
        if tokens > self.most_waiting:
            message = f"the texts are larger than the queue of {self.most_waiting} subwords"
            raise RequestError(413, message)
        if self.waiting - (request.tokens if request else 0) + tokens > self.most_waiting:
            seconds = math.ceil(self.waiting / self._rate) if self._rate else _MIN_RETRY
            seconds = min(max(seconds, _MIN_RETRY), _MAX_RETRY)
            message = f"Slowdown: the queue is full; try again in {seconds} s"
            raise RequestError(429, message, retry_after=seconds)

    def add(self, request: Request, items: Sequence[_QueuedSentence]) -> None:
        """Let sentences of a request wait, and plan to decode."""
        request.waiting.extend(items)
        request.tokens += sum(item.tokens for item in items)
        if request not in self._queue:
            self._queue.append(request)
        self._plan()

    def close(self) -> None:
        """End the threads."""
        for pool in (*self._others.values(), *(group.pool for group in self._groups)):
            pool.shutdown(cancel_futures=True)

    def _plan(self) -> None:
        # Requests that come at the same time are decoded together.
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._start)

    def _group(self, request: Request) -> _ThreadGroup:
        # A glossary needs PyTorch, and may take long.
        return self._groups[not request.translator.decoder.needs_torch]

    def _start(self) -> None:
        """Give every free thread a batch, if there is one."""
        self._is_planned = False
        while first := next((each for each in self._queue if self._group(each).free), None):
            batch, group = self._batch(first), self._group(first)
            group.free -= 1
            sentences = [item.sentence for item in batch]
            started = time.perf_counter()
            running = asyncio.get_running_loop().run_in_executor(
                group.pool, _decode, first.translator, sentences, first.n_best
            )
            running.add_done_callback(functools.partial(self._finish, batch, group, started))

    def _batch(self, first: Request) -> list[_QueuedSentence]:
        """Sentences of this request and of those with the same setting, one of each in turn."""
        setting = first.translator, first.n_best
        same = [each for each in self._queue if (each.translator, each.n_best) == setting]
        translator = first.translator
        budget = translator.decoder.batch_budget(translator.config, first.n_best)
        budget = min(self.batch_tokens, budget)
        if (free := self._group(first).free) > 1:
            tokens = sum(request.tokens for request in same)
            budget = min(budget, max(MIN_TOKENS, tokens // free))
        queue, taken, size = deque(same), list[_QueuedSentence](), 0
        while queue and (not taken or size + queue[0].waiting[0].work <= budget):
            request = queue.popleft()
            taken.append(request.take())
            size += taken[-1].work
            if request.waiting:
                queue.append(request)
        # Those of other settings come next, and then those that were not served for longest.
        others = (each for each in self._queue if (each.translator, each.n_best) != setting)
        self._queue = deque([*others, *queue])
        taken.sort(key=lambda item: -item.tokens)
        return taken

    def _finish(
        self,
        batch: Sequence[_QueuedSentence],
        group: _ThreadGroup,
        started: float,
        running: asyncio.Future[list[list[Translation] | Exception]],
    ) -> None:
        group.free += 1
        if running.cancelled():
            return
        seconds, tokens = time.perf_counter() - started, sum(item.tokens for item in batch)
        decoded = 1, len(batch), tokens, seconds
        for name, count in zip(self.counts, decoded, strict=True):
            self.counts[name] += count
        rate = tokens / max(seconds, 1e-6) * (1 if group is self._groups[0] else self.threads)
        self._rate = 0.9 * self._rate + 0.1 * rate if self._rate else rate
        try:
            for item, result in zip(batch, running.result(), strict=True):
                item.finish(result)
        except Exception as error:
            for item in batch:
                item.finish(error)
        finally:
            self._plan()


def _decode(
    translator: Translator, sentences: Sequence[Sentence], n_best: int
) -> list[list[Translation] | Exception]:
    """The translations of each sentence, or the error of it."""
    try:
        return list(translator.decoder.decode(sentences, n_best))
    except Exception as error:
        if len(sentences) == 1:
            return [error]
    # One must not make the others fail.
    return [result for sentence in sentences for result in _decode(translator, [sentence], n_best)]
