"""Translates the documents of clients, as `mtkit translate FILE` does it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath

from mtkit.base.errors import MtkitError
from mtkit.documents import FORMATS, DistinctLines, TextFile, TooLargeError, open_document
from mtkit.serve.files import ClientFile
from mtkit.serve.http_errors import RequestError, invalid
from mtkit.serve.service import Limits, Service, TranslationRequest
from mtkit.serve.texts import Format
from mtkit.translate import markup_windows

# Files that are a text as a whole; other endings are those of documents.
_TEXTS: dict[str, Format] = {"txt": "text", "html": "html", "htm": "html"}
ENDINGS = (*_TEXTS, *FORMATS)
# Bytes that a document may have when it is unpacked, for each byte that an upload may have.
_UNPACKED = 10


async def translate_document(
    service: Service, file: ClientFile, request: TranslationRequest, key_hash: str
) -> tuple[ClientFile, list[str]]:
    """Translate a document.

    Args:
        request: the languages and the glossary.

    Returns:
        The translated file, and lines about what could not be translated or kept.

    Raises:
        RequestError: 400 if it cannot be read, 413 if it is too large; or as `Service.translate`.
    """
    if file.ending not in ENDINGS:
        raise invalid("file format not supported")
    _, target = service.codes(request.source, request.target)
    in_thread = partial(service.scheduler.in_thread, "document")
    try:
        opened = await in_thread(_OpenFile, file, target, service.limits)
    except TooLargeError as error:
        raise RequestError(413, str(error)) from None
    except MtkitError as error:
        raise invalid(str(error)) from None
    parts = await in_thread(_parts, opened.lines, opened.form, service.max_part)
    request = replace(request, texts=parts, form=opened.form, is_document=True)
    answer = await service.translate(request, key_hash)
    lines = [line for best, *_ in answer.translations for line in best.text.split("\n")]
    data, notes = await in_thread(opened.translated, lines)
    path = PurePosixPath(file.name)
    return ClientFile(f"{path.stem}.{target}{path.suffix}", data), notes


class _OpenFile:
    """The lines of a file that are translated.

    Raises:
        MtkitError: if it cannot be read, or is too large.
    """

    def __init__(self, file: ClientFile, target: str, limits: Limits) -> None:
        self.form = _TEXTS.get(file.ending, "html")
        self._text = self._document = None
        if file.ending in _TEXTS:
            self._text = TextFile(file.data)
            self.lines = self._text.text.split("\n")
            count = len(self.lines)
        else:
            unpacked = _UNPACKED * limits.file_bytes
            document = open_document(
                file.name[-100:],
                file.data,
                format=file.ending,
                target=target,
                max_unpacked=unpacked,
            )
            self._document = DistinctLines(document)
            self.lines = list(self._document.segments)
            count = len(document.segments)
        if count > limits.lines:
            raise TooLargeError(f"the file has {count} segments, more than {limits.lines}")
        longest = max(map(len, self.lines), default=0)
        if longest > limits.characters:
            most = limits.characters
            raise TooLargeError(f"a segment has {longest} characters, more than {most}")

    def translated(self, lines: Sequence[str]) -> tuple[bytes, list[str]]:
        """The file with its lines translated, and what there is to know about it."""
        if self._text is not None:
            return self._text.edited([(0, len(self._text.text), "\n".join(lines))]), []
        assert self._document is not None
        for line, translation in zip(self.lines, lines, strict=True):
            self._document.put(line, translation)
        data = self._document.write()
        return data, [*self._document.document.notes, *filter(None, [self._document.loss])]


def _parts(lines: Iterable[str], form: Format, most: int) -> list[str]:
    """Lines as texts of about so many characters, or of one line; no sentence is in two texts."""
    windows, size = list[list[str]](), 0
    for line in lines:
        if not windows or size + len(line) > most:
            windows.append([])
            size = 0
        windows[-1].append(line)
        size += len(line)
    return ["\n".join(w) for w in (markup_windows(windows) if form == "html" else windows)]
