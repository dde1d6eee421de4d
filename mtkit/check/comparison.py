"""The page that compares systems on one text: their scores, and their lines, worst first.

The scores are those of `score`, the findings those of `checker`. The template is
`templates/compare.html`; its script, `templates/compare.js`, lists the lines that the reader
chooses, and loads nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from mtkit.base.errors import in_words
from mtkit.base.html import ONE, TWO, Chart, Line, printable, rendered
from mtkit.check.checker import Checked, Checker
from mtkit.check.rules import limits
from mtkit.check.rules.facts import UNDETERMINED, PairFacts
from mtkit.check.rules.findings import KINDS, Finding
from mtkit.score import (
    Metric,
    Score,
    ScoredText,
    SegmentMetric,
    SegmentScore,
    System,
    TextMetric,
    refuse_unequal,
)

# The metric of lines: chrF with the reference that a line is nearest to.
_OF_LINES: Metric = "chrf"


@dataclass(frozen=True)
class ComparedSystem:
    """The translations of a system, and what was found in each line; None if not checked."""

    name: str
    translations: Sequence[str]
    checked: Sequence[Checked] | None = None


def learned_checker(text: ScoredText, *translations: Sequence[str]) -> Checker | None:
    """A checker with the rules alone; None for a text without sources.

    The references say what is usual or, if there are none, the translations of all systems.
    """
    if not text.src:
        return None
    usual = text.references[:1] or translations
    lines = zip(text.src, zip(*usual, strict=True), strict=True)
    facts = PairFacts.learn(
        ((source, target) for source, targets in lines for target in targets),
        src_lang=text.src_lang or UNDETERMINED,
        tgt_lang=text.tgt_lang or UNDETERMINED,
    )
    return Checker(facts)


def comparison_page(
    systems: Sequence[ComparedSystem],
    text: ScoredText,
    *,
    metrics: Sequence[Metric] = ("bleu", "chrf"),
    segment_metrics: Sequence[SegmentMetric] = (),
) -> Iterator[str]:
    """The page, as parts of HTML in UTF-8; the first system is the baseline of the others.

    The metrics are those of whole texts; lines have their chrF, and outside scores.

    Raises:
        MtkitError: if the number of lines differs.
    """
    names = [system.name for system in systems]
    if not text.references:
        for system in systems:
            refuse_unequal(system.name, system.translations, "the source", text.src)
    named = [System(system.name, system.translations) for system in systems]
    of_text = {
        metric: TextMetric(named, text.references, metric, test_set=text.test_set)
        for metric in ((*metrics, _OF_LINES) if text.references else ())
    }
    by_line = _line_scores(of_text[_OF_LINES]) if of_text else []
    of_lines = [*([by_line] if by_line else []), *(metric.by_system for metric in segment_metrics)]
    is_checked = any(system.checked is not None for system in systems)
    references = [list(map(printable, lines)) for lines in text.references]
    has_scores = bool(text.references or segment_metrics)
    return rendered(
        "compare.html",
        title=" and ".join(names),
        kind="Comparison" if len(systems) > 1 else "Worst lines",
        script="compare.js",
        facts={
            "Text": text.name,
            "Lines": f"{text.size:,}",
            **_languages(text),
            **({} if has_scores else {"Scores": "none, because there is no reference"}),
        },
        names=names,
        by_metric=[
            *(_scores(of_text[metric]) for metric in metrics if of_text),
            *(m.means() if len(systems) == 1 else m.compare() for m in segment_metrics),
        ],
        is_paired=len(systems) > 1,
        charts=_charts(names, by_line) if by_line else _forecast_charts(systems),
        kinds=_counts(systems) if is_checked else None,
        has_sources=bool(text.src),
        data={
            "systems": [
                _packed(system, [by_system[index] for by_system in of_lines], text.src)
                for index, system in enumerate(systems)
            ],
            "metrics": [
                *([{"name": "chrF", "digits": 1, "sign": 1}] if text.references else []),
                *(
                    {
                        "name": printable(metric.name),
                        "digits": SegmentScore.DECIMALS,
                        "sign": -1 if metric.lower_is_better else 1,
                    }
                    for metric in segment_metrics
                ),
            ],
            "sources": list(map(printable, text.src)) or None,
            "references": references[0] if references else None,
            "others": references[1:],
            "languages": {"src": text.src_lang, "tgt": text.tgt_lang},
            "kinds": list(KINDS),
        },
    )


def _languages(text: ScoredText) -> dict[str, str]:
    if not text.src:
        return {"Target language": text.tgt_lang or "not identified"}
    return {"Languages": f"{text.src_lang or 'unknown'} to {text.tgt_lang or 'unknown'}"}


def _line_scores(chrf: TextMetric) -> list[list[float | None]]:
    """The score of each line of each system; None if all of its references are blank."""
    has_text = [any(map(str.strip, lines)) for lines in zip(*chrf.references, strict=True)]
    return [
        [value if has else None for value, has in zip(values, has_text, strict=True)]
        for values in chrf.values_of_lines()
    ]


def _scores(of_text: TextMetric) -> list[Score]:
    """The score of each system; of several with the paired tests."""
    scores = of_text.means() if len(of_text.systems) == 1 else of_text.compare()
    # sacreBLEU adds the weight of recall to the name.
    return [replace(score, name=score.name.replace("chrF2", "chrF")) for score in scores]


def _chart(title: str, words: str, *lines: Line, axis: str = "chrF", note: str = "") -> Chart:
    return Chart(title, words, lines, axis, "from zero", y_label="number of lines", note=note)


def _charts(names: Sequence[str], by_line: Sequence[Sequence[float | None]]) -> list[Chart]:
    """How many lines have which chrF, for each pair of systems; and the differences."""
    words = list(map(_in_words, names, by_line))
    if len(names) == 1:
        return [_chart("chrF of lines", words[0], _histogram("lines", by_line[0]))]
    charts = []
    for name, own, values in zip(names[1:], words[1:], by_line[1:], strict=True):
        gaps = [
            None if score is None or other is None else other - score
            for score, other in zip(by_line[0], values, strict=True)
        ]
        difference = _gaps_in_words(names[0], name, gaps)
        charts += [
            _chart(
                f"chrF of lines: {names[0]} and {name}",
                f"{words[0]} {own}",
                _histogram(_brief(names[0]), by_line[0]),
                _histogram(_brief(name), values, color=TWO, style="--"),
            ),
            _chart(
                f"Difference of lines: {name} minus {names[0]}",
                difference,
                _histogram("lines", gaps),
                axis="points of chrF",
                note=difference,
            ),
        ]
    return charts


def _forecast_charts(systems: Sequence[ComparedSystem]) -> list[Chart]:
    """How many lines of each system have which forecast."""
    charts = []
    for system in systems:
        values = [line.confidence for line in system.checked or ()]
        if any(value is not None for value in values):
            title = f"Forecasts of lines: {_brief(system.name)}"
            words = _in_words(system.name, values)
            charts.append(_chart(title, words, _histogram("lines", values)))
    return charts


def _brief(name: str) -> str:
    """A name that has room in a legend."""
    return name if len(name) <= 20 else f"…{name[-19:]}"


def _histogram(
    label: str, values: Sequence[float | None], *, color: str = ONE, style: Literal["-", "--"] = "-"
) -> Line:
    """The number of lines whose value is nearest to each multiple of the width of a bar."""
    width = limits.CHRF_BAR
    counts = Counter(round(value / width) for value in values if value is not None)
    first = 0 if min(counts, default=0) >= 0 else -100 // width
    points = [(float(width * bar), float(counts[bar])) for bar in range(first, 100 // width + 1)]
    return Line(label, points, color, style=style, steps=True)


def _in_words(name: str, values: Sequence[float | None]) -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return f"{name}: no line has a score."
    low, middle, high = (known[int(share * (len(known) - 1))] for share in (0.1, 0.5, 0.9))
    return f"{name}: median {middle:.0f}, one line in ten below {low:.0f}, one above {high:.0f}."


def _gaps_in_words(first: str, second: str, gaps: Sequence[float | None]) -> str:
    known = [round(gap, 1) for gap in gaps if gap is not None]
    better, worse = sum(gap > 0 for gap in known), sum(gap < 0 for gap in known)
    return (
        f"{second} is better than {first} in {in_words(better)}, worse in {worse:,}, and equal "
        f"in {len(known) - better - worse:,}."
    )


def _counts(systems: Sequence[ComparedSystem]) -> list[tuple[str, str, list[int | None]]]:
    """The kinds that were found: name, meaning, and number of lines of each system."""
    counts = [
        None
        if system.checked is None
        else Counter(kind for line in system.checked for kind in {f.kind for f in line.findings})
        for system in systems
    ]
    rows = [
        (kind, meaning, [None if count is None else count[kind] for count in counts])
        for kind, meaning in KINDS.items()
    ]
    return [row for row in rows if any(row[2])]


# ---------------------------------------------------------------------------------------------
# For the script


def _packed(
    system: ComparedSystem, by_metric: Sequence[Sequence[float | None]], sources: Sequence[str]
) -> dict[str, Any]:
    """A system for the script: texts, scores, forecasts, and findings by the index of the line."""
    packed: dict[str, Any] = {
        "name": printable(system.name),
        "texts": list(map(printable, system.translations)),
        "scores": [
            [None if value is None else float(f"{value:.5g}") for value in values]
            for values in by_metric
        ],
        "forecast": None,
        "found": None,
    }
    if system.checked is None:
        return packed
    forecasts = [line.confidence for line in system.checked]
    if any(value is not None for value in forecasts):
        packed["forecast"] = [None if value is None else round(value) for value in forecasts]
    packed["found"] = {
        index: [_packed_finding(finding, source, translation) for finding in checked.findings]
        for index, (checked, source, translation) in enumerate(
            zip(system.checked, sources, system.translations, strict=True)
        )
        if checked.findings
    }
    return packed


def _packed_finding(finding: Finding, source: str, translation: str) -> dict[str, Any]:
    """A finding whose spans count as JavaScript does: most emoji are two."""
    packed = finding.as_dict() | {"reason": printable(finding.reason)}
    for side, text in (("src", source), ("tgt", translation)):
        if side in packed:
            packed[side] = [len(text[:place].encode("utf-16-le")) // 2 for place in packed[side]]
    return packed
