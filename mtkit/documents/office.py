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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from lxml import etree

from mtkit.base.errors import MtkitError
from mtkit.documents.items import MAX_NESTED, Around, Element, Item, Thing, Words, joined
from mtkit.documents.xml import (
    XML_SPACE,
    Content,
    MixedContent,
    Rules,
    Slot,
    local_name,
    slots_of,
    xml_text,
)
from mtkit.documents.zipped import ZippedDocument

# Of a paragraph: what is around other things, what readers do not see, what means nothing.
_AROUND = frozenset({
    "hyperlink", "smartTag", "ins", "moveTo", "dir", "bdo", "customXml", "fldSimple", "sdt",
})  # fmt: skip
_UNSEEN = frozenset({
    "bookmarkStart", "bookmarkEnd", "commentRangeStart", "commentRangeEnd", "commentReference",
    "annotationRef", "permStart", "permEnd", "del", "delText", "moveFrom", "moveFromRangeStart",
    "moveFromRangeEnd", "moveToRangeStart", "moveToRangeEnd", "softHyphen",
})  # fmt: skip
_WITHOUT_MEANING = frozenset({"proofErr", "lastRenderedPageBreak", "rPr"})
_BREAKS = frozenset({"tab", "ptab", "br", "cr", "fldChar", "instrText"})
# Fields whose result was written by a person; programs write that of all others again.
_WRITTEN = re.compile(r"\s*(?:HYPERLINK|QUOTE|FORMTEXT|IF|TOC|INDEX|TOA)\b", re.IGNORECASE)
# What runs may differ in and look the same: elements of Word, attributes of PowerPoint.
_SAME_LOOK = frozenset({"lang", "noProof", "altLang", "dirty", "err", "smtClean"})
_HYPHEN = "\u2011"

_PARAGRAPH = re.compile(r"\{[^}]*(?:wordprocessingml|drawingml)/(?:2006/)?main\}p")
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_TYPES = "[Content_Types].xml"
_COMMENTS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/comments"
_COMMENTS_STRICT = "http://purl.oclc.org/ooxml/officeDocument/relationships/comments"
_COMMENTS_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.comments+xml"
_PLAIN = Rules.of("shown")
_PROPERTIES = frozenset({"title", "subject", "description", "keywords", "category"})
# What parts are called that Word and PowerPoint have.
_LABELS = {
    ".chart+xml": "chart",
    ".chartshapes+xml": "chart",
    ".diagramData+xml": "diagram",
    ".diagramDrawing+xml": "diagram",
    ".core-properties+xml": "properties",
}


class Paragraph(Content):
    """The content of a paragraph, read from its runs and written as runs."""

    def __init__(self, element: Element) -> None:
        super().__init__(_read(element), element)

    def render(self) -> None:
        """Write the items into the paragraph."""
        _fill(self.element, _elements(self.items, self.element))


def _read(holder: Element) -> list[Item]:
    items: list[Item] = []
    for child in holder:
        name = local_name(child)
        if name == "r":
            items += _read_run(child)
        elif name in _AROUND:
            inside = _read(_holder(child))
            items.append(Around(inside, child, is_fixed=not _is_written(child)))
        elif name not in _WITHOUT_MEANING and not name.endswith("Pr"):
            items.append(Thing(child, is_shown=_is_shown(name), is_break=name in _BREAKS))
    return joined(_with_fields(items))


def _read_run(run: Element) -> Iterator[Item]:
    properties = next((child for child in run if local_name(child) == "rPr"), None)
    look = _look(properties)
    for child in run:
        name = local_name(child)
        if name in ("t", "noBreakHyphen") and not len(child):
            text = child.text or "" if name == "t" else _HYPHEN
            yield from Words(text, properties, look).cut("\t")
        elif name not in _WITHOUT_MEANING:
            yield Thing(child, _is_shown(name), name in _BREAKS, properties, is_in_run=True)


def _look(properties: Element | None) -> tuple[object, ...]:
    """What a format looks like: equal for formats that nobody can tell apart."""
    if properties is None:
        return ()
    own = [pair for pair in properties.attrib.items() if pair[0] not in _SAME_LOOK]
    nodes = (
        node
        for child in properties
        if local_name(child) not in _SAME_LOOK
        for node in child.iter(etree.Element)
    )
    return (*sorted(own), *((node.tag, *sorted(node.attrib.items())) for node in nodes))


