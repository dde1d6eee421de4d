"""A document: bytes in, segments out; translations in, bytes out. It knows nothing of models."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, ClassVar, NamedTuple

from mtkit.base.errors import MtkitError
from mtkit.documents.inline import has_same_codes

# A package of parts is refused if it unpacks to more bytes than this, or than its reader allows.
MAX_UNPACKED = 200_000_000

# A note; the command line adds which option translates them again.
ALL_TRANSLATED = "all its texts have a translation"


class TooLargeError(MtkitError):
    """A document that is too large to be read."""


class Segment(NamedTuple):
    """A text of a document that is translated on its own, with inline codes (`inline`).

    Its place is in the words of the format: "paragraph 12", "cue 7", "slide 3". `is_replaced` says
    whether there is another translation, which also `line` itself replaces.
    """

    line: str
    place: str
    is_replaced: bool = False


class Options(NamedTuple):
    """What reading a document depends on, besides its bytes; languages may be empty.

    With `everything`, texts that have a translation are translated again. `max_unpacked` is in
    bytes of all parts of a package together.
    """

    source: str = ""
    target: str = ""
    everything: bool = False
    max_unpacked: int = MAX_UNPACKED


class Document(ABC):
    """The segments of a document, in order, and how it is written with their translations.

    `shows_marks` says whether the format has a place for marks, `has_translations` whether other
    texts are no segments because they have a translation. Each of `notes` is a line about what a
    user must know: what stays as it is, what is lost; `write_notes` are of the last `write`.
    `warnings` are about what is probably a mistake.
    """

    shows_marks: ClassVar[bool] = False

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.has_translations = False
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.write_notes: list[str] = []
        # The segments that the last `write` gave no translation.
        self._rejected: set[int] = set()

    def write(
        self, translations: Sequence[str | None], marks: Mapping[int, str] | None = None
    ) -> bytes:
        """The document with translations; it can be written as often as you like.

        There is a translation for each segment, with its codes, or None to keep its text; otherwise
        it is a ValueError. `marks` says what is doubtful, in a line of text, by number from 0.
        """
        self.write_notes, changes = [], dict[int, str]()
        self._rejected = {number for number, line in enumerate(translations) if line is None}
        for number, (segment, line) in enumerate(zip(self.segments, translations, strict=True)):
            if line is not None and (segment.is_replaced or line != segment.line):
                changes[number] = line
                if not has_same_codes(segment.line, line):
                    raise ValueError(f"segment {number} has other codes: {line}")
        return self._written(changes, marks if marks and self.shows_marks else {})

    @abstractmethod
    def _written(self, changes: Mapping[int, str], marks: Mapping[int, str]) -> bytes:
        """The document with the translations of some segments, and the marks that it shows."""


class DistinctLines:
    """The different lines of a document with the numbers of their segments, and translations.

    The translation of a segment is None if it keeps its source, or was not `put` yet. For marks see
    `Document.write`.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.segments: dict[str, list[int]] = {}
        for number, segment in enumerate(document.segments):
            self.segments.setdefault(segment.line, []).append(number)
        self.translations: list[str | None] = [None] * len(document.segments)
        self.marks: dict[int, str] = {}
        self._lost = 0

    def put(self, line: str, translation: str | None, mark: str = "") -> None:
        """Take the translation of a line, or None and why; without its codes, it is not used."""
        if translation is not None and not has_same_codes(line, translation):
            self._lost += len(self.segments[line])
            translation, mark = None, "its translation lost the formatting"
        for segment in self.segments[line]:
            self.translations[segment] = translation
            if mark and translation is None:
                has_other = self.document.segments[segment].is_replaced
                what = "new translation rejected" if has_other else "source kept"
                self.marks[segment] = f"{what}: {mark}"
            elif mark:
                self.marks[segment] = mark

    def write(self) -> bytes:
        """The document with the translations."""
        return self.document.write(self.translations, self.marks)

    @property
    def notes(self) -> list[tuple[str, bool]]:
        """What there is to know of the document that was written, and what of it is a warning."""
        lost = (
            f"{self._lost:,} of {len(self.translations):,} segments stay as they are, because "
            "their translations lost the formatting"
        )
        notes = [*self.document.notes, *self.document.write_notes]
        if self.document.has_translations and not self.document.segments:
            notes.append(ALL_TRANSLATED)
        warnings = [*self.document.warnings, *[lost] * (self._lost > 0)]
        return [*((note, False) for note in notes), *((note, True) for note in warnings)]


