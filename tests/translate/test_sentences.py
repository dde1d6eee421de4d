"""Sentences: where they end, and that together they are the text."""

from __future__ import annotations

import sys

import pytest
from hostile import hostile_lines
from hypothesis import given
from hypothesis import strategies as st

from mtkit.errors import MtkitError
from mtkit.translate import sentences
from mtkit.translate.sentences import join, split


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", ["Dr. Smith came at 5 p.m. on Monday. ", "Did he stay? ", "No!"]),
        ("de", ["Am 3. Mai kam Dr. Müller z. B. nach Berlin. ", "Er blieb."]),
        ("fr", ["Mme Dupont est là. ", "Et vous ? ", "Non."]),
        ("ja", ["これは文です。", "次の文。"]),
        ("hi", ["यह घर है। ", "वह बड़ा है।"]),
        ("en", ["One sentence without an end"]),
        # Not even two spaces are lost.
        ("en", ["One.  ", "Two."]),
    ],
)
def test_a_text_is_cut_where_its_sentences_end(language: str, expected: list[str]):
    assert split("".join(expected), language) == expected


@pytest.mark.parametrize("language", ["en-GB", "EN", "en_US"])
def test_a_region_does_not_change_the_language(language: str):
    text = "Dr. Smith came. He stayed."
    assert split(text, language) == split(text, "en") == ["Dr. Smith came. ", "He stayed."]


@pytest.mark.parametrize("language", ["words", "xx", "", "src", "🦊", "../en"])
def test_an_unknown_language_is_also_split(language: str):
    assert split("One two. Three four? Yes.", language) == ["One two. ", "Three four? ", "Yes."]


@pytest.mark.parametrize("text", ["", " ", "\t", "\u2028"])
def test_a_blank_text_is_one_blank_sentence(text: str):
    assert split(text, "en") == [text]


@pytest.mark.parametrize(
    ("language", "expected"),
    [("de", "Eins. Zwei."), ("ko", "Eins. Zwei."), ("", "Eins. Zwei.")]
    + [(language, "Eins.Zwei.") for language in ("ja", "zh", "zh-CN", "ZH_TW", "yue")],
)
def test_sentences_are_joined_as_the_language_writes_them(language: str, expected: str):
    assert join(["Eins.", "", "Zwei."], language) == expected


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(["en", "de", "ja", "xx"]))
def test_sentences_together_are_the_text(text: str, language: str):
    assert "".join(split(text, language)) == text


def test_the_sentences_of_hostile_lines_together_are_the_line():
    for line in hostile_lines(3000, seed=2):
        text = line.decode()
        for language in ("en", "de", "xx"):
            assert "".join(split(text, language)) == text


def test_a_text_that_the_library_would_change_stays_whole(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sentences, "_segment", lambda: lambda _, text: [text[:3], text[4:]])
    assert split("One. Two.", "en") == ["One. Two."]


def test_without_the_library_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    sentences._segment.cache_clear()
    with pytest.raises(MtkitError, match=r"pip install 'mtkit\[split\]'") as found:
        split("One. Two.", "en")
    assert "\n" not in str(found.value)
