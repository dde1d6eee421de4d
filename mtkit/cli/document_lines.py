"""Documents of `mtkit translate`: their different texts as lines, and lines as a document again."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from mtkit.base.errors import in_words
from mtkit.base.text import open_binary, uncompressed_name
from mtkit.cli import options as shared
from mtkit.cli.console import print_text, standard_input
from mtkit.documents import (
    ALL_TRANSLATED,
    FORMATS,
    STRUCTURED,
    UNREAD,
    DistinctLines,
    open_document,
    plain_text,
)

log = logging.getLogger(__name__)

_HTML = ("html", "htm", "xhtml")
# Doubts that are printed, if the document has no place for them.
MAX_PRINTED = 20


def doubt_of(checked: Mapping[str, Any], below: float) -> str:
    """What is doubtful about a checked text, or empty; it is if it was rejected."""
    reasons = [finding["reason"] for finding in checked.get("findings", ())]
    confidence = checked.get("confidence")
    if confidence is not None and ("rejected" in checked or confidence < below):
        reasons.append(f"confidence {confidence:g}")
    return "; ".join(reasons)


def report_more(doubts: int) -> None:
    """Say how many doubts were not printed."""
    if (more := doubts - MAX_PRINTED) > 0:
        log.info("%s more are doubtful; --findings FILE has what is wrong", f"{more:,}")


def format_of(given: str | None, path: Path | None) -> str:
    """The format of the input: `text`, `html`, or the ending of a document."""
    ending = given or _ending_of(path)
    if ending in _HTML:
        return "html"
    return ending if ending in {*FORMATS, *STRUCTURED, *UNREAD} else "text"


def _ending_of(path: Path | None) -> str:
    """The ending of a file; of `film.srt.gz`, it is that of `film.srt`."""
    return uncompressed_name(path or Path()).suffix.lower()[1:]


def check_document_options(
    format_: str, input_path: Path | None, output_path: Path | None, *, as_json: bool
) -> None:
    """Refuse options that do not go with the format of the input."""
    if format_ not in ("po", "pot", "xlf", "xliff"):
        shared.refuse_given(["everything"], "requires a PO or XLIFF file")
    ending = _ending_of(output_path)
    if format_ not in FORMATS:
        refused = [name for name in FORMATS if not FORMATS[name].is_text]
        # Lines with tags may be in a .txt.
        if format_ == "html" and _ending_of(input_path) in _HTML:
            refused = ["txt", *FORMATS]
        if ending in refused:
            raise click.UsageError(f"--output has the ending .{ending}, and the input is {format_}")
        return
    is_text = FORMATS[format_].is_text
    # Word opens no .docx that is called .docm.
    if ending and FORMATS.get(ending) != FORMATS[format_] and (ending in FORMATS or not is_text):
        raise click.UsageError(f"--output has the ending .{ending}, and the document is .{format_}")
    if is_text:
        return
    if input_path is None:
        raise click.UsageError(f"a .{format_} cannot come from standard input; give its file")
    if output_path is None and not as_json:
        raise click.UsageError(f"a .{format_} needs --output FILE")


class DocumentLines(DistinctLines):
    """The different lines of a document, translated once each, and what was found in them.

    It is read from a file or standard input, with options and errors of `open_document`.
    """

    def __init__(self, path: Path | None, format_: str, *, below: float, **options: Any) -> None:
        self._name, self._below = shared.name_of(path or Path("-")), below
        if path is None:
            data = standard_input().read()
        else:
            with open_binary(path) as stream:
                data = stream.read()
        super().__init__(open_document(self._name, data, format=format_, **options))
        self.lines = list(self.segments)
        self.checks: dict[int, dict[str, Any]] = {}

    def places_of(self, number: int) -> list[str]:
        """Where the segments with a line are in the document."""
        segments = self.segments[self.lines[number - 1]]
        return [self.document.segments[segment].place for segment in segments]

    def counted(self, number: int) -> str:
        """How many segments have one of the first lines, in words."""
        count = sum(len(self.segments[line]) for line in self.lines[:number])
        return in_words(count, "segment")

    def joined(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """The document with the translated lines."""
        self._put_all(parts)
        yield self.write()

    def rows(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """A JSON object for each segment."""
        self._put_all(parts)
        yield self._rows().encode()

    def _put_all(self, parts: Iterable[bytes]) -> None:
        translated = b"".join(parts).decode().split("\n")[:-1]
        for number, (line, translation) in enumerate(zip(self.lines, translated, strict=True), 1):
            checked = self.checks.get(number, {})
            is_rejected, doubt = "rejected" in checked, doubt_of(checked, self._below)
            self.put(line, None if is_rejected else translation, doubt)

    def report(self, *, with_rows: bool) -> None:
        """Print what there is to know of the document that was written, and perhaps its rows."""
        for note, is_loss in self.notes:
            advice = "; --all translates them again" if note == ALL_TRANSLATED else ""
            (log.warning if is_loss else log.info)("%s: %s%s", self._name, note, advice)
        if not self.document.shows_marks:
            marks = sorted(self.marks.items())
            for segment, mark in marks[:MAX_PRINTED]:
                log.info("%s: %s", self.document.segments[segment].place, mark)
            report_more(len(marks))
        if with_rows:
            print_text(self._rows())

    def _rows(self) -> str:
        numbers = {line: number for number, line in enumerate(self.lines, 1)}
        translated = zip(self.document.segments, self.translations, strict=True)
        rows = [
            {
                "segment": number,
                "place": segment.place,
                "source": plain_text(segment.line),
                "translation": plain_text(translation or segment.line),
                **self.checks.get(numbers[segment.line], {}),
            }
            for number, (segment, translation) in enumerate(translated, 1)
        ]
        return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
