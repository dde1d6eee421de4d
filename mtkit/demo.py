"""A small English–German grammar that writes the demo corpus.

This module owns the words, the rules and the split; it reads nothing and needs nothing but the
standard library. `demo_corpus` gives the same sentence pairs on every machine.

**How it works.** Both languages are generated together, never one from the other's text: a
`Phrase` is a noun phrase in both languages, a `Clause` is who does what to whom and when, and a
handful of functions spell a clause out as a statement, a question, a subordinate clause, an
infinitive or a command. Each *kind* of sentence is one function that draws clauses and joins them.

**What makes German German**, and is therefore here: three genders and three cases on articles,
*kein*, possessives and adjectives (weak, mixed and strong endings); plurals, the dative *-n* and
weak masculines (*der Student, den Studenten*); the finite verb in second place, with the subject
behind it when something else comes first; the finite verb last in subordinate and relative clauses;
separable verbs (*ruft an, anruft, angerufen, anzurufen*); the perfect with *haben* and *sein*;
modal verbs; *nicht*, its place, and *kein*; verbs and prepositions that govern a case, and *in* and
its like with the dative for a place and the accusative for a goal; comparatives; commands.

**One English sentence, one German sentence.** *You* is always *du*. Simple and progressive present
are Präsens; simple past and present perfect are Perfekt, but *sein*, *haben* and the modal verbs
take the Präteritum, as in spoken German. What comes first in English comes first in German. *It*
occurs only where the sentence has said what it is. A verb like *read*, whose past looks like its
present, is past only beside a word that says so.

**The split.** Some pairs of words that go together (a verb with a noun that takes part in it, an
adjective with its noun, a verb with a time) are held out: the two words share no training sentence.
Every validation and test sentence is built on such a pair, all of whose words the training side
knows from elsewhere, so a good score means that the model puts together what it learned apart.
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
# One pair of words in so many is held out, and one in three of those is for validation.
HELD_OUT_EVERY = 23
VALID_EVERY = 3
# Every word of a held-out sentence occurs so often in the training sentences, in either language.
KNOWN_FROM = 5

# ------------------------------------------------------------------------------------- the lexicon

# group: English[/irregular plural], nominative singular with its article, plural ("-": has none),
# "weak" for masculines whose other cases end in -n.
NOUNS = {
    "kin": """
        mother die Mutter Mütter; father der Vater Väter; sister die Schwester Schwestern;
        brother der Bruder Brüder; daughter die Tochter Töchter; son der Sohn Söhne;
        aunt die Tante Tanten; uncle der Onkel Onkel; grandmother die Großmutter Großmütter;
        friend der Freund Freunde; colleague der Kollege Kollegen weak;
        neighbor der Nachbar Nachbarn weak""",
    "person": """
        man/men der Mann Männer; woman/women die Frau Frauen; child/children das Kind Kinder;
        girl das Mädchen Mädchen; boy der Junge Jungen weak; teacher der Lehrer Lehrer;
        doctor der Arzt Ärzte; student der Student Studenten weak; farmer der Bauer Bauern weak;
        nurse die Krankenschwester Krankenschwestern; guest der Gast Gäste;
        tourist der Tourist Touristen weak""",
    "animal": """
        dog der Hund Hunde; cat die Katze Katzen; horse das Pferd Pferde; bird der Vogel Vögel;
        mouse/mice die Maus Mäuse; cow die Kuh Kühe; bear der Bär Bären weak""",
    "food": """
        apple der Apfel Äpfel; egg das Ei Eier; cake der Kuchen Kuchen; soup die Suppe Suppen;
        potato/potatoes die Kartoffel Kartoffeln; tomato/tomatoes die Tomate Tomaten;
        banana die Banane Bananen; cookie der Keks Kekse; bread das Brot -; cheese der Käse -""",
    "drink": """
        coffee der Kaffee -; tea der Tee -; milk die Milch -; water das Wasser -; juice der Saft -;
        wine der Wein -""",
    "text": """
        book das Buch Bücher; letter der Brief Briefe; newspaper die Zeitung Zeitungen;
        story die Geschichte Geschichten; novel der Roman Romane; email die E-Mail E-Mails""",
    "clothes": """
        coat der Mantel Mäntel; shirt das Hemd Hemden; jacket die Jacke Jacken; hat der Hut Hüte;
        dress das Kleid Kleider; shoe der Schuh Schuhe""",
    "vehicle": """
        car das Auto Autos; bicycle das Fahrrad Fahrräder; bus der Bus Busse; train der Zug Züge;
        ship das Schiff Schiffe""",
    "thing": """
        key der Schlüssel Schlüssel; lamp die Lampe Lampen; knife/knives das Messer Messer;
        cup die Tasse Tassen; bottle die Flasche Flaschen; clock die Uhr Uhren;
        umbrella der Regenschirm Regenschirme; gift das Geschenk Geschenke;
        flower die Blume Blumen; picture das Bild Bilder; bag die Tasche Taschen;
        camera die Kamera Kameras; computer der Computer Computer; box die Kiste Kisten;
        table der Tisch Tische; chair der Stuhl Stühle""",
    "building": """
        house das Haus Häuser; school die Schule Schulen; church die Kirche Kirchen;
        museum das Museum Museen; restaurant das Restaurant Restaurants; hotel das Hotel Hotels;
        station der Bahnhof Bahnhöfe; hospital das Krankenhaus Krankenhäuser;
        library die Bibliothek Bibliotheken""",
    "place": """
        garden der Garten Gärten; park der Park Parks; forest der Wald Wälder;
        kitchen die Küche Küchen; office das Büro Büros; city die Stadt Städte;
        village das Dorf Dörfer""",
    "part": "tree der Baum Bäume; door die Tür Türen; window das Fenster Fenster",
}

# English and its comparative ("more": with more; "-": none wanted) | German[/stem before an
# ending] and its comparative | what it describes.
ADJECTIVES = """
    old older | alt älter | man woman teacher farmer animal text clothes vehicle thing building city
    new newer | neu neuer | colleague neighbor teacher clothes vehicle thing building kitchen office
    young younger | jung jünger | man woman teacher doctor student nurse farmer tourist dog cat
    small smaller | klein kleiner | child boy girl animal apple cake thing building place tree window
    big bigger | groß größer | animal apple potato cake ship thing building place tree window
    beautiful more | schön schöner | horse bird flower picture clothes house church garden park city
    expensive more | teuer/teur teurer | wine cheese book clothes vehicle thing restaurant hotel
    cheap cheaper | billig billiger | wine cheese book clothes vehicle thing restaurant hotel
    red - | rot - | apple clothes car bicycle bus bag umbrella cup lamp box flower door
    blue - | blau - | clothes car bicycle bus ship bag umbrella cup lamp box flower door
    black - | schwarz - | clothes car bicycle bag umbrella dog cat horse bird chair door
    white - | weiß - | clothes car bicycle cup flower dog cat horse bird house door
    good better | gut besser | friend teacher doctor student book novel story restaurant hotel drink
    fresh fresher | frisch frischer | apple egg tomato banana cookie bread cheese milk juice water
    cold colder | kalt kälter | soup potato coffee tea milk water juice
    hot hotter | heiß heißer | soup potato coffee tea milk water
    heavy heavier | schwer schwerer | bag box table chair computer lamp bicycle
    friendly friendlier | freundlich freundlicher | neighbor colleague person dog
    tired - | müde/müd - | kin person dog horse
    happy happier | glücklich glücklicher | kin person
    sick - | krank - | kin person animal
    hungry - | hungrig - | kin person animal
    famous more | berühmt berühmter | man woman teacher doctor book novel picture building city
    clever cleverer | klug klüger | kin student doctor teacher child boy girl dog
    interesting more | interessant interessanter | text picture museum city
    long longer | lang länger | letter story novel email coat dress
    empty - | leer - | cup bottle box bag bus train house church
    dirty dirtier | schmutzig schmutziger | clothes vehicle cup knife bag window kitchen dog
    broken - | kaputt - | vehicle lamp clock camera computer umbrella chair door window"""

# frame: English base, past and participle where irregular, "_" before a particle | German
# infinitive, "+" behind a separable prefix, then where irregular the er-form and the participle,
# with "ist" before it if the perfect takes sein | nouns or, for a place, prepositions | further
# subjects ("only": these and no people).
VERBS = {
    "acc": """
        see saw seen | sehen sieht gesehen | kin person animal vehicle
        buy bought | kaufen | food drink text clothes vehicle thing
        sell sold | verkaufen | food animal clothes vehicle thing house
        read read | lesen liest gelesen | text
        write wrote written | schreiben schreibt geschrieben | book letter story novel email
        eat ate eaten | essen isst gegessen | food | dog mouse horse
        drink drank drunk | trinken trinkt getrunken | drink
        find found | finden findet gefunden | text clothes thing animal
        need | brauchen | food drink text clothes vehicle thing doctor friend
        love | lieben | kin animal food city
        meet met | treffen trifft getroffen | kin person
        look_for | suchen | kin person animal text clothes thing
        visit | besuchen | kin person museum church city village
        repair | reparieren | vehicle lamp clock camera computer chair door window
        wash | waschen wäscht gewaschen | clothes car bicycle bus dog cup
        carry | tragen trägt getragen | bag box table chair child bottle gift
        forget forgot forgotten | vergessen vergisst vergessen | text clothes thing
        lose lost | verlieren verliert verloren | letter book clothes key umbrella bag camera
        hear heard | hören | kin person animal train bus
        cook | kochen | soup potato egg tomato coffee tea
        bake | backen backt gebacken | cake cookie bread
        understand understood | verstehen versteht verstanden | kin person text
        order | bestellen | food drink
        call | an+rufen ruft gerufen | kin person
        invite | ein+laden lädt geladen | kin person
        pick_up | ab+holen | kin person
        turn_on | ein+schalten | lamp computer camera
        turn_off | aus+schalten | lamp computer camera
        open | auf+machen | door window bottle box bag gift letter
        close | zu+machen | door window bottle box bag
        put_on put | an+ziehen zieht gezogen | clothes
        take_off took taken | aus+ziehen zieht gezogen | clothes
        clean_up | auf+räumen | kitchen office house garden
        throw_away threw thrown | weg+werfen wirft geworfen | text clothes food""",
    "dat": """
        help | helfen hilft geholfen | kin person
        thank | danken | kin person
        answer | antworten | kin person
        follow | folgen folgt ist gefolgt | kin person animal | dog cat
        listen_to | zu+hören | kin person
        trust | vertrauen | kin person""",
    "owner dat": "belong_to | gehören | kin person | only text clothes vehicle thing house animal",
    "dat acc": """
        give gave given | geben gibt gegeben | food drink text clothes thing
        show showed shown | zeigen | text clothes thing animal city garden
        send sent | schicken | text gift flower picture key
        bring brought | bringen bringt gebracht | food drink text clothes thing
        lend lent | leihen leiht geliehen | text clothes vehicle umbrella camera computer""",
    "auf acc": "wait_for | warten | kin person bus train ship",
    "mit dat": "talk_to | sprechen spricht gesprochen | kin person",
    "von dat": "dream_of | träumen | house car ship horse city kin cake",
    "an acc": "think_of thought | denken denkt gedacht | kin person",
    "alone": """
        sleep slept | schlafen schläft geschlafen | in next_to under | animal
        work | arbeiten | in behind next_to
        laugh | lachen | in behind
        cry | weinen | in behind in_front_of
        sing sang sung | singen singt gesungen | in in_front_of | bird
        dance | tanzen | in in_front_of
        play | spielen | in behind next_to under | dog cat
        swim swam swum | schwimmen schwimmt ist geschwommen | - | dog horse
        get_up got gotten | auf+stehen steht ist gestanden | -
        wake_up woke woken | auf+wachen wacht ist gewacht | -
        fall_asleep fell fallen | ein+schlafen schläft ist geschlafen | in next_to
        arrive | an+kommen kommt ist gekommen | - | bus train ship
        come_back came come | zurück+kommen kommt ist gekommen | - | bus train ship""",
    "place": """
        live | wohnen | in:city
        stay | bleiben bleibt ist geblieben | in in:city
        sit sat | sitzen sitzt gesessen | in on under behind next_to in_front_of | dog cat bird
        stand stood | stehen steht gestanden | in behind next_to in_front_of | car bus bicycle horse
        lie lay lain | liegen liegt gelegen | under on next_to | only text clothes thing dog cat""",
    "goal": """
        go went gone | gehen geht ist gegangen | into to
        run ran run | laufen läuft ist gelaufen | into to through | dog cat horse mouse
        drive drove driven | fahren fährt ist gefahren | into through to:city
        travel | reisen reist ist gereist | to:city
        fly flew flown | fliegen fliegt ist geflogen | to:city
        come came come | kommen kommt ist gekommen | into to
        jump | springen springt ist gesprungen | onto over | dog cat mouse horse""",
    "special": """
        be | sein ist ist gewesen
        have had | haben hat gehabt
        cost cost | kosten
        say said | sagen
        know knew known | wissen weiß gewusst
        hope | hoffen
        believe | glauben""",
}

# With the dative where something is, with the accusative where it goes.
PREPOSITIONS = """
    in | in dat | garden park kitchen school church museum restaurant hotel station hospital \
