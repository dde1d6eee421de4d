"""The training loop: updates by the formula, and what it records of them."""

import math
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from conftest import CPU, changed
from support.training import before_update, kill

from mtkit.base.errors import MtkitError
from mtkit.train.flops import training_flops
from mtkit.train.schedule import learning_rate
from mtkit.train.trainer import Trainer


@pytest.mark.usefixtures("in_float64")
def test_an_update_is_adams_as_the_formula_gives_it(config, tiny_data):
    trainer = Trainer(config, tiny_data, device=CPU)
    parameter = trainer.model.embedding.weight
    beta1, beta2, epsilon = 0.9, 0.98, 1e-9
    expected = parameter.detach().clone()
    m, v = torch.zeros_like(expected), torch.zeros_like(expected)
    original = trainer.optimizer.step
    for step in (1, 2, 3):
        gradients = []

        def take_and_step(*arguments, gradients=gradients):
            gradients.append(parameter.grad.clone())
            return original(*arguments)

        trainer.optimizer.step = take_and_step  # type: ignore[method-assign]
        trainer.update([np.arange(step, step + 9)])
        (g,) = gradients
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        rate = 16**-0.5 * min(step**-0.5, step * 4**-1.5)
        m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
        expected = expected - rate * m_hat / (v_hat.sqrt() + epsilon)
        assert torch.allclose(parameter, expected, rtol=0, atol=1e-12)


def test_batches_of_earlier_versions_are_refused(config, tiny_data):
    approximate = changed(config, "train", batching="approximate")
    with pytest.raises(MtkitError, match="approximate was removed; take length, in a new run"):
        Trainer(approximate, tiny_data, device=CPU)


@pytest.mark.parametrize("error", [MemoryError(), ImportError("failed to map a segment")])
def test_a_page_that_cannot_be_drawn_does_not_end_training(error, trainings, monkeypatch, caplog):
    monkeypatch.setattr("mtkit.train.metrics.run_page", Mock(side_effect=error))
    assert trainings.run("run")
    assert trainings.steps("run")[-1] == trainings.config.train.max_steps
    (warning,) = [line for line in caplog.messages if "will have gaps" in line]
    assert warning.startswith(str(error) or "out of memory")


def test_metrics_have_the_keys_that_are_promised(trainings):
    trainings.run("run")
    rows = trainings.open("run").metrics()
    training = [row for row in rows if "loss" in row]
    validation = [row for row in rows if "valid_loss" in row]
    assert len(training) + len(validation) == len(rows)
    assert [row["step"] for row in training] == [1, 2, 3, 4, 5, 6]
    assert [row["step"] for row in validation] == [3, 6]
    for row in training:
        assert {"step", "loss", "lr", "tokens_per_second"} <= row.keys()
        assert row["lr"] == pytest.approx(learning_rate(row["step"], 16, 4), rel=1e-12)
        assert row["tokens_per_second"] > 0
        assert 0 < row["loss"] < 20
    for row in validation:
        assert {"step", "valid_loss", "valid_perplexity", "valid_bleu"} <= row.keys()
        assert row["valid_perplexity"] == pytest.approx(math.exp(row["valid_loss"]), rel=1e-9)


def test_a_logged_loss_is_the_mean_per_token_since_the_row_before(trainings, monkeypatch):
    seen: list[tuple[float, int]] = []
    original = Trainer.update

    def update(self, batches, *rest):
        losses = original(self, batches, *rest)
        tokens = self.pairs.tgt.lengths[np.concatenate(batches)].sum()
        seen.append((losses.translation.item(), int(tokens)))
        return losses

    monkeypatch.setattr(Trainer, "update", update)
    trainings.run("run", log_every=4)
    expected = {
        step: sum(loss for loss, _ in part) / sum(count for _, count in part)
        for step, part in ((4, seen[:4]), (6, seen[4:]))
    }
    assert dict(trainings.rows("run", "loss")) == pytest.approx(expected, rel=1e-6)


def test_a_run_counts_every_token_of_every_epoch_and_what_it_cost(trainings):
    model, pairs = trainings.config.model, trainings.data.pairs("train")
    settings = {"batch_tokens": 10_000, "device_batch_tokens": 10_000, "batches_per_update": 1}
    trainings.run("run", **settings, max_steps=3)
    # One batch holds the corpus, so three updates are three epochs.
    assert dict(trainings.rows("run", "tokens"))[3] == 3 * pairs.tgt.lengths.sum()
    size = len(trainings.data.tokenizers().tgt)
    cost = training_flops(model, size, pairs.src.lengths, pairs.tgt.lengths)
    assert dict(trainings.rows("run", "flops"))[3] == pytest.approx(3 * cost)


def test_a_rate_that_is_too_high_is_reported_before_any_update(trainings, caplog, monkeypatch):
    before_update(monkeypatch, 1, kill)
    with pytest.raises(KeyboardInterrupt):
        trainings.run("high")
    assert "the learning rate will rise to 1.2e-01 at update 4, 32 times" in caplog.text
