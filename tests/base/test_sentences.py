"""Sentences: where they end, and that together they are the text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mtkit.base.sentences
from mtkit.base.sentences import LineFacts, separator, split


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
        # A number of a list belongs to the sentence behind it.
        ("en", ["1. A man sits. ", "2. A dog runs."]),
        ("en", ["II. The end. ", "It was long."]),
        ("en", ["One. 2."]),
        ("en", ["1. 2. Two numbers."]),
        ("en", ["He came in 1999. ", "He left."]),
        # A German ordinal number does not end a sentence.
        ("de", ["Im 19. Jahrhundert war es kalt. ", "Dann nicht mehr."]),
        ("de", ["Es war 1999. ", "Dann nicht mehr."]),
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


@pytest.mark.parametrize(
    "language", ["ja", "jpn_Jpan", "zh", "zh-CN", "ZH_TW", "zho_Hans", "yue", "de", "ko", ""]
)
def test_only_chinese_and_japanese_have_no_space_between_sentences(language: str):
    assert separator(language) == (" " if language in ("de", "ko", "") else "")


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(["en", "de", "ja", "xx"]))
def test_sentences_together_are_the_text(text: str, language: str):
    assert "".join(split(text, language)) == text


def test_a_long_text_is_split_as_a_short_one():
    assert split("你好。" * 20_000, "zh") == ["你好。"] * 20_000


@pytest.mark.parametrize(
    "text", ["`", "“a ", "„", "‘’‘", "«", "(「", "a. “b ", "'", "x", "A b. " * 3000 + "“", "你好。"]
)
@pytest.mark.parametrize("language", ["en", "ja", "zh"])
def test_the_library_is_given_a_long_text_once_in_parts(monkeypatch, language, text):
    # Its time grows with the square of a text, and with the quotation marks that are not closed.
    segment, sizes = mtkit.base.sentences.sentencex.segment, []
    monkeypatch.setattr(
        mtkit.base.sentences.sentencex,
        "segment",
        lambda code, text: sizes.append(len(text)) or segment(code, text),
    )
    long = (text * 20_000)[:20_000]
    assert "".join(split(long, language)) == long
    assert max(sizes) <= 10_000
    assert sum(sizes) <= 1.5 * len(long)


@pytest.mark.parametrize("words", [1, 5000, 50_000])
def test_a_sentence_longer_than_a_part_stays_whole(words: int):
    sentence = "word " * words + "end. "
    assert split(sentence * 3, "en") == [sentence] * 3


def test_a_text_that_the_library_would_change_stays_whole(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        mtkit.base.sentences.sentencex, "segment", lambda _, text: [text[:3], text[4:]]
    )
    assert split("One. Two.", "en") == ["One. Two."]


def test_lines_are_single_sentences_if_fewer_than_one_in_ten_has_several():
    assert LineFacts().has_single_sentences
    assert LineFacts(sampled=1000, several=99).has_single_sentences
    assert not LineFacts(sampled=1000, several=100).has_single_sentences
