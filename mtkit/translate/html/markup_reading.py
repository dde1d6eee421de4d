"""Reads HTML line by line: text, tags, and what is copied.

A `Reader` knows between two lines which block-level elements are open, and the comment, `<script>`
or element that is copied and has not ended. So these may have any number of lines.

A tag may also continue on other lines. If it does not end there, or has a `<` outside of quotes, it
is not a tag: it is copied to the end of its line with a warning, and the next line is read as text.

`MarkupRules` says whether it is XML, in which names mean nothing, and where sentences end.
"""

from __future__ import annotations

import html
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from html.entities import html5
from typing import Literal, NamedTuple

log = logging.getLogger(__name__)

# Block-level elements and others that end a sentence. All others, also those that HTML does not
# know, stand inside a sentence, as in browsers.
BLOCK = frozenset({
    "address", "article", "aside", "base", "blockquote", "body", "br", "button", "canvas",
    "caption", "center", "col", "colgroup", "dd", "details", "dialog", "dir", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "frame", "frameset", "h1", "h2", "h3",
    "h4", "h5", "h6", "head", "header", "hgroup", "hr", "html", "iframe", "legend", "li", "link",
    "main", "menu", "meta", "nav", "noframes", "noscript", "object", "ol", "optgroup", "option",
    "p", "param", "pre", "search", "section", "select", "source", "summary", "table", "tbody",
    "td", "template", "textarea", "tfoot", "th", "thead", "title", "tr", "track", "ul", "video",
    "audio", "xmp", "text",
})  # fmt: skip
# Elements without content.
_VOID = frozenset({
    "area", "base", "br", "col", "embed", "frame", "hr", "img", "input", "link", "meta", "param",
    "source", "track", "wbr",
})  # fmt: skip
# Elements whose content is not HTML: only their own end tag ends them.
_RAW = frozenset({"iframe", "script", "style", "textarea", "xmp"})
# Elements that are copied, because their text is not written in a language or has its own layout.
_COPIED = frozenset({"code", "kbd", "math", "pre", "samp", "var"})
# Classes of elements that are copied: what must not be translated, and formulas as they are shown.
_KEPT_CLASSES = frozenset({"notranslate", "katex", "MathJax"})
# Elements whose end tag may be left out: another one of the same name, or what stands around them,
# ends them.
_ENDED_BY_NEXT = frozenset({"dd", "dt", "li", "option", "p", "td", "th", "tr"})

# Block-level elements are counted to this depth.
_MAX_DEPTH = 200
# The lines of a tag.
_MAX_LINES = 100

# Line ends, the end, and what begins something that is not text. Numbers are tags in i18next, and
# <% %> is code of ERB, JSP or ASP.
_BEGIN = re.compile(
    r"\n|\Z|<(?:!--(?:-?>)?|!\[CDATA\[|!DOCTYPE[^<>[]*\[|\?|%(?=[^\n]{0,250}?%>)|!|/?[a-z]"
    r"|/?\d(?=\d{0,2}/?>))",
    re.ASCII | re.IGNORECASE,
)
# In XML, names may have other letters, and references to entities that HTML does not have stay.
_BEGIN_XML = re.compile(
    r"\n|\Z|<(?:!--|!\[CDATA\[|!DOCTYPE[^<>[]*\[|\?|!|/?[^\W\d]|/?:|/?\d(?=\d{0,2}/?>))"
    r"|&[^\W\d][\w.:-]*+;"
)
_CDATA = re.compile(r"<!--.*?(?:-->|\Z)|<!\[CDATA\[(.*?)(?:\]\]>|\Z)", re.DOTALL)
# What ends it, if it is not a tag.
_ENDS = {"<!--": re.compile(r"--!?>"), "<![cdata[": re.compile(r"\]\]>"), "<?": re.compile(r"\?>")}
_ENDS["<%"] = re.compile(r"%>")
_TAG_END = re.compile(">")
# The end of the declarations inside of a document type; its > may be on a later line.
_SUBSET_END = re.compile(r"\](?=\s*(?:>|\Z))")


