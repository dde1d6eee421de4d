"""Several processes: the order is kept, nothing runs ahead, and however it ends nobody is left."""

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
from support.program import printed, python
from support.work import breaks_at_five, dies_at_five, refuses_five, sleeps, squared

from mtkit.base import processes
from mtkit.base.errors import MtkitError
from mtkit.base.processes import Worker, ordered_map


def counted(taken: list[int], limit: int = 1000) -> Iterator[int]:
    for number in range(limit):
        taken.append(number)
        yield number


@pytest.fixture(autouse=True)
def _nobody_is_left() -> Iterator[None]:
    yield
    assert active_children() == []


@pytest.mark.parametrize(
    ("workers", "count", "started"), [(3, 100, 3), (1, 50, 0), (4, 2, 0), (4, 1, 0), (4, 0, 0)]
)
def test_results_come_in_order_and_few_items_or_one_worker_need_no_process(workers, count, started):
    results = list(ordered_map(squared, range(count), workers=workers))
    expected = [(number, number * number) for number in range(count)]
    assert [(number, square) for number, (square, _) in results] == expected
    processes_used = {process for _, (_, process) in results}
    assert len(processes_used - {os.getpid()}) == started
    assert not started or os.getpid() not in processes_used


def test_no_more_processes_are_started_than_can_be_of_use(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processes, "available_cores", lambda: 1)
    results = list(ordered_map(squared, range(40), workers=1000))
    assert len({process for _, (_, process) in results}) == 8


@pytest.mark.parametrize(("workers", "ahead"), [(1, 3), (2, 4)])
def test_no_more_items_are_taken_than_are_worked_on(workers: int, ahead: int):
    taken: list[int] = []
    for done, _ in enumerate(ordered_map(squared, counted(taken, 60), workers=workers)):
        # So many have been received, and two of each worker may be under way; without another
        # process, three are asked for to see whether it is worth one.
        assert len(taken) <= max(done + ahead, 3)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_a_user_arrives_as_itself(workers: int):
    results = ordered_map(refuses_five, range(100), workers=workers)
    assert [next(results) for _ in range(5)] == [(number, number) for number in range(5)]
    with pytest.raises(MtkitError, match="five: is refused; take six") as caught:
        next(results)
    assert caught.value.status == 7
    assert active_children() == []


def test_another_exception_arrives_with_its_text_and_place():
    with pytest.raises(RuntimeError, match="UnsendableError: 1 and 2") as caught:
        list(ordered_map(breaks_at_five, range(100), workers=2))
    assert "in breaks_at_five" in str(caught.value)


# Only a crash is a fault of mtkit; when memory runs out, the system kills a process.
@pytest.mark.parametrize(
    ("how", "says", "status"),
    [
        ("SIGKILL", "killed by SIGKILL", 1),
        ("SIGSEGV", "killed by SIGSEGV", 70),
        ("SIGABRT", "killed by SIGABRT", 70),
        ("left", "status 3", 70),
    ],
)
def test_a_worker_that_ends_is_reported_in_one_line(how: str, says: str, status: int):
    dies = functools.partial(dies_at_five, how=how)
    with pytest.raises(MtkitError) as caught:
        list(ordered_map(dies, range(100), workers=2))
    assert says in str(caught.value)
    assert caught.value.status == status
    assert "--workers" in str(caught.value)


def test_a_lost_worker_is_reported_also_when_it_is_sent_an_item():
    worker: Worker[int, int] = Worker(sleeps)
    os.kill(worker._process.pid or 0, signal.SIGKILL)
    worker._process.join()
    with pytest.raises(MtkitError, match="killed by SIGKILL"):
        worker.send(0)
    worker.end()


def test_who_has_enough_ends_all_processes_busy_as_they_are():
    results = ordered_map(sleeps, [0, *range(1, 100)], workers=2)
    assert next(results) == (0, 0)
    assert len(active_children()) == 2
    results.close()  # type: ignore[attr-defined]
    assert active_children() == []


