"""Languages of text, and of codes, as people who speak them would give them."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import langcodes
import pytest
from conftest import GERMAN, GREEK, number_pairs
from support.errors import message_of

from mtkit.base import language_id
from mtkit.base.text import base_language


@pytest.mark.parametrize(("words", "language"), [(GERMAN, "de"), (GREEK, "el")])
def test_lines_are_identified_fifty_at_a_time(words: list[str], language: str):
    english, other = zip(*number_pairs(120, seed=1, words=words), strict=True)
    assert language_id.languages(english) == ["en"] * 3
    assert language_id.languages(other) == [language] * 3


def test_too_few_lines_have_no_language_also_at_the_end():
    line = "This is one short line of English."
    assert language_id.languages([line] * 9) == language_id.languages([]) == []
    assert language_id.languages([line] * 59) == ["en"]


def test_tags_of_bcp_47_are_valid_and_other_codes_are_not():
    for code in ("en", "deu", "pt-BR", "zh_Hans", "eng_Latn", "x-mine", "ckb"):
        assert language_id.is_language_tag(code), code
    for code in ("zz9", "klingon", "trees", "e", "1", "de-"):
        assert not language_id.is_language_tag(code), code


def test_a_language_is_known_by_each_of_its_codes_and_some_are_not():
    for code in ("en", "eng", "nb", "sr-Latn", "iw", "fil", "cmn", "pes"):
        assert language_id.labels_of(code), code
    for code in ("zz9", "x-mine", "ckb", "mul", "tlh"):
        assert not language_id.labels_of(code), code


def test_similar_languages_are_not_told_apart_and_others_are():
    similar = "de deu, no nb, bs hr, hr sr-Latn, ms id, wuu zh"
    assert all(language_id.looks_like(*pair.split()) for pair in similar.split(", "))
    other = "en de, uk ru, sk cs, en zz9"
    assert not any(language_id.looks_like(*pair.split()) for pair in other.split(", "))


def test_two_codes_of_a_language_mean_the_same():
    assert language_id.is_same_tag("en", "eng")
    assert language_id.is_same_tag("zz9", "zz9")
    assert not language_id.is_same_tag("en-GB", "en-US")
    assert not language_id.is_same_tag("zh-Hans", "zh-Hant")
    assert not language_id.is_same_tag("en", "zz9")


def test_langcodes_is_asked_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch):
    get, asked = langcodes.get, threading.Lock()

    def alone(tag: str) -> langcodes.Language:
        assert asked.acquire(blocking=False)
        time.sleep(0.01)
        asked.release()
        return get(tag)

    monkeypatch.setattr(langcodes, "get", alone)
    language_id.parts_of.cache_clear()
    codes = ["de", "fr", "el", "pl"]
    with ThreadPoolExecutor(4) as threads:
        names = list(threads.map(language_id.language_name, codes))
        parts = list(threads.map(language_id.parts_of, codes))
    assert names == ["German", "French", "Greek", "Polish"]
    assert [tag.script for tag in parts] == ["Latn", "Latn", "Grek", "Latn"]


def test_codes_of_several_standards_find_each_other_and_an_unknown_one_has_near_ones():
    flores = ["arb_Arab", "ces_Latn", "deu_Latn", "eng_Latn", "slk_Latn", "zho_Hans", "zho_Hant"]
    codes = {"de-AT": "deu_Latn", "zh-TW": "zho_Hant", "zh": "zho_Hans", "ar": "arb_Arab"}
    codes |= {"eng_Latn": "eng_Latn", "fr": None, "deutsch": None}
    assert {given: language_id.find_code(given, flores) for given in codes} == codes
    assert language_id.find_code("deu_Latn", ["de", "en"]) == "de"
    # Slovak is nearest to Czech by CLDR, and where a code is wrong, letters decide.
    assert language_id.nearest_codes("cs", [*flores[:1], *flores[2:]], 1) == ["slk_Latn"]
    assert language_id.nearest_codes("eng_Lat", flores, 1) == ["eng_Latn"]
    assert language_id.nearest_codes("xx", flores, 5) == []
    many = [*"abcdefghijklmnopqrstuvw"]
    assert language_id.listed_languages(many, "xx") == "23 languages, such as a, b, c, d, e"
    assert language_id.listed_languages(flores[:2], "cz").endswith("; did you mean cs (Czech)?")


def test_what_is_not_the_code_of_a_language_is_refused_with_what_is_meant():
    for code in ("en", "eng", "ger", "eng_Latn", "en_US", "zh-Hans", "srp_Latn", "x-mine", None):
        language_id.check_languages(code, code)
    for code, advice in (
        ("english", "did you mean en (English)?"),
        ("Deutsch", "did you mean de (German)?"),
        ("cz_Latn", "did you mean cs (Czech)?"),
        ("eng_Abcd", "did you mean eng (English)?"),
        ("foo", "the nearest are fo"),
        ("xyz_Abcd", "xyz_Abcd is not a language code"),
        ("", "'' is not a language code"),
        ("e n", "'e n' is not a language code"),
    ):
        error = message_of(language_id.check_languages, "en", code)
        assert advice in error
        assert error.startswith("--tgt-lang: ")


@pytest.mark.parametrize(
    ("codes", "language"),
    [
        (["pt", "pt-BR", "PT_br", "por_Latn"], "pt"),
        (["zh", "zh-Hant", "zho_Hans", "cmn"], "zh"),
        (["ar", "arb_Arab"], "ar"),
        (["fil", "tgl_Latn"], "fil"),
        # Their standard tags have a script and a country.
        (["sr", "srp_Cyrl", "hbs_Latn", "cnr_Latn"], "sr"),
        # Of several languages, of none, and no language tag.
        (["mul"], "mul"),
        (["xx"], "xx"),
        (["1a2"], "1a2"),
        ([""], ""),
    ],
)
def test_the_language_of_a_code_has_two_letters_where_it_can(codes, language):
    assert {base_language(code) for code in codes} == {language}
