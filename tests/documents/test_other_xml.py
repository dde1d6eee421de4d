"""OpenDocument, EPUB and XLIFF: what is a text, what becomes of its codes, and marks."""

import io
import re
import zipfile

import pytest
from lxml import etree
from support.documents import (
    BODY,
    NEW,
    TEXT,
    TRANSLATORS,
    chapter,
    epub,
    in_capitals,
    odt,
    opened,
    problems,
    trees,
    unit,
    xliff,
    xliff2,
    zipped,
)

from mtkit.base.errors import MtkitError
from mtkit.documents import open_document

RUBY = (
    "<text:ruby><text:ruby-base>{}</text:ruby-base><text:ruby-text>inu</text:ruby-text></text:ruby>"
)
RUBY_OF_HTML = "<ruby>{}<rp>(</rp><rt>x <b>y</b></rt><rp>)</rp></ruby>"


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("<text:h>Title</text:h><text:p>One <text:span>two</text:span></text:p>",
         ["Title", "One <g1>two</g1>"]),
        ("<text:p><text:span>All\n  of it</text:span></text:p>", ["All of it"]),
        ("<text:p>One<text:line-break/>two<text:tab/>three</text:p>", ["One", "two", "three"]),
        ("<text:p><text:span>1a<text:tab/>2b</text:span> three</text:p>", ["1a", "2b", "three"]),
        ("<text:p>a <text:s/>b<text:bookmark/> c</text:p>", ["a b<!--1--> c"]),
        ("<text:p><text:s/>a<text:s/><text:s/>b<text:s/></text:p>", ["a b"]),
        ("<text:p>a: <text:s text:c='3'/>b</text:p>", ["a:", "b"]),
        # Before and after the words of a line, programs show only spaces that are elements.
        ("<text:p><text:span><text:s/>a<text:s/>b</text:span> c<text:line-break/><text:bookmark/>"
         "<text:a>1. <text:span><text:s/>a</text:span></text:a> b<text:tab/>c <text:span>d<text:s/>"
         "</text:span></text:p>", ["<g1><!--2-->a b</g1> c", "<g1>1. <g2> a</g2></g1> b",
                                   "c <g1>d<!--2--></g1>"]),
        ("<text:p>a <text:text-input>b</text:text-input> c</text:p>", ["a <g1>b</g1> c"]),
        ("<text:p>on <text:page-number>7</text:page-number> now</text:p>", ["on <x1/> now"]),
        ("<text:p>text<text:note><text:note-body><text:p>note</text:p></text:note-body></text:note>"
         " more</text:p>", ["text<x1/> more", "note"]),
        ("<text:tracked-changes><text:p>old</text:p></text:tracked-changes><text:p>new</text:p>",
         ["new"]),
        ("<text:p>see <text:a>the <text:span>link</text:span></text:a></text:p>",
         ["see <g1>the <g2>link</g2></g1>"]),
        ("<text:p>12 <text:span>%</text:span></text:p>", []),
        (f"<text:p>a {RUBY.format('dog')} runs</text:p><text:p>{RUBY.format('cat')}</text:p>",
         ["a <g1>dog</g1> runs", "cat"]),
    ],
)  # fmt: skip
def test_a_paragraph_of_opendocument_is_texts_with_codes(body: str, lines: list[str]):
    assert [segment.line for segment in opened("a.odt", odt(body)).segments] == lines
    for translator in TRANSLATORS:
        assert problems("a.odt", zipped(odt(body)), translator) == []


@pytest.mark.parametrize(
    ("name", "members", "ruby"),
    [
        ("a.odt", odt(f"<text:p>a {RUBY.format('dog')} runs</text:p>"), RUBY),
        ("a.epub", epub(one=f"a {RUBY_OF_HTML.format('dog')} runs"), RUBY_OF_HTML),
    ],
)
def test_the_base_of_a_reading_is_translated_and_the_reading_stays(name, members, ruby):
    document = opened(name, members)
    lines = [re.sub("<!--.*-->", "", segment.line) for segment in document.segments]
    (number,) = (i for i, line in enumerate(lines) if line == "a <g1>dog</g1> runs")
    own = document.segments[number].line
    lines = [own.replace("dog", "Hund") if i == number else None for i in range(len(lines))]
    written = trees(document.write(lines))
    roots = (root for root in written.values() if not isinstance(root, bytes))
    texts = [etree.tostring(root, encoding="unicode") for root in roots]
    assert sum(f"a {ruby.format('Hund')} runs" in text for text in texts) == 1


