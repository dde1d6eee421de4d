"""What a parser reads and writes (Section 6.3): sentences in, trees out.

The model translates the words of a sentence to a linearised tree (`trees`). Here are both ends of
that. `tree_mask` keeps the search to well-formed trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor

from mtkit.base.errors import MtkitError
from mtkit.parsing import (
    BracketTokens,
    Tree,
    linearise,
    model_source,
    parse_trees,
    restore,
    split_words,
    treebank_words,
)
from mtkit.tokenizer import EOS_ID, Tokenizer, Vocabularies
from mtkit.translate.decoder import Translation


def counted_words(vocabularies: Vocabularies, *, device: torch.device) -> tuple[Tensor, Tensor]:
    """The tokens that words are counted by, with `model.positions: words`.

    Args:
        vocabularies: of sentences and of linearised trees.
        device: of the results.

    Returns:
        (V,) of the source, True for a subword that begins a word, and EOS; (V,) of the target, True
        for the tokens that are words of the sentence.

    Raises:
        MtkitError: if these are not the vocabularies of a parser.
    """
    src = torch.from_numpy(vocabularies.src.begins_word.copy())
    src[EOS_ID] = True
    tgt = BracketTokens(vocabularies.tgt)
    tgt.check(needed_by="model.positions")
    return src.to(device), torch.from_numpy(tgt.reads_word).to(device)


class TreeText:
    """The text on both sides of a parser.

    Args:
        tokenized: whether lines are words already, separated by spaces; otherwise they are plain
            text, which is split as in the Penn Treebank.
        tags: whether the model writes part-of-speech tags.
    """

    def __init__(self, *, tokenized: bool, tags: bool) -> None:
        self.tokenized = tokenized
        self.tags = tags

    @classmethod
    def of(cls, tokenizer: Tokenizer, *, tokenized: bool) -> Self:
        """That of a model with this vocabulary of linearised trees."""
        return cls(tokenized=tokenized, tags=BracketTokens(tokenizer).has_tags)

    def words(self, line: str) -> list[str]:
        """The words of a line; none if it is blank."""
        return split_words(line) if self.tokenized else treebank_words(line)

    def source(self, line: str) -> str:
        """What the model reads for a line."""
        return model_source(self.words(line))

    def target(self, line: str, number: int) -> str:
        """What the model writes for a tree in brackets; nothing for a blank line.

        Raises:
            MtkitError: with this number of the line, if it is not a tree.
        """
        trees = list(parse_trees([line], name="trees", first_line=number))
        return " ".join(linearise(tree, tags=self.tags) for tree in trees)

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


def restored(words: Sequence[str], found: Sequence[Translation]) -> list[Translation]:
    """The trees, in brackets on one line, that a model has written for the words of a sentence.

    Without words, what was found is returned as it is.
    """
    if not words:
        return list(found)
    trees = [restore(one.text, words) for one in found]
    return [
        replace(one, text=str(tree), repaired=repaired)
        for one, (tree, repaired) in zip(found, trees, strict=True)
    ]
