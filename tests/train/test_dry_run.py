"""What a training will cost, before it begins."""

import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import CPU, changed

from mtkit.base.errors import MtkitError
from mtkit.config import load_config
from mtkit.train import dry_run
from mtkit.train.gradients import Losses
from mtkit.train.progress_meter import hours_and_minutes
from mtkit.train.trainer import Trainer


def test_the_papers_estimate_stands_beside_the_count_where_the_hardware_is_known(config, tiny_data):
    assert "as the paper estimates it" not in dry_run.forecast(config, tiny_data, device="cpu")
    known = changed(config, "train", sustained_flops=9.5e12)
    text = dry_run.forecast(known, tiny_data, device="cpu")
    assert "as the paper estimates it, time times 9.5e+12 a second" in text


@pytest.mark.parametrize("seed", ["abc", "-1", "", "1.5", "0x10"])
def test_a_seed_that_scores_cannot_take_is_refused_before_training(seed, trainings, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    with pytest.raises(MtkitError, match=f"SACREBLEU_SEED={seed}"):
        dry_run.forecast(trainings.config, trainings.data, device="cpu")
    with pytest.raises(MtkitError, match=f"SACREBLEU_SEED={seed}"):
        trainings.run("seed")
    assert not (trainings.folder / "seed").exists()


def test_a_forecast_says_how_high_the_rate_rises_and_if_that_is_unusual(config, tiny_data, caplog):
    # 512^-½ · 4000^-½ = 6.99e-4, the paper's.
    text = dry_run.forecast_without_data(load_config("base"))
    assert "# learning rate: peak 7.0e-04 at update 4,000\n" in text
    # A shape can be looked at before there is data.
    assert "# parameters: 63,082,496 (" in text
    assert "# cost: 9.52e+17" in text
    text = dry_run.forecast_without_data(load_config("base", ["train.decay_steps=20000"]))
    assert "; linear decay to zero over the last 20,000 updates\n" in text
    assert not caplog.records
    # 16^-½ · 4^-½ = 0.125, √1000 = 32 times 16^-½ · 4000^-½.
    text = dry_run.forecast(config, tiny_data, device="cpu")
    assert "# learning rate: peak 1.2e-01 at update 4, 32 times the paper's" in text
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "the learning rate will rise to 1.2e-01 at update 4, 32 times" in record.message
    assert "lower train.learning_rate_scale or raise train.warmup_steps" in record.message
    # Six updates of such a warm-up never come near the paper's peak.
    slow = changed(config, "train", warmup_steps=4000, decay_steps=3)
    caplog.clear()
    dry_run.forecast(slow, tiny_data, device="cpu")
    (record,) = caplog.records
    assert "training ends in the warm-up of the learning rate" in record.message


def test_a_forecast_is_a_configuration_with_comments(config, tiny_data, tmp_path):
    text = dry_run.forecast(config, tiny_data, device="cpu")
    file = tmp_path / "resolved.yaml"
    file.write_text(text, encoding="utf-8")
    assert load_config(str(file)) == config
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("#"))
    # The forecast is the end.
    assert all(line.startswith("# ") for line in lines[first:])
    comments = "".join(lines[first:])
    for word in ("parameters", "memory", "target tokens/s", "passes"):
        assert word in comments


def test_a_forecast_says_how_far_its_timed_updates_differ(config, tiny_data, monkeypatch):
    # The first update is slower and does not count.
    monkeypatch.setattr(dry_run, "_measured_speeds", lambda _: ([10.0, 20.0, 20.0, 40.0], 2))
    text = dry_run.forecast(config, tiny_data, device="cpu")
    # The mean time of a token is (1/10 + 1/20 + 1/20 + 1/40) / 4 = 0.225 / 4.
    assert "# speed: 18 target tokens/s over 2 batches (10 to 40 in 4 updates)\n" in text
    epoch = tiny_data.pairs("train").epoch_tokens()
    updates = Trainer(config, tiny_data, device=CPU).batches.updates_in_epoch
    tokens = epoch * 6 / updates
    times = [hours_and_minutes(tokens / speed) for speed in (4 / 0.225, 40, 10)]
    assert f"# time: {times[0]} ({times[1]} to {times[2]} at these speeds) for" in text
    monkeypatch.setattr(dry_run, "_measured_speeds", lambda _: ([10.0], 1))
    text = dry_run.forecast(config, tiny_data, device="cpu")
    assert "over 1 batch (one update)" in text
    assert "(a rough guess)" in text


@pytest.mark.parametrize(
    ("settings", "workers", "said"),
    [
        ({"gpu_path": "plain", "device_batch_tokens": 80}, 1, "5 micro-batches"),
        ({"device_batch_tokens": 200}, 1, "in one pass"),
        ({"device_batch_tokens": 80}, 1, "in 3 passes"),
        ({"device_batch_tokens": 80}, 2, "in 2 passes of each worker"),
    ],
)
def test_a_forecast_says_how_an_update_is_divided(settings, workers, said, config, tiny_data):
    config = changed(config, "train", **settings)
    text = dry_run.forecast(config, tiny_data, device="cpu", world_size=workers)
    assert re.search(rf"# an update: [0-9]+ target tokens, {said}\n", text)


RAISE = ", too few to keep it busy: raise train.batch_tokens"


@pytest.mark.parametrize(
    ("tokens", "passes", "workers", "said"),
    [
        (24_000.0, 2, 6, "2,000 target tokens"),
        (24_000.0, 1, 16, f"1,500 target tokens{RAISE} or use fewer GPUs"),
        (900.0, 1, 1, f"900 target tokens{RAISE}"),
    ],
)
def test_small_passes_of_a_gpu_are_advised_against(tokens, passes, workers, said):
    assert dry_run.pass_in_words(tokens, passes, workers) == f"a pass of a GPU: {said}"


def test_a_gpu_is_timed_after_a_warm_up_of_at_least_30_updates(config, tiny_data, monkeypatch):
    trainer = Trainer(changed(config, "train", gpu_path="packed"), tiny_data, device=CPU)
    # The target tokens of each update, and after how many updates the clock is read.
    tokens, read = [], []

    def update(batches, _):
        tokens.append(sum(int(trainer.pairs.tgt.lengths[some].sum()) for some in batches))
        return Losses(torch.zeros(()), None)

    def clock():
        """An update takes a tenth of a second."""
        read.append(len(tokens))
        return len(tokens) / 10

    monkeypatch.setattr(trainer, "update", update)
    monkeypatch.setattr(dry_run, "time", SimpleNamespace(perf_counter=clock))
    speeds = dry_run.speeds_in_training(trainer, 1)
    assert read[0] >= 30
    assert len(speeds) > 1
    # Each is of the updates between two looks at the clock.
    means = [np.mean(tokens[start:end]) for start, end in itertools.pairwise(read)]
    assert speeds == pytest.approx([10 * mean for mean in means])
