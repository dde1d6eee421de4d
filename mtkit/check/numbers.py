"""Numbers in digits, compared by value: 1,000 is 1.000 and 1 000, and 2:30 pm is 14h30."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from mtkit.check.number_words import SCALES, InWords, numbers_in_words

_DIGIT, _DIGITS = re.compile(r"\d"), re.compile(r"\d+")
_NUMBER = re.compile(
    r"""(?P<grouped>(?<!\d)\d{1,3}(?:[ \u00a0\u2009\u202f'’]\d{3}(?!\d))+(?:[.,]\d+)?)
      | (?P<clock>(?<!\d)\d{1,2}[ \u00a0\u202f]?(?:h|H|heures?|Uhr)[ \u00a0\u202f]?\d\d(?!\d))
      | \d+(?:[.,:]\d+)*""",
    re.VERBOSE,
)
# What follows a number and changes its value.
_SCALE = re.compile(
    rf"[ \u00a0\u202f-]?(?:{'|'.join(sorted(SCALES, key=len, reverse=True))})\b", re.IGNORECASE
)
_TIME = re.compile(
    r"\d[ \u00a0\u202f]?[hH]\b|\d:\d\d|\b(?:heures?|Uhr|o['’]clock|[ap]\.? ?m\b|noon|midi\b)",
    re.IGNORECASE,
)
# A decade or a century, by its years.
_YEARS = re.compile(r"['’]?s\b")
# Measures that a good translation may convert, from or to these.
_IMPERIAL = re.compile(
    r"[ \u00a0\u202f-]?(?:['\"′″”]|(?:feet|foot|ft|inch(?:es)?|in\.|yards?|miles?|mph|pounds?|lbs?"
    r"|ounces?|oz|gallons?|acres?|°?F|pieds?|pouces?|milles|livres|Fuß|Zoll|Meilen?|Pfund)\b)"
)
_IMPERIAL_WORD = re.compile(
    r"\b(?:feet|inch|inches|yards?|miles?|pounds?|ounces?|gallons?|acres?|cups?)\b", re.IGNORECASE
)
_METRIC = re.compile(
    r"[ \u00a0\u202f-]?(?:cm|m|km|kg|k?meters?|(?:kilo|centi)?m[eè]tres?|(?:Kilo|Zenti)?[Mm]etern?"
    r"|km/h|°?C|litres?|Liter|hectares?|Hektar|kilos?|Kilo)\b"
)
# Longer ones are not computed with.
_LONGEST = 15

Reading = float | str


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a text.

    Attributes:
        text: as it is there; a number in words too.
        start: the place of its first character; None of a number in words.
        readings: all values that it may have.
        is_imperial, is_metric: whether a measure of this system follows.
    """

    text: str
    start: int | None
    readings: frozenset[Reading]
    is_imperial: bool = False
    is_metric: bool = False

    @property
    def span(self) -> range | None:
        """Its characters, if it is in digits."""
        return None if self.start is None else range(self.start, self.start + len(self.text))


def has_digit(text: str) -> bool:
    """Whether a text may have a number in digits."""
    return _DIGIT.search(text) is not None


def numbers_of(text: str) -> list[Number]:
    """The numbers in digits of a text."""
    found = []
    for match in _NUMBER.finditer(text):
        body, start = match[0], match.start()
        is_clock = match["clock"] is not None
        if is_clock or match["grouped"] is not None or _is_one(body):
            pieces = [(start, body)]
        else:
            # A date or a version: its parts are numbers.
            pieces = [(start + one.start(), one[0]) for one in _DIGITS.finditer(body)]
        for at, piece in pieces:
            readings = _clock(*_DIGITS.findall(piece)) if is_clock else _readings(piece)
            end = at + len(piece)
            if scale := _SCALE.match(text, end):
                end = scale.end()
                factors = SCALES.get(scale[0].strip(" \u00a0\u202f-").lower(), ())
                values = [one for one in readings if not isinstance(one, str)]
                readings.update(round(one * factor, 6) for one in values for factor in factors)
            elif len(piece) == 4 and piece.endswith("0") and _YEARS.match(text, end):
                year = int(piece)
                readings.add(year % 100 or year // 100 + 1)
            if "." in piece and text.startswith(".", end):
                # A German date without its year: "25.8."
                readings.add(int(re.sub(r"\D", "", piece.partition(".")[0])[:_LONGEST]))
            measures = _IMPERIAL.match(text, end), _METRIC.match(text, end)
            found.append(Number(piece, at, frozenset(readings), *map(bool, measures)))
    return found


def _is_one(body: str) -> bool:
    """Whether digits with separators are one number, and not a date or a version."""
    separators = re.findall(r"[.,:]", body)
    if len(separators) < 2:
        return True
    groups = re.split(r"[.,:]", body)
    inner = groups[1:] if len(set(separators)) == 1 else groups[1:-1]
    return ":" not in separators and 0 < len(groups[0]) < 4 and all(len(one) == 3 for one in inner)


def _readings(body: str) -> set[Reading]:
    """All values that a number may have, whatever the language is."""
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
    if len(tail) == 3 and not (len(separators) == 1 and (len(head) > 3 or head.startswith("0"))):
        readings.add(int(digits))
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
    # Most pairs have the same digits.
    if sorted(_DIGITS.findall(source)) == sorted(_DIGITS.findall(translation)):
        return Unmatched([], [])
    src, tgt = numbers_of(source), numbers_of(translation)
    rest_src, rest_tgt = _without_partner(src, tgt, lambda one: one.readings)
    if rest_src and rest_tgt and (_TIME.search(source) or _TIME.search(translation)):
        rest_src, rest_tgt = _without_partner(rest_src, rest_tgt, _on_the_dial)
    # The same digits, cut at other places.
    if _digits(rest_src) == _digits(rest_tgt):
        return Unmatched([], [])
    is_converted = _IMPERIAL_WORD.search(source) or _IMPERIAL_WORD.search(translation)
    if is_converted or any(one.is_imperial for one in rest_src + rest_tgt):
        rest_src, rest_tgt = (
            [one for one in rest if not (one.is_imperial or one.is_metric)]
            for rest in (rest_src, rest_tgt)
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
    if _digits(rest_src) == _digits(rest_tgt):
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
    src = _missing(src_words, numbers_of(translation), tgt_words)
    tgt = _missing(tgt_words, numbers_of(source), src_words)
    return Unmatched(src, tgt) if src and tgt else Unmatched([], [])


# Digits of an hour; and numbers of a side that are compared, because the time grows with
# their square.
_HOUR = 2
_MOST = 300
Readings = Callable[[Number], AbstractSet[Reading]]


def _without_partner(
    src: Sequence[Number], tgt: Sequence[Number], readings: Readings
) -> tuple[list[Number], list[Number]]:
    """The numbers of both sides that are not the same as one of the other side, each used once."""
    rest_src, rest_tgt = list(src[_MOST:]), list(tgt[:_MOST])
    for one in src[:_MOST]:
        for index, other in enumerate(rest_tgt):
            if not readings(one).isdisjoint(readings(other)):
                del rest_tgt[index]
                break
        else:
            rest_src.append(one)
    return rest_src, [*rest_tgt, *tgt[_MOST:]]


def _on_the_dial(number: Number) -> set[Reading]:
    """The places of a time on the dial of a clock: 7 pm and 19 h are one."""
    times: set[Reading] = set()
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
    sizes = {len(one.text) for one in rest}
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
