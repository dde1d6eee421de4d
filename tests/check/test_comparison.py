"""The page that compares systems: what it has of scores, lines and findings."""

import json
import tracemalloc
from typing import Any

import pytest
from support.browsed import Page, assert_runs_its_own_script_alone, well_formed
from support.compared import compared_text

from mtkit.base.errors import MtkitError
from mtkit.check import KINDS, Checked, ComparedSystem, Finding, comparison_page, learned_checker
from mtkit.score import ScoredText, SegmentMetric, System, TextMetric
from mtkit.score import score as score_of

SOURCES = ["a man sits on a bank", "two dogs run", "a woman drives down the mountain", ""]
REFERENCES = [
    "ein Mann mit einem Hut sitzt auf der Bank",
    "zwei Hunde rennen über die Wiese",
    "eine Frau im Ski-Anzug fährt den Berg hinab",
    "",
]
TEXT = compared_text("test.de", REFERENCES, SOURCES, "en", "de")
GOOD = ComparedSystem("good", [REFERENCES[0], "zwei Hunde rennen", REFERENCES[2], ""])
BAD = ComparedSystem("bad", ["ein Mann", "zwei Hunde rennen über die Wiese", "eine Frau", "x"])


def checked(*findings: Finding, confidence: float | None = None) -> Checked:
    return Checked(findings, confidence)


def page_of(*systems: ComparedSystem, text: ScoredText = TEXT, **options: Any) -> Page:
    """A page without scores of whole texts, whose tests take a second, unless it is asked for."""
    return well_formed("".join(comparison_page(systems, text, **{"metrics": (), **options})))


def data_of(page: Page) -> Any:
    (element,) = page.all("script", type="application/json")
    return json.loads(element["text"])


def test_the_scores_and_their_signatures_are_those_of_mtkit_score():
    page = page_of(GOOD, BAD, metrics=("bleu", "chrf"))
    systems = [System(one.name, one.translations) for one in (GOOD, BAD)]
    cells, codes = page.texts("td"), page.texts("code")
    for metric in ("bleu", "chrf"):
        first, second = TextMetric(systems, [REFERENCES], metric).compare()
        assert {f"{first.value:.2f}", f"{second.value:.2f}"} <= set(cells)
        assert {f"{second.p_bootstrap:.4f}", f"{second.p_randomisation:.4f}"} <= set(cells)
        assert f"{second.mean:.2f} ± {second.interval:.2f}" in cells
        assert first.signature in codes
    assert cells.count("baseline") == 4


def test_the_page_has_every_line_with_its_sentence_chrf():
    data = data_of(page_of(GOOD, BAD))
    assert (data["sources"], data["references"]) == (SOURCES, REFERENCES)
    for system, packed in zip((GOOD, BAD), data["systems"], strict=True):
        assert packed["texts"] == system.translations
        found = TextMetric([System("", system.translations)], [REFERENCES], "chrf").of_lines()
        # The last reference is blank.
        (scores,) = packed["scores"]
        assert scores[:3] == pytest.approx([one.value for one in found[:3]], abs=0.005)
        assert scores[3] is None
    assert data["systems"][0]["scores"][0][0] == 100


def test_several_references_are_scored_together_and_a_line_by_the_nearest_one():
    others = [line.upper() for line in REFERENCES[:3]] + ["something"]
    text = compared_text("t", REFERENCES, SOURCES, others=[others])
    page = page_of(BAD, text=text, metrics=("bleu", "chrf"))
    for metric in ("bleu", "chrf"):
        expected = score_of(BAD.translations, [REFERENCES, others], metric=metric)
        assert f"{expected.value:.2f}" in page.texts("td")
        assert expected.signature in page.texts("code")
    data = data_of(page)
    assert (data["references"], data["others"]) == (REFERENCES, [others])
    found = TextMetric([System("", BAD.translations)], [REFERENCES, others], "chrf").of_lines()
    (scores,) = data["systems"][0]["scores"]
    # The last line has a reference now.
    assert scores == pytest.approx([one.value for one in found], abs=0.005)


def test_outside_scores_of_lines_are_in_the_table_and_beside_the_lines():
    errors = SegmentMetric("MQM", [[0, 1, 2, 5], [3.25, 0, 0, 0]], lower_is_better=True)
    page = page_of(GOOD, BAD, segment_metrics=[errors])
    # The means, by hand.
    assert {"2.0000", "0.8125"} <= set(page.texts("td"))
    assert any("better:lower" in text for text in page.texts("code"))
    data = data_of(page)
    assert [one["name"] for one in data["metrics"]] == ["chrF", "MQM"]
    assert [one["sign"] for one in data["metrics"]] == [1, -1]
    assert data["systems"][1]["scores"][1] == [3.25, 0, 0, 0]


def test_the_number_of_better_and_worse_lines_is_said():
    assert "bad is better than good in 1 line, worse in 2, and equal in 0." in page_of(
        GOOD, BAD
    ).texts("p")


def test_the_lines_of_each_system_that_have_a_finding_are_counted_once():
    number = Finding("numbers", "15 is missing", 0.8)
    twice = ComparedSystem(
        "twice", GOOD.translations, [checked(number, number), checked(), checked(number), checked()]
    )
    none = ComparedSystem("none", BAD.translations, [checked()] * 4)
    (row,) = [one for one in page_of(twice, none).texts("tr") if one.startswith("numbers")]
    assert row == f"numbers20{KINDS['numbers']}"
    assert "No line has a finding." in page_of(none).texts("p")