def test_a_translation_of_opendocument_keeps_elements_and_the_first_member():
    note = "<text:note><text:p>note</text:p></text:note>"
    body = f"<text:p>the <text:span>red</text:span> house{note} now</text:p>"
    members = odt(body, styles="<text:p>head</text:p>", meta="<dc:title>Title</dc:title>")
    document = opened("a.odt", members)
    places = ["paragraph 1", "paragraph 2", "styles, paragraph 1", "meta, title"]
    assert [segment.place for segment in document.segments] == places
    lines = ["jetzt <x2/>das Haus, <g1>rot</g1>", None, "Kopf", None]
    written = document.write(lines)
    new = trees(written)
    assert list(new) == list(members)
    assert written[30:38] == b"mimetype"
    assert written[38:].startswith(TEXT.encode())
    assert "".join(new["content.xml"].itertext()) == "jetzt notedas Haus, rot"
    assert "".join(new["styles.xml"].itertext()) == "Kopf"


def test_a_text_in_a_table_of_opendocument_says_its_row_and_cell():
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>"
    rows = ("ab", "cd")
    table = "".join(
        f"<table:table-row>{''.join(map(cell.format, row))}</table:table-row>" for row in rows
    )
    body = f"<text:p>x</text:p><table:table xmlns:table='ta'><table:c/>{table}</table:table>"
    places = [segment.place for segment in opened("a.odt", odt(body)).segments]
    cells = ["(row 1, cell 1)", "(row 1, cell 2)", "(row 2, cell 1)", "(row 2, cell 2)"]
    assert places == [
        "paragraph 1",
        *(f"paragraph {number} {cell}" for number, cell in enumerate(cells, 2)),
    ]


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({"META-INF/manifest.xml": "<m><encryption-data/></m>"}, "encrypted"),
        (
            {"mimetype": "application/vnd.oasis.opendocument.spreadsheet"},
            "not an OpenDocument text",
        ),
    ],
)
def test_what_is_no_readable_opendocument_is_refused(others: dict[str, str | bytes], reason: str):
    with pytest.raises(MtkitError, match=rf"a\.odt: .*{reason}"):
        opened("a.odt", {**odt("<text:p>a</text:p>"), **others})


def test_a_book_is_read_in_its_order():
    segments = opened("a.epub", epub(two=BODY, one="<p>first</p>")).segments
    assert [(s.line, s.place) for s in segments if "chapter" not in s.place] == [
        ("Book", "o/book.opf, title"),
        ("Chapter", "o/toc.ncx, paragraph 1"),
    ]
    assert [(s.line, s.place) for s in segments if "chapter" in s.place][:4] == [
        ("Chapter", "chapter 1, title"),
        ("first", "chapter 1, paragraph 2"),
        ("Chapter", "chapter 2, title"),
        ("One\u00a0title", "chapter 2, paragraph 2"),
    ]
    assert [segment.line for segment in segments if "chapter 2" in segment.place][2:] == [
        *("an <g1>item</g1>", "inside", "after", "text", "more <x1/> text", "cell"),
    ]


def test_chapters_that_are_not_xhtml_are_said():
    members = epub(one="<p>text</p>")
    book = str(members["o/book.opf"])
    picture = "<item id='p' href='p.svg' media-type='image/svg+xml'/>"
    book = book.replace("</f>", f"{picture}</f>").replace("</s>", "<itemref idref='p'/></s>")
    document = opened("a.epub", {**members, "o/book.opf": book, "o/p.svg": "<svg/>"})
    assert document.notes == ["chapters that are not XHTML are kept as they are: 1"]
    assert opened("a.epub", members).notes == []


@pytest.mark.parametrize("translator", TRANSLATORS)
def test_a_book_comes_back_whole(translator: str):
    assert problems("a.epub", zipped(epub(two=BODY, one="<p>first</p>")), translator) == []


