"""The encoder and the decoding step of the native engine, against PyTorch."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from mtkit.base.errors import MtkitError
from mtkit.batches import pad_ids
from mtkit.model import Transformer
from mtkit.native import NativeDecoding, NativeModel
from mtkit.native.library import Shape, check, library
from mtkit.tokenizer import BOS_ID, EOS_ID
from mtkit.translate.pytorch.incremental import Engine

Draw = Callable[..., Transformer]
ToNative = Callable[..., NativeModel]

VARIANTS: dict[str, dict[str, Any]] = {
    "post-norm": {},
    "pre-norm": {"norm": "pre"},
    "learned positions": {"positions": "learned", "max_positions": 40},
    "word positions": {"positions": "words"},
    "no positions": {"positions": "none"},
    "pre-norm and word positions": {"positions": "words", "norm": "pre"},
    "a window of 1": {"attention_window": 1},
    "a window of 5": {"attention_window": 5},
    "a window longer than all sentences": {"attention_window": 10**12},
    "narrow keys": {"d_k": 3, "d_v": 20},
    "wide keys": {"d_k": 33, "d_v": 7},
    "a scale of attention": {"attention_scale": 1.5, "d_k": 5},
    "narrow attention": {"narrow_attention": True, "n_heads": 3, "attention_scale": 0.2},
    "one head": {"n_heads": 1},
    "six heads": {"n_heads": 6},
    "own source vocabulary": {"src_vocab_size": 31},
    "own source vocabulary and word positions": {"src_vocab_size": 90, "positions": "words"},
    "one embedding of two vocabularies": {"src_vocab_size": 70, "shared_embedding": True},
    "SiLU": {"activation": "silu"},
    "output bias": {"output_bias": True},
    "a large epsilon": {"norm_epsilon": 0.3},
    "widths that need no padding": {"d_model": 64, "d_ff": 128, "n_heads": 4, "vocab_size": 128},
    "more layers in the encoder": {"encoder_layers": 3, "decoder_layers": 1},
}


def drawn_sentences(rng: random.Random, count: int, vocabulary: int) -> list[list[int]]:
    """Sentences of 1 to 20 tokens, each ended by EOS."""
    lengths = [rng.choice([0, 1, 2, 5, 11, 15, 16, 19]) for _ in range(count)]
    return [[*(rng.randrange(4, vocabulary) for _ in range(n)), EOS_ID] for n in lengths]


def walk(
    native: NativeDecoding, of_torch: Any, engine: Engine, rng: random.Random, *, slots: int
) -> float:
    """Decode 12 steps with random tokens; returns the largest difference of log-probabilities.

    In every step other hypotheses are live and continue others, and some sentences end.
    """
    sentences = of_torch.shape[0]
    live = [b * slots for b in range(sentences)]
    tokens = [BOS_ID] * len(live)
    largest = 0.0
    for _ in range(12):
        expected = engine.step(torch.tensor(tokens), torch.tensor(live), of_torch)
        log_probs = torch.from_numpy(native.step(tokens, live))
        largest = max(largest, float((expected - log_probs).abs().max()))
        by_sentence: dict[int, list[int]] = {}
        for row in live:
            by_sentence.setdefault(row // slots, []).append(row % slots)
        parents = [[rng.choice(by_sentence[b]) for _ in range(slots)] for b in range(sentences)]
        native.reorder(parents)
        of_torch.reorder(torch.tensor(parents))
        if sentences > 1 and rng.random() < 0.3:
            kept = rng.sample(range(sentences), sentences - 1)
            native.select(kept)
            of_torch.select(torch.tensor(kept))
            sentences -= 1
        live = sorted(
            b * slots + w
            for b in range(sentences)
            for w in rng.sample(range(slots), rng.randint(1, slots))
        )
        tokens = [rng.randrange(engine.model.vocab_size) for _ in live]
    return largest


@pytest.mark.parametrize("variant", VARIANTS)
@torch.inference_mode()
def test_log_probabilities_of_a_step_equal_pytorchs(variant: str, draw: Draw, to_native: ToNative):
    model = draw(**VARIANTS[variant])
    native = to_native(model)
    # The reference has float64, so that all rounding is the engine's.
    engine = Engine(model.double())
    for seed, slots in ((1, 1), (2, 3), (3, 4)):
        rng = random.Random(seed)
        sentences = drawn_sentences(rng, 6, model.src_vocab_size or model.vocab_size)
        of_torch = engine.start(pad_ids(sentences), slots)
        assert walk(native.start(sentences, slots), of_torch, engine, rng, slots=slots) < 1e-5


@torch.inference_mode()
def test_positions_beyond_the_table_are_computed(draw: Draw, to_native: ToNative):
    model = draw(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=16)
    sentence = [*([7, 8, 9] * 400), EOS_ID]
    native, engine = to_native(model), Engine(model.double())
    of_torch = engine.start(pad_ids([sentence]), 1)
    of_native = native.start([sentence], 1)
    expected = engine.step(torch.tensor([BOS_ID]), torch.tensor([0]), of_torch)
    assert np.allclose(of_native.step([BOS_ID], [0]), expected, atol=1e-5)


@torch.inference_mode()
def test_a_sequence_beyond_learned_positions_has_the_same_message(draw: Draw, to_native: ToNative):
    model = draw(positions="learned", max_positions=3)
    native, engine = to_native(model), Engine(model)

    def message(action: Callable[[], Any]) -> str:
        with pytest.raises(MtkitError) as raised:
            action()
        return str(raised.value)

    long, short = [[5, 6, 7, EOS_ID], [5, EOS_ID]], [[5, 6, EOS_ID]]
    expected = message(lambda: engine.start(pad_ids(long), 1))
    assert message(lambda: native.start(long, 1)) == expected
    cache, decoding = engine.start(pad_ids(short), 1), native.start(short, 1)
    for _ in range(3):
        engine.step(torch.tensor([5]), torch.tensor([0]), cache)
        decoding.step([5], [0])
    expected = message(lambda: engine.step(torch.tensor([5]), torch.tensor([0]), cache))
    assert message(lambda: decoding.step([5], [0])) == expected


@pytest.mark.parametrize(("precision", "most"), [("int8", 0.2), ("bf16", 0.1)])
@torch.inference_mode()
def test_a_lower_precision_is_near(table, precision, most, draw, to_native):
    model = draw(src_vocab_size=80)
    sentences = drawn_sentences(random.Random(1), 8, 80)
    native, engine = to_native(model, precision=precision), Engine(model)
    cache, decoding = engine.start(pad_ids(sentences), 1), native.start(sentences, 1)
    for token in (BOS_ID, 5, 9):
        expected = engine.step(torch.tensor([token] * 8), torch.arange(8), cache)
        assert np.abs(decoding.step([token] * 8, range(8)) - expected.numpy()).mean() < most


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"norm": "pre", "positions": "learned", "output_bias": True},
        {"positions": "words", "src_vocab_size": 50},
    ],
)
def test_a_missing_tensor_and_one_of_another_shape_are_refused(config: dict[str, Any], draw: Draw):
    model = draw(**config)
    shape = model.config, model.vocab_size, model.src_vocab_size
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    for name, tensor in weights.items():
        rest = {other: value for other, value in weights.items() if other != name}
        with pytest.raises(MtkitError, match=f"have no tensor {name}"):
            NativeModel(rest, *shape)
        for other in (tensor[1:], np.concatenate((tensor, tensor[:1])), tensor[..., None]):
            with pytest.raises(MtkitError, match=f"the tensor {name} is of shape"):
                NativeModel(rest | {name: other}, *shape)


def test_ids_and_sizes_outside_of_the_model_are_refused(draw: Draw, to_native: ToNative):
    native = to_native(draw(src_vocab_size=50))
    for sentences in ([[50, EOS_ID]], [[-1, EOS_ID]], [[EOS_ID], []], [], [[2**31 - 1]]):
        with pytest.raises(MtkitError, match="is"):
            native.start(sentences, 1)
    for slots in (0, -1, 2**31 - 1):
        with pytest.raises(MtkitError):
            native.start([[EOS_ID]], slots)
    decoding = native.start([[5, EOS_ID], [EOS_ID], [6, EOS_ID]], 2)
    steps: list[tuple[list[int], list[int]]] = [([], []), ([70], [0]), ([-1], [0]), ([5], [6])]
    steps += [([5], [-1]), ([5, 5], [1, 0]), ([5, 5], [1, 1]), ([5] * 7, list(range(7)))]
    for tokens, rows in steps:
        with pytest.raises(MtkitError):
            decoding.step(tokens, rows)
    with pytest.raises(ValueError, match="differ in number"):
        decoding.step([5, 5], [0])
    for parents in ([[0, 0]] * 2, [[0, 0]] * 4, [[0, 2]] * 3, [[-1, 0]] * 3):
        with pytest.raises(MtkitError):
            decoding.reorder(parents)
    kept: list[int]
    for kept in ([], [3], [-1], [0, 1, 2, 0]):
        with pytest.raises(MtkitError):
            decoding.select(kept)
    # It can still be used.
    assert np.isfinite(decoding.step([BOS_ID] * 6, range(6))).all()


SMALLEST: dict[str, float] = dict.fromkeys(
    ("d_ff", "heads", "key_width", "value_width", "encoder_layers", "decoder_layers"), 1
)
SMALLEST |= {"d_model": 4, "src_vocabulary": 5, "tgt_vocabulary": 5}
SMALLEST |= {"activation": 1, "window": -1, "max_positions": 1, "norm_epsilon": 1e-6}


@pytest.mark.parametrize("size", [name for name, _ in Shape._fields_])
def test_an_absurd_shape_is_refused(size: str):
    check_model = library().mtkit_new(Shape(**SMALLEST), 0)
    assert check_model
    library().mtkit_free(check_model)
    absurd: list[float] = [-2, 2**31 - 1]
    if size == "norm_epsilon":
        absurd = [0, -1, float("inf"), float("nan")]
    elif size == "window":
        absurd = [-2, -(2**31)]
    elif size not in ("own_src_embedding", "pre_norm", "output_bias", "positions"):
        absurd = [0, -1, 2**31 - 1]
    for value in absurd:
        with pytest.raises(MtkitError, match=r"\w"):
            check(library().mtkit_new(Shape(**(SMALLEST | {size: value})), 0))


def test_weights_too_large_for_an_array_are_refused():
    large = {"heads": 4096, "key_width": 2**20, "value_width": 2**20}
    wide = {"d_model": 2**20, "d_ff": 2**20}
    many = {"d_model": 2**18, "src_vocabulary": 2**20, "tgt_vocabulary": 2**20}
    for changes in (large, wide, many):
        with pytest.raises(MtkitError):
            check(library().mtkit_new(Shape(**(SMALLEST | changes)), 0))


def test_a_row_whose_sum_of_products_may_not_fit_in_32_bits_is_refused_in_int8():
    wide = Shape(**(SMALLEST | {"d_ff": 2**31 // 127**2}))
    library().mtkit_free(check(library().mtkit_new(wide, 0)))
    with pytest.raises(MtkitError, match="the widest row in int8"):
        check(library().mtkit_new(wide, 1))
