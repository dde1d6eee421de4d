"""Numbers in words of seven languages: one to 99, and what they are multiplied by.

This is for a number in digits that the other side may have in words: "50" and "cinquantième". So a
word may have several values, and a value too many does no harm.

The words are in `number_words.tsv`, in rows of a kind, the value and its words. The kinds are

    en, de, …    words for one number; in the rows `0-19` and `tens` those that others are made of
    month        names of a month, in English, German and French
    afternoon    words of the hours after noon, of any language; `_` is a space
    morning, evening    words behind an hour, and in the second row those before one
    minus, below    words before a negative number, and words behind one, of any language
    less            words that may say that a number is negative
    lost            words of a defeat, whose score some languages give from the other side
    also            phrases of any language that are these numbers too: half is 50 % or 30 minutes
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from mtkit.base.text import base_language
from mtkit.check.rules import limits
from mtkit.check.rules.scales import scales_of, table


def _read_words() -> dict[str, list[tuple[str, list[str]]]]:
    """The values with their words, by kind."""
    rows: dict[str, list[tuple[str, list[str]]]] = {}
    for kind, value, words in table("number_words"):
        rows.setdefault(kind, []).append((value, words.split()))
    return rows


_WORDS = _read_words()


def marks_of(kind: str, row: int = 0, most: int = 4) -> str:
    """A pattern of the words of a kind.

    Those of up to `most` characters match only where a word begins, if their language has spaces.
    """
    patterns = (re.escape(word).replace("_", " ") for word in _WORDS[kind][row][1])
    is_short = re.compile(rf".{{1,{most}}} ?$|\d").match
    return "|".join(rf"\b{x}" if is_short(x) and x < "\u0e00" else x for x in patterns)


_HALVES = {"half", "halb", "halbe", "halben", "halbes", "einhalb", "demi", "demie", "eineinhalb"}
_GERMAN_HALF = re.compile("einhalb|anderthalb")
# Words that may stand inside of a number.
_JOINTS = {"and", "et", "und", "a", "de", "y", "e", "en", *_HALVES}
# Scales that are words only behind digits: "3 m", "5k".
_LETTERS = {"m", "k", "md", "mn", "bn", "tn"}
# Also French for "new", German for "attention", and Italian for "you are" and "winds".
_AMBIGUOUS = {"neuf", "acht", "sei", "venti", "nove"}
# How a number between the tens is made of these and one to nine.
_COMPOUNDS = {"de": "{1}und{0}", "nl": "{1}en{0}", "es": "{0} y {1}", "pt": "{0} e {1}"}
_COMPOUNDS |= {"it": "{0}{1}", "en": "{0} {1}"}

_ENGLISH_ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth"}
_ENGLISH_ORDINALS |= {"eight": "eighth", "nine": "ninth", "twelve": "twelfth"}

_WORD = re.compile(r"[^\W\d_]+")
# All of these phrases begin a word: no "Viertel" in "Stadtviertel".
_ALSO = [
    (set(map(float, values.split(","))), re.compile(marks_of("also", row, 99), re.IGNORECASE))
    for row, (values, _) in enumerate(_WORDS["also"])
]
_ROMAN = re.compile(r"\b[IVXLCDM]+(?=(?:e|er|re|ème|ère|ième)?\b)")
# Not the scale of digits, as in 5万.
_HAN_SIGNS = "〇零一二三四五六七八九十百千万萬億亿兆两兩"
_HAN = re.compile(rf"(?<![\d{_HAN_SIGNS}])[{_HAN_SIGNS}]+")
_ROMAN_DIGITS = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


@dataclass(frozen=True, slots=True)
class InWords:
    """The numbers in words of a text.

    Attributes:
        values: all values that they may have, with those of Roman numbers, and perhaps some more.
        certain: those of 2 and more that are certainly numbers, with their words.
        has_half: whether there is a half: "half past two" is "halb drei".
    """

    values: frozenset[float]
    certain: tuple[tuple[float, str], ...]
    has_half: bool


def numbers_in_words(text: str, language: str) -> InWords:
    """The numbers in words of a text; of languages that are not known, the Roman numbers.

    Of Chinese and Japanese these are values only, as their signs are in many other words.
    """
    code = base_language(language)
    values: set[float] = {roman(match[0]) for match in _ROMAN.finditer(text)}
    if code in ("zh", "yue", "ja"):
        values.update(_of_han(match[0]) for match in _HAN.finditer(text))
    certain: list[tuple[float, str]] = []
    known = _known(code)
    words = _WORD.findall(text.lower()) if known else []
    begins, factors = _begins(code), scales_of(code).factors
    is_half = any(word in _HALVES or _GERMAN_HALF.search(word) for word in words)
    total = part = 0.0
    run: list[str] = []
    is_certain, at = True, 0

    def end() -> None:
        nonlocal total, part, is_certain
        if run:
            values.add(total + part)
            if is_certain and total + part >= 2:
                certain.append((total + part, " ".join(run)))
            run.clear()
        total, part, is_certain = 0.0, 0.0, True

    while at < len(words):
        phrase = words[at]
        most = min(limits.MAX_PHRASE, len(words) - at) if phrase in begins else 0
        for size in range(most, 0, -1):
            if (value := known.get(phrase := " ".join(words[at : at + size]))) is not None:
                break
        else:
            size, value = 1, _german(phrase) if code == "de" else None
        if size == 1 and phrase in factors and phrase not in _LETTERS:
            scales = factors[phrase]
            # In floats, where a product that is too large becomes infinite instead of an error.
            values.update((part or 1.0) * scale for scale in scales)
            if is_half:
                values.update((whole + 0.5) * scale for whole in (0, part) for scale in scales)
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
            if 0 < part < 100 and (value >= 10 or part % 10):
                values.add(100 * part + value)  # a year, as in "nineteen eighty"
                # Two numbers, one after the other, as in "five, six".
                end()
            part += value
            run.append(phrase)
            is_certain &= phrase in _cardinals(code)
        elif phrase not in _JOINTS:
            end()
        at += size
    end()
    return InWords(frozenset(values), tuple(certain), is_half)


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


@functools.cache
def _begins(code: str) -> frozenset[str]:
    return frozenset(phrase.partition(" ")[0] for phrase in _known(code))


@functools.cache
def single_words(language: str) -> dict[str, int]:
    """The numbers from 2 to 99 that are one word, and nothing but numbers, with their values."""
    code = base_language(language)
    names = _names(code) if code in _FORMS else []
    return {
        name: value
        for value, of_value in enumerate(names)
        for name in of_value
        if value > 1 and " " not in name and name not in _AMBIGUOUS
    }


@functools.cache
def _cardinals(code: str) -> frozenset[str]:
    # In French, 80 alone has an "s".
    return frozenset(["quatre vingts", *itertools.chain(*_names(code)[2:])]) - _AMBIGUOUS


@functools.cache
def _known(code: str) -> dict[str, int]:
    """The values of phrases, without hyphens; empty for a language that is not known."""
    if code not in _FORMS:
        return {}
    rows = [row for row in (*_WORDS[code], *_WORDS["month"]) if row[0].isdecimal()]
    known = {word: int(value) for value, words in rows for word in words}
    for value, names in enumerate(_names(code)):
        for name in names:
            known[name] = value
            for form in _FORMS[code](name, value):
                known.setdefault(form, value)
    return known


@functools.cache
def _names(code: str) -> list[list[str]]:
    """The ways to say each number from 0 to 99, without hyphens."""
    rows = dict(_WORDS[code])
    first, bases = ([name.replace("_", " ") for name in rows[key]] for key in ("0-19", "tens"))
    if code != "fr":
        compound = _COMPOUNDS[code].format
        units = [first[1].removesuffix("s") if code == "de" else first[1], *first[2:10]]
        tens = [[ten, *(compound(ten, unit) for unit in units)] for ten in bases]
        return [[_spelled(name, code)] for name in itertools.chain(first, *tens)]
    names = [[name] for name in first]
    for value in range(20, 100):
        ten, unit = divmod(value, 10)
        # Seventy is "soixante-dix" or "septante".
        parts = [(bases[ten - 2], unit)] + [(bases[ten - 3], 10 + unit)] * (ten in (7, 9))
        names.append(
            [
                f"{base}{joint}{first[rest]}" if rest else base
                for base, rest in parts
                for joint in (" ", " et ")
            ]
        )
    return names


def _spelled(name: str, code: str) -> str:
    """A compound as it is written: `ventuno`, `tweeëntwintig`, `veintidós`."""
    if code == "it":
        return re.sub("[ai](?=uno|otto$)", "", re.sub("(?<=.)tre$", "tré", name))
    if code == "nl":
        return re.sub("(?<=twee|drie)en", "ën", name)
    if code == "es" and name.startswith("veinte "):
        last = name[9:]
        accents = {"dos": "dós", "tres": "trés", "seis": "séis"}
        return f"veinti{accents.get(last, last)}"
    return name


def _english_forms(name: str, _value: int) -> Iterator[str]:
    before, _, last = name.rpartition(" ")
    regular = f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"
    ordinal = _ENGLISH_ORDINALS.get(last, regular)
    for form in (ordinal, f"{ordinal}s", re.sub("y$", "ie", last) + "s"):
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


def _no_forms(_name: str, _value: int) -> Iterator[str]:
    return iter(())


# What else is made from the words of a number: ordinals, plurals, cases.
_FORMS: dict[str, Callable[[str, int], Iterator[str]]] = {
    "en": _english_forms,
    "de": _german_forms,
    "fr": _french_forms,
    "es": _no_forms,
    "pt": _no_forms,
    "it": _italian_forms,
    "nl": _dutch_forms,
}


@functools.cache
def _german_prefix() -> re.Pattern[str]:
    names = sorted(itertools.chain(*_names("de")[2:]), key=len, reverse=True)
    return re.compile("|".join(names))


@functools.lru_cache(limits.MAX_KEPT_WORDS)
def _german(word: str) -> int | None:
    """The value of a German compound: `dreihundertzwanzig`, `fünfjährig`; None if it has none."""
    if len(word) > limits.MAX_WORD_LETTERS:
        return None
    known = _known("de")
    for name, scale in (("tausend", 1000), ("hundert", 100)):
        left, separator, right = word.partition(name)
        if separator:
            value = known.get(left) if left else 1
            if value is None:
                value = _german(left)
            if value is not None:
                rest = known.get(right.removeprefix("und"))
                return value * scale + (_german(right) or 0 if rest is None else rest)
    match = _german_prefix().match(word)
    return None if match is None else known[match[0]]


def _of_han(signs: str) -> float:
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
