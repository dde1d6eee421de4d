"""What goes wrong in training is one line, and nothing is lost."""

import json
import resource
import subprocess
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
import safetensors.torch
import torch
from conftest import changed, slow
from support import killed
from support.forked import PIPE, Forked, run_mtkit
from support.program import printed
from support.training import Trainings, assert_same_state, before_update

from mtkit.base import devices
from mtkit.base.errors import MtkitError
from mtkit.config import Config, dump_config
from mtkit.model import Transformer
from mtkit.run_folder import Run
from mtkit.train import assembly as train
from mtkit.train import checkpoints, dry_run


def test_a_loss_of_nan_is_reported_in_one_line_with_step_and_learning_rate(trainings: Trainings):
    with pytest.raises(MtkitError, match=r"step \d: the loss is (nan|inf)") as error:
        trainings.run("run", learning_rate_scale=1e30)
    text = str(error.value)
    assert "learning rate" in text
    assert "e+" in text  # of about 1e30
    assert "train.warmup_steps" in text


def test_weights_of_nan_are_never_saved(trainings: Trainings):
    # Checkpoints between two rows of metrics: nobody has looked at the loss yet.
    wild = {"learning_rate_scale": 1e30, "log_every": 6, "valid_every": 6}
    with pytest.raises(MtkitError, match=r"the loss is|the weights are not finite"):
        trainings.run("run", **wild, checkpoint_every=1, keep_checkpoints=9)
    for saved in trainings.open("run").checkpoints():
        for name, tensor in saved.load_weights().items():
            assert tensor.isfinite().all(), f"{name} at step {saved.step}"


@pytest.mark.parametrize(
    "failure",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMany lines."),
        slow(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")),
    ],
)
@pytest.mark.parametrize(("batch_tokens", "at_a_time"), [(200, None), (200, 80), (9000, None)])
def test_a_batch_that_does_not_fit_is_one_line_with_a_setting_that_helps(
    failure, batch_tokens, at_a_time, trainings, monkeypatch
):
    original = Transformer.forward

    def forward(self, src, tgt_in, *given, **options):
        if max(src.numel(), tgt_in.numel()) > 50:
            raise failure
        return original(self, src, tgt_in, *given, **options)

    monkeypatch.setattr(Transformer, "forward", forward)
    settings = {"batch_tokens": batch_tokens, "device_batch_tokens": at_a_time}
    trainings.change("train", batches_per_update=1, **settings)
    with pytest.raises(MtkitError, match=r"--set train\.device_batch_tokens=\d+$") as error:
        trainings.run("run")
    # Who does as the message says can train.
    advised = int(str(error.value).rpartition("=")[2])
    assert trainings.run("run", device_batch_tokens=advised, max_steps=2)


@pytest.mark.parametrize(
    ("error", "raised", "words"),
    [
        (torch.OutOfMemoryError("CUDA"), MtkitError, "even the longest pair alone"),
        # Another error is ours, and keeps its traceback.
        (RuntimeError("shapes do not match"), RuntimeError, "shapes do not match"),
    ],
)
def test_an_error_about_memory_in_a_model_is_a_line(error, raised, words, trainings, monkeypatch):
    monkeypatch.setattr(Transformer, "forward", Mock(side_effect=error))
    with pytest.raises(raised, match=words):
        trainings.run("run")


def slow_down_saving(patch: pytest.MonkeyPatch) -> None:
    """So that training is ahead of it."""
    original = safetensors.torch.save_file

    def save_file(tensors, path):
        time.sleep(0.2)
        original(tensors, path)

    patch.setattr(safetensors.torch, "save_file", save_file)


def test_memory_that_runs_out_later_is_a_line_with_the_last_good_checkpoint(trainings, monkeypatch):
    error = torch.OutOfMemoryError("CUDA out of memory.\nMany lines.")
    before_update(monkeypatch, 5, Mock(side_effect=error))
    slow_down_saving(monkeypatch)
    with pytest.raises(MtkitError, match=r"out of memory; the last good checkpoint is step 3") as e:
        trainings.run("run")
    assert "train.device_batch_tokens (now 80)" in str(e.value)


def test_a_pair_longer_than_what_fits_is_one_line_that_names_the_setting_to_raise(trainings):
    for settings in (
        {"batch_tokens": 200, "device_batch_tokens": 5},
        {"batch_tokens": 5, "device_batch_tokens": None},
    ):
        limiting = min((v, k) for k, v in settings.items() if v is not None)[1]
        with pytest.raises(MtkitError, match=rf"train\.{limiting}\b"):
            trainings.run("run", **settings)


