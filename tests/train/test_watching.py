"""What can be seen of a training: speed, scores, samples and events."""

import io
import math
import re
import resource
from collections.abc import Iterable
from dataclasses import replace

import pytest
import torch
from support.training import before_update, events_of, interrupt, kill, rows_of

from mtkit.base.errors import MtkitError
from mtkit.config import TrainConfig, load_config
from mtkit.run_folder import Run
from mtkit.train import metrics
from mtkit.train import progress_meter as progress
from mtkit.train.checkpoints import TrainingCost
from mtkit.train.distributed import Workers
from mtkit.train.metrics import MetricsLogger, truncate_rows
from mtkit.train.progress_meter import Meter
from mtkit.train.trainer import Trainer


@pytest.mark.parametrize(
    ("silence", "steps"),
    # Rows are at 3 and 6; a first sign of life comes at once, others if it is silent for long.
    [(math.inf, [1, 3, 6]), (0.0, [1, 2, 3, 4, 5, 6])],
)
def test_without_a_terminal_speed_is_reported_soon(silence, steps, trainings, monkeypatch, caplog):
    monkeypatch.setattr(progress, "SILENCE", silence)
    with caplog.at_level("INFO", logger="mtkit"):
        trainings.run("run", log_every=3)
    lines = [re.match(r"step (\d) of 6: .*tok/s, \S+ left$", line) for line in caplog.messages]
    assert [int(line[1]) for line in lines if line] == steps
    # Metrics have the rows they were asked for.
    assert [step for step, _ in trainings.rows("run", "loss")] == [3, 6]


def test_on_a_terminal_rows_stay_above_a_bar_with_speed_and_time(trainings, monkeypatch, caplog):
    texts: list[tuple[int, str]] = []

    class Bar(progress.tqdm):  # type: ignore[misc,type-arg]
        def __init__(self, **options):
            super().__init__(**options | {"disable": False, "file": io.StringIO()})

        def set_description_str(self, desc=None, refresh=True):
            texts.append((self.n, desc or ""))
            super().set_description_str(desc, refresh)

    monkeypatch.setattr(progress, "tqdm", Bar)
    monkeypatch.setattr(progress, "_RENEWAL", math.inf)
    with caplog.at_level("INFO", logger="mtkit"):
        trainings.run("run", log_every=3)
    assert [step for step, _ in texts] == [1, 3, 6]
    for _, text in texts:
        assert re.fullmatch(r"[\d,]+ tok/s, \S+ left", text)
    rows = [line for line in caplog.messages if re.match(r"step \d of 6: loss ", line)]
    assert [row.split(", ", 2)[2] for row in rows] == [text for _, text in texts[1:]]


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_pace_is_an_average_over_minutes_and_the_time_left_agrees_with_it(caplog):
    clock, cost = Clock(), TrainingCost(tokens=0, flops=0.0, seconds=0.0)
    measured = Meter(cost, clock=clock)
    shown = progress.TrainingProgress(0, 10_000, active=True, clock=clock)
    left = []

    def update(seconds):
        clock.now += seconds
        cost.tokens += 1000
        measured.add(torch.zeros(()))
        shown.step()

    with caplog.at_level("INFO", logger="mtkit"):
        # Forty minutes, in which an update takes one second or three, in turns of two minutes.
        for turn in range(20):
            for _ in range(120 if turn % 2 == 0 else 40):
                update(1.0 if turn % 2 == 0 else 3.0)
            pace = measured.pace()
            shown.report_row({"loss": 1.0, "lr": 0.1, "tokens_per_second": 0.0}, pace)
            left.append(pace.seconds_per_step)
            assert pace.tokens_per_second * pace.seconds_per_step == pytest.approx(1000)
    # 160 updates take 240 seconds: 1.5 on average, where the last two minutes alone say 1 or 3.
    assert left[0] == pytest.approx(1.0)
    assert all(1.2 < each < 1.9 for each in left[4:])
    *_, last = caplog.messages
    (numbers,) = re.findall(r" ([\d,]+) tok/s, (\d):(\d\d):(\d\d) left$", last)
    speed, hours, minutes, seconds = (int(number.replace(",", "")) for number in numbers)
    to_come = (10_000 - 10 * 160) * 1000
    assert 3600 * hours + 60 * minutes + seconds == pytest.approx(to_come / speed, rel=0.002)


def test_validations_and_checkpoints_are_part_of_the_pace_and_not_of_the_rows():
    clock, cost = Clock(), TrainingCost(tokens=0, flops=0.0, seconds=0.0)
    measured = Meter(cost, clock=clock)
    for _ in range(10):
        clock.now += 2.0
        cost.tokens += 100
        measured.add(torch.zeros(()))
    with measured.paused("first validation"):
        clock.now += 1000.0
    for seconds in (30.0, 50.0):
        with measured.paused("validation", every=20):
            clock.now += seconds
    with measured.paused("checkpoint", every=10):
        clock.now += 5.0
    # 2 for the update, 40 / 20 for the validations, 5 / 10 for the checkpoints.
    assert measured.pace().seconds_per_step == pytest.approx(4.5)
    assert measured.pace().tokens_per_second == pytest.approx(100 / 4.5)
    assert measured.read(10, Workers())["tokens_per_second"] == pytest.approx(50.0)
    assert cost.seconds == pytest.approx(20.0)


