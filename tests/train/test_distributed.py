"""Several workers: the same run as one, and an end with a reason when one of them fails."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import changed, slow
from support import worker
from support.forked import Forked

from mtkit.base.devices import choose_precision, float32_arithmetic, select_matmul_backend
from mtkit.config import Config, dump_config
from mtkit.data import PreparedData
from mtkit.run_folder import Run
from mtkit.train import launcher
from mtkit.train.distributed import Watch, Workers, what_happened
from mtkit.train.trainer import Trainer

CPU = torch.device("cpu")


@pytest.fixture
def config(tiny_config: Config) -> Config:
    """Dropout, three batches an update, a row and a checkpoint now and then."""
    return changed(
        tiny_config,
        "train",
        max_steps=6,
        batch_tokens=200,
        batches_per_update=3,
        log_every=1,
        valid_every=6,
        checkpoint_every=3,
    )


class Team:
    """Workers that train a configuration in a folder, started as `torchrun` starts them."""

    def __init__(self, config: Config, data: PreparedData, run: Path, **facts: Any) -> None:
        self.run = run
        run.parent.mkdir(exist_ok=True)
        self._config = run.parent / f"{run.name}.yaml"
        self._config.write_text(dump_config(config), encoding="utf-8")
        self._facts = run.parent / f"{run.name}.json"
        places = {"config": str(self._config), "data": str(data.path), "run": str(run)}
        self._facts.write_text(json.dumps(places | facts), encoding="utf-8")

    def start(
        self, count: int, *, ranks: Sequence[int] | None = None, port: int | None = None
    ) -> list[Forked]:
        """Start all of them, or some ranks only; they meet at a free port, or at a given one."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            meeting = {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port or free.getsockname()[1]),
            }
        together = {"WORLD_SIZE": str(count)} | meeting
        return [
            Forked(
                worker.train_as_described,
                self._facts,
                environment=(
                    together | {"RANK": str(r), "LOCAL_RANK": str(r)} if count > 1 else {}
                ),
                err=self.run.parent / f"{self.run.name}.{r}.err",
            )
            for r in (range(count) if ranks is None else ranks)
        ]

    def train(self, count: int) -> None:
        """Run to the end."""
        statuses, said = self.end(self.start(count))
        assert statuses == [0] * count, "\n".join(said)

    def end(self, team: list[Forked]) -> tuple[list[int | None], list[str]]:
        """What becomes of them by themselves: statuses, and what they say."""
        said = [process.communicate(timeout=120)[1].decode() for process in team]
        return [process.returncode for process in team], said

    def use_command_line(self, *options: str) -> None:
        """Have them be `mtkit train`, which handles errors, with these options."""
        facts = json.loads(self._facts.read_text(encoding="utf-8"))
        places = [f"--{name}={facts[name]}" for name in ("config", "data", "run")]
        facts["arguments"] = ["train", "--device=cpu", *places, *options]
        self._facts.write_text(json.dumps(facts), encoding="utf-8")

    def launch(self, count: int, *options: str, max_restarts: int = 0) -> int:
        """Have `launch` start them, from this process."""
        self.use_command_line(*options)
        command = [worker.__file__, str(self._facts)]
        return launcher.launch(command, count, max_restarts=max_restarts)


def losses(run: Path) -> list[float]:
    return [row["loss"] for row in Run.open(run).metrics() if "loss" in row]


def validation(run: Path) -> dict[str, float]:
    return [row for row in Run.open(run).metrics() if "valid_loss" in row][-1]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return Run.open(run).checkpoints()[-1].load_weights()


def assert_equal_weights(one: Path, other: Path, *, within: float = 0.0) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.allclose(tensor, second[name], rtol=0, atol=within), name


