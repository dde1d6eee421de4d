"""Several passes at a time, on the threads of a CPU."""

import gc
import itertools
import re
import signal
import threading
import weakref
from collections.abc import Iterator
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from conftest import CPU, changed
from support.training import assert_same, gradients_of, update_of
from torch import Tensor, nn

from mtkit.base.errors import MtkitError
from mtkit.batches import TokenBatches
from mtkit.config import Config
from mtkit.data import SentencePairs, TokenArray
from mtkit.train import dry_run
from mtkit.train.gradients import Gradients
from mtkit.train.micro_batches import MicroBatches, padded_tokens
from mtkit.train.threads import GradientThreads
from mtkit.train.trainer import Trainer


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def weight() -> nn.Parameter:
    return nn.Parameter(torch.tensor(1.0))


@pytest.fixture
def threads(weight: nn.Parameter) -> GradientThreads:
    """Two threads that differentiate by this weight."""
    return GradientThreads([weight], count=2)


@pytest.fixture
def config(config: Config) -> Config:
    """Four micro-batches in an update, of which more than two fit on a device."""
    settings = {"batches_per_update": 4, "device_batch_tokens": 4096, "gpu_path": "plain"}
    config = changed(config, "train", **settings)
    return changed(config, "model", dropout=0.3)


def test_the_gradient_is_that_of_the_sum_of_all_losses():
    weight, other = nn.Parameter(torch.tensor([1.0, 2.0])), nn.Parameter(torch.tensor(3.0))
    unused = nn.Parameter(torch.tensor(0.0))

    def times(number):
        return number * other * weight.sum(), f"loss {number}"

    threads = GradientThreads([weight, other, unused], count=2)
    results = threads.differentiate([lambda n=n: times(n) for n in range(1, 6)])
    assert results == ["loss 1", "loss 2", "loss 3", "loss 4", "loss 5"]
    # 1 + 2 + 3 + 4 + 5 = 15, times 3, and times 1 + 2.
    assert weight.grad.tolist() == [45.0, 45.0]
    assert other.grad.item() == 45.0
    assert unused.grad is None


def test_the_threads_of_pytorch_are_divided_and_the_caller_keeps_its_own():
    weight = nn.Parameter(torch.tensor(1.0))

    def task():
        # The first operation in a thread could set the number anew.
        loss = weight * torch.ones(100, 100).mm(torch.ones(100, 100)).sum()
        return loss, torch.get_num_threads()

    torch.set_num_threads(4)
    assert GradientThreads([weight], count=2).differentiate([task, task, task]) == [2, 2, 2]
    assert torch.get_num_threads() == 4


def test_after_an_error_the_threads_are_ready_for_the_next_update(weight, threads):
    def fails():
        raise MemoryError("no memory")

    with pytest.raises(MemoryError, match="no memory"):
        threads.differentiate([lambda: (2 * weight, None), fails, lambda: (3 * weight, None)])
    threads.differentiate([lambda: (2 * weight, None), lambda: (3 * weight, None)])
    assert weight.grad.item() == 5.0


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> list[threading.Event]:
    """The events that tell the threads to stop, one for each call of `differentiate`."""
    made: list[threading.Event] = []

    def event():
        made.append(threading.Event())
        return made[-1]

    monkeypatch.setattr("mtkit.train.threads.Event", event)
    return made


def test_an_error_ends_all_threads_after_their_task(weight, threads, stops):
    has_begun = threading.Event()
    done = []

    def fails():
        assert has_begun.wait(timeout=600)
        raise ValueError("a bad batch")

    def waits():
        has_begun.set()
        assert stops[0].wait(timeout=600)
        done.append(1)
        return 2 * weight, None

    # The first thread has three tasks. The second one fails at its first.
    with pytest.raises(ValueError, match="a bad batch"):
        threads.differentiate([waits, fails] * 3)
    assert len(done) == 1


