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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mtkit.model import Transformer
from mtkit.translate.constraints import Array
from mtkit.translate.engine import given_log_probs
from mtkit.translate.phrases import Deadline, Tracker, fitting
from mtkit.translate.terms import Demand, TermSpeller

# A word depends on a term if erasing the term lowers its log-probability by this or more.
LEAST_DIFFERENCE = 2.5
# So many words before the first term may change, such as articles and adjectives.
WORDS_BEFORE = 2


@dataclass(frozen=True)
class Draft:
    """A sentence, and its translation without regard to terms.

    Attributes:
        source: its ids, without EOS.
        tokens: of the translation, without EOS.
        demands: the terms.
        prefix: tokens that a translation must begin with.
        limit: maximum number of its tokens; EOS may be cut off.
    """

    source: list[int]
    tokens: Sequence[int]
    demands: Sequence[Demand]
    prefix: list[int]
    limit: int


@dataclass(frozen=True)
class Plan:
    """How to find the translation with the terms.

    Attributes:
        tracker: of the terms.
        prefix: tokens that the translation begins with.
        deadlines: when it must have terms.
    """

    tracker: Tracker
    prefix: list[int]
    deadlines: list[Deadline]


@dataclass(frozen=True)
class _Place:
    """The tokens of a draft that a term replaces, and the number of tokens of the term."""

    start: int
    end: int
    size: int


class Planner:
    """Plans translations with terms.

    Args:
        models: on their device, in evaluation mode; of several, the mean probability is used.
        speller: of the target language.
        device: of the models.
    """

    def __init__(
        self, models: Sequence[Transformer], speller: TermSpeller, *, device: torch.device
    ) -> None:
        self._models = models
        self._speller = speller
        self._device = device

    def lacks(self, tokens: Sequence[int], demands: Sequence[Demand]) -> list[Demand]:
        """The terms that a translation lacks, as far as they can be written."""
        speller = self._speller
        known = [one for one in demands if speller.phrase(one.term) is not None]
        missing = speller.missing([one.term for one in known], speller.text(tokens))
        # Of a term that is demanded twice, the last ones.
        lacking = []
        for demand in reversed(known):
            if demand.term in missing:
                missing.remove(demand.term)
                lacking.append(demand)
        return lacking[::-1]

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
        spelt = [(one, self._speller.phrase(one.term)) for one in draft.demands]
        known = [(one, phrase) for one, phrase in spelt if phrase is not None]
        phrases = [phrase for _, phrase in known]
        kept = fitting(phrases, self._speller.breaks, limit=draft.limit, prefix=draft.prefix)
        return [known[i][0] for i in kept]

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
                    [draft.source for draft, _ in some],
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
        phrase = self._speller.phrase(demand.term)
        if sums[best] < LEAST_DIFFERENCE or starts[best] < len(draft.prefix) or phrase is None:
            return None
        return _Place(starts[best], [*starts[1:], size][best], len(phrase))

    def _word_starts(self, tokens: Sequence[int]) -> list[int]:
        """Where words begin; a punctuation mark counts as one."""
        continues = self._speller.breaks.continues
        return [i for i, token in enumerate(tokens) if i == 0 or not continues[token]]

    def _plan(
        self, draft: Draft, demands: Sequence[Demand], places: Sequence[_Place | None]
    ) -> Plan:
        phrases = (self._speller.phrase(demand.term) for demand in demands)
        tracker = Tracker([one for one in phrases if one is not None], self._speller.breaks)
        known = sorted((one for one in places if one is not None), key=lambda place: place.start)
        kept = draft.prefix
        if known and len(known) == len(places):
            before = [i for i in self._word_starts(draft.tokens) if i <= known[0].start]
            start = before[-1 - WORDS_BEFORE] if len(before) > WORDS_BEFORE else 0
            longer = list(draft.tokens[:start])
            if len(draft.prefix) < start <= draft.limit - tracker.after(longer):
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
