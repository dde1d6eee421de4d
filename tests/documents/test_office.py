"""Word and PowerPoint files: what is a text, what becomes of its codes, and comments for marks."""

import pytest
from lxml import etree
from support.documents import (
    BOLD,
    BOX,
    DELETED,
    FIELD,
    ITALIC,
    TRANSLATORS,
    WORD,
    Writer,
    field,
    in_capitals,
    opened,
    problems,
    run,
    slides,
    trees,
    word,
    zipped,
)

from mtkit.base.errors import MtkitError
from mtkit.documents import office, open_document


def lines_of(paragraph: str) -> list[str]:
    return [segment.line for segment in opened("a.docx", word(f"<w:p>{paragraph}</w:p>")).segments]


def translated(paragraph: str, *lines: str | None) -> str:
    """The paragraph after a translation, without namespaces."""
    written = opened("a.docx", word(f"<w:p>{paragraph}</w:p>")).write(lines)
    ((p,),) = trees(written)["word/document.xml"]
    return etree.tostring(p, encoding="unicode").replace(f" {WORD}", "")


@pytest.mark.parametrize(
    ("paragraph", "lines"),
    [
        # Language, proofing and the number of a revision change nothing that readers see.
        (run("On", '<w:lang w:val="de"/>') + run("e", "<w:noProof/>") + run(" text"), ["One text"]),
        (run("a long text with ") + run("bold", BOLD), ["a long text with <g1>bold</g1>"]),
        (run("x", ITALIC) + run(" much more text", BOLD), ["<g1>x</g1> much more text"]),
        (run("On") + run("e", '<w:rFonts w:hint="eastAsia"/>') + run(" text"), ["One text"]),
        # A format of spaces is not seen.
        (run("one") + run(" ", BOLD) + run("two"), ["one two"]),
        (run("H") + run("2", BOLD) + run("O and more"), ["H<g1>2</g1>O and more"]),
        (run("One") + "<w:r><w:tab/></w:r>" + run("Two"), ["One", "Two"]),
        ("<w:r><w:t>One</w:t><w:br/><w:t>Two</w:t></w:r>", ["One", "Two"]),
        ("<w:r><w:t>One\tTwo</w:t></w:r>", ["One", "Two"]),
        (f"<w:hyperlink>{run('Link')}</w:hyperlink>", ["Link"]),
        (f"<w:hyperlink>{run('a link')}</w:hyperlink>{run(' now')}", ["<g1>a link</g1> now"]),
        (f"<w:ins>{run('new')}</w:ins>{run(' text')}", ["<g1>new</g1> text"]),
        (run("one ") + DELETED + run("two"), ["one <!--1-->two"]),
        (f"{run('one ')}<w:moveFrom>{run('old')}</w:moveFrom>{run('two')}", ["one <!--1-->two"]),
        (f"{run('text')}<w:r><w:footnoteReference/></w:r>{run(' more')}", ["text<x1/> more"]),
        (f"{run('text')}<w:r><w:footnoteReference/></w:r>", ["text"]),
        (f'{run("a ")}<w:bookmarkStart/>{run("b")}<w:bookmarkEnd/>', ["a <!--1-->b"]),
        ("<w:r><w:t>co</w:t><w:softHyphen/><w:t>operate</w:t></w:r>", ["co<!--1-->operate"]),
        ("<w:r><w:t>e</w:t><w:noBreakHyphen/><w:t>mail</w:t></w:r>", ["e\u2011mail"]),
        (run("on page ") + field("PAGE", run("7")) + run(" below"), ["on page <x1/> below"]),
        (run("a ") + field("HYPERLINK x", run("link")) + run(" now"), ["a <g1>link</g1> now"]),
        (run("see ") + field("REF x", run("Table 1")) + run(" below"), ["see <x1/> below"]),
        # An entry of a table of contents by LibreOffice.
        (field("PAGEREF x", run("Part one\t1")), ["Part one"]),
        (run("on ") + field("PAGEREF x", run("i")) + run(" below"), ["on <x1/> below"]),
        (f'{run("in ")}<w:fldSimple w:instr="DATE"/>{run(" we")}', ["in <x1/> we"]),
        # A field inside of another.
        (run("a ") + field("IF x", field("PAGE", run("7")) + run("yes")), ["a <g1><x2/>yes</g1>"]),
        # A field that ends in another paragraph.
        (run("Contents") + FIELD.format("begin") + "<w:r><w:instrText>TOC</w:instrText></w:r>"
         + FIELD.format("separate") + run("Part one"), ["Contents", "Part one"]),
        (f"<w:sdt><w:sdtPr/><w:sdtContent>{run('control')}</w:sdtContent></w:sdt>", ["control"]),
        (run("12.5") + run("%"), []),
        (run("a &lt; b &amp; c"), ["a &lt; b &amp; c"]),
    ],
)  # fmt: skip
def test_a_paragraph_is_texts_with_codes(paragraph: str, lines: list[str]):
    assert lines_of(paragraph) == lines


