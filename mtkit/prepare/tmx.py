"""Reads the translation units of a TMX file as a stream."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from xml.parsers import expat

from mtkit.base.character_references import unescape
from mtkit.base.errors import MtkitError, reason_of
from mtkit.base.text import UNSPACED, WORD, base_language, refuse_long_line
from mtkit.prepare.source import SUBFLOW, VARIANT, Block, listed, on_one_line

# Elements within a segment whose text is markup of the translated format.
_CODES = {"bpt", "ept", "it", "ph", "ut"}
# In place of a code that separates words, and of another one: characters that XML cannot have.
_SEPARATOR, _FORMATTING = "\0", "\1"
# Types of codes, by TMX 1.4b and as Okapi, Trados and memoQ write them.
_FORMATTING_TYPE = re.compile(
    r"(?:x-)?(?:bold|italic|d?ulined|underlined?|strike\w*|colou?r|font\w*|scap|smallcaps|su[pb]\w*"
    r"|link|hyperlink|bookmark|style|formatting|fmt|[biua]|cf|span)",
    re.IGNORECASE,
)
_BREAK_TYPE = re.compile(r"(?:x-)?(?:[lpc]b|br|tab|break|linebreak|newline)", re.IGNORECASE)
# Markup that ends a line or a cell, also where it is in a pair: of HTML, XML, Word, InDesign,
# FrameMaker and RTF.
_BREAK = re.compile(
    r"</?(?:[\w:-]*(?:break|return|newline)|(?:\w+:)?(?:br|cr|p|tab|t[cdr])|div|li|[uod]l|d[td]|th"
    r"|table|h[1-6r]|section|blockquote|pre|option|lb|text:s|0x000[9ad]|:(?!fc|cs|f\b)\w+|para"
    r"|title|caption|entry|row|item)\b"
    r"|\\(?:tab|line|par|page|column|cell|row|sect|[ntr])\b",
    re.IGNORECASE,
)
# Start and end tags that are no objects, places where a line may end, and RTF without objects.
_FORMATTING_CODE = re.compile(
    r"(?:\s*<(?!(?:img|input|image|svg|object|video|audio|select|textarea|math)\b)[^<>]*(?<!/)>)+"
    r"\s*|\s*(?:<wbr\b[^<>]*>|&(?:shy|zwn?j|zerowidthspace|#173|#xad);|[\u00ad\u200b-\u200d])\s*"
    r"|\s*[{}]+\s*|(?!.*\\(?:field|pict|object|shp|footnote|~))[{}\s]*\\[a-z*-].*",
    re.IGNORECASE | re.DOTALL,
)
_REFERENCE = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]\w{1,30});")
# Codes with the white space around them.
_RUN = re.compile(r"(?<!\s)\s*[\0\1][\0\1\s]*")
# Between these a separator is a space, in scripts that are written with spaces.
_BEFORE = re.compile(rf"[{WORD}.,;:!?…)\]}}%”»]")
_BEHIND = re.compile(rf"""["'“„«•·]?[\0\1]*([{WORD}(\[{{¿¡])""")
# The fit of a side of which the unit has had no variant.
_NONE = 9


