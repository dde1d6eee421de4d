"""The page at `/` in a browser: what readers see and do, with a mouse and without one."""

import hashlib
import json
import re
import time
from typing import Any

import pytest
from support.browsed import HOSTILE
from support.browser import Browser
from support.documents import run, word, zipped
from support.served import Served, until

from mtkit.serve import Access, Limits
from mtkit.translate import Translation, Translator

pytestmark = pytest.mark.slow

TEXT = "onetwothree fourfivesix"
RESULT = "document.getElementById('result').textContent"
STATE = "document.getElementById('file-state').textContent"
PROBLEM = "document.getElementById('problem').textContent"
GERMAN = "Die Kinder spielen heute mit ihrem neuen roten Ball im Garten."


def show(browser: Browser, server: Served, **options: Any) -> None:
    """Open the page; the field for the text has the focus."""
    browser.open(f"http://127.0.0.1:{server.port}/", **options)
    browser.until("document.getElementById('target').value")


def choose(browser: Browser, field: str, value: str) -> None:
    browser.value(
        f"{{ const field = document.getElementById('{field}'); field.value = '{value}'; "
        "field.dispatchEvent(new Event('change')); }"
    )


def focused(browser: Browser) -> str:
    """The id of the element with the focus; of a choice its number."""
    identity: str = browser.value(
        "[document.activeElement].map((one) => one.id || one.name || one.tagName)[0]"
    )
    return identity


def words_of(browser: Browser, side: str) -> list[str]:
    """The marked words of a side."""
    words: list[str] = browser.value(
        f"[...document.querySelectorAll('#{side} .marked')].map((one) => one.textContent)"
    )
    return words


def place_of(browser: Browser, side: str, number: int) -> tuple[float, float]:
    """The middle of a word, or of its first line."""
    x, y = browser.value(
        f"[document.querySelectorAll('#{side} span')[{number}].getClientRects()[0]]"
        ".map((box) => [box.x + box.width / 2, box.y + box.height / 2])[0]"
    )
    return x, y


def point_at(browser: Browser, side: str, number: int) -> None:
    browser.point(*place_of(browser, side, number))


def check_is_alone(browser: Browser, server: Served) -> None:
    """The page has asked nobody else, and broke no rule of its policy."""
    assert browser.requests
    for address in browser.requests:
        assert address.startswith((f"http://127.0.0.1:{server.port}/", "blob:", "data:,"))
    assert browser.problems == []


def test_what_is_typed_is_translated_and_nobody_else_is_asked(browser, served):
    show(browser, served)
    assert focused(browser) == "text"
    browser.write(TEXT)
    expected = served.translate(TEXT).json["translatedText"]
    browser.until(f"{RESULT} === {json.dumps(expected)}")
    page = "document.getElementById"
    assert browser.value(f"{page}('text').lang") == "en"
    assert browser.value(f"{page}('result').lang") == "de"
    assert browser.value(f"{page}('result').getAttribute('aria-live')") == "polite"
    assert browser.value(f"{page}('count').textContent") == f"{len(TEXT)} of 50,000 characters"
    # The run has one direction, and no checks.
    assert browser.value(f"{page}('swap').disabled")
    options = "[...document.querySelectorAll('select')].map((one) => one.innerText.trim())"
    assert browser.value(options) == ["English", "German"]
    assert browser.value(f"{page}('checks').innerText").strip() == ""
    check_is_alone(browser, served)


def test_a_translation_that_looks_like_html_stays_text(browser, untrained):
    def hostile(translator: Translator) -> None:
        translations = [Translation(f"{HOSTILE}{number}") for number in range(4)]
        decoder: Any = translator.decoder
        decoder.decode = lambda all, n_best: [translations[:n_best] for _ in all]

    with Served([untrained], changed=hostile) as server:
        show(browser, server)
        browser.write(HOSTILE)
        browser.until(f"{RESULT} === {json.dumps(f'{HOSTILE}0')}")
        point_at(browser, "result", 0)
        browser.until("document.querySelectorAll('#result .marked').length")
        assert browser.value("document.querySelectorAll('script, b, main style').length") == 1
        check_is_alone(browser, server)


