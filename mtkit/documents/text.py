"""Text files of which only translated spans change, and texts that are cut into lines again."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from mtkit.base.errors import MtkitError
from mtkit.base.text import encoding_fault
from mtkit.documents.inline import Tags, coded, partners_of, trimmed

# A part of a text, from its first character to the one behind it, and what stands there instead.
Edit = tuple[int, int, str]
# A line without its line end, in the same form.
Row = tuple[int, int, str]

# A word with the tags beside it and the space before it, and its width without tags.
_Word = tuple[str, int]

# Without a limit, the time for many `\r` grows with the square of their number.
LINE = re.compile(r"([^\r\n]*)(?:\r{0,9}\n|\r|\Z)")
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}

# Scripts without spaces in which a line may end after nearly every character.
_WIDE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# Signs that begin no line there, by the Unicode line breaking algorithm (UAX 14, class CL and NS).
_NO_START = "、。，．！？：；）」』】》〉〕ー…‥々ぁぃぅぇぉっゃゅょァィゥェォッャュョ"
# Matches nothing.
_NO_TAG = r"(?!)"
# How much further from its share a cut after punctuation may be, as a part of the mean size.
_PUNCTUATION_BONUS = 0.2


class TextFile:
    """The characters of a text file, which is written with its mark, line ends and charset.

    MtkitError if the bytes are not in the charset.
    """

    def __init__(self, data: bytes, charset: str = "utf-8") -> None:
        self.mark = next(filter(data.startswith, _MARKS), b"")
        self.charset = _MARKS.get(self.mark, charset)
        try:
            self.text = data[len(self.mark) :].decode(self.charset)
        except (LookupError, UnicodeError):
            fault = encoding_fault(data) if self.charset == "utf-8" else f"not {self.charset}"
            raise MtkitError(fault) from None
        self.line_end = "\r\n" if "\r\n" in self.text else "\n"
        # Each line, without its line end.
        self.rows = [(*line.span(1), line[1]) for line in LINE.finditer(self.text)]

    def line_number(self, at: int) -> int:
        """The number of the line of a character, from 1."""
        return bisect_right(self.rows, at, key=itemgetter(0))

    def edited(self, edits: Iterable[Edit], charset: str = "") -> bytes:
        """The bytes of the file, or those in another charset, with some parts replaced."""
        pieces, at = list[str](), 0
        for start, stop, new in sorted(edits):
            pieces += self.text[at:start], new
            at = stop
        return self.mark + "".join([*pieces, self.text[at:]]).encode(charset or self.charset)


class Piece(NamedTuple):
    """A piece of a text in a file: how it is written, and its characters of text.

    Of a code, `value` is how it is written elsewhere. A tag around words has a name, which begins
    with `/` at the end; other codes have an empty one, and text has None.
    """

    source: str
    value: str
    name: str | None = None


def pieces_of(
    text: str, codes: Iterable[tuple[re.Match[str], str]], value: Callable[[str], str] = str
) -> list[Piece]:
    """The codes with a name each, and the text between them; `value` gives its characters."""
    pieces, at = list[Piece](), 0
    for code, name in codes:
        pieces += [*text_pieces(text[at : code.start()], value), Piece(code[0], code[0], name)]
        at = code.end()
    return [*pieces, *text_pieces(text[at:], value)]


def text_pieces(text: str, value: Callable[[str], str] = str) -> list[Piece]:
    """Text, with the spaces before and after it as pieces of their own."""
    rest = text.lstrip()
    words = rest.rstrip()
    parts = text[: len(text) - len(rest)], words, rest[len(words) :]
    return [Piece(part, value(part)) for part in parts if part]


def words_of(pieces: Sequence[Piece], *, pairs: bool = True) -> tuple[str, list[Piece], str]:
    """The pieces without codes and spaces at the ends, and the source of these ends.

    With `pairs`, tags around all of the text are no part of it either.
    """
    partners = partners_of([piece.name or "" for piece in pieces])

    def is_outside(i: int) -> bool:
        return i not in partners and (pieces[i].name is not None or pieces[i].source.isspace())

    start, stop = trimmed(len(pieces), is_outside, lambda i, k: pairs and partners.get(i) == k)
    before, after = ("".join(p.source for p in ends) for ends in (pieces[:start], pieces[stop:]))
    return before, list(pieces[start:stop]), after


def line_of(pieces: Sequence[Piece], is_shown: Callable[[str], bool] = bool) -> tuple[str, Tags]:
    """The line of some pieces, and the tags of its codes.

    `is_shown` says whether readers see something at a tag without a partner.
    """
    partners = partners_of([piece.name or "" for piece in pieces])
    parts: list[tuple[str, Any]] = []
    for i, (_, value, name) in enumerate(pieces):
        if name is None:
            parts.append(("text", value))
        elif i not in partners:
            parts.append(("shown" if is_shown(value) else "unseen", (value, "")))
        elif partners[i] > i:
            parts.append(("open", (value, pieces[partners[i]].value)))
        else:
            parts.append(("close", None))
    return coded(parts)


def width_of(text: str) -> int:
    """The columns of a text, in which NUL is a space."""
    # On first use, because most commands need no width.
    from rich.cells import cell_len

    return cell_len(text.replace("\0", " "))


def _words_of(text: str, tag: str) -> list[_Word]:
    words = re.finditer(
        rf"([ \t\n]*)((?:{tag})*(?:[{_WIDE}](?:{tag}|[{_NO_START}])*|(?:{tag}|[^ \t\n{_WIDE}])+))",
        text.rstrip(" \t\n"),
    )
    spaced = (" " * bool(word[1]) + word[2] for word in words)
    return [(word, width_of(re.sub(tag, "", word))) for word in spaced]


def _joined(words: Sequence[_Word]) -> str:
    return "".join(text for text, _ in words).removeprefix(" ").replace("\0", " ")


def cut(text: str, shares: Sequence[float], tag: str = _NO_TAG) -> list[str]:
    """A text cut between words into parts that have about these shares of it.

    Each part has a word if there are enough. A cut after punctuation is preferred. `tag` matches
    what is not shown.
    """
    words, number = _words_of(text, tag), len(shares)
    count = len(words)
    if count <= number:
        return [_joined([word]) for word in words] + [""] * (number - count)
    ends = list(accumulate(width for _, width in words))
    is_preferred = [word[-1] in ",;:.!?…，。、" for word, _ in words]
    total, bonus, cuts = sum(shares) or 1.0, _PUNCTUATION_BONUS * ends[-1] / number, [0]
    for later, reached in zip(range(number - 1, 0, -1), accumulate(shares), strict=False):
        wanted = ends[-1] * reached / total
        far = [abs(end - wanted) - bonus * y for end, y in zip(ends, is_preferred, strict=True)]
        cuts.append(min(range(cuts[-1], count - later), key=far.__getitem__) + 1)
    return [_joined(words[start:stop]) for start, stop in pairwise([*cuts, count])]


def refilled(text: str, number: int, width: int = 0, tag: str = _NO_TAG) -> list[str]:
    """A text in at most this number of lines, which are as short as possible.

    NUL characters become spaces at which no line ends. If a width is given, there are more lines
    where they would be wider otherwise. `tag` matches what is not shown.
    """
    words = _words_of(text, tag)

    def filled(width: int) -> list[list[_Word]]:
        lines, size = list[list[_Word]](), 0
        for word in words:
            size += word[1]
            if lines and size <= width:
                lines[-1].append(word)
            else:
                lines.append([word])
                size = word[1] - word[0].startswith(" ")
        return lines

    number = max(number, len(filled(width)) if width else 0)
    widths = range(sum(width for _, width in words))
    return list(map(_joined, filled(bisect_left(widths, -number, key=lambda w: -len(filled(w))))))