def test_an_error_among_the_items_ends_all_processes():
    def items() -> Iterator[int]:
        yield from range(20)
        raise MtkitError("line 21: is bad")

    with pytest.raises(MtkitError, match="line 21"):
        list(ordered_map(squared, items(), workers=2))
    assert active_children() == []


def test_items_may_be_larger_than_what_a_pipe_holds():
    items = [bytes([number]) * 1_000_000 for number in range(8)]
    assert list(ordered_map(bytes, items, workers=2)) == [(item, item) for item in items]


def test_cores_are_those_this_process_may_use():
    program = (
        "import os; from mtkit.base.launched import available_cores\n"
        "allowed = os.sched_getaffinity(0)\n"
        "assert available_cores() == len(allowed)\n"
        "os.sched_setaffinity(0, [min(allowed)])\n"
        "assert available_cores() == 1\n"
    )
    printed("-c", program)


def run_script(folder: Path, text: str, **values: Any) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(text.format(**values))
    return python(script)


STOPPED = """
from support.work import sleeps
from mtkit.base.processes import ordered_map
if __name__ == "__main__":
    for number in ordered_map(sleeps, range(100), workers=2):
        from multiprocessing import active_children
        print(*(child.pid for child in active_children()), flush=True)
"""


def test_sigterm_to_a_group_of_processes_is_handled_by_the_parent():
    worker = Worker(squared)
    pid = worker._process.pid or 0
    os.kill(pid, signal.SIGTERM)
    worker.send(3)
    assert worker.receive() == (9, pid)
    worker.end()


UNGUARDED = """
from support.work import squared
from mtkit.base.processes import Worker, ordered_map
{work}
"""


@pytest.mark.parametrize(
    "work",
    [
        "print(list(ordered_map(squared, range(100), workers=2)))",
        "print(list(ordered_map(squared, [bytes(10**6)] * 9, workers=2)))",
        "worker = Worker(squared)\nworker.send(1)\nprint(worker.receive())",
    ],
)
def test_a_script_that_starts_workers_at_import_gets_advice(work: str, tmp_path: Path):
    done = run_script(tmp_path, UNGUARDED, work=work)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("Traceback") == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "mtkit.base.errors.MtkitError: this script starts workers when it is imported"
    )
    assert last.endswith('put its code under `if __name__ == "__main__":`')


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_however_the_parent_ends_its_workers_do_and_print_nothing(how, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(STOPPED)
    parent: Any = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert len(workers) == 2
    if how == signal.SIGINT:
        # As a terminal does, to all of them.
        os.killpg(parent.pid, how)
    else:
        parent.send_signal(how)
    _, errors = parent.communicate(timeout=600)
    assert parent.returncode == -how
    if how == signal.SIGINT:
        assert errors.count("Traceback") == 1
        assert errors.rstrip().endswith("KeyboardInterrupt")
    deadline = time.monotonic() + 600
    while any(is_running(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


INTERRUPTED_AT_A_START = """
import multiprocessing, multiprocessing.util, os, signal, threading, time
from mtkit.base.processes import Worker
from support.work import squared
spawn = multiprocessing.util.spawnv_passfds
def spawn_and_interrupt(*arguments):
    process = spawn(*arguments)
    os.kill(os.getpid(), {number})
    time.sleep(0.2)
    return process
if __name__ == "__main__":
    # A second thread: the signal reaches the process although its first thread blocks it.
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    signal.signal({number}, signal.default_int_handler)
    Worker(squared).end()  # starts what all workers share
    multiprocessing.util.spawnv_passfds = spawn_and_interrupt
    try:
        Worker(squared)
    except KeyboardInterrupt:
        print("interrupted", multiprocessing.active_children())
    time.sleep(0.5)
"""


@pytest.mark.parametrize("number", [int(signal.SIGINT), int(signal.SIGTERM)])
def test_an_interrupt_waits_until_a_worker_has_started(number: int, tmp_path: Path):
    done = run_script(tmp_path, INTERRUPTED_AT_A_START, number=number)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted []\n", "")


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # Ended, and nobody has asked how: that is for who took it over.
    status = Path(f"/proc/{process}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")
