"""Word and PowerPoint files (Office Open XML, ECMA-376, also its strict form).

A paragraph has runs: pieces of text with a format. Neighbours that look the same become one, and
the format of most characters is that of the whole text, so that only what differs has a code. Tabs,
line breaks, and fields that go on in other paragraphs end a text. What was deleted while changes
were tracked stays as it is.
"""

from __future__ import annotations

import copy
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from lxml import etree
from lxml.builder import ElementMaker

from mtkit.base.errors import MtkitError
from mtkit.documents.document import Options
from mtkit.documents.paragraph import (
    XML_SPACE,
    Element,
    Paragraph,
    Piece,
    by_name,
    cut,
    local_name,
    xml_text,
)
from mtkit.documents.xml import Doubt, XmlDocument

# What runs may differ in and look the same: elements of Word, attributes of PowerPoint.
_SAME_LOOK = frozenset({"lang", "noProof", "altLang", "dirty", "err", "smtClean"})
_HYPHEN = "\u2011"
_PARAGRAPH = re.compile(r"\{[^}]*(?:wordprocessingml|drawingml)/(?:2006/)?main\}p")
_PROPERTIES = ("{*}title", "{*}subject", "{*}description", "{*}keywords", "{*}category")
_TYPES = "[Content_Types].xml"
# The time to compare a media type grows with the square of its length; none is as long as this.
_MAX_TYPE = 200
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_COMMENTS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/comments"
_COMMENTS_STRICT = "http://purl.oclc.org/ooxml/officeDocument/relationships/comments"
_COMMENTS_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.comments+xml"
_COMMENTS_PART = re.compile(r"wordprocessingml\.comments\+xml$")
# No one of 294 Word files made by others has more than 5 comments; so many need 20 MB.
MAX_COMMENTS = 10_000
# Comments that are marks of an earlier translation.
_OWN = "//*[local-name()='comment'][@*[local-name()='author']='mtkit']"
# What parts are called that Word and PowerPoint have, by the end of their media type.
_LABELS = by_name(
    chart="chart chartshapes", diagram="diagramData diagramDrawing", properties="core-properties"
)


class OfficeParagraph(Paragraph):
    """A paragraph of runs."""

    kinds = by_name(
        around="hyperlink smartTag ins moveTo dir bdo customXml fldSimple sdt ruby",
        unseen="bookmarkStart bookmarkEnd commentRangeStart commentRangeEnd commentReference "
        "annotationRef permStart permEnd del delText moveFrom moveFromRangeStart moveFromRangeEnd "
        "moveToRangeStart moveToRangeEnd softHyphen endParaRPr",
        break_="tab ptab br cr instrText",
        dropped="proofErr lastRenderedPageBreak",
    )
    # Fields whose result was written by a person; programs write that of all others again. That of
    # PAGEREF is a whole entry of a table of contents in LibreOffice: it has a tab.
    written = re.compile(
        r"\s*(?:(?:HYPERLINK|QUOTE|FORMTEXT|FILLIN|IF|TOC|INDEX|TOA)\b|PAGEREF[^\t]*\t)",
        re.IGNORECASE,
    )

    def kind(self, node: Element) -> str:
        """What a node is in a text."""
        name = local_name(node)
        if name == "fldChar":
            return str(node.get(f"{node.tag}Type", "break"))
        if name == "fldSimple" and not any(map(self.written.match, node.attrib.values())):
            return "shown"
        return "kept" if name.endswith("Pr") and name not in self.kinds else super().kind(node)

    def _content(self, holder: Element) -> Iterator[Piece]:
        for child in holder:
            if local_name(child) != "r":
                yield from self._child(child)
                continue
            properties = [*child.iterchildren(child.tag + "Pr")][:1]
            look = _look(properties)
            for node in child:
                name = local_name(node)
                if name in ("t", "noBreakHyphen") and not len(node):
                    pieces: Iterable[Piece] = cut(node.text if name == "t" else _HYPHEN, "\t")
                else:
                    pieces = self._child(node)
                for piece in pieces:
                    # What is in the base of a `ruby` is in runs of its own, or in none.
                    if piece.run is None and piece.element in (None, node):
                        piece.run, piece.look = properties, look
                    # The marks of a field that is not whole.
                    piece.is_break |= name == "fldChar"
                    yield piece

    def _nodes(self, piece: Piece) -> Iterator[Element]:
        if piece.element is not None:
            yield piece.element if piece.run is None else self._run(piece, piece.element)
            return
        space, text = self.element.tag.removesuffix("p"), xml_text(piece.text)
        is_word = "wordprocessingml" in space
        for part in filter(None, re.split(f"({_HYPHEN})", text) if is_word else [text]):
            node = self.element.makeelement(f"{space}{'noBreakHyphen' if part == _HYPHEN else 't'}")
            if part != _HYPHEN:
                node.text = part
            if is_word and part != part.strip():
                node.set(XML_SPACE, "preserve")
            yield self._run(piece, node)

    def _run(self, piece: Piece, content: Element) -> Element:
        """A run with an element, in the format of a piece."""
        run = self.element.makeelement(self.element.tag.removesuffix("p") + "r")
        run.extend([copy.deepcopy(node) for node in piece.run or ()])
        run.append(content)
        return run


