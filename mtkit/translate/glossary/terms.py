"""Glossaries: which target terms the translation of a line must contain, and whether it does.

A glossary is a list of source terms with their target terms. Source terms are found in text at word
boundaries. In a script that is written without spaces, such as Chinese, a term is found anywhere.
Text is compared without invisible characters, in Unicode NFKC, with single spaces.
"""

from __future__ import annotations

import hashlib
import logging
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Self

import numpy as np

from mtkit.base.arguments import checks_arguments
from mtkit.base.copied import TAG
from mtkit.base.errors import MtkitError
from mtkit.base.invisible import visible
from mtkit.base.language_id import find_code
from mtkit.base.text import UNSPACED, read_lines
from mtkit.tokenizer import UNK_ID, Tokenizer
from mtkit.translate.search.phrases import Phrase, Spelling, WordBreaks

log = logging.getLogger(__name__)

_UNSPACED = re.compile(f"[{UNSPACED}]")
# Joiners and the soft hyphen, which stand inside of words.
_INSIDE_WORDS = "_\u00ad\u200c\u200d"
# What was found out about characters and terms is kept, but a server meets ever new ones.
_MAX_KEPT = 2**16
# A piece with the space before it, as SentencePiece writes it.
SPACE = "\u2581"
_BYTE = re.compile("<0x[0-9A-F]{2}>")


@dataclass(frozen=True, slots=True)
class Demand:
    """A target term that a translation must contain.

    `erased` gives the ids of the source, with the unknown token in the place of the source term.
    They are made when they are needed: there may be a term at every word of a long sentence.
    """

    term: str
    erased: Callable[[], list[int]]


class Glossary:
    """Source terms with their target terms.

    A source term in lower case matches text in any case; one with a capital letter matches only
    text that is written in the same way, which comes first. So `us` in a text is not the term `US`.
    Where several terms match, the longest one counts, and terms do not overlap. A term that occurs
    twice is demanded twice.

    Args:
        terms: the target term of each source term.

    Raises:
        MtkitError: if a term is empty, or if a source term has two target terms.
    """

    @checks_arguments
    def __init__(self, terms: Mapping[str, str]) -> None:
        self._exact: dict[tuple[str, ...], str] = {}
        self._any_case: dict[tuple[str, ...], str] = {}
        # The numbers of words of the terms that begin with a word.
        self._sizes: dict[str, set[int]] = {}
        for source, target in terms.items():
            self._add(source, target)

    @classmethod
    @checks_arguments
    def read(cls, path: Path, languages: tuple[str, str] = ("", "")) -> Self:
        """The glossary in a text file: on each line a source term, a tab and its target term.

        The file may be compressed. Blank lines, and lines that begin with `# `, are comments. The
        first other line may name the columns: `source` and `target`, or codes of the languages.

        Raises:
            MtkitError: naming the file and the line, for anything else, and if it is not UTF-8.
        """
        glossary, header, with_tag = cls({}), 0, list[int]()
        for number, line in enumerate(read_lines(path), start=1):
            if not line.strip() or line.startswith("# ") or line.strip() == "#":
                continue
            columns = line.split("\t")
            if not (glossary or header) and _is_header(columns, languages):
                header = number
                log.info("%s, line %d: names the columns and is not a term", path, number)
                continue
            with_tag += [number] * (TAG.search(line) is not None)
            try:
                if len(columns) != 2:
                    count = f"{len(columns)} column{'s' * (len(columns) > 1)}"
                    raise MtkitError(f"has {count}; write a source term, a tab and a target term")
                glossary._add(*columns)
            except MtkitError as error:
                raise MtkitError(f"{path}, line {number}: {error}") from None
        if not glossary:
            log.warning("%s: has no terms", path)
        if with_tag:
            advice = "in HTML and documents, give terms without tags: there a tag would be text"
            log.warning("%s, line %d: has a tag; %s", path, with_tag[0], advice)
        return glossary

    def __len__(self) -> int:
        return len(self._exact)

    @property
    def digest(self) -> str:
        """A checksum of the terms."""
        text = "\n".join(f"{source}\t{target}" for source, target in sorted(self._exact.items()))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def demanded(self, line: str) -> list[str]:
        """The target terms of the source terms in a line, in the order of the source terms."""
        return [target for target, _, _ in self._found(_words(line))]

    def demands(
        self, line: str, tokenizer: Tokenizer, *, prefix: Sequence[int] = ()
    ) -> list[Demand]:
        """As `demanded`, with the ids of the source without the term, which begin with `prefix`."""
        words = _words(line)

        def erased(start: int, end: int) -> list[int]:
            before, after = ("".join(part) for part in (words[:start], words[end:]))
            return [*prefix, *tokenizer.encode(before), UNK_ID, *tokenizer.encode(after)]

        return [
            Demand(target, partial(erased, start, end)) for target, start, end in self._found(words)
        ]

    def _found(self, words: Sequence[str]) -> Iterator[tuple[str, int, int]]:
        """The target terms, and start and end of their source terms among the words."""
        folded = [word.casefold() for word in words]
        at = 0
        while at < len(words):
            first = folded[at].lstrip(" ")
            # The longest one counts.
            for size in sorted(self._sizes.get(first, ()), reverse=True):
                end = at + size
                target = self._exact.get((words[at].lstrip(" "), *words[at + 1 : end]))
                target = target or self._any_case.get((first, *folded[at + 1 : end]))
                if target and end <= len(words):
                    yield target, at, end
                    break
            else:
                size = 1
            at += size

    def _add(self, source: str, target: str) -> None:
        key = tuple(_words(source.strip()))
        target = " ".join(target.split())
        if not key or not _words(target):
            raise MtkitError(f"the {'target' if key else 'source'} term is empty")
        known = self._exact.setdefault(key, target)
        if known != target:
            raise MtkitError(
                f"the source term {source.strip()!r} has the target term {known!r} already; "
                "keep one of them"
            )
        folded = tuple(word.casefold() for word in key)
        if all(word == word.lower() for word in key):
            self._any_case.setdefault(folded, target)
        self._sizes.setdefault(folded[0], set()).add(len(key))


