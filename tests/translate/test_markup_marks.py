"""Numbers and signs at words, and symbols, in HTML: they stay whole, beside their words."""

import random
import re

import pytest
from conftest import slow
from support.fake_translation import (
    FakeTranslator,
    assert_same_elements,
    backwards,
    shuffled,
    translated_html,
    with_ids,
)

# What a model is given, and the page if it writes the words backwards in capital letters.
TABLE = [
    ("one<sup>1</sup> two", "one two", "TWO ONE<sup>1</sup>"),
    ("one six.<sup>1</sup> Is<sup>2</sup>", "one six. Is", "IS SIX.<sup>1</sup> ONE<sup>2</sup>"),
    ("one<a href='#f'>1</a> two", "one two", "TWO ONE<a href='#f'>1</a>"),
    ("(one<sup><a>[1]</a></sup>) two", "(one) two", "TWO (ONE<sup><a>[1]</a></sup>)"),
    ("<b>one<sup>1</sup></b> two", "one two", "TWO <b>ONE<sup>1</sup></b>"),
    ("one<sup>1</sup>,<sup>2</sup> two", "one two", "TWO ONE<sup>1</sup>,<sup>2</sup>"),
    ("one<sup>®</sup> two<sup>TM</sup>", "one two", "TWO ONE<sup>®</sup><sup>TM</sup>"),
    ("six <sup>1</sup>And one", "six And one", "ONE <sup>1</sup>AND SIX"),
    ("one<sup>1</sup>two six", "one two six", "SIX TWO ONE<sup>1</sup>"),
    ("two km<sup>2</sup> one", "two km one", "ONE KM<sup>2</sup> TWO"),
    ("一<ruby>語<rt>ご</rt></ruby> one", "一語 one", "ONE <ruby>一語<rt>ご</rt></ruby>"),
    ("one <ruby>dog<rt>inu</rt></ruby> six", "one dog six", "SIX <ruby>DOG<rt>inu</rt></ruby> ONE"),
    ("<ruby>dog<rt>inu</rt></ruby><sup>1</sup> one", "dog one",
     "ONE <ruby>DOG<rt>inu</rt></ruby><sup>1</sup>"),
    ("one <ruby><rb>A</rb><rp>(</rp><rt>x y</rt><rp>)</rp></ruby>.", "one A.",
     "<ruby><rb>A</rb><rp>(</rp><rt>x y</rt><rp>)</rp></ruby>. ONE"),
    ("one <ruby>dog <rp>(</rp> <RT><b>x</b> <sup>1</sup></RT></ruby>", "one dog",
     "<ruby>DOG <rp>(</rp> <RT><b>x</b> <sup>1</sup></RT></ruby> ONE"),
    ("<ruby>to<rt>x</rt>day<rt>y</rt></ruby> one", "today one",
     "ONE <ruby>TODAY<rt>x</rt><rt>y</rt></ruby>"),
    ("<ruby>two<rt>x</rt></ruby><ruby>six<rt>y</rt></ruby>", "two six",
     "<ruby>SIX<rt>y</rt></ruby> <ruby>TWO<rt>x</rt></ruby>"),
    ("<ruby>two<rp>(</rp><rt>x</ruby><a><i>six</i></a> one", "two six one",
     "ONE <a><i>SIX</i></a> <ruby>TWO<rp>(</rp><rt>x</rt></ruby>"),
    ("<ruby><rb>to<rt>x<rb>day<rt>y</ruby> one", "today one",
     "ONE <ruby><rb></rb><rb>TODAY</rb><rt>x</rt><rt>y</rt></ruby>"),
    ("<ruby>語<rt>ご</rt></ruby>は one", "語は one", "ONE <ruby>語は<rt>ご</rt></ruby>"),
    ("one <ruby>six<rtc><rt>a</rt> <rt>b</rt></rtc></ruby>", "one six",
     "<ruby>SIX<rtc><rt>a</rt> <rt>b</rt></rtc></ruby> ONE"),
    # HTML lets their end tags out.
    ("one <ruby>six<rt>x</ruby> two", "one six two", "TWO <ruby>SIX<rt>x</rt></ruby> ONE"),
    ("one <ruby><rb>six<rp>(<rt>x<rp>)</ruby>", "one six",
     "<ruby><rb>SIX</rb><rp>(</rp><rt>x</rt><rp>)</rp></ruby> ONE"),
    ("one <ruby>six<rtc>a<rt>b<rt>c</ruby>", "one six",
     "<ruby>SIX<rtc>a<rt>b</rt><rt>c</rt></rtc></ruby> ONE"),
    # Symbols that the translation has.
    ("one H<sub>2</sub>O", "one H2O", "H<sub>2</sub>O ONE"),
    ("10<sup>6</sup> one", "106 one", "ONE 10<sup>6</sup>"),
    ("one CO<sub>2</sub>-six", "one CO2-six", "CO<sub>2</sub>-SIX ONE"),
    ("<b>S<sub>4</sub></b><sup>2−</sup> one", "S42− one", "ONE <b>S<sub>4</sub></b><sup>2−</sup>"),
    # Symbols that it has not, as a capital letter is another one.
    ("2 m<sup>2</sup> one", "2  one", "m<sup>2</sup> ONE 2"),
    ("six x<sub>i</sub><sup>2</sup> one", "six  one", "x<sub>i</sub><sup>2</sup> ONE SIX"),
    ("six <b>m<sup>2</sup> one</b>", "six  one", "<b>m<sup>2</sup> ONE</b> SIX"),
    ("<i>one x</i><sup>2</sup> two", "one x two", "TWO <i>X ONE</i><sup>2</sup>"),
    # These are no marks.
    ("one <sup>1</sup> two", "one 1 two", "TWO <sup>1</sup> ONE"),
    ("the 1<sup>st</sup> man", "the 1st man", "MAN <sup>1ST</sup> THE"),
    ("XX<sup>e</sup> one", "XXe one", "ONE <sup>XXE</sup>"),
    ("<b>20</b>th one", "20th one", "ONE <b>20TH</b>"),
    ("$<b>5</b>.99 one", "$5.99 one", "ONE $<b>5.99</b>"),
    ("un<b>happy</b> one", "unhappy one", "ONE <b>UNHAPPY</b>"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "text", "expected"), TABLE)
