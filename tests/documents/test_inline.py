"""Inline codes of segments: reading them, comparing them, writing them."""

import pytest

from mtkit.base.errors import MtkitError
from mtkit.documents import open_document
from mtkit.documents.document import Document, Segment
from mtkit.documents.inline import events, has_same_codes, plain_text


def test_a_line_is_read_as_texts_and_codes_in_order():
    line = "a &lt; <g1>b <x2/></g1><!--3--> &amp;amp; <b>"
    assert list(events(line)) == [
        *(("text", "a < "), ("open", 1), ("text", "b "), ("shown", 2), ("close", 1)),
        *(("unseen", 3), ("text", " &amp; <b>")),
    ]
    assert plain_text(line) == "a < b  &amp; <b>"


@pytest.mark.parametrize(
    ("source", "translation", "is_same"),
    [
        ("<g1>a</g1> <g2>b</g2>", "<g2>B</g2> <g1>A</g1>", True),
        ("<x1/>a<!--2-->", "<!--2-->A<x1/>", True),
        ("<g1>a <g2>b</g2></g1>", "<g1><g2>B</g2> A</g1>", True),
        ("a", "<x1/>A", False),
        ("<x1/>a", "<x1/>A<x1/>", False),
        ("<x1/>a", "<!--1-->A", False),
        ("<g1>a</g1>", "<g1>A", False),
        ("<g1>a</g1>", "A</g1><g1>", False),
        ("<g1>a</g1>", "<g1>A</g1></g1>", False),
        ("<g1>a</g1> <g2>b</g2>", "<g1>A <g2>B</g1></g2>", False),
        ("<g1>a</g1> <g2>b</g2>", "<g1>A <g2>B</g2></g1>", False),
        ("<g1>a <x2/></g1>", "<x2/> <g1>A</g1>", False),
    ],
)
def test_the_same_codes_are_there_once_inside_the_same_ones(source, translation, is_same):
    assert has_same_codes(source, translation) is is_same


class Words(Document):
    def __init__(self) -> None:
        super().__init__()
        self.segments = [Segment("a", "word 1"), Segment("<g1>b</g1>", "word 2")]

    def _written(self, changes, marks):
        return str(changes).encode()


def test_only_translations_that_differ_from_the_text_are_changes():
    assert Words().write([None, "<g1>b</g1>"]) == b"{}"
    assert Words().write(["A", None]) == b"{0: 'A'}"


@pytest.mark.parametrize("translations", [["a"], ["a", "b", "c"], ["a", "b"]])
def test_a_wrong_number_of_translations_or_other_codes_are_an_error(translations: list[str]):
    with pytest.raises(ValueError, match=r"other codes|zip"):
        Words().write(translations)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.xyz", b"", "'xyz' cannot be translated; give --format, one of md"),
        ("a", b"", "'unknown' cannot be translated; give --format, one of md"),
        ("a.ods", b"PK", "'ods' cannot be translated; save it as .docx or .pptx, or copy"),
        ("a.docx", b"%PDF-1.7", "PDF"),
        ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1...", "password"),
    ],
)
def test_what_is_no_document_is_refused_in_one_line(name: str, data: bytes, reason: str):
    with pytest.raises(MtkitError, match=rf"^{name}: .*{reason}"):
        open_document(name, data)
