"""Invisible characters: which are dropped, which are needed, and where in the text they were."""

import itertools

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from mtkit.base.invisible import bounds_in, visible

ENGLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"


@pytest.mark.parametrize(
    "text",
    [
        "می\u200cخواهم کتاب\u200cها",  # Persian: parts of a word
        "iPhone\u200cها",
        "ه\u200d",  # Arabic: a form of a letter
        "क्\u200dष क्\u200cष",  # Hindi: half form and virama
        "র\u200d্যাব ക\u200c്",
        "ភាសា\u200bខ្មែរ ภาษา\u200bไทย ພາສາ\u200bລາວ မြန်မာ\u200bစာ",  # words
        "ខ្ញុំ\u200bប្រើ\u200bFacebook\u200bរាល់ថ្ងៃ",
        "ᠬᠠᠷ\u180eᠠ ᠠ\u180bᠨ ᠨ\u180d\u180eᠠ",  # Mongolian: another word, and forms
        "\u1112\u1160\u11ab \u3164ㄱ",  # Korean: a syllable without a vowel
        "❤\ufe0f ☺\ufe0e ©\ufe0f ▶\ufe0f",
        "👩\u200d👩\u200d👧 ❤\ufe0f\u200d🔥 🏳\ufe0f\u200d🌈",
        "1\ufe0f\u20e3 #\ufe0f\u20e3",
        f"from {ENGLAND} to \U0001f1e9\U0001f1ea",
        "ordinary text – “naïve”\u00a0café, ｱﾊﾟｰﾄ, 𝕏, \u0600\u06dd\n\t",
    ],
)
def test_what_a_script_or_an_emoji_needs_stays(text: str):
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("wo\u00adman Donau\u00addampf\u00adschiff", "woman Donaudampfschiff"),
        ("wo\u200bman https://\u200ba.\u200bb", "woman https://a.b"),
        ("中\u200b国 日\u200b本", "中国 日本"),  # a line may be broken anywhere
        ("wo\u2060man 10\u2060km \ufeffwo\ufeffman", "woman 10km woman"),
        (
            "\u2066Ann\u2069 (\u200eA\u200e) \u202bשלום\u202c!\u200f \u061cسلام",
            "Ann (A) שלום! سلام",
        ),
        ("Auf\u200clage fi\u200dnd \u200cа\u200cб", "Auflage find аб"),  # ligatures
        ("葛\U000e0100城 神\ufe00 ∩\ufe00 a\ufe0f 1\ufe0f 葛\u00ad\ufe0f", "葛城 神 ∩ a 1 葛"),
        ("x\u2062y f\u2061(x) a\u034fb wo\u180eman wo\u180bman", "xy f(x) ab woman woman"),
        ("wo\u115fman wo\u3164man ក\u17b4", "woman woman ក"),
        ("\ufff9a\ufffab\ufffb \U000e0041\U000e0001a \U0001d173♪\ufff0", "ab a ♪"),
        ("क्\u00ad\u200d\u00adष ក\u2060\u200b\u2060ខ", "क्\u200dष ក\u200bខ"),
        ("a\ufe0f\u200d\ufe0f\u200d\u00adb", "ab"),
        ("\u00ad\u200b", ""),
    ],
)
def test_what_means_nothing_is_dropped(text: str, expected: str):
    assert visible(text) == expected


def test_every_default_ignorable_character_of_unicode_is_dropped_between_latin_letters():
    codes = (code for code in range(0x110000) if code != ord(" ") and not 0xD800 <= code < 0xE000)
    characters = [chr(code) for code in codes]
    # All at once, each in a word of its own.
    words = visible(" ".join(f"a{char}b" for char in characters)).split(" ")
    dropped = {char for char, word in zip(characters, words, strict=True) if word == "ab"}
    assert dropped == {char for char in characters if regex.match(r"\p{DI}", char)} | {
        *"\ufff9\ufffa\ufffb"
    }


MIXED = st.text(
    "ab ក❤क\u1112ᠠ1\u20e3\U0001f3f4\u00ad\u200b\u200c\u200d\ufe0f\u180b\u180e\u1160\U000e0067"
)


@given(MIXED)
def test_the_visible_text_is_that_of_its_words_and_its_places_lead_back(text: str):
    shown = visible(text)
    assert visible(shown) == shown
    assert " ".join(map(visible, text.split(" "))) == shown
    bounds = bounds_in(text, shown)
    parts = [text[start:end] for start, end in itertools.pairwise(bounds)]
    assert "".join(parts) == text
    if "  " not in shown:
        assert all(character in part for character, part in zip(shown, parts, strict=False))


@pytest.mark.parametrize("unit", ["\u200d\ufe0f", "\u180e\u180b", "\u200b\u00ad", "\U000e0067"])
def test_a_long_run_of_them_needs_few_passes(unit: str):
    assert visible(f"a{unit * 50_000}b") == "ab"
