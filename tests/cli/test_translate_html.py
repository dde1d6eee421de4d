import html
import re
from collections import Counter

import pytest

from mtkit.documents import Languages
from mtkit.translate import Translator, Window, markup_windows, translate_markup
from mtkit.translate.html.markup import parse
from mtkit.translate.html.markup_segments import Segment

TAG = re.compile(r"<!--.*?-->|</?[a-zA-Z][^<>]*>")
# Nested elements, empty ones, entities and comments; tests/translate has random ones.
LINES = [
    "one <b>two <i>three <em>four</em></i></b> five",
    "<a href='?x=1&amp;y=2'>six</a> &amp; <span class=\"z\">nine &lt; one</span>",
    "two <img src=x> three <!-- note --> four <b></b> five<wbr/>six &quot;x&quot;",
    "<b>one</b> <b>two</b> <i><b>three</b></i>",
    "<img src=x> <b></b>",
]


def test_tags_stay_and_the_text_is_the_plain_translation(untrained):
    with Translator.load(untrained, device="cpu") as translator:
        translations = translate_markup(translator, translator.aligner, LINES)
        for line, out in zip(LINES, translations, strict=True):
            assert Counter(TAG.findall(out)) == Counter(TAG.findall(line))
            *parts, end = parse([line])
            assert end == "\n"
            texts = [part.text for part in parts if isinstance(part, Segment)]
            plain = list(translator.translate(texts))
            copied = [html.unescape(TAG.sub("", part)) for part in parts if isinstance(part, str)]
            if not texts:
                assert out == line
                continue
            assert not "".join(copied).strip()
            assert html.unescape(TAG.sub("", out)).split() == " ".join(plain).split()


def test_warnings_name_the_line_of_the_input(untrained, caplog):
    long = "one <b>two</b> " * 100
    with Translator.load(untrained, device="cpu") as translator:
        aligner = translator.aligner
        for first_line, lines in ((1, ["one<br>two", f"<p>one</p><p>{long}"]), (2, [long])):
            caplog.clear()
            for window in markup_windows([lines], first_line):
                translate_markup(translator, aligner, window)
            assert len(caplog.messages) > 1
            assert all(message.startswith("line 2: ") for message in caplog.messages)


def test_a_sample_does_not_depend_on_the_lines_around_it(untrained):
    line = "<p>one two</p><p>one two</p>"
    config = untrained.config.decode.model_copy(update={"sample": True})
    with Translator.load(untrained, device="cpu", config=config) as translator:
        aligner = translator.aligner
        (window,) = markup_windows([[line]], first_line=3)
        (third,) = translate_markup(translator, aligner, window)
        *_, again = translate_markup(translator, aligner, ["", "one<br>two<br>three {x}", line])
        assert again == third
        # Each part of a line is drawn by itself, and the first as a line of plain text.
        first, second = re.findall("<p>(.*?)</p>", third)
        assert first != second
        ((_, ((plain,),)),) = translator.translate_windows([Window(3, ["one two"])])
        assert html.unescape(first) == plain.text


def test_the_command_keeps_tags(trained):
    text = "one <b>two</b><br>three\n\n<p>nine</p>\n<p>one\n<b\n>two</b> three\n</p>\n"
    outcome = trained.mtkit("-q", "translate", "--format", "html", stdin=text.encode())
    assert (outcome.status, outcome.err) == (0, "")
    lines = outcome.out.split("\n")
    assert len(lines) == 8
    assert [TAG.findall(line) for line in lines[:3]] == [
        *(["<b>", "</b>", "<br>"], [], ["<p>", "</p>"])
    ]
    assert lines[6:] == ["</p>", ""]
    trained.write("in.html", text)
    command = ("-q", "translate", "--format", "html", "--input", "in.html", "--output", "out.html")
    assert trained.mtkit(*command).status == 0
    assert (trained.folder / "out.html").read_text(encoding="utf-8") == outcome.out


@pytest.mark.parametrize(
    "option", ["--json", "--alignments", "--nbest=2", "--target-prefix=x", "--no-placeholders"]
)
def test_html_has_one_text_per_line(option, trained):
    trained.write("x", "")
    error = trained.refused("translate", "--format", "html", option, stdin=b"one\n")
    assert f"{option.split('=')[0]} cannot be combined with --format html" in error


@pytest.mark.parametrize(
    ("page", "translated"),
    [
        ('<meta charset="iso-8859-1">', '<meta charset="utf-8">'),
        ("<META CHARSET=windows-1252>", "<META CHARSET=utf-8>"),
        (
            '<meta http-equiv="Content-Type"\n content="text/html; charset=iso-8859-1" />',
            '<meta http-equiv="Content-Type"\n content="text/html; charset=utf-8" />',
        ),
        ("<?xml version='1.0' encoding='ISO-8859-1'?>", "<?xml version='1.0' encoding='utf-8'?>"),
        ('<html lang="en-GB" xml:lang="en">', '<html lang="de" xml:lang="de">'),
        ("<html class=x lang=eng_Latn>", "<html class=x lang=de>"),
        *((same, same) for same in (
            "<meta charset=UTF-8>",
            "<meta name=description content='write charset=latin1'>",
            "<!-- <meta charset=latin1> --><script>'<meta charset=latin1>'</script>",
            '<html lang="fr"><p lang="en">&lt;meta charset=latin1&gt;</p>',
            "<html data-lang=en><metadata charset=latin1>",
        )),
    ],
)  # fmt: skip
def test_a_page_says_that_it_is_utf_8_and_in_the_target_language(page, translated):
    assert Languages("en", "deu_Latn").page(page) == translated


def test_a_page_of_unknown_languages_keeps_what_it_says_of_them():
    page = '<html lang="en">'
    assert Languages("", "de").page(page) == Languages("en", "").page(page) == page


def test_the_command_writes_the_charset_and_language_of_the_page(trained):
    trained.write("in.html", '<html lang="en"><meta charset="latin1"><p>one</p>\n')
    out = trained.mtkit("translate", "in.html").out
    assert out.startswith('<html lang="de"><meta charset="utf-8"><p>')
