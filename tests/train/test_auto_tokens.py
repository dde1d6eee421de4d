"""`train.device_batch_tokens: auto`: as many tokens at a time as fit in memory."""

from pathlib import Path

import pytest
import torch
from conftest import CPU, changed, slow
from support.small_memory import hold
from support.team import Team, assert_nearly_same
from support.training import Trainings

from mtkit.base.errors import MtkitError
from mtkit.config import load_config
from mtkit.train import gradients
from mtkit.train.gradients import Gradients
from mtkit.train.micro_batches import MicroBatches, padded_tokens
from mtkit.train.trainer import Trainer


@pytest.fixture(autouse=True)
def _restored(monkeypatch) -> None:
    monkeypatch.setattr(gradients, "make_batch", gradients.make_batch)


def number_of(run: Path) -> int:
    """The number that a run keeps."""
    kept = str(load_config(str(run / "config.yaml")).train.device_batch_tokens)
    assert kept.startswith("auto:")
    return int(kept.removeprefix("auto:"))


@pytest.fixture
def automatic(trainings) -> Trainings:
    trainings.change("train", device_batch_tokens="auto", batches_per_update=1)
    return trainings


@pytest.mark.parametrize("room", [40, slow(55), slow(80), slow(120), 150, slow(300)])
def test_a_run_takes_what_fits_and_is_that_with_this_number(room, automatic, caplog):
    caplog.set_level("INFO")
    hold(room)
    assert automatic.run("auto")
    number = number_of(automatic.folder / "auto")
    assert number <= room or number == 4096
    assert f"train.device_batch_tokens: auto takes {number:,} tokens at a time" in caplog.messages
    automatic.run("given", device_batch_tokens=number)
    automatic.assert_same("auto", "given")


def test_without_need_nothing_is_lowered(automatic):
    automatic.run("auto")
    assert number_of(automatic.folder / "auto") == 4096
    automatic.run("given", device_batch_tokens=None)
    automatic.assert_same("auto", "given", "loss")


def test_a_run_that_resumes_takes_its_number_again_even_with_more_memory(automatic, monkeypatch):
    make = gradients.make_batch
    hold(150)
    automatic.run("whole")
    number = number_of(automatic.folder / "whole")
    automatic.run("resumed", max_steps=3)
    monkeypatch.setattr(gradients, "make_batch", make)
    automatic.run("resumed")
    assert number_of(automatic.folder / "resumed") == number
    automatic.assert_same("whole", "resumed", "loss")
    # With less memory it takes a smaller one.
    hold(60)
    automatic.run("resumed", max_steps=7)
    assert number_of(automatic.folder / "resumed") < number


@pytest.fixture
def cramped(config, tiny_data, monkeypatch) -> Trainer:
    """A trainer with two threads, and memory for one pass at a time."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    config = changed(config, "train", batches_per_update=4, device_batch_tokens="auto")
    trainer = Trainer(config, tiny_data, device=CPU)
    add_up = Gradients.add_up

    def fitting(self: Gradients, *given: object, **more: object) -> object:
        if self.micro_batches.at_once > 1:
            raise MemoryError
        return add_up(self, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Gradients, "add_up", fitting)
    assert trainer.micro_batches.at_once == 2
    return trainer


def test_two_micro_batches_that_do_not_fit_together_are_computed_one_by_one(cramped):
    cramped.check_memory()
    assert cramped.micro_batches.at_once == 1


def test_fewer_tokens_at_a_time_still_hold_the_longest_pair_of_all(cramped, monkeypatch):
    """The largest batch, of both sides together, need not have the longest sentence."""
    micro_batches = cramped.micro_batches
    shortest = micro_batches.pairs.src.lengths.argmin(keepdims=True)
    largest = shortest, (micro_batches.pairs, shortest)
    monkeypatch.setattr(MicroBatches, "largest", lambda *_: largest)
    cramped.check_memory()
    assert micro_batches.limit >= micro_batches.longest


@pytest.mark.parametrize("path", ["plain", "packed"])
@pytest.mark.parametrize("share", [0.9, 1.0, 1.2, 1.45, 1.5, 1.6, 2.0, 3.3, 10.0])
def test_what_fits_has_room_for_the_growth_by_bpe_dropout(share, path, config, tiny_data):
    # A sentence may become 1.5 times as long.
    changes = {"device_batch_tokens": "auto", "gpu_path": path, "bpe_dropout": 0.1}
    trainer = Trainer(changed(config, "train", **changes), tiny_data, device=CPU)
    room = int(share * trainer.micro_batches.longest)
    hold(room)
    if room < int(1.5 * trainer.micro_batches.longest):
        with pytest.raises(MtkitError, match="even the longest pair alone"):
            trainer.check_memory()
        return
    trainer.check_memory()
    _, largest = trainer.micro_batches.largest(trainer.batches)
    assert padded_tokens(*largest) <= room


@pytest.mark.parametrize("path", ["plain", "packed"])
def test_all_workers_take_what_fits_on_each(path, automatic):
    automatic.change("train", gpu_path=path)
    Team(automatic, "auto", holds={"tokens": 60, "rank": 1}).train(2)
    number = number_of(automatic.folder / "auto")
    assert number <= 60
    automatic.change("train", device_batch_tokens=number)
    Team(automatic, "given").train(2)
    assert_nearly_same(automatic, "auto", "given")


@pytest.mark.parametrize(("path", "rank"), [("plain", 1), ("packed", 0)])
def test_all_workers_repeat_an_update_in_halves_if_memory_runs_out_on_one(path, rank, automatic):
    automatic.change("train", gpu_path=path)
    automatic.change("model", dropout=0.0)
    late = {"tokens": 50, "rank": rank, "late": True}
    Team(automatic, "halves", holds=late, dtype="float64").train(2)
    said = (automatic.folder / "halves.0.err").read_text(encoding="utf-8")
    assert "step 1: out of memory; trying again in 2 passes" in said
    automatic.change("train", device_batch_tokens=None)
    Team(automatic, "given", dtype="float64").train(2)
    assert_nearly_same(automatic, "halves", "given")
