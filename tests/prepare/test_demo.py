"""The demo corpus: its grammar, its split, its bytes."""

import hashlib
import itertools

import pytest
from support import demo_grammar

from mtkit.prepare import catalogue

Pair = tuple[str, str]

PINNED = "8d219edf6f2645f13c26dfa54ac3c10113eee7236d7aaf08d9291e259f1b3e4e"


@pytest.fixture(scope="module")
def corpus():
    return catalogue.demo_corpus()


def test_the_corpus_is_the_same_on_every_machine(corpus):
    text = "".join(
        f"{english}\t{german}\n" for split in corpus.values() for english, german in split
    )
    assert hashlib.sha256(text.encode()).hexdigest() == PINNED


def test_the_corpus_has_the_promised_sizes_without_repetition(corpus):
    assert {split: len(corpus[split]) for split in corpus} == {
        "train": 30_000,
        "valid": 500,
        "test": 1_000,
    }
    assert len({english for split in corpus.values() for english, _ in split}) == 31_500
    assert catalogue.find_corpus("demo-en-de").train_pairs == len(corpus["train"])


def test_the_grammar_writes_the_corpus(corpus):
    assert demo_grammar.demo_corpus() == corpus


def test_no_training_sentence_has_a_held_out_adjective_and_noun_side_by_side(corpus):
    # Looked for in the text itself, not through the grammar.
    pairs = {
        f"{a.english} {form}"
        for a in demo_grammar.lexicon.ADJECTIVES
        for n in demo_grammar.lexicon.NOUNS
        for form in (n.english, n.english_plural)
        if demo_grammar.held_out((a.number, n.number))
    }
    seen = {
        f"{first} {second}"
        for english, _ in corpus["train"]
        for words in [english.rstrip(".?").replace(",", " ,").split()]
        for first, second in itertools.pairwise(words)
    }
    assert not pairs & seen
    assert len(pairs) > 50
