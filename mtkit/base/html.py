"""Renders HTML pages: each is one file without external resources.

A page has no JavaScript, or one script that is a part of it. Its security policy allows this script
alone, and no connection.

Only this module uses Jinja and matplotlib: it renders the templates in `mtkit/templates`, also the
card of an export, and the charts. `train.report_page`, `prepare.statistics`, `inspect.page` and
`check.comparison` own what the pages say. Every text is escaped. The same values give the same
bytes.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

# Imported where they are used, because only commands that write a page need them.
if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup
    from matplotlib.axes import Axes


def render(template: str, **values: Any) -> str:
    """A complete page, as HTML in UTF-8; see `rendered`."""
    return "".join(rendered(template, **values))


def rendered(
    template: str,
    *,
    title: str,
    kind: str,
    script: str = "",
    reload: int | None = None,
    **more: Any,
) -> Iterator[str]:
    """A complete page, as HTML in UTF-8, in parts that are made when they are needed.

    Args:
        template: a file in `mtkit/templates` that extends `page.html`.
        kind: the kind of page, which stands above its title.
        script: a file in `mtkit/templates`, the only script that the page may run.
        reload: seconds after which a browser loads the page again; None: never.
        more: the variables of the template.
    """
    from markupsafe import Markup

    environment = _environment()
    code = ""
    if script:
        assert environment.loader is not None
        code, *_ = environment.loader.get_source(environment, script)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    return environment.get_template(template).generate(
        title=title,
        kind=kind,
        reload=reload,
        script=Markup(code),
        script_policy=f"script-src 'sha256-{digest}'" if script else "",
        **more,
    )


def render_card(**values: Any) -> str:
    """The card of a model, as Markdown in UTF-8, from the variables of its template."""
    return _environment().get_template("card.md").render(**values)


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("mtkit"),
        autoescape=True,
        finalize=printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {f.__name__: f for f in (compact_json, cut, number, share)}
    return environment


# Parts of JSON, which are a text or a number, that are written together.
_JSON_PARTS = 1000
# Characters that HTML or UTF-8 cannot hold, and carriage returns, which a browser would drop.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def printable(value: Any) -> Any:
    """The value as text that a page can hold: control characters become visible symbols.

    Within a line each character becomes one character.
    """
    if hasattr(value, "__html__"):  # already HTML
        return value
    return _UNPRINTABLE.sub(_symbol, str(value).replace("\r\n", "\n"))


def _symbol(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def compact_json(value: Any) -> Iterator[Markup]:
    """JSON for a `<script>` element, in UTF-8, in parts that need little memory.

    `tojson` has six bytes for most other letters.
    """
    from jinja2.utils import htmlsafe_json_dumps

    parts = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).iterencode(value)
    while some := list(itertools.islice(parts, _JSON_PARTS)):
        yield htmlsafe_json_dumps(some, dumps="".join)


def cut(text: str, limit: int = 2_000) -> str:
    """The text, cut after `limit` characters; the cut is marked."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… [cut here; {len(text):,} characters in all]"


def number(value: float | None, form: str = "{:,}") -> str:
    """The number in this format; a dash for None."""
    if value is None:
        return "–"
    return form.format(value) if abs(value) < 1e12 else f"{value:.3g}"


def share(part: float, whole: float) -> str:
    """A part of a whole in per cent."""
    if not whole:
        return "–"
    # A small share is not shown as zero.
    return "< 0.01%" if 0 < part / whole < 5e-5 else f"{part / whole:.2%}"


