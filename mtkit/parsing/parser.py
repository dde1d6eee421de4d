"""The task of a parser: it translates the words of a sentence to a linearised tree (`trees`).

Its search can be kept to trees that are well-formed: the brackets match, no phrase is empty, and
there is one root over all words of the sentence. A mask says after each token which tokens may
follow, so that the tree can also end within the length limit.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mtkit.base.errors import MtkitError
from mtkit.parsing.bracketing import score_trees
from mtkit.parsing.task import Task
from mtkit.parsing.trees import (
    ANY_TAG,
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


class _State(NamedTuple):
    """A hypothesis of the search: a beginning of a tree.

    Attributes:
        open: the tokens that will close its open phrases, outermost first.
        is_empty: whether the innermost one has nothing in it.
        words: number of words that are left.
        tokens: number of tokens that may follow, with EOS.
    """

    open: tuple[int, ...]
    is_empty: bool
    words: int
    tokens: int


class BracketTokens:
    """The tokens of a target vocabulary that are brackets, or words with their tags.

    A label can be used if its opening and its closing are one token each, as in a vocabulary that
    `mtkit prepare` has learned.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.size = len(tokenizer)
        brackets = {
            token: bracket
            for token in range(tokenizer.fixed_pieces, self.size)
            if tokenizer.piece(token).startswith("▁")
            and (bracket := read_bracket(tokenizer.piece(token)[1:])) is not None
        }
        closings = {b.label: token for token, b in brackets.items() if b.kind == "close"}
        # From openings to their closings.
        self.closing_of = {
            token: closings[b.label]
            for token, b in brackets.items()
            if b.kind == "open" and b.label in closings
        }
        self.words = {token: b.label for token, b in brackets.items() if b.kind == "word"}

    def check(self, *, needed_by: str) -> None:
        """Refuse, for a setting, a vocabulary without a token for each bracket and word."""
        if not (self.words and self.closing_of):
            raise MtkitError(
                f"{needed_by}: the vocabulary of the target has no whole brackets; change this "
                "setting, or prepare a treebank without tgt_vocab_size"
            )

    @functools.lru_cache(4096)  # noqa: B019 - lives as long as the decoder
    def mask(self, *, word: bool, opening: bool = False, closing: int | None = None) -> Mask:
        """(V,): the tokens of these kinds; EOS if there is none."""
        mask = np.zeros(self.size, bool)
        if opening:
            mask[list(self.closing_of)] = True
        if word:
            mask[list(self.words)] = True
        if closing is not None:
            mask[closing] = True
        if not mask.any():
            mask[EOS_ID] = True
        return mask


class TreeMask:
    """The tokens that may follow in the tree of one sentence; a `TokenMask` of the search.

    The output has at most `limit` tokens, with EOS.
    """

    def __init__(self, brackets: BracketTokens, *, words: int, limit: int) -> None:
        self._brackets = brackets
        self._words = words
        self._limit = limit

    def start(self) -> _State:
        """The state of a hypothesis without tokens."""
        return _State((), False, self._words, self._limit)

    def advance(self, state: _State, token: int) -> _State:
        """The state after one more token, which was allowed."""
        begun, _, words, tokens = state
        if (closing := self._brackets.closing_of.get(token)) is not None:
            return _State((*begun, closing), True, words, tokens - 1)
        if token in self._brackets.words:
            return _State(begun, False, words - 1, tokens - 1)
        return _State(begun[:-1], False, words, tokens - 1)

    def allowed(self, state: _State) -> Mask:
        """(V,): whether each token leads to a well-formed tree."""
        begun, is_empty, words, tokens = state
        # What is needed to end: the words, a closing for each open phrase, and EOS.
        spare = tokens - words - len(begun) - 1
        has_place = bool(begun) or self._words == 1
        return self._brackets.mask(
            opening=words > 0 and spare >= 2,
            word=words > 0 and has_place,
            closing=begun[-1] if begun and not is_empty and (len(begun) > 1 or not words) else None,
        )


class Parsing(Task):
    """Parsing: the model reads words, and writes a linearised tree; the result is in brackets.

    Args:
        tokenizer: of linearised trees.
        tokenized: whether lines are words already, separated by spaces; otherwise they are plain
            text, which is split as in the Penn Treebank.
    """

    name = "parsing"

    def __init__(self, tokenizer: Tokenizer, *, tokenized: bool) -> None:
        self.tokenized = tokenized
        self._brackets = BracketTokens(tokenizer)
        # Whether the model writes part-of-speech tags.
        self.tags = bool({*self._brackets.words.values()} - {ANY_TAG})

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

    def token_masks(self, words: Sequence[int], limits: Sequence[int]) -> list[TreeMask]:
        """Masks that keep the search to well-formed trees.

        Raises:
            MtkitError: if the vocabulary has no whole brackets.
        """
        self._brackets.check(needed_by="decode.well_formed_trees")
        return [
            TreeMask(self._brackets, words=count, limit=limit)
            for count, limit in zip(words, limits, strict=True)
        ]

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
    tgt = BracketTokens(vocabularies.tgt)
    tgt.check(needed_by="model.positions")
    return src, tgt.mask(word=True)
