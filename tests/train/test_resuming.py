"""Stopping and resuming change nothing, and a run goes on only as it began."""

import os
import re
import shutil
import signal
from functools import partial

import pytest
import torch
from conftest import CPU, changed, reseal, slow
from support.forked import PIPE, Forked, run_mtkit
from support.runs import contents
from support.training import Trainings, before_update, interrupt, kill, rows_of, wait_for

from mtkit.base.errors import MtkitError
from mtkit.config import Config
from mtkit.data import PreparedData
from mtkit.prepare import prepare_files
from mtkit.run_folder import Run
from mtkit.train import dry_run
from mtkit.train.checkpoints import read_checkpoint
from mtkit.train.trainer import Trainer
from mtkit.translate import Translator


def test_a_run_with_a_damaged_tokenizer_is_not_trained_further(trainings: Trainings, tmp_path):
    run, source = trainings.folder / "run", trainings.data.path
    trainings.run("run", max_steps=2)
    tokenizer = run / "tokenizer.model"
    tokenizer.write_bytes(b"damaged")
    for use in (
        partial(Translator.load, run, device="cpu"),
        partial(trainings.run, "run", max_steps=3),
    ):
        with pytest.raises(MtkitError) as caught:
            use()
        # Nobody is to delete good weights.
        assert "--restart" not in str(caught.value)
        assert f"{tokenizer}: missing, or changed" in str(caught.value)
        assert f"or from the prepared data, {source}" in str(caught.value)
    assert trainings.steps("run") == [2]
    # Where the prepared data is not, the message does not name it.
    shutil.copytree(run, tmp_path / "far" / "away")
    with pytest.raises(MtkitError, match=r"restore it from a copy$"):
        Translator.load(tmp_path / "far" / "away", device="cpu")


def test_another_seed_gives_other_weights(trainings):
    for name, seed in (("one", 1), ("two", 1), ("three", 2)):
        trainings.run(name, seed=seed)
    trainings.assert_same("one", "two", "loss")
    with pytest.raises(AssertionError):
        trainings.assert_same("one", "three")


@pytest.mark.parametrize(
    ("stops", "settings"),
    [
        ([3], {}),
        ([1, 2, 5], {}),
        slow([17], {}),
        ([1, 5], {"precision": "bf16"}),
        ([2], {"bpe_dropout": 0.3}),
        ([3], {"guided_alignment": 0.1, "bpe_dropout": 0.3}),
    ],
)
def test_stopped_and_resumed_is_never_stopped_to_the_last_bit(stops, settings, trainings, linked):
    trainings.change("train", **settings)
    trainings.data = linked
    # 17 is in the second epoch.
    end = max(*stops, 5) + 3
    trainings.run("whole", max_steps=end)
    for stop in (*stops, end):
        torch.manual_seed(stop)  # another process has another random state
        assert trainings.run("parts", max_steps=stop)
    trainings.assert_same("whole", "parts", "loss")
    whole = dict(trainings.rows("whole", "valid_loss"))
    parts = dict(trainings.rows("parts", "valid_loss"))
    assert whole.items() <= parts.items()


def test_a_run_with_a_vocabulary_for_each_side_is_resumed_to_the_last_bit(trainings, greek_data):
    trainings.run("whole", data=greek_data, max_steps=5)
    for stop in (3, 5):
        torch.manual_seed(stop)  # another process has another random state
        assert trainings.run("parts", data=greek_data, max_steps=stop)
    trainings.assert_same("whole", "parts")
    for key in ("valid_loss", "valid_bleu"):
        assert trainings.rows("whole", key)[-1] == trainings.rows("parts", key)[-1]
    # What a validation translates is what the run translates.
    run, (src, _) = trainings.open("whole"), greek_data.text("valid")
    greedy = run.config.decode.greedy()
    translator = Translator.load(run, checkpoint="last", config=greedy, device="cpu")
    said = {sample["src"]: sample["hyp"] for sample in run.samples()[-1]["samples"]}
    assert said
    assert said.items() <= dict(zip(src, translator.translate(src), strict=True)).items()
    weights = run.checkpoints()[-1].load_weights()
    sizes = [len(tokenizer) for tokenizer in greek_data.tokenizers()]
    assert [len(weights[f"{name}.weight"]) for name in ("src_embedding", "embedding")] == sizes