def _is_shown(name: str) -> bool:
    return bool(name) and name not in _UNSEEN


def _holder(element: Element) -> Element:
    """Where the content of something around others is."""
    inside = element.find("{*}sdtContent") if local_name(element) == "sdt" else None
    return element if inside is None else inside


def _is_written(element: Element) -> bool:
    """Whether a person wrote the content, and not a program."""
    is_field = local_name(element) == "fldSimple"
    return not is_field or any(map(_WRITTEN.match, element.attrib.values()))


def _with_fields(items: Iterable[Item]) -> list[Item]:
    """The items with each whole field as one; the marks of others stay breaks."""
    done: list[Item] = []
    # Of each open field: where it begins and, if it has a result, where that begins.
    opened: list[list[int]] = []
    for item in items:
        done.append(item)
        part = _field_part(item)
        if part == "begin":
            opened.append([len(done) - 1])
        elif part == "separate" and opened:
            opened[-1].append(len(done))
        elif part == "end" and opened:
            begin, *results = opened.pop()
            if len(opened) >= MAX_NESTED:
                continue
            result = results[0] if results else len(done) - 1
            code = "".join(map(_code, done[begin:result]))
            done[begin:] = [
                Around(
                    joined(done[result:-1]),
                    begin=done[begin:result],
                    end=done[-1:],
                    is_fixed=not _WRITTEN.match(code),
                )
            ]
    return done


def _field_part(item: Item) -> str:
    """`begin`, `separate` or `end` for these marks of a field."""
    if not isinstance(item, Thing) or local_name(item.element) != "fldChar":
        return ""
    types = (value for name, value in item.element.items() if name.endswith("fldCharType"))
    return next(types, "")


def _code(item: Item) -> str:
    element: Element = item.element if isinstance(item, Thing) else None
    return element.text or "" if local_name(element) == "instrText" else ""


def _elements(items: Iterable[Item], paragraph: Element) -> Iterator[Element]:
    """The children of a paragraph for some items."""
    for item in items:
        if isinstance(item, Words):
            yield from _runs(item, paragraph)
        elif isinstance(item, Thing):
            yield _run(item.element, item.properties, paragraph) if item.is_in_run else item.element
        elif item.element is None:
            yield from _elements([*item.begin, *item.items, *item.end], paragraph)
        else:
            _fill(_holder(item.element), _elements(item.items, paragraph))
            yield item.element


def _runs(words: Words, paragraph: Element) -> Iterator[Element]:
    """Text as a run; as several if Word has an element for one of its characters."""
    space = paragraph.tag.removesuffix("p")
    is_word = "wordprocessingml" in space
    text = xml_text(words.text)
    for piece in filter(None, re.split(f"({_HYPHEN})", text) if is_word else [text]):
        node = paragraph.makeelement(f"{space}{'noBreakHyphen' if piece == _HYPHEN else 't'}")
        if piece != _HYPHEN:
            node.text = piece
        if is_word and piece != piece.strip():
            node.set(XML_SPACE, "preserve")
        yield _run(node, words.properties, paragraph)


def _run(content: Element, properties: Element | None, paragraph: Element) -> Element:
    run = paragraph.makeelement(paragraph.tag.removesuffix("p") + "r")
    if properties is not None:
        run.append(copy.deepcopy(properties))
    run.append(content)
    return run


def _fill(holder: Element, elements: Iterable[Element]) -> None:
    """Replace the content of an element, but not its properties."""
    new = list(elements)
    kept = [child for child in holder if local_name(child).endswith("Pr")]
    last = [child for child in kept if local_name(child) == "endParaRPr"]
    holder[:] = [*(child for child in kept if child not in last), *new, *last]


