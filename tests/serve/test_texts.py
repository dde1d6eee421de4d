"""A text has the translations of `mtkit translate`, also while other clients send texts."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.served import Served
from support.translators import HOSTILE

from mtkit.serve import texts
from mtkit.translate import Translator, Window, translate_markup, with_placeholders

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
HTML = [
    "<p>one <b>two</b> three</p>",
    "<p>one two</p>\n<ul>\n <li>three <i>four</i></li>\n <li>five</li>\n</ul>",
    "one &amp; two<br>three %1$s four {name}",
    "<!-- one --> two <code>three</code> <a href='x'>four <b>five</b></a>.",
    "<p>one",
    "",
    "plain one two",
]


def some_lines(count: int) -> list[str]:
    choose = random.Random(1)
    return [" ".join(choose.choices(WORDS, k=choose.randint(1, 30))) for _ in range(count)]


def test_lines_blank_lines_and_spaces_stay_as_they_are(served: Served, plain: Translator):
    first, two = plain.translate(["one two.", "three. Four five."])
    text = "\n  one two.\t\r\n\r\n \nthree. Four five. \n\n"
    expected = f"\n  {first}\t\r\n\r\n \n{two} \n\n"
    assert served.translate(text).json["translatedText"] == expected


def test_placeholders_stay_and_what_has_no_letters_is_copied(served: Served, plain: Translator):
    lines = ["one {$name} two", "42", "http://example.org/a", "nine [X0X].", "one {x} two"]
    windows = plain.translate_windows([Window(1, lines)], n_best=2)
    ((_, translations),) = with_placeholders(plain, windows, n_best=2)
    body = served.translate("\n".join(lines), alternatives=1).json
    assert body["translatedText"] == "\n".join(best.text for best, *_ in translations)
    for text in (body["translatedText"], *body["alternatives"]):
        for line, part in zip(
            text.split("\n"), ["{$name}", *lines[1:3], "[X0X]", "{x}"], strict=True
        ):
            assert line.count(part) == 1
    markup = "<td>42</td><td>http://example.org/a</td>"
    assert served.translate(markup, format="html").json["translatedText"] == markup


@pytest.mark.parametrize("line", HOSTILE)
def test_a_strange_line_is_translated_as_by_translate(served: Served, plain: Translator, line: str):
    (best,) = plain.translate([line.strip()])
    start = len(line) - len(line.lstrip())
    expected = line[:start] + best + line[len(line.rstrip()) :] if line.strip() else line
    assert served.translate([line]).json["translatedText"] == [expected]


def test_half_characters_become_the_replacement_character(served: Served, plain: Translator):
    body = rb'{"q": "one \ud83d two", "source": "en", "target": "de"}'
    reply = served.ask("POST", "/translate", body, Content_Type="application/json")
    assert reply.json == {"translatedText": next(plain.translate(["one \ufffd two"]))}


def test_many_clients_at_a_time_get_what_translate_writes(served: Served, plain: Translator):
    lines = some_lines(300)
    expected = list(plain.translate(lines))
    nbest = list(plain.translate_nbest(lines[:50], n_best=3))
    with ThreadPoolExecutor(16) as clients:
        texts = clients.map(lambda line: served.translate(line).json["translatedText"], lines)
        others = clients.map(
            lambda line: served.translate(line, alternatives=2).json["alternatives"], lines[:50]
        )
        paragraphs = clients.map(
            lambda i: served.translate("\n".join(lines[i : i + 30])).json["translatedText"],
            range(0, 300, 30),
        )
        assert list(texts) == expected
        for alternatives, (best, *rest) in zip(others, nbest, strict=True):
            assert alternatives == [
                *dict.fromkeys(other.text for other in rest if other.text != best.text)
            ]
        assert "\n".join(paragraphs) == "\n".join(expected)


def test_long_texts_are_read_and_joined_outside_of_the_event_loop(untrained, monkeypatch):
    threads = set[str]()
    for name in ("_parted", "_joined"):
        function = getattr(texts, name)

        def noted(*arguments, function=function):
            threads.add(threading.current_thread().name)
            return function(*arguments)

        monkeypatch.setattr(texts, name, noted)
    with Served([untrained]) as server:
        loop = server._thread.name
        assert server.translate("one").status == 200
        assert threads == {loop}
        threads.clear()
        assert server.translate(["\n" * 1500, "one\n" * 200]).status == 200
        assert threads
        assert loop not in threads


def test_html_is_what_translate_writes(served: Served, plain: Translator):
    aligner = plain.aligner
    expected = ["\n".join(translate_markup(plain, aligner, text.split("\n"))) for text in HTML]
    assert served.translate(HTML, format="html").json == {"translatedText": expected}
    windows = [text.replace("\n", "\r\n") for text in HTML]
    with ThreadPoolExecutor(4) as clients:
        answers = clients.map(
            lambda text: served.translate(text, format="html").json, filter(None, windows)
        )
    assert [answer["translatedText"] for answer in answers] == [
        text.replace("\n", "\r\n") for text in expected if text
    ]
