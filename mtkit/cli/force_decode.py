"""The command `mtkit force-decode`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mtkit.cli import options as shared
from mtkit.cli.console import print_text


@shared.command(
    "Print the log-probabilities of given translations.",
    "mtkit force-decode test.en output.de --run runs/mine",
    "mtkit force-decode test.en output.de --run runs/mine --json",
)
@click.argument("src_path", metavar="SRC", type=shared.PathArgument)
@click.argument("tgt_path", metavar="TGT", type=shared.PathArgument)
@shared.in_out_option("--json", "as_json", help="Print JSON, with the tokens of each line.")
@shared.run_option
@shared.language_options
@shared.checkpoint_option
@shared.length_penalty_option
@shared.device_option
@shared.batch_tokens_option
def force_decode(
    src_path: Path, tgt_path: Path, as_json: bool, run_path: Path | None, **decode: Any
) -> None:
    """Print log P(translation | source) for each line of SRC and the same line of TGT.

    A line of output has line number, log-probability, and score (with the length penalty),
    tab-separated. SRC or TGT may be -, standard input.
    """
    from mtkit.check import with_languages_noted
    from mtkit.cli import tables
    from mtkit.score import refuse_unequal

    shared.refuse_stdin_twice([src_path, tgt_path])
    run = shared.open_run(run_path)
    sources, translations = list(shared.lines_of(src_path)), list(shared.lines_of(tgt_path))
    refuse_unequal(shared.name_of(tgt_path), translations, shared.name_of(src_path), sources)
    options = shared.DecodeOptions.parse(workers=1, **shared.IN_PYTORCH, **decode)
    translator = options.load([run])
    codes = translator.src_lang, translator.tgt_lang
    list(with_languages_noted(zip(sources, translations, strict=True), codes))
    scored = translator.score_given(sources, translations)
    print_text(tables.model_scores(scored, as_json=as_json))
