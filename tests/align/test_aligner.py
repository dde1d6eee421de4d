"""Word alignments from attention weights."""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from mtkit.align.aligner import (
    Aligner,
    AlignmentHead,
    AlignmentSettings,
    WordAttention,
    all_heads,
    choose_heads,
    default_heads,
    links_of,
)
from mtkit.align.attention_weights import AttentionWeights, LayerWeights
from mtkit.align.links import METHODS, Gold, unit_spans
from mtkit.base.errors import MtkitError
from mtkit.config import ModelConfig
from mtkit.model import Transformer
from mtkit.run_folder import Run
from mtkit.tokenizer import SpannedIds
from mtkit.translate import Translator

# From subwords to words


TEXTS = [
    "Zwei  Männer \u00a0stehen am ﬁsch 日本語 x\u0301 .",
    "\ufeffa\u200bb  \U0001f600 c",
    "ｶﾞ ½ K\u2028l\u0085m",
    "\x1ca\x1cb\x00 c",
    "שלום עולם, مرحبا",
    "你好，世界。再见",
]


def attention_of(rows: list[list[float]]) -> WordAttention:
    """The last column is for EOS."""
    matrix = np.array(rows)
    return WordAttention(matrix, list(range(matrix.shape[1] - 1)), list(range(len(matrix))))


def test_words_are_linked_to_their_best_partners_unless_that_is_the_end():
    forward = attention_of([[0.7, 0.1, 0.2], [0.1, 0.2, 0.7], [0.2, 0.5, 0.3]])
    # The best source words are 0 for target word 0 and 1 for 2; target word 1 attends to EOS. The
    # best target words are 0 and 2.
    for method in METHODS:
        assert links_of(forward, method=method) == {(0, 0): 0.7, (1, 2): 0.5}


def test_two_models_are_joined_by_the_geometric_mean_of_their_weights():
    # Rows are target words, and the last column is EOS.
    forward = attention_of([[0.7, 0.1, 0.2], [0.1, 0.2, 0.7], [0.2, 0.5, 0.3]])
    # Rows are source words.
    backward = attention_of([[0.6, 0.2, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1]])
    # The products, by hand: 0.42 and 0.01; 0.02 and 0.12; 0.02 and 0.10. Target word 1 has no
    # partner, because EOS has 0.7 and its best partner √0.12; but it is that of source word 1.
    assert links_of(forward, backward, "intersection").keys() == {(0, 0)}
    union = links_of(forward, backward, "union")
    assert union.keys() == {(0, 0), (1, 1), (1, 2)}
    assert union == pytest.approx({(0, 0): 0.42**0.5, (1, 1): 0.12**0.5, (1, 2): 0.10**0.5})


def test_words_that_only_one_of_two_models_has_read_have_no_links():
    forward = WordAttention(np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]]), src=[0, 2], tgt=[0, 1])
    backward = WordAttention(np.array([[0.8, 0.2], [0.7, 0.3]]), src=[1], tgt=[1, 2])
    # Both have source word 2 and target word 1.
    assert links_of(forward, backward) == pytest.approx({(2, 1): (0.7 * 0.7) ** 0.5})


class Attending:
    """Stands for the pass over pairs: cross-attention with given weights in every layer."""

    def __init__(self, *by_head: list[list[float]]) -> None:
        self.weights = torch.tensor(by_head)[None]

    def __call__(
        self, model: Transformer, src: Tensor, tgt_in: Tensor, *, cross: set[int]
    ) -> AttentionWeights:
        weights = self.weights.expand(len(src), -1, -1, -1)
        return AttentionWeights(cross=dict.fromkeys(cross, LayerWeights(weights, None)))


def words_of_subwords(translator: Translator, count: int) -> list[str]:
    """Words that have so many subwords, all of them different."""
    tokenizer = translator.tokenizer
    letters = [tokenizer.piece(i).strip("▁") for i in range(260, len(tokenizer))]
    words = dict.fromkeys(first + last for first in letters for last in ("", *letters))
    return [word for word in words if word.isalpha() and len(tokenizer.encode(word)) == count]


