"""Decodes batches of sentences with the native engine, in threads over one copy of the weights."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mtkit import native
from mtkit.base.errors import MtkitError
from mtkit.checkpoint import Selection
from mtkit.config import DecodeConfig
from mtkit.search_settings import Hypothesis, SearchSettings
from mtkit.tokenizer import EOS_ID
from mtkit.translate.choosing import EngineChoice, choose, threads_wanted
from mtkit.translate.decoding import Backend
from mtkit.translate.loading import LoadedRuns, note_weights
from mtkit.translate.requests import (
    PendingBatch,
    PendingWindow,
    Sentence,
    Translation,
    hypotheses_of,
)
from mtkit.weights import NotFiniteError

if TYPE_CHECKING:
    import torch

    from mtkit.align import AlignmentHead, PairAttention
    from mtkit.config import ModelConfig
    from mtkit.model import Transformer
    from mtkit.translate.native_attention import NativeAttention

# Batches that a thread has at a time: the one that it decodes, and the next one.
_AT_A_TIME = 2
_STOPPED = "translating was stopped"
# Source tokens of a batch times hypotheses of a sentence, if `decode.batch_tokens` is null: enough
# for the speed of the products, and no more, because memory grows with it.
_BATCH = 1536


class Native(Backend):
    """Decodes with a native model, in threads over one copy of the weights."""

    needs_torch = False

    def __init__(
        self,
        model: native.NativeModel,
        runs: LoadedRuns,
        *,
        threads: int = 1,
        selection: Selection | None = None,
    ) -> None:
        super().__init__(runs)
        self._model, self._selection = model, selection
        self.threads = threads
        # One thread needs no batches in advance.
        self.capacity = _AT_A_TIME * threads if threads > 1 else 1
        self._attention: NativeAttention | None = None
        self._stop = np.zeros(1, np.int32)
        self._pool: ThreadPoolExecutor | None = None
        self._process = 0  # the one that the threads of the pool are in

    @classmethod
    def load(
        cls,
        runs: LoadedRuns,
        checkpoint: str | Selection | None,
        choice: EngineChoice,
        *,
        threads: int | None = None,
    ) -> Self:
        """The backend of a run; arguments are those of `Translator.load`."""
        (run,) = runs.folders
        # PyTorch loads the same checkpoints later, whatever the run has then.
        selection = run.selection(checkpoint)
        tgt, src_size = runs.vocabularies.tgt, runs.vocabularies.own_src_size
        threads, precision = threads or threads_wanted(), choice.precision
        hardware = f"{native.kernels(precision)}, {threads} thread{'s' * (threads > 1)}"
        weights = selection.arrays()
        try:
            model = native.NativeModel(
                weights, run.config.model, len(tgt), src_size, precision=precision
            )
        except NotFiniteError:
            raise
        except MtkitError as error:
            raise MtkitError(f"{run.path}: the weights do not fit config.yaml: {error}") from error
        note_weights(run, selection.description)
        backend = cls(model, runs, threads=threads, selection=selection)
        return backend.described([selection.description], choice, hardware)

    @property
    def model_configs(self) -> list[ModelConfig]:
        """As `Backend.model_configs`."""
        return [run.config.model for run in self._runs.folders] or super().model_configs

    def attention(self, heads: Sequence[Sequence[AlignmentHead]]) -> PairAttention:
        """As `Backend.attention`; from now on, searches keep it for their translations."""
        from mtkit.translate.native_attention import NativeAttention

        if self._attention is None or self._attention.heads_of_models != heads:
            by_head = partial(super().attention, heads)
            self._attention = NativeAttention(self._model, self.model_configs, heads, by_head)
        return self._attention

    @cached_property
    def models(self) -> Sequence[Transformer]:
        """The models for PyTorch, on the CPU."""
        from mtkit.translate.pytorch.models import load_models

        assert self._selection is not None  # a backend in training has no checkpoint
        return load_models(self._runs, self._selection)[0]

    @cached_property
    def with_terms(self) -> Backend:
        """As `Backend.with_terms`: PyTorch searches, and loads the model once."""
        from mtkit.translate.pytorch.models import with_native_steps

        assert self._selection is not None
        choice = choose(self.config.model_copy(update={"engine": "auto"}), has_terms=True)
        return with_native_steps(self.models, self._runs, [self._selection.description], choice)

    def with_config(self, config: DecodeConfig) -> Self:
        """As `Backend.with_config`; with threads of its own."""
        other = super().with_config(config)
        other._pool = None
        return other

    def batch_budget(self, config: DecodeConfig, n_best: int) -> int:
        """As `Backend.batch_budget`."""
        if config.batch_tokens is not None:
            return super().batch_budget(config, n_best)
        return max(1, _BATCH // hypotheses_of(config, n_best))

    def search(
        self, sentences: Sequence[Sentence], settings: SearchSettings, *, n_best: int, **draws: Any
    ) -> list[list[Hypothesis]]:
        """As `Backend.search`."""
        sources = [[*sentence.ids, EOS_ID] for sentence in sentences]
        beam: dict[str, Any] = {"beam_size": hypotheses_of(self.config, n_best), "n_best": n_best}
        beam["rank_cut_off"] = self.config.max_length is not None
        stop = self._stop  # `close` sets this one, and makes another
        if not draws:
            beam["watched"] = self._attention
        hypotheses = self._model.translate(sources, settings, stop=stop, **(draws or beam))
        if stop[0]:
            raise MtkitError(_STOPPED)
        return hypotheses

    def pipelined(self, windows: Iterator[PendingWindow]) -> Generator[PendingWindow, None, None]:
        """As `Backend.pipelined`.

        With several threads it begins windows in advance: at least one, and at most until each
        thread has two batches, so that none waits at the end of a window; never more windows than
        such batches.
        """
        pending: deque[PendingWindow] = deque()
        failure: Exception | None = None
        try:
            while True:
                try:
                    window = next(windows, None)
                except Exception as error:
                    failure, window = error, None
                if window is not None:
                    self.submit(window.batches)
                    pending.append(window)
                while pending and (
                    window is None
                    or not window.lines
                    or len(pending) > self.capacity
                    or self._is_saturated(*pending)
                ):
                    # It stays in `pending` until it is finished, so that an error cancels it.
                    yield pending[0]
                    pending.popleft()
                if failure is not None:
                    raise failure
                if window is None:
                    return
        finally:
            # Only what no thread has yet can be cancelled.
            for batch in (batch for left in pending for batch in left.batches):
                if batch.future is not None:
                    batch.future.cancel()

    def submit(self, batches: Sequence[PendingBatch]) -> None:
        """Decode batches in this order."""
        # A forked process has the pool of its parent, but not the threads.
        if self._pool is None or self._process != os.getpid():
            self._stop = np.zeros(1, np.int32)
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="mtkit")
            self._process = os.getpid()
        for batch in batches:
            batch.future = self._pool.submit(self.decode, batch.sentences, batch.n_best)

    def finish(self, pending: PendingBatch) -> list[list[Translation]]:
        """As `Backend.finish`; `MtkitError` if memory ran out, or the decoder was closed."""
        assert pending.future is not None
        try:
            # The main thread waits here and not in the engine, so that Ctrl-C interrupts it.
            return pending.future.result()
        except CancelledError:
            raise MtkitError(_STOPPED) from None

    def _is_saturated(self, first: PendingWindow, *others: PendingWindow) -> bool:
        """Whether the threads stay busy while the caller waits for the first window."""
        if self.threads == 1 or all(batch.is_done for batch in first.batches):
            return True
        ahead = sum(not batch.is_done for window in others for batch in window.batches)
        return ahead >= self.capacity

    def close(self) -> None:
        """Stop decoding and end the threads; the next batch starts new ones."""
        if self._pool is not None:
            self._stop[0] = 1
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
            self._stop = np.zeros(1, np.int32)


def backend_in_training(
    model: Transformer, runs: LoadedRuns, *, device: torch.device, threads: int
) -> Backend:
    """What decodes with a model in training: the native engine with a copy of it, if it can."""
    engine = "torch" if runs.config.engine == "torch" else "auto"
    changes = {"engine": engine, "precision": "auto"}
    choice = choose(runs.config.model_copy(update=changes), device=device.type)
    if choice.search == "PyTorch":
        from mtkit.translate.pytorch.decoder import Torch

        return Torch([model], runs, device)
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    tgt, src_size = runs.vocabularies.tgt, runs.vocabularies.own_src_size
    copied = native.NativeModel(weights, model.config, len(tgt), src_size, precision="fp32")
    return Native(copied, runs, threads=threads)
