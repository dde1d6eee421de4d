"""A small English–German grammar that writes the demo corpus.

This module contains the rules and the split; the words are in `demo_words`. `demo_corpus` gives the
same sentence pairs on every machine. mtkit has them in `mtkit/prepare/demo.tsv.bz2`. To print them:

    python examples/demo/demo_grammar.py

**How it works.** Both languages are generated together, never one from the other's text. A
`Phrase` is a noun phrase in both languages; a `Clause` says who does what to whom, when and where;
some functions turn a clause into the words of a statement, a question, a subordinate clause or the
part after a fronted word. Each *kind* of sentence at the end of the file samples clauses and joins
them.

**The grammar of German** that is covered: three genders and three cases on articles, *kein*,
possessives and adjectives (strong, weak and mixed endings); plurals, the dative *-n* and
weak masculines (*der Student, den Studenten*); the finite verb in second place, with the subject
behind it when something else comes first; the finite verb last in subordinate clauses; separable
verbs (*ruft an, anrufen, angerufen*); the perfect with *haben* and *sein*; modal verbs; *kein*, and
the position of *nicht*; verbs and prepositions that govern a case.

**One English sentence, one German sentence.** *You* is *du*. The simple present is Präsens and the
simple past Perfekt. What comes first in English comes first in German.

**The split.** Some pairs of words (a verb with its object or place, an adjective with its noun) are
held out: no training sentence has both. Every validation and test sentence has at least one such
pair, so a good score means that the model can combine words that it saw only separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

import demo_words as lexicon

TRAIN_PAIRS = 30_000
VALID_PAIRS = 500
TEST_PAIRS = 1_000
SEED = 1

T = TypeVar("T")
Pair = tuple[str, str]


def _endings(table: str) -> dict[str, list[str]]:
    """Of nominative, accusative and dative, by gender: m, f, n, and p for the plural."""
    cells = [[ending.strip("-") for ending in row.split()] for row in table.split("/")]
    return dict(zip("mfnp", cells, strict=True))


# The endings of der, dieser, ein, and of adjectives after der, after ein and after nothing.
DER = _endings("er en em / ie ie er / as as em / ie ie en")
STRONG = _endings("er en em / e e er / es es em / e e en")
EIN = _endings("- en em / e e er / - - em / e e en")
WEAK = _endings("e en en / e e en / e e en / en en en")
MIXED = _endings("er en en / e e en / es es en / en en en")
NONE = _endings("- - - / - - - / - - - / - - -")

# English determiner: German stem, its endings, and the endings of an adjective after it.
DETERMINERS = {
    "the": ("d", DER, WEAK),
    "this": ("dies", STRONG, WEAK),
    "a": ("ein", EIN, MIXED),
    "not a": ("kein", EIN, MIXED),  # in English the "not" is at the verb
    "my": ("mein", EIN, MIXED),
    "your": ("dein", EIN, MIXED),
    "his": ("sein", EIN, MIXED),
    "her": ("ihr", EIN, MIXED),
    "our": ("unser", EIN, MIXED),
    "their": ("ihr", EIN, MIXED),
    **{english: (german, NONE, STRONG) for english, german in lexicon.NUMBERS.items()},
}

CASES = {"nom": 0, "acc": 1, "dat": 2}
CONTRACTIONS = {"in dem": "im", "in das": "ins", "zu dem": "zum", "zu der": "zur"}
BE = ("am", "are", "is", "are")
WAS = ("was", "were", "was", "were")
WAR = ("war", "warst", "war", "waren")


# --- Noun phrases


@dataclass(frozen=True)
class Phrase:
    """A noun phrase: a pronoun or name (`word`), or a noun with determiner and adjective."""

    word: str = ""
    noun: lexicon.Noun | None = None
    determiner: str = "the"
    adjective: lexicon.Adjective | None = None
    plural: bool = False

    @property
    def slot(self) -> int:
        """The verb form it takes as the subject: that of ich, du, er or wir."""
        if self.noun is not None:
            return 3 if self.plural else 2
        return lexicon.SLOTS[lexicon.NAMES.get(self.word, self.word)]

    @property
    def is_pronoun(self) -> bool:
        """Whether it is a personal pronoun."""
        return self.word in lexicon.PRONOUNS

    def english(self, *, subject: bool = False) -> str:
        """The English words."""
        if self.noun is None:
            return self.word if subject or not self.is_pronoun else lexicon.PRONOUNS[self.word][0]
        words = [self.adjective.english] if self.adjective else []
        words.append(self.noun.english_plural if self.plural else self.noun.english)
        determiner = self.determiner.removeprefix("not ")
        if determiner == "a" and words[0][0] in "aeiou":
            determiner = "an"
        if determiner == "this" and self.plural:
            determiner = "these"
        return " ".join([determiner, *words])

    def german(self, case: str) -> str:
        """The German words in a case."""
        if self.noun is None:
            return lexicon.PRONOUNS[self.word][1 + CASES[case]] if self.is_pronoun else self.word
        stem, own, behind = DETERMINERS[self.determiner]
        gender = "p" if self.plural else self.noun.gender
        words = [stem + own[gender][CASES[case]]]
        if self.adjective:
            words.append(self.adjective.stem + behind[gender][CASES[case]])
        noun = self.noun.german_plural if self.plural else self.noun.german
        if self.plural and case == "dat" and noun[-1] not in "ns":
            noun += "n"
        if not self.plural and self.noun.weak and case != "nom":
            noun = self.noun.german_plural
        return " ".join([*words, noun])


# --- Clauses


@dataclass(frozen=True)
class Clause:
    """Who does what to whom, when and where; the functions below turn it into words.

    Attributes:
        tense: "present" or "past".
        objects: each with its case; a dative comes before an accusative.
        phrases: prepositional phrases, at the end in both languages.
        modal: in the present only.
        negated: with *nicht* or *kein*.
    """

    subject: Phrase
    verb: lexicon.Verb
    tense: str
    objects: tuple[tuple[str, Phrase], ...] = ()
    phrases: tuple[tuple[lexicon.Preposition, Phrase], ...] = ()
    time: lexicon.Time | None = None
    modal: lexicon.Modal | None = None
    negated: bool = False


def english_statement(clause: Clause) -> str:
    """ "the man does not buy the car today"."""
    verb, third = clause.verb, clause.subject.slot == 2
    base, _, particle = verb.name.partition("_")
    if clause.modal:
        finite = clause.modal.english[2 * clause.negated + third] + " " + base
    elif clause.negated:
        do = "did" if clause.tense == "past" else "does" if third else "do"
        finite = f"{do} not {base}"
    else:
        finite = verb.past if clause.tense == "past" else verb.third if third else base
    subject = clause.subject.english(subject=True)
    return _words(subject, finite, particle, *_english_rest(clause))


def english_question(clause: Clause) -> str:
    """ "does the man buy the car today"; never negated."""
    base, _, particle = clause.verb.name.partition("_")
    subject = clause.subject.english(subject=True)
    if clause.modal and " " not in clause.modal.english[0]:
        finite = clause.modal.english[0]
    else:
        third = clause.subject.slot == 2
        finite = "did" if clause.tense == "past" else "does" if third else "do"
        base = f"{clause.modal.english[0]} {base}" if clause.modal else base
    return _words(finite, subject, base, particle, *_english_rest(clause))


def german_statement(clause: Clause) -> str:
    """ "der Mann kauft heute das Auto nicht": subject, finite verb, the rest."""
    finite, closing = _german_verb(clause)
    subject = clause.subject.german("nom")
    return _words(subject, finite, *_german_middle(clause), *closing)


def german_inverted(clause: Clause) -> str:
    """ "kauft der Mann das Auto": a question, or the part after a fronted word."""
    finite, closing = _german_verb(clause)
    subject = clause.subject.german("nom")
    return _words(finite, subject, *_german_middle(clause), *closing)


def german_subordinate(clause: Clause) -> str:
    """ "der Mann das Auto gekauft hat": the finite verb last."""
    finite, closing = _german_verb(clause)
    if closing == [clause.verb.prefix]:
        # If both parts of a separable verb are at the end, they are one word.
        closing, finite = [], clause.verb.prefix + finite
    return _words(clause.subject.german("nom"), *_german_middle(clause), *closing, finite)


def _german_verb(clause: Clause) -> tuple[str, list[str]]:
    """The finite verb, and the words at the end of the clause."""
    verb, slot = clause.verb, clause.subject.slot
    if clause.modal:
        return clause.modal.present[slot], [verb.prefix + verb.infinitive]
    if clause.tense == "past":
        return verb.auxiliary[slot], [verb.participle]
    return verb.present[slot], [verb.prefix] if verb.prefix else []


def _german_middle(clause: Clause) -> list[str]:
    """The words between the finite verb and the end: pronouns, time, objects, nicht, place."""
    pronouns = [p.german(case) for case, p in clause.objects if p.is_pronoun]
    objects = [p.german(case) for case, p in clause.objects if not p.is_pronoun]
    adverbial = [clause.time.german] if clause.time else []
    kein = any(phrase.determiner == "not a" for _, phrase in clause.objects)
    nicht = ["nicht"] if clause.negated and not kein else []
    places = [_german_phrase(*phrase) for phrase in clause.phrases]
    return [*pronouns, *adverbial, *objects, *nicht, *places]


def _german_phrase(preposition: lexicon.Preposition, phrase: Phrase) -> str:
    text = f"{preposition.german} {phrase.german(preposition.case)}"
    for long, short in CONTRACTIONS.items():
        if text.startswith(long + " "):
            return short + text.removeprefix(long)
    return text


def _english_rest(clause: Clause) -> list[str]:
    objects = [phrase.english() for _, phrase in clause.objects]
    places = [f"{preposition.english} {phrase.english()}" for preposition, phrase in clause.phrases]
    return [*objects, *places, clause.time.english if clause.time else ""]


def _words(*words: str) -> str:
    return " ".join(word for word in words if word)


def _sentence(english: str, german: str, end: str = ".") -> Pair:
    return english[0].upper() + english[1:] + end, german[0].upper() + german[1:] + end


# --- Random sampling


class Draw:
    """Random choices; they use the one method of `random` whose sequence never changes."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        # The pairs of words in the current sentence, in the form that `held_out` takes.
        self.combinations: list[tuple[int, int]] = []

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random.random() < probability

    def choice(self, options: Sequence[T]) -> T:
        """One of the options, all equally likely."""
        return options[int(self._random.random() * len(options))]

    def phrase(self, nouns: Sequence[lexicon.Noun], *, adjective: bool = True) -> Phrase:
        """One of these nouns with a determiner and perhaps an adjective."""
        noun = self.choice(nouns)
        building = noun.group in ("house", "place")
        plural = not building and self.chance(0.25)
        determiners = ["the", "the", "the", "this"]
        determiners += lexicon.NUMBERS if plural else ["a", "a", "a"]
        if not building and noun.group != "person":  # "my woman" would be said of a wife
            determiners += lexicon.POSSESSIVES
        determiner = self.choice(determiners)
        fitting = [a for a in lexicon.ADJECTIVES if noun.group in a.nouns]
        described = None
        if adjective and fitting and self.chance(0.35):
            described = self.choice(fitting)
            self.combinations.append((described.number, noun.number))
        return Phrase("", noun, determiner, described, plural)

    def subject(self) -> Phrase:
        """Somebody."""
        if self.chance(0.35):
            return Phrase(self.choice(list(lexicon.PRONOUNS)))
        if self.chance(0.2):
            return Phrase(self.choice(list(lexicon.NAMES)))
        return self.phrase(lexicon.PEOPLE)

    def somebody_else(self, subject: Phrase) -> Phrase:
        """A person who is not the subject, as an object."""
        # Neither the subject nor a group that the subject belongs to.
        same = ("I", "we") if subject.word in ("I", "we") else ("he", "she", "they")
        others = [word for word in lexicon.PRONOUNS if word != subject.word and word not in same]
        if self.chance(0.3):
            return Phrase(self.choice(others))
        return self.phrase(lexicon.PEOPLE, adjective=False)

    def clause(self, *, negatable: bool = True) -> Clause:
        """A random clause."""
        verb = self.choice(lexicon.VERBS)
        subject = self.subject()
        tense = self.choice(["present", "past"])
        objects: list[tuple[str, Phrase]] = []
        phrases = []
        if verb.frame in ("acc", "dat") and verb.nouns[0].group == "person" and self.chance(0.3):
            objects.append((verb.frame, self.somebody_else(subject)))
        elif verb.frame in ("acc", "dat"):
            objects.append((verb.frame, self.phrase(verb.nouns)))
        elif verb.frame == "dat acc":
            objects.append(("dat", self.somebody_else(subject)))
            objects.append(("acc", self.phrase(verb.nouns)))
        kinds = {"stay": "where", "go": "goal"}
        if verb.frame in kinds and self.chance(0.8):
            phrases.append(self.place(kinds[verb.frame]))
        elif verb.frame == "acc" and self.chance(0.15):
            phrases.append(self.place("favor" if verb.name in lexicon.FAVORS else "where"))
        if verb.frame in kinds and self.chance(0.15):
            phrases.insert(0, self.place("company"))
        self.combinations += [
            (verb.number, phrase.noun.number)
            for _, phrase in [*objects[-1:], *phrases]
            if phrase.noun
        ]
        fitting = [time for time in lexicon.TIMES if tense in time.tenses]
        time = self.choice(fitting) if self.chance(0.4) else None
        negated = negatable and self.chance(0.2)
        modal = None
        if tense == "present" and verb.name not in lexicon.ACCIDENTS and self.chance(0.3):
            modal = self.choice(lexicon.MODALS)
            negated = negated and bool(modal.english[2])
        if negated:
            objects = _denied(objects)
        return Clause(subject, verb, tense, tuple(objects), tuple(phrases), time, modal, negated)

    def place(self, kind: str) -> tuple[lexicon.Preposition, Phrase]:
        """A prepositional phrase."""
        preposition = self.choice(lexicon.PREPOSITIONS[kind])
        return preposition, self.phrase(preposition.nouns)


