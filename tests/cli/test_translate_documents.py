"""`mtkit translate` with documents; `--check`, `--findings` and `--reject` with `--format html`."""

import gzip
import json
import lzma
import re
from unittest.mock import Mock

import pytest
from support.command_line import Place
from support.documents import names_of, run, trees, unit, word, xliff, zipped

from mtkit.base.text import open_binary
from mtkit.documents import STRUCTURED, open_document
from mtkit.documents.subtitles import Subtitles
from mtkit.translate import Translator

SRT = "".join(
    f"{i}\n00:00:{i:02},000 --> 00:00:{i:02},900\n{text}\n\n"
    for i, text in enumerate(
        ["<i>one two three.</i>", "- four.\n- five six.", "one <b>two</b> nine.", "12"], 1
    )
)
PO = """msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#: a.c:1
msgid "one <b>two</b>"
msgstr ""

msgid "three"
msgid_plural "four %d"
msgstr[0] ""
msgstr[1] ""

msgid "five"
msgstr "fünf"
"""
MARKDOWN = "# one two\n\n- three **four** `code`\n- [five](x.md)\n\n```\nsix\n```\n\none two\n"
VTT = "WEBVTT\n\nNOTE x\n\n00:01.000 --> 00:02.000 line:0\none two.\n"
DOCX = zipped(word(f"<w:p>{run('one two')}{run(' nine', '<w:b/>')}</w:p><w:p>{run('12')}</w:p>"))
FILES = {"in.srt": SRT, "in.po": PO, "in.md": MARKDOWN, "in.vtt": VTT}


@pytest.fixture
def documents(trained) -> Place:
    for name, text in FILES.items():
        trained.write(name, text)
    return trained


@pytest.fixture
def checked(place, fitted) -> list[str]:
    """A command that translates with a run that has its checks."""
    for name, text in FILES.items():
        place.write(name, text)
    return ["translate", "--run", str(fitted.path), "--device", "cpu"]


def kept_of(name: str, data: bytes) -> list[str]:
    """The lines and codes of a document that no translation changes."""
    forms = {
        "in.srt": r"^\d+$|^.*-->.*$|</?\w+>|^- |^$",
        "in.vtt": r"^WEBVTT$|^NOTE.*$|^.*-->.*$|^$",
        "in.po": r'^#:.*$|^msgid.*$|^"Content.*$|^"Plural.*$|^$|fünf',
        "in.md": r"^# |^- |\*\*|`\w*`?|\]\(x\.md\)|^six$|^$",
    }
    return re.findall(forms[name], data.decode(), re.MULTILINE)


@pytest.mark.parametrize("name", FILES)
def test_a_document_comes_back_with_its_texts_translated(documents, name):
    outcome = documents.done("translate", name, "--output", f"out.{name[3:]}")
    assert outcome.out == ""
    data = FILES[name].encode()
    written = (documents.folder / f"out.{name[3:]}").read_bytes()
    assert written != data
    assert kept_of(name, written) == kept_of(name, data)
    count = len(open_document(name, data).segments)
    assert f"wrote out.{name[3:]}, for {count} segment" in outcome.err
    given = ("-q", "translate", "--format", name[3:].upper())
    for printed in (
        documents.mtkit("-q", "translate", "--input", name),
        documents.mtkit(*given, stdin=data),
        documents.mtkit(*given, "--input", "-", stdin=data),
    ):
        assert printed.out.encode() == written
    assert documents.mtkit("-q", "translate", name, "--output", name).err == ""
    assert (documents.folder / name).read_bytes() == written


def test_the_text_is_that_of_the_lines(documents):
    texts = ["one two three.", "four.", "five six."]
    plain = documents.mtkit("-q", "translate", stdin="\n".join(texts).encode()).out.splitlines()
    rows = documents.mtkit("-q", "translate", "in.srt", "--json").out.splitlines()
    objects = [json.loads(row) for row in rows]
    assert [row["place"] for row in objects] == ["cue 1", "cue 2", "cue 2", "cue 3"]
    assert [row["source"] for row in objects[:3]] == texts
    assert [row["translation"] for row in objects[:3]] == plain
    outcome = documents.mtkit("-q", "translate", "in.srt", "--json", "--output", "out.srt")
    assert outcome.out.splitlines() == rows
    assert (documents.folder / "out.srt").exists()


def test_entries_with_a_translation_are_translated_if_asked_for(documents):
    for options, count in (([], 1), (["--all"], 0)):
        assert documents.mtkit("-q", "translate", "in.po", *options).out.count("fünf") == count


def test_a_segment_that_is_cut_is_named_by_its_place(documents):
    documents.write("long.md", "one\n\none\n\n" + "two " * 2000 + "\n\none\n")
    outcome = documents.mtkit("translate", "long.md")
    assert re.findall("warning: (.*): cut from", outcome.err) == ["line 5"]


