"""The content of a paragraph as items: cut into texts with inline codes, and put together again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from mtkit.base.copied import has_letters
from mtkit.documents.inline import LineWriter, events

# An element of lxml, which has no type information.
Element = Any

# Fields and codes that are nested more deeply have no meaning.
MAX_NESTED = 50
_SPACES = re.compile(r"[ \t\r\n]+")


@dataclass(slots=True)
class Words:
    """Text in one format; `look` is equal where readers see no difference.

    Attributes:
        properties: the element that describes the format.
        is_break: whether it is what separates texts, such as a tab.
    """

    text: str
    properties: Element = None
    look: tuple[object, ...] = ()
    is_break: bool = False

    def cut(self, separator: str) -> list[Words]:
        """The parts between separators, and these as breaks."""
        pieces = filter(None, re.split(f"({separator})", self.text))
        return [replace(self, text=piece, is_break=piece == separator) for piece in pieces]


@dataclass(slots=True)
class Thing:
    """An element that stays as it is; texts end at a break.

    Attributes:
        properties, is_in_run: of Office: the format of the run that it is in.
    """

    element: Element
    is_shown: bool = True
    is_break: bool = False
    properties: Element = None
    is_in_run: bool = False


@dataclass(slots=True)
class Around:
    """Items inside an element, or between others (a field); with neither, just items together.

    Attributes:
        is_fixed: whether all of it stays as it is.
        is_break: whether the texts inside are not a part of the text around it.
    """

    items: list[Item]
    element: Element = None
    begin: list[Item] = field(default_factory=list)
    end: list[Item] = field(default_factory=list)
    is_fixed: bool = False
    is_break: bool = False


Item = Words | Thing | Around


class Text:
    """A text in the items of a paragraph.

    Attributes:
        line: the text with inline codes, without the spaces at its ends.
    """

    def __init__(self, group: Around) -> None:
        self._group = group
        self._writer: LineWriter[Item] = LineWriter()
        self._write(group.items)
        line = self._writer.line
        self.line = line.strip()
        self._before, _, self._after = line.partition(self.line)

    def _write(self, items: list[Item]) -> None:
        base = _base(items)
        for item in items:
            if isinstance(item, Words):
                is_base = item.look == base.look or not item.text.strip()
                number = None if is_base else self._writer.open(item)
                self._writer.text(_SPACES.sub(" ", item.text))
            elif isinstance(item, Around) and text_of(item).strip():
                number = self._writer.open(item)
                self._write(item.items)
            else:
                number = None
                self._writer.point(item, is_shown=isinstance(item, Around) or item.is_shown)
            if number is not None:
                self._writer.close(number)

    def put(self, line: str) -> None:
        """Replace the items of the text by those of a translation of its line."""
        stack: list[tuple[list[Item], Words]] = [([], _base(self._group.items))]
        for event in events(self._before + line + self._after):
            items, base = stack[-1]
            match event:
                case "text", str(text):
                    items.append(replace(base, text=text))
                case "point", int(number):
                    items.append(self._writer.meanings[number])
                case "open", int(number):
                    meaning = self._writer.meanings[number]
                    inner = meaning if isinstance(meaning, Words) else _base(_inside(meaning))
                    stack.append(([], inner))
                case "close", int(number):
                    meaning = self._writer.meanings[number]
                    stack.pop()
                    if isinstance(meaning, Around):
                        items = [replace(meaning, items=items)]
                    stack[-1][0].extend(items)
        self._group.items = stack[0][0]


def texts_in(around: Around) -> Iterator[Text]:
    """The texts between breaks that have letters; what is before or after all of one is not in it.

    The items of each text become a group of their own, which `Text.put` writes.
    """
    items, around.items = around.items, []
    part: list[Item] = []
    for item in [*items, None]:
        if item is not None and not _has_break(item):
            part.append(item)
            continue
        wordy = [i for i, other in enumerate(part) if text_of(other).strip()]
        start, stop = (wordy[0], wordy[-1] + 1) if wordy else (0, 0)
        group = Around(part[start:stop])
        around.items += [*part[:start], group, *part[stop:]]
        if len(group.items) == 1 and isinstance(group.items[0], Around):
            yield from texts_in(group.items[0])
        elif has_letters(text_of(group)):
            yield Text(group)
        if item is not None:
            around.items.append(item)
        if isinstance(item, Around):
            yield from texts_in(item)
        part = []


def joined(items: Iterable[Item]) -> list[Item]:
    """The items, with texts beside each other that look the same as one."""
    done: list[Item] = []
    for item in items:
        last = done[-1] if done else None
        if not (isinstance(item, Words) and isinstance(last, Words)):
            done.append(item)
        elif item.look == last.look and not (item.is_break or last.is_break):
            done[-1] = replace(last, text=last.text + item.text)
        else:
            done.append(item)
    return done


def text_of(item: Item) -> str:
    """The text of an item that is a part of the text around it."""
    if isinstance(item, Words):
        return item.text
    return "".join(map(text_of, _inside(item)))


def _inside(item: Item) -> list[Item]:
    return item.items if isinstance(item, Around) and not item.is_fixed else []


def _has_break(item: Item) -> bool:
    return item.is_break or any(map(_has_break, _inside(item)))


def _base(items: Iterable[Item]) -> Words:
    """The text whose format has most of the characters."""
    texts = [item for item in items if isinstance(item, Words)]
    sizes: Counter[tuple[object, ...]] = Counter()
    for words in texts:
        sizes[words.look] += len(words.text.strip())
    return max(texts, key=lambda words: sizes[words.look], default=Words(""))