class OfficeDocument(ZippedDocument):
    """What Word and PowerPoint files have in common: parts with types and relations.

    Attributes:
        main_type: what the media type of the main part looks like.
        labels: what parts are called in messages, by the end of their media type; empty for the
            main part of a text.
    """

    main_type: ClassVar[re.Pattern[str]]
    labels: ClassVar[Mapping[str, str]]

    def _part_names(self) -> Iterator[str]:
        names = self._package.names
        types = self._tree(_TYPES)
        defaults = {node.get("Extension"): node.get("ContentType") for node in types}
        own = {node.get("PartName"): node.get("ContentType") for node in types}
        self._types = {
            name: own.get(f"/{name}") or defaults.get(name.rpartition(".")[2]) or ""
            for name in names
        }
        self._main = self._part_of_type(self.main_type)
        if not self._main:
            raise MtkitError("it is not what its ending says, or its main part is missing")
        if any(name.startswith("_xmlsignatures/") for name in names):
            self.notes.append("it is signed; the signature becomes invalid")
        if any(name.endswith("vbaProject.bin") for name in names):
            self.notes.append("its macros are kept as they are")
        if embedded := sum("/embeddings/" in name for name in names):
            self.notes.append(f"files that are embedded in it are kept as they are: {embedded}")
        yield from (name for name in self._in_order() if self._label(name) is not None)

    def _in_order(self) -> Sequence[str]:
        """All parts, in the order of reading."""
        return self._package.names

    def _part_of_type(self, media_type: re.Pattern[str]) -> str:
        """The first part of such a type; empty if there is none."""
        names = (name for name in self._package.names if media_type.search(self._types[name]))
        return next(names, "")

    def _label(self, name: str) -> str | None:
        """What a part is called; None if it has no texts to translate."""
        ends = (end for end in self.labels if self._types[name].endswith(end))
        label = self.labels.get(next(ends, ""))
        return f"{label} {self._number(name)}".strip() if label else label

    def _number(self, name: str) -> str:
        """The number of a part among others of its kind."""
        number = re.search(r"(\d*)\.xml$", name)
        return number[1] if number else ""

    def _slots(self, name: str, root: Element) -> Iterator[Slot]:
        contents = (
            Paragraph(element)
            if _PARAGRAPH.fullmatch(element.tag)
            else MixedContent(element, _PLAIN)
            for element in root.iter(etree.Element)
            if _PARAGRAPH.fullmatch(element.tag) or _is_plain(element)
        )
        return slots_of(contents, self._label(name) or "")

    def _relations(self, name: str) -> Element:
        """The relations of a part to others."""
        path = _relations_of(name)
        if path in self._package.names:
            return self._tree(path)
        return etree.Element(f"{{{_RELATIONS}}}Relationships", nsmap={None: _RELATIONS})


class PowerPoint(OfficeDocument):
    """A PowerPoint file: slides, notes, diagrams, charts, and what all slides show."""

    main_type = re.compile(r"(presentationml|ms-powerpoint)\..*main\+xml")
    labels: ClassVar = {
        ".slide+xml": "slide",
        ".notesSlide+xml": "notes",
        ".slideMaster+xml": "master",
        ".slideLayout+xml": "layout",
        **_LABELS,
    }

    def _in_order(self) -> Sequence[str]:
        folder = posixpath.dirname(self._main)
        targets = {node.get("Id"): node.get("Target", "") for node in self._relations(self._main)}
        ids = (
            value
            for slide in self._tree(self._main).iter("{*}sldId")
            for name, value in slide.attrib.items()
            if name.endswith("}id") and value in targets
        )
        paths = (posixpath.normpath(posixpath.join("/", folder, targets[ref])) for ref in ids)
        self._slides = [path.removeprefix("/") for path in paths]
        others = [name for name in self._package.names if name not in self._slides]
        return [*(name for name in self._slides if name in self._types), *others]

    def _number(self, name: str) -> str:
        if name in self._slides:
            return str(self._slides.index(name) + 1)
        return super()._number(name)

    def _slots(self, name: str, root: Element) -> Iterator[Slot]:
        is_pattern = (self._label(name) or "").startswith(("master", "layout"))
        for slot in super()._slots(name, root):
            # The texts of its placeholders are not shown on slides.
            if not (is_pattern and _is_placeholder(slot.element)):
                yield slot