def test_the_spaces_before_and_after_a_text_stay():
    assert translated(run("   one  two  "), "EINS ZWEI") == f"<w:p>{run('   EINS ZWEI  ')}</w:p>"


def test_a_translation_takes_the_formats_of_its_codes():
    assert (
        translated(
            "<w:pPr><w:jc/></w:pPr>" + run("the ") + run("red", BOLD) + run(" house"),
            "das <g1>rote</g1> Haus",
        )
        == "<w:p><w:pPr><w:jc/></w:pPr>"
        + run("das ")
        + run("rote", BOLD).replace(' xml:space="preserve"', "")
        + run(" Haus")
        + "</w:p>"
    )


def test_a_text_between_breaks_changes_alone_and_keeps_the_spaces_at_its_ends():
    text = "<w:r><w:t>One </w:t><w:br/><w:t>Two</w:t></w:r>"
    new = "<w:r><w:t>One </w:t></w:r><w:r><w:br/></w:r><w:r><w:t>Zwei</w:t></w:r>"
    preserved = new.replace("<w:t>One", '<w:t xml:space="preserve">One')
    assert translated(text, None, "Zwei") == f"<w:p>{preserved}</w:p>"


def test_a_link_moves_with_its_words_and_a_hyphen_that_does_not_break_stays_one():
    link = '<w:hyperlink w:anchor="x">{}</w:hyperlink>'
    new = translated(run("see ") + link.format(run("e-mail")), "<g1>E\u2011Mail</g1> ansehen")
    mail = "<w:r><w:t>E</w:t></w:r><w:r><w:noBreakHyphen/></w:r><w:r><w:t>Mail</w:t></w:r>"
    assert new == f"<w:p>{link.format(mail)}{run(' ansehen')}</w:p>"


def test_the_base_of_a_reading_is_translated_in_its_sentence_and_the_reading_stays():
    def with_reading(base: str) -> str:
        reading = f"<w:rubyPr/><w:rt>{run('inu', ITALIC)}</w:rt>"
        ruby = f"<w:ruby>{reading}<w:rubyBase>{base}</w:rubyBase></w:ruby>"
        return f"<w:r><w:rPr>{BOLD}</w:rPr>{ruby}</w:r>"

    source = run("the ") + with_reading(run("dog ", ITALIC)) + run("runs ")
    assert lines_of(source) == ["the <g1>dog </g1>runs"]
    new = run("der ") + with_reading(run("Hund ", ITALIC)) + run("rennt ")
    assert translated(source, "der <g1>Hund </g1>rennt") == f"<w:p>{new}</w:p>"
    assert lines_of(with_reading(run("a dog"))) == ["a dog"]


def test_characters_that_xml_cannot_have_are_left_out_of_a_translation():
    new = translated(run("one"), "e\x0bi\x00n\ud800s\ufffe")
    assert new == "<w:p><w:r><w:t>eins</w:t></w:r></w:p>"


