"""Texts of LibreOffice (OpenDocument, ISO/IEC 26300)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mtkit.base.errors import MtkitError
from mtkit.documents.items import Element
from mtkit.documents.xml import MixedContent, Rules, Slot, local_name, slots_of
from mtkit.documents.zipped import ZippedDocument

# Fields, notes, frames and all others are shown, and stay as they are. The paragraphs in notes and
# frames are texts of their own.
_UNSEEN = (
    "s bookmark bookmark-start bookmark-end soft-page-break reference-mark reference-mark-start "
    "reference-mark-end change change-start change-end annotation annotation-end toc-mark "
    "toc-mark-start toc-mark-end alphabetical-index-mark alphabetical-index-mark-start "
    "alphabetical-index-mark-end user-index-mark user-index-mark-start user-index-mark-end"
)
_RULES = Rules.of("shown", around="span a meta meta-field", break_="line-break tab", unseen=_UNSEEN)
# Objects in it, such as charts, have parts of the same kind.
_PART = re.compile(r"(?:[^/]+/)?(?:content|styles)\.xml|meta\.xml")


class OpenDocument(ZippedDocument):
    """A text of LibreOffice, with its headers, notes, comments, frames and charts."""

    def _part_names(self) -> Iterator[str]:
        names = self._package.names
        if b"opendocument.text" not in self._package.read("mimetype"):
            raise MtkitError("it is not an OpenDocument text")
        if b"encryption-data" in self._package.read("META-INF/manifest.xml"):
            raise MtkitError("it is encrypted; save it without a password")
        if "META-INF/documentsignatures.xml" in names:
            self.notes.append("it is signed; the signature becomes invalid")
        if any(name.startswith(("Basic/", "Scripts/")) for name in names):
            self.notes.append("its macros are kept as they are")
        yield from filter(_PART.fullmatch, names)

    def _slots(self, name: str, root: Element) -> Iterator[Slot]:
        names = ("title", "subject", "description") if name == "meta.xml" else ("p", "h")
        contents = (
            MixedContent(element, _RULES)
            for element in root.iter(*(f"{{*}}{tag}" for tag in names))
            if not any(local_name(node) == "tracked-changes" for node in element.iterancestors())
        )
        return slots_of(contents, "" if name == "content.xml" else name.removesuffix(".xml"))
