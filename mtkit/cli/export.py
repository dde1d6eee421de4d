"""The command `mtkit export`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import click

from mtkit.cli import options as shared
from mtkit.cli.console import say

log = logging.getLogger(__name__)

output_option = shared.option_group("Output")
check_option = shared.option_group("Check")


@shared.command(
    "Convert a run for other software.",
    "mtkit export runs/demo-en-de-demo demo-ct2 --format ctranslate2",
    "mtkit export runs/mine mine-ct2 --format ctranslate2 --quantization int8",
)
@click.argument("run_path", metavar="RUN", type=shared.PathArgument)
@click.argument("out", type=shared.PathArgument)
@output_option(
    "--format [ctranslate2|huggingface|safetensors]",
    required=True,
    help="ctranslate2: a CTranslate2 model. huggingface: a MarianMTModel of transformers."
    " safetensors: a run folder with one checkpoint.",
)
@output_option(
    "--quantization [float32|float16|int8]",
    default="float32",
    help="Data type of the weights in CTranslate2. Default: float32.",
)
@output_option("--force", help="Replace OUT if it is an earlier export.")
@shared.checkpoint_option
@check_option(
    "--check FILE",
    help="Source text to compare translations on. Default: the validation text of the run's data.",
)
def export(run_path: Path, out: Path, **options: Any) -> None:
    """Convert the model of the run folder RUN for other software, and write it to the folder OUT.

    The other software then loads the model and translates up to 500 lines. If its translations
    differ from those of the run, the export fails and OUT is not written.
    """
    if options["format"] != "ctranslate2":
        shared.refuse_given(["quantization"], "requires --format ctranslate2")
    run = shared.open_run(run_path)
    from mtkit.convert import export as export_run

    usage = export_run(run, out, **options)
    log.info("wrote %s; to use it:", out)
    if log.isEnabledFor(logging.INFO):
        say(usage.rstrip())