@pytest.mark.slow
def test_killed_twenty_times_a_run_ends_with_the_weights_of_one_never_killed(trainings, tmp_path):
    trainings.change("train", max_steps=60, checkpoint_every=2, valid_every=20)
    trainings.run("whole")
    file, facts = tmp_path / "config.yaml", tmp_path / "facts.json"
    file.write_text(dump_config(trainings.config), encoding="utf-8")
    places = {"config": file, "data": trainings.data.path, "run": tmp_path / "killed"}
    facts.write_text(json.dumps({key: str(place) for key, place in places.items()}))
    assert json.loads(printed(killed.__file__, facts, "20", "1")) == {"killed": 20, "status": 0}
    trainings.assert_same("whole", "killed", "loss", "valid_bleu")


def with_small_files(arguments: list[str]) -> None:
    """The run_mtkit, which begins though there is little room besides that for checkpoints."""
    checkpoints._BESIDE = 0
    run_mtkit(arguments)


def test_a_full_disk_ends_in_one_line_and_nothing_is_lost(trainings: Trainings, tmp_path: Path):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o"]
    if subprocess.run([*mount, "size=480k", "tmpfs", small], capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        trainings.change("train", checkpoint_every=1, max_steps=4, keep_checkpoints=9)
        command = trainings.command(small / "run")
        with Forked(with_small_files, command, stderr=PIPE) as full:
            text = full.communicate(timeout=600)[1].decode()
        errors = [line for line in text.splitlines() if "mtkit: error" in line]
        assert full.returncode == 1, text
        assert len(errors) == 1
        assert "No space left on device" in errors[0]
        assert "Traceback" not in text
        subprocess.run([*mount, "remount,size=9m", "tmpfs", small], check=True)
        with Forked(run_mtkit, command, stderr=PIPE) as again:
            text = again.communicate(timeout=600)[1].decode()
        assert again.returncode == 0, text
        trainings.run("whole")
        assert_same_state(tmp_path / "whole", small / "run")
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)


def test_the_newest_checkpoint_is_set_aside_if_it_is_damaged(begun, tiny_config, tiny_data, caplog):
    (begun / "checkpoints" / "step-00000004" / "model.safetensors").write_bytes(b"cut")
    # At 3 a checkpoint is written; the damaged one at 4 must not count as a newer one.
    shorter = changed(tiny_config, "train", max_steps=3, keep_checkpoints=1)
    with caplog.at_level("INFO", logger="mtkit"):
        assert train.run(shorter, tiny_data, begun, device="cpu")
    assert "continuing from step 2" in caplog.text
    assert "damaged-step-00000004" in caplog.text
    assert [saved.step for saved in Run.open(begun).checkpoints()] == [3]


def test_a_model_larger_than_all_memory_is_refused_unbuilt(tiny_config, tiny_data, tmp_path):
    config = changed(tiny_config, "model", d_model=1 << 20)
    for work in (
        lambda: dry_run.forecast(config, tiny_data, device="cpu"),
        lambda: train.run(config, tiny_data, tmp_path / "run", device="cpu"),
    ):
        with pytest.raises(MtkitError, match=r"of [\d,]+ parameters needs [\d.]+ GiB") as error:
            work()
        assert "model.d_model" in str(error.value)
    assert list(tmp_path.iterdir()) == []


def with_little_memory(arguments: list[str]) -> None:
    """The run_mtkit, with room for what is loaded and little more."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 250_000_000,) * 2)
    # On some CPUs oneDNN computes float32 too, and its programs may leave no room for any batch.
    torch.cpu.get_capabilities = dict
    run_mtkit(arguments)


def on_a_small_machine(arguments: list[str]) -> None:
    """The run_mtkit, where Linux says that little memory is free."""
    devices.free_memory = lambda: 500_000_000
    run_mtkit(arguments)


@pytest.mark.parametrize(
    ("place", "precision"),
    [
        (with_little_memory, "fp32"),
        (on_a_small_machine, "fp32"),
        slow(on_a_small_machine, "bf16"),  # takes minutes on CPUs without bf16
    ],
)
def test_a_model_that_outgrows_memory_is_a_line_before_the_first_step(place, precision, trainings):
    tokens = {"batch_tokens": 200_000, "device_batch_tokens": 200_000, "batches_per_update": 1}
    trainings.change("train", **tokens, precision=precision)
    # Few parameters and many activations: one pair needs far less than all of them, on any CPU.
    trainings.change("model", d_model=32, d_ff=16_384)
    if not Path("/proc/self/statm").exists():
        pytest.skip("limits memory relative to /proc/self/statm")
    run = trainings.folder / "run"
    with Forked(place, trainings.command(run), stderr=PIPE) as process:
        text = process.communicate(timeout=600)[1].decode()
    assert process.returncode == 1, text
    assert "does not fit in memory" in text
    assert "--set train.device_batch_tokens=" in text
    assert "Traceback" not in text
    assert not Run(run, Config(), {}).checkpoints()
