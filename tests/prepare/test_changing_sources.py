"""Sources that change while they are prepared: one line, and nothing of it stays.

A change comes at an exact place of the reading, however fast the machine is: when a source is
opened for the n-th time, or between two of its blocks.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from conftest import number_pairs, slow
from pyarrow import parquet
from support.errors import message_of
from support.runs import contents

from mtkit.base.errors import MtkitError
from mtkit.prepare import hub, prepare_files
from mtkit.prepare.readers import memory, parse_source
from mtkit.prepare.source import Block, Source

Pair = tuple[str, str]

SIDES = ("en", "de")
# The first reads and checks, the second counts words, the third encodes.
PASSES = (1, 2, 3)


def turned(pairs: list[Pair]) -> list[Pair]:
    """As many pairs of the same sentences, none of them right."""
    tgt = [pair[1] for pair in reversed(pairs)]
    return [(pair[0], other) for pair, other in zip(pairs, tgt, strict=True)]


def louder(pairs: list[Pair]) -> list[Pair]:
    """Other text with line ends at the same places, so that no line is cut in two."""
    return [(src, tgt.upper()) for src, tgt in pairs]


def write_lines(folder: Path, pairs: list[Pair], *, is_packed: bool = False) -> None:
    for side, language in enumerate(SIDES):
        text = "".join(f"{pair[side]}\n" for pair in pairs).encode()
        file = folder / f"a.{language}{'.gz' if is_packed else ''}"
        file.write_bytes(gzip.compress(text, mtime=0) if is_packed else text)


def write_tsv(folder: Path, pairs: list[Pair]) -> None:
    text = "".join(f"{src}\t{tgt}\n" for src, tgt in pairs)
    (folder / "a.tsv").write_text(text, encoding="utf-8")


def write_jsonl(folder: Path, pairs: list[Pair]) -> None:
    rows = (json.dumps(dict(zip(SIDES, pair, strict=True))) + "\n" for pair in pairs)
    (folder / "a.jsonl").write_text("".join(rows), encoding="utf-8")


def write_tmx(folder: Path, pairs: list[Pair]) -> None:
    units = (
        f'<tu><tuv xml:lang="en"><seg>{src}</seg></tuv>'
        f'<tuv xml:lang="de"><seg>{tgt}</seg></tuv></tu>'
        for src, tgt in pairs
    )
    (folder / "a.tmx").write_text(f"<tmx><body>{''.join(units)}</body></tmx>", encoding="utf-8")


def write_parquet(folder: Path, pairs: list[Pair]) -> None:
    rows = [dict(zip(SIDES, pair, strict=True)) for pair in pairs]
    parquet.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")


FILES: dict[str, tuple[str, Callable[[Path, list[Pair]], None]]] = {
    "lines": ("a", write_lines),
    "compressed": ("a", functools.partial(write_lines, is_packed=True)),
    "tsv": ("a.tsv", write_tsv),
    "jsonl": ("a.jsonl", write_jsonl),
    "tmx": ("a.tmx", write_tmx),
    "parquet": ("a.parquet", write_parquet),
}


class Rows:
    """What the hub's library gives, as far as it is asked."""

    def __init__(self, pairs: list[Pair]) -> None:
        self.pairs = pairs

    @property
    def num_rows(self) -> int:
        return len(self.pairs)

    def with_format(self, _: str) -> Rows:
        return self

    def iter(self, batch_size: int) -> Iterator[Any]:
        rows = [{"src": src, "tgt": tgt} for src, tgt in self.pairs]
        for start in range(0, len(rows), batch_size):
            yield pa.Table.from_pylist(rows[start : start + batch_size])


def place_in(folder: Path, pairs: list[Pair], kind: str) -> tuple[Source, Callable[..., None]]:
    """A source of a kind, and what writes other pairs in their place."""
    if kind == "memory":
        here = list(pairs)
        return memory("some", here), lambda new: here.__setitem__(slice(None), new)
    if kind == "hub":
        rows = Rows(pairs)
        source = hub._HubSplit("some/where train", rows, ("src", "tgt"), {})
        return source, lambda new: setattr(rows, "pairs", new)
    name, write = FILES[kind]
    write(folder, pairs)

    def rewrite(new: list[Pair], *, by_rename: bool = False) -> None:
        if not by_rename:
            write(folder, new)
            return
        beside = folder / "beside"
        beside.mkdir()
        write(beside, new)
        for file in list(beside.iterdir()):
            os.replace(file, folder / file.name)
        beside.rmdir()

    return parse_source(str(folder / name), src_lang="en", tgt_lang="de"), rewrite


def change_at(
    patch: pytest.MonkeyPatch, source: Source, reading: int, block: int, change: Callable[[], None]
) -> None:
    """Change a source when it is read for the `reading`-th time and has given so many blocks."""
    original, readings = Source.blocks, Counter[int]()

    def blocks(self: Source, size: int) -> Iterator[Block]:
        readings[id(self)] += 1
        now = self is source and readings[id(self)] == reading
        if now and block == 0:
            change()
        for number, part in enumerate(original(self, size), start=1):
            yield part
            if now and number == block:
                change()

    patch.setattr(Source, "blocks", blocks)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch):
    """Several blocks and parts, and files that are not read ahead."""
    monkeypatch.setattr("mtkit.prepare.passes.BLOCK", 20)
    monkeypatch.setattr("mtkit.prepare.passes.PART", 2)
    monkeypatch.setattr("mtkit.prepare.readers._CHUNK", 64)


