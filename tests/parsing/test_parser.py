"""The tokens of a parser that are words."""

from __future__ import annotations

import pytest

from mtkit.base.errors import MtkitError
from mtkit.data import PreparedData
from mtkit.parsing.parser import BracketTokens


def test_the_tokens_that_are_words_are_those_with_tags(tree_data: PreparedData):
    brackets = BracketTokens(tree_data.tokenizers().tgt)
    mask = brackets.mask_of_words(needed_by="model.positions")
    assert mask.nonzero()[0].tolist() == sorted(brackets.words)
    assert {"NN", "NNP", "VBZ", "JJ", "DT", "IN", ",", "."} <= set(brackets.words.values())


def test_a_vocabulary_without_whole_brackets_is_refused(tiny_data: PreparedData):
    with pytest.raises(MtkitError, match=r"model.positions: .* tgt_vocab_size"):
        BracketTokens(tiny_data.tokenizers().tgt).mask_of_words(needed_by="model.positions")
