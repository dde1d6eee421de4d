"""Translates whole texts: lines, white space and HTML stay as they are.

Each line is translated as `mtkit translate` translates it, or `mtkit translate --format html`.
"""

from __future__ import annotations

import asyncio
import html
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from mtkit.base.character_references import unescape
from mtkit.serve.http_errors import invalid
from mtkit.serve.scheduler import Request, Scheduler
from mtkit.translate import (
    MarkupPairs,
    MarkupRules,
    Translation,
    Translator,
    Window,
    markup_steps,
    placeholder_steps,
)

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")
Format = Literal["text", "html"]
# Where a word of a text begins and ends, and where a word of its translation does.
WordLink = tuple[list[int], list[int]]

# Texts of more characters are read in a thread, so that the event loop answers others meanwhile.
_LONG = 2000
# The time and the memory of a sentence grow with the terms that it must have, one for each time
# that a source term is in it, and with the characters of these terms.
_MAX_TERMS = 100
_MAX_TERM_CHARACTERS = 1000
# Pairs that are aligned at a time; between them, other requests have their turn.
_PAIRS = 32


class LinePair(NamedTuple):
    """A line without the white space around it, its translation, and where both begin.

    That is the index of the first character of the line in its text, and likewise.
    """

    source: str
    source_start: int
    translation: Translation
    target_start: int


class TranslatedText(NamedTuple):
    """A translation of a text; `lines` are those that were translated, none of HTML.

    `parts` are the translations in it, of lines or of segments of HTML.
    """

    text: str
    parts: Sequence[Translation] = ()
    lines: Sequence[LinePair] = ()

    @property
    def missing(self) -> list[str]:
        """The terms that the glossary demands and that are not in it."""
        return [term for part in self.parts for term in part.missing]

    @property
    def truncated(self) -> bool:
        """Whether the end of a sentence is missing, because the sentence was too long."""
        return any(part.truncated for part in self.parts)


async def translate_texts(
    scheduler: Scheduler, request: Request, texts: Sequence[str], form: Format, rules: MarkupRules
) -> list[list[TranslatedText]]:
    """The best translations of each text, the best first, each once; of HTML only one."""
    if form == "text" and rules.line_ends == "none":
        # In HTML, a line end may be inside of a sentence.
        escaped = [html.escape(text, quote=False) for text in texts]
        translated = await translate_texts(scheduler, request, escaped, "html", rules)
        return [[best._replace(text=unescape(best.text))] for (best,) in translated]
    if form == "text":
        return await _plain(scheduler, request, texts)
    running = [asyncio.ensure_future(_markup(scheduler, request, text, rules)) for text in texts]
    try:
        return [[translated] for translated in await asyncio.gather(*running)]
    finally:
        for task in running:
            task.cancel()


def in_parts(items: Iterable[Item], sizes: Iterable[int], most: int) -> Iterator[list[Item]]:
    """The items in parts, which end as soon as they have this size."""
    part, size = list[Item](), 0
    for item, of_item in zip(items, sizes, strict=True):
        part.append(item)
        size += of_item
        if size >= most:
            yield part
            part, size = [], 0
    if part:
        yield part


async def link_words(
    scheduler: Scheduler, translator: Translator, translations: Sequence[Sequence[TranslatedText]]
) -> list[list[list[WordLink]]]:
    """The links between the words of each text and those of each of its translations.

    PyTorch computes them, and loads the model for the first ones.
    """
    size = sum(len(t.text) for of_text in translations for t in of_text)
    lines = [line for of_text in translations for t in of_text for line in t.lines]
    pairs = MarkupPairs(
        [line.source for line in lines], [line.translation for line in lines], [1] * len(lines)
    )
    alignments = await _alignments(scheduler, translator, pairs)
    return await _in_thread_if_long(size, _links, translations, alignments)


def _links(
    translations: Sequence[Sequence[TranslatedText]], alignments: Sequence[Any]
) -> list[list[list[WordLink]]]:
    """The links of each translation of each text, from the alignments of all lines in order."""
    left = iter(alignments)
    return [
        [
            [
                (
                    [place + line.source_start for place in alignment.src_words[i]],
                    [place + line.target_start for place in alignment.tgt_words[j]],
                )
                for line, alignment in zip(translation.lines, left, strict=False)
                for i, j in alignment.weights
            ]
            for translation in of_text
        ]
        for of_text in translations
    ]


async def _plain(
    scheduler: Scheduler, request: Request, texts: Sequence[str]
) -> list[list[TranslatedText]]:
    size = sum(map(len, texts))
    lines = await _in_thread_if_long(
        size, lambda: [list(map(_parted, text.split("\n"))) for text in texts]
    )
    window = Window(1, [inner for of_text in lines for _, inner, _ in of_text if inner])
    steps = placeholder_steps(window, await _translated(request, window))
    answers = iter(await _answered(scheduler, request, steps, size))
    of_lines = [[next(answers) for _, inner, _ in of_text if inner] for of_text in lines]
    return await _in_thread_if_long(size, lambda: list(map(_joined, lines, of_lines)))


