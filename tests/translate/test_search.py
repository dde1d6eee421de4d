"""Beam search, against enumeration and against a search that never stops early; sampling."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from support.score_tables import BOS, EOS, Prefixes, log_probs, step_of, total

from mtkit.search_settings import (
    Constraints,
    Hypothesis,
    Sampling,
    SearchSettings,
    length_penalty,
    stratified_uniforms,
    uniforms,
)
from mtkit.translate.search.beam import beam_search
from mtkit.translate.search.independent import greedy_search, sample
from mtkit.translate.search.on_device import top_k


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
    cache, step = Prefixes(tables, width), step_of(width, vocab)
    settings = SearchSettings([limit] * len(tables), BOS, EOS, alpha, constraints=constraints)
    if width == 1:
        return greedy_search(step, cache, settings), cache
    return beam_search(step, cache, settings, beam_size=width, n_best=n_best), cache


def enumerated(table: int, *, limit: int, alpha: float, vocab: int) -> list[tuple[float, tuple]]:
    """Every sequence that ends within the limit, best first."""
    scored = []
    for length in range(limit):
        for tokens in itertools.product(range(2, vocab), repeat=length):
            score = total(table, (*tokens, EOS), vocab) / ((5 + length + 1) / 6) ** alpha
            scored.append((score, tokens))
    return sorted(scored, reverse=True)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0, -0.5])
def test_a_beam_as_wide_as_the_table_finds_what_enumeration_finds(alpha: float):
    vocab, limit = 4, 4
    tables = list(range(12))
    nbests, _ = search(tables, width=16, limit=limit, alpha=alpha, vocab=vocab, n_best=5)
    for table, hypotheses in zip(tables, nbests, strict=True):
        expected = enumerated(table, limit=limit, alpha=alpha, vocab=vocab)[:5]
        for h, (score, tokens) in zip(hypotheses, expected, strict=True):
            assert (h.tokens, h.score, h.finished) == (tokens, pytest.approx(score), True)


@pytest.mark.parametrize("width", [1, 16])
def test_a_token_that_only_a_prefix_may_have_is_certain_and_counts_for_the_length(width):
    vocab, limit, tag = 4, 4, 3
    tables = list(range(12))
    constraints = Constraints(prefixes=[[tag]] * len(tables), forbidden=[tag])
    options = {"width": width, "limit": limit, "alpha": 1.0, "vocab": vocab}
    nbests, _ = search(tables, constraints=constraints, **options)
    for table, (best, *_) in zip(tables, nbests, strict=True):
        assert best.tokens[0] == tag
        assert best.token_log_probs[0] == 0.0
        assert tag not in best.tokens[1:]
        # Every sequence of token 2 behind the tag.
        ends = [(tag, *[2] * n, EOS) for n in range(limit - 1)]
        of_tag = total(table, (tag,), vocab)
        rows = {tokens: total(table, tokens, vocab) - of_tag for tokens in ends}
        if best.finished:
            assert best.log_prob == pytest.approx(rows[(*best.tokens, EOS)])
        if width > 1:
            scores = {tokens: s / ((5 + len(tokens)) / 6) for tokens, s in rows.items()}
            assert best.score == pytest.approx(max(scores.values()))


def test_greedy_search_takes_the_most_probable_token():
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


def test_a_sentence_does_not_depend_on_those_it_shares_a_batch_with():
    options = {"width": 3, "limit": 9, "alpha": 0.6, "vocab": 5, "n_best": 3}
    together, cache = search(list(range(30)), **options)
    assert cache.selected, "no sentence ever left the batch"
    for table, hypotheses in enumerate(together):
        assert search([table], **options)[0] == [hypotheses]


def forced_step(rows: list[list[float]]):
    """A step that ignores the prefix: one row of log-probabilities per decoding step."""
    position = iter(rows)

    def step(tokens, slots, cache):
        return torch.tensor(next(position), dtype=torch.float64).repeat(len(tokens), 1)

    return step


def test_the_length_penalty_equals_numbers_worked_by_hand():
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 1.0) == 2.0
    assert length_penalty(19, 0.5) == 2.0
    assert length_penalty(20, 0.6) == pytest.approx(2.354, abs=1e-3)
    # The same 0.6 by the formula that others use.
    assert length_penalty(20, 0.6, "power") == pytest.approx(6.034, abs=1e-3)


def assert_scores_of_the_step(nbests: list[list[Hypothesis]]) -> None:
    """Some hypotheses ended and some did not; the length penalty is 0.6."""
    assert {h.finished for hypotheses in nbests for h in hypotheses} == {True, False}
    for table, hypotheses in enumerate(nbests):
        for h in hypotheses:
            whole = (*h.tokens, EOS) if h.finished else h.tokens
            given = [log_probs(table, whole[:i], 5)[token] for i, token in enumerate(whole)]
            assert h.token_log_probs == pytest.approx(given)
            assert h.log_prob == pytest.approx(sum(given))
            assert h.score == pytest.approx(sum(given) / ((5 + len(whole)) / 6) ** 0.6)


@pytest.mark.parametrize("width", [1, 4])
def test_every_token_has_the_log_probability_that_the_step_gave_it(width: int):
    options = {"width": width, "limit": 3, "alpha": 0.6, "vocab": 5, "n_best": width}
    nbests, _ = search(list(range(20)), **options, constraints=Constraints(min_length=2))
    assert_scores_of_the_step(nbests)


def test_more_hypotheses_than_the_beam_holds_are_refused():
    with pytest.raises(ValueError, match="beam size"):
        search([0], width=2, limit=3, alpha=0.0, vocab=4, n_best=3)


def constrained(
    constraints: Constraints, *, width: int, limit: int = 6, vocab: int = 5
) -> list[list[Hypothesis]]:
    tables = list(range(len(constraints.prefixes or constraints.masks or range(10))))
    options = {"limit": limit, "alpha": 0.6, "vocab": vocab, "constraints": constraints}
    return search(tables, width=width, **options)[0]


def best_of(table: int, allowed: Callable[[tuple[int, ...]], bool], vocab: int) -> Any:
    """The best that ends within four tokens, of what is allowed: its tokens and its score."""
    every = enumerated(table, limit=4, alpha=0.6, vocab=vocab)
    score, tokens = next((score, tokens) for score, tokens in every if allowed(tokens))
    return tokens, pytest.approx(score)


def test_a_forced_prefix_leaves_the_best_of_what_begins_with_it():
    prefixes = [(2,), (3,), (3, 2), ()]
    constraints = Constraints(prefixes=prefixes)
    for width in (1, 32):
        nbests = constrained(constraints, width=width, limit=4, vocab=4)
        for table, (prefix, (best,)) in enumerate(zip(prefixes, nbests, strict=True)):
            assert best.tokens[: len(prefix)] == prefix
            whole = (*best.tokens, EOS) if best.finished else best.tokens
            assert best.log_prob == pytest.approx(total(table, whole, 4))
            if width > 1:
                wanted = best_of(table, lambda t, p=prefix: t[: len(p)] == p, 4)
                assert (best.tokens, best.score) == wanted


@pytest.mark.parametrize("width", [1, 4])
def test_no_output_ends_before_the_least_length(width: int):
    assert min(len(best.tokens) for (best,) in constrained(Constraints(), width=width)) < 3
    long = [len(best.tokens) for (best,) in constrained(Constraints(min_length=3), width=width)]
    assert min(long) == 3


@pytest.mark.parametrize("n", [1, 2])
def test_no_ngram_comes_twice(n: int):
    def repeats(tokens):
        ngrams = [tokens[i : i + n] for i in range(len(tokens) - n + 1)]
        return len(set(ngrams)) < len(ngrams)

    least = {"width": 3, "limit": 9}
    free = constrained(Constraints(min_length=4 - n), **least)
    assert any(repeats(best.tokens) for (best,) in free)
    held = constrained(Constraints(min_length=4 - n, no_repeat_ngram=n), **least)
    assert not any(repeats(best.tokens) for (best,) in held)


class Rising:
    """A mask of sequences in which no token is smaller than the one before it."""

    def start(self) -> int:
        return 0

    def advance(self, state: int, token: int) -> int:
        assert token >= state
        return token

    def allowed(self, state: int) -> np.ndarray:
        ids = np.arange(5)
        return (ids >= state) | (ids == EOS)


def test_a_mask_leaves_the_best_of_what_it_allows():
    masks = Constraints(masks=[Rising() for _ in range(6)])
    for width in (1, 81):
        for table, (best,) in enumerate(constrained(masks, width=width, limit=4)):
            assert list(best.tokens) == sorted(best.tokens)
            if width > 1:
                wanted = best_of(table, lambda tokens: list(tokens) == sorted(tokens), 5)
                assert (best.tokens, best.score) == wanted


@pytest.mark.parametrize("V", [130, 128 * 8, 5_003])
def test_the_top_k_in_two_stages_are_the_top_k(V: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mtkit.translate.search.on_device.TWO_STAGES_FROM", 0)
    values = torch.randn(7, V, generator=torch.Generator().manual_seed(V))
    values[:, 5:60] = -torch.inf
    # The last columns, which fill no block, can be among them.
    values[3, -1] = 9.0
    for k in (1, 8):
        for mine, wanted in zip(top_k(values, k), values.topk(k), strict=True):
            assert torch.equal(mine, wanted)


# Sampling


def drawn(
    tables: list[int],
    *,
    n_samples: int,
    limit: int = 6,
    vocab: int = 5,
    sampling: Sampling = Sampling(),  # noqa: B008
    constraints: Constraints | None = None,
) -> list[list[Hypothesis]]:
    return sample(
        step_of(n_samples, vocab),
        Prefixes(tables, n_samples),
        SearchSettings([limit] * len(tables), BOS, EOS, alpha=0.6, constraints=constraints),
        sampling,
        uniforms(1, tables, n_samples=n_samples, steps=limit),
    )


def grid(
    probabilities: Sequence[float],
    *,
    sampling: Sampling = Sampling(),  # noqa: B008
    constraints: Constraints | None = None,
) -> list[int]:
    """First tokens for random numbers in the middle of 1,800 equal parts of [0, 1), in order."""
    points = 1800
    values = (np.arange(points) + 0.5) / points
    row = [math.log(p) if p else -math.inf for p in probabilities]
    (samples,) = sample(
        forced_step([row]),
        Prefixes([0], points),
        SearchSettings([1], BOS, EOS, alpha=0.0, constraints=constraints),
        sampling,
        values.reshape(1, points, 1),
    )
    tokens = [EOS if h.finished else h.tokens[0] for h in samples]
    # The model's own, whatever was drawn from.
    for h, token in zip(samples, tokens, strict=True):
        assert math.exp(h.log_prob) == pytest.approx(probabilities[token])
    return tokens


def test_every_draw_has_the_probabilities_and_the_score_of_the_model():
    sampling = Sampling(temperature=1.7, top_k=3)
    assert_scores_of_the_step(drawn(list(range(10)), n_samples=8, limit=4, sampling=sampling))


def philox(key: tuple[int, int], counter: tuple[int, int, int, int]) -> list[int]:
    """Philox4x64-10 as its authors print it (Salmon et al. 2011, Section 4.3)."""
    word = 2**64 - 1
    (k0, k1), (c0, c1, c2, c3) = key, counter
    for _ in range(10):
        high0, low0 = divmod(0xD2E7470EE14C6C93 * c0, 2**64)
        high1, low1 = divmod(0xCA5A826395121157 * c2, 2**64)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + 0x9E3779B97F4A7C15 & word, k1 + 0xBB67AE8584CAA73B & word
    return [c0, c1, c2, c3]


def test_random_numbers_are_those_of_philox_with_seed_and_line_for_key():
    # The first of the known answers that come with the authors' program.
    assert philox((0, 0), (0, 0, 0, 0)) == [
        0x16554D9ECA36314C,
        0xDB20FE9D672D0FDC,
        0xD7E772CEE186176B,
        0x7E68B68AEC7BA23B,
    ]
    lines = [3, 2**64 - 1]
    for of_line, line in zip(uniforms(5, lines, n_samples=3, steps=6), lines, strict=True):
        for place, numbers in enumerate(of_line):
            # NumPy counts before it draws.
            words = [w for count in (1, 2) for w in philox((5, line), (count, place, 0, 0))]
            assert numbers.tolist() == [(w >> 11) / 2**53 for w in words[:6]]


@pytest.mark.parametrize("n_samples", [1, 2, 5])
def test_stratified_numbers_lie_one_in_each_equal_part_at_each_step(n_samples):
    numbers = stratified_uniforms(3, [1, 9], n_samples=n_samples, steps=40)
    assert numbers.shape == (2, n_samples, 40)
    assert (np.sort(np.floor(numbers * n_samples), axis=1) == np.arange(n_samples)[:, None]).all()
    assert len(set(numbers.ravel())) == numbers.size


def test_stratified_numbers_are_those_of_the_line_however_many_steps_and_lines():
    many = stratified_uniforms(3, [8, 2, 5], n_samples=4, steps=30)
    assert (stratified_uniforms(3, [2], n_samples=4, steps=7) == many[1:2, :, :7]).all()


def test_a_sample_of_stratified_numbers_has_no_part_of_its_own():
    # Of 2,000 numbers in five parts, 400 in each, and 5 deviations of 18 around it.
    for of_sample in stratified_uniforms(1, range(100), n_samples=5, steps=20).swapaxes(0, 1):
        assert (abs(np.bincount((of_sample * 5).astype(int).ravel(), minlength=5) - 400) < 90).all()


# Of BOS, EOS and five words.
WORDS = [0.0, 0.05, 0.25, 0.1, 0.2, 0.1, 0.3]


def test_a_token_of_no_probability_is_never_drawn():
    row = [[-math.inf, -math.inf, math.log(0.3), -math.inf, math.log(0.7), -math.inf]]
    (samples,) = sample(
        forced_step(row),
        Prefixes([0], 4),
        SearchSettings([1], BOS, EOS, alpha=0.0),
        Sampling(),
        # The least and the largest there can be, and both sides of the edge.
        np.array([0, 1 - 2**-53, 0.3 - 1e-9, 0.3 + 1e-9]).reshape(1, 4, 1),
    )
    assert [h.tokens for h in samples] == [(2,), (4,), (2,), (4,)]


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(top_k=2), {2, 6}),
        (Sampling(top_k=3), {2, 4, 6}),
        # Of two words that are equal the one with the least id.
        (Sampling(top_k=4), {2, 3, 4, 6}),
        (Sampling(top_p=0.8), {2, 3, 4, 6}),
        (Sampling(), {1, 2, 3, 4, 5, 6}),
        (Sampling(top_k=7), {1, 2, 3, 4, 5, 6}),
        (Sampling(temperature=2.0), {1, 2, 3, 4, 5, 6}),
        (Sampling(top_p=0.29), {6}),
        (Sampling(top_p=0.31), {2, 6}),
        (Sampling(top_p=0.76), {2, 3, 4, 6}),
        (Sampling(top_p=0.96), {1, 2, 3, 4, 5, 6}),
        # 0.3 of the 0.55 that two words have together is more than half of it, and of 1 it is not.
        (Sampling(top_k=2, top_p=0.5), {6}),
        (Sampling(top_p=0.5), {2, 6}),
        # Heated until all six are almost alike, half of them are half.
        (Sampling(temperature=100.0, top_p=0.49), {2, 4, 6}),
    ],
)
def test_the_tokens_that_a_filter_leaves_keep_their_proportions(sampling: Sampling, kept: set[int]):
    tokens = grid(WORDS, sampling=sampling)
    # Each is as wide as it is probable, in order of their ids.
    assert tokens == sorted(tokens)
    counts = Counter(tokens)
    assert counts.keys() == kept
    masses = {token: WORDS[token] ** (1 / sampling.temperature) for token in kept}
    for token, mass in masses.items():
        assert counts[token] == pytest.approx(1800 * mass / sum(masses.values()), abs=1)


@pytest.mark.parametrize("sampling", [Sampling(top_k=20), Sampling(top_p=0.7), Sampling(2.0, 30)])
@pytest.mark.parametrize("at_once", [1, 2**18])
def test_many_rows_of_many_tokens_are_drawn_as_in_plain_python(sampling, at_once, monkeypatch):
    monkeypatch.setattr("mtkit.translate.search.independent.DRAWN_AT_ONCE_CPU", at_once)
    # The nucleus of some rows is larger than what is looked at first.
    monkeypatch.setattr("mtkit.translate.search.independent.NUCLEUS", 8)
    R, V = 40, 150
    spread = torch.linspace(0.1, 5, R).unsqueeze(1)
    noise = torch.randn(R, V, generator=torch.Generator().manual_seed(0))
    rows = (noise * spread).log_softmax(-1)
    numbers = uniforms(3, range(R), n_samples=1, steps=1)

    def step(tokens, slots, cache):
        return rows[slots]

    settings = SearchSettings([1] * R, BOS, EOS, alpha=0.0)
    samples = sample(step, Prefixes([0] * R, 1), settings, sampling, numbers)
    sizes = set()
    for row, u, (h,) in zip(rows.double().tolist(), numbers.flatten(), samples, strict=True):
        mass = [math.exp(x / sampling.temperature) for x in row]
        order = sorted(range(V), key=lambda token: -mass[token])[: sampling.top_k or V]
        wanted = sampling.top_p * sum(mass[token] for token in order)
        size = next(
            n for n in range(1, len(order) + 1) if sum(mass[t] for t in order[:n]) >= wanted
        )
        left = sorted(order[:size])
        falls_at = u * sum(mass[token] for token in left)
        passed = itertools.accumulate(mass[token] for token in left)
        token = next(t for t, upto in zip(left, passed, strict=True) if upto > falls_at)
        assert (EOS if h.finished else h.tokens[0]) == token
        sizes.add(size)
    if sampling.top_p < 1:
        assert min(sizes) < 8 < max(sizes)


def test_what_constraints_exclude_leaves_its_probability_to_the_others():
    row = [0, 0.5, 0.2, 0.3]
    assert Counter(grid(row, constraints=Constraints(min_length=1))) == {2: 720, 3: 1080}
    assert set(grid(row, constraints=Constraints(prefixes=[[2]]))) == {2}


def test_a_sample_without_a_possible_token_is_left_out():
    held = Constraints(min_length=5, no_repeat_ngram=1)
    assert drawn([1, 2], n_samples=3, vocab=4, constraints=held) == [[], []]