def _denied(objects: list[tuple[str, Phrase]]) -> list[tuple[str, Phrase]]:
    """The objects of a negated verb: the first "a" becomes *kein*."""
    for index, (case, phrase) in enumerate(objects):
        if phrase.noun is not None and phrase.determiner == "a":
            kein = replace(phrase, determiner="not a")
            return [*objects[:index], (case, kein), *objects[index + 1 :]]
    return objects


# --- Kinds of sentence


def _statement(draw: Draw) -> Pair:
    clause = draw.clause()
    return _sentence(english_statement(clause), german_statement(clause))


def _fronted_time(draw: Draw) -> Pair:
    clause = draw.clause()
    time, rest = clause.time, replace(clause, time=None)
    if time is None:
        return _sentence(english_statement(clause), german_statement(clause))
    english = f"{time.english} {english_statement(rest)}"
    return _sentence(english, f"{time.german} {german_inverted(rest)}")


def _question(draw: Draw) -> Pair:
    clause = draw.clause(negatable=False)
    return _sentence(english_question(clause), german_inverted(clause), "?")


def _why(draw: Draw) -> Pair:
    clause = draw.clause(negatable=False)
    words = draw.choice([("why", "warum"), ("when", "wann")])
    if clause.time:
        words = ("why", "warum")
    english, german = english_question(clause), german_inverted(clause)
    return _sentence(f"{words[0]} {english}", f"{words[1]} {german}", "?")


