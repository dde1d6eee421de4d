"""Search for well-formed trees: nothing that is none is allowed, and everything that is one."""

import random

import pytest

from mtkit.base.errors import MtkitError
from mtkit.parsing.parser import BracketTokens, TreeMask
from mtkit.parsing.trees import linearise, parse_trees, restore
from mtkit.tokenizer import EOS_ID


@pytest.fixture(scope="module")
def brackets(tree_data) -> BracketTokens:
    return BracketTokens(tree_data.tokenizers().tgt)


@pytest.mark.parametrize("words", [1, 2, 7])
@pytest.mark.parametrize("spare", [3, 8, 40])
def test_what_a_mask_allows_is_a_tree_over_the_words_that_fits(brackets, tree_data, words, spare):
    random.seed(words * spare)
    tokenizer = tree_data.tokenizers().tgt
    sentence = [f"w{place}" for place in range(words)]
    for _ in range(50):
        mask = TreeMask(brackets, words=words, limit=words + spare)
        state, tokens = mask.start(), []
        while True:
            token = random.choice(mask.allowed(state).nonzero()[0].tolist())
            if token == EOS_ID:
                break
            tokens.append(token)
            state = mask.advance(state, token)
        assert len(tokens) < words + spare
        text = tokenizer.decode(tokens)
        restored, is_repaired = restore(text, sentence)
        assert not is_repaired
        assert linearise(restored, tags=True) == text


def test_a_mask_allows_every_tree_of_the_treebank(brackets, tree_data):
    tokenizer = tree_data.tokenizers().tgt
    for tree in parse_trees(tree_data.text("test")[1], name="test"):
        tokens = tokenizer.encode(linearise(tree, tags=True))
        mask = TreeMask(brackets, words=len(tree.words), limit=len(tokens) + 1)
        state = mask.start()
        for token in tokens:
            assert mask.allowed(state)[token]
            state = mask.advance(state, token)
        assert mask.allowed(state).nonzero()[0].tolist() == [EOS_ID]


def test_a_vocabulary_without_whole_brackets_is_refused(tiny_data):
    with pytest.raises(MtkitError, match=r"decode.well_formed_trees: .* tgt_vocab_size"):
        BracketTokens(tiny_data.tokenizers().tgt).check(needed_by="decode.well_formed_trees")


def test_a_single_word_needs_no_phrase(brackets):
    mask = TreeMask(brackets, words=1, limit=2)
    assert sorted(mask.allowed(mask.start()).nonzero()[0].tolist()) == sorted(brackets.words)
    assert {"NN", "NNP", "VBZ", "JJ", "DT", "IN", ",", "."} <= set(brackets.words.values())
