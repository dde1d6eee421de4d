"""Markdown: CommonMark with tables and strikethrough, as markdown-it-py reads it.

Headings, paragraphs, list items, quotes and cells of tables are segments, with codes for emphasis,
links, images, code and HTML inside of a text. Only their characters in the file change: what the
parser does not call text stays as it is. A new text is read again, and must have the same codes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from markdown_it import MarkdownIt, rules_inline
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from mtkit.base.character_references import unescape
from mtkit.base.copied import has_letters
from mtkit.documents.document import Document, Options, Segment, TooLargeError
from mtkit.documents.epub import Blocks
from mtkit.documents.inline import Tags, escaped, partners_of, with_tags
from mtkit.documents.text import (
    Edit,
    Piece,
    Row,
    TextFile,
    line_of,
    refilled,
    text_pieces,
    words_of,
)

# Of these, markdown-it-py needs some ten seconds to read so many.
MAX_BYTES = 3_000_000
# The front matter of a page, in YAML or TOML.
_FRONT = re.compile(r"(---|\+\+\+)[ \t]*\r?\n.*?^(?:\1|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)
# Signs of extensions that CommonMark takes for text: marks of footnotes, tasks and alerts, tables
# of contents, links of wikis, attributes, Hugo's and Jekyll's commands, and emoji.
_KEPT = re.compile(
    r"(\[\^[^\]\s]{1,500}\]:?|^\[[ xX]\](?=\s)|\[![A-Z]+\]|\[TOC\]|!?\[\[[^\]]{0,500}\]\]"
    r"|\{[#.:][^{}]*\}|\{\{.{0,500}?\}\}|\{%.{0,500}?%\}|(?<![\w:]):[a-z][a-z0-9_+-]*:(?![\w:]))"
)
# A formula in a text, as Pandoc and MathJax find it, and the lines of one: its first line has no
# other text, and so has its last one. `\[words\]` are only brackets.
_FORMULA = re.compile(
    r"(?<!\$)\$\$[^$]+\$\$(?!\d)|(?<![\w$])\$(?=\S)(?:\\.|[^$\\\n])*+(?<=\S)\$(?!\d)"
    r"|(\\{1,2})(?:\((?P<a>(?:(?!\\{1,2}[()]).)*+)\1\)|\[(?P<b>(?:(?!\\{1,2}[\[\]]).)*+)\1\])",
    re.DOTALL,
)
_FORMULA_BEGIN = re.compile(r"\$\$|\\{1,2}\[(?=\s*$)|\\begin\{(\w{1,20}\*?)\}")
_NO_FORMULA = re.compile(r"[^\\^_=]*[^\W\d_]{3}[^\\^_=]*")
_MAX_FORMULA_LINES = 50
# Lines of extensions: `:::note`, `!!! tip "Title"`, an abbreviation, and code of MDX.
_DIRECTIVE = re.compile(
    r"^[ \t]*(?::{3,}|!!!|\?\?\?|===[!+]?[ \t]\"|\*\[[^\]\n]+\]:|import\s.*['\"];?$"
    r"|export\s+(?:const|default|function|let)\b).*$",
    re.MULTILINE,
)
_TITLE = re.compile(r'[ \t]*(?:(?:!!!|\?\?\?|===).*"|:{3,} ?\w+(?: \w|\[))')
# What has paragraphs under it that are indented: an admonition, a tab, a footnote, a definition.
_BEGIN = re.compile(
    r"(?:!!!|\?\?\?\+?|===[!+]?(?=[ \t]\"))[ \t]"
    r"|(?P<sign> {0,3}\[\^[^\]\s]{1,500}\]:[ \t]*+|:[ \t]++(?=\S))"
)
# The definition of a term.
_DEFINITION = re.compile(r":[ \t]+")
# What would begin a block, or make a heading of the line before; it needs a backslash.
_BLOCK = (
    r"(\d{1,9}(?=[.)](?:\s|$))|(?=#{1,6}(?:\s|$)|[-+*](?:\s|$)|>|=+\s*$|-+\s*$|~~~|```"
    r"|(?:[*_-]\s*){3,}$|\[[^\]]*\]:|:::|!!!|\?\?\?|:\s))"
)
_HTML_TAG = re.compile(r"<(/?)([a-zA-Z][\w-]*+)")
# A tag that says that its text is not translated.
_UNTRANSLATED = re.compile(
    r"<[a-z](?:[^<>\"']|\"[^\"]*\"|'[^']*')*?\s(?:translate=[\"']?no\b"
    r"|class=(?:[\"'](?:[^<>\"']*\s)?notranslate[\s\"']|notranslate[\s>]))",
    re.IGNORECASE,
)
# Lines of a `pre` mean something; the value of an attribute may have a `>`.
_HTML_PART = re.compile(
    r"<(?P<whole>pre|textarea)(?=[\s>]).*?(?:</(?P=whole)\s*>|\Z)"
    r"|<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|<![^<>]*>"
    r"|<(?P<end>/?)(?P<name>[a-zA-Z][\w-]*+)(?:(?>=\s*(?:\"[^\"]*\"|'[^']*')|[^<>]))*+>",
    re.DOTALL | re.IGNORECASE,
)
_LINE_END = re.compile(r"(?<!\s)\s*\n\s*")
# Codes that are not shown in a line of words: comments, and the readings of `<ruby>`.
_UNSEEN = re.compile(r"<!--|<(?:rp|rtc?)\b", re.IGNORECASE)
# Elements of HTML whose text is not translated; readings may have no end tag.
_READINGS = ("rp", "rt", "rtc")
_COPIED = (*_READINGS, "code", "kbd", "math", "samp", "script", "style", "svg", "tt", "var")
# What text is escaped with, from the mildest on.
_ESCAPES = (r"(?!)", r"[\\`*_\[\]<&~$]", r"[!-/:-@\[-`{-~]")
_HTML_OF = {"*": "em", "_": "em", "**": "strong", "__": "strong", "~~": "del", "~": "del"}
# The name of a piece at which a segment ends.
_BREAK = "\n"
_ROW = re.compile(r"\S(?:[^\n]*\S)?")


class _Place(NamedTuple):
    """Where a segment is: its part of each line of the file, and the source of its codes."""

    rows: list[tuple[int, int]]
    codes: Tags
    is_cell: bool
    is_html: bool
    may_begin_block: bool


class Markdown(Document):
    """The texts of a Markdown file."""

    def __init__(self, data: bytes, _: Options) -> None:
        super().__init__()
        if len(data) > MAX_BYTES:
            raise TooLargeError(f"it is larger than {MAX_BYTES:,} bytes; divide it")
        self._file = TextFile(data)
        self._parser, self._references = _parser(), dict[str, Any]()
        self._places: list[_Place] = []
        self._titles = 0
        front = _FRONT.match(self._file.text)
        rows = list(_separated(self._file.rows, front.end() if front else 0))
        # Where the search for the next cell begins, in each line.
        begins: dict[int, int] = {}
        around, not_read = "", 0
        for token in self._parser.parse("\n".join(row[2] for row in rows), self._references):
            if token.type in ("inline", "html_block") and token.map:
                not_read += not self._read(token, rows[slice(*token.map)], around, begins)
            is_cell = token.type in ("td_open", "th_open")
            around = token.type if is_cell or token.markup.startswith("#") else ""
        notes = {
            "texts that were not understood keep their text": not_read,
            "titles of admonitions and tabs stay as they are": self._titles,
        }
        self.notes += [f"{note}: {count:,}" for note, count in notes.items() if count]

    def _written(self, changes: Mapping[int, str], marks: Mapping[int, str]) -> bytes:
        edits, unfit = list[Edit](), 0
        for number, line in changes.items():
            place = self._places[number]
            if place.is_html:
                text: str | None = with_tags(line, _hard(place.codes), escaped)
            else:
                text = self._markdown(line, place.codes)
            if text is None:
                unfit += 1
                continue
            text = text.replace("|", r"\|") if place.is_cell else text
            rows = refilled(text, len(place.rows))
            if place.may_begin_block:
                rows = [re.sub(f"^{_BLOCK}", r"\1\\", row) for row in rows]
            edits += [(*span, row) for span, row in zip(place.rows, rows, strict=False)]
            if len(rows) < len(place.rows):
                # A line without text would end the paragraph.
                edits.append((place.rows[len(rows) - 1][1], place.rows[-1][1], ""))
        if unfit:
            self.write_notes = [f"texts keep their source, because Markdown has no form: {unfit:,}"]
        return self._file.edited(edits)

    def _read(self, token: Token, rows: Sequence[Row], around: str, begins: dict[int, int]) -> bool:
        """Add the segments of a text; returns whether it was understood."""
        content, is_cell = token.content, around.startswith("t")
        is_html = token.type == "html_block"
        pieces = _html_pieces(content) if is_html else _pieces(content, token.children or [])
        if pieces is None:
            return False
        # Of each character, the first one in the file, and the one behind it.
        spans = list[tuple[int, int]]()
        for text, (start, _, line) in zip(content.split("\n"), rows, strict=False):
            shown = text.strip().replace("|", r"\|") if is_cell else text.strip()
            column = line.find(shown, begins.get(start, 0)) if is_cell else line.rfind(shown)
            if column < 0:
                return False
            begins[start] = column + len(shown)
            spans += [(0, 0)] * (len(text) - len(text.lstrip()))
            characters = re.finditer(r"\\\||." if is_cell else ".", shown)
            spans += [(start + column + c.start(), start + column + c.end()) for c in characters]
            spans += [(0, 0)] * (1 + len(text) - len(text.rstrip()))
        kept = [*_DIRECTIVE.finditer(content)][::-1]
        at, group, hidden = 0, list[Piece](), set[re.Match[str]]()
        for piece in [*pieces, Piece("", "", _BREAK)]:
            while kept and kept[-1].end() <= at:
                kept.pop()
            is_hidden = bool(kept) and kept[-1].start() <= at
            if is_hidden:
                hidden.add(kept[-1])
            if is_hidden or piece.name == _BREAK:
                _, inside, after = words_of(group, pairs=False)
                if has_letters("".join(each.value for each in inside if each.name is None)):
                    line, codes = _line(inside)
                    start = at - len(after) - sum(len(each.source) for each in inside)
                    parts = _ROW.finditer(content, start, at - len(after))
                    places = [(spans[p.start()][0], spans[p.end() - 1][1]) for p in parts]
                    begins_block = not around and not is_html
                    self._places.append(_Place(places, codes, is_cell, is_html, begins_block))
                    number = self._file.line_number(places[0][0])
                    self.segments.append(Segment(line, f"line {number}"))
                group = []
            else:
                group.append(piece)
            at += len(piece.source)
        self._titles += sum(1 for line in hidden if _TITLE.match(line[0]))
        return True

    def _markdown(self, line: str, codes: Tags) -> str | None:
        """A line as Markdown that is read as this line again; None if there is none."""
        as_html = {
            number: (f"<{tag}>", f"</{tag}>") if (tag := _HTML_OF.get(raw[0])) and raw[1] else raw
            for number, raw in codes.items()
        }
        for escape in _ESCAPES:
            for sources in (codes, as_html):
                text = with_tags(line, _hard(sources), partial(re.sub, escape, r"\\\g<0>"))
                read = text.replace("\0", " ")
                (token,) = self._parser.parseInline(read, self._references)
                pieces = _pieces(read, token.children or [])
                if pieces and _spelled(*_line(pieces)) == _spelled(line, sources):
                    return text
        return None


def _separated(lines: Sequence[Row], front: int) -> Iterator[Row]:
    """Lines without the front matter; footnotes, definitions and what is under them are paragraphs.

    CommonMark has none of them: it would take them for one paragraph, or for code.
    """
    fence, is_under, before = "", False, ""
    for start, stop, line in lines:
        begin = None if fence else _BEGIN.match(line)
        if begin or (is_under and re.match(r" {0,3}\[[^\]]+\]:", line)):
            yield start, start, ""
        indent = re.match(r" {4}|\t|\s*$", line)
        is_under = begin is not None or bool(is_under and (indent or before.strip()))
        left, before = (indent.end() if is_under and indent else 0), line
        left = begin.end() if begin and begin["sign"] else left
        mark = re.match(r" {0,3}(`{3,}|~{3,})(.*)", line[left:])
        if mark and not (fence and (mark[2].strip() or not mark[1].startswith(fence))):
            fence = "" if fence else mark[1]
        yield start + left, stop, "" if start < front else line[left:]


def _parser() -> MarkdownIt:
    """A parser whose tokens know where in the text they end, and which keeps escapes apart."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")

    def located(rule: Callable[[StateInline, bool], bool]) -> Callable[[StateInline, bool], bool]:
        def rule_with_end(state: StateInline, silent: bool) -> bool:
            count = len(state.tokens)
            has_matched = rule(state, silent)
            if has_matched and len(state.tokens) > count:
                state.tokens[-1].meta["end"] = state.pos
                if state.tokens[-1].markup == "autolink":
                    # An address is one code.
                    del state.tokens[-3:-1]
                    state.tokens[-1].nesting = 0
            return has_matched

        return rule_with_end

    parser.inline.ruler.before("escape", "formula", _formula)
    inside = ["paragraph", "reference", "blockquote", "list"]
    parser.block.ruler.before("table", "formula", _formula_block, {"alt": inside})
    for name in ("newline", "escape", "link", "image", "autolink", "html_inline", "entity"):
        parser.inline.ruler.at(name, located(getattr(rules_inline, name)))
    parser.inline.ruler.at("backticks", located(rules_inline.backtick))
    return parser