def _parted(line: str) -> tuple[str, str, str]:
    """The white space before a line, its text, and the white space after it."""
    # No line has a line end, so a blank one is all before it.
    return line.partition(line.strip() or "\n")


def _joined(
    lines: Sequence[tuple[str, str, str]], results: Sequence[list[Translation]]
) -> list[TranslatedText]:
    """The translations of a text, from those of its lines that are not blank."""
    # The k-th has the k-th of each line, or its last one.
    texts: dict[str, TranslatedText] = {}
    for k in range(max(map(len, results), default=1)):
        best = iter(of_line[min(k, len(of_line) - 1)] for of_line in results)
        parts, pairs = list[str](), list[LinePair]()
        # Where the line begins, in the text and in its translation.
        source_start = target_start = 0
        for before, inner, after in lines:
            written = inner
            if inner:
                translation = next(best)
                starts = source_start + len(before), target_start + len(before)
                pairs.append(LinePair(inner, starts[0], translation, starts[1]))
                written = translation.text
            parts.append(f"{before}{written}{after}")
            source_start += len(before) + len(inner) + len(after) + 1
            target_start += len(parts[-1]) + 1
        text = "\n".join(parts)
        texts.setdefault(text, TranslatedText(text, [pair.translation for pair in pairs], pairs))
    return list(texts.values())


async def _markup(
    scheduler: Scheduler, request: Request, text: str, rules: MarkupRules
) -> TranslatedText:
    lines = text.split("\n")
    steps = markup_steps(
        [line.removesuffix("\r") for line in lines],
        copies=request.translator.config.copy_numbers,
        rules=rules,
    )
    translated, parts = await _answered(scheduler, request, steps, len(text))
    # Only line ends of Windows end in \r.
    ends = ("\r" if line.endswith("\r") else "" for line in lines)
    whole = "\n".join(f"{line}{end}" for line, end in zip(translated, ends, strict=True))
    return TranslatedText(whole, parts)


async def _answered(scheduler: Scheduler, request: Request, steps: Any, size: int) -> Any:
    """What steps return, which want translations and alignments of a text of this size."""
    answer: Any = None
    while True:
        wanted, end = await _in_thread_if_long(size, _next, steps, answer)
        if wanted is None:
            return end
        if isinstance(wanted, Window):
            answer = await _translated(request, wanted)
        else:
            answer = await _alignments(scheduler, request.translator, wanted)


def _next(steps: Any, answer: Any) -> tuple[Window | MarkupPairs | None, Any]:
    """What the steps want next; None and what they return at the end."""
    try:
        return steps.send(answer), None
    except StopIteration as end:
        return None, end.value


async def _alignments(
    scheduler: Scheduler, translator: Translator, pairs: MarkupPairs
) -> list[Any]:
    """The word alignment of each pair."""
    alignments = list[Any]()
    for start in range(0, len(pairs.sources), _PAIRS):
        part = slice(start, start + _PAIRS)
        some = MarkupPairs(pairs.sources[part], pairs.translations[part], pairs.numbers[part])
        alignments += await scheduler.in_thread("torch", _aligned, translator, some)
    return alignments


def _aligned(translator: Translator, pairs: MarkupPairs) -> list[Any]:
    return pairs.aligned(translator.aligner())


async def _translated(request: Request, window: Window) -> list[list[Translation]]:
    """The translations of lines."""
    reader, size = request.translator.reader, sum(map(len, window.lines))
    lines = await _in_thread_if_long(size, reader.read, window)
    for terms in (sentence.terms for line in lines for sentence in line if sentence.terms):
        characters = sum(len(demand.term) for demand in terms)
        if len(terms) > _MAX_TERMS or characters > _MAX_TERM_CHARACTERS:
            raise invalid(
                f"a sentence has more than {_MAX_TERMS} terms of the glossary, or terms with more "
                f"than {_MAX_TERM_CHARACTERS} characters"
            )
    wanted = [sentence for line in lines for sentence in line if sentence.ids]
    translations = await request.translate(wanted)
    if empty := sum(not best.text for best, *_ in translations):
        log.warning("%d of %d sentences of a request have no translation", empty, len(wanted))
    remaining = iter(translations)
    of_lines = [[next(remaining) if sentence.ids else None for sentence in line] for line in lines]
    return await _in_thread_if_long(
        size, lambda: list(map(reader.translated_line, lines, of_lines))
    )


async def _in_thread_if_long(size: int, function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function for a text of this size; in a thread if that may take long."""
    if size <= _LONG:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)
