"""The demo corpus: its German, its split, its bytes."""

import hashlib
import itertools
import re

import pytest

from mtkit.data import Split
from mtkit.prepare import catalogue, demo, lexicon
from mtkit.prepare.demo import Clause, Pair, Phrase

PINNED = "8d219edf6f2645f13c26dfa54ac3c10113eee7236d7aaf08d9291e259f1b3e4e"


@pytest.fixture(scope="module")
def corpus() -> dict[Split, list[Pair]]:
    return demo.demo_corpus()


def noun(english: str, determiner: str = "the", adjective: str = "", *, plural: bool = False):
    found = next(n for n in lexicon.NOUNS if n.english == english)
    described = next((a for a in lexicon.ADJECTIVES if a.english == adjective), None)
    return Phrase("", found, determiner, described, plural)


def verb(name: str):
    return next(v for v in lexicon.VERBS if v.name == name)


def place(english: str, phrase: Phrase):
    everything = [p for kind in lexicon.PREPOSITIONS.values() for p in kind]
    return next(p for p in everything if p.english == english), phrase


def modal(english: str):
    return next(m for m in lexicon.MODALS if m.english[0] == english)


def time(english: str):
    return next(t for t in lexicon.TIMES if t.english == english)


@pytest.mark.parametrize(
    ("phrase", "case", "german"),
    [
        (noun("man"), "nom", "der Mann"),
        (noun("man"), "acc", "den Mann"),
        (noun("man"), "dat", "dem Mann"),
        (noun("woman"), "dat", "der Frau"),
        (noun("child", plural=True), "dat", "den Kindern"),
        (noun("car", "two", plural=True), "dat", "zwei Autos"),
        (noun("student"), "acc", "den Studenten"),
        (noun("boy", "a"), "dat", "einem Jungen"),
        (noun("farmer", "this"), "nom", "dieser Bauer"),
        (noun("house", "a", "old"), "nom", "ein altes Haus"),
        (noun("coat", "a", "old"), "acc", "einen alten Mantel"),
        (noun("lamp", "a", "expensive"), "dat", "einer teuren Lampe"),
        (noun("apple", "the", "red", plural=True), "acc", "die roten Äpfel"),
        (noun("egg", "five", "fresh", plural=True), "acc", "fünf frische Eier"),
        (noun("friend", "my", "good"), "dat", "meinem guten Freund"),
        (noun("friend", "our", "good"), "nom", "unser guter Freund"),
        (noun("neighbor", "her"), "acc", "ihren Nachbarn"),
        (noun("cake", "not a", "fresh"), "acc", "keinen frischen Kuchen"),
        (Phrase("she"), "dat", "ihr"),
        (Phrase("he"), "acc", "ihn"),
        (Phrase("Anna"), "dat", "Anna"),
    ],
)
def test_noun_phrases_take_gender_case_and_number(phrase: Phrase, case: str, german: str) -> None:
    assert phrase.german(case) == german