def test_what_was_deleted_while_changes_were_tracked_stays():
    new = translated(run("one ") + DELETED + run("two"), "eins <!--1-->zwei ")
    assert new == f"<w:p>{run('eins ')}{DELETED}{run('zwei ')}</w:p>"


def test_paragraphs_and_parts_that_do_not_change_keep_their_bytes():
    split = f"<w:p>{run('un')}{run('changed')}<w:proofErr/></w:p>"
    members = word(f"{split}<w:p>{run('text')}</w:p>", footnotes=f"<w:p>{run('note')}</w:p>")
    document = opened("a.docx", members)
    assert document.write([None, "text", "note"]) == zipped(members)
    new = trees(document.write([None, "TEXT", None]))
    body = etree.tostring(new["word/document.xml"], encoding="unicode")
    assert split in body
    assert ">TEXT<" in body
    assert "note" in etree.tostring(new["word/footnotes.xml"], encoding="unicode")
    # It can be written again, and differently.
    assert document.write([None, None, None]) == zipped(members)


def test_all_parts_with_texts_are_read_and_say_where_a_text_is():
    parts = {
        name: f"<w:p>{run(name)}</w:p>" for name in ("header2", "footer1", "footnotes", "endnotes")
    }
    document = opened("a.docx", word(f"<w:p>{run('1')}</w:p><w:p>{run('text')}</w:p>", **parts))
    assert [(s.line, s.place) for s in document.segments] == [
        ("text", "paragraph 1"),
        ("header2", "header 2, paragraph 1"),
        ("footer1", "footer 1, paragraph 1"),
        ("footnotes", "footnotes, paragraph 1"),
        ("endnotes", "endnotes, paragraph 1"),
    ]


def test_a_text_box_is_translated_for_new_and_old_programs():
    text = f"<w:p>{run('before ')}{BOX.format(run('inside'))}{run(' after')}</w:p>"
    document = opened("a.docx", word(text))
    assert [s.line for s in document.segments] == ["before <x1/> after", "inside", "inside"]
    root = trees(document.write(["<x1/> NACH VOR", "INNEN", "INNEN"]))["word/document.xml"]
    assert [t.text for t in root.iter("{*}t")] == ["INNEN", "INNEN", " NACH VOR"]
    art = '<w:p><w:r><w:pict><v:textpath xmlns:v="v" string="{}&#10;{}"/></w:pict></w:r></w:p>'
    document = opened("a.docx", word(art.format("a dog", "runs")))
    (p,) = trees(document.write(["ein Hund", "rennt"]))["word/document.xml"][0]
    assert art.format("ein Hund", "rennt") == etree.tostring(p, encoding="unicode").replace(
        f" {WORD}", ""
    )


@pytest.mark.parametrize("has_comments", [False, True])
def test_a_mark_is_a_comment_on_its_paragraph(has_comments: bool):
    old = f'<w:comment w:id="4"><w:p>{run("old")}</w:p></w:comment>'
    parts = {"comments": old} if has_comments else {}
    text = f"<w:p><w:pPr/>{run('one')}</w:p><w:p>{run('two')}{BOX.format(run('box'))}</w:p>"
    document = opened("a.docx", word(text, header1=f"<w:p>{run('head')}</w:p>", **parts))
    assert document.shows_marks
    texts = [segment.line for segment in document.segments]
    marks = {1: "a < b", 2: "in a box", texts.index("head"): "of the header"}
    new = trees(document.write([None] * len(texts), marks))
    comments = new["word/comments.xml"]
    ids = [c.get(c.tag.replace("comment", "id")) for c in comments][has_comments:]
    assert ids == (["5", "6", "7"] if has_comments else ["0", "1", "2"])
    assert [t.text for t in comments.iter("{*}t")][has_comments:] == [
        *("a < b", "in a box", "header 1, paragraph 1: of the header"),
    ]
    body = new["word/document.xml"][0]
    places = [
        [node.values()[0] for node in paragraph.iter("{*}commentReference")] for paragraph in body
    ]
    assert places == [[ids[2]], ids[:2]]
    assert [etree.QName(node).localname for node in body[0]][:3] == [
        "pPr",
        "commentRangeStart",
        "r",
    ]
    types = etree.tostring(new["[Content_Types].xml"], encoding="unicode")
    assert types.count("wordprocessingml.comments+xml") == 1
    if not has_comments:
        (relation,) = new["word/_rels/document.xml.rels"]
        assert relation.get("Type").endswith("/relationships/comments")
        assert relation.get("Target") == "comments.xml"


