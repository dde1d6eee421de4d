"""Translation of HTML: tags, comments and placeholders keep their places in the text.

A line is cut at its block-level tags into segments. The tags inside a segment are taken out, its
text is translated, and the tags are put back by the word alignment: an element stands around the
words that translate its words. No tag is lost or made up, and elements stay nested as they were.
Where the alignment does not say where an element belongs, it is put around the whole segment.

Placeholders of programs, such as `%1$s` and `{name}`, are text for the model. If the translation
does not have each of them again, the text is translated without them, and they are put back as tags
are.

A line is read without the lines before it. So what does not end on its line, such as a comment, is
copied to the end of the line with a warning.
"""

from __future__ import annotations

import html
import logging
import re
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from mtkit.translate.alignment import Aligner, Alignment
from mtkit.translate.reading import Window
from mtkit.translate.translator import Translator

log = logging.getLogger(__name__)

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
# Elements without content.
_VOID = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr",
})  # fmt: skip

# Empty elements that are not shown.
_UNSEEN = frozenset({"wbr"})

# Elements are nested at most so deep; those further inside are taken for lone tags.
_DEEPEST = 50

_VALUE = r"""(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)"""
_ATTRIBUTE = re.compile(rf"([^\s/>=]++)(?:\s*+=\s*+({_VALUE}))?+", re.ASCII)
_ATTRIBUTES = rf"(?:[\s=]|/(?!>)|[^\s/>=]++(?:\s*+=\s*+{_VALUE})?+)*+"
# A tag, a comment or the like. Tags are as in browsers; CDATA and <? ?> are as in XML. Python's
# HTMLParser reads broken HTML differently from version to version, and long lines of it slowly.
_MARKUP = re.compile(
    rf"""
      <(?P<verbatim>script|style)(?=[\s/>]){_ATTRIBUTES}
        (?:/>|>.*?</(?P=verbatim)(?=[\s/>])[^>]*+(?:>|\Z))
    | <(?!(?:script|style)[\s/>])(?P<open>[a-z][^\s/>]*+)(?P<attributes>{_ATTRIBUTES})(?P<empty>/?)>
    | </(?P<close>[a-z][^\s/>]*+)[^>]*+>
    | (?P<point><!--(?:-?>|.*?--!?>)|<!\[CDATA\[.*?\]\]>|<!(?!--|\[CDATA\[)[^>]*+>|<\?.*?\?>)
    | (?P<unfinished><(?:/?[a-z]|[!?]).*)
    """,
    re.ASCII | re.DOTALL | re.IGNORECASE | re.VERBOSE,
)

# printf, Python, ICU, Java, Ruby and shell: %s, %1$s, %(name)s, %-5.2f, {0}, {name}, {{name}},
# %{name}, ${name}. Some without anything between them are one.
_PLACEHOLDER = re.compile(
    r"(?:\$\{[^{}\s]*\}|\{\{[^{}]*\}\}|%?\{[\w.:!,#+-]*\}"
    r"|%(?:\d+\$|\([\w.]+\))?[-+0#]*\d*(?:\.\d+)?(?:hh|h|ll|l|L|z|j|t)?"
    r"[@diouxXeEfFgGaAcspn](?!\w))+"
)
_PUNCTUATION = re.compile(r"[^\w\s]+$")
_OPENING = re.compile(r"[^\w\s]+")


@dataclass
class _Node:
    """An element of a segment, or something at one place: an empty element, a comment, a lone tag.

    Attributes:
        open, close: the tags as they were written; `close` is empty for what is at one place.
        start, end: the characters of the segment's text that it surrounds.
        children: the nodes inside, in order.
        is_shown: whether it is at one place, and readers see it there, such as an image or an
            element without text. The spaces around it stay.
        around: the characters before and after it in the source; None if they are not known yet.
    """

    open: str
    start: int
    end: int
    close: str = ""
    children: list[_Node] = field(default_factory=list)
    is_shown: bool = False
    around: tuple[str, str] | None = None

    @property
    def is_element(self) -> bool:
        """Whether it surrounds text."""
        return bool(self.close) and not self.is_shown

    def points(self) -> Iterator[_Node]:
        """This node and its children as tags without extent."""
        yield _Node(self.open, self.start, self.start)
        yield from self.children

    def raw(self, text: str) -> str:
        """As HTML, in the text that it is in."""
        parts, at = [self.open], self.start
        for child in self.children:
            parts += [_text(text[at : child.start]), child.raw(text)]
            at = child.end
        return "".join([*parts, _text(text[at : self.end]), self.close])