def _tag(value: str) -> re.Pattern[str]:
    """A tag, as far as it is there, where one begins; attributes have such values."""
    return re.compile(
        rf"""<(?:(?P<name>[^\s/>!][^\s/>]*+)
               (?P<attributes>(?:[\s=]|/(?!>)|[^\s/>=]++(?:\s*+=\s*+{value})?+)*+)(?P<empty>/?)
             | /(?P<close>[^\s/>]++)[^>]*+
             | ![^>]*+)>?""",
        re.ASCII | re.IGNORECASE | re.VERBOSE,
    )


# Tags are as in browsers; Python's HTMLParser reads broken HTML differently from version to
# version, and long lines of it slowly.
_QUOTED = r"""(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)"""
_TAG = _tag(r"""(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|[^\s>"'][^\s>]*+)""")
# A quote that is not closed is a part of the name of an attribute.
_TAG_ON_ITS_LINE = _tag(_QUOTED)
_ATTRIBUTE = re.compile(rf"([^\s/>=]++)(?:\s*+=\s*+({_QUOTED}))?+", re.ASCII)
_QUOTED_VALUE = re.compile(r"""=\s*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z))""")


class Item(NamedTuple):
    """A piece of HTML as it was written, and the line on which a text begins.

    The kind is `text`; `open` or `close`, a tag in a sentence; `point`, something without text to
    translate; or `block`, which ends a sentence. The name of a comment and the like is empty.
    """

    kind: str
    raw: str
    name: str = ""
    number: int = 0


@dataclass(frozen=True)
class MarkupRules:
    """How markup is read.

    Attributes:
        is_xml: names of elements mean nothing, and are compared with their case.
        line_ends: which of them end a sentence; by default those that are in no block-level
            element, or in no element of XML.
        finds_blocks: whether an element of XML ends a sentence if it has no text beside it.
        splitting, non_splitting: other elements that end a sentence, and those that do not.
        ignored: elements that are copied, besides those of HTML.
    """

    is_xml: bool = False
    line_ends: Literal["outside", "all", "none"] = "outside"
    finds_blocks: bool = True
    splitting: frozenset[str] = frozenset()
    non_splitting: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()

    def is_block(self, name: str) -> bool:
        """Whether an element ends a sentence by its name."""
        is_known = name in self.splitting or (name in BLOCK and not self.is_xml)
        return is_known and name not in self.non_splitting

    def outlined(self, items: list[Item]) -> list[Item]:
        """The pieces of a whole text, with the elements of XML that end a sentence as blocks."""
        if not (self.is_xml and self.finds_blocks):
            return items
        # The open elements by the numbers and names of their tags, and what is around all of them.
        stack, depths = [(-1, "")], Counter[str]()
        around: dict[int, int] = {}
        with_text = set[int]()
        for number, (kind, raw, name, _) in enumerate(items):
            if kind == "text" and not raw.isspace():
                with_text.add(stack[-1][0])
            elif kind == "open":
                around[number] = stack[-1][0]
                stack.append((number, name))
                depths[name] += 1
            elif kind == "close" and depths[name]:
                is_open = True
                while is_open:
                    _, closed = stack.pop()
                    depths[closed] -= 1
                    is_open = closed != name
                around[number] = stack[-1][0]
        blocks = {
            number
            for number, parent in around.items()
            if parent not in with_text and items[number].name not in self.non_splitting
        }
        return [
            item._replace(kind="block") if number in blocks else item
            for number, item in enumerate(items)
        ]


HTML = MarkupRules()


