"""Further validation sets: prepared, measured at every validation, and of no influence."""

from dataclasses import replace
from typing import Any

import pytest
from conftest import changed, number_pairs, write_pairs
from support.training import Trainings, assert_equal_tensors, events_of

from mtkit.base.errors import MtkitError
from mtkit.config import Config
from mtkit.data import PreparedData, also_split
from mtkit.prepare import prepare_files
from mtkit.run_folder import Run
from mtkit.score import score
from mtkit.train import assembly as train
from mtkit.train.validation import ValidationHistory
from mtkit.translate import Translator


@pytest.fixture(scope="session")
def two_sets(tiny_text, tmp_path_factory) -> PreparedData:
    """The tiny corpus with a further set of 12 pairs, and one that is the validation set itself."""
    folder = tmp_path_factory.mktemp("two-sets")
    news = write_pairs(folder, "news", number_pairs(12, seed=11))
    sets = {"news": news, "same": tiny_text.valid}
    prepare_files("two", folder / "two", valid_also=sets, **tiny_text.prepare_arguments())
    return PreparedData.open(folder / "two")


@pytest.fixture(scope="session")
def watched(two_sets, tiny_config, tmp_path_factory) -> Run:
    """A run that is validated twice on all sets."""
    place = tmp_path_factory.mktemp("watched") / "run"
    train.run(changed(tiny_config, "train", valid_every=2), two_sets, place, device="cpu")
    return Run.open(place)


def validations(run: Run) -> list[dict[str, Any]]:
    return [row for row in run.metrics() if "valid_loss" in row]


def test_a_further_set_is_in_the_folder_as_text_and_as_pairs(two_sets, tiny_data):
    assert two_sets.valid_also == ("news", "same")
    src, tgt = two_sets.text(also_split("news"))
    assert list(zip(src, tgt, strict=True)) == number_pairs(12, seed=11)
    tokenizer = two_sets.tokenizers().src
    pairs = two_sets.pairs(also_split("news"))
    assert [tokenizer.decode(pairs.src[i]) for i in range(12)] == src
    assert [tokenizer.decode(pairs.tgt[i]) for i in range(12)] == tgt
    assert two_sets.manifest.counts["pairs"]["valid@news"] == 12
    assert two_sets.manifest.sources["valid@news"][0]["pairs"] == 12
    # Everything else is as it is without further sets.
    for name in tiny_data.manifest.files:
        assert (two_sets.path / name).read_bytes() == (tiny_data.path / name).read_bytes()


def test_training_pairs_that_are_also_in_a_further_set_are_counted(tiny_text, tmp_path):
    arguments = tiny_text.prepare_arguments()
    without = prepare_files("tiny", tmp_path / "without", **arguments).overlap
    some = write_pairs(tmp_path, "some", number_pairs(200, seed=1)[:7])
    report = prepare_files("tiny", tmp_path / "with", valid_also={"some": some}, **arguments)
    assert report.overlap["both"] == without["both"] + 7
    dropping = {**arguments, "valid_also": {"some": some}, "drop_overlap": True}
    report = prepare_files("tiny", tmp_path / "dropping", **dropping)
    assert report.dropped["overlap"] >= 7


def test_each_validation_measures_every_set(watched, two_sets):
    rows = validations(watched)
    assert [row["step"] for row in rows] == [2, 4]
    for row in rows:
        assert [*row["valid_also"]] == ["news", "same"]
        names = {"loss", "perplexity", "bleu", "chrf"}
        assert row["valid_also"]["same"] == {name: row[f"valid_{name}"] for name in names}
        assert row["valid_also"]["news"].keys() == names
        assert {key for key in row if key.startswith("valid_")} == {
            *(f"valid_{name}" for name in names),
            "valid_also",
        }
    greedy = watched.config.decode.greedy()
    with Translator.load(watched, checkpoint="last", config=greedy) as translator:
        src, tgt = two_sets.text(also_split("news"))
        texts = list(translator.translate(src))
        tokens = [scored.log_probs for scored in translator.score_given(src, tgt)]
    news = rows[-1]["valid_also"]["news"]
    assert news["chrf"] == score(texts, [tgt], metric="chrf").value
    total, count = -sum(map(sum, tokens)), sum(map(len, tokens))
    assert news["loss"] == pytest.approx(total / count, rel=1e-4)


def test_further_sets_change_nothing_in_the_training(watched, trainings):
    trainings.run("run", config=watched.config)
    alone = trainings.open("run")
    for ours, theirs in zip(watched.checkpoints(), alone.checkpoints(), strict=True):
        assert ours.step == theirs.step
        assert_equal_tensors(ours.load_weights(), theirs.load_weights())
    for row, other in zip(validations(watched), validations(alone), strict=True):
        assert "valid_also" not in other
        assert {key: value for key, value in row.items() if key != "valid_also"} == other


def test_only_the_main_set_selects_the_best(two_sets, tiny_config, tmp_path, monkeypatch):
    # The main set gets worse from 20, and the others better from 10.
    values = iter([20.0, 20.0, 10.0, 10.0, 10.0, 10.0, 15.0, 15.0, 90.0, 90.0, 90.0, 90.0])
    monkeypatch.setattr(
        "mtkit.parsing.task.Task.metrics",
        lambda *_, **__: {name: (next(values), None) for name in ("bleu", "chrf")},
    )
    config = changed(tiny_config, "train", valid_every=2, checkpoint_every=2)
    train.run(config, two_sets, tmp_path / "run", device="cpu")
    assert Run.open(tmp_path / "run").best().step == 2