def test_a_break_of_a_chapter_is_not_two():
    kept = "<p>a <i class='x notranslate'>B</i> <del>c</del><ins>d</ins></p>"
    lines = [segment.line for segment in opened("a.epub", epub(a=kept)).segments]
    assert "a <x1/> <g2>c</g2> <g3>d</g3>" in lines
    read = opened("a.epub", epub(a="<p>One<br/>two</p>"))
    written = read.write([in_capitals(segment.line) for segment in read.segments])
    with zipfile.ZipFile(io.BytesIO(written)) as package:
        assert b"<p>ONE<br/>TWO</p>" in package.read("o/text /a.xhtml")


def test_parts_of_xliff_with_one_number_are_pairs_in_their_order():
    part = '<mrk mtype="seg" mid="1">{}</mrk>'.format
    texts = part("One dog."), part("Two cats."), part("Three.")
    targets = part("Ein Hund."), part(""), part("Drei.")
    data = xliff(
        f"<trans-unit><source/><seg-source>{''.join(texts)}</seg-source>"
        f"<target>{''.join(targets)}</target></trans-unit>"
    )
    new = f"{targets[0]}{part('Zwei Katzen.')}{targets[2]}"
    assert f"<target>{new}</target>" in after(data, "Zwei Katzen.")


def test_a_chapter_keeps_its_document_type_and_what_is_not_translated():
    document = opened("a.epub", epub(one=BODY))
    lines = [None if s.line != "cell" else "Zelle" for s in document.segments]
    new = trees(document.write(lines))["o/text /one.xhtml"]
    old = etree.fromstring(chapter(BODY.replace("&nbsp;", "&#160;").replace("cell", "Zelle")))
    assert etree.tostring(new, method="c14n") == etree.tostring(old, method="c14n")
    assert new.getroottree().docinfo.public_id == "-//W3C//DTD XHTML 1.1//EN"


@pytest.mark.parametrize(("own", "new"), [("en-US", "de"), ("fr", "fr")])
def test_a_book_names_the_language_of_its_translation(own: str, new: str):
    members = epub(one="<p>text</p>")
    book = str(members["o/book.opf"]).replace("<p><m>", f"<p><m><language>{own}</language>")
    members["o/book.opf"] = book
    page = str(members["o/text /one.xhtml"]).replace(
        "<html", f"<html lang='{own}' xml:lang='{own}'"
    )
    document = opened("a.epub", {**members, "o/text /one.xhtml": page}, source="en", target="de")
    parts = trees(
        document.write([s.line.upper() if s.line == "text" else None for s in document.segments])
    )
    assert parts["o/book.opf"].findtext("{*}m/{*}language") == new
    assert [*parts["o/text /one.xhtml"].attrib.values()] == [new, new]


def test_a_book_with_drm_is_refused_and_one_with_obfuscated_fonts_is_read():
    method = '<e><m Algorithm="http://www.{}"/></e>'
    fonts = {"META-INF/encryption.xml": method.format("idpf.org/2008/embedding")}
    assert opened("a.epub", {**epub(one="<p>a</p>"), **fonts}).segments
    drm = {"META-INF/encryption.xml": method.format("w3.org/2001/04/xmlenc#aes128-cbc")}
    with pytest.raises(MtkitError, match="DRM"):
        opened("a.epub", {**epub(one="<p>a</p>"), **drm})


def after(data: bytes, *lines: str | None, **marks: str) -> str:
    document = open_document("a.xlf", data, target="de")
    numbered = {int(name[1:]): mark for name, mark in marks.items()}
    return document.write(lines, numbered).decode().partition("?>\n")[2]


