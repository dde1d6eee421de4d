"""Search for trees that are well-formed: after each token, which tokens may follow.

A tree is well-formed if its brackets match, no phrase is empty, and it has one root over all words
of the sentence. A mask also makes sure that the tree can end within the length limit.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mtkit.base.errors import MtkitError
from mtkit.parsing.trees import read_bracket
from mtkit.tokenizer import EOS_ID, Tokenizer


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
    def mask(
        self, *, word: bool, opening: bool = False, closing: int | None = None
    ) -> NDArray[np.bool_]:
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

    def allowed(self, state: _State) -> NDArray[np.bool_]:
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
