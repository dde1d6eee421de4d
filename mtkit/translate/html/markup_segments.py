"""From HTML to segments: text without tags, and the tags by their places in it."""

from __future__ import annotations

import html
import re
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise

from mtkit.base.character_references import unescape
from mtkit.base.copied import copied, copied_parts, glued, has_language, may_have_copied_parts
from mtkit.translate.html.markup_reading import Item, Reader
from mtkit.translate.requests import Range

# Elements without text that are not shown; the words beside them may be one.
_UNSEEN = frozenset({"", "script", "style", "wbr"})
# The parts of `<ruby>`, whose end tags HTML lets out.
_RUBY_PARTS = frozenset({"rb", "rp", "rt", "rtc"})
# Elements are nested at most so deep; those further inside are taken for lone tags.
_MAX_DEPTH = 50

_CHANGE = re.compile(r"<(?:del\b[^>]*><ins|ins\b[^>]*><del)\b", re.IGNORECASE)

# White space with a line end.
_WRAPPED = re.compile(r"(?<![ \t\r\f])[ \t\r\f]*+\n\s*+")
# One hyphen, or a dash that is written as one.
_HYPHEN = re.compile("(?<![-\u2010\u2011\u2013])[-\u2010\u2011\u2013](?![-\u2010\u2011\u2013])")


@dataclass(slots=True)
class Node:
    """An element of a segment, or something at one place: an empty element, a comment, a lone tag.

    Without tags it is a literal: text, perhaps with nodes, that is copied.

    Attributes:
        open, close: the tags as they were written; `close` is empty for what is at one place.
        start, end: the characters of the segment's text that it surrounds.
        children: the nodes inside, in order.
        is_shown: whether it is at one place, and readers see it there, such as an image or an
            element without text. The spaces around it stay.
        is_mark: whether it belongs to the word that it is at.
        around: the characters before and after it in the source; None if they are not known yet.
    """

    open: str
    start: int
    end: int
    close: str = ""
    children: list[Node] = field(default_factory=list)
    is_shown: bool = False
    is_mark: bool = False
    around: tuple[str, str] | None = None

    @property
    def is_element(self) -> bool:
        """Whether it surrounds text."""
        return bool(self.close) and not self.is_shown

    @property
    def is_literal(self) -> bool:
        """Whether it is text that is copied."""
        return not self.open

    def moved(self, text: str, place: Callable[[int], int]) -> Node:
        """The same node in another text than this one, with other places."""
        return replace(
            self,
            start=place(self.start),
            end=place(self.end),
            children=[child.moved(text, place) for child in self.children],
            around=self.around or beside(text, self.start, self.end),
        )

    def raw(self, text: str) -> str:
        """As HTML, in the text that it is in."""
        parts, at = [self.open], self.start
        for child in self.children:
            parts += [escaped(text[at : child.start]), child.raw(text)]
            at = child.end
        return "".join([*parts, escaped(text[at : self.end]), self.close])


