"""Texts of LibreOffice (OpenDocument, ISO/IEC 26300)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from mtkit.base.errors import MtkitError
from mtkit.documents.paragraph import Element, Paragraph, Piece, by_name, local_name
from mtkit.documents.xml import XmlDocument

# Objects in it, such as charts, have parts of the same kind.
_PART = re.compile(r"(?:[^/]+/)?(?:content|styles)\.xml|meta\.xml")


class OpenParagraph(Paragraph):
    """A paragraph or a heading; those in its notes and frames are texts of their own."""

    kinds = by_name(
        around="span a meta meta-field ruby content-control text-input placeholder",
        kept="list-item",
        break_="line-break tab",
        unseen="s bookmark bookmark-start bookmark-end soft-page-break reference-mark "
        "reference-mark-start reference-mark-end change change-start change-end annotation "
        "annotation-end toc-mark toc-mark-start toc-mark-end alphabetical-index-mark "
        "alphabetical-index-mark-start alphabetical-index-mark-end user-index-mark "
        "user-index-mark-start user-index-mark-end",
    )

    def kind(self, node: Element) -> str:
        """What a node is in a text."""
        # Three spaces or more separate texts, as a tab does.
        is_tab = local_name(node) == "s" and node.get(f"{node.tag[:-1]}c", "1") not in ("1", "2")
        return "break" if is_tab else super().kind(node)

    def _folded(self, pieces: list[Piece]) -> list[Piece]:
        for _, group in groupby(pieces, lambda piece: piece.is_break):
            line = list(group)
            words = [i for i, piece in enumerate(line) if piece.text.strip()] or [0]
            # One or two are one space between words. At the ends of a line they stay elements,
            # because programs do not show plain spaces there.
            for piece in line[words[0] : words[-1]]:
                if local_name(piece.element) == "s":
                    piece.kind, piece.text, piece.look = "text", " ", (piece.element,)
        return super()._folded(pieces)


class OpenDocument(XmlDocument):
    """A text of LibreOffice, with its headers, notes, comments, frames and charts."""

    def _labelled_parts(self) -> Iterator[tuple[str, str]]:
        if b"opendocument.text" not in self._package.read("mimetype"):
            raise MtkitError("it is not an OpenDocument text")
        if b"encryption-data" in self._package.read("META-INF/manifest.xml"):
            raise MtkitError("it is encrypted; save it without a password")
        for name in filter(_PART.fullmatch, self._package.names):
            yield name, "" if name == "content.xml" else name.removesuffix(".xml")

    def _paragraphs(self, name: str, root: Element) -> Iterator[Paragraph]:
        names = ("title", "subject", "description") if name == "meta.xml" else ("p", "h")
        for element in [*root.iter(*(f"{{*}}{tag}" for tag in names))]:
            if next(element.iterancestors("{*}tracked-changes"), None) is None:
                yield OpenParagraph(element)