class Reader:
    """Reads lines one after another, from a number on; may warn of what does not end."""

    def __init__(self, number: int = 1, *, warns: bool = True, rules: MarkupRules = HTML) -> None:
        self._number = number
        self._warns, self._rules = warns, rules
        # The open block-level elements, from the outermost.
        self._blocks: list[str] = []
        # What was read of the element that is copied, its name, and its depth in such elements.
        self._kept: list[str] = []
        self._kept_name, self._depth = "", 0
        # What was read of a comment or the like, the name of its element, and what ends it.
        self._begun: list[str] = []
        self._name, self._awaited = "", list[re.Pattern[str]]()
        # What is copied, as it begins, and the number of its line.
        self._copied = "", number
        # What was read of a tag.
        self._rest = ""
        # Whether a sentence has begun.
        self._is_pending = False

    @property
    def is_open(self) -> bool:
        """Whether a sentence, a tag or the like may go on on the next line."""
        return bool(self._is_pending or self._rest or self._begun or self._kept)

    def read(self, line: str, *, is_last: bool = False) -> list[Item]:
        """The pieces of the next line, which has its line end; a piece is complete."""
        text, self._rest = self._rest + line, ""
        return list(self._arranged(self._pieces(text, is_last=is_last)))

    def flush(self) -> list[Item]:
        """What was read and is not complete; the rest of it may follow."""
        items = self.read("", is_last=True)
        if self._begun:
            items += self._arranged([self._taken()])
        if self._kept:
            items.append(self._taken_kept())
        self._is_pending = False
        return items

    def warn_of_end(self) -> None:
        """Warn if the input has ended inside of something."""
        if self._depth or self._awaited:
            what, self._number = self._copied
            self._warn(what, "what follows is copied")

    def _pieces(self, text: str, *, is_last: bool) -> Iterator[Item]:
        """The pieces of a text; in `_rest` is what was not read."""
        at = 0
        while at < len(text):
            if self._awaited:
                match = self._awaited[0].search(text, at)
                end = match.end() if match else len(text)
                self._begun.append(text[at:end])
                at = end
                if match:
                    del self._awaited[0]
                    if not self._awaited:
                        yield self._taken()
                continue
            match = (_BEGIN_XML if self._rules.is_xml else _BEGIN).search(text, at)
            assert match is not None
            if at < match.start():
                yield Item("text", text[at : match.start()])
            at, end, begun = match.start(), match.end(), match[0].lower()
            if begun == "\n":
                yield Item("text", "\n")
            elif begun.startswith("&"):
                is_character = match[0][1:] in html5
                yield Item("text", match[0]) if is_character else Item("point", match[0], "&")
            elif begun in _ENDS:
                # What a program writes there, others see.
                is_program = begun in ("<?", "<%") and not self._rules.is_xml
                self._await(match[0], begun[1] * is_program, _ENDS[begun])
            elif begun.endswith("["):
                self._await(match[0], "", _SUBSET_END, _TAG_END)
            elif begun.endswith(">"):
                yield Item("point", match[0])
            elif begun:
                tag = _TAG.match(text, at)
                assert tag is not None
                is_broken = "\n" in tag[0] and _is_broken(tag[0])
                if is_broken or not tag[0].endswith(">"):
                    if not (is_last or is_broken or text.count("\n", at) >= _MAX_LINES):
                        self._rest = text[at:]
                        return
                    line_end = text.find("\n", at)
                    tag = _TAG_ON_ITS_LINE.match(text, at, line_end)
                    assert tag is not None
                    if not tag[0].endswith(">"):
                        self._warn(tag[0], "the next line is read as text")
                        yield Item("block", text[at:line_end])
                        at = line_end
                        continue
                end = tag.end()
                item = _of_tag(tag, self._rules)
                if item.kind == "raw":
                    self._await(item.raw, item.name, _end_tag(item.name), _TAG_END)
                else:
                    yield item
            at = end

    def _await(self, raw: str, name: str, *ends: re.Pattern[str]) -> None:
        self._begun, self._name, self._awaited = [raw], name, list(ends)
        if not self._depth:
            self._copied = raw, self._number

    def _taken(self) -> Item:
        """The comment or the like that was read."""
        raw, self._begun = "".join(self._begun), []
        return Item("point", raw, self._name)

    def _taken_kept(self) -> Item:
        """The element that is copied, as far as it was read."""
        raw, self._kept = "".join(self._kept), []
        name = self._kept_name
        return Item("block" if self._rules.is_block(name) else "point", raw, name)

    def _arranged(self, items: Iterable[Item]) -> Iterator[Item]:
        """The pieces with their numbers; those in an element that is copied are one, at its end."""
        for kind, raw, name, _ in items:
            number = self._number
            self._number += raw.count("\n")
            if self._depth or kind == "keep":
                if not self._depth:
                    self._copied, self._kept_name = (raw, number), name
                self._kept.append(raw)
                if name == self._kept_name and kind != "point":
                    self._depth += -1 if kind == "close" else 1
                if not self._depth:
                    item = self._taken_kept()
                    self._is_pending = item.kind != "block"
                    yield item
                continue
            rules, is_block = self._rules, bool(name) and self._rules.is_block(name)
            if is_block or rules.is_xml:
                self._open_or_close(kind, name)
            # Outside of elements every line is a text of its own.
            ends = raw == "\n" and (rules.line_ends == "all" or not self._blocks)
            is_block = is_block or kind == "block" or (ends and rules.line_ends != "none")
            begins = bool(name) if kind != "text" else not raw.isspace()
            self._is_pending = not is_block and (self._is_pending or begins)
            yield Item("block" if is_block else kind, raw, name, number)

    def _open_or_close(self, kind: str, name: str) -> None:
        blocks = self._blocks
        if kind == "open":
            is_ended = blocks and not self._rules.is_xml
            if is_ended and (blocks[-1] == "p" or (blocks[-1] == name and name in _ENDED_BY_NEXT)):
                blocks.pop()
            if len(blocks) < _MAX_DEPTH:
                blocks.append(name)
        elif kind == "close" and name in blocks:
            while blocks.pop() != name:
                pass

    def _warn(self, what: str, consequence: str) -> None:
        if self._warns:
            name = what.split()[0][:20].removesuffix(">")
            log.warning("line %d: %s does not end; %s", self._number, name, consequence)


