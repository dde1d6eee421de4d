"""Sentence pairs of files and lists: what was written comes back, in step, whatever the format."""

import bz2
import gzip
import itertools
import json
import lzma
import os
import re
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from support.errors import message_of
from support.hostile import INVALID, hostile_lines

from mtkit.base.files import sha256_of
from mtkit.base.text import read_lines, zstd
from mtkit.prepare.readers import memory, parallel_files, parse_source
from mtkit.prepare.source import Source

BytePair = tuple[bytes, bytes]

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    # With a checksum, as the command zstd writes it.
    ".zst": lambda raw: zstd.compress(raw, options={zstd.CompressionParameter.checksum_flag: 1}),
}


def pairs_of(source: Source, size: int = 7) -> list[BytePair]:
    """All pairs; on the way, that the blocks are as large as they should be."""
    blocks = list(source.blocks(size))
    for block in blocks:
        assert len(block[0]) == len(block[1])
    assert all(len(src) == size for src, _ in blocks[:-1])
    assert all(0 < len(src) <= size for src, _ in blocks[-1:])
    return [pair for block in blocks for pair in zip(*block, strict=True)]


def source_of(path: Path | str) -> Source:
    return parse_source(str(path), src_lang="en", tgt_lang="de")


def read_error(path: Path | str) -> str:
    return message_of(lambda: pairs_of(source_of(path)))


def write_lines(path: Path, lines: Iterable[bytes], *, end: bytes = b"\n") -> Path:
    path.write_bytes(b"".join(line + end for line in lines))
    return path


def two_files(folder: Path, pairs: Iterable[BytePair]) -> Source:
    sides = list(zip(*pairs, strict=True)) or [(), ()]
    return parallel_files(
        write_lines(folder / "a.en", sides[0]), write_lines(folder / "a.de", sides[1])
    )


# No line ends, which a sentence does not have; the \r of a \r\n is none of the text.
# And no beginning of UTF-16.
SENTENCES = st.binary(max_size=30).map(
    lambda raw: re.sub(rb"\xff\xfe|\xfe\xff|\n", b"", raw).rstrip(b"\r")
)
TEXTS = st.text(max_size=20).map(lambda text: re.sub(r"[\r\n]", "", text))
# What XML can hold: no control characters but the tab.
XML_TEXTS = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"), max_size=20
)
SIZES = st.integers(1, 5)


@given(st.lists(st.tuples(SENTENCES, SENTENCES), max_size=12), SIZES)
def test_lines_come_back_byte_for_byte(tmp_path_factory, pairs, size):
    pairs = [tuple(side.removeprefix(b"\xef\xbb\xbf") for side in pair) for pair in pairs]
    source = two_files(tmp_path_factory.mktemp("lines"), pairs)
    assert pairs_of(source, size) == pairs
    assert pairs_of(source, size) == pairs  # and again
    assert source.reading.found == {}


@given(st.lists(st.tuples(SENTENCES, SENTENCES), max_size=12), SIZES)
def test_columns_come_back_byte_for_byte(tmp_path_factory, pairs, size):
    pairs = [(src.replace(b"\t", b'"'), tgt.replace(b"\t", b"")) for src, tgt in pairs]
    pairs = [(b".", b"."), *((src, tgt.rstrip(b"\r")) for src, tgt in pairs)]
    file = tmp_path_factory.mktemp("tsv") / "a.tsv"
    assert pairs_of(source_of(write_lines(file, map(b"\t".join, pairs))), size) == pairs
    named = [b"id\tde\ten", *(b"7\t" + tgt + b"\t" + src.rstrip(b"\r") for src, tgt in pairs)]
    turned = [(src.rstrip(b"\r"), tgt) for src, tgt in pairs]
    assert pairs_of(source_of(write_lines(file, named)), size) == turned


def tmx(units: Iterable[str], *, before: str = "") -> str:
    body = "\n".join(f"<tu>{unit}</tu>" for unit in units)
    return f'{before}<tmx version="1.4"><header/><body>\n{body}\n</body></tmx>\n'


def variant(language: str, segment: str) -> str:
    return f'<tuv xml:lang="{language}">\n  <seg>{segment}</seg>\n</tuv>'


def unit(src: str, tgt: str) -> str:
    return variant("en", escape(src)) + variant("de", escape(tgt))


@given(st.lists(st.tuples(XML_TEXTS, XML_TEXTS), max_size=12), SIZES, st.sampled_from([8, 16]))
def test_units_of_translation_memory_come_back(tmp_path_factory, pairs, size, bits):
    file = tmp_path_factory.mktemp("tmx") / "a.tmx"
    declared = f'<?xml version="1.0" encoding="UTF-{bits}"?>'
    file.write_bytes(tmx((unit(*pair) for pair in pairs), before=declared).encode(f"utf-{bits}"))
    expected = [tuple(side.encode() for side in pair) for pair in pairs]
    assert pairs_of(source_of(file), size) == expected


