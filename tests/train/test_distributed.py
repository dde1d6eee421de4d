"""Several workers: the same run as one, and an end with a reason when one of them fails."""

import logging
import re
import shutil
import signal
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import changed, slow
from support.team import THREE_BATCHES, Team, assert_equal_weights, assert_nearly_same
from support.training import Trainings

from mtkit.base.errors import MtkitError
from mtkit.config import Config
from mtkit.train import assembly
from mtkit.train.distributed import what_happened


@pytest.fixture(scope="module")
def config(config) -> Config:
    return changed(config, "train", **THREE_BATCHES)


@pytest.fixture(scope="module")
def alone(config, tiny_data, tmp_path_factory) -> str:
    """The folder of what one worker trains without dropout, in float64."""
    config = changed(config, "model", dropout=0.0)
    trainings = Trainings(config, tiny_data, tmp_path_factory.mktemp("alone"))
    Team(trainings, "one", dtype="float64").train(1)
    return str(trainings.folder / "one")


@pytest.mark.parametrize(
    ("sharded", "path"),
    [(False, "plain"), slow(False, "packed"), slow(True, "plain"), (True, "packed")],
)
def test_two_workers_train_what_one_trains(sharded, path, alone, trainings):
    # The batches of an update are dealt out, so even dropout is the same; what is left are the
    # last digits of float64 sums. Three batches among two workers: each is cut in two.
    trainings.change("model", dropout=0.0)
    trainings.change("train", fsdp=sharded, gpu_path=path)
    Team(trainings, "two", dtype="float64").train(2)
    assert_nearly_same(trainings, alone, "two")


@pytest.mark.parametrize("norm", ["post", slow("pre")])
def test_layers_that_are_sent_in_bf16_train_as_if_autocast_had_converted_them(norm, trainings):
    trainings.change("model", norm=norm)
    trainings.change("train", fsdp=True, precision="bf16", max_steps=3, valid_every=3)
    Team(trainings, "whole").train(2)
    Team(trainings, "narrow", shards_in="bfloat16").train(2)
    assert trainings.rows("whole", "loss") == trainings.rows("narrow", "loss")
    assert_equal_weights(trainings, "whole", "narrow")


@pytest.mark.slow
def test_compiled_layers_that_are_sent_in_bf16_train_what_one_worker_trains(trainings):
    trainings.change("model", dropout=0.0)
    bf16 = {"precision": "bf16", "gpu_path": "packed", "max_steps": 3, "valid_every": 3}
    trainings.change("train", **bf16)
    Team(trainings, "one").train(1)
    trainings.change("train", fsdp=True)
    # Compiled layers have the linear maps of PyTorch, and on some CPUs those of kernels/bf16.py
    # add in another order.
    facts = {"shards_in": "bfloat16", "linear_maps_of_pytorch": True}
    Team(trainings, "two", **facts).train(2)
    trainings.change("train", compile=True)
    Team(trainings, "compiled", compile_with="eager", **facts).train(2)
    # This backend runs the operators as they are, behind all that the compiler does before.
    assert trainings.rows("two", "loss") == trainings.rows("compiled", "loss")
    assert_equal_weights(trainings, "two", "compiled")
    # Numbers in bf16 have eight bits, and here the sums of one worker have another order.
    alone, compiled = (trainings.values(name, "loss") for name in ("one", "compiled"))
    assert alone == pytest.approx(compiled, rel=2**-8)


@pytest.mark.parametrize(
    "part",
    [
        {"lora_rank": 4, "ema": 0.9, "optimizer": "muon"},
        slow({"lora_rank": 4}),
        slow({"freeze": ("embedding", "encoder"), "ema": 0.9, "optimizer": "muon"}),
    ],
)
def test_two_workers_fine_tune_as_one_does_and_resume_to_the_last_bit(part, trainings, tiny_run):
    rate = {"schedule": "constant", "learning_rate": 1e-3, "warmup_steps": 2}
    trainings.change("model", dropout=0.0)
    trainings.change("train", **rate, **part)
    facts = {"dtype": "float64", "init_from": str(tiny_run.path)}
    Team(trainings, "one", **facts).train(1)
    Team(trainings, "two", **facts).train(2)
    assert_nearly_same(trainings, "one", "two")
    for steps in (2, 6):
        Team(trainings, "parts", max_steps=steps, **facts).train(2)
    assert_equal_weights(trainings, "two", "parts")


@pytest.mark.parametrize(
    ("count", "dropout", "settings"),
    [
        # Batch by batch, dropout depends on the place in an update, and not on the worker.
        (2, 0.1, {"gpu_path": "plain", "batches_per_update": 4, "max_steps": 4}),
        # Subword dropout depends on the pair. Three batches among two workers: each is cut in two.
        (2, 0.0, {"bpe_dropout": 0.3, "max_steps": 3}),
        # More workers than pairs in a batch: some are idle.
        (3, 0.0, {"batch_tokens": 40, "max_steps": 3}),
    ],
    ids=["dropout", "subword dropout", "idle workers"],
)
def test_losses_do_not_depend_on_the_number_of_workers(count, dropout, settings, trainings):
    trainings.change("model", dropout=dropout)
    trainings.change("train", **settings)
    Team(trainings, "one", dtype="float64").train(1)
    Team(trainings, "more", dtype="float64").train(count)
    alone, several = (trainings.values(name, "loss") for name in ("one", "more"))
    assert alone == pytest.approx(several, rel=1e-9)


