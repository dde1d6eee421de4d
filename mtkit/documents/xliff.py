"""XLIFF 1.2 and 2.0, in which programs exchange texts and their translations (OASIS)."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence

from lxml import etree

from mtkit.base.errors import MtkitError
from mtkit.documents.document import Document, Options, Segment
from mtkit.documents.items import Element, texts_in
from mtkit.documents.xml import MixedContent, Rules, Slot, local_name, parsed, serialised, xml_text

_RULES = Rules.of("shown", around="g pc mrk", begin="bpt bx sc", end="ept ex ec", unseen="sm em")
# States of a translation that say that it is none yet, in 1.2 and 2.0.
_UNTRANSLATED = ("new", "needs-translation", "needs-l10n", "initial")


class Xliff(Document):
    """Texts of a program; those without a translation are translated, and sources stay.

    A mark is a state and a note.
    """

    shows_marks = True

    def __init__(self, data: bytes, options: Options) -> None:
        super().__init__()
        self._data, self._options = data, options
        root = parsed(data, "it")
        if local_name(root) != "xliff" or root.get("version", "1.")[:2] not in ("1.", "2."):
            raise MtkitError("it is not XLIFF 1.x or 2.x")
        self.segments = [Segment(slot.text.line, slot.place) for slot in self._slots(root)]

    def _slots(self, root: Element) -> Iterator[Slot]:
        for element in root.iter("{*}trans-unit", "{*}segment"):
            flags = (node.get("translate") for node in (element, *element.iterancestors()))
            unit = Unit(element)
            if next(filter(None, flags), "yes") == "no":
                continue
            if self._options.everything or not unit.is_translated:
                for text in texts_in(unit.content):
                    yield Slot(text, f"unit {unit.name}", element, unit.render)

    def write(
        self, translations: Sequence[str | None], marks: Mapping[int, str] | None = None
    ) -> bytes:
        """See `Document.write`."""
        changes, marks = self.changes(translations), marks or {}
        if not changes and not marks:
            return self._data
        root = parsed(self._data, "it")
        slots = list(self._slots(root))
        for number, line in changes.items():
            slots[number].text.put(line)
        for render in dict.fromkeys(slots[number].render for number in changes):
            render()
        for number, mark in sorted(marks.items()):
            _mark(slots[number].element, mark)
        language = "trgLang" if root.get("version", "").startswith("2") else "target-language"
        for element in [root] if language == "trgLang" else root.iter("{*}file"):
            if self._options.target and not element.get(language):
                element.set(language, self._options.target)
        return serialised(root, self._data)


class Unit:
    """A source and its translation: a `trans-unit` of 1.2, or a `segment` of 2.0."""

    def __init__(self, element: Element) -> None:
        self._element = element
        self._source = element.find("{*}seg-source")
        if self._source is None:
            self._source = element.find("{*}source")
        self._target = element.find("{*}target")
        self.name = element.get("id") or element.getparent().get("id")
        self.is_translated = (
            self._target is not None
            and self._target.xpath("string()").strip() != ""
            and self._target.get("state") not in _UNTRANSLATED
        )
        empty = element.makeelement("source")
        self.content = MixedContent(empty if self._source is None else self._source, _RULES)

    def render(self) -> None:
        """Make the source the translation, and put a copy of it in its place."""
        target, unit = self._source, self._element
        source = copy.deepcopy(target)
        unit.replace(target, source)
        target.tag = target.tag.removesuffix(local_name(target)) + "target"
        target.attrib.clear()
        if self._target is not None:
            target.attrib.update(self._target.attrib)
            unit.remove(self._target)
        unit.insert(unit.index(source) + 1, target)
        target.tail = source.tail
        for element in (target, unit):
            if element.get("state") in _UNTRANSLATED:
                element.set("state", "translated")
        self.content.render()


def _mark(unit: Element, mark: str) -> None:
    """Say in the state of a text and in a note that it is doubtful."""
    space = unit.tag.removesuffix(local_name(unit))
    if local_name(unit) == "trans-unit":
        target = unit.find("{*}target")
        before = unit.find("{*}source") if target is None else target
        if target is not None:
            target.set("state", "needs-review-translation")
        note = unit.makeelement(f"{space}note", {"from": "mtkit"})
        unit.insert(unit.index(before) + 1, note)
        note.tail = before.tail
    else:
        unit.set("state", unit.get("state") or "translated")
        unit.set("subState", "mtkit:needs-review")
        parent = unit.getparent()
        notes = parent.find("{*}notes")
        if notes is None:
            notes = parent.makeelement(f"{space}notes")
            names = ("originalData", "segment", "ignorable")
            first = next(node for node in parent if local_name(node) in names)
            first.addprevious(notes)
        note = etree.SubElement(notes, f"{space}note", {"category": "mtkit", "appliesTo": "target"})
    note.text = xml_text(mark)
