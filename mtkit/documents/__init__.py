"""Documents as segments with inline codes, and back: Office, OpenDocument, EPUB, XLIFF, and others.

Each format is a class of `document.Document` in a module of its own, which is loaded when it is
needed. What a document gets back unchanged is written with the same bytes.
"""

from mtkit.documents.document import FORMATS, Document, open_document
from mtkit.documents.inline import has_same_codes, plain_text

__all__ = ["FORMATS", "Document", "has_same_codes", "open_document", "plain_text"]