@pytest.mark.parametrize(
    ("units", "lines"),
    [
        (unit("One", "<target/>"), ["One"]),
        (unit("One", "<target>Eins</target>"), []),
        (unit("One", '<target state="needs-translation">One</target>'), ["One"]),
        (unit("One", attributes=' translate="no"'), []),
        (f'<group translate="no">{unit("One")}</group>', []),
        (unit('a <g id="1">b</g> <x id="2"/>c'), ["a <g1>b</g1> <x2/>c"]),
        (unit('a <bpt id="1">&lt;b></bpt>b<ept id="1">&lt;/b></ept> c'), ["a <g1>b</g1> c"]),
        (unit('a <bpt id="1"/>b<bpt id="2"/>c<ept id="1"/>d<ept id="2"/> e'),
         ["a <g1>b<x2/>c</g1>d<x3/> e"]),
        (unit("a &lt;b class='x'>b&lt;/b> c&lt;br/>d &lt;i> 1 &lt; 2"),
         ["a <g1>b</g1> c<x2/>d <x3/> 1 &lt; 2"]),
        (unit("<![CDATA[<p>a <b>b</b></p>]]>"), ["a <g1>b</g1>"]),
        (unit('&lt;p>a <g id="1">b&lt;/p></g> c'), ["a <g1>b<x2/></g1> c"]),
        (unit('a <mrk mtype="protected">B</mrk> c'), ["a <x1/> c"]),
        # Angular has two elements around words; each text of a message of ICU is one.
        (unit('a <x id="START_LINK"/>b <x id="START_LINK_1"/>c<x id="CLOSE_LINK"/> d'
              '<x id="CLOSE_LINK"/> e<x id="LINE_BREAK"/>f <x id="CLOSE_LINK"/>g'),
         ["a <g1>b <g2>c</g2> d</g1> e", "f <x1/>g"]),
        (unit('{N, plural, =0 {a <x id="I"/> b} other {# dogs {M, select, x {c} other {}}}}'),
         ["a <x1/> b", "dogs", "c"]),
        (unit("{N, plural, =0 {a} other {b {c} d}}"), ["{N, plural, =0 {a} other {b {c} d}}"]),
        (unit("a {N, plural, =0 {b} other {c}}"), ["a {N, plural, =0 {b} other {c}}"]),
        (unit("One\n Two", attributes=' xml:space="preserve"'), ["One", "Two"]),
        (unit("One\n Two"), ["One Two"]),
        (unit("One", "<alt-trans><source>x</source><target>y</target></alt-trans>"), ["One"]),
    ],
)  # fmt: skip
def test_units_of_xliff_without_a_translation_are_texts(units: str, lines: list[str]):
    data = xliff(units)
    document = open_document("a.xlf", data)
    assert [segment.line for segment in document.segments] == lines
    assert document.write(lines) == data


def test_a_translation_of_xliff_stands_beside_its_source():
    source = 'the <g id="1">red</g> <bpt id="2">[</bpt>house<ept id="2">]</ept>'
    target = '<target><bpt id="2">[</bpt>Haus<ept id="2">]</ept>, <g id="1">rot</g></target>'
    old = xliff(unit(source, '<target state="new"/><note>n</note>'))
    new = after(old, "<g2>Haus</g2>, <g1>rot</g1>")
    new_target = target.replace("<target>", '<target state="translated">')
    languages = 'source-language="en" original="a" target-language="de"'
    assert new == xliff(unit(source, f"{new_target}<note>n</note>")).decode().replace(
        'source-language="en" original="a"', languages
    )


def test_tags_and_messages_that_a_text_of_xliff_writes_as_text_are_kept():
    new = after(xliff(unit("a &lt;b>red&lt;/b> house&lt;br>")), "ein Haus, <g1>rot</g1>")
    assert "<target>ein Haus, &lt;b&gt;rot&lt;/b&gt;&lt;br&gt;</target>" in new
    new = after(xliff(unit('a &lt;b t="a>b">red&lt;/b> x &lt;y and z>')), "<g1>rot</g1> &lt;y")
    assert '<target>&lt;b t="a&gt;b"&gt;rot&lt;/b&gt; &lt;y</target>' in new
    new = after(
        xliff(unit('{N, plural, =0 {a} other {b &lt;b> <x id="I"/> # c}} ')),
        "A",
        "<x3/><x1/> <x2/>D",
    )
    assert '<target>{N, plural, =0 {A} other {#&lt;b&gt; <x id="I"/>D}} </target>' in new


@pytest.mark.parametrize("translation", ["Eins", "One"])
@pytest.mark.parametrize(
    "data",
    [
        xliff(unit("One", "<target>Uno</target>")),
        xliff(unit("One", '<target state="final" state-qualifier="exact-match">Uno</target>')),
        xliff(unit("One", "<target>Uno</target>", ' approved="yes"')),
        xliff2("<segment><source>One</source><target>Uno</target></segment>"),
        xliff2('<segment state="final"><source>One</source><target>Uno</target></segment>'),
        xliff2('<segment state="initial"><source>One</source><target>Uno</target></segment>'),
    ],
)
def test_everything_is_translated_if_it_is_asked_for(data: bytes, translation: str):
    new = open_document("a.xlf", data, everything=True).write([translation]).decode()
    assert f">{translation}</target>" in new
    assert not any(old in new for old in ("Uno", "final", "exact", 'approved="yes"', "initial"))
    # None keeps what is there.
    assert open_document("a.xlf", data, everything=True).write([None]) == data


