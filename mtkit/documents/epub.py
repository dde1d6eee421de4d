"""Books in EPUB 2 and 3: the chapters, the table of contents and the title."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from html.entities import html5
from urllib.parse import unquote

from mtkit.base.errors import MtkitError
from mtkit.documents.items import Element, texts_in
from mtkit.documents.xml import MixedContent, Rules, Slot, parsed
from mtkit.documents.zipped import ZippedDocument

# All other elements are blocks, which end a sentence.
_AROUND = (
    "a abbr acronym b bdi bdo big cite data del dfn em font i ins label mark q rb s small span "
    "strike strong sub sup time tt u"
)
_SHOWN = (
    "audio canvas code iframe img kbd math object pre rp rt ruby samp script style svg var video"
)
_RULES = Rules.of("break", around=_AROUND, shown=_SHOWN, unseen="wbr")
_TEXT_TYPES = ("application/xhtml+xml", "application/x-dtbncx+xml")
# Fonts may be made unreadable for other programs; the text is not.
_DRM = re.compile(rb'Algorithm="(?!http://www\.idpf\.org/2008/embedding|http://ns\.adobe\.com)')
_ENTITY = re.compile(rb"&(?!(?:amp|lt|gt|quot|apos);)(\w+;)")


class Epub(ZippedDocument):
    """A book; its package document says what is in it, and in which order."""

    def _part_names(self) -> Iterator[str]:
        if _DRM.search(self._package.read("META-INF/encryption.xml")):
            raise MtkitError("it is encrypted (DRM)")
        if "META-INF/signatures.xml" in self._package.names:
            self.notes.append("it is signed; the signature becomes invalid")
        container = self._tree("META-INF/container.xml")
        main = next((node.get("full-path", "") for node in container.iter("{*}rootfile")), "")
        if main not in self._package.names:
            raise MtkitError("its package document is missing")
        root = self._tree(main)
        items = {
            item.get("id"): posixpath.normpath(
                posixpath.join(posixpath.dirname(main), unquote(item.get("href", "")))
            )
            for item in root.iter("{*}item")
            if item.get("media-type") in _TEXT_TYPES
        }
        spine = (items.get(node.get("idref")) for node in root.iter("{*}itemref"))
        self._chapters = [name for name in dict.fromkeys(spine) if name]
        names = dict.fromkeys([main, *self._chapters, *items.values()])
        yield from (name for name in names if name in self._package.names)

    def _tree(self, name: str) -> Element:
        data = _ENTITY.sub(_character, self._package.read(name))
        return parsed(data, f"its part {name}")

    def _slots(self, name: str, root: Element) -> Iterator[Slot]:
        is_chapter = name in self._chapters
        label = f"chapter {self._chapters.index(name) + 1}" if is_chapter else name
        number = 0
        # The title of the book or of a chapter, an entry of the table of contents, the chapter.
        for element in root.iter("{*}title", "{*}text", "{*}body"):
            content = MixedContent(element, _RULES)
            for text in list(texts_in(content)):
                number += 1
                yield Slot(text, f"{label}, paragraph {number}", element, content.render)


def _character(entity: re.Match[bytes]) -> bytes:
    """A character that only HTML has a name for, as XML writes it."""
    characters = html5.get(entity[1].decode("utf-8", "replace"), "")
    return "".join(f"&#{ord(char)};" for char in characters).encode() or entity[0]