def test_a_run_that_resumes_keeps_the_scores_of_every_set(watched, two_sets, tmp_path):
    trainings = Trainings(watched.config, two_sets, tmp_path)
    trainings.run("run", max_steps=2)
    trainings.run("run")
    resumed = trainings.open("run")
    assert validations(resumed) == validations(watched)
    state, whole = (run.checkpoints()[-1].load_state() for run in (resumed, watched))
    assert state["validations"] == whole["validations"] == validations(watched)
    assert state["valid_also"] == validations(watched)[-1]["valid_also"]


@pytest.mark.pages
def test_scores_of_every_set_are_printed_drawn_and_in_events(watched, two_sets, tmp_path, caplog):
    caplog.set_level("INFO")
    train.run(watched.config, two_sets, tmp_path / "run", device="cpu")
    (row, _) = validations(watched)
    news = row["valid_also"]["news"]
    line = f"step 2: news: validation loss {news['loss']:.3f}, perplexity {news['perplexity']:.2f}"
    assert any(message.startswith(line) for message in caplog.messages)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Translation quality, news" in page
    assert "BLEU, news" in page
    assert "Loss, news" in page
    intervals = watched.samples()[0]["intervals"]
    sets = ("", "@news", "@same")
    assert {*intervals} == {f"{metric}{name}" for metric in ("bleu", "chrf") for name in sets}
    assert f"<td>{news['chrf']:.2f} ± {intervals['chrf@news']:.2f}</td>" in page
    for tag, value in (("valid@news/chrf", news["chrf"]), ("valid/chrf", row["valid_chrf"])):
        assert dict(events_of(Run.open(tmp_path / "run"), tag))[2] == pytest.approx(value)


def test_an_empty_further_set_is_refused_by_name(tiny_text, tmp_path):
    empty = write_pairs(tmp_path, "empty", [])
    arguments = tiny_text.prepare_arguments() | {"valid_also": {"none": empty}}
    with pytest.raises(MtkitError, match=r"empty\.en"):
        prepare_files("tiny", tmp_path / "out", **arguments)


def forgetful(**settings: Any) -> ValidationHistory:
    """The history of a fine-tuning in which the set `old` loses and `new` gains."""
    history = ValidationHistory(changed(Config(), "train", **settings).train)
    history.rows = [row_of(2, 11.0, old=39.5, new=20.0), row_of(4, 12.0, old=38.0, new=25.0)]
    return history


def row_of(step: int, bleu: float, **sets: float) -> dict[str, Any]:
    also = {name: {"bleu": value, "loss": 10 - value / 10} for name, value in sets.items()}
    return {"step": step, "valid_bleu": bleu, "valid_loss": 1.0, "valid_also": also}


BEFORE = row_of(0, 10.0, old=40.0, new=10.0)


@pytest.mark.parametrize(
    ("may_lose", "metric", "stops"),
    [
        (None, "bleu", False),
        (1.9, "bleu", True),
        (2.0, "bleu", False),
        (0.19, "loss", True),
        (0.21, "loss", False),
    ],
)
def test_fine_tuning_stops_when_another_set_has_lost_too_much(may_lose, metric, stops, caplog):
    caplog.set_level("INFO", logger="mtkit")
    history = forgetful(may_lose=may_lose, best_metric=metric)
    assert history.should_stop(BEFORE) == stops
    assert ("of old is by" in caplog.text and "(train.may_lose)" in caplog.text) == stops
    # A training that has no first validation has lost nothing.
    assert not history.should_stop()
    # One that is being finished ends at its last step.
    assert not forgetful(may_lose=may_lose, best_metric=metric, finish_steps=9).should_stop(BEFORE)


def test_what_a_set_has_lost_is_a_sentence():
    (sentence,) = forgetful().forgetting(BEFORE)
    assert sentence.startswith("BLEU of old is by 2.00 worse than the 40.00 before this training")
    (sentence,) = forgetful(best_metric="loss").forgetting(BEFORE)
    assert sentence.startswith("loss of old is by 0.20 worse than the 6.00 before")
    assert forgetful().forgetting({}) == []
    assert forgetful().forgetting(row_of(0, 10.0, old=38.9, new=25.0)) == []


@pytest.mark.parametrize(("best_set", "step"), [(None, 4), ("old", 2), ("new", 4)])
def test_a_further_set_may_select_the_best_checkpoint(best_set, step):
    assert forgetful(best_set=best_set).best_step() == step


def test_the_best_checkpoint_of_a_further_set_is_that_of_the_run_too(watched, two_sets):
    rows = validations(watched)
    for name in ("news", "same"):
        config = changed(watched.config, "train", best_set=name, best_metric="loss")
        best = replace(watched, config=config).best()
        losses = {row["step"]: row["valid_also"][name]["loss"] for row in rows}
        saved = {checkpoint.step: losses[checkpoint.step] for checkpoint in watched.checkpoints()}
        assert best.step == min(saved, key=saved.__getitem__)
    config = changed(watched.config, "train", best_set="olds")
    with pytest.raises(MtkitError, match=r"^train\.best_set: .* it has news, same$"):
        train.check_task(config, two_sets)


def test_a_fine_tuning_that_forgets_stops_and_says_so(watched, two_sets, tmp_path, caplog):
    settings = {"learning_rate": 0.5, "schedule": "constant", "warmup_steps": 1, "max_steps": 6}
    settings |= {"best_metric": "loss", "may_lose": 0.5, "valid_every": 2}
    config = changed(watched.config, "train", **settings)
    place = tmp_path / "run"
    train.run(config, two_sets, place, device="cpu", init_from=str(watched.path))
    assert Run.open(place).checkpoints()[-1].step == 2
    assert "possible problem: loss of news is by" in caplog.text
