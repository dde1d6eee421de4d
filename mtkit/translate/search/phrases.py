"""Phrases that an output must contain, and how to find them in outputs while they grow.

Like `beam`, this module does not depend on models or text. A phrase is a sequence of tokens; each
must occur in the output, and no two of them overlap. A phrase that is a word counts only if the
next token does not continue the word. The search is in `phrase_search`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mtkit.search_settings import Array

# The most slots of a sentence, unless the beam itself is larger: a step takes as long as all slots.
MAX_SLOTS = 64


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

    Some tokens continue the word of the token before; after an opening one, such as a bracket, a
    word begins without a space.
    """

    continues: Array
    opening: Array


class Deadline(NamedTuple):
    """An output of `length` tokens may lack at most `remaining` tokens of phrases."""

    length: int
    remaining: int


class _State(NamedTuple):
    """How often phrases must still occur, and the newest tokens, if they begin one."""

    unmet: tuple[int, ...]
    is_opened: bool
    begun: tuple[int, ...]


class Tracker:
    """Finds phrases in outputs while they grow; one that is given twice must occur twice.

    It is an automaton. States are numbers, and 0 is that of the empty output. A state is computed
    when it is first reached, because there may be very many.
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
        """The tokens after which fewer are needed, ascending: they continue or begin a phrase."""
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
        using = tuple(t for t in sorted(options) if self.remaining[self.follow(state, t)] < needed)
        self._advancing[state] = using
        return using

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
    return max(beam_size, min(2 * beam_size + total - 1, MAX_SLOTS))


def fitting(
    phrases: Sequence[Phrase], breaks: WordBreaks, *, limit: int, prefix: Sequence[int] = ()
) -> list[int]:
    """Which phrases fit in an output of `limit` tokens with a prefix; EOS may be cut off."""

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
