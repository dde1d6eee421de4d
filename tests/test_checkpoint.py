"""The run folder: what is saved comes back, and what was not saved whole never counts."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import reseal

from mtkit import checkpoint, run_folder
from mtkit.base.errors import MtkitError
from mtkit.checkpoint import average
from mtkit.config import Config
from mtkit.data import PreparedData
from mtkit.run_folder import Run, find_run
from mtkit.run_manifest import DataOrigin, RunManifest
from mtkit.train import assembly as train
from mtkit.train.checkpoint_writer import CheckpointWriter
from mtkit.train.trainer import Trainer
from mtkit.translate import Translator


@pytest.fixture
def run(tmp_path: Path, tiny_config: Config, tiny_data: PreparedData) -> Run:
    """A run folder without checkpoints; its configuration averages the two newest."""
    return new_run(tmp_path / "runs" / "one", tiny_config, tiny_data)


def new_run(path: Path, config: Config, data: PreparedData) -> Run:
    manifest = RunManifest(data=DataOrigin(fingerprint=data.fingerprint, path=str(data.path)))
    return Run.create(path, config, data.tokenizers(), manifest=manifest)


def save(run: Run, step: int, value: float | None = None, *, bleu: float | None = None) -> None:
    """A checkpoint whose every weight is `value`, or the step."""
    value = float(step) if value is None else value
    state = {"batches": {"epoch": 0, "position": step}}
    run.save(
        step,
        weights={"w": torch.full((2, 3), value)},
        optimizer={"w.exp_avg": torch.full((2, 3), -value)},
        state=state if bleu is None else state | {"valid_bleu": bleu},
    )


def steps(run: Run) -> list[int]:
    return [saved.step for saved in run.checkpoints()]


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def one_line(error: pytest.ExceptionInfo[MtkitError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


# ---------------------------------------------------------------------------------------------
# Saving and loading


def test_what_is_saved_comes_back_bit_for_bit(run: Run):
    torch.manual_seed(1)
    weights = {
        "layer.weight": torch.randn(5, 7),
        "layer.odd": torch.tensor([0.0, -0.0, float("inf"), 1e-45]),
        "transposed": torch.randn(3, 4).t(),
        "double": torch.randn(2, dtype=torch.float64),
    }
    optimizer = {"layer.weight.exp_avg": torch.randn(5, 7), "layer.weight.step": torch.tensor(3.0)}
    state = {"batches": {"epoch": 1, "position": 2}, "valid_bleu": 12.5}
    run.save(7, weights=weights, optimizer=optimizer, state=state)
    (found,) = Run.open(run.path).checkpoints()
    assert found.step == 7
    assert found.load_state() == state
    for saved, loaded in (
        (weights, found.load_weights()),
        (optimizer, found.load_optimizer()),
    ):
        assert loaded.keys() == saved.keys()
        for name, tensor in saved.items():
            assert loaded[name].dtype == tensor.dtype
            assert loaded[name].shape == tensor.shape
            assert torch.equal(loaded[name], tensor)


def test_an_opened_run_is_the_one_that_was_created(run: Run, tiny_data: PreparedData):
    opened = Run.open(run.path)
    assert opened.config == run.config
    assert opened.manifest == run.manifest
    assert opened.name == "one"
    assert opened.data_fingerprint == tiny_data.fingerprint
    text = "one two three"
    for ours, theirs in zip(opened.tokenizers(), tiny_data.tokenizers(), strict=True):
        assert ours.encode(text) == theirs.encode(text)


def test_a_run_keeps_the_subwords_of_either_side_or_the_joint_ones_and_never_both(
    tmp_path: Path, tiny_config: Config, tiny_data: PreparedData, greek_data: PreparedData
):
    for data, names in [
        (tiny_data, {"tokenizer.model"}),
        (greek_data, {"tokenizer.src.model", "tokenizer.tgt.model"}),
        (tiny_data, {"tokenizer.model"}),
    ]:
        # In the place of the one before.
        new_run(tmp_path / "run", tiny_config, data)
        assert {path.name for path in (tmp_path / "run").glob("tokenizer*")} == names
        src, tgt = Run.open(tmp_path / "run").tokenizers()
        assert (src is tgt) == (len(names) == 1)
        assert [src.model, tgt.model] == [one.model for one in data.tokenizers()]


@pytest.mark.parametrize("name", ["tokenizer.src.model", "tokenizer.tgt.model"])
def test_subwords_of_one_side_that_are_gone_are_named(
    name: str, tmp_path: Path, tiny_config: Config, greek_data: PreparedData
):
    run = new_run(tmp_path / "run", tiny_config, greek_data)
    (run.path / name).unlink()
    with pytest.raises(MtkitError, match=f"/{name}: missing, or changed") as error:
        run.tokenizers()
    one_line(error)


def test_no_file_of_a_run_is_a_pickle(tiny_run: Run):
    kinds = {path.suffix for path in tiny_run.path.rglob("*") if path.is_file()}
    # The one without a suffix that is known here is TensorBoard's, protocol buffers.
    (board,) = (tiny_run.path / "tensorboard").iterdir()
    assert "tfevents" in board.name
    kinds.remove(board.suffix)
    assert kinds == {".safetensors", ".json", ".jsonl", ".yaml", ".model", ".html"}
    for path in tiny_run.path.rglob("*.safetensors"):
        # The format: eight bytes of length, then that many bytes of JSON.
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        assert isinstance(json.loads(content[8 : 8 + length]), dict)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_every_file_of_a_checkpoint_has_the_mode_that_the_users_mask_gives(
    mask: int, mode: int, run: Run
):
    before = os.umask(mask)
    try:
        save(run, 1)
    finally:
        os.umask(before)
    (saved,) = run.checkpoints()
    assert {stat.S_IMODE(path.stat().st_mode) for path in saved.path.iterdir()} == {mode}


def test_checkpoints_are_in_the_order_of_their_steps(run: Run):
    for step in (100, 9, 1_234_567_890, 20):
        save(run, step)
    assert steps(run) == [9, 20, 100, 1_234_567_890]


def test_saving_a_step_again_replaces_it(run: Run):
    save(run, 5, 1.0)
    save(run, 5, 2.0)
    (found,) = run.checkpoints()
    assert found.load_weights()["w"].unique().tolist() == [2.0]


# ---------------------------------------------------------------------------------------------
# Choosing weights


def test_the_average_is_the_mean_worked_by_hand():
    sets = [
        {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([[0.5]])},
        {"a": torch.tensor([3.0, -2.0]), "b": torch.tensor([[1.0]])},
        {"a": torch.tensor([5.0, 3.0]), "b": torch.tensor([[0.0]])},
    ]
    result = average([lambda one=one: one for one in sets])
    assert result["a"].tolist() == [3.0, 1.0]
    assert result["b"].tolist() == [[0.5]]
    assert result["a"].dtype == torch.float32


def test_averaging_loses_no_digits():
    # In float32, 1 + 2^-24 is 1: summed there, the small ones would vanish.
    small = 2.0**-24
    sets = [{"a": torch.tensor([value])} for value in (1.0, small, small, small)]
    result = average([lambda one=one: one for one in sets])
    expected = torch.tensor([(1.0 + 3 * small) / 4], dtype=torch.float64).float()
    assert torch.equal(result["a"], expected)


def test_averaging_leaves_what_it_averages_alone():
    one, two = torch.tensor([1.0], dtype=torch.float64), torch.tensor([3.0], dtype=torch.float64)
    average([lambda: {"a": one}, lambda: {"a": two}])
    assert (one.item(), two.item()) == (1.0, 3.0)


@pytest.mark.parametrize(
    ("which", "value", "words"),
    [
        ("last", 40.0, "step 40"),
        ("20", 20.0, "step 20"),
        ("00000010", 10.0, "step 10"),
        ("best", 30.0, "step 30"),
        ("average:1", 40.0, "step 40"),
        ("average:3", 30.0, "3 checkpoints, steps 20 to 40"),
        ("average:4", 25.0, "4 checkpoints, steps 10 to 40"),
        (None, 35.0, "2 checkpoints, steps 30 to 40"),
    ],
)
def test_weights_are_selected_by_name(which: str | None, value: float, words: str, run: Run):
    # 30 is the newest of the two best.
    for step, bleu in ((10, 5.0), (20, 9.0), (30, 9.0), (40, None)):
        save(run, step, bleu=bleu)
    weights, description = run.select(which)
    assert weights["w"].unique().tolist() == [value]
    assert words in description


def test_where_there_are_fewer_the_default_averages_what_there_is(run: Run):
    save(run, 10)
    assert run.select(None)[0]["w"].unique().tolist() == [10.0]


def test_a_checkpoint_outside_the_schedule_is_averaged_only_while_it_is_the_newest(run: Run):
    def add(step: int, *, extra: bool) -> float:
        run.save(
            step, weights={"w": torch.full((1,), float(step))}, optimizer={}, state={}, extra=extra
        )
        return run.select(None)[0]["w"].item()

    assert add(10, extra=True) == 10
    assert add(20, extra=False) == 20
    assert add(60, extra=True) == 40
    assert add(80, extra=False) == 50
    assert run.select("average:2")[0]["w"].item() == 50


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("15", ("10, 20",)),
        ("best", ("no checkpoint was validated",)),
        ("average:3", ("2 checkpoints",)),
        ("average:0", ("average:0",)),
        ("average:", ("average:N",)),
        ("newest", ("newest", "last, best, average:N")),
        ("-1", ("-1",)),
        ("", ("average:N",)),
    ],
)
def test_a_selection_that_cannot_be_made_is_one_line(which: str, words: tuple[str, ...], run: Run):
    save(run, 10)
    save(run, 20)
    with pytest.raises(MtkitError) as error:
        run.select(which)
    for word in words:
        assert word in one_line(error)


@pytest.mark.parametrize("which", [None, "last", "best", "average:1", "10"])
def test_a_run_without_checkpoint_says_so(which: str | None, run: Run):
    with pytest.raises(MtkitError, match="no checkpoint yet") as error:
        run.select(which)
    assert str(run.path) in one_line(error)


def change_config(folder: Path, old: str, new: str) -> None:
    text = (folder / "config.yaml").read_text()
    assert old in text
    (folder / "config.yaml").write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("n_heads: 2", "n_heads: 4"),
        ("encoder_layers: 1", "encoder_layers: 10000000"),
        ("label_smoothing: 0.1", "label_smoothing: 0.2"),
        ("seed: 1", "seed: 2"),
    ],
)
def test_a_changed_setting_that_may_not_change_is_refused_in_one_line(
    old: str, new: str, tiny_run: Run, tmp_path: Path
):
    folder = tmp_path / "run"
    shutil.copytree(tiny_run.path, folder)
    change_config(folder, old, new)
    with pytest.raises(MtkitError, match=r"config\.yaml") as error:
        Translator.load(folder, device="cpu")
    assert str(folder) in one_line(error)


def test_settings_that_may_change_may_be_edited(tiny_run: Run, tmp_path: Path):
    folder = tmp_path / "run"
    shutil.copytree(tiny_run.path, folder)
    change_config(folder, "beam_size: 4", "beam_size: 2")
    change_config(folder, "max_steps: 4", "max_steps: 5")
    run = Run.open(folder)
    assert (run.config.decode.beam_size, run.config.train.max_steps) == (2, 5)


@pytest.mark.parametrize("setting", ["seed", "label_smoothing"])
def test_a_checkpoint_of_another_run_is_not_used(
    setting: str, tiny_run: Run, tiny_config: Config, tiny_data: PreparedData, tmp_path: Path
):
    settings = tiny_config.train.model_copy(update={setting: 0.5 if "label" in setting else 2})
    config = tiny_config.model_copy(update={"train": settings})
    other = tmp_path / "other"
    train.run(config, tiny_data, other, device="cpu")
    expected = Run.open(other).select("last")[0]
    place = other / "checkpoints" / "step-00000004"
    shutil.rmtree(place)
    shutil.copytree(tiny_run.path / "checkpoints" / "step-00000004", place)
    with pytest.raises(MtkitError, match=r"step-00000004: belongs to another run") as error:
        Translator.load(other, device="cpu")
    one_line(error)
    # Training continues from its own checkpoint before that.
    train.run(config, tiny_data, other, device="cpu")
    found = Run.open(other).select("last")[0]
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_setting_that_a_later_version_adds_has_its_default(tiny_run: Run, tmp_path: Path):
    folder = tmp_path / "run"
    shutil.copytree(tiny_run.path, folder)
    # As a version wrote it that did not know the setting.
    reseal(folder / "manifest.json", lambda it: it["settings"].pop("train.decay_steps"))
    assert Run.open(folder).config == tiny_run.config
    change_config(folder, "decay_steps: 0", "decay_steps: 3")
    with pytest.raises(MtkitError, match=r"train\.decay_steps was changed .* from 0 to 3"):
        Run.open(folder)


def test_a_run_whose_folder_was_moved_writes_nothing_into_another(
    tiny_config: Config, tiny_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    original = Trainer.update

    def moved(self: Trainer, *given: Any) -> Any:
        if self.step == 2:
            (tmp_path / "run").rename(tmp_path / "old")
            (tmp_path / "run").mkdir()
        return original(self, *given)

    save = CheckpointWriter.save

    def save_at_once(self: CheckpointWriter, *arguments: Any, **more: Any) -> None:
        save(self, *arguments, **more)
        self.settle()

    monkeypatch.setattr(CheckpointWriter, "save", save_at_once)
    monkeypatch.setattr(Trainer, "update", moved)
    with pytest.raises(MtkitError, match="was moved or deleted while it was trained") as error:
        train.run(tiny_config, tiny_data, tmp_path / "run", device="cpu")
    one_line(error)
    assert not list((tmp_path / "run").glob("*"))
    assert steps(Run.open(tmp_path / "old")) == [2]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("encoder_layers", 900, "model.encoder_layers is 900, and the weights have 1"),
        ("decoder_layers", 2, "model.decoder_layers is 2, and the weights have 1"),
        ("d_model", 1 << 18, f"model.d_model is {1 << 18}, and the weights have 16"),
        ("d_ff", 64, "do not fit config.yaml"),
    ],
)
def test_weights_of_another_model_are_refused_in_one_line(
    key: str, value: int, words: str, tiny_run: Run, tmp_path: Path
):
    model = tiny_run.config.model.model_copy(update={key: value})
    config = tiny_run.config.model_copy(update={"model": model})
    run = Run.create(tmp_path / "run", config, tiny_run.tokenizers(), manifest=tiny_run.manifest)
    run.save(4, weights=tiny_run.select("last")[0], optimizer={}, state={})
    with pytest.raises(MtkitError, match="do not fit") as error:
        Translator.load(run.path, device="cpu")
    assert words in one_line(error)
    assert str(run.path) in one_line(error)


def test_a_file_in_the_place_of_a_checkpoint_is_refused_with_advice(tiny_run: Run, tmp_path: Path):
    shutil.copytree(tiny_run.path, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    last = run.checkpoints()[-1].path
    shutil.rmtree(last)
    last.write_text("")
    with pytest.raises(MtkitError, match="use an earlier checkpoint") as error:
        run.select("last")
    # Where a checkpoint is chosen with other options, they are named too.
    assert "--checkpoint STEP, or --init-from RUN:STEP" in one_line(error)


# ---------------------------------------------------------------------------------------------
# Keeping and finding


@pytest.mark.parametrize(
    ("bleu", "keep", "every", "left"),
    [
        ([None, None, None, None], 2, None, [3, 4]),
        ([1.0, 9.0, 2.0, 3.0], 1, None, [2, 4]),
        ([1.0, 2.0, 3.0, 9.0], 2, None, [3, 4]),
        ([9.0, 9.0, 1.0, 1.0], 1, None, [2, 4]),
        ([1.0, 2.0, 3.0, 4.0], 9, None, [1, 2, 3, 4]),
        ([9.0, 1.0, 1.0, 1.0, 1.0, 1.0], 1, 2, [1, 2, 4, 6]),
        ([None] * 7, 2, 3, [3, 6, 7]),
    ],
)
def test_pruning_keeps_the_newest_every_nth_and_the_best(
    bleu: list[float | None], keep: int, every: int | None, left: list[int], run: Run
):
    settings = run.config.train.model_copy(update={"keep_checkpoints": keep, "keep_every": every})
    run = run.with_config(run.config.model_copy(update={"train": settings}))
    for step, value in enumerate(bleu, start=1):
        save(run, step, bleu=value)
    run.prune()
    assert steps(run) == left


@pytest.mark.parametrize(("by", "step"), [("bleu", 2), ("chrf", 1), ("loss", 3)])
def test_the_best_checkpoint_is_so_by_the_score_that_was_chosen(by: str, step: int, run: Run):
    settings = run.config.train.model_copy(update={"best_metric": by})
    run = run.with_config(run.config.model_copy(update={"train": settings}))
    for number, (bleu, chrf, loss) in enumerate([(1, 9, 3), (5, 2, 3), (3, 3, 1)], start=1):
        state = {"valid_bleu": bleu, "valid_chrf": chrf, "valid_loss": loss}
        run.save(number, weights={"w": torch.ones(1)}, optimizer={}, state=state)
    best = run.best()
    assert best is not None
    assert best.step == step


def test_the_run_with_the_newest_checkpoint_is_found(
    tmp_path: Path, tiny_config: Config, tiny_data: PreparedData
):
    root = tmp_path / "runs"
    runs = {
        name: new_run(root / name, tiny_config, tiny_data) for name in ("a", "b", "c", ".hidden")
    }
    # b was saved last, though a has more steps and c was made last and has nothing yet.
    for second, (name, step) in enumerate([("a", 900), ("b", 10), (".hidden", 20)]):
        save(runs[name], step)
        state = runs[name].path / "checkpoints" / f"step-{step:08d}" / "state.json"
        os.utime(state, (1_000_000 + second, 1_000_000 + second))
    assert find_run(root).path == root / "b"


def test_finding_no_run_says_what_to_do(tmp_path: Path, run: Run):
    with pytest.raises(MtkitError, match="mtkit train"):
        find_run(tmp_path / "nowhere")
    with pytest.raises(MtkitError, match="no checkpoint yet"):
        find_run(run.path.parent)


def test_a_folder_that_is_not_a_run_is_named(tmp_path: Path):
    with pytest.raises(MtkitError, match="no such run folder"):
        Run.open(tmp_path / "nowhere")
    with pytest.raises(MtkitError, match="not a run folder"):
        Run.open(tmp_path)


def test_a_run_translates_after_its_data_is_gone_and_it_was_moved(
    tmp_path: Path, tiny_run: Run, tiny_data: PreparedData, tiny_config: Config
):
    data_path, run_path = tmp_path / "data", tmp_path / "run"
    shutil.copytree(tiny_data.path, data_path)
    train.run(tiny_config, PreparedData.open(data_path), run_path, device="cpu")
    lines = ["one two three", "nine"]
    before = list(Translator.load(run_path, device="cpu").translate(lines))
    shutil.rmtree(data_path)
    elsewhere = run_path.rename(tmp_path / "elsewhere")
    assert list(Translator.load(elsewhere, device="cpu").translate(lines)) == before


# ---------------------------------------------------------------------------------------------
# Crashes


def fail_renaming(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    patch.setattr(os, "rename", refuse)
    patch.setattr(Path, "rename", refuse)


def fail_syncing(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    def refuse(_: int) -> None:
        raise error

    patch.setattr(os, "fsync", refuse)


def fail_writing_tensors(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    def refuse(tensors: object, path: Path) -> None:
        path.write_bytes(b"\x08")  # some of it got there
        raise error

    patch.setattr(checkpoint, "save_file", refuse)


@pytest.mark.parametrize("fail", [fail_renaming, fail_syncing, fail_writing_tensors])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_save_that_fails_leaves_the_older_checkpoints_as_they_were(
    fail: Callable[[pytest.MonkeyPatch, BaseException], None],
    error: BaseException,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
):
    save(run, 10)
    before = files(run.path)
    expected = MtkitError if isinstance(error, OSError) else KeyboardInterrupt
    with monkeypatch.context() as patch:
        fail(patch, error)
        with pytest.raises(expected) as caught:
            save(run, 20)
    if expected is MtkitError:
        assert "No space left" in one_line(caught)
        assert "step-00000020" in str(caught.value)
    assert files(run.path) == before
    save(run, 20)
    assert steps(run) == [10, 20]


def test_a_process_killed_while_saving_leaves_the_older_checkpoints(run: Run):
    save(run, 10)
    before = files(run.path)
    # The process dies at the last moment before the rename, without any cleaning up.
    code = f"""
