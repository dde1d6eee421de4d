"""Several micro-batches at a time, on the threads of a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import changed
from torch import Tensor, nn
from training import assert_same_state, gradients_of

from mtkit.config import Config
from mtkit.data import PreparedData
from mtkit.model import Transformer
from mtkit.train import assembly as train
from mtkit.train.threads import GradientThreads
from mtkit.train.trainer import Trainer

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def config(training_config: Config) -> Config:
    """Four micro-batches in an update, of which more than two fit on a device."""
    config = changed(training_config, "train", batches_per_update=4, device_batch_tokens=4096)
    return changed(config, "model", dropout=0.3)


def test_the_gradient_is_that_of_the_sum_of_all_losses():
    weight, other = nn.Parameter(torch.tensor([1.0, 2.0])), nn.Parameter(torch.tensor(3.0))
    unused = nn.Parameter(torch.tensor(0.0))

    def times(number: int) -> tuple[Tensor, str]:
        return number * other * weight.sum(), f"loss {number}"

    threads = GradientThreads([weight, other, unused], count=2)
    results = threads.differentiate([lambda n=n: times(n) for n in range(1, 6)])
    assert results == ["loss 1", "loss 2", "loss 3", "loss 4", "loss 5"]
    # 1 + 2 + 3 + 4 + 5 = 15, times 3, and times 1 + 2.
    assert weight.grad is not None
    assert weight.grad.tolist() == [45.0, 45.0]
    assert other.grad is not None
    assert other.grad.item() == 45.0
    assert unused.grad is None


def test_the_threads_of_pytorch_are_divided_and_the_caller_keeps_its_own():
    weight = nn.Parameter(torch.tensor(1.0))

    def task() -> tuple[Tensor, int]:
        # The first operation in a thread could set the number anew.
        loss = weight * torch.ones(100, 100).mm(torch.ones(100, 100)).sum()
        return loss, torch.get_num_threads()

    torch.set_num_threads(4)
    threads = GradientThreads([weight], count=2)
    assert threads.differentiate([task, task, task]) == [2, 2, 2]
    assert torch.get_num_threads() == 4


def test_an_error_in_a_thread_is_raised_and_the_threads_go_on():
    weight = nn.Parameter(torch.tensor(1.0))
    threads = GradientThreads([weight], count=2)

    def fails() -> tuple[Tensor, None]:
        raise MemoryError("no memory")

    with pytest.raises(MemoryError, match="no memory"):
        threads.differentiate([lambda: (2 * weight, None), fails, lambda: (3 * weight, None)])
    threads.differentiate([lambda: (2 * weight, None), lambda: (3 * weight, None)])
    assert weight.grad is not None
    assert weight.grad.item() == 5.0


@pytest.mark.usefixtures("in_float64")
def test_two_threads_give_the_gradient_and_the_dropout_of_one(
    config: Config, tiny_data: PreparedData
):
    batches = [np.arange(0, 9), np.arange(9, 13), np.arange(13, 30), np.arange(30, 32)]
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        trainer = Trainer(config, tiny_data, device=CPU)
        assert (trainer._threads is not None) == (threads == 2)
        found.append(gradients_of(trainer, batches))
    one, two = found
    for name, gradient in one.items():
        assert gradient.abs().max() > 0
        assert torch.allclose(two[name], gradient, rtol=0, atol=1e-12), name


def test_the_same_training_gives_the_same_bytes(config: Config, tiny_data: PreparedData):
    found = []
    for _ in range(2):
        trainer = Trainer(config, tiny_data, device=CPU)
        batches = [np.arange(0, 9), np.arange(9, 13), np.arange(13, 30), np.arange(30, 32)]
        for _ in range(5):
            trainer.update(batches)
        found.append(trainer.model.state_dict())
    assert all(torch.equal(found[0][name], weight) for name, weight in found[1].items())


def test_stopped_and_resumed_is_never_stopped_to_the_last_bit(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    for folder, stops in (("whole", [5]), ("parts", [2, 5])):
        for stop in stops:
            torch.manual_seed(stop)  # another process has another random state
            part = changed(config, "train", max_steps=stop)
            assert train.run(part, tiny_data, tmp_path / folder, device="cpu")
    assert_same_state(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize(
    ("section", "changes"),
    [
        # It would hold one micro-batch at a time.
        ("train", {"device_batch_tokens": 80}),
        ("train", {"batches_per_update": 1}),
        # Its random numbers come from the generator that all threads share.
        ("model", {"attention_dropout": 0.1}),
        ("train", {"compile": True}),
    ],
)
def test_micro_batches_are_computed_one_after_the_other(
    section: str,
    changes: dict[str, Any],
    config: Config,
    tiny_data: PreparedData,
    monkeypatch: pytest.MonkeyPatch,
):
    # Nothing is computed here.
    monkeypatch.setattr(Transformer, "compile_layers", lambda _: None)
    trainer = Trainer(changed(config, section, **changes), tiny_data, device=CPU)
    assert trainer._threads is None
