"""How a page looks: one HTML file to open in a browser, with nothing loaded from elsewhere.

This module owns the frame, the style, the charts, and how texts and numbers are shown. What stands
on a page is up to the modules `report_page` of `train` and `prepare`: they give sections, whose
bodies are templates and plain values, and charts, which are points and axes.

A page never fails on what it shows: numbers that are none are told as such, texts are cut where
they get out of hand and shown escaped. It has no time stamp, so the same values give the same
bytes.
"""

from __future__ import annotations

import functools
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

# jinja2 and matplotlib are imported where they are used: only those who write a page wait for them.
if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.axes import Axes

LONGEST_TEXT = 2_000
# A line has no more points than this: a chart is some 350 wide.
_MOST_POINTS = 600
# Past these a number is as good as infinite: axes have to be a little longer than what they show.
_LARGEST = 1e30

# ---------------------------------------------------------------------------------------------
# The frame


@dataclass(frozen=True)
class Section:
    """A part of a page under its own heading; the body is HTML."""

    heading: str
    body: str
    kind: str = ""


def page(title: str, sections: Sequence[Section], *, kind: str) -> str:
    """A whole page, as HTML to be written in UTF-8.

    Args:
        title: what the page is about.
        sections: in the order in which they are shown.
        kind: what kind of thing that is.
    """
    return _render(_FRAME, title=title, kind=kind, style=_STYLE, sections=sections)


def section(heading: str, template: str, *, kind: str = "", **values: Any) -> Section:
    """A section whose body is a Jinja template, filled with values that are escaped."""
    return Section(heading, _render(template, **values), kind)


def _render(template: str, **values: Any) -> str:
    return _environment().from_string(template).render(**values).strip() + "\n"


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cut"] = cut
    return environment


# What HTML and UTF-8 have no place for, and carriage returns, which a browser would not keep.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def _printable(value: Any) -> Any:
    """The value as a text that a page can hold: control characters become pictures of them."""
    if hasattr(value, "__html__"):  # a part of the page
        return value
    return _UNPRINTABLE.sub(_picture, _text(value).replace("\r\n", "\n"))


def _text(value: Any) -> str:
    try:
        return "" if value is None else str(value)
    except ValueError:  # a whole number of thousands of digits
        return "a number too long to print"


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def cut(value: Any, limit: int = LONGEST_TEXT) -> str:
    """The value as a text that ends, and says so, where it gets too long."""
    text = _text(value)
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… [cut here; {len(text):,} characters in all]"


def mappings(values: Any) -> list[Mapping[str, Any]]:
    """Those of the values that are what they should be; a damaged file may hold anything."""
    if not isinstance(values, Sequence):
        return []
    return [value for value in values if isinstance(value, Mapping)]


# ---------------------------------------------------------------------------------------------
# Numbers


