"""The page about a training run: its curves, validations, samples and configuration.

Plain values come in and HTML goes out; who gathers the values and writes the file is up to the
caller. How a page looks is the business of `mtkit.html`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mtkit.html import (
    FIGURES,
    FINDINGS,
    ONE,
    SUMMARY,
    TWO,
    Axis,
    Chart,
    Line,
    Points,
    brief,
    cut,
    finite,
    mappings,
    page,
    section,
    shown,
)

# Samples grow with a run's length, and the page is written at each validation.
_MOST_VALIDATIONS_WITH_SAMPLES = 30
_MOST_SAMPLES = 50
_LONGEST_CONFIG = 100_000
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
    rows = mappings(facts.metrics)
    sections = []
    if facts.findings:
        sections.append(section("Findings", FINDINGS, kind="findings", findings=facts.findings))
    if facts.summary:
        sections.append(section("Summary", SUMMARY, summary=list(facts.summary.items())))
    charts = _charts(rows, facts.best_step)
    sections.append(section("Curves", _CURVES, charts=charts))
    validations = [
        {
            "step": shown(row.get("step"), "{:,.0f}"),
            "best": _is_step(row.get("step"), facts.best_step),
            "cells": [shown(row.get(key), form) for key, _, form in _VALIDATED],
        }
        for row in reversed(rows)
        if any(key in row for key, _, _ in _VALIDATED)
    ]
    headings = [heading for _, heading, _ in _VALIDATED]
    sections.append(
        section("Validations", _VALIDATIONS, headings=headings, validations=validations)
    )
    samples = _samples(mappings(facts.samples), facts.best_step)
    sections.append(
        section("Samples", _SAMPLES, validations=samples, of=len(mappings(facts.samples)))
    )
    sections.append(section("Configuration", _CONFIG, config=facts.config_yaml))
    return page(facts.name, sections, kind="Training run")


# ---------------------------------------------------------------------------------------------
# Numbers

# Of a validation: the key, its heading, and how it is written.
_VALIDATED = (
    ("valid_loss", "Loss", "{:.4f}"),
    ("valid_perplexity", "Perplexity", "{:,.2f}"),
    ("valid_bleu", "BLEU", "{:.2f}"),
    ("valid_chrf", "chrF", "{:.2f}"),
)


def _is_step(value: Any, step: int | None) -> bool:
    return step is not None and finite(value, _LARGEST_STEP) == step


# ---------------------------------------------------------------------------------------------
# Curves


def _charts(rows: Sequence[Mapping[str, Any]], best_step: int | None) -> list[Chart]:
    """The charts there is something to draw for."""
    charts = []
    for title, columns, y_axis in _CHARTS:
        lines, left_out = [], 0
        for key, label, color, marker in columns:
            points, strange = _points(rows, key)
            left_out += strange
            if points:
                lines.append(Line(label, points, color, marker, dashed=marker == "s"))
        if lines or left_out:
            note = f"{left_out:,} not drawn: no finite number." if left_out else ""
            everything = [point for line in lines for point in line.points]
            first, last = (pick((step for step, _ in everything), default=0) for pick in (min, max))
            validated = any(line.marker for line in lines)
            marked = validated and best_step is not None and first <= best_step <= last
            charts.append(
                Chart(
                    title,
                    f"{title}. " + " ".join(map(_in_words, lines)),
                    Axis("step", min(first, 0), max(last, 1) * 1.02, whole=True, form=_step),
                    y_axis([value for _, value in everything] or [0.0]),
                    lines,
                    mark=(best_step, "best checkpoint")
                    if marked and best_step is not None
                    else None,
                    legend=validated,
                    note=note,
                )
            )
    return charts


def _step(value: float) -> str:
    return f"{value:,.0f}"


def _points(rows: Sequence[Mapping[str, Any]], key: str) -> tuple[Points, int]:
    """The values of a key by step, and how many have no place on a chart."""
    points, left_out = [], 0
    for row in rows:
        if row.get(key) is not None:
            step, value = finite(row.get("step"), _LARGEST_STEP), finite(row[key])
            if step is None or value is None:
                left_out += 1
            else:
                points.append((step, value))
    return sorted(points, key=lambda point: point[0]), left_out


def _in_words(line: Line) -> str:
    values = [value for _, value in line.points]
    (first, start), (last, end) = line.points[0], line.points[-1]
    if len(values) == 1:
        return f"{line.label}: {brief(start)} at step {first:,.0f}."
    return (
        f"{line.label}: {brief(start)} at step {first:,.0f}, {brief(end)} at step {last:,.0f}, "
        f"lowest {brief(min(values))}, highest {brief(max(values))}."
    )


def _loss_axis(values: Sequence[float]) -> Axis:
    """Logarithmic where the loss falls far: most of a run happens near the end of the fall."""
    low, high = min(values), max(values)
    if low <= 0 or not 2 <= high / low <= 1e6:
        return Axis()
    return Axis("logarithmic scale", low / 1.05, high * 1.05, logarithmic=True)


def _any_axis(values: Sequence[float]) -> Axis:
    """As long as the values need."""
    return Axis()


def _axis_from_zero(values: Sequence[float]) -> Axis:
    low, high = min(values), max(values)
    return Axis(low=0, high=high * 1.05) if low >= 0 and high > 0 else Axis()


# Title, lines (key, label, colour, marker), and the axis of values.
_Column = tuple[str, str, str, str]
_CHARTS: tuple[tuple[str, tuple[_Column, ...], Callable[[Sequence[float]], Axis]], ...] = (
    (
        "Loss",
        (("loss", "training", ONE, ""), ("valid_loss", "validation", TWO, "o")),
        _loss_axis,
    ),
    (
        "Translation quality",
        (("valid_bleu", "BLEU", ONE, "o"), ("valid_chrf", "chrF", TWO, "s")),
        _any_axis,
    ),
    ("Learning rate", (("lr", "learning rate", ONE, ""),), _axis_from_zero),
    ("Tokens per second", (("tokens_per_second", "tokens/s", ONE, ""),), _axis_from_zero),
)


# ---------------------------------------------------------------------------------------------
# Samples


def _samples(
    validations: Sequence[Mapping[str, Any]], best_step: int | None
) -> list[dict[str, Any]]:
    """Of the newest validation, the best, and others evenly spread, newest first."""
    last = len(validations) - 1
    most = _MOST_VALIDATIONS_WITH_SAMPLES
    chosen = set(range(last + 1))
    if last >= most:
        chosen = {round(i * last / (most - 1)) for i in range(most)}
    found = []
    for place in range(last, -1, -1):
        validation = validations[place]
        best = _is_step(validation.get("step"), best_step)
        if place in chosen or best:
            samples = mappings(validation.get("samples"))
            found.append(
                {
                    "step": shown(validation.get("step"), "{:,.0f}"),
                    "best": best,
                    "samples": [_sample(sample) for sample in samples[:_MOST_SAMPLES]],
                    "left_out": len(samples[_MOST_SAMPLES:]),
                }
            )
    return found


def _sample(sample: Mapping[str, Any]) -> dict[str, Any]:
    source, reference, translation = (cut(sample.get(key)) for key in ("src", "ref", "hyp"))
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

_CURVES = f"""\
{{% if charts %}}
{FIGURES}
{{%- else %}}
<p class="note">Nothing has been measured yet.</p>
{{% endif %}}
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
<tr><td dir="auto" data-label="Source">{{ sample.source }}</td>
<td dir="auto" data-label="Reference">{{ sample.reference }}</td>
<td dir="auto" data-label="Translation">
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
