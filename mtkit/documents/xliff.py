"""XLIFF 1.2 and 2.0, in which programs exchange texts and their translations (OASIS)."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from lxml import etree

from mtkit.base.copied import TAG, has_letters
from mtkit.base.errors import MtkitError
from mtkit.base.language_id import is_same_language
from mtkit.documents.paragraph import (
    ANGULAR,
    Element,
    Paragraph,
    Piece,
    by_name,
    cut,
    local_name,
    xml_text,
)
from mtkit.documents.xml import Doubt, XmlDocument
from mtkit.documents.zipped import Package

# States of a translation that say that it is none yet, in 1.2 and 2.0.
_UNTRANSLATED = {"new", "needs-translation", "needs-l10n", "initial"}
# What is said of each new translation, in the place of what was said of another one.
_STATES = {"state": "translated", "approved": "no"}
# The parts of a unit of 1.2 that are translated one by one.
_PARTS = ".//*[@mtype='seg'][@mid]"
# What is around the texts of a message of ICU, and what stands for its number.
_ICU = re.compile(
    r"(\{\s*[\w.-]+\s*,\s*(?:plural|select(?:ordinal)?)\s*,(?:\s*offset:\d+)?\s*[\w=-]+\s*\{"
    r"|\}\s*[\w=-]+\s*\{|\}\s*\}|#)"
)
# Files that stay as they are and are named; more would not fit into one line.
_MAX_NAMED = 3


class Unit(Paragraph):
    """A source and its translation: a `trans-unit` of 1.2, or a `segment` of 2.0."""

    kinds = by_name(around="g pc mrk", begin="bpt bx sc", end="ept ex ec", unseen="sm em")
    # Whether a part of it that had no translation was translated.
    has_new_part = False

    def __init__(self, element: Element) -> None:
        sources = [*element.iterchildren("{*}seg-source"), *element.iterchildren("{*}source")]
        super().__init__(sources[0] if sources else element.makeelement("source"))
        self.unit, self.target = element, element.find("{*}target")
        self._is_new = local_name(element) == "segment"
        self.parent = element.getparent() if self._is_new else element
        self.name = f"unit {element.get('id') or element.getparent().get('id')}"
        old = "" if self.target is None else self.target.xpath("string()").strip()
        states = {node.get("state") for node in (element, self.target) if node is not None}
        self.is_translated = old != "" and not states & _UNTRANSLATED
        self.is_replaced = old not in ("", self.element.xpath("string()").strip())

    def kind(self, node: Element) -> str:
        """What a node is in a text; a line break ends it, and Angular has two `x` for a pair."""
        if not {"lb", "xlf:lb", "LINE_BREAK"}.isdisjoint(node.values()):
            return "break"
        end = ANGULAR.match(node.get("id", "")) if local_name(node) == "x" else None
        return {"START": "begin", "CLOSE": "end"}[end[1]] if end else super().kind(node)

    @cached_property
    def _is_message(self) -> bool:
        """Whether it is a message of ICU that has no braces in its texts."""
        texts = _ICU.split("".join(self.element.itertext()).strip())
        counts = Counter(sign[0] + sign[-1] for sign in texts[1::2])
        is_whole = not (texts[0] or texts[-1]) and counts["{{"] == counts["}}"] > 0
        return is_whole and not re.search("[{}]", "".join(texts[::2]))

    def _texts(self, text: str, separator: str) -> Iterator[Piece]:
        """Cut a text also at what is written as text: tags, and the signs of messages of ICU."""
        at = 0
        signs = [*TAG.finditer(text), *(_ICU.finditer(text) if self._is_message else ())]
        for sign in sorted(signs, key=re.Match.start):
            if sign.start() < at:
                continue
            yield from cut(text[at : sign.start()], separator)
            at, parts = sign.end(), [Piece("text", text=sign[0])]
            if sign.re is TAG:
                yield Piece("end" if sign[1] else "begin", parts=parts, pair=f"{sign[1]}<{sign[2]}")
            else:
                yield Piece("shown", parts=parts, is_break=sign[0] != "#")
        yield from cut(text[at:], separator)

    def render(self) -> None:
        """Make the source the translation, and put a copy of it in its place."""
        target, unit = self.element, self.unit
        source = copy.deepcopy(target)
        unit.replace(target, source)
        target.tag = target.tag.removesuffix(local_name(target)) + "target"
        target.attrib.clear()
        if self.target is not None:
            target.attrib.update(self.target.attrib)
            unit.remove(self.target)
        unit.insert(unit.index(source) + 1, target)
        target.tail = source.tail
        self.target = target
        self._say_new(target, unit)
        super().render()

    @staticmethod
    def _say_new(*elements: Element) -> None:
        """Replace what is said of an earlier translation."""
        for element in elements:
            for name in element.attrib:
                element.attrib[name] = _STATES.get(name, element.attrib[name])
            for name in ("state-qualifier", "subState"):
                element.attrib.pop(name, None)

    def missing_parts(self) -> Iterator[Part]:
        """The parts without a translation, if another part has one; each may change at once.

        If one did, those without letters are copied at the end.
        """
        counts = Counter(node.get("mid") for node in self.element.xpath(_PARTS))
        # Of two targets with the same number, the one with a text counts.
        parts = _parts(self.target, counts)
        targets = dict(sorted(parts, key=lambda part: _has_translation(part[1])))
        if not any(map(_has_translation, targets.values())):
            return
        before, gap, without_letters = None, "", list[Part]()
        for number, source in _parts(self.element, counts):
            target, own_gap = targets.get(number), source.tail or gap
            if target is None or not _has_translation(target):
                part = Part(self, source, target, before, gap)
                if part.texts:
                    yield part
                else:
                    without_letters.append(part)
                target = part.target_part
            before, gap = before if target is None else target, own_gap
        # From the last one on, each is put behind the part that was there before it.
        for part in reversed(without_letters if self.has_new_part else []):
            part.render()

    def clear(self) -> None:
        """Take the notes of earlier marks away."""
        notes = self._notes() if self._is_new else self.unit
        if notes is None:
            return
        for note in notes.xpath("*[@category='mtkit' or (@from='mtkit' and local-name()='note')]"):
            notes.remove(note)
        # `len` would count all of them.
        if self._is_new and next(notes.iterchildren(), None) is None:
            notes.getparent().remove(notes)

    def _notes(self) -> Element:
        """The notes of a unit of 2.0, which are before its segments; None if it has none."""
        first = next(self.parent.iterchildren("{*}notes", "{*}segment"))
        return first if local_name(first) == "notes" else None

    def mark(self, text: str) -> None:
        """Say in a note, and in the state of a new text, that it is doubtful."""
        space = self.unit.tag.removesuffix(local_name(self.unit))
        is_old = self.is_rejected and (self.is_translated or self.is_replaced)
        if self._is_new:
            state = "initial" if self.target is None else "translated"
            if not is_old:
                self.unit.set("state", self.unit.get("state") or state)
                self.unit.set("subState", "mtkit:needs-review")
            notes = self._notes()
            if notes is None:
                notes = self.unit.makeelement(f"{space}notes")
                names = ("{*}originalData", "{*}segment", "{*}ignorable")
                next(self.parent.iterchildren(*names)).addprevious(notes)
            category = {"category": "mtkit", "appliesTo": "target"}
            note = etree.SubElement(notes, f"{space}note", category)
        else:
            before = self.element if self.target is None else self.target
            if self.target is not None and not is_old:
                self.target.set("state", "needs-review-translation")
            note = self.unit.makeelement(f"{space}note", {"from": "mtkit"})
            self.unit.insert(self.unit.index(before) + 1, note)
            note.tail = before.tail
        note.text = xml_text(text)


class Part(Unit):
    """A part of a unit of 1.2 without a translation: a `mrk`, and the one in the target, if any.

    A new one follows the part `before`, the nearest one in the target, behind the text `gap`.
    """

    is_translated = True

    def __init__(
        self, whole: Unit, source: Element, target: Element | None, before: Element | None, gap: str
    ) -> None:
        Paragraph.__init__(self, source)
        self.unit, self.target, self.target_part = whole.unit, whole.target, target
        self.parent, self.name, self._is_new = whole.parent, whole.name, False
        self.is_replaced = target is not None and bool(target.xpath("string()").strip())
        self._whole, self._before, self._gap = whole, before, gap

    def render(self) -> None:
        """Put the translation into the target."""
        source, new = self.element, self.target_part
        # What is in the source goes into the target.
        source.getparent().replace(source, copy.deepcopy(source))
        if new is None:
            new = source.makeelement(source.tag, source.attrib)
            if self._before is None:
                new.tail = source.tail
                self.target.insert(0, new)
            else:
                new.tail, self._before.tail = self._before.tail, None
                self._before.addnext(new)
                self._before.tail = self._gap
        self.element = self.target_part = new
        self._say_new(new)
        # Behind the first new part, the target may have the state of a mark.
        if not self._whole.has_new_part:
            self._say_new(self.target, self.unit)
        self._whole.has_new_part = True
        Paragraph.render(self)


def _named(languages: Iterable[str | None]) -> str:
    return " to ".join(filter(None, languages))


def _parts(element: Element, counts: Counter[str]) -> Iterator[tuple[tuple[str, int], Element]]:
    """The numbered parts of a source or a target of 1.2; those of a repeated number are counted."""
    seen = Counter[str]()
    for node in element.xpath(_PARTS):
        number = node.get("mid")
        yield (number, seen[number]), node
        seen[number] += counts[number] > 1


def _has_translation(part: Element) -> bool:
    return bool(part.xpath("string()").strip()) and part.get("state") not in _UNTRANSLATED


class _File(Package):
    """A file that is no zip, as the only part of a package; its name is empty."""

    def __init__(self, data: bytes, _: int) -> None:
        self._data, self.names, self.notes = data, [""], []

    def read(self, _: str) -> bytes:
        return self._data

    def size(self, _: str) -> int:
        return len(self._data)

    def write(self, changed: Mapping[str, bytes]) -> bytes:
        return changed.get("", self._data)


class Xliff(XmlDocument):
    """Texts of a program; those without a translation are translated, and sources stay.

    A mark is a state and a note.
    """

    package = _File
    shows_marks = True
    # The unit of the last paragraph that was written.
    _last: Element = None
    # The files in other languages that stay as they are, from 0 on.
    _left_numbers: Sequence[int] = ()

    def _labelled_parts(self) -> Iterable[tuple[str, str]]:
        root = self._tree("")
        if local_name(root) != "xliff" or root.get("version", "1.")[:2] not in ("1.", "2."):
            raise MtkitError("it is not XLIFF 1.x or 2.x")
        languages = self._options.source, self._options.target
        wanted, others = _named(languages), dict[Element, str]()
        files = [*root.iter("{*}file")]
        for node in (root, *files):
            source = node.get("source-language") or node.get("srcLang")
            target = node.get("target-language") or node.get("trgLang")
            pairs = [pair for pair in zip((source, target), languages, strict=True) if all(pair)]
            if not all(is_same_language(*pair) for pair in pairs):
                others[node] = _named((source, target))
        # If a file is in the languages of the options, those in others stay as they are.
        if root not in others and not others.keys() >= {*files}:
            self._left_numbers = [number for number, file in enumerate(files) if file in others]
        if self._left_numbers:
            originals = [" ".join(file.get("original", "").split())[:80] for file in files]
            names = [
                f"{originals[n] or f'file {n + 1}'} ({others[files[n]]})"
                for n in self._left_numbers
            ]
            if len(names) > _MAX_NAMED:
                names[_MAX_NAMED:] = [f"and {len(names) - _MAX_NAMED:,} more"]
            self.notes.append(
                f"files in other languages than {wanted} stay as they are: {', '.join(names)}"
            )
        elif others:
            own = next(iter(others.values()))
            self.warnings.append(f"its languages are {own}, not {wanted}")
        return [("", "")]

    def _left(self, root: Element) -> set[Element]:
        files = enumerate(root.iter("{*}file"))
        return {file for number, file in files if number in self._left_numbers}

    def _paragraphs(self, name: str, root: Element) -> Iterator[Paragraph]:
        left = self._left(root)
        inside = root.xpath("//*[local-name()='source']//*[local-name()='sub']/text()")
        if count := sum(map(has_letters, inside)):
            self.notes.append(f"texts inside codes (sub) keep their source: {count:,}")
        for element in [*root.iter("{*}trans-unit", "{*}segment")]:
            nodes = [element, *element.iterancestors()]
            flags = (node.get("translate") for node in nodes)
            if next(filter(None, flags), "yes") == "no" or not left.isdisjoint(nodes):
                continue
            unit = Unit(element)
            if unit.is_translated and not self._options.everything:
                self.has_translations = True
                yield from unit.missing_parts()
            else:
                yield unit

    def _mark(self, paragraph: Paragraph, doubts: Sequence[Doubt]) -> None:
        assert isinstance(paragraph, Unit)
        # The segments of a unit of 2.0 are one after another.
        if paragraph.parent is not self._last:
            self._last = paragraph.parent
            paragraph.clear()
        for _, mark in doubts:
            paragraph.mark(mark)

    def _end_marks(self) -> None:
        self._last = None
        for root in self._changed.values():
            is_new = root.get("version", "").startswith("2")
            language = "trgLang" if is_new else "target-language"
            for element in {root} if is_new else {*root.iter("{*}file")} - self._left(root):
                if self._options.target and not element.get(language):
                    element.set(language, self._options.target)
