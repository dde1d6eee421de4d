"""Markdown: CommonMark with tables and strikethrough, as markdown-it-py reads it.

Headings, paragraphs, list items, quotes and cells of tables are segments, with codes for emphasis,
links, images, code and HTML inside of a text. Only their characters in the file change: what the
parser does not call text stays as it is. A new text is read again, and must have the same codes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from markdown_it import MarkdownIt, rules_inline
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from mtkit.base.copied import has_letters
from mtkit.documents.document import Document, Options, Segment
from mtkit.documents.inline import LineWriter, Tags, events
from mtkit.documents.text import Edit, Row, TextFile, refilled, write_tagged

# The front matter of a page, in YAML or TOML.
_FRONT = re.compile(r"(---|\+\+\+)[ \t]*\r?\n.*?^(?:\1|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)
# Signs of extensions that CommonMark takes for text: marks of footnotes, tasks and alerts,
# attributes, and formulas as Pandoc finds them.
_KEPT = re.compile(
    r"(\[\^[^\]\s]+\]:?|^\[[ xX]\](?=\s)|\[![A-Z]+\]|\{[#.:][^{}]*\}|(?<!\$)\$\$[^$]+\$\$"
    r"|(?<![\w$])\$(?=\S)[^$\n]*[^\s$]\$(?!\d))"
)
# A line of an extension: ":::note", '!!! tip "Title"'.
_DIRECTIVE = re.compile(r"\s*(?::{3,}|!!!|\?\?\?)")
# What would begin a block, or make a heading of the line before; it needs a backslash.
_BLOCK = (
    r"(\d{1,9}(?=[.)](?:\s|$))|(?=#{1,6}(?:\s|$)|[-+*](?:\s|$)|>|=+\s*$|-+\s*$|~~~|```"
    r"|(?:[*_-]\s*){3,}$|\[[^\]]*\]:|:::|!!!|\?\?\?))"
)
_HTML_TAG = re.compile(r"<(/?)([a-zA-Z][\w-]*)[^<>]*?>")
# What text is escaped with, from the mildest on.
_ESCAPES = (r"(?!)", r"[\\`*_\[\]<&~$]", r"[!-/:-@\[-`{-~]")
_HTML_OF = {"*": "em", "_": "em", "**": "strong", "__": "strong", "~~": "del", "~": "del"}


class _Piece(NamedTuple):
    """Of a text: `text`, a `tag` with its name (`/` begins an end), a `point`, or a `break`."""

    kind: str
    raw: str
    start: int
    stop: int
    name: str = ""


@dataclass(frozen=True)
class _Place:
    """Where a segment is: its part of each line of the file, and the source of its codes."""

    rows: list[tuple[int, int]]
    codes: Tags
    is_cell: bool
    may_begin_block: bool


class Markdown(Document):
    """The texts of a Markdown file."""

    def __init__(self, data: bytes, _: Options) -> None:
        super().__init__()
        self._file = TextFile(data)
        self._parser, self._references = _parser(), dict[str, Any]()
        self._places: list[_Place] = []
        front = _FRONT.match(self._file.text)
        lines = self._file.lines()
        # The first character of each line.
        self._starts = [start for start, _, _ in lines]
        lines = list(_separated(lines, front.end() if front else 0))
        body = "\n".join(line for _, _, line in lines)
        # Where the search for the next cell begins, in each line.
        begins: dict[int, int] = {}
        around, copied, blocks = "", 0, 0
        for token in self._parser.parse(body, self._references):
            blocks += token.type == "html_block"
            if token.type == "inline" and token.map:
                rows = lines[token.map[0] : token.map[1]]
                copied += not self._read(token, rows, around, begins)
            is_cell = token.type in ("td_open", "th_open")
            around = token.type if is_cell or token.markup.startswith("#") else ""
        for count, what in ((blocks, "blocks of HTML"), (copied, "texts that were not understood")):
            if count:
                self.notes.append(f"{what} keep their text: {count:,}")

    def write(
        self, translations: Sequence[str | None], marks: Mapping[int, str] | None = None
    ) -> bytes:
        """The file with translations; it has no place for marks."""
        edits, unfit = list[Edit](), 0
        for number, line in self.changes(translations).items():
            place = self._places[number]
            text = self._markdown(line, place.codes)
            if text is None:
                unfit += 1
                continue
            text = text.replace("|", r"\|") if place.is_cell else text
            rows = [row.replace("\0", " ") for row in refilled(text, len(place.rows))]
            if place.may_begin_block:
                rows = [re.sub(f"^{_BLOCK}", r"\1\\", row) for row in rows]
            edits += [(*span, row) for span, row in zip(place.rows, rows, strict=False)]
            if len(rows) < len(place.rows):
                # A line without text would end the paragraph.
                edits.append((place.rows[len(rows) - 1][1], place.rows[-1][1], ""))
        if unfit:
            self.notes.append(f"texts keep their source, because Markdown has no form: {unfit:,}")
        return self._file.edited(edits)

    def _read(
        self,
        token: Token,
        rows: Sequence[Row],
        around: str,
        begins: dict[int, int],
    ) -> bool:
        """Add the segments of a text; returns whether it was understood."""
        content, is_cell = token.content, around.startswith("t")
        pieces = _pieces(content, token.children or [])
        if pieces is None:
            return False
        # The first character of each line in the text, and in the file.
        places, at = list[tuple[int, int]](), 0
        for text, (start, _, line) in zip(content.split("\n"), rows, strict=False):
            shown = text.strip().replace("|", r"\|") if is_cell else text.strip()
            column = line.find(shown, begins.get(start, 0)) if is_cell else line.rfind(shown)
            if column < 0:
                return False
            begins[start] = column + len(shown)
            places.append((at + len(text) - len(text.lstrip()), start + column))
            at += len(text) + 1
        lines = content.split("\n")
        for group in _groups(pieces, lines):
            line, codes = _line(group)
            if not has_letters("".join(piece.raw for piece in group if piece.kind == "text")):
                continue
            spans = []
            for (first, place), text in zip(places, lines, strict=False):
                start = max(first, group[0].start)
                stop = min(first + len(text.strip()), group[-1].stop)
                if start < stop:
                    pipes = [content.count("|", first, i) if is_cell else 0 for i in (start, stop)]
                    spans.append(
                        (place + start - first + pipes[0], place + stop - first + pipes[1])
                    )
            self._places.append(_Place(spans, codes, is_cell, not around))
            number = bisect_right(self._starts, spans[0][0])
            self.segments.append(Segment(line, f"line {number}"))
        return True

    def _markdown(self, line: str, codes: Tags) -> str | None:
        """A line as Markdown that is read as this line again; None if there is none.

        Spaces in codes, at which no line may end, are NUL characters.
        """
        as_html = {
            number: (f"<{tag}>", f"</{tag}>") if (tag := _HTML_OF.get(raw[0])) else raw
            for number, raw in codes.items()
        }
        for escape in _ESCAPES:
            for sources in (codes, as_html):
                text = "".join(
                    re.sub(escape, r"\\\g<0>", value)
                    if kind == "text"
                    else value.replace(" ", "\0")
                    for kind, value in _sequence(line, sources)
                )
                read = text.replace("\0", " ")
                (token,) = self._parser.parseInline(read, self._references)
                pieces = _pieces(read, token.children or [])
                if pieces and _sequence(*_line(pieces)) == _sequence(line, sources):
                    return text
        return None


def _separated(lines: Sequence[Row], front: int) -> Iterator[Row]:
    """Lines without the front matter, and with a blank one before a definition after a footnote.

    CommonMark has no footnotes, and takes what follows one for a part of its paragraph.
    """
    is_footnote = False
    for start, stop, line in lines:
        is_definition = re.match(r" {0,3}\[[^\]]+\]:", line) is not None
        if is_definition and is_footnote:
            yield start, start, ""
        is_begin = is_definition and line.lstrip().startswith("[^")
        is_footnote = is_begin or (is_footnote and line.strip() != "")
        yield start, stop, "" if start < front else line


def _parser() -> MarkdownIt:
    """A parser whose tokens know where in the text they end, and which keeps escapes apart."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")

    def located(rule: Callable[[StateInline, bool], bool]) -> Callable[[StateInline, bool], bool]:
        def rule_with_end(state: StateInline, silent: bool) -> bool:
            count = len(state.tokens)
            has_matched = rule(state, silent)
            if has_matched and len(state.tokens) > count:
                state.tokens[-1].meta["end"] = state.pos
            return has_matched

        return rule_with_end

    for name in ("newline", "escape", "link", "image", "autolink", "html_inline", "entity"):
        parser.inline.ruler.at(name, located(getattr(rules_inline, name)))
    parser.inline.ruler.at("backticks", located(rules_inline.backtick))
    return parser


