"""Readers of sentence pairs: files in several formats, the hub, the demo corpora, a list.

Every reader is a `Source`, which yields its pairs as blocks of bytes, any number of times and in
bounded memory. `parallel_files`, `parse_source`, `catalogue_sources` and `memory` create one. A
missing file, a folder, a pipe and missing columns are reported when the source is created, other
errors when it is read. Nothing is filtered here, not even invalid UTF-8; `passes` does that.

Only this module imports pyarrow. It is slow to import, so it is imported where it is used.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from mtkit.base.arguments import checks_arguments
from mtkit.base.errors import MtkitError, one_line, reason_of
from mtkit.base.files import shareable_name
from mtkit.base.language_id import find_code
from mtkit.base.text import (
    COMPRESSIONS,
    OLD_LINE_ENDS,
    has_old_line_ends,
    refuse_long_line,
    refuse_other_files,
    uncompressed_name,
)
from mtkit.data import Split
from mtkit.prepare.catalogue import BUILT_IN, CatalogueEntry, demo_corpus
from mtkit.prepare.hub import HUB_PREFIX, fetch, fetch_split
from mtkit.prepare.source import (
    CRLF,
    MARK,
    REPEATED,
    Block,
    FileSource,
    Reading,
    Source,
    arrow_block,
    check_file,
    check_regular,
    check_weight,
    file_sha256,
    listed,
    on_one_line,
    regrouped,
)
from mtkit.prepare.tmx import TmxUnits

log = logging.getLogger(__name__)

# Bytes read from a file at a time: a few thousand lines, which fit in the processor's cache.
_CHUNK = 1 << 18
# Rows that are decoded at a time, in formats with rows.
_BATCH_ROWS = 1000
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# What a table may call its columns, besides the language codes.
_SIDES = ("source", "target"), ("src", "tgt")


def parallel_files(
    src: Path | str, tgt: Path | str, *, weight: float = 1.0, tag: str | None = None
) -> Source:
    r"""Two files, plain or compressed, in which line n of one translates line n of the other.

    Lines end only at \n. A byte-order mark at the start and the \r of a \r\n are not part of a
    line; the last line may lack its line end. Weight and tag are as in `parse_source`.

    Raises:
        MtkitError: for a file that is missing, or that cannot be read more than once. While
            reading: for damaged compression, and if the files have different numbers of lines.
    """
    return _ParallelFiles(src, tgt).weighted(weight, tag)


def parse_source(
    text: str, *, src_lang: str, tgt_lang: str, weight: float = 1.0, tag: str | None = None
) -> Source:
    """The source that the text of an option names.

    Args:
        text: one of

            - FILE.tsv: one pair per line, source and target in two columns; or in the columns
              that the first line names: by the language codes, or as in `_SIDES`. Quotation marks
              are text.
            - FILE.tmx: one pair per translation unit. The variants in the two languages are used,
              and of these the text without inline codes. A unit without one of the languages
              has an empty side. Entities must not be declared, because they could expand a small
              file without limit.
            - FILE.parquet: one pair per row, in the columns of such names, or in the fields of
              the column "translation".
            - FILE.jsonl: one object per line, likewise.
            - PREFIX, where PREFIX.<src_lang> and PREFIX.<tgt_lang> are two text files.
            - hf:OWNER/DATASET[:CONFIG][:SPLIT], on the Hugging Face hub; the default split is
              "train", the default configuration the only one (hf:OWNER/DATASET::SPLIT).

            Files except Parquet may be compressed, as in FILE.tsv.gz or PREFIX.en.xz. The file
            ending may be in capitals.
        src_lang, tgt_lang: language codes, as spelled in the source.
        weight: the oversampling factor.
        tag: the name of the tag that its encoded sources begin with, for training data.

    Raises:
        MtkitError: if the format is unknown, or the source or a column is missing.
    """
    languages = src_lang, tgt_lang
    if text.startswith(HUB_PREFIX):
        # Before a download.
        check_weight(text, weight, tag)
        return fetch_split(text, languages).weighted(weight, tag)
    path = Path(text)
    plain = uncompressed_name(path)
    kind = plain.suffix.lower()
    if kind in _FORMATS:
        return _FORMATS[kind](path, languages).weighted(weight, tag)
    names = [f"{text}.{language}" for language in languages]
    sides = [side for name in names if (side := _plain_or_compressed(name))]
    if len(sides) == 2:
        return parallel_files(*sides, weight=weight, tag=tag)
    if os.path.isfile(path):
        raise MtkitError(
            f"{text}: the file ending is unknown; known endings: {', '.join(_FORMATS)}. "
            "For two text files, give both, or the common prefix of their names"
        )
    lacking = " nor ".join(name for name in names if _plain_or_compressed(name) is None)
    raise MtkitError(
        f"{text}: no such file, and no pair of files with that prefix: there is no {lacking}, "
        f"plain or compressed ({' '.join(COMPRESSIONS)})"
    )


def catalogue_sources(corpus: CatalogueEntry) -> dict[Split, Source]:
    """The splits of a corpus of the catalogue, downloaded if needed; raises as `hub.fetch`."""
    if corpus.source != BUILT_IN:
        log.info("fetching %s from %s", corpus.name, corpus.source)
        return fetch(corpus)
    sources: dict[Split, Source] = {}
    for name, pairs in demo_corpus().items():
        # The demo corpus is English first.
        turned = pairs if corpus.src_lang == "en" else [(tgt, src) for src, tgt in pairs]
        place = {"kind": corpus.source, "corpus": corpus.name, "split": name}
        sources[name] = _Memory(f"{corpus.name} {name}", turned, place)
    return sources


def memory(name: str, pairs: Sequence[tuple[str, str]]) -> Source:
    """A source of pairs that are in memory."""
    return _Memory(name, pairs, {"kind": "memory"})


# ---------------------------------------------------------------------------------------------
# Lines


def _lines(
    path: Path, size: int, reading: Reading, *, skip: int = 0
) -> Generator[list[bytes], None, None]:
    r"""The lines of a file without line ends, `size` at a time, without the first `skip`."""
    ready: list[bytes] = []
    begun: list[bytes] = []  # the parts of a line whose end was not read yet
    with reading.open(path) as stream:
        number = 1
        chunk = stream.read(_CHUNK)
        refuse_other_files(str(path), chunk)
        if chunk.startswith(_BYTE_ORDER_MARK):
            chunk = chunk.removeprefix(_BYTE_ORDER_MARK) or stream.read(_CHUNK)
            reading.found[MARK] += 1
        while chunk:
            lines = chunk.split(b"\n")
            begun.append(lines[0])
            refuse_long_line(f"{path}, line {number}", sum(map(len, begun)))
            if len(lines) > 1:
                number += len(lines) - 1
                lines[0] = b"".join(begun)
                begun = [lines.pop()]
                if b"\r" in chunk or lines[0].endswith(b"\r"):
                    lines = _without_returns(lines, reading.found)
                ready += lines[skip:]
                skip = max(0, skip - len(lines))
                whole = len(ready) - len(ready) % size
                for start in range(0, whole, size):
                    yield ready[start : start + size]
                del ready[:whole]
            chunk = stream.read(_CHUNK)
        last = [b"".join(begun)]
        if number == 1 and has_old_line_ends(last[0]):
            raise MtkitError(f"{path}: {OLD_LINE_ENDS}")
        if last[0] and not skip:
            ready += _without_returns(last, reading.found)
        if ready:  # while the files are open, so that `progress` is still known
            yield ready


def _without_returns(lines: list[bytes], repairs: Counter[str]) -> list[bytes]:
    returns = sum(line.endswith(b"\r") for line in lines)
    if not returns:
        return lines
    repairs[CRLF] += returns
    return [line.removesuffix(b"\r") for line in lines]


class _ParallelFiles(Source):
    unit = "line"

    @checks_arguments
    def __init__(self, src: Path | str, tgt: Path | str) -> None:
        src, tgt = Path(src), Path(tgt)
        for path in (src, tgt):
            check_file(path)
        super().__init__(f"{src} and {tgt}")
        self.files = (src, tgt)

    def _read(self, size: int, reading: Reading) -> Iterator[Block]:
        count = 0
        with ExitStack() as stack:
            # Closed if reading the other file fails.
            sides = [
                stack.enter_context(closing(_lines(path, size, reading))) for path in self.files
            ]
            for src, tgt in itertools.zip_longest(*sides, fillvalue=[]):
                if len(src) != len(tgt):
                    has = [
                        f"{path} has {count + len(lines) + sum(map(len, side))}"
                        for path, lines, side in zip(self.files, (src, tgt), sides, strict=True)
                    ]
                    raise MtkitError(
                        f"{has[0]} lines and {has[1]}; line n of one must translate line n of the "
                        "other"
                    )
                count += len(src)
                yield src, tgt

    def _place(self) -> dict[str, Any]:
        files = dict(zip(("src", "tgt"), self.files, strict=True))
        names = {side: shareable_name(path) for side, path in files.items()}
        sums = {f"{side}_sha256": file_sha256(path) for side, path in files.items()}
        return {"kind": "lines", **names, **sums}


def _plain_or_compressed(name: str) -> Path | None:
    """The one file of that name; None if there is none."""
    cases = (itertools.product(*zip(end, end.upper(), strict=True)) for end in COMPRESSIONS)
    endings = "", *dict.fromkeys("".join(letters) for of_ending in cases for letters in of_ending)
    there = [name + ending for ending in endings if os.path.lexists(name + ending)]
    if len(there) > 1:
        raise MtkitError(f"{' and '.join(there)} both exist; remove one, or name the two files")
    return Path(there[0]) if there else None


# ---------------------------------------------------------------------------------------------
# One file with both sides


@functools.lru_cache(16)
def _sides_in(names: tuple[str, ...], languages: tuple[str, str]) -> tuple[str, ...]:
    """What columns or fields call both sides: codes of any standard, or as in `_SIDES`.

    A side that is not in the names is called by its code.
    """
    codes = tuple(code if code in names else find_code(code, names) or code for code in languages)
    if codes[0] == codes[1]:
        return languages
    return next((both for both in (codes, *_SIDES) if {*both} <= {*names}), codes)


class _Tsv(FileSource):
    kind, unit = "tsv", "line"

    def __init__(self, path: Path, languages: tuple[str, str]) -> None:
        super().__init__(path, languages)
        has_header, columns, _ = self._layout()
        if has_header:
            self.unit = "row"  # so that the first pair is row 1, although it is on line 2
            log.info(
                "%s: the first line names the columns (source: %d, target: %d) and is not a pair",
                one_line(str(path)),
                *(column + 1 for column in columns),
            )

    def _read(self, size: int, reading: Reading) -> Iterator[Block]:
        has_header, (src, tgt), width = self._layout()
        number = 1 + has_header
        for lines in _lines(self._path, size, reading, skip=int(has_header)):
            for line, text in enumerate(lines, start=number):
                if (columns := text.count(b"\t") + 1) != width:
                    raise MtkitError(
                        f"{self._path}, line {line}: has {columns} column{'s' * (columns > 1)} and "
                        f"must have {width}, separated by tabs: "
                        + ("as the first line" if has_header else "the source and the target")
                    )
            number += len(lines)
            # All lines at once, which takes half the time of a list per line.
            cells = b"\t".join(lines).split(b"\t")
            yield cells[src::width], cells[tgt::width]

    def _layout(self) -> tuple[bool, list[int], int]:
        """Whether the first line is a header, the columns of both sides, and how many there are."""
        first = next(_lines(self._path, 1, Reading()), [b""])[0]
        header = [cell.strip().lower() for cell in first.decode(errors="replace").split("\t")]
        names = _sides_in(tuple(header), self._languages)
        if not {*names} <= {*header}:
            if {*names} <= {cell.strip('"') for cell in header}:
                raise MtkitError(
                    f"{self._path}: the first line has names in quotation marks, which would stay "
                    "in the text of a pair; write the file without them"
                )
            return False, [0, 1], 2
        for name in names:
            if header.count(name) > 1:
                raise MtkitError(f"{self._path}: the first line names the column '{name}' twice")
        return True, [header.index(name) for name in names], len(header)


class _JsonLines(FileSource):
    kind, unit, is_escaped = "jsonl", "line", True

    def _read(self, size: int, reading: Reading) -> Iterator[Block]:
        def counted(fields: list[tuple[str, Any]]) -> dict[str, Any]:
            record = dict(fields)
            if len(record) < len(fields):
                wanted = {*_sides_in(tuple(record), self._languages), "translation"}
                used = [name for name, _ in fields if name in wanted]
                reading.found[REPEATED] += len(used) - len({*used})
            return record

        decoder = json.JSONDecoder(object_pairs_hook=counted)

        def blocks() -> Iterator[Block]:
            number, empty = itertools.count(1), 0
            for lines in _lines(self._path, size, reading):
                rows: list[list[bytes]] = []
                for line, place in zip(lines, number, strict=False):
                    # Nothing at the end of the file, and before it an empty pair.
                    empty += 1
                    if line.strip():
                        rows += [[b"", b""]] * (empty - 1)
                        rows.append(self._pair(line, place, decoder))
                        empty = 0
                src, tgt = ([row[side] for row in rows] for side in (0, 1))
                yield on_one_line(src, reading.found), on_one_line(tgt, reading.found)

        return regrouped(blocks(), size)

    def _pair(self, line: bytes, number: int, decoder: json.JSONDecoder) -> list[bytes]:
        place = f"{self._path}, line {number}"
        try:
            # Invalid UTF-8 is passed through, as in the other formats.
            record = decoder.decode(line.decode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError) as error:
            raise MtkitError(f"{place}: not JSON ({reason_of(error)})") from error
        if isinstance(record, dict) and isinstance(record.get("translation"), dict):
            record = record["translation"]
        if not isinstance(record, dict):
            raise MtkitError(
                f"{place}: not an object, as in "
                + json.dumps(dict.fromkeys(self._languages, "…"), ensure_ascii=False)
            )
        sides = []
        for language in _sides_in(tuple(record), self._languages):
            if language not in record:
                raise MtkitError(f"{place}: no field '{language}', only {listed(record)}")
            side = record[language]
            if side is not None and not isinstance(side, str):
                raise MtkitError(f"{place}: the field '{language}' is not text")
            sides.append(_encoded(side or ""))
        return sides


class _Parquet(FileSource):
    kind = "parquet"

    def __init__(self, path: Path, languages: tuple[str, str]) -> None:
        if path.suffix.lower() != ".parquet":
            raise MtkitError(f"{path}: Parquet has its own compression; decompress the file")
        super().__init__(path, languages)
        with self._opened() as file:
            self._columns(file.schema_arrow)

    def _read(self, size: int, reading: Reading) -> Iterator[Block]:
        return regrouped(self._batches(reading), size)

    def _batches(self, reading: Reading) -> Iterator[Block]:
        from pyarrow import Table

        with self._opened() as file:
            columns = self._columns(file.schema_arrow)
            total, done = file.metadata.num_rows, 0
            for batch in file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
                done += batch.num_rows
                reading.share = done / total if total else None
                yield arrow_block(Table.from_batches([batch]).flatten(), columns, reading.found)

    def _columns(self, schema: Any) -> list[str]:
        """The columns, or the fields of the column "translation", with both sides."""
        from pyarrow import StructType

        types = {field.name: field.type for field in schema}
        if isinstance(record := types.get("translation"), StructType):
            types |= {f"translation.{field.name}": field.type for field in record}
        for prefix in ("", "translation."):
            names = (name.removeprefix(prefix) for name in types if name.startswith(prefix))
            columns = [prefix + side for side in _sides_in(tuple(names), self._languages)]
            if types.keys() >= {*columns}:
                break
        else:
            raise MtkitError(
                f"{self._path}: no columns {' and '.join(map(repr, self._languages))}, and no "
                f"column 'translation' with these, only {listed(types)}"
            )
        for column in columns:
            if not _is_text(types[column]):
                raise MtkitError(
                    f"{self._path}: the column '{column}' is not text but {types[column]}"
                )
        return columns

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        from pyarrow import ArrowException, parquet

        check_regular(self._path)
        try:
            # With a buffer, because a row group may be as large as the file.
            with parquet.ParquetFile(self._path, buffer_size=_CHUNK, pre_buffer=False) as file:
                yield file
        except (ArrowException, OSError) as error:
            raise MtkitError(f"{self._path}: cannot be read: {reason_of(error)}") from error


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


# ---------------------------------------------------------------------------------------------
# Translation memory


class _Tmx(FileSource):
    """TMX 1.4b (Localization Industry Standards Association, 2005) and earlier versions."""

    kind, unit = "tmx", "unit"

    def _read(self, size: int, reading: Reading) -> Iterator[Block]:
        return regrouped(self._units(reading), size)

    def _units(self, reading: Reading) -> Iterator[Block]:
        units = TmxUnits(self._path, self._languages, reading.found)
        with reading.open(self._path) as stream:
            chunk = stream.read(_CHUNK)
            refuse_other_files(str(self._path), chunk, is_xml=True)
            while chunk:
                units.feed(chunk)
                yield units.take()
                chunk = stream.read(_CHUNK)
            units.finish()
            yield units.take()


_FORMATS: dict[str, Callable[..., Source]] = {
    ".tsv": _Tsv,
    ".tmx": _Tmx,
    ".parquet": _Parquet,
    ".jsonl": _JsonLines,
}

# ---------------------------------------------------------------------------------------------
# Sources that are not files


class _Memory(Source):
    is_escaped = True

    def __init__(self, name: str, pairs: Sequence[tuple[str, str]], place: dict[str, Any]) -> None:
        super().__init__(name)
        self._pairs = pairs
        self._where = place

    def _read(self, size: int, reading: Reading) -> Iterator[Block]:
        for start in range(0, len(self._pairs), size):
            pairs = self._pairs[start : start + size]
            reading.share = (start + len(pairs)) / len(self._pairs)
            src, tgt = ([_encoded(pair[side]) for pair in pairs] for side in (0, 1))
            yield on_one_line(src, reading.found), on_one_line(tgt, reading.found)

    def _place(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for src, tgt in self._pairs:
            digest.update(_encoded(src) + b"\0" + _encoded(tgt) + b"\n")
        return {**self._where, "sha256": digest.hexdigest()}


def _encoded(text: str) -> bytes:
    """The text as UTF-8; a lone surrogate, which is not a character, becomes invalid UTF-8."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")
