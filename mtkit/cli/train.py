"""The command `mtkit train`."""

from __future__ import annotations

import logging
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtkit.base.errors import MtkitError
from mtkit.cli import options as shared
from mtkit.cli.console import is_later_worker, is_worker, print_text, say

if TYPE_CHECKING:
    from mtkit.config import Config
    from mtkit.data import PreparedData
    from mtkit.run_folder import Run

log = logging.getLogger(__name__)

configuration_option = shared.option_group("Configuration")


@shared.command(
    "Train a model on a prepared corpus.",
    "mtkit train --config demo",
    "mtkit train --config small --data data/mine --run runs/mine",
    "mtkit train --config base --data data/mine --set train.max_steps=20000",
    "mtkit train --config fine-tune --data data/mine --init-from runs/mine",
    "mtkit train --run runs/mine --finish-in 500",
)
@configuration_option(
    "--config FILE_OR_PRESET",
    "config_name",
    type=shared.PathText,
    help="YAML file, or name of a preset: base, big, small, demo, and others (--list prints them)."
    " Required for a new run; a run that continues (--run) has its own.",
)
@configuration_option(
    "--set SECTION.KEY=VALUE",
    "overrides",
    multiple=True,
    help="Change a setting, as in train.max_steps=20000. Repeatable. --settings prints all"
    " settings.",
)
@shared.in_out_option(
    "--data FOLDER",
    "data_path",
    help="Prepared folder. Default: data.dir of the configuration, else the newest under data/."
    " With --run alone, the data of the run.",
)
@shared.one_run_option(
    shared.in_out_option,
    help="Run folder to write. Default: runs/DATA-CONFIG, as in runs/mine-small.",
)
@shared.in_out_option(
    "--init-from RUN[:CHECKPOINT]",
    type=shared.PathText,
    help="Start from the weights of this run, not from random ones: fine-tuning. The data must have"
    " been prepared with its subwords (prepare --tokenizer-from). CHECKPOINT is as for translate,"
    " as in runs/mine:best.",
)
@shared.in_out_option("--restart", help="Delete the checkpoints of the run and start from step 0.")
@shared.in_out_option(
    "--finish-in N",
    help="Let the learning rate of a run that continues fall to zero over the next N updates, and"
    " end there.",
)
@shared.device_option
@shared.hardware_option(
    "--workers N",
    type=shared.WORKERS,
    help="Worker processes that train together on this machine. Default: one per GPU, or one on "
    "the CPU.",
)
@shared.hardware_option(
    "--max-restarts N",
    type=click.IntRange(0),
    default=0,
    help="If a worker fails, restart all workers, at most N times. Default: 0.",
)
@shared.information_option(
    "--dry-run",
    help="Check the configuration and the data, print the configuration with estimates of memory,"
    " time and cost, and stop.",
)
@shared.information_option(
    "--list", "list_presets", help="Print the presets, with a line about each."
)
@shared.settings_option
def train(
    config_name: str | None,
    data_path: Path | None,
    run_path: Path | None,
    overrides: tuple[str, ...],
    init_from: str | None,
    device: str,
    workers: int | None,
    max_restarts: int,
    restart: bool,
    finish_in: int | None,
    dry_run: bool,
    list_presets: bool,
    list_settings: bool,
) -> int:
    """Train a model on a prepared corpus.

    If the run folder has a checkpoint of the same configuration and data, training resumes from
    it. Ctrl-C saves a checkpoint and stops; --run alone then continues.

    \b
    To train on several machines, start this on each, with torchrun:
      torchrun OPTIONS -m -- mtkit train ...
    """
    from mtkit import config as settings

    if list_presets or list_settings:
        from mtkit.cli import tables

        print_text(tables.presets() if list_presets else tables.settings(settings.Config))
        return 0
    if finish_in:
        shared.refuse_given(["restart", "dry_run"], "cannot be combined with --finish-in")
    if config_name is None:
        from mtkit.run_folder import CONFIG

        continued = _run_to_continue(run_path)
        config_name = str(continued.path / CONFIG)
        data_path = data_path or _data_of(continued)
    config = settings.load_config(config_name, overrides)
    data_path = data_path or (Path(config.data.dir) if config.data.dir else None)
    from mtkit.base.devices import workers_wanted
    from mtkit.train import is_launched, launch

    alone = not is_worker()
    if not alone and not is_launched():
        shared.refuse_given(
            ["workers", "max_restarts"],
            "cannot be combined with torchrun, which has started the workers already; use its"
            " --nproc-per-node and --max-restarts",
        )
    count = workers or workers_wanted(device)
    needs_base = config_name in ("fine-tune", "fine-tune-large") and init_from is None
    no_base = click.UsageError(
        f"the preset {config_name} trains a run further; give --init-from RUN"
    )
    if dry_run:
        if needs_base:
            raise no_base
        if not is_later_worker():
            options = {"device": device, "world_size": count, "init_from": init_from}
            options |= {"run_path": run_path or shared.RUNS_ROOT, "restart": restart}
            print_text(_forecast(config, data_path, options))
        return 0
    data = shared.open_data(data_path)
    target = run_path or shared.RUNS_ROOT / f"{data.name}-{settings.config_name(config_name)}"
    if needs_base:
        from mtkit.run_folder import Run

        if restart or not Run.is_run(target):
            raise no_base
    if alone and (count > 1 or max_restarts):
        # Workers that start later must not find a newer folder.
        command = ["-m", "mtkit", *sys.argv[1:], f"--data={data.path}", f"--run={target}"]
        return launch(command, count, max_restarts=max_restarts)
    from mtkit import train as training

    finished = training.run(
        config,
        data,
        target,
        device=device,
        restart=restart,
        command=sys.argv,
        init_from=init_from,
        finish_in=finish_in,
    )
    if finished:
        _say_what_next(target, data)
    return 0 if finished else 130


def _say_what_next(path: Path, data: PreparedData) -> None:
    """Say where the page of a finished run is, and print the commands that use the run."""
    from mtkit.run_folder import PAGE

    log.info("report: %s; to use the run:", path / PAGE)
    if log.isEnabledFor(logging.INFO):
        name = shlex.quote(str(path))
        targets = sorted({tgt for _, tgt in data.language_pairs})
        language = f" --tgt-lang {targets[0]}" if len(targets) > 1 else ""
        say(f"mtkit translate --run {name}{language} < input.txt")
        if "test" in data.manifest.sources:
            scorer = "score-trees" if data.task == "parsing" else "score"
            say(f"mtkit {scorer} --run {name}")


def _run_to_continue(path: Path | None) -> Run:
    from mtkit.run_folder import Run

    if path is None or not Run.is_run(path):
        new = "" if path is None else f"{path} is not a run yet: "
        raise click.UsageError(f"{new}give --config; mtkit train --list prints the presets")
    return Run.open(path)


def _data_of(run: Run) -> Path:
    """The data of a run that continues without `--data`."""
    from mtkit.data import is_prepared

    if not is_prepared(run.data_path):
        raise MtkitError(f"{run.path}: its data, {run.data_path}, is not there; give --data")
    log.info("data: %s", run.data_path)
    return run.data_path


def _forecast(config: Config, data_path: Path | None, options: dict[str, Any]) -> str:
    """The text that a dry run prints; without any prepared data, only what needs none."""
    from mtkit import train as training
    from mtkit.data import find_data

    if data_path is None and options["init_from"] is None:
        try:
            find_data(shared.DATA_ROOT)
        except MtkitError:
            return training.forecast_without_data(config)
    return training.forecast(config, shared.open_data(data_path), **options)
