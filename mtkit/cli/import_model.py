"""The command `mtkit import`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import click

from mtkit.cli import options as shared
from mtkit.cli.console import say

log = logging.getLogger(__name__)

model_option = shared.option_group("Model")
language_option = shared.option_group("Languages")
output_option = shared.option_group("Output")
check_option = shared.option_group("Check")


@shared.command(
    "Convert a model of Marian, M2M-100 or NLLB-200 to a run.",
    "mtkit import Helsinki-NLP/opus-mt-en-de runs/opus-en-de",
    "mtkit import my-marian-model runs/mine --check input.txt",
    "mtkit import model.npz runs/mine --vocabs vocab.en.yml vocab.de.yml",
    name="import",
)
@click.argument("source", type=shared.PathText)
@click.argument("out", type=shared.PathArgument)
@model_option(
    "--revision NAME",
    help="Revision of a model on the hub: a branch, a tag, a commit, or refs/pr/N for pull request"
    " N. Default: main.",
)
@model_option(
    "--vocabs SRC TGT",
    "vocabularies",
    nargs=2,
    type=shared.PathArgument,
    help="Vocabularies of an .npz file (.yml or .spm). Default: those that decoder.yml names.",
)
@language_option(
    "--src-lang CODE",
    help="Language of the source. Default: the one that the model or its name says.",
)
@language_option("--tgt-lang CODE", help="Language of the target, likewise.")
@output_option("--force", help="Replace OUT if it is an earlier import.")
@check_option(
    "--check FILE",
    help="Source text to compare translations on; the first line and its translation are printed."
    " Default: lines of random subwords.",
)
def import_(source: str, out: Path, **options: Any) -> None:
    """Convert the model SOURCE to the run folder OUT.

    SOURCE is the name of a model on the Hugging Face hub, a folder with such a model
    (MarianMTModel, M2M-100 or NLLB-200 of transformers), or an .npz file of Marian or its folder.
    OUT can translate, and be scored, exported and fine-tuned.

    If transformers is installed, it loads the model SOURCE too, if it can, and translates up to
    500 lines. If the translations differ, the import fails and OUT is not written.
    """
    from mtkit.convert import import_model

    imported = import_model(source, out, **options)
    log.info("wrote %s", imported.run.path)
    for note in imported.notes:
        log.info("%s", note)
    if log.isEnabledFor(logging.INFO):
        say(imported.command)
