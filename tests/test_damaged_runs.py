"""What was not saved whole, or is damaged, never counts, and never stops a run from continuing."""

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import safetensors.torch
import torch
from conftest import changed
from support.errors import message_of
from support.runs import contents, save, steps

from mtkit import run_folder
from mtkit.base.errors import MtkitError
from mtkit.run_folder import Run, find_run
from mtkit.train import assembly as train
from mtkit.train.checkpoints import CheckpointWriter, prune


def fail_renaming(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    for owner in (os, Path):
        patch.setattr(owner, "rename", Mock(side_effect=error))


def fail_syncing(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    patch.setattr(os, "fsync", Mock(side_effect=error))


def fail_writing_tensors(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    def refuse(tensors, path):
        path.write_bytes(b"\x08")  # some of it got there
        raise error

    patch.setattr(safetensors.torch, "save_file", refuse)


@pytest.mark.parametrize("fail", [fail_renaming, fail_syncing, fail_writing_tensors])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_save_that_fails_leaves_the_older_checkpoints_as_they_were(fail, error, run, monkeypatch):
    save(run, 10)
    before = contents(run.path)
    expected = MtkitError if isinstance(error, OSError) else KeyboardInterrupt
    with monkeypatch.context() as patch:
        fail(patch, error)
        with pytest.raises(expected) as caught:
            save(run, 20)
    if expected is MtkitError:
        assert "No space left" in str(caught.value)
        assert "step-00000020" in str(caught.value)
    assert contents(run.path) == before
    save(run, 20)
    assert steps(run) == [10, 20]


def test_a_process_killed_while_saving_leaves_the_older_checkpoints(run: Run):
    save(run, 10)
    before = contents(run.path)
    # The process dies at the last moment before the rename, without any cleaning up.
    code = f"""
import os, pathlib, torch
from mtkit.run_folder import Run
pathlib.Path.rename = os.rename = lambda *_: os._exit(9)
run = Run.open(pathlib.Path({str(run.path)!r}))
run.save(20, weights={{"w": torch.zeros(9)}}, optimizer={{}}, state={{}})
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=600).returncode == 9
    after = contents(run.path)
    assert before.items() <= after.items()
    assert len(after) > len(before)  # what the killed save left
    assert steps(run) == [10]
    assert run.select(None)[0]["w"].unique().tolist() == [10.0]
    assert find_run(run.path.parent).path == run.path
    save(run, 20)
    assert steps(run) == [10, 20]
    left = sorted(path.name for path in (run.path / "checkpoints").iterdir())
    assert left == ["step-00000010", "step-00000020"]


def test_an_old_checkpoint_that_cannot_be_deleted_is_reported_and_saving_succeeds(
    run, monkeypatch, caplog
):
    run = replace(run, config=changed(run.config, "train", keep_checkpoints=1))
    original = shutil.rmtree

    def rmtree(path, ignore_errors=False):
        if "step-00000010" in path.name:
            if ignore_errors:
                return
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        original(path, ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    with CheckpointWriter(run) as writer:
        for step in (10, 20, 30):
            writer.save(step, weights={"w": torch.ones(1)}, optimizer={}, state={})
            writer.finish()
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "could not be deleted" in warning
    assert "step-00000010" in warning
    assert "Permission denied" in warning
    assert steps(run) == [30]


def test_a_prune_that_is_killed_leaves_no_half_of_a_checkpoint(run, monkeypatch):
    for step in (10, 20, 30, 40, 50, 60):
        save(run, step)
    with monkeypatch.context() as patch:

        def killed(path, *_):
            (path / "model.safetensors").unlink()
            raise KeyboardInterrupt

        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            prune(run)
    for saved in run.checkpoints():
        saved.load_weights()
    save(run, 70)
    assert not list((run.path / "checkpoints").glob(".*"))


@pytest.mark.parametrize("fails", [False, True])
def test_a_running_save_is_always_waited_for(fails, run, monkeypatch, caplog):
    save(run, 10)
    begun = threading.Event()
    original = safetensors.torch.save_file

    def slow(tensors, path):
        begun.set()
        time.sleep(0.1)
        if fails:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        original(tensors, path)

    def interrupted():
        with CheckpointWriter(run) as writer:
            writer.save(20, weights={"w": torch.ones(1)}, optimizer={}, state={})
            assert begun.wait(600)
            raise KeyboardInterrupt

    monkeypatch.setattr(safetensors.torch, "save_file", slow)
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert steps(run) == ([10] if fails else [10, 20])
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == fails
    if fails:
        assert "step 20 was not saved" in messages[0]
        assert "No space left" in messages[0]
        assert "the last good checkpoint is step 10" in messages[0]


def test_leftovers_and_strange_names_are_not_checkpoints(run: Run):
    save(run, 10)
    for name in (".step-00000020.partial", "step-abc", "step-00000030.partial", "old"):
        folder = run.path / "checkpoints" / name
        shutil.copytree(run.path / "checkpoints" / "step-00000010", folder)
    assert steps(run) == [10]


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flip_a_bit(file: Path, place: int = -1, bit: int = 1) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= bit
    file.write_bytes(bytes(content))


def swap_with_the_one_before(file: Path) -> None:
    file.write_bytes((file.parents[1] / "step-00000010" / file.name).read_bytes())


OF_HEADER = partial(flip_a_bit, place=3, bit=64)
DAMAGES = [truncate, empty, flip_a_bit, OF_HEADER, Path.unlink, swap_with_the_one_before]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", ["last", "average:2"])
def test_damaged_weights_are_one_line_that_names_the_file(damage, which, run):
    save(run, 10)
    save(run, 20)
    damage(run.path / "checkpoints" / "step-00000020" / "model.safetensors")
    assert "step-00000020/model.safetensors" in message_of(run.select, which)
    assert run.select("10")[0]["w"].unique().tolist() == [10.0]


@pytest.mark.parametrize("count", [1, 2])
def test_a_checkpoint_that_is_deleted_after_it_was_chosen_is_one_line_that_says_so(count, run):
    for step in (10, 20):
        save(run, step)
    selection = run.selection(f"average:{count}")
    gone = run.path / "checkpoints" / "step-00000020"
    shutil.rmtree(gone)
    for load in (selection.load, selection.arrays):
        error = message_of(load)
        assert error == (
            f"{gone}: was deleted after it was chosen, probably by mtkit train, which keeps the "
            "newest checkpoints only (train.keep_checkpoints); start the command again to use "
            "those that exist now"
        )


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", truncate),
        ("model.safetensors", flip_a_bit),
        ("optimizer.safetensors", truncate),
        ("optimizer.safetensors", Path.unlink),
        ("state.json", empty),
    ],
)
def test_training_resumes_from_the_last_good_checkpoint_with_a_warning(
    name, damage, begun, tiny_run, tiny_data, caplog
):
    assert steps(tiny_run) == [2, 4]
    damage(begun / "checkpoints" / "step-00000004" / name)
    assert train.run(tiny_run.config, tiny_data, begun, device="cpu")
    (warning,) = [record for record in caplog.records if "00000004" in record.getMessage()]
    assert f"step-00000004/{name}" in warning.getMessage()
    # And arrives where it would have been.
    expected = tiny_run.checkpoints()[-1].load_weights()
    newest = Run.open(begun).checkpoints()[-1]
    assert newest.step == 4
    for tensor_name, tensor in newest.load_weights().items():
        assert torch.equal(tensor, expected[tensor_name])


def test_if_every_checkpoint_is_damaged_the_way_out_is_named(begun, tiny_config, tiny_data):
    for file in begun.rglob("model.safetensors"):
        truncate(file)
    with pytest.raises(MtkitError, match="--restart"):
        train.run(tiny_config, tiny_data, begun, device="cpu")
    assert train.run(tiny_config, tiny_data, begun, device="cpu", restart=True)


@pytest.mark.parametrize(("joint", "saved"), [(True, 0), (False, 0), (False, 1), (False, 2)])
def test_a_run_killed_while_it_is_created_can_be_begun_again(
    joint, saved, tiny_config, tiny_data, greek_data, tmp_path, monkeypatch
):
    folder, data = tmp_path / "run", tiny_data if joint else greek_data
    original, left = Path.write_bytes, saved

    def killed(self, content):
        nonlocal left
        if self.name.startswith("tokenizer"):
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
        return original(self, content)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", killed)
        if saved == 2:
            patch.setattr(run_folder, "write_record", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train.run(tiny_config, data, folder, device="cpu")
    assert len(list(folder.glob("tokenizer*"))) == saved
    assert train.run(tiny_config, data, folder, device="cpu")