def test_each_step_reads_its_row_of_the_decoder(translator, monkeypatch):
    a, b, c, *_ = words_of_subwords(translator, 1)
    # Rows: inputs BOS, first and second target word. Columns: three source words and EOS.
    rows = [[0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.7, 0.1], [0.7, 0.1, 0.1, 0.1]]
    monkeypatch.setattr("mtkit.align.attention_weights.weights_of_pairs", Attending(rows))
    source, target = f"{a} {b} {c}", f"{b} {a}"
    for step, links in (("prediction", {(1, 0), (2, 1)}), ("input", {(2, 0), (0, 1)})):
        head = AlignmentHead(layer=1, head=1, step=step)
        (alignment,) = translator.aligner([head]).align([source], [target], method="intersection")
        assert alignment.links == links


def test_subwords_of_a_source_word_are_added_and_of_a_target_word_averaged(translator, monkeypatch):
    short, long = words_of_subwords(translator, 1)[0], words_of_subwords(translator, 2)[0]
    # Columns: a source word of one subword, one of two, EOS. Rows: inputs BOS, the two subwords of
    # one target word.
    first = [[0.3, 0.2, 0.4, 0.1], [0.5, 0.3, 0.1, 0.1], [0, 0, 0, 1.0]]
    second = [[0.1, 0.6, 0.2, 0.1], [0.1, 0.1, 0.2, 0.6], [0, 0, 0, 1.0]]
    monkeypatch.setattr("mtkit.align.attention_weights.weights_of_pairs", Attending(first, second))
    heads = [AlignmentHead(layer=1, head=head, step="prediction") for head in (1, 2)]
    (alignment,) = translator.aligner(heads).align([f"{short} {long}"], [long], method="union")
    # Source word 1: (0.6 + 0.4 + 0.8 + 0.3) / 4; source word 0: (0.3 + 0.5 + 0.1 + 0.1) / 4.
    assert alignment.weights == pytest.approx({(0, 0): 0.25, (1, 0): 0.525})


def test_all_characters_of_a_subword_have_its_links():
    class Spanned:
        def encode_with_spans(self, lines: list[str]) -> list[SpannedIds]:
            spans = {"東京は": [(0, 2), (2, 3)], "it is Tokyo": [(0, 2), (2, 5), (5, 11)]}
            return [SpannedIds(list(range(len(spans[line]))), spans[line]) for line in lines]

    class Given:
        heads = ()

        def mean(self, *_: object) -> list[np.ndarray]:
            return [np.array([[0.1, 0.3, 0.6], [0.1, 0.8, 0.1], [0.9, 0.05, 0.05]])]

    both: Any = (Spanned(), Spanned())
    aligner = Aligner(cast(Any, Given()), both, 9, limit=(9, ""))
    (units,) = aligner.align(["東京は"], ["it is Tokyo"], words=unit_spans)
    assert units.links == {(0, 2), (1, 2), (2, 1)}
    assert units.weights == pytest.approx({(0, 2): 0.9, (1, 2): 0.9, (2, 1): 0.8})


def test_the_heads_that_agree_with_the_gold_alignment_are_chosen(translator, monkeypatch):
    a, b, *_ = words_of_subwords(translator, 1)
    good = [[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.0, 0.0, 1.0]]
    bad = [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    monkeypatch.setattr("mtkit.align.attention_weights.weights_of_pairs", Attending(bad, good))
    heads = [AlignmentHead(layer=1, head=head, step="prediction") for head in (1, 2)]
    gold = Gold(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1)}))
    pairs = [f"{a} {b}"] * 3, [f"{b} {a}"] * 3
    for default, rate in ((heads[:1], 1.0), (heads[1:], 0.0)):
        chosen = choose_heads(translator.aligner(heads), *pairs, [gold] * 3, default=default)
        assert chosen == ([heads[1]], 0.0, rate)


def test_the_default_is_kept_where_adding_heads_one_by_one_is_worse(translator, monkeypatch):
    rates = {(0,): 0.5, (1,): 0.6, (2,): 0.7, (0, 1): 0.5, (0, 2): 0.8, (1, 2): 0.1}
    monkeypatch.setattr("mtkit.align.aligner._error_rate", lambda *given: rates[tuple(given[2])])
    aligner = translator.aligner(all_heads(translator.model.config)[:3])
    for default, rate in ((aligner.heads[:1], 0.5), (aligner.heads[1:], 0.1)):
        assert choose_heads(aligner, [], [], [], default=default) == (default, rate, rate)