@pytest.mark.parametrize("state", ["new", "needs-translation", "needs-l10n"])
def test_a_source_that_is_its_own_translation_replaces_what_is_no_translation_yet(state: str):
    data = xliff(unit("Berlin", f'<target state="{state}">Wien</target>'))
    new = open_document("a.xlf", data).write(["Berlin"]).decode()
    assert '<target state="translated">Berlin</target>' in new
    assert open_document("a.xlf", data).write([None]) == data


def test_a_text_of_xliff_2_in_its_first_state_has_no_translation_yet():
    segment = '<segment state="{}"><source>One</source><target>{}</target></segment>'
    data = xliff2(segment.format("initial", "One") + segment.format("reviewed", "Uno"))
    document = open_document("a.xlf", data)
    assert [text.line for text in document.segments] == ["One"]
    new = document.write(["Eins"]).decode()
    assert segment.format("translated", "Eins") + segment.format("reviewed", "Uno") in new


@pytest.mark.parametrize("text", [
    "    {}    ", "\t{}\n", "\n  {}\n    {}\n  ", "  <g id='1'>  {}</g>  ", "{}<x id='1'/>{} ",
    "  &lt;b&gt; {}&lt;/b&gt;  ", "  {}\n\n\t{}  \n", "{}",
])  # fmt: skip
def test_spaces_at_the_ends_of_lines_of_xliff_stay_where_they_count(text: str):
    source = f"<source>{text.replace('{}', 'A dog.')}</source>"
    own, outer = ' xml:space="preserve"', source.replace("<source", '<source xml:space="preserve"')
    inside = f"<trans-unit id='1'>{source}</trans-unit>"
    for data in (
        xliff(f"<trans-unit id='1'{own}>{source}</trans-unit>"),
        xliff(inside.replace(source, outer)),
        xliff(f"<group{own}>{inside}</group>"),
        xliff2(f"<segment>{source}</segment>").replace(b"<unit", f"<unit{own}".encode()),
        xliff2(f"<segment>{outer}</segment>"),
    ):
        document = open_document("a.xlf", data)
        lines = [segment.line.replace("A dog.", "Ein Hund.") for segment in document.segments]
        target = etree.fromstring(document.write(lines)).find(".//{*}target")
        expected = etree.fromstring(source.replace("A dog.", "Ein Hund."))
        assert "".join(target.itertext()) == "".join(expected.itertext())


SEGMENTS = (
    '<seg-source><mrk mtype="seg" mid="1">A man walks.</mrk> <mrk mtype="seg" mid="2">A dog '
    '<g id="1">runs</g>.</mrk>\n<mrk mtype="seg" mid="3">A cat sits.</mrk></seg-source>'
)
DONE = '<mrk mtype="seg" mid="1">Fertig <g id="7">x</g>.</mrk>'
DOG = '<mrk mtype="seg" mid="2">Hund <g id="1">läuft</g></mrk>'
NEW_DOG = DOG.replace(' mid="2"', ' mid="2" state="translated"')
CAT = '<mrk mtype="seg" mid="3">Katze</mrk>'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f'{DONE} <mrk mtype="seg" mid="2"/>\n<mrk mtype="seg" mid="3"> </mrk>',
         f"{DONE} {DOG}\n{CAT}"),
        (DONE, f"{DONE} {DOG}\n{CAT}"),
        (f"\n {DONE}\n", f"\n {DONE} {DOG}\n{CAT}\n"),
        (f'<mrk mtype="seg" mid="3"/>, {DONE}', f"{CAT}, {DONE} {DOG}"),
        (f'{DONE} <mrk x="y" mtype="seg" mid="2" state="new"><x id="9"/></mrk>',
         f"{DONE} {NEW_DOG.replace('<mrk', '<mrk x=_y_')}\n{CAT}".replace("_", '"')),
        (f'<g id="5">{DONE}<mrk mtype="seg" mid="2"/></g>', f'<g id="5">{DONE}{DOG}\n{CAT}</g>'),
        (f'{DONE} <mrk mtype="seg" mid="2" state="needs-translation">A dog</mrk>',
         f"{DONE} {NEW_DOG}\n{CAT}"),
    ],
)  # fmt: skip
def test_only_parts_of_a_unit_without_a_translation_are_translated(old: str, new: str):
    data = xliff(unit("All", f"{SEGMENTS}<target>{old}</target>", ' approved="yes"'))
    document = open_document("a.xlf", data)
    assert document.write([None] * len(document.segments)) == data
    lines = {"A dog <g1>runs</g1>.": "Hund <g1>läuft</g1>", "A cat sits.": "Katze"}
    order = [segment.line for segment in document.segments]
    written = document.write([lines[line] for line in order])
    expected = unit("All", f"{SEGMENTS}<target>{new}</target>", ' approved="no"')
    assert expected in written.decode()
    again = open_document("a.xlf", written)
    assert not again.segments
    assert again.has_translations


