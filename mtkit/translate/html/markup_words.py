"""Words cut at the tags inside them, and brackets and quotation marks by their numbers."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from mtkit.translate.html.markup_segments import Node
from mtkit.translate.requests import Part, Range

if TYPE_CHECKING:
    from mtkit.align import Alignment, Link

# Quotation marks are one kind: other languages have others.
_KINDS = {
    char: kind
    for kind, chars in {
        '"': '"“”„«»「」『』',
        "(": "(（", ")": ")）", "[": "[［【", "]": "]］】", "{": "{｛", "}": "}｝",
    }.items()
    for char in chars
}  # fmt: skip
_PAIRED = re.compile(f"[{re.escape(''.join(_KINDS))}]")


class Edge(NamedTuple):
    """Where an element begins (`side` 0) or ends (1), or something stands (-1)."""

    position: int
    side: int


def edges_of(nodes: Iterable[Node]) -> Iterator[Edge]:
    """The edges of some nodes and of those inside them."""
    for node in nodes:
        if node.is_element:
            yield from (Edge(node.start, 0), Edge(node.end, 1), *edges_of(node.children))
        else:
            yield Edge(node.start, -1)


def is_sign(char: str) -> bool:
    """Whether it is punctuation or a symbol."""
    return bool(char) and not (char.isalnum() or char.isspace() or char == "_")


def core_of(text: str, start: int, end: int) -> Range:
    """The part of a word without the signs at its ends; all of it if it has nothing else."""
    first, last = start, end
    while first < last and is_sign(text[first]):
        first += 1
    while first < last and is_sign(text[last - 1]):
        last -= 1
    return (first, last) if first < last else (start, end)


def cut_words(
    alignment: Alignment, source: str, target: str, edges: Iterable[Edge], parts: Sequence[Part]
) -> Alignment:
    """The alignment with words in parts, linked to each other, where a tag stands inside of a word.

    A word is cut in a word with the same letters that is linked or has the same number, and between
    letters and signs if a linked word has the same signs.
    """
    starts = [start for start, _ in alignment.src_words]
    by_word: dict[int, set[Edge]] = {}
    for edge in edges:
        word = bisect_right(starts, edge.position) - 1
        if word >= 0 and starts[word] < edge.position < alignment.src_words[word][1]:
            by_word.setdefault(word, set()).add(edge)
    if not by_word:
        return alignment
    cutter = _WordCutter(alignment, source, target, parts)
    for word, inside in sorted(by_word.items()):
        cutter.cut(word, inside)
    return cutter.alignment() if cutter.places else alignment


class _WordCutter:
    """Collects for each source word that is cut the target word, and the places in both."""

    def __init__(
        self, alignment: Alignment, source: str, target: str, parts: Sequence[Part]
    ) -> None:
        self._given, self._source, self._target = alignment, source, target
        self._parts = parts
        self._src_cores = [core_of(source, *word) for word in alignment.src_words]
        self._tgt_cores = [core_of(target, *word) for word in alignment.tgt_words]
        self._linked: dict[int, list[int]] = {}
        for i, j in sorted(alignment.weights, key=lambda link: -alignment.weights[link]):
            self._linked.setdefault(i, []).append(j)
        self._src_places = Places((at, source[at:end]) for at, end in self._src_cores)
        self._tgt_places = Places((at, target[at:end]) for at, end in self._tgt_cores)
        self.places: dict[int, tuple[int, list[Range]]] = {}
        self._same: dict[int, int] = {}
        self._used: set[int] = set()

    def cut(self, word: int, edges: set[Edge]) -> None:
        """Cut a word at some edges inside it, if the translation has a word to cut."""
        core = self._src_cores[word]
        letters = [at for at, _ in edges if core[0] < at < core[1]]
        before = [at for at, side in edges if side >= 0 and at < core[0] + (side == 1)]
        behind = [at for at, side in edges if side >= 0 and at > core[1] - (side == 0)]
        if not (letters or before or behind):
            return
        other = self._with_same_letters(word)
        if other is not None:
            self._same[word] = other
        linked = self._linked.get(word, [])
        if other is None and (before or behind) and linked:
            other = max(linked) if behind else min(linked)
        if other is None or other in self._used:
            return
        shift = self._tgt_cores[other][0] - core[0], self._tgt_cores[other][1] - core[1]
        places = [(at, at + shift[0]) for at in letters if word in self._same]
        if self._signs(word, 0) == self._signs(other, 0, is_target=True):
            places += [(at, at + shift[0]) for at in before]
        if self._signs(word, 1) == self._signs(other, 1, is_target=True):
            places += [(at, at + shift[1]) for at in behind]
        if places:
            self._used.add(other)
            self.places[word] = other, sorted(set(places))

    def alignment(self) -> Alignment:
        from mtkit.align import Alignment

        given = self._given
        src_cuts = {word: [at for at, _ in places] for word, (_, places) in self.places.items()}
        tgt_cuts = {word: [at for _, at in places] for word, places in self.places.values()}
        src_words, src_first = _parts_of_words(given.src_words, src_cuts)
        tgt_words, tgt_first = _parts_of_words(given.tgt_words, tgt_cuts)
        same = {word: other for word, other in self._same.items() if word in self.places}
        sources = {other: word for word, other in same.items()}
        weights: dict[Link, float] = {}
        for (i, j), weight in given.weights.items():
            # Words with the same letters have no other link.
            if same.get(i, j) != j or sources.get(j, i) != i:
                continue
            # That of the letters: signs are other parts.
            src = bisect_right(src_cuts.get(i, []), self._src_cores[i][0])
            tgt = bisect_right(tgt_cuts.get(j, []), self._tgt_cores[j][0])
            weights[src_first[i] + src, tgt_first[j] + tgt] = weight
        strongest = max(given.weights.values(), default=1.0)
        for word, (other, places) in self.places.items():
            for number in range(len(places) + 1):
                weights[src_first[word] + number, tgt_first[other] + number] = strongest
        return Alignment(dict(sorted(weights.items())), src_words, tgt_words)

    def _with_same_letters(self, word: int) -> int | None:
        core = self._source[slice(*self._src_cores[word])]
        for other in self._linked.get(word, []):
            if self._target[slice(*self._tgt_cores[other])] == core and other not in self._used:
                return other
        ends = [src[1] for src, _ in self._parts]
        start, end = self._src_cores[word]
        part = self._parts[min(bisect_left(ends, end), len(ends) - 1)]
        place = same_place(start, self._src_places, self._tgt_places, part)
        if place is None:
            return None
        return bisect_right(self._given.tgt_words, (place, len(self._target))) - 1

    def _signs(self, word: int, side: int, *, is_target: bool = False) -> str:
        """The signs before (0) or behind (1) the core of a word."""
        text, words, cores = self._source, self._given.src_words, self._src_cores
        if is_target:
            text, words, cores = self._target, self._given.tgt_words, self._tgt_cores
        start, end = sorted((words[word][side], cores[word][side]))
        return text[start:end]


def _parts_of_words(
    words: Sequence[Range], cuts: dict[int, list[int]]
) -> tuple[list[Range], list[int]]:
    """The parts of all words, and the first part of each."""
    parts: list[Range] = []
    first: list[int] = []
    for number, (start, end) in enumerate(words):
        first.append(len(parts))
        parts += pairwise([start, *cuts.get(number, []), end])
    return parts, first


class Places:
    """The places of things in a text, each with its kind; "" is none."""

    def __init__(self, kinds: Iterable[tuple[int, str]]) -> None:
        self._kinds = {place: kind for place, kind in kinds if kind}
        self._places: dict[str, list[int]] = {}
        for place, kind in self._kinds.items():
            self._places.setdefault(kind, []).append(place)

    def kind(self, place: int) -> str:
        """The kind at a place; "" if there is none."""
        return self._kinds.get(place, "")

    def number(self, place: int, part: Range) -> int:
        """How many of the kind of a place are before it in a part of the text."""
        places = self._places[self._kinds[place]]
        return bisect_left(places, place) - bisect_left(places, part[0])

    def inside(self, kind: str, part: Range) -> range:
        """The numbers of those of a kind in a part of the text, for `place`."""
        places = self._places.get(kind, [])
        return range(bisect_left(places, part[0]), bisect_left(places, part[1]))

    def place(self, kind: str, number: int) -> int:
        """The place of one of a kind, by its number."""
        return self._places[kind][number]


def same_place(place: int, source: Places, target: Places, part: Part) -> int | None:
    """The place of the same kind and number in a part's translation, if it has equally many."""
    kind = source.kind(place)
    of_source, of_target = source.inside(kind, part[0]), target.inside(kind, part[1])
    if not kind or len(of_source) != len(of_target):
        return None
    number = source.number(place, part[0])
    return target.place(kind, of_target[number]) if 0 <= number < len(of_target) else None


def paired_signs(text: str) -> Places:
    """The brackets and quotation marks of a text, each with its kind."""
    return Places((sign.start(), _KINDS[sign[0]]) for sign in _PAIRED.finditer(text))