def test_a_choice_among_the_alternatives_is_shown(browser, served):
    show(browser, served)
    browser.write(TEXT)
    answer = served.translate(TEXT, alternatives=2).json
    listed = "[...document.querySelectorAll('#choice-list label')].map((one) => one.textContent)"
    browser.until(f"{listed}.length")
    assert browser.value(listed) == [answer["translatedText"], *answer["alternatives"]]
    browser.value("document.querySelectorAll('#choice-list input')[2].click()")
    assert browser.value(RESULT) == answer["alternatives"][1]


def test_confidence_and_findings_stand_below_the_translation(browser, fitted):
    with Served([fitted]) as server:
        show(browser, server)
        browser.write("猫 one two")
        said = "document.getElementById('checks').innerText"
        browser.until(f"{said}.includes('Confidence')")
        answer = server.translate("猫 one two", check=True).json
        lines = browser.value(said).strip().split("\n")
        assert lines[0] == f"Confidence: {round(answer['confidence'])} of 100. It is a guess."
        assert [line for line in lines[1:] if line] == [
            f"{finding['kind']}: {finding['reason']}" for finding in answer["findings"]
        ]
        assert "unknown: the vocabulary lacks 猫" in lines
        assert browser.value("document.getElementById('checks').role") == "status"
        # Only one translation is checked.
        browser.value("document.querySelectorAll('#choice-list input')[1].click()")
        assert browser.value(said).strip() == "Only the first translation is checked."
        browser.value("document.querySelectorAll('#choice-list input')[0].click()")
        assert browser.value(said).startswith("Confidence")
        browser.value("document.getElementById('clear').click()")
        browser.until(f"{said}.trim() === ''")
        check_is_alone(browser, server)


def test_languages_are_found_and_swapped(browser, both):
    show(browser, both)
    choose(browser, "source", "auto")
    choose(browser, "target", "en")
    browser.write(GERMAN)
    expected = both.translate(GERMAN, source="de", target="en").json["translatedText"]
    browser.until(f"{RESULT} === {json.dumps(expected)}")
    detected = browser.value("document.getElementById('detected').textContent")
    assert re.fullmatch(r"Language: German \(\d+%\)", detected)
    assert browser.value("document.getElementById('text').lang") == "de"
    browser.value("document.getElementById('swap').click()")
    assert browser.value("document.getElementById('text').value") == expected
    selected = "['source', 'target'].map((id) => document.getElementById(id).value)"
    assert browser.value(selected) == ["en", "de"]
    back = both.translate(expected).json["translatedText"]
    browser.until(f"{RESULT} === {json.dumps(back)}")


def test_a_file_is_translated_in_parts_and_downloaded(browser, served, tmp_path):
    # More than a request of the page has, with the line ends of Windows.
    lines = ["one two", "", "  three", *(f"{word} {TEXT}" for word in ["seven"] * 250), "four"]
    (tmp_path / "my.notes.txt").write_bytes("\r\n".join(lines).encode())
    show(browser, served, downloads=tmp_path / "there")
    browser.choose_file("file", tmp_path / "my.notes.txt")
    browser.value("document.getElementById('file-start').click()")
    browser.until("!document.getElementById('file-done').hidden")
    assert sum(address.endswith("/translate") for address in browser.requests) == 2
    browser.value("document.getElementById('download').click()")
    result = tmp_path / "there" / "my.notes.de.txt"
    browser.until("document.getElementById('download').download === 'my.notes.de.txt'")
    expected = served.translate("\r\n".join(lines)).json["translatedText"]
    until(result.exists)
    assert result.read_bytes().decode() == expected
    check_is_alone(browser, served)


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_document_is_chosen_or_dropped_and_downloaded(browser, served, tmp_path, is_dropped):
    data = zipped(word(f"<w:p>{run('one two')}{run(' nine', '<w:b/>')}</w:p>"))
    (tmp_path / "my report.docx").write_bytes(data)
    show(browser, served, downloads=tmp_path / "there")
    browser.until("document.getElementById('file-kinds').textContent.includes('.docx, ')")
    if is_dropped:
        # Anywhere on the page.
        browser.drop_files(200, 200, tmp_path / "my report.docx")
        browser.until("document.activeElement.id === 'file-start'")
    else:
        browser.choose_file("file", tmp_path / "my report.docx")
    browser.value("document.getElementById('terms').value = 'two = zwo'")
    browser.value("document.getElementById('file-start').click()")
    browser.until("!document.getElementById('file-done').hidden")
    assert browser.value(STATE).startswith("my report.docx is translated into German.\n")
    browser.value("document.getElementById('download').click()")
    result = tmp_path / "there" / "my report.de.docx"
    until(result.exists)
    terms = json.dumps({"two": "zwo"})
    assert result.read_bytes() == served.fetch(served.upload("a.docx", data, glossary=terms))
    check_is_alone(browser, served)


