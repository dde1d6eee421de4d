"""The command `mtkit score-alignments`."""

from __future__ import annotations

from pathlib import Path

import click

from mtkit.base.errors import one_line
from mtkit.cli import options as shared
from mtkit.cli.console import print_text


@shared.command(
    "Score word alignments against gold alignments.",
    "mtkit score-alignments links.txt --reference gold.txt",
    "mtkit score-alignments links.txt --reference gold.txt --json",
)
@click.argument("paths", metavar="LINKS...", nargs=-1, required=True, type=shared.PathArgument)
@shared.in_out_option(
    "--reference FILE",
    "gold_path",
    required=True,
    multiple=True,
    callback=shared.only_one,
    help="Gold alignments: sure links i-j and possible links ipj.",
)
@shared.in_out_option("--swap-links", help="Exchange source and target of LINKS.")
@shared.in_out_option("--one-based", help="--reference counts words from 1, not from 0.")
@shared.json_option
def score_alignments(
    paths: tuple[Path, ...], gold_path: Path, swap_links: bool, one_based: bool, as_json: bool
) -> None:
    """Print the alignment error rate (AER), precision and recall, in percent.

    LINKS and --reference have the links of a pair on each line, such as 0-0 1-2.
    """
    from mtkit.align import score_links
    from mtkit.cli import tables
    from mtkit.score import refuse_unequal

    shared.refuse_stdin_twice([*paths, gold_path])
    gold_name, gold_lines = shared.name_of(gold_path), list(shared.lines_of(gold_path))
    files = [(shared.name_of(path), list(shared.lines_of(path))) for path in paths]
    for name, lines in files:
        refuse_unequal(name, lines, gold_name, gold_lines)
    scores = score_links(
        files, (gold_name, gold_lines), first_gold=int(one_based), is_swapped=swap_links
    )
    names = [one_line(str(path)) for path in paths]
    print_text(tables.alignment_scores(names, scores, as_json=as_json))
