"""Pretended translators of documents, and what must hold of a document that they translated."""

import io
import random
import re
import zipfile
from collections import Counter
from typing import Any

from lxml import etree

from mtkit.documents import Document, open_document, plain_text
from mtkit.documents.inline import escaped, events

# What one paragraph may have more or fewer of: pieces of text, and what is said of them.
RUNS = frozenset({"r", "s", "t", "rPr", "noBreakHyphen", "proofErr", "lastRenderedPageBreak"})
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
    """How often there is each element, but for runs and their formats."""
    names = Counter(node.tag for node in root.iter(etree.Element))
    for properties in root.iter("{*}rPr"):
        if next(properties.iterancestors("{*}rPr"), None) is None:
            names.subtract(node.tag for node in properties.iterdescendants(etree.Element))
    return Counter({
        tag: n for tag, n in names.items() if n and etree.QName(tag).localname not in RUNS
    })  # fmt: skip


def nesting_of(root: Any) -> set[tuple[str, str]]:
    """Which elements stand in which ones, but for the text and the format of a run."""
    inner = root.iterdescendants(etree.Element)
    pairs = {(node.getparent().tag, node.tag) for node in inner}
    return {pair for pair in pairs if etree.QName(pair[1]).localname not in RUNS - {"r"}}


def letters_of(root: Any) -> str:
    return re.sub(r"[\s\u2011]+", "", root.xpath("string()"))


def problems(name: str, data: bytes, translator: str) -> list[str]:
    """What is wrong with a document after a pretended translation; empty if nothing is."""
    document = open_document(name, data, target="xx")
    lines = [segment.line for segment in document.segments]
    written = document.write([TRANSLATORS[translator](line) for line in lines])
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
        found += [f"{part}: {pair}" for pair in nesting_of(new[part]) - nesting_of(root)]
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
        root = document._tree(part)
        before = (names_of(root), root.xpath("string()"))
        for paragraph, _ in document._texts(part, root):
            for text in paragraph.texts:
                text.put(text.line)
            paragraph.render()
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


def opened(name: str, members: dict[str, str | bytes], **options: Any) -> Document:
    return open_document(name, zipped(members), **options)


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


BOLD, ITALIC = "<w:b/>", "<w:i/>"


DELETED = "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>"


FIELD = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'


def field(code: str, result: str) -> str:
    instruction = f"<w:r><w:instrText> {code} </w:instrText></w:r>"
    return (
        FIELD.format("begin")
        + instruction
        + FIELD.format("separate")
        + result
        + FIELD.format("end")
    )


BOX = """<w:r><mc:AlternateContent xmlns:mc="m">
<mc:Choice><w:txbxContent><w:p>{0}</w:p></w:txbxContent></mc:Choice>
<mc:Fallback><w:txbxContent><w:p>{0}</w:p></w:txbxContent></mc:Fallback>
</mc:AlternateContent></w:r>"""


def slides() -> dict[str, str | bytes]:
    main = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
    text = (
        f"<p:sld xmlns:p='p' {main}><p:sp>{{}}<a:p><a:pPr/>{{}}<a:endParaRPr/></a:p></p:sp></p:sld>"
    )
    plain = "<a:r><a:rPr lang='{}'/><a:t>{}</a:t></a:r>"
    runs = plain.format("en", "Two ") + plain.format("de", "runs") + "<a:br/>"
    number = "<a:fld type='slidenum'><a:t>x</a:t></a:fld>"
    two = text.format("", runs + plain.format("en", "next") + number)
    kind = f"{OFFICE}.presentationml."
    return {
        "[Content_Types].xml": types_of(
            ppt_presentation=f"{kind}presentation.main", ppt_slides_slide1=f"{kind}slide",
            ppt_slides_slide2=f"{kind}slide", ppt_master1=f"{kind}slideMaster",
            docProps_core="application/vnd.openxmlformats-package.core-properties",
        ),
        "ppt/presentation.xml": "<p:p xmlns:p='p' xmlns:r='r'><p:sldId id='256' r:id='b'/>"
        "<p:sldId id='257' r:id='a'/></p:p>",
        "ppt/_rels/presentation.xml.rels": f"<R xmlns='{RELATIONS}'>"
        "<Relationship Id='a' Target='slides/slide1.xml'/>"
        "<Relationship Id='b' Target='/ppt/slides/slide2.xml'/></R>",
        "ppt/slides/slide1.xml": text.format("", plain.format("en", "last")),
        "ppt/slides/slide2.xml": two,
        "ppt/master1.xml": text.format("<p:nvPr><p:ph/></p:nvPr>", plain.format("en", "Edit here")),
        "docProps/core.xml": "<c:coreProperties xmlns:c='c' xmlns:d='d'><d:title>My talk</d:title>"
        "<d:creator>Me</d:creator></c:coreProperties>",
    }  # fmt: skip