def test_a_mark_is_at_the_translation_of_its_word_and_a_symbol_is_whole(line, text, expected):
    fake = FakeTranslator(backwards, word=str.upper)
    assert translated_html([line], fake) == [expected]
    assert fake.texts[-1] == text


def test_a_mark_whose_word_has_no_translation_is_at_the_end():
    fake = FakeTranslator(lambda words: [0, 2], share_linked=0)
    assert translated_html(["one two<sup>1</sup> six"], fake) == ["one six<sup>1</sup>"]


WORDS = ["one", "two,", "(six)", "Five.", "CO", "H", "m", "10", "x", "日本", "{x}", "4-%s"]
WORDS += ["20", "th"]
MARKS = ["1", "[3]", "*", "2+", "1,2", "i", " 1 ", "%1", "st", "<b>1</b>", "漢<rt>か</rt>", "a b"]
SOLE = ["<img>", "<wbr>", "<!--c-->", "<code>q</code>", " ", " ", "\n"]


def random_text(choose: random.Random, depth: int = 0) -> str:
    parts: list[str] = []
    for _ in range(choose.randint(2, 6)):
        name = choose.choice(["sup", "sub", "a", "b", "ruby"])
        inside = random_text(choose, depth + 1) if depth < 2 and choose.random() < 0.3 else ""
        parts += choose.choice(WORDS), choose.choice(["", " "])
        parts.append(f"<{name}>{inside or choose.choice(MARKS)}</{name}>")
        parts.append(choose.choice(["", *SOLE]))
    return "".join(parts)


@pytest.mark.parametrize("seeds", [range(300), slow(range(300, 1500))], ids=["few", "many"])
def test_whatever_the_model_does_tags_and_marks_are_there_once(seeds: range):
    fakes = [FakeTranslator(), FakeTranslator(shuffled(1)), FakeTranslator(lambda _: [])]
    fakes.append(FakeTranslator(shuffled(2), share_linked=0.3))
    fakes.append(FakeTranslator(backwards, word=lambda _: "y"))
    for seed in seeds:
        line = with_ids(f"<p>{random_text(random.Random(seed))}</p>")
        marks = re.findall(
            r"(?<=[a-zA-Z])<su[bp] [^<>]*>[\d,]+</su[bp]>|<rt[^<>]*>[^<>]*</rt>", line
        )
        for fake in fakes:
            out = "\n".join(translated_html(line.split("\n"), fake))
            assert_same_elements(out, line)
            assert [out.count(mark) for mark in marks] == [1] * len(marks), (line, out)
            assert out.count("\n") == line.count("\n")
