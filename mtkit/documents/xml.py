"""Documents of XML parts, most of them in a zip: the parts are read safely, and written again."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from lxml import etree

from mtkit.base.errors import MtkitError
from mtkit.documents.document import Document, Options, Segment, TooLargeError
from mtkit.documents.paragraph import Element, Paragraph, local_name
from mtkit.documents.zipped import Package

# Nine times as many as in the largest of 10,000 parts of documents made by others (a slide); a
# document of so many needs 300 MB of memory.
MAX_TAGS = 900_000
# No part with texts is as large as this, without the pictures.
MAX_PART = 100_000_000
_PARSER = etree.XMLParser(
    resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, strip_cdata=False
)
_DECLARATION = re.compile(
    rb"""(?:\xef\xbb\xbf)?<\?xml(?![^>]*encoding=["'](?!utf-8["']))[^>]*\?>\s*""", re.IGNORECASE
)
# Texts about a document, of which there is one each.
_NAMED = {"title", "subject", "description", "keywords", "category"}
# A place in the document, and what is doubtful about the text there.
Doubt = tuple[str, str]


class XmlDocument(Document):
    """A document whose paragraphs are elements in parts, which `package` reads and writes.

    A part is read again if something in it changes: its tree needs ten times as much memory.
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
        for name in self._labels:
            start = len(self.segments)
            for _, segments in self._texts(name, self._tree(name)):
                self.segments += segments
            self._parts[name] = range(start, len(self.segments))

    @abstractmethod
    def _labelled_parts(self) -> Iterable[tuple[str, str]]:
        """The parts with texts, in the order of reading, and their names in messages."""

    @abstractmethod
    def _paragraphs(self, name: str, root: Element) -> Iterable[Paragraph]:
        """The paragraphs of a part; those before one may change while it is read."""

    def _texts(self, name: str, root: Element) -> Iterable[tuple[Paragraph, list[Segment]]]:
        """The paragraphs with texts, and a segment for each text."""
        label, number, numbers = self._labels[name], 0, _numbers_in_tables(root)
        for paragraph in self._paragraphs(name, root):
            segments = list[Segment]()
            for index, text in enumerate(paragraph.texts):
                number += index == 0 or paragraph.default == "block"
                element = paragraph.element
                place = paragraph.name or local_name(element)
                if place not in (paragraph.name, *_NAMED):
                    place = f"paragraph {number}{_cell(element, numbers)}"
                place = f"{label}, {place}" if label else place
                segments.append(Segment(text.line, place, is_replaced=paragraph.is_replaced))
            if segments:
                yield paragraph, segments

    def _tree(self, name: str) -> Element:
        """The root of a part; MtkitError if it is no XML, too large, or declares entities."""
        if name not in self._package.names:
            raise MtkitError(f"it is not what its ending says: {name} is missing")
        label = f"its part {name}" if name else "it"
        if self._package.size(name) > MAX_PART:
            raise TooLargeError(f"{label} has more than {MAX_PART:,} bytes; divide the document")
        data = self._cleaned(self._package.read(name))
        if data.count(b"<") + data.count(b"=") > 2 * MAX_TAGS:
            raise TooLargeError(f"{label} has more than {MAX_TAGS:,} tags; divide the document")
        try:
            root = etree.fromstring(data, _PARSER)
        except (etree.XMLSyntaxError, ValueError) as error:
            fault = getattr(error, "msg", error)
            raise MtkitError(f"{label} is not well-formed XML: {fault}") from None
        declared = root.getroottree().docinfo.internalDTD
        if declared is not None and any(declared.iterentities()):
            raise MtkitError(
                f"{label} declares entities in a DOCTYPE, which is not safe; remove it"
            )
        return root

    def _cleaned(self, data: bytes) -> bytes:
        """The bytes of a part as XML."""
        return data

    def _to_change(self, name: str) -> Element:
        """The root of a part that is written again."""
        if name not in self._changed:
            self._changed[name] = self._tree(name)
        return self._changed[name]

    def _written(self, changes: Mapping[int, str], marks: Mapping[int, str]) -> bytes:
        self._changed = {}
        for name, numbers in self._parts.items():
            if {*changes, *marks}.isdisjoint(numbers):
                continue
            following = iter(numbers)
            for paragraph, segments in self._texts(name, self._to_change(name)):
                # The numbers are the last, of which none may be lost.
                own = list(zip(paragraph.texts, segments, following, strict=False))
                changed = [(text, changes[n]) for text, _, n in own if n in changes]
                doubts = [(segment.place, marks[n]) for _, segment, n in own if n in marks]
                for text, line in changed:
                    text.put(line)
                if changed:
                    paragraph.render()
                paragraph.is_rejected = any(n in self._rejected for *_, n in own)
                if changed or doubts:
                    self._mark(paragraph, doubts)
        self._end_marks()
        new, self._changed = self._changed, {}
        return self._package.write(
            {name: serialised(root, self._package.read(name)) for name, root in new.items()}
        )

    def _mark(self, paragraph: Paragraph, doubts: Sequence[Doubt]) -> None:
        """Show what is doubtful in a paragraph that was changed, or has doubts."""

    def _end_marks(self) -> None:
        """Change what marks need besides, when all paragraphs are written."""


def _numbers_in_tables(root: Element) -> dict[Element, int]:
    """The number of each row in its table, and of each cell in its row."""
    numbers, counts = dict[Element, int](), Counter[Element]()
    # A control of Word may be around a row or a cell.
    for node in root.iter("{*}tr", "{*}table-row", "{*}tc", "{*}table-cell", "{*}sdt"):
        counts[node.getparent()] += 1
        numbers[node] = counts[node.getparent()]
    return numbers


def _cell(element: Element, numbers: Mapping[Element, int]) -> str:
    """Where an element is in a table, if it is in one."""
    cell = next(element.iterancestors("{*}tc", "{*}table-cell"), None)
    if cell is None or cell.getparent().getparent() is None:
        return ""
    return f" (row {numbers.get(cell.getparent(), 1)}, cell {numbers[cell]})"


def serialised(root: Element, old: bytes) -> bytes:
    """The XML of a tree in UTF-8; declaration and line ends are those of the XML that it was."""
    declaration = _DECLARATION.match(old)
    begin = declaration[0] if declaration else b"<?xml version='1.0' encoding='UTF-8'?>\n"
    xml: bytes = etree.tostring(root.getroottree(), encoding="UTF-8", xml_declaration=False)
    xml += b"\n" * old.endswith(b"\n")
    return begin + (xml.replace(b"\n", b"\r\n") if b"\r\n" in old else xml)
