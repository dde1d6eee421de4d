"""Labelled bracketing scores of trees, by the rules of evalb with COLLINS.prm.

evalb (Sekine and Collins 1997) is the scorer of the literature, and of Table 4 of the paper as far
as is known. A tree is a multiset of brackets: label, first and last word. Its rules:

- Words with the tags of punctuation, and phrases of nothing else, are taken out before words are
  counted in spans.
- A bracket with the label `TOP`, or with a tag of punctuation as its label, does not count. `PRT`
  is the same label as `ADVP`. Part-of-speech tags do not count.
- Precision, recall and F1 are those of the brackets of all sentences together.
- The length of a sentence, for the limit of 40 words, includes punctuation.

Three rules are ours. evalb leaves such sentences out, and so a parser can look better than it is:

- A sentence without a tree counts as a flat tree. The number of these sentences is printed. In a
  file, several trees on a line count so too; evalb scores them if their words are right.
- The tags of the gold tree say which words are punctuation, in both trees. A parser need not
  predict tags. evalb uses the tags of each tree, and leaves out a sentence if its two trees then
  have different words.
- A sentence of punctuation alone has no brackets, and is an exact match.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import mtkit
from mtkit.base.arrays import IntArray
from mtkit.base.errors import MtkitError, in_words
from mtkit.parsing.trees import Tree, parse_trees

log = logging.getLogger(__name__)

# COLLINS.prm: DELETE_LABEL, EQ_LABEL, and the length of "short" sentences.
# The first list is for tags of words and for labels of phrases alike.
_DELETED = frozenset(("TOP", "-NONE-", ",", ":", "``", "''", "."))
_SAME_LABEL = {"PRT": "ADVP"}
SHORT = 40
# How other parsers write that they have found no tree.
_FAILURES = frozenset(("", "()", "(())"))


@dataclass(frozen=True)
class BracketingScore:
    """Scores of some sentences in percent, 0 without any, and the numbers of brackets."""

    sentences: int
    precision: float
    recall: float
    f1: float
    exact: float
    matched: int
    gold: int
    found: int


@dataclass(frozen=True)
class Scores:
    """The scores of a set of trees.

    Of all sentences, of those of at most 40 words, and of those whose gold tree is an `S`.
    `failures` is the number of sentences without a tree.
    """

    all: BracketingScore
    short: BracketingScore
    s_roots: BracketingScore
    failures: int

    @property
    def signature(self) -> str:
        """What the scores depend on besides the trees, in the notation of sacreBLEU."""
        return (
            f"#:{self.all.sentences}|rules:evalb-COLLINS|failures:flat|punct:gold-tags|"
            f"version:mtkit-{mtkit.__version__}"
        )


def count_brackets(gold: Tree, parsed: Tree) -> tuple[int, int, int]:
    """The brackets of two trees over the same words: that match, of the gold tree, of the other."""
    # The number of words before each word that are not punctuation.
    before = [0]
    for tag in gold.tags:
        before.append(before[-1] + (tag not in _DELETED))
    of_gold, of_found = (
        Counter(
            (_SAME_LABEL.get(label, label), before[start], before[end])
            for label, start, end in tree.phrases
            if before[start] < before[end] and label not in _DELETED
        )
        for tree in (gold, parsed)
    )
    matched = sum((of_gold & of_found).values())
    return matched, sum(of_gold.values()), sum(of_found.values())


def score_trees(trees: Sequence[Tree | None], golds: Sequence[Tree]) -> Scores:
    """Score trees against gold trees; None is a sentence without a tree.

    Raises:
        MtkitError: if there are none, or another number of gold trees, or other words; with the
            number of the sentence.
    """
    counts = _counts(trees, golds)
    return Scores(
        _total(counts),
        _total(counts[[len(gold.words) <= SHORT for gold in golds]]),
        _total(counts[[gold.root == "S" for gold in golds]]),
        sum(tree is None for tree in trees),
    )


def _counts(trees: Sequence[Tree | None], golds: Sequence[Tree]) -> IntArray:
    """(n, 3): the result of `count_brackets` for each sentence."""
    if len(trees) != len(golds):
        raise MtkitError(f"{len(trees)} trees do not line up with {len(golds)} gold trees")
    if not golds:
        raise MtkitError("there is nothing to score: 0 trees")
    rows = []
    for number, (tree, gold) in enumerate(zip(trees, golds, strict=True), 1):
        if tree is not None and tree.words != gold.words:
            raise MtkitError(f"sentence {number}: {_different_words(tree, gold)}")
        rows.append(count_brackets(gold, tree or Tree.flat(gold.words)))
    return np.array(rows, np.int64)


def _different_words(tree: Tree, gold: Tree) -> str:
    """How the words of a tree differ from those of the gold tree."""
    for number, (word, wanted) in enumerate(zip(tree.words, gold.words, strict=False), 1):
        if word != wanted:
            return f"word {number} is {word!r}, and {wanted!r} in the gold tree"
    return f"{len(tree.words)} words, and {len(gold.words)} in the gold tree"


def trees_of_lines(
    lines: Sequence[str], golds: Sequence[Tree], *, name: str, gold_name: str
) -> list[Tree | None]:
    """The tree on each line of a file, or None and a warning if it is not one of its sentence.

    Raises:
        MtkitError: if there are more or fewer lines than gold trees, or if all lines are wrong.
    """
    if len(lines) != len(golds):
        raise MtkitError(
            f"{name} has {in_words(len(lines))} and {gold_name} has {len(golds)} trees; line n of "
            "one must be the tree of sentence n of the other, or blank"
        )
    trees: list[Tree | None] = []
    failures = []
    for number, (line, gold) in enumerate(zip(lines, golds, strict=True), start=1):
        try:
            trees.append(_tree_of_line(line, gold, name=name, number=number))
        except MtkitError as error:
            trees.append(None)
            failures.append(str(error))
    if failures:
        count = f"{len(failures)} of {len(lines)} lines have no tree of their sentence"
        if len(failures) == len(lines) and not _FAILURES.issuperset(map(str.strip, lines)):
            raise MtkitError(f"{failures[0]}; {count} in {gold_name}")
        log.warning("%s; %s, and count as flat trees", failures[0], count)
    return trees


def _tree_of_line(line: str, gold: Tree, *, name: str, number: int) -> Tree:
    """The tree of a line, if it has one, and of the words of the gold tree."""
    is_blank = line.strip() in _FAILURES
    trees = [] if is_blank else list(parse_trees([line], name=name, first_line=number))
    if len(trees) == 1 and trees[0].words == gold.words:
        return trees[0]
    difference = _different_words(trees[0], gold) if len(trees) == 1 else f"{len(trees)} trees"
    raise MtkitError(f"{name}, line {number}: {difference}")


def _total(counts: IntArray) -> BracketingScore:
    matched, gold, found = counts.sum(0).tolist()
    exact = int((counts == counts[:, :1]).all(1).sum())
    return BracketingScore(
        len(counts),
        100 * matched / max(found, 1),
        100 * matched / max(gold, 1),
        # The harmonic mean of precision and recall.
        200 * matched / max(gold + found, 1),
        100 * exact / max(len(counts), 1),
        matched,
        gold,
        found,
    )
