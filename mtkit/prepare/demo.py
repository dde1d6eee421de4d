"""A small English–German grammar that writes the demo corpus.

This module owns the words, the rules and the split; it needs nothing but the standard library.
`demo_corpus` gives the same sentence pairs on every machine.

**How it works.** Both languages are made together, never one from the other's text. A `Phrase` is
a noun phrase in both languages; a `Clause` says who does what to whom, when and where; four
functions spell a clause out as a statement, a question, a subordinate clause or what follows a
fronted word; and each *kind* of sentence at the end of the file draws clauses and joins them.

**What makes German German**, and is therefore here: three genders and three cases on articles,
*kein*, possessives and adjectives (strong, weak and mixed endings); plurals, the dative *-n* and
weak masculines (*der Student, den Studenten*); the finite verb in second place, with the subject
behind it when something else comes first; the finite verb last in subordinate clauses; separable
verbs (*ruft an, anrufen, angerufen*); the perfect with *haben* and *sein*; modal verbs; *nicht*,
its place, and *kein*; verbs and prepositions that govern a case.

**One English sentence, one German sentence.** *You* is *du*. The simple present is Präsens and the
simple past Perfekt. What comes first in English comes first in German.

**The split.** Some pairs of words (a verb with the noun it is done to or the place where it is
done, an adjective with its noun) are held out: no training sentence has the two together. Every
validation and test sentence has at least one such pair, so a good score means that the model
puts together what it learned apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import TypeVar

TRAIN_PAIRS = 30_000
VALID_PAIRS = 500
TEST_PAIRS = 1_000
SEED = 1

Pair = tuple[str, str]
T = TypeVar("T")

# --- The lexicon

# English[/irregular plural], German article, singular and plural; "weak" for masculines whose
# other cases end in -n.
NOUNS = {
    "person": """
        man/men der Mann Männer; woman/women die Frau Frauen; child/children das Kind Kinder;
        girl das Mädchen Mädchen; boy der Junge Jungen weak; teacher der Lehrer Lehrer;
        doctor der Arzt Ärzte; student der Student Studenten weak; farmer der Bauer Bauern weak;
        tourist der Tourist Touristen weak""",
    "kin": """
        mother die Mutter Mütter; father der Vater Väter; sister die Schwester Schwestern;
        brother der Bruder Brüder; friend der Freund Freunde; guest der Gast Gäste;
        neighbor der Nachbar Nachbarn weak; daughter die Tochter Töchter; son der Sohn Söhne""",
    "animal": """
        dog der Hund Hunde; cat die Katze Katzen; horse das Pferd Pferde; bird der Vogel Vögel;
        mouse/mice die Maus Mäuse; cow die Kuh Kühe""",
    "food": """
        apple der Apfel Äpfel; egg das Ei Eier; cake der Kuchen Kuchen; soup die Suppe Suppen;
        potato/potatoes die Kartoffel Kartoffeln; tomato/tomatoes die Tomate Tomaten;
        banana die Banane Bananen""",
    "text": """
        book das Buch Bücher; letter der Brief Briefe; newspaper die Zeitung Zeitungen;
        story/stories die Geschichte Geschichten""",
    "clothes": """
        coat der Mantel Mäntel; shirt das Hemd Hemden; jacket die Jacke Jacken; hat der Hut Hüte;
        dress/dresses das Kleid Kleider""",
    "vehicle": """
        car das Auto Autos; bicycle das Fahrrad Fahrräder; ship das Schiff Schiffe;
        train der Zug Züge""",
    "thing": """
        key der Schlüssel Schlüssel; lamp die Lampe Lampen; knife/knives das Messer Messer;
        cup die Tasse Tassen; bottle die Flasche Flaschen; clock die Uhr Uhren;
        umbrella der Regenschirm Regenschirme; gift das Geschenk Geschenke;
        flower die Blume Blumen; picture das Bild Bilder; bag die Tasche Taschen""",
    "opening": "door die Tür Türen; window das Fenster Fenster; box/boxes die Kiste Kisten",
    "house": """
        house das Haus Häuser; school die Schule Schulen; church/churches die Kirche Kirchen;
        museum das Museum Museen; hotel das Hotel Hotels; station der Bahnhof Bahnhöfe;
        library/libraries die Bibliothek Bibliotheken; tree der Baum Bäume""",
    "place": """
        garden der Garten Gärten; park der Park Parks; forest der Wald Wälder;
        kitchen die Küche Küchen; office das Büro Büros; village das Dorf Dörfer""",
}

# English | German, and the stem before an ending where it differs | what it describes.
ADJECTIVES = """
    old | alt | person kin animal text clothes vehicle thing opening house
    new | neu | text clothes vehicle thing opening house
    young | jung | person kin animal
    small | klein | person kin animal food text thing opening house place
    big | groß | animal food vehicle thing opening house place
    beautiful | schön | animal text clothes vehicle thing house place
    expensive | teuer teur | food text clothes vehicle thing
    cheap | billig | food text clothes vehicle thing
    red | rot | food clothes vehicle thing opening
    blue | blau | clothes vehicle thing opening
    black | schwarz | animal clothes vehicle thing opening
    white | weiß | animal clothes vehicle thing opening house
    good | gut | person kin food text
    fresh | frisch | food
    heavy | schwer | thing opening
    friendly | freundlich | person kin animal
    tired | müde müd | person kin animal
    happy | glücklich | person kin
    hungry | hungrig | person kin animal
    interesting | interessant | text place
    dirty | schmutzig | clothes vehicle thing opening place"""

# English base[_particle], and the past where irregular | German infinitive, "+" behind a separable
# prefix, then where irregular the er-form and the participle, before it "ist" if the perfect takes
# sein | what it is done to.
VERBS = {
    "acc": """
        see saw | sehen sieht gesehen | person kin animal vehicle house
        buy bought | kaufen | food text clothes vehicle thing
        sell sold | verkaufen | food text clothes vehicle thing
        write wrote | schreiben schreibt geschrieben | text
        eat ate | essen isst gegessen | food
        find found | finden findet gefunden | text clothes thing animal
        need | brauchen | food text clothes vehicle thing
        love | lieben | person kin animal
        visit | besuchen | person kin
        repair | reparieren | vehicle opening
        wash | waschen wäscht gewaschen | clothes vehicle animal
        carry | tragen trägt getragen | thing opening clothes
        lose lost | verlieren verliert verloren | text clothes thing
        hear heard | hören | person kin animal vehicle
        call | an+rufen ruft gerufen | person kin
        invite | ein+laden lädt geladen | person kin
        open | auf+machen | opening
        close | zu+machen | opening
        put_on put | an+ziehen zieht gezogen | clothes
        take_off took | aus+ziehen zieht gezogen | clothes
        throw_away threw | weg+werfen wirft geworfen | text clothes food""",
    "dat": """
        help | helfen hilft geholfen | person kin animal
        thank | danken | person kin
        answer | antworten | person kin
        follow | folgen folgt ist gefolgt | person kin animal vehicle
        trust | vertrauen | person kin""",
    "dat acc": """
        give gave | geben gibt gegeben | food text clothes thing
        show showed | zeigen | text clothes vehicle thing
        send sent | schicken | text thing
        bring brought | bringen bringt gebracht | food text thing""",
    "stay": """
        sleep slept | schlafen schläft geschlafen
        work | arbeiten
        wait | warten
        laugh | lachen
        sing sang | singen singt gesungen
        dance | tanzen
        play | spielen
        fall_asleep fell | ein+schlafen schläft ist geschlafen
        stay | bleiben bleibt ist geblieben
        sit sat | sitzen sitzt gesessen
        stand stood | stehen steht gestanden""",
    "go": """
        go went | gehen geht ist gegangen
        run ran | laufen läuft ist gelaufen
        come came | kommen kommt ist gekommen
        walk_back | zurück+gehen geht ist gegangen""",
}

# English | German and the case it governs | its nouns.
PREPOSITIONS = {
    "where": """
        in | in dat | place school church museum hotel library
        behind | hinter dat | house
        in front of | vor dat | house
        next to | neben dat | house vehicle
        under | unter dat | tree""",
    "goal": """
        into | in acc | place house
        to | zu dat | school church museum hotel station library person kin
        through | durch acc | place""",
    "company": """
        with | mit dat | person kin dog
        without | ohne acc | person kin dog""",
    "favor": "for | für acc | person kin",
}

# English | German | the tenses it goes with.
TIMES = """
    now | jetzt | present
    today | heute | present past
    every day | jeden Tag | present
    in the evening | am Abend | present
    on weekends | am Wochenende | present
    on Monday | am Montag | past
    yesterday | gestern | past
    last week | letzte Woche | past
    this morning | heute Morgen | past"""

# English for I and for he, with a negated form | German ich, du, er, wir.
MODALS = """
    can can cannot cannot | kann kannst kann können
    must must - - | muss musst muss müssen
    want_to wants_to do_not_want_to does_not_want_to | will willst will wollen
    should should should_not should_not | soll sollst soll sollen"""

NAMES = {"Anna": "she", "Maria": "she", "Peter": "he", "Thomas": "he"}
POSSESSIVES = ("my", "your", "his", "her", "our", "their")
NUMBERS = {"two": "zwei", "three": "drei", "five": "fünf", "ten": "zehn"}
# Verbs of which one has a goal or a present in mind; verbs that nobody must or can do on purpose.
FAVORS = ("buy", "write", "find", "need", "repair", "carry", "open")
ACCIDENTS = ("need", "love", "lose", "fall_asleep", "find")

# English, object form | German nominative, accusative, dative; ordered as the slots of a verb.
PRONOUNS = {
    "I": ("me", "ich", "mich", "mir"),
    "you": ("you", "du", "dich", "dir"),
    "he": ("him", "er", "ihn", "ihm"),
    "she": ("her", "sie", "sie", "ihr"),
    "we": ("us", "wir", "uns", "uns"),
    "they": ("them", "sie", "sie", "ihnen"),
}
# The slot of each pronoun in a verb's forms for ich, du, er, wir.
SLOTS = {"I": 0, "you": 1, "he": 2, "she": 2, "we": 3, "they": 3}

# The endings of der, dieser, ein, and of adjectives after der, after ein and after nothing:
# nominative, accusative and dative of masculine, feminine and neuter, then of the plural.
DER = "er en em / ie ie er / as as em / ie ie en"
STRONG = "er en em / e e er / es es em / e e en"
EIN = "- en em / e e er / - - em / e e en"
WEAK = "e en en / e e en / e e en / en en en"
MIXED = "er en en / e e en / es es en / en en en"
NONE = "- - - / - - - / - - - / - - -"

# English determiner: German stem, its own endings, those of an adjective behind it.
DETERMINERS = {
    "the": ("d", DER, WEAK),
    "this": ("dies", STRONG, WEAK),
    "a": ("ein", EIN, MIXED),
    "not a": ("kein", EIN, MIXED),  # English has its "not" at the verb
    "my": ("mein", EIN, MIXED),
    "your": ("dein", EIN, MIXED),
    "his": ("sein", EIN, MIXED),
    "her": ("ihr", EIN, MIXED),
    "our": ("unser", EIN, MIXED),
    "their": ("ihr", EIN, MIXED),
    **{english: (german, NONE, STRONG) for english, german in NUMBERS.items()},
}

CASES = {"nom": 0, "acc": 1, "dat": 2}
CONTRACTIONS = {"in dem": "im", "in das": "ins", "zu dem": "zum", "zu der": "zur"}
HABEN = ("habe", "hast", "hat", "haben")
SEIN = ("bin", "bist", "ist", "sind")
BE = ("am", "are", "is", "are")
WAS = ("was", "were", "was", "were")
WAR = ("war", "warst", "war", "waren")


@dataclass(frozen=True)
class Noun:
    """A noun of both languages; `gender` is m, f or n, `number` its place in the lexicon."""

    number: int
    group: str
    english: str
    english_plural: str
    gender: str
    german: str
    german_plural: str
    weak: bool


@dataclass(frozen=True)
class Adjective:
    """An adjective of both languages; `stem` takes the endings."""

    number: int
    english: str
    german: str
    stem: str
    nouns: frozenset[str]


@dataclass(frozen=True)
class Verb:
    """A verb of both languages.

    `frame` is its key in `VERBS`, `name` the English base with its particle, `present` the German
    forms for ich, du, er, wir without the separable `prefix`.
    """

    number: int
    frame: str
    name: str
    past: str
    infinitive: str
    prefix: str
    present: tuple[str, ...]
    participle: str
    auxiliary: tuple[str, ...]
    nouns: tuple[Noun, ...]


@dataclass(frozen=True)
class Preposition:
    """A preposition with its German case and the nouns it is used with."""

    english: str
    german: str
    case: str
    nouns: tuple[Noun, ...]


@dataclass(frozen=True)
class Time:
    """An adverbial of time and the tenses it goes with."""

    english: str
    german: str
    tenses: frozenset[str]


@dataclass(frozen=True)
class Modal:
    """A modal verb: English forms for I and he, with and without "not"; German forms."""

    english: tuple[str, ...]
    present: tuple[str, ...]


def _rows(table: str) -> list[list[list[str]]]:
    """The lines of a table, as cells of words."""
    return [[cell.split() for cell in row.split("|")] for row in table.strip().splitlines()]


def _read_nouns() -> Iterator[Noun]:
    entries = [(group, e.split()) for group, table in NOUNS.items() for e in table.split(";")]
    for number, (group, (names, article, german, plural, *weak)) in enumerate(entries):
        english, _, english_plural = names.partition("/")
        gender = {"der": "m", "die": "f", "das": "n"}[article]
        yield Noun(
            number,
            group,
            english,
            english_plural or english + "s",
            gender,
            german,
            plural,
            bool(weak),
        )


def _read_verbs() -> Iterator[Verb]:
    entries = [(frame, row) for frame, table in VERBS.items() for row in _rows(table)]
    for number, (frame, (english, german, *partners)) in enumerate(entries):
        name, *irregular = english
        prefix, _, infinitive = german[0].rpartition("+")
        stem = infinitive.removesuffix("en")
        regular = stem + ("et" if stem[-1] in "dt" else "t")
        er_form = german[1] if len(german) > 1 else regular
        # As the er-form, with -st for -t unless an s-sound is there already.
        du_form = er_form if re.search("[sßz]t$", er_form) else er_form[:-1] + "st"
        inseparable = re.match("(be|ver)", infinitive) and not prefix and len(stem) > 4
        ge = "" if inseparable or infinitive.endswith("ieren") else "ge"
        base = name.partition("_")[0]
        yield Verb(
            number,
            frame,
            name,
            irregular[0] if irregular else _ed(base),
            infinitive,
            prefix,
            (stem + "e", du_form, er_form, infinitive),
            prefix + (german[-1] if len(german) > 2 else ge + regular),
            SEIN if "ist" in german else HABEN,
            tuple(noun for names in partners for noun in _nouns(names)),
        )


def _nouns(names: Sequence[str]) -> tuple[Noun, ...]:
    """The nouns that groups or single words stand for."""
    return tuple(n for n in ALL_NOUNS if n.group in names or n.english in names)


def _ed(base: str) -> str:
    return (
        base[:-1] + "ied"
        if re.search("[^aeiou]y$", base)
        else base + ("d" if base[-1] == "e" else "ed")
    )


def _s(base: str) -> str:
    if re.search("[^aeiou]y$", base):
        return base[:-1] + "ies"
    return base + ("es" if re.search("(s|x|ch|sh|o)$", base) else "s")


@cache
def _endings(table: str) -> dict[str, list[str]]:
    """By gender, m, f, n and p for the plural: one ending per case."""
    cells = [[ending.strip("-") for ending in row.split()] for row in table.split("/")]
    return dict(zip("mfnp", cells, strict=True))


ALL_NOUNS = tuple(_read_nouns())
PEOPLE = _nouns(["person", "kin"])
ALL_VERBS = tuple(_read_verbs())
ALL_ADJECTIVES = tuple(
    Adjective(number, en, german[0], german[-1], frozenset(groups))
    for number, ((en,), german, groups) in enumerate(_rows(ADJECTIVES))
)
ALL_PREPOSITIONS = {
    kind: tuple(
        Preposition(" ".join(en), german, case, _nouns(names))
        for en, (german, case), names in _rows(table)
    )
    for kind, table in PREPOSITIONS.items()
}
ALL_TIMES = tuple(
    Time(" ".join(en), " ".join(german), frozenset(tenses)) for en, german, tenses in _rows(TIMES)
)
ALL_MODALS = tuple(
    Modal(tuple(form.replace("_", " ").strip("-") for form in en), tuple(german))
    for en, german in _rows(MODALS)
)

# --- Noun phrases


@dataclass(frozen=True)
class Phrase:
    """A noun phrase: a pronoun or name (`word`), or a noun with determiner and adjective."""

    word: str = ""
    noun: Noun | None = None
    determiner: str = "the"
    adjective: Adjective | None = None
    plural: bool = False

    @property
    def slot(self) -> int:
        """Which of a verb's forms it takes as the subject: of ich, du, er or wir."""
        if self.noun is not None:
            return 3 if self.plural else 2
        return SLOTS[NAMES.get(self.word, self.word)]

    @property
    def is_pronoun(self) -> bool:
        """Whether it is a personal pronoun."""
        return self.word in PRONOUNS

    def english(self, *, subject: bool = False) -> str:
        """The English words."""
        if self.noun is None:
            return self.word if subject or not self.is_pronoun else PRONOUNS[self.word][0]
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
            return PRONOUNS[self.word][1 + CASES[case]] if self.is_pronoun else self.word
        stem, own, behind = DETERMINERS[self.determiner]
        gender = "p" if self.plural else self.noun.gender
        words = [stem + _endings(own)[gender][CASES[case]]]
        if self.adjective:
            words.append(self.adjective.stem + _endings(behind)[gender][CASES[case]])
        noun = self.noun.german_plural if self.plural else self.noun.german
        if self.plural and case == "dat" and noun[-1] not in "ns":
            noun += "n"
        if not self.plural and self.noun.weak and case != "nom":
            noun = self.noun.german_plural
        return " ".join([*words, noun])


