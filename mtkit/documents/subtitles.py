"""Subtitles: SubRip (SRT) and WebVTT. A sentence over several cues is one segment.

Its translation is cut again: each cue gets as much of it as it had of the source. Times, numbers,
settings, notes and styles stay as they are. Tags, codes such as {\\an8}, the dash of a speaker,
brackets around a sound and notes of music are inline codes, or stay outside of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from operator import itemgetter
from typing import NamedTuple

from mtkit.base.character_references import unescape
from mtkit.base.errors import MtkitError
from mtkit.documents.document import Document, Options, Segment
from mtkit.documents.inline import escaped, with_tags
from mtkit.documents.text import (
    Edit,
    Piece,
    Row,
    TextFile,
    cut,
    line_of,
    pieces_of,
    refilled,
    text_pieces,
    width_of,
    words_of,
)

# From here on, the numbers are those of the timed text guides of Netflix and the BBC.
MAX_WIDTH = 42
MAX_CHARACTERS_PER_SECOND = 20
# A sentence goes on in the next cue at most after so many seconds; more cues than these are
# probably text without punctuation.
_MAX_GAP = 3.0
_MAX_CUES = 6
# Repeated lines of a file that may be those of a dialogue.
_MAX_REPEATED = 4

_CLOCK = r"(\d+:\d\d?(?::\d\d?)?(?:[.,]\d{1,3})?)"
_TIME = re.compile(rf"\s*{_CLOCK}\s*-->\s*{_CLOCK}")
# A time that has another arrow, or a letter for a digit.
_BAD_TIME = re.compile(
    r"(?=.{0,40}\d\s?[:;])[^<>]{0,20}-->"
    r"|\s*(?:[\d:]+[.,]\d{3}\W{1,6}|\d+:\d+:\d+\s*[-–—=]*[>→]\s*)\d+:\d"
)
_OLD_NOTE = re.compile(r"^NOTE mtkit: [^\r\n]*(?:\r?\n){2}", re.MULTILINE)
_TAG = r"<[/a-zA-Z\d][^<>]*>|\{[\\a-zA-Z][^{}]*\}|\\[Nh]"
_CODE = re.compile(rf"<(/?)([a-zA-Z]++)[^<>]*>|{_TAG}|[\[\]()（）♪♫]")
_BRACKETS = {"[": "[", "]": "/[", "(": "(", ")": "/(", "（": "（", "）": "/（"}
_SOUND = r"[\[(（][^\[\]()（）]*[\])）]"
# Others belong to words, such as %(name)s.
_SOUND_BESIDE_WORDS = re.compile(rf"(?<![^\s>}}♪♫]){_SOUND}(?!\w)")
# What has its lines for itself: a sound, and what is sung.
_SOUND_ON_LINES = re.compile(
    rf"^(?:{_TAG}|[ \t])*(?:{_SOUND}|[♪♫][^♪♫]*[♪♫])(?:{_TAG}|[ \t])*(?=\r*$)", re.MULTILINE
)
# What begins the text of a speaker, and a sentence that goes on.
_DOTS = re.compile(r"\s*(?:\.{2,}|…)\s*")
_SIGN = re.compile(
    rf"\s*(?:[-–—]+|>>+|&gt;&gt;)\s*(?=[^\s\d]|$)(?:{_DOTS.pattern})?|{_DOTS.pattern}"
)
_SPEAKER = re.compile(
    rf"(?:{_TAG}|\s)*(?:(?:[-–—]|>>|&gt;&gt;)\s*(?:{_TAG})*[^\s\d<{{-]|[A-Z][A-Z0-9 .'-]+:\s)"
)
_SENTENCE_END = re.compile(r"(?<![.!?…:;。！？؟۔।])[.!?…:;。！？؟۔।]+[\"'”’»)\]」』]*$")
_POSITION = re.compile(r"\{\\an?\d+\}")
_HIDDEN = re.compile(_TAG)
_ELEMENT = re.compile(r"<(/?)([a-zA-Z]++)[^<>]*>")


class _Cue(NamedTuple):
    """A cue by its first character, its number or ordinal, and its times in seconds."""

    start: int
    name: str
    begin: float
    end: float


@dataclass
class _Text:
    """What one speaker says in a cue: its lines, its pieces, and what is outside of them."""

    cue: int
    rows: list[Row]
    before: str
    pieces: list[Piece]
    after: str

    @property
    def words(self) -> str:
        return "".join(piece.value for piece in self.pieces if piece.name is None)

    def leave_dots(self) -> None:
        """Move the dots at its end out of its pieces."""
        source, value, name = self.pieces[-1]
        kept = source.rstrip(".…")
        if name is None:
            self.after = source[len(kept) :] + self.after
            self.pieces[-1] = Piece(kept, value.rstrip(".…"))


class Subtitles(Document):
    """The cues of a SubRip file."""

    is_vtt = False

    def __init__(self, data: bytes, _: Options) -> None:
        super().__init__()
        self._file = TextFile(data)
        self._cues: list[_Cue] = []
        # Of each segment, the texts that its line is made of.
        self._texts: list[list[_Text]] = []
        before, repeated = "", 0
        for text in self._read():
            if not any(map(str.isalpha, text.words)):
                continue
            rows = [row for *_, raw in text.rows if (row := _HIDDEN.sub("", raw).strip())]
            repeated += rows[0] == before
            before = rows[-1]
            last = self._texts[-1] if self._texts else []
            if 0 < len(last) < _MAX_CUES and self._goes_on(last[-1], text):
                last[-1].leave_dots()
                last.append(text)
            else:
                self._texts.append([text])
        if not self._cues:
            raise MtkitError("has no times of cues, such as 00:00:01,000 --> 00:00:02,000")
        if repeated > max(_MAX_REPEATED, len(self._cues) // 3):
            self.notes.append(
                f"{repeated:,} cues repeat the line before, as captions that roll up (YouTube) do; "
                "the translation will, too: save them without repeated lines first"
            )
        self._codes = []
        for texts in self._texts:
            pieces = [piece for text in texts for piece in (Piece(" ", " "), *text.pieces)]
            # Readers see notes of music.
            line, codes = line_of(pieces[1:], is_shown=lambda code: len(code) == 1)
            self._codes.append(codes)
            begin, end = (self._cues[texts[i].cue].name for i in (0, -1))
            place = f"cue {begin}" if begin == end else f"cues {begin} to {end}"
            self.segments.append(Segment(line, place))

    def _written(self, changes: Mapping[int, str], marks: Mapping[int, str]) -> bytes:
        edits, widths = list[Edit](), dict[int, int]()
        for number, line in changes.items():
            for text, rows in zip(self._texts[number], self._cut(number, line), strict=True):
                edits.append((text.rows[0][0], text.rows[-1][1], self._file.line_end.join(rows)))
                width = sum(width_of(_HIDDEN.sub("", row)) for row in rows)
                widths[text.cue] = widths.get(text.cue, 0) + width
        if self.is_vtt:
            edits += [(*note.span(), "") for note in _OLD_NOTE.finditer(self._file.text)]
        for number, mark in sorted(marks.items()):
            note = mark.replace("-->", "->").replace("\n", " ")
            start = self._cues[self._texts[number][0].cue].start
            edits.append((start, start, f"NOTE mtkit: {note}{self._file.line_end * 2}"))
        seconds = {cue: max(self._cues[cue].end - self._cues[cue].begin, 0.001) for cue in widths}
        fast = [
            self._cues[cue].name
            for cue, width in widths.items()
            if width > MAX_CHARACTERS_PER_SECOND * seconds[cue]
        ]
        if fast:
            shown = ", ".join(fast[:10] + ["…"] * (len(fast) > 10))
            self.write_notes = [
                f"more than {MAX_CHARACTERS_PER_SECOND} characters a second in {len(fast):,} of "
                f"{len(widths):,} translated cues: {shown}"
            ]
        return self._file.edited(edits)

    def _read(self) -> Iterator[_Text]:
        """The texts of all cues, which are added to `_cues`."""
        rows = self._file.rows
        timed = [i for i, row in enumerate(rows) if _TIME.match(row[2])]
        for i in set(range(len(rows))).difference(timed):
            if _BAD_TIME.match(rows[i][2]):
                raise MtkitError(f"line {i + 1}: it looks like the time of a cue, but is not")
        for i, following in pairwise([*timed, len(rows)]):
            times = _TIME.match(rows[i][2])
            assert times is not None
            name = rows[i - 1][2].strip() if i else ""
            start = rows[i - 1 if name else i][0]
            number = name if name.isdigit() else str(len(self._cues) + 1)
            self._cues.append(_Cue(start, number, *map(_seconds, times.groups())))
            # Before the next time is its number.
            is_numbered = following < len(rows) and rows[following - 1][2].strip().isdigit()
            cue = rows[i + 1 : following - is_numbered]
            # In WebVTT, a note, a style or the name of the next cue follows an empty line.
            yield from self._texts_in(list(takewhile(itemgetter(2), cue)) if self.is_vtt else cue)

    def _texts_in(self, rows: Sequence[Row]) -> Iterator[_Text]:
        """The texts of the last cue: each speaker has one, and each sound on lines of its own."""
        span = (rows[0][0], rows[-1][1]) if rows else (0, 0)
        sounds = _SOUND_ON_LINES.finditer(self._file.text, *span)
        edges, text = {edge for sound in sounds for edge in sound.span()}, list[Row]()
        for row in [*rows, (0, 0, "")]:
            is_next = row[0] in edges or _SPEAKER.match(row[2]) or not row[2].strip()
            if text and (is_next or text[-1][1] in edges):
                yield self._text_of(text)
                text = []
            if row[2].strip():
                text.append(row)

    def _text_of(self, rows: list[Row]) -> _Text:
        raw, value = " ".join(row[2].strip() for row in rows), unescape if self.is_vtt else str
        sounds = {at for s in _SOUND_BESIDE_WORDS.finditer(raw) for at in (s.start(), s.end() - 1)}
        codes = (
            (code, code[1] + code[2] if code[2] else _BRACKETS.get(code[0], ""))
            for code in _CODE.finditer(raw)
            if code[0] not in _BRACKETS or code.start() in sounds
        )
        pieces = pieces_of(raw, codes, value)
        words = [i for i, piece in enumerate(pieces) if piece.name is None and piece.source.strip()]
        if words and (sign := _SIGN.match(pieces[words[0]].source)):
            rest = text_pieces(pieces[words[0]].source[sign.end() :], value)
            pieces[words[0] : words[0] + 1] = [Piece(sign[0], sign[0], ""), *rest]
        return _Text(len(self._cues) - 1, rows, *words_of(pieces))

    def _goes_on(self, last: _Text, text: _Text) -> bool:
        """Whether the sentence of a text goes on in a text of the next cue."""
        gap = self._cues[text.cue].begin - self._cues[last.cue].end
        between = _HIDDEN.sub("", last.after + text.before).strip()
        end = _SENTENCE_END.search(last.words)
        return (
            text.cue == last.cue + 1
            and -1 < gap < _MAX_GAP
            and (not between or _DOTS.fullmatch(between) is not None)
            and (end is None or bool(between and _DOTS.fullmatch(end[0])))
            # A title is not a part of what is said.
            and last.words.isupper() <= text.words.isupper()
            and _POSITION.findall(last.before) == _POSITION.findall(text.before)
        )

    def _cut(self, number: int, line: str) -> Iterator[list[str]]:
        """The lines of each text of a segment."""
        texts = self._texts[number]
        whole = with_tags(line, self._codes[number], escaped if self.is_vtt else str)
        parts = cut(whole, [float(width_of(text.words)) for text in texts], _TAG)
        for text, part in zip(texts, _balanced(parts), strict=True):
            # No line ends in what is outside of the text.
            before, after = (each.replace(" ", "\0") for each in (text.before, text.after))
            yield refilled(f"{before}{part or '…'}{after}", len(text.rows), MAX_WIDTH, _TAG)


class WebVtt(Subtitles):
    """The cues of a WebVTT file, whose text has entities; a doubt is a note before its cue."""

    is_vtt = True
    shows_marks = True


def _seconds(time: str) -> float:
    total = 0.0
    for part in time.replace(",", ".").split(":"):
        total = 60 * total + float(part)
    return total


def _balanced(parts: Sequence[str]) -> Iterator[str]:
    """Parts of a text in which an element that goes over a cut is closed and opened again."""
    open_tags: list[tuple[str, str]] = []
    for i, part in enumerate(parts):
        begin = "".join(tag for tag, _ in open_tags)
        closed = set(re.findall(r"</([a-zA-Z]++)>", "".join(parts[i:])))
        for tag in _ELEMENT.finditer(part):
            if not tag[1] and tag[2] in closed:
                open_tags.append((tag[0], tag[2]))
            elif tag[1] and open_tags and open_tags[-1][1] == tag[2]:
                open_tags.pop()
        yield begin + part + "".join(f"</{name}>" for _, name in reversed(open_tags))
