"""Matches the numbers of both sides of a pair: 1,000 is 1.000 or 1 000, and 2:30 pm is 14h30."""

from __future__ import annotations

import functools
import itertools
import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from mtkit.base.text import base_language
from mtkit.check.rules import limits
from mtkit.check.rules.number_reading import (
    SCORE,
    Number,
    Reading,
    has_marks,
    numbers_of,
)
from mtkit.check.rules.number_words import (
    InWords,
    fractions_in_words,
    marks_of,
    numbers_in_words,
    phrase_values,
    single_words,
)
from mtkit.check.rules.scales import (
    SPACES,
    is_unspaced,
    scales_of,
    system_of,
    units,
    units_of_words,
)

_DIGITS, _DECIMAL = re.compile(r"\d+"), re.compile(r"\d[.,]\d")
# Both ends of a range, whose numbers may be listed on the other side.
_RANGE_ENDS = re.compile(
    rf"(?<!\d)(\d{{1,3}})[{SPACES}]?"
    rf"(?:[-–—~～]|to|bis|till?|tot|à|au|al?|do|až|до|по|から|至|到)[{SPACES}]?(\d{{1,3}})(?!\d)"
)
# Languages whose clocks have 24 hours, unless a word of `afternoon` is there.
_HAS_24_HOURS = re.compile(
    "de|fr|es|it|pt|ca|gl|ro|nl|sv|da|nb|nn|fi|et|lv|lt|hu|pl|cs|sk|sl|hr|bs|sr|bg|ru|uk|tr|zh|ja|vi"
)
# One half is ½, 1/2, 0.5 or 50 %, one in five is 20 %, and two and a half is 2½, 2 1/2 or 2.5.
_FRACTION = re.compile(
    rf"(?<![\d/.,])(?:(?P<whole>\d{{1,4}})(?:[{SPACES}-]|(?=[¼½¾⅓⅔⅛])))?"
    r"(?:(?P<over>\d{1,2})(?:/| (?:in|out of|sur|su|von|(?:de|em) cada|op(?: de)?|na|из) )"
    r"(?P<under>[1-9]\d?)(?![\d/])|(?P<sign>[¼½¾⅓⅔⅛]))"
)
_TIME = re.compile(
    rf"\d[{SPACES}]?[hH]\b|\d:\d\d|\b(?:heures?|Uhr|uur|o['’]clock|noon|midi\b)|[\d ][ap]\.? ?m\b",
    re.IGNORECASE,
)
# What "50K" may be on the other side: also 50 km, 50 KB, 50 K, and 401(k).
_LETTER = re.compile(
    rf"\d[{SPACES}(-]?(?:[千천]|[kmкм](?:[mgnbomмг]|r?ds?|ios?|b[iy]te?s?(?:/s)?|il\w*|ил[ог]\w*"
    r"|et(?:er|re)\w*|elvin)?(?![a-zа-яёà-ÿ]))",
    re.IGNORECASE,
)
# Behind an hour.
HOUR = re.compile(rf"[{SPACES}]?(?:h|Uhr|uur|o['’]clock|час\w*|बजे|[時时点點](?!間))(?![^\W\d_])")
# An hour that is surely after noon.
_LATE = re.compile(
    rf"(?<![\d.:,])(?:1[3-9]|2[0-4])"
    rf"(?:[.:]\d\d(?![.:]?\d)|[{SPACES}]?(?:h(?![^\W\d])|heures?|Uhr|uur|[时時点點시]))"
)
_MAY_BE_NEGATIVE = re.compile("|".join(map(marks_of, ("minus", "below", "less"))), re.IGNORECASE)
FLOOR = re.compile(marks_of("floor"), re.IGNORECASE)
_AFTERNOON = re.compile(marks_of("afternoon"), re.IGNORECASE)
_ONE_IN = re.compile(
    r"\b(?:in|out of|sur|su|von|cada|op|jede\w?|na|co|из|кажд\w+) \w|に", re.IGNORECASE
)
_LETTERS = re.compile(r"[^\W\d_]+")
_UNSPACED_UNITS = [word for word in units_of_words() if is_unspaced(word)]
# Behind a number: the yard of a house, and a foot or a cup that is one, were not converted.
_IMPERIAL_WORD = re.compile(
    r"(?:\d|\b(?:an?|per|half|few|several|many|square|cubic|hundred|thousand|million|billion"
    rf"|{'|'.join(single_words('en'))}))[\s-]{{0,2}}(?:cups?"
    rf"|{'|'.join(word for word in units_of_words() if system_of(word) == 'imperial')})\b",
    re.IGNORECASE,
)
# A small number that is surely written as a number on the other side, or as a word.
_COUNT = re.compile(
    rf"[2-9](?:(?:[.,]\d+)?[{SPACES}]?[%‰°]|[{SPACES}][^\W\d_]|[,;:!?](?= )|\.$"
    rf"|[\u3041-\u9fff](?<![年月日天時时点點分秒号號世級级]))"
)