@dataclass
class Segment:
    """Text of a line that is translated on its own.

    Attributes:
        text: without tags, with characters instead of entities, without spaces at its ends.
        nodes: the outermost tags that are not before or after all of the text, in order.
        before, after: HTML before and after the text: spaces, and tags around all of it.
    """

    text: str
    nodes: list[_Node]
    before: str = ""
    after: str = ""

    def without_placeholders(self) -> Segment:
        """The same segment with its placeholders as nodes, and not in its text."""
        matches = list(_PLACEHOLDER.finditer(self.text))

        starts = [match.start() for match in matches]
        removed = [0, *accumulate(len(match[0]) for match in matches)]

        def moved(place: int) -> int:
            before = bisect_left(starts, place)
            inside = max(0, matches[before - 1].end() - place) if before else 0
            return place - removed[before] + inside

        def copied(node: _Node) -> _Node:
            start, end = moved(node.start), moved(node.end)
            is_shown = node.is_shown or (bool(node.close) and not text[start:end].strip())
            children = [copied(child) for child in node.children]
            return replace(node, start=start, end=end, children=children, is_shown=is_shown)

        nodes = self.nodes
        for match in matches:
            nodes = _with_point(nodes, _placeholder(match))
        text = _PLACEHOLDER.sub("", self.text)
        inner = _segment(text, [copied(node) for node in nodes])
        before, after = self.before + inner.before, inner.after + self.after
        return replace(inner, before=before, after=after)


def _placeholder(match: re.Match[str]) -> _Node:
    around = _around(match.string, match.start(), match.end())
    return _Node(_text(match[0]), match.start(), match.start(), is_shown=True, around=around)


def _around(text: str, start: int, end: int) -> tuple[str, str]:
    """The characters before and after a part of a text; empty at its ends."""
    return text[max(start - 1, 0) : start], text[end : end + 1]


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


def parse(line: str, number: int = 1) -> list[str | Segment]:
    """The parts of a line: segments to translate, and what is copied between them.

    The number of the line is for a warning of what does not end on it.
    """
    parts: list[str | Segment] = []
    items: list[_Item] = []
    for item in _items(line, number):
        if item.kind == "block":
            parts += [*_segmented(items), item.raw]
            items = []
        else:
            items.append(item)
    return [*parts, *_segmented(items)]


@dataclass(frozen=True)
class _Item:
    """A piece of a line: text, a tag in a sentence, or something that ends one.

    Attributes:
        kind: `text`, `open`, `close`, `point`, `unfinished`, `kept` (an element that is copied) or
            `block`.
        raw: as it was written.
        name: of the tag.
        is_kept: whether it opens an element that is copied.
    """

    kind: str
    raw: str
    name: str = ""
    is_kept: bool = False


def _items(line: str, number: int) -> Iterator[_Item]:
    """The pieces of a line, elements that are copied as one; together they are the line."""
    # The element that is copied, its depth, and what of it was read.
    kept, depth, copied = "", 0, ""
    for item in _pieces(line):
        if kept or item.is_kept:
            kept, copied = kept or item.name, copied + item.raw
            depth += (item.name == kept) * ((item.kind == "open") - (item.kind == "close"))
            if depth:
                continue
            item = _Item("kept", copied, kept)
            kept, copied = "", ""
        if item.kind == "unfinished":
            _warn_unfinished(item.raw, number)
        is_block = item.name in _BLOCK or item.kind == "unfinished"
        yield replace(item, kind="block") if is_block else item
    if kept:
        _warn_unfinished(copied, number)
        yield _Item("block" if kept in _BLOCK else "kept", copied, kept)


def _pieces(line: str) -> Iterator[_Item]:
    """Text and tags of a line; together they are the line."""
    end = 0
    for match in _MARKUP.finditer(line):
        if end < match.start():
            yield _Item("text", line[end : match.start()])
        end = match.end()
        yield _markup(match)
    if end < len(line):
        yield _Item("text", line[end:])


def _markup(match: re.Match[str]) -> _Item:
    raw = match[0]
    for kind in ("point", "unfinished"):
        if match[kind]:
            return _Item(kind, raw)
    if match["close"]:
        return _Item("close", raw, match["close"].lower())
    name = (match["open"] or match["verbatim"]).lower()
    if match["verbatim"] or match["empty"] or name in _VOID:
        return _Item("point", raw, name)
    given = {key.lower(): value.strip("\"'") for key, value in _attributes(match)}
    classes = given.get("class", "").split()
    is_kept = given.get("translate", "").lower() == "no" or "notranslate" in classes
    return _Item("open", raw, name, is_kept)


def _attributes(match: re.Match[str]) -> list[tuple[str, str]]:
    """Names and values; a value has its quotes."""
    return _ATTRIBUTE.findall(match["attributes"])