@dataclass
class Segment:
    """Text that is translated on its own.

    Attributes:
        text: without tags, with characters instead of entities, without spaces at its ends; a line
            end in it is a space.
        nodes: the outermost tags that are not before or after all of the text, in order.
        raw: all of it as it was written.
        number: of the line on which the text begins.
        before, after: HTML before and after the text: spaces, and tags around all of it.
        line_ends: the places of the line ends in the text.
    """

    text: str
    nodes: list[Node]
    raw: str
    number: int
    before: str = ""
    after: str = ""
    line_ends: list[int] = field(default_factory=list)

    @property
    def is_copied(self) -> bool:
        """Whether there is nothing to translate; a model would invent words for it."""
        return not has_language(self.text)

    def placeholders(self) -> list[tuple[str, Range]]:
        """The placeholders and addresses in the text, and where they are with what is at them."""
        if not may_have_copied_parts(self.text):
            return []
        # A tag inside of it would make it another one.
        edges = sorted({0, len(self.text), *_edges(self.nodes)})
        placeholders: list[tuple[str, Range]] = []
        for start, end in pairwise(edges):
            for match in copied().finditer(self.text, start, end):
                last = placeholders[-1][1][1] if placeholders else 0
                placeholders.append((match[0], glued(match, max(start, last), end)))
        return placeholders

    def is_in(self, translation: str) -> bool:
        """Whether a translation has the placeholders and the literals, and no others."""
        placeholders = self.placeholders()
        literals = filter(lambda node: node.is_literal, self.nodes)
        return (
            Counter(raw for raw, _ in placeholders) == copied_parts([translation])
            and all(self.text[start:end] in translation for _, (start, end) in placeholders)
            and None not in (literal_place(node, self.text, translation) for node in literals)
        )

    def without_placeholders(self) -> Segment:
        """The same segment with its placeholders and literals as nodes, and not in its text."""
        literals: list[Node] = []
        edges = set(_edges(self.nodes))
        for _, (start, end) in self.placeholders():
            # A hyphen at it belongs to it: a model may drop one at the beginning or end of a word.
            start -= start - 1 not in edges and bool(_HYPHEN.match(self.text, max(start - 1, 0)))
            end += end not in edges and bool(_HYPHEN.match(self.text, end))
            # Those with at most signs between them are one.
            last = literals[-1].end if literals else 0
            is_next = literals and edges.isdisjoint(range(min(last, start), start + 1))
            is_next = is_next and not self.text[last:start].strip("-+/.:=_")
            literals.append(Node("", literals.pop().start if is_next else start, end))
        return replace(self, nodes=with_literals(self.nodes, literals)).without_literals()

    def without_literals(self, *, keeps_symbols: bool = False) -> Segment:
        """The same segment with its literals as points, perhaps without outermost symbols."""
        cuts: list[tuple[int, int, str]] = []
        # Where elements begin, but for marks and the parts of `<ruby>`.
        others = [node for node in nodes_in(self.nodes) if node.open[:3].lower() != "<rb"]
        starts = {node.start for node in others if node.is_element}
        starts -= {node.start for node in others if node.is_literal}

        def point(node: Node, *, is_kept: bool = False) -> Node:
            if not node.is_literal:
                return replace(node, children=list(map(point, node.children)))
            # A space of it could become a line end.
            if is_kept and not node.is_mark and " " not in self.text[node.start : node.end]:
                return node
            around = before, behind = beside(self.text, node.start, node.end)
            # The sign of &Open is a part of its word.
            is_sign = self.text[node.start : node.end] == "&"
            is_glued = behind.isalnum() and not (before.isspace() or before == "" or is_sign)
            raw, is_shown = node.raw(self.text), not node.is_mark
            # A word may go on behind the reading of its beginning; where words have spaces between
            # them, another element has a word of its own.
            is_own = node.end in starts and before.lower().islower()
            is_glued = is_glued and (is_own or raw.lstrip()[:3].lower() not in ("<rt", "<rp"))
            cuts.append((node.start, node.end, " " if is_glued else ""))
            return replace(
                node, open=raw, end=node.start, is_shown=is_shown, children=[], around=around
            )

        other = replace(self, nodes=[point(node, is_kept=keeps_symbols) for node in self.nodes])
        other.cut(cuts)
        other.strip()
        return other

    def cut(self, cuts: Sequence[tuple[int, int, str]]) -> None:
        """Put other text in the place of some parts of the text."""
        if not cuts:
            return
        starts = [start for start, _, _ in cuts]
        # Where the parts are in the new text, and the text itself.
        new_starts: list[int] = []
        pieces: list[str] = []
        at = size = 0
        for start, end, instead in cuts:
            pieces += self.text[at:start], instead
            size += start - at
            new_starts.append(size)
            size, at = size + len(instead), end

        def place(old: int) -> int:
            before = bisect_left(starts, old) - 1
            if before < 0:
                return old
            _, end, instead = cuts[before]
            return new_starts[before] + len(instead) + max(0, old - end)

        self._move("".join([*pieces, self.text[at:]]), place)
        _mark_shown(self.nodes, self.text)

    def strip(self) -> None:
        """Take off the spaces and tags before, after and around all of the text."""
        text = self.text
        stripped = text.strip()
        start = len(text) - len(text.lstrip())
        end = start + len(stripped)
        # What of the text is left, and what stands before it and, from its end on, after it.
        first, last = 0, len(text)
        before: list[str] = []
        after: list[str] = []
        left = deque(self.nodes)
        while left:
            head, tail = left[0], left[-1]
            if head.end <= start:
                before += escaped(text[first : head.start]), head.raw(text)
                first = left.popleft().end
            elif tail.start >= end:
                after += escaped(text[tail.end : last]), tail.raw(text)
                last = left.pop().start
            elif head is tail and head.start <= start and head.end >= end and head.close:
                before += escaped(text[first : head.start]), head.open
                after += escaped(text[head.end : last]), head.close
                first, last, left = head.start, head.end, deque(head.children)
            else:
                break

        # Spaces at the ends may be inside of an element. Of these only the line ends are kept.
        left_edge = min([start, *(node.start for node in left)])
        right_edge = max([end, *(node.end for node in left)])
        before.append(escaped(text[first:left_edge]) + "\n" * text.count("\n", left_edge, start))
        after.append("\n" * text.count("\n", end, right_edge) + escaped(text[right_edge:last]))
        self.before += "".join(before)
        self.after = "".join(reversed(after)) + self.after
        self.nodes = list(left)
        self._move(stripped, lambda old: min(max(old - start, 0), len(stripped)))

    def _move(self, text: str, place: Callable[[int], int]) -> None:
        self.nodes = [node.moved(self.text, place) for node in self.nodes]
        self.line_ends = list(map(place, self.line_ends))
        self.text = text


