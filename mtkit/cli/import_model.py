"""The command `mtkit import`."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from mtkit.cli.console import say
from mtkit.cli.options import Command, PathArgument, PathText, examples, option_group

log = logging.getLogger(__name__)

model_option = option_group("Model")
language_option = option_group("Languages")
output_option = option_group("Output")
check_option = option_group("Check")


@click.command(
    "import",
    cls=Command,
    short_help="Convert a Marian model to a run.",
    epilog=examples(
        "mtkit import Helsinki-NLP/opus-mt-en-de runs/opus-en-de",
        "mtkit import my-marian-model runs/mine --check input.txt",
        "mtkit import model.npz runs/mine --vocabs vocab.en.yml vocab.de.yml",
    ),
)
@click.argument("source", type=PathText)
@click.argument("out", type=PathArgument)
@model_option(
    "--revision",
    metavar="NAME",
    help="Revision of a model on the hub: a branch, a tag, a commit, or refs/pr/N for pull request"
    " N. Default: main.",
)
@model_option(
    "--vocabs",
    nargs=2,
    type=PathArgument,
    metavar="SRC TGT",
    help="Vocabularies of an .npz file (.yml or .spm). Default: those that decoder.yml names.",
)
@language_option(
    "--src-lang",
    metavar="CODE",
    help="Language of the source. Default: the one that the model or its name says.",
)
@language_option("--tgt-lang", metavar="CODE", help="Language of the target, likewise.")
@output_option("--force", is_flag=True, help="Replace OUT if it is an earlier import.")
@check_option(
    "--check",
    type=PathArgument,
    help="Source text to compare translations on; the first line and its translation are printed."
    " Default: lines of random subwords.",
)
def import_(
    source: str,
    out: Path,
    revision: str | None,
    vocabs: tuple[Path, Path] | None,
    src_lang: str | None,
    tgt_lang: str | None,
    force: bool,
    check: Path | None,
) -> None:
    """Convert the Marian model SOURCE to the run folder OUT.

    SOURCE is the name of a model on the Hugging Face hub, a folder with such a model
    (MarianMTModel of transformers), or an .npz file of Marian or its folder. OUT can translate,
    and be scored, exported and fine-tuned.

    If transformers is installed, it loads the model SOURCE too, if it can, and translates up to
    500 lines. If the translations differ, the import fails and OUT is not written.
    """
    from mtkit.convert import import_model

    imported = import_model(
        source,
        out,
        revision=revision,
        vocabularies=vocabs,
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        check=check,
        force=force,
    )
    log.info("wrote %s", imported.run.path)
    for note in imported.notes:
        log.info("%s", note)
    if log.isEnabledFor(logging.INFO):
        say(imported.command)