library office forest city village
    behind | hinter dat | house school church door tree car
    in front of | vor dat | house school church museum hotel station door
    next to | neben dat | house church tree table chair window
    under | unter dat | tree table chair
    on | auf dat | table chair
    into | in acc | garden park kitchen house office forest city village
    to | zu dat | school church museum restaurant hotel station hospital kin doctor teacher
    through | durch acc | park garden forest city village kitchen
    onto | auf acc | table chair
    over | über acc | table chair
    with | mit dat | kin dog
    without | ohne acc | kin dog
    for | für acc | kin child guest"""

# English | German | the tenses it goes with.
TIMES = """
    now | jetzt | present
    today | heute | present past modal
    tomorrow | morgen | modal
    next week | nächste Woche | modal
    on Monday | am Montag | past modal
    on Sunday | am Sonntag | past modal
    yesterday | gestern | past
    last week | letzte Woche | past
    this morning | heute Morgen | past
    every day | jeden Tag | habit
    every morning | jeden Morgen | habit
    in the evening | am Abend | habit
    in winter | im Winter | habit
    on weekends | am Wochenende | habit"""

# English, its past | German ich, du, er, wir | ich-form of the Präteritum ("-": has none here).
MODALS = """
    can could | kann kannst kann können | konnte
    have_to had_to | muss musst muss müssen | musste
    want_to wanted_to | will willst will wollen | wollte
    be_allowed_to - | darf darfst darf dürfen | durfte
    should - | soll sollst soll sollen | -
    will - | werde wirst wird werden | -
    would_like_to - | möchte möchtest möchte möchten | -"""

# How, and for which verbs.
MANNERS = """
    quickly | schnell | eat drink read write run repair wash answer fall_asleep come_back
    slowly | langsam | eat drink read write drive open close
    loudly | laut | laugh cry sing talk_to
    quietly | leise | sing open close cry talk_to
    well | gut | sleep sing dance swim understand hear"""

WOMEN_AND_MEN = {"she": ("Anna", "Maria", "Julia", "Emma"), "he": ("Peter", "Thomas", "Paul")}
CITIES = {"Berlin": "Berlin", "Hamburg": "Hamburg", "Vienna": "Wien", "Munich": "München"}
NUMBERS = {"two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "ten": "zehn"}
PRICES = {"twenty": "zwanzig", "fifty": "fünfzig", "ninety": "neunzig", "two hundred": "zweihundert"}
POSSESSIVES = {"I": "my", "you": "your", "he": "his", "she": "her", "we": "our", "they": "their"}

# Verbs that English does not put into the progressive; things one does not do on purpose;
# things one does gladly; verbs that go well with company.
STATES = "see need love find forget lose hear understand trust belong_to".split()
ACCIDENTS = "see need find forget lose hear understand belong_to lie fall_asleep love trust".split()
JOYS = (
    "read write eat drink visit cook bake help listen_to sleep sing dance play swim travel fly "
    "meet invite wash repair"
).split()
COMPANY = "work sing dance play swim travel fly go come_back arrive live eat".split()
FAVORS = "buy bake cook order write".split()

# The endings of der, dieser, ein, and of adjectives after der and after ein: nominative,
# accusative and dative of masculine, feminine, neuter / plural. "-" is no ending.
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
    "every": ("jed", STRONG, WEAK),
    "which": ("welch", STRONG, WEAK),
    "a": ("ein", EIN, MIXED),
    "no": ("kein", EIN, MIXED),
    "not a": ("kein", EIN, MIXED),  # English has its "not" at the verb
    "my": ("mein", EIN, MIXED),
    "your": ("dein", EIN, MIXED),
    "his": ("sein", EIN, MIXED),
    "her": ("ihr", EIN, MIXED),
    "our": ("unser", EIN, MIXED),
    "their": ("ihr", EIN, MIXED),
    "many": ("viel", STRONG, STRONG),
    "how many": ("wie viele", NONE, STRONG),
    "": ("", NONE, STRONG),
    **{english: (german, NONE, STRONG) for english, german in NUMBERS.items()},
}

GENDERS = {"der": "m", "die": "f", "das": "n"}
CASES = {"nom": 0, "acc": 1, "dat": 2}
CONTRACTIONS = {"in dem": "im", "in das": "ins", "zu dem": "zum", "zu der": "zur"}

# Forms that follow no rule, for I, you, he, we and for ich, du, er, wir: see `Phrase.slot`.
AM = ("am", "are", "is", "are")
WAS = ("was", "were", "was", "were")
PRESENT = {
    "sein": ("bin", "bist", "ist", "sind"),
    "haben": ("habe", "hast", "hat", "haben"),
    "wissen": ("weiß", "weißt", "weiß", "wissen"),
}


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun of both languages; `gender` is m, f or n, a plural "" does not exist."""

    group: str
    number: int
    english: str
    english_plural: str
    gender: str
    german: str
    german_plural: str
    weak: bool


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective of both languages; `stem` takes the endings, a comparative may be ""."""

    number: int
    english: str
    english_comparative: str
    german: str
    stem: str
    german_comparative: str
    nouns: tuple[Noun, ...]


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb of both languages and what it goes with.

    `name` is the English base with its particle ("pick_up"), `frame` the key in `VERBS`,
    `present` the German forms for ich, du, er, wir without the separable `prefix`.
    """

    frame: str
    number: int
    name: str
    english: str
    particle: str
    third: str
    past: str
    english_participle: str
    infinitive: str
    prefix: str
    present: tuple[str, ...]
    participle: str
    auxiliary: tuple[str, ...]
    nouns: tuple[Noun, ...] = ()
    prepositions: tuple[str, ...] = ()
    subjects: tuple[Noun, ...] = ()
    people: bool = True