@pytest.mark.parametrize("sharded", [False, True])
def test_two_workers_train_what_one_trains(
    sharded: bool, config: Config, tiny_data: PreparedData, tmp_path: Path
):
    # The batches of an update are dealt out, so even dropout is the same; what is left are the
    # last digits of float64 sums. Three batches among two workers: each is cut in two.
    config = changed(config, "model", dropout=0.0)
    Team(config, tiny_data, tmp_path / "one", dtype="float64").train(1)
    config = changed(config, "train", fsdp=sharded)
    Team(config, tiny_data, tmp_path / "two", dtype="float64").train(2)
    assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "two"), rel=1e-9)
    # Adam divides by small numbers.
    assert_equal_weights(tmp_path / "one", tmp_path / "two", within=1e-6)
    assert validation(tmp_path / "one") == pytest.approx(validation(tmp_path / "two"), rel=1e-6)


@pytest.mark.parametrize(
    "part",
    [
        {"lora_rank": 4, "ema": 0.9, "optimizer": "muon"},
        slow({"lora_rank": 4}),
        slow({"freeze": ("embedding", "encoder"), "ema": 0.9, "optimizer": "muon"}),
    ],
)
def test_two_workers_fine_tune_as_one_does_and_resume_to_the_last_bit(
    part: dict[str, Any], config: Config, tiny_data: PreparedData, tiny_run: Run, tmp_path: Path
):
    rate = {"schedule": "constant", "learning_rate": 1e-3, "warmup_steps": 2}
    config = changed(changed(config, "model", dropout=0.0), "train", **rate, **part)
    facts = {"dtype": "float64", "init_from": str(tiny_run.path)}
    Team(config, tiny_data, tmp_path / "one", **facts).train(1)
    Team(config, tiny_data, tmp_path / "two", **facts).train(2)
    assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "two"), rel=1e-9)
    assert_equal_weights(tmp_path / "one", tmp_path / "two", within=1e-6)
    assert validation(tmp_path / "one") == pytest.approx(validation(tmp_path / "two"), rel=1e-6)
    for steps in (2, 6):
        short = changed(config, "train", max_steps=steps)
        Team(short, tiny_data, tmp_path / "parts", **facts).train(2)
    assert_equal_weights(tmp_path / "two", tmp_path / "parts")


def test_dropout_depends_on_the_place_in_an_update_and_not_on_the_worker(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    config = changed(config, "train", batches_per_update=4, max_steps=4)
    Team(config, tiny_data, tmp_path / "one", dtype="float64").train(1)
    Team(config, tiny_data, tmp_path / "two", dtype="float64").train(2)
    assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "two"), rel=1e-9)


def test_subword_dropout_depends_on_the_pair_and_not_on_the_worker(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    # Three batches among two workers: each is cut in two.
    config = changed(changed(config, "model", dropout=0.0), "train", bpe_dropout=0.3)
    config = changed(config, "train", max_steps=3)
    Team(config, tiny_data, tmp_path / "one", dtype="float64").train(1)
    Team(config, tiny_data, tmp_path / "two", dtype="float64").train(2)
    assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "two"), rel=1e-9)


def test_a_run_resumes_with_more_or_fewer_workers_in_the_same_order(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    config = changed(config, "model", dropout=0.0)
    Team(config, tiny_data, tmp_path / "one", dtype="float64").train(1)
    for steps, count in ((2, 1), (4, 2), (6, 1)):
        part = changed(config, "train", max_steps=steps)
        Team(part, tiny_data, tmp_path / "mixed", dtype="float64").train(count)
    assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "mixed"), rel=1e-9)


@pytest.mark.parametrize("sharded", [False, True])
def test_two_workers_stopped_and_resumed_are_never_stopped_to_the_last_bit(
    sharded: bool, config: Config, tiny_data: PreparedData, tmp_path: Path
):
    config = changed(config, "train", fsdp=sharded)
    Team(config, tiny_data, tmp_path / "whole").train(2)
    for steps in (2, 6):
        Team(changed(config, "train", max_steps=steps), tiny_data, tmp_path / "parts").train(2)
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")
    assert_equal_weights(tmp_path / "whole", tmp_path / "parts")