class TmxUnits:
    """The translation units of a stream of XML.

    Expat is used directly, because `xml.etree` expands entities that a file declares, of which a
    few can expand without limit.
    """

    def __init__(self, path: Path, languages: tuple[str, str], repairs: Counter[str]) -> None:
        self._path = path
        self._languages = languages
        self._wanted = [language_subtags(language) for language in languages]
        self._bases = [base_language(language) for language in languages]
        self._found = repairs
        self._block: Block = ([], [])
        self._seen: dict[str, list[tuple[int, int]]] = {}  # by language: the result of `_places`
        self._met = [False, False]
        self._root: str | None = None
        # The current unit: its sides, and how well the language of each matches.
        self._sides = [b"", b""]
        self._fit = [_NONE, _NONE]
        self._variant: list[tuple[int, int]] = []  # the sides of the current variant
        # The current segment: its text, and the elements within it that are open.
        self._parts: list[str] = []
        self._open: list[str] = []
        # The current code: its markup, its attributes, and the number of elements that are open.
        self._code: list[str] = []
        self._attributes: dict[str, str] = {}
        self._depth = 0
        parser = self._parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.EntityDeclHandler = self._refuse_entity
        parser.SkippedEntityHandler = self._refuse_entity

    def finish(self) -> None:
        """Check the end of the file, and that both languages occurred."""
        self.feed(b"", last=True)
        for language, met in zip(self._languages, self._met, strict=True):
            if not met and self._seen:
                raise MtkitError(
                    f"{self._path}: no unit has a variant in '{language}', "
                    f"only in {listed(self._seen)}"
                )

    def take(self) -> Block:
        """The units since the last call."""
        block, self._block = self._block, ([], [])
        src, tgt = (on_one_line(side, self._found) for side in block)
        return src, tgt

    def feed(self, chunk: bytes, *, last: bool = False) -> None:
        """Read the next bytes of the file."""
        if self._open:
            place = f"{self._path}, line {self._parser.CurrentLineNumber}"
            refuse_long_line(place, sum(map(len, (*self._parts, *self._code))))
        try:
            self._parser.Parse(chunk, last)
        except expat.ExpatError as error:
            reason = expat.errors.messages[error.code]
            raise MtkitError(
                f"{self._path}, line {error.lineno}, column {error.offset + 1}: "
                f"not well-formed XML: {reason}"
            ) from error
        except (ValueError, LookupError) as error:  # from the codec that the file declares
            raise MtkitError(
                f"{self._path}: its encoding is not supported ({reason_of(error)}); "
                "convert the file to UTF-8"
            ) from error

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._open:
            self._open.append(tag)
            if tag == "sub":
                self._found[SUBFLOW] += 1
            elif not self._depth and tag in _CODES:
                self._depth, self._attributes, self._code = len(self._open), attributes, []
            self._collect()
        elif tag == "seg":
            if self._variant:
                self._parts, self._open = [], [tag]
                self._collect()
        elif tag == "tuv":
            language = attributes.get("xml:lang") or attributes.get("lang") or ""
            places = self._seen.get(language)
            self._variant = self._places(language) if places is None else places
        elif tag == "tu":
            self._sides = [b"", b""]
            self._fit = [_NONE, _NONE]
        elif self._root is None:
            self._root = tag
            if tag != "tmx":
                raise MtkitError(f"{self._path}: not TMX: its first element is <{tag[:60]}>")

    def _end(self, tag: str) -> None:
        if self._open:
            self._open.pop()
            if len(self._open) < self._depth:
                self._parts.append(_meaning(tag, self._attributes, "".join(self._code)))
                self._depth = 0
            self._collect()
            if self._open:
                return
            text = _without_codes("".join(self._parts)).encode()
            for side, fit in self._variant:
                if self._fit[side] < _NONE:
                    self._found[VARIANT] += 1
                if fit < self._fit[side]:
                    self._fit[side] = fit
                    self._sides[side] = text
        elif tag == "tuv":
            self._variant = []
        elif tag == "tu":
            for texts, text in zip(self._block, self._sides, strict=True):
                texts.append(text)

    def _collect(self) -> None:
        """Collect the text that follows where it belongs: to the segment, a code, or nothing."""
        into = self._code if self._depth else self._parts
        is_text = self._open and "sub" not in self._open
        self._parser.CharacterDataHandler = into.append if is_text else None

    def _places(self, language: str) -> list[tuple[int, int]]:
        """The sides that a variant may belong to, each with a distance; the smallest is best."""
        code = language_subtags(language)
        places = []
        for side, wanted in enumerate(self._wanted):
            if code == wanted:
                places.append((side, 0))
            # English of two countries, for example, differs only in the whole code.
            elif self._bases[0] != self._bases[1] and base_language(language) == self._bases[side]:
                places.append((side, 1))
        for side, _ in places:
            self._met[side] = True
        if len(self._seen) < 1000:
            self._seen[language] = places
        return places

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise MtkitError(
            f"{self._path}, line {self._parser.CurrentLineNumber}: has the entity '{name}'; such "
            "entities are not supported, because a few can expand without limit; write the text "
            "in its place"
        )


def _meaning(tag: str, attributes: dict[str, str], markup: str) -> str:
    """What a code is in the text: `_SEPARATOR`, `_FORMATTING`, or a character."""
    kind = attributes.get("type", "")
    if _BREAK_TYPE.fullmatch(kind) or _BREAK.search(markup):
        return _SEPARATOR
    is_half = tag in ("bpt", "ept") or (tag == "it" and "pos" in attributes)
    if is_half or _FORMATTING_TYPE.fullmatch(kind) or _FORMATTING_CODE.fullmatch(markup):
        return _FORMATTING
    character = unescape(markup) if _REFERENCE.fullmatch(markup) else markup
    return _SEPARATOR if character == markup else character


def _without_codes(text: str) -> str:
    """A segment with a space, or nothing, in place of its codes and of the spaces around them."""

    def between(match: re.Match[str]) -> str:
        if match.start() == 0 or match.end() == len(text):
            return ""
        if space := match[0].replace(_SEPARATOR, "").replace(_FORMATTING, "")[:1]:
            return space
        before = _BEFORE.match(text, match.start() - 1)
        behind = _BEHIND.match(text, match.end())
        if _SEPARATOR not in match[0] or not before or not behind:
            return ""
        return "" if re.search(f"[{UNSPACED}]", before[0] + behind[1]) else " "

    return _RUN.sub(between, text)


def language_subtags(language: str) -> list[str]:
    """The subtags of a language code: en_GB and EN-gb are the same."""
    return language.strip().lower().replace("_", "-").split("-")
