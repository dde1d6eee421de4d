"""The attention to the source that the native engine gives, against PyTorch."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from test_step import VARIANTS, drawn_sentences

from mtkit.align import AlignmentHead, TorchAttention
from mtkit.native import NativeModel
from mtkit.search_settings import Constraints, SearchSettings
from mtkit.tokenizer import BOS_ID, EOS_ID

Floats = npt.NDArray[np.float32]


class Kept(dict[tuple[tuple[int, ...], tuple[int, ...]], Floats]):
    """The attention of some heads, by source and translation."""

    def __init__(self, heads: Sequence[AlignmentHead]) -> None:
        super().__init__()
        numbers = [(head.layer - 1, head.head - 1, head.step == "input") for head in heads]
        self.head_numbers = np.array(numbers, np.int32)

    def put(self, source: Sequence[int], target: Sequence[int], weights: Floats) -> None:
        self[tuple(source), tuple(target)] = weights


def heads_of(model: Any, steps: str) -> list[AlignmentHead]:
    """Some heads of the first and the last layer."""
    config = model.config
    return [
        AlignmentHead(layer=layer, head=head, step=step)
        for layer in {1, config.decoder_layers}
        for head in {1, config.n_heads}
        for step in ("prediction", "input")
        if step in steps
    ]


def attended(
    native: NativeModel, kept: Kept, src: list[list[int]], tgt: list[list[int]]
) -> list[Floats]:
    return native.attend(src, tgt, kept.head_numbers, bos_id=BOS_ID)


@pytest.mark.parametrize("name", VARIANTS)
def test_attention_is_that_of_pytorch_whatever_is_beside_it(name, table, draw, to_native):
    model = draw(**VARIANTS[name])
    native, rng = to_native(model), random.Random(name)
    src = drawn_sentences(rng, 7, model.src_vocab_size or model.vocab_size)
    tgt = [ids[:-1] for ids in drawn_sentences(rng, 7, model.vocab_size)]
    for steps in ("prediction", "input", "prediction and input"):
        heads = heads_of(model, steps)
        expected = TorchAttention([model], [heads]).mean(src, tgt)
        kept = Kept(heads)
        for b, weights in enumerate(attended(native, kept, src, tgt)):
            assert weights.shape == (len(tgt[b]), len(src[b]))
            of_torch = expected[b][: len(tgt[b]), : len(src[b])]
            assert np.allclose(weights, of_torch, rtol=0, atol=1e-5)
            (alone,) = attended(native, kept, [src[b]], [tgt[b]])
            assert np.array_equal(alone, weights)


@pytest.mark.parametrize("beam_size", [1, 2, 5])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_the_search_gives_the_attention_of_its_best(precision, beam_size, draw, to_native):
    model = draw()
    native, rng = to_native(model, precision=precision), random.Random(3)
    src = drawn_sentences(rng, 12, model.vocab_size)
    # Some are cut off, because no hypothesis may be so short.
    limits = [rng.choice([2, 30]) for _ in src]
    settings = SearchSettings(limits, bos_id=BOS_ID, eos_id=EOS_ID, alpha=0.6)
    # Others end, if a token that such a model likes to write is the last one.
    liked = Counter(ids for (best,) in native.translate(src, settings) for ids in best.tokens)
    eos, short = liked.most_common(3)[-1][0], Constraints(min_length=3)
    settings = replace(settings, eos_id=eos, constraints=short)
    plain = native.translate(src, settings, beam_size=beam_size, n_best=beam_size)
    for steps in ("prediction", "prediction and input"):
        kept = Kept(heads_of(model, steps))
        beam = {"beam_size": beam_size, "n_best": beam_size}
        assert native.translate(src, settings, watched=kept, **beam) == plain
        for ids, (best, *_) in zip(src, plain, strict=True):
            weights = kept.get((tuple(ids), best.tokens))
            if not best.tokens or ("input" in steps and not best.finished):
                assert weights is None
                continue
            (expected,) = attended(native, kept, [ids], [list(best.tokens)])
            assert np.array_equal(weights, expected)
    assert len({best.finished for best, *_ in plain}) == 2
