"""Fine-tuning: other initial weights, and training only a part of the weights."""

from __future__ import annotations

import re
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import changed, random_run
from support.command_line import Place
from support.runs import contents
from support.training import (
    assert_same_state,
    before_update,
    interrupt,
    kill,
    last_weights,
    rows_of,
    tune,
)
from torch import Tensor

from mtkit.base.errors import MtkitError
from mtkit.base.yaml import dump_yaml
from mtkit.config import Config, load_config, parse_config
from mtkit.data import PreparedData
from mtkit.run_folder import Run
from mtkit.run_manifest import ImportRecord
from mtkit.train import assembly as train
from mtkit.train import dry_run, start
from mtkit.train.report_page import RunFacts
from mtkit.train.start import Initial, split_checkpoint

LORA = {"lora_rank": 4}
FROZEN = {"freeze": ("embedding", "encoder.*.self_attention.*")}
MEAN = {"ema": 0.9}
MUON = {"optimizer": "muon"}
PARTS: list[dict[str, Any]] = [
    LORA,
    FROZEN,
    MEAN,
    MUON,
    {**LORA, **MEAN},
    {**FROZEN, **MEAN, **MUON},
    {**LORA, **MUON},
]


# ---------------------------------------------------------------------------------------------
# Initial weights


def test_a_rate_of_zero_leaves_the_initial_weights_as_they_are_to_the_last_bit(
    fine: Config, tiny_data: PreparedData, tiny_run: Run, tmp_path: Path
):
    tune(changed(fine, "train", learning_rate=0.0), tiny_data, tmp_path / "same", tiny_run)
    base, same = last_weights(tiny_run.path), last_weights(tmp_path / "same")
    assert base.keys() == same.keys()
    assert all(torch.equal(base[name], same[name]) for name in base)


def test_by_default_it_starts_from_the_weights_that_translate(
    fine: Config, tiny_data: PreparedData, tiny_run: Run, tmp_path: Path
):
    config = changed(fine, "train", learning_rate=0.0)
    train.run(config, tiny_data, tmp_path / "r", device="cpu", init_from=str(tiny_run.path))
    expected, _ = tiny_run.select(None)
    found = last_weights(tmp_path / "r")
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    begun = Run.open(tmp_path / "r").manifest.started_from
    assert begun is not None
    assert begun.weights == "the average of 2 checkpoints, steps 2 to 4"
    assert begun.run == tiny_run.name
    assert len(begun.sha256) == 64


def test_the_model_and_the_vocabulary_come_from_the_run(
    fine: Config, tiny_data: PreparedData, tiny_run: Run, tmp_path: Path
):
    tune(fine, tiny_data, tmp_path / "r", tiny_run)
    made = Run.open(tmp_path / "r")
    assert made.config.model == tiny_run.config.model
    assert made.tokenizers().is_same(tiny_run.tokenizers())
    # And the optimizer is fresh: the steps count from 1, with the rates of the new schedule.
    assert rows_of(tmp_path / "r", "lr")[:3] == [(1, 5e-4), (2, 1e-3), (3, 1e-3)]


def test_dropout_may_differ_and_other_settings_of_the_model_may_not(
    fine: Config, tiny_data: PreparedData, tiny_run: Run, tmp_path: Path
):
    tree = fine.model_dump() | {"model": {"dropout": 0.3, "d_model": 16}}
    config = parse_config(tree, origin="test")
    tune(config, tiny_data, tmp_path / "r", tiny_run)
    expected = tiny_run.config.model.model_copy(update={"dropout": 0.3})
    assert Run.open(tmp_path / "r").config.model == expected
    for key, value, theirs in (("d_model", 32, 16), ("norm", "pre", "post")):
        other = parse_config(fine.model_dump() | {"model": {key: value}}, origin="test")
        with pytest.raises(MtkitError, match=f"model.{key}: {value} contradicts .* is {theirs}"):
            tune(other, tiny_data, tmp_path / "other", tiny_run)
    assert not (tmp_path / "other").exists()