import os, pathlib, torch
from mtkit.run_folder import Run
pathlib.Path.rename = os.rename = lambda *_: os._exit(9)
run = Run.open(pathlib.Path({str(run.path)!r}))
run.save(20, weights={{"w": torch.zeros(9)}}, optimizer={{}}, state={{}})
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert done.returncode == 9
    after = files(run.path)
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
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    run = run.with_config(
        run.config.model_copy(
            update={"train": run.config.train.model_copy(update={"keep_checkpoints": 1})}
        )
    )
    original = shutil.rmtree

    def rmtree(path: Path, ignore_errors: bool = False) -> None:
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


def test_a_prune_that_is_killed_leaves_no_half_of_a_checkpoint(
    run: Run, monkeypatch: pytest.MonkeyPatch
):
    for step in (10, 20, 30, 40, 50, 60):
        save(run, step)
    with monkeypatch.context() as patch:

        def killed(path: Path, *_: object) -> None:
            (path / "model.safetensors").unlink()
            raise KeyboardInterrupt

        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            run.prune()
    for saved in run.checkpoints():
        saved.load_weights()
    save(run, 70)
    assert not list((run.path / "checkpoints").glob(".*"))


@pytest.mark.parametrize("fails", [False, True])
def test_a_running_save_is_always_waited_for(
    fails: bool, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    save(run, 10)
    begun = threading.Event()
    original = checkpoint.save_file

    def slow(tensors: Any, path: Path) -> None:
        begun.set()
        time.sleep(0.1)
        if fails:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        original(tensors, path)

    def interrupted() -> None:
        with CheckpointWriter(run) as writer:
            writer.save(20, weights={"w": torch.ones(1)}, optimizer={}, state={})
            assert begun.wait(10)
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save_file", slow)
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


# ---------------------------------------------------------------------------------------------
# Damage


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flip_the_last_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))


