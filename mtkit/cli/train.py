"""The command `mtkit train`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mtkit.cli.console import is_later_worker, need_output, print_text
from mtkit.cli.options import DATA_ROOT, RUNS_ROOT, PathArgument, device_option, example, open_data
from mtkit.errors import MtkitError

if TYPE_CHECKING:
    from mtkit.config import Config


@click.command(epilog=example("mtkit train --config demo"))
@click.option(
    "--config",
    "config_name",
    required=True,
    metavar="FILE_OR_PRESET",
    help="A YAML file, or a preset, such as base, big, small, demo or table3-c-n2.",
)
@click.option(
    "--data",
    "data_path",
    type=PathArgument,
    help="Prepared folder; default: data.dir of the configuration, else the newest under data/.",
)
@click.option(
    "--run", "run_path", type=PathArgument, help="Run folder; default: runs/<data>-<config>."
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    help="Change a setting, as in train.max_steps=20000; repeatable.",
)
@device_option
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Processes that train together on this machine; default: one for each GPU.",
)
@click.option(
    "--max-restarts",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Start the workers again if one breaks down, at most this many times.",
)
@click.option("--restart", is_flag=True, help="Begin again, deleting the run's checkpoints.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Check everything, print the configuration with a forecast of memory, time and cost,"
    " and stop.",
)
def train(
    config_name: str,
    data_path: Path | None,
    run_path: Path | None,
    overrides: tuple[str, ...],
    device: str,
    workers: int | None,
    max_restarts: int,
    restart: bool,
    dry_run: bool,
) -> int:
    """Train a model on prepared data.

    Continues by itself where the run folder has a checkpoint of the same configuration and data.
    Ctrl-C saves and stops. On several machines, start it with torchrun: torchrun ... -m -- mtkit
    train ...
    """
    from mtkit import config as settings

    config = settings.load_config(config_name, overrides)
    where = data_path or (Path(config.data.dir) if config.data.dir else None)
    from mtkit.devices import workers_wanted
    from mtkit.processes import given_rank
    from mtkit.train import is_launched, launch

    alone = given_rank() is None
    if not alone and not is_launched() and (workers or max_restarts):
        raise click.UsageError(
            "--workers and --max-restarts are for mtkit to start workers, and these were started"
            " already; torchrun has --nproc-per-node and --max-restarts"
        )
    count = workers or workers_wanted(device)
    if dry_run:
        if not is_later_worker():
            need_output()
            print_text(_forecast(config, where, device, count))
        return 0
    data = open_data(where)
    target = run_path or RUNS_ROOT / f"{data.name}-{settings.config_name(config_name)}"
    if alone and (count > 1 or max_restarts):
        # Workers that start later must not find something newer.
        found = [f"--data={data.path}", f"--run={target}"]
        command = ["-m", "mtkit", *sys.argv[1:], *found]
        return launch(command, count, max_restarts=max_restarts)
    from mtkit import train as training

    finished = training.run(config, data, target, device=device, restart=restart, command=sys.argv)
    return 0 if finished else 130


def _forecast(config: Config, data_path: Path | None, device: str, world_size: int) -> str:
    """What a dry run prints; a shape can be looked at before there is any data."""
    from mtkit import train as training
    from mtkit.data import find_data

    if data_path is None:
        try:
            find_data(DATA_ROOT)
        except MtkitError:
            return training.forecast_without_data(config)
    data = open_data(data_path)
    return training.forecast(config, data, device=device, world_size=world_size)