# --- Clauses


@dataclass(frozen=True)
class Clause:
    """Who does what to whom, when and where; spelled out by the functions below.

    Attributes:
        subject: of the verb.
        verb: what is done.
        tense: "present" or "past".
        objects: each with its case; a dative goes before an accusative.
        phrases: prepositional phrases, at the end in both languages.
        time: an adverbial.
        modal: in the present only.
        negated: with *nicht* or *kein*.
    """

    subject: Phrase
    verb: Verb
    tense: str
    objects: tuple[tuple[str, Phrase], ...] = ()
    phrases: tuple[tuple[Preposition, Phrase], ...] = ()
    time: Time | None = None
    modal: Modal | None = None
    negated: bool = False


def english_statement(clause: Clause, *, time: bool = True) -> str:
    """ "the man does not buy the car today"."""
    verb, third = clause.verb, clause.subject.slot == 2
    base, _, particle = verb.name.partition("_")
    if clause.modal:
        finite = clause.modal.english[2 * clause.negated + third] + " " + base
    elif clause.negated:
        do = "did" if clause.tense == "past" else "does" if third else "do"
        finite = f"{do} not {base}"
    else:
        finite = verb.past if clause.tense == "past" else _s(base) if third else base
    subject = clause.subject.english(subject=True)
    return _words(subject, finite, particle, *_english_rest(clause, time=time))


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
    return _words(finite, subject, base, particle, *_english_rest(clause, time=True))