def test_a_forecast_counts_both_vocabularies(config: Config, greek_data: PreparedData):
    text = dry_run.forecast(config, greek_data, device="cpu")
    assert "# vocabulary: 300 source and 300 target subwords\n" in text
    (total, parts) = re.findall(r"# parameters: ([\d,]+) \((.*)\)", text)[0]
    counts = {part: int(n.replace(",", "")) for part, n in re.findall(r"(\w+) ([\d,]+)", parts)}
    assert counts["embedding"] == counts["src_embedding"] == 300 * config.model.d_model
    assert sum(counts.values()) == int(total.replace(",", ""))


def test_a_run_that_continues_in_another_precision_says_so(trainings, monkeypatch, caplog):
    trainings.change("train", precision="auto")
    monkeypatch.setattr("mtkit.base.devices.has_native_bf16", lambda device: True)
    for max_steps in (2, 3):
        trainings.run("run", max_steps=max_steps)
    assert "continues in" not in caplog.text
    monkeypatch.setattr("mtkit.base.devices.has_native_bf16", lambda device: False)
    trainings.run("run", max_steps=4)
    said = "was trained in bf16 up to step 3, and continues in fp32 (train.precision: auto)"
    assert said in caplog.text


def test_a_pair_that_could_outgrow_the_device_is_refused(config: Config, tiny_data: PreparedData):
    pairs = tiny_data.pairs("train")
    longest = int(max(pairs.src.lengths.max(), pairs.tgt.lengths.max()))
    settings = {"bpe_dropout": 0.1, "device_batch_tokens": longest + 1, "batch_tokens": 200}
    with pytest.raises(MtkitError, match=r"train\.device_batch_tokens.*train\.bpe_dropout"):
        Trainer(changed(config, "train", **settings), tiny_data, device=CPU)


def test_killed_without_warning_a_run_repeats_the_steps_since_the_last_checkpoint(trainings):
    trainings.run("whole")
    trainings.stopped("killed", 5, kill)
    assert [step for step, _ in trainings.rows("killed", "loss")] == [1, 2, 3, 4]
    assert trainings.run("killed")
    trainings.assert_same("whole", "killed", "loss")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_step_saves_and_returns_false(number, trainings, caplog):
    trainings.run("whole")
    before = signal.getsignal(number)
    with caplog.at_level("INFO", logger="mtkit"):
        trainings.stopped("stopped", 4, lambda: os.kill(os.getpid(), number))
    folder = trainings.folder / "stopped"
    (line,) = [line for line in caplog.messages if line.startswith(f"saved step 4 in {folder}; to")]
    assert "to continue, run the same command again; to finish it early, at step 5 (in " in line
    assert line.endswith(f"), run: mtkit train --run {folder} --finish-in 1")
    assert signal.getsignal(number) is before
    assert trainings.steps("stopped")[-1] == 4
    assert trainings.run("stopped")
    trainings.assert_same("whole", "stopped", "loss")


def test_stopped_by_signals_a_run_ends_with_the_checkpoints_of_one_never_stopped(trainings):
    settings = {"max_steps": 8, "valid_every": 100, "checkpoint_every": 2, "keep_checkpoints": 3}
    trainings.change("train", **settings)
    trainings.change("decode", average_checkpoints=3)
    trainings.run("whole")
    for step in (3, 5, 7):
        trainings.stopped("stopped", step, interrupt)
        # What was trained last counts until the run goes on.
        stopped = trainings.open("stopped")
        assert [saved.step for saved in stopped.chosen(None)][-1] == step
    assert trainings.run("stopped")
    for name in ("whole", "stopped"):
        run = trainings.open(name)
        assert [saved.step for saved in run.checkpoints()] == [4, 6, 8]
        assert run.select(None)[1] == "the average of 3 checkpoints, steps 4 to 8"


