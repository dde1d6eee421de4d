"""When a beam search ends a sentence: `exact` and `likely`, against searches in plain Python.

Those search one sentence, with lists of hypotheses, and the rules are written out in them.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from support.score_tables import BOS, EOS, Prefixes, log_probs, step_of
from support.translators import loaded

from mtkit.search_settings import Constraints, Hypothesis, SearchSettings
from mtkit.translate.requests import Sentence
from mtkit.translate.search.beam import beam_search

Tokens = tuple[int, ...]
# From the tokens so far to the log-probabilities of all next ones.
Next = Callable[[Tokens], Sequence[float]]
# Tokens and scores, best first, and the number of steps that the search took.
Found = tuple[list[tuple[Tokens, float]], int]
RULES = ("exact", "likely")
WIDTHS = pytest.mark.parametrize("width", [2, 4, 8])
ALPHAS = pytest.mark.parametrize("alpha", [-0.5, 0.0, 0.6, 1.0])
FORMS = pytest.mark.parametrize("form", ["gnmt", "power"])


@dataclass(frozen=True)
class Case:
    """What is searched for."""

    width: int
    n_best: int
    limit: int
    alpha: float
    form: Any
    rank_cut_off: bool = False

    def penalty(self, length: int) -> float:
        base = length if self.form == "power" else (5 + length) / 6
        return float(base**self.alpha)

    def settings(self, sentences: int, stop: Any, **others: Any) -> SearchSettings:
        limits = [self.limit] * sentences
        return SearchSettings(limits, BOS, EOS, self.alpha, self.form, stop=stop, **others)

    @property
    def beam(self) -> dict[str, Any]:
        return {"beam_size": self.width, "n_best": self.n_best, "rank_cut_off": self.rank_cut_off}


def by_the_rule(case: Case, stop: str, next_token: Next) -> Found:
    """What the rule finds; `exact` never stops before the limit."""
    live: list[tuple[float, Tokens]] = [(0.0, ())]
    finished: list[tuple[float, Tokens]] = []
    steps = 0
    for length in range(1, case.limit + 1):
        candidates = [
            (total + log_prob, (*tokens, token))
            for total, tokens in live
            for token, log_prob in enumerate(next_token(tokens))
            if log_prob > -math.inf
        ]
        steps = length
        best = sorted(candidates, reverse=True)[: 2 * case.width]
        finished += [(total / case.penalty(length), t[:-1]) for total, t in best if t[-1] == EOS]
        finished = sorted(finished, reverse=True)[: case.n_best]
        live = [candidate for candidate in best if candidate[1][-1] != EOS][: case.width]
        if stop == "likely" and length < case.limit and len(finished) == case.n_best:
            worst_wanted, _ = finished[-1]
            ends = [min(length + more, case.limit) for more in (1, 2, 3)]
            penalty = max(map(case.penalty, ends))
            if all(total / penalty <= worst_wanted for total, _ in live):
                live = []
        if not live:
            break
    cut_off = [(total / case.penalty(case.limit), tokens) for total, tokens in live]
    if case.rank_cut_off:
        finished = sorted(finished + cut_off, reverse=True)
        cut_off = []
    return [(tokens, score) for score, tokens in (finished + cut_off)[: case.n_best]], steps


def assert_found(hypotheses: Sequence[Hypothesis], expected: Found) -> None:
    for h, (tokens, score) in zip(hypotheses, expected[0], strict=True):
        assert (h.tokens, h.score) == (tokens, pytest.approx(score, abs=1e-5))


@WIDTHS
@ALPHAS
@FORMS
def test_each_rule_finds_what_it_says(width: int, alpha: float, form: str):
    vocab, tables = 5, list(range(200, 225))
    step = step_of(width, vocab)
    for n_best, ranks in ((1, False), (2, True), (width, False)):
        case = Case(width, n_best, limit=9, alpha=alpha, form=form, rank_cut_off=ranks)
        expected = {
            stop: [
                by_the_rule(case, stop, lambda tokens, table=table: log_probs(table, tokens, vocab))
                for table in tables
            ]
            for stop in RULES
        }
        for stop, block in itertools.product(RULES, (1, 8)):
            settings, cache = case.settings(len(tables), stop), Prefixes(tables, width)
            nbests = beam_search(step, cache, settings, **case.beam, block=block)
            for hypotheses, of_table in zip(nbests, expected[stop], strict=True):
                assert_found(hypotheses, of_table)
        if alpha <= 0:  # a hypothesis only becomes worse
            assert [best for best, _ in expected["likely"]] == [b for b, _ in expected["exact"]]
        for table, (_, steps) in zip(tables, expected["likely"], strict=True):
            counted = Mock(side_effect=step)
            beam_search(counted, Prefixes([table], width), case.settings(1, "likely"), **case.beam)
            assert counted.call_count == steps


@pytest.mark.parametrize("n_best", [1, 3])
def test_a_forced_beginning_and_a_least_length_come_before_the_rule(n_best: int):
    vocab, tables = 5, list(range(300, 310))
    case = Case(4, n_best, limit=9, alpha=1.0, form="gnmt")
    prefixes: list[Tokens] = [(2, 3), (), (4,), (3, 3, 3), (2,)] * 2
    constraints = Constraints(min_length=2, prefixes=prefixes)
    settings = case.settings(len(tables), "likely", constraints=constraints)
    nbests = beam_search(step_of(4, vocab), Prefixes(tables, 4), settings, **case.beam)
    for table, prefix, hypotheses in zip(tables, prefixes, nbests, strict=True):

        def allowed(tokens, table=table, prefix=prefix):
            forced = prefix[len(tokens) : len(tokens) + 1]
            return [
                -math.inf
                if (forced and token != forced[0]) or (token == EOS and len(tokens) < 2)
                else log_prob
                for token, log_prob in enumerate(log_probs(table, tokens, vocab))
            ]

        assert_found(hypotheses, by_the_rule(case, "likely", allowed))


def found_in(rows: dict[Tokens, list[float]], stop: str, *, block: int) -> Tokens:
    """The best tokens by a beam of two, with α = 1, from log-probabilities after each prefix."""

    def step(tokens, slots, cache):
        prefixes = cache.prefixes[0]
        for token, slot in zip(tokens.tolist(), slots.tolist(), strict=True):
            prefixes[slot] = (*prefixes[slot], token)
        nothing = [-math.inf] * 4
        return torch.tensor([rows.get(prefixes[slot][1:], nothing) for slot in slots.tolist()])

    settings = Case(2, 1, limit=8, alpha=1.0, form="gnmt").settings(1, stop)
    ((best,),) = beam_search(step, Prefixes([0], 2), settings, beam_size=2, block=block)
    return best.tokens


@pytest.mark.parametrize("block", [1, 8])
def test_likely_ends_a_sentence_that_a_longer_hypothesis_could_still_win(block: int):
    """At length 1 the end has -1 / (6/6), and token 2 until length 4 at best -1.6 / (9/6) = -1.07.

    At length 7 its score is -1.66 / (12/6) = -0.83.
    """
    none = -math.inf
    rows = {(2,) * length: [none, none, -0.01, none] for length in range(1, 6)}
    rows |= {(): [none, -1.0, -1.6, none], (2,) * 6: [none, -0.01, none, none]}
    assert found_in(rows, "exact", block=block) == (2,) * 6
    assert found_in(rows, "likely", block=block) == ()


@pytest.mark.parametrize("block", [1, 8])
def test_while_one_hypothesis_is_ahead_those_behind_it_stay(block: int):
    """At length 1 the end has -1, token 2 until length 4 at best -0.93, and token 3 -1.07.

    Then nothing follows token 2. Token 3 has at best -0.97 at length 2, and -0.83 at its end.
    """
    none = -math.inf
    rows = {(3, *[2] * length): [none, none, -0.01, none] for length in range(5)}
    rows |= {(): [none, -1.0, -1.4, -1.6], (3, *[2] * 5): [none, -0.01, none, none]}
    assert found_in(rows, "likely", block=block) == (3, *[2] * 5)


@pytest.mark.parametrize("engine", ["torch", "native"])
@pytest.mark.parametrize(
    ("setting", "exact", "expected"),
    [
        *(("auto", True, "exact"), ("auto", False, "likely")),
        *(("exact", False, "exact"), ("likely", True, "likely")),
    ],
)
def test_auto_is_likely_only_where_speed_counts(engine, setting, exact, expected, untrained):
    config = untrained.config.decode.model_copy(update={"stop": setting})
    with loaded(untrained, engine, config=config, exact=exact) as translator:
        assert translator.decoder.settings([Sentence(1, [5])]).stop == expected