def german_statement(clause: Clause) -> str:
    """ "der Mann kauft heute das Auto nicht": subject, finite verb, the rest."""
    finite, closing = _german_verb(clause)
    subject = clause.subject.german("nom")
    return _words(subject, finite, *_german_middle(clause), *closing)


def german_inverted(clause: Clause, *, time: bool = True) -> str:
    """ "kauft der Mann das Auto": a question, or what follows a fronted word."""
    finite, closing = _german_verb(clause)
    subject = clause.subject.german("nom")
    return _words(finite, subject, *_german_middle(clause, time=time), *closing)


def german_subordinate(clause: Clause) -> str:
    """ "der Mann das Auto gekauft hat": the finite verb last."""
    finite, closing = _german_verb(clause)
    if closing == [clause.verb.prefix]:
        # Where both stand at the end, a separable verb is one word.
        closing, finite = [], clause.verb.prefix + finite
    return _words(clause.subject.german("nom"), *_german_middle(clause), *closing, finite)


def _german_verb(clause: Clause) -> tuple[str, list[str]]:
    """The finite verb, and what closes the clause."""
    verb, slot = clause.verb, clause.subject.slot
    if clause.modal:
        return clause.modal.present[slot], [verb.prefix + verb.infinitive]
    if clause.tense == "past":
        return verb.auxiliary[slot], [verb.participle]
    return verb.present[slot], [verb.prefix] if verb.prefix else []


