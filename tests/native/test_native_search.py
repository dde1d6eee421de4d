"""The native search gives what the search in Python gives, to the last bit, on random tables."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import slow
from support.engine_builds import ENGINE, compiled
from torch import Tensor

from mtkit.native.library import Request, Settings
from mtkit.search_settings import LOOKAHEAD, Constraints, Sampling, uniforms
from mtkit.translate.search import beam as search_module
from mtkit.translate.search.beam import Hypothesis, SearchSettings, beam_search
from mtkit.translate.search.independent import greedy_search, sample

BOS, EOS = 0, 1
TABLES = Path(__file__).parents[1] / "support" / "table_search.cpp"
FEW_OR_MANY = pytest.mark.parametrize("times", [1, slow(4)])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    sources = [TABLES, *(ENGINE / f"{name}.cpp" for name in ("search", "independent"))]
    # The assertions check every index of a vector.
    options = ("-O1", "-D_GLIBCXX_ASSERTIONS")
    return compiled(tmp_path_factory.mktemp("native"), *sources, options=options)


@dataclass
class Case:
    """What is searched, and how; `tables` are log-probabilities (sentences, states, V)."""

    tables: np.ndarray
    limits: list[int]
    beam_size: int = 4
    n_best: int = 1
    alpha: float = 0.6
    form: Any = "gnmt"
    rank_cut_off: bool = False
    stop: Any = "exact"
    constraints: Constraints = field(default_factory=Constraints)
    samples: int = 0
    sampling: Sampling = field(default_factory=Sampling)
    uniforms: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 0)))


class TableCache:
    """A state for each hypothesis, on which the next token depends; it counts what is asked."""

    def __init__(self, case: Case, slots: int) -> None:
        self.tables, self.slots = case.tables, slots
        self.sentences = np.arange(len(case.tables))
        self.states = np.zeros((len(case.tables), slots), dtype=np.int64)
        self.work = [0, 0]  # steps, and rows of all steps

    def step(self, tokens: Tensor, rows: Tensor, cache: TableCache) -> Tensor:
        states, slots = self.states.reshape(-1), rows.numpy()
        states[slots] = (states[slots] * 7 + tokens.numpy() + 1) % self.tables.shape[1]
        self.work[0] += 1
        self.work[1] += len(slots)
        return torch.from_numpy(self.tables[self.sentences[slots // self.slots], states[slots]])

    def reorder(self, parents: Tensor) -> None:
        self.states = np.take_along_axis(self.states, parents.numpy(), axis=1)

    def select(self, sentences: Tensor) -> None:
        kept = sentences.numpy()
        self.sentences, self.states = self.sentences[kept], self.states[kept]


def in_python(case: Case, name: str) -> tuple[list[list[Hypothesis]], list[int]]:
    slots = {"beam": case.beam_size, "greedy": 1, "sample": case.samples}[name]
    cache = TableCache(case, slots)
    how = case.alpha, case.form, case.constraints
    settings = SearchSettings(case.limits, BOS, EOS, *how, stop=case.stop)
    if name == "greedy":
        hypotheses = greedy_search(cache.step, cache, settings)
    elif name == "sample":
        hypotheses = sample(cache.step, cache, settings, case.sampling, case.uniforms)
    else:
        beam = {"n_best": case.n_best, "rank_cut_off": case.rank_cut_off}
        hypotheses = beam_search(cache.step, cache, settings, beam_size=slots, **beam)
    return hypotheses, cache.work


def natively(
    library: ctypes.CDLL, case: Case, name: str, *, stop_at: int = 0
) -> tuple[list[list[Hypothesis]], list[int]]:
    slots = {"beam": case.beam_size, "greedy": 1, "sample": case.samples}[name]
    B, states, V = case.tables.shape
    constraints, room = case.constraints, max(case.limits) + 1
    settings = Settings(
        *(case.beam_size, case.n_best, case.rank_cut_off, case.form == "power"),
        *(LOOKAHEAD if case.stop == "likely" else 0, case.alpha),
        *(BOS, EOS, constraints.min_length, constraints.no_repeat_ngram, case.samples),
        *(case.sampling.top_k, case.sampling.temperature, case.sampling.top_p),
    )
    prefixes = constraints.prefixes or [()] * B
    given = [
        np.array(values, dtype=np.int32)
        for values in (
            case.limits,
            [token for prefix in prefixes for token in prefix],
            [len(prefix) for prefix in prefixes],
            constraints.forbidden,
        )
    ]
    numbers = np.ascontiguousarray(case.uniforms)
    limits, flat_prefixes, prefix_lengths, forbidden = (array.ctypes.data for array in given)
    request = Request(
        *(None, None, B, limits, flat_prefixes, prefix_lengths, forbidden, len(given[3])),
        *(numbers.ctypes.data, numbers.shape[2], None),
    )
    counts = np.zeros(B, np.int32)
    tokens, lengths = np.zeros((B, slots, room), np.int32), np.zeros((B, slots), np.int32)
    finished, log_probs = np.zeros((B, slots), np.uint8), np.zeros((B, slots))
    scores, token_log_probs = np.zeros((B, slots)), np.zeros((B, slots, room))
    work = np.zeros(2, np.int32)
    tables = np.ascontiguousarray(case.tables)
    arrays = (counts, tokens, lengths, finished, log_probs, scores, token_log_probs, work)
    library.table_search(
        *(name.encode(), ctypes.c_void_p(tables.ctypes.data), states, V, ctypes.byref(settings)),
        *(ctypes.byref(request), stop_at, room),
        *(ctypes.c_void_p(array.ctypes.data) for array in arrays),
    )

    def hypothesis(b: int, k: int) -> Hypothesis:
        length, ended = int(lengths[b, k]), bool(finished[b, k])
        return Hypothesis(
            tuple(tokens[b, k, :length].tolist()),
            float(log_probs[b, k]),
            float(scores[b, k]),
            ended,
            tuple(token_log_probs[b, k, : length + ended].tolist()),
        )

    return [[hypothesis(b, k) for k in range(counts[b])] for b in range(B)], work.tolist()


def random_case(draw: np.random.Generator, *, ties: bool = False, **settings: Any) -> Case:
    """Tables of a few sentences; with ties many log-probabilities are equal, and some are -inf."""
    B, states, V = draw.integers(1, 7), draw.integers(2, 40), draw.integers(3, 30)
    logits = draw.normal(0, draw.choice([0.5, 2, 5]), (B, states, V))
    logits[:, :, EOS] += draw.choice([-2, 0, 2])
    if ties:
        tables = -np.abs(np.round(logits))
        tables[draw.random(tables.shape) < 0.1] = -np.inf
    else:
        tables = torch.from_numpy(logits).log_softmax(-1).numpy()
    limits = draw.integers(0, 14, B).tolist()
    return Case(tables.astype(np.float32), limits, **settings)


def random_constraints(draw: np.random.Generator, case: Case) -> Constraints:
    B, _, V = case.tables.shape
    prefixes = [draw.integers(0, V, draw.integers(0, 4)).tolist() for _ in range(B)]
    return Constraints(
        min_length=int(draw.choice([0, 0, 1, 4])),
        no_repeat_ngram=int(draw.integers(0, 5)),
        prefixes=prefixes if draw.random() < 0.5 else None,
        forbidden=draw.integers(2, V, draw.integers(0, 3)).tolist(),
    )


def stable_top_k(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row; of equal ones the lowest ids, which PyTorch does not promise."""
    top, ids = values.sort(dim=1, descending=True, stable=True)
    return top[:, :k], ids[:, :k]