@pytest.mark.parametrize(
    "target",
    [
        "Alles fertig.",
        'Fertig. <mrk mtype="seg" mid="2"/>',
        f"{DONE} {DOG} {CAT}",
        f'{DONE} {DOG} {CAT} <mrk mtype="seg" mid="2"/>',
        f"{CAT}{DOG}{DONE}",
    ],
)
def test_a_unit_with_a_translation_of_all_parts_stays(target: str):
    data = xliff(unit("All", f"{SEGMENTS}<target>{target}</target>"))
    document = open_document("a.xlf", data)
    assert not document.segments
    assert document.has_translations


@pytest.mark.parametrize(
    ("texts", "old", "new"),
    [
        ("A B 5. C", "A B", "A B 5. c"),
        ("A 5. B * C", "A C", "A 5. b * C"),
        ("5. A B", "B", "5. a B"),
        ("A 5. 6. B", "A", "A 5. 6. b"),
        ("A 5. B 6.", "A", "A 5. b 6."),
        ("5. 6. A B 8. C 9.", "B", "5. 6. a B 8. c 9."),
        ("A 5. B 6. C", "A 6. C", "A 5. b 6. C"),
        ("A <x/> B", "A", "A <x/> b"),
        # Without another new part, nothing changes.
        ("A 5. B 6.", "A B", "A B"),
    ],
)
def test_parts_of_a_unit_without_letters_are_copied_beside_a_new_one(texts, old, new):
    def parts(line: str) -> str:
        """The parts with their numbers in the source, each behind a gap with its number."""
        words, order = line.split(), texts.split()
        numbers = [order.index(word if word in order else word.upper()) for word in words]
        part = '({0})<mrk mtype="seg" mid="{0}">{1}</mrk>'.format
        return "".join(map(part, numbers, words)).removeprefix(f"({numbers[0]})")

    source = f"<seg-source>{parts(texts)}</seg-source>"
    final = f'<target state="final">{parts(old)}</target>'
    document = open_document("a.xlf", xliff(unit("All", source + final)))
    lines = [segment.line.lower() for segment in document.segments]
    # The first new part is doubtful.
    written = document.write(lines, {0: "x"} if lines else {}).decode()
    note, state = '<note from="mtkit">x</note>', "needs-review-translation"
    target = f'<target state="{state}">{parts(new)}</target>{note}' if lines else final
    assert unit("All", source + target) in written


def test_the_first_part_of_a_unit_that_is_missing_stands_before_the_others():
    data = xliff(unit("All", f"{SEGMENTS}<target>{DOG}{CAT}</target>"))
    new = open_document("a.xlf", data).write(["Mann"]).decode()
    assert f'<target><mrk mtype="seg" mid="1">Mann</mrk> {DOG}{CAT}</target>' in new


def test_all_parts_of_a_unit_are_translated_if_it_is_asked_for():
    data = xliff(unit("All", f"{SEGMENTS}<target>{DONE}</target>"))
    document = open_document("a.xlf", data, everything=True)
    assert [segment.line for segment in document.segments] == [
        "<g1>A man walks.</g1> <g2>A dog <g3>runs</g3>.</g2> <g4>A cat sits.</g4>"
    ]