@settings(max_examples=25)
@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=12), SIZES, st.booleans())
def test_rows_of_parquet_and_objects_of_json_lines_come_back(tmp_path_factory, pairs, size, within):
    folder = tmp_path_factory.mktemp("rows")
    rows: list[dict[str, Any]] = [{"de": tgt, "n": 1, "en": src} for src, tgt in pairs]
    if within:
        rows = [{"n": 1, "translation": row} for row in rows]
    expected = [tuple(side.encode() for side in pair) for pair in pairs]
    file = write_lines(folder / "a.jsonl", (json.dumps(row).encode() for row in rows))
    assert pairs_of(source_of(file), size) == expected
    sides = {"de": pa.string(), "en": pa.large_string()}
    schema = pa.schema({"translation": pa.struct(sides)} if within else sides)
    parquet.write_table(pa.Table.from_pylist(rows, schema), folder / "a.parquet", row_group_size=3)
    assert pairs_of(source_of(folder / "a.parquet"), size) == expected


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=12), SIZES)
def test_pairs_at_hand_come_back(pairs, size):
    source = memory("some", pairs)
    assert pairs_of(source, size) == [tuple(side.encode() for side in pair) for pair in pairs]
    assert source.name == "some"


HOSTILE = [
    *(b"wide\xe2\x80\xa8line", b"\xef\xbb\xbfmark later", b"NUL \0", b"\x0b\x0c\x1c\x1d\x85"),
    *(b"\r in the middle\r.", b"", b"   ", *INVALID),
]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_hostile_lines_pass_through_unchanged_however_compressed(tmp_path, suffix):
    english = [b"first", *HOSTILE, *(line.rstrip(b"\r") for line in hostile_lines(3000, seed=7))]
    german = [line[::-1].removeprefix(b"\r").rstrip(b"\r") for line in english]
    for language, lines in (("en", english), ("de", german)):
        content = COMPRESS[suffix](b"".join(line + b"\n" for line in lines))
        (tmp_path / f"a.{language}{suffix}").write_bytes(content)
    source = source_of(tmp_path / "a")  # a prefix
    assert pairs_of(source, 1000) == list(zip(english, german, strict=True))
    assert source.reading.found == {}


CONTENTS = {
    "a.tsv": b"one\teins\n",
    "a.jsonl": b'{"en": "one", "de": "eins"}',
    "a.tmx": tmx([unit("one", "eins")]).encode(),
}


@pytest.mark.parametrize("suffix", [*COMPRESS, ".GZ", ".gZ", ".BZ2", ".XZ", ".ZST"])
def test_files_may_be_compressed_and_their_endings_in_capitals(tmp_path, suffix):
    compress = COMPRESS[suffix.lower()]
    for name, content in CONTENTS.items():
        for file in (f"{name}{suffix}", f"{name.upper()}{suffix}"):
            (tmp_path / file).write_bytes(compress(content))
            assert pairs_of(source_of(tmp_path / file)) == [(b"one", b"eins")]
    for side, content in (("en", b"one\n"), ("de", b"eins\n")):
        (tmp_path / f"two.{side}{suffix}").write_bytes(compress(content))
    assert pairs_of(source_of(tmp_path / "two")) == [(b"one", b"eins")]
    if suffix:
        (tmp_path / "two.de").write_bytes(b"eins\n")
        both = f"{tmp_path / 'two.de'} and {tmp_path / f'two.de{suffix}'} both exist"
        assert both in message_of(source_of, tmp_path / "two")


def test_a_prefix_may_be_in_this_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.en.GZ").write_bytes(gzip.compress(b"one\n"))
    (tmp_path / "a.de").write_bytes(b"eins\n")
    assert source_of("a").name == "a.en.GZ and a.de"


def test_a_weight_is_checked_before_a_download(monkeypatch):
    def fetch_split(*_: object) -> Source:
        pytest.fail("downloaded")

    monkeypatch.setattr("mtkit.prepare.readers.fetch_split", fetch_split)
    message = message_of(parse_source, "hf:a/b", src_lang="en", tgt_lang="de", weight=0)
    assert "hf:a/b: the weight must be a number above 0" in message


def test_invalid_utf8_passes_through_json(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"en": "\xff\xc3", "de": "\\ud800 \\u2028"}\n')
    assert pairs_of(source_of(file)) == [(b"\xff\xc3", b"\xed\xa0\x80 \xe2\x80\xa8")]


def test_a_mark_and_the_returns_before_line_ends_are_removed_and_counted(tmp_path):
    (tmp_path / "a.en").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\r\nthree\n\r\nfi\rve")
    (tmp_path / "a.de").write_bytes(b"\xef\xbb\xbf\xef\xbb\xbfeins\nzwei\ndrei\n\nlast\r\n")
    source = source_of(tmp_path / "a")
    assert source.reading.found == {}
    english = [b"one", b"two\r", b"three", b"", b"fi\rve"]
    german = [b"\xef\xbb\xbfeins", b"zwei", b"drei", b"", b"last"]
    assert pairs_of(source, 2) == list(zip(english, german, strict=True))
    assert source.reading.found == {"byte-order mark": 2, "CRLF line end": 4}
    # Of an iteration, not of all of them.
    pairs_of(source)
    assert source.reading.found == {"byte-order mark": 2, "CRLF line end": 4}