def test_the_page_takes_at_most_a_hundredth_of_the_time(begun, monkeypatch):
    clock, states = Clock(), []

    def draw(facts):
        clock.now += 2.0
        states.append(facts.state)
        return ""

    monkeypatch.setattr("mtkit.train.metrics.run_page", draw)
    with MetricsLogger(Run.open(begun), 4, clock=clock) as metrics:
        assert states == ["running"]
        for seconds, pages in ((199.0, 1), (1.0, 2), (199.0, 2), (500.0, 3)):
            clock.now += seconds
            metrics.refresh_page()
            assert len(states) == pages
    assert states == ["running"] * 3 + ["stopped"]
    with MetricsLogger(Run.open(begun), 4, clock=clock) as metrics:
        metrics.is_finished = True
    assert states[-1] == "finished"


def test_the_page_of_a_finished_run_has_what_its_end_has_fitted(trainings, pages, monkeypatch):
    fitted: list[str] = []
    monkeypatch.setattr(metrics, "_confidence", lambda _: [(name, None) for name in fitted])
    monkeypatch.setattr("mtkit.train.assembly.fit_run", lambda *_, **__: fitted.append("en-de"))
    trainings.run("run", max_steps=2)
    assert (pages[-1].state, pages[-1].confidence) == ("finished", [("en-de", None)])


@pytest.mark.parametrize("end", ["finished", "stopped", "killed"])
def test_the_page_is_there_at_once_and_says_how_training_ended(end, trainings, pages, monkeypatch):
    if end != "finished":
        before_update(monkeypatch, 2, interrupt if end == "stopped" else kill)
    try:
        trainings.run("run")
    except KeyboardInterrupt:
        assert end == "killed"
    shown = [(page.state, page.summary["Step"]) for page in pages]
    assert shown[0] == ("running", "0 of 6")
    last = {"finished": ("finished", "6 of 6"), "stopped": ("stopped", "2 of 6")}
    assert shown[-1] == last.get(end, ("stopped", "1 of 6"))
    assert [*dict.fromkeys(page.state for page in pages)] == ["running", pages[-1].state]


def validate_as(patch: pytest.MonkeyPatch, **scores: Iterable[float]) -> None:
    """Have validations find these scores, one after the other."""
    original, given = Trainer.validate, {key: iter(values) for key, values in scores.items()}

    def validate(self):
        validation = original(self)
        new = {key: next(values) for key, values in given.items()}
        loss = new.pop("loss", validation.loss)
        return replace(validation, loss=loss, scores=validation.scores | new)

    patch.setattr(Trainer, "validate", validate)


def test_training_stops_early_when_the_chosen_score_gets_no_better(trainings, monkeypatch):
    validate_as(monkeypatch, loss=[5.0, 4.0, 4.5, 4.2, 4.1, 1.0])
    patient = {"valid_every": 1, "best_metric": "loss", "patience": 3, "checkpoint_every": 100}
    assert trainings.run("run", **patient)
    # The second was the best, and three came after it.
    run = trainings.open("run")
    assert [saved.step for saved in run.checkpoints()] == [2, 5]
    # Started again, it stays stopped.
    assert trainings.run("run", **patient)
    assert [saved.step for saved in run.checkpoints()] == [2, 5]


@pytest.mark.parametrize(
    ("every", "steps"),
    [
        (1000, [125, 250, 500, 1000, 2000, 2600]),
        (9000, [1125, 2250, 2600]),
        *((8, [1, 2, 4, 8, 16]), (5, [1, 2, 5, 10]), (2, [1, 2, 4, 6]), (1, [1, 2, 3])),
    ],
)
def test_early_validations_come_after_an_eighth_a_quarter_and_half_of_the_first(every, steps):
    settings = TrainConfig(max_steps=2600, valid_every=every, valid_early=True)
    validated = [step for step in range(1, 2601) if settings.is_validated(step)]
    assert (validated[: len(steps)], validated[-1]) == (steps, 2600)
    plain = TrainConfig(max_steps=2600, valid_every=every)
    planned = [step for step in range(1, 2601) if plain.is_validated(step)]
    assert planned == [*range(every, 2600, every), 2600]
    assert load_config("small").train.early_validations == [125, 250, 500]


