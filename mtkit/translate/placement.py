"""Where the terms of a glossary belong in a translation.

The model translates without the glossary first. If that translation lacks a term, it usually has
another word for the same word of the source, and the term belongs in its place. That word is the
one which becomes the most improbable if the source term is erased (prediction difference, Li et al.
2019, https://aclanthology.org/P19-1124): this needs no aligner, and it works for any model.

`constrained_search` then finds the translation with the term. It keeps what stands before the place
but for a few words, which may have to agree with the term, and the term must come soon. If no word
depends on the source term, the term may be anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from mtkit.model import Transformer
from mtkit.translate.constraints import Array
from mtkit.translate.phrases import Deadline, Tracker, fitting, slots_for
from mtkit.translate.requests import Sentence
from mtkit.translate.scoring import given_log_probs
from mtkit.translate.settings import Hypothesis
from mtkit.translate.terms import Demand, TermEncoder

# A word depends on a term if erasing the term lowers its log-probability by this or more.
LEAST_DIFFERENCE = 2.5
# So many words before the first term may change, such as articles and adjectives.
WORDS_BEFORE = 2


@dataclass(frozen=True)
class Draft:
    """A sentence, the tokens of its translation without regard to terms, and the limit of these."""

    sentence: Sentence
    tokens: Sequence[int]
    limit: int


@dataclass(frozen=True)
class Plan:
    """How to find the translation with the terms: what it begins with, and when it has terms."""

    tracker: Tracker
    prefix: Sequence[int]
    deadlines: list[Deadline]


# Finds the best hypotheses of some sentences by their plans, with so many slots for each sentence.
PlannedSearch = Callable[[Sequence[Sentence], Sequence[Plan], int], list[list[Hypothesis]]]


@dataclass(frozen=True)
class _Place:
    """The tokens of a draft that a term replaces, and the number of tokens of the term."""

    start: int
    end: int
    size: int


class TermPlanner:
    """Plans translations with terms; of several models, the mean probability is used."""

    def __init__(
        self, models: Sequence[Transformer], terms: TermEncoder, *, device: torch.device
    ) -> None:
        self._models = models
        self._terms = terms
        self._device = device

    def complete(
        self,
        sentences: Sequence[Sentence],
        found: Sequence[list[Hypothesis]],
        limits: Sequence[int],
        *,
        beam_size: int,
        n_best: int,
        search: PlannedSearch,
    ) -> list[list[Hypothesis]]:
        """Search again where hypotheses lack terms; terms that do not fit are left out.

        `found` has the hypotheses of each sentence without regard to terms, best first; `limits`
        the maximum number of their tokens.
        """
        found = list(found)
        drafts = {
            row: Draft(sentence, found[row][0].tokens, limits[row])
            for row, sentence in enumerate(sentences)
            if any(self.lacks(one.tokens, sentence.terms) for one in found[row])
        }
        plans = zip(drafts, self.plans(list(drafts.values())), strict=True)
        planned = [(row, plan) for row, plan in plans if plan is not None]
        while planned:
            # No more hypotheses at a time than without terms.
            planned.sort(key=lambda item: item[1].tracker.total)
            slots = slots_for(beam_size, planned[-1][1].tracker.total)
            some = planned[-max(1, len(found) * beam_size // slots) :]
            del planned[-len(some) :]
            chosen = [replace(sentences[row], prefix=plan.prefix) for row, plan in some]
            with_terms = search(chosen, [plan for _, plan in some], slots)
            for (row, plan), hypotheses in zip(some, with_terms, strict=True):
                best, sentence = found[row][0], sentences[row]
                if not hypotheses and plan.deadlines:
                    # All probable words after the term were those that contain it.
                    planned.append((row, Plan(plan.tracker, sentence.prefix, [])))
                elif not self.lacks(best.tokens, sentence.terms):
                    # Only others lack terms. The best translation is the best of any number.
                    others = [
                        one
                        for one in hypotheses
                        if one.tokens != best.tokens and one.score <= best.score
                    ]
                    found[row] = [best, *others][:n_best]
                elif hypotheses:
                    found[row] = hypotheses
        return found

    def lacks(self, tokens: Sequence[int], demands: Sequence[Demand]) -> list[Demand]:
        """The terms that a translation lacks, as far as they can be written."""
        known = [one for one in demands if self._terms.phrase(one.term)]
        return self._terms.missing(known, self._terms.tokenizer.decode(tokens))

    def plans(self, drafts: Sequence[Draft]) -> list[Plan | None]:
        """The plan for each draft; None if no term fits."""
        fitting_demands = list(map(self._fitting, drafts))
        missing = [
            self.lacks(draft.tokens, demands)
            for draft, demands in zip(drafts, fitting_demands, strict=True)
        ]
        places = self._places(drafts, missing)
        return [
            self._plan(draft, demands, [next(places) for _ in lacking]) if demands else None
            for draft, demands, lacking in zip(drafts, fitting_demands, missing, strict=True)
        ]

    def _fitting(self, draft: Draft) -> list[Demand]:
        known = [one for one in draft.sentence.terms if self._terms.phrase(one.term)]
        phrases = [self._terms.phrase(one.term) for one in known]
        kept = fitting(phrases, self._terms.breaks, limit=draft.limit, prefix=draft.sentence.prefix)
        return [known[i] for i in kept]

    def _places(
        self, drafts: Sequence[Draft], missing: Sequence[Sequence[Demand]]
    ) -> Iterator[_Place | None]:
        """The place of each missing term; None for one that no word depends on."""
        pairs = [
            (draft, demand)
            for draft, demands in zip(drafts, missing, strict=True)
            for demand in demands
        ]
        for start in range(0, len(pairs), len(drafts)):
            some = pairs[start : start + len(drafts)]
            tokens = [draft.tokens for draft, _ in some]
            with_it, without = (
                given_log_probs(self._models, sources, tokens, device=self._device)
                for sources in (
                    [draft.sentence.ids for draft, _ in some],
                    [demand.erased for _, demand in some],
                )
            )
            for (draft, demand), one, other in zip(some, with_it, without, strict=True):
                yield self._place(draft, demand, np.subtract(one, other))

    def _place(self, draft: Draft, demand: Demand, differences: Array) -> _Place | None:
        starts = self._word_starts(draft.tokens)
        if not starts:
            return None
        size = len(draft.tokens)
        sums = np.add.reduceat(differences[:size], starts)
        best = int(sums.argmax())
        if sums[best] < LEAST_DIFFERENCE or starts[best] < len(draft.sentence.prefix):
            return None
        end = [*starts[1:], size][best]
        return _Place(starts[best], end, len(self._terms.phrase(demand.term)))

    def _word_starts(self, tokens: Sequence[int]) -> list[int]:
        """Where words begin; a punctuation mark counts as one."""
        continues = self._terms.breaks.continues
        return [i for i, token in enumerate(tokens) if i == 0 or not continues[token]]

    def _plan(
        self, draft: Draft, demands: Sequence[Demand], places: Sequence[_Place | None]
    ) -> Plan:
        phrases = [self._terms.phrase(demand.term) for demand in demands]
        tracker = Tracker(phrases, self._terms.breaks)
        known = sorted((one for one in places if one is not None), key=lambda place: place.start)
        kept = draft.sentence.prefix
        if known and len(known) == len(places):
            before = [i for i in self._word_starts(draft.tokens) if i <= known[0].start]
            start = before[-1 - WORDS_BEFORE] if len(before) > WORDS_BEFORE else 0
            longer = list(draft.tokens[:start])
            if len(draft.sentence.prefix) < start <= draft.limit - tracker.after(longer):
                kept = longer
        needed = tracker.after(kept)
        deadlines = []
        growth = size = 0
        for place in known:
            growth += max(0, place.size - (place.end - place.start))
            size += place.size
            # What the draft has by then, and the missing terms up to this one.
            most = max(0, tracker.after(draft.tokens[: place.start]) - size)
            # Not before it is possible.
            first = len(kept) + needed - most
            deadlines.append(Deadline(max(place.end + growth, first), most))
        return Plan(tracker, kept, deadlines)
