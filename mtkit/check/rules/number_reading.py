"""Reads the numbers in digits of a text, with all values that each may have: 1.000 is 1000 or 1.

A number is read in two steps: its digits, by the kinds in `DIGITS`, and what stands behind them, by
the kinds in `ENDINGS`. `number_matching` compares them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from unicodedata import normalize

from mtkit.base.text import base_language
from mtkit.check.rules import limits
from mtkit.check.rules.number_words import marks_of
from mtkit.check.rules.scales import SPACES, is_unspaced, scales_of, system_of

Reading = float | str

_DIGITS, _NO_DIGIT = re.compile(r"\d+"), re.compile(r"\D")
# The mark between thousands, of languages whose decimal mark is another one.
THOUSANDS = dict.fromkeys(("en", "zh", "ja", "ko", "th"), ",")
THOUSANDS |= dict.fromkeys(("de", "it", "pt", "nl", "da"), ".")
# The Arabic marks of decimals and thousands.
_ARABIC_MARKS = str.maketrans("٫٬", ".,")
# Those of full width, and the colon of a Chinese time.
_WIDE_MARK = re.compile(r"(?<=[０-９])(?:，(?=[０-９]{3}(?!\d))|．(?=[０-９]))|(?<=\d)：(?=\d)")
# The end of a range, whose thousands or scale may be given once: "5-6,000", "5 to 6 million".
_RANGE = re.compile(
    rf"-?[{SPACES}]?(?:[-–—~～至到から]|[^\W\d_]{{1,5}})[{SPACES}]?"
    rf"\d{{1,3}}(?:(?P<thousands>[.,{SPACES}]000(?!\d))|[.,]\d+)?"
)
_HALF = re.compile(
    rf"(?:[{SPACES}]\w{{1,16}})?[{SPACES}](?:et demie?|and a half|und eine halbe"
    rf"|[ey] me(?:di|zz)[oa])(?!\w)|[年月日天週周個个か小时時間间]{{1,3}}半"
)
_THAI = re.compile("[\u0e00-\u0e7f]")
# Of a match, or of a set: 3-1, 3:1, 3 à 1.
SCORE = re.compile(
    r"(?<!\d)(?<!\d[-–—:./])(\d{1,3})(?:[ ]?[-–—:][ ]?| [aà] )(\d{1,3})(?![-–—:./]?\d)"
)
# The year before the first one of an era.
_ERAS = {"明治": 1867, "大正": 1911, "昭和": 1925, "平成": 1988, "令和": 2018, "民國": 1911}
_ERA = re.compile(f"({'|'.join(_ERAS)}) ?$")
_DECADE = re.compile(r"['’]?s\b")
# What follows an hour in one half of the day.
_HOUR = (
    rf"[{SPACES}]?(?:{{}}\.?[{SPACES}]?m\b"
    rf"|(?:(?:o['’]clock|Uhr|h|heures?|horas|uur|час[аов]+|giờ)[{SPACES}])?(?:{{}}))"
)
# What may be the unit of a number.
_UNIT = re.compile(
    rf"[{SPACES}-]?(?:(?:cubic|square|sq\.?|cu\.?|fl\.?|de) |平方|立方)?(in\.|[′″]|°?[^\W\d_²³]+)"
)
# Those that are something else elsewhere.
_SHORT_UNITS = {"m": "metric", "C": "metric"}
_SHORT_UNITS |= dict.fromkeys(("F", "in.", "mi", "livre", "livres", "milles"), "imperial")
# What else stands beside a number. A quotation mark is an inch if the other side has a metric unit.
_MEASURES = {
    "mark": re.compile(r"['\"”]"),
    # Not the German "8 am Montag".
    "am": re.compile(_HOUR.format("a(?!(?-i:m [A-ZÄÖÜ]))", marks_of("morning")), re.IGNORECASE),
    "pm": re.compile(_HOUR.format("p", marks_of("evening")), re.IGNORECASE),
}
# Words before an hour, as in 午後2時.
_BEFORE = {
    half: re.compile(rf"(?:{marks_of(kind, 1)})[{SPACES}]?$")
    for half, kind in (("am", "morning"), ("pm", "evening"))
}
# What may make a number negative: a dash before it, brackets around it as in accounts, and words.
_DASH = re.compile(rf"([-–−－±])([{SPACES}]?)([$€£¥₽₺]?)[{SPACES}]?$")
_IN_BRACKETS = (
    re.compile(rf"\([-–−－]?[{SPACES}]?[$€£¥₽₺]?$"),
    re.compile(rf"[{SPACES}]?[%$€£¥₽₺]?\)"),
)
_MINUS_WORD = re.compile(rf"(?:{marks_of('minus')})[{SPACES}]?$", re.IGNORECASE)
_BELOW_ZERO = rf"[{SPACES}]?(?:°|\w{{1,16}})?[CF]?[{SPACES}]?(?:{marks_of('below')})"
_BELOW = re.compile(_BELOW_ZERO, re.IGNORECASE)
# Behind it, 2.10 is not 2.1.
_VERSION = re.compile(
    rf"(?:\bv\.?|(?:\b(?:versi\w{{1,4}}|wersj\w{{1,3}}|верси\w|release)|版本|バージョン)[{SPACES}]?)$",
    re.IGNORECASE,
)
# A scale in one letter: K and M, and after a currency also m, B and b.
_LETTER = re.compile(r"[KkMmBb](?!\w)")
# What a negative number often is: degrees, percentages and amounts.
_DEGREES = re.compile(
    rf"[{SPACES}]?(?:[°℃℉度도]|d[eé]gr|gra[du]|st(?:op|up)n|град|derece|درج)", re.IGNORECASE
)
_MEASURED = re.compile(rf"[{SPACES}]?[%％‰$€£¥₽₺]")
_CURRENCY = re.compile("(?:[$€£¥₽₺]|EUR|USD|GBP|CHF|JPY|CNY|PLN|CZK|RUB|TRY)$")
_MARKED = re.compile(
    rf"\d(?:{_MEASURES['am'].pattern}|{_MEASURES['pm'].pattern}|{_LETTER.pattern}|{_BELOW_ZERO})"
    rf"|(?:(?<![a-z\d])[-–]|[−－])[{SPACES}]?[$€£¥₽₺]?[{SPACES}]?\d"
    rf"|(?:{marks_of('minus')}|{marks_of('morning', 1)}|{marks_of('evening', 1)})[{SPACES}]?\d",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a text.

    Attributes:
        text: as it is there, with a word such as "million"; a number in words too.
        start: the place of its first character; None of a number in words.
        readings: all values that it may have.
        scaled: those with a word such as "million", or with thousands, if there are any.
        measures: the keys of `_MEASURES` of what is beside it; "minus" of what is surely
            negative, and "dash" and "brackets" of what may be; "version" and "letter" (50K).
    """

    text: str
    start: int | None
    readings: frozenset[Reading]
    scaled: frozenset[Reading] = frozenset()
    measures: frozenset[str] = frozenset()

    @property
    def span(self) -> range | None:
        """Its characters, if it is in digits."""
        return None if self.start is None else range(self.start, self.start + len(self.text))

    @property
    def digits(self) -> str:
        """Its digits without marks."""
        return _NO_DIGIT.sub("", self.text)


