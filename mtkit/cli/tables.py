"""The results that the commands print: tables for people, rows and JSON for programs.

Every function returns text that ends in a newline; the commands decide where it goes.
"""

from __future__ import annotations

import io
import itertools
import json
import re
import shutil
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from mtkit.base.errors import in_words

if TYPE_CHECKING:
    from mtkit.align import AlignmentScore
    from mtkit.check import Counts
    from mtkit.config import Section
    from mtkit.parsing import Scores
    from mtkit.prepare import Report
    from mtkit.score import Score
    from mtkit.translate import Translation


def catalogue() -> str:
    """The corpora that `prepare` knows by name."""
    from mtkit.prepare import CATALOGUE

    headings = ("NAME", "PAIRS", "DOWNLOAD", "VOCABULARY", "LICENCE", "SOURCE")
    rows = [
        (
            corpus.name,
            f"{corpus.train_pairs:,}",
            "none" if corpus.download_mb is None else f"{corpus.download_mb:,} MB",
            f"{corpus.vocab_size:,}",
            corpus.licence,
            corpus.source,
        )
        for corpus in CATALOGUE
    ]
    return _table(headings, rows, wraps=5, right=(1, 3))


def preparation(report: Report) -> str:
    """Counts of the pairs of a corpus that were read, dropped and kept."""
    rows: list[tuple[str, str, str]] = []

    def add(name: str, count: int, whole: int | None = None) -> None:
        rows.append((name, f"{count:,}", "" if whole is None else f"{count / whole:.2%}"))

    read, kept = report.pairs["train"], report.kept
    add("training pairs read", read)
    for reason, count in report.dropped.items():
        add(f"  dropped: {reason}", count, read)
    add("training pairs kept", kept, read)
    for direction, (count, share) in report.shares.items():
        rows.append((f"  {direction}", f"{count:,}", f"{share:.1%} of an epoch"))
    for kind, count in report.noise.items():
        add(f"  with noise: {kind}", count, kept)
    for tag, count in report.tags.items():
        add(f"  with tag {tag}", count, kept)
    if report.marked is not None:
        add("  with findings", report.marked.marked, kept)
        for kind, count in report.marked.in_order():
            add(f"    {kind}", count, kept)
    add("  source tokens", report.tokens["src"])
    add("  target tokens", report.tokens["tgt"])
    for what, count in zip(("source", "target", "both"), report.overlap.values(), strict=True):
        if count:
            add(f"  with {what} in validation or test", count, read)
    also = [split for split in report.pairs if split not in ("train", "valid", "test")]
    for split in ("valid", *also, "test"):
        total = report.pairs[split]
        add(f"{'validation' if split == 'valid' else split} pairs", total)
        if known := report.in_training.get(split):
            add("  also in training", known, total)
        if near := report.near_duplicates.get(split):
            add("  nearly in training", near, total)
    rows.append(("vocabulary", report.vocabulary, ""))
    text = _table(None, rows, wraps=0, right=(1, 2))
    for sentence in report.marked.silences if report.marked is not None else ():
        text += f"{sentence}\n"
    for fault, count in report.fixed.items():
        text += f"fixed: {fault}, {in_words(count, 'time')}\n"
    for source, first, last, offset in report.misaligned:
        # A source line belongs to the target line this many lines further down.
        text += (
            f"misaligned: {source}, {first:,} to {last:,}: "
            f"targets are {abs(offset)} {'late' if offset > 0 else 'early'}\n"
        )
    return text


def dropped_samples(report: Report) -> str:
    """Some of the dropped pairs, by reason: reason, file, line, source and target."""
    return "".join(_row(s.reason, s.file, s.line, s.src, s.tgt) for s in report.samples)


def findings(counts: Counts) -> str:
    """How many lines are marked, with each kind of finding and what it means."""
    from mtkit.check import KINDS

    if not counts.marked:
        return f"no findings in {in_words(counts.pairs)}\n"
    counted = [(kind, count, KINDS[kind]) for kind, count in counts.in_order()]
    counted.append(("marked", counts.marked, "Lines with at least one finding."))
    rows = [(kind, f"{n:,}", f"{n / counts.pairs:.2%}", meaning) for kind, n, meaning in counted]
    rows.append(("all lines", f"{counts.pairs:,}", "", ""))
    return _table(("FINDING", "LINES", "SHARE", "MEANING"), rows, wraps=3, right=(1, 2))


