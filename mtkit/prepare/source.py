"""The base class of all readers of sentence pairs.

A `Source` yields its pairs as blocks of bytes, any number of times and in bounded memory.
"""

from __future__ import annotations

import itertools
import numbers
import os
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from mtkit.base.character_references import unescape
from mtkit.base.errors import MtkitError, encodable
from mtkit.base.files import sha256_of, shareable_name
from mtkit.base.text import damage_reported, open_binary

# n source and n target sentences: unchanged bytes, without line ends.
Block = tuple[list[bytes], list[bytes]]
# With a larger weight an epoch would never end.
_LARGEST_WEIGHT = 1_000_000

# The kinds that `Reading.found` counts.
MARK = "byte-order mark"
CRLF = "CRLF line end"
BREAK = "line break within a sentence"
INVISIBLE = "pair with invisible characters (they are dropped)"
VARIANT = "further variant of a language in a TMX unit (not used)"
SUBFLOW = "text within a code of a TMX segment, such as a footnote (left out)"
ENTITY = "pair with entities such as &amp; (they are repaired)"
REPEATED = "repeated field of a JSON object (only the last is used)"


@dataclass
class Reading:
    """An iteration: counts of what was fixed so far, by kind, and its progress."""

    found: Counter[str] = field(default_factory=Counter)
    files: list[tuple[IO[bytes], int]] = field(default_factory=list)
    share: float | None = None

    @property
    def progress(self) -> float | None:
        """Share of the input read so far, of files before decompression; None if unknown."""
        if not self.files:
            return self.share
        size = sum(size for _, size in self.files)
        done = sum(size if file.closed else file.tell() for file, size in self.files)
        return min(1.0, done / size) if size else None

    @contextmanager
    def open(self, path: Path) -> Iterator[IO[bytes]]:
        """Open a file, decompressed; records its position and turns errors into `MtkitError`."""
        check_regular(path)
        with damage_reported(path), path.open("rb", buffering=0) as raw:
            self.files.append((raw, path.stat().st_size))
            with open_binary(path, raw=raw) as stream:
                yield stream


def check_weight(name: str, weight: float, tag: str | None) -> None:
    """Refuse what cannot be the weight of the source `name`, and the name of its tag."""
    is_number = isinstance(weight, numbers.Real) and not isinstance(weight, bool)
    if not is_number or not 0 < weight <= _LARGEST_WEIGHT:
        raise MtkitError(
            f"{name}: the weight must be a number above 0 and at most {_LARGEST_WEIGHT:,}, "
            f"not {weight!r}"
        )
    name_of_tag = r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}"
    if tag is not None and not (isinstance(tag, str) and re.fullmatch(name_of_tag, tag)):
        raise MtkitError(
            f"{name}: {tag!r} cannot be the name of a tag; use at most 50 letters, digits, "
            "hyphens and underscores of ASCII, a letter or digit first"
        )


class Source(ABC):
    """Sentence pairs from one place, which can be read any number of times.

    Attributes:
        name: the name in messages, such as "texts/train.en and texts/train.de".
        unit: what its pairs are numbered by, from 1: "line", "unit" (of TMX), "tree" or "row".
        weight: the oversampling factor.
        files: those that it reads on this machine.
        is_escaped: whether its texts can have half of a character, as from an escape of JSON.
        tag: the name of the tag that its encoded sources begin with; None for no tag.
        reading: the latest iteration.
    """

    unit = "row"
    is_escaped = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.weight = 1.0
        self.files: tuple[Path, ...] = ()
        self.tag: str | None = None
        self.reading = Reading()

    def blocks(self, size: int) -> Generator[Block, None, None]:
        """The pairs from the beginning, in order: blocks of `size` pairs, the last one smaller."""
        self.reading = Reading()
        yield from self._read(size, self.reading)

    def weighted(self, weight: float, tag: str | None = None) -> Self:
        """Set the weight and the tag; returns the source. Raises as `check_weight`."""
        check_weight(self.name, weight, tag)
        # A number of NumPy cannot be written as JSON.
        self.weight, self.tag = weight if isinstance(weight, int) else float(weight), tag
        return self

    def facts(self) -> dict[str, Any]:
        """The entry in the manifest, as JSON: kind, location, SHA-256, weight, tag if any."""
        place = {
            key: encodable(value) if isinstance(value, str) else value
            for key, value in self._place().items()
        }
        tag = {} if self.tag is None else {"tag": self.tag}
        return {**place, "weight": self.weight, **tag}

    @property
    def label(self) -> str:
        """The name in files that may be passed on, without the folders of this machine."""
        return " and ".join(map(shareable_name, self.files)) or self.name

    @abstractmethod
    def _read(self, size: int, reading: Reading) -> Iterator[Block]:
        """The blocks that `blocks` yields."""

    @abstractmethod
    def _place(self) -> dict[str, Any]:
        """The facts without weight and tag."""


