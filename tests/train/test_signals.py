"""Signals that ask a training to stop."""

import io
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from support.training import assert_same_state, before_update

from mtkit.run_folder import CONFIDENCE, Run
from mtkit.train.distributed import StopAgreement, Workers
from mtkit.train.launcher import stop_on_signal


class Interrupted(io.RawIOBase):
    """A file in whose first writing this process gets SIGINT."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        is_first = not self.written
        self.written += bytes(data)
        if is_first:
            os.kill(os.getpid(), signal.SIGINT)
        return len(data)


class Notes(logging.Handler):
    """Notes that are written at once, as on standard error."""

    def __init__(self, file: Interrupted) -> None:
        super().__init__()
        self._stream = io.BufferedWriter(file)

    def emit(self, record: logging.LogRecord) -> None:
        self._stream.write(record.getMessage().encode())
        self._stream.flush()


@pytest.fixture
def file() -> Iterator[Interrupted]:
    """What the notes of the package are written to."""
    package, file = logging.getLogger("mtkit"), Interrupted()
    handler = Notes(file)
    before = package.level
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    yield file
    package.setLevel(before)
    package.removeHandler(handler)


def test_a_signal_while_a_note_is_written_asks_the_training_to_stop(file: Interrupted):
    with stop_on_signal(quiet=False) as signals:
        logging.getLogger("mtkit.train").info("a note")
        assert signals == [signal.SIGINT]
        # The second one ends the program, as it always does.
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert file.written == b"a note"


def test_a_signal_that_comes_while_its_handler_is_installed_asks_the_training_to_stop(monkeypatch):
    before, install = signal.getsignal(signal.SIGINT), signal.signal

    def install_and_interrupt(number, handler):
        monkeypatch.setattr(signal, "signal", install)
        previous = install(number, handler)
        signal.raise_signal(signal.SIGINT)
        return previous

    monkeypatch.setattr(signal, "signal", install_and_interrupt)
    with stop_on_signal(quiet=True) as signals:
        assert signals == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) == before


def trained(
    seconds: Callable[[int], float], *, signal_in: int = 10**9, every: int = 10**9, steps: int = 500
) -> tuple[int, list[int]]:
    """Three workers whose updates take so many seconds; the second one gets a signal in an update.

    Returns:
        The last update, and those after which the workers communicated.
    """
    barrier, sent, agreed = threading.Barrier(3), [torch.zeros(())] * 3, []

    def last_update(rank):
        workers, now, step = Workers(rank, 3), 0.0, 0

        def exchange(mine):
            if rank == 0:
                agreed.append(step)
            sent[rank] = mine
            # This fails if one of them does not come.
            barrier.wait(600)
            total = sent[0] + sent[1] + sent[2]
            barrier.wait(600)
            return total

        workers.sum = exchange  # type: ignore[method-assign]
        agreement = StopAgreement(workers, [every, 10**9], clock=lambda: now)
        for step in range(1, steps + 1):
            # The clocks of the others are of no account.
            now += seconds(step) / 9**rank
            if agreement.reached(step, rank == 1 and step >= signal_in):
                break
        return step

    with ThreadPoolExecutor(3) as threads:
        (last,) = set(threads.map(last_update, range(3)))
    return last, agreed


@pytest.mark.parametrize("slower", [1.0, 2.0])
@pytest.mark.parametrize("seconds", [0.003, 0.01, 0.3, 0.7, 5.0])
def test_several_workers_stop_within_two_seconds_though_only_one_gets_a_signal(seconds, slower):
    # The worst moment is right after they have agreed, and updates become twice as slow then.
    signal_in = trained(lambda _: seconds, steps=1000)[1][-1] + 1
    last, _ = trained(
        lambda step: seconds * (slower if step >= signal_in else 1.0),
        signal_in=signal_in,
        steps=10_000,
    )
    # The update in which it came ends in any case.
    assert (last - signal_in) * seconds * slower <= 2.0


def test_workers_agree_once_a_second_and_at_every_update_if_these_are_slow():
    # 200 seconds in all; at first after 1, 2, 4 … updates.
    last, agreed = trained(lambda _: 0.02, steps=10_000)
    assert last == 10_000
    assert agreed[:5] == [1, 3, 7, 15, 31]
    assert len(agreed) == pytest.approx(200, rel=0.05)
    assert trained(lambda _: 1.5, steps=20)[1] == [*range(1, 21)]


def test_workers_agree_before_and_after_what_takes_long():
    # A signal before the validation of update 100 must not wait for its end.
    assert trained(lambda _: 0.001, every=100, signal_in=99)[0] == 99
    assert trained(lambda _: 0.001, every=100, signal_in=100)[0] == 100
    _, agreed = trained(lambda _: 0.001, every=100)
    assert {99, 100, 199, 200, 299, 300} <= {*agreed}


@pytest.mark.parametrize(
    ("step", "number"),
    [(4, signal.SIGINT), (None, signal.SIGINT), (None, signal.SIGTERM)],
    ids=["in the last update", "while they are fitted", "SIGTERM while they are fitted"],
)
def test_a_signal_at_the_end_leaves_a_whole_run(step, number, trainings, monkeypatch, caplog):
    begun = []

    def interrupt():
        os.kill(os.getpid(), number)

    def fit_run(*_, **__):
        begun.append(True)
        interrupt()
        pytest.fail("the signal was not heeded")

    monkeypatch.setattr("mtkit.train.assembly.fit_run", fit_run)
    if step is not None:
        before_update(monkeypatch, step, interrupt)
    assert trainings.run("stopped", max_steps=4)
    assert begun == ([] if step else [True])
    path = trainings.folder / "stopped"
    assert (
        "confidence: not fitted, because of an interrupt; the run is complete; to fit it: "
        f"mtkit check --run {path} --fit"
    ) in caplog.messages
    assert not (path / CONFIDENCE).exists()
    assert Run.open(path).checkpoints()[-1].step == 4
    monkeypatch.undo()
    assert trainings.run("whole", max_steps=4)
    assert_same_state(path, trainings.folder / "whole")
