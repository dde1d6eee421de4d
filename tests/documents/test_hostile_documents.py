"""Files that are damaged, or made to harm: each is refused in one line, before it is unpacked."""

import io
import random
import re
import struct
import zipfile

import pytest
from conftest import slow
from support.documents import (
    BODY,
    FIELD,
    TRANSLATORS,
    Writer,
    epub,
    in_capitals,
    odt,
    problems,
    run,
    slides,
    unit,
    word,
    xliff,
    xliff2,
    zipped,
)
from support.hostile_documents import HOSTILE
from support.program import printed

from mtkit.base.errors import MtkitError
from mtkit.documents import open_document
from mtkit.documents.zipped import Package

BEGIN = (
    FIELD.format("begin") + "<w:r><w:instrText>QUOTE</w:instrText></w:r>" + FIELD.format("separate")
)
END = FIELD.format("end")


def names(*, is_large: bool) -> list[str]:
    return [name for name, file in HOSTILE.items() if file.is_large == is_large]


@pytest.mark.parametrize("name", [*names(is_large=False), *map(slow, names(is_large=True))])
def test_a_hostile_file_is_refused_in_one_line_or_comes_back(name: str):
    file = HOSTILE[name]
    if not file.refused:
        document = open_document(file.name, file.data(), target="de")
        written = document.write([in_capitals(segment.line) for segment in document.segments])
        open_document(file.name, written, everything=True)
        return
    with pytest.raises(MtkitError, match=rf"^{file.name}: .*({file.refused})") as refused:
        open_document(file.name, file.data())
    assert len(str(refused.value).splitlines()) == 1


def test_names_of_members_are_never_paths():
    tricks = ["../../etc/x", "/etc/x", "C:\\x", "word/../../x", "a\0b", "." * 300]
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as package:
        for name, content in [
            *word(f"<w:p>{run('text')}</w:p>").items(),
            *((t, "x") for t in tricks),
        ]:
            package.writestr(zipfile.ZipInfo(name), content)
    document = open_document("a.docx", data.getvalue())
    assert [segment.line for segment in document.segments] == ["text"]
    with zipfile.ZipFile(io.BytesIO(document.write(["TEXT"]))) as package:
        assert package.testzip() is None
        assert len(package.namelist()) == 2 + len(tricks)


def test_order_and_compression_of_members_stay():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as package:
        package.writestr("z", "1" * 100, zipfile.ZIP_STORED)
        package.writestr("a/", "")
        package.writestr("a/b", "2" * 100, zipfile.ZIP_DEFLATED)
    written = Package(data.getvalue()).write({"a/b": b"new", "later": b"x"})
    with zipfile.ZipFile(io.BytesIO(written)) as package:
        assert [(i.filename, i.compress_type) for i in package.infolist()] == [
            ("z", zipfile.ZIP_STORED),
            ("a/", zipfile.ZIP_STORED),
            ("a/b", zipfile.ZIP_DEFLATED),
            ("later", zipfile.ZIP_DEFLATED),
        ]
        assert package.read("a/b") == b"new"


def stored(data: bytes) -> dict[str, tuple[bytes, int, bytes]]:
    """The compressed bytes, the time and the extra field of each member."""
    found = {}
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        assert package.testzip() is None
        for info in package.infolist():
            name, extra = struct.unpack("<HH", data[info.header_offset + 26 :][:4])
            start = info.header_offset + 30 + name + extra
            raw = data[start : start + info.compress_size]
            found[info.filename] = (raw, info.date_time[0], info.extra)
    return found


class Pipe(io.BytesIO):
    """A file in which sizes can only stand behind the data."""

    def seekable(self) -> bool:
        return False


