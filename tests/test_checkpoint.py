"""The run folder: what is saved comes back, and what was not saved whole never counts."""

import json
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import changed, reseal
from support.errors import message_of
from support.runs import new_run, remade, save, steps

from mtkit.base.errors import MtkitError
from mtkit.data import PreparedData
from mtkit.run_folder import Run, find_run
from mtkit.train import assembly as train
from mtkit.train.checkpoints import CheckpointWriter, prune
from mtkit.train.metrics import append_row, truncate_rows
from mtkit.train.trainer import Trainer
from mtkit.translate import Translator


def test_what_is_saved_comes_back_bit_for_bit(run: Run):
    torch.manual_seed(1)
    weights = {
        "layer.weight": torch.randn(5, 7),
        "layer.odd": torch.tensor([0.0, -0.0, 3e38, 1e-45]),
        "transposed": torch.randn(3, 4).t(),
        "double": torch.randn(2, dtype=torch.float64),
    }
    optimizer = {"layer.weight.exp_avg": torch.randn(5, 7), "layer.weight.step": torch.tensor(3.0)}
    state = {"batches": {"epoch": 1, "position": 2}, "valid_bleu": 12.5}
    run.save(7, weights=weights, optimizer=optimizer, state=state)
    (checkpoint,) = Run.open(run.path).checkpoints()
    assert checkpoint.step == 7
    assert checkpoint.load_state() == state
    both = (weights, checkpoint.load_weights()), (optimizer, checkpoint.load_optimizer())
    for saved, loaded in both:
        assert loaded.keys() == saved.keys()
        for name, tensor in saved.items():
            assert loaded[name].dtype == tensor.dtype
            assert loaded[name].shape == tensor.shape
            assert torch.equal(loaded[name], tensor)


def test_a_run_keeps_the_subwords_of_either_side_or_the_joint_ones_and_never_both(
    tmp_path, tiny_config, tiny_data, greek_data
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
        assert [src.model, tgt.model] == [tokenizer.model for tokenizer in data.tokenizers()]


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
        assert isinstance(json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]), dict)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_every_file_of_a_checkpoint_has_the_mode_that_the_users_mask_gives(mask, mode, run):
    before = os.umask(mask)
    try:
        save(run, 1)
    finally:
        os.umask(before)
    (saved,) = run.checkpoints()
    assert {stat.S_IMODE(path.stat().st_mode) for path in saved.path.iterdir()} == {mode}


def test_saving_a_step_again_replaces_it(run: Run):
    save(run, 5, 1.0)
    save(run, 5, 2.0)
    (saved,) = run.checkpoints()
    assert saved.load_weights()["w"].unique().tolist() == [2.0]


@pytest.mark.parametrize(
    ("which", "value", "words"),
    [
        ("last", 40.0, "step 40"),
        ("20", 20.0, "step 20"),
        ("00000010", 10.0, "step 10"),
        ("best", 30.0, "step 30"),
        ("average:1", 40.0, "step 40"),
        ("average:3", 30.0, "3 checkpoints, steps 20 to 40"),
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


def test_a_checkpoint_outside_the_schedule_is_averaged_only_while_it_is_the_newest(run: Run):
    def add(step, *, extra):
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
        ("-1", ("'-1'", "last, best, average:N")),
        ("", ("average:N",)),
    ],
)
def test_a_selection_that_cannot_be_made_is_one_line(which: str, words: tuple[str, ...], run: Run):
    save(run, 10)
    save(run, 20)
    error = message_of(run.select, which)
    for word in words:
        assert word in error


@pytest.mark.parametrize("which", [None, "last", "best", "average:1", "10"])
def test_a_run_without_checkpoint_says_so(which: str | None, run: Run):
    with pytest.raises(MtkitError, match="no checkpoint yet") as error:
        run.select(which)
    assert str(run.path) in str(error.value)


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
def test_a_changed_setting_that_may_not_change_is_refused_in_one_line(old, new, begun):
    change_config(begun, old, new)
    with pytest.raises(MtkitError, match=r"config\.yaml") as error:
        Translator.load(begun, device="cpu")
    assert str(begun) in str(error.value)


def test_settings_that_may_change_may_be_edited(begun: Path):
    change_config(begun, "beam_size: 4", "beam_size: 2")
    change_config(begun, "max_steps: 4", "max_steps: 5")
    run = Run.open(begun)
    assert (run.config.decode.beam_size, run.config.train.max_steps) == (2, 5)


@pytest.mark.parametrize("setting", ["seed", "label_smoothing"])
def test_a_checkpoint_of_another_run_is_not_used(
    setting, tiny_run, tiny_config, tiny_data, tmp_path
):
    config = changed(tiny_config, "train", **{setting: 0.5 if "label" in setting else 2})
    other = tmp_path / "other"
    train.run(config, tiny_data, other, device="cpu")
    expected = Run.open(other).select("last")[0]
    place = other / "checkpoints" / "step-00000004"
    shutil.rmtree(place)
    shutil.copytree(tiny_run.path / "checkpoints" / "step-00000004", place)
    with pytest.raises(MtkitError, match=r"step-00000004: belongs to another run"):
        Translator.load(other, device="cpu")
    # Training continues from its own checkpoint before that.
    train.run(config, tiny_data, other, device="cpu")
    weights = Run.open(other).select("last")[0]
    assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())