def test_a_document_that_cannot_be_read_is_refused_in_words(browser, served, tmp_path):
    (tmp_path / "a.docx").write_bytes(b"%PDF-1.7")
    (tmp_path / "b.docx").write_bytes(b"")
    show(browser, served)
    browser.drop_files(200, 200, tmp_path / "a.docx", tmp_path / "b.docx")
    browser.until(f"{STATE} === 'Only the first file is taken: a.docx'")
    browser.value("document.getElementById('file-start').click()")
    browser.until(f"{STATE}.includes('a.docx: it is a PDF')")
    (tmp_path / "latin.txt").write_bytes("für".encode("latin-1"))
    browser.choose_file("file", tmp_path / "latin.txt")
    browser.value("document.getElementById('file-start').click()")
    browser.until(f"{STATE}.startsWith('The file is not text in UTF-8')")


class BusyOnce(Access):
    """Has the second request wait for a second."""

    asked = 0

    def wait(self, client: str, cost: int) -> float:
        self.asked += 1
        return 1.0 if self.asked == 2 else 0.0


def test_a_file_goes_on_when_the_server_has_time_again(browser, untrained, tmp_path):
    (tmp_path / "notes.txt").write_text(f"{TEXT}\n" * 400, encoding="utf-8")
    access = BusyOnce()
    with Served([untrained], access=access) as server:
        show(browser, server)
        browser.choose_file("file", tmp_path / "notes.txt")
        browser.value("document.getElementById('file-start').click()")
        browser.until(f"{STATE}.endsWith('It goes on in 1 s.')")
        browser.until(f"{STATE} === 'notes.txt is translated into German.'")
    # Two parts, the second of them twice.
    assert access.asked == 3


def test_everything_can_be_done_with_the_keyboard(browser, both):
    show(browser, both)
    browser.write(TEXT)
    browser.until(RESULT)
    browser.press("Tab", "Tab")
    assert focused(browser) == "result"
    assert browser.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("ArrowRight")
    browser.until("document.querySelectorAll('#result .marked').length")
    first = browser.value("document.getElementById('words').textContent")
    assert re.fullmatch("“.+” (translates “.+”|belongs to no single word).", first)
    browser.press("End", "ArrowLeft")
    last = browser.value("document.getElementById('words').textContent")
    assert last != first
    # What a screen reader says.
    assert browser.value("document.getElementById('said').textContent") == last
    order = []
    while not order or order[-1] != "file":
        browser.press("Tab")
        order.append(focused(browser))
        if order[-1] == "choice":
            browser.press("ArrowDown")
    assert order == ["copy", "choice", "terms-summary", "file"]
    assert browser.value(RESULT) == both.translate(TEXT, alternatives=2).json["alternatives"][0]
    # Back to the languages, which are before the text.
    back = []
    while not back or back[-1] != "source":
        browser.press("Tab", shift=True)
        back.append(focused(browser))
    assert back[-5:] == ["clear", "text", "target", "swap", "source"]
    browser.press("Tab", " ")
    browser.until("document.getElementById('source').value === 'de'")


def test_the_word_at_the_caret_is_marked(browser, served):
    show(browser, served)
    browser.write(TEXT)
    browser.until(RESULT)
    for key, number in (("Home", 0), ("End", 1)):
        browser.press(key)
        browser.until("document.querySelectorAll('#mirror .marked').length")
        assert words_of(browser, "mirror") == [TEXT.split()[number]]


def test_words_can_be_tapped(browser, served):
    show(browser, served, width=360)
    browser.send("Emulation.setTouchEmulationEnabled", enabled=True)
    browser.write(TEXT)
    browser.until(RESULT)
    browser.tap(*place_of(browser, "result", 0))
    browser.until("document.querySelectorAll('#result .marked').length")
    assert words_of(browser, "mirror")