def test_xliff_in_other_languages_is_said(documents):
    documents.write("in.xlf", xliff(unit("one")).decode().replace('"en"', '"fr"'))
    outcome = documents.done("translate", "in.xlf", "--output", "out.xlf")
    (line,) = re.findall(r"mtkit: warning: in.xlf: (its languages are .*)", outcome.err)
    assert line.startswith("its languages are fr, not ")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("full.po", 'msgid "one"\nmsgstr "eins"\n'),
        ("full.xlf", xliff(unit("one", "<target>eins</target>")).decode()),
    ],
)
def test_a_file_without_anything_left_to_translate_names_the_option_for_all(documents, name, text):
    documents.write(name, text)
    outcome = documents.mtkit("translate", name, "--output", f"new.{name}")
    note = f"mtkit: {name}: all its texts have a translation; --all translates them again"
    assert note in outcome.err.splitlines()
    outcome = documents.mtkit("translate", name, "--all", "--output", f"all.{name}")
    assert "have a translation" not in outcome.err


def test_a_table_is_read_as_lines_if_it_is_asked_for(documents):
    documents.write("a.csv", "one,two\n")
    documents.write("a.de", "one,two\n")
    as_text = documents.mtkit("translate", "a.csv", "--format", "text").out
    assert as_text == documents.mtkit("translate", "a.de").out


def test_a_document_without_text_comes_back(documents):
    documents.write("code.md", "```\none\n```\n")
    outcome = documents.mtkit("translate", "code.md", "--output", "out.md")
    assert (documents.folder / "out.md").read_bytes() == b"```\none\n```\n"
    assert "wrote out.md, for 0 segments" in outcome.err
    documents.write("word.md", "one\n")
    outcome = documents.mtkit("translate", "word.md", "--output", "out.md")
    assert re.search(r"wrote out.md, for 1 segment\b", outcome.err)
    outcome = documents.mtkit("translate", "--output", "out.txt", stdin=b"one\n")
    assert re.search(r"wrote out.txt, for 1 line\b", outcome.err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "docx"], "a .docx cannot come from standard input; give its file"),
        (["zip.docx"], "a .docx needs --output FILE"),
        (["zip.docx", "--output", "out.docx"], "zip.docx: "),
        (["pdf.docx", "--output", "out.docx"], "pdf.docx: it is a PDF"),
        (["in.docx", "--output", "out.docm"], "--output has the ending .docm, and the document is"),
        (["a.pdf"], "a.pdf: it is a PDF"),
        (
            ["a.xlsx", "--output", "b.xlsx"],
            "a.xlsx: its format 'xlsx' cannot be translated; "
            "save it as .docx or .pptx, or copy its texts into one",
        ),
        *(
            ([f"a.{ending}"], f"a.{ending}: its format '{ending}' cannot be translated; {advice}")
            for ending, advice in {
                **dict.fromkeys(
                    ("csv", "json", "properties", "yml", "tmx", "xml"), "convert it to .po"
                ),
                **dict.fromkeys(("ass", "sub"), "convert it to .srt"),
                "tex": "convert it to .md, with Pandoc for example, or give --format text to",
                "sdlxliff": "give --format xlf",
            }.items()
        ),
        (["word"], "word: is a zip file, perhaps a document; translate reads it as .docx"),
        (["--input", "word.html"], "word.html: is a zip file"),
        (["latin.srt", "--output", "out.srt"], "latin.srt: not UTF-8"),
        (["none.srt", "--output", "none.srt"], "none.srt: has no times of cues"),
        (["bad.po", "--output", "bad.po"], "bad.po: line 1: not a msgid with its msgstr: one"),
        (["in.srt", "--input", "in.po"], "give one input: FILE or --input FILE"),
        (["--input", "missing.srt"], "missing.srt: "),
        (["in.srt", "--nbest", "2"], "--nbest cannot be combined with --format srt"),
        (["in.srt", "--all"], "--all requires a PO or XLIFF file"),
        (
            ["in.srt", "--output", "out.vtt"],
            "--output has the ending .vtt, and the document is .srt",
        ),
        (["--output", "in.docx"], "--output has the ending .docx, and the input is text"),
        (["a.html", "--output", "b.txt"], "--output has the ending .txt, and the input is html"),
    ],
)
def test_what_cannot_be_done_is_one_line(documents, arguments, message):
    for name, data in {
        "zip.docx": b"PK\3\4 cut",
        "pdf.docx": b"%PDF-1.7",
        "a.pdf": b"%PDF-1.7",
        "a.xlsx": b"PK",
        "a.html": b"<p>one</p>",
        "word": DOCX,
        "word.html": DOCX,
        "in.docx": DOCX,
        "latin.srt": SRT.replace("one", "één").encode("latin-1"),
        "none.srt": b"one\n",
        "bad.po": b"one\n",
        **{f"a.{ending}": b"one\n" for ending in STRUCTURED},
    }.items():
        documents.write(name, data)
    assert message in documents.refused("translate", *arguments)


