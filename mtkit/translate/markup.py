"""Translation of HTML: tags, comments and placeholders keep their places in the text.

A line is cut at its block-level tags into segments. The tags inside a segment are taken out, its
text is translated, and the tags are put back by the word alignment: an element stands around the
words that translate its words. No tag is lost or made up, and elements stay nested as they were.
Where the alignment does not say where an element belongs, it is put around the whole segment.

Placeholders of programs, such as `%1$s` and `{name}`, are text for the model. If the translation
does not have each of them again, the text is translated without them, and they are put back as tags
are.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

from mtkit.translate.alignment import Aligner, Alignment
from mtkit.translate.reading import Window, windows
from mtkit.translate.translator import Translator

# Block-level elements and <br>, which end a segment. All others, also those that HTML does not
# know, stand inside a sentence, as in browsers.
_BLOCK = frozenset({
    "address", "article", "aside", "base", "blockquote", "body", "br", "button", "canvas",
    "caption", "center", "col", "colgroup", "dd", "details", "dialog", "dir", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "frame", "frameset", "h1", "h2", "h3",
    "h4", "h5", "h6", "head", "header", "hgroup", "hr", "html", "iframe", "legend", "li", "link",
    "main", "menu", "meta", "nav", "noframes", "noscript", "object", "ol", "optgroup", "option",
    "p", "param", "pre", "script", "search", "section", "select", "source", "style", "summary",
    "table", "tbody", "td", "template", "textarea", "tfoot", "th", "thead", "title", "tr",
    "track", "ul", "video", "audio",
})  # fmt: skip
# Elements whose content is not text of a language.
_VERBATIM = frozenset({"script", "style"})
# Elements without content.
_VOID = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr",
})  # fmt: skip

# Elements are nested at most so deep; those further inside are taken for lone tags.
_DEEPEST = 50

# printf, Python, ICU, Java and shell: %s, %1$s, %(name)s, %-5.2f, {0}, {name}, {{name}}, ${name}.
_PLACEHOLDER = re.compile(
    r"\$\{[^{}\s]*\}|\{\{[^{}]*\}\}|\{[\w.:!,#+-]*\}"
    r"|%(?:\d+\$|\([\w.]+\))?[-+0#]*\d*(?:\.\d+)?(?:hh|h|ll|l|L|z|j|t)?[@diouxXeEfFgGaAcspn](?!\w)"
)
_PUNCTUATION = re.compile(r"[^\w\s]+$")
_OPENING = re.compile(r"^[^\w\s]+")


@dataclass
class _Node:
    """An element of a segment, or something at one place: an empty element, a comment, a lone tag.

    Attributes:
        open, close: the tags as they were written; `close` is empty for what is at one place.
        start, end: the characters of the segment's text that it surrounds.
        children: the nodes inside, in order.
        is_text: whether it is at one place and has text of its own, which needs spaces around it.
    """

    open: str
    start: int
    close: str = ""
    end: int = 0
    children: list[_Node] = field(default_factory=list)
    is_text: bool = False

    def points(self) -> Iterator[_Node]:
        """This node and its children as tags without extent."""
        yield _Node(self.open, self.start)
        yield from self.children


@dataclass
class Segment:
    """Text of a line that is translated on its own.

    Attributes:
        text: without tags, with characters instead of entities, without spaces at its ends.
        nodes: the outermost tags, in order.
        before, after: the spaces at its ends.
    """

    text: str
    nodes: list[_Node]
    before: str = ""
    after: str = ""

    def without_placeholders(self) -> Segment:
        """The same segment with its placeholders as nodes, and not in its text."""
        matches = list(_PLACEHOLDER.finditer(self.text))

        def moved(place: int) -> int:
            return place - sum(
                min(m.end(), place) - m.start() for m in matches if m.start() < place
            )

        def copied(node: _Node) -> _Node:
            children = [copied(child) for child in node.children]
            return replace(node, start=moved(node.start), end=moved(node.end), children=children)

        nodes = self.nodes
        for match in matches:
            nodes = _with_point(nodes, _placeholder(match))
        text = _PLACEHOLDER.sub("", self.text)
        return Segment(text, [copied(node) for node in nodes], self.before, self.after)


def _placeholder(match: re.Match[str]) -> _Node:
    return _Node(html.escape(match[0], quote=False), match.start(), is_text=True)


def _with_point(nodes: Sequence[_Node], point: _Node) -> list[_Node]:
    """The nodes with a point in the innermost element around its place."""
    for at, node in enumerate(nodes):
        if node.close and node.start <= point.start < node.end:
            inside = _with_point(node.children, point)
            return [*nodes[:at], replace(node, children=inside), *nodes[at + 1 :]]
    at = sum(node.start <= point.start for node in nodes)
    return [*nodes[:at], point, *nodes[at:]]


# ---------------------------------------------------------------------------------------------
# From a line to segments


def parse(line: str) -> list[str | Segment]:
    """The parts of a line: segments to translate, and what is copied between them."""
    parts: list[str | Segment] = []
    items: list[_Item] = []
    for item in _items(line):
        if item.kind == "block":
            parts += [*_segmented(items), item.raw]
            items = []
        else:
            items.append(item)
    return [*parts, *_segmented(items)]


@dataclass(frozen=True)
class _Item:
    """A piece of a line: text, a tag in a sentence, or a tag that ends one.

    Attributes:
        kind: `text`, `open`, `close`, `point`, `kept` (text that is copied) or `block`.
        raw: as it was written.
        name: of the tag.
    """

    kind: str
    raw: str
    name: str = ""


class _Reader(HTMLParser):
    """Notes where in a line each tag, comment and piece of text begins."""

    def __init__(self, line: str) -> None:
        super().__init__(convert_charrefs=False)
        self.found: list[tuple[int, str, str, bool]] = []
        self.feed(line)
        self.close()

    def _note(self, kind: str, name: str = "", *, kept: bool = False) -> None:
        self.found.append((self.getpos()[1], kind, name, kept))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag that opens an element, or an empty element."""
        given = {name: value or "" for name, value in attrs}
        kept = given.get("translate") == "no" or "notranslate" in given.get("class", "").split()
        self._note("open", tag, kept=kept)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag such as <b/>."""
        self._note("point", tag)

    def handle_endtag(self, tag: str) -> None:
        """A tag that closes an element."""
        self._note("close", tag)

    def handle_data(self, data: str) -> None:
        """Text."""
        self._note("text")

    def handle_entityref(self, name: str) -> None:
        """An entity such as &amp;."""
        self._note("text")

    handle_charref = handle_entityref

    def handle_comment(self, data: str) -> None:
        """A comment, or another thing that is not shown."""
        self._note("point")

    def handle_decl(self, decl: str) -> None:
        """A declaration such as <!doctype html>."""
        self._note("point")

    handle_pi = unknown_decl = handle_comment


def _items(line: str) -> Iterator[_Item]:
    """The pieces of a line; together they are the line."""
    found = _Reader(line).found
    ends = [*(start for start, *_ in found), len(line)][1:]
    # The element that is copied as it is, its depth, and what of it was read.
    kept, depth, copied = "", 0, ""
    for (start, kind, name, is_kept), end in zip(found, ends, strict=True):
        raw = line[start:end]
        if kept:
            copied += raw
            depth += (name == kept) * ((kind == "open") - (kind == "close"))
            if not depth:
                yield _Item("block" if kept in _BLOCK else "kept", copied, kept)
                kept = ""
        elif kind == "open" and name not in _VOID and (is_kept or name in _VERBATIM):
            kept, depth, copied = name, 1, raw
        elif name in _BLOCK:
            yield _Item("block", raw, name)
        else:
            yield _Item("point" if name in _VOID else kind, raw, name)
    if kept:
        yield _Item("block" if kept in _BLOCK else "kept", copied, kept)


def _segmented(items: Sequence[_Item]) -> list[str | Segment]:
    """The segment of some pieces, or their text if there is nothing to translate."""
    text = ""
    nodes: list[_Node] = []
    # The open elements, from the outermost to the innermost.
    stack: list[tuple[str, _Node]] = []

    def inside() -> list[_Node]:
        return stack[-1][1].children if stack else nodes

    def give_up() -> None:
        """Take the innermost open element for a lone tag."""
        _, node = stack.pop()
        # An open element is the last one of its parent.
        inside()[-1:] = node.points()

    for item in items:
        if item.kind == "text":
            text += html.unescape(item.raw)
        elif item.kind == "open" and len(stack) < _DEEPEST:
            node = _Node(item.raw, len(text))
            inside().append(node)
            stack.append((item.name, node))
        elif item.kind == "close" and item.name in [name for name, _ in stack]:
            while stack[-1][0] != item.name:
                give_up()
            _, node = stack.pop()
            node.close, node.end = item.raw, len(text)
        else:
            inside().append(_Node(item.raw, len(text), is_text=item.kind == "kept"))
    while stack:
        give_up()
    stripped = text.strip()
    if not stripped:
        return ["".join(item.raw for item in items)] if items else []
    before = len(text) - len(text.lstrip())

    def moved(node: _Node) -> _Node:
        start, end = (min(max(at - before, 0), len(stripped)) for at in (node.start, node.end))
        children = [moved(child) for child in node.children]
        return replace(node, start=start, end=end, children=children)

    after = text[before + len(stripped) :]
    return [Segment(stripped, [moved(node) for node in nodes], text[:before], after)]


# ---------------------------------------------------------------------------------------------
# From a translation to a line


def with_markup(segment: Segment, translation: str, alignment: Alignment | None) -> str:
    """A translation with the tags of its segment, as HTML.

    Args:
        segment: whose text was translated.
        translation: of its text.
        alignment: of both; not needed for a segment without tags.
    """
    placer = _Placer(segment.text, translation, alignment)
    body = placer.render(segment.nodes, (0, len(segment.text)), (0, len(translation)))
    return f"{_text(segment.before)}{body}{_text(segment.after)}"


def _text(text: str) -> str:
    return html.escape(text, quote=False)


Range = tuple[int, int]


class _Placer:
    """Puts the nodes of a segment into its translation."""

    def __init__(self, source: str, target: str, alignment: Alignment | None) -> None:
        self.source, self.target = source, target
        self.src_words = alignment.src_words if alignment else []
        self.tgt_words = alignment.tgt_words if alignment else []
        weights = alignment.weights if alignment else {}
        # The source words that each target word is linked to, the strongest link first.
        self.partners: dict[int, list[int]] = {}
        for i, j in sorted(weights, key=lambda link: -weights[link]):
            self.partners.setdefault(j, []).append(i)

    def render(self, nodes: Sequence[_Node], src: Range, tgt: Range) -> str:
        """The translation of a part of the text, with nodes in it, as HTML.

        Args:
            nodes: in the part.
            src, tgt: the characters of the part in the source and in the translation.
        """
        opened, closed = "", ""
        waiting = list(nodes)
        placed: list[tuple[Range, int, _Node]] = []
        order = 0
        while waiting:
            node = waiting.pop(0)
            order += 1
            if not node.close or node.start == node.end:
                continue
            taken = [place for place, *_ in placed]
            place = self._place(node, src, tgt, taken)
            if place is None:
                # It surrounds the whole part, and its children are placed like the other nodes.
                opened, closed = opened + node.open, node.close + closed
                waiting = [*node.children, *waiting]
                nodes = _replaced(nodes, node)
            else:
                placed.append((place, order, node))
        where = {id(node): place for place, _, node in placed}
        whole = list(where.values())
        rows = []
        for number, node in enumerate(nodes):
            place = where.get(id(node))
            if place is None:
                at = self._point(node.start, tgt, whole)
                place = at, at
            rows.append((place, number, node))
        out, cursor = [], tgt[0]
        for (start, end), _, node in sorted(rows, key=lambda row: (row[0], row[1])):
            out.append(_text(self.target[cursor:start]))
            if node.close:
                inner = self.render(node.children, (node.start, node.end), (start, end))
                out.append(f"{node.open}{inner}{node.close}")
            else:
                out.append(self._spaced(node, start) if node.is_text else node.open)
            cursor = end
        out.append(_text(self.target[cursor : tgt[1]]))
        return f"{opened}{''.join(out)}{closed}"

    def _spaced(self, node: _Node, at: int) -> str:
        """A node with text, with the spaces that it has in the source and would not have here."""
        source, target = self.source, self.target
        is_after_space = node.start == 0 or source[node.start - 1].isspace()
        is_before_space = source[node.start : node.start + 1].isspace()
        ahead = " " if is_after_space and at > 0 and not target[at - 1].isspace() else ""
        behind = target[at : at + 1]
        return f"{ahead}{node.open}{' ' if is_before_space and behind.strip() else ''}"

    def _place(self, node: _Node, src: Range, tgt: Range, taken: Sequence[Range]) -> Range | None:
        """The characters of the translation that an element surrounds; None if it is not known."""
        own = self._words_in(self.src_words, (node.start, node.end))
        if not own:
            return None
        around = self._words_in(self.src_words, src)
        if own == around and not taken:
            return self._trimmed(node, tgt)
        # Words with a weaker link count only if no word has its strongest one here.
        run = self._run(own, tgt, taken, weaker=False) or self._run(own, tgt, taken, weaker=True)
        if run is None:
            return None
        first, last = run
        return self._trimmed(node, (self.tgt_words[first][0], self.tgt_words[last][1]))

    def _run(
        self, own: Sequence[int], tgt: Range, taken: Sequence[Range], *, weaker: bool
    ) -> Range | None:
        """The first and last of neighbouring target words that belong to some source words.

        Of all runs of free words it is the one with the most that belong there, less those that
        belong elsewhere.
        """

        def belongs(j: int) -> bool:
            partners = self.partners[j] if weaker else self.partners[j][:1]
            return any(partner in own for partner in partners)

        best, run = 0, (0, 0)
        total, first = 0, 0
        for j, (start, end) in enumerate(self.tgt_words):
            is_free = tgt[0] <= start and end <= tgt[1]
            if not is_free or any(start < stop and begin < end for begin, stop in taken):
                total = 0
                continue
            value = 0 if j not in self.partners else 1 if belongs(j) else -1
            if total <= 0:
                total, first = 0, j
            total += value
            if value > 0 and total > best:
                best, run = total, (first, j)
        if not best:
            return None
        first, last = run
        while first not in self.partners or not belongs(first):
            first += 1
        return first, last

    def _trimmed(self, node: _Node, place: Range) -> Range:
        """A place without the punctuation that is beside the element in the source."""
        start, end = place
        behind = re.match(r"[^\w\s]", self.source[node.end :])
        is_own = re.search(r"[^\w\s]$", self.source[: node.end])
        if behind and not is_own and (match := _PUNCTUATION.search(self.target, start, end)):
            end = max(match.start(), start)
        ahead = re.search(r"[^\w\s]$", self.source[: node.start])
        begins = re.match(r"[^\w\s]", self.source[node.start :])
        if ahead and not begins and (match := _OPENING.match(self.target[start:end])):
            start = start + match.end()
        return (start, end) if start < end else place

    def _point(self, position: int, tgt: Range, whole: Sequence[Range]) -> int:
        """The place in the translation of something between characters of the source."""
        place = self._near(position, tgt)
        for start, end in whole:
            if start < place < end:
                # Elements beside it stay whole.
                return start if place - start <= end - place else end
        return place

    def _near(self, position: int, tgt: Range) -> int:
        """A place beside the translation of the word before or behind a position."""
        length = len(self.source)
        is_behind_word = position > 0 and not self.source[position - 1].isspace()
        is_before_word = position < length and not self.source[position].isspace()
        if position == 0 or position >= length:
            return tgt[0] if position == 0 else tgt[1]
        before = [i for i, (start, _) in enumerate(self.src_words) if start < position][-1:]
        behind = [i for i, (_, end) in enumerate(self.src_words) if end > position][:1]
        options = [(i, 0) for i in behind] + [(i, 1) for i in before]
        if is_behind_word and not is_before_word:
            options.reverse()
        for word, side in options:
            places = [
                self.tgt_words[j][side] for j, found in self.partners.items() if found[0] == word
            ]
            places = [place for place in places if tgt[0] <= place <= tgt[1]]
            if places:
                return max(places) if side else min(places)
        # As far along as in the source, between two words.
        wanted = tgt[0] + (tgt[1] - tgt[0]) * position / length
        starts = [start for start, _ in self.tgt_words if tgt[0] <= start <= tgt[1]]
        return min(starts, key=lambda start: abs(start - wanted), default=tgt[0])

    @staticmethod
    def _words_in(words: Sequence[Range], part: Range) -> list[int]:
        return [i for i, (start, end) in enumerate(words) if start < part[1] and part[0] < end]


def _replaced(nodes: Sequence[_Node], node: _Node) -> list[_Node]:
    """The nodes with the children of one in its place."""
    at = next(i for i, one in enumerate(nodes) if one is node)
    return [*nodes[:at], *node.children, *nodes[at + 1 :]]


def translate_markup(
    translator: Translator, aligner: Aligner, lines: Sequence[str], *, first_line: int = 1
) -> list[str]:
    """Translate lines of HTML.

    Args:
        translator: of the text.
        aligner: of the same models.
        lines: each is translated on its own; a tag may be closed on another line.
        first_line: number of the first, for messages.
    """
    documents = [parse(line) for line in lines]
    segments = [part for parts in documents for part in parts if isinstance(part, Segment)]
    numbers = [
        number
        for number, parts in enumerate(documents, start=first_line)
        for part in parts
        if isinstance(part, Segment)
    ]
    translations = _translated(translator, segments, numbers)
    again = [
        i
        for i, segment in enumerate(segments)
        if _placeholders(segment.text) != _placeholders(translations[i])
    ]
    for i in again:
        segments[i] = segments[i].without_placeholders()
    found = _translated(translator, [segments[i] for i in again], [numbers[i] for i in again])
    for i, translation in zip(again, found, strict=True):
        translations[i] = translation
    tagged = [i for i, segment in enumerate(segments) if segment.nodes]
    aligned = aligner.align([segments[i].text for i in tagged], [translations[i] for i in tagged])
    alignments = dict(zip(tagged, aligned, strict=True))
    rendered = iter(
        [
            with_markup(segment, translation, alignments.get(i))
            for i, (segment, translation) in enumerate(zip(segments, translations, strict=True))
        ]
    )
    return [
        "".join(part if isinstance(part, str) else next(rendered) for part in parts)
        for parts in documents
    ]


def _translated(
    translator: Translator, segments: Sequence[Segment], numbers: Sequence[int]
) -> list[str]:
    """The translation of the text of each segment; `numbers` are those of their lines."""
    pairs = zip((segment.text for segment in segments), numbers, strict=True)
    given = (
        Window(first, [text for text, _ in window], numbers=[number for _, number in window])
        for first, window in windows(pairs, size=lambda pair: len(pair[0]))
    )
    return [best.text for _, found in translator.translate_windows(given) for best, *_ in found]


def _placeholders(text: str) -> Counter[str]:
    return Counter(match[0] for match in _PLACEHOLDER.finditer(text))