def _pieces(content: str, tokens: Sequence[Token]) -> list[_Piece] | None:
    """The pieces of a text in its source; None if this is not what the tokens are of."""
    pieces, at, label_start, is_address = list[_Piece](), 0, 0, False
    for token in tokens:
        is_address |= token.type == "link_open" and token.markup == "autolink"
        end = token.meta.get("end")
        if is_address and end is None:
            continue
        if end is None:
            raw = token.content or {"link_open": "["}.get(token.type, token.markup)
            if not content.startswith(raw, at):
                return None
            end = at + len(raw)
        raw, start, at = content[at:end], at, end
        if token.type not in ("text", "softbreak"):
            # A line break inside of code or a link is a space.
            raw = "<br>" if token.type == "hardbreak" else re.sub(r"\s*\n\s*", " ", raw)
        if token.type == "link_open":
            label_start = end
        elif raw in ("]", "][]") and token.type == "link_close":
            # The words are the name of the link, too.
            raw = f"][{content[label_start:start]}]"
        if token.type == "text":
            for is_kept, text in enumerate(_KEPT.split(raw)):
                kind = "point" if is_kept % 2 else "text"
                pieces.append(_Piece(kind, text, start, start + len(text)))
                start += len(text)
            continue
        tag = _HTML_TAG.fullmatch(raw) if token.type == "html_inline" else None
        if token.type == "softbreak":
            piece = _Piece("text", " ", start, end)
        elif token.type == "text_special":
            piece = _Piece("text", token.content, start, end)
        elif tag and tag[2].lower() == "br":
            piece = _Piece("point" if token.level else "break", raw, start, end)
        elif tag:
            piece = _Piece("tag", raw, start, end, tag[1] + tag[2].lower())
        elif token.nesting and not is_address:
            piece = _Piece(
                "tag", raw, start, end, f"{'/' if token.nesting < 0 else ''}*{token.tag}"
            )
        else:
            is_break = token.type == "hardbreak" and not token.level
            piece = _Piece("break" if is_break else "point", raw, start, end)
        pieces.append(piece)
        is_address = is_address and token.nesting >= 0
    return pieces if at == len(content) else None