@pytest.mark.parametrize("split", range(1, 6))
def test_a_return_and_its_line_end_may_be_read_apart(tmp_path, monkeypatch, split):
    monkeypatch.setattr("mtkit.prepare.readers._CHUNK", split)
    (tmp_path / "a.en").write_bytes(b"one\r\ntwo\r\n\r\nx\ry")
    (tmp_path / "a.de").write_bytes(b"1\n2\n3\n4\n")
    source = source_of(tmp_path / "a")
    assert [src for src, _ in pairs_of(source)] == [b"one", b"two", b"", b"x\ry"]
    assert source.reading.found == {"CRLF line end": 3}


@pytest.mark.parametrize("chunk", [1, 2, 1 << 18])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_file_with_only_returns_is_refused_with_advice_to_convert_it(
    tmp_path, monkeypatch, mark, chunk
):
    monkeypatch.setattr("mtkit.prepare.readers._CHUNK", max(chunk, len(mark)))
    good, old = tmp_path / "good", tmp_path / "old"
    good.write_bytes(b"one\ntwo\n")
    old.write_bytes(mark + b"eins\rzwei\r")
    for sides in ((good, old), (old, good), (old, old)):
        message = message_of(lambda sides=sides: pairs_of(parallel_files(*sides)))
        assert message == (
            f"{old}: lines end at \\n, and it has only \\r; "
            "convert it with tr '\\r' '\\n' for example"
        )
    for name, text in (("a.tsv", b"one\teins\rtwo\tzwei\r"), ("a.jsonl", b"{}\r{}\r")):
        (tmp_path / name).write_bytes(text)
        assert "it has only \\r" in read_error(tmp_path / name)


def test_empty_files_have_no_pairs(tmp_path):
    (tmp_path / "a.en").write_bytes(b"")
    (tmp_path / "a.de").write_bytes(b"\xef\xbb\xbf")
    assert pairs_of(source_of(tmp_path / "a")) == []


def test_facts_say_where_the_pairs_are_from_and_what_the_files_hold(tmp_path):
    src, tgt = (write_lines(tmp_path / f"a.{lang}", [b"x"]) for lang in ("en", "de"))
    source = parse_source(str(tmp_path / "a"), src_lang="en", tgt_lang="de", weight=np.float32(2.5))
    assert json.loads(json.dumps(source.facts())) == {
        "kind": "lines",
        "src": "a.en",
        "tgt": "a.de",
        "src_sha256": sha256_of(src),
        "tgt_sha256": sha256_of(tgt),
        "weight": 2.5,
    }
    assert (source.name, source.unit, source.weight) == (f"{src} and {tgt}", "line", 2.5)
    file = tmp_path / "a.tsv"
    file.write_bytes(b"x\ty\n")
    table = source_of(file)
    facts = {"kind": "tsv", "path": "a.tsv", "sha256": sha256_of(file), "weight": 1.0}
    assert table.facts() == facts
    assert (table.name, table.unit, table.weight) == (str(file), "line", 1.0)


def test_a_file_that_is_missing_or_cannot_be_read_twice_is_reported_at_once(tmp_path):
    here = write_lines(tmp_path / "a.en", [b"x"])
    missing, folder, pipe = tmp_path / "gone.de", tmp_path / "folder.de", tmp_path / "pipe.de"
    folder.mkdir()
    os.mkfifo(pipe)
    assert message_of(parallel_files, here, missing) == f"{missing}: No such file or directory"
    for path in (folder, pipe):
        message = message_of(parallel_files, here, path)
        assert message == f"{path}: not a regular file, and it must be read more than once"
    for name in ("gone.tsv", "gone.tmx.gz", "gone.parquet", "gone.jsonl"):
        assert message_of(source_of, tmp_path / name) == (
            f"{tmp_path / name}: No such file or directory"
        )


