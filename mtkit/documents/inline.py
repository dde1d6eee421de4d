"""Inline codes: what a segment has besides words, as `<gN>…</gN>`, `<xN/>` and `<!--N-->`.

`<gN>…</gN>` stands around words (a format, a link). `<xN/>` stands where readers see something (an
image, the mark of a footnote), and `<!--N-->` where they see nothing (a bookmark). The numbers of a
line begin at 1. The rest of a line is text as in HTML, with `&amp;`, `&lt;` and `&gt;`.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from mtkit.base.character_references import unescape

Event = tuple[Literal["text"], str] | tuple[Literal["open", "close", "shown", "unseen"], int]

_CODE = re.compile(r"<g(?P<open>\d+)>|</g(?P<close>\d+)>|<x(?P<shown>\d+)/>|<!--(?P<unseen>\d+)-->")
_FORMS = {"open": "<g{}>", "shown": "<x{}/>", "unseen": "<!--{}-->"}
_NOT_IN_A_LINE = re.compile(r"[\t\r\n]")


def escaped(text: str) -> str:
    """Text as it is written in a line: on one line, and without characters that begin a code."""
    return html.escape(_NOT_IN_A_LINE.sub(" ", text), quote=False)


def events(line: str) -> Iterator[Event]:
    """The parts of a line: `("text", "a < b")`, `("open", 1)`, `("close", 1)`, `("shown", 2)`."""
    at = 0
    for code in _CODE.finditer(line):
        if code.start() > at:
            yield "text", unescape(line[at : code.start()])
        at = code.end()
        kind: Any = code.lastgroup
        yield kind, int(code[kind])
    if at < len(line):
        yield "text", unescape(line[at:])


def plain_text(line: str) -> str:
    """The text of a line without its codes."""
    return unescape(_CODE.sub("", line))


def has_same_codes(source: str, translation: str) -> bool:
    """Whether a translation has each code of its source once, inside the same ones, well nested.

    Codes beside each other may change their order. The source is well nested: it is a segment's.
    """
    same = _CODE.findall(source) == _CODE.findall(translation)
    return same or _nesting(source) == _nesting(translation)


def _nesting(line: str) -> dict[str, str] | None:
    """The code that each code is in; None if a code is there twice, or its end is missing."""
    around, stack = dict[str, str](), [""]
    for code in _CODE.finditer(line):
        if code["close"]:
            if stack.pop() != f"<g{code['close']}>":
                return None
        elif code[0] in around:
            return None
        else:
            around[code[0]] = stack[-1]
            stack += [code[0]] * bool(code["open"])
    return around if stack == [""] else None


# What stands for a code in a text file: at its begin and at its end, or one string at its place.
Tags = Mapping[int, tuple[str, str]]


def with_tags(line: str, tags: Tags, text: Callable[[str], str] = str) -> str:
    """A line with its tags instead of codes; `text` makes what the file has for its text."""
    return "".join(
        text(event[1]) if event[0] == "text" else tags[event[1]][event[0] == "close"]
        for event in events(line)
    )


def coded(parts: Iterable[tuple[str, Any]]) -> tuple[str, dict[int, Any]]:
    """A line, and what each of its codes stands for, by its number.

    Args:
        parts: `("text", "a < b")`, `("open", meaning)`, `("close", None)`; of what stands at one
            place, `("shown", meaning)` if readers see something there, else `("unseen", meaning)`.
    """
    line, opened, meanings = list[str](), list[int](), dict[int, Any]()
    for kind, value in parts:
        if kind == "text":
            line.append(escaped(value))
        elif kind == "close":
            line.append(f"</g{opened.pop()}>")
        else:
            number = len(meanings) + 1
            meanings[number] = value
            line.append(_FORMS[kind].format(number))
            if kind == "open":
                opened.append(number)
    return "".join(line), meanings


def partners_of(names: Sequence[str]) -> dict[int, int]:
    """The number of the end of each tag, and of the beginning of each end.

    The name of an end begins with `/`; an empty name is no tag. A tag whose name begins
    with `*` always has an end, and no other tag may cross it.
    """
    partners: dict[int, int] = {}
    stack: list[int] = []
    # How often each name is in the stack.
    counts = Counter[str]()
    for i, name in enumerate(names):
        if name and not name.startswith("/"):
            stack.append(i)
            counts[name] += 1
        elif counts[name[1:]]:
            inner = len(stack)
            while inner and names[stack[inner - 1]] != name[1:]:
                is_crossed = names[stack[inner - 1]].startswith("*") and name[1] != "*"
                inner = 0 if is_crossed else inner - 1
            if inner:
                partners[i] = stack[inner - 1]
                partners[partners[i]] = i
                counts.subtract(names[tag] for tag in stack[inner - 1 :])
                del stack[inner - 1 :]
    return partners


def trimmed(
    count: int, is_outside: Callable[[int], bool], is_pair: Callable[[int, int], bool]
) -> tuple[int, int]:
    """Where the words of some pieces begin and end, without what is around all of them.

    `is_outside` says whether a piece may be left out at either end: it is neither a word nor an end
    of formatting around words. `is_pair` says whether two are the ends of what is around the words
    between them.
    """
    start, stop = 0, count
    while start < stop:
        if is_pair(start, stop - 1):
            start, stop = start + 1, stop - 1
        elif is_outside(start):
            start += 1
        elif is_outside(stop - 1):
            stop -= 1
        else:
            break
    return start, stop