def _reported(draw: Draw) -> Pair:
    clause = draw.clause()
    main = draw.choice(
        [
            ("I know that", "ich weiß, dass"),
            ("she says that", "sie sagt, dass"),
            ("we hope that", "wir hoffen, dass"),
            ("he believes that", "er glaubt, dass"),
            ("I do not know if", "ich weiß nicht, ob"),
            ("they ask if", "sie fragen, ob"),
        ]
    )
    english, german = english_statement(clause), german_subordinate(clause)
    return _sentence(f"{main[0]} {english}", f"{main[1]} {german}")


def _because(draw: Draw) -> Pair:
    first, second = draw.clause(), draw.clause()
    english = f"{english_statement(first)} because {english_statement(second)}"
    return _sentence(english, f"{german_statement(first)}, weil {german_subordinate(second)}")


def _before_the_main_clause(draw: Draw) -> Pair:
    first, second = draw.clause(), draw.clause()
    english = f"because {english_statement(first)}, {english_statement(second)}"
    return _sentence(english, f"weil {german_subordinate(first)}, {german_inverted(second)}")


def _predicate(draw: Draw) -> Pair:
    subject = draw.phrase(lexicon.NOUNS)
    assert subject.noun is not None
    fitting = [a for a in lexicon.ADJECTIVES if subject.noun.group in a.nouns]
    adjective = draw.choice([a for a in fitting if a != subject.adjective])
    draw.combinations.append((adjective.number, subject.noun.number))
    english_be, german_be = draw.choice([(BE, lexicon.SEIN), (WAS, WAR)])
    negation = draw.choice([("", ""), ("", ""), ("not ", "nicht "), ("very ", "sehr ")])
    english = f"{subject.english(subject=True)} {english_be[subject.slot]} "
    german = f"{subject.german('nom')} {german_be[subject.slot]} "
    return _sentence(
        english + negation[0] + adjective.english, german + negation[1] + adjective.german
    )