def test_a_file_that_was_deleted_is_reported_when_it_is_read(tmp_path):
    source = two_files(tmp_path, [(b"x", b"y")])
    (tmp_path / "a.de").unlink()
    message = message_of(lambda: list(source.blocks(1)))
    assert message == f"{tmp_path / 'a.de'}: cannot be read: No such file or directory"


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESS if suffix])
def test_damaged_compression_is_reported_with_the_name_of_the_file(tmp_path, suffix):
    content = COMPRESS[suffix](b"\n".join(os.urandom(60).hex().encode() for _ in range(4000)))
    good = write_lines(tmp_path / "good", [b"x"] * 4000)
    bad = tmp_path / f"bad{suffix}"
    bad.write_bytes(content[: len(content) // 2])
    # On either side: the good file must not be blamed.
    for sides in ((good, bad), (bad, good)):
        message = message_of(lambda sides=sides: pairs_of(parallel_files(*sides), 100))
        assert message.startswith(f"{bad}: cannot be read: ")


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESS if suffix])
def test_nothing_behind_the_end_of_compressed_data_is_lost(tmp_path, suffix):
    # Too much for one buffer.
    lines = [os.urandom(60).hex() for _ in range(4000)]
    first, second = (COMPRESS[suffix](f"{text}\n".encode()) for text in ("\n".join(lines), "two"))
    path = tmp_path / f"a{suffix}"
    for zeros in (b"", bytes(4), bytes(100_000)):
        path.write_bytes(first + zeros + second + zeros)
        assert list(read_lines(path)) == [*lines, "two"]
    for rest in (b"garbage", second[:9] + b"garbage" * 9):
        path.write_bytes(first + rest)
        message = message_of(lambda: list(read_lines(path)))
        assert re.search("cannot be read: (something follows the end|Error -3)", message)


