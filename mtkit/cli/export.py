"""The command `mtkit export`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import click

from mtkit.cli.console import say
from mtkit.cli.options import (
    Command,
    PathArgument,
    checkpoint_option,
    examples,
    open_run,
    option_group,
    refuse_given,
)

log = logging.getLogger(__name__)

output_option = option_group("Output")
check_option = option_group("Check")


@click.command(
    cls=Command,
    short_help="Convert a run for other software.",
    epilog=examples(
        "mtkit export runs/demo-en-de-demo demo-ct2 --format ctranslate2",
        "mtkit export runs/mine mine-ct2 --format ctranslate2 --quantization int8",
    ),
)
@click.argument("run_path", metavar="RUN", type=PathArgument)
@click.argument("out", type=PathArgument)
@output_option(
    "--format",
    "format_",
    type=click.Choice(["ctranslate2", "huggingface", "safetensors"]),
    required=True,
    help="ctranslate2: a CTranslate2 model. huggingface: a MarianMTModel of transformers."
    " safetensors: a run folder with one checkpoint.",
)
@output_option(
    "--quantization",
    type=click.Choice(["float32", "float16", "int8"]),
    help="Data type of the weights in CTranslate2. Default: float32.",
)
@output_option("--force", is_flag=True, help="Replace OUT if it is an earlier export.")
@checkpoint_option
@check_option(
    "--check",
    type=PathArgument,
    help="Source text to compare translations on. Default: the validation text of the run's data.",
)
def export(
    run_path: Path,
    out: Path,
    format_: Any,
    checkpoint: str | None,
    quantization: Any,
    check: Path | None,
    force: bool,
) -> None:
    """Convert the model of the run folder RUN for other software, and write it to the folder OUT.

    The other software then loads the model and translates up to 500 lines. If its translations
    differ from those of the run, the export fails and OUT is not written.
    """
    if format_ != "ctranslate2":
        refuse_given(["quantization"], "requires --format ctranslate2")
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