def test_stopped_while_the_next_epoch_is_drawn_already_a_run_resumes_to_the_last_bit(trainings):
    stream = Trainer(trainings.config, trainings.data, device=CPU).batches
    epochs = []
    while stream.epoch == 0:
        next(stream)
        epochs.append(stream.epoch)
    # The position after this update is in the first epoch, and that of the next one is not.
    stop = len(epochs) - 1
    trainings.change("train", max_steps=stop + 2, valid_every=100, checkpoint_every=100)
    trainings.run("whole")
    trainings.stopped("stopped", stop, interrupt)
    assert trainings.open("stopped").checkpoints()[-1].load_state()["batches"]["epoch"] == 0
    assert trainings.run("stopped")
    trainings.assert_same("whole", "stopped")


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (1, "nothing was saved"),
        (5, "the last good checkpoint is step 3; to continue, run the same command again"),
    ],
)
def test_a_second_signal_stops_and_says_what_is_saved(at, message, trainings, monkeypatch, caplog):
    original = Trainer.update

    def twice(self, *given):
        if self.step + 1 < at:
            return original(self, *given)
        # Not os.kill, whose two signals become one where another thread receives them.
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("went on")

    monkeypatch.setattr(Trainer, "update", twice)
    with pytest.raises(KeyboardInterrupt):
        trainings.run("run")
    assert caplog.messages[-1] == f"stopped without saving; {message}"


def test_ctrl_c_ends_the_program_with_130_and_the_next_start_resumes(trainings):
    never = dict.fromkeys(("max_steps", "valid_every", "checkpoint_every"), 100_000)
    trainings.change("train", **never)
    run = trainings.folder / "run"
    metrics = run / "metrics.jsonl"
    with trainings.start("run") as process:
        wait_for(lambda: metrics.exists() and b"\n" in metrics.read_bytes(), process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert process.returncode == 130, err
    assert out == b""
    assert b"Traceback" not in err
    stopped = Run.open(run).checkpoints()[-1].step
    assert stopped == rows_of(run, "loss")[-1][0]
    end = stopped + 2
    longer = [*trainings.command(run), "--set", f"train.max_steps={end}"]
    with Forked(run_mtkit, longer, stderr=PIPE) as again:
        _, err = again.communicate(timeout=600)
    assert again.returncode == 0, err
    assert f"continuing from step {stopped}".encode() in err
    assert [step for step, _ in rows_of(run, "loss")] == list(range(1, end + 1))


@pytest.fixture
def again(begun, tiny_config, tiny_data) -> Trainings:
    """Trainings that go on from `begun`, a copy of the tiny run."""
    return Trainings(tiny_config, tiny_data, begun.parent)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("model", "dropout", 0.2),
        ("train", "batch_tokens", 210),
        ("train", "adam_beta2", 0.99),
        ("train", "seed", 7),
    ],
)
def test_a_run_refuses_other_settings_by_name(section, key, value, begun, again):
    before = contents(begun)
    again.change("train", max_steps=8)
    again.change(section, **{key: value})
    with pytest.raises(MtkitError) as error:
        again.run("begun")
    for word in (f"{section}.{key}", str(value), "--restart"):
        assert word in str(error.value)
    assert contents(begun) == before


@pytest.mark.parametrize(
    ("decay_steps", "stop", "end", "message"),
    [
        # Of 8 updates the last three have 3/3, 2/3 and 1/3 of the rate.
        (3, 7, 20, "began to decay at step 7"),
        (3, 8, 20, "began to decay at step 7"),
        # Of 6 updates the fifth would have had 2/3.
        (3, 5, 6, "would have begun to decay at step 5"),
        slow(3, 6, 20, None),
        (3, 4, 6, None),
        slow(0, 7, 20, None),
    ],
)
def test_the_end_of_a_run_stays_once_its_rate_falls(decay_steps, stop, end, message, trainings):
    trainings.change("train", max_steps=8, decay_steps=decay_steps)
    with pytest.MonkeyPatch.context() as patch:
        before_update(patch, stop, interrupt)
        trainings.run("run")
    before = contents(trainings.folder / "run")
    if message is None:
        assert trainings.run("run", max_steps=end)
        assert trainings.steps("run")[-1] == end
        return
    with pytest.raises(MtkitError) as error:
        trainings.run("run", max_steps=end)
    assert f"train.max_steps: cannot become {end} at step {stop}" in str(error.value)
    assert message in str(error.value)
    assert "keep train.max_steps=8" in str(error.value)
    assert contents(trainings.folder / "run") == before


def test_a_run_allows_what_does_not_change_its_weights(again):
    settings = {"max_steps": 6, "log_every": 1, "valid_every": 3, "checkpoint_every": 5}
    again.change("train", keep_checkpoints=2, **settings)
    again.change("decode", beam_size=2, length_penalty=1.0)
    assert again.run("begun")
    assert again.open("begun").config == again.config
    assert again.steps("begun")[-2:] == [5, 6]