@pytest.mark.parametrize("text", ["x" * 300, "a\0b", "x" * 300 + ".tsv", "\udcff\n"])
def test_a_name_that_no_file_can_have_is_reported_in_one_line(text):
    message_of(source_of, text)


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), 1e308, "2", None, True])
def test_a_weight_that_is_not_a_positive_number_is_refused(weight, tmp_path):
    file = write_lines(tmp_path / "a", [b"x"])
    message = message_of(parallel_files, file, file, weight=weight)
    assert f"{file} and {file}: the weight must be " in message


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([b"en\ten\tde", b"1\t2\t3"], ": the first line names the column 'en' twice"),
        ([b'"en"\t"de"', b'"one"\t"eins"'], ": the first line has names in quotation marks"),
        ([b"x\ty"] * 20 + [b"x\ty\tz"], ", line 21: has 3 columns and must have 2, separated"),
        ([b"a\ten\tde"] + [b"x\ty\t1"] * 20 + [b""], ", line 22: has 1 column and must have 3"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_with_the_reason(lines, message, tmp_path):
    file = write_lines(tmp_path / "a.tsv", lines)
    assert read_error(file).startswith(f"{file}{message}")


def test_what_a_file_has_instead_is_cut_in_the_message(tmp_path):
    long = b"q" * 1_000_000
    files = {
        "a.jsonl": b'{"' + long + b'":1}',
        "a.tmx": b"<" + long + b"/>",
        "b.tmx": b'<tmx><tu><tuv xml:lang="' + long + b'"><seg>a</seg></tuv></tu></tmx>',
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        assert len(read_error(tmp_path / name)) < 500


def test_a_prefix_without_both_files_says_which_are_not_there(tmp_path):
    (tmp_path / "a.de.xz").write_bytes(lzma.compress(b"x\n"))
    message = message_of(source_of, tmp_path / "a")
    assert f"{tmp_path / 'a'}: no such file, and no pair of files with that prefix" in message
    assert f"there is no {tmp_path / 'a.en'}, plain or compressed" in message


def test_a_file_of_no_known_format_says_which_are_known(tmp_path):
    file = write_lines(tmp_path / "a.txt", [b"x"])
    message = message_of(source_of, file)
    assert message.startswith(f"{file}: the file ending is unknown")
    assert ".tsv, .tmx, .parquet, .jsonl" in message


def test_a_first_line_that_names_both_languages_is_not_a_pair(tmp_path):
    source = source_of(write_lines(tmp_path / "a.tsv", [b"\xef\xbb\xbfDE\tEN\r", b"eins\tone\r"]))
    assert pairs_of(source) == [(b"one", b"eins")]
    assert source.unit == "row"  # the first of them is on line 2
    file = write_lines(tmp_path / "b.tsv", [b"en\tfr", b"one\tun"])
    assert pairs_of(source_of(file)) == [(b"en", b"fr"), (b"one", b"un")]


@pytest.mark.parametrize(
    "header", ["eng_Latn\tdeu_Latn", "eng\tger", "en-GB\tde-AT", "EN_us\tDEU", "id\ten\tdeu_Latn"]
)
def test_a_first_line_names_the_languages_by_codes_of_any_standard(tmp_path, header):
    number = header.count("\t") - 1
    file = write_lines(tmp_path / "a.tsv", [header.encode(), b"1\t" * number + b"one\teins"])
    assert pairs_of(source_of(file)) == [(b"one", b"eins")]
    for pair in (
        "fra_Latn\tdeu_Latn",
        "eng\teng_Latn",
        "English\tGerman",
        "no\tis",
        '"No."\t"Ja."',
    ):
        file = write_lines(tmp_path / "b.tsv", [pair.encode()])
        assert pairs_of(source_of(file)) == [tuple(pair.encode().split(b"\t"))]


def test_a_tmx_file_that_is_compressed_without_the_name_of_it_is_named(tmp_path):
    file = tmp_path / "a.tmx"
    file.write_bytes(gzip.compress(tmx([]).encode()))
    assert "is compressed by gzip; name it .gz" in message_of(lambda: pairs_of(source_of(file)))


@pytest.mark.parametrize(
    ("header", "src", "tgt"),
    [("Source\ttarget", 1, 2), ("id\ttgt\t SRC", 3, 2), ("source\ttarget\tde\ten", 4, 3)],
)
def test_a_first_line_of_names_is_a_header_and_said(tmp_path, caplog, header, src, tgt):
    caplog.set_level("INFO")
    row = "\t".join(f"{number}" for number in range(1, header.count("\t") + 2))
    file = write_lines(tmp_path / "a.tsv", [header.encode(), row.encode()])
    assert pairs_of(source_of(file)) == [(b"%d" % src, b"%d" % tgt)]
    assert caplog.messages == [
        f"{file}: the first line names the columns (source: {src}, target: {tgt}) and is not a pair"
    ]


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", ["a.en", "a.tsv", "a.jsonl", "a.tmx"])
def test_a_line_of_a_gigabyte_is_refused_before_it_fills_the_memory(
    tmp_path, monkeypatch, name, suffix
):
    monkeypatch.setattr("mtkit.base.text.MAX_LINE_BYTES", 1 << 20)
    before = {"a.tmx": tmx([])[:-16].encode() + b'<tu>\n<tuv xml:lang="en"><seg>'}
    file = tmp_path / f"{name}{suffix}"
    file.write_bytes(COMPRESS[suffix](before.get(name, b"x\n") + b"a" * (16 << 20)))
    readers: list[Callable[[], object]] = [lambda: pairs_of(source_of(file))]
    if name == "a.en":
        readers = [lambda: pairs_of(parallel_files(file, file)), lambda: list(read_lines(file))]
    for read in readers:
        if name in ("a.tsv", "a.jsonl"):
            file.write_bytes(COMPRESS[suffix](b"a" * (16 << 20)))
        tracemalloc.start()
        message = message_of(read)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        line = {"a.en": 2, "a.tmx": 2}.get(name, 1)
        assert message.startswith(f"{file}, line {line}: is longer than 1 MiB; break it into lines")
        assert peak < 12 << 20


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-16LE", "UTF-16BE", "UTF-32"])
@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.jsonl", "a.en"])
def test_text_in_utf_16_is_refused_by_its_name(tmp_path, name, encoding):
    file = tmp_path / name
    rows = {"a.jsonl": '{"en": "x", "de": "y"}\r\n', "a.en": "Good morning!\r\n"}
    content = (rows.get(name, "Short\tGrüße\r\n") * 9).encode(encoding)
    file.write_bytes(COMPRESS.get(file.suffix, bytes)(content))
    source = parallel_files(file, file) if name == "a.en" else None
    message = message_of(lambda: pairs_of(source or source_of(file)))
    advice = f"convert it, with iconv -f {encoding} -t UTF-8 for example"
    assert message == f"{file}: is {encoding}, and must be UTF-8; {advice}"
    assert message_of(lambda: list(read_lines(file))) == message


@pytest.mark.parametrize("split", [1, 3, 6, 9, 1000])
def test_only_the_first_line_names_columns_however_the_file_is_read(tmp_path, monkeypatch, split):
    monkeypatch.setattr("mtkit.prepare.readers._CHUNK", split)
    expected = [(b"%d" % number, b"x") for number in range(20)]
    file = write_lines(tmp_path / "a.tsv", [b"en\tde", *map(b"\t".join, expected)])
    assert pairs_of(source_of(file)) == expected
    file.write_bytes(b"en\tde")
    assert pairs_of(source_of(file)) == []


def written_tmx(folder: Path, *units: str) -> Path:
    file = folder / "a.tmx"
    file.write_text(tmx(units), encoding="utf-8")
    return file


def tmx_pairs(tmp_path: Path, *units: str, src: str = "en", tgt: str = "de") -> list[BytePair]:
    return pairs_of(parse_source(str(written_tmx(tmp_path, *units)), src_lang=src, tgt_lang=tgt))


def test_the_text_of_codes_is_left_out_and_that_of_highlights_kept(tmp_path):
    segment = (
        "a <bpt i='1'>&lt;b></bpt>bold<ept i='1'>&lt;/b></ept> <ph>code<sub>sub<it>x</it></sub>code"
        "</ph>c <hi>high<ut>{\\b </ut>light</hi> <it pos='begin'>i</it>d<ph/>&amp;e"
    )
    pairs = tmx_pairs(tmp_path, variant("en", segment) + variant("de", "x"))
    assert pairs == [(b"a bold c highlight d&e", b"x")]


# The codes are those of the TMX 1.4b specification, and of files by Trados, OmegaT, Okapi and
# memoQ.
@pytest.mark.parametrize(
    ("segment", "text"),
    [
        # What separates words.
        ("Line one<ph>&lt;br/></ph>line two", "Line one line two"),
        ("Name<ut>{\\tab }</ut>Age", "Name Age"),
        ("one<ph x='1'/>two", "one two"),
        ("one.<ph>\\n</ph>Two", "one. Two"),
        ("1.<ph>\\t</ph>'Repeat' it", "1. 'Repeat' it"),
        ("one<ph type='lb'/>two", "one two"),
        ("one<ut>&lt;:t></ut>two<ut>&lt;:s></ut>three", "one two three"),
        ("Before<ph type='image'>&lt;img alt='<sub>A cat</sub>'/></ph>after", "Before after"),
        ("one<ph>&lt;HardReturn></ph>two<ph>&lt;0x000A></ph>three", "one two three"),
        ("one<ph>&lt;/b>&lt;/p>&lt;p></ph>two<ph>\n</ph>three", "one two three"),
        ("Hello<ph>%s</ph>World", "Hello World"),
        ("<bpt i='1'>&lt;h1></bpt>Title<ept i='1'>&lt;/h1></ept>Text", "Title Text"),
        ("<bpt i='1'>&lt;td></bpt>A<ept i='1'>&lt;/td></ept><ph/>(b)", "A (b)"),
        # What is the format of characters, or half of a pair.
        ("un<ph>&lt;b></ph>believ<ph>&lt;/b></ph>able", "unbelievable"),
        ("un<ut>{\\b </ut>believ<ut>}</ut>able", "unbelievable"),
        ("un<ut>&lt;cf font='x'></ut>believ<ut>&lt;/cf></ut>able", "unbelievable"),
        ("un<ph type='bold'/>able", "unable"),
        ("un<it pos='begin' type='italic'>&lt;i></it>able", "unable"),
        ("H<bpt i='1'>&lt;sub></bpt>2<ept i='1'>&lt;/sub></ept>O", "H2O"),
        ("un<ph>&lt;a name='x'> &lt;/a></ph>able wo<ph>\u00ad</ph>man", "unable woman"),
        ("<hi>W</hi>ord", "Word"),
        ("wo<ph>&amp;shy;</ph>man wo<ph>&lt;wbr/></ph>men", "woman women"),
        # Spaces, marks and scripts without spaces.
        ("one <ph>&lt;br/></ph> two", "one two"),
        ("<ph>1</ph> one <bpt i='1'/> two<ept i='1'/> .<ph/>", "one two ."),
        ("one<ph/>, two (<ph/>three<ph/>) four-<ph/>five", "one, two (three) four-five"),
        ("第一行<ph>&lt;br/></ph>第二行", "第一行第二行"),
        ("첫 줄<ph>&lt;br/></ph>둘째 줄", "첫 줄 둘째 줄"),
        # Characters as codes, and the text of a sub-flow.
        ("d<ph>&amp;eacute;</ph>j<ph>&amp;#224;</ph>", "déjà"),
        ("R<ph>&amp;amp;</ph>D", "R&D"),
        ("Word<ph type='fnote'>{\\footnote <sub>A note.</sub>}</ph>, then", "Word, then"),
    ],
)
def test_a_code_separates_words_unless_it_formats_them(tmp_path, segment, text):
    (pair,) = tmx_pairs(tmp_path, variant("en", segment) + variant("de", segment))
    assert [side.decode() for side in pair] == [text, text]


def test_text_within_a_code_is_left_out_and_counted(tmp_path):
    note = "a<ph type='fnote'>{<sub>A <bpt i='1'/>note<ept i='1'/>.</sub>} <sub>B.</sub></ph> c"
    unit = variant("en", note) + variant("de", "x") + variant("fr", note)
    source = source_of(written_tmx(tmp_path, unit))
    assert pairs_of(source) == [(b"a c", b"x")]
    left_out = "text within a code of a TMX segment, such as a footnote (left out)"
    assert source.reading.found == {left_out: 2}


def test_languages_are_matched_by_whole_code_and_then_by_its_first_part(tmp_path):
    units = [
        variant("EN-gb", "colour") + variant("de_AT", "Farbe"),
        variant("en-US", "color") + variant("en", "exact") + variant("de", "Farbe"),
        variant("en-US", "first") + variant("en-GB", "second") + variant("DE", "x"),
        variant("eng", "three letters") + variant("de", "y"),
        variant("enm", "no") + variant("ger", "y"),
        '<tuv lang="en"><seg>old</seg></tuv>' + variant("de", "z"),
    ]
    assert tmx_pairs(tmp_path, *units) == [
        (b"colour", b"Farbe"),
        (b"exact", b"Farbe"),
        (b"first", b"x"),
        (b"three letters", b"y"),
        (b"", b"y"),
        (b"old", b"z"),
    ]


def test_further_variants_of_a_language_are_counted(tmp_path):
    first = unit("one", "eins")
    variants = [("en", "two"), ("en-GB", "2"), ("de", "zwei"), ("en", "twain")]
    three = "".join(itertools.starmap(variant, variants))
    source = source_of(written_tmx(tmp_path, first, three, first))
    assert pairs_of(source) == [(b"one", b"eins"), (b"two", b"zwei"), (b"one", b"eins")]
    assert source.reading.found == {"further variant of a language in a TMX unit (not used)": 2}


def test_a_field_that_a_json_object_repeats_is_counted(tmp_path):
    lines = [
        b'{"en": "one", "de": "eins"}',
        b'{"en": "x", "de": "zwei", "en": "y", "en": "two"}',
        b'{"translation": {"en": "x", "de": "x"}, "translation": {"en": "three", "de": "drei"}}',
        b'{"id": 1, "id": 2, "en": "four", "de": "vier"}',
    ]
    source = source_of(write_lines(tmp_path / "pairs.jsonl", lines))
    assert pairs_of(source)[1:3] == [(b"two", b"zwei"), (b"three", b"drei")]
    assert source.reading.found == {"repeated field of a JSON object (only the last is used)": 3}


def test_two_countries_of_one_language_are_distinguished(tmp_path):
    both = variant("pt-BR", "trem") + variant("pt-pt", "comboio")
    pairs = tmx_pairs(tmp_path, both, variant("pt-BR", "bus"), "", src="pt-PT", tgt="pt-BR")
    # A unit without a language has an empty side.
    assert pairs == [(b"comboio", b"trem"), (b"", b"bus"), (b"", b"")]


def test_a_memory_without_the_language_at_all_lists_those_it_has(tmp_path):
    message = message_of(lambda: tmx_pairs(tmp_path, unit("one", "eins"), src="fr"))
    assert message.endswith("a.tmx: no unit has a variant in 'fr', only in en, de")


def test_an_eight_bit_encoding_is_read_as_it_is_declared(tmp_path):
    declared = '<?xml version="1.0" encoding="windows-1252"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'
    file = tmp_path / "a.tmx"
    file.write_bytes(tmx([unit("“naïve” €", "ß")], before=declared).encode("cp1252"))
    assert pairs_of(source_of(file)) == [("“naïve” €".encode(), "ß".encode())]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (tmx([unit("one", "eins")])[:-9], "line 7, column 1: not well-formed XML: unclosed"),
        ("<tmx>\n <tu>&</tu></tmx>", "line 2, column 7: not well-formed XML: not well-formed"),
        ("", "line 1, column 1: not well-formed XML: no element found"),
        ("<html></html>", "not TMX: its first element is <html>"),
        ('<?xml version="1.0" encoding="nonsense"?><tmx/>', "unknown encoding"),
        ('<?xml version="1.0" encoding="big5"?><tmx/>', "convert the file to UTF-8"),
        ('<!DOCTYPE tmx [<!ENTITY a "aaaa">]>\n<tmx/>', "line 1: has the entity 'a'"),
        ('<!DOCTYPE tmx [\n<!ENTITY a SYSTEM "/etc/passwd">]><tmx/>', "line 2: has the entity"),
        ("<!DOCTYPE tmx [<!ENTITY % p 'x'>]><tmx/>", "has the entity 'p'"),
        (
            tmx([variant("en", "a&nbsp;b")], before='<!DOCTYPE tmx SYSTEM "tmx14.dtd">'),
            "line 3: has the entity 'nbsp'",
        ),
        (tmx([variant("en", "a&nbsp;b")]), "line 3, column 9: not well-formed XML: undefined"),
    ],
)
def test_a_memory_that_cannot_be_read_is_reported_with_its_line(tmp_path, content, says):
    file = tmp_path / "a.tmx"
    file.write_text(content, encoding="utf-8")
    message = read_error(file)
    assert message.startswith(f"{file}")
    assert says in message


