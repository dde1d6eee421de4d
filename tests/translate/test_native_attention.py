"""Word alignments with the native engine, which are those of PyTorch."""

import numpy as np
import pytest
from support.translators import loaded, numbers

from mtkit.align import default_heads
from mtkit.translate import align_by_sentence, native_attention
from mtkit.translate.native_attention import NativeAttention

LINES = [*numbers(40, seed=5), "", "one two. Three four!", "nine " * 12]


@pytest.mark.parametrize("batch_tokens", [1, 50, 100_000])
@pytest.mark.parametrize("is_kept", [True, False])
def test_alignments_are_those_of_pytorch(batch_tokens, is_kept, untrained, monkeypatch):
    if not is_kept:
        monkeypatch.setattr(native_attention, "_MAX_KEPT", 0)
    config = untrained.config.decode.model_copy(update={"batch_tokens": batch_tokens})
    alignments = {}
    for engine in ("native", "torch"):
        with loaded(untrained, engine, config=config) as translator:
            aligner = translator.aligner()
            best = [best for best, *_ in translator.translate_nbest(LINES, n_best=1)]
            numbers_of = range(1, 1 + len(LINES))
            alignments[engine] = align_by_sentence(aligner, LINES, best, numbers=numbers_of)
    for native, torch in zip(alignments["native"], alignments["torch"], strict=True):
        assert native.links == torch.links
        assert native.weights == pytest.approx(torch.weights, abs=1e-5)
    assert sum(len(alignment.links) for alignment in alignments["native"]) > 100


def test_a_repeated_translation_takes_the_room_of_one(untrained, monkeypatch):
    """A server translates the same text again and again."""
    weights = np.ones((2, 3), np.float32)
    monkeypatch.setattr(native_attention, "_MAX_KEPT", 2 * weights.nbytes)
    with loaded(untrained, "native") as translator:
        attention = translator.decoder.attention([default_heads(untrained.config.model)])
        assert isinstance(attention, NativeAttention)
        for _ in range(5):
            attention.put([7, 8, 3], [9, 10], weights)
        (mean,) = attention.mean([[7, 8, 3]], [[9, 10]])
    assert mean is weights