def test_a_run_refuses_other_data_and_takes_a_copy(begun, again, tiny_text, tiny_data, tmp_path):
    copy = tmp_path / "another-name"
    shutil.copytree(tiny_data.path, copy)
    again.change("train", max_steps=5)
    assert again.run("begun", data=PreparedData.open(copy))
    # The same folder with one sentence of the test set changed.
    reseal(
        copy / "manifest.json",
        lambda manifest: manifest["files"]["test.src.txt"].update(sha256="0" * 64),
    )
    with pytest.raises(MtkitError, match=r"test\.src\.txt: changed"):
        again.run("begun", data=PreparedData.open(copy))
    other = tmp_path / "other"
    prepare_files("tiny", other, **tiny_text.prepare_arguments() | {"vocab_size": 290})
    before = contents(begun)
    with pytest.raises(MtkitError, match="other data"):
        again.run("begun", data=PreparedData.open(other))
    assert contents(begun) == before


FALLING = {"schedule": "linear", "learning_rate": 0.01, "learning_rate_scale": 1.0}


@pytest.mark.parametrize(
    ("settings", "stops", "steps", "first", "warm_up"),
    [
        *((settings, [4, 5, 6], 4, 5, "") for settings in ({}, FALLING)),
        slow({"decay_steps": 5}, [4, 5, 6], 4, 5, ""),
        (
            *({"warmup_steps": 6}, [3, 5, 7], 8, 6),
            "the warm-up goes on to update 6, to 100 % of its end; then ",
        ),
    ],
)
def test_finish_in_ends_a_run_early_and_resumes_to_the_last_bit(
    settings, stops, steps, first, warm_up, trainings, caplog
):
    trainings.change("train", max_steps=20, warmup_steps=2, checkpoint_every=100, valid_every=100)
    trainings.change("train", **settings)
    for name, ends in (("whole", stops[:1]), ("parts", stops)):
        for stop in ends:
            # Only the first start after the first stop has the option.
            trainings.stopped(name, stop, interrupt, finish_in=steps if stop == 5 else None)
    with caplog.at_level("INFO", logger="mtkit"):
        assert trainings.run("whole", finish_in=steps)
        assert trainings.run("parts")
    last = stops[0] + steps
    falls = f"the learning rate falls to zero from update {first} on; the run ends at step {last}"
    assert caplog.messages.count(f"{warm_up}{falls} (--finish-in)") == 2
    trainings.assert_same("whole", "parts")
    assert trainings.steps("parts")[-1] == last
    rates, size = dict(trainings.rows("parts", "lr")), last - first + 1
    # Down in a line; of a warm-up, up in a line before.
    for step in range(1 if warm_up else first, last + 1):
        share = step / first if step < first else (last + 1 - step) / size
        assert rates[step] / rates[first] == pytest.approx(share)


def test_a_run_that_is_being_finished_takes_no_other_end(trainings, caplog):
    path = trainings.folder / "run"
    trainings.change("train", max_steps=3, decay_steps=0)
    with pytest.raises(MtkitError, match="--finish-in: is for a run that has a checkpoint"):
        trainings.run("run", finish_in=2)
    assert not path.exists()
    assert trainings.run("run")
    # The formula of the paper goes on behind the planned end.
    assert trainings.run("run", finish_in=2)
    before = contents(path / "checkpoints")
    with caplog.at_level("INFO", logger="mtkit"):
        assert trainings.run("run", finish_in=2)
    assert "is finished: step 5 of 5; to train longer, start a new run" in caplog.text
    with pytest.raises(MtkitError, match=r"ends at step 5 already \(--finish-in 2 at step 3\)"):
        trainings.run("run", finish_in=9)
    with pytest.raises(MtkitError, match="finish_steps: cannot be changed while a run continues"):
        trainings.run("run", finish_after=3, finish_steps=9)
    assert contents(path / "checkpoints") == before


def test_a_rate_that_has_fallen_to_zero_cannot_be_finished(trainings: Trainings):
    trainings.change("train", max_steps=2, warmup_steps=1, **FALLING)
    assert trainings.run("run")
    with pytest.raises(MtkitError, match=r"has fallen to zero after 2 updates; .* --init-from"):
        trainings.run("run", finish_in=2)