@dataclass(frozen=True, slots=True)
class Unmatched:
    """The numbers of a pair without a partner: those in digits, and those in words beside them."""

    src: list[Number]
    tgt: list[Number]

    @property
    def is_large(self) -> bool:
        """Whether one has two digits or more; smaller numbers are often written in words."""
        numbers = (*self.src, *self.tgt)
        return any(n.start is not None and len(n.digits) > 1 for n in numbers)

    def are_counts(self, source: str, translation: str) -> bool:
        """Whether all are counts or measures of one digit, and none is a name, a list or a time."""
        sides = ((self.src, source), (self.tgt, translation))
        return all(
            number.start is not None
            and _COUNT.match(text, number.start)
            and text[: number.start][-1:] in ("", "(", *SPACES)
            and text.count(text[number.start]) == 1
            and number.measures.isdisjoint({"am", "pm"})
            for numbers, text in sides
            for number in numbers
        )


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
        self.may_be_negative = [bool(_MAY_BE_NEGATIVE.search(text)) for text in texts]
        # Whether a clock has 24 hours, as only the other side is surely after noon.
        is_pm = [
            any("pm" in n.measures for n in numbers) or bool(_AFTERNOON.search(text))
            for text, numbers in zip(texts, self.numbers, strict=True)
        ]
        self.has_24_hours = [
            not this and bool((other or _LATE.search(text)) and _HAS_24_HOURS.fullmatch(code))
            for this, other, text, code in zip(
                is_pm, reversed(is_pm), reversed(texts), map(base_language, languages), strict=True
            )
        ]

    def are_equal(self, src: Number, tgt: Number) -> bool:
        """Whether two numbers may have the same value; 3.5 million is not 3.5 billion."""
        if src.scaled and tgt.scaled:
            return not src.scaled.isdisjoint(tgt.scaled)
        return not src.readings.isdisjoint(tgt.readings)

    def are_at_one_time(self, src: Number, tgt: Number) -> bool:
        """Whether two numbers may be the same time, of a clock with 12 hours or with 24."""
        src_hours = _hours(src, has_24_hours=self.has_24_hours[0])
        return not src_hours.isdisjoint(_hours(tgt, has_24_hours=self.has_24_hours[1]))

    def _are_marked_otherwise(self, src: Number, tgt: Number) -> bool:
        """Whether one has lost its sign, or is in the other half of the day."""
        marks = src.measures ^ tgt.measures
        if marks >= {"am", "pm"} and not src.digits.startswith("12"):
            return True
        if "letter" in marks and src.digits == tgt.digits and not (src.scaled or tgt.scaled):
            return not _LETTER.search(self.texts["letter" in src.measures])  # "50K" is not 50.
        both = src.measures & tgt.measures
        if "letter" in both and src.digits == tgt.digits:
            return src.text[-1].lower() != tgt.text[-1].lower()
        if "version" in both and "." in src.text and "." in tgt.text and src.digits != tgt.digits:
            return True
        side = "pm" in src.measures
        if "pm" in marks and self.has_24_hours[side] and not self.are_at_one_time(src, tgt):
            return True
        # The side that has no sign, but perhaps a dash, or as in accounts brackets instead of it.
        side = "minus" in src.measures
        own = tgt.measures - src.measures if side else src.measures - tgt.measures
        has_sign = self.may_be_negative[side] or not own.isdisjoint({"dash", "brackets"})
        return "minus" in marks and not has_sign

    def equal(self) -> None:
        """The same value on the other side; first the whole value, then also without its scale."""
        self._match(
            lambda src, tgt: not (src.scaled or src.readings).isdisjoint(tgt.scaled or tgt.readings)
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
                sign, over, under = match.group("sign", "over", "under")
                part = unicodedata.numeric(sign) if sign else int(over) / int(under)
                value = part + int(match["whole"] or 0)
                for other in others[: limits.MAX_NUMBERS]:
                    if any(
                        min(abs(x - value), abs(x / 100 - value)) < limits.MAX_ROUNDING
                        for x in other.readings
                        if not isinstance(x, str)
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

    def scores(self) -> None:
        """Scores that are 3-1 on one side and 3:1 on the other, in any order."""
        matches = [[*SCORE.finditer(text)] for text in self.texts]
        src, tgt = (sorted(match.groups() for match in side) for side in matches)
        colons = [":" in match[0] for side in matches for match in side]
        if src and src == tgt and sum(colons) == len(src) and colons[0] == colons[len(src) - 1]:
            for rest, side in zip(self.rest, matches, strict=True):
                places = {place for match in side for place in range(*match.span())}
                rest[:] = [number for number in rest if number.start not in places]

    def sums(self) -> None:
        """A number with two scales, such as 1 billion 250 million, that has one on the other."""
        for some, others in (self.rest, reversed(self.rest)):
            if len(some) > len(others) == 1 and all(number.scaled for number in some):
                amounts = [
                    [value for value in number.scaled if not isinstance(value, str)]
                    for number in some
                ]
                if not others[0].readings.isdisjoint(map(sum, itertools.product(*amounts))):
                    self.rest = [[], []]
                    return

    def cut_elsewhere(self) -> None:
        """Telephone numbers and dates whose digits are cut elsewhere; not 1.5 and 15."""
        src, tgt = self.rest
        if "".join(n.digits for n in src) == "".join(n.digits for n in tgt) and (
            len(src) != len(tgt)
            or not any(
                number.digits == other.digits
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
        has_metric = [any("metric" in number.measures for number in rest) for rest in self.rest]
        sides = [{"imperial", *["mark"] * is_metric} for is_metric in reversed(has_metric)]
        has_imperial = [
            any(not imperial.isdisjoint(number.measures) for number in rest)
            for rest, imperial in zip(self.rest, sides, strict=True)
        ]
        # Miles that are other miles were not converted.
        has_word = any(map(_IMPERIAL_WORD.search, self.texts))
        if has_word and not self.is_converted and all(self.rest) and not any(has_metric):
            return
        if (has_word or any(has_imperial)) and (any(has_metric) or not all(has_imperial)):
            self.rest = [
                [number for number in rest if number.measures.isdisjoint({"metric", *imperial})]
                for rest, imperial in zip(self.rest, sides, strict=True)
            ]

    def words(self) -> None:
        """Numbers that the other side has in words; those that became other ones are added."""
        words = [numbers_in_words(*side) for side in zip(self.texts, self.languages, strict=True)]
        # "One" is also an article: it answers nothing where there may be another answer.
        weak = {0.0, 1.0} if all(self.rest) else set[float]()
        wanted = [set().union(*map(_spoken, rest)) for rest in self.rest]
        values = [words[1].values - weak, words[0].values - weak]
        for this, other in ((0, 1), (1, 0)):
            # What both sides say says nothing about their digits: half of 50, and of 30.
            values[this] |= phrase_values(self.texts[other], self.texts[this], wanted[this])
            values[this] |= _shares(self.texts[other], words[other])
        there = [words[side].values.union(*map(_spoken, self.numbers[side])) for side in (1, 0)]
        self.rest = [
            [
                number
                for number in rest
                if ("minus" in number.measures and not may_be_negative)
                or _has_other_scale(number, other_rest)
                or (
                    _spoken(number).isdisjoint(answers)
                    and not _has_other_unit(number.readings, others, *texts)
                )
            ]
            for rest, other_rest, answers, others, texts, may_be_negative in zip(
                self.rest,
                reversed(self.rest),
                values,
                there,
                (self.texts, self.texts[::-1]),
                reversed(self.may_be_negative),
                strict=True,
            )
        ]
        self.cut_elsewhere()
        for this, other in ((0, 1), (1, 0)):
            rest = self.rest[this]
            if rest and not self.rest[other] and not self.is_converted:
                # Only those that may have become one of `rest`, as they have as many digits.
                sizes = {size for n in rest for size in (len(n.text), len(n.digits))}
                said = words[other].ordinals | dict(words[other].certain)
                texts = (self.texts[other], self.texts[this])
                lost = _missing(said, texts, self.numbers[this], words[this])
                self.rest[other] = [
                    number
                    for number in lost
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
                if are_equal(number, other) and not self._are_marked_otherwise(number, other):
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
    *(_Pair.equal, _Pair.listed, _Pair.fractions, _Pair.times, _Pair.durations, _Pair.scores),
    *(_Pair.sums, _Pair.cut_elsewhere, _Pair.measures, _Pair.words),
)


def unmatched(source: str, translation: str, *, src_lang: str, tgt_lang: str) -> Unmatched:
    """The numbers of each side for which the other side has neither digits nor words."""
    # Most pairs have the same digits, and no scales.
    texts, languages = (source, translation), (src_lang, tgt_lang)
    ours, theirs = map(_DIGITS.findall, texts)
    if ours != theirs and _DECIMAL.search(source):
        is_same = False  # 7.4 is not 4.7.
    else:
        is_same = sorted(ours) == sorted(theirs)
    if is_same and not any(
        scales_of(language).has_clear(text) or has_marks(text)
        for text, language in zip(texts, languages, strict=True)
    ):
        return Unmatched([], [])
    pair = _Pair(texts, languages)
    for answer in ANSWERS:
        if any(pair.rest):
            answer(pair)
    return Unmatched(*pair.rest)


def may_be_converted(source: str, translation: str) -> bool:
    """Whether a text has imperial measures that the other one has not."""
    if not any(map(_IMPERIAL_WORD.search, (source, translation))):
        return False
    ours, theirs = (
        {unit for unit in _units(text) if units()[unit].system == "imperial"}
        for text in (source, translation)
    )
    return ours != theirs or not ours


def changed_words(source: str, translation: str, *, src_lang: str, tgt_lang: str) -> Unmatched:
    """The numbers in words of each side that the other side does not have.

    Those of one side alone only if they are surely numbers.
    """
    src_words = numbers_in_words(source, src_lang)
    tgt_words = numbers_in_words(translation, tgt_lang)
    is_sure = any(words.certain for words in (src_words, tgt_words)) and not any(
        words.has_half for words in (src_words, tgt_words)
    )
    if not is_sure or may_be_converted(source, translation):
        return Unmatched([], [])
    texts = (source, translation)
    others = (numbers_of(translation, lang=tgt_lang), numbers_of(source, lang=src_lang))
    src = _missing(dict(src_words.certain), texts, others[0], tgt_words)
    tgt = _missing(dict(tgt_words.certain), texts[::-1], others[1], src_words)
    values = ([float(*number.readings) for number in side] for side in (src, tgt))
    differences = {abs(a - b) for a, b in itertools.product(*values)}
    # One o'clock may be "dreizehn Uhr".
    if (1.0 in differences and any(map(FLOOR.search, texts))) or (
        12.0 in differences and any(map(_TIME.search, texts))
    ):
        return Unmatched([], [])
    if src and tgt:
        return Unmatched(src, tgt)
    return Unmatched(
        *map(_dropped, (src, tgt), texts, (tgt_words, src_words), others, (src_lang, tgt_lang))
    )


def _dropped(
    missing: Sequence[Number],
    text: str,
    other_words: InWords,
    others: Sequence[Number],
    language: str,
) -> list[Number]:
    """Those that surely count: not Trente, an eighteen-wheeler, a decade, nor nineteen ten."""
    digits = {value for n in others for value in n.readings if not isinstance(value, str)}
    centuries = {value // 100 for value in other_words.values | digits}
    return [
        number
        for number in missing
        if limits.MIN_DROPPED <= float(*number.readings) < 100
        and number.readings.isdisjoint(centuries)
        and number.text in text
        and f"{number.text}-" not in text
        and not HOUR.match(text, text.index(number.text) + len(number.text))
        and 10 not in scales_of(language).of_word(number.text.split()[-1])
    ]


def _has_point(number: Number) -> bool:
    """Whether it is surely a decimal number, and not also thousands or a time."""
    return all(not isinstance(x, str) and x != int(number.digits) for x in number.readings)


def _hours(number: Number, *, has_24_hours: bool) -> set[str]:
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


def _has_other_scale(number: Number, others: Iterable[Number]) -> bool:
    """Whether another number has the same digits and another scale: 2 million and 2 billion."""
    return any(
        number.digits == other.digits and number.scaled.isdisjoint(other.scaled)
        for other in others
        if number.scaled and other.scaled
    )


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
            values.update((hour, hour + 1, hour + 12, hour - 12, hour - 11))
    return values


def _shares(text: str, words: InWords) -> set[float]:
    """The percentages of fractions in words, such as "two fifths" and "one in five"."""
    shares = {float(fraction) for fraction in fractions_in_words(text)}
    if _ONE_IN.search(text):
        parts = [value for value in words.values if 0 < value <= limits.MAX_PARTS]
        shares |= {a / b for a, b in itertools.product([1.0, *parts], parts) if a < b}
    percents = {100 * share for share in shares}
    return shares.union(percents, map(math.floor, percents), map(math.ceil, percents))


def _has_other_unit(
    readings: Collection[Reading], others: Collection[Reading], text: str, other_text: str
) -> bool:
    """Whether a number of hours or metres, say, is that of days or feet on the other side."""
    ours, theirs = map(_units, (text, other_text))
    factors = {
        units()[a].size / units()[b].size
        for a, b in itertools.product(ours - theirs, theirs)
        if units()[a].dimension == units()[b].dimension and units()[b].size
    }
    if not factors or len(others) > limits.MAX_NUMBERS:
        return False
    wanted = [x * factor for x in readings if not isinstance(x, str) for factor in factors]
    there = [1.0, *(x for x in others if not isinstance(x, str))]
    return any(math.isclose(x, y, rel_tol=limits.MAX_OTHER_UNIT) for x in wanted for y in there)


@functools.lru_cache(2)  # Each number asks.
def _units(text: str) -> set[str]:
    words = {*_LETTERS.findall(text.lower()), *(sign for sign in _UNSPACED_UNITS if sign in text)}
    return {unit for word in words for unit in units_of_words().get(word, ()) if unit in units()}


def _missing(
    words: dict[float, str], texts: Sequence[str], others: Sequence[Number], other_words: InWords
) -> list[Number]:
    """The numbers in words of a text that the other one has neither in digits nor in words."""
    there = other_words.values.union(*map(_spoken, others))
    there |= phrase_values(texts[1], "", words)
    there |= {int(str(x).partition(":")[2] or 0) for n in others for x in n.readings}
    return [
        Number(name, None, frozenset([value]))
        for value, name in words.items()
        if value not in there and not _has_other_unit([value], there, *texts)
    ]
