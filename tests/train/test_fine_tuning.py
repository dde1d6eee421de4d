"""Fine-tuning: other initial weights, and training only a part of the weights."""

import re
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import changed, random_run, slow
from support.runs import contents, remade
from support.training import (
    assert_equal_tensors,
    before_update,
    interrupt,
    kill,
    last_weights,
    rows_of,
)
from torch import Tensor

from mtkit.base.errors import MtkitError
from mtkit.base.yaml import dump_yaml
from mtkit.config import load_config, parse_config
from mtkit.run_folder import Run
from mtkit.run_manifest import ImportRecord
from mtkit.train import assembly as train
from mtkit.train import dry_run, start
from mtkit.train.start import Initial, split_checkpoint

LORA = {"lora_rank": 4}
FROZEN = {"freeze": ("embedding", "encoder.*.self_attention.*")}
MEAN = {"ema": 0.9}
MUON = {"optimizer": "muon"}
# The parts of training are each in one of the mixtures, which any change needs.
PARTS: list[Any] = [
    *map(slow, (LORA, FROZEN, MEAN, MUON)),
    slow({**LORA, **MEAN}),
    {**FROZEN, **MEAN, **MUON},
    slow({**LORA, **MUON}),
]


def test_it_starts_from_the_weights_that_translate_which_a_rate_of_zero_leaves(tunings, tiny_run):
    tunings.run("r", init_from=str(tiny_run.path), learning_rate=0.0)
    assert_equal_tensors(last_weights(tunings.folder / "r"), tiny_run.select(None)[0])
    begun = tunings.open("r").manifest.started_from
    assert begun.weights == "the average of 2 checkpoints, steps 2 to 4"
    assert begun.run == tiny_run.name
    assert len(begun.sha256) == 64


def test_the_model_and_the_vocabulary_come_from_the_run(tunings, tiny_run):
    tunings.tune("r")
    made = tunings.open("r")
    assert made.config.model == tiny_run.config.model
    assert made.tokenizers().is_same(tiny_run.tokenizers())
    # And the optimizer is fresh: the steps count from 1, with the rates of the new schedule.
    assert tunings.rows("r", "lr")[:3] == [(1, 5e-4), (2, 1e-3), (3, 1e-3)]


def test_dropout_may_differ_and_other_settings_of_the_model_may_not(tunings, fine, tiny_run):
    tree = fine.model_dump() | {"model": {"dropout": 0.3, "d_model": 16}}
    tunings.tune("r", config=parse_config(tree, origin="test"))
    expected = tiny_run.config.model.model_copy(update={"dropout": 0.3})
    assert tunings.open("r").config.model == expected
    for key, value, theirs in (("d_model", 32, 16), ("norm", "pre", "post")):
        other = parse_config(fine.model_dump() | {"model": {key: value}}, origin="test")
        with pytest.raises(MtkitError, match=f"model.{key}: {value} contradicts .* is {theirs}"):
            tunings.tune("other", config=other)
    assert not (tunings.folder / "other").exists()


def test_it_translates_as_its_base_where_nothing_else_is_given(fine, tiny_data, tiny_run, trained):
    path = trained.folder / "runs" / "tiny" / "config.yaml"
    tree = tiny_run.config.model_dump()
    tree["decode"] |= {"length_penalty": 1.5, "beam_size": 2, "average_checkpoints": 2}
    path.write_text(dump_yaml(tree))
    tree = fine.model_dump() | {"model": {}, "decode": {"beam_size": 3}}
    config = parse_config(tree, origin="test")
    train.run(config, tiny_data, trained.folder / "r", device="cpu", init_from=str(path.parent))
    decode = Run.open(trained.folder / "r").config.decode
    # The default of averaging stays: it fits the training, not the weights.
    assert (decode.length_penalty, decode.beam_size, decode.average_checkpoints) == (1.5, 3, 5)


@pytest.mark.parametrize(
    ("given", "of_run", "message"),
    [
        ("decode.max_length=5", ["decode.min_length=10"], "max_length: 5 is less than min_length"),
        ("decode.sample=false", ["decode.sample=true", "decode.top_k=10"], "top_k: 10 requires "),
        ("train.guided_layer=6", ["model.decoder_layers=3"], "guided_layer: 6, but model.dec"),
    ],
)
def test_settings_that_do_not_fit_those_of_the_run_are_refused_in_one_line(given, of_run, message):
    config = load_config("fine-tune", [given])
    with pytest.raises(MtkitError, match=rf"^with the settings of runs/x: \w+\.{message}"):
        config.for_weights_of(load_config("base", of_run), origin="runs/x")


