"""The content of an XML element as pieces: read, cut into texts with inline codes, written again.

In all formats, `a <b>half</b>word<i/>` is text, `open`, text, `close`, text, `shown`, and its line
is `a <g1>half</g1>word<x2/>`. The line of a translation gives pieces in a new order, of which those
for codes are the old ones; with them, the element is filled again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, ClassVar

from mtkit.base.copied import has_letters
from mtkit.documents.inline import coded, events, partners_of, trimmed

# An element of lxml, which has no type information.
Element = Any

XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
# Fields and codes that are nested more deeply have no meaning.
MAX_NESTED = 50
# Angular's names of a tag, START_LINK_1, and of its end, CLOSE_LINK.
ANGULAR = re.compile(r"^(START|CLOSE)_(\w+?)(?:_\d+)?$")
_SPACES = re.compile(r"[ \t\r\n]+")
# At both ends of a line; without `(?<!`, time grows with the square of the spaces inside it.
_OUTER_SPACES = r"|(?m:^)[ \t\r]+|(?<![ \t\r])[ \t\r]+(?m:$)"
_NOT_IN_XML = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def local_name(node: Element) -> str:
    """The name of an element without its namespace; empty for comments, and for None."""
    tag = getattr(node, "tag", None)
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def xml_text(text: str) -> str:
    """A text without the characters that XML cannot have."""
    return _NOT_IN_XML.sub("", text)


def by_name(**names: str) -> dict[str, str]:
    """The keyword of each name in strings of names; `break_` is `break`."""
    return {name: key.strip("_") for key, group in names.items() for name in group.split()}


@dataclass(slots=True, eq=False)
class Piece:
    """A text, an element that stays as it is, or an end of what is around words.

    Its kind is `text`, `open` or `close`, or that of its element. A break separates texts. A begin
    or end has `pair`, its name for `partners_of`, and several pieces may be written as `parts`.
    Of `open`, `end` is its `close`, and `base` the text that looks as most inside. Neighbouring
    texts become one if they have the same `look`: in Office what their format, `run`, looks like;
    spaces that stay apart from the words have another one.
    """

    kind: str
    element: Element = None
    text: str = ""
    is_break: bool = False
    pair: str = ""
    parts: Iterable[Piece] = ()
    end: Piece | None = None
    base: Piece | None = None
    run: list[Element] | None = None
    look: tuple[object, ...] = ()


class Text:
    """A text in a paragraph; `line` has its inline codes, and `put` changes its pieces."""

    def __init__(self, pieces: list[Piece]) -> None:
        self._pieces = pieces
        line, self._codes = coded(self._parts())
        # Spaces that were elements or in several runs, too.
        line = _SPACES.sub(" ", line)
        self.line = line.strip()
        # Spaces at its ends may be an indent: they stay as they were.
        first, last = pieces[0].text, pieces[-1].text
        self._before = first[: len(first) - len(first.lstrip())] if line[0].isspace() else ""
        self._after = last[len(last.rstrip()) :] if line[-1].isspace() else ""

    def _parts(self) -> Iterator[tuple[str, Any]]:
        bases = [_base(self._pieces)]
        for stop, piece in enumerate(self._pieces, 1):
            if piece.kind == "text":
                part = "text", _SPACES.sub(" ", piece.text)
                is_base = piece.look == bases[-1].look or not piece.text.strip()
                yield from [part] if is_base else [("open", piece), part, ("close", None)]
            elif piece.kind == "open":
                piece.base = _base(self._pieces, stop)
                bases.append(piece.base)
                yield "open", piece
            elif piece.kind == "close":
                bases.pop()
                yield "close", None
            else:
                yield "unseen" if piece.kind == "unseen" else "shown", piece

    def put(self, line: str) -> None:
        """Replace the pieces of the text by those of a translation of its line."""
        pieces: list[Piece] = []
        bases = [_base(self._pieces)]
        for kind, value in events(self._before + line + self._after):
            if isinstance(value, str):
                pieces.append(Piece("text", text=value, run=bases[-1].run, look=bases[-1].look))
                continue
            piece = self._codes[value]
            if kind == "open":
                bases.append(piece.base or piece)
            elif kind == "close":
                bases.pop()
            if piece.kind != "text":
                pieces.append(piece.end if kind == "close" else piece)
        self._pieces[:] = pieces


class Paragraph:
    """The content of an element; a subclass says what the elements of its format are in a text.

    Attributes:
        kinds: by the name of an element: `around` words; `block`, with texts of its own inside;
            `break` between texts; `shown` or `unseen` at a place; `begin` and `end` of what is
            around words; `kept` before the content; `dropped`. All others are `default`.
        written: how the text of a `begin` starts, if what is between it and the `end` is a text;
            a tab behind it stands for breaks there.
        name: what it is called in messages, instead of by its number.
        is_replaced: see `Segment`.
        texts: those that have letters; what is before or after all words is not in them.
        is_rejected: whether a translation of it was, while it is written.
    """

    kinds: ClassVar[Mapping[str, str]] = {}
    default = "shown"
    is_rejected = False
    written = re.compile("")
    name = ""
    is_replaced = False

    def __init__(self, element: Element) -> None:
        self.element = element
        self.texts: list[Text] = []
        self._pieces: list[list[Piece]] = []
        pieces = self._folded([*self._content(self.holder(element))])
        for _, group in groupby(pieces, lambda piece: piece.is_break):
            part = list(group)
            start, stop = _ends_of_words(part)
            self._pieces += [part[:start], part[start:stop], part[stop:]]
            if has_letters(_words(part[start:stop])):
                self.texts.append(Text(self._pieces[-2]))

    def kind(self, node: Element) -> str:
        """What a node is in a text."""
        name = local_name(node)
        # HTML and XLIFF 2.0; XLIFF 1.2.
        is_kept = node.get("translate") == "no" or node.get("mtype") == "protected"
        if name and (is_kept or "notranslate" in node.get("class", "").split()):
            return "shown"
        return self.kinds.get(name, self.default) if name else "unseen"

    def holder(self, element: Element) -> Element:
        """Where the content of an element is: of a control, or of what has a reading (ruby)."""
        inner = element.iterchildren("{*}sdtContent", "{*}rubyBase", "{*}ruby-base")
        return next(inner, element)

    def render(self) -> None:
        """Fill the element with the pieces."""
        holders, texts = [self._emptied(self.element)], list[str]()
        for piece in [*_leaves(chain.from_iterable(self._pieces)), Piece("close")]:
            if piece.kind == "close":
                _add(holders.pop(), texts)
                continue
            for node in self._nodes(piece):
                if isinstance(node, str):
                    texts.append(node)
                    continue
                _add(holders[-1], texts)
                node.tail = None
                holders[-1].append(node)
            if piece.kind == "open":
                holders.append(self._emptied(piece.element))

    def _nodes(self, piece: Piece) -> Iterable[Element]:
        """What is written for a piece: an element, or text."""
        return [xml_text(piece.text) if piece.element is None else piece.element]

    def _emptied(self, element: Element) -> Element:
        holder = self.holder(element)
        for child in list(holder):
            if self.kind(child) != "kept":
                holder.remove(child)
        holder.text = None
        return holder

    def _content(self, holder: Element) -> Iterator[Piece]:
        """The pieces of the text and of the children of an element."""
        spaces = (node.get(XML_SPACE) for node in chain([holder], holder.iterancestors()))
        # Where line ends count, they are breaks.
        separator = "\n" if next(filter(None, spaces), "") == "preserve" else ""
        yield from self._texts(holder.text or "", separator)
        for child in holder:
            yield from self._child(child)
            yield from self._texts(child.tail or "", separator)

    def _texts(self, text: str, separator: str) -> Iterable[Piece]:
        return cut(text, separator)

    def _child(self, child: Element) -> Iterator[Piece]:
        kind = self.kind(child)
        if kind in ("around", "block"):
            yield Piece("open", child, pair="*")
            if kind == "block":
                yield Piece("text", is_break=True)
            yield from self._content(self.holder(child))
            yield Piece("close", pair="/*")
        elif kind not in ("kept", "dropped"):
            # What a begin and its end have in common in XLIFF 1.2 and 2.0; nothing in Office.
            name = child.get("startRef") or child.get("rid") or child.get("id")
            pair = "=" + ANGULAR.sub(r"\2", name or "")
            pairs = {"begin": pair, "end": f"/{pair}"}
            yield Piece(kind, child, is_break=kind == "break", pair=pairs.get(kind, ""))

    def _folded(self, pieces: list[Piece]) -> list[Piece]:
        """Join neighbouring texts, and make each begin and end an `open` and a `close`."""
        joined, done = list[Piece](), list[Piece]()
        for look, group in groupby(pieces, _look_of_text):
            first, *others = group
            if look:
                first.text, others = _words([first, *others]), []
            joined += [first, *others]
        partners = partners_of([piece.pair for piece in joined])
        # Of what has no end yet: where in `done` it begins, and where what is inside begins.
        opened: list[tuple[int, int]] = []
        for i, piece in enumerate(joined):
            done.append(piece)
            if partners.get(i, 0) > i:
                opened.append((len(done) - 1, len(done)))
            elif i in partners:
                start, inside = opened.pop()
                if piece.kind == "close" or len(opened) < MAX_NESTED:
                    done[start:] = self._code(done[start:inside], done[inside:-1], piece)
            elif piece.kind == "separate" and opened and done[opened[-1][0]].kind == "begin":
                opened[-1] = (opened[-1][0], len(done))
        return done

    def _code(self, begin: list[Piece], inside: list[Piece], end: Piece) -> list[Piece]:
        """A code around others as two pieces; as one if there are no words of a text inside."""
        opened, closed = begin[0], end
        if opened.kind == "begin":
            texts = [piece.element.text or "" for piece in begin if piece.element is not None]
            has_break = any(piece.is_break for piece in inside)
            if not self.written.match("".join(texts) + "\t" * has_break):
                return [Piece("shown", parts=_leaves([*begin, *inside, end]))]
            opened = Piece("open", parts=_leaves(begin))
            closed = Piece("close", parts=_leaves([end]))
        opened.end = closed
        opened.is_break = closed.is_break = any(piece.is_break for piece in inside)
        pieces = [opened, *inside, closed]
        if opened.is_break or _words(inside).strip():
            return pieces
        return [Piece("shown", parts=_leaves(pieces))]


def _add(holder: Element, texts: list[str]) -> None:
    """Write texts at the end of an element at once, and forget them."""
    # `len` would count all of them.
    last = next(holder.iterchildren(reversed=True), None)
    if last is not None and texts:
        last.tail = (last.tail or "") + "".join(texts)
    elif any(texts):
        holder.text = (holder.text or "") + "".join(texts)
    texts.clear()


def cut(text: str | None, separator: str) -> Iterator[Piece]:
    """The parts of a text between separators, and these as breaks.

    Where line ends separate, the spaces beside them and at the ends stay apart from the words.
    """
    spaces = _OUTER_SPACES if separator == "\n" else ""
    pieces = re.split(f"({separator}{spaces})", text or "") if separator else [text or ""]
    for piece in filter(None, pieces):
        look = ("spaces",) if spaces and piece.isspace() else ()
        yield Piece("text", text=piece, is_break=piece == separator, look=look)


def _leaves(pieces: Iterable[Piece]) -> list[Piece]:
    return [leaf for piece in pieces for leaf in piece.parts or (piece,)]


def _look_of_text(piece: Piece) -> tuple[object, ...]:
    """Equal for texts that become one; empty if it is none."""
    return (piece.look,) if piece.kind == "text" and not piece.is_break else ()


def _ends_of_words(pieces: list[Piece]) -> tuple[int, int]:
    def is_outside(i: int) -> bool:
        return pieces[i].kind not in ("open", "close") and not pieces[i].text.strip()

    return trimmed(len(pieces), is_outside, lambda i, k: pieces[i].end is pieces[k])


def _words(pieces: Iterable[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def _base(pieces: list[Piece], start: int = 0) -> Piece:
    """The text whose look most characters have, up to the end of a code and not inside others."""
    depth, texts = 0, dict[tuple[object, ...], Piece]()
    sizes: Counter[tuple[object, ...]] = Counter()
    for i in range(start, len(pieces)):
        piece = pieces[i]
        depth += (piece.kind == "open") - (piece.kind == "close")
        if depth < 0:
            break
        if depth == 0 and piece.kind == "text":
            texts.setdefault(piece.look, piece)
            sizes[piece.look] += len(piece.text.strip())
    return next((texts[look] for look, _ in sizes.most_common(1)), Piece("text"))
