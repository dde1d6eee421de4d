"""Constrained beam search, against enumeration of all outputs that contain the phrases."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.score_tables import BOS, EOS, Prefixes, step_of, total

from mtkit.search_settings import Constraints, Hypothesis, SearchSettings
from mtkit.translate.search.beam import beam_search
from mtkit.translate.search.phrase_search import Banks
from mtkit.translate.search.phrases import (
    MAX_SLOTS,
    Deadline,
    Phrase,
    Spelling,
    Tracker,
    WordBreaks,
    fitting,
    slots_for,
)

VOCAB = 5
# Every token is a word.
WORDS = WordBreaks(np.zeros(VOCAB, dtype=bool), np.zeros(VOCAB, dtype=bool))
# Token 4 is the end of a word that another token begins.
SUFFIX = WordBreaks(np.arange(VOCAB) == 4, np.zeros(VOCAB, dtype=bool))
# Token 4 is a bracket.
OPENING = WordBreaks(np.zeros(VOCAB, dtype=bool), np.arange(VOCAB) == 4)

Tokens = tuple[int, ...]


def phrase(*tokens: int) -> Phrase:
    return Phrase((Spelling(tokens),), is_word=True)


def contains(
    output: Tokens, phrases: Sequence[Phrase], breaks: WordBreaks, taken: frozenset[int]
) -> bool:
    """Whether each phrase has a place of its own; every way to place them is tried."""
    if not phrases:
        return True
    first, *others = phrases
    for spelling in first.spellings:
        size = len(spelling.tokens)
        for at in range(len(output) - size + 1):
            after = output[at + size : at + size + 1]
            if (
                output[at : at + size] == spelling.tokens
                and not (first.is_word and after and breaks.continues[after[0]])
                and not (spelling.needs_opening and at and not breaks.opening[output[at - 1]])
                and taken.isdisjoint(own := range(at, at + size))
                and contains(output, others, breaks, taken | frozenset(own))
            ):
                return True
    return False


def search(
    phrases: list[list[Phrase]],
    *,
    beam_size: int,
    limit: int = 5,
    n_best: int = 1,
    breaks: WordBreaks = WORDS,
    tables: list[int] | None = None,
    constraints: Constraints | None = None,
    rank_cut_off: bool = False,
    deadlines: Sequence[Deadline] = (),
) -> list[list[Hypothesis]]:
    trackers = [Tracker(of_sentence, breaks) for of_sentence in phrases]
    width = max(slots_for(beam_size, tracker.total) for tracker in trackers)
    settings = SearchSettings([limit] * len(phrases), BOS, EOS, 0.6, constraints=constraints)
    return beam_search(
        step_of(width, VOCAB),
        Prefixes(tables or list(range(len(phrases))), width),
        settings,
        beam_size=beam_size,
        n_best=n_best,
        rank_cut_off=rank_cut_off,
        chooser=Banks(settings, trackers, [deadlines] * len(phrases), beam_size),
    )


def outputs(longest: int) -> list[Tokens]:
    """All outputs without EOS."""
    lengths = range(longest + 1)
    return [t for n in lengths for t in itertools.product(range(2, VOCAB), repeat=n)]


PHRASES = [
    [phrase(2)],
    [phrase(2, 3)],
    [phrase(2, 2)],
    [phrase(2), phrase(3)],
    [phrase(2), phrase(2)],
    [phrase(2, 3), phrase(2)],
    [phrase(2, 2, 3)],
    [phrase(2, 3, 2), phrase(3)],
    [phrase(2, 3), phrase(4, 2)],
    [phrase(2, 2), phrase(2)],
    [Phrase((Spelling((2, 3)), Spelling((4,))))],
    # A spelling can need an opening token before it.
    [Phrase((Spelling((2, 3)), Spelling((3, 3), needs_opening=True)))],
]
BREAKS = pytest.mark.parametrize("breaks", [WORDS, SUFFIX, OPENING])


@BREAKS
@pytest.mark.parametrize("phrases", PHRASES)
def test_the_tracker_finds_the_phrases_of_every_output(phrases: list[Phrase], breaks: WordBreaks):
    # Where phrases can overlap, the tracker takes the first one, and may need another place then.
    is_certain = phrases != [phrase(2, 3), phrase(4, 2)]
    tracker = Tracker(phrases, breaks)
    for output in outputs(6):
        state = 0
        for token in output:
            state = tracker.follow(state, token)
        is_there = contains(output, phrases, breaks, frozenset())
        if is_certain or not is_there:
            assert (tracker.remaining[state] == 0) == is_there, output


@BREAKS
@pytest.mark.parametrize("phrases", PHRASES)
def test_a_wide_beam_finds_what_enumeration_finds(phrases: list[Phrase], breaks: WordBreaks):
    limit, alpha = 5, 0.6
    nbests = search([phrases] * 4, beam_size=100, limit=limit, n_best=5, breaks=breaks)
    possible = [t for t in outputs(limit - 1) if contains(t, phrases, breaks, frozenset())]
    for table, hypotheses in enumerate(nbests):
        scored = [
            (total(table, (*output, EOS), VOCAB) / ((6 + len(output)) / 6) ** alpha, output)
            for output in possible
        ]
        ended = [h for h in hypotheses if h.finished]
        for h, (score, output) in zip(ended, sorted(scored, reverse=True)[:5], strict=True):
            assert (h.tokens, h.score) == (output, pytest.approx(score))


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("phrases", PHRASES)
def test_an_output_has_its_phrases_by_the_deadline(phrases: list[Phrase], beam_size: int):
    by = sum(map(len, phrases)) + 1
    deadlines = [Deadline(by, 0), Deadline(7, 0)]
    for hypotheses in search([phrases] * 20, beam_size=beam_size, limit=8, deadlines=deadlines):
        assert hypotheses
        for h in hypotheses:
            assert contains(h.tokens[:by], phrases, WORDS, frozenset())


def test_a_deadline_can_be_for_some_of_the_phrases():
    phrases = [[phrase(2), phrase(3)]] * 20
    for hypotheses in search(phrases, beam_size=4, limit=8, deadlines=[Deadline(1, 1)]):
        assert all(h.tokens[0] in {2, 3} for h in hypotheses)


spelled = st.lists(st.integers(2, VOCAB - 1), min_size=1, max_size=3).map(tuple)


@given(
    st.lists(spelled.map(lambda tokens: phrase(*tokens)), min_size=1, max_size=4),
    st.integers(0, 3),
    st.integers(1, 3),
    st.booleans(),
)
def test_phrases_that_just_fit_are_all_placed(phrases, spare, beam_size, has_suffixes):
    # A phrase that begins with the end of a word cannot follow another one.
    breaks = SUFFIX if has_suffixes else WORDS
    if has_suffixes:
        phrases = [p for p in phrases if p.spellings[0].tokens[0] != 4] or [phrase(2)]
    limit = sum(map(len, phrases)) + spare
    (hypotheses,) = search([phrases], beam_size=beam_size, limit=limit, breaks=breaks)
    assert hypotheses
    for h in hypotheses:
        assert len(h.tokens) <= limit
        assert contains(h.tokens, phrases, breaks, frozenset())


def test_a_sentence_does_not_depend_on_those_it_shares_a_batch_with():
    options = {"beam_size": 3, "limit": 9, "n_best": 3}
    phrases = [PHRASES[i % len(PHRASES)] for i in range(33)]
    for table, hypotheses in enumerate(search(phrases, **options)):
        assert search([phrases[table]], tables=[table], **options) == [hypotheses]


def test_what_a_limit_cuts_off_has_its_phrases_and_comes_last():
    for of_one in search([[phrase(2, 3, 4)]] * 20, beam_size=4, limit=3, n_best=4):
        # There is room for nothing else, not even EOS.
        assert [(h.tokens, h.finished) for h in of_one] == [((2, 3, 4), False)]
    for of_one in search([[phrase(2, 3)]] * 20, beam_size=4, limit=4, n_best=4):
        ended = [h.finished for h in of_one]
        assert ended == sorted(ended, reverse=True)
        assert all(contains(h.tokens, [phrase(2, 3)], WORDS, frozenset()) for h in of_one)
    ranked = search([[phrase(2)]] * 20, beam_size=4, limit=3, n_best=4, rank_cut_off=True)
    assert any(not best.finished for best, *_ in ranked)
    for of_one in ranked:
        assert [h.score for h in of_one] == sorted((h.score for h in of_one), reverse=True)


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize(("min_length", "no_repeat_ngram"), [(7, 0), (0, 1), (0, 2)])
def test_phrases_go_with_prefixes_lengths_and_no_repeats(min_length, no_repeat_ngram, beam_size):
    prefixes = [[2, 3], [], [4], [3, 3, 3], [2]]
    phrases = [phrase(3, 4), phrase(3, 4), phrase(2)]
    constraints = Constraints(min_length, no_repeat_ngram, prefixes)
    nbests = search([phrases] * 5, beam_size=beam_size, limit=9, constraints=constraints)
    for prefix, (best,) in zip(prefixes, nbests, strict=True):
        assert best.tokens[: len(prefix)] == tuple(prefix)
        assert len(best.tokens) >= min_length
        # The phrases are exempt: 3 and 4 come twice.
        assert contains(best.tokens, phrases, WORDS, frozenset())


def test_a_phrase_that_the_prefix_has_is_not_demanded_again():
    constraints = Constraints(prefixes=[[2, 3]] * 20)
    nbests = search([[phrase(2, 3)]] * 20, beam_size=4, limit=6, constraints=constraints)
    assert any((2, 3) not in itertools.pairwise(best.tokens[1:]) for (best,) in nbests)


def test_phrases_that_do_not_fit_are_left_out_the_longest_first():
    phrases = [phrase(2, 3, 4), phrase(2), phrase(3, 3)]
    kept = [fitting(phrases, WORDS, limit=limit) for limit in range(8)]
    assert kept == [[], [1], [1], [1, 2], [1, 2], [1, 2], [0, 1, 2], [0, 1, 2]]
    # The prefix takes room, and has a phrase.
    assert fitting(phrases, WORDS, limit=5, prefix=(4, 3, 3)) == [1, 2]


def test_more_tokens_of_phrases_than_slots_are_placed_all_the_same():
    phrases = [phrase(2, 3)] * 40
    assert slots_for(4, 80) == MAX_SLOTS
    for (best,) in search([phrases] * 2, beam_size=4, limit=90):
        assert contains(best.tokens, phrases, WORDS, frozenset())
