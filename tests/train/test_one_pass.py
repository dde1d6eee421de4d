"""An update in one pass over a row of all its batches is the update batch by batch."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CPU, changed
from support.training import assert_same, update_of
from torch import Tensor

from mtkit.batches import TokenBatches, make_batch, pack_batches
from mtkit.config import Config
from mtkit.data import SentencePairs, TokenArray
from mtkit.kernels.dropout import Dropout
from mtkit.kernels.gpu_loss import loss_on_gpu
from mtkit.model import Transformer
from mtkit.train import gradients
from mtkit.train.micro_batches import Pass, cut, padded_tokens
from mtkit.train.trainer import Trainer

VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "base": {},
    "learned positions": {"model": {"positions": "learned", "max_positions": 64}},
    "no positions": {"model": {"positions": "none"}},
    "narrow attention": {"model": {"narrow_attention": True, "attention_scale": 0.9}},
    "attention_window": {"model": {"attention_window": 2}},
    "pre-norm": {"model": {"norm": "pre"}},
    "SiLU": {"model": {"activation": "silu"}},
    "other head widths": {"model": {"d_k": 3, "d_v": 5}},
    "output bias": {"model": {"output_bias": True}},
    "no smoothing": {"train": {"label_smoothing": 0.0}},
    "BPE-dropout": {"train": {"bpe_dropout": 0.3, "device_batch_tokens": 400}},
    "freeze": {"train": {"freeze": ("encoder.*",)}},
    "LoRA": {"train": {"lora_rank": 2}},
    "moving average": {"train": {"ema": 0.9}},
    "Muon": {"train": {"optimizer": "muon"}},
    "guided alignment": {"model": {"decoder_layers": 2}, "train": {"guided_alignment": 0.1}},
}
VARIANTS["guided alignment and BPE-dropout"] = {
    "model": {"decoder_layers": 2},
    "train": {"guided_alignment": 0.1, **VARIANTS["BPE-dropout"]["train"]},
}


@pytest.fixture
def config(config: Config) -> Config:
    config = changed(config, "model", dropout=0.0)
    return changed(config, "train", gpu_path="plain", device_batch_tokens=200)


def packed(config: Config) -> Config:
    return changed(config, "train", gpu_path="packed")


def varied(config: Config, variant: str) -> Config:
    for section, settings in VARIANTS[variant].items():
        config = changed(config, section, **settings)
    return config


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("variant", VARIANTS)
def test_one_pass_has_the_loss_and_the_gradients_of_batch_by_batch(variant, config, linked):
    config = varied(config, variant)
    plain, one_pass = (update_of(settings, linked) for settings in (config, packed(config)))
    assert (plain.passes, one_pass.passes) == (5, 1)
    assert_same(one_pass, plain)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("variant", ["base", "output bias", "no smoothing", "LoRA"])
def test_one_pass_with_a_gpus_loss_has_the_same_gradients(variant, config, tiny_data, monkeypatch):
    config = varied(config, variant)
    plain = update_of(config, tiny_data)
    monkeypatch.setattr(gradients, "loss_of_states", loss_on_gpu)
    assert_same(update_of(packed(config), tiny_data), plain)


@pytest.mark.usefixtures("in_float64")
def test_with_the_same_dropout_one_pass_has_the_same_gradients(config, tiny_data, monkeypatch):
    config = changed(config, "model", dropout=0.2, activation_dropout=0.2)
    # The masks of each batch, in the order of the calls.
    drawn: list[list[Tensor]] = []

    def draw(self: Dropout, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        drawn[-1].append((torch.rand_like(x) >= self.p) / (1 - self.p))
        return x * drawn[-1][-1]

    monkeypatch.setattr(Dropout, "forward", draw)
    with monkeypatch.context() as patch:
        original = Transformer.forward

        def forward(self: Transformer, *args: Any, **kwargs: Any) -> Tensor:
            drawn.append([])
            return original(self, *args, **kwargs)

        patch.setattr(Transformer, "forward", forward)
        plain = update_of(config, tiny_data)
    calls = zip(*drawn, strict=True)
    rows = iter([torch.cat([mask.flatten(0, 1) for mask in call])[None] for call in calls])

    def given(self: Dropout, x: Tensor) -> Tensor:
        return x * next(rows) if self.training and self.p else x

    monkeypatch.setattr(Dropout, "forward", given)
    one_pass = update_of(packed(config), tiny_data)
    assert next(rows, None) is None
    assert_same(one_pass, plain)


@pytest.mark.usefixtures("in_float64")
def test_masks_that_are_added_have_the_result_of_boolean_masks(config, tiny_data):
    trainer = Trainer(config, tiny_data, device=CPU)
    batches = [make_batch(trainer.pairs, np.arange(i, i + 4)) for i in range(0, 12, 4)]
    assert any((batch.src == 0).any() for batch in batches)
    results = []
    for dtype in (None, torch.float64):
        row = pack_batches(batches, CPU, bias_dtype=dtype)
        results.append(trainer.model(row.src, row.tgt_in, row.packing))
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)
    # As the kernels of a GPU read them.
    masks = row.packing.src.masks if row.packing.src else []
    assert all(n % 8 == 0 for mask in masks if mask is not None for n in mask.stride()[:-1])


def realistic_pairs(count: int) -> SentencePairs:
    """Pairs with lengths as in news text: 4 to 200 subwords, 28 on average."""
    rng = np.random.default_rng(7)
    src = np.clip(rng.gamma(2.6, 10.5, count), 4, 200).astype(np.int64)
    tgt = np.clip(src * rng.normal(1.0, 0.15, count), 4, 200).astype(np.int64)
    return SentencePairs(*(TokenArray(np.full(n.sum(), 5, np.uint16), n) for n in (src, tgt)))


def test_1_to_64_workers_have_equal_shares_of_an_update():
    pairs = realistic_pairs(20_000)
    updates = TokenBatches(pairs, budget=3125, per_update=8, seed=1)
    for batches, count in itertools.product(itertools.islice(updates, 3), range(1, 65)):
        costs = [padded_tokens(pairs, batch) // len(batch) for batch in batches]
        shares = cut(batches, costs, count)
        rows = [part for share in shares for _, part in share]
        np.testing.assert_array_equal(np.concatenate(rows), np.concatenate(batches))
        tokens = [sum(padded_tokens(pairs, part) for _, part in share) for share in shares]
        assert max(tokens) <= 1.15 * sum(tokens) / count, count


def test_the_most_expensive_piece_is_as_cheap_as_any_division_allows():
    rng = np.random.default_rng(3)
    for _ in range(50):
        costs = rng.integers(1, 9, 3).tolist()
        sizes = rng.integers(0, 4, 3)
        batches = np.split(np.arange(sizes.sum()), np.cumsum(sizes)[:-1])
        rows = np.repeat(costs, sizes)
        divisions = itertools.combinations_with_replacement(range(len(rows) + 1), 2)
        best = min(max(part.sum() for part in np.split(rows, ends)) for ends in divisions)
        if len(rows):
            pieces = cut(batches, costs, 3)
            assert max(sum(costs[n] * len(part) for n, part in piece) for piece in pieces) == best


@pytest.mark.parametrize("path", ["plain", "packed"])
@pytest.mark.parametrize("bpe_dropout", [0.0, 0.5])
def test_a_pass_has_at_most_the_tokens_that_fit_a_device(bpe_dropout, path, config, tiny_data):
    limit = 120
    settings = {"gpu_path": path, "device_batch_tokens": limit, "bpe_dropout": bpe_dropout}
    trainer = Trainer(changed(config, "train", **settings), tiny_data, device=CPU)
    _, largest = trainer.micro_batches.largest(trainer.batches)
    most = padded_tokens(*largest)
    assert most <= limit
    for step, batches in enumerate(itertools.islice(trainer.batches, 20), 1):
        own = trainer.micro_batches.of_update(batches, step=step, rank=0, world_size=1)
        assert len(own) > 1
        for each in own:
            assert sum(padded_tokens(*some) for some in each.micro_batches) <= most


def test_more_workers_than_rows_leave_passes_empty_whose_loss_is_zero(config, tiny_data):
    trainer = Trainer(packed(config), tiny_data, device=CPU)
    passes = [
        trainer.micro_batches.of_update([np.arange(2)], step=1, rank=rank, world_size=3)[0]
        for rank in range(3)
    ]
    assert [own.is_empty for own in passes] == [False, False, True]
    assert trainer._gradients.losses(passes[2]).translation.item() == 0.0


def test_halves_of_passes_draw_other_random_numbers():
    pairs = realistic_pairs(40)
    level, seen = [Pass(i, [(pairs, np.arange(8 * i, 8 * i + 8))]) for i in range(5)], set()
    for _ in range(4):
        seen |= {whole.index for whole in level}
        rows = [i for whole in level for _, part in whole.micro_batches for i in part]
        assert sorted(rows) == [*range(40)]
        level = [half for whole in level for half in whole.halves()]
    assert len(seen) == 5 + 10 + 20 + 40
    assert [half.index for half in level[0].halves()] == [level[0].index]
