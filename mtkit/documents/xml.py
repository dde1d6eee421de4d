"""XML of documents: read safely, written again, and elements whose content is text and elements."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from lxml import etree

from mtkit.base.errors import MtkitError
from mtkit.documents.document import TooLargeError
from mtkit.documents.items import (
    MAX_NESTED,
    Around,
    Element,
    Item,
    Text,
    Thing,
    Words,
    texts_in,
)

XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"

# A tag or an attribute needs some 100 bytes of memory; a page of a book in Office has some 1,000.
MAX_TAGS = 1_500_000
_PARSER = etree.XMLParser(
    resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, strip_cdata=False
)
_DECLARATION = re.compile(
    rb"""(?:\xef\xbb\xbf)?<\?xml(?![^>]*encoding=["'](?!utf-8["']))[^>]*\?>\s*""", re.IGNORECASE
)
_NOT_IN_XML = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

# What an element is in a text: around words; at a place, shown or not; the begin or the end of what
# is around words; what ends the text, and has texts of its own.
Kind = Literal["around", "shown", "unseen", "begin", "end", "break"]


def parsed(data: bytes, name: str) -> Element:
    """The root of some XML; nothing outside of it is read.

    Raises:
        MtkitError: it is no XML, too large, or declares entities.
    """
    if data.count(b"<") + data.count(b"=") > 2 * MAX_TAGS:
        raise TooLargeError(f"{name} has more than {MAX_TAGS:,} tags; divide the document")
    try:
        root = etree.fromstring(data, _PARSER)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise MtkitError(f"{name} is not well-formed XML: {error}") from None
    declared = root.getroottree().docinfo.internalDTD
    if declared is not None and any(declared.iterentities()):
        raise MtkitError(f"{name} declares entities in a DOCTYPE, which is not safe; remove it")
    return root


def serialised(root: Element, old: bytes = b"") -> bytes:
    """The XML of a tree in UTF-8; declaration and line ends are those of the XML that it was."""
    declaration = _DECLARATION.match(old)
    begin = declaration[0] if declaration else b"<?xml version='1.0' encoding='UTF-8'?>\n"
    xml: bytes = etree.tostring(root.getroottree(), encoding="UTF-8", xml_declaration=False)
    xml += b"\n" * old.endswith(b"\n")
    return begin + (xml.replace(b"\n", b"\r\n") if b"\r\n" in old else xml)


def local_name(node: Element) -> str:
    """The name of an element without its namespace; empty for comments, and for None."""
    tag = getattr(node, "tag", None)
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def xml_text(text: str) -> str:
    """A text without the characters that XML cannot have."""
    return _NOT_IN_XML.sub("", text)


@dataclass(frozen=True, slots=True)
class Slot:
    """A segment in a tree.

    Attributes:
        place: where it is, in words.
        element: what `render` writes, after translations were put into its texts.
    """

    text: Text
    place: str
    element: Element
    render: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Rules:
    """What the elements of a format are in a text, by their names; all others are `default`."""

    kinds: Mapping[str, str]
    default: Kind

    @classmethod
    def of(cls, default: Kind, **kinds: str) -> Rules:
        """Rules from names with spaces between them, by kind (`break_` for `break`)."""
        pairs = ((name, kind.strip("_")) for kind, names in kinds.items() for name in names.split())
        return cls(dict(pairs), default)

    def kind(self, node: Element) -> str:
        """What a node is in a text."""
        name = local_name(node)
        if not name:
            return "unseen"
        # HTML and XLIFF 2.0; XLIFF 1.2.
        if node.get("translate") == "no" or node.get("mtype") == "protected":
            return "shown"
        return self.kinds.get(name, self.default)


class Content(Around, ABC):
    """The content of an element as items."""

    @abstractmethod
    def render(self) -> None:
        """Write the items into the element."""


def slots_of(contents: Iterable[Content], label: str) -> Iterator[Slot]:
    """The segments of some contents, each named by its paragraph: the label, and its number."""
    number = 0
    for content in contents:
        texts = list(texts_in(content))
        number += bool(texts)
        place = f"{label}, paragraph {number}" if label else f"paragraph {number}"
        yield from (Slot(text, place, content.element, content.render) for text in texts)


class MixedContent(Content):
    """The content of an element: text, and elements with text after them."""

    def __init__(self, element: Element, rules: Rules) -> None:
        super().__init__(_read(element, rules), element)

    def render(self) -> None:
        """Write the items into the element."""
        _fill(self.element, self.items)


def _read(element: Element, rules: Rules) -> list[Item]:
    items: list[Item] = _words(element, element.text)
    # Where the begins are that have no end yet.
    begins: list[int] = []
    for child in element:
        kind = rules.kind(child)
        if kind in ("around", "break"):
            items.append(Around(_read(child, rules), child, is_break=kind == "break"))
        else:
            items.append(Thing(child, is_shown=kind != "unseen"))
        if kind == "begin":
            begins.append(len(items) - 1)
        elif kind == "end" and len(begins) <= MAX_NESTED:
            same = [at for at in begins if _pair_id(items[at]) == _pair_id(items[-1])]
            if same:
                at = same[-1]
                begins = [begin for begin in begins if begin < at]
                items[at:] = [Around(items[at + 1 : -1], begin=[items[at]], end=[items[-1]])]
        items += _words(element, child.tail)
    return items


def _words(element: Element, text: str | None) -> list[Item]:
    """Some text in an element; where line ends count, they are breaks."""
    keeping = (node.get(XML_SPACE) for node in (element, *element.iterancestors()))
    is_kept = next(filter(None, keeping), "") == "preserve"
    return [*Words(text or "").cut("\n")] if is_kept else [Words(text or "")]


def _pair_id(item: Item) -> str | None:
    """What the begin and the end of a pair have in common (XLIFF 1.2 and 2.0)."""
    element = item.element if isinstance(item, Thing) else {}
    pair_id: str | None = element.get("startRef") or element.get("rid") or element.get("id")
    return pair_id


def _fill(element: Element, items: Iterable[Item]) -> None:
    for child in list(element):
        element.remove(child)
    element.text = None
    _append(element, items)


def _append(element: Element, items: Iterable[Item]) -> None:
    for item in items:
        if isinstance(item, Words):
            text = xml_text(item.text)
            if len(element):
                element[-1].tail = (element[-1].tail or "") + text
            else:
                element.text = (element.text or "") + text
        elif isinstance(item, Around) and item.element is None:
            _append(element, [*item.begin, *item.items, *item.end])
        else:
            if isinstance(item, Around):
                _fill(item.element, item.items)
            item.element.tail = None
            element.append(item.element)
