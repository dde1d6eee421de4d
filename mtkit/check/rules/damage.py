"""Damage that a look at the characters shows: mojibake, capitals, doubled phrases, other units."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from mtkit.base.character_references import unescape
from mtkit.base.copied import TAG, copied
from mtkit.base.scripts import script_share
from mtkit.base.text import END_MARKS, WORD, base_language
from mtkit.check.rules import limits
from mtkit.check.rules.marks import ENTITY, Text
from mtkit.check.rules.number_reading import SCORE, Reading, numbers_of
from mtkit.check.rules.number_words import marks_of, ordinals_of, single_words, words_of
from mtkit.check.rules.scales import is_unspaced, scales_of, units_of_words

# The characters that bytes 80 to BF are in Windows-1252, or in Latin-1.
_CONTINUATION = "\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_MISREAD = re.compile(
    rf"[\u00c2-\u00df][{_CONTINUATION}]|[\u00e0-\u00ef][{_CONTINUATION}]{{2}}"
    rf"|[\u00f0-\u00f4][{_CONTINUATION}]{{3}}"
)
# The same in Windows-1251, of Cyrillic letters and of dashes and quotation marks; or lost signs.
_AS_CYRILLIC = "\x98" + bytes(range(0x80, 0xC0)).decode("cp1251", "ignore")
_SMALL = "".join(letter for letter in _AS_CYRILLIC if not letter.isupper())
_BROKEN = re.compile(
    f"\ufffd|вЂ[{_AS_CYRILLIC}]|(?:[РС][{_AS_CYRILLIC}]){{3}}|(?:[РС][{_SMALL}]){{2}}"
)
# Other encodings as which UTF-8 is read, by what they make of the first byte of a letter.
_ENCODINGS = defaultdict(list)
for _encoding in ("mac_roman", "cp1250", "cp1251", "cp1253", "cp1257", "cp437", "cp850", "koi8_r"):
    for _sign in bytes(range(0xC2, 0xF5)).decode(_encoding, "ignore"):
        _ENCODINGS[_sign].append(_encoding)
# These make one sign of the two bytes of a letter.
_EAST_ASIAN = ("gbk", "shift_jis")
_RUN = re.compile(r"[^\x00-\x7f](?:[^\x00-\x7f]+|(?<=[\u3400-\u9fff]))")
# Windows-1250 and 1254 read as Windows-1252: letters that the words of a language do not have. And
# letters, a sign of money or a line break that became other signs.
_NOT_OF = {
    "hu": "õû",
    "pl": "êñæ",
    "tr": "ýðþ",
    **dict.fromkeys(("cs", "sk"), "ìèøùïò"),
    **dict.fromkeys(("hr", "sl", "bs"), "èæð"),
}
_LOWER = "a-zß-öø-ž"
_LOST_SIGN = re.compile(
    rf"[?„†‡‰¤](?<=[{_LOWER}].)(?=[{_LOWER}])|\?(?<=\s.)(?=\d)"
    r"|\\(?:[nrt]|u[0-9a-f]{4}|x[0-9a-f]{2})"
)
# What is misread in texts of any script: Latin letters, punctuation, signs, emoji.
_ANYWHERE = re.compile("[\u00a0-\u017f\u0218-\u021b\u2000-\u2bff\ufeff\U0001f000-\U0001faff]")
_LETTER_LOOP = re.compile(r"([^\W\d_])\1{4,}|([^\W\d_]{2,10}?)\2{3,}", re.IGNORECASE)
# Articles, prepositions and conjunctions that are not twice in a row before a word. In 495,000 good
# directions in English, German and French 22 are, by mistake; "die die" and "that that" are right.
_NEVER_TWICE = {
    language: frozenset(words.split())
    for language, words in {
        "en": "the a an of and or with by from at after before into",
        "de": "und oder mit von für auf bei beim im zum zur den des ein einen einer dem",
        "fr": "la le les du des et ou un une dans sur avec par pour",
        "es": "el la los las de del y o un una por para con en",
        "it": "il i la gli le di del della e un una con per nel",
        "pt": "os as do da dos das e ou um uma com por para no na",
        "nl": "het een en of van met voor de bij",
        "sv": "och eller med av för ett",
        "pl": "i w z na do od dla przez",
        "cs": "a v s na do od pro",
        "ru": "и в с на от для к по из",
        "uk": "і й в у з на від для до",
        "tr": "ve veya ile için",
    }.items()
}
_LONG_LETTERS = re.compile(r"([^\W\d_])\1\1|([^\W\d_]{2,10}?)\2\2", re.IGNORECASE)
_DOUBLED = re.compile(
    rf"(?<![{WORD}])([{WORD}]+(?:[ ,'’\"-]{{1,3}}[{WORD}]+){{1,5}})"
    rf"[{END_MARKS}]?[ ,'’\"-]{{1,3}}\1(?![{WORD}])",
    re.IGNORECASE,
)
# Digits, or one word many times; and two words, as in "Mr President, Mr President".
_SAME = re.compile(rf"[\d ,]+$|([{WORD}]+)(?:[^{WORD}]+\1)+$", re.IGNORECASE)
_FROM_TO = re.compile(rf"(?<![{WORD}])([{WORD}]+) [{WORD}]+ \1(?![{WORD}])", re.IGNORECASE)
_TWICE = re.compile(rf"(?<![{WORD}])([{WORD}]+)[^{WORD}]+\1(?![{WORD}])", re.IGNORECASE)
_WORD, _FIRST = re.compile(rf"(?:(?![\d_])[{WORD}])+"), re.compile("[^\\s\"'“„”«‘’(¿¡]")
# A label before a text: "FIXME", "TODO:", "[not translated]".
_LABEL = re.compile(r"\s*([\[(][^\W\d_][^\])\n]{1,30}[\])]:?|[A-Z]{3,}:?)\s+(?=(\S))")
_TURNED = re.compile(r"\(|\b(?:from|menos?|moins)\b")
# All that is before a number that is the second word of its text, as in "In 31 games".
_FIRST_WORD = re.compile(r"\S+\s")
_LOST = re.compile(marks_of("lost"), re.IGNORECASE)
_DIGITS, _YEAR = re.compile(r"\d+"), re.compile(r"(?:1[5-9]|20)\d\d$")
# An article, a chapter, a page or a line, with its number.
_PLACE_NAMES = {word: row for row, words in enumerate(words_of("place")) for word in words}
_BEFORE, _BEHIND = (
    "|".join(word for word in _PLACE_NAMES if is_unspaced(word) == is_behind)
    for is_behind in (False, True)
)
_PLACE = re.compile(rf"(?:\b|(?=§))({_BEFORE})\.?[ \u00a0](\d+)|(\d+) ?({_BEHIND})", re.IGNORECASE)
# A number with what may be its unit: a sign before it, or the words behind it.
_MEASURED = re.compile(
    r"(?:((?<!\w)[%٪](?=\d)|[$€£¥￥]|EUR|USD|GBP|CHF)[ \u00a0\u202f]?)?(?<![\d.,])"
    r"(\d+(?:[ \u00a0\u202f'’.,]\d{3}(?!\d))*(?:[.,]\d+)?)(?![.,]?\d)"
    r"[ \u00a0\u202f-]?([%％٪$€£¥￥℃℉]|°(?:[ \u00a0\u202f]?[CF]\b)?|[^\W\d_]+)?"
    r"(?:[ \u00a0\u202f](?:de |d['’])?([^\W\d_]+))?"
)

# Units that the source may leave out, of ages, times, days of a month and prices. In 121,000 good
# pairs of Multi30k, newstest, Europarl and Tatoeba, both ways, no number gets another one.
_IMPLIED = frozenset(
    ["year", "day", "hour", "minute", "second", "dollar", "euro", "pound", "franc", "yen", "ruble"]
)

# By the digits of a number: what it is written with, and the units that this may be.
_Measures = dict[str, dict[str, frozenset[str]]]


def misread(text: str, language: str) -> re.Match[str] | None:
    """The first characters that are UTF-8 read as Windows-1252, or that stand for lost ones."""
    if text.isascii():
        return None
    for match in _MISREAD.finditer(text):
        # The bytes 81, 8D, 8F, 90 and 9D are control characters in both.
        data = (sign.encode("latin-1" if sign <= "\xff" else "cp1252") for sign in match[0])
        if _is_meant(b"".join(data).decode(errors="ignore"), language):
            return match
    runs = (run for run in _RUN.finditer(text) if _is_misread(text, run, language))
    return next(runs, None) or _BROKEN.search(text)


def _is_misread(text: str, run: re.Match[str], language: str) -> bool:
    """Whether signs that are not ASCII are UTF-8 in another encoding than Windows-1252."""
    before, behind = text[: run.start()][-1:], text[run.end() :][:1]
    is_in_word = (before + behind).isascii() and (before.isalpha() or behind.isalpha())
    for encoding in (*_ENCODINGS.get(run[0][0], ()), *_EAST_ASIAN * is_in_word):
        with suppress(UnicodeError):
            if not _is_meant(run[0].encode(encoding).decode(), language):
                continue
            own = script_share(run[0], language)
            # Two letters of its language are right, as in "её", but not "ĂĽ" in "fĂĽr".
            if not run[0].isalpha() or own is None or own[1] < 1:
                return True
            word = "".join(filter(str.isalpha, before + run[0] + behind))
            return word not in (word.lower(), word.upper(), word.capitalize())
    return False


def _is_meant(text: str, language: str) -> bool:
    """Whether a text of a language may have these characters: not those of phonetic alphabets."""
    letters = script_share("".join(sign for sign in text if sign > "\u0300"), language)
    return all(map(_ANYWHERE.match, text)) or (letters is not None and letters[1] == 1)


def lost_sign(source: str, text: str) -> re.Match[str] | None:
    """A sign in place of a letter, of money or of a line break, if the source has none like it."""
    match = _LOST_SIGN.search(text)
    return match if match and match[0][0] not in source else None


def foreign_letters(source: str, tgt: Text) -> re.Match[str] | None:
    """The first of two words with letters that its language does not have; names keep theirs."""
    letters = _NOT_OF.get(base_language(tgt.language), "")
    if not letters or tgt.raw.isascii():
        return None
    words = re.finditer(rf"[{WORD}]*[{letters}][{WORD}]*", tgt.plain)
    # Names have capitals.
    is_wrong = (word for word in words if word[0] not in source and word[0].islower())
    wrong = list(itertools.islice(is_wrong, 2))
    return wrong[0] if len(wrong) > 1 else None


def entity(source: str, translation: str) -> re.Match[str] | None:
    """A sign that is written as an entity, although the source has neither entities nor tags."""
    if "&" not in translation or ENTITY.search(source) or TAG.search(source):
        return None
    # Those of an address are right.
    text = copied().sub(lambda part: " " * len(part[0]), translation)
    entities = ENTITY.finditer(text)
    return next((match for match in entities if unescape(match[0]) != match[0]), None)


def capitals(src: Text, tgt: Text) -> str:
    """What is wrong with the capitals of a translation; empty if nothing is."""
    source, translation = src.plain, tgt.plain
    shouted = _in_capitals(translation, 3, source)
    if 0 < len(shouted) < len(translation.split()) and not _in_capitals(source, 2):
        return f'"{" ".join(shouted)}" is all capitals'
    has_small, has_capitals = not translation.isupper(), not translation.islower()
    if has_small == has_capitals:
        return ""
    # Texts in Georgian have small letters alone.
    cased = sum(letter.lower() != letter.title() for letter in translation)
    # In Chinese, only abbreviations and names of programs have Latin letters.
    share = cased / max(1, sum(map(str.isalpha, translation)))
    if cased < limits.MIN_CASED_LETTERS or share < (0.9 if has_small else 0.5):
        return ""
    if has_small:
        words = _WORD.findall(source)
        capitalised = [word for word in words if word[0].isupper()]
        is_sentence = source.rstrip()[-1:] in END_MARKS
        if source.lower() == source.upper():
            # The source has no capitals at all, as Arabic: then a sentence needs one.
            is_sentence = is_sentence and translation.rstrip()[-1:] in END_MARKS
            words = capitalised = [source] * is_sentence
        first = _FIRST.search(tgt.raw)
        # Behind a number or a placeholder at the beginning, no word needs one; nor does i18n.
        begins = (
            first is not None
            and first[0].isalpha()
            and translation[first.start()] == first[0]
            and words[:1] == capitalised[:1]
            and tgt.words[0].isalpha()
            # "Spanish classes" has a capital in few languages.
            and (len(words) > 2 or is_sentence)
        )
        is_lost = capitalised and (begins or len(capitalised) >= limits.MIN_CAPITALS)
        return "the translation has no capital" if is_lost else ""
    small = sum(map(str.islower, source))
    is_sentence = len(translation.split()) > 1 and small > sum(map(str.isupper, source))
    return "the translation is all capitals" if is_sentence else ""


def _in_capitals(text: str, least: int, known: str = "") -> list[str]:
    """The first words in capitals, as many as this in a row, none of which a text has as it is."""
    rows = itertools.groupby(
        text.split(), lambda word: word.isupper() and len(word) > 1 and word.strip(",") not in known
    )
    return next((row for is_upper, words in rows if is_upper and len(row := [*words]) >= least), [])


def label(text: str, other: str) -> str:
    """A label at the beginning of a text, such as "FIXME"; empty if the other side has one too."""
    match = _LABEL.match(text)
    if match is None or match[2].islower() or match[1] in other or _LABEL.match(other):
        return ""
    return match[1]


def doubled(source: str, words: Sequence[str], text: str) -> re.Match[str] | None:
    """Two to six words that are there twice in a row, if the source doubles nothing."""
    if len(set(pairwise(words))) >= len(words) - 1:
        return None
    for match in _DOUBLED.finditer(text):
        # In "Mr President, Mr President" and "from floor to floor to" two words are right.
        is_short = len(_WORD.findall(match[1])) < 3
        joint = match[0][len(match[1]) : -len(match[1])]
        if "," in joint:
            is_right = is_short or bool(_TWICE.search(source))
        else:
            is_right = is_short and (joint[0] in END_MARKS or bool(_FROM_TO.search(source)))
        if is_right or _SAME.match(match[1]):
            continue
        return None if _DOUBLED.search(source) else match
    return None


def doubled_word(source: str, tgt: Text) -> re.Match[str] | None:
    """An article or the like twice in a row, if the source has no word twice."""
    never = _NEVER_TWICE.get(base_language(tgt.language), frozenset())
    for word, after in pairwise(tgt.words):
        if word == after and word in never and not _TWICE.search(source):
            # Not "oh la la", nor a title: "of Of Mice and Men".
            twice = rf"(?<![{WORD}])({word})\s+{word}(?=\s+(?!{word}\s)[{WORD}])"
            match = re.search(twice, tgt.plain)
            # There may be a placeholder between them.
            return match if match and match[0] in tgt.raw else None
    return None


def letter_loop(source: str, words: Sequence[str], text: str) -> re.Match[str] | None:
    """Some letters four times in a row in a word, or one five times, unlike in the source."""
    if not any(len(word) - len(set(word)) >= limits.MIN_REPEATED_LETTERS for word in words):
        return None
    return None if _LONG_LETTERS.search(source) else _LETTER_LOOP.search(text)


def other_units(src: Text, tgt: Text) -> Iterator[tuple[str, str]]:
    """The same numbers with other units, or with one where the source has none: what each has."""
    ours, theirs = _measured(src), _measured(tgt)
    if theirs.keys() - ours.keys():
        yield from _new_units(src, ours, theirs)
    for number in ours.keys() & theirs.keys():
        pairs = itertools.product(ours[number].values(), theirs[number].values())
        if not any(_may_be_same(*pair) for pair in pairs):
            yield next(iter(ours[number])), next(iter(theirs[number]))


def _may_be_same(names: frozenset[str], others: frozenset[str]) -> bool:
    """Whether two words may be one unit, or a yard and a metre, which many take for the same."""
    return bool(names & others) or {"yard", "metre"} <= names | others


def _new_units(src: Text, ours: _Measures, theirs: _Measures) -> Iterator[tuple[str, str]]:
    """Numbers without a unit in the source that have one in the translation."""
    # The unit of a range, or of a list, is at its last number.
    measured = itertools.chain.from_iterable(units.values() for units in ours.values())
    named = _IMPLIED.union(*measured, *(units_of_words().get(word, ()) for word in src.words))
    for match in _MEASURED.finditer(src.plain):
        sign, number, word, _ = match.groups()
        # The 3 of m3 is no number.
        is_bare = not (sign or word or src.plain[: match.start(2)][-1:].isalpha())
        added = theirs.get(number, {}) if is_bare and number not in ours else {}
        yield from ((number, name) for name, units in added.items() if not units & named)


def _measured(text: Text) -> _Measures:
    """By the digits of each number: what it is written with, and the units that this may be."""
    units = units_of_words()
    measures: defaultdict[str, dict[str, frozenset[str]]] = defaultdict(dict)
    for number, _, name in _with_units(text):
        digits = re.sub(r"[.,]00?$|\D", "", number)
        measures[digits][f"{number} {name}"] = units[name]
    in_words = single_words(text.language)
    for name, word in pairwise(text.words):
        if name in in_words and word in units:
            measures[str(in_words[name])][f"{name} {word}"] = units[word]
    return measures


def _with_units(text: Text) -> Iterator[tuple[str, int, str]]:
    """The numbers in digits with a unit: the number, where it begins, and the unit."""
    units, scales = units_of_words(), scales_of(text.language)
    for match in _MEASURED.finditer(text.plain):
        sign, number, word, second = ((part or "").lower() for part in match.groups())
        word = re.sub(r"°\s", "°", word)
        # Words without spaces go on.
        parts = (word[:size] for size in (3, 2, 1)) if is_unspaced(word) else (word,)
        scaled = second if scales.at(word or "", 0)[0] else ""
        for name in (sign, f"{word} {second}", *parts, scaled):
            if name in units:
                yield number, match.start(2), name
                break


class _Placed(NamedTuple):
    """A number of a text; `kind` has how it is written, its unit, and if it is a year or scaled."""

    text: str
    start: int
    readings: frozenset[Reading]
    units: frozenset[str]
    kind: tuple[object, ...]


def exchanged(src: Text, tgt: Text) -> tuple[str, str] | None:
    """Two numbers of the source that are in each other's place, if that is sure.

    Phrases move, so the order of numbers may differ. But two of one kind, one after the other, are
    hardly ever exchanged, nor does one take the unit of another, nor do two change places around
    others that stay: 22 of 206,000 good pairs have one of these, and half of those planted.
    """
    digits, words = _DIGITS.findall(src.plain), _in_words(src)
    is_same = digits == _DIGITS.findall(tgt.plain) and words == _in_words(tgt)
    if len(digits) + len(words) < 2 or (is_same and not (digits and words)):
        return None
    scores = [{match.groups() for match in SCORE.finditer(text.plain)} for text in (src, tgt)]
    for first, second in scores[0] - scores[1] if all(scores) else ():
        is_lost = _LOST.search(f"{src.plain} {tgt.plain}")
        if (second, first) in scores[1] - scores[0] and not is_lost:
            return first, second
    if sorted(digits) == sorted(_DIGITS.findall(tgt.plain)):
        src_places, tgt_places = _places(src.plain), _places(tgt.plain)
        for name, first in src_places.items():
            second = tgt_places.get(name, first)
            if second != first and {first, second} <= {*digits}:
                return first, second
    ours, theirs = _placed(src), _placed(tgt)
    if not 1 < len(ours) == len(theirs) <= limits.MAX_EXCHANGED:
        return None
    order: list[int] = []
    for number in ours:
        same = [at for at, x in enumerate(theirs) if not number.readings.isdisjoint(x.readings)]
        if len(same) != 1 or same[0] in order:
            return None
        order += same
    moved = sum(at != place for place, at in enumerate(order))
    for (i, at), (j, other) in itertools.combinations(enumerate(order), 2):
        pairs = (ours[i], ours[j]), (theirs[other], theirs[at])
        between = [
            text.plain[first.start + len(first.text) : last.start]
            for text, (first, last) in zip((src, tgt), pairs, strict=True)
        ]
        # Without a word between them they are the parts of a date; 2(3) is paragraph 3 of 2; and
        # "to 9 from 8" is "from 8 to 9".
        if at < other or not all(map(_WORD.search, between)) or any(map(_TURNED.search, between)):
            continue
        if j - i == 1 == at - other:
            is_mixed = any(
                (first.kind[0], *first.kind[2:]) != (last.kind[0], *last.kind[2:])
                for first, last in pairs
            )
            units = {number.units for pair in pairs for number in pair if number.units}
            # One side may have the unit of both once.
            is_alike = not is_mixed and (
                all(first.units == last.units for first, last in pairs)
                or (len(units) == 1 and any(first.units and last.units for first, last in pairs))
            )
            # A range has its unit once.
            is_range = max(map(len, between)) < limits.MAX_RANGE and not is_mixed
            # If one side begins as in "In 31 games he scored 27 goals", a phrase moved.
            src_begins, tgt_begins = (
                _FIRST_WORD.fullmatch(text.plain, 0, first.start) is not None
                for text, (first, _) in zip((src, tgt), pairs, strict=True)
            )
            is_sure = is_range or (is_alike and src_begins == tgt_begins)
        else:
            is_sure = moved == 2
        if is_sure or any(
            here.units & there.units and not (bare.units or other_bare.units)
            for (here, bare), (there, other_bare) in (pairs, [pair[::-1] for pair in pairs])
        ):
            return ours[i].text, ours[j].text
    return None


def _places(text: str) -> dict[int, str]:
    """The number of an article, a chapter, a page and a line, if a text has one of it."""
    named: dict[int, set[str]] = {}
    for match in _PLACE.finditer(text):
        name = (match[1] or match[4]).lower()
        named.setdefault(_PLACE_NAMES[name], set()).add(match[2] or match[3])
    return {name: next(iter(numbers)) for name, numbers in named.items() if len(numbers) == 1}


def _in_words(text: Text) -> list[int]:
    known = single_words(text.language)
    return [known[word] for word in text.words if word in known]


def _placed(text: Text) -> list[_Placed]:
    units = {start: units_of_words()[name] for _, start, name in _with_units(text)}
    known = single_words(text.language)
    placed = [
        _Placed(
            number.text,
            number.start or 0,
            number.readings,
            unit := units.get(number.start or 0, frozenset()),
            ("digits", unit, bool(_YEAR.match(number.text)), not number.text[-1].isdigit()),
        )
        for number in numbers_of(text.plain, lang=text.language)
        # Not the names of roads and aeroplanes, such as A350.
        if not text.plain[: number.start][-1:].isalpha()
    ]
    ordinals = ordinals_of(text.language)
    words = [*_WORD.finditer(text.plain)] if _in_words(text) else []
    for match, following in itertools.zip_longest(words, words[1:]):
        if (word := match[0].lower()) in known:
            readings: frozenset[Reading] = frozenset([known[word]])
            unit = units_of_words().get(following[0].lower() if following else "", frozenset())
            kind = ("ordinal" if word in ordinals else "word", unit)
            placed.append(_Placed(match[0], match.start(), readings, unit, kind))
    return sorted(placed, key=lambda number: number.start)