def flip_a_bit_of_the_header(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[3] ^= 64
    file.write_bytes(bytes(content))


def delete(file: Path) -> None:
    file.unlink()


DAMAGES = [truncate, empty, flip_the_last_bit, flip_a_bit_of_the_header, delete]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", ["last", "average:2"])
def test_damaged_weights_are_one_line_that_names_the_file(
    damage: Callable[[Path], None], which: str, run: Run
):
    save(run, 10)
    save(run, 20)
    damage(run.path / "checkpoints" / "step-00000020" / "model.safetensors")
    with pytest.raises(MtkitError) as error:
        run.select(which)
    assert "step-00000020/model.safetensors" in one_line(error)
    assert run.select("10")[0]["w"].unique().tolist() == [10.0]


@pytest.mark.parametrize("damage", [truncate, empty, delete])
def test_a_damaged_state_is_one_line_that_names_the_file(damage: Callable[[Path], None], run: Run):
    save(run, 10)
    damage_place = run.path / "checkpoints" / "step-00000010" / "state.json"
    damage(damage_place)
    if damage is truncate:  # the last byte is only a newline
        truncate(damage_place)
    with pytest.raises(MtkitError, match=r"step-00000010/state\.json") as error:
        run.select("last")
    one_line(error)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", truncate),
        ("model.safetensors", flip_the_last_bit),
        ("optimizer.safetensors", truncate),
        ("optimizer.safetensors", delete),
        ("state.json", empty),
    ],
)
def test_training_resumes_from_the_last_good_checkpoint_with_a_warning(
    name: str,
    damage: Callable[[Path], None],
    tiny_run: Run,
    tiny_config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
):
    folder = tmp_path / "run"
    shutil.copytree(tiny_run.path, folder)
    assert steps(tiny_run) == [2, 4]
    damage(folder / "checkpoints" / "step-00000004" / name)
    assert train.run(tiny_config, tiny_data, folder, device="cpu")
    (warning,) = [record for record in caplog.records if "00000004" in record.getMessage()]
    assert f"step-00000004/{name}" in warning.getMessage()
    # And arrives where it would have been.
    expected = tiny_run.checkpoints()[-1].load_weights()
    found = Run.open(folder).checkpoints()[-1]
    assert found.step == 4
    for tensor_name, tensor in found.load_weights().items():
        assert torch.equal(tensor, expected[tensor_name])


