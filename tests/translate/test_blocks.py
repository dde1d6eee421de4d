"""Searches in blocks of steps, as on a GPU: the same hypotheses, and next to no copies."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from support.score_tables import BOS, EOS, Prefixes, step_of
from support.translators import changed_to, numbers, texts_of
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from mtkit.config import ModelConfig
from mtkit.model import Transformer
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID
from mtkit.translate import Translator, independent, search
from mtkit.translate.constraints import Constraints
from mtkit.translate.decoder import STEPS_OF_BLOCK, Torch
from mtkit.translate.engine import Engine
from mtkit.translate.ensemble import Ensemble
from mtkit.translate.independent import greedy_search
from mtkit.translate.search import beam_search
from mtkit.translate.settings import Hypothesis, SearchSettings

CPU = torch.device("cpu")


# ---------------------------------------------------------------------------------------------
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
    return SearchSettings(limits, BOS, EOS, draw.choice([0.0, 0.6, 1.5, -0.5]), form, constraints)


@pytest.mark.parametrize("beam_size", [1, 2, 4, 8])
def test_blocks_of_any_size_give_every_hypothesis_of_blocks_of_one_step(beam_size: int) -> None:
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
        met["cut off"] += any(not one.finished for found in expected for one in found)
        met["lists"] += any(len(found) > 1 for found in expected)
        met["nothing"] += any(not found for found in expected)
        if beam_size == 1:
            expected = greedy_search(step, Prefixes(tables, 1), settings)
            cache = Prefixes(tables, 1)
            assert greedy_search(step, cache, settings, block=block) == expected
            met["selected greedily"] += bool(cache.selected)
    wanted = {"selected", "cut off", "nothing", "selected greedily" if beam_size == 1 else "lists"}
    assert all(met[case] > 5 for case in wanted), met


@pytest.mark.parametrize("block", [1, 8])
def test_of_equal_hypotheses_the_first_stays_first(block: int) -> None:
    """BOS and EOS have no place here; a token of a lower id comes first, and so does its slot."""

    def step(tokens: Tensor, slots: Tensor, cache: Prefixes) -> Tensor:
        return torch.tensor([[-torch.inf, -1.0, -1.0, -1.0]]).repeat(len(tokens), 1)

    settings = SearchSettings([3], BOS, EOS, 0.0)
    (found,) = beam_search(
        step, Prefixes([1], 2), settings, beam_size=2, n_best=2, block=block, rank_cut_off=True
    )
    assert [(h.tokens, h.log_prob) for h in found] == [((), -1.0), ((2,), -2.0)]


# ---------------------------------------------------------------------------------------------
# The same with models

VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "learned positions": {"positions": "learned", "max_positions": 64},
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


def both(
    engine: Engine | Ensemble, src: Tensor, constraints: Constraints, *, width: int, limit: int = 30
) -> list[list[list[Hypothesis]]]:
    """What is found in blocks of one step, and of eight."""
    limits = [limit - i % 3 for i in range(len(src))]
    settings = SearchSettings(limits, BOS_ID, EOS_ID, 0.6, constraints=constraints)
    found = []
    with torch.inference_mode():
        for block in (1, STEPS_OF_BLOCK):
            cache = engine.start(src, width, block)
            if width == 1:
                found.append(greedy_search(engine.step, cache, settings, block=block))
            else:
                options = {"beam_size": width, "n_best": min(3, width), "block": block}
                found.append(beam_search(engine.step, cache, settings, **options))
    return found


def assert_equal(found: list[list[Hypothesis]], expected: list[list[Hypothesis]], error: float):
    for sentence, right in zip(found, expected, strict=True):
        assert [(one.tokens, one.finished) for one in sentence] == [
            (one.tokens, one.finished) for one in right
        ]
        for one, other in zip(sentence, right, strict=True):
            assert one.score == pytest.approx(other.score, abs=error)
            assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=error)


@pytest.mark.parametrize("width", [1, 4, 8])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_model_translates_the_same_in_blocks_of_any_size(variant: str, width: int) -> None:
    engine = Engine(model_of(**VARIANTS[variant]).double())
    torch.manual_seed(width)
    prefixes = [[7, 8, 9][: i % 4] for i in range(9)]
    for constraints in (Constraints(), Constraints(4, 2, prefixes, forbidden=(5, 6))):
        expected, found = both(engine, sources(9), constraints, width=width)
        assert_equal(found, expected, 1e-11)
        lengths = {len(one.tokens) for sentence in expected for one in sentence}
        # More than one block of the cache.
        assert max(lengths) > STEPS_OF_BLOCK
        assert len(lengths) > 1


@pytest.mark.parametrize("count", [1, 2, 30])
@pytest.mark.parametrize("width", [1, 4])
def test_the_size_of_a_batch_changes_nothing(count: int, width: int) -> None:
    engine = Engine(model_of())
    torch.manual_seed(count)
    expected, found = both(engine, sources(count), Constraints(), width=width)
    assert_equal(found, expected, 1e-5)


def test_an_ensemble_translates_the_same_in_blocks_of_any_size() -> None:
    ensemble = Ensemble([Engine(model_of(seed).double()) for seed in (1, 2)])
    torch.manual_seed(3)
    for width in (1, 4):
        expected, found = both(ensemble, sources(5), Constraints(), width=width)
        assert_equal(found, expected, 1e-11)


LINES = [*numbers(13), "one two three. four five six.", "", "nine " * 30]
SETTINGS: dict[str, dict[str, Any]] = {
    "beam": {},
    "greedy": {"beam_size": 1},
    "wide": {"beam_size": 8, "length_penalty": 1.0, "length_penalty_form": "power"},
    "small batches": {"batch_tokens": 20},
    "limits": {"max_length": 7, "min_length": 3},
    "no repeats": {"no_repeat_ngram": 2, "max_extra_length": 12},
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_lines_have_the_same_translations(settings: str, exact: Translator) -> None:
    changes = SETTINGS[settings]
    n_best = min(2, changes.get("beam_size", 3))
    for prefixes in (None, ["null", "zwei drei", "", "sieben"] * (len(LINES) // 4)):
        expected, found = (
            list(
                changed_to(exact, gpu_path=path, **changes).translate_nbest(
                    LINES, n_best=n_best, prefixes=prefixes
                )
            )
            for path in ("plain", "device")
        )
        assert texts_of(found) == texts_of(expected)
        for line, right in zip(found, expected, strict=True):
            for one, other in zip(line, right, strict=True):
                assert one.score == pytest.approx(other.score, abs=1e-11)


# ---------------------------------------------------------------------------------------------
# How long the blocks are


def block_of(translator: Translator, model: Transformer, path: str, device_type: str, **given: Any):
    config = translator.config.model_copy(update={"gpu_path": path})
    decoder = Torch([model], translator.tokenizer, config, device=CPU)
    decoder.device_type = device_type
    return decoder._block(SearchSettings(given.pop("limits", [3, 20]), 1, 2, 0.6, **given))


@pytest.mark.parametrize(
    ("path", "on_cpu", "on_gpu"), [("auto", 1, 8), ("plain", 1, 1), ("device", 8, 8)]
)
def test_blocks_are_long_on_a_gpu_unless_something_needs_the_host(
    path: str, on_cpu: int, on_gpu: int, translator: Translator
) -> None:
    learned = model_of(positions="learned", max_positions=20)
    for device, expected in (("cpu", on_cpu), ("cuda", on_gpu)):
        assert block_of(translator, model_of(), path, device) == expected
        assert block_of(translator, learned, path, device) == expected
        # Positions that do not suffice are an error in the step that lacks one, and no sooner.
        assert block_of(translator, learned, path, device, limits=[3, 21]) == 1
        masks = Constraints(masks=[None, None])  # type: ignore[list-item]
        assert block_of(translator, model_of(), path, device, constraints=masks) == 1


# ---------------------------------------------------------------------------------------------
# Copies

# What reads numbers of a tensor, so that on a GPU the host would wait, and what makes a tensor of
# numbers of the host.
READS = {
    *("numpy", "tolist", "item", "nonzero", "argwhere", "__array__"),
    *("__bool__", "__int__", "__float__", "__index__"),
}
MAKES = {"tensor", "as_tensor", "from_numpy", "to"}


class Crossings(TorchFunctionMode):
    """Counts, on a CPU, what would cross between a GPU and its host."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.makes = Counter[str](), Counter[str]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out, name = func(*args, **(kwargs or {})), getattr(func, "__name__", "")
        if name in READS:
            self.reads[name] += 1
        if name in MAKES and out is not args[0]:
            self.makes[name] += 1
        if name in ("__getitem__", "__setitem__"):
            self._count_index(args[1])
        return out

    def _count_index(self, index: Any) -> None:
        for part in index if isinstance(index, tuple) else (index,):
            if isinstance(part, list | np.ndarray):
                self.makes[f"index of {type(part).__name__}"] += 1
            if isinstance(part, Tensor) and part.dtype == torch.bool:
                self.reads["index of bool"] += 1


