"""Subtitles: SubRip (SRT) and WebVTT. A sentence over several cues is one segment.

Its translation is cut again: each cue gets as much of it as it had of the source. Times, numbers,
settings, notes and styles stay as they are. A sound in brackets is a segment, unless it may be
words of a sentence. Tags, codes such as {\\an8}, the dash of a speaker, brackets and notes of
music are inline codes, or stay outside of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise, takewhile
from operator import itemgetter
from typing import NamedTuple

from mtkit.base.character_references import unescape
from mtkit.base.errors import MtkitError
from mtkit.base.sentences import split
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
# The reading of a word is one code; its end tag may be left out before another or `</ruby>`.
_READING = r"<rt\b[^<>]*>(?:[^<]|<(?!/?rt\b|/ruby\b))*+(?:</rt>|(?=<))"
_TAG = rf"(?>{_READING}|<[/a-zA-Z\d][^<>]*>|\{{[\\a-zA-Z][^{{}}]*\}}|\\[Nh])"
_CODE = re.compile(rf"{_READING}|<(/?)([a-zA-Z]++)[^<>]*>|{_TAG}|[\[\]()（）［］【】♪♫]")
_BRACKETS = {sign: "/" * (i % 2) + "[(（［【"[i // 2] for i, sign in enumerate("[]()（）［］【】")}
_OPEN, _CLOSE, _BESIDE = r"\[(（［【", r"\])）］】", "\t ♪♫>–—-"
_GOING_ON = rf",;:!?/+=%*،؛؟।，、。；：！？」』》〉»”’{_CLOSE}"
# It may have others inside: [music (soft)].
_WORDS = rf"[^{_OPEN}{_CLOSE}]"
_SOUND = rf"[{_OPEN}](?:{_WORDS}|[{_OPEN}]{_WORDS}*[{_CLOSE}])*+[{_CLOSE}]"
# Others belong to words, such as %(name)s. `mark` is what goes on there without a word, and `next`
# the first character of words.
_SOUND_BESIDE_WORDS = re.compile(
    rf"(?<![^\s}}{_CLOSE}.:!?…。！？{_BESIDE}])(?<!\w-)(?:{_SOUND})(?!['’.-]?[^\W\u3000-\u9fff])"
    rf"(?=(?:{_TAG})*+(?P<mark>[.…\"'“]|[{_BESIDE}]*(?:[{_GOING_ON}]|\.(?!\.)|&(?:amp;|\W)))?"
    rf"(?:{_TAG}|[\n\"'“‘„«¿¡{_BESIDE}])*+(?P<next>.?))"
)
# Lines that have only a sound, or what is sung.
_SOUND_ON_LINES = re.compile(
    rf"^(?:{_TAG}|[{_BESIDE}])*(?:{_SOUND}(?:{_TAG}|[:{_BESIDE}])*+"
    rf"|[♪♫][^♪♫]*[♪♫](?:{_TAG}|[ \t])*)(?=\r*$)",
    re.MULTILINE,
)
# What is before a sound on its line, or the dash of another speaker.
_SIGNS_AT_END = re.compile(rf"(?:(?:^|\n)(?:{_TAG}|[{_BESIDE}])*|\s(?:[-–—]|>>|&gt;&gt;)\s*)\Z")
# Ends of what is said that `split` does not know, or takes for abbreviations.
_END = re.compile(r"…|\.{2,}|[♪♫]|>>|(?<=\w)(?:—|--)(?=\s)|(?i:(?<=\b(?:no|me|ok))\.)")
# What begins the text of a speaker, and a sentence that goes on.
_DOTS = re.compile(r"\s*(?:\.{2,}|…)\s*")
_SIGN = re.compile(
    rf"\s*(?:[-–—]+|>>+|&gt;&gt;)\s*(?=[^\s\d]|$)(?:{_DOTS.pattern})?|{_DOTS.pattern}|[:：](?![-()])\s*"
)
_SPEAKER = re.compile(
    rf"\s*<v[ .]|(?:{_TAG}|\s)*"
    rf"(?:(?:[-–—]|>>|&gt;&gt;)\s*(?:{_TAG})*[^\s\d<{{-]|[A-Z][A-Z0-9 .'-]+:\s)"
)
_SENTENCE_END = re.compile(r"(?<![.!?…:;。！？؟۔।])[.!?…:;。！？؟۔।]+(?:\s?[\"'”’»)\]」』])*$")
# Where words are shown, and who says them.
_PLACE = re.compile(r"\{\\an?\d+|\\pos\([^()]*\)|<v[ .][^<>]*>")
_HIDDEN = re.compile(_TAG)
_ELEMENT = re.compile(rf"{_READING}|<(/?)([a-zA-Z]++)[^<>]*>")


class _Cue(NamedTuple):
    """A cue by its first character, its number or ordinal, and its times in seconds."""

    start: int
    name: str
    begin: float
    end: float


@dataclass(eq=False)
class _Text:
    """A sound in a cue, or what a speaker says: its pieces, and what is outside of them.

    Other texts may be in the same lines.
    """

    cue: int
    rows: list[Row]
    is_sound: bool
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

    def __init__(self, data: bytes, options: Options) -> None:
        super().__init__()
        self._file, self._language = TextFile(data), options.source
        self._cues: list[_Cue] = []
        # Of each segment, the texts that its line is made of.
        self._texts: list[list[_Text]] = []
        # The texts that have lines in common.
        self._blocks: list[list[_Text]] = []
        self._sentence, before, repeated = list[_Text](), "", 0
        for block in self._read():
            texts = [text for text in block if any(map(str.isalpha, text.words))]
            if not texts:
                continue
            self._blocks.append(block)
            rows = [row for *_, raw in block[0].rows if (row := _HIDDEN.sub("", raw).strip())]
            repeated += rows[0] == before
            before = rows[-1]
            for text in texts:
                last = self._texts[-1][-1] if self._texts else text
                # A name in brackets may be that of another speaker.
                is_other = last.is_sound and last.cue == text.cue and not text.words[0].islower()
                if text.is_sound or is_other or not self._goes_on(text):
                    self._texts.append([text])
                    self._sentence = self._sentence if text.is_sound else self._texts[-1]
                else:
                    self._sentence[-1].leave_dots()
                    self._sentence.append(text)
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
        edits, widths, new = list[Edit](), dict[int, int](), dict[_Text, str]()
        for number, line in changes.items():
            new.update(zip(self._texts[number], self._cut(number, line), strict=True))
        for block in self._blocks:
            if not new.keys().isdisjoint(block):
                first, rows = block[0], self._lines(block, new)
                edits.append((first.rows[0][0], first.rows[-1][1], self._file.line_end.join(rows)))
                width = sum(width_of(_HIDDEN.sub("", row)) for row in rows)
                widths[first.cue] = widths.get(first.cue, 0) + width
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

    def _read(self) -> Iterator[list[_Text]]:
        """The texts of all cues, by their lines; the cues are added to `_cues`."""
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

    def _texts_in(self, rows: Sequence[Row]) -> Iterator[list[_Text]]:
        """The texts of the last cue, by their lines: those of a speaker, or of a sound alone."""
        span, text = (rows[0][0], rows[-1][1]) if rows else (0, 0), list[Row]()
        sounds = _SOUND_ON_LINES.finditer(self._file.text, *span)
        edges = {edge for sound in sounds for edge in sound.span()}
        for row in [*rows, (0, 0, "")]:
            is_next = row[0] in edges or _SPEAKER.match(row[2]) or not row[2].strip()
            if text and (is_next or text[-1][1] in edges):
                yield from self._texts_of(text)
                text = []
            if row[2].strip():
                text.append(row)

    def _texts_of(self, rows: list[Row]) -> Iterator[list[_Text]]:
        """The sounds and words of some lines; those that have a line in common are together."""
        raw, left = "\n".join(row[2].strip() for row in rows), iter(rows)
        has_sounds = _SOUND_BESIDE_WORDS.search(raw) is not None
        goes_on = has_sounds and self._goes_on(self._text_of(rows, raw))
        edges = [0, *chain(*_sounds_alone(raw, self._language, goes_on=goes_on)), len(raw)]
        # Otherwise an element would begin in one text, and end in another.
        if any(_has_half_element(raw[begin:end]) for begin, end in pairwise(edges)):
            edges = [0, len(raw)]
        texts, lines = list[_Text](), [next(left)]
        for number, (begin, end) in enumerate(pairwise(edges)):
            if number % 2 and raw[begin] == "\n":
                yield texts
                texts, lines = [], []
            lines += islice(left, raw.count("\n", begin, end))
            if begin < end:
                texts.append(self._text_of(lines, raw[begin:end], is_sound=number % 2 == 1))
        yield texts

    def _text_of(self, rows: list[Row], raw: str, *, is_sound: bool = False) -> _Text:
        value = unescape if self.is_vtt else str
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
        return _Text(len(self._cues) - 1, rows, is_sound, *words_of(pieces))

    def _goes_on(self, text: _Text) -> bool:
        """Whether the last sentence goes on in a text of the next cue."""
        if not 0 < len(self._sentence) < _MAX_CUES:
            return False
        last = self._sentence[-1]
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
            and _PLACE.findall(last.rows[0][2]) == _PLACE.findall(text.rows[0][2])
        )

    def _cut(self, number: int, line: str) -> Iterator[str]:
        """The part of a translation for each text of a segment."""
        texts = self._texts[number]
        whole = with_tags(line, self._codes[number], escaped if self.is_vtt else str)
        parts = cut(whole, [float(width_of(text.words)) for text in texts], _TAG)
        return (part or "…" for part in _balanced(parts))

    def _lines(self, block: Sequence[_Text], new: Mapping[_Text, str]) -> list[str]:
        """The lines of texts, of which some are new."""
        parts = list[str]()
        for text in block:
            source = "".join(piece.source for piece in text.pieces)
            # No line ends in what is outside of a text, but between two texts.
            before = re.sub(r"(?!\A)[ \n]", "\0", text.before)
            after = re.sub(r"[ \n](?!\Z)", "\0", text.after)
            parts += before, new.get(text, source), after
        return refilled("".join(parts), len(block[0].rows), MAX_WIDTH, _TAG)


class WebVtt(Subtitles):
    """The cues of a WebVTT file, whose text has entities; a doubt is a note before its cue."""

    is_vtt = True
    shows_marks = True


def _has_half_element(text: str) -> bool:
    """Whether an element begins or ends between the words of a text, but not both."""
    words = _HIDDEN.sub(lambda tag: " " * len(tag[0]), text)
    begin, names = len(words) - len(words.lstrip()), list[str]()
    for tag in _ELEMENT.finditer(text, begin, max(begin, len(words.rstrip()))):
        if not tag[1] and tag[2]:
            names.append(tag[2])
        elif tag[1] and (not names or names.pop() != tag[2]):
            return True
    return bool(names)


def _sounds_alone(raw: str, language: str, *, goes_on: bool) -> Iterator[tuple[int, int]]:
    """Where sounds are that are surely no words of a sentence, which may go on from another cue."""
    at, is_start = 0, True
    for sound in _SOUND_BESIDE_WORDS.finditer(raw):
        before = _HIDDEN.sub("", raw[at : sound.start()]).replace("&gt;", ">")
        words = before.rstrip("\n" + _BESIDE)
        # After a speaker's name is the start of a sentence, too.
        is_start = is_start and (not words or (words.isupper() and words[-1] in ":："))
        begins_line = is_start or "\n" in before[len(words) :]
        said = _END.sub("!", before).rstrip(" \t\n–—-")
        letters = re.sub(r"\W+", "", _HIDDEN.sub("", sound[0]))
        is_small, goes_on = letters[:1].islower(), goes_on and not words
        is_alone = is_start and not goes_on and (is_small or letters.isupper())
        if not is_alone and not sound["next"].islower():
            # The rules for German know numbers with a point and most abbreviations.
            is_alone = (begins_line and not is_small) or all(
                split(f"{said} A", each)[-1] == "A" for each in (language, "de")
            )
        # After a speaker's name may be a colon. A letter is that of a list.
        has_mark = (sound["mark"] or "").strip(_BESIDE) not in (":：" if begins_line else "")
        is_start = is_alone and not has_mark and (len(letters) != 1 or letters > "\u3000")
        if is_start:
            yield (_SIGNS_AT_END.search(raw, at, sound.start()) or sound).start(), sound.end()
        at, goes_on = sound.end(), False


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
        later = "".join(parts[i + 1 :])
        for tag in _ELEMENT.finditer(part):
            if not tag[1] and tag[2] and f"</{tag[2]}>" in part[tag.end() :] + later:
                open_tags.append((tag[0], tag[2]))
            elif tag[1] and open_tags and open_tags[-1][1] == tag[2]:
                open_tags.pop()
        yield begin + part + "".join(f"</{name}>" for _, name in reversed(open_tags))
