"""The page that compares systems in a browser: what readers see and do."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.browsed import HOSTILE
from support.browser import Browser
from support.compared import compared_text

from mtkit.check import Checked, ComparedSystem, Finding, comparison_page
from mtkit.score import Metric, ScoredText, SegmentMetric, sentence_chrf

pytestmark = pytest.mark.slow

NUMBERS = Finding("numbers", "15 is missing", 0.8, src=range(7, 9), tgt=range(5, 7))
REFERENCES = [
    "der rote Ball liegt im Garten",
    "eine Frau mit einem Hut",
    "am 15. Mai",
    "zwei Hunde",
    "",
]
SOURCES = ["the red ball lies in the garden", "a woman with a hat", "on May 15", "two dogs", ""]
FIRST = ["der rote Ball liegt im Garten", "eine Frau mit Hut", "am 15. Mai", "drei Katzen", ""]
SECOND = ["der Ball liegt im grünen Garten", "Männer", "am 😀 18. Mai", "zwei Hunde", ""]


def checked(texts: list[str], found: dict[int, tuple[Finding, ...]]) -> list[Checked]:
    return [Checked(found.get(line, ()), 50.0 - line) for line in range(len(texts))]


SYSTEMS = [
    ComparedSystem("first", FIRST, checked(FIRST, {})),
    ComparedSystem(
        "second", SECOND, checked(SECOND, {2: (NUMBERS,), 1: (Finding("length", "short", 0.9),)})
    ),
]
TEXT = compared_text("test.de", REFERENCES, SOURCES, "en", "de")


def show(
    browser: Browser,
    folder: Path,
    systems: list[ComparedSystem],
    text: ScoredText = TEXT,
    *,
    address: str = "",
    segment_metrics: Sequence[SegmentMetric] = (),
    metrics: Sequence[Metric] = (),
    **options: Any,
) -> None:
    page = folder / "page.html"
    # The tests of significance take a second.
    written = comparison_page(systems, text, metrics=metrics, segment_metrics=segment_metrics)
    page.write_text("".join(written), encoding="utf-8")
    browser.open(f"{page.as_uri()}{address}", **options)
    # Nothing but the page itself was asked for, and no rule of its policy was broken.
    assert browser.requests == [f"{page.as_uri()}{address}".partition("#")[0]]
    assert browser.problems == []


def lines_of(browser: Browser) -> list[int]:
    """The numbers of the lines that are listed."""
    found: list[int] = browser.value(
        "[...document.querySelectorAll('.line h3')].map((one) => parseInt(one.firstChild.data"
        ".replace(/\\D/g, '')))"
    )
    return found


def choose(browser: Browser, **values: str) -> None:
    for name, value in values.items():
        browser.value(
            f"{{ const field = document.getElementById('choices').elements['{name}'];"
            f" field.value = {value!r};"
            " field.dispatchEvent(new Event('input', { bubbles: true })); }"
        )


def marked(browser: Browser, line: int, row: int, name: str) -> list[str]:
    """The texts with a mark in a row of a line that is listed."""
    found: list[str] = browser.value(
        f"[...document.querySelectorAll('.line')[{line}].querySelectorAll('dl > div')[{row}]"
        f".querySelectorAll('mark.{name}')].map((one) => one.textContent)"
    )
    return found


def test_the_lines_that_lost_most_come_first(browser, tmp_path):
    show(browser, tmp_path, SYSTEMS)
    found = [sentence_chrf(texts, REFERENCES) for texts in (FIRST, SECOND)]
    gaps = [other - one for one, other in zip(*found, strict=True)]
    # The last line has no score, because its reference is blank.
    expected = sorted(range(1, 5), key=lambda line: gaps[line - 1])
    assert lines_of(browser) == [*expected, 5]
    choose(browser, order="better")
    assert lines_of(browser) == [*expected[::-1], 5]
    choose(browser, order="line")
    assert lines_of(browser) == [1, 2, 3, 4, 5]
    choose(browser, order="severe")
    assert lines_of(browser)[:2] == [2, 3]
    choose(browser, order="forecast")
    assert lines_of(browser) == [5, 4, 3, 2, 1]
    choose(browser, order="line")
    choose(browser, order="forecast-first")
    assert lines_of(browser) == [5, 4, 3, 2, 1]


ORDERS = "[...document.getElementById('choices').elements.order.options].map((one) => one.text)"


def test_only_systems_with_a_forecast_have_its_order(browser, tmp_path):
    file = ComparedSystem("file", SECOND, [Checked(())] * len(SECOND))
    show(browser, tmp_path, [SYSTEMS[0], file])
    found = [one for one in browser.value(ORDERS) if "forecast" in one]
    assert found == ["lowest forecast of first"]
    show(browser, tmp_path, [file, SYSTEMS[0]])
    found = [one for one in browser.value(ORDERS) if "forecast" in one]
    assert found == ["lowest forecast of first"]
    show(browser, tmp_path, [file])
    assert not any("forecast" in one for one in browser.value(ORDERS))


WITHOUT_REFERENCES = compared_text("in.en", None, SOURCES, "en", "de")


def test_without_references_the_most_doubtful_lines_come_first(browser, tmp_path):
    show(browser, tmp_path, [SYSTEMS[1]], WITHOUT_REFERENCES)
    assert browser.value(ORDERS) == ["lowest forecast", "most severe finding", "order of the text"]
    assert lines_of(browser) == [5, 4, 3, 2, 1]
    labels = "[...document.querySelectorAll('.line')[0].querySelectorAll('dt')]"
    assert browser.value(f"{labels}.map((one) => one.textContent.trim())") == [
        "Source",
        "second forecast 46",
    ]
    found = [Checked(one.findings) for one in SYSTEMS[1].checked or ()]
    show(browser, tmp_path, [ComparedSystem("file", SECOND, found)], WITHOUT_REFERENCES)
    assert lines_of(browser) == [2, 3, 1, 4, 5]


def test_without_references_the_lines_that_differ_most_come_first(browser, tmp_path):
    show(browser, tmp_path, SYSTEMS, WITHOUT_REFERENCES)
    # By hand: 4 of 4 and 5 of 5 words, 3 of 9 with the emoji, 2 of 12, and none.
    assert lines_of(browser) == [2, 4, 3, 1, 5]
    shares = "[...document.querySelectorAll('.gap')].map((one) => one.textContent)"
    assert browser.value(shares) == [f"{one}% of the words differ" for one in (100, 100, 33, 17, 0)]
    # The box of a finding divides the mark.
    assert marked(browser, 2, 2, "two") == ["😀 ", "18"]
    # Outside scores say which one is worse.
    metric = SegmentMetric("QE", [[1, 1, 1, 1, 1], [1, 1, 1, 0.5, 0.75]])
    show(browser, tmp_path, SYSTEMS, WITHOUT_REFERENCES, segment_metrics=[metric])
    assert lines_of(browser) == [4, 5, 1, 2, 3]


def test_a_link_leads_to_its_lines(browser, tmp_path):
    top = "document.getElementById('pager').getBoundingClientRect().top"
    show(browser, tmp_path, *many(120))
    assert browser.value("scrollY") == 0
    browser.value("location.hash = '#line=117'")
    browser.until(f"Math.abs({top}) < 2 || scrollY + innerHeight >= document.body.scrollHeight")
    assert browser.value("scrollY") > 0
    show(browser, tmp_path, *many(120), address="#page=2")
    browser.until(f"Math.abs({top}) < 2")
    assert focused(browser) == "count"


def test_a_kind_of_finding_that_no_line_has_is_not_offered(browser, tmp_path):
    kinds = "[...document.getElementById('choices').elements.kind.options].map((one) => one.value)"
    show(browser, tmp_path, SYSTEMS)
    assert browser.value(kinds) == ["", "any", "none", "numbers", "length"]
    choose(browser, **{"in": "0"})
    assert browser.value(kinds) == ["", "any", "none"]
    # A kind that was chosen stays chosen.
    choose(browser, **{"in": "1", "kind": "length"})
    choose(browser, **{"in": "0"})
    assert browser.value(kinds) == ["", "any", "none", "length"]
    assert lines_of(browser) == []


def test_no_score_of_a_line_is_broken(browser, tmp_path):
    metric = SegmentMetric("COMET", [[0.1234] * 5] * 2)
    show(browser, tmp_path, SYSTEMS, segment_metrics=[metric])
    parts = "[...document.querySelectorAll('.score-of > span')]"
    # Three of each system, but the last line has no chrF, which is said.
    assert browser.value(f"{parts}.length") == 30
    assert browser.value(f"{parts}.every((one) => one.getClientRects().length === 1)")


def test_words_that_differ_are_marked(browser, tmp_path):
    show(browser, tmp_path, SYSTEMS, address="#order=line")
    assert marked(browser, 0, 1, "lacks-two") == ["rote"]
    assert marked(browser, 0, 1, "lacks-one") == []
    assert marked(browser, 0, 2, "one") == []
    assert marked(browser, 0, 3, "two") == ["grünen"]
    # Neighbours are one mark.
    assert marked(browser, 1, 1, "lacks-one") == ["einem"]
    assert marked(browser, 1, 3, "two") == ["Männer"]
    choose(browser, mark="systems")
    assert marked(browser, 0, 2, "one") == ["rote"]
    assert marked(browser, 0, 3, "two") == ["grünen"]
    assert marked(browser, 0, 1, "lacks-two") == []
    choose(browser, mark="nothing")
    assert marked(browser, 0, 3, "two") == []


def test_a_finding_is_shown_where_it_is(browser, tmp_path):
    show(browser, tmp_path, SYSTEMS, address="#line=3")
    assert lines_of(browser) == [3]
    found = "[...document.querySelectorAll('.found li')].map((one) => one.textContent)"
    assert browser.value(found) == ["numbers 15 is missing"]
    # Python counts the emoji before it as one character, and JavaScript as two.
    assert marked(browser, 0, 3, "spot") == ["18"]
    assert marked(browser, 0, 0, "spot") == ["15"]
    assert "forecast 48" in browser.value("document.getElementById('list').textContent")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"kind": "any"}, [2, 3]),
        ({"kind": "numbers"}, [3]),
        ({"kind": "none"}, [1, 4, 5]),
        ({"kind": "any", "in": "0"}, []),
        ({"text": "GARTEN"}, [1]),
        ({"text": "on may"}, [3]),
        ({"text": "katzen"}, [4]),
        ({"from": "5"}, [1, 2]),
        ({"to": "3"}, [3, 4, 5]),
        ({"line": "4"}, [4]),
        ({"line": "40"}, []),
        ({"from": "5", "text": "ball"}, [1]),
    ],
    ids=str,
)
def test_the_filters_keep_the_lines_that_they_say(browser, tmp_path, values, expected):
    show(browser, tmp_path, SYSTEMS, address="#order=line")
    choose(browser, **values)
    assert lines_of(browser) == expected
    # The address leads to the same lines.
    show(browser, tmp_path, SYSTEMS, address=browser.value("location.hash"))
    assert lines_of(browser) == expected
    browser.value("document.querySelector('[type=reset]').click()")
    browser.until("location.hash === ''")
    assert len(lines_of(browser)) == 5


def common(ones: list[str], others: list[str]) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(others) + 1)
    for one in ones:
        before = row
        row = [0]
        for i, other in enumerate(others):
            row.append(before[i] + 1 if one == other else max(row[i], before[i + 1]))
    return row[-1]


def test_as_few_words_are_marked_as_can_be(browser, tmp_path):
    draw = random.Random(1)
    pairs = [
        tuple(" ".join(draw.choices("abcd", k=draw.randrange(12))) for _ in range(2))
        for _ in range(40)
    ]
    references, translations = zip(*pairs, strict=True)
    system = ComparedSystem("x", list(translations))
    show(browser, tmp_path, [system], compared_text("t", list(references)), address="#order=line")
    for line, pair in enumerate(pairs):
        reference, translation = map(str.split, pair)
        expected = common(reference, translation) if reference else len(translation)
        extra = " ".join(marked(browser, line, 1, "one")).split()
        assert len(translation) - len(extra) == expected
        lacking = " ".join(marked(browser, line, 0, "lacks-one")).split()
        assert len(reference) - len(lacking) == (expected if reference else 0)


def test_marked_are_words_that_no_reference_has(browser, tmp_path):
    text = compared_text("t", ["a b c", ""], others=[["a x c", "y"]])
    show(browser, tmp_path, [ComparedSystem("x", ["a x d", "y z"])], text, address="#order=line")
    assert marked(browser, 0, 2, "one") == ["d"]
    assert marked(browser, 0, 0, "lacks-one") == ["b c"]
    assert marked(browser, 0, 1, "lacks-one") == ["c"]
    # A blank reference lacks nothing.
    assert marked(browser, 1, 2, "one") == ["z"]


def test_words_of_a_script_without_spaces_are_its_characters(browser, tmp_path):
    text = compared_text("t", ["我们在北京。"])
    show(browser, tmp_path, [ComparedSystem("x", ["我在东京。"])], text)
    assert marked(browser, 0, 1, "one") == ["东"]
    assert marked(browser, 0, 0, "lacks-one") == ["们", "北"]


def test_very_long_lines_are_compared_too(browser, tmp_path):
    long = " ".join(f"w{number}" for number in range(5000))
    text = compared_text("t", [f"a {long} b"])
    show(browser, tmp_path, [ComparedSystem("x", [f"c {long[::-1]} d"])], text)
    assert marked(browser, 0, 1, "one")[0].startswith("c ")


def test_hostile_text_stays_text(browser, tmp_path):
    finding = Finding("numbers", HOSTILE, 0.5, src=range(2, 9), tgt=range(1, 5))
    first = ComparedSystem(HOSTILE, [HOSTILE], [Checked((finding,), 10.0)])
    second = ComparedSystem(f"{HOSTILE}2", [f"{HOSTILE} x"], [Checked((finding,))])
    text = compared_text(HOSTILE, [f"{HOSTILE} y"], [HOSTILE], HOSTILE, HOSTILE)
    show(browser, tmp_path, [first, second], text, address="#kind=<b>&constructor=1&length=2")
    assert browser.value("document.querySelectorAll('script').length") == 2
    assert browser.value("document.querySelectorAll('b, main style').length") == 0
    texts = browser.value("[...document.querySelectorAll('.text')].map((one) => one.textContent)")
    assert texts == [HOSTILE, f"{HOSTILE} y", HOSTILE, f"{HOSTILE} x"]


def focused(browser: Browser) -> str:
    found: str = browser.value(
        "[document.activeElement].map((one) => one.name || one.id || one.textContent)[0]"
    )
    return found


def many(count: int) -> tuple[list[ComparedSystem], ScoredText]:
    """Lines that get worse from the first to the last."""
    lines = [f"{'ab' * 20}{number:04}" for number in range(count)]
    worse = [f"{'cd' * (number % 20)}{line[number % 20 :]}" for number, line in enumerate(lines)]
    systems = [ComparedSystem("first", lines), ComparedSystem("second", worse)]
    return systems, compared_text("t", lines, lines)


def test_lines_are_on_pages_that_the_keyboard_reaches(browser, tmp_path):
    show(browser, tmp_path, *many(120), address="#order=line")
    assert lines_of(browser) == list(range(1, 51))
    browser.value("document.querySelector('[href=\"#lines\"]').focus()")
    order = []
    while not order or order[-1] != "Next":
        browser.press("Tab")
        order.append(focused(browser))
        outline = browser.value("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", order
    assert order[-10:] == [
        *("order", "text", "from", "to", "line", "mark"),
        *("Clear", "Previous", "page", "Next"),
    ]
    browser.press("Enter")
    assert lines_of(browser) == list(range(51, 101))
    # The count has the focus and says where the list is now.
    assert focused(browser) == "count"
    assert browser.value("document.activeElement.textContent") == "51 to 100 of 120 lines"
    for _ in range(2):
        # There is no page behind the third one.
        browser.value("document.querySelectorAll('[data-step=\"1\"]')[1].click()")
    assert lines_of(browser) == list(range(101, 121))
    assert browser.value("location.hash") == "#order=line&page=3"


def test_one_of_three_systems_is_chosen(browser, tmp_path):
    third = ComparedSystem("third", REFERENCES, checked(REFERENCES, {}))
    show(browser, tmp_path, [*SYSTEMS, third])
    names = "[...document.querySelectorAll('.line')[0].querySelectorAll('.name')]"
    assert browser.value(f"{names}.map((one) => one.textContent)") == ["first", "second"]
    choose(browser, **{"with": "2"})
    assert browser.value(f"{names}.map((one) => one.textContent)") == ["first", "third"]
    # It loses nowhere.
    assert "−" not in browser.value("document.getElementById('list').textContent")
    menu = "document.getElementById('choices').elements.order.selectedOptions[0].text"
    assert browser.value(menu) == "third worse than first"


def test_lines_are_sorted_by_outside_scores(browser, tmp_path):
    errors = [[0, 1, 2, 5, 1], [3.5, 0, 2, 9, 0]]
    metric = SegmentMetric("MQM", errors, lower_is_better=True)
    show(browser, tmp_path, SYSTEMS, address="#by=1", segment_metrics=[metric])
    # The fourth line has four errors more, and the second and fifth one less.
    assert lines_of(browser)[:3] == [4, 1, 3]
    text = "document.querySelector('.line').textContent"
    assert "MQM +4.0000" in browser.value(text)
    assert "MQM 9.0000" in browser.value(text)
    choose(browser, order="low")
    assert lines_of(browser)[:3] == [4, 1, 3]
    choose(browser, by="0", order="line")
    assert "chrF 100.0, MQM 0.0000," in browser.value(text)


# The contrast of text with what is behind it, by WCAG 2.2; the lowest of the page.
CONTRAST = """
(() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const paint = (colors) => {
    pen.clearRect(0, 0, 1, 1);
    for (const color of colors) { pen.fillStyle = color; pen.fillRect(0, 0, 1, 1); }
    return [...pen.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let worst = [21, ""];
  for (const one of document.querySelectorAll("main *")) {
    if (!one.checkVisibility() || one.closest("[aria-disabled=true], svg")) continue;
    if (![...one.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const behind = [];
    for (let up = one; up; up = up.parentElement) {
      behind.unshift(getComputedStyle(up).backgroundColor);
    }
    const color = getComputedStyle(one).color;
    const [a, b] = [light(paint(behind)), light(paint([...behind, color]))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < worst[0]) worst = [ratio, one.outerHTML.slice(0, 80)];
  }
  return worst;
})()
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [420, 1100])
def test_text_can_be_read_and_the_page_is_not_wider_than_the_screen(
    browser, tmp_path, width, scheme
):
    show(browser, tmp_path, SYSTEMS, width=width)
    browser.prefer(prefers_color_scheme=scheme)
    assert browser.value("document.documentElement.scrollWidth <= innerWidth")
    ratio, element = browser.value(CONTRAST)
    assert ratio >= 4.5, element
