"""A treebank for tests of parsing, which does not come with mtkit.

The tests use the CRAFT treebank, or any other, where the variable MTKIT_TREEBANK names a folder
with `train.clean.trees.gz` and `dev.clean.trees.gz`: one tree per line, without traces and function
tags.
"""

import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtkit.base.text import read_lines
from mtkit.parsing.trees import Tree, parse_trees

TREEBANK = Path(os.environ.get("MTKIT_TREEBANK", "treebank"))

needs_treebank = pytest.mark.skipif(
    not (TREEBANK / "train.clean.trees.gz").is_file(), reason="MTKIT_TREEBANK names no treebank"
)


GRAMMAR = {
    "S": ["(S {NP} {VP} (. .))", "(S {PP} (, ,) {NP} {VP} (. .))"],
    "NP": ["(NP (DT the) {N})", "(NP (DT a) {N})", "(NP (NP (DT the) {N}) {PP})", "(NP (NNP Ann))"],
    "PP": ["(PP (IN with) {NP})", "(PP (IN near) {NP})"],
    "VP": ["(VP (VBZ sees) {NP})", "(VP (VBZ sleeps))", "(VP (VBZ is) (ADJP (JJ red)))"],
    "N": ["(NN dog)", "(NN cat)", "(NN hill)", "(NN tower)", "(NN bird)"],
}


def read_trees(path: Path) -> Iterator[Tree]:
    """The trees of a plain or compressed file."""
    return parse_trees(read_lines(path), name=str(path))


def small_trees(count: int, seed: int) -> list[str]:
    """Different trees of a small grammar, with at most 30 brackets and words each."""
    rng = random.Random(seed)
    trees: dict[str, None] = {}
    while len(trees) < count:
        tree = "{S}"
        while "{" in tree and len(tree) < 400:
            tree = re.sub(r"{(\w+)}", lambda name: rng.choice(GRAMMAR[name[1]]), tree, count=1)
        if tree.count("(") <= 30 and "{" not in tree:
            trees[tree] = None
    return list(trees)


def tree(text: str) -> Tree:
    (only,) = parse_trees(text.split("\n"), name="some.trees")
    return only