def test_a_run_resumes_with_more_or_fewer_workers_in_the_same_order(alone, trainings):
    trainings.change("model", dropout=0.0)
    for steps, count in ((2, 1), (4, 2), (6, 1)):
        Team(trainings, "mixed", dtype="float64", max_steps=steps).train(count)
    in_one, mixed = (trainings.values(name, "loss") for name in (alone, "mixed"))
    assert in_one == pytest.approx(mixed, rel=1e-9)


# With three workers, the order of a sum matters.
@pytest.mark.parametrize(("sharded", "count"), [(True, 2), (False, 3)])
def test_workers_stopped_and_resumed_are_never_stopped_to_the_last_bit(sharded, count, trainings):
    trainings.change("train", fsdp=sharded)
    Team(trainings, "whole").train(count)
    for steps in (2, 6):
        Team(trainings, "parts", max_steps=steps).train(count)
    assert trainings.rows("whole", "loss") == trainings.rows("parts", "loss")
    assert_equal_weights(trainings, "whole", "parts")


def test_a_worker_that_fails_ends_the_run_for_all_with_its_message(trainings):
    team = Team(trainings, "run", misbehaviour={"how": "fail", "rank": 1})
    first, second = team.start(2)
    err = [process.communicate(timeout=600)[1].decode() for process in (first, second)]
    assert first.returncode != 0
    assert second.returncode != 0
    assert "MtkitError: the disk of worker 1 is on fire" in err[1]
    assert "PeerLostError: worker 0: lost contact" in err[0]
    # And nothing is lost.
    assert trainings.steps("run") == [3]


@pytest.mark.parametrize(
    ("how", "who", "where"),
    [
        slow("stop", 1, "update"),
        ("hang", 1, "update"),
        slow("hang", 0, "update"),
        ("stop", 0, "update"),
        # Others wait for it elsewhere than in a backward pass.
        slow("hang", 0, "save"),
        # Before the first update.
        slow("hang", 1, "start"),
    ],
)
def test_a_worker_that_stalls_is_named_after_a_time_and_ends_the_run(how, who, where, trainings):
    trainings.change("train", stall_timeout=8.0)
    team = Team(trainings, "run", misbehaviour={"how": how, "rank": who, "where": where})
    team.use_command_line()
    team_of_two = team.start(2)
    waiting = team_of_two[1 - who]
    try:
        _, err = waiting.communicate(timeout=600)
        assert waiting.returncode == 74, err.decode()
        waited = "waited 8 seconds (train.stall_timeout)"
        errors = [line for line in err.decode().splitlines() if "error" in line.lower()]
        assert errors == [f"mtkit: error: worker {1 - who}: {waited} for worker {who}"]
    finally:
        for process in team_of_two:
            process.kill()
            process.communicate()


def test_a_long_validation_by_one_worker_alone_is_not_a_stall(trainings):
    # The weights are sharded, so the first worker validates alone, and the other waits.
    short = {"max_steps": 3, "valid_every": 3}
    trainings.change("train", fsdp=True, stall_timeout=8.0, **short)
    pause = {"how": "pause", "rank": 0, "where": "validation"}
    Team(trainings, "run", misbehaviour=pause).train(2)
    assert trainings.steps("run") == [3]


def test_a_worker_does_not_wait_for_one_that_died_in_its_validation(trainings):
    trainings.change("train", fsdp=True, max_steps=3, valid_every=3)
    team = Team(trainings, "run", misbehaviour={"how": "die", "rank": 0, "where": "validation"})
    team.use_command_line()
    statuses, said = team.end(team.start(2))
    assert statuses == [-signal.SIGKILL, 75], said


@pytest.mark.parametrize(("is_taken", "reason"), [(False, ""), (True, ".*EADDRINUSE")])
def test_workers_that_cannot_meet_end_with_a_line_and_may_be_restarted(is_taken, reason, trainings):
    """Because another does not come, or because another process has taken their port."""
    team = Team(trainings, "run", meeting=2)
    team.use_command_line()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1] if is_taken else None
        (status,), (said,) = team.end(team.start(2, ranks=[0], port=port))
    assert status == 74, said
    assert re.search(f"^mtkit: error: rendezvous of the workers failed: {reason}", said, re.M)
    assert said.count("\n") == 1 or not is_taken


