"""Beam search for outputs that contain given phrases (Post & Vilar 2018, dynamic beam allocation).

Like `beam`, this module does not depend on models or text. Hypotheses are divided into banks by
how many tokens of phrases they still need (`phrases`). A full beam of probable hypotheses without
the phrases would push out those that have begun one, so each bank has slots of its own. EOS is
possible only for hypotheses that have all phrases.

Departures from the paper: slots that a bank does not need go to the most probable candidates of all
others. A hypothesis that could no longer have all phrases within the length limit is pruned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mtkit.search_settings import Array, SearchSettings
from mtkit.translate.search.beam import Choice, Chooser
from mtkit.translate.search.on_device import top_k
from mtkit.translate.search.phrases import Deadline, Tracker, slots_for


class Banks(Chooser):
    """Chooses probable hypotheses of each bank; only those that contain their phrases end.

    The candidates of a decoding step are the 2·beam most probable next tokens of each hypothesis,
    and all that advance a phrase. As in `beam_search`, a hypothesis ends if EOS is among the 2·beam
    best candidates (with beam 1, if it is the best one), here of hypotheses with all phrases.

    Args:
        settings: tokens that advance a phrase are exempt from its `no_repeat_ngram`.
        trackers: of the phrases of each sentence, which must be `fitting`. The cache has W slots
            for each, the most that `slots_for` gives for one of them.
        deadlines: per sentence, when it must have phrases; they must be possible.
        beam_size: that of the search.
    """

    def __init__(
        self,
        settings: SearchSettings,
        trackers: Sequence[Tracker],
        deadlines: Sequence[Sequence[Deadline]],
        beam_size: int,
    ) -> None:
        given = settings.constraints and settings.constraints.prefixes
        prefixes, limits = given or [()] * len(trackers), settings.max_lengths
        self._sentences = [
            _Sentence(tracker, beam_size, [*of_sentence, Deadline(limit, 0)], len(prefix))
            for tracker, of_sentence, limit, prefix in zip(
                trackers, deadlines, limits, prefixes, strict=True
            )
        ]
        super().__init__(settings, max(sentence.slots for sentence in self._sentences))
        self._beam_size = beam_size
        # Per sentence and slot, the state of its tracker.
        self._states = [[0] * self.slots for _ in self._sentences]

    def choose(self, next_RV: Tensor, rows: Tensor, log_probs_BW: Tensor, done: int) -> Choice:
        """As `Chooser.choose`, on the host."""
        W, length = self.slots, done + 1
        rows_R = rows.tolist()
        places_R = [row // W for row in rows_R]
        states_R = [self._states[row // W][row % W] for row in rows_R]
        before_R = log_probs_BW.view(-1)[rows].tolist()
        hypotheses = [
            _Hypothesis(log_prob, row % W, state)
            for log_prob, row, state in zip(before_R, rows_R, states_R, strict=True)
        ]
        # The tokens of each row that advance a phrase, and the rows that may not end.
        wanted: list[Sequence[int]] = []
        lacking = []
        for row, (place, state) in enumerate(zip(places_R, states_R, strict=True)):
            sentence = self._sentences[place]
            is_free = length > sentence.forced
            wanted.append(sentence.tracker.advancing(state) if is_free else ())
            if sentence.tracker.remaining[state]:
                lacking.append(row)
        # Read before tokens are excluded, except where a prefix leaves no choice.
        advancing = _gathered(next_RV, wanted)
        self.constrainer.forbid(next_RV, rows, done)
        next_RV[lacking, self.eos_id] = -torch.inf
        top_RC, ids_RC = top_k(next_RV, min(2 * self._beam_size, next_RV.shape[1]))
        tops, ids = top_RC.double().tolist(), ids_RC.tolist()

        chosen = []
        bounds = np.searchsorted(places_R, np.arange(len(self._sentences) + 1)).tolist()
        for sentence, (start, end) in zip(self._sentences, pairwise(bounds), strict=True):
            candidates: list[_Hypothesis] = []
            for row in range(start, end):
                gains = dict(zip(ids[row], tops[row], strict=True))
                # Those that advance a phrase come last, each once.
                for token, gain in advancing[row].items():
                    gains.pop(token, None)
                    gains[token] = gain
                candidates += sentence.continued(hypotheses[row], gains, self.eos_id, length)
            chosen.append(sentence.chosen(candidates, self.eos_id))
        ended, kept = zip(*chosen, strict=True)
        ended_log_probs, ended_parents, _, _ = _arrays(ended, max(map(len, ended)))
        log_probs, parents, states, tokens = _arrays(kept, W)
        self._states = states.tolist()
        arrays = log_probs, tokens, parents, ended_log_probs, ended_parents
        return Choice(*(torch.as_tensor(array, device=next_RV.device) for array in arrays))

    def select(self, sentences: Tensor) -> None:
        """As `Chooser.select`."""
        super().select(sentences)
        kept = sentences.tolist()
        self._sentences = [self._sentences[b] for b in kept]
        self._states = [self._states[b] for b in kept]


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
        """The candidates that end, and one for each slot that continues, most probable first."""
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
        for candidate in sorted(candidates, key=lambda item: -item.log_prob):
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
        return ended, sorted(kept, key=lambda candidate: -candidate.log_prob)


def _arrays(hypotheses: Sequence[Sequence[_Hypothesis]], width: int) -> list[Array]:
    """Log-probabilities, slots, states and tokens, each (B, width); -inf for no hypothesis."""
    log_probs = np.full((len(hypotheses), width), -np.inf)
    arrays = [log_probs, *(np.zeros(log_probs.shape, dtype=np.int64) for _ in range(3))]
    for row, of_sentence in enumerate(hypotheses):
        for array, column in zip(arrays, zip(*of_sentence, strict=True), strict=False):
            array[row, : len(of_sentence)] = column
    return arrays


def _gathered(log_probs_RV: Tensor, wanted: Sequence[Sequence[int]]) -> list[dict[int, float]]:
    """The log-probabilities of some tokens of each row."""
    rows = [row for row, tokens in enumerate(wanted) for _ in tokens]
    flat = [token for tokens in wanted for token in tokens]
    values = iter(log_probs_RV[rows, flat].double().tolist() if rows else [])
    return [{token: next(values) for token in tokens} for tokens in wanted]