def test_it_translates_as_the_run_that_it_starts_from_where_nothing_else_is_given(
    fine: Config, tiny_data: PreparedData, tiny_run: Run, trained: Place
):
    path = trained.folder / "runs" / "tiny" / "config.yaml"
    tree = tiny_run.config.model_dump()
    tree["decode"] |= {"length_penalty": 1.5, "beam_size": 2, "average_checkpoints": 2}
    path.write_text(dump_yaml(tree))
    tree = fine.model_dump() | {"model": {}, "decode": {"beam_size": 3}}
    train.run(
        parse_config(tree, origin="test"),
        tiny_data,
        trained.folder / "r",
        device="cpu",
        init_from=str(path.parent),
    )
    decode = Run.open(trained.folder / "r").config.decode
    # The default of averaging stays: it fits the training, not the weights.
    assert (decode.length_penalty, decode.beam_size, decode.average_checkpoints) == (1.5, 3, 5)


@pytest.mark.parametrize(
    ("given", "of_run", "message"),
    [
        (
            ["decode.max_length=5"],
            ["decode.min_length=10"],
            r"decode\.max_length: 5 is less than min_length, 10",
        ),
        (
            ["decode.sample=false"],
            ["decode.sample=true", "decode.top_k=10"],
            r"decode\.top_k: 10 requires sampling; set sample or mbr_samples",
        ),
        (
            ["train.guided_layer=6"],
            ["model.decoder_layers=3"],
            r"train\.guided_layer: 6, but model\.decoder_layers is 3",
        ),
    ],
)
def test_settings_that_do_not_fit_those_of_the_run_are_refused_in_one_line(
    given: list[str], of_run: list[str], message: str
):
    config = load_config("fine-tune", given)
    with pytest.raises(MtkitError, match=rf"^with the settings of runs/x: {message}$"):
        config.for_weights_of(load_config("base", of_run), origin="runs/x")


def test_other_data_goes_on_from_the_weights_if_it_has_the_same_subwords(
    fine: Config, tiny_data: PreparedData, greek_data: PreparedData, tiny_run: Run, tmp_path: Path
):
    with pytest.raises(MtkitError, match=r"prepare it with --tokenizer-from "):
        tune(fine, greek_data, tmp_path / "r", tiny_run)
    assert not (tmp_path / "r").exists()


def test_a_parser_does_not_start_from_a_translation_model(
    fine: Config, tree_data: PreparedData, tiny_run: Run, tmp_path: Path
):
    config = changed(fine, "train", best_metric="f1")
    with pytest.raises(MtkitError, match=r"its task is translation, and that of .* is parsing"):
        tune(config, tree_data, tmp_path / "r", tiny_run)


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
    languages: tuple[str, str],
    warned: bool,
    fine: Config,
    tiny_data: PreparedData,
    tiny_run: Run,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
):
    src, tgt = languages
    data = tiny_run.manifest.data.model_copy(update={"src_lang": src, "tgt_lang": tgt})
    manifest = tiny_run.manifest.model_copy(update={"data": data})
    base = Run.create(tmp_path / "base", tiny_run.config, tiny_run.tokenizers(), manifest=manifest)
    base.save(1, weights=last_weights(tiny_run.path), optimizer=None, state={})
    config = changed(fine, "train", max_steps=1)
    tune(config, tiny_data, tmp_path / "r", base)
    text = f"{base.path} was trained on data without en to de; "
    assert [text in line for line in caplog.messages].count(True) == int(warned)
    caplog.clear()
    # It is said at the start, and not when the run continues.
    tune(changed(config, "train", max_steps=2), tiny_data, tmp_path / "r", base)
    assert text not in caplog.text


def test_fine_tuning_with_the_rates_of_the_paper_is_warned_of(
    fine: Config,
    tiny_data: PreparedData,
    tiny_run: Run,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
):
    by_paper = {"schedule": "paper", "learning_rate": None, "max_steps": 1}
    for settings, count in ((by_paper, 2), ({"max_steps": 1}, 0)):
        caplog.clear()
        config = changed(fine, "train", **settings)
        dry_run.forecast(config, tiny_data, device="cpu", init_from=str(tiny_run.path))
        tune(config, tiny_data, tmp_path / str(count), tiny_run)
        found = [line for line in caplog.messages if line.startswith("train.schedule: ")]
        assert len(found) == count
        assert all("random weights; to fine-tune, use --config fine-tune" in line for line in found)


