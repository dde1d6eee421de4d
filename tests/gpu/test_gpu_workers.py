"""Several GPUs train what one trains. Each comparison runs with workers on a CPU too."""

import re

import pytest
import torch
from conftest import changed, slow
from support.team import THREE_BATCHES, Team

from mtkit.config import Config


@pytest.fixture(
    params=[
        # Of a CPU in their place tests/train/test_distributed.py has the same.
        pytest.param("cpu", marks=pytest.mark.slow),
        pytest.param("cuda", marks=pytest.mark.gpu),
    ]
)
def device(device) -> torch.device:
    if device.type == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU, and each worker needs its own")
    return device


@pytest.fixture
def config(config) -> Config:
    """Three batches an update, which do not divide by two workers."""
    rate = {"schedule": "constant", "learning_rate": 1e-3, "warmup_steps": 2}
    config = changed(config, "model", dropout=0.0)
    return changed(config, "train", **THREE_BATCHES, **rate)


@pytest.mark.parametrize("settings", [{}, slow({"fsdp": True})])
def test_two_workers_train_what_one_trains(settings, device, trainings):
    trainings.run("one", device=device.type)
    trainings.change("train", **settings)
    Team(trainings, "two", device=device.type).train(2)
    for key in ("loss", "valid_loss"):
        alone, together = (trainings.values(name, key) for name in ("one", "two"))
        # Sums of float32 in another order.
        assert together == pytest.approx(alone, rel=1e-4)


def test_a_worker_that_is_killed_ends_the_run_for_all(device, trainings):
    # NCCL does not notice it; the time limit ends the wait, or NCCL the process.
    trainings.change("train", stall_timeout=30.0)
    misbehaviour = {"how": "die", "rank": 1}
    team = Team(trainings, "run", device=device.type, misbehaviour=misbehaviour)
    statuses, said = team.end(team.start(2))
    assert 0 not in statuses
    assert re.search("lost contact|waited 30 seconds|NCCL", said[0])
    assert trainings.steps("run") == [3]
