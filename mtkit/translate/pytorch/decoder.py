"""Decodes with PyTorch models: which search runs, and in blocks of how many steps on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch

from mtkit.batches import pad_ids
from mtkit.model import Transformer
from mtkit.search_settings import Hypothesis, SearchSettings
from mtkit.tokenizer import EOS_ID
from mtkit.translate.decoding import Backend
from mtkit.translate.glossary.placement import Plan, TermPlanner
from mtkit.translate.loading import LoadedRuns
from mtkit.translate.pytorch.ensemble import Ensemble, NativeStep
from mtkit.translate.pytorch.incremental import Engine
from mtkit.translate.requests import Sentence, Translation, hypotheses_of
from mtkit.translate.search.beam import beam_search
from mtkit.translate.search.independent import greedy_search, sample
from mtkit.translate.search.phrase_search import Banks

CPU = torch.device("cpu")
# The host asks a GPU once in this many steps which sentences are finished.
STEPS_OF_BLOCK = 8


class Torch(Backend):
    """Decodes with models in this process.

    Args:
        models: on their device, in evaluation mode; their weights are not copied. With several,
            the mean of their probabilities is used.
        steps: what computes the steps of each model; by default PyTorch.
    """

    def __init__(
        self,
        models: Sequence[Transformer],
        runs: LoadedRuns,
        device: torch.device = CPU,
        *,
        steps: Sequence[Engine | NativeStep] = (),
    ) -> None:
        super().__init__(runs)
        self.device = device
        self.device_type = device.type
        self.models = models
        engines = steps or [Engine(model) for model in models]
        self.engine = engines[0] if len(engines) == 1 else Ensemble(engines)

    @torch.inference_mode()
    def decode(self, sentences: Sequence[Sentence], n_best: int) -> list[list[Translation]]:
        """As `Backend.decode`."""
        return super().decode(sentences, n_best)

    def search(
        self, sentences: Sequence[Sentence], settings: SearchSettings, *, n_best: int, **draws: Any
    ) -> list[list[Hypothesis]]:
        """As `Backend.search`."""
        if draws:
            cache = self._start(sentences, draws["uniforms"].shape[1])
            return sample(self.engine.step, cache, settings, draws["sampling"], draws["uniforms"])
        beam_size = hypotheses_of(self.config, n_best)
        block = self._block(settings)
        cache = self._start(sentences, beam_size, block)
        search = partial(
            beam_search,
            self.engine.step,
            beam_size=beam_size,
            n_best=n_best,
            rank_cut_off=self.config.max_length is not None,
        )
        if beam_size == 1:
            best = greedy_search(self.engine.step, cache, settings, block=block)
        else:
            best = search(cache, settings, block=block)
        if not any(sentence.terms for sentence in sentences):
            return best

        def search_with_terms(
            some: Sequence[Sentence], plans: Sequence[Plan], slots: int
        ) -> list[list[Hypothesis]]:
            some_settings, trackers = self.settings(some), [plan.tracker for plan in plans]
            banks = Banks(some_settings, trackers, [plan.deadlines for plan in plans], beam_size)
            return search(self._start(some, slots), some_settings, chooser=banks)

        return self._planner.complete(
            sentences, best, settings, beam_size=beam_size, n_best=n_best, search=search_with_terms
        )

    def _block(self, settings: SearchSettings) -> int:
        """The steps after which the host asks a GPU which sentences are finished; see `beam`."""
        path, longest = self.config.gpu_path, max(settings.max_lengths)
        if path == "plain" or (path == "auto" and self.device_type == "cpu"):
            return 1
        # Masks need the host in every step.
        if settings.constraints is not None and settings.constraints.masks is not None:
            return 1
        for model in self.models:
            if model.config.positions != "learned":
                # The table is made on the host when it is too short.
                model.positions(0, longest, like=model.embedding.weight)
        return STEPS_OF_BLOCK

    def settings(self, sentences: Sequence[Sentence]) -> SearchSettings:
        """As `Backend.settings`, for the device of the models."""
        return replace(super().settings(sentences), device=self.device)

    @cached_property
    def _planner(self) -> TermPlanner:
        return TermPlanner(self.models, self.terms)

    def _start(self, sentences: Sequence[Sentence], slots: int, block: int = 1) -> Any:
        """The cache of the engine or of the ensemble."""
        src = pad_ids([[*sentence.ids, EOS_ID] for sentence in sentences])
        return self.engine.start(src.to(self.device), slots, block)
