"""Codes of languages as clients write them, and as runs have them."""

import langcodes
import pytest

from mtkit.base.language_id import find_code, language_name, libretranslate_code
from mtkit.serve.languages import detect, public_code

PUBLIC = (
    "en=en deu=de deu_Latn=de zh=zh-Hans zt=zh-Hant zho_Hant=zh-Hant pb=pt-BR pt_br=pt-BR"
    " x-mine=x-mine"
)


@pytest.mark.parametrize(
    ("code", "public"),
    [*(pair.split("=") for pair in PUBLIC.split()), ("my language", "my language")],
)
def test_a_code_of_a_run_has_a_public_form(code: str, public: str):
    assert public_code(code) == public


WRITTEN = (
    "EN=en en-US=en en_gb=en ENG=en zh=zh-Hans ZH-HANS=zh-Hans zt=zh-Hant pb=pt-BR pt-br=pt-BR"
    " pt=pt pt-PT=pt es-419=es zh-CN=zh-Hans zh_SG=zh-Hans zh-TW=zh-Hant zh-HK=zh-Hant"
    " zh-Hant-HK=zh-Hant zho_Hant=zh-Hant cmn=zh-Hans deu_Latn=de deu-DE=de de-Latn-AT=de nb=no"
    " nob=no"
)
UNKNOWN = ["nn", "de-Cyrl", "sr-Latn", "zz", "", "auto", "en-", "x" * 10_000]


@pytest.mark.parametrize(
    ("given", "meant"),
    [*(pair.split("=") for pair in WRITTEN.split()), *((code, None) for code in UNKNOWN)],
)
def test_a_client_may_write_a_code_in_several_ways(given: str, meant: str | None):
    codes = ["en", "de", "zh-Hans", "zh-Hant", "pt", "pt-BR", "es", "sr", "no"]
    assert find_code(given, codes) == meant


@pytest.mark.parametrize(
    ("given", "codes", "meant"),
    [
        ("zh", ["zh-CN", "zh-TW"], "zh-CN"),
        ("zt", ["zh-CN", "zh-TW"], "zh-TW"),
        ("zh-HK", ["zh-TW"], None),
        ("no", ["nb"], "nb"),
        ("nb", ["no", "nb"], "nb"),
        ("pt", ["pt-BR"], "pt-BR"),
        ("pt-PT", ["pt-BR"], None),
        ("en", ["en-US", "en-GB"], "en-GB"),
        ("x-mine", ["x-mine", "my language"], "x-mine"),
        ("My Language", ["x-mine", "my language"], "my language"),
    ],
)
def test_a_code_is_found_among_others_with_regions(given: str, codes: list[str], meant: str | None):
    assert find_code(given, codes) == meant


def test_unknown_codes_of_clients_are_not_kept():
    before = len(langcodes.Language._PARSE_CACHE)
    for number in range(500):
        assert find_code(f"de-Q{chr(97 + number % 26)}{chr(97 + number // 26)}x", ["de"]) is None
        assert find_code(f"fr-Latn-{number:03}", ["de"]) is None
        assert find_code("de-" * number + "x", ["de"]) is None
    assert len(langcodes.Language._PARSE_CACHE) - before < 20


LIBRETRANSLATE = (
    "en=en deu_Latn=de zho_Hant=zt zh-TW=zt zh-HK=zt zh-Hant=zt zt=zt zh=zh zho_Hans=zh zh-CN=zh"
    " pt_BR=pb pb=pb pt=pt pt-PT=pt no=nb nob_Latn=nb es-419=es my_language=my EN_gb=en gsw=gsw"
)


@pytest.mark.parametrize(("code", "expected"), [pair.split("=") for pair in LIBRETRANSLATE.split()])
def test_a_language_has_the_code_of_libretranslate(code: str, expected: str):
    assert libretranslate_code(code) == expected


def test_a_language_without_a_name_has_its_code():
    assert language_name("de") == "German"
    assert language_name("pt-BR") == "Portuguese (Brazil)"
    assert language_name("de-AT") == "German (Austria)"
    assert language_name("x-mine") == "x-mine"


def test_the_confidence_is_that_among_all_languages():
    german = "Die Kinder spielen heute mit ihrem neuen roten Ball im Garten."
    (best, other) = detect([german], ["en", "de"])
    assert (best.language, other.language) == ("de", "en")
    assert best.confidence > 95
    assert other.confidence < 5
    (only,) = detect([german], ["en"])
    assert only.confidence < 5
    # A code that the model does not know cannot be detected.
    assert detect([german], ["x-mine", "de"])[0].language == "de"


def test_a_text_without_letters_is_in_no_language():
    assert detect(["\U0001f600 12"], ["de", "en"]) == [("en", 0.0)]
    assert detect(["12"], ["de", "fr"]) == [("de", 0.0)]