def _groups(pieces: Sequence[_Piece], lines: Sequence[str]) -> Iterator[list[_Piece]]:
    """The pieces between breaks and lines of extensions, without codes at the ends."""
    kept, at = list[tuple[int, int]](), 0
    for line in lines:
        if _DIRECTIVE.match(line):
            kept.append((at, at + len(line) + 1))
        at += len(line) + 1
    group: list[_Piece] = []
    for piece in [*pieces, _Piece("break", "", at, at)]:
        is_kept = any(start <= piece.start < stop for start, stop in kept)
        if piece.kind != "break" and not is_kept:
            group.append(piece)
            continue
        for end in (-1, 0):
            while group and (group[end].kind == "point" or not group[end].raw.strip()):
                group.pop(end)
        for end, strip in ((-1, str.rstrip), (0, str.lstrip)):
            if group and group[end].kind == "text":
                raw, start, stop = strip(group[end].raw), group[end].start, group[end].stop
                less = len(group[end].raw) - len(raw)
                span = (start, stop - less) if end else (start + less, stop)
                group[end] = _Piece("text", raw, *span)
        if group:
            yield group
        group = []


def _line(pieces: Sequence[_Piece]) -> tuple[str, Tags]:
    """The line of some pieces, and the source of its codes."""
    writer = LineWriter[tuple[str, str]]()
    write_tagged(
        writer, [(piece.raw, None if piece.kind == "text" else piece.name) for piece in pieces]
    )
    return writer.line, writer.meanings


def _sequence(line: str, codes: Tags) -> list[tuple[str, str]]:
    """The texts and codes of a line, one after another, with the source of each code."""
    parts: list[tuple[str, str]] = []
    for event in events(line):
        if event[0] == "text":
            parts.append(("text", re.sub(r"\s+", " ", event[1])))
        else:
            parts.append((event[0], codes[event[1]][event[0] == "close"]))
    return parts