class WordArt(Paragraph):
    """A text of WordArt in old files: an attribute, which may have several lines."""

    def holder(self, element: Element) -> Element:
        """An element with this text."""
        self._holder = element.makeelement(element.tag, {XML_SPACE: "preserve"})
        self._holder.text = element.get("string")
        return self._holder

    def render(self) -> None:
        """Write the text into the attribute."""
        super().render()
        self.element.set("string", self._holder.text)


def _look(formats: Iterable[Element]) -> tuple[object, ...]:
    """What a format looks like: equal for formats that nobody can tell apart."""
    look: list[object] = []
    for properties in formats:
        look += sorted(pair for pair in properties.items() if pair[0] not in _SAME_LOOK)
        for child in properties:
            # A hint is only for signs that several scripts have.
            is_hint = all(name.endswith("}hint") for name in child.keys() or [""])
            if local_name(child) not in _SAME_LOOK and not is_hint:
                look += ((node.tag, *sorted(node.items())) for node in child.iter(etree.Element))
    return tuple(look)


class OfficeDocument(XmlDocument):
    """What Word and PowerPoint files have in common: parts with types and relations.

    `main_type` is how the media type of the main part looks, and `labels` what parts are called in
    messages, by the end of their media type; empty for the main part of a text.
    """

    main_type: ClassVar[re.Pattern[str]]
    labels: ClassVar[dict[str, str]]

    def _labelled_parts(self) -> Iterator[tuple[str, str]]:
        # Names of parts have no case (ECMA-376, part 2).
        types = {
            (node.get("PartName") or node.get("Extension", "")).lower(): node.get("ContentType", "")
            for node in self._tree(_TYPES)
        }
        names = self._package.names
        self._types, first = {}, dict[str, str]()
        for name in names:
            part = f"/{name}".lower()
            if first.setdefault(part, name) != name and not name.endswith("/"):
                raise MtkitError(f"it is damaged: {first[part]} and {name} are one name")
            media_type = types.get(part) or types.get(part.rpartition(".")[2]) or ""
            self._types[name] = media_type[:_MAX_TYPE]
        self._main = self._part_of_type(self.main_type)
        if not self._main:
            raise MtkitError("it is not what its ending says, or its main part is missing")
        slides = {name: number for number, name in enumerate(self._slides(), 1)}
        for name in dict.fromkeys([*slides, *names]):
            label = self.labels.get(self._types[name].rpartition(".")[2].removesuffix("+xml"))
            numbers = re.findall(r"(?<!\d)\d++(?=\.xml$)", name)
            number = slides.get(name, "".join(numbers))
            if label is not None:
                yield name, label and f"{label} {number}".strip()

    def _slides(self) -> Sequence[str]:
        """The parts that are numbered in the order of reading."""
        return ()

    def _part_of_type(self, media_type: re.Pattern[str]) -> str:
        """The first part of such a type; empty if there is none."""
        names = (name for name in self._package.names if media_type.search(self._types[name]))
        return next(names, "")

    def _tree(self, name: str) -> Element:
        if name.endswith(".rels") and name not in self._package.names:
            return etree.Element(f"{{{_RELATIONS}}}Relationships", nsmap={None: _RELATIONS})
        return super()._tree(name)

    def _paragraphs(self, name: str, root: Element) -> Iterator[Paragraph]:
        for element in [*root.iter("{*}p", "{*}v", "{*}text", "{*}textpath", *_PROPERTIES)]:
            if _PARAGRAPH.fullmatch(element.tag):
                yield OfficeParagraph(element)
            elif local_name(element) == "textpath":
                yield WordArt(element)
            elif _is_plain(element):
                yield Paragraph(element)


class PowerPoint(OfficeDocument):
    """A PowerPoint file: slides, notes, diagrams, charts, and what all slides show."""

    main_type = re.compile(r"(presentationml|ms-powerpoint)\..*main\+xml")
    labels = _LABELS | by_name(
        slide="slide",
        notes="notesSlide",
        master="slideMaster",
        layout="slideLayout",
        comments="comments",
    )

    def _slides(self) -> Sequence[str]:
        relations = self._tree(_relations_of(self._main))
        targets = {node.get("Id"): node.get("Target", "") for node in relations}
        folder = posixpath.join("/", posixpath.dirname(self._main))
        paths = (
            posixpath.normpath(posixpath.join(folder, targets.get(value, "")))[1:]
            for slide in self._tree(self._main).iter("{*}sldId")
            for name, value in slide.items()
            if name.endswith("}id")
        )
        return [path for path in dict.fromkeys(paths) if path in self._types]

    def _paragraphs(self, name: str, root: Element) -> Iterator[Paragraph]:
        is_pattern = self._labels[name].startswith(("master", "layout"))
        for paragraph in super()._paragraphs(name, root):
            shapes = paragraph.element.iterancestors("{*}sp") if is_pattern else ()
            # The texts of placeholders of a pattern are not shown on slides.
            if all(shape.find(".//{*}ph") is None for shape in shapes):
                yield paragraph


