"""What the two engines share: from sentences to batches, from hypotheses to translations.

The backends are the native engine (`native_decoder`) and PyTorch (`decoder`). Nothing here loads
PyTorch.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mtkit.base.errors import MtkitError
from mtkit.base.memory import memory_explained
from mtkit.batch_plan import plan_batches
from mtkit.config import DecodeConfig
from mtkit.search_settings import Constraints, Hypothesis, Sampling, SearchSettings, uniforms
from mtkit.tokenizer import BOS_ID, EOS_ID
from mtkit.translate.requests import (
    PendingBatch,
    PendingWindow,
    Sentence,
    Translation,
    hypotheses_of,
)

if TYPE_CHECKING:
    import torch

    from mtkit.align import AlignmentHead, PairAttention
    from mtkit.config import ModelConfig
    from mtkit.model import Transformer
    from mtkit.translate.choosing import EngineChoice
    from mtkit.translate.glossary.terms import Demand, TermEncoder
    from mtkit.translate.loading import LoadedRuns

log = logging.getLogger(__name__)

NO_NUMBERS = (
    "computes no numbers (NaN), because a weight is not a number or too large, as after training "
    "that diverged; give other weights with --checkpoint"
)
# Batches with fewer tokens than this are not divided among threads.
MIN_BATCH_TOKENS = 512
# On a GPU a sentence counts as at least this many tokens.
MIN_LENGTH_ON_GPU = 16
# `decode.batch_tokens` is for this many hypotheses per sentence; with more, a batch has fewer
# sentences, because its memory grows with both.
USUAL_HYPOTHESES = 4


class Backend:
    """Decodes batches of sentences; what `search` does depends on the engine.

    `capacity` batches keep all threads busy, and `threads` threads may call `decode` at the same
    time; where PyTorch computes (`needs_torch`), only one. `uniforms` gives the random numbers of
    samples. `weights`, `checkpoint` and `summary` are for messages; they are empty while the
    weights are trained.
    """

    capacity = 1
    threads = 1
    device_type = "cpu"
    needs_torch = True
    weights = checkpoint = summary = ""
    uniforms = staticmethod(uniforms)

    def __init__(self, runs: LoadedRuns) -> None:
        self.tokenizer = runs.vocabularies.tgt
        self.config, self._runs = runs.config, runs
        self.precision: str = runs.config.precision

    def described(self, checkpoints: Sequence[str], choice: EngineChoice, hardware: str) -> Self:
        """The same with what messages say of it, besides its settings: not for a training."""
        named = zip(self._runs.folders, checkpoints, strict=True)
        self.weights = ", ".join(f"{run.path}, {of}" for run, of in named)
        self.checkpoint = ", ".join(checkpoints)
        self.summary, self.precision = choice.in_words(hardware), choice.precision_label
        return self

    @cached_property
    def models(self) -> Sequence[Transformer]:
        """The models in PyTorch; the native engine loads them when they are asked for."""
        raise NotImplementedError

    @property
    def model_configs(self) -> list[ModelConfig]:
        """The sizes of the models."""
        return [model.config for model in self.models]

    def attention(self, heads: Sequence[Sequence[AlignmentHead]]) -> PairAttention:
        """The attention of some heads of each model, in given pairs."""
        from mtkit.align import TorchAttention

        return TorchAttention(self.models, heads)

    @cached_property
    def device(self) -> torch.device:
        """The device of `models`."""
        import torch

        return torch.device(self.device_type)

    @cached_property
    def with_terms(self) -> Backend:
        """What decodes sentences with terms of a glossary, with the same weights."""
        return self

    def with_config(self, config: DecodeConfig) -> Self:
        """A backend with the same weights and other settings of the search."""
        other = copy.copy(self)
        other.config = config
        return other

    def search(
        self, sentences: Sequence[Sentence], settings: SearchSettings, *, n_best: int, **draws: Any
    ) -> list[list[Hypothesis]]:
        """Up to `n_best` hypotheses of each sentence, best first.

        With `sampling` and `uniforms`, (B, W, T), W samples of each, in sampling order.
        """
        raise NotImplementedError

    def batch_budget(self, config: DecodeConfig, n_best: int) -> int:
        """The source tokens of a batch with `n_best` translations of each sentence."""
        slots = max(USUAL_HYPOTHESES, hypotheses_of(config, n_best))
        return config.batch_tokens_on(self.device_type) * USUAL_HYPOTHESES // slots

    def plan(self, sentences: Sequence[Sentence], n_best: int) -> list[PendingBatch]:
        """Batches of sentences of similar length, the longest first."""
        if not sentences:
            return []
        lengths = np.array([len(sentence.ids) + 1 for sentence in sentences])
        if self.device_type != "cpu":
            # The logits of a step have a row for each sentence, however short.
            lengths = np.maximum(lengths, MIN_LENGTH_ON_GPU)
        budget = self.batch_budget(self.config, n_best)
        if self.capacity > 1:
            # A small amount of work is also divided among the threads.
            budget = min(budget, max(MIN_BATCH_TOKENS, int(lengths.sum()) // self.capacity))
        budget = max(budget, int(lengths.max()))
        # No thread is left with a long batch at the end.
        batches = reversed(plan_batches(lengths, lengths, budget=budget))
        return [PendingBatch([sentences[i] for i in batch], n_best) for batch in batches]

    def pipelined(self, windows: Iterator[PendingWindow]) -> Generator[PendingWindow, None, None]:
        """Each window, in order, when its batches must be finished.

        An empty window is yielded before the next one is read. An error of `windows` is raised
        after the windows before it. Closing the generator cancels what was begun in advance.
        """
        yield from windows

    def finish(self, pending: PendingBatch) -> list[list[Translation]]:
        """The translations of each sentence of a batch, best first."""
        return self.decode(pending.sentences, pending.n_best)

    def close(self) -> None:
        """End all threads; the next batch starts new ones."""

    def decode(self, sentences: Sequence[Sentence], n_best: int) -> list[list[Translation]]:
        """Up to `n_best` translations of each sentence, best first; samples in sampling order."""
        started = time.perf_counter()
        config, settings = self.config, self.settings(sentences)
        with memory_explained(self._out_of_memory_advice(sentences, n_best)):
            draws: dict[str, Any] = {}
            if config.sample or config.mbr_samples:
                numbers = [sentence.number for sentence in sentences]
                count, steps = hypotheses_of(config, n_best), max(settings.max_lengths)
                draws = {
                    "sampling": Sampling(config.temperature, config.top_k, config.top_p),
                    "uniforms": self.uniforms(config.seed, numbers, n_samples=count, steps=steps),
                }
            by_sentence = self.search(sentences, settings, n_best=n_best, **draws)
        seconds = time.perf_counter() - started
        results = [
            [self._translation(hypothesis, seconds, sentence) for hypothesis in hypotheses]
            for sentence, hypotheses in zip(sentences, by_sentence, strict=True)
        ]
        if self.config.mbr_samples:
            results = [rank_by_mbr(translations)[:n_best] for translations in results]
        if self.weights and not all(results):
            self._check_weights()
        # Constraints can leave a sentence without any.
        return [
            translations or [Translation("", finished=False, missing=_terms_of(sentence.terms))]
            for sentence, translations in zip(sentences, results, strict=True)
        ]

    def try_weights(self) -> None:
        """Translate nothing, so that weights that compute no numbers are refused."""
        self.decode([Sentence(1, [])], 1)

    def _check_weights(self) -> None:
        """Refuse weights that give nothing a probability, not even the end of an empty source."""
        settings = replace(self.settings([]), max_lengths=[2], constraints=None)
        if not self.search([Sentence(1, [])], settings, n_best=1)[0]:
            raise MtkitError(f"{self.weights}: {NO_NUMBERS}")

    def _out_of_memory_advice(self, sentences: Sequence[Sentence], n_best: int) -> str:
        """What was translated, and which settings need less memory."""
        config, count = self.config, len(sentences)
        if count > 1:
            return (
                f"translating {count} sentences at a time; lower decode.batch_tokens, which is "
                f"{self.batch_budget(config, n_best)} here (--batch-tokens)"
            )
        return (
            f"translating a sentence of {len(sentences[0].ids)} subwords with "
            f"{hypotheses_of(config, n_best)} hypotheses; lower decode.beam_size or "
            "decode.max_source_tokens, or translate on a machine with more memory"
        )

    def settings(self, sentences: Sequence[Sentence]) -> SearchSettings:
        """What the search of these sentences is given, with its constraints."""
        limits = self._limits(sentences)
        return SearchSettings(
            limits,
            BOS_ID,
            EOS_ID,
            self.config.length_penalty,
            self.config.length_penalty_form,
            self._constraints(sentences, limits),
            stop="likely" if self.config.stop == "likely" else "exact",
        )

    @cached_property
    def terms(self) -> TermEncoder:
        """Encodes the target terms of a glossary."""
        from mtkit.translate.glossary.terms import TermEncoder

        return TermEncoder(self.tokenizer)

    def _constraints(self, sentences: Sequence[Sentence], limits: Sequence[int]) -> Constraints:
        config, masks = self.config, None
        if config.well_formed_trees:
            words = [len(sentence.words) for sentence in sentences]
            masks = self._runs.task.token_masks(words, limits)
        return Constraints(
            config.min_length,
            config.no_repeat_ngram,
            [sentence.prefix for sentence in sentences],
            masks,
            # Only a source has tags.
            forbidden=self.tokenizer.tag_ids,
        )

    def _translation(self, best: Hypothesis, seconds: float, sentence: Sentence) -> Translation:
        ids = [*best.tokens, EOS_ID] if best.finished else best.tokens
        text = self.tokenizer.decode(best.tokens)
        missing = self.terms.missing(sentence.terms, text) if sentence.terms else ()
        return Translation(
            text,
            best.score,
            best.log_prob,
            best.finished,
            tuple(self.tokenizer.piece(i) for i in ids),
            best.token_log_probs,
            seconds,
            _terms_of(missing),
        )

    def _limits(self, sentences: Sequence[Sentence]) -> list[int]:
        """The maximum length of each output in tokens, including EOS."""
        limits = []
        for sentence in sentences:
            longest = len(sentence.ids) + 1 + self.config.max_extra_length
            longest = min(filter(None, (longest, self.config.max_length, self._runs.max_positions)))
            limits.append(max(longest, len(sentence.prefix) + 1))
        if any(limit < self.config.min_length for limit in limits):
            # Once for each setting.
            _warn_of_short_limits(self.config.min_length, self.config.max_extra_length)
        return limits


@lru_cache(maxsize=64)
def _warn_of_short_limits(least: int, extra: int) -> None:
    reason = f"at a lower limit (decode.max_extra_length {extra}, or learned positions)"
    log.warning("decode.min_length %d: some translations end before, %s", least, reason)


def _terms_of(demands: Sequence[Demand]) -> tuple[str, ...]:
    return tuple(demand.term for demand in demands)


def rank_by_mbr(samples: Sequence[Translation]) -> list[Translation]:
    """Each text once, those most similar to all samples first; of equal ones the first sample."""
    from mtkit.score import mutual_chrf

    similarities = mutual_chrf([translation.text for translation in samples])
    scored: dict[str, Translation] = {}
    for translation, score in zip(samples, similarities, strict=True):
        scored.setdefault(translation.text, replace(translation, score=score))
    return sorted(scored.values(), key=lambda translation: -translation.score)
