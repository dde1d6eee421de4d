"""Standard output and standard error of the commands: results, notes and errors."""

from __future__ import annotations

import logging
import os
import shutil
import sys

import click

from mtkit.base.errors import MtkitError, one_line
from mtkit.cli.streams import has_output


def is_worker() -> bool:
    """Whether this process was started among workers."""
    if "RANK" not in os.environ:
        # Answered without loading PyTorch, which the full answer needs.
        return False
    from mtkit.base.processes import given_rank

    return given_rank() is not None


def is_later_worker() -> bool:
    """Whether this is a worker other than the first, which prints for all of them."""
    return is_worker() and os.environ["RANK"] != "0"


def print_text(text: str) -> None:
    """Print text that ends in a newline already."""
    click.echo(text, nl=False)


def width() -> int:
    """Width of standard output in characters; a file or pipe has no limit."""
    from mtkit.cli.tables import UNBROKEN

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else UNBROKEN


def need_output() -> None:
    """Refuse a closed standard output before the work whose result would be printed there."""
    if not has_output():
        raise MtkitError("standard output is closed")


def say(message: str) -> None:
    """Print a line on standard error."""
    click.echo(message, err=True)


def say_error(message: str) -> None:
    """Print an error as one line on standard error."""
    say(f"mtkit: error: {one_line(message)}")


class NoteHandler(logging.Handler):
    """Notes on standard error, above a progress bar where there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record as one line."""
        from tqdm import tqdm

        prefix = "mtkit: "
        if record.levelno >= logging.WARNING:
            prefix += f"{record.levelname.lower()}: "
        tqdm.write(prefix + one_line(record.getMessage()), file=sys.stderr)


def configure_logging(*, quiet: bool) -> None:
    """Send the notes of the package to standard error; only warnings and errors if `quiet`."""
    package = logging.getLogger("mtkit")
    level = logging.WARNING if quiet else logging.INFO
    # The first worker prints notes and warnings for all; every worker prints its own errors.
    package.setLevel(logging.ERROR if is_later_worker() else level)
    package.handlers = [NoteHandler()]
    package.propagate = False