def parts_of(items: Iterable[Item]) -> Iterator[str | Segment]:
    """The parts of some pieces: segments to translate, and what is copied between them."""
    for is_block, some in groupby(items, lambda item: item.kind == "block"):
        pieces = list(some)
        yield from (item.raw for item in pieces) if is_block else [_part(pieces)]


def placeholders_of(raw: str) -> Counter[str]:
    """The placeholders and addresses in the text of some HTML, each by itself."""
    reader = Reader(warns=False)
    items = [*reader.read(f"<p>{raw}\n"), *reader.flush()]
    return copied_parts(
        _WRAPPED.sub(" ", unescape("".join(item.raw for item in texts)))
        for is_text, texts in groupby(items, lambda item: item.kind == "text")
        if is_text
    )


def escaped(text: str) -> str:
    """Text as HTML."""
    return html.escape(text, quote=False)


def _part(items: Sequence[Item]) -> str | Segment:
    """The segment of some pieces, or what they are if they have no text."""
    raw = "".join(item.raw for item in items)
    numbers = [item.number for item in items if item.kind == "text" and not item.raw.isspace()]
    text, nodes = _read(items) if numbers else ("", [])
    if not text.strip():
        return raw
    segment = Segment(text, nodes, raw, numbers[0])
    segment.strip()
    wrapped = list(_WRAPPED.finditer(segment.text))
    segment.line_ends = [match.start() for match in wrapped for _ in range(match[0].count("\n"))]
    segment.cut([(*match.span(), " ") for match in wrapped])
    return segment