def test_a_large_memory_is_read_in_little_memory(tmp_path):
    file = tmp_path / "a.tmx"
    text = "a sentence of some length, such as people write " * 4
    units = (unit(f"{number} {text}", f"{text} {number}") for number in range(20_000))
    file.write_text(tmx(units), encoding="utf-8")
    assert file.stat().st_size > 8_000_000
    source = source_of(file)
    tracemalloc.start()
    count = sum(len(src) for src, _ in source.blocks(100))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 2_000_000  # some pieces of 256 KiB, and never the tree


def write_parquet(path: Path, **columns: pa.Array) -> Path:
    parquet.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize(
    ("src", "tgt"),
    [
        ("eng_Latn", "deu_Latn"),
        ("eng", "ger"),
        ("en-GB", "DE"),
        ("source", "target"),
        ("src", "tgt"),
    ],
)
def test_fields_and_columns_may_be_named_by_codes_of_any_standard(tmp_path, src, tgt, within):
    rows: list[dict[str, Any]] = [{tgt: "eins", "n": "x", src: "one"}]
    if within:
        rows = [{"n": "x", "translation": row} for row in rows]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    write_lines(tmp_path / "a.jsonl", [json.dumps(rows[0]).encode()])
    for name in ("a.parquet", "a.jsonl"):
        assert pairs_of(source_of(tmp_path / name)) == [(b"one", b"eins")]