def test_a_finding_is_at_the_characters_that_javascript_counts():
    source, translation = "😀 two 15", "😀😀 zwei 18"
    finding = Finding("numbers", "15", 0.8123456, src=range(6, 8), tgt=range(8, 10))
    system = ComparedSystem("x", [translation], [checked(finding, confidence=41.6)])
    data = data_of(page_of(system, text=compared_text("t", ["y"], [source])))
    (packed,) = data["systems"]
    # An emoji is two characters there.
    assert packed["found"] == {
        "0": [
            {"kind": "numbers", "reason": "15", "severity": 0.812, "src": [7, 9], "tgt": [10, 12]}
        ]
    }
    assert packed["forecast"] == [42]


def test_a_page_without_a_source_says_why_there_are_no_findings():
    page = page_of(GOOD, text=compared_text("test.de", REFERENCES, tgt_lang="de"))
    assert data_of(page)["systems"][0]["found"] is None
    assert any("were not checked, because there is no source" in one for one in page.texts("p"))
    # Nothing is said of a source language.
    assert [page.texts("dt")[-1], page.texts("dd")[-1]] == ["Target language", "de"]


def test_without_references_a_page_has_lines_and_findings_and_no_scores():
    text = compared_text("in.en", None, SOURCES, "en", "de")
    number = Finding("numbers", "15 is missing", 0.8)
    lines = [checked(number), checked(), checked(), checked()]
    page = page_of(ComparedSystem("x", GOOD.translations, lines), text=text, metrics=("bleu",))
    assert page.texts("h2") == ["Summary", "Lines with findings", "Lines"]
    assert "none, because there is no reference" in page.texts("dd")
    data = data_of(page)
    assert (data["references"], data["metrics"], data["systems"][0]["scores"]) == (None, [], [])
    assert data["systems"][0]["texts"] == GOOD.translations
    outside = SegmentMetric("QE", [[0.5, 0.75, 1, 0.75]])
    page = page_of(ComparedSystem("x", GOOD.translations), text=text, segment_metrics=[outside])
    # The mean, by hand.
    assert "0.7500" in page.texts("td")
    assert [one["name"] for one in data_of(page)["metrics"]] == ["QE"]


def test_without_references_a_page_shows_how_many_lines_have_which_forecast():
    text = compared_text("in.en", None, SOURCES, "en", "de")
    lines = [checked(confidence=confidence) for confidence in (80.0, 20.0, 40.0, 60.0)]
    page = page_of(ComparedSystem("x", GOOD.translations, lines), text=text)
    assert "Forecasts of lines: x" in page.texts("figcaption")


def test_without_references_the_number_of_lines_must_be_that_of_the_source():
    with pytest.raises(MtkitError, match=r"x has 1 lines? and the source has 4"):
        comparison_page([ComparedSystem("x", ["one"])], compared_text("in.en", None, SOURCES))


def test_without_references_all_systems_say_what_is_usual():
    text = compared_text("in.en", None, ["Two men."] * 20)
    systems = ["Zwei sehr sehr alte Männer."] * 20, ["Zwei Männer."] * 20
    one, other = learned_checker(text, *systems), learned_checker(text, *systems[::-1])
    assert one is not None
    assert other is not None
    assert one.facts.sampled == 40
    assert one.facts == other.facts


def test_the_languages_are_learned_from_the_references():
    checker = learned_checker(TEXT)
    assert checker is not None
    assert (checker.facts.src_lang, checker.facts.tgt_lang) == ("en", "de")
    unknown = learned_checker(compared_text("t", REFERENCES, SOURCES))
    assert unknown is not None
    assert unknown.facts.tgt_lang == "und"


def test_the_page_may_run_its_own_script_alone_and_load_nothing():
    assert_runs_its_own_script_alone(page_of(GOOD, BAD))


def test_control_characters_are_symbols_and_other_letters_are_not_escaped():
    line = "\0ж\x1b\x85"
    systems = [ComparedSystem("x\udcff", [line])]
    text = "".join(comparison_page(systems, compared_text("t", [line], [line])))
    assert data_of(well_formed(text))["references"] == ["␀ж␛\ufffd"]
    assert "ж" in text
    text.encode()


def test_every_control_has_a_label():
    page = page_of(GOOD, BAD)
    controls = [one for one in page.elements if one["tag"] in ("input", "select")]
    assert len(controls) > 7
    for one in controls:
        assert "label" in one["inside"] or one["attrs"].get("aria-label")


def test_a_line_more_needs_little_memory(monkeypatch):
    # A fifth of the trials, which at once would still take 26 KB a line.
    monkeypatch.setattr("mtkit.score.scores._TRIALS", 2_000)
    monkeypatch.setattr("mtkit.score.scores._SAMPLES", 100)

    def peak(count: int) -> int:
        lines = [f"{number} {SOURCES[number % 3]}" for number in range(count)]
        systems = [ComparedSystem(name, [f"{x} {name}" for x in lines]) for name in "ab"]
        tracemalloc.reset_peak()
        for _ in comparison_page(systems, compared_text("t", lines, lines), metrics=["chrf"]):
            pass
        return tracemalloc.get_traced_memory()[1]

    page_of(GOOD, BAD, metrics=["chrf"])  # loads what is loaded once
    tracemalloc.start()
    # It was 130 KB a line, nearly all for the tests of significance.
    assert peak(300) - peak(50) < 250 * 10_000
    tracemalloc.stop()


def test_another_number_of_lines_is_refused():
    with pytest.raises(MtkitError, match="1 translations do not line up with 4 references"):
        comparison_page([ComparedSystem("x", ["one"])], TEXT)
