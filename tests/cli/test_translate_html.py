"""`mtkit translate --format html`."""

from __future__ import annotations

import html
import random
import re
from collections import Counter

import pytest
from command_line import Place

from mtkit.run_folder import Run
from mtkit.translate import Translator, translate_markup
from mtkit.translate.markup import Segment, parse

TAG = re.compile(r"<!--.*?-->|</?[a-zA-Z][^<>]*>")
WORDS = ["one", "two", "three", "four", "five", "six", "nine"]


def random_line(seed: int) -> str:
    """A line with nested elements, empty ones, entities and comments."""
    choose = random.Random(seed)

    def inside(depth: int) -> str:
        parts = []
        for _ in range(choose.randint(1, 4)):
            kind = choose.random()
            if depth < 3 and kind < 0.3:
                name = choose.choice(["b", "i", "em", "a href='?x=1&amp;y=2'", 'span class="z"'])
                parts.append(f"<{name}>{inside(depth + 1)}</{name.split()[0]}>")
            elif kind < 0.4:
                parts.append(choose.choice(["<img src=x>", "<!-- note -->", "<b></b>", "<wbr/>"]))
            elif kind < 0.5:
                parts.append(choose.choice(["&amp;", "&lt;", "&quot;x&quot;"]))
            else:
                parts.append(" ".join(choose.choices(WORDS, k=choose.randint(1, 4))))
        return " ".join(parts)

    return inside(0)


def test_tags_stay_and_the_text_is_the_plain_translation(untrained: Run):
    lines = [random_line(seed) for seed in range(200)]
    with Translator.load(untrained, device="cpu") as translator:
        found = translate_markup(translator, translator.aligner(), lines)
        for line, out in zip(lines, found, strict=True):
            assert Counter(TAG.findall(out)) == Counter(TAG.findall(line))
            parts = parse(line)
            texts = [part.text for part in parts if isinstance(part, Segment)]
            plain = list(translator.translate(texts))
            assert html.unescape(TAG.sub("", out)).split() == " ".join(plain).split()


def test_placeholders_survive(untrained: Run):
    lines = ["one %1$s two {name} three", "<b>{0}</b> nine", "%d", "{x}"]
    with Translator.load(untrained, device="cpu") as translator:
        found = translate_markup(translator, translator.aligner(), lines)
    for line, out in zip(lines, found, strict=True):
        for placeholder in re.findall(r"%1\$s|%d|\{\w+\}", line):
            assert out.count(placeholder) == 1
    assert found[2:] == ["%d", "{x}"]


def test_the_command_keeps_tags(trained: Place):
    text = "one <b>two</b><br>three\n\n<p>nine</p>\n"
    outcome = trained.mtkit("-q", "translate", "--format", "html", stdin=text.encode())
    assert (outcome.status, outcome.err) == (0, "")
    lines = outcome.out.split("\n")
    assert len(lines) == 4
    assert [TAG.findall(line) for line in lines[:3]] == [
        *(["<b>", "</b>", "<br>"], [], ["<p>", "</p>"]),
    ]
    trained.write("in.html", text)
    command = ("-q", "translate", "--format", "html", "--input", "in.html", "--output", "out.html")
    assert trained.mtkit(*command).status == 0
    assert (trained.folder / "out.html").read_text(encoding="utf-8") == outcome.out


@pytest.mark.parametrize("option", ["--json", "--alignments", "--nbest=2", "--target-prefix=x"])
def test_html_has_one_text_per_line(option: str, trained: Place):
    trained.write("x", "")
    error = trained.refused("translate", "--format", "html", option, stdin=b"one\n")
    assert f"{option.split('=')[0]} cannot be combined with --format html" in error
