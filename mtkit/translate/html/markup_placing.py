"""Puts the tags of a segment into its translation, by the word alignment."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING
from unicodedata import category

from mtkit.base.copied import copied, may_have_copied_parts
from mtkit.base.text import UNSPACED
from mtkit.translate.html.markup_segments import Node, Segment, escaped, literal_place
from mtkit.translate.requests import Part, Range, Translation

if TYPE_CHECKING:
    from mtkit.align import Alignment

# Brackets and quotation marks; the latter are one kind, because other languages have others.
_KINDS = {
    char: kind
    for kind, chars in {
        '"': '"“”„«»「」『』',
        "(": "(（", ")": ")）", "[": "[［【", "]": "]］】", "{": "{｛", "}": "}｝",
    }.items()
    for char in chars
}  # fmt: skip
_OTHERS = {'"': '"', "(": ")", ")": "(", "[": "]", "]": "[", "{": "}", "}": "{"}
# They are punctuation in Unicode, and belong to a number or a name.
_SYMBOLS = "%‰@&#*/\\'′″§¶†‡·•"
_NO_WORDS = re.compile(r"[\W_]*+")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_PAIRED = re.compile(f"[{re.escape(''.join(_KINDS))}]")


def with_markup(segment: Segment, translation: Translation, alignment: Alignment | None) -> str:
    """A translation as HTML, with the tags and line ends of its segment; tags need an alignment."""
    if segment.nodes and translation.text == segment.text:
        return segment.raw
    whole = (0, len(segment.text)), (0, len(translation.text))
    parts = translation.parts or [whole]
    line_ends = _line_ends(segment, translation.text, parts)
    left = "\n" * (len(segment.line_ends) - sum(line_ends.values()))
    placer = _Placer(segment.text, translation.text, alignment, parts, line_ends)
    return f"{segment.before}{placer.render(segment.nodes, whole[1])}{segment.after}{left}"


def _line_ends(segment: Segment, translation: str, parts: Sequence[Part]) -> dict[int, int]:
    """The spaces of a translation that become line ends, and how many.

    They are as far along in their sentence as in the source, and not inside of a placeholder.
    """
    if not segment.line_ends:
        return {}
    letters = _as_letters(translation)
    spaces = [i for i, char in enumerate(letters) if char == " "]
    wanted = list(Counter(segment.line_ends).items())[: len(spaces)]
    ends = [src[1] for src, _ in parts]
    counts: dict[int, int] = {}
    first = 0
    for number, (place, count) in enumerate(wanted):
        src, tgt = parts[min(bisect_left(ends, place), len(parts) - 1)]
        share = (place - src[0]) / max(src[1] - src[0], 1)
        near = tgt[0] + share * (tgt[1] - tgt[0])
        at = bisect_left(spaces, near)
        if at > 0 and (at == len(spaces) or near - spaces[at - 1] < spaces[at] - near):
            at -= 1
        # Every later one needs a space too.
        at = min(max(at, first), len(spaces) - (len(wanted) - number))
        counts[spaces[at]] = count
        first = at + 1
    return counts


class _Words:
    """The places of the words of a line."""

    def __init__(self, words: Sequence[Range]) -> None:
        self.starts = [start for start, _ in words]
        self.ends = [end for _, end in words]

    def inside(self, part: Range) -> range:
        """The words that have characters in a part of the line."""
        first = bisect_right(self.ends, part[0])
        return range(first, max(first, bisect_left(self.starts, part[1])))


class _Placer:
    """Puts the nodes of a segment into its translation."""

    def __init__(
        self,
        source: str,
        target: str,
        alignment: Alignment | None,
        parts: Sequence[Part],
        line_ends: dict[int, int],
    ) -> None:
        self.source, self.target, self.parts = source, target, parts
        self._line_ends, self._wrapped = line_ends, sorted(line_ends)
        self._ends = [src[1] for src, _ in parts]
        self._tgt_ends = [tgt[1] for _, tgt in parts]
        self._starts = [src[0] for src, _ in parts]
        self._src_words = _Words(alignment.src_words if alignment else [])
        self._tgt_words = _Words(alignment.tgt_words if alignment else [])
        self._src_letters, self._tgt_letters = _as_letters(source), _as_letters(target)
        words = zip(self._src_words.starts, self._src_words.ends, strict=True)
        self._src_cores = _Words([_core_of(self._src_letters, *word) for word in words])
        self._pairs = _paired_signs(self._src_letters), _paired_signs(self._tgt_letters)
        weights = alignment.weights if alignment else {}
        # The target words that are linked to each source word, and those that have their strongest
        # link to it, or one as strong: the characters of a subword have the same links.
        self._linked: dict[int, list[int]] = {}
        self._best: dict[int, list[int]] = {}
        strongest: dict[int, float] = {}
        for i, j in sorted(weights, key=weights.__getitem__, reverse=True):
            self._linked.setdefault(i, []).append(j)
            if weights[i, j] >= strongest.setdefault(j, weights[i, j]):
                self._best.setdefault(i, []).append(j)
        # The number of linked target words before each one.
        self._before = [0, *accumulate(j in strongest for j in range(len(self._tgt_words.starts)))]

    def render(self, nodes: Sequence[Node], tgt: Range) -> str:
        """A part of the translation, with the nodes that are in it, as HTML."""
        if not nodes:
            return self._text(tgt[0], tgt[1])
        where = self._places(nodes, tgt)
        elements = sorted(where.values())
        # Many tags can be at one place.
        point = cache(lambda start, is_mark: self._point(start, tgt, elements, is_mark=is_mark))
        places = [
            where.get(i) or (point(node.start, node.is_mark),) * 2 for i, node in enumerate(nodes)
        ]
        out, cursor, last = [], tgt[0], ""
        for (start, end), number in sorted(zip(places, range(len(nodes)), strict=True)):
            node = nodes[number]
            out.append(self._text(cursor, start))
            last = self.target[start - 1 : start] if cursor < start else last
            if node.is_element:
                inner = self.render(node.children, (start, end))
                out.append(f"{node.open}{inner}{node.close}")
                last = self.target[end - 1 : end] if start < end else last
            elif node.is_shown:
                out.append(self._spaced(node, last, self.target[start : min(start + 1, tgt[1])]))
                last = out[-1][-1]
            else:
                out.append(node.raw(self.source))
                last = self.target[end - 1 : end] if start < end else last
            cursor = end
        out.append(self._text(cursor, tgt[1]))
        return "".join(out)

    def _text(self, start: int, end: int) -> str:
        """A part of the translation with its line ends, as HTML."""
        first = bisect_left(self._wrapped, start)
        pieces: list[str] = []
        for space in self._wrapped[first : bisect_left(self._wrapped, end)]:
            pieces += escaped(self.target[start:space]), "\n" * self._line_ends[space]
            start = space + 1
        return "".join([*pieces, escaped(self.target[start:end])])

    def _spaced(self, node: Node, last: str, following: str) -> str:
        """A node that is shown, between these characters, with spaces as in the source."""
        before, behind = node.around or ("", "")
        return f"{_gap(before, last)}{node.raw(self.source)}{_gap(behind, following)}"

    def _places(self, nodes: Sequence[Node], tgt: Range) -> dict[int, Range]:
        """The characters of the translation that each element surrounds, by its number."""
        left = {number: node for number, node in enumerate(nodes) if node.is_element}
        areas = {number: self._area(node.start, node.end, tgt) for number, node in left.items()}
        where: dict[int, Range] = {}
        # For each target word 1 if it is in an element, else 0.
        taken = bytearray(len(self._tgt_words.starts))

        def put(number: int, words: Range) -> None:
            taken[words[0] : words[1] + 1] = b"\1" * (words[1] + 1 - words[0])
            # The part may end inside of a word, before its punctuation.
            start = max(self._tgt_words.starts[words[0]], areas[number][1][0])
            end = min(self._tgt_words.ends[words[1]], areas[number][1][1])
            where[number] = self._trimmed(left.pop(number), (start, end))

        for number, node in enumerate(nodes):
            if node.is_literal:
                start = literal_place(node, self.source, self.target) or 0
                where[number] = start, start + node.end - node.start
                for word in self._tgt_words.inside(where[number]):
                    taken[word] = 1
        for links in (self._best, self._linked):
            for number, node in list(left.items()):
                if words := self._run(node, areas[number], taken, links):
                    put(number, words)
        for number, node in list(left.items()):
            if self._is_in_word(node):
                continue
            if len(nodes) == 1:
                where[number] = self._trimmed(left.pop(number), areas[number][1])
            elif words := self._nearest(node, areas[number], taken):
                put(number, words)
        others = sorted(where.values())
        for number, node in left.items():
            at = self._point(node.start, tgt, others)
            where[number] = at, at
        return where

    def _area(self, start: int, end: int, tgt: Range) -> Part:
        """The sentences in which a part of the source is, and what translates them in a part."""
        last = min(bisect_left(self._ends, end), len(self.parts) - 1)
        first = min(max(bisect_right(self._starts, start) - 1, 0), last)
        left = min(max(self.parts[first][1][0], tgt[0]), tgt[1])
        right = min(max(self.parts[last][1][1], left), tgt[1])
        return (self._starts[first], self._ends[last]), (left, right)

    def _run(
        self, node: Node, area: Part, taken: bytearray, links: dict[int, list[int]]
    ) -> Range | None:
        """The first and last of neighbouring free target words that belong to an element.

        Of all runs it has the most words that belong there, minus those that belong elsewhere.
        """
        own = self._src_cores.inside((node.start, node.end))
        src, tgt = area
        words = self._tgt_words.inside(tgt)
        is_all = own == self._src_cores.inside(src) and len(words) > 0
        if is_all and 1 not in taken[words.start : words.stop]:
            return words[0], words[-1]
        linked = [j for i in own for j in links.get(i, ()) if j in words and not taken[j]]
        is_cased = self.source[node.start : node.end].lower().islower()
        if is_cased and len(own) == 1 and self._is_in_word(node):
            # Several words do not translate a part of one, if there are spaces between words.
            del linked[1:]
        best, run = 0, None
        total = first = previous = -1
        for j in sorted(set(linked)):
            if total > 0 and 1 not in taken[previous:j]:
                total -= self._before[j] - self._before[previous + 1]
            else:
                total = 0
            if total <= 0:
                total, first = 0, j
            total, previous = total + 1, j
            if total > best:
                best, run = total, (first, j)
        return run

    def _nearest(self, node: Node, area: Part, taken: bytearray) -> Range | None:
        """The free words nearest to where an element would be, as many as it has."""
        words = self._tgt_words.inside(area[1])
        size = len(self._src_cores.inside((node.start, node.end)))
        place = self._near(node.start, area)
        near = bisect_left(self._tgt_words.starts, place, words.start, words.stop)
        behind, before = taken.find(0, near, words.stop), taken.rfind(0, words.start, near)
        if before >= 0 and (behind < 0 or behind - near > near - before):
            first = last = before
            while last - first + 1 < size and words.start < first and not taken[first - 1]:
                first -= 1
        elif behind < 0:
            return None
        else:
            first = last = behind
        while last - first + 1 < size and last + 1 < words.stop and not taken[last + 1]:
            last += 1
        return first, last

    def _is_in_word(self, node: Node) -> bool:
        """Whether an element begins or ends between letters of a word, or has none of its letters.

        It goes where the translation of the word goes. If that is in another element already, it
        is empty.
        """
        own, cores = self._src_cores.inside((node.start, node.end)), self._src_cores
        if not own or node.start > cores.starts[own[0]] or node.end < cores.ends[own[-1]]:
            return True
        # Characters without spaces between them may be parts of one word.
        has_links = not self._linked.keys().isdisjoint(own)
        return has_links and _UNSPACED.search(self.source, node.start, node.end) is not None

    def _trimmed(self, node: Node, place: Range) -> Range:
        """A place without the signs that are beside the element in the source, or not in it."""
        start, end = place
        source, target = self._src_letters, self._tgt_letters
        first, last = node.start, node.end
        if own := self._src_cores.inside((first, last)):
            # The translation of a part of a word is a whole word.
            first = min(first, self._src_cores.starts[own[0]])
            last = max(last, self._src_cores.ends[own[-1]])
        before, behind = first, last
        while before > 0 and _is_sign(source[before - 1]):
            before -= 1
        while _is_sign(source[behind : behind + 1]):
            behind += 1
        # The signs beside both ends of the element, and those in it.
        own_start, own_end = _core_of(source, first, last)
        left, right = source[before:first], source[last:behind]
        inner_left, inner_right = source[first:own_start], source[own_end:last]
        if inner_right and target.endswith(right, start, end):
            end -= len(right)
        if inner_left and target.startswith(left, start, end):
            start += len(left)
        # A point elsewhere is that of an abbreviation.
        stop = self._tgt_ends[min(bisect_left(self._tgt_ends, end), len(self._tgt_ends) - 1)]
        right += "." * (_NO_WORDS.fullmatch(target, end, stop) is not None)
        while start < end and self._is_outside(end - 1, (start, end), right, inner_right):
            end = start + len(target[start : end - 1].rstrip())
        inner_left += "¿" * ("." in map(_kind_of, inner_right))
        while start < end and self._is_outside(start, (start, end), left, inner_left):
            start = end - len(target[start + 1 : end].lstrip())
        return (start, end) if start < end else place

    def _is_outside(self, at: int, place: Range, beside: str, inside: str) -> bool:
        """Whether a sign at an end of an element is not in it.

        `beside` and `inside` are the signs at this end of the element in the source.
        """
        sign = self._tgt_letters[at]
        kind = _kind_of(sign)
        if not _is_sign(sign) or kind in map(_kind_of, inside):
            return False
        if sign == ".":
            return sign in beside
        if kind in map(_kind_of, beside):
            return True
        if kind not in _OTHERS:
            return kind in (".", "¿")
        # A bracket or a quotation mark stays if the other one of its pair is in the element.
        number, others = (
            bisect_left(places, place[1]) - bisect_left(places, place[0])
            for places in (self._pairs[1][kind], self._pairs[1][_OTHERS[kind]])
        )
        return number % 2 == 1 if kind == '"' else number > others

    def _point(
        self, start: int, tgt: Range, elements: Sequence[Range], *, is_mark: bool = False
    ) -> int:
        """The place in the translation of something between characters of the source."""
        place = self._near(start, self._area(start, start, tgt), is_mark=is_mark)
        at = bisect_right(elements, (place, len(self.target))) - 1
        if at >= 0 and place < elements[at][1]:
            # Elements beside it stay whole.
            left, right = elements[at]
            is_left = place - left <= right - place and not (is_mark and left < place)
            return left if is_left else right
        return place

    def _near(self, position: int, area: Part, *, is_mark: bool = False) -> int:
        """A place beside the translation of the word before or behind a position.

        A mark behind a word is there, or at the end of the area.
        """
        src, tgt = area
        if position <= src[0] or position >= src[1]:
            return tgt[0] if position <= src[0] else tgt[1]
        place = self._between_signs(position, area)
        if place is not None and tgt[0] <= place <= tgt[1]:
            return place
        is_behind_word = not self.source[position - 1].isspace()
        is_before_word = not self.source[position].isspace()
        before = self._src_words.inside((src[0], position))[-1:]
        behind = self._src_words.inside((position, src[1]))[:1]
        options = [(i, 0) for i in behind] + [(i, 1) for i in before]
        is_before_sign = _is_sign(self._src_letters[position]) and not (
            before
            and _is_sign(self._src_letters[min(position, self._src_words.ends[before[0]]) - 1])
        )
        if is_behind_word and (is_before_sign or not is_before_word):
            options.reverse()
        if is_mark := is_mark and is_behind_word:
            options = [(i, 1) for i in before]
            is_before_sign = not _is_sign(self._src_letters[position - 1])
        words = self._tgt_words.inside(tgt)
        word_starts, _ = sides = self._tgt_words.starts, self._tgt_words.ends
        for word, side in options:
            # The part may end inside of a word, before its punctuation.
            places = [
                min(max(sides[side][j], tgt[0]), tgt[1])
                for j in self._best.get(word) or (self._linked.get(word, [])[:1] if is_mark else [])
                if j in words
            ]
            if places:
                place = max(places) if side else min(places)
                while side and is_before_sign and _is_sign(self._tgt_letters[place - 1 : place]):
                    place -= 1
                return max(place, tgt[0])
        if is_mark:
            return tgt[1]
        # As far along as in the source, between two words.
        wanted = tgt[0] + (tgt[1] - tgt[0]) * (position - src[0]) / (src[1] - src[0])
        at = bisect_left(word_starts, wanted, words.start, words.stop)
        starts = [word_starts[j] for j in (at - 1, at) if j in words and word_starts[j] >= tgt[0]]
        return min(starts, key=lambda start: abs(start - wanted), default=tgt[0])

    def _between_signs(self, position: int, area: Part) -> int | None:
        """The place behind or before the bracket or quotation mark that a position is at.

        It is the sign with the same number in the translation, if that has equally many.
        """
        for side in (1, 0):
            kind = _KINDS.get(self._src_letters[position - side], "")
            sources, targets = (pairs[kind] for pairs in self._pairs)
            first, last = (bisect_left(sources, place) for place in area[0])
            tgt_first, tgt_last = (bisect_left(targets, place) for place in area[1])
            number = bisect_left(sources, position - side) - first
            is_opening = number % 2 == 0 if kind == '"' else kind in ("(", "[", "{")
            if kind and is_opening == bool(side) and last - first == tgt_last - tgt_first:
                return targets[tgt_first + number] + side
        return None


def _is_sign(char: str) -> bool:
    """Whether it is punctuation or a symbol."""
    # A mark is a part of its letter in Hindi or Thai.
    return bool(char) and not (char.isspace() or char == "_" or category(char)[0] in "LNM")


def _kind_of(sign: str) -> str:
    """Equal for signs that translate each other: `.` for all that end or divide sentences."""
    kind = {"Po": sign if sign in _SYMBOLS else ".", "Pd": "-"}.get(category(sign), sign)
    return _KINDS.get(sign) or ("¿" if sign in "¿¡" else kind)


def _core_of(text: str, start: int, end: int) -> Range:
    """The part of a word without the signs at its ends; all of it if it has nothing else."""
    first, last = start, end
    while first < last and _is_sign(text[first]):
        first += 1
    while first < last and _is_sign(text[last - 1]):
        last -= 1
    return (first, last) if first < last else (start, end)


def _paired_signs(text: str) -> dict[str, list[int]]:
    """The places of the brackets and quotation marks of a text, by their kind."""
    places = defaultdict[str, list[int]](list)
    for sign in _PAIRED.finditer(text):
        places[_KINDS[sign[0]]].append(sign.start())
    return places


def _as_letters(text: str) -> str:
    """Placeholders as letters, so that their signs are not punctuation, nor their spaces spaces."""
    if not may_have_copied_parts(text):
        return text
    return copied().sub(lambda match: "x" * len(match[0]), text)


def _gap(in_source: str, in_target: str) -> str:
    """A space if something shown needs one, from the characters beside it."""
    if in_source.isspace():
        return " " if in_target.strip() else ""
    # Two words must not become one.
    return " " if in_target.isalnum() and not in_source.isalnum() else ""
