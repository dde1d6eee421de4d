"""Placeholders and addresses in plain text: none is lost, and other lines stay as they are."""

import html
import re
from typing import cast

import pytest
from support.fake_translation import FakeTranslator, backwards, shuffled, translated_html

from mtkit.translate import Translation, Translator, Window, with_placeholders

PARTS = [
    *("{$name}", "{ $name }", "{count}", "{0}", "[X0X]", "%s", "%1$s", "%(n)d", "%%", "%b", "%1"),
    *("{{ x }}", "{n, plural, one {# day} other {# days}}", "${x}", "$(USER)", "$USER", "#{x}"),
    *(":name", "@:key", "<0>", "</0>", "[[x]]", "{% if x %}", "<%= x %>", "www.example.org"),
    *("example.org/a?b=1&c=d", "http://пример.рф", "a@b.org", "a.pdf", "C:\\a\\b", "/usr/bin/env"),
]
LINES = ["one {} two three", "{} one two.", "one two: {}", "one ({}) two", "one {}, two & <b>"]
FAKES = [
    FakeTranslator(),
    FakeTranslator(shuffled(1)),
    FakeTranslator(shuffled(2), share_linked=0.4),
    FakeTranslator(word=lambda word: word if word.isalpha() else "x"),
]


def translated(
    lines: list[str], fake: FakeTranslator, prefixes: list[str] | None = None
) -> list[str]:
    translator = cast(Translator, fake)
    windows = translator.translate_windows([Window(1, lines, prefixes)])
    ((_, nbests),) = with_placeholders(translator, windows)
    return [best.text for best, *_ in nbests]


@pytest.mark.parametrize("part", PARTS)
def test_each_form_is_there_again_whatever_the_model_does(part):
    lines = [line.replace("{}", part) for line in LINES]
    for fake in FAKES:
        for line, out in zip(lines, translated(lines, fake), strict=True):
            assert out.count(part) == line.count(part) == 1, (line, out)
        for line, out in zip(lines, translated_html([*map(html.escape, lines)], fake), strict=True):
            assert html.unescape(out).count(part) == 1, (line, out)


def test_the_sign_of_a_menu_stands_before_the_word_of_its_word():
    fake = FakeTranslator(backwards, word=lambda word: word.strip("&"))
    assert translated(["Save &As", "&Open file", "AT&T one"], fake) == [
        "&As Save", "&file Open", "one AT&T"
    ]  # fmt: skip


def test_numbered_tags_of_html_stay_around_the_words_that_translate_theirs():
    (out,) = translated_html(["see <0>the <1>page</1></0> 5 <6"], FakeTranslator(backwards))
    assert out == "&lt;6 5 <0><1>page</1> the</0> see"


@pytest.mark.parametrize("number", ["<0>", "</0>", "<0/>"])
def test_a_number_in_angle_brackets_alone_keeps_its_spaces_as_other_placeholders(number):
    fake = FakeTranslator(word=lambda word: word.replace(number, ""))
    lines = [f"one {number}.", f"one {number} two", f"{number} one", f"(one {number} two)"]
    assert translated(lines, fake) == lines


def test_placeholders_are_put_where_the_alignment_says():
    fake = FakeTranslator(backwards, word=lambda word: word if word.isalpha() else "")
    assert translated(["one {$name} two three", "see <0>the page</0> now {x}"], fake) == [
        "three {$name} two one", "now <0>page the</0> see {x}"
    ]  # fmt: skip


def test_digits_and_single_letters_at_a_placeholder_stay_there():
    fake = FakeTranslator(word=lambda word: word if word.isalpha() else "")
    lines = ["go 4-${x} now", "%s-x is", "see {0}x now", "is n={n}/2 now", "{h}:{m} is"]
    assert translated(lines, fake) == lines


def test_only_the_lines_that_lost_something_are_translated_again():
    fake = FakeTranslator(word=lambda word: word.replace("{x}", "y"))
    lines = ["one two", "one {y}", "one {x} two", "50 % &amp; <b>", " {x} one ", ""]
    expected = ["one two", "one {y}", "one {x} two", "50 % &amp; <b>", "{x} one", ""]
    assert translated(lines, fake) == expected
    assert fake.texts == [*lines, "one  two", "one"]
    assert fake.numbers == [1, 2, 3, 4, 5, 6, 3, 5]


def test_a_line_is_copied_with_a_warning_if_the_model_makes_placeholders_up(caplog):
    fake = FakeTranslator(word=lambda word: word.replace("two", "%d").replace("{x}", ""))
    assert translated(["one", " one {x} two "], fake) == ["one", "one {x} two"]
    assert [record.getMessage() for record in caplog.records] == [
        "line 2: the translation has other placeholders than the text, which is copied"
    ]


def test_a_translation_with_a_given_beginning_stays_with_a_warning(caplog):
    fake = FakeTranslator(word=lambda word: word.replace("{x}", ""))
    assert translated(["one {x} two"] * 2, fake, ["", "a"]) == ["one {x} two", "one  two"]
    (record,) = caplog.records
    assert record.getMessage().startswith("line 2: the translation has other placeholders")


def test_all_hypotheses_have_them_and_do_not_depend_on_the_other_lines(untrained):
    lines = ["one {$name} two", "nine", "One [X0X] two. Three http://example.org/a.", "{x} six %d"]
    with Translator.load(untrained, device="cpu") as translator:

        def nbest(window: Window, n_best: int) -> list[list[Translation]]:
            windows = translator.translate_windows([window], n_best=n_best)
            ((_, nbests),) = with_placeholders(translator, windows, n_best=n_best)
            return nbests

        together = nbest(Window(1, lines), 3)
        for i, line in enumerate(lines):
            (alone,) = nbest(Window(1, [line], numbers=[i + 1]), 1)
            assert alone[0].text == together[i][0].text
        for line, hypotheses in zip(lines, together, strict=True):
            for part in re.findall(r"\{\S+\}|\[X0X\]|%d|http\S+(?=\.)", line):
                assert all(hypothesis.text.count(part) == 1 for hypothesis in hypotheses)
