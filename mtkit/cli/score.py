"""The command `mtkit score`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtkit.cli.console import need_output, print_text, width
from mtkit.cli.options import (
    PathArgument,
    decode_options,
    example,
    lines_of,
    load_translator,
    open_run,
)
from mtkit.errors import MtkitError, one_line

if TYPE_CHECKING:
    from mtkit.data import PreparedData, Split
    from mtkit.run_folder import Run
    from mtkit.score import System
    from mtkit.translate import Scored

log = logging.getLogger(__name__)


@click.command(epilog=example("mtkit score"))
@click.argument("hypotheses", metavar="[HYP]...", nargs=-1, type=PathArgument)
@click.option(
    "--reference",
    "references",
    type=PathArgument,
    multiple=True,
    help="References for HYP; repeatable for several sets.",
)
@click.option(
    "--run",
    "run_paths",
    type=PathArgument,
    multiple=True,
    help="Run folder; repeatable; default: the newest under runs/.",
)
@click.option(
    "--data",
    "data_path",
    type=PathArgument,
    help="Prepared folder with the test set; default: the one the run was trained on.",
)
@click.option(
    "--split",
    type=click.Choice(["test", "valid"]),
    default="test",
    show_default=True,
    help="Which text of the data a run translates.",
)
@decode_options
@click.option(
    "--metric",
    "metrics",
    type=click.Choice(["bleu", "chrf", "ter"]),
    multiple=True,
    help="Repeatable; default: bleu.",
)
@click.option(
    "--protocol",
    type=click.Choice(["wmt", "paper"]),
    default="wmt",
    show_default=True,
    help="paper adds the BLEU that the paper reports: Moses tokens, compounds split.",
)
@click.option("--tgt-lang", metavar="L", help="Language of HYP, for --protocol paper.")
@click.option(
    "--paired",
    is_flag=True,
    help="Test every system against the first: 95 % intervals, and p-values of the paired"
    " bootstrap and of approximate randomisation.",
)
@click.option(
    "--sentence",
    is_flag=True,
    help="Print the score of every sentence: line number, scores, translation and reference,"
    " tab-separated.",
)
@click.option("--worst-first", is_flag=True, help="With --sentence: in order of the first score.")
@click.option(
    "--model-score",
    is_flag=True,
    help="Print what the model thinks of --hyp as a translation of --src: line number,"
    " log-probability, and that over the length penalty, tab-separated; with --json every token.",
)
@click.option("--src", "src_path", type=PathArgument, help="Source text for --model-score.")
@click.option("--hyp", "hyp_path", type=PathArgument, help="Its translations.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def score(
    hypotheses: tuple[Path, ...],
    references: tuple[Path, ...],
    run_paths: tuple[Path, ...],
    data_path: Path | None,
    split: Split,
    metrics: tuple[Any, ...],
    protocol: str,
    tgt_lang: str | None,
    paired: bool,
    sentence: bool,
    worst_first: bool,
    model_score: bool,
    src_path: Path | None,
    hyp_path: Path | None,
    as_json: bool,
    **decode: Any,
) -> None:
    """Score translations with sacreBLEU; each score comes with its signature.

    Without HYP, the newest run translates the test set of its data and that is scored. HYP is a
    file of detokenised translations, or - for standard input, scored against --reference. Several
    files, or several runs, are put into one table; runs of one configuration under different
    seeds are summed up by their mean and standard deviation.
    """
    from mtkit import score as scoring
    from mtkit.cli import tables as report
    from mtkit.run_folder import seed_groups

    need_output()
    if len({model_score, src_path is not None, hyp_path is not None}) > 1:
        raise click.UsageError("--model-score, --src and --hyp go together")
    if src_path is not None and hyp_path is not None:
        useless: list[Any] = [hypotheses, references, run_paths[1:], data_path, metrics]
        useless += [
            split != "test",
            protocol != "wmt",
            tgt_lang,
            paired,
            sentence,
            worst_first,
            decode["workers"],
        ]
        if any(useless):
            raise click.UsageError("--model-score takes one run, --src and --hyp, and no more")
        if src_path == hyp_path == Path("-"):
            raise click.UsageError("standard input (-) can be read once")
        run = open_run(run_paths[0] if run_paths else None)
        print_text(report.model_scores(_scored(run, src_path, hyp_path, decode), as_json=as_json))
        return
    for_runs = {"run": run_paths, "data": data_path, **decode, "device": None}
    if hypotheses and (given := [name for name, value in for_runs.items() if value]):
        option = f"--{given[0].replace('_', '-')}"
        raise click.UsageError(f"{option} is about translating; HYP is translated already")
    if references and not hypotheses:
        raise click.UsageError("--reference needs HYP, the translations to score")
    if worst_first and not sentence:
        raise click.UsageError("--worst-first orders what --sentence prints")
    if tgt_lang is not None and (protocol != "paper" or not tgt_lang):
        raise click.UsageError("--tgt-lang names the language of HYP for --protocol paper")
    runs = [] if hypotheses else [open_run(path) for path in run_paths or (None,)]
    if paired and len(hypotheses or runs) < 2:
        raise click.UsageError("--paired compares systems: give two or more HYP or --run")
    if paired:
        # Before anything is translated.
        scoring.check_seed()
    if sentence and (paired or len(hypotheses or runs) > 1):
        raise click.UsageError("--sentence is for one system")
    if runs and tgt_lang is None:
        tgt_lang = runs[0].manifest.data.tgt_lang or None
    wanted: list[scoring.Metric] = list(dict.fromkeys(metrics)) or ["bleu"]
    if protocol == "paper":
        if tgt_lang is None:
            raise click.UsageError("--protocol paper needs --tgt-lang, for its tokeniser")
        # The two stand side by side, whatever else was asked for.
        wanted = ["bleu", "paper", *(metric for metric in wanted if metric != "bleu")]

    if runs:
        systems, reference_sets = _systems_of_runs(runs, data_path, split, decode)
    else:
        systems, reference_sets = _systems_of_files(hypotheses, references)
    if protocol == "paper":
        log.info("%s", scoring.PAPER_NOTE)
    if paired:
        scoring.note_twins(systems)
    how = {"tgt_lang": tgt_lang}
    if sentence:
        (system,) = systems
        of_lines = [
            scoring.sentence_scores(system.translations, reference_sets, metric=metric, **how)
            for metric in wanted
        ]
        for scores in of_lines:
            log.info("%s %s", scores[0].name, scores[0].signature)
        order = {"worst_first": worst_first, "as_json": as_json}
        print_text(report.sentences(system, reference_sets, of_lines, **order))
        return
    by_metric = [
        scoring.compare(systems, reference_sets, metric=metric, **how)
        if paired
        else [scoring.score(s.translations, reference_sets, metric=metric, **how) for s in systems]
        for metric in wanted
    ]
    names, groups = [one_line(system.name) for system in systems], seed_groups(runs)
    print_text(report.scores(names, by_metric, groups, as_json=as_json, width=width()))


def _data_of(run: Run, path: Path | None) -> PreparedData:
    """The data a run was trained on, held to its checksum unless it was named."""
    from mtkit.data import PreparedData

    if path is not None:
        return PreparedData.open(path)
    try:
        data = PreparedData.open(run.data_path)
    except MtkitError as error:
        raise MtkitError(
            f"the test set of {run.path} is not there any more ({error}); "
            "give --data, or HYP and --reference"
        ) from error
    if data.fingerprint != run.data_fingerprint:
        raise MtkitError(
            f"{data.path}: was prepared anew since {run.path} was trained on it; "
            "give --data to score on it all the same"
        )
    return data


def _systems_of_files(
    hypotheses: tuple[Path, ...], references: tuple[Path, ...]
) -> tuple[list[System], list[list[str]]]:
    from mtkit.score import System, refuse_unequal

    if not references:
        raise click.UsageError("HYP needs at least one --reference")
    if [*hypotheses, *references].count(Path("-")) > 1:
        raise click.UsageError("standard input (-) can be read once")
    systems = [System(str(path), list(lines_of(path))) for path in hypotheses]
    reference_sets = [list(lines_of(path)) for path in references]
    for system in systems:
        for path, lines in zip(references, reference_sets, strict=True):
            refuse_unequal(system.name, system.translations, str(path), lines)
    return systems, reference_sets


def _systems_of_runs(
    runs: list[Run], data_path: Path | None, split: Split, decode: dict[str, Any]
) -> tuple[list[System], list[list[str]]]:
    """The translations of every run; all of the same text."""
    from mtkit.score import System

    texts = [_data_of(run, data_path).text(split) for run in runs]
    for run, text in zip(runs, texts, strict=True):
        if text != texts[0]:
            raise MtkitError(
                f"{run.path} was trained on data with another {split} text than {runs[0].path}; "
                "scores on them cannot be compared (give --data to take one for all)"
            )
    src, tgt = texts[0]
    from mtkit.cli.progress import shown_progress
    from mtkit.translate import Window, windows

    systems = []
    for run in runs:
        found: list[str] = []
        with (
            load_translator([run], **decode) as translator,
            shown_progress(len(src), is_wanted=log.isEnabledFor(logging.INFO)) as progress,
        ):
            given = (Window(first, lines) for first, lines in windows(src, size=len))
            for window in translator.translate_windows(given, progress=progress.advance):
                found += [best.text for best, *_ in window]
                progress.finish(len(found))
        systems.append(System(str(run.path), found))
    return systems, [tgt]


def _scored(run: Run, src_path: Path, hyp_path: Path, decode: dict[str, Any]) -> Iterator[Scored]:
    from mtkit.score import refuse_unequal

    sources, translations = list(lines_of(src_path)), list(lines_of(hyp_path))
    refuse_unequal(str(hyp_path), translations, str(src_path), sources)
    translator = load_translator([run], **decode | {"workers": 1})
    return translator.score_given(sources, translations)
