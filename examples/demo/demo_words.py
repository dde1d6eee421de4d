"""The words of the demo corpus, English and German, read from `lexicon.tsv`.

The first two columns of the file are the kind of word and its group; the others are

    noun         English/plural | German article, singular and plural, "weak" for masculines whose
                 other cases end in -n
    adjective    English | German, and the stem before an ending if it differs | groups of nouns
    verb         English base[_particle], the form after "he" and the past | German infinitive, "+"
                 after a separable prefix, the forms for ich, du and er, the participle, and the
                 auxiliary of the perfect | groups and nouns that are its objects
    preposition  English | German and the case that it governs | groups and nouns
    time         English | German | the tenses that it is used with
    modal        English for I and for he, with a negated form | German for ich, du, er, wir
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

HABEN = ("habe", "hast", "hat", "haben")
SEIN = ("bin", "bist", "ist", "sind")
NAMES = {"Anna": "she", "Maria": "she", "Peter": "he", "Thomas": "he"}
POSSESSIVES = ("my", "your", "his", "her", "our", "their")
NUMBERS = {"two": "zwei", "three": "drei", "five": "fünf", "ten": "zehn"}
# Verbs that can be followed by "for somebody"; verbs that are not used with a modal verb.
FAVORS = ("buy", "write", "find", "need", "repair", "carry", "open")
ACCIDENTS = ("need", "love", "lose", "fall_asleep", "find")

# English, object form | German nominative, accusative, dative; in the order of the verb forms.
PRONOUNS = {
    "I": ("me", "ich", "mich", "mir"),
    "you": ("you", "du", "dich", "dir"),
    "he": ("him", "er", "ihn", "ihm"),
    "she": ("her", "sie", "sie", "ihr"),
    "we": ("us", "wir", "uns", "uns"),
    "they": ("them", "sie", "sie", "ihnen"),
}
# The index of each pronoun in a verb's forms for ich, du, er, wir.
SLOTS = {"I": 0, "you": 1, "he": 2, "she": 2, "we": 3, "they": 3}


class Noun(NamedTuple):
    """A noun; `gender` is m, f or n, `number` its position in the lexicon."""

    number: int
    group: str
    english: str
    english_plural: str
    gender: str
    german: str
    german_plural: str
    weak: bool


class Adjective(NamedTuple):
    """An adjective; `stem` takes the German endings, `nouns` are the groups it describes."""

    number: int
    english: str
    german: str
    stem: str
    nouns: frozenset[str]


class Verb(NamedTuple):
    """A verb.

    `frame` is its group, `name` the English base with its particle, `third` its form after "he",
    `present` the German forms for ich, du, er, wir without the separable `prefix`.
    """

    number: int
    frame: str
    name: str
    third: str
    past: str
    infinitive: str
    prefix: str
    present: tuple[str, ...]
    participle: str
    auxiliary: tuple[str, ...]
    nouns: tuple[Noun, ...]


class Preposition(NamedTuple):
    """A preposition with its German case and the nouns it is used with."""

    english: str
    german: str
    case: str
    nouns: tuple[Noun, ...]


class Time(NamedTuple):
    """An adverbial of time and the tenses that it is used with."""

    english: str
    german: str
    tenses: frozenset[str]


class Modal(NamedTuple):
    """A modal verb: English forms for I and he, with and without "not", and German forms."""

    english: tuple[str, ...]
    present: tuple[str, ...]


def _rows(kind: str) -> Iterator[tuple[str, list[list[str]]]]:
    """The group and the other columns, as lists of words, of each word of a kind."""
    file = Path(__file__).with_name("lexicon.tsv")
    for line in file.read_text(encoding="utf-8").splitlines():
        first, group, *columns = line.split("\t")
        if first == kind:
            yield group, [column.split() for column in columns]


def _noun(number: int, group: str, english: str, german: list[str]) -> Noun:
    singular, plural = english.split("/")
    gender = {"der": "m", "die": "f", "das": "n"}[german[0]]
    is_weak = german[3:] == ["weak"]
    return Noun(number, group, singular, plural, gender, german[1], german[2], is_weak)


def _nouns(names: Sequence[str] = ()) -> tuple[Noun, ...]:
    """The nouns of these groups and single words."""
    return tuple(n for n in NOUNS if n.group in names or n.english in names)


def _verb(number: int, frame: str, english: list[str], german: list[str], *of: list[str]) -> Verb:
    name, third, past = english
    prefix, _, infinitive = german[0].rpartition("+")
    present, auxiliary = (*german[1:4], infinitive), {"haben": HABEN, "sein": SEIN}[german[5]]
    forms = infinitive, prefix, present, german[4], auxiliary
    return Verb(number, frame, name, third, past, *forms, _nouns(*of))


NOUNS = tuple(
    _noun(number, group, english, german)
    for number, (group, ((english,), german)) in enumerate(_rows("noun"))
)
PEOPLE = _nouns(["person", "kin"])
VERBS = tuple(
    _verb(number, frame, *columns) for number, (frame, columns) in enumerate(_rows("verb"))
)
ADJECTIVES = tuple(
    Adjective(number, english, german[0], german[-1], frozenset(groups))
    for number, (_, ((english,), german, groups)) in enumerate(_rows("adjective"))
)
PREPOSITIONS: dict[str, list[Preposition]] = {}
for _kind, (_english, (_german, _case), _names) in _rows("preposition"):
    PREPOSITIONS.setdefault(_kind, []).append(
        Preposition(" ".join(_english), _german, _case, _nouns(_names))
    )
TIMES = tuple(
    Time(" ".join(english), " ".join(german), frozenset(tenses))
    for _, (english, german, tenses) in _rows("time")
)
MODALS = tuple(
    Modal(tuple(form.replace("_", " ").strip("-") for form in english), tuple(german))
    for _, (english, german) in _rows("modal")
)
