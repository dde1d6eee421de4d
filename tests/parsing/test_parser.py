"""The tokens of a parser that are words."""

import pytest

from mtkit.base.errors import MtkitError
from mtkit.data import PreparedData
from mtkit.parsing.parser import brackets_of, counted_words


def test_the_tokens_that_are_words_are_those_with_tags(tree_data: PreparedData):
    brackets = brackets_of(tree_data.tokenizers().tgt)
    words = {token: one.label for token, one in brackets.items() if one.kind == "word"}
    _, mask = counted_words(tree_data.tokenizers())
    assert mask.nonzero()[0].tolist() == sorted(words)
    assert {"NN", "NNP", "VBZ", "JJ", "DT", "IN", ",", "."} <= set(words.values())


def test_a_vocabulary_without_whole_brackets_is_refused(tiny_data: PreparedData):
    with pytest.raises(MtkitError, match=r"model.positions: .* tgt_vocab_size"):
        counted_words(tiny_data.tokenizers())