class Operators(TorchDispatchMode):
    """Notes each operator with the shapes of its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[tuple[str, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        shapes = [str(tuple(one.shape)) for one in args if isinstance(one, Tensor)]
        self.called.append((str(func), *shapes))
        return func(*args, **(kwargs or {}))


# In inference mode the last two do not become the first.
WAITS = {"aten._local_scalar_dense", "aten.nonzero", "aten.item", "aten.is_nonzero"}


def waits(called: list[list[tuple[str, ...]]]) -> list[str]:
    """The operators for which the host would wait for a GPU."""
    names = (name.rpartition(".")[0] for step in called for name, *_ in step)
    return [name for name in names if name in WAITS]


Choose = Callable[..., Any]


def counted_copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets a number for each copy to the host that the searches make."""
    copies: list[int] = []
    plain = search.to_host

    def counting(tensors: list[Tensor]) -> Any:
        copies.append(len(tensors))
        return plain(tensors)

    for module in (search, independent):
        monkeypatch.setattr(module, "to_host", counting)
    return copies


@contextmanager
def counting() -> Iterator[tuple[Crossings, Operators]]:
    with Crossings() as crossings, Operators() as operators:
        yield crossings, operators


def searched(
    width: int, constraints: Constraints, *, block: int = STEPS_OF_BLOCK, **variant: Any
) -> tuple[int, Crossings, Any]:
    """A search of 20 sentences whose ends differ.

    Returns:
        The steps, what crossed between them after the first one began, and the operators of each.
    """
    engine = Engine(model_of(**variant))
    torch.manual_seed(1)
    src, steps = sources(20), []
    settings = SearchSettings(
        [12 + 3 * (i % 10) for i in range(20)], BOS_ID, EOS_ID, 0.6, constraints=constraints
    )
    with torch.inference_mode():
        if engine.model.config.positions != "learned":
            engine.model.positions(0, 39, like=engine.model.embedding.weight)
        cache = engine.start(src, width, block)
        with counting() as (crossings, operators):

            def step(*given: Any) -> Tensor:
                if not steps:
                    # What is prepared is copied once.
                    crossings.makes.clear()
                    crossings.reads.clear()
                steps.append(len(operators.called))
                return engine.step(*given)

            if width == 1:
                greedy_search(step, cache, settings, block=block)
            else:
                beam_search(step, cache, settings, beam_size=width, block=block)
    between = [operators.called[start:end] for start, end in itertools.pairwise(steps)]
    return len(steps), crossings, between


