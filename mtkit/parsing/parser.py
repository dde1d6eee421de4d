"""The task of a parser: it translates the words of a sentence to a linearised tree (`trees`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mtkit.base.errors import MtkitError
from mtkit.parsing.bracketing import score_trees
from mtkit.parsing.task import Task
from mtkit.parsing.trees import (
    ANY_TAG,
    Bracket,
    Tree,
    linearise,
    model_source,
    parse_trees,
    read_bracket,
    restore,
    split_words,
    treebank_words,
)
from mtkit.tokenizer import EOS_ID, Tokenizer, Vocabularies

Mask = npt.NDArray[np.bool_]


class Parsing(Task):
    """Parsing: the model reads words, and writes a linearised tree; the result is in brackets.

    Lines are tokenised, words with spaces between, or plain text that is split as in the Penn
    Treebank.
    """

    name = "parsing"

    def __init__(self, tokenizer: Tokenizer, *, tokenized: bool) -> None:
        self.tokenized = tokenized
        brackets = brackets_of(tokenizer).values()
        # Whether the model writes part-of-speech tags.
        self.tags = any(b.kind == "word" and b.label != ANY_TAG for b in brackets)

    def words(self, line: str) -> list[str]:
        """The words of a line; none if it is blank."""
        return split_words(line) if self.tokenized else treebank_words(line)

    def source_text(self, line: str) -> str:
        """The words, separated by spaces."""
        return model_source(self.words(line))

    def target_text(self, line: str, number: int) -> str:
        """A tree in brackets as a linearised tree; nothing for a blank line.

        Raises:
            MtkitError: with the number of the line, if it is not a tree.
        """
        trees = list(parse_trees([line], name="trees", first_line=number))
        return " ".join(linearise(tree, tags=self.tags) for tree in trees)

    def result(self, words: Sequence[str], text: str) -> tuple[str, bool | None]:
        """The tree over these words, in brackets on one line; without words, the text itself."""
        if not words:
            return text, None
        tree, repaired = restore(text, words)
        return str(tree), repaired

    def metrics(
        self, results: Sequence[str], references: Sequence[str], *, best_metric: str = "f1"
    ) -> dict[str, tuple[float, float | None]]:
        """F1 of labelled brackets, without an interval."""
        trees, golds = (list(parse_trees(lines, name="valid")) for lines in (results, references))
        return {"f1": (score_trees(trees, golds).all.f1, None)}

    def tree(self, line: str, text: str) -> Tree:
        """A given tree of a line, in brackets.

        Raises:
            MtkitError: if it is not one tree over the words of the line.
        """
        words = self.words(line)
        trees = list(parse_trees([text], name="the tree"))
        if len(trees) != 1:
            raise MtkitError(f"the tree {text[:100]!r}: expected one tree, not {len(trees)}")
        if list(trees[0].words) != words:
            raise MtkitError(
                f"the tree {text[:100]!r} must have exactly these words: {' '.join(words)[:300]!r}"
            )
        return trees[0]


def make_task(name: str, tokenizer: Tokenizer, *, tokenized: bool) -> Task:
    """The task of this name, for a model with this target vocabulary."""
    return Parsing(tokenizer, tokenized=tokenized) if name == "parsing" else Task()


def brackets_of(tokenizer: Tokenizer) -> dict[int, Bracket]:
    """The tokens of a target vocabulary that are brackets, or words with their tags."""
    return {
        token: bracket
        for token in range(tokenizer.fixed_pieces, len(tokenizer))
        if tokenizer.piece(token).startswith("▁")
        and (bracket := read_bracket(tokenizer.piece(token)[1:])) is not None
    }


def counted_words(vocabularies: Vocabularies) -> tuple[Mask, Mask]:
    """The tokens that words are counted by, with `model.positions: words`.

    Returns:
        (V,) of the source, True for a subword that begins a word, and EOS; (V,) of the target, True
        for the tokens that are words of the sentence.

    Raises:
        MtkitError: if these are not the vocabularies of a parser.
    """
    src = vocabularies.src.begins_word.copy()
    src[EOS_ID] = True
    brackets = brackets_of(vocabularies.tgt)
    words = [token for token, bracket in brackets.items() if bracket.kind == "word"]
    opened, closed = (
        {bracket.label for bracket in brackets.values() if bracket.kind == kind}
        for kind in ("open", "close")
    )
    if not words or opened.isdisjoint(closed):
        raise MtkitError(
            "model.positions: the vocabulary of the target has no whole brackets; change this "
            "setting, or prepare a treebank without tgt_vocab_size"
        )
    tgt = np.zeros(len(vocabularies.tgt), bool)
    tgt[words] = True
    return src, tgt
