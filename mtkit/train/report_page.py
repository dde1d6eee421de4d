"""The HTML page about a training run: curves, validations, samples and configuration.

The values come from the caller, which also writes the file. The template is `templates/run.html`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from mtkit import __version__
from mtkit.base.html import LARGEST, ONE, TWO, Chart, Line, brief, render
from mtkit.check import Quality
from mtkit.run_folder import Run
from mtkit.train.checkpoints import TrainingCost
from mtkit.train.progress_meter import hours_and_minutes

# Samples grow with a run's length, and the page is written at each validation.
_MAX_VALIDATIONS_WITH_SAMPLES = 30
_MAX_SAMPLES = 50
# Seconds after which a browser loads the page of a running training again.
_RELOAD = 30


RunState = Literal["running", "stopped", "finished"]


@dataclass(frozen=True)
class RunFacts:
    """The contents of the page of a run.

    Attributes:
        summary: short facts by label, in the order in which they are shown.
        metrics: rows of `metrics.jsonl`; a row may lack anything but its `step`.
        samples: rows of `samples.jsonl`, oldest first.
        findings: sentences about problems.
        confidence: of each direction, its name and how good the forecasts of chrF are.
        state: of the training. The page of one that is running reloads itself.
        written: when the page was written.
    """

    name: str
    summary: Mapping[str, str]
    config_yaml: str
    metrics: Sequence[Mapping[str, Any]]
    samples: Sequence[Mapping[str, Any]]
    findings: Sequence[str]
    best_step: int | None
    confidence: Sequence[tuple[str, Quality]] = ()
    state: RunState = "finished"
    written: str = ""


def summary(
    run: Run, facts: Mapping[str, str], *, step: int, cost: TrainingCost, left: str
) -> dict[str, str]:
    """The summary of a run up to a step; `facts` are those that do not change, by label."""
    settings, origin = run.config.train, run.manifest.started_from
    known = {
        "Data": facts["Data"],
        "Started from": origin.description if origin else "",
        **facts,
        "Step": f"{step:,} of {settings.last_step:,}",
        "Time left": left,
        "Target tokens": f"{cost.tokens:,}",
        "Time in updates": hours_and_minutes(cost.seconds),
        "Cost": f"{cost.flops:.2e} floating-point operations",
        "Seed": str(settings.seed),
        "Versions": f"mtkit {__version__}, torch {torch.__version__}",
    }
    return {label: fact for label, fact in known.items() if fact}


def run_page(facts: RunFacts) -> str:
    """The page about a training run, as HTML in UTF-8."""
    intervals = {row["step"]: row.get("intervals", {}) for row in facts.samples}
    rows = [_flat(row, intervals.get(row["step"], {})) for row in facts.metrics]
    sets = dict.fromkeys(name for row in facts.metrics for name in row.get("valid_also", {}))
    metrics = [("f1", "F1")]
    if all(row.get("valid_f1") is None for row in rows):
        metrics = [("bleu", "BLEU"), ("chrf", "chrF")]
        if any("valid_chrf++" in row for row in rows):
            metrics.append(("chrf++", "chrF++"))
    metrics += [
        (f"{key}@{name}", f"{label}, {name}")
        for name in sets
        for key, label in [("loss", "Loss"), *metrics]
    ]
    return render(
        "run.html",
        title=facts.name,
        kind="Training run",
        facts=facts,
        charts=_charts(rows, facts.best_step, list(sets)),
        metrics=metrics,
        has_intervals=any(key.startswith("valid_interval_") for row in rows for key in row),
        confidence=[
            (quality, _confidence_chart(name, quality)) for name, quality in facts.confidence
        ],
        validations=[row for row in reversed(rows) if any(key.startswith("valid_") for key in row)],
        samples=_some_validations(facts.samples, facts.best_step),
        number_of_samples=len(facts.samples),
        max_samples=_MAX_SAMPLES,
        differences=_differences,
        best=_best(rows, facts.best_step),
        reload=_RELOAD if facts.state == "running" else None,
    )


def _best(rows: Sequence[Mapping[str, Any]], best_step: int | None) -> tuple[str, str] | None:
    """The name and the value of the score of the best validation, if there is one."""
    scores = (
        (label, f"{row[f'valid_{key}']:.1f}" + (f" ± {half:.1f}" if half is not None else ""))
        for row in rows
        for key, label in (("f1", "F1"), ("bleu", "BLEU"))
        for half in [row.get(f"valid_interval_{key}")]
        if row["step"] == best_step and row.get(f"valid_{key}") is not None
    )
    return next(scores, None)


def _flat(row: Mapping[str, Any], intervals: Mapping[str, float]) -> dict[str, Any]:
    """A row with keys such as `valid_bleu@NAME` of further sets, and `valid_interval_bleu`."""
    flat = {key: value for key, value in row.items() if key != "valid_also"}
    for name, of_set in row.get("valid_also", {}).items():
        flat |= {f"valid_{key}@{name}": value for key, value in of_set.items()}
    if "valid_loss" in row:
        flat |= {f"valid_interval_{key}": half for key, half in intervals.items()}
    return flat


# Further validation sets that are drawn; the table has all of them.
_MAX_SETS = 12

# Why the loss of training is often the higher one.
_LOSSES = (
    "The training loss is measured with dropout and label smoothing, if the configuration has them,"
    " and the validation loss without. So the training loss is often the higher one."
)
# Of lines that have the same colour.
_STYLES: Mapping[str, Literal["--", "-."]] = {"s": "--", "^": "-."}
# Title, scale of the y axis, and lines (key, label, colour, marker).
_CHARTS: tuple[
    tuple[str, Literal["linear", "from zero", "log"], tuple[tuple[str, str, str, str], ...]], ...
] = (
    ("Loss", "log", (("loss", "training", ONE, ""), ("valid_loss", "validation", TWO, "o"))),
    (
        "Translation quality",
        "linear",
        (
            ("valid_bleu", "BLEU", ONE, "o"),
            ("valid_chrf", "chrF", TWO, "s"),
            ("valid_chrf++", "chrF++", TWO, "^"),
            ("valid_f1", "F1 of brackets", ONE, "o"),
        ),
    ),
    ("Learning rate", "from zero", (("lr", "learning rate", ONE, ""),)),
    ("Tokens per second", "from zero", (("tokens_per_second", "tokens/s", ONE, ""),)),
)


def _charts(
    rows: Sequence[Mapping[str, Any]], best_step: int | None, sets: Sequence[str]
) -> list[Chart]:
    """The charts that have data; `sets` are the further validation sets."""
    charts = []
    of_sets = [
        (f"{title}, {name}", scale, tuple((f"{key}@{name}", *style) for key, *style in columns))
        for name in sets[:_MAX_SETS]
        for title, scale, columns in _CHARTS[:2]
    ]
    for title, scale, columns in (*_CHARTS[:2], *of_sets, *_CHARTS[2:]):
        lines, left_out, drawn = [], 0, set()
        for key, label, color, marker in columns:
            values = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
            # False for NaN as well.
            points = sorted((x, y) for x, y in values if abs(y) < LARGEST)
            left_out += len(values) - len(points)
            if points:
                drawn.add(key)
                lines.append(Line(label, points, color, marker, _STYLES.get(marker, "-")))
        if not lines and not left_out:
            continue
        mark = None
        if best_step is not None and any(line.marker for line in lines):
            last = max(step for line in lines for step, _ in line.points)
            mark = (best_step, "best checkpoint") if best_step <= last else None
        notes = [_LOSSES] if {"loss", "valid_loss"} <= drawn else []
        notes += [f"{left_out:,} not shown: not a finite number."] if left_out else []
        text = " ".join(map(_in_words, lines))
        note = " ".join(notes)
        charts.append(Chart(title, text, lines, "step", scale, mark=mark, note=note))
    return charts


def _confidence_chart(name: str, quality: Quality) -> Chart:
    """Forecast and true chrF of each tenth of the validation set."""
    tenths = list(enumerate(quality.tenths, start=1))
    lines = [
        Line("forecast", [(i, tenth.forecast) for i, tenth in tenths], ONE, "o"),
        Line("chrF", [(i, tenth.chrf) for i, tenth in tenths], TWO, "s", "--"),
    ]
    text = " ".join(
        f"Tenth {i}: forecast {tenth.forecast:.1f}, chrF {tenth.chrf:.1f}." for i, tenth in tenths
    )
    title = f"Forecast and chrF, {name}" if name else "Forecast and chrF"
    return Chart(title, text, lines, "tenth of the lines, by forecast")


def _in_words(line: Line) -> str:
    values = [value for _, value in line.points]
    (first, start), (last, end) = line.points[0], line.points[-1]
    if len(values) == 1:
        return f"{line.label}: {brief(start)} at step {first:,.0f}."
    return (
        f"{line.label}: {brief(start)} at step {first:,.0f}, {brief(end)} at step {last:,.0f}, "
        f"lowest {brief(min(values))}, highest {brief(max(values))}."
    )


def _some_validations(
    validations: Sequence[Mapping[str, Any]], best_step: int | None
) -> list[Mapping[str, Any]]:
    """The newest validation, the best one, and others evenly between, newest first."""
    last, most = len(validations) - 1, _MAX_VALIDATIONS_WITH_SAMPLES
    chosen = {round(i * last / (most - 1)) for i in range(most)} if last >= most else None
    return [
        validations[i]
        for i in range(last, -1, -1)
        if chosen is None or i in chosen or validations[i]["step"] == best_step
    ]


# A word between spaces; a character in scripts that do not separate words.
_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|\s+|[^\s\u3040-\u30ff\u3400-\u9fff]+")
_EDGES = re.compile(r"^\W+|\W+$")


def _differences(reference: str, translation: str) -> list[tuple[str, bool]]:
    """The parts of the translation, each with whether it is missing in the reference."""
    # Words are counted: a second "the" is missing in a reference with only one.
    left = Counter(_core(word) for word in _WORDS.findall(reference))
    parts: list[tuple[str, bool]] = []
    for word in _WORDS.findall(translation):
        core = _core(word)
        is_missing = bool(reference.strip()) and not word.isspace() and left[core] == 0
        left[core] -= 1
        if parts and parts[-1][1] == is_missing:
            parts[-1] = (parts[-1][0] + word, is_missing)
        else:
            parts.append((word, is_missing))
    return parts


def _core(word: str) -> str:
    return _EDGES.sub("", word) or word