def test_a_rejected_translation_of_a_part_leaves_the_unit_and_its_state():
    target = f'<target state="final">{DONE}</target>'
    data = xliff(unit("All", SEGMENTS + target))
    document = open_document("a.xlf", data)
    note = '<note from="mtkit">{}</note>'
    both = document.write([None, None], {0: "x"}).decode()
    assert SEGMENTS + target + note.format("x") in both
    half = document.write([None, "Katze"], {0: "x", 1: "y"})
    state = 'state="needs-review-translation"'
    new = f"<target {state}>{DONE}\n{CAT}</target>{note.format('y')}{note.format('x')}"
    assert SEGMENTS + new in half.decode()
    last = open_document("a.xlf", half).write(["Hund <g1>läuft</g1>"]).decode()
    assert f'{SEGMENTS}<target state="translated">{DONE} {DOG}\n{CAT}</target></trans' in last


@pytest.mark.parametrize(
    ("before", "own"),
    [
        (xliff(unit("One") + unit("Two", "<note>own</note>")), "<note>own</note>"),
        (xliff(unit("One", "<target/>") + unit("Two", '<note from="x">own</note>')), "own"),
        (xliff2("<segment><source>One</source></segment><segment><source>Two</source></segment>"),
         "<segment "),
        (xliff2("<notes><note>own</note></notes><segment><source>One</source></segment>"
                "<segment><source>Two</source></segment>"), "<notes><note>own</note></notes>"),
    ],
)  # fmt: skip
def test_a_later_translation_of_xliff_takes_earlier_marks_away(before: bytes, own: str):
    old = open_document("a.xlf", before).write(["Ein", "Zwei"], {0: "doubtful", 1: "doubtful"})
    # One text is good now, and the other one is doubtful once more.
    half = open_document("a.xlf", old, everything=True).write(["Eins", None], {1: "still"})
    assert half.count(b'"mtkit"') == half.count(b"still") == 1
    assert half.count(b"needs-review") == 1
    good = open_document("a.xlf", half, everything=True).write(["Eins", "Zwo"]).decode()
    assert all(text in good for text in (">Eins</target>", ">Zwo</target>", own))
    assert not any(text in good for text in ("needs-review", "mtkit", "doubtful", "<notes/>"))


@pytest.mark.parametrize(
    ("source", "target", "note"),
    [
        ("en", "de", None),
        ("en-GB", "DE_at", None),
        ("en", "", None),
        ("", "", None),
        ("eng", "deu", None),
        ("fr", "de", "its languages are fr to de, not en to de"),
        ("en", "es-MX", "its languages are en to es-MX, not en to de"),
        ("fr", "", "its languages are fr, not en to de"),
    ],
)
def test_xliff_in_other_languages_than_those_of_the_model_is_said(source, target, note):
    names = [("source-language", "target-language"), ("srcLang", "trgLang")]
    for data, (of_source, of_target) in zip((xliff(unit("a")), xliff2("")), names, strict=True):
        own = {of_source: source, of_target: target}
        attributes = "".join(f' {name}="{value}"' for name, value in own.items() if value)
        text = data.decode().replace(f' {of_source}="en"', attributes)
        document = open_document("a.xlf", text.encode(), source="en", target="de")
        assert document.warnings == ([note] if note else [])
        assert open_document("a.xlf", text.encode()).warnings == []


def test_a_file_of_xliff_in_other_languages_stays_beside_one_in_those_of_the_model():
    file = '<file source-language="{}" original="{}"><body>{}</body></file>'
    names = ["en", "a&#10;b", 'fr" target-language="es', "c", 'en" target-language="es', ""]
    own = unit("One"), unit("Un"), unit("Two")
    files = [file.format(*names[i : i + 2], text) for i, text in zip((0, 2, 4), own, strict=True)]
    # One more that names no target language yet.
    files.append(file.format("it", "d", unit("Uno")))
    data = xliff("").replace(xliff("")[xliff("").index(b"<file") : -8], "".join(files).encode())
    document = open_document("a.xlf", data, source="en", target="de")
    assert [segment.line for segment in document.segments] == ["One"]
    assert document.warnings == []
    others = "c (fr to es), file 3 (en to es), d (it)"
    assert document.notes == [f"files in other languages than en to de stay as they are: {others}"]
    new = document.write(["Eins"]).decode()
    assert new.endswith("".join(files[1:]) + "</xliff>")
    assert "<target>Eins</target>" in new
    # Without a file in the languages, all are translated, with a warning.
    document = open_document("a.xlf", data, source="en", target="nl")
    assert [segment.line for segment in document.segments] == ["One"]
    document = open_document("a.xlf", data, source="cs", target="nl")
    assert [segment.line for segment in document.segments] == ["One", "Un", "Two", "Uno"]
    assert document.notes == []
    assert document.warnings == ["its languages are en, not cs to nl"]
    # Of many files, some are named.
    many = data.replace(b"</xliff>", files[1].encode() * 20 + b"</xliff>")
    (note,) = open_document("a.xlf", many, source="en", target="de").notes
    assert note.endswith(f"{others}, and 20 more")