def test_a_repeated_field_of_another_code_is_counted(tmp_path):
    source = source_of(write_lines(tmp_path / "a.jsonl", [b'{"eng":"x","deu":"eins","eng":"one"}']))
    assert pairs_of(source) == [(b"one", b"eins")]
    assert [*source.reading.found.values()] == [1]


def test_columns_that_are_not_there_are_reported_with_those_that_are(tmp_path):
    file = write_parquet(tmp_path / "a.parquet", en=pa.array(["x"]), fra=pa.array(["y"]))
    message = message_of(source_of, file)
    assert message == (
        f"{file}: no columns 'en' and 'de', and no column 'translation' with these, only en, fra"
    )
    file = write_parquet(tmp_path / "b.parquet", en=pa.array(["x"]), de=pa.array([1]))
    assert message_of(source_of, file) == f"{file}: the column 'de' is not text but int64"


def test_a_parquet_file_that_is_none_is_reported_in_one_line(tmp_path):
    file = tmp_path / "a.parquet"
    file.write_bytes(b"PAR1 and nothing else")
    assert message_of(source_of, file).startswith(f"{file}: cannot be read: ")
    good = write_parquet(tmp_path / "b.parquet", en=pa.array(["x"] * 99), de=pa.array(["y"] * 99))
    content = bytearray(good.read_bytes())
    content[4:40] = bytes(36)
    good.write_bytes(content)
    assert read_error(good).startswith(f"{good}: cannot be read: ")
    packed = tmp_path / "c.parquet.gz"
    packed.write_bytes(b"")
    assert message_of(source_of, packed).endswith("its own compression; decompress the file")