def presets() -> str:
    """The configurations that ship with mtkit, with a line about each."""
    from mtkit import config

    rows = []
    for name in config.presets():
        lines = config.preset_text(name).splitlines()
        comment = itertools.takewhile(lambda line: line.startswith("#"), lines)
        text = " ".join(line.lstrip("# ") for line in comment)
        # A full stop within a sentence, as in "et al. 2018", is not followed by a capital letter.
        rows.append((name, re.split(r"\.(?: (?=[A-Z])|\Z)", text)[0]))
    return _table(("PRESET", "DESCRIPTION"), rows, wraps=1)


def settings(model: type[Section]) -> str:
    """The settings of a configuration, with their defaults and descriptions."""
    from mtkit.config import setting_fields

    rows = [
        (key, json.dumps(field.default), field.description or "")
        for key, field in setting_fields(model).items()
    ]
    return _table(("KEY", "DEFAULT", "DESCRIPTION"), rows, wraps=2)


def scores(
    names: Sequence[str],
    by_metric: Sequence[Sequence[Score]],
    groups: Sequence[Sequence[int]] = (),
    *,
    as_json: bool = False,
    without_near: Sequence[Sequence[Score]] | None = None,
) -> str:
    """A line per metric for one system; for several a table, and then the signatures.

    Each metric has the score of each system. `groups` are indices of systems that differ in their
    seed alone; the table gets their mean and standard deviation. JSON gets the scores without lines
    that are nearly in the training text, if there are some.
    """
    if as_json:
        systems = [
            {"system": name, "scores": list(map(_facts, of_system))}
            for name, *of_system in zip(names, *by_metric, strict=True)
        ]
        for system, of_system in zip(systems, zip(*without_near or (), strict=True), strict=False):
            system["without_near_duplicates"] = list(map(_facts, of_system))
        of_groups = [
            {
                "systems": [names[index] for index in group],
                "scores": [{"name": of[0].name, **_spread(of, group)} for of in by_metric],
            }
            for group in groups
        ]
        return _json({"systems": systems, "groups": of_groups})
    if len(names) == 1:
        return "".join(f"{metric[0]}\n" for metric in by_metric)
    # With intervals and p-values, each metric gets its own table.
    is_compared = by_metric[0][-1].identical is not None
    tables = [[metric] for metric in by_metric] if is_compared else [by_metric]
    signatures = [f"{metric[0].name} {metric[0].signature}\n" for metric in by_metric]
    return "".join([*(_table_of_scores(names, table, groups) for table in tables), *signatures])


def by_direction(printed: Mapping[str, str], *, as_json: bool) -> str:
    """What `scores` gives for each direction, by the names of the directions, as one text."""
    if as_json:
        return _json({name: json.loads(text) for name, text in printed.items()})
    # A line with a score begins with its direction, and a table stands below it.
    return "".join(
        f"{name} {text}" if text.count("\n") == 1 else f"{name}\n{text}"
        for name, text in printed.items()
    )


def sentences(
    translations: Sequence[str],
    references: Sequence[Sequence[str]],
    by_metric: Sequence[Sequence[Score]],
    *,
    as_json: bool = False,
) -> str:
    """A row for every sentence: line number, scores, translation and first reference if any."""
    if as_json:
        rows = [
            {
                "line": line + 1,
                "scores": [_facts(metric[line]) for metric in by_metric],
                "translation": translation,
                "references": [lines[line] for lines in references],
            }
            for line, translation in enumerate(translations)
        ]
        return _json(rows)
    return "".join(
        _row(
            line + 1,
            *(metric[line].shown(metric[line].value) for metric in by_metric),
            translation,
            *(lines[line] for lines in references[:1]),
        )
        for line, translation in enumerate(translations)
    )


def tree_scores(systems: Sequence[tuple[str, Scores, int | None]], *, as_json: bool = False) -> str:
    """Scores of trees: of all sentences, short ones and S roots; and how many were repaired."""
    signature = systems[0][1].signature
    if as_json:
        facts = [
            {"system": name, **_facts(system), **({} if count is None else {"repaired": count})}
            for name, system, count in systems
        ]
        return _json({"systems": facts, "signature": signature})
    headings = ["SYSTEM", "SENTENCES", "NUMBER", "PRECISION", "RECALL", "F1", "EXACT"]
    headings += ["FAILED", "REPAIRED"]
    rows: list[list[str]] = []
    for name, system, count in systems:
        of_all = [f"{system.failures:,}", "" if count is None else f"{count:,}"]
        kinds = {"all": system.all, "40 words or less": system.short, "S roots": system.s_roots}
        for kind, part in kinds.items():
            values = (part.precision, part.recall, part.f1, part.exact)
            cells = [kind, f"{part.sentences:,}", *(f"{value:.2f}" for value in values)]
            rows.append([name, *cells, *of_all] if kind == "all" else ["", *cells])
    return _table(headings, rows, wraps=0, right=range(2, 9)) + f"{signature}\n"


