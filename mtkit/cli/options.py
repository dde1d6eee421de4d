"""What several commands share: options, and how data, runs and text are found."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mtkit.cli.streams import standard_input

if TYPE_CHECKING:
    from mtkit.data import PreparedData
    from mtkit.run_folder import Run
    from mtkit.translate import Translator


log = logging.getLogger(__name__)

DATA_ROOT = Path("data")
RUNS_ROOT = Path("runs")

Command = TypeVar("Command", bound=Callable[..., Any])
PathArgument = click.Path(path_type=Path)


def example(text: str) -> str:
    """The end of a command's help: an example that runs as printed."""
    return f"\b\nExample:\n  {text}"


def run_option(function: Command) -> Command:
    """`--run`."""
    return click.option(
        "--run", "run_path", type=PathArgument, help="Run folder; default: the newest under runs/."
    )(function)


def device_option(function: Command) -> Command:
    """`--device`."""
    return click.option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=True,
        help="Where to compute; auto takes a GPU if there is one.",
    )(function)


def checkpoint_option(function: Command) -> Command:
    """`--checkpoint`."""
    return click.option(
        "--checkpoint",
        metavar="WHICH",
        help="average:N, best, last or a step; default: the"
        " average that the run's configuration asks for.",
    )(function)


def decode_options(function: Command) -> Command:
    """The options of a translation that `translate` and `score` share."""
    for option in (
        checkpoint_option,
        click.option("--beam-size", type=click.IntRange(1), help="Hypotheses kept per sentence."),
        click.option("--length-penalty", type=float, help="alpha of ((5 + length) / 6) ** alpha."),
        click.option(
            "--batch-tokens", type=click.IntRange(1), help="Source tokens translated at a time."
        ),
        click.option(
            "--precision",
            type=click.Choice(["auto", "fp32", "bf16", "int8"]),
            help="Of matrix products; auto is fp32. int8 is for x86 CPUs: faster, a little worse.",
        ),
        device_option,
        click.option(
            "--workers",
            type=click.IntRange(1),
            help="Processes on this machine that translate; default: one for each GPU, or one.",
        ),
    )[::-1]:
        function = option(function)
    return function


def open_data(path: Path | None) -> PreparedData:
    """A prepared folder; without a path the newest one."""
    from mtkit import data

    if path is None:
        path = data.find_data(DATA_ROOT)
        log.info("data: %s", path)
    return data.PreparedData.open(path)


def open_run(path: Path | None) -> Run:
    """A run; without a path the newest one."""
    from mtkit import run_folder

    return run_folder.Run.open(path) if path else run_folder.find_run(RUNS_ROOT)


def load_translator(
    runs: Sequence[Run],
    *,
    checkpoint: str | None,
    device: str,
    workers: int | None,
    **settings: Any,
) -> Translator:
    """Of runs; `settings` are those of the first one's `decode` that are not None."""
    from mtkit.config import change_decoding
    from mtkit.devices import workers_wanted
    from mtkit.processes import given_rank
    from mtkit.translate import Translator

    changes = {key: value for key, value in settings.items() if value is not None}
    config = change_decoding(runs[0].config.decode, changes)
    if workers is None:
        # A worker among others has its GPU already.
        workers = workers_wanted(device) if given_rank() is None else 1
    return Translator.load(
        runs, checkpoint=checkpoint, config=config, device=device, workers=workers
    )


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file, or of standard input (-)."""
    from mtkit.text import decode_lines, read_lines

    if str(path) == "-":
        return decode_lines(standard_input(), name="standard input")
    return read_lines(path)
