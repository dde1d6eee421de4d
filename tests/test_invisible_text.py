"""A text with invisible characters is to every command what it is without them."""

from dataclasses import replace

import pytest
from support.command_line import prepare_arguments

from mtkit.base.sentences import split
from mtkit.base.words import count_words
from mtkit.check import Checker, PairFacts
from mtkit.convert.verification import comparable
from mtkit.data import PreparedData
from mtkit.parsing.trees import model_source
from mtkit.prepare.filters import keys_of
from mtkit.prepare.source import INVISIBLE
from mtkit.tokenizer import Tokenizer
from mtkit.translate import Glossary, translate_markup

# With the same text without them.
TEXTS = {
    "t\u00adwo th\u200bree": "two three",
    "\ufefftwo\u2060 three\u200e": "two three",
    "\u202atwo\u202c \u2066th\u2069ree four": "two three four",
    "f\u200cour fi\u200dve": "four five",
    "tw\u034fo \u00ad three": "two three",
    "\U000e0041one\ufe0f": "one",
}


@pytest.mark.parametrize("text", TEXTS)
def test_the_translation_is_that_of_the_visible_text(plain, text):
    given, wanted = plain.translate([text, TEXTS[text]])
    assert given == wanted
    forced, also = plain.score_given([text, TEXTS[text]], [text, TEXTS[text]])
    assert forced.log_probs == also.log_probs


@pytest.mark.parametrize(
    ("markup", "without"),
    [
        ("t&shy;wo th&#173;ree", "two three"),
        ("<p>t&#x200b;wo <b>th\u00adree</b> four</p>", "<p>two <b>three</b> four</p>"),
        ("<b>t&ZeroWidthSpace;wo</b>&shy; one", "<b>two</b> one"),
        ("o&lrm;ne<br>t&NoBreak;wo", "one<br>two"),
    ],
)
def test_html_is_translated_as_without_them(served, plain, markup, without):
    given, wanted = translate_markup(plain, plain.aligner, [markup, without])
    assert given == wanted
    answer = served.translate([markup, without], format="html").json["translatedText"]
    assert answer == [wanted, wanted]


def test_alignments_count_the_characters_that_were_given(plain):
    text, shown = "t\u00adwo th\u200bree\u00ad \u202afour\u202c", "two three four"
    given, wanted = plain.align([text, shown], ["vier drei zwei"] * 2)
    assert given.weights == wanted.weights
    assert [text[start:end] for start, end in given.src_words] == text.split()
    # A word of nothing else is one of the words, and has no links.
    (given,) = plain.align(["two \u200b three \u00ad four"], ["vier drei zwei"])
    assert {i for i, _ in given.weights} <= {0, 2, 4}


def test_the_spans_of_subwords_are_those_of_the_given_text(tiny_data):
    tokenizer, _ = tiny_data.tokenizers()
    for text, shown in TEXTS.items():
        (spanned,), ids = tokenizer.encode_with_spans([text]), tokenizer.encode(shown)
        assert spanned.ids == ids == tokenizer.encode_batch([text])[0]
        assert "".join(text[start:end] for start, end in spanned.spans) == text.lstrip(" ")


def test_a_symbol_with_invisible_characters_is_still_one_subword():
    symbol = "<a\u034fb>"
    tokenizer = Tokenizer.learn(["one two three"] * 9, 280, symbols=[symbol])
    (whole,) = (i for i in tokenizer.encode(f"one {symbol} two") if tokenizer.piece(i) == symbol)
    assert tokenizer.encode(f"o\u00adne {symbol}\u00ad") == tokenizer.encode(f"one {symbol}")
    assert tokenizer.encode_with_spans([f"\u00ad{symbol}\u00ad"])[0].ids[-1] == whole


def test_a_soft_hyphen_ends_no_sentence():
    parts = ["Mr\u00ad. Smith\u200b came at 5 p.\u2060m. on Monday.\u00ad ", "He stayed."]
    assert split("".join(parts), "en") == parts


def test_terms_of_a_glossary_are_found():
    glossary = Glossary({"wo\u00adman": "Frau", "red car": "rotes Auto"})
    assert glossary.demanded("The wo\u200bman in a r\u00aded\u2060 c\u200bar") == [
        "Frau",
        "rotes Auto",
    ]


def test_a_parser_reads_one_word_for_each_word():
    assert model_source(["a\u00adb", "\ufe00", "\u034f", "c"]) == "ab _ _ c"


def test_findings_are_the_same_and_count_the_characters_that_were_given():
    checker = Checker(PairFacts.learn([], src_lang="en", tgt_lang="de"))
    source, target = "It costs 500 euros.", "Es kostet kostet kostet 700 Euro."
    given = (
        "It\u00ad co\u00adsts 5\u200b00 euros.",
        "Es ko\u00adstet kostet\u2060 kostet 70\u00ad0 Euro.",
    )
    findings, wanted = (checker.check(*pair).findings for pair in (given, (source, target)))
    shown = [[(finding.kind, finding.reason) for finding in each] for each in (findings, wanted)]
    assert shown[0] == shown[1]
    loop, numbers = findings
    assert given[1][loop.tgt.start : loop.tgt.stop] == "ko\u00adstet kostet\u2060 kostet"
    assert given[0][numbers.src.start : numbers.src.stop] == "5\u200b00"
    assert given[1][numbers.tgt.start : numbers.tgt.stop] == "70\u00ad0"
    (empty,) = checker.check("Good.", "\u00ad").findings
    assert empty.reason == "the translation is empty"


def test_prepared_data_are_those_of_the_visible_text(place, tiny_text, tiny_data):
    given = replace(tiny_text, folder=place.folder)
    for split_name in ("train", "valid"):
        files = []
        for side, path in zip("ab", getattr(tiny_text, split_name), strict=True):
            # In every word of every third line, on one side or both.
            lines = [
                line.replace("e", "\u00ade\u200b") if number % 3 == 0 else line
                for number, line in enumerate(path.read_text().splitlines())
            ]
            if side == "b":
                lines[0] = lines[0].replace("\u00ad", "").replace("\u200b", "")
            files.append(place.folder / f"{split_name}.{side}")
            files[-1].write_text("".join(f"{line}\n" for line in lines))
        given = replace(given, **{split_name: tuple(files)})
    outcome = place.done(*prepare_arguments(given))
    data = PreparedData.open(place.folder / "data" / "tiny")
    for name in ("tokenizer.model", "train.src.bin", "train.tgt.bin", "valid.src.bin"):
        assert (data.path / name).read_bytes() == (tiny_data.path / name).read_bytes(), name
    marked = sum(
        "\u00ad" in src + tgt
        for src, tgt in zip(*(path.read_text().splitlines() for path in given.train), strict=True)
    )
    assert f"fixed: {INVISIBLE}, {marked} times" in outcome.err
    assert data.manifest.sources["train"][0]["fixed"] == {INVISIBLE: marked}
    assert not tiny_data.manifest.sources["train"][0]["fixed"]


def test_pairs_that_look_the_same_are_duplicates():
    keys = keys_of(["wo\u00adman".encode(), "woman\ufeff".encode(), b"woman", "ﬁ\u200bnd".encode()])
    assert keys[0] == keys[1] == keys[2] != keys[3] == keys_of([b"find"])[0]
    assert count_words(["wo\u00adman woman", "\u2060 wo\u200bman"]) == {"woman": 3}


def test_the_check_of_an_export_has_neither_on_both_sides():
    assert comparable("Don\u00adau \ufeff") == comparable("Donau")
