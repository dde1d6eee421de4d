"""What stands at a word without a space: marks, as in `word<sup>1</sup>`, and symbols.

A mark is a number, a sign such as `*`, a raised letter or a reading of `<ruby>`. The model does not
read it; it is put beside the translation of its word. The model reads a symbol, such as
`H<sub>2</sub>O`; if the translation lacks it, it is put back as placeholders are.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from unicodedata import category

from mtkit.base.copied import copied_parts
from mtkit.translate.html.markup_segments import Node, Segment, nodes_in, with_literals

# So many symbols are looked for in a translation; if a text has more, they are placeholders.
_MAX_SYMBOLS = 100
_MAX_MARK = 20
# What is a mark besides numbers and symbols of Unicode; a raised letter; an index such as i,j.
_SIGNS = frozenset("*†‡§¶#")
_NOTE = re.compile(r"[a-z]|TM|SM")
_INDEX = re.compile(r"(?:[A-Za-zα-ω]|\d+)(?:[,+\u2212-](?:[A-Za-z]|\d+))*")
# A text in which the characters of elements are M in marks, I in an index, and R in a reading.
_M, _I, _R = "\ue000", "\ue001", "\ue002"
_LETTERS = r"(?:\d|[A-Z][a-z]?+|[a-zα-ω](?![a-z])){1,9}+"


@functools.cache
def _glued() -> re.Pattern[str]:
    # It takes 8 ms to compile, and most texts have no elements.
    return re.compile(
        rf"""(?P<symbol>(?<![^\W_]|[{_M}{_I}])(?:
            [A-Za-zα-ω][{_M}{_I}]++                                     # x_i, m²
          | (?:\d++|(?:\d|[A-Z](?:[a-z](?=[A-Z\d]))?+){{1,5}}+){_M}++   # 10⁶, CO₂; He¹ is a word
          | {_LETTERS}(?:{_M}++{_LETTERS})++{_M}*+)(?![^\W_]))          # H₂O
          | (?<!\s)\s*+{_R}(?:\s*+{_R})*+                               # the reading of a word
          | (?<=[^\W_]|{_R}){_M}++(?:[,;–-]{_M}++)*+                    # word¹, word¹,²
          | (?<=[^\s(\[{{][.,;:!?…)\]}}”’»"'。、，！？）】」』]){_M}++(?![^\W_])   # word.¹
          | {_M}++(?=[^\W\d_]{{3}}|[^\W\d_a-z])                         # ¹Word, but not 20th
        """,
        re.VERBOSE,
    )


def marked(segment: Segment) -> Segment:
    """The same segment with its symbols as nodes, and with its marks out of its text."""
    if not (literals := list(_literals(segment.nodes, segment.text))):
        return segment
    nodes = with_literals(segment.nodes, literals)
    keeps_symbols = len(literals) <= _MAX_SYMBOLS
    return replace(segment, nodes=nodes).without_literals(keeps_symbols=keeps_symbols)


def _literals(nodes: Iterable[Node], text: str) -> Iterator[Node]:
    kinds, marks = list(text), list[tuple[int, int, str]]()
    # Where each element begins and ends, with its other end.
    edges = list[tuple[int, int]]()
    for node in filter(lambda node: node.is_element, nodes_in(nodes)):
        start, end = node.start, node.end
        edges += (start, end), (end, start)
        if (not marks or marks[-1][1] <= start) and (kind := _kind(node, text)):
            kinds[start:end] = kind * (end - start)
            marks.append((start, end, kind))
    edges.sort()
    for match in _glued().finditer("".join(kinds)) if marks else ():
        first, last = match.span()
        others = edges[bisect_right(edges, (first, len(text))) : bisect_left(edges, (last, 0))]
        if all(first <= other <= last for _, other in others):
            yield Node("", first, last, is_mark=not match["symbol"])
            continue
        # It crosses an element.
        for start, end, kind in marks[bisect_left(marks, (first,)) : bisect_left(marks, (last,))]:
            if kind != _I:
                yield Node("", start, end, is_mark=True)


def _kind(node: Node, text: str) -> str:
    """The character of what is in an element; empty if it may be words."""
    name = re.split(r"\W", node.open, maxsplit=2)[1].lower()
    content, last = text[node.start : node.end], text[max(node.start - 1, 0) : node.start]
    if name in ("rt", "rp", "rtc"):
        return _R
    if len(content) > _MAX_MARK or copied_parts([content]):
        return ""
    if not any(map(str.isalpha, content)):
        is_sign = any(c.isnumeric() or category(c) in ("Sk", "Sm", "So") for c in content)
        return _M if is_sign or not _SIGNS.isdisjoint(content) else ""
    is_index = _INDEX.fullmatch(content) or (len(content) <= 4 and content.isascii())
    is_variable = last.isalpha() if name == "sub" else last.islower() and _INDEX.fullmatch(content)
    if is_index and is_variable and not text[max(node.start - 2, 0) : node.start - 1].isalnum():
        return _I
    # XX<sup>e</sup> is a number in French.
    is_note = _NOTE.fullmatch(content) and (last.islower() or content.isupper())
    return _M if name in ("sub", "sup") and is_note else ""
