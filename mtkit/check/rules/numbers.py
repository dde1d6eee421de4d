"""Numbers in digits, compared by value: 1,000 is 1.000 and 1 000, and 2:30 pm is 14h30.

A number is read in two steps: its digits, by the kinds in `DIGITS`, and what stands behind them, by
the kinds in `ENDINGS`. Then the numbers of both sides of a pair are matched.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from mtkit.base.text import base_language
from mtkit.check.rules import limits
from mtkit.check.rules.number_words import (
    InWords,
    marks_of,
    numbers_in_words,
    roman,
)
from mtkit.check.rules.scales import SPACES, is_unspaced, scales_of

Reading = float | str

_DIGIT, _DIGITS, _NO_DIGIT = re.compile(r"\d"), re.compile(r"\d+"), re.compile(r"\D")
# The mark between thousands, of languages whose decimal mark is another one.
_THOUSANDS = {"en": ",", "de": ".", "zh": ",", "ja": ",", "ko": ",", "th": ","}
# The Arabic marks of decimals and thousands.
_ARABIC_MARKS = str.maketrans("٫٬", ".,")
# The end of a range, whose thousands or scale may be given once: "5-6,000", "5 to 6 million".
_RANGE = re.compile(
    rf"-?[{SPACES}]?(?:[-–—~～至到から]|[^\W\d_]{{1,5}})[{SPACES}]?"
    rf"\d{{1,3}}(?:(?P<thousands>[.,{SPACES}]000(?!\d))|[.,]\d+)?"
)
# Both ends of a range, whose numbers may be listed on the other side.
_RANGE_ENDS = re.compile(
    rf"(?<!\d)(\d{{1,3}})[{SPACES}]?"
    rf"(?:[-–—~～]|to|bis|till?|tot|à|au|al?|do|až|до|по|から|至|到)[{SPACES}]?(\d{{1,3}})(?!\d)"
)
_ROMAN = re.compile(r"\b(?=[IVX]{2})X{0,3}(?:I[XV]|V?I{0,3})(?<=[IVX]{2})(?=(?:er|ème|e)?\b)")
_HALF = re.compile(rf"[{SPACES}](?:et demie?|and a half|und eine halbe)\b")
_THAI = re.compile("[\u0e00-\u0e7f]")
# Languages whose clocks have 24 hours, unless a word of `afternoon` is there.
_HAS_24_HOURS = re.compile(
    "de|fr|es|it|pt|ca|gl|ro|nl|sv|da|nb|nn|fi|et|lv|lt|hu|pl|cs|sk|sl|hr|bs|sr|bg|ru|uk|tr|zh|ja|vi"
)
# The year before the first one of an era.
_ERAS = {"明治": 1867, "大正": 1911, "昭和": 1925, "平成": 1988, "令和": 2018, "民國": 1911}
_ERA = re.compile(f"({'|'.join(_ERAS)}) ?$")
_DECADE = re.compile(r"['’]?s\b")
# One half is ½, 1/2 or 0.5, and two and a half is 2½, 2 1/2 or 2.5.
_FRACTION = re.compile(
    rf"(?<![\d/.,])(?:(?P<whole>\d{{1,4}})(?:[{SPACES}-]|(?=[¼½¾⅓⅔⅛])))?"
    r"(?:(?P<over>\d{1,2})/(?P<under>[1-9]\d?)(?![\d/])|(?P<sign>[¼½¾⅓⅔⅛]))"
)
_TIME = re.compile(
    rf"\d[{SPACES}]?[hH]\b|\d:\d\d|\b(?:heures?|Uhr|o['’]clock|noon|midi\b)|[\d ][ap]\.? ?m\b",
    re.IGNORECASE,
)
# Measures that a good translation may convert, from or to these. A quotation mark is a measure if
# the other side has a metric one.
_MEASURES = {
    "imperial": re.compile(
        rf"[{SPACES}-]?(?:[′″]|(?:cubic |square )?(?:feet|foot|ft|inch(?:es)?|in\.|yards?|miles?"
        r"|mph|pounds?|lbs?|ounces?|oz|gallons?|acres?|°?F|pieds?|pouces?|milles|livres|Fuß"
        r"|Zoll|Meilen?|Pfund)\b)"
    ),
    "metric": re.compile(
        rf"[{SPACES}-]?(?:de )?(?:cm|m|km|kg|k?meters?|(?:kilo|centi)?m[eè]tres?"
        r"|(?:Kilo|Zenti|Kubik|Quadrat)?[Mm]etern?|km/h|°?C|litres?|Liter|hectares?|Hektar|kilos?|Kilo)\b"
    ),
    "mark": re.compile(r"['\"”]"),
    "am": re.compile(rf"[{SPACES}]?[aA]\.?[{SPACES}]?[mM]\b"),
    "pm": re.compile(rf"[{SPACES}]?[pP]\.?[{SPACES}]?[mM]\b"),
}
# What makes a number negative, before it and behind it, and what may do so anywhere in a text.
_BEFORE_ZERO = rf"(?:(?<![^\s(\[])(?<!\d )[-–]|−|(?:{marks_of('minus')})[{SPACES}]?)"
_NEGATIVE = re.compile(rf"{_BEFORE_ZERO}$", re.IGNORECASE)
_BELOW_ZERO = rf"[{SPACES}]?(?:°|\w+)?[CF]?[{SPACES}]?(?:{marks_of('below')})"
_BELOW = re.compile(_BELOW_ZERO, re.IGNORECASE)
_MAY_BE_NEGATIVE = re.compile(
    rf"[-–−]\s?\d|{marks_of('minus')}|{marks_of('below')}|{marks_of('less')}", re.IGNORECASE
)
# The hours after noon of a clock with twelve; other clocks have 24, unless a word says so.
_PM = re.compile(rf"\d{_MEASURES['pm'].pattern}")
_AFTERNOON = re.compile(marks_of("afternoon"), re.IGNORECASE)
# Signs and clocks that may be lost although the digits are the same.
_MARKED = re.compile(rf"{_PM.pattern}|{_BEFORE_ZERO}\d|\d{_BELOW_ZERO}", re.IGNORECASE)
_IMPERIAL_WORD = re.compile(
    r"\b(?:feet|inch|inches|yards?|miles?|pounds?|ounces?|gallons?|acres?|cups?)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a text.

    Attributes:
        text: as it is there, with a word such as "million"; a number in words too.
        start: the place of its first character; None of a number in words.
        readings: all values that it may have.
        scaled: those with a word such as "million", or with thousands, if there are any.
        measures: the keys of `_MEASURES` of what follows, and "minus" of what is surely negative.
    """

    text: str
    start: int | None
    readings: frozenset[Reading]
    scaled: frozenset[Reading] = frozenset()
    measures: frozenset[str] = frozenset()

    @property
    def end(self) -> int:
        """The index after its last character."""
        return (self.start or 0) + len(self.text)

    @property
    def span(self) -> range | None:
        """Its characters, if it is in digits."""
        return None if self.start is None else range(self.start, self.end)


