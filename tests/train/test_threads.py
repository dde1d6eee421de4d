"""Several micro-batches at a time, on the threads of a CPU."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
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
from mtkit.errors import MtkitError
from mtkit.model import Transformer
from mtkit.train import assembly as train
from mtkit.train.gradients import Gradients
from mtkit.train.micro_batches import groups_of_threads, padded_tokens
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


def test_after_an_error_the_threads_are_ready_for_the_next_update():
    weight = nn.Parameter(torch.tensor(1.0))
    threads = GradientThreads([weight], count=2)

    def fails() -> tuple[Tensor, None]:
        raise MemoryError("no memory")

    with pytest.raises(MemoryError, match="no memory"):
        threads.differentiate([lambda: (2 * weight, None), fails, lambda: (3 * weight, None)])
    threads.differentiate([lambda: (2 * weight, None), lambda: (3 * weight, None)])
    assert weight.grad is not None
    assert weight.grad.item() == 5.0


def test_an_error_ends_all_threads_after_their_task():
    weight = nn.Parameter(torch.tensor(1.0))
    threads = GradientThreads([weight], count=2)
    failed = threading.Event()
    done = []

    def fails() -> tuple[Tensor, None]:
        failed.set()
        raise ValueError("a bad batch")

    def waits() -> tuple[Tensor, None]:
        failed.wait()
        # The other thread has raised its error when it has no task any more.
        while not threads._pool._work_queue.empty():
            pass
        done.append(1)
        return 2 * weight, None

    # The first thread would have 50 tasks, the second one fails at its first.
    tasks = [waits, fails] * 50
    with pytest.raises(ValueError, match="a bad batch"):
        threads.differentiate(tasks)
    assert len(done) < 50


def test_ctrl_c_waits_for_no_task_that_has_not_begun():
    weight = nn.Parameter(torch.tensor(1.0))
    threads = GradientThreads([weight], count=2)
    done = []

    def task() -> tuple[Tensor, None]:
        if not done:
            os.kill(os.getpid(), signal.SIGINT)
        done.append(1)
        return 2 * weight, None

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            threads.differentiate([task] * 200_000)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(done) < 200_000
    # No thread is at work any more.
    count = len(done)
    threads.differentiate([lambda: (2 * weight, None)])
    assert len(done) == count


def test_the_memory_of_a_failed_task_is_free_when_its_error_is_handled():
    weight = nn.Parameter(torch.tensor(1.0))
    threads = GradientThreads([weight], count=2)
    held: list[weakref.ref[Tensor]] = []

    def fails() -> tuple[Tensor, None]:
        activations = torch.ones(10)
        held.append(weakref.ref(activations))
        raise MemoryError

    gc.disable()
    try:
        with pytest.raises(MemoryError) as caught:
            threads.differentiate([fails, lambda: (2 * weight, None)])
        del caught
        assert held[0]() is None
    finally:
        gc.enable()


def test_an_error_of_pytorch_about_memory_becomes_a_memory_error():
    weight = nn.Parameter(torch.tensor(1.0))
    threads = GradientThreads([weight], count=2)

    def fails() -> tuple[Tensor, None]:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    with pytest.raises(MemoryError, match="DefaultCPUAllocator"):
        threads.differentiate([fails])


@pytest.mark.parametrize(
    ("threads", "number", "at_most", "groups"),
    [
        (2, 4, 8, 2),
        # Three do not fit, but two do.
        (6, 6, 2, 2),
        (2, 4, 1, 1),
        # With 4 groups 2 of 6 threads would be idle, and with 6 groups 2 of 6.
        (6, 4, 8, 2),
        # Three rounds of two, in which one of six places is empty.
        (2, 5, 8, 1),
        # 26 rounds of two, in which one of 52 places is empty.
        (2, 51, 8, 2),
        # 8 groups would leave 4 of 12 threads idle; 6 groups need two rounds, with 4 places empty.
        (12, 8, 8, 4),
        (16, 8, 8, 8),
        (1, 8, 8, 1),
        (8, 1, 8, 1),
    ],
)
def test_groups_of_threads_leave_few_threads_idle(
    threads: int, number: int, at_most: int, groups: int
):
    assert groups_of_threads(threads, number, at_most=at_most) == groups


def test_a_micro_batch_that_fits_only_alone_is_reported_with_the_setting(
    config: Config, tiny_data: PreparedData, monkeypatch: pytest.MonkeyPatch
):
    trainer = Trainer(config, tiny_data, device=CPU)

    def out_of_memory(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Gradients, "add_up", out_of_memory)
    indices, _ = trainer.micro_batches.largest(trainer.batches)
    tokens = padded_tokens(trainer.pairs, indices)
    with pytest.raises(MtkitError) as caught:
        trainer.check_memory()
    assert str(caught.value) == (
        f"2 micro-batches of {tokens} tokens at the same time do not fit in memory, one does; "
        f"give --set train.device_batch_tokens={tokens}"
    )
    alone = changed(config, "train", device_batch_tokens=tokens)
    assert Trainer(alone, tiny_data, device=CPU).micro_batches.at_once == 1


def test_the_forecast_computes_as_many_micro_batches_at_once_as_the_training(
    config: Config, tiny_data: PreparedData, monkeypatch: pytest.MonkeyPatch
):
    original = GradientThreads.differentiate
    numbers = []

    def count(self: GradientThreads, tasks: Any) -> Any:
        numbers.append(len(tasks))
        return original(self, tasks)

    monkeypatch.setattr(GradientThreads, "differentiate", count)
    text = train.forecast(config, tiny_data, device="cpu")
    assert "4 micro-batches, 2 at a time" in text
    # The check of the memory, with two for each thread, and three updates.
    assert numbers == [4, 2, 2, 2]
    numbers.clear()
    # Several workers compute theirs one after the other.
    assert "at a time" not in train.forecast(config, tiny_data, device="cpu", world_size=2)
    assert numbers == []


@pytest.mark.usefixtures("in_float64")
def test_two_threads_give_the_gradient_and_the_dropout_of_one(
    config: Config, tiny_data: PreparedData
):
    batches = [np.arange(0, 9), np.arange(9, 13), np.arange(13, 30), np.arange(30, 32)]
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        trainer = Trainer(config, tiny_data, device=CPU)
        assert trainer.micro_batches.at_once == threads
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
    config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level("INFO")
    for folder, stops in (("whole", [5]), ("parts", [2, 5])):
        for stop in stops:
            torch.manual_seed(stop)  # another process has another random state
            part = changed(config, "train", max_steps=stop)
            assert train.run(part, tiny_data, tmp_path / folder, device="cpu")
    assert_same_state(tmp_path / "whole", tmp_path / "parts")
    assert "2 micro-batches at a time" in caplog.text


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
    assert trainer.micro_batches.at_once == 1
