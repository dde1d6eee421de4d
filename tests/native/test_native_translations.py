"""Whole batches of the native engine, against the PyTorch engine in float32."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from support.program import printed

from mtkit.batches import pad_ids
from mtkit.model import Transformer
from mtkit.native import NativeModel
from mtkit.search_settings import Constraints, uniforms
from mtkit.tokenizer import BOS_ID, EOS_ID
from mtkit.translate.pytorch.incremental import Engine
from mtkit.translate.search.beam import Hypothesis, SearchSettings, beam_search
from mtkit.translate.search.independent import greedy_search
from mtkit.translate.search.sampling import Sampling, sample

Draw = Callable[..., Transformer]
ToNative = Callable[..., NativeModel]
Found = list[list[Hypothesis]]
# Sentences, limits and prefixes.
Batch = tuple[list[list[int]], list[int], list[list[int]]]

MODELS: dict[str, dict[str, Any]] = {
    "post-norm": {},
    "pre-norm": {"norm": "pre"},
    "learned positions": {"positions": "learned", "max_positions": 60},
    "word positions": {"positions": "words"},
    "a window of 2": {"attention_window": 2},
    "other widths of heads": {"d_k": 3, "d_v": 20},
    "own source vocabulary": {"src_vocab_size": 31},
    "SiLU and output bias": {"activation": "silu", "output_bias": True},
}


@dataclass(frozen=True)
class Case:
    """How a batch is searched or sampled."""

    form: Any = "gnmt"
    alpha: float = 0.0
    constraints: Constraints = field(default_factory=Constraints)
    beam_size: int = 1
    n_best: int = 1
    rank_cut_off: bool = False
    samples: int = 0
    sampling: Sampling = field(default_factory=Sampling)

    def settings(self, limits: Sequence[int], prefixes: Sequence[Sequence[int]]) -> SearchSettings:
        """What both engines are given."""
        constraints = replace(self.constraints, prefixes=prefixes)
        return SearchSettings(limits, BOS_ID, EOS_ID, self.alpha, self.form, constraints)

    def natively(self, native: NativeModel, batch: Batch, numbers: np.ndarray) -> Found:
        """What the native engine finds."""
        sentences, limits, prefixes = batch
        settings = self.settings(limits, prefixes)
        if self.samples:
            return native.translate(sentences, settings, sampling=self.sampling, uniforms=numbers)
        return native.translate(sentences, settings, **self.beam)

    @property
    def beam(self) -> dict[str, Any]:
        """Arguments of a search."""
        return {name: getattr(self, name) for name in ("beam_size", "n_best", "rank_cut_off")}

    def with_pytorch(self, model: Transformer, batch: Batch, numbers: np.ndarray) -> Found:
        """What PyTorch finds."""
        sentences, limits, prefixes = batch
        settings, engine = self.settings(limits, prefixes), Engine(model)
        cache = engine.start(pad_ids(sentences), self.samples or self.beam_size)
        if self.samples:
            return sample(engine.step, cache, settings, self.sampling, numbers)
        if self.beam_size == 1:
            return greedy_search(engine.step, cache, settings)
        return beam_search(engine.step, cache, settings, **self.beam)


CASES: dict[str, Case] = {
    "greedy": Case(),
    "beam 4": Case(beam_size=4, alpha=0.6),
    "beam 10, power": Case(beam_size=10, n_best=10, alpha=0.6, form="power"),
    "beam 4, limits rank": Case(beam_size=4, n_best=3, alpha=-0.5, rank_cut_off=True),
    "beam 4, constraints": Case(
        beam_size=4, alpha=0.6, constraints=Constraints(3, 2, forbidden=(9, 5))
    ),
    "greedy, constraints": Case(constraints=Constraints(3, 1, forbidden=(5,))),
    "samples": Case(samples=3),
    "samples of few": Case(samples=3, sampling=Sampling(0.7, 20, 0.8)),
}


@pytest.fixture(autouse=True)
def same_models_each_time() -> None:
    torch.manual_seed(1)


def batch_of(model: Transformer, rng: random.Random, size: int) -> Batch:
    """Sentences, limits and prefixes; half of the batches have no prefix."""
    of_source = model.src_vocab_size or model.vocab_size
    sentences = [
        [*(rng.randrange(4, of_source) for _ in range(rng.randrange(20))), EOS_ID]
        for _ in range(size)
    ]
    limits = [rng.randint(1, 25) for _ in sentences]
    longest = rng.choice([0, 3])
    prefixes = [
        [rng.randrange(10, model.vocab_size) for _ in range(rng.randint(0, longest))]
        for _ in sentences
    ]
    return sentences, limits, prefixes


def assert_near(found: Found, expected: Found) -> None:
    """The same tokens, and scores and log-probabilities that differ by rounding only."""
    assert [len(hypotheses) for hypotheses in found] == [len(hypotheses) for hypotheses in expected]
    for ours, theirs in zip(found, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert (one.tokens, one.finished) == (other.tokens, other.finished)
            assert one.score == pytest.approx(other.score, abs=1e-5, rel=1e-5)
            assert one.log_prob == pytest.approx(other.log_prob, abs=1e-5, rel=1e-5)
            assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-5, rel=1e-5)


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_translations_are_those_of_pytorch(name: str, draw: Draw, to_native: ToNative) -> None:
    model = draw(**MODELS[name])
    native = to_native(model)
    rng = random.Random(1)
    ended = set()
    for number, case in enumerate(CASES.values()):
        for size in (1, 8, 16):
            batch = batch_of(model, rng, size)
            steps = max(batch[1], default=0)
            numbers = uniforms(number, range(size), n_samples=case.samples, steps=steps)
            expected = case.with_pytorch(model, batch, numbers)
            found = case.natively(native, batch, numbers)
            assert_near(found, expected)
            ended |= {hypothesis.finished for some in found for hypothesis in some}
    assert ended == {True, False}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("precision", ["fp32", "int8", "bf16"])
def test_translations_do_not_depend_on_their_batch_or_thread(
    name: str, precision: str, draw: Draw, to_native: ToNative
) -> None:
    model = draw()
    native = to_native(model, precision=precision)
    sentences, limits, prefixes = batch_of(model, random.Random(2), 40)
    case = CASES[name]
    numbers = uniforms(3, range(40), n_samples=case.samples, steps=25)

    def translate(rows: Sequence[int]) -> Found:
        batch = tuple([of_all[row] for row in rows] for of_all in (sentences, limits, prefixes))
        return case.natively(native, batch, numbers[list(rows)])  # type: ignore[arg-type]

    together = translate(range(40))
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(translate, ([row] for row in range(40)))) == [
            [hypotheses] for hypotheses in together
        ]
    assert translate(range(39, -1, -1)) == together[::-1]


@pytest.mark.parametrize("large", [2**31, 2**32 + 1, 10**18])
@torch.inference_mode()
def test_settings_above_32_bits_mean_what_they_mean_in_pytorch(
    large: int, draw: Draw, to_native: ToNative
) -> None:
    model = draw()
    native = to_native(model)
    batch = batch_of(model, random.Random(3), 4)
    numbers = uniforms(1, range(4), n_samples=2, steps=25)
    for case in (
        Case(constraints=Constraints(no_repeat_ngram=large)),
        Case(beam_size=3, constraints=Constraints(min_length=large)),
        Case(samples=2, sampling=Sampling(top_k=large)),
    ):
        expected = case.with_pytorch(model, batch, numbers)
        assert_near(case.natively(native, batch, numbers), expected)


# A program that holds two models and drops one of them.
HOLDING = """
import random
from support.hostile_engine import V, small_config, weights_of
from mtkit import native
from mtkit.native.library import library
free = library().mtkit_free
library().mtkit_free = lambda model: (free(model), print("freed", flush=True))
config = small_config(random.Random(1))
models = [native.NativeModel(weights_of(config, random.Random(1)), config, V) for _ in range(2)]
decoding = models[0].start([[1]], 1)
models.pop()
print("end", flush=True)
"""


def test_a_model_is_freed_when_it_is_dropped_but_not_at_exit() -> None:
    """A daemon thread may still be in the engine then."""
    assert printed("-c", HOLDING) == "freed\nend\n"


# A program that encodes batches in a thread; it prints the memory (KiB) that it needed at most, and
# what it holds at the end, both above what it holds after a small batch.
ENCODING = """
import random
from concurrent.futures import ThreadPoolExecutor
from support.hostile_engine import V, small_config, weights_of
from mtkit import native
def memory(file, name):
    lines = open(f"/proc/self/{file}").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))
config = small_config(random.Random(1))
model = native.NativeModel(weights_of(config, random.Random(1)), config, V)
def encode(count):
    model.start([[5] * 20 + [1]] * count, 4)
held = []
with ThreadPoolExecutor(1) as pool:
    for count in (10, 500, 1000, 2000, 4000, 4000, 500):
        pool.submit(encode, count).result()
        held.append(memory("smaps_rollup", "Rss:"))
print(memory("status", "VmHWM:") - held[0], held[-1] - held[0])
"""


def test_a_thread_does_not_keep_the_memory_of_its_largest_batch() -> None:
    most, held = map(int, printed("-c", ENCODING).split())
    assert most > 30_000
    assert held < most / 10


def test_a_limit_above_32_bits_is_too_much_memory_or_no_limit(
    draw: Draw, to_native: ToNative
) -> None:
    native = to_native(draw())
    # It ends at once: no token is possible.
    case = Case(constraints=Constraints(forbidden=range(70)))
    with contextlib.suppress(MemoryError):
        assert case.natively(native, ([[EOS_ID]], [10**18], [[]]), np.zeros(0)) == [[]]