def test_other_data_goes_on_from_the_weights_if_it_has_the_same_subwords(tunings, greek_data):
    with pytest.raises(MtkitError, match=r"prepare it with --tokenizer-from "):
        tunings.tune("r", data=greek_data)
    assert not (tunings.folder / "r").exists()


def test_a_parser_does_not_start_from_a_translation_model(tunings, tree_data):
    with pytest.raises(MtkitError, match=r"its task is translation, and that of .* is parsing"):
        tunings.tune("r", data=tree_data, best_metric="f1")


@pytest.mark.parametrize(
    ("languages", "warned"),
    [
        (("de", "en"), True),
        (("en", "fr"), True),
        (("en", "de"), False),
        (("EN_gb", "de-AT"), False),
        # An imported model may not say its languages.
        (("", ""), False),
    ],
)
def test_data_of_other_languages_than_those_of_the_run_is_trained_on_with_a_warning(
    languages, warned, tunings, tiny_run, caplog
):
    src, tgt = languages
    data = tiny_run.manifest.data.model_copy(update={"src_lang": src, "tgt_lang": tgt})
    base = remade(tiny_run, tunings.folder / "base", data=data)
    tunings.tune("r", base=base, max_steps=1)
    text = f"{base.path} was trained on data without en to de; "
    assert [text in line for line in caplog.messages].count(True) == int(warned)
    caplog.clear()
    # It is said at the start, and not when the run continues.
    tunings.tune("r", base=base, max_steps=2)
    assert text not in caplog.text


def test_fine_tuning_with_the_rates_of_the_paper_is_warned_of(tunings, tiny_run, caplog):
    by_paper = {"schedule": "paper", "learning_rate": None, "max_steps": 1}
    for settings, count in ((by_paper, 2), ({"max_steps": 1}, 0)):
        caplog.clear()
        config = changed(tunings.config, "train", **settings)
        dry_run.forecast(config, tunings.data, device="cpu", init_from=str(tiny_run.path))
        tunings.tune(str(count), config=config)
        warned = [line for line in caplog.messages if line.startswith("train.schedule: ")]
        assert len(warned) == count
        assert all("random weights; to fine-tune, use --config fine-tu" in line for line in warned)


@pytest.mark.parametrize("part", [{}, *PARTS])
def test_a_seed_gives_the_same_bytes_and_so_do_stopping_and_resuming(part, tunings, tiny_run):
    tunings.change("train", **part)
    tunings.tune("whole")
    tunings.tune("again")
    tunings.assert_same("whole", "again")
    tunings.stopped("stopped", 3, interrupt, base=tiny_run)
    assert tunings.steps("stopped")[-1] == 3
    tunings.tune("stopped")
    tunings.assert_same("whole", "stopped")
    trained, base = last_weights(tunings.folder / "whole"), last_weights(tiny_run.path)
    assert any(not torch.equal(base[name], trained[name]) for name in base)


def test_the_licence_of_an_imported_model_is_kept_over_generations(tunings, tiny_run):
    record = ImportRecord(source="x", commit="", licence="cc-by-4.0", citations=[], subwords=None)
    tunings.tune("child", base=remade(tiny_run, tunings.folder / "base", imported=record))
    tunings.tune("grandchild", base=tunings.open("child"))
    for name in ("child", "grandchild"):
        begun = tunings.open(name).manifest.started_from
        assert begun.licence == "cc-by-4.0"


@pytest.fixture
def whole(tunings) -> Path:
    """A run that was fine-tuned without a stop."""
    tunings.tune("whole")
    return tunings.folder / "whole"


@pytest.fixture
def base(tiny_run, tmp_path) -> Path:
    """A copy of the run that was fine-tuned, which a test may change."""
    return Path(shutil.copytree(tiny_run.path, tmp_path / "base"))


@pytest.fixture
def stopped(base, tunings) -> Path:
    """A run that was started from `base` and stopped before its third update."""
    tunings.stopped("stopped", 3, interrupt, base=Run.open(base))
    return tunings.folder / "stopped"