def test_what_is_null_is_empty_and_categories_are_text(tmp_path):
    english = pa.array(["x", None, "x"]).dictionary_encode()
    file = write_parquet(tmp_path / "a.parquet", en=english, de=pa.array(["y", "z", None]))
    source = source_of(file)
    assert pairs_of(source) == [(b"x", b"y"), (b"", b"z"), (b"x", b"")]
    assert source.unit == "row"
    record = pa.array([{"en": "x", "de": "y"}, None])
    file = write_parquet(tmp_path / "b.parquet", translation=record)
    assert pairs_of(source_of(file)) == [(b"x", b"y"), (b"", b"")]
    file = write_parquet(
        tmp_path / "c.parquet", en=pa.array([], "string"), de=pa.array([], "string")
    )
    assert pairs_of(source_of(file)) == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"en": "x"', "line 2: not JSON ("),
        (b"\n\n{", "line 4: not JSON ("),
        (b"[" * 100_000, "line 2: not JSON ("),
        (b'["x", "y"]', 'line 2: not an object, as in {"en": "…", "de": "…"}'),
        (b'{"en": "x", "fra": "y"}', "line 2: no field 'de', only en, fra"),
        (b'{"en": "x", "de": 7}', "line 2: the field 'de' is not text"),
    ],
)
def test_a_json_line_that_is_not_a_pair_is_named(tmp_path, line, says):
    file = write_lines(tmp_path / "a.jsonl", [b'{"en": "x", "de": null}', line])
    message = read_error(file)
    assert message.startswith(f"{file}, ")
    assert says in message


@pytest.mark.parametrize("size", [1, 2, 3, 10])
@pytest.mark.parametrize("blank", [b"", b" ", b"\t\r"])
def test_an_empty_line_of_json_is_an_empty_pair_and_nothing_at_the_end(tmp_path, blank, size):
    row = b'{"en": "x", "de": "y"}'
    file = write_lines(tmp_path / "a.jsonl", [row, blank, blank, row, blank, blank])
    assert pairs_of(source_of(file), size) == [(b"x", b"y"), (b"", b""), (b"", b""), (b"x", b"y")]
    assert pairs_of(source_of(write_lines(file, [blank, row])), size) == [(b"", b""), (b"x", b"y")]
    assert pairs_of(source_of(write_lines(file, [blank])), size) == []


def test_a_line_break_within_a_sentence_is_a_space_and_counted(tmp_path):
    pairs = [("one\r\n\ntwo", "eins\nzwei"), ("x", "y\n")]
    expected = [(b"one two", b"eins zwei"), (b"x", b"y ")]
    rows = [json.dumps({"en": src, "de": tgt}).encode() for src, tgt in pairs]
    sides = [pa.array(side) for side in zip(*pairs, strict=True)]
    for source in (
        source_of(write_lines(tmp_path / "a.jsonl", rows)),
        source_of(write_parquet(tmp_path / "a.parquet", en=sides[0], de=sides[1])),
        source_of(written_tmx(tmp_path, *(unit(*pair) for pair in pairs))),
        memory("some", pairs),
    ):
        assert pairs_of(source) == expected
        assert source.reading.found == {"line break within a sentence": 3}
