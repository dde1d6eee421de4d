"""Workers of the command line: started once, started again, and stopped."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import changed
from support.team import THREE_BATCHES, Team, assert_equal_weights
from support.training import Trainings, wait_for
from torch.distributed.elastic import multiprocessing

from mtkit.config import Config, dump_config
from mtkit.train import launcher


@pytest.fixture
def config(config: Config) -> Config:
    return changed(config, "train", **THREE_BATCHES)


def workers_of(process: subprocess.Popen[bytes]) -> list[int]:
    """Process ids of the workers, in the order of their start."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return sorted(map(int, children.read_text().split())) if children.exists() else []


def started_anew(process: subprocess.Popen[bytes], before: set[int]) -> bool:
    now = set(workers_of(process))
    return len(now) == len(before) and not now & before


needs_proc = pytest.mark.skipif(
    not Path(f"/proc/self/task/{os.getpid()}/children").exists(),
    reason="finds workers by /proc/PID/task/PID/children",
)


def test_the_command_starts_workers_and_prints_once(trainings: Trainings):
    process = trainings.start("run", "--workers", "2")
    out, err = ended(process)
    assert process.returncode == 0, err.decode()
    assert out == b""
    text = err.decode()
    assert "2 workers" in text
    assert text.count("step 6 of 6") == 1
    Team(trainings, "same").train(2)
    assert trainings.rows("run", "loss") == trainings.rows("same", "loss")


@pytest.mark.slow
def test_an_error_on_all_workers_is_reported_once(trainings: Trainings):
    trainings.change("train", learning_rate_scale=1e30)
    process = trainings.start("run", "--workers", "2", "--max-restarts", "3")
    _, err = ended(process)
    assert process.returncode == 1
    # Reported once, and not tried again: the same would happen.
    assert err.decode().count("mtkit: error:") == 1
    assert "the loss is" in err.decode()
    assert "restarting" not in err.decode()


def ended(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """What a process has said when it has ended; one that does not end is not left over."""
    try:
        return process.communicate(timeout=600)
    finally:
        process.kill()


def endless_run(trainings: Trainings) -> subprocess.Popen[bytes]:
    """Two workers who have made some steps, saved none, and would go on for ever."""
    never = {"checkpoint_every": 100_000, "valid_every": 100_000}
    trainings.change("train", max_steps=100_000, **never)
    process = trainings.start("run", "--workers", "2")
    metrics = trainings.folder / "run" / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 3, process)
    return process


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize(
    ("number", "ignored"),
    [(signal.SIGINT, False), (signal.SIGHUP, False), (signal.SIGHUP, True)],
    ids=["ctrl-c", "terminal gone", "terminal gone under nohup"],
)
def test_a_signal_that_is_not_ignored_has_all_workers_save_and_stop(number, ignored, trainings):
    # What nohup does.
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN) if ignored else None
    try:
        process = endless_run(trainings)
    finally:
        if ignored:
            signal.signal(signal.SIGHUP, before)
    process.send_signal(number)
    if ignored:
        steps = len(trainings.rows("run", "loss"))
        wait_for(lambda: len(trainings.rows("run", "loss")) > steps + 20, process)
        process.send_signal(signal.SIGTERM)
    _, err = ended(process)
    assert process.returncode == 130, err.decode()
    assert "Traceback" not in err.decode()
    last = len(trainings.rows("run", "loss"))
    assert trainings.steps("run")[-1] == last
    # The first worker says it, and ends after that.
    assert f"saved step {last} in " in err.decode()
    assert "trained on " in err.decode()


