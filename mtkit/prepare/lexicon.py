"""The words of the demo corpus, English and German."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
HABEN = ("habe", "hast", "hat", "haben")
SEIN = ("bin", "bist", "ist", "sind")

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

# English | German, and the stem before an ending if it differs | the nouns it describes.
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

# English base[_particle], and the past if irregular | German infinitive, "+" after a separable
# prefix, then if irregular the er-form and the participle, with "ist" before it if the perfect
# takes sein | its objects.
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

# English | German and the case that it governs | its nouns.
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

# English | German | the tenses that it is used with.
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


@dataclass(frozen=True)
class Noun:
    """A noun in both languages; `gender` is m, f or n, `number` its position in the lexicon."""

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
    """An adjective in both languages; `stem` takes the endings."""

    number: int
    english: str
    german: str
    stem: str
    nouns: frozenset[str]


@dataclass(frozen=True)
class Verb:
    """A verb in both languages.

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
    """An adverbial of time and the tenses that it is used with."""

    english: str
    german: str
    tenses: frozenset[str]


@dataclass(frozen=True)
class Modal:
    """A modal verb: English forms for I and he, with and without "not", and German forms."""

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
        # Like the er-form, but with -st for -t, except after an s-sound.
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
    """The nouns of these groups and single words."""
    return tuple(n for n in ALL_NOUNS if n.group in names or n.english in names)


def _ed(base: str) -> str:
    return (
        base[:-1] + "ied"
        if re.search("[^aeiou]y$", base)
        else base + ("d" if base[-1] == "e" else "ed")
    )


def third_person(base: str) -> str:
    """The form of an English verb after he, she or it: "carries" of "carry"."""
    if re.search("[^aeiou]y$", base):
        return base[:-1] + "ies"
    return base + ("es" if re.search("(s|x|ch|sh|o)$", base) else "s")


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