def test_the_first_validation_is_of_the_weights_to_start_from(stopped, tunings, tiny_run):
    # Also if the run is begun twice, or resumed.
    tunings.stopped("killed", 2, kill, base=tiny_run)
    tunings.tune("killed")
    tunings.run("stopped")
    for key in ("valid_loss", "valid_bleu"):
        before = rows_of(tiny_run.path, key)[-1][1]
        for run in ("stopped", "killed"):
            rows = tunings.rows(run, key)
            assert rows[0] == (0, before)
            assert [step for step, _ in rows].count(0) == 1
    assert rows_of(tiny_run.path, "valid_loss")[0][0] > 0


def test_the_page_says_what_a_run_started_from_and_how_much_is_trained(pages, tunings, tiny_run):
    tunings.tune("all")
    everything = pages[-1].summary
    base = last_weights(tiny_run.path)
    count = sum(tensor.numel() for tensor in base.values())
    assert everything["Started from"] == f"step 4 of {tiny_run.name}"
    assert everything["Parameters"] == f"{count:,}"
    assert "Trained parameters" not in everything
    tunings.tune("some", freeze=("embedding",), max_steps=2)
    assert pages[-1].summary["Parameters"] == f"{count:,}"
    trained = count - base["embedding.weight"].numel()
    assert pages[-1].summary["Trained parameters"] == f"{trained:,}"
    # Also after a stop, when the old run need not be there any more.
    tunings.run("some", freeze=("embedding",), max_steps=4)
    assert pages[-1].summary["Started from"] == everything["Started from"]


def test_the_weights_to_start_from_are_never_the_best_checkpoint(pages, tunings):
    # So fast that the model forgets everything.
    tunings.tune("run", learning_rate=0.5, best_metric="loss", patience=1)
    assert min(tunings.rows("run", "valid_loss"), key=lambda row: row[1])[0] == 0
    best = tunings.open("run").best()
    assert best.step > 0
    assert pages[-1].best_step == best.step


@pytest.mark.parametrize("is_named", [slow(False), True])
def test_a_run_resumes_although_its_base_was_deleted(is_named, whole, stopped, base, tunings):
    shutil.rmtree(base)
    tunings.run("stopped", init_from=f"{base}:last" if is_named else None)
    tunings.assert_same("whole", "stopped")


@pytest.mark.parametrize("is_deleted", [True, slow(False)])
def test_restarted_workers_continue_whatever_the_run_that_they_started_from_has_become(
    is_deleted, whole, base, tunings, monkeypatch
):
    monkeypatch.setenv("MTKIT_LAUNCH", "this launch")
    tunings.stopped("r", 3, interrupt, base=Run.open(base), restart=True)
    if is_deleted:
        shutil.rmtree(base)
    else:
        Run.open(base).save(99, weights=last_weights(whole), optimizer=None, state={})
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    tunings.run("r", init_from=f"{base}:last", restart=True)
    tunings.assert_same("whole", "r")


def test_the_initial_weights_do_not_stay_in_memory(tunings, monkeypatch):
    original = start.initial_weights
    held: list[weakref.ref[Tensor]] = []

    def load(*given: Any) -> Initial:
        initial = original(*given)
        held.extend(map(weakref.ref, initial.weights.values()))
        return initial

    monkeypatch.setattr(start, "initial_weights", load)
    alive: list[int] = []
    before_update(monkeypatch, 2, lambda: alive.append(sum(ref() is not None for ref in held)))
    tunings.tune("r")
    assert held
    assert alive == [0]


def test_without_its_initial_weights_a_run_is_not_restarted_and_stays(whole, tunings):
    before = contents(whole)
    with pytest.raises(MtkitError, match=r"was started from other weights; give --init-from .*"):
        tunings.run("whole", restart=True)
    assert contents(whole) == before


def test_a_low_rank_change_of_random_weights_is_refused(trainings):
    with pytest.raises(MtkitError, match=r"^train\.lora_rank: .* give --init-from RUN$"):
        trainings.run("r", **LORA)
    assert not (trainings.folder / "r").exists()


def test_the_preset_for_fine_tuning_needs_a_run(trained):
    before = contents(trained.folder / "runs" / "tiny")
    (trained.folder / "empty").mkdir()
    existing = ["--run", "runs/tiny", "--restart"]
    for more in (["--run", "r"], ["--run", "empty"], ["--dry-run"], existing):
        out = trained.mtkit("train", "--config", "fine-tune", *more)
        assert out.status == 2
        assert "the preset fine-tune trains a run further; give --init-from RUN" in out.err
    assert not (trained.folder / "r").exists()
    assert not list((trained.folder / "empty").iterdir())
    assert contents(trained.folder / "runs" / "tiny") == before


