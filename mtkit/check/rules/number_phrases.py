"""Times, dates, fractions and ordinals in words, Roman numbers, and copied marks of thousands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mtkit.base.text import base_language
from mtkit.check.rules.number_matching import FLOOR, HOUR, Unmatched
from mtkit.check.rules.number_reading import THOUSANDS, Number, numbers_of
from mtkit.check.rules.number_words import (
    REIGN,
    dates_of,
    fractions_in_words,
    numbers_in_words,
    of_han,
    roman,
    times_in_words,
)

_ROMAN = re.compile(r"\b(?=[IVX]{2})X{0,3}(?:I[XV]|V?I{0,3})(?<=[IVX]{2})(?=(?:er|ème|e)?\b)")
# Languages that write 1,250 for one and a quarter alone; in Spanish it depends on the country.
_HAS_DECIMAL_COMMA = re.compile(
    "de|fr|it|pt|ca|gl|ro|nl|sv|da|nb|nn|no|fi|et|lv|lt|hu|pl|cs|sk|sl|hr|bs|sr|mk|bg|ru|uk|be|el|tr|id"
)
# Not in a list, as in "96, 99,105, 111".
_COPIED = {
    mark: re.compile(rf"(?<![\d.,])(?<!\d, )[1-9]\d{{0,2}}{mark}\d{{3}}(?!\d|[.,] ?\d)")
    for mark in (",", r"\.")
}
# A name with a Roman number.
_NAMED = re.compile(r"\b([^\W\d_a-z]\w+) ([IVX]{1,4})\b(?!['’])")


def changed_date(
    source: str, translation: str, *, src_lang: str, tgt_lang: str
) -> tuple[str, str] | None:
    """A month or a day of the week that became another one: both names."""
    src, tgt = dates_of(source, src_lang), dates_of(translation, tgt_lang)
    missing, added = sorted(src.keys() - tgt.keys()), sorted(tgt.keys() - src.keys())
    # With more names on one side, something else may have them too, as a date in digits.
    if len(src) != len(tgt) or not missing:
        return None
    return src[missing[0]], tgt[added[0]]


def changed_roman(source: str, translation: str) -> Unmatched:
    """The Roman numbers of both sides, such as XIV, that the other side has not; both, or none."""
    texts = (source, translation)
    sides = [
        [*map(_roman_number, _ROMAN.finditer(text))]
        + [Number(m[0], m.start(), frozenset([of_han(m[1])])) for m in REIGN.finditer(text)]
        for text in texts
    ]
    for this, other in ((0, 1), (1, 0)):
        # A letter alone may be none: it counts behind a name that has another number elsewhere.
        if sides[other] and not sides[this]:
            names = [match[1] for match in _NAMED.finditer(texts[other]) if len(match[2]) > 1]
            names += REIGN.findall(texts[other])
            sides[this] = [
                _roman_number(match, 2)
                for match in _NAMED.finditer(texts[this])
                if len(match[2]) == 1 and any(_may_be_equal(match[1], name) for name in names)
            ]
    values = [{value for n in side for value in n.readings} for side in sides]
    src, tgt = (
        [number for number in side if number.readings.isdisjoint(others)]
        for side, others in zip(sides, reversed(values), strict=True)
    )
    return Unmatched(src, tgt) if src and tgt else Unmatched([], [])


def _roman_number(match: re.Match[str], group: int = 0) -> Number:
    return Number(match[group], match.start(group), frozenset([roman(match[group])]))


def _may_be_equal(name: str, other: str) -> bool:
    """Whether two words may be the same name: they begin alike, or are in two scripts."""
    return name[0] == other[0] or name.isascii() != other.isascii()


def changed_fraction(
    source: str, translation: str, *, src_lang: str, tgt_lang: str
) -> tuple[str, str] | None:
    """The words of a fraction of each side, such as half and a third, if they are two."""
    if not fractions_in_words(source):
        return None
    sides = ((source, src_lang), (translation, tgt_lang))
    return _changed_value(*(fractions_in_words(times_in_words(*side)[1]) for side in sides))


def changed_time(
    source: str, translation: str, *, src_lang: str, tgt_lang: str
) -> tuple[str, str] | None:
    """The times of each side, such as "half past two" and "halb zwei", if they are two."""
    sides = ((source, src_lang), (translation, tgt_lang))
    for kind, in_digits in ((":", _times), ("½", _halves)):
        said = [times_in_words(*side, kind)[0] for side in sides]
        if any(said):
            values = (own or in_digits(*side) for own, side in zip(said, sides, strict=True))
            if changed := _changed_value(*values):
                return changed
    return None


def _times(text: str, language: str) -> dict[float, str]:
    """The times in digits of a text, in minutes of 12 hours."""
    numbers = numbers_of(text, lang=language)
    times = {(n, str(x)) for n in numbers for x in n.readings if ":" in str(x)}
    for number in numbers:
        end = (number.start or 0) + len(number.text)
        if len(number.digits) < 3 and (number.measures & {"am", "pm"} or HOUR.match(text, end)):
            times.add((number, f"{number.digits}:0"))
    read = ((number.text, [*map(int, time.split(":"))]) for number, time in times)
    return {(60 * time[0] + time[1]) % 720: name for name, time in read}


def _halves(text: str, language: str) -> dict[float, str]:
    """The numbers in digits and a half, in sixtieths."""
    numbers = numbers_of(text, lang=language)
    values = ((n, x) for n in numbers for x in n.readings if not isinstance(x, str))
    return {60 * x: n.text for n, x in values if x % 1 == 0.5}


def changed_ordinal(
    source: str, translation: str, *, src_lang: str, tgt_lang: str
) -> tuple[str, str] | None:
    """The ordinals in words of each side, such as "second" and "dritte", if they are two."""
    sides = ((source, src_lang), (translation, tgt_lang))
    src, tgt = (numbers_in_words(*side).ordinals for side in sides)
    if any(map(FLOOR.search, (source, translation))) and abs(sum(src) - sum(tgt)) < 2:
        return None
    return _changed_value(src, tgt)


def _changed_value(src: Mapping[Any, str], tgt: Mapping[Any, str]) -> tuple[str, str] | None:
    """The words of both sides, if each has one value and they differ; several are not compared."""
    if len(src) != 1 or len(tgt) != 1 or src.keys() == tgt.keys():
        return None
    return next(iter(src.values())), next(iter(tgt.values()))


def copied_thousands(source: str, translation: str, *, src_lang: str, tgt_lang: str) -> list[str]:
    """Thousands such as 1,250 that are copied into a language where they are a decimal."""
    marks = [THOUSANDS.get(base_language(lang)) for lang in (src_lang, tgt_lang)]
    if marks[0] == "," and _HAS_DECIMAL_COMMA.fullmatch(base_language(tgt_lang)):
        pattern = _COPIED[","]
    elif marks == [".", ","]:
        pattern = _COPIED[r"\."]
    else:
        return []
    theirs = set(pattern.findall(translation))
    return [number for number in pattern.findall(source) if number in theirs]
