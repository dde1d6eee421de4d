"""The demo corpus: its German, its split, its bytes."""

import hashlib
import itertools

import pytest

from mtkit.data import Split
from mtkit.prepare import catalogue, demo
from mtkit.prepare import demo_words as lexicon
from mtkit.prepare.demo import Pair

PINNED = "8d219edf6f2645f13c26dfa54ac3c10113eee7236d7aaf08d9291e259f1b3e4e"


@pytest.fixture(scope="module")
def corpus() -> dict[Split, list[Pair]]:
    return demo.demo_corpus()


# Sentences of the corpus, by what their German shows.
GERMAN = {
    "noun phrases take gender, case and number": """
        The man washed the dog. = Der Mann hat den Hund gewaschen.
        He sees the man. = Er sieht den Mann.
        I help the man. = Ich helfe dem Mann.
        I follow the woman. = Ich folge der Frau.
        Peter thanked the children. = Peter hat den Kindern gedankt.
        You should wash two cars. = Du sollst zwei Autos waschen.
        I love the student. = Ich liebe den Studenten.
        He thanks a boy. = Er dankt einem Jungen.
        This farmer walks back. = Dieser Bauer geht zurück.
        You invited her neighbor. = Du hast ihren Nachbarn eingeladen.""",
    "adjectives take the ending that their determiner asks for": """
        A neighbor did not see an old house. = Ein Nachbar hat kein altes Haus gesehen.
        He washed a new coat. = Er hat einen neuen Mantel gewaschen.
        Maria ate the red apples. = Maria hat die roten Äpfel gegessen.
        The father needs five cheap eggs. = Der Vater braucht fünf billige Eier.""",
    "pronouns and names take their case": """
        I answer her. = Ich antworte ihr.
        I visit him. = Ich besuche ihn.
        He followed me. = Er ist mir gefolgt.
        Does Maria give the woman a book? = Gibt Maria der Frau ein Buch?""",
    "statements have the verb second": """
        Peter calls the man. = Peter ruft den Mann an.
        A friend called me. = Ein Freund hat mich angerufen.
        I do not open his door. = Ich mache seine Tür nicht auf.
        We did not wait without the boy. = Wir haben nicht ohne den Jungen gewartet.
        The farmer does not buy a car in the evening. = Der Bauer kauft am Abend kein Auto.
        A teacher goes into the forest. = Ein Lehrer geht in den Wald.
        I went to the school this morning. = Ich bin heute Morgen zur Schule gegangen.
        The friend must invite this farmer. = Der Freund muss diesen Bauern einladen.
        She sang last week. = Sie hat letzte Woche gesungen.
        Today he loved her neighbor. = Heute hat er ihren Nachbarn geliebt.""",
    "subordinate clauses have the verb last": """
        We hope that she calls a teacher. = Wir hoffen, dass sie einen Lehrer anruft.
        She says that he called you. = Sie sagt, dass er dich angerufen hat.
        They ask if Peter does not open my doors. = Sie fragen, ob Peter meine Türen nicht aufmacht.
        They ask if Thomas must play. = Sie fragen, ob Thomas spielen muss.""",
    "questions have the verb first": """
        Do you trust a boy? = Vertraust du einem Jungen?
        Did she call five girls today? = Hat sie heute fünf Mädchen angerufen?
        Must you close a window? = Musst du ein Fenster zumachen?""",
}


@pytest.mark.parametrize("rule", GERMAN)
def test_the_german_follows_the_grammar(rule: str, corpus: dict[Split, list[Pair]]) -> None:
    translations = dict(pair for pairs in corpus.values() for pair in pairs)
    for line in GERMAN[rule].strip().splitlines():
        english, german = line.strip().split(" = ")
        assert translations[english] == german


def test_the_corpus_is_the_same_on_every_machine(corpus: dict[Split, list[Pair]]) -> None:
    text = "".join(
        f"{english}\t{german}\n" for split in corpus.values() for english, german in split
    )
    assert hashlib.sha256(text.encode()).hexdigest() == PINNED


def test_the_corpus_has_the_promised_sizes_without_repetition(
    corpus: dict[Split, list[Pair]],
) -> None:
    assert {split: len(corpus[split]) for split in corpus} == {
        "train": 30_000,
        "valid": 500,
        "test": 1_000,
    }
    everything = [english for split in corpus.values() for english, _ in split]
    assert len(set(everything)) == 31_500
    assert catalogue.find_corpus("demo-en-de").train_pairs == len(corpus["train"])


def test_an_english_sentence_has_one_german_translation() -> None:
    translations: dict[str, str] = {}
    for (english, german), _ in zip((s[0] for s in demo.sentences(7)), range(20_000), strict=False):
        assert translations.setdefault(english, german) == german


def test_no_training_sentence_has_a_held_out_adjective_and_noun_side_by_side(
    corpus: dict[Split, list[Pair]],
) -> None:
    # Looked for in the text itself, not through the grammar.
    pairs = {
        f"{a.english} {form}"
        for a in lexicon.ADJECTIVES
        for n in lexicon.NOUNS
        for form in (n.english, n.english_plural)
        if demo.held_out((a.number, n.number))
    }
    seen = {
        f"{first} {second}"
        for english, _ in corpus["train"]
        for words in [english.rstrip(".?").replace(",", " ,").split()]
        for first, second in itertools.pairwise(words)
    }
    assert not pairs & seen
    assert len(pairs) > 50
