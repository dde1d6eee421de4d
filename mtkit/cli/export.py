"""The command `mtkit export`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtkit.cli.console import say
from mtkit.cli.options import PathArgument, checkpoint_option, example, open_run

if TYPE_CHECKING:
    pass

log = logging.getLogger(__name__)


@click.command(epilog=example("mtkit export runs/demo-en-de-demo demo-ct2 --format ctranslate2"))
@click.argument("run_path", metavar="RUN", type=PathArgument)
@click.argument("out", type=PathArgument)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["ctranslate2", "huggingface", "safetensors"]),
    required=True,
    help="CTranslate2, a MarianMTModel of transformers, or a run folder of one checkpoint.",
)
@checkpoint_option
@click.option(
    "--quantization",
    type=click.Choice(["float32", "float16", "int8"]),
    help="How CTranslate2 keeps the matrices; default: float32.",
)
@click.option(
    "--check",
    type=PathArgument,
    metavar="FILE",
    help="Source text to check with; default: the validation text of the run's data.",
)
@click.option("--force", is_flag=True, help="Replace OUT if it is an earlier export.")
def export(
    run_path: Path,
    out: Path,
    format_: Any,
    checkpoint: str | None,
    quantization: Any,
    check: Path | None,
    force: bool,
) -> None:
    """Write the model of the run folder RUN into the folder OUT, for other software.

    What was written is loaded again by the software it is for, and translates up to 500 lines;
    where it does not do what the run does, nothing is left at OUT.
    """
    if quantization is not None and format_ != "ctranslate2":
        raise click.UsageError("--quantization is for --format ctranslate2")
    run = open_run(run_path)
    from mtkit.convert import export as export_run

    usage = export_run(
        run,
        out,
        format=format_,
        checkpoint=checkpoint,
        quantization=quantization or "float32",
        check=check,
        force=force,
    )
    log.info("wrote %s; to use it:", out)
    if log.isEnabledFor(logging.INFO):
        say(usage.rstrip())