class Word(OfficeDocument):
    """A Word file; a mark is shown as a comment."""

    shows_marks = True
    main_type = re.compile(r"(wordprocessingml|ms-word)\..*main\+xml")
    labels: ClassVar = {
        ".document.main+xml": "",
        ".document.macroEnabled.main+xml": "",
        ".template.main+xml": "",
        ".template.macroEnabledTemplate.main+xml": "",
        ".header+xml": "header",
        ".footer+xml": "footer",
        ".footnotes+xml": "footnotes",
        ".endnotes+xml": "endnotes",
        ".comments+xml": "comments",
        ".document.glossary+xml": "building blocks",
        **_LABELS,
    }

    def _mark(self, trees: dict[str, Element], marked: Sequence[tuple[Slot, str]]) -> None:
        if not marked:
            return
        if self._main not in trees:
            trees[self._main] = self._tree(self._main)
        root = trees[self._main]
        word = f"{{{etree.QName(root).namespace}}}"
        first = next(root.iter(f"{word}p"), None)
        if first is None:
            return
        comments = self._comments(trees, word)
        ids = (node.get(f"{word}id", "") for node in comments.iter(f"{word}comment"))
        used = [int(number) for number in ids if number.isdecimal()]
        # A text box is there twice.
        places: dict[tuple[Element, str], None] = {}
        for slot, mark in marked:
            # Only the text itself can have comments, and text boxes in it cannot.
            around = [slot.element, *slot.element.iterancestors()]
            if around[-1] is root:
                places[[node for node in around if node.tag == first.tag][-1], mark] = None
            else:
                places[first, f"{slot.place}: {mark}"] = None
        for number, (paragraph, mark) in enumerate(places, 1 + max(used, default=-1)):
            _comment(comments, paragraph, str(number), mark)

    def _comments(self, trees: dict[str, Element], word: str) -> Element:
        """The root of the comments; their part is made if there is none."""
        name = self._part_of_type(re.compile(r"wordprocessingml\.comments\+xml$"))
        if name:
            if name not in trees:
                trees[name] = self._tree(name)
            return trees[name]
        name = posixpath.join(posixpath.dirname(self._main), "comments.xml")
        types = trees[_TYPES] = self._tree(_TYPES)
        override = etree.SubElement(types, types.tag.replace("}Types", "}Override"))
        override.set("PartName", f"/{name}")
        override.set("ContentType", _COMMENTS_TYPE)
        relations = trees[_relations_of(self._main)] = self._relations(self._main)
        relation = etree.SubElement(relations, f"{{{_RELATIONS}}}Relationship")
        relation.set("Id", "mtkitComments")
        relation.set("Type", _COMMENTS_STRICT if "purl.oclc.org" in word else _COMMENTS)
        relation.set("Target", "comments.xml")
        trees[name] = etree.Element(f"{word}comments", nsmap={"w": word[1:-1]})
        return trees[name]


def _comment(comments: Element, paragraph: Element, number: str, text: str) -> None:
    """Add a comment on a whole paragraph."""
    word = paragraph.tag.removesuffix("p")
    names = {f"{word}id": number, f"{word}author": "mtkit", f"{word}initials": "mt"}
    comment = etree.SubElement(comments, f"{word}comment", names)
    run = etree.SubElement(etree.SubElement(comment, f"{word}p"), f"{word}r")
    etree.SubElement(run, f"{word}t").text = xml_text(text)
    reference = {f"{word}id": number}
    start = paragraph.makeelement(f"{word}commentRangeStart", reference)
    has_properties = len(paragraph) > 0 and local_name(paragraph[0]) == "pPr"
    paragraph.insert(int(has_properties), start)
    etree.SubElement(paragraph, f"{word}commentRangeEnd", reference)
    run = etree.SubElement(paragraph, f"{word}r")
    etree.SubElement(run, f"{word}commentReference", reference)


def _relations_of(name: str) -> str:
    """The part with the relations of a part."""
    folder, file = posixpath.split(name)
    return posixpath.join(folder, "_rels", f"{file}.rels")


def _is_plain(element: Element) -> bool:
    """Whether it is text without formats: a property of the document, or a label of a chart."""
    name, parent = local_name(element), element.getparent()
    if name == "v" and local_name(parent) == "pt":
        return local_name(parent.getparent()) in ("strCache", "lvl")
    return name in _PROPERTIES and local_name(parent) == "coreProperties"


def _is_placeholder(element: Element) -> bool:
    shapes = (node for node in element.iterancestors() if local_name(node) == "sp")
    return any(shape.find(".//{*}ph") is not None for shape in shapes)
