"""`mtkit score` for trees: those in files, and those of parsers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mtkit.base.errors import MtkitError, one_line
from mtkit.cli.console import print_text, width
from mtkit.cli.options import lines_of, name_of, refuse_stdin_twice
from mtkit.cli.score_data import ScoreOptions, common_texts

if TYPE_CHECKING:
    from mtkit.parsing import Tree
    from mtkit.run_folder import Run

log = logging.getLogger(__name__)

# How other parsers write that they have found no tree.
_FAILURES = ("", "()", "(())")


@dataclass(frozen=True)
class _TreeSystem:
    """The trees of a system for a set of sentences.

    Attributes:
        trees: None for a sentence without a tree.
        repaired: how many were repaired; None if that is not known.
    """

    name: str
    trees: Sequence[Tree | None]
    repaired: int | None = None


def score_tree_files(options: ScoreOptions) -> None:
    """Print the scores of files with a tree on each line; the gold trees may have any layout."""
    from mtkit.parsing import parse_trees

    if len(options.references) != 1:
        raise click.UsageError("--metric parseval requires one --reference, a file of gold trees")
    refuse_stdin_twice([*options.hypotheses, *options.references])
    (path,) = options.references
    golds = list(parse_trees(lines_of(path), name=name_of(path)))
    systems = [_system_of_file(file, golds, gold_name=name_of(path)) for file in options.hypotheses]
    _print(systems, golds, options)


def score_parsers(runs: Sequence[Run], options: ScoreOptions) -> None:
    """Parse the test set with each run, and print the scores."""
    from mtkit.parsing import parse_trees

    ((_, _, sentences, lines),) = common_texts(runs, options).values()
    golds = list(parse_trees(lines, name=f"{options.split} trees"))
    systems = []
    for run in runs:
        found = options.decode.translations(run, sentences, tokenized=True)
        trees = [next(parse_trees([best.text], name="tree"), None) for best in found]
        systems.append(_TreeSystem(str(run.path), trees, sum(bool(one.repaired) for one in found)))
    _print(systems, golds, options)


def _system_of_file(path: Path, golds: Sequence[Tree], *, gold_name: str) -> _TreeSystem:
    from mtkit.parsing import different_words, parse_trees

    name = name_of(path)
    trees: list[Tree | None] = []
    for number, line in enumerate(lines_of(path), 1):
        found = (
            []
            if line.strip() in _FAILURES
            else list(parse_trees([line], name=name, first_line=number))
        )
        if len(found) > 1:
            raise MtkitError(f"{name}, line {number}: {len(found)} trees; write one per line")
        tree = found[0] if found else None
        if tree is not None and number <= len(golds) and tree.words != golds[number - 1].words:
            raise MtkitError(
                f"{name}, line {number}: {different_words(tree, golds[number - 1])} "
                f"({gold_name}, tree {number})"
            )
        trees.append(tree)
    if len(trees) != len(golds):
        raise MtkitError(
            f"{name} has {len(trees)} lines and {gold_name} has {len(golds)} trees; line n of one "
            "must be the tree of sentence n of the other, or blank"
        )
    return _TreeSystem(str(path), trees)


def _print(systems: Sequence[_TreeSystem], golds: Sequence[Tree], options: ScoreOptions) -> None:
    """Print the F1 of each sentence, or the scores of all systems."""
    from mtkit.cli import tables
    from mtkit.parsing import compare_trees, score_trees
    from mtkit.score import Score, System

    if not options.sentence:
        trees = [one.trees for one in systems]
        if options.paired:
            scores = compare_trees(trees, golds)
        else:
            scores = [score_trees(one, golds) for one in trees]
        names, repaired = [one_line(one.name) for one in systems], [one.repaired for one in systems]
        print_text(
            tables.tree_scores(names, scores, repaired, as_json=options.as_json, width=width())
        )
        return
    (system,) = systems
    signature = score_trees(system.trees, golds).signature
    log.info("F1 %s", signature)
    by_sentence = [
        Score("F1", score_trees([tree], [gold]).all.f1, signature)
        for tree, gold in zip(system.trees, golds, strict=True)
    ]
    printed = System(system.name, [str(tree or "") for tree in system.trees])
    references = [[str(gold) for gold in golds]]
    worst_first, as_json = options.worst_first, options.as_json
    print_text(
        tables.sentences(
            printed, references, [by_sentence], worst_first=worst_first, as_json=as_json
        )
    )