def has_digit(text: str) -> bool:
    """Whether a text may have a number in digits."""
    return _DIGIT.search(text) is not None


# ---------------------------------------------------------------------------------------------
# The numbers of a text


class _Reader:
    """Reads one number: a method for each kind of it adds to `readings` and moves `end`."""

    def __init__(
        self, text: str, start: int, digits: str, *, language: str, is_exact: bool
    ) -> None:
        self.text, self.start, self.digits = text, start, digits
        self.thousands, self.is_exact = _THOUSANDS.get(language, ""), is_exact
        self.scales = scales_of(language)
        self.digits_end = self.end = start + len(digits)
        self.readings: set[Reading] = set()
        self.scaled: set[Reading] = set()
        # Whether the words that follow can be nothing but scales.
        self.is_clear = False

    def long(self) -> None:
        """Digits that are compared as text."""
        self.readings = {_NO_DIGIT.sub("", self.digits)}

    def whole(self) -> None:
        """The value; of two digits, also the year without its century."""
        value = int(self.digits)
        self.readings = {value, 1900 + value, 2000 + value} if len(self.digits) == 2 else {value}

    def point(self) -> None:
        """The decimal, and the number without its point: a calibre is written in both ways."""
        self.readings = {float(self.digits), int(self.digits[1:])}

    def clock(self) -> None:
        """A time or a proportion: the text of it, and the hour if that is all."""
        hour, minute = map(int, _DIGITS.findall(self.digits))
        self.readings.add(f"{hour}:{minute}")
        if not minute:
            self.readings.add(hour)

    def separated(self) -> None:
        """With marks between thousands, with a decimal mark, or with both."""
        digits = _NO_DIGIT.sub("", self.digits)
        marks = _NO_DIGIT.findall(self.digits)
        head, tail = self.digits.rsplit(marks[-1], 1)
        if len(tail) == 3 and not (len(marks) == 1 and (len(head) > 3 or head.startswith("0"))):
            self.readings.add(int(digits))
            if marks[-1] == self.thousands:
                # It may be 5 where the word for thousand is not known, but never 5 million.
                self.scaled = set(self.readings) if tail == "000" else set()
                if tail != "000" or self.is_exact:
                    return
        if marks[-1] in ".," and marks.count(marks[-1]) == 1:
            self.readings.add(round(float(f"{_NO_DIGIT.sub('', head)}.{tail}"), 9))
            if marks == ["."] and len(tail) == 2:
                self.clock()
        if not self.readings:
            self.readings.add(int(digits))
        if tail == "000" and not self.scaled:
            self.scaled = set(self.readings)

    def scale(self) -> None:
        """The products with the words that follow."""
        scaled, factors = self._values(), self.scales.factors
        for _ in range(limits.MAX_SCALES):
            word, self.end = self.scales.at(self.text, self.end)
            if not word:
                break
            scaled = {round(value * x, 6) for value in scaled for x in factors.get(word, ())}
            if _HALF.match(self.text, self.end):
                scaled |= {value + x / 2 for value in scaled for x in factors.get(word, ())}
            self.readings |= scaled
            self.is_clear |= word in self.scales.clear
        if self.is_clear:
            self.scaled = set(scaled)
            if self.is_exact:
                self.readings = set(scaled)

    def decade(self) -> None:
        """A decade or a century, by its years."""
        is_year = re.fullmatch(r"\d{3}0", self.digits) and self.end == self.digits_end
        if is_year and _DECADE.match(self.text, self.end):
            year = int(self.digits)
            self.readings.add(year % 100 or year // 100 + 1)

    def range_end(self) -> None:
        """The first number of a range, whose last one has the thousands or the scale of both."""
        if upper := _RANGE.match(self.text, self.end):
            word = "" if upper["thousands"] else self.scales.at(self.text, upper.end())[0]
            factors = (1000,) if upper["thousands"] else self.scales.factors.get(word, ())
            self.readings |= {value * factor for value in self._values() for factor in factors}

    def german_date(self) -> None:
        """The day of a German date without its year."""
        written = self.written
        if written.find(".") > 0 and self.text.startswith(".", self.end):
            day = _NO_DIGIT.sub("", written.partition(".")[0])
            self.readings.add(int(day[: limits.MAX_DIGITS]))

    def calendar(self) -> None:
        """The western year of a year of Thailand, or of an era of Japan or Taiwan."""
        if re.fullmatch(r"2[45]\d\d", self.digits) and _THAI.search(self.text):
            self.readings.add(int(self.digits) - 543)
        era = _ERA.search(self.text, max(0, self.start - 3), self.start)
        if era and len(self.digits) <= 3:
            self.readings.add(_ERAS[era[1]] + int(self.digits))

    def _values(self) -> set[float]:
        return {value for value in self.readings if not isinstance(value, str)}

    @property
    def written(self) -> str:
        return self.text[self.start : self.end] if self.is_clear else self.digits

    def number(self) -> Number:
        # The m of metres may be read as that of millions.
        measures = frozenset(
            name
            for name, pattern in _MEASURES.items()
            if any(pattern.match(self.text, end) for end in (self.digits_end, self.end))
        )
        readings, scaled = frozenset(self.readings), frozenset(self.scaled)
        if _NEGATIVE.search(self.text, max(0, self.start - 12), self.start) or _BELOW.match(
            self.text, self.digits_end
        ):
            measures |= {"minus"}
        return Number(self.written, self.start, readings, scaled, measures)


# The ways to write the digits; the first pattern that matches decides.
DIGITS: dict[str, tuple[Callable[[_Reader], None], str]] = {
    "grouped": (
        _Reader.separated,
        r"(?<!\d)\d{1,3}(?:[ \u00a0\u2009\u202f'’]\d{3}(?!\d))+(?:[.,]\d+)?",
    ),
    "clock": (
        _Reader.clock,
        rf"(?<!\d)\d{{1,2}}[{SPACES}]?(?:h|H|heures?|Uhr|[时時点點시])[{SPACES}]?\d\d(?!\d)",
    ),
    "point": (_Reader.point, r"(?<![\w.,)])\.\d+(?![.,]?\d)"),
    "whole": (_Reader.whole, r"\d++(?![.,:]\d)"),
    "proportion": (_Reader.clock, r"\d++:\d++(?![.,:]\d)"),
    "separated": (
        _Reader.separated,
        r"(?:\d++[.,]\d++|\d\d?(?:,\d\d)+,\d{3}(?!\d)|\d{1,3}(?:(?:\.\d{3}){2,}|(?:,\d{3}){2,})(?!\d)"
        r"|(?=\d++(?:\.\d++)*+,\d)(?=\d++(?:,\d++)*+\.\d)\d{1,3}(?:[.,]\d{3})+[.,]\d++)(?![.,:]\d)",
    ),
    # And versions: each part is a number.
    "date": (_Reader.whole, r"\d+(?:[.,:]\d+)+"),
}
# What follows a number and changes its value, in this order.
ENDINGS = (
    *(_Reader.scale, _Reader.decade, _Reader.range_end),
    *(_Reader.german_date, _Reader.calendar),
)
_NUMBER = re.compile("|".join(f"(?P<{name}>{pattern})" for name, (_, pattern) in DIGITS.items()))


def numbers_of(text: str, *, lang: str = "", is_exact: bool = True) -> list[Number]:
    """The numbers in digits of a text.

    Args:
        is_exact: False if "5,000" and "5 million" may be a 5 on the other side, because its scale
            is not known, or is said once for several numbers.
    """
    language = base_language(lang)
    text = text.translate(_ARABIC_MARKS)
    numbers: list[Number] = []
    last_end = 0
    for start, digits, read in _digits_of(text):
        reader = _Reader(text, start, digits, language=language, is_exact=is_exact)
        for step in (read, *ENDINGS):
            step(reader)
        number = reader.number()
        is_part = is_unspaced(text[last_end - 1 : last_end]) and text[last_end:start] in ("", " ")
        if is_part and numbers and len(numbers[-1].text) < limits.MAX_DIGITS:
            number = _joined(numbers, number, text)
        numbers.append(number)
        last_end = reader.end
    return numbers


def _digits_of(text: str) -> Iterator[tuple[int, str, Callable[[_Reader], None]]]:
    """The index, the digits and the reader of each number; a date has several."""
    for match in _NUMBER.finditer(text):
        kind = match.lastgroup or ""
        parts = _DIGITS.finditer(text, *match.span()) if kind == "date" else [match]
        for part in parts:
            is_long = len(_NO_DIGIT.sub("", part[0])) > limits.MAX_DIGITS
            yield part.start(), part[0], _Reader.long if is_long else DIGITS[kind][0]


def _joined(numbers: list[Number], second: Number, text: str) -> Number:
    """A number with the one before it, if they are two parts of one such as 1万5000."""
    first = numbers[-1]
    sums = frozenset(
        value + other
        for value in first.scaled or first.readings
        for other in second.scaled or second.readings
        if not isinstance(value, str) and not isinstance(other, str) and other < value
    )
    if not sums:
        return second
    start = numbers.pop().start
    written = text[start : second.end]
    return replace(second, text=written, start=start, readings=sums, scaled=sums)


# ---------------------------------------------------------------------------------------------
# The numbers of a pair


@dataclass(frozen=True, slots=True)
class Unmatched:
    """The numbers of a pair without a partner: those in digits, and those in words beside them."""

    src: list[Number]
    tgt: list[Number]

    @property
    def is_large(self) -> bool:
        """Whether one has two digits or more; smaller numbers are often written in words."""
        numbers = (*self.src, *self.tgt)
        return any(n.start is not None and len(_digits([n])) > 1 for n in numbers)


class _Pair:
    """The numbers of both sides without a partner: a method for each kind removes some."""

    def __init__(self, texts: tuple[str, str], languages: tuple[str, str]) -> None:
        self.texts, self.languages = texts, languages
        scales = [scales_of(language) for language in languages]
        is_known = all(words.is_known for words in scales)
        self.numbers = [
            numbers_of(text, lang=lang, is_exact=is_known and not words.has_clear(other))
            for text, lang, other, words in zip(
                texts, languages, reversed(texts), reversed(scales), strict=True
            )
        ]
        self.rest = self.numbers
        self.is_converted = may_be_converted(*texts)
        signs = [bool(_MAY_BE_NEGATIVE.search(text)) for text in texts]
        self.is_sign_lost = signs[0] != signs[1]
        # Whether a clock has 24 hours, as only the other side says that it is after noon.
        is_pm = [bool(_PM.search(text) or _AFTERNOON.search(text)) for text in texts]
        self.has_24_hours = [
            other and not this and bool(_HAS_24_HOURS.fullmatch(base_language(language)))
            for this, other, language in zip(is_pm, reversed(is_pm), languages, strict=True)
        ]

    def are_equal(self, src: Number, tgt: Number) -> bool:
        """Whether two numbers may have the same value; 3.5 million is not 3.5 billion."""
        if src.scaled and tgt.scaled:
            is_equal = not src.scaled.isdisjoint(tgt.scaled)
        else:
            is_equal = not src.readings.isdisjoint(tgt.readings)
        return is_equal and not self._are_marked_otherwise(src, tgt)

    def are_at_one_time(self, src: Number, tgt: Number) -> bool:
        """Whether two numbers may be the same time, of a clock with 12 hours or with 24."""
        src_hours, tgt_hours = map(_hours, (src, tgt), self.has_24_hours)
        return not src_hours.isdisjoint(tgt_hours)

    def _are_marked_otherwise(self, src: Number, tgt: Number) -> bool:
        """Whether one has lost its sign, or is in the other half of the day."""
        marks = src.measures ^ tgt.measures
        side = "pm" in src.measures
        return ("minus" in marks and self.is_sign_lost) or (
            "pm" in marks and self.has_24_hours[side] and not self.are_at_one_time(src, tgt)
        )

    def equal(self) -> None:
        """The same value on the other side; first the whole value, then also without its scale."""
        self._match(
            lambda src, tgt: (
                not (src.scaled or src.readings).isdisjoint(tgt.scaled or tgt.readings)
                and not self._are_marked_otherwise(src, tgt)
            )
        )
        self._match(self.are_equal)

    def listed(self) -> None:
        """All numbers between the ends of a range on the other side."""
        for text, others in zip(self.texts, reversed(self.rest), strict=True):
            for first, last in _RANGE_ENDS.findall(text) if others else ():
                between = range(int(first) + 1, int(last))
                listed = [n for n in others if not n.readings.isdisjoint(between)]
                if len(listed) == len(between):
                    others[:] = [number for number in others if number not in listed]

    def fractions(self) -> None:
        """Fractions of one side that are decimals on the other."""
        for text, numbers, others in zip(self.texts, self.rest, reversed(self.rest), strict=True):
            if not others:
                continue
            for match in itertools.islice(_FRACTION.finditer(text), limits.MAX_NUMBERS):
                part = unicodedata.numeric(match["sign"]) if match["sign"] else None
                value = int(match["over"]) / int(match["under"]) if part is None else part
                value += int(match["whole"] or 0)
                for other in others[: limits.MAX_NUMBERS]:
                    if any(
                        not isinstance(x, str) and abs(x - value) < limits.MAX_ROUNDING
                        for x in other.readings
                    ):
                        others.remove(other)
                        span = range(*match.span())
                        numbers[:] = [number for number in numbers if number.start not in span]
                        break

    def times(self) -> None:
        """Times of a clock with 12 hours and of one with 24."""
        if all(self.rest) and any(map(_TIME.search, self.texts)):
            self._match(self.are_at_one_time)

    def durations(self) -> None:
        """An hour and minutes that are minutes, or 1.5 hours, on the other side."""
        for some, others in (self.rest, reversed(self.rest)):
            if len(others) == 1 and (minutes := _minutes(some)):
                readings = set(others[0].readings) if "min" in "".join(self.texts) else set()
                readings |= {60 * value for value in others[0].readings if isinstance(value, float)}
                if not minutes.isdisjoint(readings):
                    self.rest = [[], []]

    def cut_elsewhere(self) -> None:
        """Telephone numbers and dates whose digits are cut elsewhere; not 1.5 and 15."""
        src, tgt = self.rest
        if _digits(src) == _digits(tgt) and (
            len(src) != len(tgt)
            or not any(
                _digits([number]) == _digits([other])
                and (
                    (number.scaled and other.scaled)
                    or _has_point(number)
                    or _has_point(other)
                    or self._are_marked_otherwise(number, other)
                )
                for number, other in zip(src, tgt, strict=True)
            )
        ):
            self.rest = [[], []]

    def measures(self) -> None:
        """Feet and inches, and the like, that are metric on the other side."""
        sides = []
        for others in reversed(self.rest):
            is_metric = any("metric" in other.measures for other in others)
            sides.append({"imperial", "mark"} if is_metric else {"imperial"})
        is_imperial = any(
            not imperial.isdisjoint(number.measures)
            for rest, imperial in zip(self.rest, sides, strict=True)
            for number in rest
        )
        if self.is_converted or is_imperial:
            self.rest = [
                [number for number in rest if number.measures.isdisjoint({"metric", *imperial})]
                for rest, imperial in zip(self.rest, sides, strict=True)
            ]

    def words(self) -> None:
        """Numbers that the other side has in words; those that became other ones are added."""
        words = [numbers_in_words(*side) for side in zip(self.texts, self.languages, strict=True)]
        # "One" is also an article: it answers nothing where there may be another answer.
        weak = {0.0, 1.0} if all(self.rest) else set[float]()
        self.rest = [
            [number for number in rest if _spoken(number).isdisjoint(others.values - weak)]
            for rest, others in zip(self.rest, reversed(words), strict=True)
        ]
        self.cut_elsewhere()
        for this, other in ((0, 1), (1, 0)):
            rest = self.rest[this]
            if rest and not self.rest[other] and not self.is_converted:
                # Only those that may have become one of `rest`, as they have as many digits.
                sizes = {size for n in rest for size in (len(n.text), len(_digits([n])))}
                self.rest[other] = [
                    number
                    for number in _missing(words[other], self.numbers[this], words[this])
                    if any(len(f"{value:.0f}") in sizes for value in number.readings)
                ]
                break

    def _match(self, are_equal: Callable[[Number, Number], bool]) -> None:
        """Remove the numbers that are equal to one of the other side, each used once."""
        most = limits.MAX_NUMBERS
        # Those with one reading first: the 12 of 20.12.2012 may also be that year.
        src, tgt = (
            sorted(side[:most], key=lambda number: len(number.readings)) for side in self.rest
        )
        rest = []
        for number in src:
            for index, other in enumerate(tgt):
                if are_equal(number, other):
                    del tgt[index]
                    break
            else:
                rest.append(number)
        self.rest = [
            sorted(some, key=lambda number: number.start or 0) + side[most:]
            for some, side in zip((rest, tgt), self.rest, strict=True)
        ]


# How a number may be written on the other side, in this order.
ANSWERS = (
    *(_Pair.equal, _Pair.listed, _Pair.fractions, _Pair.times, _Pair.durations),
    *(_Pair.cut_elsewhere, _Pair.measures, _Pair.words),
)


def unmatched(source: str, translation: str, *, src_lang: str, tgt_lang: str) -> Unmatched:
    """The numbers of each side for which the other side has neither digits nor words."""
    # Most pairs have the same digits, and no scales.
    texts, languages = (source, translation), (src_lang, tgt_lang)
    if sorted(_DIGITS.findall(source)) == sorted(_DIGITS.findall(translation)) and not any(
        scales_of(language).has_clear(text) or _MARKED.search(text)
        for text, language in zip(texts, languages, strict=True)
    ):
        return Unmatched([], [])
    pair = _Pair(texts, languages)
    for answer in ANSWERS:
        if any(pair.rest):
            answer(pair)
    return Unmatched(*pair.rest)


def may_be_converted(source: str, translation: str) -> bool:
    """Whether a text has imperial measures."""
    return any(map(_IMPERIAL_WORD.search, (source, translation)))


def changed_words(source: str, translation: str, *, src_lang: str, tgt_lang: str) -> Unmatched:
    """The numbers in words of both sides that the other side does not have; both, or none."""
    src_words = numbers_in_words(source, src_lang)
    tgt_words = numbers_in_words(translation, tgt_lang)
    if not (src_words.certain and tgt_words.certain) or src_words.has_half or tgt_words.has_half:
        return Unmatched([], [])
    if may_be_converted(source, translation):
        return Unmatched([], [])
    src = _missing(src_words, numbers_of(translation, lang=tgt_lang), tgt_words)
    tgt = _missing(tgt_words, numbers_of(source, lang=src_lang), src_words)
    return Unmatched(src, tgt) if src and tgt else Unmatched([], [])


def changed_roman(source: str, translation: str) -> Unmatched:
    """The Roman numbers of both sides, such as XIV, that the other side has not; both, or none."""
    sides = [
        [Number(m[0], m.start(), frozenset([roman(m[0])])) for m in _ROMAN.finditer(text)]
        for text in (source, translation)
    ]
    values = [{value for n in side for value in n.readings} for side in sides]
    src, tgt = (
        [number for number in side if number.readings.isdisjoint(others)]
        for side, others in zip(sides, reversed(values), strict=True)
    )
    return Unmatched(src, tgt) if src and tgt else Unmatched([], [])


def _has_point(number: Number) -> bool:
    """Whether it is surely a decimal number, and not also thousands or a time."""
    values = number.readings
    is_time = any(isinstance(value, str) for value in values)
    return not is_time and int(_digits([number])) not in values


def _hours(number: Number, has_24_hours: bool) -> set[str]:
    """The values of a number as times of a clock with 24 hours; 7 may be 7 or 19, but not 7 am."""
    times: set[str] = set()
    for value in number.readings:
        hour, _, minute = str(value).partition(":")
        if hour.isdecimal() and len(hour) <= 2 and int(hour) <= 24:
            halves = [0] * ("pm" not in number.measures) + [12] * ("am" not in number.measures)
            is_24 = int(hour) > 12 or (has_24_hours and "pm" not in number.measures)
            hours = [int(hour)] if is_24 else [int(hour) % 12 + half for half in halves]
            times.update(f"{hour % 24}:{int(minute or 0)}" for hour in hours)
    return times


def _minutes(numbers: Sequence[Number]) -> set[Reading]:
    """The minutes that a time is, or an hour and minutes."""
    clocks = (value for number in numbers for value in number.readings if isinstance(value, str))
    parts = [clock.split(":") for clock in clocks if ":" in clock]
    minutes: set[Reading] = {60 * int(hour) + int(minute) for hour, minute in parts}
    if len(numbers) == 2:
        hours, rests = ([value for value in n.readings if value != str(value)] for n in numbers)
        minutes.update(60 * float(hour) + float(rest) for hour in hours for rest in rests)
    return minutes


def _spoken(number: Number) -> set[Reading]:
    """The values of a number in words; those of 2:30 are two and three, as in "halb drei"."""
    values = set(number.readings)
    for value in number.readings:
        if isinstance(value, str) and ":" in value:
            hour = int(value.partition(":")[0])
            values.update((hour, hour + 1, hour - 12, hour - 11))
    return values


def _digits(numbers: Sequence[Number]) -> str:
    return _NO_DIGIT.sub("", "".join(number.text for number in numbers))


def _missing(words: InWords, others: Sequence[Number], other_words: InWords) -> list[Number]:
    """The numbers in words that the other side has neither in digits nor in words."""
    there = other_words.values.union(*map(_spoken, others))
    return [
        Number(text, None, frozenset([value]))
        for value, text in words.certain
        if value not in there
    ]
