"""Searches in blocks of steps, as on a GPU, find the same hypotheses as in single steps."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import slow
from support.score_tables import BOS, EOS, Prefixes, step_of
from torch import Tensor

from mtkit.config import ModelConfig
from mtkit.model import Transformer
from mtkit.search_settings import Constraints, Hypothesis, SearchSettings
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID
from mtkit.translate import Translator
from mtkit.translate.pytorch.decoder import STEPS_OF_BLOCK, Torch
from mtkit.translate.pytorch.ensemble import Ensemble
from mtkit.translate.pytorch.incremental import Engine
from mtkit.translate.search.beam import beam_search
from mtkit.translate.search.independent import greedy_search

# The same hypotheses


def drawn_settings(draw: random.Random, vocab: int) -> SearchSettings:
    """Any limits, penalties and constraints for some sentences."""
    limits = [draw.randint(0, 30) for _ in range(draw.randint(1, 9))]
    prefixes = [
        [draw.randrange(2, vocab) for _ in range(draw.randint(0, 4))]
        for _ in range(draw.choice([0, len(limits)]))
    ]
    constraints = Constraints(
        min_length=draw.choice([0, 0, 3]),
        no_repeat_ngram=draw.choice([0, 0, 1, 2, 3]),
        prefixes=prefixes or None,
        forbidden=draw.choice([(), (2,)]),
    )
    form = draw.choice(["gnmt", "power"])
    alpha, stop = draw.choice([0.0, 0.6, 1.5, -0.5]), draw.choice(["exact", "likely"])
    return SearchSettings(limits, BOS, EOS, alpha, form, constraints, stop=stop)


@pytest.mark.parametrize("beam_size", [1, slow(2), 4, slow(8)])
def test_blocks_of_any_size_give_every_hypothesis_of_blocks_of_one_step(beam_size: int):
    """Bit by bit: a table gives both the same numbers."""
    draw, met = random.Random(beam_size), Counter[str]()
    for trial in range(40):
        vocab, block = draw.choice([4, 5, 7]), draw.choice([2, 3, 8, 40])
        settings, step = drawn_settings(draw, vocab), step_of(beam_size, vocab)
        tables = [trial * 10 + i for i in range(len(settings.max_lengths))]
        options: dict[str, Any] = {
            "beam_size": beam_size,
            "n_best": draw.randint(1, beam_size),
            "rank_cut_off": draw.random() < 0.5,
        }
        expected = beam_search(step, Prefixes(tables, beam_size), settings, **options)
        cache = Prefixes(tables, beam_size)
        assert beam_search(step, cache, settings, **options, block=block) == expected
        met["selected"] += bool(cache.selected)
        met["cut off"] += any(not best.finished for hypotheses in expected for best in hypotheses)
        met["lists"] += any(len(hypotheses) > 1 for hypotheses in expected)
        met["nothing"] += any(not hypotheses for hypotheses in expected)
        if beam_size == 1:
            expected = greedy_search(step, Prefixes(tables, 1), settings)
            cache = Prefixes(tables, 1)
            assert greedy_search(step, cache, settings, block=block) == expected
            met["selected greedily"] += bool(cache.selected)
    wanted = {"selected", "cut off", "nothing", "selected greedily" if beam_size == 1 else "lists"}
    assert all(met[case] >= 5 for case in wanted), met


@pytest.mark.parametrize("block", [1, 8])
def test_of_equal_hypotheses_the_first_stays_first(block: int):
    """BOS and EOS have no place here; a token of a lower id comes first, and so does its slot."""

    def step(tokens: Tensor, slots: Tensor, cache: Prefixes) -> Tensor:
        return torch.tensor([[-torch.inf, -1.0, -1.0, -1.0]]).repeat(len(tokens), 1)

    settings = SearchSettings([3], BOS, EOS, 0.0)
    (hypotheses,) = beam_search(
        step, Prefixes([1], 2), settings, beam_size=2, n_best=2, block=block, rank_cut_off=True
    )
    assert [(h.tokens, h.log_prob) for h in hypotheses] == [((), -1.0), ((2,), -2.0)]


# The same with models

VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "learned positions": {"positions": "learned", "max_positions": 64},
    "narrow attention": {"narrow_attention": True, "attention_scale": 0.9},
    "no positions": {"positions": "none"},
    "pre-norm": {"norm": "pre", "activation": "silu", "output_bias": True},
    "window": {"attention_window": 3},
    "other heads": {"d_k": 6, "d_v": 10},
    "word positions": {"positions": "words"},
}


def model_of(seed: int = 0, **settings: Any) -> Transformer:
    """A model whose outputs depend on its input, of 50 tokens."""
    torch.manual_seed(seed)
    sizes = {"d_model": 32, "d_ff": 64, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 2}
    model = Transformer(ModelConfig.model_validate(sizes | settings), 50, PAD_ID).eval()
    if model.config.positions == "words":
        model.set_word_tokens(*(torch.arange(50) % 3 == rest for rest in (1, 2)))
    with torch.no_grad():
        model.embedding.weight.mul_(2)
        if model.output_bias is not None:
            model.output_bias.normal_()
    return model


def sources(count: int) -> Tensor:
    lengths = np.random.default_rng(count).integers(1, 12, count)
    rows = [torch.randint(4, 50, (length,)) for length in lengths]
    padded = torch.full((count, int(lengths.max()) + 1), PAD_ID)
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids) + 1] = torch.cat((ids, torch.tensor([EOS_ID])))
    return padded


def both(engine: Engine | Ensemble, src: Tensor, constraints: Constraints, width: int) -> Any:
    """What is found in blocks of one step, and of eight."""
    limits = [30 - i % 3 for i in range(len(src))]
    settings = SearchSettings(limits, BOS_ID, EOS_ID, 0.6, constraints=constraints)
    results = []
    with torch.inference_mode():
        for block in (1, STEPS_OF_BLOCK):
            cache = engine.start(src, width, block)
            if width == 1:
                results.append(greedy_search(engine.step, cache, settings, block=block))
            else:
                options = {"beam_size": width, "n_best": min(3, width), "block": block}
                results.append(beam_search(engine.step, cache, settings, **options))
    return results


def assert_equal(ours: list[list[Hypothesis]], theirs: list[list[Hypothesis]]) -> None:
    for sentence, right in zip(ours, theirs, strict=True):
        for mine, other in zip(sentence, right, strict=True):
            assert (mine.tokens, mine.finished) == (other.tokens, other.finished)
            assert mine.score == pytest.approx(other.score, abs=1e-11)
            assert mine.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-11)


@pytest.mark.parametrize("width", [1, 4, 8])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_model_translates_the_same_in_blocks_of_any_size(variant: str, width: int):
    engine: Engine | Ensemble = Engine(model_of(**VARIANTS[variant]).double())
    if variant == "paper":
        engine = Ensemble([engine, Engine(model_of(1).double())])
    torch.manual_seed(width)
    assert_equal(*both(engine, sources(1), Constraints(), width))
    prefixes = [[7, 8, 9][: i % 4] for i in range(9)]
    for constraints in (Constraints(), Constraints(4, 2, prefixes, forbidden=(5, 6))):
        by_step, in_blocks = both(engine, sources(9), constraints, width)
        assert_equal(in_blocks, by_step)
        lengths = {len(hypothesis.tokens) for sentence in by_step for hypothesis in sentence}
        # More than one block of the cache.
        assert max(lengths) > STEPS_OF_BLOCK
        assert len(lengths) > 1


def block_of(translator: Translator, model: Transformer, path: str, device_type: str, **given: Any):
    config = translator.config.model_copy(update={"gpu_path": path})
    decoder = Torch([model], replace(translator.runs, config=config))
    decoder.device_type = device_type
    return decoder._block(SearchSettings(given.pop("limits", [3, 20]), 1, 2, 0.6, **given))


@pytest.mark.parametrize(
    ("path", "on_cpu", "on_gpu"), [("auto", 1, 8), ("plain", 1, 1), ("device", 8, 8)]
)
def test_blocks_are_long_on_a_gpu_unless_something_needs_the_host(path, on_cpu, on_gpu, translator):
    learned = model_of(positions="learned", max_positions=20)
    for device, expected in (("cpu", on_cpu), ("cuda", on_gpu)):
        assert block_of(translator, model_of(), path, device) == expected
        assert block_of(translator, learned, path, device) == expected
        masks = Constraints(masks=[None, None])  # type: ignore[list-item]
        assert block_of(translator, model_of(), path, device, constraints=masks) == 1
