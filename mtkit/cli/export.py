"""The command `mtkit export`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import click

from mtkit.cli import options as shared
from mtkit.cli.console import say

log = logging.getLogger(__name__)

# Where the printed lines are used, if not in Python.
_USED_IN = {"onnx": "JavaScript", "safetensors": "a shell"}

output_option = shared.option_group("Output")
language_option = shared.option_group("Languages")
check_option = shared.option_group("Check")
trimming_option = shared.option_group("Smaller vocabulary, for safetensors")


@shared.command(
    "Convert a run for other software.",
    "mtkit export runs/demo-en-de-demo demo-ct2 --format ctranslate2",
    "mtkit export runs/mine mine-ct2 --format ctranslate2 --quantization int8",
    "mtkit export runs/mine en_de.argosmodel --format argos",
    "mtkit export runs/mine mine-onnx --format onnx --quantization int8",
)
@click.argument("run_path", metavar="RUN", type=shared.PathArgument)
@click.argument("out", type=shared.PathArgument)
@output_option(
    "--format [ctranslate2|huggingface|onnx|argos|safetensors]",
    required=True,
    help="ctranslate2: a CTranslate2 model. huggingface: a MarianMTModel of transformers."
    " onnx: graphs for ONNX Runtime and, in a browser, transformers.js (opset 17)."
    " argos: a package for Argos Translate and LibreTranslate, a file whose name ends in"
    " .argosmodel. safetensors: a run folder of mtkit with one checkpoint.",
)
@output_option(
    "--quantization [float32|float16|int8]",
    help="Data type of the weights, for ctranslate2, onnx and argos. Default: int8 for argos,"
    " float32 for the others. onnx does not have float16.",
)
@output_option("--force", help="Replace OUT if it exists and is an earlier export.")
@shared.checkpoint_option
@language_option(
    "--src-lang L",
    help="Code of the source language, for argos. Needed if the run has several source languages,"
    " or does not say which language it has.",
)
@language_option("--tgt-lang L", help="Code of the target language, for argos; as --src-lang.")
@trimming_option(
    "--keep-text FILE",
    type=shared.PathArgument,
    multiple=True,
    help="Keep only the subwords that this text needs, of sources and translations, and all single"
    " characters and bytes. Repeatable.",
)
@trimming_option(
    "--keep-language L",
    "keep_languages",
    multiple=True,
    help="Keep the tag of this language. Repeatable. Default: those of all languages."
    " An M2M-100 with fewer cannot be exported to other software.",
)
@check_option(
    "--check FILE",
    help="File with text in the source language, to compare the translations of the run and of the"
    " export. Default: the validation text of the run's data, or that of --keep-text.",
)
def export(run_path: Path, out: Path, **options: Any) -> None:
    """Convert the model of the run folder RUN for other software, and write it to OUT.

    OUT is a new folder or, for argos, a new file. Before OUT appears, the other software loads the
    model and translates up to 500 lines. If its translations differ too much from those of the
    run, the export fails and OUT is not written.
    """
    if str(out) == "-":
        raise click.UsageError("OUT: give a name; an export cannot go to standard output (-)")
    if str(options["check"]) == "-":
        raise click.UsageError("--check: give a file; standard input (-) is not read")
    if options["format"] != "argos":
        shared.refuse_given(["src_lang", "tgt_lang"], "requires --format argos")
    run = shared.open_run(run_path)
    from mtkit.convert import export as export_run

    usage = export_run(run, out, **options)
    log.info("wrote %s; to use it in %s:", out, _USED_IN.get(options["format"], "Python"))
    if log.isEnabledFor(logging.INFO):
        say(usage.rstrip())