def test_three_workers_resume_to_the_last_bit_too(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    # With three, the order of a sum matters.
    Team(config, tiny_data, tmp_path / "whole").train(3)
    for steps in (2, 6):
        Team(changed(config, "train", max_steps=steps), tiny_data, tmp_path / "parts").train(3)
    assert_equal_weights(tmp_path / "whole", tmp_path / "parts")


def test_more_workers_than_pairs_in_a_batch_leave_some_idle(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    config = changed(changed(config, "model", dropout=0.0), "train", max_steps=3, batch_tokens=40)
    Team(config, tiny_data, tmp_path / "one", dtype="float64").train(1)
    Team(config, tiny_data, tmp_path / "three", dtype="float64").train(3)
    assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "three"), rel=1e-9)


# ---------------------------------------------------------------------------------------------
# One fails


def test_a_worker_that_fails_ends_the_run_for_all_with_its_message(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    team = Team(config, tiny_data, tmp_path / "run", misbehaviour={"how": "fail", "rank": 1})
    first, second = team.start(2)
    err = [process.communicate(timeout=60)[1].decode() for process in (first, second)]
    assert first.returncode != 0
    assert second.returncode != 0
    assert "MtkitError: the disk of worker 1 is on fire" in err[1]
    assert "PeerLostError: worker 0: lost contact" in err[0]
    # And nothing is lost.
    assert [saved.step for saved in Run.open(tmp_path / "run").checkpoints()] == [3]


@pytest.mark.parametrize(
    ("how", "who", "where", "message"),
    [
        slow("stop", 1, "update", "worker 1 has been silent"),
        ("hang", 1, "update", "worker 1 made no progress, and the others wait,"),
        slow("hang", 0, "update", "worker 0 made no progress, and the others wait,"),
        ("stop", 0, "update", "worker 0 has been silent"),
        # Others wait for it elsewhere than in a backward pass.
        slow("hang", 0, "save", "worker 0 made no progress, and the others wait,"),
        # Before the first update.
        slow("hang", 1, "start", "worker 1 made no progress, and the others wait,"),
    ],
)
def test_a_worker_that_stalls_is_named_after_a_time_and_ends_the_run(
    how: str,
    who: int,
    where: str,
    message: str,
    config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
):
    config = changed(config, "train", stall_timeout=3.0)
    misbehaviour = {"how": how, "rank": who, "where": where}
    team = Team(config, tiny_data, tmp_path / "run", misbehaviour=misbehaviour)
    team_of_two = team.start(2)
    watcher = team_of_two[1 - who if how == "stop" else 0]
    try:
        _, err = watcher.communicate(timeout=60)
        assert watcher.returncode == 70, err.decode()
        # No other worker is named.
        assert message in [line.partition(" for ")[0] for line in err.decode().splitlines()]
        assert "train.stall_timeout is 3" in err.decode()
    finally:
        for process in team_of_two:
            process.kill()
            process.communicate()


def test_workers_that_do_not_all_come_end_with_a_line_and_may_be_started_again(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    team = Team(config, tiny_data, tmp_path / "run", meeting=2)
    team.use_command_line()
    (status,), (said,) = team.end(team.start(2, ranks=[0]))
    assert status == 70, said
    assert "mtkit: error: the workers did not find each other: " in said


def test_workers_are_restarted_if_another_process_has_taken_their_port(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    team = Team(config, tiny_data, tmp_path / "run", meeting=2)
    team.use_command_line()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        (status,), (said,) = team.end(team.start(2, ranks=[0], port=other.getsockname()[1]))
    assert status == 70, said
    assert said.count("\n") == 1
    assert "EADDRINUSE" in said


# ---------------------------------------------------------------------------------------------
# Started by `launch`


@pytest.fixture
def launching(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One thread for each worker, and PyTorch's engine as talkative as before."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    engine = logging.getLogger("torch.distributed.elastic")
    before = engine.level
    yield
    engine.setLevel(before)


@pytest.mark.slow
@pytest.mark.usefixtures("launching")
def test_a_bug_keeps_its_traceback_and_the_workers_are_started_again(
    config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
):
    misbehaviour = {"how": "crash", "rank": 1, "once": True}
    team = Team(config, tiny_data, tmp_path / "run", misbehaviour=misbehaviour)
    assert team.launch(2, max_restarts=1) == 0
    err = capfd.readouterr().err
    assert "ValueError: a bug" in err
    assert "continuing from step 3" in err
    assert caplog.messages == ["worker 1 broke down; restarting from the last checkpoint (1 of 1)"]
    assert len(losses(tmp_path / "run")) == 6


@pytest.mark.usefixtures("launching")
def test_a_worker_that_has_finished_ends_before_the_interpreter_does(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    # PyTorch aborts a process whose interpreter ends while Gloo's threads still have tensors.
    misbehaviour = {"how": "abort at exit", "where": "start"}
    team = Team(config, tiny_data, tmp_path / "run", misbehaviour=misbehaviour)
    assert team.launch(2) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("launching")
def test_a_killed_worker_is_the_reason_and_not_those_it_leaves_alone(
    config: Config, tiny_data: PreparedData, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    misbehaviour = {"how": "die", "rank": 1}
    team = Team(config, tiny_data, tmp_path / "run", misbehaviour=misbehaviour)
    assert team.launch(2) == 1
    assert caplog.messages == [
        "worker 1 was killed by SIGKILL; the same command continues from the last checkpoint"
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("launching")
def test_if_all_lose_contact_the_reason_is_what_pytorch_says(
    config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
):
    misbehaviour = {"how": "lose contact"}
    team = Team(config, tiny_data, tmp_path / "run", misbehaviour=misbehaviour)
    assert team.launch(2) == 1
    (message,) = caplog.messages
    assert "lost contact with the other workers (NCCL error: the cable is loose)" in message
    assert "Traceback" not in capfd.readouterr().err


def test_an_error_is_the_same_whichever_checkpoint_a_worker_sees():
    first = what_happened("step 4: out of memory on worker 0; the last checkpoint is step 3", 0)
    second = what_happened("step 4: out of memory on worker 1; there is no checkpoint", 1)
    assert first == second == "step 4: out of memory"
    assert first != what_happened("step 4: the loss is not finite; there is no checkpoint", 1)


@pytest.mark.usefixtures("launching")
def test_out_of_memory_on_all_workers_is_reported_once(
    config: Config, tiny_data: PreparedData, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    team = Team(config, tiny_data, tmp_path / "run", misbehaviour={"how": "exhaust"})
    assert team.launch(2) == 1
    err = capfd.readouterr().err
    assert err.count("mtkit: error: ") == 1
    assert re.search(r"step 4: out of memory on worker \d; ", err)


@pytest.mark.slow
@pytest.mark.usefixtures("launching")
def test_restart_begins_again_even_if_the_first_start_comes_to_nothing(
    config: Config, tiny_data: PreparedData, tiny_run: Run, tmp_path: Path
):
    run = tmp_path / "run"
    shutil.copytree(tiny_run.path, run)
    misbehaviour = {"how": "die", "rank": 1, "where": "start", "once": True}
    team = Team(config, tiny_data, run, misbehaviour=misbehaviour)
    # To continue the old run with these settings would be refused.
    assert team.launch(2, "--restart", max_restarts=1) == 0
    assert len(losses(run)) == 6


# ---------------------------------------------------------------------------------------------
# All the same


@pytest.mark.parametrize(
    ("sees", "misbehaviour", "message"),
    [
        ("data", None, "worker 1: started with other data than worker 0"),
        (None, {"how": "fail", "rank": 1, "where": "read"}, "worker 1: the disk of worker 1 is on"),
    ],
)
def test_a_worker_that_would_train_something_else_is_named(
    sees: str | None,
    misbehaviour: dict[str, Any] | None,
    message: str,
    tiny_config: Config,
    tiny_data: PreparedData,
    tiny_run: Run,
    tmp_path: Path,
):
    run = tmp_path / "run"
    shutil.copytree(tiny_run.path, run)
    facts = {"sees": [1, sees]} if sees else {"misbehaviour": misbehaviour}
    team = Team(changed(tiny_config, "train", max_steps=6), tiny_data, run, **facts)
    statuses, said = team.end(team.start(2))
    assert 0 not in statuses
    for text in said:
        assert f"MtkitError: {message}" in text
    assert [saved.step for saved in Run.open(run).checkpoints()] == [2, 4]


def test_what_to_continue_is_chosen_by_the_first_worker(
    tiny_config: Config, tiny_data: PreparedData, tiny_run: Run, tmp_path: Path
):
    config = changed(tiny_config, "train", max_steps=6)
    # The second worker does not see the checkpoints listed, as on a slow shared file system.
    for name, facts in (("run", {}), ("late", {"sees": [1, "checkpoints"]})):
        shutil.copytree(tiny_run.path, tmp_path / name)
        Team(config, tiny_data, tmp_path / name, **facts).train(2)
    assert len(losses(tmp_path / "run")) == 3
    assert losses(tmp_path / "run") == losses(tmp_path / "late")
    assert_equal_weights(tmp_path / "run", tmp_path / "late")


def test_where_a_run_is_finished_is_chosen_by_the_first_worker(
    tiny_config: Config, tiny_data: PreparedData, tiny_run: Run, tmp_path: Path
):
    config = changed(tiny_config, "train", max_steps=9)
    for name, facts in (("run", {}), ("late", {"sees": [1, "checkpoints"]})):
        shutil.copytree(tiny_run.path, tmp_path / name)
        team = Team(config, tiny_data, tmp_path / name, **facts)
        team.use_command_line("--finish-in=2")
        team.train(2)
        settings = Run.open(tmp_path / name).config.train
        assert (settings.finish_after, settings.finish_steps) == (4, 2)
        assert Run.open(tmp_path / name).checkpoints()[-1].step == 6
    assert_equal_weights(tmp_path / "run", tmp_path / "late")


# ---------------------------------------------------------------------------------------------
# The command line


def mtkit_train(
    config: Config, data: PreparedData, run: Path, *options: str
) -> subprocess.Popen[bytes]:
    file = run.parent / "config.yaml"
    file.write_text(dump_config(config), encoding="utf-8")
    command = [sys.executable, "-m", "mtkit", "train", "--config", file, "--data", data.path]
    return subprocess.Popen(
        [*command, "--run", run, "--device", "cpu", *options],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_for(condition: Any, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


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


def test_the_command_starts_workers_and_prints_once(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    process = mtkit_train(config, tiny_data, tmp_path / "run", "--workers", "2")
    out, err = ended(process, within=120)
    assert process.returncode == 0, err.decode()
    assert out == b""
    text = err.decode()
    assert "2 workers" in text
    assert text.count("step 6 of 6") == 1
    Team(config, tiny_data, tmp_path / "same").train(2)
    assert losses(tmp_path / "run") == losses(tmp_path / "same")


@pytest.mark.slow
def test_an_error_on_all_workers_is_reported_once(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    config = changed(config, "train", learning_rate_scale=1e30)
    process = mtkit_train(
        config, tiny_data, tmp_path / "run", "--workers", "2", "--max-restarts", "3"
    )
    _, err = ended(process, within=120)
    assert process.returncode == 1
    # Reported once, and not tried again: the same would happen.
    assert err.decode().count("mtkit: error:") == 1
    assert "the loss is" in err.decode()
    assert "restarting" not in err.decode()


def ended(process: subprocess.Popen[bytes], *, within: float) -> tuple[bytes, bytes]:
    """What a process that ends in so many seconds has said; one that does not is not left over."""
    try:
        return process.communicate(timeout=within)
    finally:
        process.kill()


def endless_run(
    config: Config, data: PreparedData, run: Path, *options: str
) -> subprocess.Popen[bytes]:
    """A run that has made some steps, saved none, and would go on for ever."""
    never = {"checkpoint_every": 100_000, "valid_every": 100_000}
    endless = changed(config, "train", max_steps=100_000, **never)
    process = mtkit_train(endless, data, run, *options)
    metrics = run / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 3, process)
    return process


@pytest.mark.slow
@needs_proc
def test_ctrl_c_has_all_workers_save_and_stop(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    run = tmp_path / "run"
    process = endless_run(config, tiny_data, run, "--workers", "2")
    process.send_signal(signal.SIGINT)
    _, err = ended(process, within=60)
    assert process.returncode == 130, err.decode()
    assert "Traceback" not in err.decode()
    assert Run.open(run).checkpoints()[-1].step == len(losses(run))


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("ignored", [False, True])
def test_a_terminal_that_goes_away_stops_the_run_unless_that_is_to_be_ignored(
    ignored: bool, config: Config, tiny_data: PreparedData, tmp_path: Path
):
    run = tmp_path / "run"
    # What nohup does.
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN) if ignored else None
    try:
        process = endless_run(config, tiny_data, run, "--workers", "2")
    finally:
        if ignored:
            signal.signal(signal.SIGHUP, before)
    process.send_signal(signal.SIGHUP)
    if ignored:
        steps = len(losses(run))
        wait_for(lambda: len(losses(run)) > steps + 20, process)
        process.send_signal(signal.SIGTERM)
    _, err = ended(process, within=60)
    assert process.returncode == 130, err.decode()
    assert "Traceback" not in err.decode()
    assert Run.open(run).checkpoints()[-1].step == len(losses(run))


@pytest.mark.slow
def test_what_torchrun_starts_says_once_what_it_found_and_starts_nothing_itself(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    shutil.copytree(tiny_data.path, tmp_path / "data" / "tiny")
    file = tmp_path / "config.yaml"
    file.write_text(dump_config(changed(config, "train", max_steps=2)), encoding="utf-8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*torchrun, "-m", "--", "mtkit", "train", "--config", file, "--run=run", "--device=cpu"],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    err = done.stderr.decode()
    assert done.returncode == 0, err
    assert err.count("mtkit: data: data/tiny") == 1
    assert err.count("2 workers") == 1
    assert len(losses(tmp_path / "run")) == 2


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize(("workers", "kills"), [(1, 2), (2, 1)])
def test_a_killed_worker_is_started_again_and_the_run_ends_as_if_nothing_had_happened(
    workers: int, kills: int, config: Config, tiny_data: PreparedData, tmp_path: Path
):
    config = changed(config, "train", max_steps=40, checkpoint_every=5, valid_every=40)
    Team(config, tiny_data, tmp_path / "whole").train(workers)
    run = tmp_path / "killed"
    options = ["--workers", str(workers), "--max-restarts", str(kills)]
    process = mtkit_train(config, tiny_data, run, *options)
    for saved in (5, 20)[:kills]:
        place = run / f"checkpoints/step-{saved:08d}"
        wait_for(place.exists, process)
        before = set(workers_of(process))
        os.kill(max(before), signal.SIGKILL)
        wait_for(partial(started_anew, process, before), process)
    _, err = ended(process, within=120)
    assert process.returncode == 0, err.decode()
    again = f"restarting from the last checkpoint ({kills} of {kills})"
    assert f"was killed by SIGKILL; {again}" in err.decode()
    assert_equal_weights(tmp_path / "whole", run)
    assert losses(tmp_path / "whole") == losses(run)


@pytest.mark.slow
@needs_proc
def test_workers_stop_when_their_parent_is_killed(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    run = tmp_path / "run"
    process = endless_run(config, tiny_data, run, "--workers", "2")
    workers = workers_of(process)
    assert len(workers) == 2
    process.kill()
    # The workers hold its pipes until they end.
    ended(process, within=60)
    assert Run.open(run).checkpoints()


# ---------------------------------------------------------------------------------------------
# Parts


def test_a_single_worker_does_not_communicate():
    workers = Workers()
    assert workers.is_rank_zero
    assert workers.sum(torch.tensor(3)).item() == 3
    assert workers.gather({"a": 1}) == [{"a": 1}]
    assert workers.any(True)
    assert not workers.any(False)


def test_the_time_before_a_watch_begins_does_not_count(monkeypatch: pytest.MonkeyPatch):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(threading.Thread, "start", lambda _: None)
    given_up: list[str] = []
    watch = Watch(Workers(0, 2), torch.distributed.HashStore(), patience=10.0)
    monkeypatch.setattr(watch, "_give_up", lambda what, _: given_up.append(what))
    now = 100.0
    with watch:
        now = 109.0
        watch._judge_all()
        assert not given_up
        now = 111.0
        watch._judge_all()
        assert given_up[0] == "worker 0 has been silent"


def test_no_report_is_being_sent_any_more_when_the_watch_has_ended():
    # PyTorch aborts a process that ends while a thread is inside of its store.
    sending = threading.Event()

    class SlowStore:
        def clone(self) -> SlowStore:
            return self

        def set(self, key: str, value: str) -> None:
            sending.set()
            time.sleep(0.2)

        def check(self, keys: list[str]) -> bool:
            return False

    store: Any = SlowStore()
    with Watch(Workers(0, 2), store, patience=10.0, interval=0.01):
        assert sending.wait(10)
    assert not [thread for thread in threading.enumerate() if thread.name == "talk"]


# A worker that breaks down at its first start, without PyTorch.
BREAKS_ONCE = """
import os, sys
sys.exit(70 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else 0)
"""


def test_workers_that_break_down_are_started_again_as_often_as_asked(
    caplog: pytest.LogCaptureFixture,
):
    assert launcher.launch(["-c", BREAKS_ONCE], 2, max_restarts=1) == 0
    (line,) = caplog.messages
    assert "broke down; restarting from the last checkpoint (1 of 1)" in line
    assert launcher.launch(["-c", BREAKS_ONCE], 2) == 1


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
def test_a_signal_that_ends_the_launcher_is_passed_on_to_all_workers(
    number: signal.Signals, tmp_path: Path
):
    def ask() -> None:
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    asking = threading.Thread(target=ask)
    asking.start()
    status = launcher.launch(["-c", ENDS_WHEN_ASKED, str(tmp_path)], 2)
    asking.join()
    assert status == 130


def test_a_validation_by_one_worker_alone_is_not_a_stall(
    config: Config, tiny_data: PreparedData, monkeypatch: pytest.MonkeyPatch
):
    trainer = Trainer(config, tiny_data, device=CPU)
    # As with shards: the first worker validates with the whole model, while the others wait.
    trainer.settings = changed(config, "train", fsdp=True).train
    monkeypatch.setattr(trainer, "_whole_model", lambda: trainer.model)
    before = trainer.workers.moves
    trainer.validate()
    assert trainer.workers.moves - before >= len(tiny_data.pairs("valid"))


@pytest.mark.parametrize(("native", "auto"), [(True, "bf16"), (False, "fp32")])
def test_precision_is_what_was_asked_for_and_by_itself_what_the_hardware_has(
    native: bool, auto: str, monkeypatch: pytest.MonkeyPatch
):
    able = {"avx2": True, "avx512_bf16": native}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    monkeypatch.setattr("mtkit.base.devices._onednn_uses_bf16", lambda: True)
    assert choose_precision("fp32", CPU) == "fp32"
    assert choose_precision("bf16", CPU) == "bf16"
    assert choose_precision("auto", CPU) == auto


@pytest.mark.parametrize("name", [None, "AMD EPYC", "Intel(R) Xeon(R)"])
def test_the_matrix_route_is_never_less_exact_than_float32(
    name: str | None, monkeypatch: pytest.MonkeyPatch
):
    if name is not None:
        able = {"cpu_name": name, "avx512_f": True}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    try:
        route = select_matmul_backend(CPU)
        assert (route == "oneDNN") == (torch.get_float32_matmul_precision() == "medium")
        assert name != "Intel(R) Xeon(R)" or route != "oneDNN"
        x = torch.randn(200, 300, generator=torch.Generator().manual_seed(1))
        exact = x.double() @ x.double().t()
        error = (torch.nn.functional.linear(x, x) - exact).abs().max() / exact.abs().max()
        assert error < 1e-6
        # The choice for a model in bfloat16 does not depend on the model before it.
        select_matmul_backend(CPU, "bf16")
        assert torch.get_float32_matmul_precision() == "highest"
        with float32_arithmetic(CPU):
            assert (route == "oneDNN") == (torch.get_float32_matmul_precision() == "medium")
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision("highest")