@pytest.fixture
def launching(monkeypatch) -> Iterator[None]:
    """One thread for each worker, and PyTorch's engine as talkative as before."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    engine = logging.getLogger("torch.distributed.elastic")
    before = engine.level
    yield
    engine.setLevel(before)


@pytest.mark.slow
@pytest.mark.usefixtures("launching")
def test_a_bug_keeps_its_traceback_and_the_workers_are_started_again(trainings, capfd, caplog):
    misbehaviour = {"how": "crash", "rank": 1, "once": True}
    assert Team(trainings, "run", misbehaviour=misbehaviour).launch(2, max_restarts=1) == 0
    err = capfd.readouterr().err
    assert "ValueError: a bug" in err
    assert "continuing from step 3" in err
    assert caplog.messages == ["worker 1 failed; restarting from the last checkpoint (1 of 1)"]
    assert len(trainings.rows("run", "loss")) == 6


@pytest.mark.slow
@pytest.mark.usefixtures("launching")
def test_a_worker_that_has_finished_ends_before_the_interpreter_does(trainings):
    # PyTorch aborts a process whose interpreter ends while Gloo's threads still have tensors.
    misbehaviour = {"how": "abort at exit", "where": "start"}
    assert Team(trainings, "run", misbehaviour=misbehaviour).launch(2) == 0


@pytest.mark.usefixtures("launching")
# A stopped process ends only when the engine kills it, after 30 seconds.
@pytest.mark.parametrize("how", ["hang", slow("stop")])
def test_a_stalled_worker_is_reported_once_when_all_have_ended(how, trainings, capfd, caplog):
    trainings.change("train", stall_timeout=8.0)
    assert Team(trainings, "run", misbehaviour={"how": how, "rank": 1}).launch(2) == 1
    assert caplog.messages == [
        "worker 0: waited 8 seconds (train.stall_timeout) for worker 1; the same command continues "
        "from the last checkpoint"
    ]
    assert "error" not in capfd.readouterr().err.lower()


@pytest.mark.slow
@pytest.mark.usefixtures("launching")
def test_if_all_lose_contact_the_reason_is_what_pytorch_says(trainings, capfd, caplog):
    assert Team(trainings, "run", misbehaviour={"how": "lose contact"}).launch(2) == 1
    (message,) = caplog.messages
    assert "lost contact with the other workers (NCCL error: the cable is loose)" in message
    assert "Traceback" not in capfd.readouterr().err


def test_an_error_is_the_same_whichever_checkpoint_a_worker_sees():
    first = what_happened("step 4: out of memory on worker 0; the last checkpoint is step 3", 0)
    second = what_happened("step 4: out of memory on worker 1; there is no checkpoint", 1)
    assert first == second == "step 4: out of memory"
    assert first != what_happened("step 4: the loss is not finite; there is no checkpoint", 1)


@pytest.mark.slow
@pytest.mark.usefixtures("launching")
def test_restart_begins_again_even_if_the_first_start_comes_to_nothing(trainings, tiny_run):
    shutil.copytree(tiny_run.path, trainings.folder / "run")
    misbehaviour = {"how": "die", "rank": 1, "where": "start", "once": True}
    team = Team(trainings, "run", misbehaviour=misbehaviour)
    # To continue the old run with these settings would be refused.
    assert team.launch(2, "--restart", max_restarts=1) == 0
    assert len(trainings.rows("run", "loss")) == 6


@pytest.fixture
def continued(tiny_config, tiny_data, tiny_run, tmp_path):
    """Trainings that go on from step 4, named run and late."""
    for name in ("run", "late"):
        shutil.copytree(tiny_run.path, tmp_path / name)
    return Trainings(changed(tiny_config, "train", max_steps=6), tiny_data, tmp_path)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"sees": [1, "data"]}, "started with other data than worker 0"),
        ({"misbehaviour": {"how": "fail", "rank": 1, "where": "read"}}, "the disk of worker 1 is"),
    ],
)
def test_a_worker_that_would_train_something_else_is_named(facts, message, continued):
    team = Team(continued, "run", **facts)
    statuses, said = team.end(team.start(2))
    assert 0 not in statuses
    for text in said:
        assert f"MtkitError: worker 1: {message}" in text
    assert continued.steps("run") == [2, 4]


def test_workers_that_share_a_gpu_are_named(monkeypatch):
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=device.index)
    )
    gpus = ["0", "1", "2"]
    workers: Any = SimpleNamespace(gather=lambda mine: [mine, *gpus])
    assembly._check_own_gpus(workers, torch.device("cuda", 3))
    assembly._check_own_gpus(workers, torch.device("cpu"))
    with pytest.raises(MtkitError, match=r"^worker 0, worker 2: share a GPU, and each "):
        assembly._check_own_gpus(workers, torch.device("cuda", 1))


def test_what_to_continue_and_where_to_finish_it_is_chosen_by_the_first_worker(continued):
    # The second worker does not see the checkpoints listed, as on a slow shared file system.
    for name, facts in (("run", {}), ("late", {"sees": [1, "checkpoints"]})):
        team = Team(continued, name, max_steps=9, **facts)
        team.use_command_line("--finish-in=2")
        team.train(2)
        settings = continued.open(name).config.train
        assert (settings.finish_after, settings.finish_steps) == (4, 2)
        assert continued.steps(name)[-1] == 6
    assert len(continued.rows("run", "loss")) == 3
    assert continued.rows("run", "loss") == continued.rows("late", "loss")
    assert_equal_weights(continued, "run", "late")