def test_after_ctrl_c_no_task_is_begun_and_no_thread_is_at_work(weight, threads, stops):
    other_begins = threading.Event()
    begun, done, handled = [], [], []

    def task():
        begun.append(1)
        other_begins.set()
        assert stops[0].wait(timeout=600)
        done.append(1)
        return 2 * weight, None

    def is_stopped_by_signal():
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return stops[0].wait(timeout=0.1)

    def interrupts():
        assert other_begins.wait(timeout=600)
        # A signal that comes just before Python begins to wait does not end that wait: Python
        # handles it together with the next one.
        assert any(is_stopped_by_signal() for _ in range(1000))
        return 2 * weight, None

    def stop(*_):
        handled.append(1)
        if len(handled) == 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            threads.differentiate([interrupts, *[task] * 5])
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(begun) == len(done) == 1


def test_threads_that_cannot_be_started_are_one_line(config, tiny_data, monkeypatch):
    trainer = Trainer(config, tiny_data, device=CPU)
    start = Mock(side_effect=RuntimeError("can't start new thread"))
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(MtkitError, match=r"^2 threads .* cannot be started .*OMP_NUM_THREADS=1$"):
        trainer.check_memory()


def test_the_memory_of_a_failed_task_is_free_when_its_error_is_handled(weight, threads):
    held: list[weakref.ref[Tensor]] = []

    def fails():
        activations = torch.ones(10)
        held.append(weakref.ref(activations))
        raise MemoryError

    gc.disable()
    try:
        with pytest.raises(MemoryError) as caught:
            threads.differentiate([fails, lambda: (2 * weight, None)])
        del caught
        # Python's pool holds an error for a moment longer: until both threads have other work.
        meeting = threading.Barrier(2)

        def meets():
            meeting.wait(timeout=600)
            return 2 * weight, None

        threads.differentiate([meets, meets])
        assert held[0]() is None
    finally:
        gc.enable()


def test_an_error_of_pytorch_about_memory_becomes_a_memory_error(threads: GradientThreads):
    error = RuntimeError("DefaultCPUAllocator: can't allocate memory")
    with pytest.raises(MemoryError, match="DefaultCPUAllocator"):
        threads.differentiate([Mock(side_effect=error)])


@pytest.mark.parametrize("bpe_dropout", [0.0, 0.1])
def test_a_micro_batch_that_fits_alone_is_reported(bpe_dropout, config, tiny_data, monkeypatch):
    config = changed(config, "train", bpe_dropout=bpe_dropout)
    trainer = Trainer(config, tiny_data, device=CPU)

    monkeypatch.setattr(Gradients, "add_up", Mock(side_effect=MemoryError))
    _, largest = trainer.micro_batches.largest(trainer.batches)
    told = (
        rf"2 passes of {padded_tokens(*largest)} tokens at the same time do not fit in "
        r"memory, one does; give --set train\.device_batch_tokens=(\d+)"
    )
    with pytest.raises(MtkitError, match=f"^{told}$") as caught:
        trainer.check_memory()
    advice = re.search(told, str(caught.value))
    alone = changed(config, "train", device_batch_tokens=int(advice[1]))
    advised = Trainer(alone, tiny_data, device=CPU).micro_batches
    assert advised.at_once == 1
    # No batch is cut because of the advice.
    assert advised.per_batch == trainer.micro_batches.per_batch


def test_a_forecast_has_as_many_micro_batches_at_once_as_training(config, tiny_data, monkeypatch):
    original = GradientThreads.differentiate
    numbers = []

    def count(self, tasks):
        numbers.append(len(tasks))
        return original(self, tasks)

    monkeypatch.setattr(GradientThreads, "differentiate", count)
    assert "4 micro-batches, 2 at a time" in dry_run.forecast(config, tiny_data, device="cpu")
    # The check of the memory has two for each thread; then come up to three updates.
    assert numbers[0] == 4
    assert numbers[1] == 2
    assert set(numbers[1:]) <= {2, 4}
    numbers.clear()
    # Several workers compute theirs one after the other.
    assert "at a time" not in dry_run.forecast(config, tiny_data, device="cpu", world_size=2)
    assert numbers == []