@pytest.mark.parametrize("begin", [b"", b"#!/bin/sh\n"])
@pytest.mark.parametrize("stream", [io.BytesIO, Pipe])
def test_bytes_of_members_that_do_not_change_stay(stream: type[io.BytesIO], begin: bytes):
    file = stream()
    file.write(begin)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as package:
        for name in ("mimetype", "a.xml", "b.xml", "\u00fc.xml", "c\u20ac", "\\d"):
            package.writestr(name, f"{name} some text of a member " * 50)
        info = zipfile.ZipInfo("e", (1999, 1, 2, 3, 4, 6))
        info.extra = b"\x01\x99\x02\x00ab"
        package.writestr(info, b"")
        package.comment = b"comment"
    data = file.getvalue()
    written = Package(data).write({"b.xml": b"new", "later": b"x"})
    before, after = stored(data), stored(written)
    assert list(after) == [*before, "later"]
    assert {name for name in before if before[name] != after[name]} == {"b.xml"}
    with zipfile.ZipFile(io.BytesIO(written)) as package:
        assert (package.read("b.xml"), package.comment) == (b"new", b"comment")


def test_names_of_members_in_an_old_charset_are_written_in_utf_8():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as package:
        package.writestr("a", b"first")
        package.writestr("\u00fc", b"second")
    name = "\u00fc".encode()
    # Without the flag of UTF-8.
    old = data.getvalue().replace(b"\x14\x00\x00\x08", b"\x14\x00\x00\x00")
    names = [name.decode("cp437")]
    with zipfile.ZipFile(io.BytesIO(Package(old).write({"a": b"new"}))) as package:
        assert package.namelist() == ["a", *names]
        assert package.read(names[0]) == b"second"


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.odt", "a.epub"])
@pytest.mark.parametrize(("member", "again"), [("x/y.xml", "x\\y.xml"), ("a.png", "a.png")])
def test_a_package_in_which_a_member_is_twice_is_refused(name: str, member: str, again: str):
    makers = {"a.docx": word(""), "a.pptx": slides(), "a.odt": odt(""), "a.epub": epub(one="")}
    data = io.BytesIO(zipped(makers[name]))
    with zipfile.ZipFile(data, "a") as package:
        for folder in ("x/", "x/"):
            package.writestr(folder, b"")
        package.writestr(member, b"first")
    open_document(name, data.getvalue())
    with zipfile.ZipFile(data, "a") as package:
        package.writestr(again, b"second")
    with pytest.raises(MtkitError, match=rf"^{name}: it is damaged: it has two members {member}$"):
        open_document(name, data.getvalue())


@pytest.mark.parametrize(("name", "members"), [("a.docx", word("<w:p/>")), ("a.pptx", slides())])
def test_names_of_parts_of_office_have_no_case(name: str, members: dict[str, str | bytes]):
    types = members["[Content_Types].xml"]
    assert isinstance(types, str)
    lower = re.sub("(?<=PartName=).*?(?= )", lambda match: match[0].upper(), types)
    assert lower != types
    expected = open_document(name, zipped(members)).segments
    assert (
        open_document(name, zipped(members | {"[Content_Types].xml": lower})).segments == expected
    )
    with pytest.raises(MtkitError, match=r"X/y.png and x/Y.png are one name$"):
        open_document(name, zipped(members | {"X/y.png": b"", "x/Y.png": b""}))
    assert open_document(name, zipped(members | {"X/y.png": b"", "x/": b""})).segments == expected


@pytest.mark.parametrize("ending", ["srt", "vtt", "xlf", "docx", "pptx", "odt", "epub"])
@pytest.mark.parametrize("data", [b"", b" \r\n", b"\xef\xbb\xbf\n"])
def test_an_empty_file_is_called_empty(ending: str, data: bytes):
    with pytest.raises(MtkitError, match=rf"^a\.{ending}: it is empty$"):
        open_document(f"a.{ending}", data)


def test_a_member_that_is_damaged_does_not_hinder_writing():
    broken = zipped({"a": b"first", "image": b"picture"}).replace(b"picture", b"pixture")
    with zipfile.ZipFile(io.BytesIO(Package(broken).write({"a": b"new"}))) as package:
        assert package.read("a") == b"new"
        assert package.namelist() == ["a", "image"]