MAN = noun("man")
STATEMENTS = [
    (Clause(Phrase("he"), verb("buy"), "present", (("acc", noun("car", "a")),)),
     "he buys a car", "er kauft ein Auto"),
    (Clause(Phrase("I"), verb("see"), "past", (("acc", noun("dog")),)),
     "I saw the dog", "ich habe den Hund gesehen"),
    (Clause(Phrase("you"), verb("carry"), "present", (("acc", noun("bag")),)),
     "you carry the bag", "du trägst die Tasche"),
    (Clause(MAN, verb("follow"), "past", (("dat", noun("cat")),)),
     "the man followed the cat", "der Mann ist der Katze gefolgt"),
    (Clause(Phrase("she"), verb("call"), "present", (("acc", noun("doctor")),)),
     "she calls the doctor", "sie ruft den Arzt an"),
    (Clause(Phrase("she"), verb("call"), "past", (("acc", Phrase("I")),)),
     "she called me", "sie hat mich angerufen"),
    (Clause(Phrase("they"), verb("give"), "present",
            (("dat", noun("woman")), ("acc", noun("book", "a")))),
     "they give the woman a book", "sie geben der Frau ein Buch"),
    (Clause(Phrase("he"), verb("buy"), "present", (("acc", noun("egg", "not a")),), negated=True),
     "he does not buy an egg", "er kauft kein Ei"),
    (Clause(Phrase("we"), verb("open"), "present", (("acc", noun("door")),), negated=True),
     "we do not open the door", "wir machen die Tür nicht auf"),
    (Clause(Phrase("I"), verb("wait"), "past", (), (place("in", noun("garden")),), negated=True),
     "I did not wait in the garden", "ich habe nicht im Garten gewartet"),
    (Clause(MAN, verb("go"), "present", (), (place("into", noun("garden")),)),
     "the man goes into the garden", "der Mann geht in den Garten"),
    (Clause(MAN, verb("go"), "past", (), (place("to", noun("school")),)),
     "the man went to the school", "der Mann ist zur Schule gegangen"),
    (Clause(Phrase("you"), verb("invite"), "present", (("acc", noun("guest", "a")),),
            modal=modal("must")),
     "you must invite a guest", "du musst einen Gast einladen"),
    (Clause(Phrase("he"), verb("help"), "present", (("dat", Phrase("we")),),
            modal=modal("want to"), negated=True),
     "he does not want to help us", "er will uns nicht helfen"),
    (Clause(Phrase("Anna"), verb("repair"), "past", (("acc", noun("train")),),
            time=time("last week")),
     "Anna repaired the train last week", "Anna hat letzte Woche den Zug repariert"),
    (Clause(Phrase("Peter"), verb("sell"), "past", (("acc", noun("clock", "his")),)),
     "Peter sold his clock", "Peter hat seine Uhr verkauft"),
]  # fmt: skip


@pytest.mark.parametrize(("clause", "english", "german"), STATEMENTS)
def test_statements_have_the_verb_second(clause: Clause, english: str, german: str) -> None:
    assert demo.english_statement(clause) == english
    assert demo.german_statement(clause) == german


@pytest.mark.parametrize(
    ("clause", "german"),
    [
        (STATEMENTS[4][0], "sie den Arzt anruft"),
        (STATEMENTS[5][0], "sie mich angerufen hat"),
        (STATEMENTS[8][0], "wir die Tür nicht aufmachen"),
        (STATEMENTS[12][0], "du einen Gast einladen musst"),
        (STATEMENTS[14][0], "Anna letzte Woche den Zug repariert hat"),
    ],
)
def test_subordinate_clauses_have_the_verb_last(clause: Clause, german: str) -> None:
    assert demo.german_subordinate(clause) == german


@pytest.mark.parametrize(
    ("clause", "english", "german"),
    [
        (STATEMENTS[0][0], "does he buy a car", "kauft er ein Auto"),
        (STATEMENTS[5][0], "did she call me", "hat sie mich angerufen"),
        (STATEMENTS[12][0], "must you invite a guest", "musst du einen Gast einladen"),
    ],
)
def test_questions_have_the_verb_first(clause: Clause, english: str, german: str) -> None:
    assert demo.english_question(clause) == english
    assert demo.german_inverted(clause) == german


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


def test_every_word_of_the_test_set_is_known_from_training(corpus: dict[Split, list[Pair]]) -> None:
    def words(pairs: list[Pair], side: int) -> set[str]:
        return {word for pair in pairs for word in re.findall(r"\w+", pair[side].lower())}

    for side in (0, 1):
        unknown = words(corpus["test"], side) - words(corpus["train"], side)
        # A rare inflection may be new; a word must not be.
        assert len(unknown) <= 3, unknown


def test_german_nouns_are_capitalised_and_sentences_end_well(
    corpus: dict[Split, list[Pair]],
) -> None:
    nouns = {n.german.lower() for n in lexicon.NOUNS} - {"junge"}  # also "young"
    for english, german in corpus["test"]:
        assert english[-1] == german[-1]
        assert english[0].isupper()
        assert german[0].isupper()
        assert "  " not in german
        for word in re.findall(r"\w+", german):
            assert word.lower() not in nouns or word[0].isupper(), german
