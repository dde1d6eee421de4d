"""Several workers: the same run as one, and an end with a reason when one of them fails."""

from __future__ import annotations

import logging
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import changed, slow
from support.team import Team, assert_equal_weights, losses, validation

from mtkit.config import Config
from mtkit.data import PreparedData
from mtkit.run_folder import Run
from mtkit.train.distributed import Watch, Workers, what_happened
from mtkit.train.trainer import Trainer

CPU = torch.device("cpu")


@pytest.fixture
def config(config: Config) -> Config:
    """Dropout, three batches an update, a row and a checkpoint now and then."""
    one_device = {"device_batch_tokens": None, "batches_per_update": 3}
    return changed(config, "train", valid_every=6, **one_device)


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


@pytest.mark.parametrize(
    ("count", "dropout", "settings"),
    [
        # Dropout depends on the place in an update, and not on the worker.
        (2, 0.1, {"batches_per_update": 4, "max_steps": 4}),
        # Subword dropout depends on the pair. Three batches among two workers: each is cut in two.
        (2, 0.0, {"bpe_dropout": 0.3, "max_steps": 3}),
        # More workers than pairs in a batch: some are idle.
        (3, 0.0, {"batch_tokens": 40, "max_steps": 3}),
    ],
    ids=["dropout", "subword dropout", "idle workers"],
)
def test_losses_do_not_depend_on_the_number_of_workers(
    count: int,
    dropout: float,
    settings: dict[str, Any],
    config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
):
    config = changed(changed(config, "model", dropout=dropout), "train", **settings)
    Team(config, tiny_data, tmp_path / "one", dtype="float64").train(1)
    Team(config, tiny_data, tmp_path / "more", dtype="float64").train(count)
    assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "more"), rel=1e-9)


def test_a_run_resumes_with_more_or_fewer_workers_in_the_same_order(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    config = changed(config, "model", dropout=0.0)
    Team(config, tiny_data, tmp_path / "one", dtype="float64").train(1)
    for steps, count in ((2, 1), (4, 2), (6, 1)):
        part = changed(config, "train", max_steps=steps)
        Team(part, tiny_data, tmp_path / "mixed", dtype="float64").train(count)
    assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "mixed"), rel=1e-9)


# With three workers, the order of a sum matters.
@pytest.mark.parametrize(("sharded", "count"), [(False, 2), (True, 2), (False, 3)])
def test_workers_stopped_and_resumed_are_never_stopped_to_the_last_bit(
    sharded: bool, count: int, config: Config, tiny_data: PreparedData, tmp_path: Path
):
    config = changed(config, "train", fsdp=sharded)
    Team(config, tiny_data, tmp_path / "whole").train(count)
    for steps in (2, 6):
        Team(changed(config, "train", max_steps=steps), tiny_data, tmp_path / "parts").train(count)
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")
    assert_equal_weights(tmp_path / "whole", tmp_path / "parts")


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
        slow("stop", 1, "update", "worker 1 sent no heartbeat"),
        ("hang", 1, "update", "worker 1 made no progress, and the others wait,"),
        slow("hang", 0, "update", "worker 0 made no progress, and the others wait,"),
        ("stop", 0, "update", "worker 0 sent no heartbeat"),
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
    assert "mtkit: error: rendezvous of the workers failed: " in said


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
    assert caplog.messages == ["worker 1 failed; restarting from the last checkpoint (1 of 1)"]
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
        watch._check_all()
        assert not given_up
        now = 111.0
        watch._check_all()
        assert given_up[0] == "worker 0 sent no heartbeat"


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
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeats"]


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