def test_a_run_whose_base_was_trained_on_resumes_unnamed(whole, stopped, base, tunings, tiny_run):
    tunings.run("base", config=tiny_run.config, max_steps=6)
    with pytest.raises(MtkitError, match="; to continue it, leave out --init-from; else give"):
        tunings.tune("stopped", base=Run.open(base))
    tunings.run("stopped")
    tunings.assert_same("whole", "stopped")


def test_a_run_is_not_continued_with_other_initial_weights(tunings, tiny_run):
    other = random_run(tunings.folder / "other", tunings.data, 7, config=tiny_run.config)
    tunings.tune("r")
    with pytest.raises(MtkitError, match=r"not started from step 1 of .*other, but from step 4 of"):
        tunings.tune("r", base=other)
    shutil.copytree(tiny_run.path, tunings.folder / "random")
    with pytest.raises(MtkitError, match=r"not started from step 1 .*, but from random weights"):
        tunings.tune("random", config=tiny_run.config, base=other)


def test_a_run_without_checkpoints_needs_its_initial_weights_again(whole, tunings, tiny_run):
    tunings.stopped("killed", 2, kill, base=tiny_run)
    with pytest.raises(MtkitError, match=r"yet; give --init-from again, for step 4 of .*, or"):
        tunings.run("killed")
    with pytest.raises(MtkitError, match=r"but from step 4 of .*; to begin it again, give --init"):
        tunings.run("killed", init_from=f"{tiny_run.path}:2")
    tunings.tune("killed")
    tunings.assert_same("whole", "killed")


@pytest.mark.parametrize("restart", [False, True])
def test_a_run_does_not_start_from_itself_and_keeps_its_checkpoints(tunings, begun, restart):
    before = contents(begun)
    with pytest.raises(MtkitError, match="a run cannot start from itself; give another --run"):
        tunings.tune("begun", base=Run.open(begun), restart=restart)
    assert contents(begun) == before


@pytest.mark.parametrize(
    ("text", "run", "which"),
    [
        ("runs/a", "runs/a", None),
        ("runs/a:best", "runs/a", "best"),
        ("runs/a:1500", "runs/a", "1500"),
        ("runs/a:average:3", "runs/a", "average:3"),
        ("C:/runs/a", "C:/runs/a", None),
        ("a:b:best", "a:b", "best"),
    ],
)
def test_a_checkpoint_is_named_behind_a_colon(text, run, which):
    assert split_checkpoint(text) == (Path(run), which)


def test_a_folder_with_a_colon_in_its_name_is_the_run(tmp_path):
    (tmp_path / "a:best").mkdir()
    assert split_checkpoint(f"{tmp_path}/a:best") == (tmp_path / "a:best", None)
    assert split_checkpoint(f"{tmp_path}/a:best:last") == (tmp_path / "a:best", "last")


def test_the_command_starts_from_a_run_and_says_so(trained, tmp_path, fine, tiny_run):
    config = tmp_path / "fine.yaml"
    config.write_text(dump_yaml({**fine.model_dump(), "model": {}}))
    out = trained.mtkit("train", "--config", config, "--init-from", "runs/tiny:best")
    assert out.status == 0
    assert re.search("starting from step 4, the best.* of runs/tiny$", out.err, re.MULTILINE)
    out = trained.mtkit("train", "--config", config, "--init-from", "runs/tiny", "--dry-run")
    assert "# start: the average of 2 checkpoints, steps 2 to 4 of runs/tiny\n" in out.out
    assert "d_model: 16" in out.out
    for wrong, message in (
        ("runs/tiny:average:9", "runs/tiny: average:9: the run has 2 checkpoints to average"),
        ("runs/none", "runs/none: there is no such run folder; mtkit train makes one"),
        ("runs/tiny:77", "runs/tiny: has no checkpoint of step 77, only of 2, 4"),
    ):
        out = trained.mtkit("train", "--config", config, "--init-from", wrong, "--run", "r")
        assert (out.status, out.err.splitlines()[-1]) == (1, f"mtkit: error: {message}")
        assert not (trained.folder / "r").exists()
