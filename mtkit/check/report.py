"""Checks many pairs block by block, and sorts the findings outside of memory.

A block can be checked in any process. What is printed of a block is made there too.
"""

from __future__ import annotations

import errno
import itertools
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mtkit.base.errors import column, in_words
from mtkit.base.files import json_text, write_whole
from mtkit.check.checker import Checker, Decoded
from mtkit.check.rules.findings import KINDS, Finding

HEADING = "kind\tseverity\treason\tsource\ttranslation\n"
# Characters before a row that it is sorted by: how mild it is, and the number of the pair.
_KEY = 22


@dataclass
class Counts:
    """How many pairs were checked and marked, by kind, and what the rules do not report."""

    pairs: int = 0
    marked: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)
    silences: tuple[str, ...] = ()

    def add(self, other: Counts) -> None:
        """Add the counts of other pairs."""
        self.pairs += other.pairs
        self.marked += other.marked
        self.by_kind += other.by_kind

    def add_pair(self, findings: Sequence[Finding]) -> None:
        """Count a pair with what was found in it."""
        self.pairs += 1
        if findings:
            self.marked += 1
            self.by_kind.update({finding.kind for finding in findings})

    def in_order(self) -> list[tuple[str, int]]:
        """The kinds that were found, in the order of `KINDS`, with the pairs that have them."""
        return [(kind, self.by_kind[kind]) for kind in KINDS if self.by_kind[kind]]

    def sentence(self, unit: str = "lines") -> str:
        """The counts in one line, for a note; `unit` is what each pair is."""
        if not self.pairs:
            return f"there is nothing to check: 0 {unit}"
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in self.in_order())
        of_pairs = in_words(self.pairs, unit[:-1])
        verb = "is" if 1 in (self.marked, self.pairs) else "are"
        marked = f"{self.marked:,} of {of_pairs} {verb} marked ({self.marked / self.pairs:.1%})"
        return f"{marked}; {unit} by kind: {kinds}" if kinds else marked


@dataclass
class BlockReport:
    """What was found in a block of pairs: counts, rows for `FindingTable`, and lines of JSON."""

    counts: Counts
    rows: list[str]
    objects: str
    confidences: list[float | None]


def check_block(
    checker: Checker,
    pairs: Sequence[tuple[str, str]],
    *,
    numbers: Iterable[int],
    decoded: Sequence[Decoded] | None = None,
    place: str = "",
    first: int = 0,
    with_rows: bool = False,
    with_objects: bool = False,
) -> BlockReport:
    """Check the pairs of a block; `numbers` are those of their lines in the file `place`.

    `first` is the number of the first pair among all, by which equal findings are sorted.
    """
    counts = Counts()
    rows: list[str] = []
    objects: list[str] = []
    confidences: list[float | None] = []
    of_model: Sequence[Decoded | None] = [None] * len(pairs) if decoded is None else decoded
    lines = zip(numbers, pairs, of_model, strict=True)
    for order, (number, pair, known) in enumerate(lines, first):
        checked = checker.check(*pair, known)
        if with_objects:
            objects.append(json_text({"line": number, **checked.as_dict()}) + "\n")
        counts.add_pair(checked.findings)
        confidences.append(checked.confidence)
        if with_rows:
            rows += sortable_rows(checked.findings, pair, number=number, place=place, order=order)
    return BlockReport(counts, rows, "".join(objects), confidences)


def sortable_rows(
    findings: Iterable[Finding],
    pair: tuple[str, str],
    *,
    number: int | str,
    place: str = "",
    order: int | None = None,
) -> Iterator[str]:
    """The rows of a pair for `FindingTable`, in which the worst come first.

    `number` is that of its line or, in a document, its place; `order` its number among all pairs.
    """
    for finding in findings:
        key = f"{1 - finding.severity:.4f} {number if order is None else order:015d}"
        fields = (number, finding.kind, f"{finding.severity:.2f}", finding.reason, *pair)
        names = [place] if place else []
        yield key + "\t".join([*map(column, names), *(column(str(part)) for part in fields)])


class FindingTable:
    """Rows of findings for a file, worst first, in bounded memory.

    SQLite sorts them, and keeps what does not fit in memory in a temporary file without a name.
    """

    def __init__(self, path: Path, *, has_places: bool = False, line: str = "line") -> None:
        self._path = path
        self._heading = ("file\t" if has_places else "") + f"{line}\t{HEADING}"
        self._database = sqlite3.connect("")
        self._database.execute("CREATE TABLE findings (row TEXT)")

    def __enter__(self) -> FindingTable:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add(self, rows: Iterable[str]) -> None:
        """Add rows, as from `sortable_rows`; raises OSError if the disk is full."""
        with self._disk_errors():
            self._database.executemany("INSERT INTO findings VALUES (?)", ((row,) for row in rows))

    def write(self) -> None:
        """Write the file when all rows are there; raises as `write_whole`."""
        with self._disk_errors():
            rows = self._database.execute("SELECT row FROM findings ORDER BY row")
            write_whole(
                self._path, itertools.chain([self._heading], (f"{row[_KEY:]}\n" for (row,) in rows))
            )

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Report errors of SQLite's temporary file as the system reports those of a file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            is_full = error.sqlite_errorcode == sqlite3.SQLITE_FULL
            message = f"{error}; SQLITE_TMPDIR names the folder of its temporary file"
            number = errno.ENOSPC if is_full else errno.EIO
            raise OSError(number, message, str(self._path)) from error