@pytest.mark.parametrize("part", [{}, *PARTS])
def test_the_same_seed_gives_the_same_bytes_and_so_does_stopping_and_resuming(
    part: dict[str, Any],
    fine: Config,
    tiny_data: PreparedData,
    tiny_run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    config = changed(fine, "train", **part)
    tune(config, tiny_data, tmp_path / "whole", tiny_run)
    tune(config, tiny_data, tmp_path / "again", tiny_run)
    assert_same_state(tmp_path / "whole", tmp_path / "again")
    with monkeypatch.context() as patch:
        before_update(patch, 3, interrupt)
        tune(config, tiny_data, tmp_path / "stopped", tiny_run)
    assert Run.open(tmp_path / "stopped").checkpoints()[-1].step == 3
    tune(config, tiny_data, tmp_path / "stopped", tiny_run)
    assert_same_state(tmp_path / "whole", tmp_path / "stopped")
    changed_ones = last_weights(tmp_path / "whole")
    base = last_weights(tiny_run.path)
    assert any(not torch.equal(base[name], changed_ones[name]) for name in base)


def test_the_licence_of_an_imported_model_is_kept_over_generations(
    fine: Config, tiny_data: PreparedData, tiny_run: Run, tmp_path: Path
):
    record = ImportRecord(source="x", commit="", licence="cc-by-4.0", citations=[], subwords=None)
    manifest = tiny_run.manifest.model_copy(update={"imported": record})
    base = Run.create(tmp_path / "base", tiny_run.config, tiny_run.tokenizers(), manifest=manifest)
    base.save(1, weights=last_weights(tiny_run.path), optimizer=None, state={})
    tune(fine, tiny_data, tmp_path / "child", base)
    tune(fine, tiny_data, tmp_path / "grandchild", Run.open(tmp_path / "child"))
    for name in ("child", "grandchild"):
        begun = Run.open(tmp_path / name).manifest.started_from
        assert begun is not None
        assert begun.licence == "cc-by-4.0"


@pytest.fixture
def whole(fine: Config, tiny_data: PreparedData, tiny_run: Run, tmp_path: Path) -> Path:
    """A run that was fine-tuned without a stop."""
    tune(fine, tiny_data, tmp_path / "whole", tiny_run)
    return tmp_path / "whole"


@pytest.fixture
def base(tiny_run: Run, tmp_path: Path) -> Path:
    """A copy of the run that was fine-tuned, which a test may change."""
    return Path(shutil.copytree(tiny_run.path, tmp_path / "base"))


@pytest.fixture
def stopped(base: Path, fine: Config, tiny_data: PreparedData, tmp_path: Path) -> Path:
    """A run that was started from `base` and stopped before its third update."""
    with pytest.MonkeyPatch.context() as patch:
        before_update(patch, 3, interrupt)
        tune(fine, tiny_data, tmp_path / "stopped", Run.open(base))
    return tmp_path / "stopped"


def test_the_first_validation_is_of_the_weights_to_start_from(
    stopped: Path, fine: Config, tiny_data: PreparedData, tiny_run: Run, tmp_path: Path
):
    # Also if the run is begun twice, or resumed.
    with pytest.MonkeyPatch.context() as patch:
        before_update(patch, 2, kill)
        with pytest.raises(KeyboardInterrupt):
            tune(fine, tiny_data, tmp_path / "killed", tiny_run)
    tune(fine, tiny_data, tmp_path / "killed", tiny_run)
    train.run(fine, tiny_data, stopped, device="cpu")
    for key in ("valid_loss", "valid_bleu"):
        before = rows_of(tiny_run.path, key)[-1][1]
        for run in (stopped, tmp_path / "killed"):
            rows = rows_of(run, key)
            assert rows[0] == (0, before)
            assert [step for step, _ in rows].count(0) == 1
    assert rows_of(tiny_run.path, "valid_loss")[0][0] > 0


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[RunFacts]:
    """What the pages about runs were given."""
    given: list[RunFacts] = []

    def page(facts: RunFacts) -> str:
        given.append(facts)
        return ""

    monkeypatch.setattr("mtkit.train.metrics.run_page", page)
    return given


def test_the_page_says_what_a_run_was_started_from_and_how_much_of_it_is_trained(
    pages: list[RunFacts],
    fine: Config,
    tiny_data: PreparedData,
    tiny_run: Run,
    tmp_path: Path,
):
    tune(fine, tiny_data, tmp_path / "all", tiny_run)
    everything = pages[-1].summary
    base = last_weights(tiny_run.path)
    count = sum(tensor.numel() for tensor in base.values())
    assert everything["Started from"] == f"step 4 of {tiny_run.name}"
    assert everything["Parameters"] == f"{count:,}"
    assert "Trained parameters" not in everything
    some = changed(fine, "train", freeze=("embedding",), max_steps=2)
    tune(some, tiny_data, tmp_path / "some", tiny_run)
    assert pages[-1].summary["Parameters"] == f"{count:,}"
    assert (
        pages[-1].summary["Trained parameters"] == f"{count - base['embedding.weight'].numel():,}"
    )
    # Also after a stop, when the old run need not be there any more.
    train.run(changed(some, "train", max_steps=4), tiny_data, tmp_path / "some", device="cpu")
    assert pages[-1].summary["Started from"] == everything["Started from"]


def test_the_weights_to_start_from_are_never_the_best_checkpoint(
    pages: list[RunFacts],
    fine: Config,
    tiny_data: PreparedData,
    tiny_run: Run,
    tmp_path: Path,
):
    # So fast that the model forgets everything.
    config = changed(fine, "train", learning_rate=0.5, best_metric="loss", patience=1)
    tune(config, tiny_data, tmp_path / "run", tiny_run)
    rows = rows_of(tmp_path / "run", "valid_loss")
    assert min(rows, key=lambda row: row[1])[0] == 0
    best = Run.open(tmp_path / "run").best()
    assert best is not None
    assert best.step > 0
    assert pages[-1].best_step == best.step


@pytest.mark.parametrize("is_named", [False, True])
def test_a_run_resumes_although_the_run_that_it_was_started_from_was_deleted(
    is_named: bool, whole: Path, stopped: Path, base: Path, fine: Config, tiny_data: PreparedData
):
    shutil.rmtree(base)
    start = f"{base}:last" if is_named else None
    train.run(fine, tiny_data, stopped, device="cpu", init_from=start)
    assert_same_state(whole, stopped)


@pytest.mark.parametrize("is_deleted", [True, False])
def test_restarted_workers_continue_whatever_the_run_that_they_started_from_has_become(
    is_deleted: bool,
    whole: Path,
    base: Path,
    fine: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("MTKIT_LAUNCH", "this launch")
    with monkeypatch.context() as patch:
        before_update(patch, 3, interrupt)
        tune(fine, tiny_data, tmp_path / "r", Run.open(base), restart=True)
    if is_deleted:
        shutil.rmtree(base)
    else:
        Run.open(base).save(99, weights=last_weights(whole), optimizer=None, state={})
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    start = f"{base}:last"
    train.run(fine, tiny_data, tmp_path / "r", device="cpu", init_from=start, restart=True)
    assert_same_state(whole, tmp_path / "r")


def test_the_initial_weights_do_not_stay_in_memory(
    fine: Config,
    tiny_data: PreparedData,
    tiny_run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    original = start.initial_weights
    held: list[weakref.ref[Tensor]] = []

    def load(*given: Any) -> Initial:
        initial = original(*given)
        held.extend(map(weakref.ref, initial.weights.values()))
        return initial

    monkeypatch.setattr(start, "initial_weights", load)
    found: list[int] = []
    before_update(monkeypatch, 2, lambda: found.append(sum(ref() is not None for ref in held)))
    tune(fine, tiny_data, tmp_path / "r", tiny_run)
    assert held
    assert found == [0]


def test_a_run_is_not_restarted_without_its_initial_weights_and_keeps_its_checkpoints(
    whole: Path, fine: Config, tiny_data: PreparedData
):
    before = contents(whole)
    with pytest.raises(MtkitError, match=r"was started from other weights; give --init-from .*"):
        train.run(fine, tiny_data, whole, device="cpu", restart=True)
    assert contents(whole) == before


def test_a_low_rank_change_of_random_weights_is_refused(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    config = changed(config, "train", **LORA)
    with pytest.raises(MtkitError, match=r"^train\.lora_rank: .* give --init-from RUN$"):
        train.run(config, tiny_data, tmp_path / "r", device="cpu")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("which", ["newest", "average", "average:x", "best:3", ""])
def test_what_is_not_a_checkpoint_is_refused_with_those_that_there_are(
    which: str, fine: Config, tiny_data: PreparedData, tiny_run: Run, tmp_path: Path
):
    with pytest.raises(MtkitError, match=r"is not a checkpoint; write last, best, a step or"):
        train.run(
            fine, tiny_data, tmp_path / "r", device="cpu", init_from=f"{tiny_run.path}:{which}"
        )


def test_the_preset_for_fine_tuning_needs_a_run(trained: Place):
    before = contents(trained.folder / "runs" / "tiny")
    (trained.folder / "empty").mkdir()
    for more in (
        ["--run", "r"],
        ["--run", "empty"],
        ["--dry-run"],
        ["--run", "runs/tiny", "--restart"],
    ):
        out = trained.mtkit("train", "--config", "fine-tune", *more)
        assert out.status == 2
        assert "the preset fine-tune trains a run further; give --init-from RUN" in out.err
    assert not (trained.folder / "r").exists()
    assert not list((trained.folder / "empty").iterdir())
    assert contents(trained.folder / "runs" / "tiny") == before


def test_a_run_whose_base_was_trained_on_resumes_without_naming_it(
    whole: Path,
    stopped: Path,
    base: Path,
    fine: Config,
    tiny_data: PreparedData,
    tiny_run: Run,
):
    train.run(changed(tiny_run.config, "train", max_steps=6), tiny_data, base, device="cpu")
    with pytest.raises(MtkitError, match="; to continue it, leave out --init-from; else give"):
        tune(fine, tiny_data, stopped, Run.open(base))
    train.run(fine, tiny_data, stopped, device="cpu")
    assert_same_state(whole, stopped)


def test_a_run_is_not_continued_with_other_initial_weights(
    fine: Config, tiny_data: PreparedData, tiny_run: Run, tmp_path: Path
):
    other = random_run(tmp_path / "other", tiny_data, 7, config=tiny_run.config)
    tune(fine, tiny_data, tmp_path / "r", tiny_run)
    with pytest.raises(MtkitError, match=r"not started from step 1 of .*other, but from step 4 of"):
        tune(fine, tiny_data, tmp_path / "r", other)
    shutil.copytree(tiny_run.path, tmp_path / "random")
    config = tiny_run.config
    with pytest.raises(MtkitError, match=r"not started from step 1 .*, but from random weights"):
        tune(config, tiny_data, tmp_path / "random", other)


def test_a_run_without_checkpoints_needs_its_initial_weights_again(
    whole: Path, fine: Config, tiny_data: PreparedData, tiny_run: Run, tmp_path: Path
):
    with pytest.MonkeyPatch.context() as patch:
        before_update(patch, 2, kill)
        with pytest.raises(KeyboardInterrupt):
            tune(fine, tiny_data, tmp_path / "killed", tiny_run)
    with pytest.raises(MtkitError, match=r"yet; give --init-from again, for step 4 of .*, or"):
        train.run(fine, tiny_data, tmp_path / "killed", device="cpu")
    path, from_step_2 = tmp_path / "killed", f"{tiny_run.path}:2"
    with pytest.raises(MtkitError, match=r"but from step 4 of .*; to begin it again, give --init"):
        train.run(fine, tiny_data, path, device="cpu", init_from=from_step_2)
    tune(fine, tiny_data, tmp_path / "killed", tiny_run)
    assert_same_state(whole, tmp_path / "killed")


@pytest.mark.parametrize("restart", [False, True])
def test_a_run_does_not_start_from_itself_and_keeps_its_checkpoints(
    fine: Config, tiny_data: PreparedData, begun: Path, restart: bool
):
    before = contents(begun)
    with pytest.raises(MtkitError, match="a run cannot start from itself; give another --run"):
        tune(fine, tiny_data, begun, Run.open(begun), restart=restart)
    assert contents(begun) == before


@pytest.mark.parametrize(
    ("text", "run", "which"),
    [
        ("runs/a", "runs/a", None),
        ("runs/a:best", "runs/a", "best"),
        ("runs/a:last", "runs/a", "last"),
        ("runs/a:1500", "runs/a", "1500"),
        ("runs/a:average:3", "runs/a", "average:3"),
        ("C:/runs/a", "C:/runs/a", None),
        ("a:b:best", "a:b", "best"),
    ],
)
def test_a_checkpoint_is_named_behind_a_colon(text: str, run: str, which: str | None):
    assert split_checkpoint(text) == (Path(run), which)


def test_a_folder_with_a_colon_in_its_name_is_the_run(tmp_path: Path):
    (tmp_path / "a:best").mkdir()
    assert split_checkpoint(f"{tmp_path}/a:best") == (tmp_path / "a:best", None)
    assert split_checkpoint(f"{tmp_path}/a:best:last") == (tmp_path / "a:best", "last")


def test_the_command_starts_from_a_run_and_says_so(
    trained: Place, tmp_path: Path, fine: Config, tiny_run: Run
):
    tree = fine.model_dump(exclude={"model"})
    config = tmp_path / "fine.yaml"
    config.write_text(dump_yaml(tree))
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