def finite(value: Any, largest: float = _LARGEST) -> float | None:
    """The number that the value is, if it is one that has a place on an axis."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < largest else None


def shown(value: Any, form: str) -> str:
    """The value of a cell, whatever it is."""
    if value is None:
        return "–"
    number = finite(value)
    if number is None:
        return cut(value, 40)
    return form.format(number) if abs(number) < 1e9 else f"{number:.3g}"


def brief(number: float) -> str:
    """A number in some four digits."""
    if 1000 <= abs(number) < 1e7:
        return f"{number:,.0f}"
    return f"{number:.4g}"


# ---------------------------------------------------------------------------------------------
# Charts

# Okabe and Ito's blue and vermilion, which differ for every kind of sight, and in print by their
# lightness. In the drawings they stand for the colours of the page: see `_as_part_of_the_page`.
ONE, TWO, _INK, _RULE = "#0072b2", "#d55e00", "#1f2328", "#d9dee3"
_IN_THE_PAGE = {
    ONE: "var(--one)",
    TWO: "var(--two)",
    _INK: "currentColor",
    _RULE: "var(--rule)",
}
# Ticks are so far apart, or ten times, and so on.
_ROUND = (1, 2, 2.5, 5, 10)

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """What is drawn from point to point.

    Attributes:
        label: what it is.
        points: (x, y), by x.
        color: `ONE` or `TWO`.
        marker: that of matplotlib, where the single points count.
        dashed: so that it can be told from the other without colours.
        filled: down to zero, lightly.
    """

    label: str
    points: Points
    color: str = ONE
    marker: str = ""
    dashed: bool = False
    filled: bool = False


@dataclass(frozen=True)
class Cells:
    """Rectangles of the plane, shaded.

    Attributes:
        shades: how dark, from 0 to 1, and (x, y, width, height) of each rectangle.
    """

    shades: Sequence[tuple[float, Sequence[tuple[float, float, float, float]]]]


@dataclass(frozen=True)
class Axis:
    """One of the two axes of a chart.

    Attributes:
        label: what is on it.
        low, high: its ends; without both, it is as long as what is drawn.
        logarithmic: from a `low` above 0.
        whole: only whole numbers are written beside it.
        ticks: where something is written, and what; by default round numbers.
        form: how a number is written.
    """

    label: str = ""
    low: float | None = None
    high: float | None = None
    logarithmic: bool = False
    whole: bool = False
    ticks: Sequence[tuple[float, str]] = ()
    form: Callable[[float], str] = brief


@dataclass(frozen=True)
class Chart:
    """A drawing with its caption; without lines and cells the caption and note alone.

    Attributes:
        title: one that no other chart of the page has.
        description: what can be seen, for those who cannot.
        x, y: the axes.
        lines, cells: what is drawn.
        mark: a place on the x axis, and what is there.
        legend: whether lines and mark are named above.
        note: shown below.
    """

    title: str
    description: str
    x: Axis
    y: Axis
    lines: Sequence[Line] = ()
    cells: Cells | None = None
    mark: tuple[float, str] | None = None
    legend: bool = False
    note: str = ""

    @property
    def svg(self) -> str:
        """The drawing as an `<svg>` element; empty if there is nothing to draw."""
        return _draw(self) if self.lines or self.cells else ""


# Charts beside each other, for `section`.
FIGURES = """\
<div class="charts">
{% for chart in charts %}
<figure>
<figcaption>{{ chart.title }}</figcaption>
{% set svg = chart.svg %}
{% if svg %}
<div role="img" aria-label="{{ chart.description }}">
{{ svg | safe }}</div>
{% endif %}
{% if chart.note %}
<p class="note">{{ chart.note }}</p>
{% endif %}
</figure>
{% endfor %}
</div>
"""


def _thin(points: Points, most: int = _MOST_POINTS) -> Points:
    """At most so many of the points: the ends, and the lowest and the highest of every stretch."""
    if len(points) <= most:
        return points
    inner = points[1:-1]
    stretches = (most - 2) // 2
    kept = [points[0]]
    for i in range(stretches):
        start, end = (len(inner) * place // stretches for place in (i, i + 1))
        places = range(start, end)
        extremes = {
            min(places, key=lambda place: inner[place][1]),
            max(places, key=lambda place: inner[place][1]),
        }
        kept += [inner[place] for place in sorted(extremes)]
    return [*kept, points[-1]]


def _draw(chart: Chart) -> str:
    """The `<svg>` element of a chart."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        # Nobody's own settings make it another page.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "svg.fonttype": "none",
                "svg.hashsalt": "mtkit",
                "font.size": 10,
                "text.color": _INK,
                "text.parse_math": False,
                "axes.edgecolor": _RULE,
                "axes.labelcolor": _INK,
                "xtick.labelcolor": _INK,
                "ytick.labelcolor": _INK,
                "axes.unicode_minus": False,
            }
        )
        figure = Figure(figsize=(5, 2.9), facecolor="none")
        # With a legend room above, where it hides nothing.
        height = 0.73 if chart.legend else 0.81
        axes = figure.add_axes((0.14, 0.16, 0.79, height), facecolor="none")
        if chart.cells is not None:
            _add_cells(axes, chart.cells)
        for line in chart.lines:
            _add_line(axes, line)
        if chart.mark is not None:
            place, label = chart.mark
            axes.axvline(place, color=_INK, linewidth=0.9, linestyle=":", label=label)
        if chart.legend:
            axes.legend(
                frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0
            )
        _arrange(axes, "x", chart.x)
        _arrange(axes, "y", chart.y)
        axes.tick_params(length=0, pad=6)
        axes.grid(color=_RULE, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        text = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", metadata=nothing)
    return _as_part_of_the_page(text.getvalue(), prefix=chart.title.lower().replace(" ", "-"))


def _add_line(axes: Axes, line: Line) -> None:
    points = _thin(line.points)
    few = len(points) <= 50
    places, values = [x for x, _ in points], [y for _, y in points]
    if line.filled:
        axes.fill_between(places, values, color=line.color, alpha=0.15, linewidth=0)
    axes.plot(
        places,
        values,
        color=line.color,
        label=line.label,
        linewidth=1.7 if line.marker else 1.2,
        linestyle="--" if line.dashed else "-",
        marker=(line.marker if few else "") or ("o" if len(points) == 1 else ""),
        markersize=4,
    )


def _add_cells(axes: Axes, cells: Cells) -> None:
    from matplotlib.patches import PathPatch, Rectangle
    from matplotlib.path import Path

    for shade, boxes in cells.shades:
        # One shape for all of a shade: a page of single rectangles would be five times as long.
        shapes = [
            Path.unit_rectangle().transformed(
                Rectangle((x, y), width, height).get_patch_transform()
            )
            for x, y, width, height in boxes
        ]
        if shapes:
            path = Path.make_compound_path(*shapes)
            axes.add_patch(PathPatch(path, facecolor=ONE, alpha=shade, linewidth=0))
    axes.autoscale_view()


def _arrange(axes: Axes, name: Literal["x", "y"], axis: Axis) -> None:
    from matplotlib.ticker import (
        FixedFormatter,
        FixedLocator,
        FuncFormatter,
        MaxNLocator,
        NullLocator,
    )

    its = axes.xaxis if name == "x" else axes.yaxis
    set_scale, set_limits = (
        (axes.set_xscale, axes.set_xlim) if name == "x" else (axes.set_yscale, axes.set_ylim)
    )
    if axis.logarithmic:
        set_scale("log")
    if axis.low is not None and axis.high is not None:
        set_limits(axis.low, axis.high)
    if axis.ticks:
        its.set_major_locator(FixedLocator([place for place, _ in axis.ticks]))
        its.set_major_formatter(FixedFormatter([text for _, text in axis.ticks]))
    else:
        if axis.logarithmic and axis.low is not None and axis.high is not None:
            its.set_major_locator(FixedLocator(_log_ticks(axis.low, axis.high)))
        else:
            its.set_major_locator(MaxNLocator(6, integer=axis.whole, steps=_ROUND))
        its.set_major_formatter(FuncFormatter(lambda value, _: axis.form(value)))
    its.set_minor_locator(NullLocator())
    if axis.label:
        its.set_label_text(axis.label)


def _log_ticks(low: float, high: float) -> list[float]:
    """Round numbers from low to high, about as far from each other as their labels are high."""
    digits: tuple[float, ...] = (1,)
    for ratio, finer in (
        (1000, (1, 2, 5)),
        (30, (1, 2, 3, 5, 7)),
        (4.5, (1, 1.5, 2, 2.5, *range(3, 10))),
    ):
        if high / low < ratio:
            digits = finer
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**exponent for exponent in exponents for digit in digits]
    return [tick for tick in ticks if low <= tick <= high]


