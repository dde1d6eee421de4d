"""One attention head learns word alignments, and nothing else changes."""

import dataclasses

import numpy as np
import pytest
import torch
from conftest import CPU, changed, number_pairs
from support.training import Trainings

from mtkit.align.aligner import AlignmentHead
from mtkit.align.attention_weights import weights_of_pairs
from mtkit.align.links import Gold, alignment_score
from mtkit.base.errors import MtkitError
from mtkit.batches import make_batch
from mtkit.config import Config, load_config
from mtkit.data import PreparedData, SentencePairs, TokenArray
from mtkit.run_folder import Run
from mtkit.tokenizer import EOS_ID, UNK_ID
from mtkit.train import assembly as train
from mtkit.train.bpe_dropout import BpeDropout
from mtkit.train.guided_alignment import GuidedAlignment
from mtkit.train.micro_batches import Pass
from mtkit.train.trainer import Trainer
from mtkit.translate import Translator


@pytest.fixture
def guided(config: Config) -> Config:
    """Trains the first head of the first layer on links."""
    return changed(changed(config, "model", decoder_layers=2), "train", guided_alignment=0.1)


def test_the_subwords_of_a_word_attend_to_all_subwords_of_its_linked_words(guided, linked):
    tokenizer = linked.tokenizers().tgt
    pairs = linked.pairs("train")
    guide = GuidedAlignment(guided, pairs, linked.tokenizers())
    indices = np.arange(20)
    batch = make_batch(pairs, indices)
    targets = guide.targets(batch, pairs, indices)
    assert targets.shape == (20, batch.tgt_in.shape[1], batch.src.shape[1])
    for row, index in enumerate(indices):
        # The same by text: each subword's word, counted by spaces.
        def words(ids: list[int]) -> list[int]:
            begins = [tokenizer.piece(i).startswith("▁") for i in ids]
            return [sum(begins[: n + 1]) - 1 for n in range(len(ids))]

        src, tgt = words(pairs.src[index][:-1]), words(pairs.tgt[index][:-1])
        count = src[-1] + 1
        expected = torch.zeros_like(targets[row])
        for t, word in enumerate(tgt, start=1):  # position 0 is BOS
            places = [s for s, other in enumerate(src) if other == count - 1 - word]
            expected[t, places] = 1 / len(places)
        assert torch.allclose(targets[row], expected, rtol=0, atol=1e-7)


def test_a_word_without_links_attends_to_the_end_unless_its_pair_has_none(guided, linked):
    pairs = linked.pairs("train")
    guide = GuidedAlignment(guided, pairs, linked.tokenizers())
    # The second pair has only its first link, the third has none.
    links = [pairs.links[0], pairs.links[1][:2], []]
    flat = np.array([number for of_pair in links for number in of_pair])
    fewer = TokenArray(flat, np.array([len(of_pair) for of_pair in links]))
    batch = make_batch(pairs, np.arange(3))
    targets = guide.targets(batch, dataclasses.replace(pairs, links=fewer), np.arange(3))
    begins = linked.tokenizers().tgt.begins_word
    words = np.cumsum(begins[batch.tgt_in.numpy()], axis=1) - 1
    is_word = batch.tgt_in.numpy() > UNK_ID
    at_end = (targets * (batch.src == EOS_ID)[:, None, :]).sum(-1).numpy()
    assert not at_end[0].any()
    assert np.array_equal(at_end[1] == 1, is_word[1] & (words[1] != links[1][1]))
    assert at_end[1].any()
    assert np.allclose(targets[:2].sum(-1).numpy(), is_word[:2])
    assert not targets[2].any()