def _warn_unfinished(raw: str, number: int) -> None:
    log.warning(
        "line %d: %s does not end on this line; the next line is read as text",
        number,
        raw.split()[0][:20],
    )


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
        at = len(text)
        if item.kind == "text":
            # A line end would end the line of output.
            text += html.unescape(item.raw).replace("\n", " ")
        elif item.kind == "open" and len(stack) < _DEEPEST:
            node = _Node(item.raw, at, at)
            inside().append(node)
            stack.append((item.name, node))
        elif item.kind == "close" and item.name in [name for name, _ in stack]:
            while stack[-1][0] != item.name:
                give_up()
            _, node = stack.pop()
            node.close, node.end = item.raw, at
            node.is_shown = not text[node.start :].strip()
        else:
            is_shown = item.kind in ("point", "kept") and item.name not in ("", *_UNSEEN)
            inside().append(_Node(item.raw, at, at, is_shown=is_shown))
    while stack:
        give_up()
    # For punctuation alone a model would invent words.
    if re.search(r"\w", _PLACEHOLDER.sub("", text)):
        return [_segment(text, nodes)]
    return ["".join(item.raw for item in items)] if items else []


def _segment(text: str, nodes: Sequence[_Node]) -> Segment:
    """The segment of a text; spaces and tags before, after and around all of it are taken off."""
    stripped = text.strip()
    start = len(text) - len(text.lstrip())
    end = start + len(stripped)
    # What of the text is left, and what stands before it and, from its end on, after it.
    first, last = 0, len(text)
    before: list[str] = []
    after: list[str] = []
    left = deque(nodes)
    while left:
        head, tail = left[0], left[-1]
        if head.end <= start:
            before += _text(text[first : head.start]), head.raw(text)
            first = left.popleft().end
        elif tail.start >= end:
            after += _text(text[tail.end : last]), tail.raw(text)
            last = left.pop().start
        elif head is tail and head.start <= start and head.end >= end:
            before += _text(text[first : head.start]), head.open
            after += _text(text[head.end : last]), head.close
            first, last, left = head.start, head.end, deque(head.children)
        else:
            break

    def moved(node: _Node) -> _Node:
        places = [min(max(at - start, 0), len(stripped)) for at in (node.start, node.end)]
        children = [moved(child) for child in node.children]
        around = node.around or _around(text, node.start, node.end)
        return replace(node, start=places[0], end=places[1], children=children, around=around)

    # Spaces at the ends may be inside of an element.
    before.append(_text(text[first : min([start, *(node.start for node in left)])]))
    after.append(_text(text[max([end, *(node.end for node in left)]) : last]))
    whole = [moved(node) for node in left]
    return Segment(stripped, whole, "".join(before), "".join(reversed(after)))


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
    return f"{segment.before}{body}{segment.after}"


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
        # The target words that have their strongest link to a source word.
        self.translations: dict[int, list[int]] = {}
        for j, found in self.partners.items():
            self.translations.setdefault(found[0], []).append(j)

    def render(self, nodes: Sequence[_Node], src: Range, tgt: Range) -> str:
        """The translation of a part of the text, with nodes in it, as HTML.

        Args:
            nodes: in the part.
            src, tgt: the characters of the part in the source and in the translation.
        """
        opened, closed = "", ""
        waiting = list(nodes)
        where: dict[int, Range] = {}
        # The target words that are in elements already.
        taken: set[int] = set()
        while waiting:
            node = waiting.pop(0)
            if not node.is_element:
                continue
            place = self._place(node, src, tgt, taken)
            if place is None:
                # It surrounds the whole part, and its children are placed like the other nodes.
                opened, closed = opened + node.open, node.close + closed
                waiting = [*node.children, *waiting]
                nodes = _replaced(nodes, node)
            else:
                where[id(node)] = place
                taken.update(_covered(self.tgt_words, place))
        whole = list(where.values())
        rows = []
        for number, node in enumerate(nodes):
            place = where.get(id(node))
            if place is None:
                at = self._point(node.start, tgt, whole)
                place = at, at
            rows.append((place, number, node))
        out, cursor, last = [], tgt[0], ""
        for (start, end), _, node in sorted(rows, key=lambda row: (row[0], row[1])):
            out.append(_text(self.target[cursor:start]))
            last = self.target[cursor:start][-1:] or last
            if node.is_element:
                inner = self.render(node.children, (node.start, node.end), (start, end))
                out.append(f"{node.open}{inner}{node.close}")
                last = self.target[start:end][-1:] or last
            elif node.is_shown:
                out.append(self._spaced(node, last, self.target[start : tgt[1]][:1]))
                last = out[-1][-1]
            else:
                out.append(node.open)
            cursor = end
        out.append(_text(self.target[cursor : tgt[1]]))
        return f"{opened}{''.join(out)}{closed}"

    def _spaced(self, node: _Node, last: str, following: str) -> str:
        """A node that is shown, with the spaces that it has in the source and would not have here.

        Args:
            node: the node.
            last, following: the characters around it; empty at the ends of the part.
        """
        before, behind = node.around or ("", "")
        return f"{_gap(before, last)}{node.raw(self.source)}{_gap(behind, following)}"

    def _place(self, node: _Node, src: Range, tgt: Range, taken: Collection[int]) -> Range | None:
        """The characters of the translation that an element surrounds; None if it is not known."""
        own = _covered(self.src_words, (node.start, node.end))
        if own == _covered(self.src_words, src) and not taken:
            return self._trimmed(node, tgt)
        # Words with a weaker link count only if no word has its strongest one here.
        run = self._run(own, tgt, taken, weaker=False) or self._run(own, tgt, taken, weaker=True)
        if run is None:
            return None
        # The part may end inside of a word, before its punctuation.
        start = max(self.tgt_words[run[0]][0], tgt[0])
        return self._trimmed(node, (start, min(self.tgt_words[run[1]][1], tgt[1])))

    def _run(self, own: range, tgt: Range, taken: Collection[int], *, weaker: bool) -> Range | None:
        """The first and last of neighbouring target words that belong to some source words.

        Of all runs of free words it is the one with the most that belong there, less those that
        belong elsewhere.
        """

        def belongs(j: int) -> bool:
            partners = self.partners[j] if weaker else self.partners[j][:1]
            return any(partner in own for partner in partners)

        best, run = 0, (0, 0)
        total, first = 0, 0
        for j in _covered(self.tgt_words, tgt):
            if j in taken:
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
        before, behind = _around(self.source, node.start, node.end)
        first, last = self.source[node.start], self.source[node.end - 1]
        is_beside = _PUNCTUATION.match(behind) and not _PUNCTUATION.match(last)
        if is_beside and (match := _PUNCTUATION.search(self.target, start, end)):
            end = match.start()
        is_beside = _PUNCTUATION.match(before) and not _PUNCTUATION.match(first)
        if is_beside and (match := _OPENING.match(self.target, start, end)):
            start = match.end()
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
        before = _covered(self.src_words, (0, position))[-1:]
        behind = _covered(self.src_words, (position, length))[:1]
        options = [(i, 0) for i in behind] + [(i, 1) for i in before]
        if is_behind_word and not is_before_word:
            options.reverse()
        for word, side in options:
            words = set(self.translations.get(word, [])) & set(_covered(self.tgt_words, tgt))
            # The part may end inside of a word, before its punctuation.
            places = [min(max(self.tgt_words[j][side], tgt[0]), tgt[1]) for j in words]
            if places:
                return max(places) if side else min(places)
        # As far along as in the source, between two words.
        wanted = tgt[0] + (tgt[1] - tgt[0]) * position / length
        starts = [start for start, _ in self.tgt_words if tgt[0] <= start <= tgt[1]]
        return min(starts, key=lambda start: abs(start - wanted), default=tgt[0])


