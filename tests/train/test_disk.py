"""Room for checkpoints: looked for before the first update, and when none can be saved."""

import re
from contextlib import nullcontext
from shutil import _ntuple_diskusage as usage

import pytest
import safetensors.torch
from conftest import CPU
from support.training import kill

from mtkit.base.errors import MtkitError
from mtkit.train import checkpoints
from mtkit.train.checkpoints import check_disk
from mtkit.train.trainer import Trainer


def give_room(patch: pytest.MonkeyPatch, free: int, total: int = 10**12) -> None:
    """Have so many bytes free on every disk."""
    patch.setattr(checkpoints.shutil, "disk_usage", lambda _: usage(total, total - free, free))


@pytest.mark.parametrize(
    "settings",
    [{}, {"freeze": ("encoder.*",)}, {"optimizer": "muon", "ema": 0.9}],
)
def test_the_size_of_a_checkpoint_is_known_before_the_first_update(settings, trainings):
    trainings.change("train", **settings, max_steps=3)
    trainer = Trainer(trainings.config, trainings.data, device=CPU)
    told = trainer.trained.saved_bytes(trainer.optimizer)
    trainings.run("run")
    (saved,) = trainings.open("run").checkpoints()
    tensors = [*saved.load_weights().values(), *saved.load_optimizer().values()]
    # Adam also counts its steps, in a number of four bytes for each parameter.
    kept = [tensor for tensor in tensors if tensor.ndim]
    assert told == sum(tensor.numel() * tensor.element_size() for tensor in kept)


# 39 MB of tensors, and a MiB beside them.
@pytest.mark.parametrize(
    ("free", "total", "fits"),
    [
        (0, 10**12, False),
        (40_000_000, 10**12, False),
        (40_048_576, 10**12, True),
        (10**15, 10**15, True),
        (0, 0, True),  # a network file system that does not say
    ],
)
def test_a_disk_without_room_for_a_checkpoint_is_refused(free, total, fits, monkeypatch, tmp_path):
    give_room(monkeypatch, free, total)
    path, words = tmp_path / "not" / "there", f"a checkpoint takes 40 MB, and {free / 1e6:,.0f} MB"
    if fits:
        assert check_disk(path, 39_000_000, replaces=False) == f"{words} are free"
    else:
        with pytest.raises(MtkitError, match=f"not even one checkpoint fits .*: {words}"):
            check_disk(path, 39_000_000, replaces=False)
    assert not path.parent.exists()


@pytest.mark.parametrize(
    ("name", "replaces", "fits"),
    [
        ("step-00000004", False, False),
        ("step-00000004", True, True),
        (".step-00000004.partial", False, True),
    ],
)
def test_what_a_checkpoint_replaces_counts_as_free(name, replaces, fits, monkeypatch, tmp_path):
    give_room(monkeypatch, 1_500_000)
    folder = tmp_path / "checkpoints" / name
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(500_000))
    with nullcontext() if fits else pytest.raises(MtkitError, match="not even one"):
        check_disk(tmp_path, 900_000, replaces=replaces)


def test_a_training_without_room_for_a_checkpoint_changes_nothing(trainings, monkeypatch):
    trainings.stopped("run", 5, kill)
    before = trainings.steps("run")
    with monkeypatch.context() as patch:
        give_room(patch, 1000)
        for restart in (False, True):
            with pytest.raises(MtkitError, match="not even one checkpoint fits on its disk"):
                trainings.run("run", restart=restart)
        with pytest.raises(MtkitError, match="not even one checkpoint fits on its disk"):
            trainings.run("new")
    assert not (trainings.folder / "new").exists()
    assert trainings.steps("run") == before
    assert trainings.run("run")
    # A finished run needs no room.
    give_room(monkeypatch, 0)
    assert trainings.run("run")


def test_a_dry_run_says_how_much_room_checkpoints_need(prepared, tiny_yaml, monkeypatch):
    command = ("train", "--config", tiny_yaml, "--dry-run", "--device", "cpu")
    told = prepared.mtkit(*command)
    assert re.search(r"\n# disk: a checkpoint takes 1 MB, and [\d,]+ MB are free\n", told.out)
    give_room(monkeypatch, 1000)
    told = prepared.mtkit(*command)
    assert told.status == 1
    (line,) = [line for line in told.err.splitlines() if "error" in line]
    assert "runs: not even one checkpoint fits on its disk" in line


@pytest.mark.parametrize(
    ("fails", "status", "kept"),
    [
        ([1, 2], "ends", []),
        # One good save in between, or before: training goes on, and the last save counts.
        ([1, 3], "finishes", [2, 4, 5, 6]),
        ([2, 3, 4], "finishes", [1, 5, 6]),
        ([1], "finishes", [2, 3, 4, 5, 6]),
        ([5, 6], "fails", [1, 2, 3, 4]),
    ],
)
def test_a_second_failed_save_in_a_row_without_any_checkpoint_ends_the_training(
    fails, status, kept, trainings, monkeypatch, caplog
):
    original = safetensors.torch.save_file

    def save_file(tensors, path):
        if int(re.findall(r"step-(\d+)", str(path))[-1]) in fails:
            raise OSError(28, "No space left on device", str(path))
        original(tensors, path)

    monkeypatch.setattr(safetensors.torch, "save_file", save_file)
    trainings.change("train", checkpoint_every=1, valid_every=6, keep_checkpoints=9)
    if status == "finishes":
        assert trainings.run("run")
    else:
        words = {"ends": "2 checkpoints in a row could not be", "fails": "step 6 was not saved"}
        with pytest.raises(MtkitError, match=words[status]):
            trainings.run("run")
    assert trainings.steps("run") == kept
    assert not list((trainings.folder / "run" / "checkpoints").glob(".*"))
    saved = f"the last good checkpoint is step {fails[0] - 1}" if fails[0] > 1 else "nothing was"
    for text in (f"step {fails[0]} was not saved: ", "No space left on device", saved):
        assert text in caplog.text