def test_bpe_dropout_changes_the_subwords_and_not_the_links_of_words(guided, linked):
    vocabularies, pairs = linked.tokenizers(), linked.pairs("train")
    guide = GuidedAlignment(guided, pairs, vocabularies)
    dropout = BpeDropout(vocabularies.tgt, probability=0.5, seed=1)
    indices = np.arange(30)
    src, tgt = (
        dropout.sample(side, indices, step=1, side=number, longest=1000)
        for number, side in enumerate((pairs.src, pairs.tgt))
    )
    assert any(src[i] != pairs.src[i] for i in range(30))
    sampled = SentencePairs(src, tgt, links=pairs.links)
    batch = make_batch(sampled, indices)
    targets = guide.targets(batch, sampled, indices)
    begins = vocabularies.tgt.begins_word
    for row in range(30):
        src_words = np.cumsum(begins[batch.src[row].numpy()]) - 1
        tgt_words = np.cumsum(begins[batch.tgt_in[row].numpy()]) - 1
        places = targets[row].nonzero().tolist()
        linked_words = {(int(src_words[s]), int(tgt_words[t])) for t, s in places}
        count = int(begins[batch.src[row].numpy()].sum())
        assert linked_words == {(i, count - 1 - i) for i in range(count)}


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_loss_is_the_cross_entropy_of_the_weights_of_the_first_head(norm, guided, linked):
    trainer = Trainer(changed(guided, "model", norm=norm, dropout=0.0), linked, device=CPU)
    pairs, indices = trainer.pairs, np.arange(12)
    with torch.no_grad():
        loss, count = trainer._gradients.losses(Pass(0, [(pairs, indices)])).alignment
    batch = make_batch(pairs, indices)
    trainer.model.eval()
    # Layer 1 of 2, as `train.guided_layer` says, by the pass that pictures of attention use.
    weights = weights_of_pairs(trainer.model, batch.src, batch.tgt_in, cross=[0]).cross[0].weights
    targets = trainer._gradients.guided.targets(batch, pairs, indices)
    wanted = targets > 0
    expected = -(targets[wanted] * weights[:, 0][wanted].log()).sum()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert count.item() == pytest.approx(int((batch.tgt_in > 3).sum()))


def test_the_loss_of_the_translation_is_the_same_with_and_without(guided, linked):
    without = changed(guided, "train", guided_alignment=0.0)
    losses = []
    for config in (guided, without):
        trainer = Trainer(config, linked, device=CPU)
        losses.append(trainer.update(next(trainer.batches)))
    assert losses[0].translation == losses[1].translation
    assert losses[0].alignment is not None
    assert losses[1].alignment is None


def test_without_it_links_in_the_data_change_no_weight(trainings: Trainings, linked: PreparedData):
    trainings.run("with", data=linked)
    trainings.run("without")
    trainings.assert_same("with", "without")


@pytest.mark.slow
def test_a_trained_head_aligns_better_than_the_same_head_without(guided, linked, tmp_path):
    # Enough updates to learn the links, and far too few to learn the translation.
    often = dict.fromkeys(("log_every", "valid_every", "checkpoint_every"), 160)
    longer = changed(guided, "train", max_steps=160, warmup_steps=60, **often)
    wider = changed(longer, "model", d_model=32, d_ff=64, dropout=0.0)
    pairs = number_pairs(100, seed=9)
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    lengths = [len(source.split()) for source in sources]
    links = [frozenset((i, n - 1 - i) for i in range(n)) for n in lengths]
    golds = [Gold(of_pair, of_pair) for of_pair in links]
    rates = []
    head = AlignmentHead(layer=1, head=1, step="input")
    for weight in (0.5, 0.0):
        config = changed(wider, "train", guided_alignment=weight)
        train.run(config, linked, tmp_path / str(weight), device="cpu")
        with Translator.load(tmp_path / str(weight), device="cpu", prepared=False) as translator:
            alignments = translator.aligner([head]).align(sources, targets)
        links = [alignment.links for alignment in alignments]
        rates.append(alignment_score(links, golds).error_rate)
    trained, untrained = rates
    assert trained < 0.5 * untrained


def test_a_run_aligns_with_the_head_that_it_trained(guided, linked, tmp_path):
    train.run(guided, linked, tmp_path / "run", device="cpu")
    with Translator.load(Run.open(tmp_path / "run"), device="cpu") as translator:
        assert list(map(str, translator.aligner().heads)) == ["1.1 (input)"]


def test_data_without_links_is_refused_in_one_line(guided, tiny_data, tmp_path):
    with pytest.raises(MtkitError, match=r"^train.guided_alignment: the data was prepared without"):
        train.run(guided, tiny_data, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("layers", "layer"), [(1, 1), (2, 1), (3, 2), (6, 5)])
def test_without_a_layer_it_is_the_one_before_the_last(layers: int, layer: int):
    assert load_config("small", [f"model.decoder_layers={layers}"]).guided_layer == layer


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what PyTorch's compiler says about itself
def test_compiled_layers_train_the_head_that_plain_ones_train(guided, linked, monkeypatch):
    torch.compiler.reset()
    # As on a GPU, where a layer is one graph.
    monkeypatch.setattr("mtkit.attention.is_fused_attention_slow", lambda q, k: False)
    config = changed(guided, "model", dropout=0.0)
    plain, compiled = (
        Trainer(changed(config, "train", compile=is_compiled), linked, device=CPU)
        for is_compiled in (False, True)
    )
    for _ in range(3):
        update = next(plain.batches)
        for mine, theirs in zip(compiled.update(update), plain.update(update), strict=True):
            assert torch.allclose(mine, theirs, rtol=1e-4)