def _german_middle(clause: Clause, *, time: bool = True) -> list[str]:
    """What stands between the finite verb and the close: pronouns, time, objects, nicht, place."""
    pronouns = [p.german(case) for case, p in clause.objects if p.is_pronoun]
    objects = [p.german(case) for case, p in clause.objects if not p.is_pronoun]
    adverbial = [clause.time.german] if clause.time and time else []
    kein = any(phrase.determiner == "not a" for _, phrase in clause.objects)
    nicht = ["nicht"] if clause.negated and not kein else []
    places = [_german_phrase(*phrase) for phrase in clause.phrases]
    return [*pronouns, *adverbial, *objects, *nicht, *places]


def _german_phrase(preposition: Preposition, phrase: Phrase) -> str:
    text = f"{preposition.german} {phrase.german(preposition.case)}"
    for long, short in CONTRACTIONS.items():
        if text.startswith(long + " "):
            return short + text.removeprefix(long)
    return text


def _english_rest(clause: Clause, *, time: bool) -> list[str]:
    objects = [phrase.english() for _, phrase in clause.objects]
    places = [f"{preposition.english} {phrase.english()}" for preposition, phrase in clause.phrases]
    return [*objects, *places, clause.time.english if clause.time and time else ""]


def _words(*words: str) -> str:
    return " ".join(word for word in words if word)


