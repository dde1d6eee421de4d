"""Pages to look at in a browser: one file each, with nothing loaded from elsewhere.

This module owns how a page looks and what stands on it. It takes plain values and gives HTML; who
gathers the values and writes the file is up to the caller. The frame (`_page`, with the style) is
the same for every page; what a page says are its sections.

A page never fails on what it shows: numbers that are none are told as such, texts are cut where
they get out of hand and shown escaped. It has no time stamp, so the same values give the same
bytes.
"""

from __future__ import annotations

import functools
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

# jinja2 and matplotlib are imported where they are used: only those who write a page wait for them.
if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.axes import Axes

# A line has no more points than this: a chart is some 350 wide.
_MOST_POINTS = 600
# Samples grow with a run's length, and the page is written at each validation.
_MOST_VALIDATIONS_WITH_SAMPLES = 30
_MOST_SAMPLES = 50
_LONGEST_TEXT = 2_000
_LONGEST_CONFIG = 100_000
# Past these a number is as good as infinite: axes have to be a little longer than what they show.
_LARGEST = 1e30
_LARGEST_STEP = 1e15


@dataclass(frozen=True)
class RunFacts:
    """What the page of a run shows.

    Attributes:
        name: of the run.
        summary: facts in a few words, by their label, in the order in which they are shown.
        config_yaml: the whole configuration.
        metrics: rows of `metrics.jsonl`, of training (`loss`, `lr`, `tokens_per_second`) and of
            validation (`valid_loss`, `valid_perplexity`, `valid_bleu`, `valid_chrf`), each with
            its `step`; what a row lacks is left out.
        samples: for every validation, oldest first, its `step` and `samples`, each with `src`,
            `ref` and `hyp`.
        findings: sentences on what is amiss.
        best_step: that of the best checkpoint.
    """

    name: str
    summary: Mapping[str, str]
    config_yaml: str
    metrics: Sequence[Mapping[str, Any]]
    samples: Sequence[Mapping[str, Any]]
    findings: Sequence[str]
    best_step: int | None


def run_page(facts: RunFacts) -> str:
    """The page about a training run, as HTML to be written in UTF-8."""
    rows = _mappings(facts.metrics)
    sections = []
    if facts.findings:
        sections.append(_section("Findings", _FINDINGS, kind="findings", findings=facts.findings))
    if facts.summary:
        sections.append(_section("Summary", _SUMMARY, summary=list(facts.summary.items())))
    charts = _charts(rows, facts.best_step)
    sections.append(_section("Curves", _CURVES, charts=charts))
    validations = [
        {
            "step": _shown(row.get("step"), "{:,.0f}"),
            "best": _is_step(row.get("step"), facts.best_step),
            "cells": [_shown(row.get(key), form) for key, _, form in _VALIDATED],
        }
        for row in reversed(rows)
        if any(key in row for key, _, _ in _VALIDATED)
    ]
    headings = [heading for _, heading, _ in _VALIDATED]
    sections.append(
        _section("Validations", _VALIDATIONS, headings=headings, validations=validations)
    )
    samples = _samples(_mappings(facts.samples), facts.best_step)
    sections.append(
        _section("Samples", _SAMPLES, validations=samples, of=len(_mappings(facts.samples)))
    )
    sections.append(_section("Configuration", _CONFIG, config=facts.config_yaml))
    return _page(facts.name, sections, kind="Training run")


# ---------------------------------------------------------------------------------------------
# The frame


@dataclass(frozen=True)
class _Section:
    """A part of a page under its own heading; the body is HTML."""

    heading: str
    body: str
    kind: str = ""


def _page(title: str, sections: Sequence[_Section], *, kind: str) -> str:
    """A whole page.

    Args:
        title: what the page is about.
        sections: in the order in which they are shown.
        kind: what kind of thing that is.
    """
    return _render(_FRAME, title=title, kind=kind, style=_STYLE, sections=sections)


