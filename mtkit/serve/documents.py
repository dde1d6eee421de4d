"""Translates the documents of clients, as `mtkit translate FILE` does it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import PurePosixPath

from mtkit.base.errors import MtkitError
from mtkit.documents import (
    FORMATS,
    DistinctLines,
    Languages,
    TextFile,
    TooLargeError,
    open_document,
)
from mtkit.serve.bodies import ClientFile
from mtkit.serve.directions import Direction
from mtkit.serve.http_errors import RequestError, invalid
from mtkit.serve.service import Service, TranslationRequest
from mtkit.serve.texts import Format, in_parts
from mtkit.translate import Translation, markup_windows

# Files that are a text as a whole; other endings are those of documents.
_TEXTS: dict[str, Format] = {"txt": "text", "html": "html", "htm": "html"}
ENDINGS = (*_TEXTS, *FORMATS)
# Bytes that a document may have when it is unpacked, for each byte that an upload may have.
_UNPACKED = 4


async def translate_document(
    service: Service, file: ClientFile, request: TranslationRequest, key_hash: str
) -> tuple[ClientFile, list[str]]:
    """Translate a document; `request` has its languages and a glossary.

    Gives the translated file, and lines about what could not be translated or kept. RequestError:
    400 if it cannot be read, 413 if it is too large; or as `Service.translate`.
    """
    if file.ending not in ENDINGS:
        raise invalid(f"file format not supported; it is none of {', '.join(ENDINGS)}")
    codes = service.codes(request.source, request.target)
    in_thread = partial(service.scheduler.in_thread, "document")
    try:
        opened, parts = await in_thread(_read, file, codes, service)
    except TooLargeError as error:
        raise RequestError(413, str(error)) from None
    except MtkitError as error:
        raise invalid(str(error)) from None
    form = _TEXTS.get(file.ending, "html")
    request = replace(request, texts=parts, form=form, is_document=True)
    answer = await service.translate(request, key_hash)
    lines = [line for best, *_ in answer.translations for line in best.text.split("\n")]
    data, notes = await in_thread(_written, opened, lines, codes if form == "html" else None)
    path = PurePosixPath(file.name)
    translations = [part for best, *_ in answer.translations for part in best.parts]
    notes += _notes(translations)
    # Scripts of pages are in no language.
    texts = [] if _TEXTS.get(file.ending) == "html" else parts
    given = (line for text in texts for line in text.split("\n"))
    if wrong := await in_thread(service.directions.wrong_language, codes, given):
        notes.append(wrong)
    return ClientFile(f"{path.stem}.{codes[1]}{path.suffix}", data), notes


def _notes(translations: Sequence[Translation]) -> Iterator[str]:
    """Lines about translations that are incomplete."""
    if cut := sum(translation.truncated for translation in translations):
        yield f"segments that were too long, so that their end is not translated: {cut:,}"
    if missing := [translation.missing for translation in translations if translation.missing]:
        terms = ", ".join(map(repr, dict.fromkeys(chain(*missing))))
        yield f"translations without terms that the glossary demands: {len(missing):,} ({terms})"


def _read(
    file: ClientFile, codes: Direction, service: Service
) -> tuple[TextFile | DistinctLines, list[str]]:
    """A file, and its lines in parts, of which none ends in a sentence."""
    limits = service.limits
    opened: TextFile | DistinctLines
    is_text = file.ending in _TEXTS or FORMATS[file.ending].is_text
    if is_text and len(file.data) > limits.body_bytes:
        raise TooLargeError(f"the text is larger than {limits.body_bytes} bytes")
    if file.ending in _TEXTS:
        opened = TextFile(file.data)
        lines = opened.text.split("\n")
        count = len(lines)
    else:
        (source, target), most = codes, _UNPACKED * limits.file_bytes
        document = open_document(
            file.name[-100:], file.data, source=source, target=target, max_unpacked=most
        )
        opened, count = DistinctLines(document), len(document.segments)
        lines = list(opened.segments)
    if count > limits.lines:
        raise TooLargeError(f"the file has {count} segments, more than {limits.lines}")
    if (longest := max(map(len, lines), default=0)) > limits.characters:
        raise TooLargeError(f"a segment has {longest} characters, more than {limits.characters}")
    windows: Iterable[list[str]] = in_parts(lines, map(len, lines), service.max_part)
    if file.ending != "txt":
        windows = markup_windows(windows)
    return opened, ["\n".join(window) for window in windows]


def _written(
    opened: TextFile | DistinctLines, lines: Sequence[str], of_page: Direction | None
) -> tuple[bytes, list[str]]:
    """The bytes of the translated file, perhaps a page, and what there is to know about it."""
    if isinstance(opened, TextFile):
        text = "\n".join(lines)
        # In UTF-16, which has a mark, the charset that a page declares does not count.
        if of_page and opened.charset == "utf-8":
            text = Languages(*of_page).page(text)
        return opened.edited([(0, len(opened.text), text)]), []
    for line, translation in zip(opened.segments, lines, strict=True):
        opened.put(line, translation)
    return opened.write(), [note for note, _ in opened.notes]