def test_at_the_same_time_are_only_as_many_as_the_limit_allows(config, tiny_data):
    # The micro-batch with the most tokens of both sides has fewer in its longer side than another.
    lengths = np.array([[9, 9], [9, 9], [20, 1], [20, 1]])
    sides = [TokenArray(np.full(side.sum(), 5), side) for side in lengths.T]
    pairs = SentencePairs(*sides)
    trainer = Trainer(config, tiny_data, device=CPU)
    for limit, at_once in ((40, 1), (79, 1), (80, 2)):
        batches = TokenBatches(pairs, budget=40, per_update=2, seed=1)
        limited = changed(config, "train", device_batch_tokens=limit)
        micro_batches = MicroBatches(limited, pairs, trainer.vocabularies, device_type="cpu")
        micro_batches.choose(batches, world_size=1)
        assert micro_batches.per_batch == 1
        assert micro_batches.most_tokens(batches) == 40
        assert micro_batches.at_once == at_once


@pytest.mark.usefixtures("in_float64")
def test_two_threads_give_the_gradient_and_the_dropout_of_one(config, tiny_data):
    batches = [np.arange(0, 9), np.arange(9, 13), np.arange(13, 30), np.arange(30, 32)]
    by_threads = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        trainer = Trainer(config, tiny_data, device=CPU)
        assert trainer.micro_batches.at_once == threads
        by_threads[threads] = gradients_of(trainer, batches)
    for name, gradient in by_threads[1].items():
        assert gradient.abs().max() > 0
        assert torch.allclose(by_threads[2][name], gradient, rtol=0, atol=1e-12), name


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("bpe_dropout", [0.0, 0.1])
def test_packed_passes_in_threads_have_the_gradient_of_plain_ones(bpe_dropout, config, tiny_data):
    config = changed(config, "model", dropout=0.0)
    config = changed(config, "train", bpe_dropout=bpe_dropout)
    plain = update_of(config, tiny_data)
    packed = update_of(changed(config, "train", gpu_path="auto"), tiny_data)
    assert (plain.passes, packed.passes) == (4, 2)
    assert_same(packed, plain)


@pytest.mark.parametrize("limit", [35, 80, 90, 131, 240, 4096])
def test_packed_passes_at_the_same_time_have_as_many_tokens_as_fit(limit, config, tiny_data):
    settings = {"gpu_path": "auto", "device_batch_tokens": limit}
    trainer = Trainer(changed(config, "train", **settings), tiny_data, device=CPU)
    at_once = trainer.micro_batches.at_once
    for batches in itertools.islice(trainer.batches, 20):
        passes = trainer.passes(batches, 1)
        most = max(sum(padded_tokens(*some) for some in own.micro_batches) for own in passes)
        assert len(passes) % at_once == 0
        assert at_once * most <= limit


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"gpu_path": "auto"},
        {"bpe_dropout": 0.1, "ema": 0.9, "freeze": ("embedding",), "optimizer": "muon"},
    ],
)
def test_stopped_and_resumed_is_never_stopped_to_the_last_bit(given, trainings, caplog):
    caplog.set_level("INFO")
    for name, stop in (("whole", 5), ("parts", 2), ("parts", 5)):
        torch.manual_seed(stop)  # another process has another random state
        assert trainings.run(name, max_steps=stop, **given)
    trainings.assert_same("whole", "parts")
    assert caplog.text.count("2 passes at a time") == 3


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
def test_micro_batches_are_computed_one_by_one(section, changes, config, tiny_data, monkeypatch):
    # Nothing is computed here.
    monkeypatch.setattr("mtkit.base.compiling.compile_layers", lambda _: None)
    trainer = Trainer(changed(config, section, **changes), tiny_data, device=CPU)
    assert trainer.micro_batches.at_once == 1