def test_a_setting_that_a_later_version_adds_has_its_default(begun: Path, tiny_run: Run):
    # As a version wrote it that did not know the setting.
    reseal(begun / "manifest.json", lambda it: it["settings"].pop("train.decay_steps"))
    assert Run.open(begun).config == tiny_run.config
    change_config(begun, "decay_steps: 0", "decay_steps: 3")
    with pytest.raises(MtkitError, match=r"train\.decay_steps was changed .* from 0 to 3"):
        Run.open(begun)


def test_a_run_whose_folder_was_moved_writes_nothing_into_another(
    tiny_config, tiny_data, tmp_path, monkeypatch
):
    original = Trainer.update

    def moved(self, *given):
        if self.step == 2:
            (tmp_path / "run").rename(tmp_path / "old")
            (tmp_path / "run").mkdir()
        return original(self, *given)

    save = CheckpointWriter.save

    def save_at_once(self, *arguments, **more):
        save(self, *arguments, **more)
        self.settle()

    monkeypatch.setattr(CheckpointWriter, "save", save_at_once)
    monkeypatch.setattr(Trainer, "update", moved)
    with pytest.raises(MtkitError, match="was moved or deleted while it was trained"):
        train.run(tiny_config, tiny_data, tmp_path / "run", device="cpu")
    assert not list((tmp_path / "run").glob("*"))
    assert steps(Run.open(tmp_path / "old")) == [2]


@pytest.mark.parametrize(
    ("key", "value"),
    [("encoder_layers", 900), ("decoder_layers", 2), ("d_model", 1 << 18), ("d_ff", 64)],
)
def test_weights_of_another_model_are_refused_in_one_line(key, value, tiny_run, tmp_path):
    config = changed(tiny_run.config, "model", **{key: value})
    run = remade(tiny_run, tmp_path / "run", config=config)
    with pytest.raises(MtkitError, match="do not fit config") as error:
        Translator.load(run.path, device="cpu")
    assert str(run.path) in str(error.value)


def test_a_file_in_the_place_of_a_checkpoint_is_refused_with_advice(begun: Path):
    run = Run.open(begun)
    *others, last = (checkpoint.path for checkpoint in run.checkpoints())
    shutil.rmtree(last)
    last.write_text("")
    with pytest.raises(MtkitError, match="use an earlier checkpoint") as error:
        run.select("last")
    # Where a checkpoint is chosen with other options, they are named too.
    assert "--checkpoint STEP, or --init-from RUN:STEP" in str(error.value)
    for path in others:
        shutil.rmtree(path)
    with pytest.raises(MtkitError, match="it is the only checkpoint: copy the folder again"):
        run.select("last")


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
def test_pruning_keeps_the_newest_every_nth_and_the_best(bleu, keep, every, left, run):
    run = replace(run, config=changed(run.config, "train", keep_checkpoints=keep, keep_every=every))
    for step, value in enumerate(bleu, start=1):
        save(run, step, bleu=value)
    prune(run)
    assert steps(run) == left


@pytest.mark.parametrize(("by", "step"), [("bleu", 2), ("chrf", 1), ("loss", 3)])
def test_the_best_checkpoint_is_so_by_the_score_that_was_chosen(by: str, step: int, run: Run):
    run = replace(run, config=changed(run.config, "train", best_metric=by))
    for number, (bleu, chrf, loss) in enumerate([(1, 9, 3), (5, 2, 3), (3, 3, 1)], start=1):
        state = {"valid_bleu": bleu, "valid_chrf": chrf, "valid_loss": loss}
        run.save(number, weights={"w": torch.ones(1)}, optimizer={}, state=state)
    assert run.best().step == step


def test_the_run_with_the_newest_checkpoint_is_found(tmp_path, tiny_config, tiny_data):
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


def test_a_run_translates_after_its_data_is_gone_and_it_was_moved(
    tmp_path, tiny_run, tiny_data, tiny_config
):
    data_path, run_path = tmp_path / "data", tmp_path / "run"
    shutil.copytree(tiny_data.path, data_path)
    train.run(tiny_config, PreparedData.open(data_path), run_path, device="cpu")
    lines = ["one two three", "nine"]
    before = list(Translator.load(run_path, device="cpu").translate(lines))
    shutil.rmtree(data_path)
    elsewhere = run_path.rename(tmp_path / "elsewhere")
    assert list(Translator.load(elsewhere, device="cpu").translate(lines)) == before


@pytest.mark.parametrize("cut", [b"}\n", b"25}\n", b', "loss": 2.25}\n'])
def test_a_row_that_was_cut_short_is_left_out_and_swept_away(cut: bytes, run: Run):
    append_row(run, "metrics.jsonl", {"step": 1, "loss": 2.5})
    append_row(run, "metrics.jsonl", {"step": 2, "loss": 2.25})
    file = run.path / "metrics.jsonl"
    content = file.read_bytes()
    assert content.endswith(cut)
    file.write_bytes(content.removesuffix(cut))
    assert run.metrics() == [{"step": 1, "loss": 2.5}]
    # A run that goes on, as the disk has room again, loses no other row.
    append_row(run, "metrics.jsonl", {"step": 3, "loss": 2.25})
    assert run.metrics() == [{"step": 1, "loss": 2.5}, {"step": 3, "loss": 2.25}]
    truncate_rows(run, 1)
    append_row(run, "metrics.jsonl", {"step": 2, "loss": 2.0})
    assert run.metrics() == [{"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.0}]
    assert file.read_bytes().count(b"\n") == 2