def test_a_text_from_right_to_left_is_shown_so(browser, served):
    show(browser, served)
    browser.write("שלום עולם")
    assert browser.value("document.getElementById('text').matches(':dir(rtl)')")
    # The word behind the field is at the right too.
    browser.until(RESULT)
    browser.press("Home")
    browser.until("document.querySelectorAll('#mirror .marked').length")
    x, _ = place_of(browser, "mirror", 0)
    middle = browser.value(
        "{ const box = document.getElementById('text').getBoundingClientRect();"
        " box.x + box.width / 2 }"
    )
    assert x > middle


def test_the_words_that_belong_together_are_marked_under_the_pointer(browser, served):
    # An emoji is two characters of JavaScript.
    text = 30 * "\U0001f600" + f"\n{TEXT}"
    show(browser, served)
    browser.write(text)
    browser.until(RESULT)
    answer = served.translate(text, alignments=True).json
    result, pairs = answer["translatedText"], answer["alignments"]
    assert pairs
    for number, start in enumerate([match.start() for match in re.finditer(r"\S+", result)]):
        linked = [src for src, tgt in pairs if tgt[0] == start]
        point_at(browser, "result", number)
        browser.until("document.querySelectorAll('#result .marked').length === 1")
        assert words_of(browser, "result") == [result[start:].split()[0]]
        assert words_of(browser, "mirror") == [text[slice(*src)] for src in sorted(linked)]
    point_at(browser, "mirror", 1)
    linked = [tgt for src, tgt in pairs if text[slice(*src)] == TEXT.split()[0]]
    assert words_of(browser, "result") == [result[slice(*tgt)] for tgt in sorted(linked)]
    browser.point(5, 5)
    assert words_of(browser, "result") == words_of(browser, "mirror") == []


@pytest.mark.parametrize("width", [360, 1100])
def test_the_words_behind_the_field_are_where_its_words_are(browser, served, width):
    show(browser, served, width=width)
    # A line end at the end has a line of its own.
    browser.write("seven eight nine ten, " * 40 + "eleven" * 20 + "\n\n")
    browser.until(RESULT)
    browser.press("ArrowUp", "Home")
    browser.until("document.querySelectorAll('#mirror span').length")
    # How high each is by itself: both wrap the text in the same way.
    for element in ("text", "mirror"):
        browser.value(f"document.getElementById('{element}').style.alignSelf = 'start'")
    browser.value("document.getElementById('text').style.height = '0'")
    field = browser.value("document.getElementById('text').scrollHeight")
    assert field == browser.value("document.getElementById('mirror').offsetHeight") > 300


def test_a_term_is_translated_as_the_reader_says(browser, served):
    show(browser, served)
    browser.write("one two three four")
    browser.value("document.querySelector('summary').click()")
    browser.value("document.getElementById('terms').focus()")
    browser.write("two = zwo\nfour\tvier\nfive")
    browser.until(f"{RESULT}.includes('zwo') && {RESULT}.includes('vier')")
    assert browser.value("document.getElementById('terms-summary').textContent") == "Terms (2)"
    problem = browser.value("document.getElementById('terms-problem').textContent")
    assert problem.startswith("Line 3 is not used")


def test_a_key_is_asked_for_only_if_the_server_wants_one(browser, served, untrained):
    show(browser, served)
    assert browser.value("document.getElementById('key-box').hidden")
    with Served([untrained], access=Access([hashlib.sha256(b"right").hexdigest()])) as server:
        show(browser, server)
        browser.write(TEXT)
        browser.until(f"{PROBLEM} === 'Please write your API key above.'")
        assert not any(address.endswith("/translate") for address in browser.requests)
        for key in ("wrong", "right"):
            browser.value("document.getElementById('key').select()")
            browser.write(key)
            browser.press("Enter")
            if key == "wrong":
                browser.until(f"{PROBLEM} === 'The server does not know this API key.'")
        browser.until(RESULT)
        assert browser.value(PROBLEM) == ""
        check_is_alone(browser, server)


def test_limits_are_explained_in_words(browser, untrained):
    access = Access(per_minute=1)
    with Served([untrained], limits=Limits(characters=40, alternatives=0), access=access) as server:
        show(browser, server)
        browser.write("x" * 41)
        browser.until(f"{PROBLEM}.startsWith('The text has 41 characters. This server takes 40')")
        browser.value("document.getElementById('text').select()")
        browser.write("four")
        browser.until(RESULT)
        assert browser.value("document.getElementById('choices').hidden")
        browser.write(" five")
        browser.until(f"{PROBLEM}.startsWith('You have sent many texts in a short time.')")
        assert re.search(r"The page tries again in \d+ s\.$", browser.value(PROBLEM))