def _as_part_of_the_page(svg: str, *, prefix: str) -> str:
    """A drawing that takes its size, font and colours from the page it stands in."""
    svg = svg[svg.index("<svg") :]
    view_box = re.search(r'viewBox="[^"]*"', svg)
    assert view_box is not None
    svg = re.sub(r"<svg[^>]*>", f'<svg {view_box[0]} aria-hidden="true">', svg, count=1)
    # A style sheet would be that of the whole page; `_STYLE` has the one rule of it.
    svg = re.sub(
        r"<defs>\s*<style.*?</style>\s*</defs>|<metadata>.*?</metadata>", "", svg, flags=re.S
    )
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    # What is left of the ids is referred to, and must differ from chart to chart.
    svg = re.sub(r' id="', f' id="{prefix}-', svg)
    svg = svg.replace("xlink:href", "href").replace('href="#', f'href="#{prefix}-')
    svg = svg.replace("url(#", f"url(#{prefix}-")
    for color, name in _IN_THE_PAGE.items():
        svg = svg.replace(color, name)
    return re.sub(r"\n\s*", "\n", svg)


# ---------------------------------------------------------------------------------------------
# Templates

# Sentences in a box that stands out, and facts by their labels, for `section`.
FINDINGS = """\
<ul>
{% for finding in findings %}
<li>{{ finding | cut }}</li>
{% endfor %}
</ul>
"""

SUMMARY = """\
<dl>
{% for label, text in summary %}
<div><dt>{{ label | cut(200) }}</dt><dd dir="auto">{{ text | cut }}</dd></div>
{% endfor %}
</dl>
"""

