"""Message catalogues of GNU gettext: PO files.

Only an entry that is translated changes: its `msgstr`, its flags, and the comment of a doubt. A
line of a message is a segment; lines that were wrapped by hand are one. Plural forms are those of
the header: the form of one thing is the translation of `msgid`, the others are that of
`msgid_plural`. The placeholders of the entry's format flag are compared after translation.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from gettext import c2py

from mtkit.base.copied import TAG, has_letters
from mtkit.base.errors import MtkitError, in_words
from mtkit.base.language_id import is_same_language
from mtkit.base.text import REMOVED
from mtkit.documents.document import Document, Options, Segment
from mtkit.documents.inline import Tags, with_tags
from mtkit.documents.text import LINE, Edit, TextFile, line_of, pieces_of, refilled, words_of

# The width at which gettext's own programs wrap.
_WIDTH = 79
# No language has more plural forms than Arabic, six.
_MAX_FORMS = 6

_STRING = r'"(?:[^"\\\n]|\\.)*+"'
_STRINGS = rf"(?:\s*+{_STRING})++"
_FORM = r"msgstr(?:\[\d+\])?"
_FIELD = re.compile(rf"(msgctxt|msgid_plural|msgid|{_FORM})({_STRINGS})")
_ENTRY = re.compile(
    rf"^[ \t]*(?:msgctxt{_STRINGS}\s+)?msgid{_STRINGS}\s+(?:msgid_plural{_STRINGS}\s+)?"
    rf"(?P<target>{_FORM}{_STRINGS}(?:\s+{_FORM}{_STRINGS})*+)",
    re.MULTILINE,
)
_CHARSET = re.compile(r"(?<=charset=)[\w.:-]+")
_PLURALS = re.compile(r"nplurals\s*=\s*(\d+)\s*;\s*plural\s*=([^;\n]+)")
# A number is that of a byte of a character.
_ESCAPE = re.compile(r"((?:\\[0-7]{1,3}|\\x[0-9a-fA-F]{1,2})+)|\\(.)")
_ESCAPES = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
# The sign before the letter of a key in a label: `&Open`, `_Save`, `~Help`.
_KEY = re.compile(r"(?<![\w&_~])[&_~](?=[^\W\d_])(?!\w+;)")
_MAX_LABEL = 50
# A line that was wrapped by hand is long, and the next one goes on with it.
_WRAPPED = re.compile(r"(?<![^\n])([^\n]{50,}(?:[^\W_]|,))\n(?=([^\W\d_]))")
_CODE = re.compile(rf"{TAG.pattern}|\x1b\[[\d;]*m|[{REMOVED}]")

_wrap = partial(
    textwrap.wrap, drop_whitespace=False, break_long_words=False, break_on_hyphens=False
)

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
    """An entry: its strings in the file, its comments before them, and its texts by keyword.

    Each text to translate has parts: text that stays, or the number of a segment.
    """

    match: re.Match[str]
    comments: list[str]
    texts: dict[str, str]
    parts: dict[str, list[str | int]] = field(default_factory=dict)

    @property
    def forms(self) -> list[str]:
        """The keywords of its translations."""
        return [name for name in self.texts if name.startswith("msgstr")]

    @property
    def flags(self) -> list[str]:
        """Such as `fuzzy` and `c-format`."""
        flags = ",".join(line.strip()[2:] for line in self.comments if re.match(r"\s*#,", line))
        return [flag.strip() for flag in flags.split(",") if flag.strip()]

    @property
    def placeholders(self) -> re.Pattern[str] | None:
        """The form of what its translation must have, too."""
        names = re.findall(r",(?!no-)([\w+-]+)-format", f",{','.join(self.flags)}")
        return _FORMATS.get(names[0], _C) if names else None

    @property
    def segments(self) -> set[int]:
        return {part for parts in self.parts.values() for part in parts if isinstance(part, int)}


class Gettext(Document):
    """The entries of a PO file without a translation, or all with `everything`."""

    shows_marks = True

    def __init__(self, data: bytes, options: Options) -> None:
        super().__init__()
        entries = map(_texts_of, _ENTRY.finditer(data.decode("latin-1")))
        header = next(filter(_is_header, entries), {}).get("msgstr", "")
        named = _CHARSET.search(header)
        # A template has no charset yet.
        self._has_charset = named is None or named[0] != "CHARSET"
        charset = named[0] if named and self._has_charset else "utf-8"
        try:
            "".encode(charset)
        except (LookupError, UnicodeError):
            raise MtkitError(f"its header has an unknown charset, {charset}") from None
        self._file = TextFile(data, charset)
        own = re.search(r"^Language:[ \t]*([a-zA-Z]+)", header, re.MULTILINE)
        if own and options.target and not is_same_language(own[1], options.target):
            self.warnings.append(f"its language is {own[1]}, not {options.target}")
        # Files that are wrapped have no line that is much longer.
        self._is_wrapped = all(len(line) <= _WIDTH + 1 for _, _, line in self._file.rows)
        self._count, self._forms = _plural_forms(header)
        # Of each segment, what is before and after it, its tags, how many lines it had, and the
        # sign of its key with the letter.
        self._of_segment: list[tuple[str, str, Tags, int, str]] = []
        self._entries: list[_Entry] = []
        for number, entry in enumerate(self._read(), 1):
            is_filled = any(entry.texts[name] for name in entry.forms)
            if entry.texts["msgid"] and is_filled and not options.everything:
                self.has_translations = True
            elif entry.texts["msgid"]:
                place = f"entry {number} (line {self._file.line_number(entry.match.start())})"
                sources = dict.fromkeys(self._sources(entry))
                same = {"", *(entry.texts[name] for name in sources)}
                is_replaced = not same.issuperset(entry.texts[name] for name in entry.forms)
                for name in sources:
                    entry.parts[name] = list(self._parts(entry.texts[name], place, is_replaced))
                self._entries.append(entry)
        if not self._forms and any("msgid_plural" in entry.parts for entry in self._entries):
            self.notes.append("the header has no Plural-Forms: each entry keeps the number it has")

    def _written(self, changes: Mapping[int, str], marks: Mapping[int, str]) -> bytes:
        """The file, in which an entry with a doubt is fuzzy, and has a comment."""
        edits, end, left = list[Edit](), self._file.line_end, 0
        for entry in self._entries:
            # Half a translation is none.
            rejected = entry.segments & self._rejected
            shown = sorted(rejected or entry.segments)
            doubts = [marks[number] for number in shown if number in marks]
            is_changed = not rejected and any(number in changes for number in shown)
            left += len(entry.segments & changes.keys()) * bool(rejected)
            flags, match = entry.flags, entry.match
            # Without the doubts of an earlier start.
            comments = [line for line in entry.comments if not re.match(r"\s*# mtkit:", line)]
            if is_changed:
                rows = list[str]()
                for form, source in enumerate(self._sources(entry)):
                    text = "".join(self._translated(part, changes) for part in entry.parts[source])
                    doubts += _lost(entry.placeholders, entry.texts[source], text)
                    name = "msgstr" if entry.forms == ["msgstr"] else f"msgstr[{form}]"
                    is_one_line = match[0].count("\n") < len(entry.texts)
                    rows += self._rows(name, text, is_one_line=is_one_line)
                edits.append((*match.span("target"), end.join(rows)))
                flags = ["fuzzy"] * bool(doubts) + [flag for flag in flags if flag != "fuzzy"]
                # Without the message before its last change.
                comments = [line for line in comments if not re.match(r"\s*#\|", line)]
            if flags != entry.flags:
                comments = [line for line in comments if not re.match(r"\s*#,", line)]
                comments += [f"#, {', '.join(flags)}{end}"] if flags else []
            new = [f"# mtkit: {' '.join(doubt.split())}{end}" for doubt in dict.fromkeys(doubts)]
            if doubts or is_changed:
                start = match.start() - sum(map(len, entry.comments))
                edits.append((start, match.start(), "".join([*new, *comments])))
        if left:
            self.write_notes.append(
                f"{in_words(left, 'segment')} more not used: another of the entry was rejected"
            )
        if self._has_charset or not edits:
            with suppress(UnicodeEncodeError):
                return self._file.edited(edits)
        header = next(entry.match for entry in self._read() if _is_header(entry.texts))
        charset = _CHARSET.search(self._file.text, header.start("target"))
        assert charset is not None
        if self._has_charset:
            self.write_notes += [f"the file is UTF-8 now: {charset[0]} lacks characters of it"]
        return self._file.edited([*edits, (*charset.span(), "UTF-8")], "utf-8")

    def _read(self) -> Iterator[_Entry]:
        """The entries, with the header and without those that are obsolete."""
        text, at = self._file.text, 0
        for match in [*_ENTRY.finditer(text), None]:
            comments = list[str]()
            for line in LINE.finditer(text, at, match.start() if match else len(text)):
                shown = line[0].strip()
                if shown and not re.match(r"#|domain\b", shown):
                    number = self._file.line_number(line.start())
                    raise MtkitError(f"line {number}: not a msgid with its msgstr: {shown[:40]}")
                if shown.startswith("#") and not shown.startswith("#~"):
                    comments.append(line[0])
                elif line[0]:
                    comments.clear()
            if match:
                at = match.end()
                yield _Entry(match, comments, _texts_of(match, self._file.charset))

    def _sources(self, entry: _Entry) -> list[str]:
        """Which string each form is the translation of."""
        if "msgid_plural" not in entry.texts:
            return ["msgid"]
        singular = self._forms[1] if self._forms else 0
        pattern = entry.placeholders or _C
        of_one, of_plural = (pattern.findall(entry.texts[x]) for x in ("msgid", "msgid_plural"))
        # A form for 1, 21, 31 … needs the number that `msgid` may lack.
        numbers = {number for number, form in enumerate(self._forms) if form == singular}
        has_one = numbers <= {0, 1} or of_one == of_plural
        count = self._count or len(entry.forms)
        return [
            "msgid" if has_one and form == singular else "msgid_plural" for form in range(count)
        ]

    def _parts(self, text: str, place: str, is_replaced: bool) -> Iterator[str | int]:
        """The lines of a string: text that stays, or the number of a new segment."""
        # NUL is a space at which a line may end.
        text = _WRAPPED.sub(lambda m: f"{m[1]}\0" if m[2].islower() else m[0], text)
        for part in re.split(r"([\t\n\v\f\r]+)", text):
            text, key = part, _KEY.search(part) if len(part) <= _MAX_LABEL else None
            if key and part.count(key[0]) == 1 and "<" not in part:
                text = part.replace(key[0], "")
            sign = "" if key is None or text == part else part[key.start() : key.end() + 1]
            codes = ((tag, f"{tag[1] or ''}{tag[2] or ''}") for tag in _CODE.finditer(text))
            before, pieces, after = words_of(pieces_of(text, codes))
            if has_letters("".join(piece.value for piece in pieces if piece.name is None)):
                line, tags = line_of(pieces)
                self._of_segment.append((before, after, tags, part.count("\0") + 1, sign))
                line = line.replace("\0", " ")
                self.segments.append(Segment(line, place, is_replaced=is_replaced))
                yield len(self.segments) - 1
            else:
                yield part.replace("\0", "\n")

    def _translated(self, part: str | int, changes: Mapping[int, str]) -> str:
        if isinstance(part, str):
            return part
        before, after, tags, number, sign = self._of_segment[part]
        whole = with_tags(changes.get(part, self.segments[part].line), tags)
        if sign:
            letter = re.search(rf"(?i)\b{sign[1]}", whole) or re.search(r"(?=[^\W\d_]|$)", whole)
            assert letter is not None
            whole = whole[: letter.start()] + sign[0] + whole[letter.start() :]
        rows = refilled(whole, number) if number > 1 else [whole]
        return before + "\n".join(rows) + after

    def _rows(self, name: str, text: str, *, is_one_line: bool) -> list[str]:
        """The lines of a string, wrapped as gettext does."""
        whole = f'{name} "{_quoted(text)}"'
        width = _WIDTH if self._is_wrapped else len(whole)
        if len(whole) <= width and (is_one_line or "\n" not in text[:-1]):
            return [whole]
        rows = [f'{name} ""']
        for line in map(_quoted, re.findall(r"[^\n]*\n|[^\n]+", text)):
            rows += _wrap(line, width - 2)
        return [rows[0], *(f'"{row}"' for row in rows[1:])]


def _texts_of(entry: re.Match[str], charset: str = "ascii") -> dict[str, str]:
    return {name: _unquoted(strings, charset) for name, strings in _FIELD.findall(entry[0])}


def _is_header(texts: Mapping[str, str]) -> bool:
    return not texts["msgid"] and "msgctxt" not in texts


def _plural_forms(header: str) -> tuple[int, list[int]]:
    """The number of plural forms, and those of the numbers below 1,000; 0 if none are named."""
    plurals = _PLURALS.search(header)
    if not plurals:
        return 0, []
    count, rule = int(plurals[1][:9]), plurals[2].strip()
    if count > _MAX_FORMS:
        raise MtkitError(f"its header has {count:,} plural forms")
    try:
        return count, list(map(c2py(rule), range(1000)))
    except (ValueError, ArithmeticError):
        raise MtkitError(f"its header has the plural {rule[:80]}") from None


def _lost(pattern: re.Pattern[str] | None, source: str, translation: str) -> Iterator[str]:
    """What is wrong if a translation has not the placeholders of its source."""
    if pattern is None:
        return
    sources, targets = (pattern.findall(text) for text in (source, translation))
    # Those of C without a number or a name must keep their order.
    is_ordered = pattern is _C and not any(re.match(r"%(?:\d+\$|\(|<)", each) for each in sources)
    if sources != targets and (is_ordered or Counter(sources) != Counter(targets)):
        yield f"its placeholders differ from {' '.join(sources) or 'none'}"


def _unquoted(strings: str, charset: str) -> str:
    def characters(escape: re.Match[str]) -> str:
        if escape[2]:
            return _ESCAPES.get(escape[2], escape[2])
        codes = re.findall(r"\\(x?)(\w+)", escape[1])
        numbers = [int(digits, 16 if is_hex else 8) & 255 for is_hex, digits in codes]
        return bytes(numbers).decode(charset, "replace")

    return _ESCAPE.sub(characters, "".join(text[1:-1] for text in re.findall(_STRING, strings)))


def _quoted(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    for letter, character in _ESCAPES.items():
        text = text.replace(character, f"\\{letter}")
    return re.sub(r"[\0-\x1f\x7f]", lambda control: f"\\{ord(control[0]):03o}", text)