def brief(value: float) -> str:
    """A number with about four digits."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.4g}"


# Okabe and Ito's blue and vermilion: they differ for every kind of colour vision, and in print by
# their lightness. The page replaces these colours, and those of `templates/chart.mplstyle`, by its
# own, which depend on light or dark mode.
ONE, TWO, _INK, _RULE = "#0072b2", "#d55e00", "#1f2328", "#d9dee3"
_CSS_COLORS = {ONE: "var(--one)", TWO: "var(--two)", _INK: "currentColor", _RULE: "var(--rule)"}
# A chart is about 350 pixels wide; more points cannot be seen.
_MAX_POINTS = 600
# Larger numbers are left out of a chart: an axis is a little longer than its largest value.
LARGEST = 1e30

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """A curve.

    Attributes:
        points: (x, y), by x.
        color: `ONE` or `TWO`.
        marker: of single points, as matplotlib names it; left out if there are many.
        style: continuous, dashed, or dashes and dots.
        steps: whether it is a histogram: a step around each point, filled down to zero.
    """

    label: str
    points: Points
    color: str = ONE
    marker: str = ""
    style: Literal["-", "--", "-."] = "-"
    steps: bool = False


@dataclass(frozen=True)
class Chart:
    """A figure with one or more lines; without any, its title and note alone.

    Attributes:
        title: no other chart of the page has the same.
        description: what can be seen, in words.
        x_label: of the x axis, which has whole numbers from 0.
        scale: of the y axis; it is logarithmic if the values differ by a factor of 2 or more.
        form: how numbers on the y axis are written.
        mark: a place on the x axis, and its name in the legend.
        y_label: what the y axis counts, in whole numbers; empty if it does not count.
    """

    title: str
    description: str
    lines: Sequence[Line]
    x_label: str
    scale: Literal["linear", "from zero", "log"] = "linear"
    form: Callable[[float], str] = brief
    mark: tuple[float, str] | None = None
    note: str = ""
    y_label: str = ""

    @property
    def svg(self) -> str:
        """The chart as an `<svg>` element that takes font and colours from its page."""
        import matplotlib
        from matplotlib.figure import Figure

        with matplotlib.rc_context():
            # The user's own settings do not change the page.
            matplotlib.rcdefaults()
            style = resources.files("mtkit") / "templates" / "chart.mplstyle"
            matplotlib.rc_file(str(style), use_default_template=False)
            # Ids are hashes of their contents, and differ between charts.
            matplotlib.rcParams["svg.hashsalt"] = self.title
            figure = Figure(figsize=(5, 2.9))
            has_legend = len(self.lines) > 1 or any(line.marker for line in self.lines)
            # The legend is above the axes, where it hides nothing.
            axes = figure.add_axes((0.14, 0.16, 0.79, 0.73 if has_legend else 0.81))
            for line in self.lines:
                _plot(axes, line)
            if self.mark is not None:
                place, label = self.mark
                axes.axvline(place, color=_INK, linewidth=0.9, linestyle=":", label=label)
            if has_legend:
                axes.legend(ncols=3, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0)
            _set_axes(axes, self)
            file = io.StringIO()
            no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            figure.savefig(file, format="svg", metadata=no_metadata)
        return _as_part_of_a_page(file.getvalue())


def _plot(axes: Axes, line: Line) -> None:
    points = _thinned(line.points)
    xs, ys = zip(*points, strict=True)
    if line.steps:
        axes.fill_between(xs, ys, step="mid", color=line.color, alpha=0.15, linewidth=0)
    axes.plot(
        xs,
        ys,
        color=line.color,
        label=line.label,
        linewidth=1.7 if line.marker else 1.2,
        linestyle=line.style,
        drawstyle="steps-mid" if line.steps else "default",
        marker=(line.marker if len(points) <= 50 else "") or ("o" if len(points) == 1 else ""),
        # The axes have room for all points; clipped, a marker on their edge would lose a half.
        clip_on=False,
    )


def _thinned(points: Points) -> Points:
    """At most `_MAX_POINTS` points: the ends, and the lowest and highest of each part between."""
    if len(points) <= _MAX_POINTS:
        return points
    inner, parts = points[1:-1], _MAX_POINTS // 2 - 1
    kept = []
    for i in range(parts):
        part = inner[len(inner) * i // parts : len(inner) * (i + 1) // parts]
        lowest, highest = (pick(part, key=lambda point: point[1]) for pick in (min, max))
        kept += sorted({lowest, highest})
    return [points[0], *kept, points[-1]]


def _set_axes(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    xs, ys = zip(*(point for line in chart.lines for point in line.points), strict=True)
    low, high = min(ys), max(ys)
    round_numbers = (1, 2, 2.5, 5, 10)
    axes.set_xlim(min(*xs, 0), max(*xs, 1) * 1.02)
    axes.set_xlabel(chart.x_label)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=round_numbers))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    if chart.scale == "log" and 0 < 2 * low <= high <= 1e6 * low:
        digits = (1, 2, 3, 4, 6, 8) if high <= 10 * low else (1, 2, 5)
        axes.set_yscale("log")
        axes.set_ylim(low / 1.05, high * 1.05)
        axes.set_ylabel("logarithmic scale")
        axes.yaxis.set_major_locator(LogLocator(subs=digits if high <= 1e3 * low else (1,)))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        if chart.scale == "from zero" and low >= 0:
            axes.set_ylim(0, high * 1.05 or 1)
        axes.set_ylabel(chart.y_label)
        counts = bool(chart.y_label)
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=counts, steps=round_numbers))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: chart.form(value)))


def _as_part_of_a_page(svg: str) -> str:
    """The element without what only a file of its own needs, in the colours of the page."""
    view_box = re.search(r'viewBox="[^"]*"', svg)
    assert view_box is not None
    svg = f"<svg {view_box[0]}{svg[svg.index('>', view_box.end()) :]}"
    # Its style would be that of the whole page. Only ids that are hashes are referred to.
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.S)
    svg = re.sub(r' id="(?![mp][0-9a-f]{10}")[^"]*"', "", svg)
    for color, name in _CSS_COLORS.items():
        svg = svg.replace(color, name)
    return svg
