"""Gives the native engine damaged models and requests: hostile_engine.py COUNT [SEED]

COUNT models, of which about half are damaged, get some requests each. What is impossible is refused
in one line; other results are ids of the vocabulary. Prints how often each happened. A crash is for
the caller to see; the last line on standard error then says which model it was.
"""

import math
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from mtkit.base.errors import MtkitError
from mtkit.config import ModelConfig
from mtkit.model import Transformer
from mtkit.native import NativeModel
from mtkit.native.library import PRECISIONS, Shape, address, int32s, library
from mtkit.search_settings import Constraints, Sampling, SearchSettings
from mtkit.tokenizer import PAD_ID

V, EOS = 40, 1
EDGES = [-(2**31), -2, -1, 0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 1000, 2**20, 2**20 + 1, 2**31 - 1]
NOT_NUMBERS = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45]


def small_config(rng: random.Random) -> ModelConfig:
    return ModelConfig.model_validate(
        {
            "encoder_layers": rng.randint(1, 2),
            "decoder_layers": rng.randint(1, 2),
            "d_model": 4 * rng.randint(2, 20),
            "d_ff": rng.randint(1, 70),
            "n_heads": 2,
            "norm": rng.choice(["pre", "post"]),
            "activation": rng.choice(["relu", "silu"]),
            "positions": rng.choice(["sinusoidal", "learned", "words", "none"]),
            "max_positions": rng.randint(8, 30),
            "attention_window": rng.choice([None, 1, 5]),
            "output_bias": rng.random() < 0.5,
        }
    )


def weights_of(config: ModelConfig, rng: random.Random) -> dict[str, Any]:
    """Random weights with the names and shapes of a model's own."""
    draw = np.random.default_rng(rng.randrange(2**32))
    with torch.device("meta"):
        tensors = Transformer(config, V, PAD_ID).state_dict()
    return {name: draw.normal(0, 0.5, t.shape).astype(np.float32) for name, t in tensors.items()}


def damage(weights: dict[str, Any], rng: random.Random) -> None:
    """Remove, cut, widen or reorder tensors, or put numbers into them that are none."""
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(sorted(weights))
        tensor = weights[name]
        way = rng.randrange(8)
        if way == 0:
            del weights[name]
            return
        if way == 1:
            weights[name] = tensor[: rng.randint(0, len(tensor))]
        elif way == 2:
            weights[name] = np.concatenate([tensor, tensor])
        elif way == 3:
            weights[name] = tensor[..., None] if rng.random() < 0.5 else tensor.ravel()
        elif way == 4:
            weights[name] = tensor.T
        elif way == 5:
            weights[name] = tensor.astype(rng.choice(["f2", "f8", "i8", "?"]))
        elif tensor.size:
            flat = tensor.ravel()  # a copy, where the tensor is not contiguous
            flat[rng.randrange(flat.size) :] = rng.choice(NOT_NUMBERS)
            weights[name] = flat.reshape(tensor.shape)


def some(rng: random.Random, usual: int) -> int:
    """Mostly the usual number, sometimes one at an edge."""
    return rng.choice(EDGES) if rng.random() < 0.01 else usual


def translate(model: NativeModel, rng: random.Random) -> None:
    """Translate with sizes and ids that may be impossible."""
    count = rng.randint(1, 3) if rng.random() < 0.98 else 0
    ids = [
        [*(some(rng, rng.randrange(V)) for _ in range(rng.randint(0, 9))), EOS]
        for _ in range(count)
    ]
    if rng.random() < 0.02 and ids:
        ids[0] = []
    beam = rng.choice([1, 1, 2, 4, 9])
    samples = rng.choice([0, 0, 0, 3])
    limits = [max(-5, min(some(rng, rng.randint(1, 12)), 2000)) for _ in ids]
    prefixes = [
        [some(rng, rng.randrange(V)) for _ in range(rng.choice([0, 0, 1, 4, 20]))] for _ in ids
    ]
    settings = SearchSettings(
        limits,
        bos_id=some(rng, 0),
        eos_id=some(rng, EOS),
        alpha=rng.choice([0.0, 0.6, 1e300, -1e300, math.nan, math.inf]),
        penalty_form=rng.choice(["gnmt", "power"]),
        stop=rng.choice(["exact", "likely"]),
        constraints=Constraints(
            min_length=some(rng, rng.randint(0, 3)),
            no_repeat_ngram=some(rng, rng.randint(0, 3)),
            prefixes=prefixes,
            forbidden=[some(rng, rng.randrange(V)) for _ in range(rng.choice([0, 1, 5, V]))],
        ),
    )
    sampling = Sampling(
        temperature=rng.choice([1.0] * 9 + [0.1, 1e-300, 0.0, -1.0, math.nan, math.inf]),
        top_k=some(rng, rng.randint(0, 5)),
        top_p=rng.choice([1.0, 0.3] * 9 + [0.0, -1.0, 2.0, math.nan]),
    )
    steps = some(rng, max(limits, default=0))
    uniforms = np.random.default_rng(1).random((count, samples, max(0, min(steps, 3000))))
    n_best = max(1, min(some(rng, rng.randint(1, beam)), 100))
    nbests = model.translate(
        ids,
        settings,
        beam_size=max(-5, min(some(rng, beam), 100)),
        n_best=n_best,
        rank_cut_off=rng.random() < 0.5,
        sampling=sampling if samples else None,
        uniforms=uniforms,
    )
    assert len(nbests) == count
    for hypotheses, limit in zip(nbests, limits, strict=True):
        assert len(hypotheses) <= (samples or n_best)
        for hypothesis in hypotheses:
            assert all(0 <= token < V for token in hypothesis.tokens)
            assert len(hypothesis.tokens) <= limit