def _formula(state: StateInline, silent: bool) -> bool:
    formula = _FORMULA.match(state.src, state.pos, state.posMax)
    words = (formula["a"] or formula["b"] or "") if formula else ""
    if not formula or _NO_FORMULA.fullmatch(words):
        return False
    if not silent:
        state.push("formula", "", 0).content = formula[0]
    state.pos = formula.end()
    return True


def _formula_block(state: StateBlock, first: int, stop: int, silent: bool) -> bool:
    def line(number: int) -> str:
        start = state.bMarks[number] + state.tShift[number]
        return state.src[start : state.eMarks[number]].rstrip()

    begin = None if state.is_code_block(first) else _FORMULA_BEGIN.match(line(first))
    if not begin:
        return False
    name = begin[1]
    end = f"\\end{{{name}}}" if name else begin[0].replace("[", "]")
    for number in range(first, min(stop, first + _MAX_FORMULA_LINES)):
        text = line(number)[begin.end() if number == first else 0 :]
        if state.sCount[number] < state.blkIndent and text:
            return False
        if text.endswith(end):
            state.line = state.line if silent else number + 1
            return True
        if end in text:
            break
    return False


def _pieces(content: str, tokens: Sequence[Token]) -> list[Piece] | None:
    """The pieces of a text in its source; None if this is not what the tokens are of."""
    pieces, at, label = list[Piece](), 0, 0
    for token in tokens:
        start, source = at, token.content or ("[" if token.type == "link_open" else token.markup)
        at = token.meta.get("end", start + len(source))
        if "end" not in token.meta and content[start:at] != source:
            return None
        source = content[start:at]
        # A line break inside of code or a link is a space.
        code, name = _LINE_END.sub(" ", source), ""
        tag = _HTML_TAG.match(source) if token.type == "html_inline" else None
        if token.type == "text":
            if pieces and pieces[-1].name == _BREAK and (sign := _DEFINITION.match(source)):
                pieces.append(Piece(sign[0], sign[0], ""))
                source = source[sign.end() :]
            for is_kept, text in enumerate(_KEPT.split(source)):
                pieces += [Piece(text, text, "")] if is_kept % 2 else text_pieces(text)
            continue
        if token.type == "softbreak":
            pieces.append(Piece(source, " ", _BREAK if _DEFINITION.match(content, at) else None))
            continue
        if token.type == "text_special":
            pieces.append(Piece(source, token.content))
            continue
        if token.type == "hardbreak" or (tag and tag[2].lower() == "br"):
            code, name = code if tag else "<br>", "" if token.level else _BREAK
        elif tag:
            name = tag[1] + tag[2].lower()
        elif token.nesting:
            name = f"{'/' if token.nesting < 0 else ''}*{token.tag}"
        if token.type == "link_open":
            label = at
        elif token.type == "link_close" and source in ("]", "][]"):
            # The words are the name of the link, too.
            code = f"][{content[label:start]}]"
        pieces.append(Piece(source, code, name))
    return list(_with_copied(pieces)) if at == len(content) else None