def _read(items: Sequence[Item]) -> tuple[str, list[Node]]:
    """The text of some pieces, and the nodes in it."""
    texts: list[str] = []
    at = 0
    nodes: list[Node] = []
    # The open elements, from the outermost to the innermost.
    stack: list[tuple[str, Node]] = []
    # What is shown between the last character and the next one.
    shown: list[Node] = []

    def inside() -> list[Node]:
        return stack[-1][1].children if stack else nodes

    def give_up() -> None:
        """Take the innermost open element for a lone tag."""
        _, node = stack.pop()
        # An open element is the last one of its parent.
        inside()[-1:] = Node(node.open, node.start, node.start), *node.children

    for kind, raw, name, _ in _joined(items):
        is_part = kind == "open" and name in _RUBY_PARTS
        while (is_part or (kind, name) == ("close", "ruby")) and stack:
            part, node = stack[-1]
            if part not in _RUBY_PARTS or (part == "rtc" and name in ("rp", "rt")):
                break
            node.close, node.end = f"</{part}>", at
            stack.pop()
        before = inside()[-1] if inside() else None
        if kind == "open" and before and before.end == at and _CHANGE.match(before.open + raw):
            # What was deleted and what was inserted for it are two words.
            shown.append(Node("", at, at))
        if kind == "text":
            # The line end of an entity would end the line of output.
            text = raw if raw == "\n" else unescape(raw).replace("\n", " ")
            last = texts[-1][-1:] if texts else ""
            if shown and text[:1].isalnum() and last and not last.isspace():
                # Two words with an image between them are not one.
                text = f" {text}"
                for node in shown:
                    node.around = last, text[1]
            if text:
                texts.append(text)
                at += len(text)
                shown = []
        elif kind == "open" and len(stack) < _MAX_DEPTH:
            node = Node(raw, at, at)
            inside().append(node)
            stack.append((name, node))
        elif kind == "close" and any(name == open_name for open_name, _ in stack):
            while stack[-1][0] != name:
                give_up()
            _, node = stack.pop()
            node.close, node.end = raw, at
        else:
            node = Node(raw, at, at, is_shown=kind == "point" and name not in _UNSEEN)
            inside().append(node)
            if node.is_shown:
                shown.append(node)
    while stack:
        give_up()
    text = "".join(texts)
    _mark_shown(nodes, text)
    return text, nodes


def _joined(items: Iterable[Item]) -> list[Item]:
    """The pieces, in which things that readers see with signs between them, as Ctrl+C, are one."""
    joined = list[Item]()
    for item in items:
        joined.append(item)
        three = joined[-3:]
        is_shown = [each.kind == "point" and each.name not in _UNSEEN for each in three]
        if is_shown == [True, False, True] and three[1].kind == "text":
            raw = "".join(each.raw for each in three)
            is_one = not three[1].raw.strip("-+/.:=_–")
            joined[-3:] = [item._replace(raw=raw)] if is_one else three
    return joined


def _mark_shown(nodes: Iterable[Node], text: str) -> None:
    for node in nodes:
        if node.close:
            node.is_shown = node.is_shown or not text[node.start : node.end].strip()
            _mark_shown(node.children, text)


def with_literals(nodes: Sequence[Node], literals: Sequence[Node]) -> list[Node]:
    """The nodes with literals, in order: each in the innermost element, with the nodes in it."""
    merged: list[Node] = []
    left = deque(literals)
    for node in nodes:
        while left and left[0].start < node.start and left[0].end <= node.start:
            merged.append(left.popleft())
        if left and left[0].start <= node.start < left[0].end >= node.end > left[0].start:
            left[0].children.append(node)
            continue
        inside = []
        while left and node.close and node.start <= left[0].start < node.end:
            inside.append(left.popleft())
        if inside:
            node = replace(node, children=with_literals(node.children, inside))
        merged.append(node)
    return [*merged, *left]


def literal_place(literal: Node, source: str, target: str) -> int | None:
    """Where the text of a literal is in the translation; None if it is not there as often."""
    word = re.escape(source[literal.start : literal.end])
    places, others = (
        [match.start() for match in re.finditer(rf"(?<!\w){word}(?!\w)", text)]
        for text in (source, target)
    )
    number = bisect_left(places, literal.start)
    is_there = literal.start in places and len(places) == len(others)
    return others[number] if is_there else None


def nodes_in(nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes, and all that are inside of them."""
    for node in nodes:
        yield node
        yield from nodes_in(node.children)


def _edges(nodes: Iterable[Node]) -> Iterator[int]:
    return (edge for node in nodes_in(nodes) for edge in (node.start, node.end))


def beside(text: str, start: int, end: int) -> tuple[str, str]:
    """The characters before and after a part of a text; empty at its ends."""
    return text[max(start - 1, 0) : start], text[end : end + 1]
