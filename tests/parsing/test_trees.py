"""Bracketed trees: read, linearised, and restored from whatever a model wrote."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.treebank import tree

from mtkit.base.errors import MtkitError
from mtkit.parsing.trees import Phrase, Tree, linearise, parse_trees, restore, split_words

ANN = "(S (NP (NNP Ann)) (VP (VBZ sleeps)) (. .))"


def parsed(text: str) -> list[Tree]:
    return list(parse_trees(text.split("\n"), name="some.trees"))


def test_a_tree_has_words_and_tags_and_its_phrases_as_spans_of_words():
    assert tree(ANN) == Tree(
        ("Ann", "sleeps", "."),
        ("NNP", "VBZ", "."),
        (Phrase("S", 0, 3), Phrase("NP", 0, 1), Phrase("VP", 1, 2)),
    )


def test_traces_and_function_tags_and_wrappers_are_left_out_as_evalb_does():
    # The example of evalb's manual, and an example of each function tag.
    text = "(VP (VBD reported) (SBAR (-NONE- 0) (S (-NONE- *T*-1))))"
    assert str(tree(text)) == "(VP (VBD reported))"
    text = "(TOP (NP-SBJ-1 (NP=2 (PRP it)) (-LRB- -LRB-)))"
    assert str(tree(text)) == "(NP (NP (PRP it)) (-LRB- -LRB-))"
    for wrapped in (f"( {ANN})", f"(ROOT {ANN})", f"(S1 {ANN})", f"( (TOP (S1 {ANN})))"):
        assert str(tree(wrapped)) == ANN
    for label in ("", "TOP", "ROOT", "S1"):
        assert str(tree(f"({label} (S (NN a)) (. .))")) == "(TOP (S (NN a)) (. .))"
        assert str(tree(f"({label} (NN a))")) == "(NN a)"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (f"{ANN}\n(S (NP (NN a))\n{ANN}", 2, "the tree that begins here is not closed"),
        (f"{ANN}\n(S (NN a)))", 2, "unbalanced brackets: ) without ("),
        (f"{ANN}\n\n(S (-NONE- *))", 3, "an empty tree"),
        ("()", 1, "an empty bracket"),
        ("(S (NP ) (NN a))", 1, "an empty bracket (NP)"),
        ("(S ((NN a)))", 1, "a bracket without a label"),
        ("(S (NN a) b)", 1, "'b' has no part-of-speech tag"),
        ("Ann sleeps .", 1, "'Ann' has no part-of-speech tag"),
        ("(S (NN a b))", 1, "'b' in the bracket of the word 'a'"),
        ("(S (NN a(b)))", 1, "'(b' in the bracket of the word 'a'"),
    ],
)
def test_a_malformed_tree_is_reported_with_its_line(text: str, line: int, reason: str):
    with pytest.raises(MtkitError) as caught:
        parsed(text)
    assert str(caught.value).startswith(f"some.trees, line {line}: ")
    assert reason in str(caught.value)


def test_a_linearised_tree_has_a_word_for_each_bracket_and_for_each_word_of_the_sentence():
    assert linearise(tree(ANN), tags=False) == "S NP XX zNP VP XX zVP XX zS"
    # The full stop is U+002E.
    assert linearise(tree(ANN), tags=True) == "S NP xNNP zNP VP xVBZ zVP xucov zS"


def test_no_label_can_be_taken_for_a_closing_or_a_word():
    odd = Tree(
        ("a", "b"),
        ("S", "zS"),
        tuple(Phrase(label, 0, 2) for label in ("zNP", "NP", "XX", "uafv", "PRT|ADVP", "Ä", "$")),
    )
    for tags in (True, False):
        text = linearise(odd, tags=tags)
        assert len(set(text.split())) == 2 * len(odd.phrases) + 1 + tags
        assert text.replace(" ", "").isalpha()
        assert text.isascii()
        assert restore(text, odd.words).tree.phrases == odd.phrases
    assert restore(linearise(odd, tags=True), odd.words) == (odd, False)


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("", "a b", "(S (XX a) (XX b))"),
        ("", "a", "(S (XX a))"),
        ("nonsense (NP )NP", "a b", "(S (XX a) (XX b))"),
        ("XX XX", "a b", "(S (XX a) (XX b))"),
        # Words that are missing belong to the innermost open phrase; open phrases are closed.
        ("S NP XX", "a b c", "(S (NP (XX a) (XX b) (XX c)))"),
        # The root is not closed before the last word.
        ("S NP XX zNP zS", "a b", "(S (NP (XX a)) (XX b))"),
        ("S XX zS NP XX zNP", "a b", "(S (XX a) (NP (XX b)))"),
        # Too many words.
        ("S NP XX XX zNP VP XX zVP zS", "a b", "(S (NP (XX a) (XX b)))"),
        # A closing without an opening, and one of an outer phrase.
        ("S XX zVP XX zS", "a b", "(S (XX a) (XX b))"),
        ("S NP PP XX zNP XX zS", "a b", "(S (NP (PP (XX a))) (XX b))"),
        # Empty phrases.
        ("S NP zNP VP XX zVP XX zS", "a b", "(S (VP (XX a)) (XX b))"),
        ("S XX XX zS zS", "a b", "(S (XX a) (XX b))"),
    ],
)
def test_what_makes_no_sense_is_repaired(text: str, words: str, expected: str):
    restored = restore(text, words.split())
    assert (str(restored.tree), restored.repaired) == (expected, True)


def test_brackets_in_words_are_escaped_as_in_the_treebank():
    assert split_words(" f(x) \t( a\u00a0b\u2028c") == ["f-LRB-x-RRB-", "-LRB-", "a\u00a0b\u2028c"]
    assert str(restore("XX", ["("]).tree) == "(XX -LRB-)"


def test_a_tree_of_any_depth_is_read_and_restored():
    deep = "(NP " * 20_000 + "(NN a)" + ")" * 20_000
    read = tree(deep)
    assert str(read) == deep
    assert restore(linearise(read, tags=True), read.words).tree == read


labels, words = (
    st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters=excluded), min_size=1)
    for excluded in ("()-=", "()")
)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Trees of any shape, built from the root down."""
    sentence = tuple(draw(st.lists(words, min_size=1, max_size=12)))
    phrases: list[Phrase] = []

    def grow(start: int, end: int, depth: int) -> None:
        if depth:
            cuts = draw(st.sets(st.integers(start + 1, end - 1))) if end - start > 1 else set()
            for first, last in pairwise([start, *sorted(cuts), end]):
                if draw(st.booleans()):
                    phrases.append(Phrase(draw(labels), first, last))
                    grow(first, last, depth - 1)

    if len(sentence) > 1 or draw(st.booleans()):
        phrases.append(Phrase(draw(labels), 0, len(sentence)))
        grow(0, len(sentence), 4)
    tags = draw(st.lists(labels, min_size=len(sentence), max_size=len(sentence)))
    return Tree(sentence, tuple(tags), tuple(phrases))


