"""Numbers in digits, compared by value: 1,000 is 1.000 and 1 000, and 2:30 pm is 14h30."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mtkit.base.text import base_language
from mtkit.check.number_words import SCALED_LANGUAGES, SCALES, InWords, numbers_in_words

_DIGIT, _DIGITS = re.compile(r"\d"), re.compile(r"\d+")
_NUMBER = re.compile(
    r"""(?P<grouped>(?<!\d)\d{1,3}(?:[ \u00a0\u2009\u202f'’]\d{3}(?!\d))+(?:[.,]\d+)?)
      | (?P<clock>(?<!\d)\d{1,2}[ \u00a0\u202f]?(?:h|H|heures?|Uhr|[时時点點시])
            [ \u00a0\u202f]?\d\d(?!\d))
      | (?<![\w.,)])\.\d+(?![.,]?\d)
      | \d+(?:[.,:]\d+)*""",
    re.VERBOSE,
)
# What may stand before a scale: spaces, and "more than" in Chinese and Korean.
_BEFORE_SCALE = " \u00a0\u202f-多余餘여"
# Scales that other characters may follow at once.
_UNSPACED = {word for word in SCALES if "\u3000" < word < "\ud7ff"}


def _scale_of(words: set[str]) -> str:
    """A pattern of scales, and of what stands before them; there may have been a tag there."""
    return (
        rf"(?:[ \u00a0\u202f]*+|-)(?:[多余餘여]?[{''.join(sorted(words & _UNSPACED))}]"
        rf"|(?:{'|'.join(sorted(words - _UNSPACED))})\b)"
    )


# What follows a number and changes its value.
_SCALE = re.compile(_scale_of(set(SCALES)), re.IGNORECASE)
# Those that can be nothing else; an "m" may also be metres, a cent money, a mill a factory, a mil
# ten kilometres, mia "my", 千 that of 千克, and 조 an article of a law.
_CLEAR_SCALES = {
    word
    for word in SCALES
    if (len(word) > 2 and word not in ("cent", "cents", "mill", "mil", "mia"))
    or (word in _UNSPACED - set("千천兆조"))
}
_CLEAR_SCALE = re.compile(r"\d" + _scale_of(_CLEAR_SCALES), re.IGNORECASE)
# Such words after one number, as in "5 hundred thousand".
_MOST_SCALES = 3
# One half is ½, 1/2 or 0.5, and two and a half is 2½, 2 1/2 or 2.5.
_FRACTION = re.compile(
    r"(?<![\d/.,])(?:(?P<whole>\d{1,4})(?:[ \u00a0\u202f-]|(?=[¼½¾⅓⅔⅛])))?"
    r"(?:(?P<over>\d{1,2})/(?P<under>[1-9]\d?)(?![\d/])|(?P<sign>[¼½¾⅓⅔⅛]))"
)
# A fraction is rounded: a third is 0.33.
_ROUNDED = 0.005
# The mark between thousands, of languages whose decimal mark is another one.
_THOUSANDS = {"en": ",", "de": "."}
_TIME = re.compile(
    r"\d[ \u00a0\u202f]?[hH]\b|\d:\d\d|\b(?:heures?|Uhr|o['’]clock|[ap]\.? ?m\b|noon|midi\b)",
    re.IGNORECASE,
)
# The Arabic marks of decimals and thousands.
_MARKS = str.maketrans("٫٬", ".,")
# The end of a range, whose thousands or scale may be given once: "5-6,000", "5 to 6 million".
_RANGE = re.compile(
    r"-?[ \u00a0\u202f]?(?:[-–—]|to|and|or|bis|und|oder|à|et|ou)[ \u00a0\u202f]?"
    r"\d{1,3}(?:(?P<thousands>[., \u00a0\u202f]000(?!\d))|[.,]\d+)?"
)
# A decade or a century, by its years.
_YEARS = re.compile(r"['’]?s\b")
# Measures that a good translation may convert, from or to these.
_IMPERIAL = re.compile(
    r"[ \u00a0\u202f-]?(?:[′″]|(?:feet|foot|ft|inch(?:es)?|in\.|yards?|miles?|mph|pounds?|lbs?"
    r"|ounces?|oz|gallons?|acres?|°?F|pieds?|pouces?|milles|livres|Fuß|Zoll|Meilen?|Pfund)\b)"
)
# A quotation mark, or a measure if the other side has a metric one.
_FEET_OR_INCHES = re.compile(r"['\"”]")
_IMPERIAL_WORD = re.compile(
    r"\b(?:feet|inch|inches|yards?|miles?|pounds?|ounces?|gallons?|acres?|cups?)\b", re.IGNORECASE
)
_METRIC = re.compile(
    r"[ \u00a0\u202f-]?(?:cm|m|km|kg|k?meters?|(?:kilo|centi)?m[eè]tres?|(?:Kilo|Zenti)?[Mm]etern?"
    r"|km/h|°?C|litres?|Liter|hectares?|Hektar|kilos?|Kilo)\b"
)
# Longer ones are not computed with.
_LONGEST = 15
# Digits of an hour.
_HOUR = 2
# Numbers of a side that are compared, because the time grows with their square.
_MOST = 300

Reading = float | str


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a text.

    Attributes:
        text: as it is there, with a word such as "million"; a number in words too.
        start: the place of its first character; None of a number in words.
        readings: all values that it may have.
        scaled: those with a word such as "million", if there is one.
        is_imperial, is_metric: whether a measure of this system follows.
        has_prime_mark: whether a mark follows that may stand for feet or inches.
    """

    text: str
    start: int | None
    readings: frozenset[Reading]
    scaled: frozenset[Reading] = frozenset()
    is_imperial: bool = False
    is_metric: bool = False
    has_prime_mark: bool = False

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


def numbers_of(text: str, *, lang: str = "", is_exact: bool = True) -> list[Number]:
    """The numbers in digits of a text.

    Args:
        is_exact: False if "5,000" and "5 million" may be a 5 on the other side, because its scale
            is not known, or is said once for several numbers.
    """
    thousands = _THOUSANDS.get(base_language(lang), "")
    text = text.translate(_MARKS)
    found: list[Number] = []
    last_end = 0
    for match in _NUMBER.finditer(text):
        body, start = match[0], match.start()
        is_clock = match["clock"] is not None
        if is_clock or match["grouped"] is not None or _is_one(body):
            pieces = [(start, body)]
        else:
            # A date or a version: its parts are numbers.
            pieces = [(start + one.start(), one[0]) for one in _DIGITS.finditer(body)]
        for at, piece in pieces:
            readings = (
                _clock(*_DIGITS.findall(piece))
                if is_clock
                else _readings(piece, thousands, is_exact=is_exact)
            )
            end = at + len(piece)
            scaled = {one for one in readings if not isinstance(one, str)}
            is_clear, digits_end = False, end
            for _ in range(_MOST_SCALES):
                word, end = _scale_at(text, end)
                if not word:
                    break
                scaled = {
                    round(one * factor, 6) for one in scaled for factor in SCALES.get(word, ())
                }
                readings |= scaled
                is_clear |= word in _CLEAR_SCALES
            if is_clear:
                piece = text[at:end]
                if is_exact:
                    readings = set(scaled)
            elif end == digits_end and re.fullmatch(r"\d{3}0", piece) and _YEARS.match(text, end):
                year = int(piece)
                readings.add(year % 100 or year // 100 + 1)
            if upper := _RANGE.match(text, end):
                word = "" if upper["thousands"] else _scale_at(text, upper.end())[0]
                factors = SCALES.get(word, (1000,) if upper["thousands"] else ())
                values = [value for value in readings if not isinstance(value, str)]
                readings |= {value * factor for value in values for factor in factors}
            if piece.find(".") > 0 and text.startswith(".", end):
                # A German date without its year: "25.8."
                readings.add(int(re.sub(r"\D", "", piece.partition(".")[0])[:_LONGEST]))
            # The m of metres may be read as that of millions.
            measures = (
                any(one.match(text, place) for place in {digits_end, end})
                for one in (_IMPERIAL, _METRIC, _FEET_OR_INCHES)
            )
            of_scale = frozenset(scaled) if is_clear else frozenset[Reading]()
            number = Number(piece, at, frozenset(readings), of_scale, *measures)
            is_part = text[last_end - 1 : last_end] in _UNSPACED and text[last_end:at] in ("", " ")
            if found and is_part and len(found[-1].text) < _LONGEST:
                # Perhaps the second part of a number such as 1万5000.
                before = found[-1]
                if sums := _sums(before, number):
                    whole = text[before.start : at] + piece
                    first = found.pop().start
                    number = replace(number, text=whole, start=first, readings=sums, scaled=sums)
            last_end = end
            found.append(number)
    return found


def _sums(first: Number, second: Number) -> frozenset[Reading]:
    """The values of two parts of one number; none, if the second part is not the smaller one."""
    return frozenset(
        one + other
        for one in first.scaled or first.readings
        for other in second.scaled or second.readings
        if not isinstance(one, str) and not isinstance(other, str) and other < one
    )


def _scale_at(text: str, place: int) -> tuple[str, int]:
    """The scale at an index of a text, and the index after it; empty, if there is none."""
    scale = _SCALE.match(text, place)
    return ("", place) if scale is None else (scale[0].strip(_BEFORE_SCALE).lower(), scale.end())


def _is_one(body: str) -> bool:
    """Whether digits with separators are one number, and not a date or a version."""
    separators = re.findall(r"[.,:]", body)
    if len(separators) < 2:
        return True
    groups = re.split(r"[.,:]", body)
    inner = groups[1:] if len(set(separators)) == 1 else groups[1:-1]
    return ":" not in separators and 0 < len(groups[0]) < 4 and all(len(one) == 3 for one in inner)


def _readings(body: str, thousands: str, *, is_exact: bool) -> set[Reading]:
    """All values of a number; `thousands` is the mark between thousands, if it is only that."""
    digits = re.sub(r"\D", "", body)
    if len(digits) > _LONGEST:
        return {digits}
    if body.isdigit():
        value = int(body)
        # A year without its century.
        return {value, 1900 + value, 2000 + value} if len(body) == 2 else {value}
    separators = re.findall(r"\D", body)
    last = separators[-1]
    head, tail = body.rsplit(last, 1)
    readings: set[Reading] = set()
    if last == ":":
        return _clock(head, tail)
    if not head:
        # ".5" is 0.5, and a calibre may be with the point or without.
        return {float(body), int(digits)}
    if len(tail) == 3 and not (len(separators) == 1 and (len(head) > 3 or head.startswith("0"))):
        readings.add(int(digits))
        if last == thousands and (tail != "000" or is_exact):
            return readings
    if last in ".," and (len(separators) == 1 or separators.count(last) == 1):
        whole = re.sub(r"\D", "", head)
        readings.add(round(float(f"{whole}.{tail}"), 9))
        if last == "." and len(tail) == 2 and len(separators) == 1:
            readings |= _clock(head, tail)
    return readings or {int(digits)}


def _clock(hour: str, minute: str) -> set[Reading]:
    """A time of the day, or a proportion: the text of it, and the hour if that is all."""
    readings: set[Reading] = {f"{int(hour)}:{int(minute)}"}
    if not int(minute):
        readings.add(int(hour))
    return readings


@dataclass(frozen=True, slots=True)
class Unmatched:
    """The numbers of a pair that have no partner on the other side.

    If one side has such numbers in digits, the other has those in words, if there are any.
    """

    src: list[Number]
    tgt: list[Number]


def unmatched(source: str, translation: str, *, src_lang: str, tgt_lang: str) -> Unmatched:
    """The numbers of each side for which the other side has neither digits nor words."""
    # Most pairs have the same digits, and no scales.
    texts = source, translation
    if sorted(_DIGITS.findall(source)) == sorted(_DIGITS.findall(translation)) and not any(
        map(_CLEAR_SCALE.search, texts)
    ):
        return Unmatched([], [])
    is_known = {base_language(src_lang), base_language(tgt_lang)} <= SCALED_LANGUAGES
    src, tgt = (
        numbers_of(text, lang=lang, is_exact=is_known and not _CLEAR_SCALE.search(other))
        for text, other, lang in ((source, translation, src_lang), (translation, source, tgt_lang))
    )
    rest_src, rest_tgt = _without_partner(src, tgt, _are_equal)
    rest_src, rest_tgt = _without_fractions(source, rest_src, rest_tgt)
    rest_tgt, rest_src = _without_fractions(translation, rest_tgt, rest_src)
    if rest_src and rest_tgt and any(map(_TIME.search, texts)):
        rest_src, rest_tgt = _without_partner(
            rest_src, rest_tgt, lambda src, tgt: bool(_hours(src) & _hours(tgt))
        )
    if _are_cut_elsewhere(rest_src, rest_tgt):
        return Unmatched([], [])
    is_converted = any(map(_IMPERIAL_WORD.search, texts))
    sides = [
        (rest, any(one.is_metric for one in others))
        for rest, others in ((rest_src, rest_tgt), (rest_tgt, rest_src))
    ]
    if is_converted or any(
        _is_imperial(one, has_metric) for rest, has_metric in sides for one in rest
    ):
        rest_src, rest_tgt = (
            [one for one in rest if not (one.is_metric or _is_imperial(one, has_metric))]
            for rest, has_metric in sides
        )
    if not (rest_src or rest_tgt):
        return Unmatched([], [])
    src_words = numbers_in_words(source, src_lang)
    tgt_words = numbers_in_words(translation, tgt_lang)
    # "One" is also an article: it answers nothing where there may be another answer.
    weak = {0.0, 1.0} if rest_src and rest_tgt else set[float]()
    rest_src, rest_tgt = (
        [one for one in rest if _spoken(one).isdisjoint(words.values - weak)]
        for rest, words in ((rest_src, tgt_words), (rest_tgt, src_words))
    )
    if _are_cut_elsewhere(rest_src, rest_tgt):
        return Unmatched([], [])
    # Was there a number in words, which is not there any more?
    if rest_src and not rest_tgt and not is_converted:
        rest_tgt = _lost(rest_src, tgt_words, src, src_words)
    elif rest_tgt and not rest_src and not is_converted:
        rest_src = _lost(rest_tgt, src_words, tgt, tgt_words)
    return Unmatched(rest_src, rest_tgt)


def changed_words(source: str, translation: str, *, src_lang: str, tgt_lang: str) -> Unmatched:
    """The numbers in words of both sides that the other side does not have; both, or none."""
    src_words = numbers_in_words(source, src_lang)
    tgt_words = numbers_in_words(translation, tgt_lang)
    if not (src_words.certain and tgt_words.certain) or src_words.has_half or tgt_words.has_half:
        return Unmatched([], [])
    if _IMPERIAL_WORD.search(source) or _IMPERIAL_WORD.search(translation):
        return Unmatched([], [])
    src = _missing(src_words, numbers_of(translation, lang=tgt_lang), tgt_words)
    tgt = _missing(tgt_words, numbers_of(source, lang=src_lang), src_words)
    return Unmatched(src, tgt) if src and tgt else Unmatched([], [])


def _without_partner(
    src: Sequence[Number], tgt: Sequence[Number], are_equal: Callable[[Number, Number], bool]
) -> tuple[list[Number], list[Number]]:
    """The numbers of both sides that are not the same as one of the other side, each used once."""
    rest_src, rest_tgt = list(src[_MOST:]), list(tgt[:_MOST])
    for one in src[:_MOST]:
        for index, other in enumerate(rest_tgt):
            if are_equal(one, other):
                del rest_tgt[index]
                break
        else:
            rest_src.append(one)
    return rest_src, [*rest_tgt, *tgt[_MOST:]]


def _are_equal(one: Number, other: Number) -> bool:
    """Whether two numbers may have the same value; 3.5 million is not 3.5 billion."""
    if one.scaled and other.scaled:
        return not one.scaled.isdisjoint(other.scaled)
    return not one.readings.isdisjoint(other.readings)


def _without_fractions(
    text: str, numbers: list[Number], others: list[Number]
) -> tuple[list[Number], list[Number]]:
    """The numbers of both sides, without fractions of the text that are decimals on the other.

    Args:
        numbers: of the text; those of its fractions may be among them.
    """
    rest = others[:_MOST]
    for match in itertools.islice(_FRACTION.finditer(text), _MOST if rest else 0):
        whole = int(match["whole"] or 0)
        part = unicodedata.numeric(match["sign"]) if match["sign"] else None
        value = whole + (int(match["over"]) / int(match["under"]) if part is None else part)
        for one in rest:
            if any(not isinstance(x, str) and abs(x - value) < _ROUNDED for x in one.readings):
                rest.remove(one)
                place = range(*match.span())
                numbers = [number for number in numbers if number.start not in place]
                break
    return numbers, [*rest, *others[_MOST:]]


def _are_cut_elsewhere(src: Sequence[Number], tgt: Sequence[Number]) -> bool:
    """Whether both sides have the same digits, and only cut at other places.

    Telephone numbers and dates are; not so 1.5 and 15, or 3 million and 3 billion.
    """
    if _digits(src) != _digits(tgt):
        return False
    if len(src) != len(tgt):
        return True
    return not any(
        _digits([one]) == _digits([other])
        and ((one.scaled and other.scaled) or _has_point(one) != _has_point(other))
        for one, other in zip(src, tgt, strict=True)
    )


def _has_point(number: Number) -> bool:
    """Whether it is surely a decimal number, and not also thousands or a time."""
    values = number.readings
    is_time = any(isinstance(one, str) for one in values)
    return not is_time and int(_digits([number])) not in values


def _is_imperial(number: Number, is_beside_metric: bool) -> bool:
    """Whether a number is in feet or inches, and the like; the other side may have a metric one."""
    return number.is_imperial or (number.has_prime_mark and is_beside_metric)


def _hours(number: Number) -> set[str]:
    """The values of a number as times of a clock with 12 hours: 7 pm and 19 h are the same."""
    times: set[str] = set()
    for one in number.readings:
        hour, _, minute = str(one).partition(":")
        if hour.isdecimal() and len(hour) <= _HOUR and int(hour) <= 24:
            times.add(f"{int(hour) % 12}:{int(minute or 0)}")
    return times


def _spoken(number: Number) -> set[Reading]:
    """The values of a number in words; those of 2:30 are two and three, as in "halb drei"."""
    values = set(number.readings)
    for one in number.readings:
        if isinstance(one, str) and ":" in one:
            hour = int(one.partition(":")[0])
            values.update((hour, hour + 1, hour - 12, hour - 11))
    return values


def _digits(numbers: Sequence[Number]) -> str:
    return re.sub(r"\D", "", "".join(one.text for one in numbers))


def _lost(
    rest: Sequence[Number], words: InWords, others: Sequence[Number], other_words: InWords
) -> list[Number]:
    """The numbers in words that the other side has neither in digits nor in words.

    Only those that may have become one of `rest`, as they have as many digits.
    """
    sizes = {size for one in rest for size in (len(one.text), len(_digits([one])))}
    return [
        one
        for one in _missing(words, others, other_words)
        if any(len(f"{value:.0f}") in sizes for value in one.readings)
    ]


def _missing(words: InWords, others: Sequence[Number], other_words: InWords) -> list[Number]:
    """The numbers in words that the other side has neither in digits nor in words."""
    there = other_words.values.union(*map(_spoken, others))
    return [
        Number(text, None, frozenset([value]))
        for value, text in words.certain
        if value not in there
    ]