class Writer:
    """Writes paragraphs of everything that is hard, at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.number = 0

    def text(self) -> str:
        self.number += 1
        words = [
            self.random.choice(["word", "שלום", "ﷺ", "co\u00adop", "&lt;b&gt;", "&amp;", "x²"])
        ]
        words += [f"w{self.number}"] * self.random.randint(0, 3)
        glue = self.random.choice(["", " "])
        return self.random.choice(["", " "]) + " ".join(words) + glue

    def run(self) -> str:
        formats = ["", BOLD, ITALIC, "<w:rtl/>", '<w:lang w:val="x"/>', "<w:vanish/>"]
        return run(self.text(), self.random.choice(formats))

    def inline(self, depth: int) -> str:
        if depth > 3:
            return self.run()
        inside = "".join(self.inline(depth + 1) for _ in range(self.random.randint(0, 3)))
        marks = [FIELD.format(kind) for kind in ("begin", "separate", "end")]
        return self.random.choice([
            self.run(), self.run(), self.run(), self.run() + self.run(),
            f"<w:hyperlink>{inside}</w:hyperlink>", f"<w:ins>{inside}</w:ins>",
            f"{DELETED}{inside}", f"<w:moveFrom>{inside}</w:moveFrom>", "<w:sdt><w:sdtPr/></w:sdt>",
            f"<w:smartTag><w:smartTagPr/>{inside}</w:smartTag>",
            f"<w:sdt><w:sdtPr/><w:sdtContent>{inside}</w:sdtContent></w:sdt>",
            f'<w:fldSimple w:instr="TITLE">{inside}</w:fldSimple>',
            field(self.random.choice(["PAGE", "HYPERLINK x", "TOC", "XE"]), inside),
            f"<w:r><w:ruby><w:rt/><w:rubyBase>{inside}</w:rubyBase></w:ruby></w:r>",
            self.random.choice(marks), "<w:r><w:instrText>alone</w:instrText></w:r>",
            FIELD.format("begin") + FIELD.format("end"),
            "<w:r><w:tab/><w:t>after</w:t><w:br/><w:cr/><w:t> twice </w:t></w:r>", "<w:r/>",
            "<w:r><w:softHyphen/><w:noBreakHyphen/><w:t>x</w:t><w:footnoteReference/></w:r>",
            '<w:bookmarkStart w:id="1"/>', "<!-- a comment -->", "<?pi x?>", "<w:proofErr/>",
            f"<w:r><w:t>a</w:t><w:lastRenderedPageBreak/><w:t>b</w:t>{BOX.format(inside)[5:]}",
            "<w:r><w:t>tab\tin text</w:t></w:r>",
            "<m:oMath xmlns:m='m'><m:r><m:t>x</m:t></m:r></m:oMath>",
        ])  # fmt: skip

    def paragraph(self) -> str:
        inside = "".join(self.inline(0) for _ in range(self.random.randint(0, 6)))
        return f"<w:p>{self.random.choice(['', '<w:pPr><w:bidi/></w:pPr>'])}{inside}</w:p>"

    def body(self, depth: int = 0) -> str:
        parts = []
        for _ in range(self.random.randint(1, 4)):
            parts.append(self.paragraph())
            if depth < 3 and self.random.random() < 0.3:
                parts.append(f"<w:tbl><w:tr><w:tc>{self.body(depth + 1)}</w:tc></w:tr></w:tbl>")
        return "\n ".join(parts)


TEXT = "application/vnd.oasis.opendocument.text"


NAMES = "xmlns:text='t' xmlns:office='o' xmlns:dc='d' xmlns:draw='dr'"


def odt(body: str, **parts: str) -> dict[str, str | bytes]:
    others = {f"{name}.xml": f"<office:x {NAMES}>{xml}</office:x>" for name, xml in parts.items()}
    return {"mimetype": TEXT, "content.xml": f"<office:text {NAMES}>{body}</office:text>", **others}


def chapter(body: str) -> str:
    return (
        '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://www.w3.org/xhtml11.dtd">\n'
        '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>Chapter</title>'
        f"<style>p {{}}</style></head><body>{body}</body></html>"
    )


def epub(**bodies: str) -> dict[str, str | bytes]:
    items = "".join(
        f"<item id='{name}' href='text%20/{name}.xhtml' media-type='application/xhtml+xml'/>"
        for name in bodies
    )
    order = "".join(f"<itemref idref='{name}'/>" for name in reversed(bodies))
    ncx = "<item id='n' href='toc.ncx' media-type='application/x-dtbncx+xml'/>"
    return {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": "<c><rootfile full-path='o/book.opf'/></c>",
        "o/book.opf": f"<p><m><title>Book</title></m><f>{items}{ncx}</f><s>{order}</s></p>",
        "o/toc.ncx": "<ncx><navLabel><text>Chapter</text></navLabel></ncx>",
        **{f"o/text /{name}.xhtml": chapter(body) for name, body in bodies.items()},
    }


BODY = """<h1>One&nbsp;title</h1>
  <ul><li>an <b>item</b> <ul><li>inside</li></ul> after</li></ul><!-- x -->
  <p translate="no">kept</p><p>text<br/>more <code>x = 1</code> text <img alt=""/></p>
  <pre>a  b</pre>
  <table><tr><td>cell</td></tr></table>"""


OLD = "urn:oasis:names:tc:xliff:document:1.2"


NEW = "urn:oasis:names:tc:xliff:document:2.0"


def xliff(units: str) -> bytes:
    body = f'<file source-language="en" original="a"><body>{units}</body></file>'
    return f'<xliff xmlns="{OLD}" version="1.2">{body}</xliff>'.encode()


def xliff2(segment: str) -> bytes:
    unit = f'<file id="f"><unit id="u">{segment}</unit></file>'
    return f'<xliff version="2.0" srcLang="en" xmlns="{NEW}">{unit}</xliff>'.encode()


def unit(source: str, target: str = "", attributes: str = "") -> str:
    return f'<trans-unit id="1"{attributes}><source>{source}</source>{target}</trans-unit>'