def _html_pieces(content: str) -> list[Piece]:
    """The pieces of a block of HTML; tags that are not inside of a sentence end it."""
    pieces, at = list[Piece](), 0
    for tag in [*_HTML_PART.finditer(content), None]:
        for text in text_pieces(content[at : tag.start() if tag else None]):
            pieces.append(text._replace(value=unescape(_LINE_END.sub(" ", text.value))))
        if tag:
            at, name = tag.end(), (tag["name"] or tag["whole"] or "").lower()
            is_break = name == "pre" or (name and name not in Blocks.kinds)
            has_end = Blocks.kinds.get(name) == "around" or name in _COPIED
            code = f"{tag['end']}{name}" if has_end else ""
            pieces.append(Piece(tag[0], tag[0], _BREAK if is_break else code))
    return list(_with_copied(pieces))


def _hard(codes: Tags) -> Tags:
    """Codes in which no line ends: their spaces are NUL characters."""
    return {n: (a.replace(" ", "\0"), b.replace(" ", "\0")) for n, (a, b) in codes.items()}


def _with_copied(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """The pieces, with each element of HTML that is copied as one code."""
    pieces = list(_with_ends(pieces))
    names = [
        tag[1] + tag[2].lower()
        if piece.name is not None and (tag := _HTML_TAG.match(piece.source))
        else piece.name or ""
        for piece in pieces
    ]
    partners, at = partners_of(names), 0
    while at < len(pieces):
        is_copied = pieces[at].name in _COPIED or _UNTRANSLATED.match(pieces[at].source)
        stop = partners.get(at, at) if is_copied else at
        source = "".join(piece.source for piece in pieces[at : stop + 1])
        # What was deleted and what stands there for it are two words.
        name = pieces[at].name or "/"
        if at and pieces[at - 1].name in ("/del", "/ins", "/*s") and name[0] not in f"/{_BREAK}":
            yield Piece("", " ")
        kind = _BREAK if name == _BREAK else ""
        yield pieces[at] if stop == at else Piece(source, _LINE_END.sub(" ", source), kind)
        at = stop + 1


def _with_ends(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """The pieces, with an end of each reading of `<ruby>` whose end tag is left out."""
    reading = ""
    for piece in pieces:
        name = piece.name or ""
        if reading and name in (*_READINGS, "rb", "ruby", "/ruby", _BREAK):
            yield Piece("", "", f"/{reading}")
        if name.strip("/") in (*_READINGS, "rb", "ruby", _BREAK):
            reading = name if name in _READINGS else ""
        yield piece


def _line(pieces: Sequence[Piece]) -> tuple[str, Tags]:
    return line_of(pieces, is_shown=lambda code: not _UNSEEN.match(code))


def _spelled(line: str, codes: Tags) -> str:
    """The texts, each between NUL characters, and the codes of a line as they are written."""
    return re.sub(r"\s+", " ", with_tags(line, codes, lambda text: f"\0{text}\0"))