def _section(heading: str, template: str, *, kind: str = "", **values: Any) -> _Section:
    return _Section(heading, _render(template, **values), kind)


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
    environment.filters["cut"] = _cut
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


def _cut(value: Any, limit: int = _LONGEST_TEXT) -> str:
    text = _text(value)
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… [cut here; {len(text):,} characters in all]"


def _mappings(values: Any) -> list[Mapping[str, Any]]:
    """Those of the values that are what they should be; a damaged file may hold anything."""
    if not isinstance(values, Sequence):
        return []
    return [value for value in values if isinstance(value, Mapping)]


# ---------------------------------------------------------------------------------------------
# Numbers

# Of a validation: the key, its heading, and how it is written.
_VALIDATED = (
    ("valid_loss", "Loss", "{:.4f}"),
    ("valid_perplexity", "Perplexity", "{:,.2f}"),
    ("valid_bleu", "BLEU", "{:.2f}"),
    ("valid_chrf", "chrF", "{:.2f}"),
)


def _finite(value: Any, largest: float = _LARGEST) -> float | None:
    """The number that the value is, if it is one that has a place on an axis."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < largest else None


def _shown(value: Any, form: str) -> str:
    """The value of a cell, whatever it is."""
    if value is None:
        return "–"
    number = _finite(value)
    if number is None:
        return _cut(value, 40)
    return form.format(number) if abs(number) < 1e9 else f"{number:.3g}"


def _is_step(value: Any, step: int | None) -> bool:
    return step is not None and _finite(value, _LARGEST_STEP) == step


def _brief(number: float) -> str:
    if 1000 <= abs(number) < 1e7:
        return f"{number:,.0f}"
    return f"{number:.4g}"


# ---------------------------------------------------------------------------------------------
# Charts

# Okabe and Ito's blue and vermilion, which differ for every kind of sight, and in print by their
# lightness. In the drawings they stand for the colours of the page: see `_as_part_of_the_page`.
_ONE, _TWO, _INK, _RULE = "#0072b2", "#d55e00", "#1f2328", "#d9dee3"
_IN_THE_PAGE = {
    _ONE: "var(--one)",
    _TWO: "var(--two)",
    _INK: "currentColor",
    _RULE: "var(--rule)",
}
# Ticks are so far apart, or ten times, and so on.
_ROUND = (1, 2, 2.5, 5, 10)

_Points = list[tuple[float, float]]


@dataclass(frozen=True)
class _Line:
    """What is drawn over the steps.

    Attributes:
        label: what it is.
        points: (step, value), by step.
        color: one of those above.
        marker: that of matplotlib, where the single points count.
    """

    label: str
    points: _Points
    color: str
    marker: str = ""


def _charts(rows: Sequence[Mapping[str, Any]], best_step: int | None) -> list[dict[str, str]]:
    """The charts there is something to draw for: title, SVG, description and a note each."""
    charts = []
    for title, columns, scale in _CHARTS:
        lines, left_out = [], 0
        for key, label, color, marker in columns:
            points, strange = _points(rows, key)
            left_out += strange
            if points:
                lines.append(_Line(label, points, color, marker))
        if lines or left_out:
            note = f"{left_out:,} not drawn: no finite number." if left_out else ""
            charts.append(
                {
                    "title": title,
                    "svg": _draw(title, lines, scale, best_step) if lines else "",
                    "description": f"{title}. " + " ".join(map(_in_words, lines)),
                    "note": note,
                }
            )
    return charts


def _points(rows: Sequence[Mapping[str, Any]], key: str) -> tuple[_Points, int]:
    """The values of a key by step, and how many have no place on a chart."""
    points, left_out = [], 0
    for row in rows:
        if row.get(key) is not None:
            step, value = _finite(row.get("step"), _LARGEST_STEP), _finite(row[key])
            if step is None or value is None:
                left_out += 1
            else:
                points.append((step, value))
    return sorted(points, key=lambda point: point[0]), left_out


def _thin(points: _Points, most: int = _MOST_POINTS) -> _Points:
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


def _in_words(line: _Line) -> str:
    values = [value for _, value in line.points]
    (first, start), (last, end) = line.points[0], line.points[-1]
    if len(values) == 1:
        return f"{line.label}: {_brief(start)} at step {first:,.0f}."
    return (
        f"{line.label}: {_brief(start)} at step {first:,.0f}, {_brief(end)} at step {last:,.0f}, "
        f"lowest {_brief(min(values))}, highest {_brief(max(values))}."
    )


def _draw(
    title: str,
    lines: Sequence[_Line],
    scale: Callable[[Axes, _Points], None],
    best_step: int | None,
) -> str:
    """An `<svg>` element."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    with matplotlib.rc_context():
        # Nobody's own settings make it another page.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "svg.fonttype": "none",
                "svg.hashsalt": "mtkit",
                "font.size": 10,
                "text.color": _INK,
                "axes.edgecolor": _RULE,
                "axes.labelcolor": _INK,
                "xtick.labelcolor": _INK,
                "ytick.labelcolor": _INK,
                "axes.unicode_minus": False,
            }
        )
        figure = Figure(figsize=(5, 2.9), facecolor="none")
        validated = any(line.marker for line in lines)
        # With a legend room above, where it hides nothing.
        height = 0.73 if validated else 0.81
        axes = figure.add_axes((0.14, 0.16, 0.79, height), facecolor="none")
        for line in lines:
            points = _thin(line.points)
            few = len(points) <= 50
            axes.plot(
                [step for step, _ in points],
                [value for _, value in points],
                color=line.color,
                label=line.label,
                linewidth=1.7 if line.marker else 1.2,
                linestyle="--" if line.marker == "s" else "-",
                marker=(line.marker if few else "") or ("o" if len(points) == 1 else ""),
                markersize=4,
            )
        everything = [point for line in lines for point in line.points]
        first, last = (pick(step for step, _ in everything) for pick in (min, max))
        if validated and best_step is not None and first <= best_step <= last:
            axes.axvline(
                best_step, color=_INK, linewidth=0.9, linestyle=":", label="best checkpoint"
            )
        if validated:
            axes.legend(
                frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0
            )
        axes.set_xlim(min(first, 0), max(last, 1) * 1.02)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=_ROUND))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.set_xlabel("step")
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=_ROUND))
        scale(axes, everything)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _brief(value)))
        axes.tick_params(length=0, pad=6)
        axes.grid(color=_RULE, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        text = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", metadata=nothing)
    return _as_part_of_the_page(text.getvalue(), prefix=title.lower().replace(" ", "-"))


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


def _scale_loss(axes: Axes, points: _Points) -> None:
    """Logarithmic where the loss falls far: most of a run happens near the end of the fall."""
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = (pick(value for _, value in points) for pick in (min, max))
    if low <= 0 or not 2 <= high / low <= 1e6:
        return
    axes.set_yscale("log")
    low, high = low / 1.05, high * 1.05
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator(_log_ticks(low, high)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("logarithmic scale")


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


def _scale_by_itself(axes: Axes, points: _Points) -> None:
    """Leave it to matplotlib."""


def _scale_from_zero(axes: Axes, points: _Points) -> None:
    low, high = (pick(value for _, value in points) for pick in (min, max))
    if low >= 0 and high > 0:
        axes.set_ylim(0, high * 1.05)


# Title, lines (key, label, colour, marker), and what sets the axis of values.
_Column = tuple[str, str, str, str]
_CHARTS: tuple[tuple[str, tuple[_Column, ...], Callable[[Axes, _Points], None]], ...] = (
    (
        "Loss",
        (("loss", "training", _ONE, ""), ("valid_loss", "validation", _TWO, "o")),
        _scale_loss,
    ),
    (
        "Translation quality",
        (("valid_bleu", "BLEU", _ONE, "o"), ("valid_chrf", "chrF", _TWO, "s")),
        _scale_by_itself,
    ),
    ("Learning rate", (("lr", "learning rate", _ONE, ""),), _scale_from_zero),
    ("Tokens per second", (("tokens_per_second", "tokens/s", _ONE, ""),), _scale_from_zero),
)


# ---------------------------------------------------------------------------------------------
# Samples


def _samples(
    validations: Sequence[Mapping[str, Any]], best_step: int | None
) -> list[dict[str, Any]]:
    """Of the newest validation, the best, and others evenly spread, newest first."""
    last = len(validations) - 1
    most = _MOST_VALIDATIONS_WITH_SAMPLES
    shown = set(range(last + 1))
    if last >= most:
        shown = {round(i * last / (most - 1)) for i in range(most)}
    found = []
    for place in range(last, -1, -1):
        validation = validations[place]
        best = _is_step(validation.get("step"), best_step)
        if place in shown or best:
            samples = _mappings(validation.get("samples"))
            found.append(
                {
                    "step": _shown(validation.get("step"), "{:,.0f}"),
                    "best": best,
                    "samples": [_sample(sample) for sample in samples[:_MOST_SAMPLES]],
                    "left_out": len(samples[_MOST_SAMPLES:]),
                }
            )
    return found


def _sample(sample: Mapping[str, Any]) -> dict[str, Any]:
    source, reference, translation = (_cut(sample.get(key)) for key in ("src", "ref", "hyp"))
    return {
        "source": source,
        "reference": reference,
        "translation": _against(reference, translation),
    }


# A word between spaces; of scripts that write none between words a character.
_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|\s+|[^\s\u3040-\u30ff\u3400-\u9fff]+")
_EDGES = re.compile(r"^\W+|\W+$")


def _against(reference: str, translation: str) -> list[tuple[str, bool]]:
    """The translation in pieces, each with whether the reference lacks it.

    A word that stands there twice is lacking once where the reference has it once. Punctuation
    around a word is not compared.
    """
    left = Counter(_core(word) for word in _WORDS.findall(reference))
    pieces: list[tuple[str, bool]] = []
    for word in _WORDS.findall(translation):
        core = _core(word)
        lacking = bool(reference.strip()) and not word.isspace() and left[core] == 0
        left[core] -= 1
        if pieces and pieces[-1][1] == lacking:
            pieces[-1] = (pieces[-1][0] + word, lacking)
        else:
            pieces.append((word, lacking))
    return pieces


def _core(word: str) -> str:
    return _EDGES.sub("", word) or word


# ---------------------------------------------------------------------------------------------
# Templates

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

_FINDINGS = """\
<ul>
{% for finding in findings %}
<li>{{ finding | cut }}</li>
{% endfor %}
</ul>
"""

_SUMMARY = """\
<dl>
{% for label, text in summary %}
<div><dt>{{ label | cut(200) }}</dt><dd dir="auto">{{ text | cut }}</dd></div>
{% endfor %}
</dl>
"""

_CURVES = """\
{% if charts %}
<div class="charts">
{% for chart in charts %}
<figure>
<figcaption>{{ chart.title }}</figcaption>
{% if chart.svg %}
<div role="img" aria-label="{{ chart.description }}">
{{ chart.svg | safe }}</div>
{% endif %}
{% if chart.note %}
<p class="note">{{ chart.note }}</p>
{% endif %}
</figure>
{% endfor %}
</div>
{% else %}
<p class="note">Nothing has been measured yet.</p>
{% endif %}
"""

_VALIDATIONS = """\
{% if validations %}
<div class="scroll" role="region" aria-label="All validations" tabindex="0">
<table class="numbers">
<thead>
<tr><th scope="col">Step</th>
{%- for heading in headings %}<th scope="col">{{ heading }}</th>{% endfor %}
</tr>
</thead>
<tbody>
{% for row in validations %}
<tr{% if row.best %} class="best"{% endif %}><th scope="row">
{%- if row.best %}<span class="badge">best</span> {% endif %}{{ row.step }}</th>
{%- for cell in row.cells %}<td>{{ cell }}</td>{% endfor %}
</tr>
{% endfor %}
</tbody>
</table>
</div>
{% else %}
<p class="note">The run has not been validated yet.</p>
{% endif %}
"""

_SAMPLES = """\
{% if validations %}
<p class="note">Marked: <mark>words</mark> of a translation that the reference does not have.
{% if validations | length < of %}
Shown: {{ validations | length }} of {{ of }} validations.
{% endif %}
</p>
{% for validation in validations %}
<details{% if loop.first %} open{% endif %}>
<summary>Step {{ validation.step }}
{%- if validation.best %} <span class="badge">best</span>{% endif %}
</summary>
{% if validation.samples %}
<table class="samples">
<caption>Translations at step {{ validation.step }}</caption>
<thead>
<tr><th scope="col">Source</th><th scope="col">Reference</th><th scope="col">Translation</th></tr>
</thead>
<tbody>
{% for sample in validation.samples %}
<tr><td dir="auto">{{ sample.source }}</td><td dir="auto">{{ sample.reference }}</td><td dir="auto">
{%- for text, lacking in sample.translation -%}
{% if lacking %}<mark>{{ text }}</mark>{% else %}{{ text }}{% endif %}
{%- endfor -%}
</td></tr>
{% endfor %}
</tbody>
</table>
{% endif %}
{% if validation.left_out %}
<p class="note">{{ validation.left_out }} more are left out.</p>
{% endif %}
</details>
{% endfor %}
{% else %}
<p class="note">There are no samples yet.</p>
{% endif %}
"""

_CONFIG = f"""\
<details>
<summary>As YAML</summary>
<pre tabindex="0">{{{{ config | cut({_LONGEST_CONFIG}) }}}}</pre>
</details>
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
dl, figure, .scroll, details {
  background: var(--panel); border: 1px solid var(--rule); border-radius: 0.5rem;
}
dt { color: var(--soft); font-size: 0.85rem; }
dd { margin: 0; white-space: pre-line; }
.charts { grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
figure { margin: 0; padding: 0.9rem 1rem; break-inside: avoid; }
figure .note { margin: 0.5rem 0 0; }
figcaption { margin-bottom: 0.5rem; font-weight: 600; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: 0.4rem 0.75rem; text-align: start; vertical-align: top; }
thead th { color: var(--soft); font-size: 0.85rem; font-weight: 600; }
tbody tr { border-top: 1px solid var(--rule); }
.scroll { max-height: 28rem; overflow: auto; }
.numbers th, .numbers td { text-align: right; font-variant-numeric: tabular-nums; }
.numbers td, .numbers th { white-space: nowrap; }
.numbers thead th { position: sticky; top: 0; background: var(--panel); }
.numbers tbody th { font-weight: inherit; }
.best { background: var(--best); font-weight: 650; }
.badge {
  padding: 0 0.45rem; border: 1px solid var(--one); border-radius: 1rem;
  color: var(--one); font-size: 0.8rem; font-weight: 600;
}
details { margin-top: 0.6rem; overflow: hidden; }
summary { padding: 0.5rem 0.75rem; cursor: pointer; }
caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.samples { table-layout: fixed; }
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
    display: block; color: var(--soft); font-size: 0.8rem; direction: ltr; text-align: left;
  }
  .samples td:nth-child(1)::before { content: "Source"; }
  .samples td:nth-child(2)::before { content: "Reference"; }
  .samples td:nth-child(3)::before { content: "Translation"; }
}
@media print {
  body { max-width: none; padding: 0; background: none; font-size: 0.85rem; }
  .charts { grid-template-columns: 1fr 1fr; }
  .scroll { max-height: none; }
}
"""