def _covered(words: Sequence[Range], part: Range) -> range:
    """The words that have characters in a part of their line."""
    first = bisect_right(words, part[0], key=lambda word: word[1])
    return range(first, max(first, bisect_left(words, part[1], key=lambda word: word[0])))


def _gap(in_source: str, in_target: str) -> str:
    """A space if something shown needs one, from the characters beside it."""
    if in_source.isspace():
        return " " if in_target.strip() else ""
    # Two words must not become one.
    return " " if in_target.isalnum() and not in_source.isalnum() else ""


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
        first_line: number of the first. It is used in messages, and samples depend on it.
    """
    documents = [parse(line, number) for number, line in enumerate(lines, first_line)]
    segments = [part for parts in documents for part in parts if isinstance(part, Segment)]
    # The number of the line that each segment is from.
    numbers = [
        number
        for number, parts in enumerate(documents, first_line)
        for part in parts
        if isinstance(part, Segment)
    ]

    def translated(wanted: Sequence[int]) -> list[str]:
        texts, of_lines = [segments[i].text for i in wanted], [numbers[i] for i in wanted]
        window = Window(first_line, texts, numbers=of_lines)
        ((_, found),) = translator.translate_windows([window])
        return [best.text for best, *_ in found]

    translations = translated(range(len(segments)))
    again = [
        i
        for i, segment in enumerate(segments)
        if _placeholders(segment.text) != _placeholders(translations[i])
    ]
    for i in again:
        segments[i] = segments[i].without_placeholders()
    for i, translation in zip(again, translated(again), strict=True):
        translations[i] = translation
    tagged = [i for i, segment in enumerate(segments) if segment.nodes]
    aligned = aligner.align(
        [segments[i].text for i in tagged],
        [translations[i] for i in tagged],
        numbers=[numbers[i] for i in tagged],
    )
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


def _placeholders(text: str) -> Counter[str]:
    return Counter(match[0] for match in _PLACEHOLDER.finditer(text))