def test_a_run_is_finished_though_no_validation_is_better(trainings: Trainings):
    patient = {"valid_every": 1, "patience": 1, "best_metric": "bleu", "max_steps": 9}
    trainings.change("train", **patient, checkpoint_every=1, decay_steps=0)
    assert trainings.run("run")
    stopped = trainings.steps("run")[-1]
    assert stopped < 6
    assert trainings.run("run", finish_in=3)
    assert trainings.steps("run")[-1] == stopped + 3


@pytest.mark.parametrize(("decay_steps", "advice"), [(1, "train.max_steps"), (3, "a new run")])
def test_a_finished_run_stays_and_says_how_to_train_further(decay_steps, advice, again, caplog):
    caplog.set_level("INFO", logger="mtkit")
    # With one step of decay the last update still has the full rate.
    again.change("train", decay_steps=decay_steps)
    assert again.run("run")
    before = contents(again.folder / "run" / "checkpoints")
    assert again.run("run")
    assert contents(again.folder / "run" / "checkpoints") == before
    (line,) = [line for line in caplog.messages if "is finished: step 4 of 4; to train lon" in line]
    assert advice in line
    with pytest.raises(MtkitError, match=r"max_steps: cannot become 3 because step 4 is reached"):
        again.run("run", max_steps=3)
    if decay_steps == 1:
        assert again.run("run", max_steps=6)
    else:
        with pytest.raises(MtkitError, match="began to decay"):
            again.run("run", max_steps=6)


def test_restart_starts_over_with_any_settings(again):
    again.change("train", max_steps=2)
    again.change("model", d_ff=48)
    assert again.run("begun", restart=True)
    assert again.steps("begun") == [2]
    assert again.run("new")
    again.assert_same("begun", "new", "loss")


def test_a_run_without_its_configuration_is_refused_and_can_be_restarted(begun, again):
    (begun / "config.yaml").unlink()
    before = contents(begun)
    with pytest.raises(MtkitError, match=r"config.yaml: missing or not a file; restore") as error:
        again.run("begun")
    assert "another --run" in str(error.value)
    assert contents(begun) == before
    assert again.run("begun", restart=True)
    assert Run.open(begun).config == again.config


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "tokenizer.model"])
def test_a_restart_deletes_nothing_where_a_folder_has_the_name_of_a_file(name, begun, again):
    (begun / name).unlink()
    (begun / name).mkdir()
    before = contents(begun)
    with pytest.raises(MtkitError, match=f"{name}: is a folder; move it away"):
        again.run("begun", restart=True)
    assert contents(begun) == before


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("instead", ["nothing", "a folder", "a link to nowhere"])
def test_a_run_without_its_manifest_says_so_and_is_left_alone(instead, restart, begun, again):
    (begun / "manifest.json").unlink()
    if instead == "a folder":
        (begun / "manifest.json").mkdir()
    elif instead == "a link to nowhere":
        (begun / "manifest.json").symlink_to(begun / "unmounted" / "manifest.json")
    before = contents(begun)
    message = r"manifest.json: missing or not a file; restore .* another folder"
    with pytest.raises(MtkitError, match=message):
        Run.open(begun)
    with pytest.raises(MtkitError, match=message):
        again.run("begun", restart=restart)
    assert contents(begun) == before


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_folder_that_is_not_a_run_is_not_changed(is_prepared, restart, trainings):
    folder = trainings.folder / "home"
    if is_prepared:
        shutil.copytree(trainings.data.path, folder)
    else:
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "checkpoints" / "precious").write_text("of another program")
        (folder / "config.yaml").write_text("also: of another program")
    before = contents(folder)
    with pytest.raises(MtkitError, match="not a run folder"):
        trainings.run("home", restart=restart)
    assert contents(folder) == before


@pytest.mark.parametrize("key", ["valid_loss", "valid_bleu", "valid_chrf"])
@pytest.mark.parametrize("value", [None, "text", {"a": 1}])
@pytest.mark.parametrize("is_own", [False, True])
def test_a_checkpoint_whose_validation_lacks_a_score_is_refused(key, value, is_own, begun):
    def lose(saved):
        state = saved["state"]
        (state if is_own else state["validations"][0])[key] = value

    newest = Run.open(begun).checkpoints()[-1]
    reseal(newest.path / "state.json", lose)
    with pytest.raises(MtkitError, match=r"another version of mtkit \((scores|validations\.0)"):
        read_checkpoint(newest)