_FRAME = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>{{ title | cut(200) }} – {{ kind }}</title>
<style>
{{ style | safe }}</style>
</head>
<body>
<header>
<p>{{ kind }}</p>
<h1 dir="auto">{{ title | cut(200) }}</h1>
</header>
<main>
{% for section in sections %}
<section class="{{ section.kind }}" aria-labelledby="section-{{ loop.index }}">
<h2 id="section-{{ loop.index }}">{{ section.heading }}</h2>
{{ section.body | safe }}</section>
{% endfor %}
</main>
</body>
</html>
"""

_STYLE = """\
:root {
  --page: #f6f7f9; --panel: #fff; --ink: #1f2328; --soft: #59636e; --rule: #d9dee3;
  --one: #0072b2; --two: #d55e00; --mark: #fff1c9; --best: #e8f3fa; --warn: #d55e00;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --panel: #1c2025; --ink: #e4e7eb; --soft: #a0aab4; --rule: #3a414a;
    --one: #56b4e9; --two: #e69f00; --mark: #4a3d14; --best: #1f3442; --warn: #e69f00;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem clamp(0.75rem, 3vw, 2rem) 4rem; max-width: 76rem;
  background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere;
}
header p { margin: 0; color: var(--soft); }
h1 { margin: 0; font-size: 1.75rem; line-height: 1.25; font-weight: 650; }
h2 { margin: 0 0 0.75rem; font-size: 1.15rem; font-weight: 650; }
section { margin-top: 2.25rem; }
.note { margin: 0 0 0.75rem; color: var(--soft); font-size: 0.9rem; }
.findings {
  padding: 1rem 1.25rem; background: var(--panel); border: 1px solid var(--rule);
  border-left: 0.3rem solid var(--warn); border-radius: 0.5rem;
}
.findings ul { margin: 0; padding-left: 1.2rem; }
dl, .charts {
  display: grid; gap: 1rem; margin: 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 11rem), 1fr));
}
dl { padding: 1rem 1.25rem; }
dl, figure, .scroll, .wide, details {
  background: var(--panel); border: 1px solid var(--rule); border-radius: 0.5rem;
}
dt { color: var(--soft); font-size: 0.85rem; }
dd { margin: 0; white-space: pre-line; }
.charts { grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
figure { margin: 0; padding: 0.9rem 1rem; break-inside: avoid; }
.after { margin-top: 0.75rem; }
.meaning { margin: 0; padding: 0 0.75rem 0.5rem; }
code { font: 0.9em/1.45 ui-monospace, monospace; }
figure .note { margin: 0.5rem 0 0; }
figcaption { margin-bottom: 0.5rem; font-weight: 600; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: 0.4rem 0.75rem; text-align: start; vertical-align: top; }
thead th { color: var(--soft); font-size: 0.85rem; font-weight: 600; }
tbody tr { border-top: 1px solid var(--rule); }
.scroll { max-height: 28rem; overflow: auto; }
.wide { overflow-x: auto; }
.numbers th, .numbers td { text-align: right; font-variant-numeric: tabular-nums; }
.numbers td, .numbers th { white-space: nowrap; }
.numbers thead th { position: sticky; top: 0; background: var(--panel); }
.numbers tbody th { font-weight: inherit; }
.named th { white-space: normal; overflow-wrap: normal; }
.named tbody th { min-width: 8rem; text-align: start; }
.facts th, .facts td { overflow-wrap: normal; }
.facts td[dir] { min-width: 10rem; overflow-wrap: anywhere; }
.best { background: var(--best); font-weight: 650; }
.badge {
  padding: 0 0.45rem; border: 1px solid var(--one); border-radius: 1rem;
  color: var(--one); font-size: 0.8rem; font-weight: 600;
}
details { margin-top: 0.6rem; overflow: hidden; }
summary { padding: 0.5rem 0.75rem; cursor: pointer; }
caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.samples { table-layout: fixed; }
.samples th.place { width: 17%; }
.samples td { white-space: pre-wrap; }
mark {
  padding: 0 0.1em; border-radius: 0.2em; background: var(--mark); color: inherit;
  text-decoration: underline dotted; text-underline-offset: 0.2em;
}
pre {
  margin: 0; padding: 0.75rem 1rem; overflow: auto; border-top: 1px solid var(--rule);
  font: 0.875rem/1.45 ui-monospace, monospace; overflow-wrap: normal;
}
@media (max-width: 40rem) {
  dl { grid-template-columns: 1fr 1fr; }
  figure { padding: 0.75rem 0.5rem; }
  .numbers { font-size: 0.85rem; }
  .numbers .badge { display: block; width: fit-content; margin-left: auto; }
  .numbers th, .numbers td { padding: 0.4rem 0.3rem; }
  .samples thead { position: absolute; clip-path: inset(50%); }
  .samples tr, .samples td { display: block; }
  .samples td { padding: 0.25rem 0.75rem; }
  .samples td::before {
    content: attr(data-label); display: block; color: var(--soft); font-size: 0.8rem;
    direction: ltr; text-align: left;
  }
}
@media print {
  body { max-width: none; padding: 0; background: none; font-size: 0.85rem; }
  .charts { grid-template-columns: 1fr 1fr; }
  .scroll { max-height: none; }
}
"""
