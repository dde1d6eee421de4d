"""Documents as segments with inline codes, and back: Office, OpenDocument, EPUB, XLIFF, and others.

Each format is a class of `document.Document` in a module of its own, which is loaded when it is
needed. What a document gets back unchanged is written with the same bytes.
"""

from mtkit.documents.declared import Languages
from mtkit.documents.document import (
    ALL_TRANSLATED,
    FORMATS,
    STRUCTURED,
    UNREAD,
    DistinctLines,
    Document,
    TooLargeError,
    open_document,
)
from mtkit.documents.inline import plain_text
from mtkit.documents.text import TextFile

__all__ = [
    "ALL_TRANSLATED",
    "FORMATS",
    "STRUCTURED",
    "UNREAD",
    "DistinctLines",
    "Document",
    "Languages",
    "TextFile",
    "TooLargeError",
    "open_document",
    "plain_text",
]