COUNTED = {"plain": Constraints(), "all": Constraints(9, 2, [[7, 8]] * 20, forbidden=(5, 6))}


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize(
    ("constraints", "variant"), [("plain", "paper"), *(("all", variant) for variant in VARIANTS)]
)
def test_there_is_one_copy_to_the_host_in_eight_steps_and_none_to_the_device(
    constraints: str, variant: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A CPU chooses the most probable token with NumPy.
    monkeypatch.setattr(independent, "_most_probable", lambda x, *_: x.max(-1)[::-1])
    copies = counted_copies(monkeypatch)
    steps, crossings, called = searched(width, COUNTED[constraints], **VARIANTS[variant])
    assert steps > 3 * STEPS_OF_BLOCK
    assert len(copies) == -(-steps // STEPS_OF_BLOCK)
    assert crossings.reads == {"numpy": len(copies)}
    assert not crossings.makes
    assert not waits(called)


def a_read(choose: Choose) -> Choose:
    def with_a_read(self: Any, next_RV: Tensor, *others: Any) -> Any:
        assert not next_RV.isnan().any()
        return choose(self, next_RV, *others)

    return with_a_read


def an_upload(choose: Choose) -> Choose:
    def with_an_upload(self: Any, next_RV: Tensor, *others: Any) -> Any:
        next_RV[:, [PAD_ID]] = -torch.inf
        return choose(self, next_RV, *others)

    return with_an_upload


def a_choice_on_the_host(choose: Choose) -> Choose:
    def with_a_copy(self: Any, next_RV: Tensor, *others: Any) -> Any:
        return choose(self, torch.from_numpy(next_RV.numpy()), *others)

    return with_a_copy


@pytest.mark.parametrize("plant", [a_read, an_upload, a_choice_on_the_host])
def test_a_planted_copy_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    chooser = search.Chooser
    monkeypatch.setattr(chooser, "choose", plant(chooser.choose))
    steps, crossings, called = searched(4, Constraints())
    found = crossings.reads.total() + crossings.makes.total()
    assert found >= steps
    assert len(waits(called)) == (steps - 1 if plant is a_read else 0)


def test_asking_at_every_step_is_found() -> None:
    steps, crossings, _ = searched(4, Constraints(), block=1)
    assert crossings.reads["numpy"] == steps


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("variant", VARIANTS)
def test_shapes_stay_within_eight_steps(variant: str, width: int) -> None:
    """Except where a sentence reaches its limit, or a window moves on."""
    _, _, called = searched(width, Constraints(), **VARIANTS[variant])
    for block in (0, 8, 16):
        matmuls = {
            tuple(call for call in called[step] if "bmm" in call[0] or "softmax" in call[0])
            for step in range(block, block + STEPS_OF_BLOCK)
        }
        assert len(matmuls) == 1 or (variant == "window" and len(matmuls) == 2)
