"""`mtkit score` for translations: those in files, and those of runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from mtkit.base.errors import one_line
from mtkit.cli.console import print_text, width
from mtkit.cli.options import lines_of, refuse_stdin_twice
from mtkit.cli.score_data import ScoreOptions, common_texts, is_multilingual

if TYPE_CHECKING:
    from mtkit.data import DirectionText
    from mtkit.run_folder import Run
    from mtkit.score import Metric, Score, System

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Compared:
    """Translations of one text by all systems.

    Attributes:
        direction: its name, where there are several; otherwise empty.
        references: one or more whole sets.
        tgt_lang: None if it is not known.
    """

    direction: str
    systems: Sequence[System]
    references: Sequence[Sequence[str]]
    tgt_lang: str | None


def score_files(options: ScoreOptions) -> None:
    """Print the scores of files of translations."""
    from mtkit.score import System, refuse_unequal

    if not options.references:
        raise click.UsageError("HYP requires at least one --reference")
    _check(options, options.tgt_lang)
    refuse_stdin_twice([*options.hypotheses, *options.references])
    systems = [
        System(str(path), list(lines_of(path, keeps_mark=True))) for path in options.hypotheses
    ]
    references = [list(lines_of(path, keeps_mark=True)) for path in options.references]
    for system in systems:
        for path, lines in zip(options.references, references, strict=True):
            refuse_unequal(system.name, system.translations, str(path), lines)
    _print([_Compared("", systems, references, options.tgt_lang)], options)


def score_runs(runs: Sequence[Run], options: ScoreOptions) -> None:
    """Translate the test set with each run, and print the scores, for each direction."""
    from mtkit.score import System

    _check(options, options.tgt_lang or runs[0].manifest.data.tgt_lang)
    texts = common_texts(runs, options)
    if options.sentence and len(texts) > 1:
        raise click.UsageError(
            f"--sentence requires one direction, not {', '.join(texts)}: give --src-lang and "
            "--tgt-lang"
        )
    compared = []
    for name, text in texts.items():
        _note_several(text, options)
        systems = []
        for run in runs:
            # A bilingual model is not asked for languages, because they may be codes of regions.
            languages: dict[str, Any] = {}
            if name or is_multilingual(run):
                languages = {"src_lang": text.src_lang or None, "tgt_lang": text.tgt_lang or None}
            translations = replace(options.decode, **languages).translations(run, text.src)
            systems.append(System(str(run.path), [best.text for best in translations]))
        compared.append(_Compared(name, systems, [text.tgt], text.tgt_lang or None))
    _print(compared, options, runs)


def _check(options: ScoreOptions, tgt_lang: str | None) -> None:
    """Refuse what cannot be scored, before anything is translated."""
    from mtkit.score import check_seed

    if options.protocol == "paper" and tgt_lang is None:
        raise click.UsageError("--protocol paper requires --tgt-lang, for its tokeniser")
    if options.paired:
        check_seed()


def _note_several(text: DirectionText, options: ScoreOptions) -> None:
    """Say how many lines have several sentences, and how they are translated."""
    from mtkit.base.sentences import split as sentences_of

    if several := sum(len(sentences_of(line, text.src_lang)) > 1 for line in text.src):
        log.info(
            "%s of %s source lines have several sentences%s",
            f"{several:,}",
            f"{len(text.src):,}",
            ""
            if options.decode.changes.get("split_sentences")
            else "; they are translated whole (--split-sentences: one by one)",
        )


def _print(compared: Sequence[_Compared], options: ScoreOptions, runs: Sequence[Run] = ()) -> None:
    """Print the scores of each sentence or of whole texts, with tests of the differences."""
    from mtkit import score
    from mtkit.cli import tables

    metrics: list[Metric] = [one for one in dict.fromkeys(options.metrics) if one != "parseval"]
    metrics = metrics or ["bleu"]
    if options.protocol == "paper":
        # Both kinds of BLEU come first.
        metrics = ["bleu", "paper", *(metric for metric in metrics if metric != "bleu")]
        log.info("%s", score.PAPER_NOTE)
    if "bleu" in metrics:
        for one in compared:
            for system in one.systems:
                score.note_tokenised(system.name, system.translations)
    if options.sentence:
        _print_sentences(compared[0], metrics, options)
        return
    groups = _seed_groups(runs)
    printed = {}
    for one in compared:
        if options.paired:
            score.note_twins(one.systems)
        names = [one_line(system.name) for system in one.systems]
        by_metric = [_scores(one, metric, paired=options.paired) for metric in metrics]
        printed[one.direction] = tables.scores(
            names, by_metric, groups, as_json=options.as_json, width=width()
        )
    if len(printed) > 1:
        print_text(tables.by_direction(printed, as_json=options.as_json))
    else:
        print_text(*printed.values())


def _scores(compared: _Compared, metric: Metric, *, paired: bool) -> list[Score]:
    """The score of each system by a metric."""
    from mtkit.score import compare, score

    references, tgt_lang = compared.references, compared.tgt_lang
    if paired:
        return compare(compared.systems, references, metric=metric, tgt_lang=tgt_lang)
    return [
        score(system.translations, references, metric=metric, tgt_lang=tgt_lang)
        for system in compared.systems
    ]


def _print_sentences(compared: _Compared, metrics: Sequence[Metric], options: ScoreOptions) -> None:
    """Print the scores of each sentence, and the signatures as notes."""
    from mtkit.cli import tables
    from mtkit.score import sentence_scores

    (system,), references = compared.systems, compared.references
    by_metric = [
        sentence_scores(system.translations, references, metric=metric, tgt_lang=compared.tgt_lang)
        for metric in metrics
    ]
    for scores in by_metric:
        log.info("%s %s", scores[0].name, scores[0].signature)
    worst_first, as_json = options.worst_first, options.as_json
    print_text(
        tables.sentences(system, references, by_metric, worst_first=worst_first, as_json=as_json)
    )


def _seed_groups(runs: Sequence[Run]) -> list[list[int]]:
    """Groups of runs with the same configuration and data but different seeds.

    Returns:
        The indices in `runs` of each group of two or more.
    """
    from mtkit.run_manifest import MAY_CHANGE, differences

    # Of the settings that may change, only the length of training and the search are compared.
    compared = ("train.max_steps", "train.finish_", "decode.")
    ignore = [key for key in MAY_CHANGE if not key.startswith(compared)]
    ignore += ["train.seed", "decode.seed", "decode.batch_tokens"]
    groups: list[list[int]] = []
    for index, run in enumerate(runs):
        for group in groups:
            first = runs[group[0]]
            seeds = [runs[other].config.train.seed for other in group]
            if (
                run.config.train.seed not in seeds
                and first.data_fingerprint == run.data_fingerprint
                and not differences(first.config, run.config, ignore=ignore)
            ):
                group.append(index)
                break
        else:
            groups.append([index])
    return [group for group in groups if len(group) > 1]
