"""Decodes batches of ids to translations.

`Decoder` decodes with the models of this process, `pool.Pool` in other processes;
`DecoderProtocol` is their common interface.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import torch

from mtkit.base.devices import memory_explained
from mtkit.batches import pad_ids
from mtkit.config import DecodeConfig
from mtkit.model import Transformer
from mtkit.parsing import BracketTokens, TreeMask
from mtkit.score import mutual_chrf
from mtkit.tokenizer import BOS_ID, EOS_ID, Tokenizer
from mtkit.translate.constraints import Constraints
from mtkit.translate.engine import Engine, Ensemble
from mtkit.translate.phrases import constrained_search, slots_for
from mtkit.translate.placement import Draft, Plan, Planner
from mtkit.translate.sampling import Sampling, sample, uniforms
from mtkit.translate.search import Hypothesis, beam_search
from mtkit.translate.terms import Demand, TermSpeller

Range = tuple[int, int]
# The characters of a sentence in its line, and those of its translation.
Part = tuple[Range, Range]


@dataclass(frozen=True)
class Translation:
    """One hypothesis for one line.

    Attributes:
        text: detokenised, on one line.
        score: log-probability over the length penalty, or with minimum Bayes risk decoding the
            mean chrF against the other samples; 0 for a blank line. Of a line that was split,
            the mean of the scores of its sentences.
        log_prob: sum of the natural log-probabilities of its tokens.
        finished: False if it was cut off at the length limit.
        pieces: its subwords, with EOS at the end if it is finished; none for a blank line.
        log_probs: natural log-probability of each subword.
        seconds: the time of its batch.
        missing: target terms that the glossary demands and the text does not contain.
        repaired: for a tree, whether what the model wrote was not well-formed; None for text.
        parts: of a line of several sentences, those with a translation; empty if the line was
            translated as a whole.
    """

    text: str
    score: float
    log_prob: float
    finished: bool = True
    pieces: tuple[str, ...] = ()
    log_probs: tuple[float, ...] = ()
    seconds: float = 0.0
    missing: tuple[str, ...] = ()
    repaired: bool | None = None
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class DecodeBatch:
    """Sentences that are decoded as one batch.

    Attributes:
        sources: ids of each sentence, without EOS; none is empty.
        prefixes: ids that each translation begins with, possibly none.
        numbers: a number for each sentence, which together with the seed determines its samples.
        n_best: number of translations of each sentence.
        terms: the target terms that each translation must contain; None for none.
        words: number of words of each sentence, for a parser; empty for others.
    """

    sources: list[list[int]]
    prefixes: list[list[int]]
    numbers: list[int]
    n_best: int = 1
    terms: list[list[Demand]] | None = None
    words: Sequence[int] = ()

    def only(self, rows: Sequence[int]) -> DecodeBatch:
        """The batch with these sentences, in that order."""
        return DecodeBatch(
            [self.sources[row] for row in rows],
            [self.prefixes[row] for row in rows],
            [self.numbers[row] for row in rows],
            self.n_best,
            self.terms and [self.terms[row] for row in rows],
            [self.words[row] for row in rows] if self.words else (),
        )


@dataclass(eq=False)
class PendingBatch:
    """A started batch, and its results so far."""

    batch: DecodeBatch
    found: list[list[Translation]] | None = None
    error: Exception | None = None

    @property
    def is_done(self) -> bool:
        """Whether `finish` returns without waiting."""
        return self.found is not None or self.error is not None


class DecoderProtocol(Protocol):
    """The interface of `Decoder` and `Pool`.

    Attributes:
        capacity: number of batches that keep all processes busy.
    """

    capacity: int

    def begin(self, batches: Sequence[DecodeBatch]) -> list[PendingBatch]:
        """Accept batches, to be decoded in this order."""

    def finish(self, pending: PendingBatch) -> list[list[Translation]]:
        """The translations of each sentence of a batch, best first."""

    def forget(self, pending: Sequence[PendingBatch]) -> None:
        """Cancel batches that are not being decoded yet."""

    def is_busy_without(self, pending: Sequence[PendingBatch]) -> bool:
        """Whether all processes are busy with other batches, so that no more batches are needed."""

    def close(self) -> None:
        """End all processes; the next batch starts new ones."""


class Decoder:
    """Decodes with models in this process.

    Args:
        models: on their device, in evaluation mode; their weights are not copied. With several,
            the mean of their probabilities is used.
        tokenizer: of the target language of all models.
        config: settings of search or sampling, and limits.
        device: the device of the models.
    """

    capacity = 1

    def __init__(
        self,
        models: Sequence[Transformer],
        tokenizer: Tokenizer,
        config: DecodeConfig,
        *,
        device: torch.device,
    ) -> None:
        self.tokenizer = tokenizer
        self.config = config
        self.device = device
        self._models = models
        engines = [Engine(model) for model in models]
        self.engine = engines[0] if len(engines) == 1 else Ensemble(engines)

    @torch.inference_mode()
    def decode(self, batch: DecodeBatch) -> list[list[Translation]]:
        """Up to `n_best` translations of each sentence, best first; samples in sampling order."""
        started = time.perf_counter()
        draws = self.config.sample or self.config.mbr_samples > 0
        with memory_explained(self._to_lower(batch)):
            if draws:
                found = self._draw(batch)
            else:
                found = self._search(batch) if batch.terms is None else self._search_terms(batch)
        seconds = time.perf_counter() - started
        terms = batch.terms or [[]] * len(found)
        results = [
            [self._translation(hypothesis, seconds, demands) for hypothesis in hypotheses]
            for hypotheses, demands in zip(found, terms, strict=True)
        ]
        if self.config.mbr_samples:
            results = [_by_risk(translations)[: batch.n_best] for translations in results]
        return results

    def _to_lower(self, batch: DecodeBatch) -> str:
        """For out-of-memory errors: what was translated, and which settings need less memory."""
        config, count = self.config, len(batch.sources)
        if count > 1:
            return (
                f"translating {count} sentences at a time; lower decode.batch_tokens, which is "
                f"{config.batch_tokens} (--batch-tokens)"
            )
        return (
            f"translating a sentence of {len(batch.sources[0])} subwords with "
            f"{hypotheses_of(config, batch.n_best)} hypotheses; lower decode.beam_size or "
            "decode.max_source_tokens, or translate on a machine with more memory"
        )

    def _search(self, batch: DecodeBatch) -> list[list[Hypothesis]]:
        slots = hypotheses_of(self.config, batch.n_best)
        return beam_search(
            self.engine.step,
            self._start(batch, slots),
            beam_size=slots,
            **self._search_settings(batch),
        )

    def _search_settings(self, batch: DecodeBatch) -> dict[str, Any]:
        """What `beam_search` and `constrained_search` both take."""
        config = self.config
        return {
            "max_lengths": self._limits(batch),
            "bos_id": BOS_ID,
            "eos_id": EOS_ID,
            "alpha": config.length_penalty,
            "penalty_form": config.length_penalty_form,
            "n_best": batch.n_best,
            "constraints": self._constraints(batch),
            "rank_cut_off": config.max_length is not None,
            "device": self.device,
        }

    def _search_terms(self, batch: DecodeBatch) -> list[list[Hypothesis]]:
        """As `_search`, for outputs that contain terms; those that do not fit are left out."""
        assert batch.terms is not None
        found, limits = self._search(batch), self._limits(batch)
        drafts = {
            row: Draft(batch.sources[row], best.tokens, demands, batch.prefixes[row], limits[row])
            for row, demands in enumerate(batch.terms)
            if any(self._planner.lacks(one.tokens, demands) for one in found[row])
            for best in found[row][:1]
        }
        plans = zip(drafts, self._planner.plans(list(drafts.values())), strict=True)
        planned = [(row, plan) for row, plan in plans if plan is not None]
        beam_size = hypotheses_of(self.config, batch.n_best)
        while planned:
            # No more hypotheses at a time than without terms.
            planned.sort(key=lambda item: item[1].tracker.total)
            slots = slots_for(beam_size, planned[-1][1].tracker.total)
            some = planned[-max(1, len(found) * beam_size // slots) :]
            del planned[-len(some) :]
            chosen = batch.only([row for row, _ in some])
            chosen.prefixes[:] = [plan.prefix for _, plan in some]
            hypotheses = constrained_search(
                self.engine.step,
                self._start(chosen, slots),
                [plan.tracker for _, plan in some],
                beam_size=beam_size,
                deadlines=[plan.deadlines for _, plan in some],
                **self._search_settings(chosen),
            )
            for (row, plan), of_row in zip(some, hypotheses, strict=True):
                best = found[row][0]
                if not of_row and plan.deadlines:
                    # All probable words after the term were those that contain it.
                    planned.append((row, Plan(plan.tracker, batch.prefixes[row], [])))
                elif not self._planner.lacks(best.tokens, batch.terms[row]):
                    # Only others lack terms. The best translation is the best of any number.
                    others = [
                        x for x in of_row if x.tokens != best.tokens and x.score <= best.score
                    ]
                    found[row] = [best, *others][: batch.n_best]
                elif of_row:
                    found[row] = of_row
        return found

    @cached_property
    def _planner(self) -> Planner:
        return Planner(self._models, self.speller, device=self.device)

    @cached_property
    def speller(self) -> TermSpeller:
        """Terms as subwords."""
        return TermSpeller(self.tokenizer)

    def _draw(self, batch: DecodeBatch) -> list[list[Hypothesis]]:
        config = self.config
        limits = self._limits(batch)
        numbers = uniforms(
            config.seed,
            batch.numbers,
            n_samples=hypotheses_of(config, batch.n_best),
            steps=max(limits),
        )
        return sample(
            self.engine.step,
            self._start(batch, hypotheses_of(config, batch.n_best)),
            max_lengths=limits,
            uniforms_BWT=numbers,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            alpha=config.length_penalty,
            penalty_form=config.length_penalty_form,
            sampling=Sampling(config.temperature, config.top_k, config.top_p),
            constraints=self._constraints(batch),
            device=self.device,
        )

    def _start(self, batch: DecodeBatch, slots: int) -> Any:
        src = pad_ids([[*ids, EOS_ID] for ids in batch.sources])
        return self.engine.start(src.to(self.device), slots)

    def _constraints(self, batch: DecodeBatch) -> Constraints:
        masks = None
        if self.config.well_formed_trees and batch.words:
            masks = [
                TreeMask(self._brackets, words=words, limit=limit)
                for words, limit in zip(batch.words, self._limits(batch), strict=True)
            ]
        config = self.config
        return Constraints(
            config.min_length,
            config.no_repeat_ngram,
            batch.prefixes,
            masks,
            # Only a source has tags.
            forbidden=self.tokenizer.tag_ids,
        )

    @cached_property
    def _brackets(self) -> BracketTokens:
        brackets = BracketTokens(self.tokenizer)
        brackets.check(needed_by="decode.well_formed_trees")
        return brackets

    def _translation(
        self, found: Hypothesis, seconds: float, demands: Sequence[Demand]
    ) -> Translation:
        ids = [*found.tokens, EOS_ID] if found.finished else found.tokens
        text = self.tokenizer.decode(found.tokens)
        return Translation(
            text,
            found.score,
            found.log_prob,
            found.finished,
            tuple(self.tokenizer.piece(i) for i in ids),
            found.token_log_probs,
            seconds,
            tuple(self.speller.missing([one.term for one in demands], text)) if demands else (),
        )

    def begin(self, batches: Sequence[DecodeBatch]) -> list[PendingBatch]:
        """Nothing yet: `finish` decodes."""
        return [PendingBatch(batch) for batch in batches]

    def finish(self, pending: PendingBatch) -> list[list[Translation]]:
        """Decode a batch, once."""
        if pending.found is None:
            pending.found = self.decode(pending.batch)
        return pending.found

    def forget(self, pending: Sequence[PendingBatch]) -> None:
        """Nothing, as nothing was begun."""

    def is_busy_without(self, pending: Sequence[PendingBatch]) -> bool:
        """True: starting batches in advance would not be faster."""
        return True

    def close(self) -> None:
        """Nothing: there are no other processes."""

    def _limits(self, batch: DecodeBatch) -> list[int]:
        """The maximum length of each output in tokens, including EOS."""
        limits = []
        for source, prefix in zip(batch.sources, batch.prefixes, strict=True):
            longest = len(source) + 1 + self.config.max_extra_length
            if self.config.max_length is not None:
                longest = min(longest, self.config.max_length)
            limits.append(max(longest, len(prefix) + 1))
        return limits


def hypotheses_of(config: DecodeConfig, n_best: int) -> int:
    """The number of hypotheses of a sentence that are decoded at a time."""
    if config.mbr_samples:
        # Independent of `n_best`, because the best sample depends on the samples compared.
        return config.mbr_samples
    return n_best if config.sample else max(config.beam_size, n_best)


def _by_risk(drawn: list[Translation]) -> list[Translation]:
    """Each text once, those most similar to all samples first; of equal ones the first sample."""
    risks = mutual_chrf([translation.text for translation in drawn])
    scored: dict[str, Translation] = {}
    for translation, score in zip(drawn, risks, strict=True):
        scored.setdefault(translation.text, replace(translation, score=score))
    return sorted(scored.values(), key=lambda translation: -translation.score)
