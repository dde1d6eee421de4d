"""Translates whole texts: lines, white space and HTML stay as they are.

Each line is translated as `mtkit translate` translates it, or `mtkit translate --format html`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from mtkit.serve.scheduler import Scheduler, Ticket
from mtkit.translate import MarkupPairs, Translation, Translator, Window, markup_steps

Result = TypeVar("Result")
Format = Literal["text", "html"]

# Texts of more characters are read in a thread, so that the event loop answers others meanwhile.
_LONG = 2000


async def translate_texts(
    scheduler: Scheduler, ticket: Ticket, texts: Sequence[str], form: Format
) -> list[list[str]]:
    """The best translations of each text, the best first, each once; of HTML only one."""
    if form == "text":
        return await _plain(ticket, texts)
    running = [asyncio.ensure_future(_markup(scheduler, ticket, text)) for text in texts]
    try:
        return [[found] for found in await asyncio.gather(*running)]
    finally:
        for one in running:
            one.cancel()


async def _plain(ticket: Ticket, texts: Sequence[str]) -> list[list[str]]:
    lines = [[_Line(line) for line in text.split("\n")] for text in texts]
    inner = [line.inner for of_text in lines for line in of_text if line.inner]
    found = iter(await _translated(ticket, Window(1, inner)))
    return [_joined(of_text, [next(found) for line in of_text if line.inner]) for of_text in lines]


class _Line:
    """A line: its text, and the white space before and after it."""

    def __init__(self, line: str) -> None:
        self.inner = line.strip()
        start = line.find(self.inner) if self.inner else len(line)
        self.before, self.after = line[:start], line[start + len(self.inner) :]


def _joined(lines: Sequence[_Line], found: Sequence[list[Translation]]) -> list[str]:
    """The translations of a text, from those of its lines that are not blank.

    The k-th has the k-th of each line, or its last one.
    """
    texts = []
    for k in range(max(map(len, found), default=1)):
        best = iter(of_line[min(k, len(of_line) - 1)].text for of_line in found)
        texts.append(
            "\n".join(
                f"{line.before}{next(best) if line.inner else ''}{line.after}" for line in lines
            )
        )
    return list(dict.fromkeys(texts))


async def _markup(scheduler: Scheduler, ticket: Ticket, text: str) -> str:
    lines = text.split("\n")
    steps = markup_steps([line.removesuffix("\r") for line in lines])
    answer: Any = None
    while True:
        wanted, found = await _at_leisure(len(text), _next, steps, answer)
        if wanted is None:
            break
        if isinstance(wanted, Window):
            answer = [best for best, *_ in await _translated(ticket, wanted)]
        else:
            answer = await scheduler.alone(_aligned, ticket.translator, wanted)
    # Only line ends of Windows end in \r.
    ends = ("\r" if line.endswith("\r") else "" for line in lines)
    return "\n".join(f"{line}{end}" for line, end in zip(found, ends, strict=True))


def _next(steps: Any, answer: Any) -> tuple[Window | MarkupPairs | None, list[str]]:
    """What the steps want next; None and the lines at the end."""
    try:
        return steps.send(answer), []
    except StopIteration as end:
        return None, end.value


def _aligned(translator: Translator, pairs: MarkupPairs) -> Any:
    return pairs.aligned(translator.aligner())


async def _translated(ticket: Ticket, window: Window) -> list[list[Translation]]:
    """The translations of lines."""
    translator, size = ticket.translator, sum(map(len, window.lines))
    lines = await _at_leisure(size, translator.sentences, window)
    wanted = [sentence for line in lines for sentence in line if sentence.ids]
    found = iter(await ticket.translate(wanted))
    results = [[next(found) if sentence.ids else None for sentence in line] for line in lines]
    return await _at_leisure(size, lambda: list(map(translator.joined, lines, results)))


async def _at_leisure(size: int, function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function for a text of this size; in a thread if that may take long."""
    if size <= _LONG:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)