def step(model: NativeModel, rng: random.Random) -> None:
    """Walk through a decoding with sizes and ids that may be impossible."""
    ids = [[rng.randrange(2, V), EOS] for _ in range(rng.randint(1, 3))]
    slots = max(-2, min(some(rng, rng.randint(1, 4)), 1000))
    decoding = model.start(ids, slots)
    sentences = len(ids)
    for _ in range(rng.randint(1, 12)):
        rows = sorted(rng.sample(range(sentences * slots), rng.randint(1, sentences * slots)))
        rows = [some(rng, row) for row in rows]
        log_probs = decoding.step([some(rng, rng.randrange(V)) for _ in rows], rows)
        assert log_probs.shape == (len(rows), V)
        size = sentences * slots if rng.random() < 0.99 else rng.randint(0, 9)
        decoding.reorder(int32s([some(rng, rng.randrange(slots)) for _ in range(size)]))
        if rng.random() < 0.2:
            kept = [rng.randrange(sentences) for _ in range(rng.randint(1, sentences))]
            decoding.select([some(rng, sentence) for sentence in kept])
            sentences = len(kept)


def hostile_shape(rng: random.Random) -> None:
    """Make a model of impossible sizes, and set some tensors of wrong sizes."""
    usual = [8, 8, 2, 4, 4, 1, 1, V, V, 0, 0, 1, 0, -1, 0, 9]
    shape = Shape(*(rng.choice([size] * 150 + EDGES) for size in usual))
    shape.norm_epsilon = rng.choice([1e-5, 0.0, -1.0, math.nan])
    model = library().mtkit_new(shape, some(rng, rng.randrange(3)))
    if not model:
        raise MtkitError(library().mtkit_error().decode())
    try:
        numbers = np.zeros(64, np.float32)
        for number in (some(rng, 0), rng.randrange(-2, 40)):
            # Only sizes that the array has: that is for the caller to see to.
            size = rng.choice([-1, 0, 1, 8, 64])
            library().mtkit_set(model, number, address(numbers), size)
        if library().mtkit_ready(model):
            raise MtkitError(library().mtkit_error().decode())
    finally:
        library().mtkit_free(model)


def results(rng: random.Random) -> Iterator[bool]:
    """Of each thing that is done with a model, whether it was refused."""
    if rng.random() < 0.1:
        yield refused(hostile_shape, rng)
        return
    config = small_config(rng)
    weights = weights_of(config, rng)
    if rng.random() < 0.5:
        damage(weights, rng)
    try:
        model = NativeModel(weights, config, some(rng, V), precision=rng.choice(PRECISIONS))
    except MtkitError as error:
        yield one_line(error)
        return
    for action in (translate, step, translate, step):
        yield refused(action, model, rng)


def refused(action: Callable[..., None], *arguments: Any) -> bool:
    try:
        action(*arguments)
    except (MtkitError, MemoryError, ValueError, OverflowError) as error:
        return one_line(error)
    return False


def one_line(error: Exception) -> bool:
    assert "\n" not in str(error), error
    return True


def main(count: int, seed: int = 1) -> None:
    all_results: list[bool] = []
    for case in range(count):
        print(f"model {case}", file=sys.stderr, flush=True)
        all_results += results(random.Random(f"{seed} {case}"))
    times = sum(all_results)
    print(f"{times} refused, {len(all_results) - times} done")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
