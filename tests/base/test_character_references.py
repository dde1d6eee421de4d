"""Character references, also with more digits than Python reads as a number."""

import pytest

from mtkit.base.character_references import unescape


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("&amp;amp; &lt;", "&amp; <"), ("&#8364;&#x20ac;", "€€"), ("&#00000065;", "A")),
        *((f"&#{'1' * 5000};", f"&#{'1' * 5000};"), ("&#99999999;", "\ufffd")),
        *(("a & b &zzz;", "a & b &zzz;"), ("AT&amp;#1", "AT&#1")),
    ],
)
def test_references_become_characters(text: str, expected: str):
    assert unescape(text) == expected
