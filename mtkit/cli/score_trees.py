"""`mtkit score` for trees: what is scored, and how it is printed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mtkit.base.errors import MtkitError, one_line
from mtkit.cli.console import print_text, width
from mtkit.cli.options import DecodeOptions, lines_of, name_of, refuse_stdin_twice

if TYPE_CHECKING:
    from mtkit.parsing import Tree
    from mtkit.run_folder import Run

log = logging.getLogger(__name__)

# How other parsers write that they have found no tree.
_FAILURES = ("", "()", "(())")


@dataclass(frozen=True)
class TreeSystem:
    """The trees of a system for a set of sentences.

    Attributes:
        name: of the system.
        trees: None for a sentence without a tree.
        repaired: how many were repaired; None if that is not known.
    """

    name: str
    trees: Sequence[Tree | None]
    repaired: int | None = None


def systems_of_files(
    hypotheses: Sequence[Path], references: Sequence[Path]
) -> tuple[list[TreeSystem], list[Tree]]:
    """The trees in files, one per line, and the gold trees, in any layout."""
    from mtkit.parsing import parse_trees

    if len(references) != 1:
        raise click.UsageError("--metric parseval requires one --reference, a file of gold trees")
    refuse_stdin_twice([*hypotheses, *references])
    (path,) = references
    golds = list(parse_trees(lines_of(path), name=name_of(path)))
    return [_system_of_file(file, golds, gold_name=name_of(path)) for file in hypotheses], golds


def _system_of_file(path: Path, golds: Sequence[Tree], *, gold_name: str) -> TreeSystem:
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
    return TreeSystem(str(path), trees)


def system_of_run(run: Run, sentences: list[str], options: DecodeOptions) -> TreeSystem:
    """The trees that a parser finds for sentences of words."""
    from mtkit.parsing import parse_trees

    translations = options.translations(run, sentences, tokenized=True)
    trees = [next(parse_trees([best.text], name="tree"), None) for best in translations]
    return TreeSystem(str(run.path), trees, sum(bool(best.repaired) for best in translations))


def print_tree_scores(
    systems: Sequence[TreeSystem], golds: Sequence[Tree], *, paired: bool, as_json: bool
) -> None:
    """Print the scores of all systems, with a test of the differences if `paired`."""
    from mtkit.cli import tables
    from mtkit.parsing import compare_trees, score_trees

    trees = [system.trees for system in systems]
    scores = compare_trees(trees, golds) if paired else [score_trees(t, golds) for t in trees]
    names = [one_line(system.name) for system in systems]
    repaired = [system.repaired for system in systems]
    print_text(tables.tree_scores(names, scores, repaired, as_json=as_json, width=width()))


def print_sentence_scores(
    system: TreeSystem, golds: Sequence[Tree], *, worst_first: bool, as_json: bool
) -> None:
    """Print the F1 of each sentence, and the signature as a note."""
    from mtkit.cli import tables
    from mtkit.parsing import score_trees
    from mtkit.score import Score, System

    scores = [score_trees([tree], [gold]) for tree, gold in zip(system.trees, golds, strict=True)]
    signature = score_trees(system.trees, golds).signature
    log.info("F1 %s", signature)
    printed = System(system.name, [str(tree or "") for tree in system.trees])
    by_metric = [[Score("F1", one.all.f1, signature) for one in scores]]
    references = [[str(gold) for gold in golds]]
    print_text(
        tables.sentences(printed, references, by_metric, worst_first=worst_first, as_json=as_json)
    )