def model_scores(translations: Iterable[Translation], *, as_json: bool = False) -> str:
    """A row for every sentence: line number, log-probability, and that over the length penalty."""
    rows = []
    for number, scored in enumerate(translations, 1):
        row = {"line": number, "log_prob": scored.log_prob, "score": scored.score}
        tokens = zip(scored.pieces, scored.log_probs, strict=True)
        rows.append({**row, "tokens": [{"piece": piece, "log_prob": p} for piece, p in tokens]})
    if as_json:
        return _json(rows)
    return "".join(_row(r["line"], f"{r['log_prob']:.6f}", f"{r['score']:.6f}") for r in rows)


def alignment_scores(
    names: Sequence[str], scores: Sequence[AlignmentScore], *, as_json: bool = False
) -> str:
    """Alignment error rate, precision and recall of each file, in percent."""
    rows = [
        {"aer": 100 * s.error_rate, "precision": 100 * s.precision, "recall": 100 * s.recall}
        for s in scores
    ]
    named = list(zip(names, rows, strict=True))
    if as_json:
        return _json({"alignments": [{"file": name, **row} for name, row in named]})
    if len(rows) == 1:
        return "AER {aer:.1f} precision {precision:.1f} recall {recall:.1f}\n".format(**rows[0])
    cells = [(name, *(f"{value:.1f}" for value in row.values())) for name, row in named]
    return _table(("FILE", "AER", "PRECISION", "RECALL"), cells, wraps=0, right=(1, 2, 3))


def _facts(value: Any) -> dict[str, Any]:
    # Without a comparison there is no interval. The baseline has no p-value, and neither has a
    # system that is identical to it.
    return {key: fact for key, fact in asdict(value).items() if fact is not None}


def _spread(scores: Sequence[Score], group: Sequence[int]) -> dict[str, float]:
    values = [scores[index].value for index in group]
    return {"mean": mean(values), "deviation": stdev(values)}


def _table_of_scores(
    names: Sequence[str], by_metric: Sequence[Sequence[Score]], groups: Sequence[Sequence[int]]
) -> str:
    is_compared = by_metric[0][-1].identical is not None
    more = ["95 % INTERVAL", "P BOOTSTRAP", "P RANDOMISATION"] if is_compared else []
    headings = [heading for metric in by_metric for heading in (metric[0].name, *more)]
    if not is_compared:
        # Behind all scores, whose columns are the same with and without intervals.
        headings += [f"{of[0].name} 95 % INTERVAL" for of in by_metric if of[0].shown_interval]
    rows = []
    for name, *of_system in zip(names, *by_metric, strict=True):
        cells = [name]
        for value in of_system:
            cells.append(value.shown(value.value))
            if is_compared:
                p_values = (value.p_bootstrap, value.p_randomisation)
                shown = ["baseline" if p is None else f"{p:.4f}" for p in p_values]
                cells.append(value.shown_interval)
                cells += ["identical"] * 2 if value.identical else shown
        if not is_compared:
            cells += [value.shown_interval for value in of_system if value.shown_interval]
        rows.append(cells)
    for group in groups:
        cells = [f"mean ± deviation of {', '.join(names[index] for index in group)}"]
        for metric in by_metric:
            center, deviation = map(metric[0].shown, _spread(metric, group).values())
            cells += [f"{center} ± {deviation}", *[""] * len(more)]
        rows.append(cells)
    return _table(("SYSTEM", *headings), rows, wraps=0, right=range(1, 1 + len(headings)))


def _row(*fields: object) -> str:
    return "\t".join(str(field).replace("\t", " ") for field in fields) + "\n"


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _table(
    headings: Sequence[str] | None,
    rows: Sequence[Sequence[str]],
    *,
    wraps: int,
    right: Container[int] = (),
) -> str:
    """A table of which one column is broken into lines, and numbers are on the right.

    If that is the first one, a name, others are broken at spaces, so that no number is cut.
    """
    # On first use, because most results are lines and need no table.
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=headings is not None)
    for i, heading in enumerate(headings or rows[0]):
        table.add_column(
            heading,
            justify="right" if i in right else "left",
            overflow="fold" if i == wraps else "ellipsis",
            no_wrap=i != wraps != 0,
        )
    for row in rows:
        table.add_row(*row)
    text = io.StringIO()
    # In a file or pipe a row stays on one line, however long it is.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 1000
    Console(file=text, width=width, markup=False, emoji=False).print(table)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())