KINDS: tuple[Callable[[Draw], Pair], ...] = (
    *(_statement,) * 4,
    *(_fronted_time,) * 2,
    *(_question,) * 2,
    _why,
    *(_reported,) * 2,
    _because,
    _before_the_main_clause,
    _predicate,
)

# --- The split


def held_out(combination: tuple[int, int]) -> str | None:
    """The split, `valid` or `test`, that a pair of words belongs to; None for training.

    An arithmetic rule, so that it depends on the order of the lexicon and nothing else: about
    one pair in eleven is held out, one in three of those for validation.
    """
    first, second = combination
    splits: dict[int, str] = {0: "valid", 11: "test", 22: "test"}
    return splits.get((7 * first + 3 * second) % 33)


def sentences(seed: int) -> Iterator[tuple[Pair, list[tuple[int, int]]]]:
    """Endless sentence pairs, each with the pairs of words in it."""
    draw = Draw(seed)
    while True:
        draw.combinations = []
        pair = draw.choice(KINDS)(draw)
        yield pair, draw.combinations


def demo_corpus() -> dict[str, list[Pair]]:
    """The demo corpus, English first: the same bytes on every machine."""
    wanted: dict[str, int] = {"train": TRAIN_PAIRS, "valid": VALID_PAIRS, "test": TEST_PAIRS}
    pairs_of: dict[str, dict[str, str]] = {split: {} for split in wanted}
    for (english, german), combinations in sentences(SEED):
        places = set(map(held_out, combinations)) - {None}
        # A sentence with held-out pairs of both splits would leak one split into the other.
        split = places.pop() if len(places) == 1 else None if places else "train"
        if split is not None and len(pairs_of[split]) < wanted[split]:
            pairs_of[split].setdefault(english, german)
        if all(len(pairs_of[split]) == wanted[split] for split in wanted):
            break
    return {split: list(pairs.items()) for split, pairs in pairs_of.items()}


if __name__ == "__main__":
    for split, pairs in demo_corpus().items():
        for english, german in pairs:
            print(split, english, german, sep="\t")
