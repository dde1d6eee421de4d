"""Reads the translation units of a TMX file as a stream."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.parsers import expat

from mtkit.base.errors import MtkitError, reason_of
from mtkit.prepare.source import VARIANT, Block, listed, on_one_line

# Elements within a segment whose text is markup of the translated format.
_CODES = {"bpt", "ept", "it", "ph", "ut"}
# The fit of a side of which the unit has had no variant.
_NONE = 9


class TmxUnits:
    """The translation units of a stream of XML.

    Expat is used directly, because `xml.etree` expands entities that a file declares, of which a
    few can expand without limit.
    """

    def __init__(self, path: Path, languages: tuple[str, str], found: Counter[str]) -> None:
        self._path = path
        self._languages = languages
        self._wanted = [language_subtags(language) for language in languages]
        self._found = found
        self._block: Block = ([], [])
        self._seen: dict[str, list[tuple[int, int]]] = {}  # by language: the result of `_places`
        self._met = [False, False]
        self._root: str | None = None
        # The current unit: its sides, and how well the language of each matches.
        self._sides = [b"", b""]
        self._fit = [_NONE, _NONE]
        self._variant: list[tuple[int, int]] = []  # the sides of the current variant
        # The current segment: its text, and whether text is kept at each depth within it.
        self._parts: list[str] = []
        self._kept: list[bool] = []
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
        if self._kept:
            self._kept.append(tag == "sub" or (self._kept[-1] and tag not in _CODES))
            self._parser.CharacterDataHandler = self._parts.append if self._kept[-1] else None
        elif tag == "seg":
            if self._variant:
                self._parts = []
                self._kept.append(True)
                self._parser.CharacterDataHandler = self._parts.append
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
        if self._kept:
            self._kept.pop()
            if self._kept:
                self._parser.CharacterDataHandler = self._parts.append if self._kept[-1] else None
                return
            self._parser.CharacterDataHandler = None
            for side, fit in self._variant:
                if self._fit[side] < _NONE:
                    self._found[VARIANT] += 1
                if fit < self._fit[side]:
                    self._fit[side] = fit
                    self._sides[side] = "".join(self._parts).encode()
        elif tag == "tuv":
            self._variant = []
        elif tag == "tu":
            for texts, text in zip(self._block, self._sides, strict=True):
                texts.append(text)

    def _places(self, language: str) -> list[tuple[int, int]]:
        """The sides that a variant may belong to, each with a distance; the smallest is best."""
        code = language_subtags(language)
        places = []
        for side, wanted in enumerate(self._wanted):
            if code == wanted:
                places.append((side, 0))
            # English of two countries, for example, differs only in the whole code.
            elif code[:1] == wanted[:1] and self._wanted[0][:1] != self._wanted[1][:1]:
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


def language_subtags(language: str) -> list[str]:
    """The subtags of a language code: en_GB and EN-gb are the same."""
    return language.strip().lower().replace("_", "-").split("-")