@dataclass(frozen=True, eq=False)
class Time:
    """An adverbial of time and the tenses it goes with."""

    number: int
    english: str
    german: str
    tenses: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Modal:
    """A modal verb; *will* counts as one. `past` is the ich-form of the Präteritum or ""."""

    english: str
    english_past: str
    present: tuple[str, ...]
    past: str


@dataclass(frozen=True, eq=False)
class Preposition:
    """A preposition with its German case and the nouns it is used with here."""

    english: str
    german: str
    case: int
    nouns: tuple[Noun, ...]


@dataclass(frozen=True, eq=False)
class Manner:
    """An adverb of manner and the names of its verbs."""

    english: str
    german: str
    verbs: tuple[str, ...]


Entry = Noun | Adjective | Verb | Time
T = TypeVar("T")


def _rows(table: str) -> list[list[list[str]]]:
    """The lines of a table as cells of words."""
    return [[cell.split() for cell in row.split("|")] for row in table.strip().splitlines()]


def _optional(word: str) -> str:
    return "" if word == "-" else word


def _read_nouns() -> dict[str, tuple[Noun, ...]]:
    """The nouns by group, and each noun by its own name."""
    groups: dict[str, tuple[Noun, ...]] = {}
    number = 0
    for group, table in NOUNS.items():
        members = []
        for entry in table.split(";"):
            english, article, german, german_plural, *weak = entry.split()
            singular, _, plural = english.partition("/")
            members.append(
                Noun(
                    group,
                    number,
                    singular,
                    plural or _s_form(singular),
                    GENDERS[article],
                    german,
                    _optional(german_plural),
                    bool(weak),
                )
            )
            groups[singular] = (members[-1],)
            number += 1
        groups[group] = tuple(members)
    return groups