@given(trees())
def test_restoring_a_linearised_tree_gives_the_tree(drawn: Tree):
    assert restore(linearise(drawn, tags=True), drawn.words) == (drawn, False)
    without = restore(linearise(drawn, tags=False), drawn.words)
    assert (without.tree.phrases, without.repaired) == (drawn.phrases, False)
    assert set(without.tree.tags) == {"XX"}


@given(trees().filter(lambda drawn: drawn.root not in ("", "TOP", "ROOT", "S1")))
def test_reading_a_written_tree_gives_the_tree(drawn: Tree):
    assert parsed(str(drawn)) == [drawn]


def test_any_text_restores_to_a_well_formed_tree_over_the_words_of_the_sentence():
    random.seed(19)
    vocabulary = ["NP", "VP", "S", "zNP", "zVP", "zS", "XX", "xNN", "xV", "z", "x", "<unk>", "9"]
    repaired = 0
    for _ in range(2_000):
        sentence = [f"w{place}" for place in range(random.randint(1, 12))]
        text = " ".join(random.choices(vocabulary, k=random.randint(0, 40)))
        restored, is_repaired = restore(text, sentence)
        repaired += is_repaired
        assert restored.words == tuple(sentence)
        # Reading what is written checks that brackets are balanced and that no phrase is empty.
        whole = Phrase("X", 0, len(sentence))
        assert tree(f"(X {restored})").phrases == (whole, *restored.phrases)
        # A repaired tree is a tree like any other.
        assert restore(linearise(restored, tags=True), sentence) == (restored, False)
    assert repaired > 1_800
