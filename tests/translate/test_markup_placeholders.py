"""Placeholders of programs in HTML: none is lost, none is made up."""

import random
import re
from collections import Counter
from dataclasses import replace

import pytest
from conftest import slow
from support.fake_translation import FakeTranslator, copied, shuffled, tags_of, translated_html

from mtkit.translate import Translation

PLACEHOLDERS = [
    *("%s", "%d", "%1$s", "%2$d", "%05.2f", "%-10s", "%(name)s", "%ld", "%i", "%x", "%@", "%%"),
    *("{0}", "{name}", "{{count}}", "{{ user.name }}", "${HOME}", "%{count}", "{}"),
    *("{0,number,#.##}", "{when, date, short}", "{n, number}"),
    "{n, plural, one {# day} other {# days}}",
    "{who, select, male {he {x}} other {they}}",
]
WORDS = ["one", "two,", "km", "dx", "Ende.", "é", "50%", "4", "(three)", "a&lt;b", "&amp;", "日本"]
NAMES = ["b", "i", "a href='x'", 'span class="y"', "em"]
SOLE = ["<img src='x'>", "<br>", "<!-- c -->", "<wbr>", "<code>%s</code>", "<b></b>"]
# Written without mtkit's own reading of placeholders.
FOUND = re.compile(
    r"\{[^{},]*,[^{}]*(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}[^{}]*)*\}|\{\{[^{}]*\}\}|[$%]?\{[\w.]*\}"
    r"|%%|%(?!(?<=\d%)-?[^\W\d_]{2})(?:\d+\$|\(\w+\))?[-0]?\d*(?:\.\d+)?l?[@sdfix]"
)


def random_line(seed: int) -> str:
    """A line of words, elements and placeholders, many of them side by side."""
    choose = random.Random(seed)

    def inside(depth: int) -> str:
        parts: list[str] = []
        for _ in range(choose.randint(1, 5)):
            kind = choose.random()
            if kind < 0.35:
                parts.append(choose.choice(PLACEHOLDERS))
            elif kind < 0.5 and depth < 3:
                name = choose.choice(NAMES)
                parts.append(f"<{name}>{inside(depth + 1)}</{name.split()[0]}>")
            elif kind < 0.6:
                parts.append(choose.choice(SOLE))
            else:
                parts.append(choose.choice(WORDS))
            parts.append(choose.choice(["", "", " ", " ", ", ", "-"]))
        return "".join(parts)

    line = inside(0)
    return f"<p>{line}</p>" if choose.random() < 0.3 else line


def placeholders_of(line: str) -> Counter[str]:
    texts = re.split(r"<!--.*?-->|<[^<>]*>", re.sub("<code>.*?</code>", "<code>", line))
    return Counter(match[0] for text in texts for match in FOUND.finditer(text))


@pytest.mark.parametrize("count", [100, slow(5000)])
@pytest.mark.parametrize(
    "fake",
    [
        FakeTranslator(),
        FakeTranslator(shuffled(1)),
        FakeTranslator(shuffled(2), share_linked=0.4),
        FakeTranslator(copied, word=lambda word: re.sub("[a-z{}%$]", "x", word)),
    ],
    ids=["copies", "changes words", "changes words and links few", "writes other words"],
)
def test_no_placeholder_is_lost_and_none_is_made_up(fake: FakeTranslator, count: int):
    lines = [random_line(seed) for seed in range(count)]
    for line, out in zip(lines, translated_html(lines, fake), strict=True):
        assert placeholders_of(out) == placeholders_of(line), (line, out)
        assert tags_of(out) == tags_of(line), (line, out)


class LosesHyphens(FakeTranslator):
    """Writes X for a placeholder, and no hyphen that is at the beginning or end of a word."""

    def _translated(self, line: str) -> Translation:
        best = super()._translated(" ".join(word.strip("-–") for word in line.split()))
        return replace(best, text=FOUND.sub("X", best.text))


@pytest.mark.parametrize(
    "line",
    [
        *("the {name}-dog runs", "{name}-dog runs", "the dog-{name} runs", "dog-{name}"),
        *(
            "{name}–dog",
            "pre-{name}-post",
            "a <i>{name}-dog</i> runs",
            "%s-%d dog",
            "{a}-{b}-dog",
            "one-{name}s",
        ),
        *("{name}- and dog runs", "the dog-<b>{name}</b> runs", "two -{count} and", "{a}–{b}, six"),
    ],
)
def test_a_hyphen_at_a_placeholder_is_not_lost(line: str):
    assert translated_html([line], LosesHyphens()) == [line]


def test_a_placeholder_may_stand_before_a_tag_that_is_not_closed():
    line = "<p>one {x} <a b='c<i>two</p>"
    assert list(translated_html([line], FakeTranslator())) == [line]
