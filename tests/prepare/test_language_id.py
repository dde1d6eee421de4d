"""Languages of text, and of codes, as people who speak them would give them."""

from __future__ import annotations

import pytest
from conftest import GERMAN, GREEK, number_pairs

from mtkit.prepare.language_id import (
    can_identify,
    is_language_tag,
    is_same_tag,
    languages,
    looks_like,
)


@pytest.mark.parametrize(("words", "language"), [(GERMAN, "de"), (GREEK, "el")])
def test_lines_are_identified_fifty_at_a_time(words: list[str], language: str) -> None:
    english, other = zip(*number_pairs(120, seed=1, words=words), strict=True)
    assert languages(english) == ["en"] * 3
    assert languages(other) == [language] * 3


def test_too_few_lines_have_no_language() -> None:
    assert languages(["This is one short line of English."] * 9) == []
    assert languages([]) == []


def test_a_last_part_of_few_lines_is_left_out() -> None:
    assert languages(["This is one short line of English."] * 59) == ["en"]


@pytest.mark.parametrize("code", ["en", "deu", "pt-BR", "zh_Hans", "eng_Latn", "x-mine", "ckb"])
def test_tags_of_bcp_47_are_valid(code: str) -> None:
    assert is_language_tag(code)


@pytest.mark.parametrize("code", ["zz9", "klingon", "trees", "e", "1", "de-"])
def test_other_codes_are_not_valid(code: str) -> None:
    assert not is_language_tag(code)


@pytest.mark.parametrize("code", ["en", "eng", "nb", "sr-Latn", "iw", "fil", "cmn", "pes"])
def test_a_language_is_known_by_each_of_its_codes(code: str) -> None:
    assert can_identify(code)


@pytest.mark.parametrize("code", ["zz9", "x-mine", "ckb", "mul", "tlh"])
def test_some_languages_cannot_be_identified(code: str) -> None:
    assert not can_identify(code)


@pytest.mark.parametrize(
    ("found", "code"),
    [("de", "deu"), ("no", "nb"), ("bs", "hr"), ("hr", "sr-Latn"), ("ms", "id"), ("wuu", "zh")],
)
def test_similar_languages_are_not_told_apart(found: str, code: str) -> None:
    assert looks_like(found, code)


@pytest.mark.parametrize(
    ("found", "code"), [("en", "de"), ("uk", "ru"), ("sk", "cs"), ("en", "zz9")]
)
def test_other_languages_are_told_apart(found: str, code: str) -> None:
    assert not looks_like(found, code)


def test_two_codes_of_a_language_mean_the_same() -> None:
    assert is_same_tag("en", "eng")
    assert is_same_tag("zz9", "zz9")
    assert not is_same_tag("en-GB", "en-US")
    assert not is_same_tag("zh-Hans", "zh-Hant")
    assert not is_same_tag("en", "zz9")
