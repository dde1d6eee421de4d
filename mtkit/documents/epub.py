"""Books in EPUB 2 and 3: the chapters, the table of contents and the title."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from html.entities import html5
from urllib.parse import unquote

from mtkit.base.errors import MtkitError
from mtkit.documents.declared import Languages
from mtkit.documents.paragraph import Element, Paragraph, Piece, by_name, local_name
from mtkit.documents.xml import XmlDocument

_TEXT_TYPES = ("application/xhtml+xml", "application/x-dtbncx+xml")
# Fonts may be made unreadable for other programs; the text is not.
_DRM = re.compile(rb'Algorithm="(?!http://www\.idpf\.org/2008/embedding|http://ns\.adobe\.com)')
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_ENTITY = re.compile(rb"&(?!(?:amp|lt|gt|quot|apos);)(\w+;)")


class Blocks(Paragraph):
    """A chapter, a title, or an entry of the table of contents."""

    default = "block"
    kinds = by_name(
        around="a abbr acronym b bdi bdo big cite data del dfn em font i ins label mark q rb s "
        "ruby small span strike strong sub sup time tt u",
        shown="audio canvas code iframe img kbd math object pre samp script style svg var video",
        unseen="rp rt rtc wbr",
    )

    def _child(self, child: Element) -> Iterator[Piece]:
        before = child.getprevious()
        # What was deleted and what was inserted for it are two words.
        if {local_name(before), local_name(child)} == {"del", "ins"} and not before.tail:
            yield Piece("text", text=" ")
        yield from super()._child(child)


class Epub(XmlDocument):
    """A book; its package document says what is in it, and in which order."""

    def _labelled_parts(self) -> Iterator[tuple[str, str]]:
        if _DRM.search(self._package.read("META-INF/encryption.xml")):
            raise MtkitError("it is encrypted (DRM)")
        container = self._tree("META-INF/container.xml")
        main = next((node.get("full-path", "") for node in container.iter("{*}rootfile")), "")
        if main not in self._package.names:
            raise MtkitError("its package document is missing")
        root, folder = self._tree(main), posixpath.dirname(main)
        self._main = main
        items = {
            item.get("id"): posixpath.normpath(
                posixpath.join(folder, unquote(item.get("href", "")))
            )
            for item in root.iter("{*}item")
            if item.get("media-type") in _TEXT_TYPES
        }
        order = [node.get("idref") for node in root.iter("{*}itemref")]
        chapters = [items[item] for item in order if item in items]
        if others := len(order) - len(chapters):
            self.notes.append(f"chapters that are not XHTML are kept as they are: {others}")
        labels = {main: main}
        labels |= {name: f"chapter {n}" for n, name in enumerate(dict.fromkeys(chapters), 1)}
        for name in [*labels, *items.values()]:
            if name in self._package.names:
                yield name, labels.get(name, name)

    def _cleaned(self, data: bytes) -> bytes:
        return _ENTITY.sub(_character, data)

    def _paragraphs(self, name: str, root: Element) -> Iterator[Paragraph]:
        # The title of the book or of a chapter, an entry of the table of contents, the chapter.
        return map(Blocks, [*root.iter("{*}title", "{*}text", "{*}body")])

    def _end_marks(self) -> None:
        if not self._changed:
            return
        languages = Languages(self._options.source, self._options.target)
        for language in self._to_change(self._main).iter("{*}language"):
            language.text = languages.declared((language.text or "").strip())
        for root in self._changed.values():
            for name in ("lang", _XML_LANG):
                if code := root.get(name):
                    root.set(name, languages.declared(code))


def _character(entity: re.Match[bytes]) -> bytes:
    """A character that only HTML has a name for, as XML writes it."""
    characters = html5.get(entity[1].decode("utf-8", "replace"), "")
    return "".join(f"&#{ord(char)};" for char in characters).encode() or entity[0]
