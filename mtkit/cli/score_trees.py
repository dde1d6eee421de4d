"""The command `mtkit score-trees`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtkit.base.errors import MtkitError, one_line
from mtkit.cli import options as shared
from mtkit.cli import scored_texts
from mtkit.cli.console import print_text
from mtkit.cli.scored_texts import TextChoice

if TYPE_CHECKING:
    from mtkit.parsing import Tree
    from mtkit.run_folder import Run

    # The name of a system, its trees, None for a sentence without one, and how many were repaired.
    System = tuple[str, Sequence[Tree | None], int | None]


@shared.command(
    "Score the trees of a parser.",
    "mtkit score-trees --run runs/parser",
    "mtkit score-trees output.trees --reference gold.trees",
)
@click.argument("paths", metavar="[TREES]...", nargs=-1, type=shared.PathArgument)
@shared.in_out_option(
    "--reference FILE",
    "gold_path",
    multiple=True,
    callback=shared.only_one,
    help="File of gold trees, in any layout, for TREES.",
)
@shared.data_text_options
@shared.json_option
@shared.scored_runs_option
@shared.checkpoint_option
@shared.beam_options
@shared.well_formed_option
@shared.hardware_options
def score_trees(
    paths: tuple[Path, ...],
    gold_path: Path | None,
    run_paths: tuple[Path, ...],
    as_json: bool,
    **decode: Any,
) -> None:
    """Print precision, recall and F1 of the brackets of trees, by the rules of evalb.

    \b
    mtkit score-trees [--run PARSER]...     parse the test set, and score it
    mtkit score-trees TREES --reference F   score a file with a tree on each line

    A line without a tree of its sentence counts as a flat tree. TREES may be -, standard input.
    """
    if paths:
        translating = [*scored_texts.TRANSLATING, "well_formed_trees"]
        shared.refuse_given(translating, "cannot be combined with TREES, which are given")
        if gold_path is None:
            raise click.UsageError("TREES requires --reference, a file of gold trees")
        golds, systems = _trees_of_files(paths, gold_path)
    else:
        shared.refuse_given(["gold_path"], "requires TREES, the trees to score")
        runs = [shared.open_run(path) for path in run_paths or (None,)]
        for run in runs:
            if run.manifest.data.task != "parsing":
                raise MtkitError(f"{run.path}: translates, and mtkit score-trees takes parsers")
        choice = TextChoice.taken_from(decode, advice="or TREES and --reference")
        golds, systems = _trees_of_parsers(runs, choice, shared.DecodeOptions.parse(**decode))
    from mtkit.cli import tables
    from mtkit.parsing import score_trees

    scores = [(one_line(name), score_trees(trees, golds), count) for name, trees, count in systems]
    print_text(tables.tree_scores(scores, as_json=as_json))


def _trees_of_files(paths: Sequence[Path], gold_path: Path) -> tuple[list[Tree], list[System]]:
    from mtkit.parsing import parse_trees, trees_of_lines

    shared.refuse_stdin_twice([*paths, gold_path])
    gold_name = shared.name_of(gold_path)
    golds = list(parse_trees(shared.lines_of(gold_path), name=gold_name))
    if not golds:
        raise MtkitError(f"{gold_name} has no trees: nothing to score")
    systems: list[System] = []
    for path in paths:
        lines, name = list(shared.lines_of(path)), shared.name_of(path)
        trees = trees_of_lines(lines, golds, name=name, gold_name=gold_name)
        systems.append((str(path), trees, None))
    return golds, systems


def _trees_of_parsers(
    runs: Sequence[Run], choice: TextChoice, decode: shared.DecodeOptions
) -> tuple[list[Tree], list[System]]:
    from mtkit.parsing import parse_trees

    (text,) = scored_texts.texts_of(runs, choice).values()
    (lines,) = text.references
    golds = list(parse_trees(lines, name=f"{choice.split} trees"))
    systems: list[System] = []
    for run in runs:
        parsed = scored_texts.translated(run, text, decode, has_directions=False)
        trees = [next(parse_trees([best.text], name="tree"), None) for best in parsed]
        systems.append((str(run.path), trees, sum(bool(best.repaired) for best in parsed)))
    return golds, systems
