"""Numbers in words of 15 languages: one to 99, and what they are multiplied by.

This is for a number in digits that the other side may have in words: "50" and "cinquantième". So a
word may have several values, and a value too many does no harm.

The words are in `number_words.tsv`, in rows of a kind, the value and its words. The kinds are

    en, de, …    words that may be this number; a `*` is any ending. Behind `0-99` stand the names
                 of all numbers, as num2words writes them, behind `=5` all forms of a name, and
                 behind `1.` the ordinals from the first on, with a `?` if they have other meanings,
                 behind `:30` half past an hour `{h}`, where `n` stands for minutes `{n}`, and
                 behind `½30` numbers and a half
    calendar     names of the months and of the days of the week from Monday on, by language; `-` is
                 a name with other meanings. In English and Turkish they have capitals.
    afternoon    words of the hours after noon, of any language; `_` is a space
    morning, evening    words behind an hour, and in the second row those before one
    minus, below    words before a negative number, and words behind one, of any language
    less            words that may say that a number is negative
    lost            words of a defeat, whose score some languages give from the other side
    also            phrases of any language that are these numbers too: half is 50 % or 30 minutes
    counter         what stands behind a number in Chinese characters, but not inside of a word
    floor           words of floors and years of life, which languages count from 0 or from 1
    fraction        phrases of any language for one fraction, those with others in them first
    over, under     words of both parts of other fractions
    place           words before a number, or in Chinese and Japanese behind it
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction

from mtkit.base.text import WORD, base_language
from mtkit.check.rules import limits
from mtkit.check.rules.scales import is_unspaced, scales_of, table, units_of_words


def _read_words() -> dict[str, list[tuple[str, list[str]]]]:
    """The values with their words, by kind."""
    rows: dict[str, list[tuple[str, list[str]]]] = {}
    for kind, value, words in table("number_words"):
        rows.setdefault(kind, []).append((value, words.split()))
    return rows


_WORDS = _read_words()


def words_of(kind: str) -> list[list[str]]:
    """The words of each row of a kind."""
    return [words for _, words in _WORDS[kind]]


def marks_of(kind: str, row: int = 0, most: int = 4) -> str:
    """A pattern of the words of a kind.

    Those of up to `most` characters match only where a word begins, if their language has spaces.
    """
    patterns = (re.escape(word).replace("_", " ") for word in _WORDS[kind][row][1])
    is_short = re.compile(rf".{{1,{most}}} ?$|\d").match
    return "|".join(
        rf"(?<!\d){x}" if x[0].isdigit() else rf"\b{x}" if is_short(x) and x < "\u0e00" else x
        for x in patterns
    )


_MONTHS = 12
_NAME = re.compile(rf"[{WORD}]+")
# Languages whose months have a capital, unlike words such as "may" and "march".
_IN_CAPITALS = {"en", "tr"}
_EAST_ASIAN = {"zh", "yue", "ja", "ko"}
_HAN_DATE = re.compile(
    r"(?<![\d.])(1[0-2]|[1-9]|十[一二]?|[一二三四五六七八九])[月월]"
    r"|(?:星期|礼拜|(?<![一二三四五六七八九十每两几\d])[周週])(?=[一二三四五六日天](?!次))(?!日本)([一-龥])"
    r"|(?=[月火水木金土日월화수목금토일](?:曜|요일))(.)"
)
_HAN_DAYS = ("一二三四五六日", "月火水木金土日", "월화수목금토일", "      天")
_HALVES = {"half", "halb", "halbe", "halben", "halbes", "einhalb", "demi", "demie", "eineinhalb"}
_HALVES |= {
    "полтора",
    "полутора",
    "полторы",
    "пол",
    "pół",
    "półtora",
    "półtorej",
    "wpół",
    "साढ़े",
    "आधा",
    "आधी",
}
_HALVES |= {"media", "medio", "mezza", "mezzo", "meia", "meio", "anderhalf", "anderhalve"}
_GERMAN_HALF, _AND_A_HALF = re.compile("einhalb|anderthalb"), re.compile("(.+)(?:ein|[eë]n)halb?f?")
# Words that may stand inside of a number.
_JOINTS = {"and", "et", "und", "a", "de", "y", "e", "en", "og", "och", "i", "и", *_HALVES}
# Scales that are words only behind digits: "3 m", "5k".
_LETTERS = {"m", "k", "md", "mn", "bn", "tn"}
# Also "new" in French, "attention" in German, "you are" and "winds" in Italian, "give" in Hindi,
# and "sex" in Swedish.
_AMBIGUOUS = {"neuf", "acht", "sei", "venti", "दो", "sex"}
# The hundred, the thousand and the joint of languages that write a number as one word.
_ONE_WORD = {"de": ("hundert", "tausend", "und"), "nl": ("honderd", "duizend", "en")}
_ONE_WORD |= {"it": ("cento", "mila mille", ""), "sv": ("hundra", "tusen", "")}
_ONE_WORD |= {"da": ("hundrede", "tusinde", "og"), "nb": ("hundre", "tusen", "og")}

_ENGLISH_ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth"}
_ENGLISH_ORDINALS |= {"eight": "eighth", "nine": "ninth", "twelve": "twelfth"}

# With the vowel signs of Devanagari.
_LETTER = r"(?:[^\W\d_]|[\u0900-\u0903\u093a-\u094f\u0955-\u0957])"
_WORD = re.compile(f"{_LETTER}+")
# All of these phrases begin a word: no "Viertel" in "Stadtviertel".
_ALSO = [
    (set(map(float, values.split(","))), re.compile(marks_of("also", row, 99), re.IGNORECASE))
    for row, (values, _) in enumerate(_WORDS["also"])
]
_PHRASES, _OVER, _UNDER = (
    {phrase.replace("_", " "): Fraction(value) for value, words in _WORDS[kind] for phrase in words}
    for kind in ("fraction", "over", "under")
)
_SPACED, _OVERS, _UNDERS = (
    "|".join(sorted((x for x in words if not is_unspaced(x)), key=len, reverse=True))
    for words in (_PHRASES, _OVER, _UNDER)
)
_INITIALS = {word[0] for word in (*_PHRASES, *_OVER) if not is_unspaced(word)}
# Most words end at their first letter.
_FRACTION = re.compile(
    rf"\b(?=[{''.join(_INITIALS)}])"
    rf"(?:(?P<over>{_OVERS})[ -]?(?P<under>{_UNDERS})|{_SPACED})"
)
_PART = r"(?:\d{1,2}|[一二三四五六七八九十]{1,3})"
_HAN_FRACTION = re.compile(
    rf"(?<!\d)(?:({_PART})分[之の]({_PART})|{'|'.join(filter(is_unspaced, _PHRASES))})"
)
_ROMAN = re.compile(r"\b[IVXLCDM]+(?=(?:e|er|re|ème|ère|ième)?\b)")
_HAN_LANGUAGES = ("zh", "yue", "ja")
# Not the scale of digits, as in 5万.
_HAN_SIGNS = "〇零一二三四五六七八九十百千万萬億亿兆两兩"
_HAN = re.compile(rf"(?<![\d{_HAN_SIGNS}])[{_HAN_SIGNS}]+")
# Not several tens (几十个), nor three or four (三四个, 三、四个).
_COUNTED_HAN = re.compile(
    rf"(?<![\d几幾数數、・{_HAN_SIGNS}])(?:(?=[二三四五六七八九两兩十]|一[{_HAN_SIGNS}])"
    rf"(?![{_HAN_SIGNS}]*?[一二三四五六七八九两兩]{{2}})[{_HAN_SIGNS}]+|[一二三四五六七八九]{{4}})"
    rf"(?={marks_of('counter')})"
)
# The number of a king, as in 乔治五世, and no century or world.
REIGN = re.compile("([一二三四五六七八九十]{1,3})世(?![纪紀界代])")
_HAN_ORDINAL = re.compile(r"第([一二三四五六七八九十百]+)|([一二三四五六七八九十百]+)[番度回]目")
_OLD = re.compile("jähri|jari|åri|летн|лети|letni|leci|enn[eio]")
_AGE = re.compile(rf"(.+?)(?:{_OLD.pattern})\w{{0,4}}")
_ROMAN_DIGITS = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


@dataclass(frozen=True, slots=True)
class InWords:
    """The numbers in words of a text.

    Attributes:
        values: all values that they may have, with those of Roman numbers, and perhaps some more.
        certain: those of 2 and more that are certainly numbers, with their words.
        has_half: whether there is a half: "half past two" is "halb drei".
        ordinals: the values of its ordinals, from the first on, with their words.
    """

    values: frozenset[float]
    certain: tuple[tuple[float, str], ...]
    has_half: bool
    ordinals: dict[float, str]


@functools.lru_cache(4)  # Several rules ask for the words of one pair.
def numbers_in_words(text: str, language: str) -> InWords:
    """The numbers in words of a text; of languages that are not known, the Roman numbers.

    Those of Chinese and Japanese are certain before a word that counts, as in 四人.
    """
    code = base_language(language)
    values: set[float] = {roman(match[0]) for match in _ROMAN.finditer(text)}
    if code in _HAN_LANGUAGES:
        values.update(of_han(match[0]) for match in _HAN.finditer(text))
    certain = [(of_han(signs), signs) for signs in _counted_han(text, code)]
    ordinals: dict[float, str] = {}
    if code in _HAN_LANGUAGES:
        ordinals |= {of_han(m[1] or m[2]): m[0] for m in _HAN_ORDINAL.finditer(text)}
    known = _known(code)
    words = _WORD.findall(text.lower()) if known else []
    begins = _begins(code)
    is_half = any(word in _HALVES or _GERMAN_HALF.search(word) for word in words)
    # Three euros fifty are 3.50, and a metre fifty 150 cm: the last number, and that before a unit.
    total = part = last = whole = 0.0
    run: list[str] = []
    is_certain, at = True, 0

    def end() -> None:
        nonlocal total, part, last, is_certain
        last = total + part if run else 0.0
        if run:
            values.update((last, whole + last / 100, 100 * whole + last) if whole else (last,))
            if is_certain and last >= 2 and not whole:
                certain.append((last, " ".join(run)))
            if run[-1] in ordinals_of(code):
                ordinals[last] = " ".join(run)
            run.clear()
        total, part, is_certain = 0.0, 0.0, True

    while at < len(words):
        phrase = words[at]
        most = min(limits.MAX_PHRASE, len(words) - at) if phrase in begins else 0
        for size in range(most, 0, -1):
            if (value := known.get(phrase := " ".join(words[at : at + size]))) is not None:
                break
        else:
            size, value = 1, _part(phrase, code)
        scales = _scales(phrase, code) if size == 1 and phrase not in _LETTERS else ()
        if scales:
            # In floats, where a product that is too large becomes infinite instead of an error.
            values.update((part or 1.0) * scale for scale in scales)
            if is_half:
                values.update((whole + 0.5) * scale for whole in (0, 1, part) for scale in scales)
            if scales[0] == 100:
                part = (part or 1.0) * 100
            elif total and not part:
                total *= scales[0]  # two thousand million
            else:
                total, part = total + (part or 1.0) * scales[0], 0.0
            run.append(phrase)
            is_certain &= len(scales) == 1 and part + total != scales[0]
        elif value is not None and not (run and phrase in _JOINTS):
            values.add(value)
            if is_half:
                values.add(value + 0.5)
            if part and value >= (1 if part % 10 else 10 if part % 100 else 100):
                values.add(100 * part + value)  # a year, as in "nineteen eighty"
                # Two numbers, one after the other, as in "five, six".
                end()
            part += value
            run.append(phrase)
            is_certain &= phrase in _cardinals(code) or _is_one_word(phrase, code)
        elif phrase not in _JOINTS:
            end()
            whole = last if phrase in units_of_words() else 0.0
        at += size
    end()
    return InWords(frozenset(values), tuple(certain), is_half, ordinals)


def times_in_words(text: str, language: str, kind: str = ":") -> tuple[dict[int, str], str]:
    """The times in words of a text, in minutes of 12 hours, with these; and what is left of it.

    With the kind "½" these are not times, but numbers and a half, in sixtieths.
    """
    code, times = base_language(language), dict[int, str]()

    def value_of(word: str) -> int:
        if word.isdecimal():
            return int(word)
        if code in _HAN_LANGUAGES:
            return int(of_han(word))
        value = _known(code).get(word.replace("-", " "), _part(word, code))
        return 99 if value is None else int(value)

    text = text.lower()
    for sign, minutes, literal, pattern in (
        _clocks(code, kind) if _literals(code, kind).search(text) else ()
    ):
        if literal not in text:
            continue

        def hidden(match: re.Match[str], sign: int = sign, minutes: int | None = minutes) -> str:
            hour = value_of(match["h"])
            part = value_of(match["n"]) if minutes is None else minutes
            if hour > 24 or part > 59 or (part % 5 and code not in _HAN_LANGUAGES):
                return match[0]
            times[(60 * hour + sign * part) % (720 if kind == ":" else 6000)] = match[0]
            return " " * len(match[0])

        text = pattern.sub(hidden, text)
    return times, text


# Of a phrase of the table: what is not in each text that it matches.
_NOT_LITERAL = re.compile(r"\{\{.*?\}\}|\{.\}|\(.*?\)+\??|\[.*?\]\??|.\?")


@functools.cache
def _literals(code: str, kind: str) -> re.Pattern[str]:
    literals = sorted({re.escape(literal) for _, _, literal, _ in _clocks(code, kind)})
    return re.compile("|".join(literals) if literals else r"(?!)")


@functools.cache
def _clocks(code: str, kind: str) -> list[tuple[int, int | None, str, re.Pattern[str]]]:
    """The phrases for times: the sign of the minutes, these, a part of the phrase, its pattern."""
    is_han = code in _HAN_LANGUAGES
    word = r"\d{1,2}|" + (
        "[一二三四五六七八九十两]{1,3}" if is_han else rf"{_LETTER}{{1,14}}(?:-{_LETTER}{{1,9}})?"
    )
    # Not the one of twenty-one.
    edges = ("", "")
    if not is_han:
        edges = (r"(?<![\w:.,-])(?<! et )(?<! e )(?:", rf")(?!{_LETTER}|[:.,]?\d)")
    clocks = []
    rows = [row for row in _WORDS.get(code, ()) if row[0][0] == kind]
    for key, way in ((key, way.replace("_", " ")) for key, ways in rows for way in ways):
        literal = max(_NOT_LITERAL.split(way), key=len)
        form = way.format(h=f"(?P<h>{word})", n=f"(?P<n>{word})").join(edges)
        minutes = None if "n" in key else abs(int(key[1:]))
        clocks.append((-1 if "-" in key else 1, minutes, literal, re.compile(form)))
    return clocks


def phrase_values(text: str, other_text: str, wanted: Collection[object]) -> set[float]:
    """The values of phrases of a text, as half is 50 %, in rows of `_ALSO` with a wanted value.

    A row does not count if the other text has as many of its phrases.
    """
    values = set[float]()
    for numbers, phrases in _ALSO:
        if not numbers.isdisjoint(wanted) and phrases.search(text):
            # "Two weeks" are 15 in "15 jours".
            same = sum(not re.search(r"\d", phrase) for phrase in phrases.findall(other_text))
            if len(phrases.findall(text)) > same:
                values |= numbers
    return values


def has_number_words(text: str, words: Collection[str], language: str) -> bool:
    """Whether a text, or its words in lower case, may have certain numbers in words."""
    code = base_language(language)
    return (
        not single_words(code).keys().isdisjoint(words)
        or bool(_counted_han(text, code))
        or (
            (code in _ONE_WORD or _OLD.search(text) is not None)
            and any(_is_one_word(word, code) for word in words)
        )
    )


def _counted_han(text: str, code: str) -> list[str]:
    return _COUNTED_HAN.findall(text) if code in _HAN_LANGUAGES else []


def fractions_in_words(text: str) -> dict[Fraction, str]:
    """The fractions of a text that are in words or Chinese characters, with these."""
    result = {
        _OVER[match["over"]] / _UNDER[match["under"]]
        if match["over"]
        else _PHRASES[match[0]]: match[0]
        for match in _FRACTION.finditer(text.lower())
    }
    for match in _HAN_FRACTION.finditer(text) if any(sign in text for sign in "分刻半") else ():
        if match[1]:
            under, over = (int(x) if x.isdigit() else int(of_han(x)) for x in match.groups())
            result[Fraction(over, under or 1)] = match[0]
        else:
            result[_PHRASES[match[0]]] = match[0]
    return result


@functools.cache
def _begins(code: str) -> frozenset[str]:
    return frozenset(phrase.partition(" ")[0] for phrase in _known(code))


def has_words_for_numbers(language: str) -> bool:
    """Whether the numbers in words of a language are known."""
    return base_language(language) in (*_HAN_LANGUAGES, *_WORDS)


@functools.cache
def single_words(language: str) -> dict[str, int]:
    """The numbers from 2 to 99 that are one word, and nothing but numbers, with their values."""
    code = base_language(language)
    return {
        name: value
        for value, names in _names(code).items()
        for name in names
        if value > 1 and " " not in name and name not in _AMBIGUOUS
    }


@functools.cache
def _cardinals(code: str) -> frozenset[str]:
    # In French, 80 alone has an "s".
    names = itertools.chain(*(names for value, names in _names(code).items() if value > 1))
    return frozenset(["quatre vingts", *names]) - _AMBIGUOUS


@functools.cache
def _known(code: str) -> dict[str, float]:
    """The values of phrases, without hyphens; empty for a language that is not known."""
    if not _names(code):
        return {}
    rows = [row for row in _WORDS[code] if row[0][0].isdecimal()]
    known = {
        word: float(value)
        for value, words in rows
        for word in words
        if value != "0-99" and value != "1." and word[-1] != "*"
    }
    # Also those of English, German and French, whose languages may not be known.
    for calendar in map(_calendar, ("en", "de", "fr", code)):
        known |= {name: place for name, place in calendar.items() if place <= _MONTHS}
    known |= ordinals_of(code)
    for value, names in _names(code).items():
        for name in names:
            known[name] = value
            for form in _FORMS[code](name, value) if code in _FORMS else ():
                known.setdefault(form, value)
    return known


@functools.cache
def _calendar(code: str) -> dict[str, int]:
    """The names of months, from 1 on, and behind them those of the days of a week."""
    names = dict(_WORDS["calendar"]).get(code, [])
    return {name: at for at, ways in enumerate(names, 1) for name in ways.split("|") if name != "-"}


def has_dates(words: Collection[str], language: str) -> bool:
    """Whether a text with these words in lower case may name a month or a day of the week."""
    code = base_language(language)
    return code in _EAST_ASIAN or not _calendar(code).keys().isdisjoint(words)


def dates_of(text: str, language: str) -> dict[int, str]:
    """The months, from 1 on, and the days of a week, from 13 on, that are named in a text."""
    code = base_language(language)
    if code in _EAST_ASIAN:
        return {_place_of_han(match): match[0] for match in _HAN_DATE.finditer(text)}
    known = _calendar(code)
    return {
        known[word.lower()]: word
        for word in (_NAME.findall(text) if known else ())
        if word.lower() in known and (code not in _IN_CAPITALS or word[0].isupper())
    }


def _place_of_han(match: re.Match[str]) -> int:
    if month := match[1]:
        return int(month if month.isdecimal() else of_han(month))
    return _MONTHS + 1 + max(days.find(match[2] or match[3]) for days in _HAN_DAYS)


@functools.cache
def ordinals_of(language: str) -> dict[str, int]:
    """The values of the first ordinals, without hyphens."""
    rows = [words for key, words in _WORDS.get(base_language(language), ()) if key == "1."]
    return {
        way.rstrip("?").replace("_", " "): value
        for words in rows
        for value, ways in enumerate(words, 1)
        for way in ways.split("|")
    }


def has_ordinals(text: str, words: Collection[str], language: str) -> bool:
    """Whether a text, or its words in lower case, may have ordinals."""
    code = base_language(language)
    if code in _HAN_LANGUAGES:
        return _HAN_ORDINAL.search(text) is not None
    return not _last_words(code).isdisjoint(words)


@functools.cache
def _last_words(code: str) -> frozenset[str]:
    return frozenset(phrase.rpartition(" ")[2] for phrase in ordinals_of(code))


@functools.cache
def _names(code: str) -> dict[int, list[str]]:
    """The ways to say each number, without hyphens: 0 to 99, and hundreds of some languages."""
    names: dict[int, list[str]] = {}
    for key, words in _WORDS.get(code, ()):
        if key == "0-99":
            names |= {value: ways.split("|") for value, ways in enumerate(words)}
        elif key.startswith("="):
            names[int(key[1:])] = [*names.get(int(key[1:]), ()), *words]
        elif key == "1.":
            for value, ways in enumerate(words, 1):
                clear = (way for way in ways.split("|") if way[-1] != "?")
                names[value] = [*names.get(value, ()), *clear]
    names = {value: [way for way in ways if way] for value, ways in names.items()}
    return {value: [way.replace("_", " ") for way in ways] for value, ways in names.items()}


def _english_forms(name: str, _value: int) -> Iterator[str]:
    before, _, last = name.rpartition(" ")
    regular = f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"
    ordinal = _ENGLISH_ORDINALS.get(last, regular)
    # Seconds are a unit.
    forms = (ordinal, f"{ordinal}s", re.sub("y$", "ie", last) + "s")
    for form in forms if last != "two" else forms[::2]:
        yield f"{before} {form}".lstrip()


def _german_forms(name: str, value: int) -> Iterator[str]:
    for ending in ("e", "en", "er", "es", "em"):
        yield from (f"{name}{'t' if value < 20 else 'st'}{ending}", f"{name}{ending}")


def _french_forms(name: str, _value: int) -> Iterator[str]:
    stem = re.sub("neuf$", "neuv", re.sub("cinq$", "cinqu", name.removesuffix("e")))
    yield from (f"{name}s", f"{stem}ième", f"{stem}ièmes", f"{stem}aine")


def _italian_forms(name: str, _value: int) -> Iterator[str]:
    stem = re.sub("[aeiouoé]$", "", name)
    yield from (f"{stem}esim{ending}" for ending in "oaie")


def _dutch_forms(name: str, _value: int) -> Iterator[str]:
    yield from (f"{name}{ending}" for ending in ("de", "ste", "en"))


# What else is made from the words of a number: ordinals, plurals, cases.
_FORMS: dict[str, Callable[[str, int], Iterator[str]]] = {
    "en": _english_forms,
    "de": _german_forms,
    "fr": _french_forms,
    "it": _italian_forms,
    "nl": _dutch_forms,
}


@functools.cache
def _prefixes(code: str) -> tuple[re.Pattern[str], dict[str, int]]:
    """What words of a number begin with, longest first, and the values: `fünf` of fünfjährig."""
    stems = {
        word[:-1]: int(value)
        for value, words in _WORDS.get(code, ())
        for word in words
        if word[-1] == "*"
    }
    if code == "de":
        stems |= single_words(code) | {"acht": 8}
    return re.compile("|".join(sorted(stems, key=len, reverse=True)) or "(?!)"), stems


@functools.lru_cache(limits.MAX_KEPT_WORDS)
def _scales(word: str, code: str) -> tuple[int, ...]:
    return scales_of(code).of_word(word)


@functools.lru_cache(limits.MAX_KEPT_WORDS)
def _part(word: str, code: str) -> float | None:
    """The value of a word by its parts: `dreihundertzwanzig`, `fünfjährig`; None if it has none."""
    if len(word) > limits.MAX_WORD_LETTERS:
        return None
    if (age := _age(word, code)) is not None:
        return age
    known = _known(code)
    if code in _ONE_WORD:
        hundred, thousand, joint = _ONE_WORD[code]
        for name, scale in (*((x, 1000) for x in thousand.split()), (hundred, 100)):
            left, separator, right = word.partition(name)
            if separator and (value := known.get(left, _part(left, code)) if left else 1):
                # In "centottanta", two of the same letters are one.
                parts = (right, right.removeprefix(joint), f"{name[-1]}{right}")
                rests = [known[part] for part in parts if part in known]
                return value * scale + (rests[0] if rests else _part(right, code) or 0)
    # dreieinhalb
    if (half := _AND_A_HALF.fullmatch(word)) and half[1] in known:
        return known[half[1]] + 0.5
    pattern, stems = _prefixes(code)
    match = pattern.match(word)
    return None if match is None else stems[match[0]]


@functools.cache
def _one_word(code: str) -> re.Pattern[str]:
    if code not in _ONE_WORD:
        return re.compile("(?!)")
    hundred, thousand, joint = _ONE_WORD[code]
    names = sorted((*single_words(code), *f"{hundred} {thousand}".split()), key=len, reverse=True)
    return re.compile(f"(?:{'|'.join(names)}|{joint}(?!$))+")


def _is_one_word(word: str, code: str) -> bool:
    """Whether a word is made of names of numbers alone, or is so many years old."""
    return _one_word(code).fullmatch(word) is not None or _age(word, code) is not None


def _age(word: str, code: str) -> float | None:
    """The years of a word such as `fünfzigjährig`, `пятидесятилетний` or `cinquantenne`."""
    match = _AGE.fullmatch(word)
    if match is None:
        return None
    # Polish has an "o" for the "u", and Italian has lost a vowel.
    bases = (match[1], re.sub("o$", "u", match[1]), *(match[1] + vowel for vowel in "aeio"))
    return next((_known(code)[base] for base in bases if base in _cardinals(code)), None)


def of_han(signs: str) -> float:
    """The value of a number in Chinese characters: 二十五, 三千万, and digit by digit 一九九八."""
    digits = [unicodedata.numeric(sign.replace("两", "兩")) for sign in signs]
    if max(digits) < 10:
        return float("".join(str(int(digit)) for digit in digits))
    # Before a hundred million, ten thousand, and the rest of up to a thousand.
    total = part = digit = 0.0
    for value in digits:
        if value < 10:
            digit = value
        elif value < 10_000:
            part, digit = part + (digit or 1.0) * value, 0.0
        else:
            total, part, digit = total + (part + digit or 1.0) * value, 0.0, 0.0
    return total + part + digit


def roman(text: str) -> int:
    """The value of a Roman number, or a value for letters that are none."""
    values = [_ROMAN_DIGITS[letter] for letter in text]
    following = [*values[1:], 0]
    return sum(-a if a < b else a for a, b in zip(values, following, strict=True))