def test_early_validations_are_seen_everywhere_and_change_neither_weights_nor_patience(
    trainings, monkeypatch, caplog
):
    trainings.change("train", max_steps=18, valid_every=8, checkpoint_every=6, patience=2)
    # Scores by the number of early ones before: zero at first, as of a model that has just begun.
    with monkeypatch.context() as patch:
        validate_as(patch, bleu=[1.0, 2.0, 3.0])
        trainings.run("plain")
    with monkeypatch.context() as patch, caplog.at_level("INFO", logger="mtkit"):
        validate_as(patch, bleu=[0.0, 0.0, 0.0, 1.0, 2.0, 3.0])
        trainings.stopped("early", 7, interrupt, valid_early=True)
        trainings.run("early", valid_early=True)
    assert "the first validation is after update 1" in caplog.messages
    trainings.assert_same("plain", "early", "loss")
    assert [step for step, _ in trainings.rows("early", "valid_bleu")] == [1, 2, 4, 8, 16, 18]
    run = trainings.open("early")
    assert [row["step"] for row in run.samples()] == [1, 2, 4, 8, 16, 18]
    assert [step for step, _ in events_of(run, "valid/bleu")] == [1, 2, 4, 8, 16, 18]
    # Those saved for the best score, and at the stop, are extra and not kept.
    assert trainings.steps("early") == trainings.steps("plain") == [6, 12, 18]


def test_the_best_validation_is_saved_between_checkpoints_and_not_averaged(trainings, monkeypatch):
    #                                1     2     3     4     5     6     7     8     9
    validate_as(monkeypatch, bleu=[10.0, 20.0, 15.0, 30.0, 40.0, 25.0, 40.0, 12.0, 11.0])
    settings = {"valid_every": 1, "checkpoint_every": 3, "max_steps": 9, "keep_checkpoints": 2}
    trainings.run("run", **settings)
    run = trainings.open("run")
    # Of 5 and 7, which are equal, the newer is the best; 1, 2, 4 and 5 were for a while.
    assert [saved.step for saved in run.checkpoints()] == [6, 7, 9]
    # Each knows the validations up to its step, and none that came while it was written.
    assert [len(saved.load_state()["validations"]) for saved in run.checkpoints()] == [6, 7, 9]
    assert run.select("best")[1] == "step 7, the best"
    assert run.select(None)[1] == "the average of 2 checkpoints, steps 6 to 9"
    assert run.select("average:2")[1] == "the average of 2 checkpoints, steps 6 to 9"
    with pytest.raises(MtkitError, match="has 2 checkpoints to average"):
        run.select("average:3")


def test_what_a_signal_has_saved_knows_its_validation(trainings, monkeypatch):
    validate_as(monkeypatch, bleu=[20.0, 10.0])
    before_update(monkeypatch, 2, interrupt)
    trainings.change("train", valid_every=1)
    assert not trainings.run("run")
    saved = trainings.open("run").checkpoints()
    assert [(checkpoint.step, checkpoint.load_state()["valid_bleu"]) for checkpoint in saved] == [
        *((1, 20.0), (2, 10.0))
    ]


def test_every_validation_keeps_translations_of_the_same_lines_for_the_page(tiny_run, tiny_data):
    (row,) = tiny_run.samples()
    src, tgt = tiny_data.text("valid")
    assert row["step"] == 4
    assert len(row["samples"]) == 6
    for sample in row["samples"]:
        assert tgt[src.index(sample["src"])] == sample["ref"]
        assert isinstance(sample["hyp"], str)
    assert row["samples"][0]["src"] in (tiny_run.path / "report.html").read_text(encoding="utf-8")


def test_a_resumed_run_has_no_sample_and_no_event_twice(trainings):
    for end in (4, 6):
        trainings.run("run", max_steps=end, valid_every=2, checkpoint_every=2)
    run = trainings.open("run")
    assert [row["step"] for row in run.samples()] == [2, 4, 6]
    assert [step for step, _ in events_of(run, "valid/bleu")] == [2, 4, 6]
    assert [step for step, _ in rows_of(run.path, "loss")] == [1, 2, 3, 4, 5, 6]
    for event, row in zip(events_of(run, "train/loss"), rows_of(run.path, "loss"), strict=True):
        assert event == pytest.approx(row)


def test_metrics_that_cannot_be_written_do_not_stop_a_run(trainings, monkeypatch, caplog):
    def log(*_):
        raise MtkitError("metrics.jsonl: No space left on device")

    monkeypatch.setattr(metrics, "append_row", log)
    assert trainings.run("run")
    assert len([r for r in caplog.records if "No space left" in r.getMessage()]) == 1


def test_events_that_cannot_be_written_neither_stop_nor_delay_a_run(begun, caplog):
    run = Run.open(begun)
    truncate_rows(run, 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Some twenty events, and all of the rows, which are shorter.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1200, hard))
    try:
        journal = MetricsLogger(run, 0)
        for step in range(1, 51):
            journal.log({"step": step, "lr": 1})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [row["step"] for row in run.metrics()] == list(range(1, 51))
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "tfevents" in warning
    assert "training continues" in warning
    # With room again nothing is written behind the event that was cut.
    size = max(file.stat().st_size for file in (run.path / "tensorboard").iterdir())
    journal.log({"step": 51, "lr": 1})
    assert max(file.stat().st_size for file in (run.path / "tensorboard").iterdir()) == size <= 1200


def test_every_event_is_in_its_file_as_soon_as_it_is_logged(begun):
    run = Run.open(begun)
    journal = MetricsLogger(run, 4)
    for step in (5, 6):
        journal.log({"step": step, "loss": 2.5})
        assert events_of(run, "train/loss")[-1] == (step, 2.5)
