"""Decodes with PyTorch models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from mtkit.batches import pad_ids
from mtkit.config import DecodeConfig
from mtkit.model import Transformer
from mtkit.parsing import Task
from mtkit.tokenizer import EOS_ID, Tokenizer
from mtkit.translate.constraints import Array
from mtkit.translate.decoding import Backend
from mtkit.translate.device_search import beam_search_on_device, greedy_search_on_device
from mtkit.translate.engine import DecoderCache, Engine
from mtkit.translate.ensemble import Ensemble
from mtkit.translate.fixed_cache import FixedCache, reserve_positions
from mtkit.translate.independent import greedy_search
from mtkit.translate.native_step import NativeStep
from mtkit.translate.phrase_search import constrained_search
from mtkit.translate.placement import Plan, TermPlanner
from mtkit.translate.requests import Sentence, Translation, hypotheses_of
from mtkit.translate.sampling import sample
from mtkit.translate.search import beam_search
from mtkit.translate.settings import Hypothesis, Sampling, SearchSettings


class Torch(Backend):
    """Decodes with models in this process.

    Args:
        models: on their device, in evaluation mode; their weights are not copied. With several,
            the mean of their probabilities is used.
        tokenizer: of the target language of all models.
        steps: what computes the steps of each model; by default PyTorch.
    """

    def __init__(
        self,
        models: Sequence[Transformer],
        tokenizer: Tokenizer,
        config: DecodeConfig,
        *,
        device: torch.device,
        task: Task | None = None,
        steps: Sequence[Engine | NativeStep] = (),
    ) -> None:
        super().__init__(tokenizer, config, task=task)
        self.device = device
        self.device_type = device.type
        self.models = models
        engines = steps or [Engine(model) for model in models]
        self.engine = engines[0] if len(engines) == 1 else Ensemble(engines)

    @torch.inference_mode()
    def decode(self, sentences: Sequence[Sentence], n_best: int) -> list[list[Translation]]:
        """As `LocalDecoder.decode`."""
        return super().decode(sentences, n_best)

    def search(
        self, sentences: Sequence[Sentence], settings: SearchSettings, *, n_best: int
    ) -> list[list[Hypothesis]]:
        """As `LocalDecoder.search`."""
        beam_size = hypotheses_of(self.config, n_best)
        rank_cut_off = self.config.max_length is not None
        on_device = self._searches_on_device(settings)
        if on_device:
            for model in self.models:
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
                self.settings(some),
                [plan.tracker for plan in plans],
                beam_size=beam_size,
                deadlines=[plan.deadlines for plan in plans],
                n_best=n_best,
                rank_cut_off=rank_cut_off,
            )

        return self._planner.complete(
            sentences, found, settings, beam_size=beam_size, n_best=n_best, search=search_with_terms
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
            for model in self.models
            if model.config.positions == "learned"
        ]
        longest = max(settings.max_lengths)
        return not masks and longest <= min(positions, default=longest)

    def settings(self, sentences: Sequence[Sentence]) -> SearchSettings:
        """As `LocalDecoder.settings`, for the device of the models."""
        return replace(super().settings(sentences), device=self.device)

    @cached_property
    def _planner(self) -> TermPlanner:
        return TermPlanner(self.models, self.terms, device=self.device)

    def sample(
        self,
        sentences: Sequence[Sentence],
        settings: SearchSettings,
        sampling: Sampling,
        uniforms_BWT: Array,
    ) -> list[list[Hypothesis]]:
        """As `LocalDecoder.sample`."""
        cache = self._start(sentences, uniforms_BWT.shape[1])
        return sample(self.engine.step, cache, settings, sampling, uniforms_BWT)

    def _start(
        self,
        sentences: Sequence[Sentence],
        slots: int,
        new_cache: type[DecoderCache] = DecoderCache,
    ) -> Any:
        """The cache of the engine or of the ensemble, of the kind that the search needs."""
        src = pad_ids([[*sentence.ids, EOS_ID] for sentence in sentences])
        return self.engine.start(src.to(self.device), slots, new_cache)
