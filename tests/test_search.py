"""Beam search, against enumeration and against a search that never stops early."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch import Tensor

from mtkit.search import Constraints, Hypothesis, beam_search, length_penalty, top_k

BOS, EOS = 0, 1


class Prefixes:
    """A cache that holds the prefixes themselves, B by W."""

    def __init__(self, tables: list[int], width: int) -> None:
        self.tables = tables
        self.prefixes: list[list[tuple[int, ...]]] = [[()] * width for _ in tables]
        self.selected: list[list[int]] = []

    def reorder(self, parents: Tensor) -> None:
        self.prefixes = [
            [row[parent] for parent in chosen]
            for row, chosen in zip(self.prefixes, parents.tolist(), strict=True)
        ]

    def select(self, rows: Tensor) -> None:
        self.selected.append(rows.tolist())
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]
        self.tables = [self.tables[row] for row in rows.tolist()]


def log_probs(table: int, prefix: tuple[int, ...], vocab: int) -> list[float]:
    """Any distribution that depends on the whole prefix, the same at every call."""
    draw = random.Random(f"{table} {prefix}")
    weights = torch.tensor([draw.gauss(0, 2) for _ in range(vocab)], dtype=torch.float64)
    weights[BOS] = -torch.inf
    return weights.log_softmax(0).tolist()


def search(
    tables: list[int],
    *,
    width: int,
    limit: int,
    alpha: float,
    vocab: int,
    n_best: int = 1,
    constraints: Constraints | None = None,
):
    cache = Prefixes(tables, width)

    def step(tokens: Tensor, slots: Tensor, cache: Prefixes) -> Tensor:
        rows = []
        for token, slot in zip(tokens.tolist(), slots.tolist(), strict=True):
            sentence, w = divmod(slot, width)
            cache.prefixes[sentence][w] = (*cache.prefixes[sentence][w], token)
            rows.append(log_probs(cache.tables[sentence], cache.prefixes[sentence][w][1:], vocab))
        return torch.tensor(rows, dtype=torch.float64)

    found = beam_search(
        step,
        cache,
        max_lengths=[limit] * len(tables),
        beam_size=width,
        bos_id=BOS,
        eos_id=EOS,
        alpha=alpha,
        n_best=n_best,
        constraints=constraints,
    )
    return found, cache


def total(table: int, tokens: tuple[int, ...], vocab: int) -> float:
    return sum(log_probs(table, tokens[:i], vocab)[token] for i, token in enumerate(tokens))


def enumerated(table: int, *, limit: int, alpha: float, vocab: int) -> list[tuple[float, tuple]]:
    """Every sequence that ends within the limit, best first."""
    found = []
    for length in range(limit):
        for tokens in itertools.product(range(2, vocab), repeat=length):
            score = total(table, (*tokens, EOS), vocab) / ((5 + length + 1) / 6) ** alpha
            found.append((score, tokens))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0, -0.5])
def test_a_beam_as_wide_as_the_table_finds_what_enumeration_finds(alpha: float) -> None:
    vocab, limit = 4, 4
    tables = list(range(12))
    found, _ = search(tables, width=16, limit=limit, alpha=alpha, vocab=vocab, n_best=5)
    for table, hypotheses in zip(tables, found, strict=True):
        expected = enumerated(table, limit=limit, alpha=alpha, vocab=vocab)[:5]
        assert [h.tokens for h in hypotheses] == [tokens for _, tokens in expected]
        assert [h.score for h in hypotheses] == pytest.approx([score for score, _ in expected])
        assert all(h.finished for h in hypotheses)


def test_width_one_is_greedy() -> None:
    for table in range(20):
        tokens: tuple[int, ...] = ()
        while len(tokens) < 8:
            row = log_probs(table, tokens, 5)
            best = row.index(max(row))
            if best == EOS:
                break
            tokens += (best,)
        ended = len(tokens) < 8
        (result,), _ = search([table], width=1, limit=8, alpha=0.6, vocab=5)
        assert [(h.tokens, h.finished) for h in result] == [(tokens, ended)]
        whole = (*tokens, EOS) if ended else tokens
        assert result[0].log_prob == pytest.approx(total(table, whole, 5))


def without_stopping(table: int, *, width: int, limit: int, alpha: float, vocab: int, n_best: int):
    """The same search in plain Python, which always goes to the limit."""
    alive: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[tuple[float, tuple[int, ...]]] = []
    for length in range(1, limit + 1):
        candidates = [
            (score + value, (*prefix, token))
            for score, prefix in alive
            for token, value in enumerate(log_probs(table, prefix, vocab))
            if value > -torch.inf
        ]
        top = sorted(candidates, reverse=True)[: 2 * width]
        penalty = ((5 + length) / 6) ** alpha
        finished += [(score / penalty, prefix[:-1]) for score, prefix in top if prefix[-1] == EOS]
        alive = [item for item in top if item[1][-1] != EOS][:width]
    return sorted(finished, reverse=True)[:n_best], alive


@pytest.mark.parametrize("width", [2, 3, 5])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5, -0.5])
def test_stopping_early_never_changes_the_result(width: int, alpha: float) -> None:
    options = {"width": width, "limit": 7, "alpha": alpha, "vocab": 5, "n_best": min(width, 2)}
    tables = list(range(100, 125))
    found, _ = search(tables, **options)
    for table, hypotheses in zip(tables, found, strict=True):
        expected, _ = without_stopping(table, **options)
        ended = [h for h in hypotheses if h.finished]
        assert [h.tokens for h in ended] == [tokens for _, tokens in expected]
        assert [h.score for h in ended] == pytest.approx([score for score, _ in expected])


def test_a_sentence_does_not_depend_on_those_it_shares_a_batch_with() -> None:
    options = {"width": 3, "limit": 9, "alpha": 0.6, "vocab": 5, "n_best": 3}
    together, cache = search(list(range(30)), **options)
    assert cache.selected, "no sentence ever left the batch"
    for table, hypotheses in enumerate(together):
        assert search([table], **options)[0] == [hypotheses]


def forced_step(rows: list[list[float]]):
    """A step that ignores the prefix: one row of log-probabilities per decoding step."""
    position = iter(rows)

    def step(tokens: Tensor, slots: Tensor, cache: Prefixes) -> Tensor:
        return torch.tensor(next(position), dtype=torch.float64).repeat(len(tokens), 1)

    return step


def test_a_sentence_cut_off_at_the_limit_returns_its_best_unfinished_hypothesis() -> None:
    never = [-torch.inf, -torch.inf, -0.1, -3.0]
    (found,) = beam_search(
        forced_step([never, never]),
        Prefixes([0], 2),
        max_lengths=[2],
        beam_size=2,
        bos_id=BOS,
        eos_id=EOS,
        alpha=1.0,
        n_best=2,
    )
    assert found[0].tokens == (2, 2)
    assert not found[0].finished
    # Two tokens and no EOS: the penalty is (5 + 2) / 6.
    assert found[0].score == pytest.approx(-0.2 / (7 / 6))
    assert found[1].log_prob == pytest.approx(-3.1)


def test_hypotheses_that_end_do_not_starve_the_beam() -> None:
    # EOS is the best continuation of every hypothesis, yet two go on at each step.
    row = [-torch.inf, -0.5, -1.5, -1.6]
    (found,) = beam_search(
        forced_step([row] * 3),
        Prefixes([0], 2),
        max_lengths=[3],
        beam_size=2,
        bos_id=BOS,
        eos_id=EOS,
        alpha=0.0,
        n_best=2,
    )
    assert [(h.tokens, round(h.score, 6)) for h in found] == [((), -0.5), ((2,), -2.0)]


def test_the_length_penalty_equals_numbers_worked_by_hand() -> None:
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 1.0) == 2.0
    assert length_penalty(19, 0.5) == 2.0
    assert length_penalty(20, 0.6) == pytest.approx(2.354, abs=1e-3)
    # The same 0.6 by the formula that others use.
    assert length_penalty(20, 0.6, "power") == pytest.approx(6.034, abs=1e-3)


def test_more_hypotheses_than_the_beam_holds_are_refused() -> None:
    with pytest.raises(ValueError, match="beam size"):
        search([0], width=2, limit=3, alpha=0.0, vocab=4, n_best=3)


def test_no_sentences_give_no_results() -> None:
    assert search([], width=2, limit=3, alpha=0.0, vocab=4)[0] == []


def test_a_hypothesis_is_a_plain_value() -> None:
    assert Hypothesis((2,), -1.0, -0.5, True) == Hypothesis((2,), -1.0, -0.5, True)


def constrained(constraints: Constraints, *, width: int, limit: int = 6) -> list[list[Hypothesis]]:
    return search(
        list(range(10)), width=width, limit=limit, alpha=0.6, vocab=5, constraints=constraints
    )[0]


@pytest.mark.parametrize("width", [1, 3])
def test_outputs_begin_with_their_forced_prefixes_and_keep_the_models_probability(
    width: int,
) -> None:
    prefixes = [[2, 3], [], [4], [3, 3, 3], [2], [], [4, 4], [2, 2], [3], [2, 4]]
    found = constrained(Constraints(prefixes=prefixes), width=width)
    for table, (prefix, (best,)) in enumerate(zip(prefixes, found, strict=True)):
        assert best.tokens[: len(prefix)] == tuple(prefix)
        whole = (*best.tokens, EOS) if best.finished else best.tokens
        assert best.log_prob == pytest.approx(total(table, whole, 5))


def test_a_forced_prefix_leaves_the_best_of_what_begins_with_it() -> None:
    vocab, limit = 4, 4
    prefixes = [[2], [3], [3, 2], []]
    (found, _) = search(
        list(range(4)),
        width=32,
        limit=limit,
        alpha=0.6,
        vocab=vocab,
        constraints=Constraints(prefixes=prefixes),
    )
    for table, (prefix, (best,)) in enumerate(zip(prefixes, found, strict=True)):
        possible = [
            (score, tokens)
            for score, tokens in enumerated(table, limit=limit, alpha=0.6, vocab=vocab)
            if tokens[: len(prefix)] == tuple(prefix)
        ]
        assert (best.tokens, best.score) == (possible[0][1], pytest.approx(possible[0][0]))


@pytest.mark.parametrize("width", [1, 4])
def test_no_output_ends_before_the_least_length(width: int) -> None:
    plain = [len(best.tokens) for (best,) in constrained(Constraints(), width=width)]
    assert min(plain) < 3
    long = [len(best.tokens) for (best,) in constrained(Constraints(min_length=3), width=width)]
    assert min(long) == 3


@pytest.mark.parametrize("n", [1, 2])
def test_no_ngram_comes_twice(n: int) -> None:
    def repeats(tokens: tuple[int, ...]) -> bool:
        ngrams = [tokens[i : i + n] for i in range(len(tokens) - n + 1)]
        return len(set(ngrams)) < len(ngrams)

    least = {"width": 3, "limit": 9}
    free = constrained(Constraints(min_length=4 - n), **least)
    assert any(repeats(best.tokens) for (best,) in free)
    held = constrained(Constraints(min_length=4 - n, no_repeat_ngram=n), **least)
    assert not any(repeats(best.tokens) for (best,) in held)


@pytest.mark.parametrize("V", [130, 128 * 8, 5_003])
def test_the_top_k_in_two_stages_are_the_top_k(V: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtkit.search.TWO_STAGES_FROM", 0)
    values = torch.randn(7, V, generator=torch.Generator().manual_seed(V))
    values[:, 5:60] = -torch.inf
    # The last columns, which fill no block, can be among them.
    values[3, -1] = 9.0
    for k in (1, 8):
        found, wanted = top_k(values, k), values.topk(k)
        assert torch.equal(found[0], wanted.values)
        assert torch.equal(found[1], wanted.indices)