def test_a_server_that_is_gone_is_named_and_can_be_tried_again(browser, untrained):
    with Served([untrained]) as server:
        show(browser, server)
    browser.write(TEXT)
    browser.until(f"{PROBLEM}.startsWith('The server does not answer.')")
    assert not browser.value("document.getElementById('again').hidden")


def check_one_is_cancelled(browser: Browser) -> None:
    """The page gives up one request."""
    deadline = time.monotonic() + 600
    while not browser.cancelled:
        assert time.monotonic() < deadline
        browser.value("new Promise((done) => setTimeout(done, 10))")
    assert len(browser.cancelled) == 1


def test_more_typing_cancels_the_earlier_request(browser, untrained, gate):
    with Served([untrained], changed=gate.close) as server:
        show(browser, server)
        browser.write("one")
        assert gate.begun.acquire(timeout=600)
        browser.write("twothree")
        check_one_is_cancelled(browser)
        gate.open()
        expected = server.translate("onetwothree").json["translatedText"]
        browser.until(f"{RESULT} === {json.dumps(expected)}")


def test_a_file_can_be_stopped(browser, untrained, gate, tmp_path):
    (tmp_path / "notes.txt").write_text(TEXT, encoding="utf-8")
    with Served([untrained], changed=gate.close) as server:
        show(browser, server)
        browser.choose_file("file", tmp_path / "notes.txt")
        button = "document.getElementById('file-start')"
        browser.value(f"{button}.click()")
        assert gate.begun.acquire(timeout=600)
        assert browser.value(f"{button}.textContent") == "Stop"
        browser.value(f"{button}.click()")
        browser.until(f"{STATE} === 'Stopped.'")
        assert browser.value(f"{button}.textContent") == "Translate file"
        check_one_is_cancelled(browser)
        gate.open()


def test_the_browser_remembers_the_languages(browser, both):
    show(browser, both)
    selected = "['source', 'target'].map((id) => document.getElementById(id).value)"
    assert browser.value(selected) == ["en", "de"]
    choose(browser, "source", "de")
    browser.send("Page.reload")
    # The new page may not have them yet.
    browser.until(f"{selected.replace('.value', '?.value')}.join() === 'de,en'")


@pytest.mark.parametrize("width", [320, 360, 700, 1400])
def test_nothing_is_wider_than_the_screen(browser, served, width):
    show(browser, served, width=width)
    browser.write("seven" * 60)
    browser.until(RESULT)
    assert browser.value("document.documentElement.scrollWidth") <= width
    fields = "[...document.querySelectorAll('.field')]"
    assert browser.value(f"{fields}.every((one) => one.scrollWidth === one.clientWidth)")
    heights = "[...document.querySelectorAll('button:not([hidden]), select')]"
    heights += ".map((one) => one.getBoundingClientRect().height)"
    # A finger needs 24 pixels (WCAG 2.2, 2.5.8).
    assert min(browser.value(heights)) >= 24


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read_in_light_and_dark(browser, served, scheme):
    show(browser, served)
    browser.prefer(prefers_color_scheme=scheme)
    browser.write(TEXT)
    browser.until(RESULT)
    point_at(browser, "result", 0)
    browser.until("document.querySelectorAll('#result .marked').length")
    colors = browser.value(
        "['h1', '#words', '#copy', '#text', '.marked', 'label', 'select'].map((name) => {"
        "  let one = document.querySelector(name);"
        "  const ink = getComputedStyle(one).color;"
        "  let ground;"
        "  while (/, 0\\)|transparent/.test(ground = getComputedStyle(one).backgroundColor))"
        "    one = one.parentElement;"
        "  return [name, ink, ground];"
        "})"
    )
    for name, ink, ground in colors:
        if name == ".marked":
            # Behind the field, whose own text is seen.
            ink = next(color for other, color, _ in colors if other == "#text")
        # WCAG 2.2, 1.4.3.
        assert contrast(ink, ground) >= 4.5, name
    is_dark = brightness(colors[0][2]) < 0.2
    assert is_dark == (scheme == "dark")


def brightness(color: str) -> float:
    """The relative luminance of `rgb(…)`, by the definition of WCAG."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(first: str, second: str) -> float:
    darker, lighter = sorted([brightness(first), brightness(second)])
    return (lighter + 0.05) / (darker + 0.05)