def test_cells_without_text_and_those_in_other_tables_count_too():
    cell, empty = f"<w:tc><w:p>{run('a')}</w:p></w:tc>", "<w:tc><w:p/></w:tc>"
    inner = f"<w:tbl><w:tr>{empty}{cell}</w:tr></w:tbl>"
    control = f"<w:sdt><w:sdtContent>{empty}</w:sdtContent></w:sdt>"
    rows = [empty, cell + f"<w:tc>{inner}<w:p>{run('a')}</w:p></w:tc>" + cell, control + cell]
    rows += ["", f"<w:trPr/>{empty}{control}{cell}"]
    table = "".join(f"<w:tr>{row}</w:tr>" for row in rows)
    places = [s.place for s in opened("a.docx", word(f"<w:tbl><w:tblPr/>{table}</w:tbl>")).segments]
    cells = [(2, 1), (1, 2), (2, 2), (2, 3), (3, 2), (5, 3)]
    assert places == [
        f"paragraph {number} (row {row}, cell {cell})"
        for number, (row, cell) in enumerate(cells, 1)
    ]


def test_the_comments_of_a_document_are_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(office, "MAX_COMMENTS", 2)
    document = opened("a.docx", word("".join(f"<w:p>{run(x)}</w:p>" for x in "abc")))
    new = trees(document.write([None] * 3, {0: "x", 1: "y", 2: "z"}))
    assert [t.text for t in new["word/comments.xml"].iter("{*}t")] == ["x", "y"]
    assert document.write_notes == ["only the first 2 doubts have a comment"]


def test_a_later_translation_takes_earlier_comments_away():
    old = f'<w:comment w:id="4" w:author="A"><w:p>{run("old")}</w:p></w:comment>'
    text = f"<w:p>{run('one')}</w:p><w:p>{run('two')}</w:p>"
    data = zipped(word(text, comments=old))
    marked = open_document("a.docx", data).write([None] * 3, {0: "a", 1: "b", 2: "c"})
    again = open_document("a.docx", marked)
    assert [segment.line for segment in again.segments] == ["one", "two", "old"]
    new = trees(again.write(["eins", None, None], {1: "d"}))
    assert [t.text for t in new["word/comments.xml"].iter("{*}t")] == ["old", "d"]
    for kind in ("RangeStart", "RangeEnd", "Reference"):
        assert len(list(new["word/document.xml"].iter(f"{{*}}comment{kind}"))) == 1
    without = trees(again.write([None] * 3))
    assert not list(without["word/document.xml"].iter("{*}commentReference"))
    assert [t.text for t in without["word/comments.xml"].iter("{*}t")] == ["old"]


def test_slides_are_read_in_the_order_of_the_talk():
    segments = opened("a.pptx", slides()).segments
    assert [(s.line, s.place) for s in segments] == [
        ("Two runs", "slide 1, paragraph 1"),
        ("next", "slide 1, paragraph 1"),
        ("last", "slide 2, paragraph 1"),
        ("My talk", "properties, title"),
    ]


