"""Pretended translators of documents, and what must hold of a document that they translated."""

from __future__ import annotations

import io
import re
import zipfile
from collections import Counter
from typing import Any

from lxml import etree

from mtkit.documents import Document, escaped, events, open_document, plain_text

# What one paragraph may have more or fewer of: pieces of text, and what is said of them.
RUNS = frozenset({"r", "t", "rPr", "noBreakHyphen", "proofErr", "lastRenderedPageBreak"})
PARSER = etree.XMLParser(resolve_entities=False, no_network=True)


def copied(line: str) -> str:
    return line


def in_capitals(line: str) -> str:
    return rewritten(
        line, lambda text: "".join(c.upper() if len(c.upper()) == 1 else c for c in text)
    )


def with_words_reversed(line: str) -> str:
    """The words in reverse order, and so the codes; each stays inside the same ones."""
    stack: list[list[str]] = [[]]
    for kind, value in events(line):
        if kind == "text":
            stack[-1] += [escaped(piece) for piece in re.split(r"(\s+)", str(value)) if piece]
        elif kind == "open":
            stack.append([])
        elif kind == "close":
            inside = "".join(reversed(stack.pop()))
            stack[-1].append(f"<g{value}>{inside}</g{value}>")
        else:
            stack[-1].append(f"<x{value}/>" if f"<x{value}/>" in line else f"<!--{value}-->")
    return "".join(reversed(stack[0]))


def rewritten(line: str, change: Any) -> str:
    parts = re.split(r"(</?g\d+>|<x\d+/>|<!--\d+-->)", line)
    return "".join(p if i % 2 else escaped(change(plain_text(p))) for i, p in enumerate(parts))


TRANSLATORS = {"copy": copied, "capitals": in_capitals, "reversed": with_words_reversed}


def trees(data: bytes) -> dict[str, Any]:
    """The root of each part that is XML, and the bytes of the others."""
    if not data.startswith(b"PK"):
        return {"": etree.fromstring(data, PARSER)}
    found: dict[str, Any] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        for info in package.infolist():
            found[info.filename] = raw = package.read(info)
            try:
                found[info.filename] = etree.fromstring(raw.replace(b"&nbsp;", b"&#160;"), PARSER)
            except etree.XMLSyntaxError:
                continue
    return found


def names_of(root: Any) -> Counter[str]:
    """How often there is each element, but for runs."""
    return Counter(
        node.tag
        for node in root.iter(etree.Element)
        if etree.QName(node).localname not in RUNS
        and not any(up.tag.endswith("}rPr") for up in node.iterancestors())
    )


def letters_of(root: Any) -> str:
    return re.sub(r"[\s\u2011]+", "", root.xpath("string()"))


def problems(name: str, data: bytes, translator: str) -> list[str]:
    """What is wrong with a document after a pretended translation; empty if nothing is."""
    document = open_document(name, data, target="xx")
    lines = [segment.line for segment in document.segments]
    translated = [TRANSLATORS[translator](line) for line in lines]
    written = document.write(translated)
    if translator == "copy":
        return [] if written == data and rendered_again(name, data) else ["other bytes"]
    old, new = trees(data), trees(written)
    found = [] if list(old) == list(new) else ["other parts"]
    for part, root in old.items():
        if isinstance(root, bytes):
            found += [f"{part}: other bytes"] * (new[part] != root)
            continue
        if names_of(root) != names_of(new[part]):
            more, fewer = names_of(new[part]), names_of(root)
            found.append(f"{part}: elements +{more - fewer} -{fewer - more}")
        before, after = letters_of(root), letters_of(new[part])
        if translator == "capitals":
            found += [f"{part}: other text"] * (before.upper() != after.upper())
        else:
            found += [f"{part}: other letters"] * (Counter(before) != Counter(after))
    again = [segment.line for segment in open_document(name, written).segments]
    if translator == "capitals":
        found += [f"left: {line}" for line in again if in_capitals(line) != line]
        found += ["other segments"] * (len(again) != len(lines))
    return found


def rendered_again(name: str, data: bytes) -> bool:
    """Whether each part with texts stays, but for its runs, if all its texts are put in again."""
    document: Any = open_document(name, data)
    for part in document._parts:
        root = document._tree(part.name)
        before = (names_of(root), root.xpath("string()"))
        slots = list(document._slots(part.name, root))
        for slot in slots:
            slot.text.put(slot.text.line)
        for render in dict.fromkeys(slot.render for slot in slots):
            render()
        spaces = re.compile(r"\s+")
        text = spaces.sub("", root.xpath("string()")).replace("\u2011", "")
        if (names_of(root), text) != (before[0], spaces.sub("", before[1]).replace("\u2011", "")):
            return False
    return True


def zipped(members: dict[str, str | bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in members.items():
            kind = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            package.writestr(name, content, kind)
    return data.getvalue()


def opened(name: str, members: dict[str, str | bytes]) -> Document:
    return open_document(name, zipped(members))


WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
OFFICE = "application/vnd.openxmlformats-officedocument"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"


def types_of(**types: str) -> str:
    """`[Content_Types].xml`; `_` in the name of a part is a `/`."""
    overrides = "".join(
        f'<Override PartName="/{name.replace("_", "/")}.xml" ContentType="{kind}+xml"/>'
        for name, kind in types.items()
    )
    space = "http://schemas.openxmlformats.org/package/2006/content-types"
    return f'<Types xmlns="{space}"><Default Extension="xml" ContentType="a/b"/>{overrides}</Types>'


def word(body: str, **parts: str) -> dict[str, str | bytes]:
    """The members of a Word file with this body, and other parts: `footnotes="<w:p>…"`."""
    kinds = {name: f"{OFFICE}.wordprocessingml.{name.rstrip('123')}" for name in parts}
    types = types_of(
        word_document=f"{OFFICE}.wordprocessingml.document.main",
        **{f"word_{name}": kind for name, kind in kinds.items()},
    )
    others = {f"word/{name}.xml": f"<w:x {WORD}>{xml}</w:x>" for name, xml in parts.items()}
    document = f"<w:document {WORD}><w:body>{body}</w:body></w:document>"
    return {"[Content_Types].xml": types, "word/document.xml": document, **others}


def run(text: str, properties: str = "") -> str:
    rpr = f"<w:rPr>{properties}</w:rPr>" if properties else ""
    return f'<w:r>{rpr}<w:t xml:space="preserve">{text}</w:t></w:r>'