def prepare(folder: Path, train: Source, **changes: Any) -> None:
    held_out = memory("held out", number_pairs(20, seed=2))
    arguments: dict[str, Any] = {"valid": held_out, "vocab_size": 300, "workers": 1}
    prepare_files(
        "tiny", folder / "out", src_lang="en", tgt_lang="de", train=[train], **arguments | changes
    )


def refused(folder: Path, train: Source, **changes: Any) -> str:
    """The one line with which preparing is refused; nothing is left."""
    error = message_of(prepare, folder, train, **changes)
    assert [path.name for path in folder.iterdir() if "out" in path.name] == []
    return error


def changed(source: Source) -> str:
    return f"{source.name}: changed while it was being prepared; run the same command again"


@pytest.mark.parametrize(
    ("kind", "reading", "block", "by_rename"),
    [
        *((kind, reading, 0, False) for kind in (*FILES, "memory") for reading in PASSES),
        # Of the hub the manifest has the commit, whatever is in it.
        *(("hub", reading, 0, False) for reading in PASSES[1:]),
        *(("lines", reading, 0, True) for reading in PASSES),
        *(slow(kind, reading, 0, True) for kind in [*FILES][1:] for reading in PASSES),
        # In the middle of a pass.
        *(("lines", reading, 5, False) for reading in PASSES),
    ],
)
def test_a_source_of_any_kind_that_changes_before_or_in_a_pass_is_refused(
    kind, reading, block, by_rename, tmp_path, monkeypatch
):
    pairs = number_pairs(200, seed=1)
    source, rewrite = place_in(tmp_path, pairs, kind)
    new = louder(pairs) if block else turned(pairs)
    how = {"by_rename": True} if by_rename else {}
    change_at(monkeypatch, source, reading, block, lambda: rewrite(new, **how))
    assert refused(tmp_path, source) == changed(source)


def test_a_file_that_is_replaced_while_it_is_read_for_the_last_time_is_read_to_its_end(
    tmp_path, monkeypatch
):
    pairs = number_pairs(200, seed=1)
    source, rewrite = place_in(tmp_path, pairs, "lines")
    prepare(tmp_path, source)
    (tmp_path / "out").rename(tmp_path / "undisturbed")
    change_at(monkeypatch, source, 3, 5, lambda: rewrite(turned(pairs), by_rename=True))
    prepare(tmp_path, source)
    assert contents(tmp_path / "out") == contents(tmp_path / "undisturbed")


@pytest.mark.parametrize("reading", PASSES[1:])
@pytest.mark.parametrize("change", ["longer", "shorter", "one side longer", "not UTF-8", "gone"])
def test_any_change_of_a_file_is_reported_as_a_change(change, reading, tmp_path, monkeypatch):
    pairs = number_pairs(200, seed=1)
    source, rewrite = place_in(tmp_path, pairs, "lines")
    tgt = tmp_path / "a.de"
    changes: dict[str, Callable[[], object]] = {
        "longer": lambda: rewrite([*pairs, ("one", "eins")]),
        "shorter": lambda: rewrite(pairs[:180]),
        "one side longer": lambda: tgt.write_bytes(tgt.read_bytes() + b"eins\n"),
        "not UTF-8": lambda: tgt.write_bytes(
            tgt.read_bytes().replace(b"eins", b"\xff\xff\xff\xff")
        ),
        "gone": tgt.unlink,
    }
    change_at(monkeypatch, source, reading, 0, lambda: (changes[change](), None)[1])
    assert refused(tmp_path, source).startswith(changed(source))


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("by_rename", [False, True])
@pytest.mark.parametrize("block", [0, 1])
def test_the_text_of_the_other_splits_is_that_of_the_checksums(
    split, by_rename, block, tmp_path, monkeypatch
):
    folder = tmp_path / split
    folder.mkdir()
    held_out = number_pairs(60, seed=3)
    source, rewrite = place_in(folder, held_out, "lines")
    new = louder(held_out)
    change_at(monkeypatch, source, 1, block, lambda: rewrite(new, by_rename=by_rename))
    train = memory("train", number_pairs(200, seed=1))
    assert refused(tmp_path, train, **{split: source}) == changed(source)


def test_nothing_that_was_read_of_changed_files_is_taken_up_when_they_are_as_before(
    tmp_path, monkeypatch
):
    pairs = number_pairs(200, seed=1)
    source, rewrite = place_in(tmp_path, pairs, "lines")
    prepare(tmp_path, source)
    (tmp_path / "out").rename(tmp_path / "undisturbed")

    for reading in PASSES:
        for block in range(1, 10):
            # Changed, and stopped a block later: before the end of the pass, which would find it.
            with monkeypatch.context() as patch:
                change_at(patch, source, reading, block + 1, Mock(side_effect=KeyboardInterrupt))
                change_at(patch, source, reading, block, lambda: rewrite(louder(pairs)))
                with pytest.raises((KeyboardInterrupt, MtkitError)):
                    prepare(tmp_path, source)
            rewrite(pairs)
            prepare(tmp_path, source)
            assert contents(tmp_path / "out") == contents(tmp_path / "undisturbed")
            shutil.rmtree(tmp_path / "out")


@pytest.mark.parametrize("kind", ["lines", "tsv", "parquet"])
@pytest.mark.parametrize(("reading", "block"), [(1, 0), (1, 1), (2, 0), (3, 0)])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(
    kind, reading, block, tmp_path, monkeypatch
):
    source, _ = place_in(tmp_path, number_pairs(200, seed=1), kind)
    (file, *_) = sorted(tmp_path.iterdir())

    def to_pipe() -> None:
        file.unlink()
        os.mkfifo(file)

    change_at(monkeypatch, source, reading, block, to_pipe)
    assert "not a regular file" in refused(tmp_path, source)
