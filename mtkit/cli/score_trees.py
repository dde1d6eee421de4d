"""The command `mtkit score-trees`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from mtkit.base.errors import MtkitError, one_line
from mtkit.cli import options as shared
from mtkit.cli import scored_texts
from mtkit.cli.console import print_text
from mtkit.cli.scored_texts import TextChoice

if TYPE_CHECKING:
    from mtkit.parsing import Tree
    from mtkit.run_folder import Run

    # The trees of a system, None for a sentence without one, and how many were repaired if known.
    Trees = tuple[Sequence[Tree | None], int | None]


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
@shared.analysis_options
@shared.scored_runs_option
@shared.checkpoint_option
@shared.beam_options
@shared.well_formed_option
@shared.hardware_options
def score_trees(
    paths: tuple[Path, ...],
    gold_path: Path | None,
    run_paths: tuple[Path, ...],
    data_path: Path | None,
    split: Literal["valid", "test"],
    paired: bool,
    sentence: bool,
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
        scored_texts.refuse_analysis(paths)
        if gold_path is None:
            raise click.UsageError("TREES requires --reference, a file of gold trees")
        golds, systems = _trees_of_files(paths, gold_path)
    else:
        shared.refuse_given(["gold_path"], "requires TREES, the trees to score")
        runs = [shared.open_run(path) for path in run_paths or (None,)]
        scored_texts.refuse_analysis(runs)
        for run in runs:
            if run.manifest.data.task != "parsing":
                raise MtkitError(f"{run.path}: translates, and mtkit score-trees takes parsers")
        choice = TextChoice(None, data_path, split, advice="or TREES and --reference")
        golds, systems = _trees_of_parsers(runs, choice, shared.DecodeOptions.parse(**decode))
    from mtkit import parsing
    from mtkit.cli import tables
    from mtkit.score import Score

    all_trees, repaired = zip(*systems, strict=True)
    if sentence:
        (trees,) = all_trees
        signature = parsing.score_trees(trees, golds).signature
        by_sentence = [
            Score("F1", parsing.score_trees([tree], [gold]).all.f1, signature)
            for tree, gold in zip(trees, golds, strict=True)
        ]
        texts, references = [str(tree or "") for tree in trees], list(map(str, golds))
        scored_texts.print_sentences(texts, [references], [by_sentence], as_json=as_json)
        return
    if paired:
        scores = parsing.compare_trees(all_trees, golds)
    else:
        scores = [parsing.score_trees(of_system, golds) for of_system in all_trees]
    names = [one_line(str(path)) for path in paths or [run.path for run in runs]]
    print_text(tables.tree_scores(names, scores, repaired, as_json=as_json))


def _trees_of_files(paths: Sequence[Path], gold_path: Path) -> tuple[list[Tree], list[Trees]]:
    from mtkit.parsing import parse_trees, trees_of_lines

    shared.refuse_stdin_twice([*paths, gold_path])
    gold_name = shared.name_of(gold_path)
    golds = list(parse_trees(shared.lines_of(gold_path), name=gold_name))
    if not golds:
        raise MtkitError(f"{gold_name} has no trees: nothing to score")
    read = partial(trees_of_lines, golds=golds, gold_name=gold_name)
    return golds, [
        (read(list(shared.lines_of(path)), name=shared.name_of(path)), None) for path in paths
    ]


def _trees_of_parsers(
    runs: Sequence[Run], choice: TextChoice, decode: shared.DecodeOptions
) -> tuple[list[Tree], list[Trees]]:
    from mtkit.parsing import parse_trees

    (text,) = scored_texts.texts_of(runs, choice).values()
    (lines,) = text.references
    golds = list(parse_trees(lines, name=f"{choice.split} trees"))
    systems: list[Trees] = []
    for run in runs:
        parsed = scored_texts.translated(run, text, decode, has_directions=False)
        trees = [next(parse_trees([best.text], name="tree"), None) for best in parsed]
        systems.append((trees, sum(bool(best.repaired) for best in parsed)))
    return golds, systems
