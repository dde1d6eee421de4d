import logging
import re
import shutil
import sys
import threading

import pytest
import torch
from tqdm import std as tqdm_of_terminals
from tqdm import tqdm

from mtkit.cli.console import configure_logging
from mtkit.config import load_config
from mtkit.run_folder import Run


def test_train_prints_no_data_and_names_the_folder_it_chose(prepared, tiny_yaml):
    outcome = prepared.mtkit("train", "--config", tiny_yaml, "--device", "cpu")
    assert (outcome.status, outcome.out) == (0, "")
    assert "data/tiny" in outcome.err
    assert Run.open(prepared.folder / "runs" / "tiny-tiny").checkpoints()[-1].step == 4
    assert outcome.err.splitlines()[-3:] == [
        "mtkit: report: runs/tiny-tiny/report.html; to use the run:",
        "mtkit translate --run runs/tiny-tiny < input.txt",
        "mtkit score --run runs/tiny-tiny",
    ]


def test_a_dry_run_prints_a_configuration_that_loads_and_writes_nothing(
    prepared, tiny_yaml, tmp_path
):
    before = prepared.files()
    outcome = prepared.done("train", "--config", tiny_yaml, "--dry-run", "--device", "cpu")
    assert prepared.files() == before
    shown = tmp_path / "shown.yaml"
    shown.write_text(outcome.out, encoding="utf-8")
    assert load_config(str(shown)) == load_config(str(tiny_yaml))
    assert "parameters" in outcome.out


@pytest.mark.parametrize(("setting", "bytes_each"), [("train.ema=0", 16), ("train.ema=0.999", 20)])
def test_the_memory_of_a_parameter_includes_its_moving_average(setting, bytes_each, place):
    # Without prepared data, so the vocabulary is the paper's.
    outcome = place.mtkit("train", "--config", "base", "--dry-run", "--set", setting)
    (count,) = re.findall(r"# parameters: ([\d,]+)", outcome.out)
    parts = re.findall(r"(?:weights|gradients|optimizer) ([\d.]+)[,;]", outcome.out)
    needed = bytes_each * int(count.replace(",", "")) / 2**30
    # Each of the three is rounded.
    assert sum(map(float, parts)) == pytest.approx(needed, abs=0.015)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--set max_steps=3", ("max_steps", "section.key=value")),
        ("--set train.device_batch_tokens=2", ("train.device_batch_tokens", "2")),
        ("--set data.src_lang=fr", ("data.src_lang", "fr", "en")),
        ("--run file/run", ("file/run",)),
    ],
)
def test_a_setting_or_a_folder_that_cannot_be_is_named(option, words, prepared):
    prepared.write("file", "not a folder")
    error = prepared.refused("train", "--config", "demo", *option.split(), "--device", "cpu")
    for word in words:
        assert word in error


