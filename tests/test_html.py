"""The frame of all pages: charts of given lines, cells and axes, and texts that are cut."""

from __future__ import annotations

import re

import pytest
from browsed import HOSTILE, well_formed

from mtkit.html import FIGURES, ONE, Axis, Cells, Chart, Line, cut, page, section

RISING = Line("rising", [(1.0, 0.0), (10.0, 1.0), (100.0, 2.0)])


def drawn(chart: Chart) -> list[list[tuple[float, float]]]:
    """The corners of all paths."""
    return [
        [(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", path)]
        for path in re.findall(r'<path d="([^"]*)"', chart.svg)
    ]


def labels(chart: Chart) -> list[str]:
    return well_formed(chart.svg).texts("text")


def test_powers_of_ten_are_evenly_apart_on_a_logarithmic_axis() -> None:
    chart = Chart("A", "", Axis("x", 1, 100, logarithmic=True), Axis(), [RISING])
    (curve,) = (points for points in drawn(chart) if len(points) == 3)
    (left, _), (middle, _), (right, _) = curve
    assert middle - left == pytest.approx(right - middle, rel=1e-3)
    assert {"1", "10", "100"} <= set(labels(chart))


def test_what_is_written_beside_an_axis_can_be_given() -> None:
    ticks = [(1.0, "one"), (50.0, "<half>")]
    chart = Chart("A", "", Axis("x", 0, 100, ticks=ticks), Axis(low=0, high=2), [RISING])
    assert labels(chart)[:3] == ["one", "<half>", "x"]


def test_text_in_a_chart_is_no_formula() -> None:
    chart = Chart("A", "", Axis(r"$\frac{1}$"), Axis(), [Line("$x", RISING.points)], legend=True)
    assert {r"$\frac{1}$", "$x"} <= set(labels(chart))


def test_cells_of_one_shade_are_one_shape_in_a_colour_of_the_page() -> None:
    boxes = [(0.0, 0.0, 1.0, 1.0), (5.0, 5.0, 1.0, 2.0)]
    axis = Axis(low=0, high=10)
    chart = Chart("A", "", axis, axis, cells=Cells([(0.5, boxes), (1.0, []), (1.0, boxes[:1])]))
    one, two = (points for points in drawn(chart) if len(points) in (4, 8))
    assert (len(one), len(two)) == (8, 4)
    width, height = (abs(one[2][axis] - one[0][axis]) for axis in range(2))
    assert abs(one[6][0] - one[4][0]) == pytest.approx(width, rel=1e-3)
    assert abs(one[6][1] - one[4][1]) == pytest.approx(2 * height, rel=1e-3)
    assert "var(--one)" in chart.svg
    assert ONE not in chart.svg


def test_a_chart_without_anything_to_draw_is_its_caption_and_note() -> None:
    chart = Chart(HOSTILE, "", Axis(), Axis(), note=HOSTILE)
    assert chart.svg == ""
    text = page("p", [section("Charts", FIGURES, charts=[chart])], kind="Page")
    parsed = well_formed(text)
    assert parsed.texts("figcaption") == [HOSTILE]
    assert parsed.texts("p") == ["Page", HOSTILE]
    assert not parsed.all("svg")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("abcd", "abcd"),
        ("abcde", "abcd… [cut here; 5 characters in all]"),
        (None, ""),
        (10**5000, "a nu… [cut here; 26 characters in all]"),
    ],
    ids=["short", "long", "none", "no text"],
)
def test_a_text_that_is_cut_says_so(value: object, shown: str) -> None:
    assert cut(value, 4) == shown
