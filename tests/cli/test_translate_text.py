"""What `mtkit translate` copies of plain text, and the formats that it notes."""

import json
import logging

import pytest

from mtkit.base.text import with_format_noted
from mtkit.translate import Translator


def test_what_is_copied_is_counted_and_can_be_switched_off(untrained, place):
    lines = ["one two", "42", "", "{x}", "one {x} two"]

    def translated(*options: str) -> tuple[list[str], list[bool], str]:
        """The texts, whether each was decoded, and standard error."""
        text = "".join(f"{line}\n" for line in lines).encode()
        outcome = place.done("translate", "--run", untrained.path, "--json", *options, stdin=text)
        best = [json.loads(row)["translations"][0] for row in outcome.out.split("\n")[:-1]]
        return (
            [row["text"] for row in best],
            [bool(row["tokens"]) for row in best],
            outcome.err,
        )

    texts, decoded, err = translated("--precision", "fp32")
    assert texts[1:4] == ["42", "", "{x}"]
    assert texts[4].count("{x}") == 1
    assert decoded == [True, False, False, False, True]
    note = "copied 2 texts without letters, or with addresses and placeholders only; --no-copy"
    assert err.count(note) == 1
    off = "--precision", "fp32", "--no-copy", "--no-placeholders"
    texts, decoded, err = translated(*off)
    assert decoded == [True, True, False, True, True]
    assert note[:6] not in err
    config = untrained.config.decode.model_copy(update={"copy_numbers": False})
    assert texts == list(Translator.load(untrained, config=config, device="cpu").translate(lines))


def test_what_is_copied_of_html_is_counted(untrained, place):
    command = "translate", "--run", untrained.path, "--format", "html"
    outcome = place.mtkit(*command, stdin=b"<td>42</td><td>{x}</td> one\n")
    assert outcome.out.startswith("<td>42</td><td>{x}</td> ")
    assert "copied 2 texts without letters" in outcome.err
    assert "copied" not in place.mtkit(*command, "--no-copy", stdin=b"<td>42</td>\n").err


def test_a_parser_copies_nothing(parser, place):
    outcome = place.mtkit("translate", "--run", parser.path, stdin=b"42\n{x}\n")
    assert (outcome.status, "copied" in outcome.err) == (0, False)
    assert not {"42", "{x}"} & set(outcome.out.split("\n"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("HTML", "<!DOCTYPE html>\n<html>"),
        ("HTML", "<p>One <b>two</b></p>"),
        ("XML", "<?xml version='1.0'?>"),
        ("XML", '<xliff version="1.2">'),
        ("WebVTT", "WEBVTT\n\n00:01.000 --> 00:02.000\nOne."),
        ("SRT", "1\n00:00:01,000 --> 00:00:02,500\nOne."),
        ("PO", 'msgid ""\nmsgstr ""'),
        ("JSON", '{\n  "title": "One",\n  "text": "Two"\n}'),
        ("LaTeX", "\\documentclass{article}"),
        ("Markdown", "# One\n\nTwo **3** four."),
        ("Markdown", "One [two](https://example.org) three\n```\nx"),
        ("Markdown", "| a | b |\n|---|:-:|\n## One"),
        ("columns with tabs between them", "\n".join(["One two.\tEins zwei."] * 9 + ["7\tOne."])),
    ],
)
def test_input_in_another_format_is_noted_once(name, text, caplog):
    lines = f"{text}\n{text}".split("\n")
    assert list(with_format_noted(lines)) == lines
    (record,) = caplog.records
    assert record.getMessage().startswith(f"the input looks like {name}, and is read as text: ")


def test_a_control_character_that_the_model_does_not_see_is_reported_once(tiny_data, caplog):
    tokenizer = tiny_data.tokenizers().src
    for code in [*range(0xA0), 0x2028, 0x2029]:
        caplog.clear()
        lines = ["x", f"a{chr(code)}b", f"a{chr(code)}b"]
        assert list(with_format_noted(lines)) == lines
        is_lost = tokenizer.decode(tokenizer.encode(lines[1])) == "ab"
        names = [record.getMessage().partition(";")[0] for record in caplog.records]
        assert names == [f"line 2 has the control character U+{code:04X}"] * is_lost


def test_ordinary_text_is_not_noted(caplog):
    caplog.set_level(logging.INFO)
    lines = [
        *("# 1 of 5", "#tag one", "a * b * c", "5 < 6 and 7 > 6", "<3", "1.", "- one", "* two", ""),
        *("It was 00:10:00 --> now", 'He said: "yes": no', "[1] (see p. 5)", "---", "***", "a | b"),
        *("C# and F#", "2 ** 3 ** 4", "msgid", "the tag <b>", "{name}: {x}", "WEBVTTX", "\\o/"),
        *(["One\ttwo"] * 9 + ["\tone"] * 20 + ["1\t2", "one\t"] * 5),
    ]
    assert list(with_format_noted(lines)) == lines
    assert not caplog.records
