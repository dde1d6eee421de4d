"""Files that are damaged, or made to harm: each by its name, with how it is made.

A file that cannot be read has a part of the message that refuses it; all others are read and
written. Most of what is large is made when it is wanted.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from support.documents import (
    FIELD,
    RELATIONS,
    epub,
    odt,
    run,
    slides,
    unit,
    word,
    xliff,
    xliff2,
    zipped,
)

from mtkit.documents.zipped import MAX_MEMBERS

TEXT = f"<w:p>{run('text')}</w:p>"
GOOD = zipped(word(TEXT))
N = 100_000


class Hostile(NamedTuple):
    """A file: its name, how its bytes are made, why it is refused (a pattern), if it is large."""

    name: str
    data: Callable[[], bytes]
    refused: str = ""
    is_large: bool = False


def package(members: dict[str, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as written:
        for name, content in members.items():
            written.writestr(zipfile.ZipInfo(name), content, method)
    return data.getvalue()


def with_document(xml: bytes | str) -> bytes:
    return zipped({**word(""), "word/document.xml": xml})


def body(xml: str) -> bytes:
    return zipped(word(xml))


def with_spaces(name: str, megabytes: int) -> bytes:
    """A file with a member of that many MB of spaces, in a thousandth of that."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as written:
        for other, content in word("").items():
            if other != name:
                written.writestr(other, content)
        with written.open(name, "w") as member:
            for _ in range(megabytes):
                member.write(b" " * 1_000_000)
    return data.getvalue()


def lying() -> bytes:
    """A member of 400 MB that says that it has 100 bytes."""
    data = with_spaces("word/document.xml", 400)
    return data.replace(struct.pack("<I", 400_000_000), struct.pack("<I", 100))


def by_method(name: str, method: int) -> bytes:
    """A file with a member that says that it is compressed by another method."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as written:
        for other, content in {**word(TEXT), "a.png": b"x"}.items():
            written.writestr(other, content)
        written.getinfo(name).compress_type = method
    return data.getvalue()


def changed(name: str, **fields: int) -> bytes:
    """A good file in whose list of members some numbers of one are wrong."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as written:
        for other, content in {**word(TEXT), "a.png": b"x" * 1000}.items():
            written.writestr(other, content)
        for field, value in fields.items():
            setattr(written.getinfo(name), field, value)
    return data.getvalue()


