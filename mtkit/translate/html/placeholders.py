"""Placeholders and addresses in plain text: a translation that lost some gets them back.

A line whose best translation does not have each of them again is translated without them, and they
are put back by the word alignment, as in HTML (`markup`). If they still differ, the line is copied
with a warning. All other lines stay as they are.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from typing import Any

from mtkit.base.character_references import unescape
from mtkit.base.copied import copied_parts
from mtkit.translate.html.markup import MarkupPairs, answered, parse, placed
from mtkit.translate.html.markup_segments import Segment, escaped
from mtkit.translate.reading import Window
from mtkit.translate.requests import Translation
from mtkit.translate.translator import Translator

log = logging.getLogger(__name__)

_DIFFER = "line %d: the translation has other placeholders than the text%s"
Translated = tuple[Window, list[list[Translation]]]


def with_placeholders(
    translator: Translator, windows: Iterable[Translated], *, n_best: int = 1
) -> Iterator[Translated]:
    """Windows with translations, as from `translate_windows`, that have their placeholders."""
    for window, translations in windows:
        steps = placeholder_steps(window, translations)
        yield window, answered(steps, translator, translator.aligner, n_best=n_best)


def placeholder_steps(
    window: Window, translations: list[list[Translation]]
) -> Generator[Window | MarkupPairs, Any, list[list[Translation]]]:
    """The translations of a window with their placeholders; asks its caller as `markup_steps`."""
    lost: list[int] = []
    for i, (line, (best, *_)) in enumerate(zip(window.lines, translations, strict=True)):
        if not _is_complete(line, best.text):
            if not (window.prefixes and window.prefixes[i]):
                lost.append(i)
                continue
            log.warning(_DIFFER, window.number_of(i), "; it stays, because its beginning is given")
    if not lost:
        return translations
    texts = [window.lines[i].strip() for i in lost]
    numbers = list(map(window.number_of, lost))
    segments = [segment.without_placeholders() for segment in map(_segment, texts, numbers)]
    second = yield Window(1, [segment.text for segment in segments], numbers=numbers)
    rendered = yield from placed(
        [segment for segment, of_line in zip(segments, second, strict=True) for _ in of_line],
        [translation for of_line in second for translation in of_line],
    )
    # A segment is rendered as HTML.
    whole = map(unescape, rendered)
    translations = list(translations)
    for i, text, of_line in zip(lost, texts, second, strict=True):
        hypotheses = [replace(each, text=next(whole), parts=()) for each in of_line]
        translations[i] = [each for each in hypotheses if _is_complete(text, each.text)]
        if not _is_complete(text, hypotheses[0].text):
            log.warning(_DIFFER, window.number_of(i), ", which is copied")
            translations[i] = [Translation(text)]
    return translations


def _segment(text: str, number: int) -> Segment:
    """A line as it would be in HTML, in which `<0>` and `</0>` surround words."""
    surrounding = {*re.findall(r"<(\d{1,3})>(?=.*</\1>)", text)}
    markup = re.sub(
        r"&lt;(/?)(\d{1,3})&gt;",
        lambda tag: f"<{tag[1]}{tag[2]}>" if tag[2] in surrounding else tag[0],
        escaped(text),
    )
    segments = (part for part in parse([markup], number) if isinstance(part, Segment))
    return next(segments, Segment(text, [], text, number))


def _is_complete(text: str, translation: str) -> bool:
    """Whether a translation has the same placeholders as a text, or the text has none."""
    wanted = copied_parts([text])
    return not wanted or wanted == copied_parts([translation])
