"""Words that multiply the number before them, such as "million", by language.

They are in `scales.tsv`: codes of languages, and cells of a power of ten and its words, those of
the Unicode CLDR in all forms. A `*` stands for any ending, and a `?` is behind what may also be
something else: an "m" may be metres, a cent money, 千 that of 千克, and 조 an article of a law.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Collection
from importlib import resources
from typing import NamedTuple

from mtkit.base.text import base_language

SPACES = " \u00a0\u202f"
# Not the beginning of a millionaire, in any language.
_ENDING = "(?!d?[eaäáāàöiеיی]*[rřšрير])[^\\W\\d_]{0,8}"


class Scales:
    """The scales of a language.

    Attributes:
        factors: the factors of each word; of several languages, a billion has two.
        clear: the words that can be nothing else.
        is_known: whether these are all that the language has, in each of their forms.
    """

    def __init__(self, cells: list[str], *, clear: list[str]) -> None:
        self.is_known = cells == clear
        self.clear = {word for cell in clear for word in cell.split()[1:] if word[-1] != "?"}
        self.factors: dict[str, tuple[int, ...]] = {}
        for power, *words in map(str.split, cells):
            for word in (marked.rstrip("?") for marked in words):
                factors = (*self.factors.get(word, ()), 10 ** int(power))
                self.factors[word] = tuple(sorted(set(factors)))
        self._pattern = re.compile(_pattern(self.factors), re.IGNORECASE)
        self._clear_pattern = re.compile(r"\d" + _pattern(self.clear), re.IGNORECASE)

    def at(self, text: str, place: int) -> tuple[str, int]:
        """The scale at an index of a text, and the index after it; empty, if there is none."""
        match = self._pattern.match(text, place)
        if match is None:
            return "", place
        word = (match[match.lastindex or 0]).lower()
        if word not in self.factors:
            stems = (f"{word[:size]}*" for size in range(len(word), 0, -1))
            word = next((stem for stem in stems if stem in self.factors), "")
        return word, match.end() if word else place

    def of_word(self, word: str) -> tuple[int, ...]:
        """The factors of a word; empty if it is no scale."""
        stem, end = self.at(f" {word}", 0)
        return self.factors[stem] if end == len(word) + 1 else ()

    def has_clear(self, text: str) -> bool:
        """Whether a number of a text surely has a scale."""
        return self._clear_pattern.search(text) is not None


def _pattern(words: Collection[str]) -> str:
    """A pattern of words behind spaces, a hyphen, "de", a currency, or East Asian "more than"."""
    ordered = sorted(words, key=len, reverse=True)
    unspaced = "|".join(word for word in ordered if is_unspaced(word))
    spaced = "|".join(
        word[:-1] + _ENDING if word.endswith("*") else word
        for word in ordered
        if not is_unspaced(word)
    )
    # An empty alternative never matches.
    unspaced, spaced = unspaced or "(?!)", spaced or "(?!)"
    return rf"(?:[{SPACES}]*+(?:(?:de|na|[$€£]) )?|-)(?:[多余餘여]?({unspaced})|({spaced})(?!\w))"


def is_unspaced(word: str) -> bool:
    """Whether other characters may follow a scale at once, as in Thai and East Asia."""
    return "\u0e00" <= word < "\u0eff" or "\u3000" < word < "\ud7ff"


@functools.cache
def scales_of(language: str) -> Scales:
    """The scales of a language, or of all; then those of English, German and French are clear."""
    own = _cells(base_language(language))
    return Scales(own or _cells(), clear=own or _cells("en", "de", "fr"))


def _cells(*languages: str) -> list[str]:
    """The cells of the rows of these languages, or of all rows."""
    return [
        cell
        for codes, *cells in table("scales")
        if not languages or not {*codes.split()}.isdisjoint(languages)
        for cell in cells
    ]


@functools.cache
def units_of_words() -> dict[str, frozenset[str]]:
    """The units that each word may be, in 16 languages; those of the Unicode CLDR."""
    units: dict[str, set[str]] = defaultdict(set)
    for unit, _, words in table("units"):
        for word in words.split():
            units[word.replace("_", " ")].add(unit)
    return {word: frozenset(names) for word, names in units.items()}


class Unit(NamedTuple):
    """What a unit measures, such as length, how large it is, and whether it is "imperial"."""

    dimension: str
    size: float
    system: str = ""


@functools.cache
def units() -> dict[str, Unit]:
    """The units that may be converted into others."""
    sizes = {name: cell.split() for name, cell, _ in table("units") if cell}
    return {name: Unit(cell[0], float(cell[1]), *cell[2:]) for name, cell in sizes.items()}


def system_of(word: str) -> str:
    """Whether a word is an "imperial" or a "metric" unit; empty if it is neither."""
    names = sorted(units_of_words().get(word, ()))
    return next((units()[name].system for name in names if name in units()), "")


@functools.cache
def table(name: str) -> list[list[str]]:
    """The rows of a table of words, of which each has several cells."""
    file = resources.files("mtkit") / "check" / "rules" / f"{name}.tsv"
    return [row.split("\t") for row in file.read_text(encoding="utf-8").splitlines()]