def test_heads_and_methods_that_do_not_exist_are_errors(translator):
    with pytest.raises(ValueError, match="heads: give one or more"):
        translator.aligner([])
    with pytest.raises(ValueError, match=r"heads: the model does not have 9\.1 \(input\)"):
        translator.aligner([AlignmentHead(layer=9, head=1, step="input")])
    with pytest.raises(ValueError, match=r"method: one of grow-diag-final-and, .*, not 'all'"):
        list(translator.align(["a"], ["b"], method="all"))  # type: ignore[arg-type]


def test_without_tuning_the_upper_half_of_the_layers_aligns():
    config = ModelConfig(d_model=8, n_heads=2, encoder_layers=1, decoder_layers=3, d_ff=8)
    assert [(head.layer, head.head, head.step) for head in default_heads(config)] == [
        *((layer, head, "prediction") for layer in (2, 3) for head in (1, 2))
    ]


@pytest.fixture(scope="module")
def translator(tiny_run) -> Iterator[Translator]:
    with Translator.load(tiny_run, prepared=False, device="cpu") as loaded:
        yield loaded


lines = st.text(max_size=40) | st.sampled_from(TEXTS) | st.just("word " * 300)


@settings(
    deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(lines, lines), min_size=1, max_size=6))
def test_every_pair_has_links_within_its_lines_whatever_is_beside_it(translator, pairs):
    sources, targets = map(list, zip(*pairs, strict=True))
    alignments = translator.align(sources, targets)
    for alignment, (source, target) in zip(alignments, pairs, strict=True):
        sizes = len(source.split()), len(target.split())
        assert all(0 <= i < sizes[0] and 0 <= j < sizes[1] for i, j in alignment.links)
        assert all(0 <= weight <= 1.0001 for weight in alignment.weights.values())
        if not all(sizes):
            assert not alignment.links
        (alone,) = translator.align([source], [target])
        assert alone.links == alignment.links
        for link, weight in alone.weights.items():
            assert weight == pytest.approx(alignment.weights[link], abs=1e-5)


def test_more_lines_on_one_side_are_an_error(translator):
    with pytest.raises(ValueError, match="only the first list has a line 2"):
        list(translator.align(["a", "b"], ["a"]))
    with pytest.raises(TypeError, match="list of lines"):
        translator.align("a", ["a"])


def test_an_ensemble_has_the_attention_of_each_of_its_models(untrained, also_untrained):
    src, tgt = ["one two three", "nine"], ["eins zwei", "neun vier"]
    matrices = []
    for runs in ([untrained], [also_untrained], [untrained, also_untrained]):
        with Translator.load(runs, prepared=False, device="cpu") as loaded:
            by_pair = loaded.aligner().by_head(src, tgt)
        matrices.append([[attention.matrix for attention in by_head] for by_head in by_pair])
    for first, second, both in zip(*matrices, strict=True):
        for expected, matrix in zip([*first, *second], both, strict=True):
            assert np.allclose(expected, matrix, rtol=0, atol=1e-6)
    assert not np.allclose(matrices[0][0][0], matrices[1][0][0], rtol=0, atol=1e-3)


def test_a_run_that_was_tuned_aligns_with_its_heads(begun):
    run = Run.open(begun)
    with Translator.load(run, device="cpu") as before:
        model = before.model.config
        assert before.aligner().heads == default_heads(model)
        chosen = all_heads(model)[1]
        AlignmentSettings(heads=[chosen], error_rate=0.5, pairs=3, reference="gold").save(begun)
        # They are read once.
        assert before.aligner().heads == before.variant().aligner().heads == default_heads(model)
    with Translator.load(run, device="cpu") as tuned:
        assert tuned.aligner().heads == [chosen]
    with Translator.load(run, device="cpu") as loaded:
        other = AlignmentHead(layer=99, head=1, step="input")
        AlignmentSettings(heads=[other], error_rate=0.5, pairs=3, reference="gold").save(begun)
        with pytest.raises(MtkitError, match=r"alignment\.json: names heads that the model does"):
            loaded.aligner()
        (begun / "alignment.json").write_text("{}")
        with pytest.raises(MtkitError, match=r"alignment\.json.*delete it; mtkit check --fit"):
            loaded.aligner()
        (begun / "alignment.json").unlink()
        (begun / "alignment.json").symlink_to("nowhere")
        with pytest.raises(MtkitError, match=r"alignment\.json: No such file"):
            loaded.aligner()
