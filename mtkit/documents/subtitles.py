"""Subtitles: SubRip (SRT) and WebVTT. A sentence over several cues is one segment.

Its translation is cut again: each cue gets as much of it as it had of the source. Times, numbers,
settings, notes and styles stay as they are. Tags, codes such as {\\an8}, the dash of a speaker,
brackets around a sound and notes of music are inline codes, or stay outside of the text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from mtkit.base.errors import MtkitError
from mtkit.documents.document import Document, Options, Segment
from mtkit.documents.inline import LineWriter, Tags, escaped, with_tags
from mtkit.documents.text import (
    Edit,
    Row,
    TextFile,
    cut,
    joined,
    partners_of,
    width_of,
    words_of,
    write_tagged,
)

# From here on, the numbers are those of the timed text guides of Netflix and the BBC.
MAX_WIDTH = 42
MAX_CHARACTERS_PER_SECOND = 20
# A sentence goes on in the next cue at most after so many seconds; more cues than these are
# probably text without punctuation.
_MAX_GAP = 3.0
_MAX_CUES = 6

_TIME = re.compile(r"\s*((?:\d+:)?\d\d?:\d\d[.,]\d{1,3})\s+-->\s+((?:\d+:)?\d\d?:\d\d[.,]\d{1,3})")
_TAG = r"<[/a-zA-Z\d][^<>]*>|\{[\\a-zA-Z][^{}]*\}"
_TOKEN = re.compile(rf"({_TAG}|[\[\]()（）♪♫])")
_ELEMENT = re.compile(r"<(/?)([a-zA-Z]+)[^<>]*>")
# Brackets around a sound; others belong to words, such as %(name)s.
_SOUND = re.compile(r"(?<![^\s>}♪♫])[\[(（][^\[\]()（）]*[\])）](?!\w)")
_BRACKETS = {"[": "[", "]": "/[", "(": "(", ")": "/(", "（": "（", "）": "/（"}
_DASH = re.compile(r"\s*[-–—]+\s*(?=[^\s\d])")
_SPEAKER = re.compile(rf"(?:{_TAG}|\s)*[-–—]\s*(?:{_TAG})*[^\s\d<{{-]")
_SENTENCE_END = re.compile(r"[.!?…:;。！？؟۔।]+[\"'”’»)\]」』]*$")
_POSITION = re.compile(r"\{\\an?\d+\}")
_HIDDEN = re.compile(_TAG)


@dataclass
class _Text:
    """What one speaker says in a cue.

    Attributes:
        start, stop: its characters in the file.
        rows: how many lines it has.
        before, after: the codes and signs outside of it.
        pieces: its words, and the tags and brackets between them.
    """

    cue: int
    start: int
    stop: int
    rows: int
    before: str = ""
    after: str = ""
    pieces: list[str] = field(default_factory=list)

    @property
    def shown(self) -> str:
        """The words."""
        return "".join(piece for piece in self.pieces if not _TOKEN.fullmatch(piece)).strip()


@dataclass
class _Cue:
    """A cue by its first character, its number or ordinal, and its times in seconds."""

    start: int
    name: str
    begin: float
    end: float


class Subtitles(Document):
    """The cues of a SubRip file."""

    is_vtt = False

    def __init__(self, data: bytes, _: Options) -> None:
        super().__init__()
        self._file = TextFile(data)
        self._cues: list[_Cue] = []
        texts: list[_Text] = []
        for group in self._groups():
            texts += self._texts(group)
        # Of each segment, the texts that its line is made of.
        self._texts_of: list[list[_Text]] = []
        for text in texts:
            if not any(map(str.isalpha, text.shown)):
                continue
            if self._texts_of and self._goes_on(self._texts_of[-1], text):
                self._texts_of[-1].append(text)
            else:
                self._texts_of.append([text])
        self._codes = list(map(self._add, self._texts_of))
        if not self._cues:
            raise MtkitError("has no times of cues, such as 00:00:01,000 --> 00:00:02,000")

    def write(
        self, translations: Sequence[str | None], marks: Mapping[int, str] | None = None
    ) -> bytes:
        """The file with translations; `notes` names the cues that are read too fast."""
        edits: list[Edit] = []
        widths: dict[int, int] = {}
        for number, line in self.changes(translations).items():
            texts = self._texts_of[number]
            for text, new in zip(texts, self._cut(number, line), strict=True):
                edits.append((text.start, text.stop, self._file.line_end.join(new)))
                width = sum(width_of(_HIDDEN.sub("", row)) for row in new)
                widths[text.cue] = widths.get(text.cue, 0) + width
        if self.shows_marks:
            edits += self._marks(marks or {})
        cues = [(self._cues[cue], width) for cue, width in widths.items()]
        fast = [
            cue.name
            for cue, width in cues
            if width > MAX_CHARACTERS_PER_SECOND * max(cue.end - cue.begin, 0.001)
        ]
        self.notes = []
        if fast:
            shown = ", ".join([*fast[:10], *(["…"] if len(fast) > 10 else [])])
            self.notes.append(
                f"{len(fast):,} of {len(cues):,} translated cues have more than "
                f"{MAX_CHARACTERS_PER_SECOND} characters a second: {shown}"
            )
        return self._file.edited(edits)

    def _groups(self) -> Iterator[list[Row]]:
        """The neighbouring lines of text of each cue, which is the last one of `_cues`."""
        lines = self._file.lines()
        timed = [i for i, (_, _, line) in enumerate(lines) if _TIME.match(line)]
        for i, following in pairwise([*timed, len(lines)]):
            name = lines[i - 1][2].strip() if i else ""
            match = _TIME.match(lines[i][2])
            assert match is not None
            self._cues.append(
                _Cue(
                    lines[i - 1 if name else i][0],
                    name if name.isdigit() else str(len(self._cues) + 1),
                    *map(_seconds, match.groups()),
                )
            )
            # Before the next time is its number or, in WebVTT, its name.
            is_numbered = self.is_vtt or lines[following - 1][2].strip().isdigit()
            rest = lines[i + 1 : following - (is_numbered and following < len(lines))]
            group: list[Row] = []
            for line in [*rest, (0, 0, "")]:
                if line[2].strip():
                    group.append(line)
                elif group:
                    yield group
                    group = []
                if self.is_vtt and not line[2].strip():
                    # What follows is a note, a style or the name of the next cue.
                    break

    def _texts(self, group: Sequence[Row]) -> Iterator[_Text]:
        """The texts of some lines of the last cue: each speaker has one."""
        firsts = [i for i, (_, _, line) in enumerate(group) if i == 0 or _SPEAKER.match(line)]
        for first, stop in pairwise([*firsts, len(group)]):
            rows = group[first:stop]
            text = _Text(len(self._cues) - 1, rows[0][0], rows[-1][1], len(rows))
            raw = " ".join(line.strip() for _, _, line in rows)
            self._read(text, _pieces(raw))
            yield text

    def _read(self, text: _Text, pieces: list[str]) -> None:
        """Divide the pieces of a text into what is before and after it, and its line."""
        partners = partners_of(_names(pieces))
        start, stop, has_sign = 0, len(pieces), False
        while start < stop:
            first, last = pieces[start], pieces[stop - 1]
            if not has_sign and (dash := _DASH.match(first)):
                has_sign = True
                text.before += dash[0]
                pieces[start] = first[dash.end() :]
            elif not first.strip() or (_TOKEN.fullmatch(first) and start not in partners):
                text.before, start = text.before + first, start + 1
                has_sign |= _HIDDEN.sub("", first).strip() != ""
            elif not last.strip() or (_TOKEN.fullmatch(last) and stop - 1 not in partners):
                text.after, stop = last + text.after, stop - 1
            elif partners.get(start) == stop - 1:
                text.before, text.after = text.before + first, last + text.after
                has_sign |= _HIDDEN.sub("", first).strip() != ""
                start, stop = start + 1, stop - 1
            else:
                break
        text.pieces = inside = pieces[start:stop]
        if inside:
            text.before += inside[0][: len(inside[0]) - len(inside[0].lstrip())]
            text.after = inside[-1][len(inside[-1].rstrip()) :] + text.after
            inside[0] = inside[0].lstrip()
            inside[-1] = inside[-1].rstrip()

    def _add(self, texts: Sequence[_Text]) -> Tags:
        """Add the segment of some texts; returns the tags of each of its codes."""
        writer = LineWriter[tuple[str, str]]()
        for text in texts:
            if text is not texts[0]:
                writer.text(" ")
            pieces = (
                (piece, name) if _TOKEN.fullmatch(piece) else (self._characters(piece), None)
                for piece, name in zip(text.pieces, _names(text.pieces), strict=True)
            )
            # Readers see notes of music.
            write_tagged(writer, list(pieces), is_shown=lambda piece: len(piece) == 1)
        first, last = self._cues[texts[0].cue].name, self._cues[texts[-1].cue].name
        place = f"cue {first}" if first == last else f"cues {first} to {last}"
        self.segments.append(Segment(writer.line.strip(), place))
        return writer.meanings

    def _goes_on(self, texts: Sequence[_Text], text: _Text) -> bool:
        """Whether the sentence of some texts goes on in a text of the next cue."""
        last = texts[-1]
        gap = self._cues[text.cue].begin - self._cues[last.cue].end
        between = _HIDDEN.sub("", last.after + text.before)
        return (
            text.cue == last.cue + 1
            and len(texts) < _MAX_CUES
            and -1 < gap < _MAX_GAP
            and not between.strip()
            and not _SENTENCE_END.search(last.shown)
            # A title is not a part of what is said.
            and last.shown.isupper() <= text.shown.isupper()
            and _POSITION.findall(last.before) == _POSITION.findall(text.before)
        )

    def _cut(self, number: int, line: str) -> Iterator[list[str]]:
        """The lines of each text of a segment."""
        texts, codes = self._texts_of[number], self._codes[number]
        whole = with_tags(line, codes, self._raw)
        shares = [float(width_of(text.shown)) for text in texts]
        parts = [joined(words) for words in cut(words_of(whole, _TAG), shares)]
        for text, part in zip(texts, _balanced(parts), strict=True):
            words = words_of(part or "…", _TAG)
            for i, beside in ((0, (text.before, "")), (-1, ("", text.after))):
                width = words[i].width + width_of(_HIDDEN.sub("", "".join(beside)))
                words[i] = words[i]._replace(text=words[i].text.join(beside), width=width)
            width = sum(len(word.gap) + word.width for word in words)
            rows = max(text.rows, -(-width // (MAX_WIDTH + 1)))
            while True:
                cues = cut(words, [1.0] * rows, MAX_WIDTH)
                new = [joined(row) for row in cues if row]
                is_short = all(width_of(_HIDDEN.sub("", row)) <= MAX_WIDTH for row in new)
                if is_short or rows >= len(words):
                    break
                rows += max(1, rows // 20)
            yield new

    def _characters(self, text: str) -> str:
        return text

    def _raw(self, text: str) -> str:
        return text

    def _marks(self, marks: Mapping[int, str]) -> Iterator[Edit]:
        end = self._file.line_end
        for number, mark in sorted(marks.items()):
            start = self._cues[self._texts_of[number][0].cue].start
            note = mark.replace("-->", "->").replace("\n", " ")
            yield start, start, f"NOTE mtkit: {note}{end}{end}"


class WebVtt(Subtitles):
    """The cues of a WebVTT file, whose text has entities; a doubt is a note before its cue."""

    is_vtt = True
    shows_marks = True

    def _characters(self, text: str) -> str:
        return html.unescape(text)

    def _raw(self, text: str) -> str:
        return escaped(text)


def _seconds(time: str) -> float:
    total = 0.0
    for part in time.replace(",", ".").split(":"):
        total = 60 * total + float(part)
    return total


def _pieces(raw: str) -> list[str]:
    """A text cut at tags, notes of music and the brackets around sounds."""
    sounds = {at for match in _SOUND.finditer(raw) for at in (match.start(), match.end() - 1)}
    pieces, at, was_token = list[str](), 0, True
    for piece in filter(None, _TOKEN.split(raw)):
        is_token = bool(_TOKEN.fullmatch(piece)) and (piece not in _BRACKETS or at in sounds)
        if was_token or is_token:
            pieces.append(piece)
        else:
            pieces[-1] += piece
        at, was_token = at + len(piece), is_token
    return pieces


def _names(pieces: Sequence[str]) -> list[str]:
    """The names of tags and brackets, for `partners_of`; empty for others."""
    tags = map(_ELEMENT.fullmatch, pieces)
    return [
        tag[1] + tag[2] if tag else _BRACKETS.get(piece, "")
        for piece, tag in zip(pieces, tags, strict=True)
    ]


def _balanced(parts: Sequence[str]) -> Iterator[str]:
    """Parts of a text in which an element that goes over a cut is closed and opened again."""
    open_tags: list[tuple[str, str]] = []
    for i, part in enumerate(parts):
        begin = "".join(tag for tag, _ in open_tags)
        rest = "".join(parts[i:])
        for tag in _ELEMENT.finditer(part):
            if not tag[1] and rest.count(f"</{tag[2]}>"):
                open_tags.append((tag[0], tag[2]))
            elif tag[1] and open_tags and open_tags[-1][1] == tag[2]:
                open_tags.pop()
        yield begin + part + "".join(f"</{name}>" for _, name in reversed(open_tags))