def check(library: ctypes.CDLL, case: Case, name: str) -> list[list[Hypothesis]]:
    expected, (steps, rows) = in_python(case, name)
    hypotheses, work = natively(library, case, name)
    assert hypotheses == expected
    # The native engine computes the same beginning of several samples once.
    assert work[0] == steps
    assert work[1] <= rows if name == "sample" else work[1] == rows
    return expected


@FEW_OR_MANY
@pytest.mark.parametrize("ties", [False, True])
def test_beam_search_is_that_of_python(library, ties, times, monkeypatch):
    """With any settings and constraints."""
    monkeypatch.setattr(search_module, "top_k", stable_top_k)
    draw, ended = np.random.default_rng(20), set()
    for number in range(600 * times):
        case = random_case(draw, ties=ties, beam_size=int(draw.choice([1, 2, 4, 8, 10])))
        case.alpha, case.form = draw.choice([0.0, 0.6, 1.0, -0.5]), draw.choice(["gnmt", "power"])
        if case.form == "power":  # in Python, 0 ** -0.5 is an error
            case.limits = [max(limit, 1) for limit in case.limits]
        case.n_best = int(draw.integers(1, case.beam_size + 1))
        case.rank_cut_off = bool(draw.integers(2))
        case.stop = draw.choice(["exact", "likely"])
        if number % 2:
            case.constraints = random_constraints(draw, case)
        for hypotheses in check(library, case, "beam"):
            ended |= {hypothesis.finished for hypothesis in hypotheses}
    assert ended == {True, False}