def test_what_was_translated_before_an_error_is_not_translated_again(documents, monkeypatch):
    expected = documents.mtkit("-q", "translate", "in.srt").out

    def full(*_: object) -> bytes:
        raise OSError(28, "No space left on device", "out.srt")

    command = ("translate", "in.srt", "--output", "in.srt")
    with monkeypatch.context() as patch:
        patch.setattr(Subtitles, "write", full)
        assert "No space left" in documents.mtkit("-q", *command).error
        assert (documents.folder / "in.srt").read_text() == SRT
        patch.undo()
        patch.setattr(Translator, "translate_windows", full)
        assert documents.mtkit(*command).status == 0
    assert (documents.folder / "in.srt").read_text() == expected
    assert not list(documents.folder.glob(".in.srt*"))


def test_a_segment_whose_codes_do_not_come_back_keeps_its_source(documents, monkeypatch):
    def lost(segment, *_: object) -> str:
        return "neun" if segment.nodes else segment.text

    monkeypatch.setattr("mtkit.translate.html.markup.with_markup", lost)
    outcome = documents.mtkit("translate", "in.srt")
    assert outcome.out == SRT
    assert (
        "in.srt: 1 of 4 segments stay as they are, because their translations lost" in outcome.err
    )
    assert "cue 3: source kept: its translation lost the formatting" in outcome.err


def test_doubts_are_marked_in_a_po_file(place, checked):
    marked = place.done(*checked, "in.po", "--check", "--below", "100")
    assert re.findall(r"^# mtkit: .*confidence [\d.]+$", marked.out, re.MULTILINE)
    assert marked.out.count("#, fuzzy\n") == 2
    assert "of 3 segments are marked" in marked.err
    rejected = place.mtkit(*checked, "in.po", "--reject", "100")
    assert rejected.out.count('msgstr ""\n') == 2
    assert rejected.out.count("# mtkit: source kept: ") >= 2
    assert "rejected 3 of 3 segments: confidence below 100" in rejected.err


def test_a_word_file_comes_back_with_its_doubts_as_comments(place, checked):
    place.write("in.docx", DOCX)
    command = [*checked, "in.docx", "--output"]
    assert place.mtkit("-q", *command, "plain.docx").err == ""
    before, plain = trees(DOCX), trees((place.folder / "plain.docx").read_bytes())
    assert list(plain) == list(before)
    root = plain["word/document.xml"]
    assert names_of(root) == names_of(before["word/document.xml"])
    assert root.xpath("string(//*[local-name()='p'][2])") == "12"
    assert place.mtkit(*command, "marked.docx", "--below", "100").status == 0
    marked = trees((place.folder / "marked.docx").read_bytes())
    assert "confidence " in marked["word/comments.xml"].xpath("string()")
    rejected = place.mtkit(*command, "rejected.docx", "--reject", "100")
    assert "rejected 1 of 1 segment:" in rejected.err
    root = trees((place.folder / "rejected.docx").read_bytes())["word/document.xml"]
    assert root.xpath("string(//*[local-name()='p'][1])") == "one two nine"
    # The objects go to standard output, and the document to its file.
    rows = place.mtkit("-q", *command, "in.docx", "--json").out.splitlines()
    assert [json.loads(row)["source"] for row in rows] == ["one two nine"]
    assert (place.folder / "in.docx").read_bytes() == (place.folder / "plain.docx").read_bytes()


@pytest.mark.parametrize("name", ["in.srt", "in.md"])
def test_doubts_are_printed_where_the_format_has_no_place(place, checked, name):
    plain = place.mtkit("-q", *checked, name).out
    outcome = place.mtkit(*checked, name, "--below", "100")
    assert outcome.out == plain
    places = {segment.place for segment in open_document(name, FILES[name].encode()).segments}
    doubted = re.findall(r"^mtkit: (\w+ \d+): .*confidence [\d.]+$", outcome.err, re.MULTILINE)
    assert set(doubted) == places
    assert place.mtkit(*checked, name, "--reject", "100").out == FILES[name]