def _nouns(names: Sequence[str]) -> tuple[Noun, ...]:
    """The nouns that groups and names stand for."""
    return tuple(noun for name in names for noun in NOUN_GROUPS[name])


def _read_adjectives() -> Iterator[Adjective]:
    for number, (english, german, names) in enumerate(_rows(ADJECTIVES)):
        word, more = english
        full, _, stem = german[0].partition("/")
        comparative = f"more {word}" if more == "more" else _optional(more)
        yield Adjective(
            number, word, comparative, full, stem or full, _optional(german[1]), _nouns(names)
        )


def _read_verbs() -> Iterator[Verb]:
    number = 0
    for frame, table in VERBS.items():
        for (name, *english), (infinitive, *german), *rest in _rows(table):
            base, _, particle = name.partition("_")
            prefix, _, infinitive = infinitive.rpartition("+")
            stem = infinitive.removesuffix("en")
            er_form = german[0] if german else _er_form(stem)
            partners, subjects = (*rest, [], [])[:2] if rest else ([], [])
            local = frame in ("alone", "place", "goal")
            yield Verb(
                frame,
                number,
                name,
                base,
                particle,
                _s_form(base),
                english[0] if english else _ed_form(base),
                english[-1] if english else _ed_form(base),
                infinitive,
                prefix,
                (f"{stem}e", _du_form(er_form), er_form, infinitive),
                prefix + (german[-1] if german else _weak_participle(stem)),
                SEIN if "ist" in german else HABEN,
                () if local else _nouns(partners),
                tuple(_optional(place) for place in partners) if local else (),
                _nouns([name for name in subjects if name != "only"]),
                "only" not in subjects,
            )
            number += 1