def test_a_dry_run_counts_on_the_workers_that_would_train(prepared, tiny_yaml, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    plain = ("--set", "train.gpu_path=plain")
    arguments = ["train", "--config", tiny_yaml, "--dry-run", "--device", "cpu", *plain]
    alone = prepared.mtkit(*arguments).out.partition("\ndata:")[0]
    assert "workers" not in alone
    several = ["--workers", "3", "--set", "train.fsdp=true"]
    outcome = prepared.done(*arguments, *several)
    (device,) = re.findall("# device: .*", outcome.out)
    assert device.startswith("# device: CPU, 1 thread, 3 workers, fp32, matrices by ")
    assert "target tokens/s over" in outcome.out
    assert ", by one worker alone" in outcome.out
    assert "if all 3 workers keep that speed" in outcome.out
    # Cut so that all three have as many.
    for text, rest in ((alone, 1), (outcome.out, 0)):
        (micro_batches,) = re.findall(r"(\d+) micro-batch", text)
        assert min(int(micro_batches) % 3, 1) == rest


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines of workers that would have been started."""
    commands: list[list[str]] = []

    def launch(arguments, count, **_):
        commands.append(arguments)
        return 0

    monkeypatch.setattr("mtkit.train.launch", launch)
    return commands


def test_workers_get_the_paths_so_that_they_do_not_find_newer_ones(prepared, tiny_yaml, launched):
    assert prepared.mtkit("train", "--config", tiny_yaml, "--workers", "2").status == 0
    (command,) = launched
    assert command[:3] == ["-m", "mtkit", "train"]
    assert command[-2:] == ["--data=data/tiny", "--run=runs/tiny-tiny"]


@pytest.mark.parametrize("count", [1, 2])
def test_a_worker_of_torchrun_starts_no_others(count, prepared, tiny_yaml, launched, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr("mtkit.train.run", lambda *_, **__: True)
    monkeypatch.setattr("mtkit.cli._leave", sys.exit)
    for name, value in {"RANK": 0, "WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, str(value))
    assert prepared.mtkit("train", "--config", tiny_yaml).status == 0
    for option in ("--workers", "--max-restarts"):
        assert "torchrun" in prepared.refused("train", "--config", tiny_yaml, option, "2")
    assert not launched


def test_messages_have_levels_and_later_workers_print_only_errors(monkeypatch, capsys):
    def say():
        configure_logging(quiet=False)
        logger = logging.getLogger("mtkit.test")
        logger.info("a note")
        logger.warning("take care")
        logger.error("it broke")
        return capsys.readouterr().err

    assert say() == "mtkit: a note\nmtkit: warning: take care\nmtkit: error: it broke\n"
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    assert say() == "mtkit: error: it broke\n"


def test_a_message_that_is_interrupted_at_any_line_of_code_gives_no_other_error(monkeypatch):
    """As Ctrl-C does: KeyboardInterrupt before each line that runs while a message is printed."""
    configure_logging(quiet=False)
    logger = logging.getLogger("mtkit.test")
    lines_left = 0

    def interrupt(frame, event, _argument):
        nonlocal lines_left
        # A lock of `logging` that is interrupted while it is acquired would stop other tests.
        lines_left -= event == "line" and "logging" not in frame.f_code.co_filename
        if lines_left < 0:
            sys.settrace(None)
            raise KeyboardInterrupt
        return interrupt

    # So would a lock of tqdm.
    monkeypatch.setattr(tqdm_of_terminals, "TqdmDefaultWriteLock", threading.RLock)
    before, tracer = 0, sys.gettrace()
    while True:
        monkeypatch.delattr(tqdm, "_lock", raising=False)
        lines_left = before
        sys.settrace(interrupt)
        try:
            logger.warning("take care")
            break
        except KeyboardInterrupt:
            before += 1
        finally:
            sys.settrace(tracer)
    assert before > 20


def test_training_without_data_says_how_to_make_some(place):
    assert "mtkit prepare" in place.refused("train", "--config", "demo")
    place.write("data/half/train.src.bin", b"")
    assert "mtkit prepare" in place.refused("train", "--config", "demo")
    assert "data/half" in place.refused("train", "--config", "demo", "--data", "data/half")


def test_a_run_continues_by_its_folder_alone(trained):
    # Other data that is newer is not used.
    shutil.copytree(trained.folder / "data" / "tiny", trained.folder / "data" / "newer")
    longer = ["--run", "runs/tiny", "--set", "train.max_steps=6", "--device", "cpu"]
    outcome = trained.mtkit("train", *longer)
    assert (outcome.status, outcome.out) == (0, "")
    run = Run.open(trained.folder / "runs" / "tiny")
    assert run.checkpoints()[-1].step == 6
    assert run.config.train.max_steps == 6
    outcome = trained.done("train", "--run", "runs/tiny", "--finish-in", "2", "--device", "cpu")
    assert "the run ends at step 8 (--finish-in)" in outcome.err
    assert run.checkpoints()[-1].step == 8


def test_a_run_whose_data_was_moved_asks_for_it(trained):
    (trained.folder / "data").rename(trained.folder / "moved")
    error = trained.refused("train", "--run", "runs/tiny")
    assert "/tiny, is not there; " in error
    assert error.endswith("give --data")
    again = ["--data", "moved/tiny", "--set", "train.max_steps=6", "--device", "cpu"]
    assert trained.mtkit("train", "--run", "runs/tiny", *again).status == 0
    assert Run.open(trained.folder / "runs" / "tiny").checkpoints()[-1].step == 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give --config"),
        (["--run", "runs/new"], "runs/new is not a run yet: give --config"),
        (["--run", "runs/tiny", "--finish-in", "2", "--restart"], "--restart"),
        (["--run", "runs/tiny", "--finish-in", "2", "--dry-run"], "--dry-run"),
    ],
)
def test_a_wrong_use_of_a_run_alone_is_named(arguments, words, trained):
    outcome = trained.mtkit("train", *arguments)
    assert outcome.status == 2
    assert words in outcome.err
