"""A side of a pair: its words, and the parts of it that a translation copies.

These are placeholders, tags and entities, and addresses.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from mtkit.base.character_references import unescape
from mtkit.base.copied import TAG, copied, may_have_copied_parts
from mtkit.base.text import LETTER_MARKS, UNSPACED, UNSPACED_LANGUAGES, WORD, base_language
from mtkit.check.rules import limits

# Elements of HTML inside of text that are empty, with a slash at the end or without.
_EMPTY = {"br", "hr", "img", "input", "wbr"}
ENTITY = re.compile(r"&(?:[A-Za-z]\w{1,9}|#\d{1,7}|#[xX][\da-fA-F]{1,6});")
# Any other character may also be written without an entity.
_OF_MARKUP = {"<": "&lt;", ">": "&gt;"}
# Of Markdown: what opens and closes with the same signs, and a link.
_PAIRED_MARKS, _LINK = ("**", "~~", "`"), "]("
# Codes of XLIFF, which their number tells apart.
_NUMBERED = re.compile(r"\s(?:id|rid)\s*=\s*[\"']([^\"']*)")
_CODES = {"g", "x", "bx", "ex", "bpt", "ept", "ph", "pc", "sc", "ec"}
_ACCENT = re.compile("[\u0300-\u036f]")
# The beginning of a placeholder of printf without a position.
_NO_POSITION = re.compile(r"^%(?!\d+\$|[({%]|L?\d%?$)")
# The argument of a message with plurals or cases, and not its texts.
_ARGUMENT = re.compile(r"(\{[\w.-]+,(?:plural|select|selectordinal)),.*")
_CHARACTER, _WORD = re.compile(r"\w"), re.compile(f"[{WORD}]+")
_LETTERS = rf"[^\W_{UNSPACED}]"
_KEY_WORD = re.compile(rf"[{UNSPACED}]|{_LETTERS}+(?:[{LETTER_MARKS}]+{_LETTERS}*)*")


def is_unspaced(language: str) -> bool:
    """Whether the words of a language are its characters, because it has no spaces."""
    return base_language(language) in UNSPACED_LANGUAGES


def word_pattern(language: str) -> re.Pattern[str]:
    """A pattern of a word of a language."""
    return _CHARACTER if is_unspaced(language) else _WORD


def words_of(text: str, language: str) -> list[str]:
    """The words of a text, in lower case."""
    return word_pattern(language).findall(text.lower())


@dataclass(frozen=True)
class Text:
    """A side of a pair, without invisible characters; the language matters to `words` alone."""

    raw: str
    language: str = ""

    @cached_property
    def plain(self) -> str:
        """As long as the text, with spaces in place of the parts that a translation copies."""
        text = self.raw
        for pattern in (copied(), TAG, ENTITY) if may_have_copied_parts(text) else ():
            text = pattern.sub(lambda match: " " * len(match[0]), text)
        return text

    @cached_property
    def words(self) -> list[str]:
        """The words of the plain text, in lower case."""
        return words_of(self.plain, self.language)

    @cached_property
    def keys(self) -> list[str]:
        """The keys of the lexicon for its words, whatever the language is."""
        return [word[: limits.KEY_LETTERS].lower() for word in _KEY_WORD.findall(self.plain)]

    def spans(self) -> list[tuple[int, int]]:
        """The characters of each word, in the order of `keys`."""
        return [match.span() for match in _KEY_WORD.finditer(self.plain)]


def placeholders(text: str) -> Counter[str]:
    """The placeholders of programs, without spaces and the texts of plurals and cases."""
    parts = (match[0] for match in copied().finditer(text) if match.lastgroup == "placeholders")
    return Counter(_ARGUMENT.sub(r"\1}", re.sub(r"\s", "", part)) for part in parts)


def are_the_same_by_position(source: str, translation: str) -> bool:
    """Whether the placeholders are the same if the first `%s` is `%1$s`, and so on."""

    def numbered(text: str) -> str:
        counted = itertools.count(1)
        return copied().sub(
            lambda match: _NO_POSITION.sub(lambda _: f"%{next(counted)}$", match[0]), text
        )

    return placeholders(numbered(source)) == placeholders(numbered(translation))


def markup(text: str) -> Counter[str]:
    """The tags without their attributes, and the entities of `<` and `>`."""
    tags = Counter(f"<{end}{name}{empty}>" for end, name, empty in _tags(text))
    tags.update([_LINK] * text.count(_LINK))
    signs = (unescape(match[0]) for match in ENTITY.finditer(text))
    tags.update(_OF_MARKUP[sign] for sign in signs if sign in _OF_MARKUP)
    return tags


def not_closed(source: str, translation: str) -> list[str]:
    """The signs of Markdown that both sides have, but only one of them an even number of times."""
    counts = ((mark, source.count(mark), translation.count(mark)) for mark in _PAIRED_MARKS)
    return [mark for mark, ours, theirs in counts if ours and theirs and (ours + theirs) % 2]


def has_markdown(text: str) -> bool:
    """Whether a text has signs of Markdown that are compared."""
    return any(mark in text for mark in (*_PAIRED_MARKS, _LINK))


def _tags(text: str) -> Iterator[tuple[str, str, str]]:
    """The slash of an end tag, the name and the slash of an empty element, of each tag."""
    for end, written, rest in TAG.findall(text):
        name, before = written.lower(), rest[-2:-1]
        number = _NUMBERED.search(rest) if name in _CODES else None
        name += f' id="{number[1]}"' if number else ""
        # The value of an attribute without quotation marks may end with a slash.
        has_slash = rest.endswith("/") and (not before or before in "\"'" or before.isspace())
        yield end, name, "/" if has_slash or (name in _EMPTY and not end) else ""


def addresses(text: str) -> Counter[str]:
    """URLs, mail addresses, hosts and files."""
    # Not those without a semicolon, as in "?x=1&copy=2".
    urls = (
        ENTITY.sub(lambda entity: unescape(entity[0]), match[0])
        for match in copied().finditer(text)
        if match.lastgroup == "addresses"
    )
    # Some write the name of a site with the accents of its words.
    plain = (_ACCENT.sub("", unicodedata.normalize("NFD", url.rstrip("/"))) for url in urls)
    return Counter(map(str.casefold, plain))


def in_any_language(urls: list[str], side: Text) -> list[str]:
    """Addresses without the code of the language of their side, as in `a.org/en-us/x`."""
    base = base_language(side.language)
    codes = {base}.union(*(re.findall("[a-z]{2,3}", url) for url in urls))
    code = "|".join(re.escape(code) for code in codes if base_language(code) == base)
    part = re.compile(rf"(?<![^./_=&?@#-])(?:{code})(?:[-_][a-z]{{2}})?(?![^./_=&?@#-])")
    return sorted(part.sub("*", url) for url in urls)


# By the kind of finding.
COPIED_PARTS: dict[str, Callable[[str], Counter[str]]] = {
    "addresses": addresses,
    "markup": markup,
    "placeholders": placeholders,
}


def is_balanced(text: str) -> bool:
    """Whether each tag that is opened is closed inside the one before it."""
    opened: list[str] = []
    for is_end, name, is_empty in _tags(text):
        if is_empty or name in _EMPTY:
            continue
        if not is_end:
            opened.append(name)
        elif not opened or opened.pop() != name:
            return False
    return not opened
