"""Decodes batches of sentences with the models of this process; `pool.Pool` does it in others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from mtkit.base.devices import memory_explained
from mtkit.batches import pad_ids
from mtkit.config import DecodeConfig
from mtkit.model import Transformer
from mtkit.parsing import Task
from mtkit.score import mutual_chrf
from mtkit.tokenizer import BOS_ID, EOS_ID, Tokenizer
from mtkit.translate.constraints import Constraints
from mtkit.translate.device_search import beam_search_on_device, greedy_search_on_device
from mtkit.translate.engine import DecoderCache, Engine
from mtkit.translate.ensemble import Ensemble
from mtkit.translate.fixed_cache import FixedCache, reserve_positions
from mtkit.translate.independent import greedy_search
from mtkit.translate.phrases import constrained_search
from mtkit.translate.placement import Plan, TermPlanner
from mtkit.translate.requests import BaseDecoder, PendingBatch, Sentence, Translation, hypotheses_of
from mtkit.translate.sampling import Sampling, sample, uniforms
from mtkit.translate.search import Hypothesis, SearchSettings, beam_search
from mtkit.translate.terms import Demand, TermEncoder


class Decoder(BaseDecoder):
    """Decodes with models in this process.

    Args:
        models: on their device, in evaluation mode; their weights are not copied. With several,
            the mean of their probabilities is used.
        tokenizer: of the target language of all models.
    """

    def __init__(
        self,
        models: Sequence[Transformer],
        tokenizer: Tokenizer,
        config: DecodeConfig,
        *,
        device: torch.device,
        task: Task | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.config = config
        self.device = device
        self.device_type = device.type
        self._task = task or Task()
        self._models = models
        engines = [Engine(model) for model in models]
        self.engine = engines[0] if len(engines) == 1 else Ensemble(engines)

    @torch.inference_mode()
    def decode(self, sentences: Sequence[Sentence], n_best: int) -> list[list[Translation]]:
        """Up to `n_best` translations of each sentence, best first; samples in sampling order."""
        started = time.perf_counter()
        samples = self.config.sample or self.config.mbr_samples > 0
        with memory_explained(self._out_of_memory_advice(sentences, n_best)):
            found = (self._sample if samples else self._search)(sentences, n_best)
        seconds = time.perf_counter() - started
        results = [
            [self._translation(hypothesis, seconds, sentence) for hypothesis in hypotheses]
            for sentence, hypotheses in zip(sentences, found, strict=True)
        ]
        if self.config.mbr_samples:
            results = [rank_by_mbr(translations)[:n_best] for translations in results]
        # Constraints can leave a sentence without any.
        return [
            found or [Translation("", finished=False, missing=_terms_of(sentence.terms))]
            for sentence, found in zip(sentences, results, strict=True)
        ]

    def _out_of_memory_advice(self, sentences: Sequence[Sentence], n_best: int) -> str:
        """What was translated, and which settings need less memory."""
        config, count = self.config, len(sentences)
        if count > 1:
            return (
                f"translating {count} sentences at a time; lower decode.batch_tokens, which is "
                f"{config.batch_tokens_on(self.device_type)} (--batch-tokens)"
            )
        return (
            f"translating a sentence of {len(sentences[0].ids)} subwords with "
            f"{hypotheses_of(config, n_best)} hypotheses; lower decode.beam_size or "
            "decode.max_source_tokens, or translate on a machine with more memory"
        )

    def _search(self, sentences: Sequence[Sentence], n_best: int) -> list[list[Hypothesis]]:
        beam_size = hypotheses_of(self.config, n_best)
        rank_cut_off = self.config.max_length is not None
        settings = self._settings(sentences)
        on_device = self._searches_on_device(settings)
        if on_device:
            for model in self._models:
                reserve_positions(model, max(settings.max_lengths))
        cache = self._start(sentences, beam_size, FixedCache if on_device else DecoderCache)
        if beam_size == 1:
            greedy = greedy_search_on_device if on_device else greedy_search
            found = greedy(self.engine.step, cache, settings)
        else:
            search = beam_search_on_device if on_device else beam_search
            found = search(
                self.engine.step,
                cache,
                settings,
                beam_size=beam_size,
                n_best=n_best,
                rank_cut_off=rank_cut_off,
            )
        if not any(sentence.terms for sentence in sentences):
            return found

        def search_with_terms(
            some: Sequence[Sentence], plans: Sequence[Plan], slots: int
        ) -> list[list[Hypothesis]]:
            return constrained_search(
                self.engine.step,
                self._start(some, slots),
                self._settings(some),
                [plan.tracker for plan in plans],
                beam_size=beam_size,
                deadlines=[plan.deadlines for plan in plans],
                n_best=n_best,
                rank_cut_off=rank_cut_off,
            )

        return self._planner.complete(
            sentences,
            found,
            settings.max_lengths,
            beam_size=beam_size,
            n_best=n_best,
            search=search_with_terms,
        )

    def _searches_on_device(self, settings: SearchSettings) -> bool:
        """Whether the device chooses the hypotheses (`device_search`); otherwise the host."""
        path = self.config.gpu_path
        if path == "plain" or (path == "auto" and self.device_type == "cpu"):
            return False
        # Masks need the host in every step. It is also the host that learns at once when learned
        # positions do not suffice; the device goes on for some steps.
        masks = settings.constraints is not None and settings.constraints.masks is not None
        positions = [
            model.config.max_positions
            for model in self._models
            if model.config.positions == "learned"
        ]
        longest = max(settings.max_lengths)
        return not masks and longest <= min(positions, default=longest)

    def _settings(self, sentences: Sequence[Sentence]) -> SearchSettings:
        limits = self._limits(sentences)
        return SearchSettings(
            limits,
            BOS_ID,
            EOS_ID,
            self.config.length_penalty,
            self.config.length_penalty_form,
            self._constraints(sentences, limits),
            self.device,
        )

    @cached_property
    def _terms(self) -> TermEncoder:
        return TermEncoder(self.tokenizer)

    @cached_property
    def _planner(self) -> TermPlanner:
        return TermPlanner(self._models, self._terms, device=self.device)

    def _sample(self, sentences: Sequence[Sentence], n_best: int) -> list[list[Hypothesis]]:
        config = self.config
        n_samples = hypotheses_of(config, n_best)
        settings = self._settings(sentences)
        numbers = uniforms(
            config.seed,
            [sentence.number for sentence in sentences],
            n_samples=n_samples,
            steps=max(settings.max_lengths),
        )
        return sample(
            self.engine.step,
            self._start(sentences, n_samples),
            settings,
            Sampling(config.temperature, config.top_k, config.top_p),
            numbers,
        )

    def _start(
        self,
        sentences: Sequence[Sentence],
        slots: int,
        new_cache: type[DecoderCache] = DecoderCache,
    ) -> Any:
        """The cache of the engine or of the ensemble, of the kind that the search needs."""
        src = pad_ids([[*sentence.ids, EOS_ID] for sentence in sentences])
        return self.engine.start(src.to(self.device), slots, new_cache)

    def _constraints(self, sentences: Sequence[Sentence], limits: Sequence[int]) -> Constraints:
        config, masks = self.config, None
        if config.well_formed_trees:
            words = [len(sentence.words) for sentence in sentences]
            masks = self._task.token_masks(words, limits)
        return Constraints(
            config.min_length,
            config.no_repeat_ngram,
            [sentence.prefix for sentence in sentences],
            masks,
            # Only a source has tags.
            forbidden=self.tokenizer.tag_ids,
        )

    def _translation(self, found: Hypothesis, seconds: float, sentence: Sentence) -> Translation:
        ids = [*found.tokens, EOS_ID] if found.finished else found.tokens
        text = self.tokenizer.decode(found.tokens)
        missing = self._terms.missing(sentence.terms, text) if sentence.terms else ()
        return Translation(
            text,
            found.score,
            found.log_prob,
            found.finished,
            tuple(self.tokenizer.piece(i) for i in ids),
            found.token_log_probs,
            seconds,
            _terms_of(missing),
        )

    def finish(self, pending: PendingBatch) -> list[list[Translation]]:
        """Decode a batch, once."""
        if pending.found is None:
            pending.found = self.decode(pending.sentences, pending.n_best)
        return pending.found

    def _limits(self, sentences: Sequence[Sentence]) -> list[int]:
        """The maximum length of each output in tokens, including EOS."""
        limits = []
        for sentence in sentences:
            longest = len(sentence.ids) + 1 + self.config.max_extra_length
            if self.config.max_length is not None:
                longest = min(longest, self.config.max_length)
            limits.append(max(longest, len(sentence.prefix) + 1))
        return limits


def _terms_of(demands: Sequence[Demand]) -> tuple[str, ...]:
    return tuple(demand.term for demand in demands)


def rank_by_mbr(samples: Sequence[Translation]) -> list[Translation]:
    """Each text once, those most similar to all samples first; of equal ones the first sample."""
    similarities = mutual_chrf([translation.text for translation in samples])
    scored: dict[str, Translation] = {}
    for translation, score in zip(samples, similarities, strict=True):
        scored.setdefault(translation.text, replace(translation, score=score))
    return sorted(scored.values(), key=lambda translation: -translation.score)
