"""Message catalogues of GNU gettext: PO files.

Only the lines of an entry that is translated change: its `msgstr`, its flags, and the comment of a
doubt. A line of a message is a segment; lines that were wrapped by hand are one. Plural forms are
those of the header: the form of one thing is the translation of `msgid`, the others are that of
`msgid_plural`. The placeholders of the entry's format flag are compared after translation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from gettext import c2py

from mtkit.base.copied import has_letters
from mtkit.base.errors import MtkitError
from mtkit.documents.document import Document, Options, Segment
from mtkit.documents.inline import LineWriter, Tags, with_tags
from mtkit.documents.text import Edit, TextFile, refilled, write_tagged

# The width at which gettext's own programs wrap.
_WIDTH = 79
_COMMENT = "# mtkit: "
# No language has more plural forms than Arabic, six.
_MAX_FORMS = 6

_FIELD = re.compile(r'\s*(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s*(?:"(.*)")?\s*$')
_MORE = re.compile(r'\s*"(.*)"\s*$')
_CHARSET = re.compile(rb"charset=([\w.:-]+)")
_PLURALS = re.compile(r"nplurals\s*=\s*(\d+)\s*;\s*plural\s*=([^;\n]+)")
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)")
_ESCAPES = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
_TAG = re.compile(r"(<(/?)([a-zA-Z][\w:.-]*)(?:\s[^<>]*|/)?>)")

# The placeholders of a flag such as `c-format`, by the language before `-format`; of all others it
# is that of C. Source: gettext's manual, section "Format flags".
_C = re.compile(
    r"%(?:\d+\$|\([^()]*\)|<\w+>)?[-+ 0#'I]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|ll|[hlLqjzt])?[\w@%]"
)
_BRACES = re.compile(r"\{\{|\}\}|\{[^{}]*\}")
_FORMATS = {
    **dict.fromkeys(("python-brace", "perl-brace", "csharp", "java", "rust", "c++"), _BRACES),
    **dict.fromkeys(("qt", "qt-plural", "kde", "kde-kuit"), re.compile(r"%L?\d{1,2}|%n")),
    "sh": re.compile(r"\$\w+|\$\{\w+\}"),
}


@dataclass
class _Entry:
    """An entry: its first line, that of its keywords, and its strings by name.

    Attributes:
        strings: the first and last line of each, and its text.
        parts: of each string to translate, its lines: text that stays, or the number of a segment.
    """

    first: int
    keywords: int = -1
    flags: int = -1
    old: list[int] = field(default_factory=list)
    strings: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    parts: dict[str, list[str | int]] = field(default_factory=dict)

    @property
    def segments(self) -> set[int]:
        """The numbers of its segments."""
        return {part for parts in self.parts.values() for part in parts if isinstance(part, int)}


@dataclass(frozen=True)
class _Line:
    """What a segment needs to be written: spaces beside it, its tags, and how many lines it had."""

    before: str
    after: str
    tags: Tags
    rows: int


class Gettext(Document):
    """The entries of a PO file without a translation, or all with `everything`."""

    shows_marks = True

    def __init__(self, data: bytes, options: Options) -> None:
        super().__init__()
        named = _CHARSET.search(data)
        charset = named[1].decode() if named else "utf-8"
        try:
            "".encode(charset)
        except (LookupError, UnicodeError):
            if charset != "CHARSET":
                raise MtkitError(f"its header has an unknown charset, {charset}") from None
            charset = "utf-8"
        self._file = TextFile(data, charset)
        self._lines = self._file.lines()
        entries = list(self._read())
        for entry in entries:
            if "msgid" not in entry.strings or not entry.strings.keys() & {"msgstr", "msgstr[0]"}:
                raise MtkitError(f"line {entry.keywords + 1}: an entry needs a msgid and a msgstr")
        headers = [entry.strings for entry in entries if _is_header(entry)]
        header = headers[0].get("msgstr", (0, 0, ""))[2] if headers else ""
        plurals = _PLURALS.search(header)
        self._forms = int(plurals[1][:9]) if plurals else 0
        # The form of one thing, and for which numbers it stands.
        self._one, self._ones = 0, {1}
        if plurals:
            try:
                forms = list(map(c2py(plurals[2].strip()), range(1000)))
            except (ValueError, ArithmeticError):
                raise MtkitError(f"its header has the plural {plurals[2].strip()[:80]}") from None
            if self._forms > _MAX_FORMS:
                raise MtkitError(f"its header has {self._forms:,} plural forms")
            self._one = forms[1]
            self._ones = {n for n, form in enumerate(forms) if form == self._one}
        # Files that are wrapped have no line that is much longer.
        self._is_wrapped = max((len(line) for _, _, line in self._lines), default=0) <= _WIDTH + 1
        self._of_segment: list[_Line] = []
        self._entries: list[_Entry] = []
        for number, entry in enumerate(entries, 1):
            texts = [text for name, (_, _, text) in entry.strings.items() if "msgstr" in name]
            if not _is_header(entry) and texts and (options.everything or not any(texts)):
                place = f"entry {number} (line {entry.keywords + 1})"
                for name in dict.fromkeys(self._sources(entry)):
                    entry.parts[name] = list(self._parts(entry.strings[name][2], place))
                self._entries.append(entry)
        if not plurals and any("msgid_plural" in entry.parts for entry in self._entries):
            self.notes.append("the header has no Plural-Forms: each entry keeps the number it has")

    def write(
        self, translations: Sequence[str | None], marks: Mapping[int, str] | None = None
    ) -> bytes:
        """The file with translations; an entry with a doubt is fuzzy, and has a comment."""
        changes, edits, marks = self.changes(translations), list[Edit](), marks or {}
        missing = {number for number, line in enumerate(translations) if line is None}
        for entry in self._entries:
            doubts = [marks[number] for number in sorted(entry.segments & marks.keys())]
            if entry.segments & missing and entry.segments & changes.keys():
                doubts.append("a part of it has no translation")
            edits += self._edits(entry, changes, doubts)
        try:
            return self._file.edited(edits)
        except UnicodeEncodeError:
            charset = re.search(r"charset=([\w.:-]+)", self._file.text)
            assert charset is not None
            self.notes.append(f"the file is UTF-8 now: {charset[1]} lacks characters of it")
            return self._file.edited([*edits, (*charset.span(1), "UTF-8")], "utf-8")

    def _read(self) -> Iterator[_Entry]:
        """The entries, with the header and without those that are obsolete."""
        entry, name = _Entry(0), ""
        for number, (_, _, line) in enumerate(self._lines):
            is_field, is_comment = _FIELD.match(line), line.lstrip().startswith("#")
            begins = is_comment or (is_field and is_field[1] in ("msgid", "msgctxt"))
            if begins and any("msgstr" in known for known in entry.strings):
                yield entry
                entry = _Entry(number)
            if is_comment and line.lstrip().startswith("#~"):
                entry = _Entry(number + 1)
            elif is_comment:
                entry.flags = number if line.lstrip().startswith("#,") else entry.flags
                if line.lstrip().startswith(("#|", _COMMENT.strip())):
                    entry.old.append(number)
            elif is_field:
                name = is_field[1]
                entry.keywords = entry.keywords if entry.strings else number
                entry.strings[name] = number, number, is_field[2] or ""
            elif more := _MORE.match(line):
                if name not in entry.strings:
                    raise MtkitError(f"line {number + 1}: has a string of no entry")
                first, _, text = entry.strings[name]
                entry.strings[name] = first, number, text + more[1]
            elif line.strip() and not line.startswith("domain "):
                raise MtkitError(f"line {number + 1}: is not PO: {line.strip()[:40]}")
            elif not entry.strings:
                entry = _Entry(number + 1)
        if any("msgstr" in known for known in entry.strings):
            yield entry

    def _sources(self, entry: _Entry) -> list[str]:
        """Which string each form is the translation of."""
        if "msgid_plural" not in entry.strings:
            return ["msgid"]
        count = self._forms or sum("msgstr" in name for name in entry.strings)
        pattern = self._placeholders(entry) or _C
        one_text, plural = (entry.strings[name][2] for name in ("msgid", "msgid_plural"))
        # A form for 1, 21, 31 … needs the number that `msgid` may lack.
        is_one = self._ones <= {0, 1} or pattern.findall(one_text) == pattern.findall(plural)
        return [
            "msgid" if is_one and form == self._one else "msgid_plural" for form in range(count)
        ]

    def _parts(self, raw: str, place: str) -> Iterator[str | int]:
        """The lines of a string: text that stays, or the number of a new segment."""
        pieces = re.split(r"(\n+)", _unquoted(raw))
        i = 0
        while i < len(pieces):
            text, rows = pieces[i], 1
            # Of two lines, the first is wrapped if it is long and the next one goes on with it.
            while (
                i + 2 < len(pieces)
                and pieces[i + 1] == "\n"
                and len(pieces[i]) > 50
                and re.search(r"[^\W_]|,$", pieces[i][-1])
                and pieces[i + 2][:1].islower()
            ):
                text, rows, i = f"{text} {pieces[i + 2]}", rows + 1, i + 2
            i += 1
            if not has_letters(_TAG.sub("", text)):
                yield text
                continue
            stripped = text.strip()
            start = text.index(stripped)
            line, tags = _line(stripped)
            after = text[start + len(stripped) :]
            self._of_segment.append(_Line(text[:start], after, tags, rows))
            self.segments.append(Segment(line, place))
            yield len(self.segments) - 1

    def _edits(
        self, entry: _Entry, changes: Mapping[int, str], doubts: list[str]
    ) -> Iterator[Edit]:
        is_changed = not changes.keys().isdisjoint(entry.segments)
        if not (is_changed or doubts):
            return
        if is_changed:
            names = [name for name in entry.strings if name.startswith("msgstr")]
            sources, lines = self._sources(entry), list[str]()
            pattern = self._placeholders(entry)
            for form, source in enumerate(sources):
                text = "".join(map(self._text(changes), entry.parts[source]))
                original = _unquoted(entry.strings[source][2])
                if pattern and (lost := _lost(pattern, original, text)):
                    doubts = [*doubts, f"its placeholders differ from {lost}"]
                name = "msgstr" if names == ["msgstr"] else f"msgstr[{form}]"
                is_one_line = entry.strings[source][0] == entry.strings[source][1]
                lines += self._string(name, text, is_one_line=is_one_line)
            start = self._lines[entry.strings[names[0]][0]][0]
            stop = self._lines[entry.strings[names[-1]][1]][1]
            yield start, stop, self._file.line_end.join(lines)
            for number in entry.old:
                yield self._lines[number][0], self._lines[number + 1][0], ""
        yield from self._flagged(entry, doubts, is_changed=is_changed)

    def _flagged(self, entry: _Entry, doubts: list[str], *, is_changed: bool) -> Iterator[Edit]:
        """The comments of an entry, and its flag `fuzzy` if it has a doubtful translation."""
        end = self._file.line_end
        comments = "".join(
            f"{_COMMENT}{' '.join(doubt.split())}{end}" for doubt in dict.fromkeys(doubts)
        )
        flags = self._flags(entry)
        new = [flag for flag in flags if flag != "fuzzy"] if is_changed else flags
        new = ["fuzzy", *new] if doubts and is_changed else new
        line = f"#, {', '.join(new)}" if new else ""
        if entry.flags < 0 and line:
            at = self._lines[entry.keywords][0]
            yield at, at, line + end
        elif new != flags:
            start, stop, _ = self._lines[entry.flags]
            yield (start, stop, line) if line else (start, self._lines[entry.flags + 1][0], "")
        if comments:
            at = self._lines[entry.first][0]
            yield at, at, comments

    def _flags(self, entry: _Entry) -> list[str]:
        line = self._lines[entry.flags][2] if entry.flags >= 0 else "#,"
        return [flag.strip() for flag in line.strip()[2:].split(",") if flag.strip()]

    def _placeholders(self, entry: _Entry) -> re.Pattern[str] | None:
        flags = [flag for flag in self._flags(entry) if flag.endswith("-format")]
        names = [flag.removesuffix("-format") for flag in flags if not flag.startswith("no-")]
        return _FORMATS.get(names[0], _C) if names else None

    def _text(self, changes: Mapping[int, str]) -> Callable[[str | int], str]:
        def text(part: str | int) -> str:
            if isinstance(part, str):
                return part
            line = self._of_segment[part]
            whole = with_tags(changes.get(part, self.segments[part].line), line.tags)
            rows = refilled(whole, line.rows) if line.rows > 1 else [whole]
            return line.before + "\n".join(rows) + line.after

        return text

    def _string(self, name: str, text: str, *, is_one_line: bool) -> list[str]:
        """The lines of a string, wrapped as gettext does."""
        whole = f'{name} "{_quoted(text)}"'
        ends = text.count("\n", 0, -1)
        if (is_one_line or not ends) and (len(whole) <= _WIDTH or not self._is_wrapped):
            return [whole]
        lines = [f'{name} ""']
        for paragraph in re.findall(r"[^\n]*\n|[^\n]+", text):
            quoted, width = _quoted(paragraph), _WIDTH - 2
            while self._is_wrapped and len(quoted) > width:
                at = quoted.rfind(" ", 0, width) + 1 or quoted.find(" ", width) + 1
                if not at:
                    break
                lines.append(f'"{quoted[:at]}"')
                quoted = quoted[at:]
            lines.append(f'"{quoted}"')
        return lines


def _is_header(entry: _Entry) -> bool:
    return not entry.strings.get("msgid", (0, 0, "-"))[2] and "msgctxt" not in entry.strings


def _line(text: str) -> tuple[str, Tags]:
    """The line of a text, and the tags of its codes."""
    writer, pieces, at = LineWriter[tuple[str, str]](), list[tuple[str, str | None]](), 0
    for tag in _TAG.finditer(text):
        pieces += (text[at : tag.start()], None), (tag[1], tag[2] + tag[3])
        at = tag.end()
    write_tagged(writer, [*pieces, (text[at:], None)])
    return writer.line, writer.meanings


def _lost(pattern: re.Pattern[str], source: str, translation: str) -> str:
    """The placeholders of a source, if those of the translation are not the same, as text."""
    sources, targets = (pattern.findall(text) for text in (source, translation))
    # Those of C without a number or a name must keep their order.
    is_ordered = pattern is _C and not any(re.match(r"%(?:\d+\$|\(|<)", each) for each in sources)
    same = sources == targets if is_ordered else Counter(sources) == Counter(targets)
    return "" if same else " ".join(sources) or "none"


def _unquoted(text: str) -> str:
    def character(escape: re.Match[str]) -> str:
        code = escape[1]
        if code[0] in "01234567":
            return chr(int(code, 8))
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(character, text)


def _quoted(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    for letter, character in _ESCAPES.items():
        text = text.replace(character, f"\\{letter}")
    return text