class Word(OfficeDocument):
    """A Word file; a mark is shown as a comment."""

    shows_marks = True
    main_type = re.compile(r"(wordprocessingml|ms-word)\..*main\+xml")
    labels: ClassVar = {
        **_LABELS,
        **{name: name for name in ("header", "footer", "footnotes", "endnotes", "comments")},
        "main": "",
        "glossary": "building blocks",
    }

    def __init__(self, data: bytes, options: Options) -> None:
        # What is said in comments, each of a paragraph of the text, or None.
        self._doubts: dict[tuple[Element, str], None] = {}
        super().__init__(data, options)

    def _paragraphs(self, name: str, root: Element) -> Iterator[Paragraph]:
        own = set(root.xpath(_OWN))
        for paragraph in super()._paragraphs(name, root):
            if not own or own.isdisjoint(paragraph.element.iterancestors()):
                yield paragraph

    def _clear(self) -> None:
        """Take the comments of earlier marks away."""
        name = self._part_of_type(_COMMENTS_PART)
        if not name or not self._tree(name).xpath(_OWN):
            return
        ids = set[str]()
        for comment in self._to_change(name).xpath(_OWN):
            ids.update(comment.xpath("@*[local-name()='id']"))
            comment.getparent().remove(comment)
        kinds = ("{*}commentRangeStart", "{*}commentRangeEnd", "{*}commentReference")
        for node in list(self._to_change(self._main).iter(*kinds)):
            if not ids.isdisjoint(node.values()):
                node.getparent().remove(node)

    def _mark(self, paragraph: Paragraph, doubts: Sequence[Doubt]) -> None:
        around = [paragraph.element, *paragraph.element.iterancestors()]
        is_main = around[-1] is self._changed.get(self._main)
        name = f"{{{etree.QName(around[-1]).namespace}}}p"
        for place, mark in doubts:
            # Only the text itself can have comments, and text boxes in it cannot.
            outermost = [node for node in around if node.tag == name][-1] if is_main else None
            # A text box is there twice.
            self._doubts[outermost, mark if is_main else f"{place}: {mark}"] = None
            if len(self._doubts) > MAX_COMMENTS:
                self._doubts.popitem()
                self.write_notes = [f"only the first {MAX_COMMENTS:,} doubts have a comment"]

    def _end_marks(self) -> None:
        self._clear()
        doubts, self._doubts = list(self._doubts), {}
        if not doubts:
            return
        root = self._to_change(self._main)
        space = etree.QName(root).namespace
        word = f"{{{space}}}"
        first = next(root.iter(f"{word}p"), None)
        if first is None:
            return
        make = ElementMaker(namespace=space, nsmap={"w": space})
        comments = self._comments(make)
        ids = (node.get(f"{word}id", "") for node in comments.iter(f"{word}comment"))
        used = [int(number) for number in ids if number.isdecimal()]
        for number, (place, mark) in enumerate(doubts, 1 + max(used, default=-1)):
            paragraph = first if place is None else place
            reference = {f"{word}id": str(number)}
            author = {f"{word}author": "mtkit", f"{word}initials": "mt"}
            content = make.p(make.r(make.t(xml_text(mark))))
            comments.append(make.comment(content, reference | author))
            has_properties = len(paragraph) > 0 and local_name(paragraph[0]) == "pPr"
            paragraph.insert(int(has_properties), make.commentRangeStart(reference))
            paragraph.append(make.commentRangeEnd(reference))
            paragraph.append(make.r(make.commentReference(reference)))

    def _comments(self, make: ElementMaker) -> Element:
        """The root of the comments; their part is made if there is none."""
        name = self._part_of_type(_COMMENTS_PART)
        if name:
            return self._to_change(name)
        name = posixpath.join(posixpath.dirname(self._main), "comments.xml")
        comments = self._changed[name] = make.comments()
        types = self._to_change(_TYPES)
        relations = self._to_change(_relations_of(self._main))
        part = {"PartName": f"/{name}", "ContentType": _COMMENTS_TYPE}
        etree.SubElement(types, types.tag.replace("}Types", "}Override"), part)
        kind = _COMMENTS_STRICT if "purl.oclc.org" in comments.tag else _COMMENTS
        relation = {"Id": "mtkitComments", "Type": kind, "Target": "comments.xml"}
        etree.SubElement(relations, f"{{{_RELATIONS}}}Relationship", relation)
        return comments


def _relations_of(name: str) -> str:
    folder, file = posixpath.split(name)
    return posixpath.join(folder, "_rels", f"{file}.rels")


def _is_plain(element: Element) -> bool:
    """Whether it is text without formats: a property, a label of a chart, or a comment."""
    names = " ".join([local_name(node) for node in (element, *element.iterancestors())][:3])
    return names in ("text cm cmLst", "v pt strCache", "v pt lvl") or " core" in names
