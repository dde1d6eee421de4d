"""The results that the commands print: tables for people, rows and JSON for programs.

Every function returns text that ends in a newline; the commands decide where it goes. `width` is
that of a line, in characters.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mtkit import config, prepare_config

if TYPE_CHECKING:
    from mtkit.align import AlignmentScore
    from mtkit.parsing import Scores
    from mtkit.prepare import Report
    from mtkit.score import Score, System
    from mtkit.translate import Scored

# In a file or pipe a row of a table stays on one line, however long it is.
UNBROKEN = 1000


def catalogue(*, width: int = UNBROKEN) -> str:
    """The corpora that `prepare` knows by name."""
    from mtkit.prepare import CATALOGUE

    numbers = ("PAIRS", "VOCABULARY")
    table = _listing("NAME", "PAIRS", "DOWNLOAD", "VOCABULARY", "LICENCE", "SOURCE", right=numbers)
    for corpus in CATALOGUE:
        table.add_row(
            corpus.name,
            f"{corpus.train_pairs:,}",
            "none" if corpus.download_mb is None else f"{corpus.download_mb:,} MB",
            f"{corpus.vocab_size:,}",
            corpus.licence,
            corpus.source,
        )
    return _render(table, width)


def preparation(report: Report, *, width: int = UNBROKEN) -> str:
    """Counts of the pairs of a corpus that were read, dropped and kept, and times."""
    read = report.pairs["train"]
    kept = read - sum(report.dropped.values())
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_row("training pairs read", f"{read:,}")
    for reason, count in report.dropped.items():
        table.add_row(f"  dropped: {reason}", f"{count:,}", f"{count / read:.2%}")
    table.add_row("training pairs kept", f"{kept:,}", f"{kept / read:.2%}")
    for direction, (count, share) in report.shares.items():
        table.add_row(f"  {direction}", f"{count:,}", f"{share:.1%} of an epoch")
    for kind, count in report.noise.items():
        table.add_row(f"  with noise: {kind}", f"{count:,}", f"{count / kept:.2%}")
    for tag, count in report.tags.items():
        table.add_row(f"  with tag {tag}", f"{count:,}", f"{count / kept:.2%}")
    table.add_row("  source tokens", f"{report.tokens[0]:,}")
    table.add_row("  target tokens", f"{report.tokens[1]:,}")
    for what, count in zip(("source", "target", "both"), report.overlaps, strict=True):
        if count:
            table.add_row(
                f"  with {what} in validation or test", f"{count:,}", f"{count / read:.2%}"
            )
    also = [split for split in report.pairs if split not in ("train", "valid", "test")]
    for split in ("valid", *also, "test"):
        name, total = "validation" if split == "valid" else split, report.pairs[split]
        table.add_row(f"{name} pairs", f"{total:,}")
        if known := report.in_training.get(split):
            table.add_row("  also in training", f"{known:,}", f"{known / total:.2%}")
    table.add_row("vocabulary", report.vocabulary)
    for stage, seconds in report.seconds.items():
        rate = f"{read / seconds:,.0f} pairs/s" if seconds else ""
        table.add_row(stage, f"{seconds:.1f} s", rate)
    text = _render(table, width)
    for found, count in report.fixed.items():
        text += f"fixed: {found}, {count:,} times\n"
    for source, first, last, offset in report.misaligned:
        # A source line belongs to the target line this many lines further down.
        text += (
            f"misaligned: {source}, {first:,} to {last:,}: "
            f"targets are {abs(offset)} {'late' if offset > 0 else 'early'}\n"
        )
    return text


def dropped_samples(report: Report) -> str:
    """Some of the dropped pairs, by reason: reason, file, line, source and target."""
    return "".join(_row(one.reason, one.file, one.line, one.src, one.tgt) for one in report.samples)


def presets(*, width: int = UNBROKEN) -> str:
    """The configurations that ship with mtkit, with a line about each."""
    table = _listing("PRESET", "DESCRIPTION")
    for name in config.presets():
        table.add_row(name, escape(config.describe_preset(name)))
    return _render(table, width)


def preparation_settings(*, width: int = UNBROKEN) -> str:
    """The settings of `prepare`, with their defaults and descriptions."""
    return _settings(config.setting_fields(prepare_config.PrepareConfig), width)


def training_settings(*, width: int = UNBROKEN) -> str:
    """The settings of a run, by section, with their defaults and descriptions."""
    return _settings(config.setting_fields(config.Config), width)


def _settings(fields: Mapping[str, Any], width: int) -> str:
    """A table of settings: the fields of pydantic by their keys."""
    table = _listing("KEY", "DEFAULT", "DESCRIPTION")
    for key, field in fields.items():
        table.add_row(key, json.dumps(field.default), escape(field.description or ""))
    return _render(table, width)


def scores(
    names: Sequence[str],
    by_metric: Sequence[Sequence[Score]],
    groups: Sequence[Sequence[int]] = (),
    *,
    as_json: bool = False,
    width: int = UNBROKEN,
) -> str:
    """A line per metric for one system; for several a table, and then the signatures.

    Args:
        names: of the systems.
        by_metric: for every metric the score of each system.
        groups: indices of systems that differ in their seed alone; the table gets their mean and
            standard deviation.
    """
    if as_json:
        return _scores_as_json(names, by_metric, groups)
    signatures = "".join(f"{metric[0].name} {metric[0].signature}\n" for metric in by_metric)
    if len(names) == 1:
        return "".join(f"{metric[0]}\n" for metric in by_metric)
    if by_metric[0][0].mean is None:
        return _table_of_scores(names, by_metric, groups, width) + signatures
    # With intervals and p-values, each metric gets its own table.
    tables = [_table_of_scores(names, [metric], groups, width) for metric in by_metric]
    return "".join(tables) + signatures


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
    system: System,
    references: Sequence[Sequence[str]],
    by_metric: Sequence[Sequence[Score]],
    *,
    worst_first: bool = False,
    as_json: bool = False,
) -> str:
    """A row for every sentence: line number, scores, translation and first reference."""
    order = list(range(len(system.translations)))
    if worst_first:
        # TER is an error rate: higher is worse.
        sign = -1.0 if by_metric[0][0].name == "TER" else 1.0
        order.sort(key=lambda line: sign * by_metric[0][line].value)
    if as_json:
        return _json(
            [
                {
                    "line": line + 1,
                    "scores": [_facts(metric[line]) for metric in by_metric],
                    "translation": system.translations[line],
                    "references": [lines[line] for lines in references],
                }
                for line in order
            ]
        )
    return "".join(
        _row(
            line + 1,
            *(f"{metric[line].value:.2f}" for metric in by_metric),
            system.translations[line],
            references[0][line],
        )
        for line in order
    )


def tree_scores(
    names: Sequence[str],
    scores: Sequence[Scores],
    repaired: Sequence[int | None],
    *,
    as_json: bool = False,
    width: int = UNBROKEN,
) -> str:
    """Precision, recall, F1 and exact match of trees: of all sentences, short ones and S roots.

    `repaired` is the number of trees of each system that were repaired; None if it is not known.
    """
    if as_json:
        rows = [
            {"system": name, **{k: v for k, v in asdict(one).items() if v is not None}}
            | ({} if count is None else {"repaired": count})
            for name, one, count in zip(names, scores, repaired, strict=True)
        ]
        return _json({"systems": rows, "signature": scores[0].signature})
    table = Table(box=None, pad_edge=False)
    table.add_column("SYSTEM", overflow="fold")
    table.add_column("SENTENCES")
    for heading in ("NUMBER", "PRECISION", "RECALL", "F1", "EXACT", "FAILED", "REPAIRED"):
        table.add_column(heading, justify="right")
    is_compared = any(one.p_value is not None for one in scores)
    if is_compared:
        table.add_column("P BOOTSTRAP", justify="right")
    for name, one, count in zip(names, scores, repaired, strict=True):
        of_all = [f"{one.failures:,}", "" if count is None else f"{count:,}"]
        if is_compared:
            of_all.append("baseline" if one.p_value is None else f"{one.p_value:.4f}")
        kinds = (("all", one.all), ("40 words or less", one.short), ("S roots", one.s_roots))
        for kind, part in kinds:
            values = (part.precision, part.recall, part.f1, part.exact)
            cells = [f"{part.sentences:,}", *(f"{value:.2f}" for value in values)]
            is_first = part is one.all
            table.add_row(
                escape(name) if is_first else "", kind, *cells, *(of_all if is_first else [])
            )
    return _render(table, width) + f"{scores[0].signature}\n"


def model_scores(found: Iterable[Scored], *, as_json: bool = False) -> str:
    """A row for every sentence: line number, log-probability, and that over the length penalty."""
    if not as_json:
        return "".join(
            _row(number, f"{scored.log_prob:.6f}", f"{scored.score:.6f}")
            for number, scored in enumerate(found, 1)
        )
    return _json(
        [
            {
                "line": number,
                "log_prob": scored.log_prob,
                "score": scored.score,
                "tokens": [
                    {"piece": piece, "log_prob": log_prob}
                    for piece, log_prob in zip(scored.pieces, scored.log_probs, strict=True)
                ],
            }
            for number, scored in enumerate(found, 1)
        ]
    )


def alignment_scores(
    names: Sequence[str],
    scores: Sequence[AlignmentScore],
    *,
    as_json: bool = False,
    width: int = UNBROKEN,
) -> str:
    """Alignment error rate, precision and recall of each file, in percent."""
    rows = [
        {
            "aer": 100 * score.error_rate,
            "precision": 100 * score.precision,
            "recall": 100 * score.recall,
        }
        for score in scores
    ]
    if as_json:
        named = zip(names, rows, strict=True)
        return _json({"alignments": [{"file": name, **row} for name, row in named]})
    if len(rows) == 1:
        return "AER {aer:.1f} precision {precision:.1f} recall {recall:.1f}\n".format(**rows[0])
    table = _listing("FILE", "AER", "PRECISION", "RECALL")
    for name, row in zip(names, rows, strict=True):
        table.add_row(escape(name), *(f"{value:.1f}" for value in row.values()))
    return _render(table, width)


def _facts(value: Score) -> dict[str, Any]:
    # Without a comparison there is no interval, and the baseline has no p-value.
    return {key: fact for key, fact in asdict(value).items() if fact is not None}


def _scores_as_json(
    names: Sequence[str], by_metric: Sequence[Sequence[Score]], groups: Sequence[Sequence[int]]
) -> str:
    return _json(
        {
            "systems": [
                {"system": name, "scores": [_facts(metric[index]) for metric in by_metric]}
                for index, name in enumerate(names)
            ],
            "groups": [
                {
                    "systems": [names[index] for index in group],
                    "scores": [
                        {
                            "name": metric[0].name,
                            "mean": mean(metric[index].value for index in group),
                            "deviation": stdev(metric[index].value for index in group),
                        }
                        for metric in by_metric
                    ],
                }
                for group in groups
            ],
        }
    )


def _table_of_scores(
    names: Sequence[str],
    by_metric: Sequence[Sequence[Score]],
    groups: Sequence[Sequence[int]],
    width: int,
) -> str:
    table = Table(box=None, pad_edge=False)
    table.add_column("SYSTEM", overflow="fold")
    for metric in by_metric:
        table.add_column(metric[0].name, justify="right")
        if metric[0].mean is not None:
            for heading in ("95 % INTERVAL", "P BOOTSTRAP", "P RANDOMISATION"):
                table.add_column(heading, justify="right")
    for index, name in enumerate(names):
        cells = []
        for value in (metric[index] for metric in by_metric):
            cells.append(f"{value.value:.2f}")
            if value.mean is not None:
                cells.append(f"{value.mean:.2f} ± {value.interval:.2f}")
                for p in (value.p_bootstrap, value.p_randomisation):
                    cells.append("baseline" if p is None else f"{p:.4f}")
        table.add_row(name, *cells)
    for group in groups:
        cells = []
        for metric in by_metric:
            values = [metric[index].value for index in group]
            cells.append(f"{mean(values):.2f} ± {stdev(values):.2f}")
            cells += [""] * (0 if metric[0].mean is None else 3)
        table.add_row(f"mean ± deviation of {', '.join(names[index] for index in group)}", *cells)
    return _render(table, width)


def _row(*fields: object) -> str:
    return "\t".join(str(field).replace("\t", " ") for field in fields) + "\n"


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _listing(*headings: str, right: Sequence[str] = ()) -> Table:
    """A table; only the last column is broken into lines, and those in `right` are numbers."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        justify: Literal["left", "right"] = "right" if heading in right else "left"
        table.add_column(heading, no_wrap=heading != headings[-1], justify=justify)
    return table


def _render(table: Table, width: int) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(table)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())