def overlapping(count: int, megabytes: int) -> bytes:
    """Many members that are the same bytes of the file, each of that many MB."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in word(TEXT).items():
            written.writestr(name, content)
        written.writestr("x0", b" " * (megabytes * 1_000_000))
        first = written.getinfo("x0")
        for number in range(1, count):
            other = zipfile.ZipInfo(f"x{number}")
            for field in ("compress_type", "CRC", "compress_size", "file_size", "header_offset"):
                setattr(other, field, getattr(first, field))
            written.filelist.append(other)
    return data.getvalue()


def typed(kind: str, more: str = "") -> bytes:
    override = f'<Override PartName="/word/document.xml" ContentType="{kind}"/>'
    space = "http://schemas.openxmlformats.org/package/2006/content-types"
    types = f'<Types xmlns="{space}">{override}{more}</Types>'
    return zipped({**word(TEXT), "[Content_Types].xml": types})


def srt(*texts: str) -> bytes:
    def time(second: int, ms: int) -> str:
        return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02},{ms:03}"

    return "".join(
        f"{n}\n{time(n, 0)} --> {time(n, 900)}\n{text}\n\n" for n, text in enumerate(texts, 1)
    ).encode()


def po(entries: str, header: str = "Content-Type: text/plain; charset=UTF-8\\n") -> bytes:
    return f'msgid ""\nmsgstr "{header}"\n\n{entries}\n'.encode()


def entry(text: str, flags: str = "") -> str:
    return f'{flags}msgid "{text}"\nmsgstr ""\n\n'


def crossing(count: int) -> str:
    """Begins and ends of codes of XLIFF 1.2 that cross each other."""
    begins = "".join(f'<bpt id="{n}"/>a' for n in range(count))
    return begins + "".join(f'<ept id="{n}"/>a' for n in range(count))


def segments(count: int) -> str:
    return "<segment><source>a word</source></segment>" * count


FLD = {kind: FIELD.format(kind) for kind in ("begin", "separate", "end")}
QUOTE = "<w:r><w:instrText>QUOTE</w:instrText></w:r>"
LAUGHS = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 10))
PARTS = epub(one="<p>text</p>")

_ZIPS = {
    "empty": (b"", "it is empty"),
    "text": (b"hello", "not a zip"),
    "cut": (GOOD[:-40], "not a zip"),
    "cut in the middle": (GOOD[: len(GOOD) // 2], "not a zip"),
    "damaged": (GOOD.replace(GOOD[60:70], b"0123456789"), "damaged|not a zip|not well-formed"),
    "no types": (zipped({"word/document.xml": "<a/>"}), r": \[Content_Types\].xml is missing$"),
    "only types": (zipped({"[Content_Types].xml": "<a/>"}), "main part"),
    "no XML": (with_document(b"hello"), r"not well-formed.*column 1$"),
    "cut XML": (with_document(b"<w:document xmlns:w='w'><w:p>"), "not well-formed"),
    "external entity": (
        with_document(b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'),
        "entities",
    ),
    "parameter entity": (
        with_document(b'<!DOCTYPE a [<!ENTITY % x SYSTEM "http://localhost/x"> %x;]><a/>'),
        "entities|not well-formed",
    ),
    "a billion laughs": (
        with_document(f'<!DOCTYPE a [<!ENTITY e0 "ha">{LAUGHS}]><a b="&e9;">&e9;</a>'),
        "entities|not well-formed",
    ),
    "entities in UTF-16": (
        with_document('<!DOCTYPE a [<!ENTITY e "x">]><a>&e;</a>'.encode("utf-16")),
        "entities",
    ),
    "too deep": (with_document("<a>" * N + "</a>" * N), "not well-formed"),
    # Deflate64, and PPMd of an image that is not read.
    "a method of compression": (by_method("word/document.xml", 9), "method"),
    "a method of compressing an image": (by_method("a.png", 98), "method"),
    "encrypted": (
        GOOD.replace(b"PK\x01\x02\x14\x03\x14\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01\x00"),
        "encrypted",
    ),
    "a member of 16 EB": (changed("a.png", file_size=2**63, compress_size=2**63), "unpacked"),
    "a member behind the end": (changed("word/document.xml", header_offset=10**9), "damaged"),
    "a member before the begin": (changed("a.png", header_offset=7), ""),
    "a wrong checksum": (changed("word/document.xml", CRC=1), "damaged"),
    "a wrong size": (changed("word/document.xml", file_size=10), "damaged|not well-formed"),
    "a size of nothing": (changed("word/document.xml", compress_size=0), "damaged|not well"),
    "a folder for a part": (package({**word(""), "word/document.xml/": ""}), ""),
    "no main part": (zipped({"[Content_Types].xml": word("")["[Content_Types].xml"]}), "main part"),
    "names that are paths": (
        package({**word(TEXT), "../../x": "x", "/etc/x": "x", "C:\\x": "x", "a\0b": "x"}),
        "",
    ),
    "a name of 60,000 characters": (package({**word(TEXT), "a" * 60_000: "x"}), ""),
    "names of signs": (package({**word(TEXT), "\u202e": "x", " ": "x", "%s{0}": "x"}), ""),
    "a comment with a zip": (GOOD[:-2] + struct.pack("<H", len(GOOD)) + GOOD, ""),
    "a zip of a zip": (zipped({"a.docx": GOOD}), "missing"),
    "a list of members alone": (GOOD[GOOD.index(b"PK\x01\x02") :], "damaged|not a zip"),
    "a PDF": (b"%PDF-1.7 \n", "PDF"),
    "an old Word file": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 512, "password"),
    "RTF": (rb"{\rtf1 text}", "RTF"),
    "gzip": (zlib.compress(b"text"), "not a zip"),
    "a slide": (zipped(slides()), "ending"),
    "types that are no XML": (zipped({**word(TEXT), "[Content_Types].xml": "x"}), "well-formed"),
    "no attributes of types": (
        zipped({**word(TEXT), "[Content_Types].xml": "<Types><Override/><Default/></Types>"}),
        "main part",
    ),
}  # fmt: skip

HOSTILE: dict[str, Hostile] = {
    name: Hostile("a.docx", lambda data=data: data, reason)  # type: ignore[misc]
    for name, (data, reason) in _ZIPS.items()
}


def _add(name: str, file: str, data: Callable[[], bytes], refused: str = "") -> None:
    assert name not in HOSTILE
    HOSTILE[name] = Hostile(file, data, refused, is_large=True)


for _name, _data, _refused in [
    ("too many tags", lambda: with_document(b"<a>" + b"<b/>" * 4_000_000 + b"</a>"), "tags"),
    ("too many members", lambda: zipped({f"{i}": "" for i in range(MAX_MEMBERS + 1)}), "members"),
    ("a bomb", lambda: with_spaces("word/media/a.xml", 300), "unpacked"),
    ("a lie about the size", lying, "damaged"),
    ("members that are the same bytes", lambda: overlapping(10_000, 1), "unpacked"),
    ("small members that are the same bytes", lambda: overlapping(150, 1), "overlap"),
    ("marks of members alone", lambda: b"PK\x01\x02" * 2_000_000, "members"),
    ("a type of 1 MB", lambda: typed("ms-word." * 125_000), "main part"),
    ("a type of 1 MB of another kind", lambda: typed("wordprocessingml." * 60_000), "main part"),
    ("200,000 types", lambda: typed("x", "<Default Extension='a' ContentType='b'/>" * 200_000),
     "main part"),
    ("ten million cells", lambda: body(
        "<w:tbl><w:tr>" + "<w:tc><w:p/></w:tc>" * 10_000_000 + "</w:tr></w:tbl>"), "bytes"),
    ("20,000 cells", lambda: body(
        "<w:tbl><w:tr>" + f"<w:tc>{TEXT}</w:tc>" * 20_000 + "</w:tr></w:tbl>"), ""),
    ("50,000 runs of two formats", lambda: body(
        "<w:p>" + (run("a", "<w:b/>") + run("b ")) * 25_000 + "</w:p>"), ""),
    ("a run of 9 MB", lambda: body(f"<w:p>{run('word ' * 1_800_000)}</w:p>"), ""),
    ("a run of 50 MB", lambda: body(f"<w:p>{run('word ' * 10_000_000)}</w:p>"), "well-formed"),
    ("25,000 paragraphs", lambda: body(TEXT * 25_000), ""),
    ("20,000 rows", lambda: body(
        "<w:tbl>" + f"<w:tr><w:tc>{TEXT}</w:tc></w:tr>" * 20_000 + "</w:tbl>"), ""),
    ("nested tables", lambda: body(
        "<w:tbl><w:tr><w:tc>" * 75 + TEXT + "</w:tc></w:tr></w:tbl>" * 75), ""),
    ("nested paragraphs", lambda: body("<w:p><w:r>" * 110 + "<w:t>a</w:t>" + "</w:r></w:p>" * 110),
     ""),
    ("fields without an end", lambda: body(
        "<w:p>" + (FLD["begin"] + QUOTE + FLD["separate"] + run("a ")) * 10_000 + "</w:p>"), ""),
    ("ends of fields without a begin", lambda: body(
        "<w:p>" + (FLD["end"] + run("a ")) * 20_000 + "</w:p>"), ""),
    ("nested fields", lambda: body(
        "<w:p>" + (FLD["begin"] + QUOTE + FLD["separate"] + run("a ")) * 20_000
        + FLD["end"] * 20_000 + "</w:p>"), ""),
    ("bookmarks", lambda: body(
        "<w:p>" + "".join(f"<w:bookmarkStart w:id='{n}'/>" for n in range(N)) + run("a b")
        + "".join(f"<w:bookmarkEnd w:id='{n}'/>" for n in range(N)) + run("c") + "</w:p>"), ""),
    ("a format of 200,000 elements", lambda: body(
        "<w:p>" + run("a ") + run("b", "<w:b/>" * 200_000) + run(" c") + "</w:p>"), ""),
    ("an element of 100,000 attributes", lambda: body(
        "<w:p " + " ".join(f"a{n}='x'" for n in range(N)) + f">{run('a')}</w:p>"), ""),
    ("an attribute of 9 MB", lambda: body(f"<w:p a='{'x' * 9_000_000}'>{run('a')}</w:p>"), ""),
    ("100,000 namespaces", lambda: body(
        "<w:p " + " ".join(f"xmlns:a{n}='x{n}'" for n in range(20_000)) + f">{run('a')}</w:p>"),
     ""),
    ("processing instructions", lambda: body(f"<w:p>{run('a ')}{'<?a b?>' * N}{run('b')}</w:p>"),
     ""),
    ("a comment of 9 MB", lambda: body(f"<w:p><!--{'x' * 9_000_000}-->{run('a')}</w:p>"), ""),
    ("CDATA", lambda: body("<w:p><w:r><w:t>" + "<![CDATA[a ]]>" * N + "</w:t></w:r></w:p>"), ""),
    ("tabs", lambda: body(f"<w:p>{run('a' + chr(9) * 300_000 + 'b')}</w:p>"), ""),
    ("hyphens that are elements", lambda: body(
        "<w:p><w:r><w:t>a</w:t>" + "<w:noBreakHyphen/>" * N + "<w:t>b</w:t></w:r></w:p>"), ""),
    ("comments of an earlier start", lambda: zipped(word(
        TEXT, comments="<w:comment w:id='1' w:author='mtkit'><w:p/></w:comment>" * 20_000)), ""),
    ("5,000 parts", lambda: zipped(word(
        TEXT * 5_000, **{f"header{n}": TEXT for n in range(5_000)})), ""),
]:  # fmt: skip
    _add(_name, "a.docx", _data, _refused)

_SLIDES = slides()
_IDS = "".join(f"<p:sldId id='{n}' r:id='{'ab'[n % 2]}'/>" for n in range(N))
for _name, _file, _members, _refused in [
    ("slides many times", "a.pptx",
     {**_SLIDES, "ppt/presentation.xml": f"<p:p xmlns:p='p' xmlns:r='r'>{_IDS}</p:p>"}, ""),
    ("relations of themselves", "a.pptx",
     {**_SLIDES, "ppt/_rels/presentation.xml.rels": f"<R xmlns='{RELATIONS}'>"
      "<Relationship Id='a' Target='../../../../etc/passwd'/>"
      "<Relationship Id='b' Target='presentation.xml'/></R>"}, ""),
    ("a Word file as slides", "a.pptx", word(TEXT), "ending"),
    ("nested spans", "a.odt", odt("<text:p>a " + "<text:span>" * 200 + "b" + "</text:span>" * 200
                                  + " c</text:p>"), ""),
    ("100,000 spans", "a.odt", odt("<text:p>" + "<text:span>a</text:span> " * N + "</text:p>"), ""),
    ("spaces as elements", "a.odt", odt("<text:p>a" + "<text:s/>" * N + "b</text:p>"), ""),
    ("line ends that count", "a.odt",
     odt("<text:p xml:space='preserve'>" + "a\n" * N + "</text:p>"), ""),
    ("no media type", "a.odt", {**odt("<text:p>a</text:p>"), "mimetype": ""}, "OpenDocument"),
    ("encrypted by its manifest", "a.odt",
     {**odt("<text:p>a</text:p>"), "META-INF/manifest.xml": "<encryption-data/>"}, "encrypted"),
    ("no container", "a.epub", {k: v for k, v in PARTS.items() if "container" not in k}, "missing"),
    ("a package document elsewhere", "a.epub",
     {**PARTS, "META-INF/container.xml": "<a><rootfile full-path='../../etc/passwd'/></a>"},
     "missing"),
    ("DRM", "a.epub",
     {**PARTS, "META-INF/encryption.xml": '<a Algorithm="http://x"/>'}, "DRM"),
    ("entities of HTML", "a.epub", epub(one="<p>a" + "&nbsp;" * 300_000 + "b</p>"), ""),
    ("an unknown entity", "a.epub", epub(one="<p>&unknown;</p>"), ""),
    ("nested emphasis", "a.epub", epub(one="<p>a " + "<b>" * 200 + "b" + "</b>" * 200 + " c</p>"),
     ""),
    ("100,000 line breaks", "a.epub", epub(one="<p>" + "a<br/>" * N + "</p>"), ""),
]:  # fmt: skip
    _add(_name, _file, partial(zipped, _members), _refused)

_NESTED = "<g id='1'>a"
for _name, _file, _data, _refused in [
    ("crossing codes", "a.xlf", lambda: xliff(unit(crossing(5_000))), ""),
    ("40,000 crossing codes", "a.xlf", lambda: xliff(unit(crossing(40_000))), ""),
    ("marks that cross", "a.xlf", lambda: xliff2(
        "<segment><source>" + "".join(f"<sc id='{n}'/>a" for n in range(20_000))
        + "".join(f"<ec startRef='{n}'/>a" for n in range(20_000)) + "</source></segment>"), ""),
    ("the same code many times", "a.xlf", lambda: xliff(unit(
        "<bpt id='1'/>a" * 20_000 + "<ept id='1'/>a" * 20_000)), ""),
    ("nested codes", "a.xlf", lambda: xliff(unit(_NESTED * 200 + "</g>" * 200)), ""),
    ("20,000 segments of a unit", "a.xlf", lambda: xliff2(segments(20_000)), ""),
    ("100,000 notes", "a.xlf", lambda: xliff2(
        "<notes>" + "<note category='mtkit'>x</note>" * N + "</notes>" + segments(1)), ""),
    ("a name of a unit of 1 MB", "a.xlf",
     lambda: xliff(unit("a").replace("<trans-unit", f"<trans-unit id2='{'x' * 1_000_000}'")), ""),
    ("groups in groups", "a.xlf", lambda: xliff("<group>" * 200 + unit("a") + "</group>" * 200),
     ""),
    ("another kind of XML", "a.xlf", lambda: b"<svg/>", "XLIFF"),
    ("entities", "a.xlf", lambda: b'<!DOCTYPE a [<!ENTITY e "x">]><xliff>&e;</xliff>', "entities"),
    ("no text", "a.xlf", lambda: b"", "XML|empty"),
    ("a zip as text", "a.po", lambda: GOOD, "UTF-8"),
    ("an unknown charset", "a.po", lambda: po(entry("a"), "charset=x-unknown\\n"), "charset"),
    ("a charset that is none", "a.po", lambda: po(entry("a"), "charset=rot13\\n"), "charset"),
    ("another charset that is none", "a.po", lambda: po(entry("a"), "charset=zip\\n"), "charset"),
    ("a charset of a file name", "a.po", lambda: po(entry("a"), "charset=../../x\\n"), "charset"),
    ("a plural without an end", "a.po", lambda: po(
        entry("a"), "nplurals=2; plural=" + "(" * 100_000 + "n\\n"), "plural"),
    ("a plural that is a program", "a.po", lambda: po(
        entry("a"), "nplurals=2; plural=__import__('os').system('x');\\n"), "plural"),
    ("a plural of powers", "a.po", lambda: po(
        entry("a"), "nplurals=2; plural=n*n*n*9999999999999*n%3;\\n"), ""),
    ("a long plural", "a.po", lambda: po(
        entry("a"), "nplurals=2; plural=" + "n+" * 20_000 + "n;\\n"), "plural"),
    ("nested plurals", "a.po", lambda: po(
        entry("a"), "nplurals=2; plural=" + "n?" * 5_000 + "1" + ":0" * 5_000 + ";\\n"), "plural"),
    ("a billion plural forms", "a.po", lambda: po(
        entry("a"), "nplurals=1000000000; plural=n;\\n"), "plural forms"),
    ("a string without an end", "a.po", lambda: po('msgid "' + "a" * N + "\nmsgstr"), "line"),
    ("escapes", "a.po", lambda: po(entry("a" + r"\\" * N + "b")), ""),
    ("bytes as numbers", "a.po", lambda: po(entry(r"\377\x80" * N + "b")), ""),
    ("lines of a message", "a.po", lambda: po(entry(r"word\n" * 50_000)), ""),
    ("strings of a message", "a.po", lambda: po('msgid ""\n' + '"a "\n' * N + 'msgstr ""\n'), ""),
    ("tags of a message", "a.po", lambda: po(entry("a " + "<b>" * N)), ""),
    ("tags that cross", "a.po", lambda: po(entry(
        "".join(f"<a{n}>x" for n in range(10_000)) + "".join(f"</a{n}>x" for n in range(10_000)))),
     ""),
    ("placeholders", "a.po", lambda: po(entry("a %s" * N, "#, c-format\n")), ""),
    ("half placeholders", "a.po", lambda: po(entry("a " + "%(" * N, "#, python-format\n")), ""),
    ("comments", "a.po", lambda: po("# a\n" * 500_000 + entry("a")), ""),
    ("flags", "a.po", lambda: po("#, " + "fuzzy, " * N + "\n" + entry("a")), ""),
    ("50,000 entries", "a.po", lambda: po(entry("a b") * 50_000), ""),
    ("UTF-16", "a.po", lambda: po(entry("a")).decode().encode("utf-16"), ""),
    ("NUL", "a.po", lambda: po(entry("a\0b") + "\0" * N), "line"),
    ("no times", "a.srt", lambda: b"a\n" * N, "times"),
    ("bytes", "a.srt", lambda: bytes(range(256)) * 1_000, "UTF-8|utf-8|text|charset|byte"),
    ("a time of many digits", "a.srt", lambda: (
        f"1\n{'9' * 5_000}:00:00,000 --> {'9' * 5_000}:00:01,000\ntext\n").encode(), ""),
    ("arrows", "a.srt", lambda: srt("a " + "-->" * N), ""),
    ("lines of arrows", "a.srt", lambda: srt("a") + b"-->\n" * N, ""),
    ("lines of digits", "a.srt", lambda: srt("a") + b"1\n" * N, ""),
    ("cues without a text", "a.srt", lambda: srt(*[""] * 20_000), ""),
    ("cues of a sentence without an end", "a.srt", lambda: srt(*["a word and"] * 3_000), ""),
    ("a cue of 1 MB", "a.srt", lambda: srt("word " * 200_000), ""),
    ("a cue of a word of 1 MB", "a.srt", lambda: srt("w" * 1_000_000), ""),
    ("a cue of 50,000 lines", "a.srt", lambda: srt("word\n" * 50_000), ""),
    ("brackets of sounds", "a.srt", lambda: srt("a " + "[" * N), ""),
    ("sounds", "a.srt", lambda: srt("a " + "[b] " * 20_000), ""),
    ("notes of music", "a.srt", lambda: srt("a " + "\u266a" * N), ""),
    ("speakers", "a.srt", lambda: srt("- a\n" * 50_000), ""),
    ("dashes", "a.srt", lambda: srt("-" * N + "a"), ""),
    ("tags of a cue", "a.srt", lambda: srt("a " + "<i>" * N + "b" + "</b>" * 1_000), ""),
    ("readings of a cue", "a.srt", lambda: srt("<rt>" * 20_000 + "a <rt>b" * 20_000), ""),
    ("half tags", "a.srt", lambda: srt("a " + "<" * N + "b"), ""),
    ("codes of positions", "a.srt", lambda: srt(r"{\an8}" * 50_000 + "a"), ""),
    ("half codes of positions", "a.srt", lambda: srt("a " + "{\\" * N), ""),
    ("entities of a cue", "a.vtt", lambda: b"WEBVTT\n\n" + srt("a " + "&amp;" * N), ""),
    ("notes", "a.vtt", lambda: b"WEBVTT\n\n" + b"NOTE mtkit: a\n\n" * 20_000 + srt("a"), ""),
    ("spaces in a cue", "a.srt", lambda: srt("a" + " " * N + "b"), ""),
    ("spaces in a tag", "a.po", lambda: po(entry("a<b>" + " " * N + "b")), ""),
    ("ends of lines of old systems", "a.srt", lambda: srt("a") + b"\r" * N, ""),
    ("dots", "a.srt", lambda: srt("a" + "." * N + "b", "c"), ""),
    ("half a tag", "a.srt", lambda: srt("a <" + "b" * N), ""),
    ("styles", "a.vtt", lambda: b"WEBVTT\n\nSTYLE\n" + b"a{}\n" * N + b"\n" + srt("a"), ""),
]:  # fmt: skip
    _add(_name, _file, _data, _refused)

_MARKDOWN: dict[str, str] = {
    **{f"{N:,} times {sign}": "a " + sign * N + " b" for sign in "*_[](){}<>`!~#|\\&$:-+=.\"'@^"},
    "quotes in quotes": ">" * N + " a",
    "lists in lists": "".join("  " * n + "- a\n" for n in range(1_000)),
    "links in links": "[a" * 20_000 + "](b)" * 20_000,
    "images in images": "![a" * 20_000 + "](b)" * 20_000,
    "emphasis in emphasis": "*a " * 20_000 + "b*" * 20_000,
    "emphasis of two kinds": "*a_ " * 30_000,
    "strong in strong": "**a " * 30_000,
    "strikes": "~~a " * 30_000,
    "code of all lengths": " ".join("`" * n for n in range(1, 500)) + " a",
    "tags": "a " + "<b>" * 30_000 + " c",
    "tags that do not end": "a " + "<b " * 30_000,
    "signs of less": "a < b " * 30_000,
    "classes that do not end": "<p>a\n" + "<b class='a " * 30_000,
    "comments that do not end": "a " + "<!--" * 30_000,
    "addresses that do not end": "a " + "<http://" * 30_000,
    "entities": "a " + "&amp;" * 30_000,
    "footnotes": "a[^1]" * 20_000 + "\n\n" + "[^1]: b\n" * 20_000,
    "definitions of links": "[a][b]\n\n" + "".join(f"[b{n}]: c\n" for n in range(20_000)),
    "names of links that are missing": "[a][b] " * 20_000,
    "a wide table": "|" + "a|" * 5_000 + "\n|" + "-|" * 5_000 + "\n|" + "b|" * 5_000,
    "a long table": "|a|b|\n|-|-|\n" + "|c|d|\n" * 10_000,
    "front matter without an end": "---\n" + "a: b\n" * N,
    "lines": "a\n" * 50_000,
    "line breaks": "a  \n" * 20_000,
    "formulas": "a " + "$$" * 30_000,
    "half formulas": "a " + "$b " * 30_000,
    "commands": "a " + "{{" * 30_000,
    "other commands": "a " + "{%" * 30_000,
    "spaces in code": "a `b" + " " * N + "b`",
    "spaces in code of HTML": "a <code>b" + " " * N + "b</code>",
    "a long name of a tag": "a <" + "b" * N + ' c="<">',
    "wikis": "a " + "[[" * 30_000,
    "NUL": "a \0 " * N,
    "spaces": "a" + " " * N + "b",
    "tasks": "- [ ] a\n" * 10_000,
    "headings": "# a\n" * 20_000,
    "marks of containers": ":::\n" * N + "a",
}  # fmt: skip
for _name, _text in _MARKDOWN.items():
    _add(f"Markdown: {_name}", "a.md", _text.encode, "")
_add("Markdown: 10 MiB", "a.md", lambda: b"A sentence of *some* words.\n\n" * 360_000, "larger")
