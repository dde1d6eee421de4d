"""Text files of which only translated spans change, and texts that are cut into lines again."""

from __future__ import annotations

import codecs
import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from mtkit.base.errors import MtkitError
from mtkit.base.text import encoding_fault
from mtkit.documents.inline import LineWriter

# A part of a text, from its first character to the one behind it, and what stands there instead.
Edit = tuple[int, int, str]
# A line without its line end, in the same form.
Row = tuple[int, int, str]

LINE = re.compile(r"(?P<text>[^\r\n]*)(?:\r*\n|\r|\Z)")
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}

# Scripts without spaces in which a line may end after nearly every character.
_WIDE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# Signs that begin no line there, by the Unicode line breaking algorithm (UAX 14, class CL and NS).
_NO_START = "、。，．！？：；）」』】》〉〕ー…‥々ぁぃぅぇぉっゃゅょァィゥェォッャュョ"
# Options for each cut, in words before and behind its share of the text.
_MAX_WORDS_ASIDE = 12
# A cut after punctuation may be this much further from its share; of the square of a line's size.
_PUNCTUATION_BONUS = 0.08


class TextFile:
    """The characters of a text file, which is written with its mark, line ends and charset.

    Raises:
        MtkitError: if the bytes are not in the charset.
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

    def lines(self) -> list[Row]:
        """Each line with its first character and the one behind it, without its line end."""
        spans = [(*match.span("text"), match["text"]) for match in LINE.finditer(self.text)]
        return spans[:-1] if spans and not spans[-1][2] else spans

    def edited(self, edits: Iterable[Edit], charset: str = "") -> bytes:
        """The bytes of the file, or those in another charset, with some parts replaced."""
        pieces, at = list[str](), 0
        for start, stop, new in sorted(edits):
            pieces += self.text[at:start], new
            at = stop
        return self.mark + "".join([*pieces, self.text[at:]]).encode(charset or self.charset)


class Word(NamedTuple):
    """A word with the tags beside it; `gap` is the space before it, `width` is without tags."""

    text: str
    width: int
    gap: str


def width_of(text: str) -> int:
    """The columns of a text: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


def words_of(text: str, tag: str = r"(?!)") -> list[Word]:
    """The words of a text, between which it may be cut; `tag` matches what is not shown."""
    word = re.compile(
        rf"(?P<gap>[ \t\n]*)(?P<word>(?:{tag})*(?:[{_WIDE}](?:{tag}|[{_NO_START}])*"
        rf"|(?:{tag}|[^ \t\n{_WIDE}])+))"
    )
    hidden = re.compile(tag)
    return [
        Word(match["word"], width_of(hidden.sub("", match["word"])), " " if match["gap"] else "")
        for match in word.finditer(text)
    ]


def joined(words: Sequence[Word]) -> str:
    """Words as one text again."""
    return "".join(word.gap + word.text for word in words)[len(words[0].gap) if words else 0 :]


def cut(words: Sequence[Word], shares: Sequence[float], limit: int = 0) -> list[list[Word]]:
    """The words in as many groups as there are shares, each of about this share of the text.

    Each group has a word if there are enough. A cut after punctuation is preferred, and groups are
    not wider than `limit` if that is possible.
    """
    count, number = len(words), len(shares)
    if count <= number:
        return [[word] for word in words] + [[]] * (number - count)
    ends = [0, *accumulate(len(word.gap) + word.width for word in words)]
    mean, total = ends[-1] / number, sum(shares) or 1.0

    def cost(start: int, stop: int, share: float) -> float:
        width = ends[stop] - ends[start] - len(words[start].gap)
        far = (width - ends[-1] * share / total) / mean
        bonus = _PUNCTUATION_BONUS if words[stop - 1].text[-1] in ",;:.!?…，。、" else 0
        return far * far - bonus + (100.0 * (width - limit) if 0 < limit < width else 0)

    # Fewer options for a text of very many lines, which would take minutes.
    aside = max(2, min(_MAX_WORDS_ASIDE, 2000 // number))
    # For each number of words before a cut, the lowest cost; and where its last group begins.
    best, begins = {0: 0.0}, list[dict[int, int]]()
    for group, (share, reached) in enumerate(zip(shares, accumulate(shares), strict=True), 1):
        last = count - (number - group)
        near = min(max(bisect_left(ends, ends[-1] * reached / total), group), last)
        first = last if group == number else max(group, near - aside)
        stops = range(first, min(last, max(near, min(best) + 1) + aside) + 1)
        options = {
            stop: min(
                (before + cost(start, stop, share), start)
                for start, before in best.items()
                if start < stop
            )
            for stop in stops
            if min(best) < stop
        }
        begins.append({stop: start for stop, (_, start) in options.items()})
        best = {stop: lowest for stop, (lowest, _) in options.items()}
    cuts = [count]
    for begin in reversed(begins):
        cuts.append(begin[cuts[-1]])
    return [list(words[start:stop]) for start, stop in pairwise(reversed(cuts))]


def refilled(text: str, number: int) -> list[str]:
    """A text on as many lines, if it has so many words; all are about as long."""
    return [joined(group) for group in cut(words_of(text), [1.0] * number) if group]


def write_tagged(
    writer: LineWriter[tuple[str, str]],
    pieces: Sequence[tuple[str, str | None]],
    is_shown: Callable[[str], bool] = bool,
) -> None:
    """Write text, tags with their partners as codes around words, and others at their place.

    Args:
        pieces: each with the name of a tag for `partners_of`; of text it is None.
        is_shown: whether readers see something at the place of a tag without a partner.
    """
    partners, numbers = partners_of([name or "" for _, name in pieces]), dict[int, int]()
    for i, (piece, name) in enumerate(pieces):
        if name is None:
            writer.text(piece)
        elif i not in partners:
            writer.point((piece, ""), is_shown=is_shown(piece))
        elif partners[i] > i:
            numbers[partners[i]] = writer.open((piece, pieces[partners[i]][0]))
        else:
            writer.close(numbers[i])


def partners_of(names: Sequence[str]) -> dict[int, int]:
    """The number of the end of each tag, and of the beginning of each end.

    The name of an end begins with `/`; an empty one is of no tag. Tags whose name begins with `*`
    are always closed, and none of the others goes over one of their ends.
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