def _sentence(english: str, german: str, end: str = ".") -> Pair:
    return english[0].upper() + english[1:] + end, german[0].upper() + german[1:] + end


# --- Drawing at random


class Draw:
    """Random choices, on the one method of `random` whose stream never changes."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        # Pairs of words of the sentence in the making, as `held_out` wants them.
        self.combinations: list[tuple[str, int, int]] = []

    def chance(self, probability: float) -> bool:
        """True so often."""
        return self._random.random() < probability

    def choice(self, options: Sequence[T]) -> T:
        """One of the options, all equally likely."""
        return options[int(self._random.random() * len(options))]

    def phrase(self, nouns: Sequence[Noun], *, adjective: bool = True) -> Phrase:
        """A noun of these with a determiner and perhaps an adjective."""
        noun = self.choice(nouns)
        building = noun.group in ("house", "place")
        plural = not building and self.chance(0.25)
        determiners = ["the", "the", "the", "this", *(NUMBERS if plural else ["a", "a", "a"])]
        if not building and noun.group != "person":  # "my woman" would be said of a wife
            determiners += POSSESSIVES
        determiner = self.choice(determiners)
        fitting = [a for a in ALL_ADJECTIVES if noun.group in a.nouns]
        described = None
        if adjective and fitting and self.chance(0.35):
            described = self.choice(fitting)
            self.combinations.append(("adjective", described.number, noun.number))
        return Phrase("", noun, determiner, described, plural)

    def subject(self) -> Phrase:
        """Somebody."""
        if self.chance(0.35):
            return Phrase(self.choice(list(PRONOUNS)))
        if self.chance(0.2):
            return Phrase(self.choice(list(NAMES)))
        return self.phrase(PEOPLE)

    def somebody_else(self, subject: Phrase) -> Phrase:
        """A person who is not the subject, as an object."""
        # Neither the subject nor a group that the subject is one of.
        same = ("I", "we") if subject.word in ("I", "we") else ("he", "she", "they")
        others = [word for word in PRONOUNS if word != subject.word and word not in same]
        if self.chance(0.3):
            return Phrase(self.choice(others))
        return self.phrase(PEOPLE, adjective=False)

    def clause(self, *, negatable: bool = True) -> Clause:
        """Anything that can be said."""
        verb = self.choice(ALL_VERBS)
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
            phrases.append(self.place("favor" if verb.name in FAVORS else "where"))
        if verb.frame in kinds and self.chance(0.15):
            phrases.insert(0, self.place("company"))
        self.combinations += [
            ("verb", verb.number, phrase.noun.number)
            for _, phrase in [*objects[-1:], *phrases]
            if phrase.noun
        ]
        fitting = [time for time in ALL_TIMES if tense in time.tenses]
        time = self.choice(fitting) if self.chance(0.4) else None
        negated = negatable and self.chance(0.2)
        modal = None
        if tense == "present" and verb.name not in ACCIDENTS and self.chance(0.3):
            modal = self.choice(ALL_MODALS)
            negated = negated and bool(modal.english[2])
        if negated:
            objects = _denied(objects)
        return Clause(subject, verb, tense, tuple(objects), tuple(phrases), time, modal, negated)

    def place(self, kind: str) -> tuple[Preposition, Phrase]:
        """A prepositional phrase."""
        preposition = self.choice(ALL_PREPOSITIONS[kind])
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
    if clause.time is None:
        return _sentence(english_statement(clause), german_statement(clause))
    english = english_statement(clause, time=False)
    german = german_inverted(clause, time=False)
    return _sentence(f"{clause.time.english} {english}", f"{clause.time.german} {german}")


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
    subject = draw.phrase(ALL_NOUNS)
    assert subject.noun is not None
    fitting = [
        a for a in ALL_ADJECTIVES if subject.noun.group in a.nouns and a != subject.adjective
    ]
    adjective = draw.choice(fitting)
    draw.combinations.append(("adjective", adjective.number, subject.noun.number))
    english_be, german_be = draw.choice([(BE, SEIN), (WAS, WAR)])
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


@dataclass(frozen=True)
class DemoCorpus:
    """Sentence pairs, English first."""

    train: tuple[Pair, ...]
    valid: tuple[Pair, ...]
    test: tuple[Pair, ...]


def held_out(combination: tuple[str, int, int]) -> str | None:
    """The split, `valid` or `test`, that a pair of words belongs to; None for training.

    An arithmetic rule, so that it depends on the order of the lexicon and nothing else: about
    one pair in eleven is held out, one in three of those for validation.
    """
    _, first, second = combination
    place = (7 * first + 3 * second) % 33
    return {0: "valid", 11: "test", 22: "test"}.get(place)


def sentences(seed: int) -> Iterator[tuple[Pair, list[tuple[str, int, int]]]]:
    """Endless sentence pairs, each with the pairs of words that it has."""
    draw = Draw(seed)
    while True:
        draw.combinations = []
        pair = draw.choice(KINDS)(draw)
        yield pair, draw.combinations


def demo_corpus() -> DemoCorpus:
    """The demo corpus: the same bytes on every machine."""
    wanted = {"train": TRAIN_PAIRS, "valid": VALID_PAIRS, "test": TEST_PAIRS}
    found: dict[str, dict[str, str]] = {split: {} for split in wanted}
    for (english, german), combinations in sentences(SEED):
        places = {held_out(combination) for combination in combinations} - {None}
        # A sentence with pairs of both kinds would tell one split about the other.
        split = places.pop() if len(places) == 1 else None if places else "train"
        if split is not None and len(found[split]) < wanted[split]:
            found[split].setdefault(english, german)
        if all(len(found[split]) == wanted[split] for split in wanted):
            break
    train, valid, test = (tuple(found[split].items()) for split in wanted)
    return DemoCorpus(train, valid, test)