@pytest.mark.parametrize("name", ["model.safetensors", "state.json"])
def test_a_damaged_old_checkpoint_does_not_stop_a_run(
    name: str, tiny_run: Run, tiny_config: Config, tiny_data: PreparedData, tmp_path: Path
):
    folder = tmp_path / "run"
    shutil.copytree(tiny_run.path, folder)
    empty(folder / "checkpoints" / "step-00000002" / name)
    longer = tiny_config.model_copy(
        update={"train": tiny_config.train.model_copy(update={"max_steps": 6})}
    )
    assert train.run(longer, tiny_data, folder, device="cpu")
    assert steps(Run.open(folder))[-1] == 6


def test_if_every_checkpoint_is_damaged_the_way_out_is_named(
    tiny_run: Run, tiny_config: Config, tiny_data: PreparedData, tmp_path: Path
):
    folder = tmp_path / "run"
    shutil.copytree(tiny_run.path, folder)
    for file in folder.rglob("model.safetensors"):
        truncate(file)
    with pytest.raises(MtkitError, match="--restart") as error:
        train.run(tiny_config, tiny_data, folder, device="cpu")
    one_line(error)
    assert train.run(tiny_config, tiny_data, folder, device="cpu", restart=True)


@pytest.mark.parametrize(("joint", "saved"), [(True, 0), (False, 0), (False, 1), (False, 2)])
def test_a_run_killed_while_it_is_created_can_be_begun_again(
    joint: bool,
    saved: int,
    tiny_config: Config,
    tiny_data: PreparedData,
    greek_data: PreparedData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    folder, data = tmp_path / "run", tiny_data if joint else greek_data
    original, left = Path.write_bytes, saved

    def killed(self: Path, content: bytes) -> int:
        nonlocal left
        if self.name.startswith("tokenizer"):
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
        return original(self, content)

    def killed_in_the_end(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", killed)
        if saved == 2:
            patch.setattr(run_folder, "write_record", killed_in_the_end)
        with pytest.raises(KeyboardInterrupt):
            train.run(tiny_config, data, folder, device="cpu")
    assert len(list(folder.glob("tokenizer*"))) == saved
    assert train.run(tiny_config, data, folder, device="cpu")


# ---------------------------------------------------------------------------------------------
# Metrics


def test_rows_of_metrics_come_back_in_order(run: Run):
    rows = [{"step": 1, "loss": 2.5}, {"step": 1, "valid_bleu": 0.0}, {"step": 2, "loss": 1.25}]
    for row in rows:
        run.log(row)
    assert run.metrics() == rows


@pytest.mark.parametrize("cut", [b"}\n", b"25}\n", b', "loss": 2.25}\n'])
def test_a_row_that_was_cut_short_is_left_out_and_swept_away(cut: bytes, run: Run):
    run.log({"step": 1, "loss": 2.5})
    run.log({"step": 2, "loss": 2.25})
    file = run.path / "metrics.jsonl"
    content = file.read_bytes()
    assert content.endswith(cut)
    file.write_bytes(content.removesuffix(cut))
    assert run.metrics() == [{"step": 1, "loss": 2.5}]
    # A run that goes on, as the disk has room again, loses no other row.
    run.log({"step": 3, "loss": 2.25})
    assert run.metrics() == [{"step": 1, "loss": 2.5}, {"step": 3, "loss": 2.25}]
    run.truncate_metrics(1)
    run.log({"step": 2, "loss": 2.0})
    assert run.metrics() == [{"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.0}]
    assert file.read_bytes().count(b"\n") == 2


def test_metrics_have_no_step_twice_after_a_resume(
    tiny_run: Run, tiny_config: Config, tiny_data: PreparedData, tmp_path: Path
):
    folder = tmp_path / "run"
    shutil.copytree(tiny_run.path, folder)
    # As if it had been killed after the rows of step 4 and before its checkpoint.
    shutil.rmtree(folder / "checkpoints" / "step-00000004")
    assert train.run(tiny_config, tiny_data, folder, device="cpu")
    rows = Run.open(folder).metrics()
    assert [row["step"] for row in rows if "loss" in row] == [2, 4]
    assert [row["step"] for row in rows if "valid_loss" in row] == [4]
