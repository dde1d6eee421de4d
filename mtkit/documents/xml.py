"""Documents of XML parts, most of them in a zip: the parts are read safely, and written again."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from lxml import etree

from mtkit.base.errors import MtkitError
from mtkit.documents.document import Document, Options, Segment, TooLargeError
from mtkit.documents.paragraph import Element, Paragraph, Text
from mtkit.documents.zipped import Package

# A tag or an attribute needs some 100 bytes of memory; a page of a book in Office has some 1,000.
MAX_TAGS = 1_500_000
# No part with texts is as large as this, without the pictures.
MAX_PART = 100_000_000
# Bytes of parts whose trees are kept; a tree needs some ten times as many.
_MAX_KEPT = 5_000_000
_PARSER = etree.XMLParser(
    resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, strip_cdata=False
)
_DECLARATION = re.compile(
    rb"""(?:\xef\xbb\xbf)?<\?xml(?![^>]*encoding=["'](?!utf-8["']))[^>]*\?>\s*""", re.IGNORECASE
)
# A segment, its text in a tree, and what is doubtful about it.
Marked = tuple[Segment, Text, str]


class XmlDocument(Document):
    """A document whose paragraphs are elements in parts.

    The tree of a part is kept until the document is written, unless the part is large: then it is
    read again, and only if something in it changes.

    Attributes:
        package: reads the parts, and writes the document with those that changed.
    """

    package: ClassVar[type[Package]] = Package

    def __init__(self, data: bytes, options: Options) -> None:
        super().__init__()
        self._package, self._options = self.package(data, options.max_unpacked), options
        self.notes = self._package.notes
        self._labels = dict(self._labelled_parts())
        self._parts: dict[str, range] = {}
        # The roots of parts that change.
        self._changed: dict[str, Element] = {}
        # Small parts as they were read, until the first `write`.
        self._kept: dict[str, tuple[Element, list[tuple[Segment, Text]]]] = {}
        left = _MAX_KEPT
        for name in self._labels:
            start, root = len(self.segments), self._tree(name)
            texts = list(self._texts(name, root))
            self.segments += [segment for segment, _ in texts]
            self._parts[name] = range(start, len(self.segments))
            left -= self._package.size(name)
            if texts and left >= 0:
                self._kept[name] = root, texts

    @abstractmethod
    def _labelled_parts(self) -> Iterable[tuple[str, str]]:
        """The parts with texts, in the order of reading, and what each is called in messages.

        The main part of a text is not called anything. `notes` are written here, too.
        """

    @abstractmethod
    def _paragraphs(self, name: str, root: Element) -> Iterable[Paragraph]:
        """The paragraphs of a part; always the same ones for the same bytes."""

    def _texts(self, name: str, root: Element) -> Iterator[tuple[Segment, Text]]:
        label, number, places = self._labels[name], 0, dict[Element, int]()
        for paragraph in self._paragraphs(name, root):
            for index, text in enumerate(paragraph.texts):
                number += index == 0 or paragraph.default == "block"
                place = paragraph.name or f"paragraph {number}{_cell(paragraph.element, places)}"
                place = f"{label}, {place}" if label else place
                yield Segment(text.line, place, is_replaced=paragraph.is_replaced), text

    def _tree(self, name: str) -> Element:
        if name not in self._package.names:
            raise MtkitError(f"it is not what its ending says: {name} is missing")
        label = f"its part {name}" if name else "it"
        if self._package.size(name) > MAX_PART:
            raise TooLargeError(f"{label} has more than {MAX_PART:,} bytes; divide the document")
        return parsed(self._cleaned(self._package.read(name)), label)

    def _cleaned(self, data: bytes) -> bytes:
        """The bytes of a part as XML."""
        return data

    def _to_change(self, name: str) -> Element:
        """The root of a part that is written again."""
        if name not in self._changed:
            self._changed[name] = self._tree(name)
        return self._changed[name]

    def write(
        self, translations: Sequence[str | None], marks: Mapping[int, str] | None = None
    ) -> bytes:
        """See `Document.write`."""
        changes = self.changes(translations)
        marks = marks if marks and self.shows_marks else {}
        marked: list[Marked] = []
        changed: dict[Paragraph, None] = {}
        self._changed, touched = {}, {*changes, *marks}
        for name, numbers in self._parts.items():
            wanted = sorted(touched.intersection(numbers))
            texts: list[tuple[Segment, Text]] = []
            if wanted and name in self._kept:
                self._changed[name], texts = self._kept[name]
            elif wanted:
                texts = list(self._texts(name, self._to_change(name)))
            for number in wanted:
                segment, text = texts[number - numbers.start]
                if number in changes:
                    text.put(changes[number])
                    changed[text.paragraph] = None
                if number in marks:
                    marked.append((segment, text, marks[number]))
        for paragraph in changed:
            paragraph.render()
        self._mark(marked)
        # Their trees are others now.
        self._kept.clear()
        new, self._changed = self._changed, {}
        return self._package.write(
            {name: serialised(root, self._package.read(name)) for name, root in new.items()}
        )

    def _mark(self, marked: Sequence[Marked]) -> None:
        """Show marks in the parts."""


def _cell(element: Element, places: dict[Element, int]) -> str:
    """Where an element is in a table, if it is in one; `places` grows by its row and cell."""
    cell = next(element.iterancestors("{*}tc", "{*}table-cell"), None)
    if cell is None or cell.getparent().getparent() is None:
        return ""
    row, number = _index(cell.getparent(), places), _index(cell, places)
    return f" (row {row}, cell {number})"


def _index(element: Element, places: dict[Element, int]) -> int:
    """The number of an element among its siblings of the same kind, from 1."""
    if element not in places:
        first: dict[object, int] = {}
        for place, sibling in enumerate(element.getparent(), 1):
            places[sibling] = 1 + place - first.setdefault(sibling.tag, place)
    return places[element]


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
        raise MtkitError(f"{name} is not well-formed XML: {getattr(error, 'msg', error)}") from None
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