@cache
def _end_tag(name: str) -> re.Pattern[str]:
    return re.compile(rf"</{name}(?=[\s/>])", re.ASCII | re.IGNORECASE)


def without_cdata(xml: str) -> str:
    """XML with its CDATA sections as other text, of which they have the meaning."""
    return _CDATA.sub(
        lambda match: match[0] if match[1] is None else html.escape(match[1], quote=False), xml
    )


def _is_broken(tag: str) -> bool:
    """Whether a tag has a `<` outside of its quotes after its first line."""
    plain = _QUOTED_VALUE.sub(lambda value: "\n" if "\n" in value[0] else "", tag)
    return "<" in plain.partition("\n")[2]


def _of_tag(tag: re.Match[str], rules: MarkupRules) -> Item:
    """A tag. `keep` opens an element that is copied, and `raw` one whose content is not HTML."""
    raw, is_html = tag[0], not rules.is_xml
    if tag["close"]:
        return Item("close", raw, tag["close"].lower() if is_html else tag["close"])
    if tag["name"] is None:
        return Item("point", raw)
    name = tag["name"].lower() if is_html else tag["name"]
    if tag["empty"] or (is_html and name in _VOID):
        return Item("point", raw, name)
    if is_html and name in _RAW:
        return Item("raw", raw, name)
    given = {
        key.lower(): value.strip("\"'") for key, value in _ATTRIBUTE.findall(tag["attributes"])
    }
    is_kept = (
        (is_html and name in _COPIED)
        or name in rules.ignored
        or given.get("translate", "").lower() == "no"
        or not _KEPT_CLASSES.isdisjoint(given.get("class", "").split())
    )
    return Item("keep" if is_kept else "open", raw, name)