def test_comments_on_slides_are_translated():
    members = slides()
    old = ("a", "vnd.openxmlformats-officedocument.presentationml.comments", "<p:text>{}</p:text>")
    body = "<a:p><a:r><a:t>{}</a:t></a:r></a:p>"
    new = ("b", "vnd.ms-powerpoint.comments", f"<p:reply><p:txBody>{body}</p:txBody></p:reply>")
    main = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
    for name, kind, content in (old, new):
        override = f'<Override PartName="/ppt/{name}.xml" ContentType="application/{kind}+xml"/>'
        types = str(members["[Content_Types].xml"]).replace("</Types>", f"{override}</Types>")
        comment = f"<p:cmLst xmlns:p='p' {main}><p:cm>{content.format(name)}</p:cm></p:cmLst>"
        members |= {"[Content_Types].xml": types, f"ppt/{name}.xml": comment}
    document = opened("a.pptx", members)
    lines = [(s.line, s.place) for s in document.segments if s.place.startswith("comments")]
    assert lines == [("a", "comments, paragraph 1"), ("b", "comments, paragraph 1")]
    written = trees(document.write([segment.line.upper() for segment in document.segments]))
    assert written["ppt/a.xml"].xpath("string()") == "A"
    assert written["ppt/b.xml"].xpath("string()") == "B"


def test_a_paragraph_of_a_slide_ends_with_its_own_format():
    new = trees(opened("a.pptx", slides()).write(["Zwei", None, None, None]))
    names = [etree.QName(node).localname for node in new["ppt/slides/slide2.xml"].find(".//{*}p")]
    assert names == ["pPr", "r", "br", "r", "fld", "endParaRPr"]


@pytest.mark.parametrize("translator", TRANSLATORS)
def test_slides_come_back_whole(translator: str):
    assert problems("a.pptx", zipped(slides()), translator) == []


@pytest.mark.parametrize("translator", TRANSLATORS)
@pytest.mark.parametrize("seed", range(12))
def test_a_hostile_document_comes_back_whole(translator: str, seed: int):
    writer = Writer(seed)
    data = zipped(word(writer.body(), footnotes=writer.body(), comments=writer.body()))
    assert problems("a.docx", data, translator) == []


@pytest.mark.parametrize("translator", TRANSLATORS)
@pytest.mark.parametrize("piece", [run("a ") + run("b ", BOLD), run("a") + "<w:r><w:tab/></w:r>"])
def test_a_paragraph_of_many_runs_comes_back_whole(translator: str, piece: str):
    assert problems("a.docx", zipped(word(f"<w:p>{piece * 1000}</w:p>")), translator) == []


def test_signatures_macros_and_embedded_files_are_said():
    others = {
        "_xmlsignatures/sig1.xml": "",
        "word/vbaProject.bin": "",
        "word/embeddings/a.xlsx": "",
    }
    document = opened("a.docm", {**word(f"<w:p>{run('a')}</w:p>"), **others})
    assert [len(note.splitlines()) for note in document.notes] == [1, 1, 1]
    assert "signature becomes invalid" in document.notes[0]


@pytest.mark.parametrize("name", ["a.pptx", "a.odt", "a.epub"])
def test_a_word_file_with_another_ending_is_refused(name: str):
    with pytest.raises(MtkitError, match=rf"^{name}: "):
        open_document(name, zipped(word(f"<w:p>{run('a')}</w:p>")))


def test_strict_documents_are_read_too():
    strict = "http://purl.oclc.org/ooxml/wordprocessingml/main"
    members = {
        name: str(xml).replace(
            "http://schemas.openxmlformats.org/wordprocessingml/2006/main", strict
        )
        for name, xml in word(f"<w:p>{run('text')}</w:p>").items()
    }
    document = opened("a.docx", members)
    new = trees(document.write([in_capitals("text")], {0: "doubtful"}))
    assert [t.text for t in new["word/document.xml"].iter("{*}t")] == ["TEXT"]
    (relation,) = new["word/_rels/document.xml.rels"]
    assert relation.get("Type").startswith("http://purl.oclc.org/ooxml/")