def _is_header(columns: Sequence[str], languages: Sequence[str]) -> bool:
    """Whether two columns have names as in tables of pairs, or codes of the languages."""
    names = [column.strip().lower() for column in columns]
    if names in (["source", "target"], ["src", "tgt"]):
        return True
    pairs = zip(names, languages, strict=False)
    return len(names) == 2 and all(code and find_code(name, [code]) for name, code in pairs)


def missing_terms(terms: Iterable[str], text: str) -> list[int]:
    """The numbers of the terms that a translation lacks as words of their own, each so often."""
    missing = []
    free = text
    # The longest first, because a term may be a part of another.
    for number, term in sorted(enumerate(terms), key=lambda item: -len(item[1])):
        start = _place_of(term, free, text)
        if start < 0:
            missing.append(number)
        else:
            # A line break is in no term.
            end = start + len(term)
            free = free[:start] + "\n" * (end - start) + free[end:]
    return sorted(missing)


def _place_of(term: str, free: str, text: str) -> int:
    """Where a term is first in the free part of a text, between word boundaries; else -1."""
    start = free.find(term) if term else -1
    while start >= 0:
        end = start + len(term)
        before, behind = text[start - 1 : start], text[end : end + 1]
        if not (_joins(before, term[0]) or _joins(term[-1], behind)):
            break
        start = free.find(term, start + 1)
    return start


# ---------------------------------------------------------------------------------------------
# Words


@lru_cache(_MAX_KEPT)
def _is_letter(character: str) -> bool:
    """Whether it belongs to a word: letters, digits, and the marks on them."""
    return unicodedata.category(character)[0] in "LMN" or character in _INSIDE_WORDS


@lru_cache(_MAX_KEPT)
def _joins(before: str, after: str) -> bool:
    """Whether two characters, or nothing at the ends of a text, belong to one word."""
    if not before or not after or not (_is_letter(before) and _is_letter(after)):
        return False
    if unicodedata.category(after).startswith("M") or after in _INSIDE_WORDS:
        return True
    return not (_UNSPACED.match(before) or _UNSPACED.match(after))


def _is_opening(character: str) -> bool:
    """Whether a word may begin right after it: a space, a mark, a character without spaces."""
    is_mark = unicodedata.category(character) in {"Ps", "Pi", "Pf", "Pd"}
    return character in " \"'/" or is_mark or _UNSPACED.match(character) is not None


def _words(text: str) -> list[str]:
    """The words and the other characters of a text; one after a space begins with a space."""
    # Not joined one by one, which takes too long for a word of a million characters.
    characters: list[str] = []
    starts: list[int] = []
    before = ""
    for character in unicodedata.normalize("NFKC", visible(text)):
        if character.isspace() or character == "\u200b":
            before = " "
            continue
        if not _joins(before, character):
            starts.append(len(characters))
            if before == " " and len(starts) > 1:
                characters.append(" ")
        characters.append(character)
        before = character
    ends = [*starts[1:], len(characters)]
    return ["".join(characters[start:end]) for start, end in zip(starts, ends, strict=False)]


# ---------------------------------------------------------------------------------------------
# Terms as subwords


class TermEncoder:
    """Terms as phrases of subwords of the target language."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        # The form of each term in a translation, and its subwords.
        self.encoded = lru_cache(_MAX_KEPT)(self._encode)
        self.breaks = _word_breaks(tokenizer)

    def missing(self, demands: Sequence[Demand], text: str) -> list[Demand]:
        """The demands for terms that a translation does not contain; see `missing_terms`."""
        terms = [self.encoded(demand.term)[0] for demand in demands]
        return [demands[i] for i in missing_terms(terms, text)]

    def phrase(self, term: str) -> Phrase:
        """The subwords of a term after a space; nothing for a term that is nothing in text.

        Another spelling is that after an opening bracket, where a term has no space before it. In a
        script without spaces this is the usual one.
        """
        return self.encoded(term)[1]

    def _encode(self, term: str) -> tuple[str, Phrase]:
        tokenizer = self.tokenizer
        ids = tokenizer.encode(term)
        text = tokenizer.decode(ids)
        if not text or UNK_ID in ids:
            return text, Phrase(())
        is_word = _joins(text[-1], "a")
        needs_opening = _joins("a", text[0])
        spellings = [Spelling(tuple(ids))]
        bracket = tokenizer.encode("(")
        inside = tokenizer.encode(f"({term}")
        rest = tuple(inside[len(bracket) :])
        if rest and inside[: len(bracket)] == bracket and tokenizer.decode(rest) == text:
            spellings.append(Spelling(rest, needs_opening))
            if _UNSPACED.match(text[0]):
                spellings.reverse()
        return text, Phrase(tuple(spellings), is_word)


def _word_breaks(tokenizer: Tokenizer) -> WordBreaks:
    """Of each subword whether it continues a word, and whether one may begin right after it."""
    continues = np.ones(len(tokenizer), dtype=bool)
    opening = np.zeros(len(tokenizer), dtype=bool)
    for i in range(UNK_ID + 1, len(tokenizer)):
        piece = tokenizer.piece(i).replace(SPACE, " ")
        if not _BYTE.fullmatch(piece):
            continues[i] = _joins("a", piece[0])
            opening[i] = _is_opening(piece[-1])
    return WordBreaks(continues, opening)
