"""Pretended translations of lines with inline codes, which lose nothing."""

import html
import re

# Codes, and placeholders of programs, which a translation keeps.
KEPT = re.compile(r"(<[^<>]*>|%(?:\d\$)?[sd%]|\{\w*\})")
WORD = re.compile(r"[^\W\d_]+")


def capitals(line: str) -> str:
    """The words in capitals."""
    pieces = KEPT.split(line)
    pieces[::2] = [html.escape(html.unescape(text).upper(), quote=False) for text in pieces[::2]]
    return "".join(pieces)


def reversed_words(line: str) -> str:
    """The words in reverse order, with everything else in its place."""
    pieces = KEPT.split(line)
    texts = [html.unescape(text) for text in pieces[::2]]
    words = [word for text in texts for word in WORD.findall(text)]
    pieces[::2] = [
        html.escape(WORD.sub(lambda _: words.pop(), text), quote=False) for text in texts
    ]
    return "".join(pieces)