def has_digit(text: str) -> bool:
    """Whether a text may have a number in digits."""
    return _DIGITS.search(text) is not None


def has_marks(text: str) -> bool:
    """Whether a number has a sign or a half of the day, which the other side may lack."""
    return _MARKED.search(text) is not None


class _Reader:
    """Reads one number: a method for each kind of it adds to `readings` and moves `end`."""

    def __init__(
        self, text: str, start: int, digits: str, *, language: str, is_exact: bool
    ) -> None:
        self.text, self.start, self.digits = text, start, digits
        self.thousands, self.is_exact = THOUSANDS.get(language, ""), is_exact
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
        hour, minute = map(int, [*_DIGITS.findall(self.digits), 30][:2])
        self.readings.add(f"{hour}:{minute}")
        if not minute:
            self.readings.add(hour)

    def century(self) -> None:
        """A decade of a century, as in 20世纪90年代."""
        century, decade = map(int, _DIGITS.findall(self.digits))
        self.scaled = {100 * (century - 1) + decade}
        self.readings = {*self.scaled, decade}

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
        if self.thousands != "," and re.fullmatch(r"\d{1,3}\.\d\d0", self.digits):
            # Three and a half is no "3.500 millones".
            scaled = {value for value in scaled if value >= 1000}
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

    def half(self) -> None:
        """Also the value and a half, as in 2年半."""
        if _HALF.match(self.text, self.end):
            self.readings |= {value + 0.5 for value in self._values()}

    def decade(self) -> None:
        """A decade or a century, by its years."""
        is_year = re.fullmatch(r"\d{3}0", self.digits) and self.end == self.digits_end
        if is_year and _DECADE.match(self.text, self.end):
            year = int(self.digits)
            self.readings.add(year % 100 or year // 100 + 1)
            self.scaled = {year} if year % 100 else set()

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
            # It is no year of a century, as '98 is.
            self.readings = {_ERAS[era[1]] + int(self.digits), int(self.digits)}

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
        signs = {*self._signs()}
        letter = self.text[self.digits_end] if "letter" in signs and not self.is_clear else ""
        measures |= {*self._system(), *signs}
        return Number(self.written + letter, self.start, readings, scaled, measures)

    def _system(self) -> Iterator[str]:
        """Whether the unit is imperial or metric."""
        for match in (_UNIT.match(self.text, end) for end in (self.digits_end, self.end)):
            word = match[1] if match else ""
            if system := _SHORT_UNITS.get(word) or system_of(word.lower()):
                yield system

    def _signs(self) -> Iterator[str]:
        before = self.text[max(0, self.start - limits.MAX_BEFORE) : self.start]
        yield from (half for half, words in _BEFORE.items() if words.search(before))
        letter = _LETTER.match(self.text, self.digits_end)
        if letter and (letter[0] in "KkM" or _CURRENCY.search(before.rstrip(SPACES))):
            yield "letter"
        if _VERSION.search(before):
            yield "version"
        opening, closing = _IN_BRACKETS
        if opening.search(before) and closing.match(self.text, self.digits_end):
            yield "brackets"
        dash = _DASH.search(before)
        if _MINUS_WORD.search(before) or _BELOW.match(self.text, self.digits_end):
            yield "minus"
        elif dash:
            yield "minus" if self._is_minus(before[: dash.start()], *dash.groups()) else "dash"

    def _is_minus(self, before: str, sign: str, space: str, currency: str) -> bool:
        """Whether a dash is that of a negative number, not of a name, a range, a list or a talk."""
        words, last = before.split(), before[-1:]
        word = words[-1] if words else ""
        after = self.text[self.digits_end : self.digits_end + limits.MAX_BEFORE].lstrip(SPACES)
        is_degree = _DEGREES.match(after) is not None
        if sign == "±" or (len(words) > 1 and words[-2][-1].isdigit() and after.startswith(word)):
            return False  # 5 km -10 km
        has_digit = any(map(str.isdigit, word))
        if last and not last.isspace():  # (-5) and €-5, but F-16 and 5€-10€
            is_amount = not has_digit and _CURRENCY.search(word) is not None
            return last in "([{\"'„“«‘=<>:," or is_amount or (is_degree and is_unspaced(last))
        if word.endswith((",", ";", ":", "=", "<", ">")):
            return not space
        if has_digit or (space and sign in "-–"):  # 5 -10, but à - 5 °C
            return not has_digit and is_degree and word.islower() and len(word) <= 3
        if sign in "−－" or currency or is_degree or _MEASURED.match(after):
            return True
        if not word:
            return re.fullmatch(r"[^\W\d_]{0,3}", after) is not None
        # EUR -5, to -5; but Boeing -747, No. -5
        is_sentence_end = word[-1] in ".?!…"
        return _CURRENCY.search(word) is not None or (word == word.lower() and not is_sentence_end)


# The ways to write the digits; the first pattern that matches decides.
DIGITS: dict[str, tuple[Callable[[_Reader], None], str]] = {
    "grouped": (
        _Reader.separated,
        r"(?<!\d)\d{1,3}(?:[ \u00a0\u2009\u202f'’]\d{3}(?!\d))+(?:[.,]\d+)?",
    ),
    "clock": (
        _Reader.clock,
        rf"(?<!\d)\d{{1,2}}[{SPACES}]?(?:h|H|heures?|Uhr|[时時点點시])[{SPACES}]?(?:\d\d(?!\d)|[半반])",
    ),
    "century": (_Reader.century, r"(?<!\d)\d\d?世[纪紀]\d0(?=年代)"),
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
    *(_Reader.scale, _Reader.half, _Reader.decade, _Reader.range_end),
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
    text = _WIDE_MARK.sub(lambda mark: normalize("NFKC", mark[0]), text.translate(_ARABIC_MARKS))
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
    start = numbers.pop().start or 0
    written = text[start : (second.start or 0) + len(second.text)]
    return replace(second, text=written, start=start, readings=sums, scaled=sums)
