"""Two processes that write the same thing at once: one does, the other is refused in one line."""

import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.forked import Forked

from mtkit import cli
from mtkit.config import Config, dump_config
from mtkit.data import PreparedData
from mtkit.run_folder import Run
from mtkit.train.trainer import Trainer
from mtkit.translate.resumable import ResumableOutput

SECONDS = 600


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def command(folder: Path, arguments: list[str], held_up: bool) -> None:
    """The command line in a folder; once it has its lock, it waits for a file named "go"."""
    os.chdir(folder)
    torch.set_num_threads(1)

    def hold_up(kind: type, name: str) -> None:
        original = getattr(kind, name)

        def wait_first(*given: object, **more: object) -> object:
            Path(f"holding-{os.getpid()}").touch()
            wait_for(Path("go").exists)
            return original(*given, **more)

        setattr(kind, name, wait_first)

    if held_up:
        hold_up(Trainer, "fit")
        hold_up(ResumableOutput, "_translate_and_join")
    sys.argv = ["mtkit", "-q", *arguments]
    cli.main()


def start(folder: Path, arguments: list[str], name: str, *, held_up: bool = True) -> Forked:
    return Forked(command, folder, arguments, held_up, err=folder / f"{name}.err")


def one_of_two(folder: Path, first: list[str], second: list[str], what: str) -> int:
    """Start both at once; returns which of them was done, 0 or 1, the other being refused."""
    both = [start(folder, arguments, str(i)) for i, arguments in enumerate((first, second))]
    wait_for(lambda: any(process.returncode is not None for process in both))
    (refused,) = (i for i, process in enumerate(both) if process.returncode is not None)
    assert both[refused].returncode == 1
    (line,) = (folder / f"{refused}.err").read_text().splitlines()
    wait_for(lambda: list(folder.glob("holding-*")))
    (holder,) = (path.name.removeprefix("holding-") for path in folder.glob("holding-*"))
    assert line.startswith(f"mtkit: error: {what} by process {holder} on ")
    assert " since 20" in line
    (folder / "go").touch()
    done = 1 - refused
    assert both[done].wait(timeout=SECONDS) == 0
    return done


def weights(run: Path) -> list[str]:
    return [
        hashlib.sha256((saved.path / name).read_bytes()).hexdigest()
        for saved in Run.open(run).checkpoints()
        for name in ("model.safetensors", "optimizer.safetensors")
    ]


@pytest.mark.parametrize("other", ["model.d_ff=32", "train.seed=2"])
def test_of_two_trainings_in_one_folder_one_is_refused_and_the_other_undisturbed(
    other, tiny_config, tiny_data, tmp_path
):
    (tmp_path / "tiny.yaml").write_text(dump_config(tiny_config), encoding="utf-8")

    def arguments(run: str, *more: str) -> list[str]:
        line = ["train", "--config", "tiny.yaml", "--data", str(tiny_data.path)]
        return [*line, "--device", "cpu", "--run", run, *more]

    # The first change is none: it is the same training twice.
    settings = ["model.d_ff=32", other]
    commands = [arguments("runs/both", "--set", setting) for setting in settings]
    done = one_of_two(tmp_path, commands[0], commands[1], "runs/both: is being trained")
    alone = start(tmp_path, arguments("runs/alone", "--set", settings[done]), "alone")
    assert alone.wait(timeout=SECONDS) == 0
    assert weights(tmp_path / "runs" / "both") == weights(tmp_path / "runs" / "alone")
    assert (tmp_path / "runs" / "both" / "metrics.jsonl").read_text().count('"valid_loss"') == 1
    assert not list((tmp_path / "runs" / "both").glob(".*"))


def test_of_two_translations_into_one_file_one_is_refused_and_the_other_undisturbed(
    tiny_run, tmp_path
):
    (tmp_path / "in").write_text("one two three\n\nnine\n")

    def arguments(output: str, *more: str) -> list[str]:
        line = ["translate", "--run", str(tiny_run.path), "--device", "cpu", "--input", "in"]
        return [*line, "--output", output, *more]

    commands = [arguments("both", "--beam-size", size) for size in ("1", "5")]
    done = one_of_two(tmp_path, commands[0], commands[1], "both: is being written")
    alone = start(tmp_path, [*arguments("alone"), *commands[done][-2:]], "alone")
    assert alone.wait(timeout=SECONDS) == 0
    assert (tmp_path / "both").read_bytes() == (tmp_path / "alone").read_bytes()
    assert not list(tmp_path.glob(".*"))


def held_up_training(folder: Path, config: Config, data: PreparedData) -> tuple[list[str], Forked]:
    """A training that holds its lock, and its command line."""
    (folder / "tiny.yaml").write_text(dump_config(config), encoding="utf-8")
    arguments = ["train", "--config", "tiny.yaml", "--data", str(data.path)]
    arguments += ["--device", "cpu", "--run", "run"]
    holder = start(folder, arguments, "holder")
    wait_for(lambda: list(folder.glob("holding-*")))
    return arguments, holder


def test_a_killed_training_leaves_its_folder_free_at_once(tiny_config, tiny_data, tmp_path):
    arguments, holder = held_up_training(tmp_path, tiny_config, tiny_data)
    assert start(tmp_path, arguments, "refused").wait(timeout=SECONDS) == 1
    holder.kill()
    assert holder.wait(timeout=SECONDS) == -signal.SIGKILL
    # The lock file of the killed one is still there, and its lock is not.
    assert (tmp_path / "run" / ".lock").exists()
    assert start(tmp_path, arguments, "next", held_up=False).wait(timeout=SECONDS) == 0
    assert len(Run.open(tmp_path / "run").checkpoints()) == 2


def test_a_run_with_other_settings_and_no_checkpoint_is_not_replaced(
    tiny_config, tiny_data, tmp_path
):
    arguments, holder = held_up_training(tmp_path, tiny_config, tiny_data)
    holder.kill()
    holder.wait(timeout=SECONDS)
    other = [*arguments, "--set", "train.seed=2"]
    assert start(tmp_path, other, "other", held_up=False).wait(timeout=SECONDS) == 1
    (line,) = (tmp_path / "other.err").read_text().splitlines()
    assert "train.seed (1 became 2)" in line
    assert Run.open(tmp_path / "run").config.train.seed == 1
    restart = [*other, "--restart"]
    assert start(tmp_path, restart, "restart", held_up=False).wait(timeout=SECONDS) == 0
    assert Run.open(tmp_path / "run").config.train.seed == 2