PROGRAM = """
import re, sys
from pathlib import Path
from mtkit.base.errors import MtkitError
from mtkit.documents import open_document
path = Path(sys.argv[1])
try:
    document = open_document(path.name, path.read_bytes())
    document.write([segment.line + "." for segment in document.segments])
except MtkitError:
    pass
status = Path("/proc/self/status")
if status.exists():
    # getrusage also counts what the program had that started this one.
    peak = int(re.search(r"VmHWM:\\s*(\\d+)", status.read_text())[1])
    assert peak < 300_000, f"{peak} kB"
"""


@pytest.mark.parametrize("name", ["a billion laughs", "too deep", *map(slow, names(is_large=True))])
def test_a_hostile_file_needs_little_memory(name: str, tmp_path):
    path = tmp_path / HOSTILE[name].name
    path.write_bytes(HOSTILE[name].data())
    printed("-c", PROGRAM, str(path))


def broken(xml: str, seed: int) -> str:
    """XML in which some attributes, texts and elements are missing, empty, or there twice."""
    rng = random.Random(seed)
    pieces = re.split(r"""( [\w:]+=(?:"[^"]*"|'[^']*')|<[^<>]*/>|>[^<>]+<)""", xml)
    for i in range(1, len(pieces), 2):
        if rng.random() < 0.15 and "xmlns" not in pieces[i]:
            is_text = pieces[i].startswith(">")
            empty = "><" if is_text else re.sub(r"""(["']).*\1""", '""', pieces[i])
            twice = pieces[i] * 2 if pieces[i].startswith("<") else pieces[i]
            pieces[i] = rng.choice([empty, twice, "><" if is_text else ""])
    return "".join(pieces)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("a.docx", word(Writer(3).body(), comments="<w:comment w:id='1'><w:p/></w:comment>")),
        ("a.pptx", slides()),
        ("a.epub", epub(two=BODY, one="<p>first</p>")),
        ("a.odt", odt("<text:p>a <text:a>b</text:a><text:note><text:p/></text:note>c</text:p>")),
        ("a.xlf", xliff(unit('a <bpt id="1"/>b<ept id="1"/>c', "<target>x</target>"))),
        ("a.xlf", xliff2('<notes/><segment><source>a <pc id="1">b</pc></source></segment>')),
    ],
)
def test_a_document_that_is_not_as_it_must_be_is_read_or_refused(name, members, seed):
    if isinstance(members, bytes):
        data = broken(members.decode(), seed).encode()
    else:
        data = zipped({part: broken(str(xml), seed) for part, xml in members.items()})
    try:
        document = open_document(name, data, target="de", everything=True)
    except MtkitError:
        return
    numbers = range(len(document.segments))
    lines = [in_capitals(segment.line) for segment in document.segments]
    written = document.write(lines, dict.fromkeys(numbers, "doubtful"))
    open_document(name, written, everything=True)


@pytest.mark.parametrize("translator", TRANSLATORS)
@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("<w:hyperlink>" + run("a "), "</w:hyperlink>"),
        ("<w:sdt><w:sdtContent>" + run("a "), "</w:sdtContent></w:sdt>"),
        (BEGIN + run("a "), END),
    ],
)
def test_what_is_nested_deeply_comes_back_whole(begin: str, end: str, translator: str):
    for depth in (20, 110, 2000) if begin.startswith(BEGIN) else (20, 110):
        data = zipped(word(f"<w:p>{begin * depth}{end * depth}</w:p>"))
        assert problems("a.docx", data, translator) == []


def test_codes_of_xliff_that_are_nested_deeply_are_read():
    begins = [f'<bpt id="{i}"/>a' for i in range(3000)]
    ends = [f'<ept id="{i}"/>a' for i in reversed(range(3000))]
    assert len(open_document("a.xlf", xliff(unit("".join(begins + ends)))).segments) == 1