@pytest.mark.slow
def test_what_torchrun_starts_says_once_what_it_found_and_starts_nothing(trainings, tmp_path):
    shutil.copytree(trainings.data.path, tmp_path / "data" / "tiny")
    trainings.change("train", max_steps=2)
    file = tmp_path / "config.yaml"
    file.write_text(dump_config(trainings.config), encoding="utf-8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*torchrun, "-m", "--", "mtkit", "train", "--config", file, "--run=run", "--device=cpu"],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        timeout=600,
        check=False,
    )
    err = done.stderr.decode()
    assert done.returncode == 0, err
    assert err.count("mtkit: data: data/tiny") == 1
    assert err.count("2 workers") == 1
    assert len(trainings.rows("run", "loss")) == 2


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize(("workers", "kills"), [(1, 2), (2, 1)])
def test_a_killed_worker_is_restarted_and_the_run_ends_as_without_a_kill(workers, kills, trainings):
    trainings.change("train", max_steps=40, checkpoint_every=5, valid_every=40)
    Team(trainings, "whole").train(workers)
    options = ["--workers", str(workers), "--max-restarts", str(kills)]
    process = trainings.start("killed", *options)
    for saved in (5, 20)[:kills]:
        place = trainings.folder / f"killed/checkpoints/step-{saved:08d}"
        wait_for(place.exists, process)
        before = set(workers_of(process))
        os.kill(max(before), signal.SIGKILL)
        wait_for(partial(started_anew, process, before), process)
    _, err = ended(process)
    assert process.returncode == 0, err.decode()
    again = f"restarting from the last checkpoint ({kills} of {kills})"
    assert f"was killed by SIGKILL; {again}" in err.decode()
    assert_equal_weights(trainings, "whole", "killed")
    assert trainings.rows("whole", "loss") == trainings.rows("killed", "loss")


@pytest.mark.slow
@needs_proc
def test_workers_stop_when_their_parent_is_killed(trainings: Trainings):
    process = endless_run(trainings)
    assert len(workers_of(process)) == 2
    process.kill()
    # The workers hold its pipes until they end.
    ended(process)
    assert trainings.steps("run")


# A worker that breaks down at its first start, without PyTorch.
BREAKS_ONCE = """
import os, sys
sys.exit(70 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else 0)
"""


def test_workers_that_break_down_are_started_again_as_often_as_asked(caplog):
    assert launcher.launch(["-c", BREAKS_ONCE], 2, max_restarts=1) == 0
    (line,) = caplog.messages
    assert "failed; restarting from the last checkpoint (1 of 1)" in line
    assert launcher.launch(["-c", BREAKS_ONCE], 2) == 70


# Two workers end so: with a status, or by a signal. 70 is a fault of mtkit, 74 a wait in vain, and
# 75 the end of another worker.
@pytest.mark.parametrize(
    ("how", "status"),
    [
        *((status, status) for status in (1, 2, 70, 130)),
        *((-number, 70) for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL)),
        *((-number, 70) for number in (signal.SIGFPE, signal.SIGABRT)),
        *((3, 70), (74, 1), (75, 1), (-signal.SIGKILL, 1), (-signal.SIGXCPU, 1)),
    ],
)
def test_the_launcher_ends_with_70_after_a_fault_of_a_worker(how: int, status: int):
    end = f"os.kill(os.getpid(), {-how})" if how < 0 else f"os._exit({how})"
    assert launcher.launch(["-c", f"import os; {end}"], 2) == status


# A worker that says that it is ready, and ends as training does when it is interrupted.
ENDS_WHEN_ASKED = """
import os, pathlib, signal, sys
def end(*_):
    sys.exit(130)
signal.signal(signal.SIGINT, end)
pathlib.Path(sys.argv[1], os.environ["RANK"]).touch()
signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_ends_the_launcher_is_passed_on_to_all_workers(number, tmp_path):
    def ask() -> None:
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    asking = threading.Thread(target=ask)
    asking.start()
    status = launcher.launch(["-c", ENDS_WHEN_ASKED, str(tmp_path)], 2)
    asking.join()
    assert status == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_while_workers_are_started_ends_them_all(number, tmp_path, monkeypatch):
    start = multiprocessing.start_processes

    def interrupted(*args: Any, **options: Any) -> Any:
        os.kill(os.getpid(), number)
        return start(*args, **options)

    monkeypatch.setattr(multiprocessing, "start_processes", interrupted)
    assert launcher.launch(["-c", ENDS_WHEN_ASKED, str(tmp_path)], 2) == 130
