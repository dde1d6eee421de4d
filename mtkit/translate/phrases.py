"""Beam search for outputs that contain given phrases (Post & Vilar 2018, dynamic beam allocation).

Like `search`, this module does not depend on models or text. A phrase is a sequence of tokens; each
must occur in the output, and no two of them overlap. Hypotheses are divided into banks by how many
tokens of phrases they still need. A full beam of probable hypotheses without the phrases would push
out those that have begun one, so each bank has slots of its own. EOS is possible only for
hypotheses that have all phrases.

Departures from the paper: slots that a bank does not need go to the most probable candidates of all
others. A hypothesis that could no longer have all phrases within the length limit is pruned.
A phrase that is a word counts only if the next token does not continue the word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mtkit.translate.constraints import Array
from mtkit.translate.search import (
    Cache,
    Choice,
    Chooser,
    History,
    Hypothesis,
    SearchSettings,
    Step,
    beam_search,
    top_k,
)

# The most slots of a sentence, unless the beam itself is larger: a step takes as long as all slots.
MOST_SLOTS = 64


@dataclass(frozen=True)
class Spelling:
    """A sequence of tokens that makes a phrase.

    With `needs_opening` it is possible only at the start and after tokens that `WordBreaks` calls
    opening.
    """

    tokens: tuple[int, ...]
    needs_opening: bool = False


@dataclass(frozen=True)
class Phrase:
    """A phrase that an output must contain.

    Any spelling will do; the first one is possible after every token. If the phrase is a word, it
    ends with a letter, and the next token must not continue the word.
    """

    spellings: tuple[Spelling, ...]
    is_word: bool = False

    def __len__(self) -> int:
        """Number of tokens of the first spelling; 0 without one."""
        return len(self.spellings[0].tokens) if self.spellings else 0


@dataclass(frozen=True, eq=False)
class WordBreaks:
    """Where words end, as two masks of the vocabulary (V,).

    Attributes:
        continues: tokens that begin with a letter of the same word as the token before.
        opening: tokens after which a word begins without a space, such as an opening bracket.
    """

    continues: Array
    opening: Array


class Deadline(NamedTuple):
    """An output of `length` tokens may lack at most `remaining` tokens of phrases."""

    length: int
    remaining: int


class _State(NamedTuple):
    """What a hypothesis has of the phrases.

    Attributes:
        unmet: for each different phrase, how often it must still occur.
        is_opened: whether the token before `begun` is an opening one, or there is none.
        begun: the newest tokens, as far as they are the beginning of an unmet phrase, or all of it.
    """

    unmet: tuple[int, ...]
    is_opened: bool
    begun: tuple[int, ...]


class Tracker:
    """Finds phrases in outputs while they grow, from left to right.

    It is an automaton. States are numbers, and 0 is that of the empty output. A state is computed
    when it is first reached, because there may be very many.

    Args:
        phrases: a phrase that is given twice must occur twice.
        breaks: where words end.
    """

    def __init__(self, phrases: Sequence[Phrase], breaks: WordBreaks) -> None:
        self._phrases = list(dict.fromkeys(phrases))
        self._breaks = breaks
        self.total = sum(map(len, phrases))
        self._numbers: dict[_State, int] = {}
        self._states: list[_State] = []
        # By state: how many tokens of phrases an output still needs at least.
        self.remaining: list[int] = []
        self._next: dict[tuple[int, int], int] = {}
        self._advancing: dict[int, tuple[int, ...]] = {}
        self._number(_State(tuple(phrases.count(p) for p in self._phrases), True, ()))

    def after(self, tokens: Iterable[int]) -> int:
        """How many tokens of phrases an output needs that begins with these tokens."""
        state = 0
        for token in tokens:
            state = self.follow(state, token)
        return self.remaining[state]

    def follow(self, state: int, token: int) -> int:
        """The state after one more token."""
        if (state, token) not in self._next:
            self._next[state, token] = self._number(self._after(self._states[state], token))
        return self._next[state, token]

    def advancing(self, state: int) -> tuple[int, ...]:
        """The tokens after which fewer are needed, ascending.

        They continue the phrase that is begun, or begin one if none is.
        """
        if state in self._advancing:
            return self._advancing[state]
        now = self._states[state]
        done = len(now.begun)
        options = {tokens[done] for _, tokens in self._beginning(now) if len(tokens) > done}
        whole = self._whole(now)
        if whole is not None:
            then = self._settled(_without(now.unmet, whole), now.begun, done)
            options |= {tokens[0] for _, tokens in self._beginning(then)}
        needed = self.remaining[state]
        found = tuple(t for t in sorted(options) if self.remaining[self.follow(state, t)] < needed)
        self._advancing[state] = found
        return found

    def _number(self, state: _State) -> int:
        if state not in self._numbers:
            self._numbers[state] = len(self._states)
            self._states.append(state)
            self.remaining.append(self._needs(state))
        return self._numbers[state]

    def _needs(self, state: _State) -> int:
        total = sum(n * len(phrase) for n, phrase in zip(state.unmet, self._phrases, strict=True))
        if not state.begun:
            return total
        return min(
            total - len(self._phrases[i]) + len(tokens) - len(state.begun)
            for i, tokens in self._beginning(state)
        )

    def _after(self, state: _State, token: int) -> _State:
        unmet, is_opened, begun = state
        longer = (*begun, token)
        if self._beginning(longer_state := _State(unmet, is_opened, longer)):
            return longer_state
        # What was begun is broken off. Does it begin with a whole phrase? The longest one counts.
        for length in range(len(begun), 0, -1):
            whole = self._whole(_State(unmet, is_opened, longer[:length]))
            if whole is not None and not (
                self._phrases[whole].is_word and self._breaks.continues[longer[length]]
            ):
                return self._settled(_without(unmet, whole), longer, length)
        # The first token belongs to no phrase; one may begin with the second.
        return self._settled(unmet, longer, 1)

    def _settled(self, unmet: tuple[int, ...], tokens: tuple[int, ...], done: int) -> _State:
        """The state after these tokens, of which the first `done` can be in no further phrase."""
        state = _State(unmet, bool(self._breaks.opening[tokens[done - 1]]), ())
        for token in tokens[done:]:
            state = self._after(state, token)
        return state

    def _beginning(self, state: _State) -> list[tuple[int, tuple[int, ...]]]:
        """The unmet phrases, and the spelling, that begin with what is begun or are that."""
        size = len(state.begun)
        return [
            (i, spelling.tokens)
            for i, phrase in enumerate(self._phrases)
            if state.unmet[i]
            for spelling in phrase.spellings
            if spelling.tokens[:size] == state.begun
            and (state.is_opened or not spelling.needs_opening)
        ]

    def _whole(self, state: _State) -> int | None:
        """The first one that is complete."""
        size = len(state.begun)
        return next((i for i, tokens in self._beginning(state) if len(tokens) == size), None)


def _without(unmet: tuple[int, ...], phrase: int) -> tuple[int, ...]:
    return (*unmet[:phrase], unmet[phrase] - 1, *unmet[phrase + 1 :])


def slots_for(beam_size: int, total: int) -> int:
    """The slots of a sentence whose phrases have `total` tokens."""
    return max(beam_size, min(2 * beam_size + total - 1, MOST_SLOTS))


def fitting(
    phrases: Sequence[Phrase], breaks: WordBreaks, *, limit: int, prefix: Sequence[int] = ()
) -> list[int]:
    """Which phrases fit in an output, as many as possible.

    The output has at most `limit` tokens, and begins with `prefix`; EOS may be cut off.
    """

    def fits(chosen: Sequence[int]) -> bool:
        tracker = Tracker([phrases[i] for i in chosen], breaks)
        return tracker.after(prefix) <= limit - len(prefix)

    everything = list(range(len(phrases)))
    if fits(everything):
        return everything
    kept: list[int] = []
    for i in sorted(everything, key=lambda i: len(phrases[i])):
        if fits([*kept, i]):
            kept.append(i)
    return sorted(kept)


def constrained_search(
    step: Step[Cache],
    cache: Cache,
    settings: SearchSettings,
    trackers: Sequence[Tracker],
    *,
    beam_size: int,
    deadlines: Sequence[Sequence[Deadline]] | None = None,
    n_best: int = 1,
    rank_cut_off: bool = False,
) -> list[list[Hypothesis]]:
    """The best hypotheses of B sentences that contain their phrases.

    The candidates of a decoding step are the 2·beam most probable next tokens of each hypothesis,
    and all that advance a phrase. As in `beam_search`, a hypothesis ends if EOS is among the 2·beam
    best candidates (with beam 1, if it is the best one); here, of those with all phrases.

    Args:
        cache: of B sentences with W slots each, the most that `slots_for` gives for one of them.
        settings: tokens that advance a phrase are exempt from its `no_repeat_ngram`.
        trackers: of the phrases of each sentence, which must be `fitting`.
        deadlines: per sentence, when it must have phrases; they must be possible.
        step, others: as in `beam_search`.

    Returns:
        For each sentence up to `n_best` hypotheses, best first; all have all phrases.
    """
    nothing: Sequence[Sequence[Any]] = [()] * len(trackers)
    prefixes = (settings.constraints and settings.constraints.prefixes) or nothing
    sentences = [
        _Sentence(tracker, beam_size, [*of_sentence, Deadline(limit, 0)], len(prefix))
        for tracker, of_sentence, limit, prefix in zip(
            trackers, deadlines or nothing, settings.max_lengths, prefixes, strict=True
        )
    ]
    return beam_search(
        step,
        cache,
        settings,
        beam_size=beam_size,
        n_best=n_best,
        rank_cut_off=rank_cut_off,
        chooser=_Banks(settings, sentences, beam_size),
    )


class _Banks(Chooser):
    """Chooses probable hypotheses of each bank."""

    def __init__(
        self, settings: SearchSettings, sentences: Sequence[_Sentence], beam_size: int
    ) -> None:
        slots = max(sentence.slots for sentence in sentences)
        super().__init__(settings, slots)
        self._sentences = sentences
        self._beam_size = beam_size
        # Per sentence and slot, the state of its tracker.
        self._states = np.zeros((len(sentences), slots), dtype=np.int64)

    def choose(
        self,
        next_RV: Tensor,
        rows_R: Array,
        log_probs_BW: Array,
        active: Array,
        history: History,
    ) -> Choice:
        """As `Chooser.choose`."""
        length = len(history) + 1
        places_R, slots_R = np.divmod(rows_R, self.slots)
        sentences_R = active[places_R]
        states_R = self._states[sentences_R, slots_R].tolist()
        before_R = log_probs_BW.flat[rows_R].tolist()
        hypotheses = list(map(_Hypothesis, before_R, slots_R.tolist(), states_R))
        # The tokens of each row that advance a phrase, and the rows that may not end.
        wanted: list[Sequence[int]] = []
        lacking = []
        for row, (number, state) in enumerate(zip(sentences_R, states_R, strict=True)):
            sentence = self._sentences[number]
            is_free = length > sentence.forced
            wanted.append(sentence.tracker.advancing(state) if is_free else ())
            if sentence.tracker.remaining[state]:
                lacking.append(row)
        # Read before tokens are excluded, except where a prefix leaves no choice.
        advancing = _gathered(next_RV, wanted)
        self.constrainer.forbid(next_RV, history, sentences_R, slots_R)
        next_RV[lacking, self.eos_id] = -torch.inf
        top_RC, ids_RC = top_k(next_RV, min(2 * self._beam_size, next_RV.shape[1]))
        tops, ids = top_RC.double().tolist(), ids_RC.tolist()

        ended: list[tuple[int, int, float]] = []
        log_probs_BW = np.full(log_probs_BW.shape, -np.inf)
        parents_BW = np.zeros(log_probs_BW.shape, dtype=np.int64)
        tokens_BW, states_BW = np.zeros_like(parents_BW), np.zeros_like(parents_BW)
        bounds = np.searchsorted(places_R, np.arange(len(active) + 1)).tolist()
        for index, (start, end) in enumerate(pairwise(bounds)):
            sentence = self._sentences[active[index]]
            candidates: list[_Hypothesis] = []
            for row in range(start, end):
                gains = dict(zip(ids[row], tops[row], strict=True))
                # Those that advance a phrase come last, each once.
                for token, gain in advancing[row].items():
                    gains.pop(token, None)
                    gains[token] = gain
                candidates += sentence.continued(hypotheses[row], gains, self.eos_id, length)
            at_end, kept = sentence.chosen(candidates, self.eos_id)
            ended += [(index, one.slot, one.log_prob) for one in at_end]
            if kept:
                arrays = log_probs_BW, parents_BW, states_BW, tokens_BW
                for array, column in zip(arrays, zip(*kept, strict=True), strict=True):
                    array[index, : len(kept)] = column
        self._states[active] = states_BW
        return Choice(ended, log_probs_BW, tokens_BW, parents_BW)


class _Hypothesis(NamedTuple):
    """A hypothesis; `slot` is where it was before its newest token."""

    log_prob: float
    slot: int
    state: int
    token: int = -1


class _Sentence:
    """Continues and chooses the hypotheses of one sentence, whose first tokens are forced."""

    def __init__(
        self, tracker: Tracker, beam_size: int, deadlines: Sequence[Deadline], forced: int
    ) -> None:
        self.tracker = tracker
        self.slots = slots_for(beam_size, tracker.total)
        self.forced = forced
        self._deadlines = deadlines
        self._considered = 2 * beam_size if beam_size > 1 else 1

    def continued(
        self, before: _Hypothesis, gains: dict[int, float], eos_id: int, length: int
    ) -> Iterator[_Hypothesis]:
        """A hypothesis with some tokens, which have these log-probabilities."""
        follow, remaining = self.tracker.follow, self.tracker.remaining
        most = min(most + max(0, by - length) for by, most in self._deadlines)
        for token, gain in gains.items():
            if gain > -np.inf:
                # Only a hypothesis with all phrases may end.
                state = before.state if token == eos_id else follow(before.state, token)
                if length <= self.forced or remaining[state] <= most:
                    yield _Hypothesis(before.log_prob + gain, before.slot, state, token)

    def chosen(
        self, candidates: Sequence[_Hypothesis], eos_id: int
    ) -> tuple[list[_Hypothesis], list[_Hypothesis]]:
        """The candidates that end, and those that continue, at most one for each slot.

        Both are sorted, the most probable first.
        """
        ended: list[_Hypothesis] = []
        kept: list[_Hypothesis] = []
        others: list[_Hypothesis] = []

        def bank_of(candidate: _Hypothesis) -> int:
            # A spelling with more tokens than the first one may need more than all had at first.
            return min(self.tracker.remaining[candidate.state], self.tracker.total)

        # The number of slots of each bank.
        banks = sorted(set(map(bank_of, candidates)))
        share, more = divmod(self.slots, self.tracker.total + 1)
        room = {bank: share if bank else share + more for bank in banks}
        if not share:
            # More banks than slots: those that need the fewest tokens have one each.
            room = dict.fromkeys(banks[: self.slots], 1)
        complete = 0
        for candidate in sorted(candidates, key=lambda one: -one.log_prob):
            bank = bank_of(candidate)
            complete += bank == 0
            if candidate.token == eos_id:
                if complete <= self._considered:
                    ended.append(candidate)
            elif room.get(bank, 0):
                room[bank] -= 1
                kept.append(candidate)
            else:
                others.append(candidate)
        kept += others[: self.slots - len(kept)]
        return ended, sorted(kept, key=lambda one: -one.log_prob)


def _gathered(log_probs_RV: Tensor, wanted: Sequence[Sequence[int]]) -> list[dict[int, float]]:
    """The log-probabilities of some tokens of each row."""
    rows = [row for row, tokens in enumerate(wanted) for _ in tokens]
    flat = [token for tokens in wanted for token in tokens]
    values = iter(log_probs_RV[rows, flat].double().tolist() if rows else [])
    return [{token: next(values) for token in tokens} for tokens in wanted]