def test_a_finding_names_the_place(place, checked):
    # The vocabulary lacks this sign.
    place.write("in.srt", SRT.replace("four", "猫").replace("nine", "猫"))
    arguments = ["in.srt", "--findings", "found.tsv", "--output", "out.srt"]
    assert place.mtkit(*checked, *arguments).status == 0
    heading, *rows = (place.folder / "found.tsv").read_text(encoding="utf-8").splitlines()
    assert heading == "place\tkind\tseverity\treason\tsource\ttranslation"
    unknown = [row.split("\t") for row in rows if "\tunknown\t" in row and "猫" in row]
    assert [(row[0], row[4]) for row in sorted(unknown)] == [
        ("cue 2", "猫."),
        ("cue 3", "one two 猫."),
    ]
    rows = place.mtkit("-q", *checked, "in.srt", "--json", "--check").out.splitlines()
    assert ["lacks 猫" in row for row in rows] == [False, True, False, True]


def test_html_is_checked_too(place, checked):
    page = "<p>one <b>two</b> 猫</p>\n<p>three\nfour</p><p>five</p>\n"
    place.write("in.html", page)
    plain = place.mtkit(*checked, "in.html").out
    outcome = place.mtkit(*checked, "in.html", "--findings", "found.tsv")
    assert outcome.out == plain
    assert "of 3 segments are marked" in outcome.err
    _, *rows = (place.folder / "found.tsv").read_text(encoding="utf-8").splitlines()
    (row,) = (row.split("\t") for row in rows if "\tunknown\t" in row and "猫" in row)
    assert (row[0], row[4]) == ("1", "one two 猫")
    outcome = place.mtkit(*checked, "--input", "in.html", "--reject", "100")
    assert outcome.out == page
    assert "rejected 3 of 3 segments" in outcome.err
    doubts = re.findall(r"^mtkit: line (\d): source kept: .*confidence", outcome.err, re.MULTILINE)
    assert doubts == ["1", "2", "3"]


def test_the_first_doubts_about_a_page_are_printed(place, checked):
    place.write("in.html", "<p>one</p>\n" * 23)
    outcome = place.mtkit(*checked, "in.html", "--check", "--below", "100")
    doubts = re.findall(r"^mtkit: line (\d+): .*confidence [\d.]+$", outcome.err, re.MULTILINE)
    assert doubts == [str(number) for number in range(1, 21)]
    assert "mtkit: 3 more are doubtful" in outcome.err


def test_a_glossary_is_used_in_a_document(documents):
    documents.write("terms.tsv", "two\tZweiwort\n")
    outcome = documents.mtkit("-q", "translate", "in.srt", "--glossary", "terms.tsv")
    assert outcome.out.count("Zweiwort") == 2


TWICE = SRT.replace("- four.\n- five six.", "one two three.")


def test_each_different_text_is_translated_once_and_each_segment_is_counted(place, checked):
    place.write("in.srt", TWICE.replace("one two three", "猫"))
    arguments = ["in.srt", "--output", "out.srt", "--findings", "found.tsv", "--reject", "100"]
    outcome = place.mtkit(*checked, *arguments)
    assert "wrote out.srt, for 3 segments" in outcome.err
    assert " of 3 segments are marked" in outcome.err
    assert "rejected 3 of 3 segments" in outcome.err
    rows = (place.folder / "found.tsv").read_text(encoding="utf-8").splitlines()
    places = [row.split("\t")[0] for row in rows if "\tunknown\t" in row]
    assert places.count("cue 1") == places.count("cue 2") == 1


def test_a_rejected_translation_is_in_the_rows_in_which_its_findings_are(place, checked):
    rows = place.mtkit("-q", *checked, "in.srt", "--json", "--reject", "100").out.splitlines()
    plain = place.mtkit("-q", *checked, "in.srt", "--json").out.splitlines()
    for row, kept in zip(map(json.loads, plain), map(json.loads, rows), strict=True):
        assert kept["translation"] == row["source"]
        assert kept["rejected_translation"] == row["translation"]


def test_rows_are_printed_without_writing_a_document(documents, monkeypatch):
    monkeypatch.setattr(Subtitles, "write", None)
    assert len(documents.mtkit("-q", "translate", "in.srt", "--json").out.splitlines()) == 4


def test_an_interrupted_document_on_standard_output_was_not_written(documents, monkeypatch):
    monkeypatch.setattr(Subtitles, "write", Mock(side_effect=KeyboardInterrupt))
    outcome = documents.mtkit("translate", "in.srt")
    assert outcome.status == 130
    assert "interrupted: 0 segments were written" in outcome.err


@pytest.mark.parametrize("name", ["in.srt.gz", "in.po.xz"])
def test_a_compressed_document_is_read_and_written(documents, name):
    plain = documents.folder / name.rpartition(".")[0]
    packed = {"gz": gzip.compress, "xz": lzma.compress}[name[-2:]]
    documents.write(name, packed(plain.read_bytes()))
    assert documents.mtkit("-q", "translate", name, "--output", f"out.{name[3:]}").status == 0
    with open_binary(documents.folder / f"out.{name[3:]}") as file:
        assert file.read().decode() == documents.mtkit("-q", "translate", plain.name).out