@FEW_OR_MANY
@pytest.mark.parametrize("ties", [False, True])
def test_greedy_search_is_that_of_python(library: ctypes.CDLL, ties: bool, times: int):
    draw = np.random.default_rng(30)
    for number in range(150 * times):
        case = with_exact_sums(random_case(draw, ties=ties, alpha=draw.choice([0, 0.6, -0.5])))
        if number % 2:
            case.constraints = random_constraints(draw, case)
        check(library, case, "greedy")


def with_exact_sums(case: Case) -> Case:
    """Round log-probabilities, so that the way in which `sum` rounds does not matter.

    It differs between versions of Python.
    """
    case.tables = (np.round(case.tables * 2.0**16) / 2.0**16).astype(np.float32)
    return case


@FEW_OR_MANY
@pytest.mark.parametrize("ties", [False, True])
def test_samples_are_those_of_python(library: ctypes.CDLL, ties: bool, times: int):
    draw = np.random.default_rng(40)
    drawn = set()
    for number in range(150 * times):
        case = with_exact_sums(random_case(draw, ties=ties, samples=int(draw.integers(1, 9))))
        B, _, V = case.tables.shape
        case.sampling = Sampling(
            temperature=float(draw.choice([0.3, 1.0, 1.7])),
            top_k=int(draw.choice([0, 1, 3, 10, V, V + 1])),
            top_p=float(draw.choice([0.01, 0.5, 0.9, 1.0])),
        )
        steps = max(case.limits) + 1
        case.uniforms = uniforms(number, range(B), n_samples=case.samples, steps=steps)
        if number % 2:
            case.constraints = random_constraints(draw, case)
        for hypotheses in check(library, case, "sample"):
            drawn |= {hypothesis.tokens for hypothesis in hypotheses}
    assert len(drawn) > 300 * times


def test_samples_of_large_vocabularies_and_batches_are_those_of_python(library):
    logits = np.random.default_rng(50).normal(0, 1, (5, 20, 3000))
    tables = torch.from_numpy(logits).log_softmax(-1).float().numpy()
    for sampling in (Sampling(), Sampling(top_p=0.9), Sampling(0.7, 50, 0.95)):
        case = with_exact_sums(Case(tables, [3, 0, 10, 20, 20], samples=9, sampling=sampling))
        case.uniforms = uniforms(1, range(5), n_samples=9, steps=20)
        check(library, case, "sample")


def test_the_same_beginning_of_several_samples_is_computed_once(library: ctypes.CDLL):
    draw = np.random.default_rng(60)
    for number in range(50):
        case = random_case(draw, samples=int(draw.integers(1, 9)))
        sentences, steps = range(len(case.limits)), max(case.limits) + 1
        case.uniforms = uniforms(number, sentences, n_samples=case.samples, steps=steps)
        samples, (_, rows) = natively(library, case, "sample")
        beginnings = {
            (b, hypothesis.tokens[:length])
            for b in sentences
            for hypothesis in samples[b]
            for length in range(len(hypothesis.token_log_probs))
        }
        assert rows == len(beginnings)


@pytest.mark.parametrize("name", ["beam", "greedy", "sample"])
def test_the_search_ends_at_the_step_after_it_is_stopped(library: ctypes.CDLL, name: str):
    tables = np.full((2, 5, 4), np.log(1 / 3), dtype=np.float32)
    tables[:, :, EOS] = -np.inf
    case = Case(tables, [30, 30], samples=2, uniforms=np.full((2, 2, 30), 0.5))
    (first, second), work = natively(library, case, name)
    assert len(first) == len(second) == (case.samples if name == "sample" else 1)
    assert work[0] == 30
    for stop_at in (1, 7):
        hypotheses, work = natively(library, case, name, stop_at=stop_at)
        assert (hypotheses, work[0]) == ([[], []], stop_at)


@pytest.mark.parametrize("name", ["beam", "greedy", "sample"])
def test_numbers_that_are_not_numbers_leave_no_hypothesis(library: ctypes.CDLL, name: str):
    tables = np.full((2, 5, 4), np.nan, dtype=np.float32)
    case = Case(tables, [9, 9], samples=2, uniforms=np.full((2, 2, 9), 0.5))
    case.sampling = Sampling(top_k=2, top_p=0.5)
    assert natively(library, case, name)[0] == [[], []]