# ---------------------------------------------------------------------------------- inflected words


def _s_form(word: str) -> str:
    """The regular plural of an English noun, or third person of a verb."""
    if re.search("[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search("(s|x|ch|sh|o)$", word) else "s")


def _ed_form(base: str) -> str:
    """The regular past of an English verb."""
    if re.search("[^aeiou]y$", base):
        return base[:-1] + "ied"
    return base + ("d" if base.endswith("e") else "ed")


@cache
def _ing_form(base: str) -> str:
    if base.endswith("ie"):
        return base[:-2] + "ying"
    if re.fullmatch("[^aeiou]*[aeiou][bgmnpt]", base):
        return base + base[-1] + "ing"
    return re.sub("([^e])e$", r"\1", base) + "ing"


def _er_form(stem: str) -> str:
    return stem + ("et" if stem[-1] in "dt" else "t")


def _du_form(er_form: str) -> str:
    """The du-form: as the er-form, with -st for -t unless an s-sound is there already."""
    return er_form if re.search("[sßzx]t$", er_form) else er_form[:-1] + "st"


def _weak_participle(stem: str) -> str:
    inseparable = re.match("(be|ge|ver)", stem) or stem.endswith("ier")
    return ("" if inseparable else "ge") + _er_form(stem)


@cache
def _endings(table: str) -> dict[str, tuple[str, ...]]:
    """A table of endings by gender: m, f, n and p for the plural; in each, one per case."""
    rows = (tuple(_optional(ending) for ending in row.split()) for row in table.split("/"))
    return dict(zip("mfnp", rows, strict=True))


def _german_noun(noun: Noun, case: int, *, plural: bool) -> str:
    if plural:
        dative_n = case == CASES["dat"] and noun.german_plural[-1] not in "ns"
        return noun.german_plural + ("n" if dative_n else "")
    return noun.german_plural if noun.weak and case != CASES["nom"] else noun.german


NOUN_GROUPS = _read_nouns()
ALL_NOUNS = _nouns(list(NOUNS))
ALL_ADJECTIVES = tuple(_read_adjectives())
ALL_VERBS = tuple(_read_verbs())
VERB = {verb.name: verb for verb in ALL_VERBS}
ALL_TIMES = tuple(
    Time(number, " ".join(english), " ".join(german), tuple(tenses))
    for number, (english, german, tenses) in enumerate(_rows(TIMES))
)
ALL_MODALS = tuple(
    Modal(en.replace("_", " "), _optional(past).replace("_", " "), tuple(forms), _optional(ich))
    for (en, past), forms, (ich,) in _rows(MODALS)
)
PREPOSITION = {
    "_".join(english): Preposition(" ".join(english), german, CASES[case], _nouns(names))
    for english, (german, case), names in _rows(PREPOSITIONS)
}
ALL_MANNERS = tuple(Manner(en, de, tuple(verbs)) for (en,), (de,), verbs in _rows(MANNERS))
DESCRIBED_BY = {noun: [a for a in ALL_ADJECTIVES if noun in a.nouns] for noun in ALL_NOUNS}

