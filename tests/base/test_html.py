"""The charts of all pages, and texts that are cut."""

import re

import pytest
from support.browsed import HOSTILE, well_formed

from mtkit.base.html import ONE, TWO, Chart, Line, Points, cut

RISING = Line("rising", [(0.0, 1.0), (50.0, 10.0), (100.0, 100.0)])


def drawn(chart: Chart) -> list[Points]:
    """The corners of all paths."""
    return [
        [(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", path)]
        for path in re.findall(r'<path d="([^"]*)"', chart.svg)
    ]


def labels(chart: Chart) -> list[str]:
    return well_formed(chart.svg).texts("text")


def test_powers_of_ten_are_evenly_apart_on_a_logarithmic_axis():
    chart = Chart("A", "", [RISING], "x", "log")
    (curve,) = (points for points in drawn(chart) if len(points) == 3)
    (_, low), (_, middle), (_, high) = curve
    assert middle - low == pytest.approx(high - middle, rel=1e-3)
    assert {"1", "10", "100"} <= set(labels(chart))


@pytest.mark.parametrize("high", [2.1, 3.0, 4.5, 9.0, 30.0, 900.0, 9e5])
def test_a_logarithmic_axis_has_at_least_two_numbers_and_not_too_many(high: float):
    for low in (0.31, 1.0, 2.6):
        chart = Chart("A", "", [Line("", [(0.0, low), (1.0, low * high)])], "x", "log")
        assert 1 <= len([text for text in labels(chart) if text not in "x 0 1"]) <= 10


def test_numbers_on_an_axis_are_written_as_the_chart_says():
    chart = Chart("A", "", [RISING], "x", "from zero", form=lambda value: f"<{value:.0f}>")
    assert {"<0>", "<100>", "100"} <= set(labels(chart))


def test_text_in_a_chart_is_not_a_formula():
    lines = [Line("$x", RISING.points), Line(HOSTILE, RISING.points)]
    assert {r"$\frac{1}$", "$x", HOSTILE} <= set(labels(Chart("A", "", lines, r"$\frac{1}$")))


def test_colours_of_a_chart_are_those_of_the_page():
    line = Line("other", RISING.points, TWO, style="--", steps=True)
    svg = Chart("A", "", [RISING, line], "x", mark=(50, "here")).svg
    assert {"var(--one)", "var(--two)", "var(--rule)", "currentColor"} <= set(
        re.findall(r"var\(--\w+\)|currentColor", svg)
    )
    assert not {ONE, TWO} & set(re.findall("#[0-9a-f]{6}", svg))


@pytest.mark.parametrize(
    ("value", "shown"),
    [("abcd", "abcd"), ("abcde", "abcd… [cut here; 5 characters in all]")],
    ids=["short", "long"],
)
def test_a_text_that_is_cut_says_so(value: str, shown: str):
    assert cut(value, 4) == shown
