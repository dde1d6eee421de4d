"""Numbers in digits, compared by value: 1,000 is 1.000 and 1 000, and 2:30 pm is 14h30."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mtkit.check.number_words import SCALES, values_in_words

_DIGIT = re.compile(r"\d")
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
_AFTERNOON = re.compile(r"[ \u00a0\u202f]?p\.? ?m\b", re.IGNORECASE)
# A century, by its years.
_YEARS = re.compile(r"['’]?s\b")
# Measures that a good translation may convert.
_CONVERTED = re.compile(
    r"[ \u00a0\u202f-]?(?:['\"′″”]|(?:feet|foot|ft|inch(?:es)?|in\.|yards?|miles?|mph|pounds?|lbs?"
    r"|ounces?|oz|gallons?|acres?|°?F|pieds?|pouces?|milles?|livres?|Fuß|Zoll|Meilen?|Pfund|cm|m"
    r"|km|kg|meters?|metres?|mètres?|Metern?|Zentimetern?|km/h|°?C)\b)"
)
# Longer ones are not computed with.
_LONGEST = 15

Reading = float | str


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a text: its characters, all values that it may have, and what stands there."""

    text: str
    start: int
    readings: frozenset[Reading]
    is_convertible: bool = False

    @property
    def span(self) -> range:
        """Its characters."""
        return range(self.start, self.start + len(self.text))


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
            pieces = [(start + one.start(), one[0]) for one in re.finditer(r"\d+", body)]
        for at, piece in pieces:
            readings = _clock(*re.findall(r"\d+", piece)) if is_clock else _readings(piece)
            end = at + len(piece)
            # Nothing follows most numbers that changes their value.
            if match_after := _SCALE.match(text, end):
                word = match_after[0].strip(" \u00a0\u202f-").lower()
                readings |= {
                    round(one * scale, 6)
                    for one in readings
                    if not isinstance(one, str)
                    for scale in SCALES[word]
                }
            elif _AFTERNOON.match(text, end):
                readings |= {
                    one + 12 if not isinstance(one, str) else _later(one) for one in readings
                }
            elif len(piece) == 4 and piece.endswith("00") and _YEARS.match(text, end):
                readings.add(int(piece) // 100 + 1)
            is_convertible = _CONVERTED.match(text, end) is not None
            found.append(Number(piece, at, frozenset(readings), is_convertible))
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


def _later(clock: str) -> str:
    hour, colon, minute = clock.partition(":")
    return f"{int(hour) + 12}:{minute}" if colon else clock


@dataclass(frozen=True, slots=True)
class Unmatched:
    """The numbers of a pair that have no partner on the other side."""

    src: list[Number]
    tgt: list[Number]


def unmatched(source: str, translation: str, *, src_lang: str, tgt_lang: str) -> Unmatched:
    """The numbers of each side for which the other side has neither digits nor words."""
    src, tgt = numbers_of(source), numbers_of(translation)
    rest: list[Number] = []
    for one in src:
        for index, other in enumerate(tgt):
            if not one.readings.isdisjoint(other.readings):
                del tgt[index]
                break
        else:
            rest.append(one)
    # The same digits, cut at other places.
    if _digits(rest) == _digits(tgt):
        return Unmatched([], [])
    if rest:
        rest = _unanswered(rest, translation, tgt_lang)
    if tgt:
        tgt = _unanswered(tgt, source, src_lang)
    return Unmatched(rest, tgt)


def _digits(numbers: list[Number]) -> str:
    return re.sub(r"\D", "", "".join(one.text for one in numbers))


def _unanswered(numbers: list[Number], other: str, language: str) -> list[Number]:
    """Those for which the other side has no word, and that were not converted."""
    values = values_in_words(other, language)
    return [one for one in numbers if not one.is_convertible and one.readings.isdisjoint(values)]