def test_texts_inside_codes_of_xliff_are_counted():
    code = '<ph id="1">[img alt="<sub>{}</sub>"]</ph>'
    data = xliff(unit(f"One {code.format('a dog')}") + unit(f"Two {code.format('1')}"))
    document = open_document("a.xlf", data)
    assert document.notes == ["texts inside codes (sub) keep their source: 1"]


def test_a_mark_of_xliff_is_a_state_and_a_note():
    new = after(xliff(unit("One") + unit("Two")), "Eins", None, n0="a < b", n1="rejected")
    note = '<note from="mtkit">{}</note>'
    first = '<target state="needs-review-translation">Eins</target>' + note.format("a &lt; b")
    assert unit("One", first) + unit("Two", note.format("rejected")) in new


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("old", ["Uno", "One"])
def test_a_rejected_translation_changes_neither_the_old_one_nor_its_state(is_new: bool, old: str):
    target = f"<source>One</source><target>{old}</target>"
    if is_new:
        text = f'<segment state="reviewed">{target}</segment>'
        data, note = (
            xliff2(text),
            '<notes><note category="mtkit" appliesTo="target">x</note></notes>',
        )
        expected = note + text
    else:
        text = f'<target state="final">{old}</target>'
        data, note = xliff(unit("One", text)), '<note from="mtkit">x</note>'
        expected = text + note
    document = open_document("a.xlf", data, everything=True)
    assert expected in document.write([None], {0: "x"}).decode()
    # A new one that is the same is new.
    assert expected not in document.write([old], {0: "x"}).decode()


def test_a_mark_of_xliff_2_is_a_state_below_the_state_and_a_note_of_the_unit():
    data = xliff2('<originalData/><segment><source>a <pc id="1">b</pc></source></segment>')
    new = after(data, "<g1>B</g1> A", n0="doubtful")
    assert (
        '<unit id="u"><notes><note category="mtkit" appliesTo="target">doubtful</note></notes>'
        '<originalData/><segment state="translated" subState="mtkit:needs-review">'
        '<source>a <pc id="1">b</pc></source><target><pc id="1">B</pc> A</target></segment>'
    ) in new
    assert 'trgLang="de"' in new


@pytest.mark.parametrize("translator", TRANSLATORS)
def test_sources_of_xliff_never_change(translator: str):
    data = xliff2('<segment id="s"><source>a <sc id="1"/>b<ec startRef="1"/> c</source></segment>')
    document = open_document("a.xlf", data)
    assert [segment.line for segment in document.segments] == ["a <g1>b</g1> c"]
    lines = [TRANSLATORS[translator](segment.line) for segment in document.segments]
    root = etree.fromstring(document.write(lines))
    assert b'<source>a <sc id="1"/>b<ec startRef="1"/> c</source>' in etree.tostring(root).replace(
        f' xmlns="{NEW}"'.encode(), b""
    )
    assert (root.find(".//{*}target") is None) == (translator == "copy")


def test_lines_of_xliff_in_which_nothing_changes_keep_their_bytes():
    units = "\r\n".join(f"  {unit(word, '<target/>')}" for word in ("One", "Two", "Three"))
    for declaration in ('<?xml version="1.0" encoding="utf-8" ?>', "<?xml version='1.0'?>"):
        data = f"{declaration}\r\n{xliff(units).decode()}\r\n".encode()
        new = open_document("a.xlf", data).write([None, "Zwei", None])
        assert new == data.replace(b"Two</source><target/>", b"Two</source><target>Zwei</target>")


def test_xliff_in_another_charset_becomes_utf_8():
    for charset in ("utf-16", "iso-8859-1"):
        text = f'<?xml version="1.0" encoding="{charset}"?>\n{xliff(unit("é")).decode()}'
        new = open_document("a.xlf", text.encode(charset)).write(["ż"])
        assert "<source>é</source><target>ż</target>" in new.decode()
        assert etree.fromstring(new).tag.endswith("}xliff")