class FileSource(Source):
    """A file that holds both sides; `MtkitError` if it is missing, or cannot be read again."""

    kind: str

    def __init__(self, path: Path, languages: tuple[str, str] = ("", "")) -> None:
        check_file(path)
        super().__init__(str(path))
        self.files = (path,)
        self._path = path
        self._languages = languages

    def _place(self) -> dict[str, Any]:
        sha256 = file_sha256(self._path)
        return {"kind": self.kind, "path": shareable_name(self._path), "sha256": sha256}


def check_regular(path: Path) -> None:
    """Refuse anything but a regular file, because it could not be read again."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise MtkitError(f"{path}: not a regular file, and it must be read more than once")


def check_file(path: Path) -> None:
    """Refuse a file that is missing, or that cannot be read again."""
    # Before opening: a pipe would block.
    check_regular(path)
    open_binary(path).close()


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file that can be read again."""
    check_regular(path)
    return sha256_of(path)


# ---------------------------------------------------------------------------------------------
# Shared by several readers


def regrouped(blocks: Iterable[Block], size: int) -> Iterator[Block]:
    """The same pairs in blocks of `size`."""
    src: list[bytes] = []
    tgt: list[bytes] = []
    for block in blocks:
        src += block[0]
        tgt += block[1]
        whole = len(src) - len(src) % size
        for start in range(0, whole, size):
            yield src[start : start + size], tgt[start : start + size]
        del src[:whole], tgt[:whole]
    if src:
        yield src, tgt


def on_one_line(sentences: list[bytes], repairs: Counter[str]) -> list[bytes]:
    """The sentences with line breaks replaced by spaces, so that each is one line of text."""
    together = b"".join(sentences)  # one search shows whether there is anything to replace
    if b"\n" not in together and b"\r" not in together:
        return sentences
    fixed = [re.sub(rb"[\r\n]+", b" ", sentence) for sentence in sentences]
    repairs[BREAK] += sum(map(bytes.__ne__, sentences, fixed))
    return fixed


def arrow_block(table: Any, columns: Sequence[str], repairs: Counter[str]) -> Block:
    """Two text columns of an Arrow table without records; null becomes empty."""

    def side(name: str) -> list[bytes]:
        column = table.column(name)
        if hasattr(column.type, "value_type"):  # a dictionary
            column = column.cast(column.type.value_type)
        # The conversion to binary is free: the bytes are the same.
        values: list[bytes] = column.cast("large_binary").fill_null(b"").to_pylist()
        return on_one_line(values, repairs)

    return side(columns[0]), side(columns[1])


def listed(names: Iterable[str]) -> str:
    """Some names, cut to a readable length."""
    first = list(itertools.islice(names, 21))
    cut = [name if len(name) <= 60 else f"{name[:60]}…" for name in first[:20]]
    return ", ".join(cut) + (" …" if len(first) > 20 else "") or "none"


# ---------------------------------------------------------------------------------------------
# Entities


_ENTITY = re.compile(rb"&(?:[A-Za-z][A-Za-z0-9]{1,9}|#\d{1,7}|#[xX][\da-fA-F]{1,6});")
_TAG = re.compile(rb"<[/!]?[A-Za-z]")
# Those of tags stay, because a text about tags needs them. Lines must stay lines.
_UNREPAIRED = frozenset("<>\ufffd")
_UNREPAIRED_CATEGORIES = frozenset(("Cc", "Cn", "Co", "Zl", "Zp"))


def repaired(pairs: Block, found: Counter[str]) -> Block:
    """The pairs with the characters of entities; counts the pairs that are changed.

    A pair with a tag is markup, in which they are right, as are those in an address.
    """
    src, tgt = pairs
    changed: list[tuple[int, bytes, bytes]] = []
    for index, (source, target) in enumerate(zip(src, tgt, strict=True)):
        if (b"&" in source or b"&" in target) and not (_TAG.search(source) or _TAG.search(target)):
            sides = _repaired(source), _repaired(target)
            if sides != (source, target):
                changed.append((index, *sides))
    if not changed:
        return pairs
    found[ENTITY] += len(changed)
    src, tgt = src.copy(), tgt.copy()
    for index, source, target in changed:
        src[index], tgt[index] = source, target
    return src, tgt


def _repaired(line: bytes) -> bytes:
    return b" ".join(
        word if b"://" in word else _ENTITY.sub(_character, word) for word in line.split(b" ")
    )


def _character(match: re.Match[bytes]) -> bytes:
    text = unescape(match[0].decode())
    # An unknown name stays as it is.
    if any(
        sign in _UNREPAIRED or unicodedata.category(sign) in _UNREPAIRED_CATEGORIES for sign in text
    ):
        return match[0]
    return text.encode()