class Format(NamedTuple):
    """A format of documents: its endings, where its class is, and whether it is text."""

    endings: str
    module: str
    document: str
    is_text: bool = False


# By the ending of a file, which is also what `--format` takes.
FORMATS = {
    ending: format_
    for format_ in (
        Format("md markdown", "markdown", "Markdown", is_text=True),
        Format("srt", "subtitles", "Subtitles", is_text=True),
        Format("vtt", "subtitles", "WebVtt", is_text=True),
        Format("po pot", "gettext", "Gettext", is_text=True),
        Format("docx", "office", "Word"),
        Format("docm", "office", "Word"),
        Format("pptx", "office", "PowerPoint"),
        Format("pptm", "office", "PowerPoint"),
        Format("odt", "opendocument", "OpenDocument"),
        Format("epub", "epub", "Epub"),
        Format("xlf xliff", "xliff", "Xliff", is_text=True),
    )
    for ending in format_.endings.split()
}

# Formats that lines would damage, and what can be done. An ending such as `ts` and `arb`, which
# corpora have for a language, is none of them.
STRUCTURED = {
    ending: advice
    for advice, endings in {
        "convert it to .srt": "ass dfxp sbv ssa sub ttml",
        "convert it to .po, with the Translate Toolkit for example": "csv ini json jsonl "
        "properties resx strings stringsdict tmx toml tsv xml yaml yml",
        "convert it to .md, with Pandoc for example": "adoc rst tex textile",
        "give --format xlf if it is XLIFF": "mqxliff mxliff sdlxliff",
    }.items()
    for ending in endings.split()
}

# Documents that cannot be read; as text, their fault would be another one.
UNREAD = ("doc", "odp", "ods", "pdf", "ppt", "rtf", "xls", "xlsx")

_BEGINNINGS = {
    b"%PDF-": "it is a PDF, which mtkit does not read; convert it to .docx",
    b"{\\rtf": "it is RTF; save it as .docx",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": (
        "it has a password, or is of Office 97-2003; save it as .docx or .pptx, without a password"
    ),
}


def open_document(name: str, data: bytes, *, format: str | None = None, **options: Any) -> Document:
    """Read a document; its name is for the ending and for messages, which name the file.

    `format`, a key of `FORMATS`, counts instead of the ending; `options` are those of `Options`.
    MtkitError if it cannot be read, TooLargeError if it is too large.
    """
    ending = (format or PurePath(name).suffix).lower().removeprefix(".")
    for beginning, reason in _BEGINNINGS.items():
        if data.startswith(beginning):
            raise MtkitError(f"{name}: {reason}")
    if ending not in FORMATS:
        advice = f"give --format, one of {', '.join(FORMATS)}"
        if ending in UNREAD:
            advice = "save it as .docx or .pptx, or copy its texts into one"
        elif ending in STRUCTURED:
            advice = f"{STRUCTURED[ending]}, or give --format text to translate it line by line"
        raise MtkitError(
            f"{name}: its format '{ending or 'unknown'}' cannot be translated; {advice}"
        )
    module = importlib.import_module(f"mtkit.documents.{FORMATS[ending].module}")
    try:
        opened: Document = getattr(module, FORMATS[ending].document)(data, Options(**options))
    except MtkitError as error:
        fault = error if data.strip(b"\xef\xbb\xbf\r\n\t ") else "it is empty"
        raise type(error)(f"{name}: {fault}") from None
    return opened
