"""The command `mtkit score`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from mtkit.cli.console import need_output, print_text, width
from mtkit.cli.options import (
    Command,
    DecodeOptions,
    PathArgument,
    beam_options,
    checkpoint_option,
    examples,
    given,
    hardware_options,
    in_out_option,
    lines_of,
    model_option,
    name_of,
    open_run,
    option_group,
    refuse_given,
    refuse_stdin_twice,
    well_formed_option,
)
from mtkit.cli.score_trees import (
    TreeSystem,
    print_sentence_scores,
    print_tree_scores,
    system_of_run,
    systems_of_files,
)
from mtkit.errors import MtkitError, one_line

if TYPE_CHECKING:
    from mtkit.data import PreparedData, Split
    from mtkit.run_folder import Run
    from mtkit.score import Metric, System
    from mtkit.trees import Tree

log = logging.getLogger(__name__)

metric_option = option_group("Metrics")
analysis_option = option_group("Comparison and analysis")
alignment_option = option_group("Word alignments")
force_decoding_option = option_group("Log-probability of given translations")

# Options about a run that translates, but for --device, which does no harm.
TRANSLATING = (
    *("run_paths", "data_path", "split", "checkpoint", "beam_size", "length_penalty"),
    *("batch_tokens", "precision", "workers", "well_formed_trees"),
)
# Options about scores of translations.
TEXT_SCORES = (
    *("data_path", "split", "metrics", "protocol", "tgt_lang"),
    *("paired", "sentence", "worst_first"),
)
# Options about scores, which --model-score does not compute.
SCORING = ("references", *TEXT_SCORES, "workers", "align", "swap_links")


@click.command(
    cls=Command,
    short_help="Score translations with BLEU, chrF or TER.",
    epilog=examples(
        "mtkit score",
        "mtkit score output.de --reference test.de --metric bleu --metric chrf",
        "mtkit score output.de other.de --reference test.de --paired",
        "mtkit score output.trees --reference gold.trees --metric parseval",
        "mtkit score --align links.txt --reference gold.txt",
        "mtkit score --model-score --run runs/mine --src test.en --hyp output.de",
    ),
)
@click.argument("hypotheses", metavar="[HYP]...", nargs=-1, type=PathArgument)
@in_out_option(
    "--reference",
    "references",
    type=PathArgument,
    multiple=True,
    metavar="FILE",
    help="Reference translations for HYP. Repeatable, for several references per sentence.",
)
@in_out_option(
    "--data",
    "data_path",
    type=PathArgument,
    metavar="FOLDER",
    help="Prepared folder with the test set. Default: the one that the run was trained on.",
)
@in_out_option(
    "--split",
    type=click.Choice(["test", "valid"]),
    default="test",
    help="Translate and score the test set (default) or the validation set.",
)
@in_out_option("--json", "as_json", is_flag=True, help="Print JSON.")
@metric_option(
    "--metric",
    "metrics",
    type=click.Choice(["bleu", "chrf", "ter", "parseval"]),
    multiple=True,
    help="Metric. Repeatable. Default: bleu. parseval: HYP and --reference are files of trees, and"
    " the scores are precision, recall and F1 of their brackets, by the rules of evalb. This is"
    " the default for a parser.",
)
@metric_option(
    "--protocol",
    type=click.Choice(["wmt", "paper"]),
    default="wmt",
    help="wmt (default): detokenised BLEU. paper: also the BLEU of the paper, with Moses"
    " tokenisation and split compounds.",
)
@metric_option("--tgt-lang", metavar="L", help="Language code of HYP, for --protocol paper.")
@analysis_option(
    "--paired",
    is_flag=True,
    help="Test the difference of each system from the first: 95 % confidence intervals, and"
    " p-values of paired bootstrap resampling and approximate randomisation.",
)
@analysis_option(
    "--sentence",
    is_flag=True,
    help="Print sentence-level scores: line number, scores, translation and reference,"
    " tab-separated.",
)
@analysis_option(
    "--worst-first", is_flag=True, help="Sort --sentence by the first metric, worst score first."
)
@alignment_option(
    "--align",
    is_flag=True,
    help="HYP is a file of word alignments, and --reference a file of gold alignments: print the"
    " alignment error rate (AER), precision and recall, in percent.",
)
@alignment_option(
    "--swap-links", is_flag=True, help="With --align: exchange source and target of HYP."
)
@force_decoding_option(
    "--model-score",
    is_flag=True,
    help="Print log P(hyp given src) for each line of --src and --hyp: line number,"
    " log-probability, and score (with the length penalty), tab-separated. With --json, also of"
    " each token.",
)
@force_decoding_option("--src", "src_path", type=PathArgument, metavar="FILE", help="Source text.")
@force_decoding_option(
    "--hyp", "hyp_path", type=PathArgument, metavar="FILE", help="Translations of --src."
)
@model_option(
    "--run",
    "run_paths",
    type=PathArgument,
    multiple=True,
    metavar="FOLDER",
    help="Run folder. Repeatable, to compare runs. Default: the newest under runs/.",
)
@checkpoint_option
@beam_options
@well_formed_option
@hardware_options
def score(
    hypotheses: tuple[Path, ...],
    references: tuple[Path, ...],
    run_paths: tuple[Path, ...],
    data_path: Path | None,
    split: Split,
    metrics: tuple[Metric | Literal["parseval"], ...],
    protocol: str,
    tgt_lang: str | None,
    paired: bool,
    sentence: bool,
    worst_first: bool,
    align: bool,
    swap_links: bool,
    model_score: bool,
    src_path: Path | None,
    hyp_path: Path | None,
    as_json: bool,
    **decode: Any,
) -> None:
    """Score translations with sacreBLEU, and print each score with its signature.

    Without HYP, the newest run translates the test set of its data, and its translations are
    scored. HYP is a file of detokenised translations, scored against --reference; - is standard
    input.

    The scores of trees are labelled precision, recall, F1 and exact match.

    Several files or several runs give a table. For runs that differ only in their seed, the table
    also has the mean and standard deviation.
    """
    need_output()
    options = DecodeOptions.parse(**decode)
    if given("model_score", "src_path", "hyp_path"):
        if not (model_score and src_path and hyp_path):
            raise click.UsageError("--model-score, --src and --hyp require each other")
        _print_log_probabilities(hypotheses, run_paths, src_path, hyp_path, options, as_json)
        return
    if not align:
        refuse_given(["swap_links"], "requires --align")
    else:
        _print_alignment_scores(hypotheses, references, swap_links=swap_links, as_json=as_json)
        return
    if hypotheses:
        refuse_given(TRANSLATING, "cannot be combined with HYP, which is translated already")
    else:
        refuse_given(["references"], "requires HYP, the translations to score")
    if not sentence:
        refuse_given(["worst_first"], "requires --sentence")
    if protocol != "paper" or not tgt_lang:
        refuse_given(["tgt_lang"], "requires --protocol paper, and a language code")
    runs = [] if hypotheses else [open_run(path) for path in run_paths or (None,)]
    if len(hypotheses or runs) < 2:
        refuse_given(["paired"], "requires two or more HYP or --run")
    if paired or len(hypotheses or runs) > 1:
        refuse_given(["sentence"], "requires one system, and cannot be combined with --paired")
    if _are_trees(runs, metrics):
        refuse_given(["protocol"], "is for translations, and cannot be combined with trees")
        if runs:
            trees, golds = _trees_of_runs(runs, data_path, split, options)
        else:
            trees, golds = systems_of_files(hypotheses, references)
        if sentence:
            print_sentence_scores(trees[0], golds, worst_first=worst_first, as_json=as_json)
        else:
            print_tree_scores(trees, golds, paired=paired, as_json=as_json)
        return
    refuse_given(["well_formed_trees"], "requires a parser")
    if runs and tgt_lang is None:
        tgt_lang = runs[0].manifest.data.tgt_lang or None
    if protocol == "paper" and tgt_lang is None:
        raise click.UsageError("--protocol paper requires --tgt-lang, for its tokeniser")
    from mtkit import score as scoring

    if paired:
        # Before anything is translated.
        scoring.check_seed()
    if runs:
        systems, reference_sets = _systems_of_runs(runs, data_path, split, options)
    else:
        systems, reference_sets = _systems_of_files(hypotheses, references)
    wanted = [metric for metric in dict.fromkeys(metrics) if metric != "parseval"] or ["bleu"]
    if protocol == "paper":
        # Both kinds of BLEU come first.
        wanted = ["bleu", "paper", *(metric for metric in wanted if metric != "bleu")]
        log.info("%s", scoring.PAPER_NOTE)
    if "bleu" in wanted:
        for system in systems:
            scoring.note_tokenised(system.name, system.translations)
    if sentence:
        _print_sentence_scores(
            systems[0], reference_sets, wanted, tgt_lang, worst_first=worst_first, as_json=as_json
        )
    else:
        _print_scores(
            systems, reference_sets, wanted, tgt_lang, runs=runs, paired=paired, as_json=as_json
        )


def _are_trees(runs: Sequence[Run], metrics: Sequence[str]) -> bool:
    """Whether trees are scored: those of parsers, or files of them."""
    parsers = [run for run in runs if run.manifest.data.task == "parsing"]
    if parsers and len(parsers) < len(runs):
        (other, *_) = (run for run in runs if run not in parsers)
        raise MtkitError(f"{parsers[0].path} is a parser and {other.path} is not; compare others")
    are_trees = bool(parsers) or (not runs and "parseval" in metrics)
    if are_trees and (others := [metric for metric in metrics if metric != "parseval"]):
        raise click.UsageError(f"--metric {others[0]} is for translations, not for trees")
    if not are_trees and "parseval" in metrics:
        raise click.UsageError(f"--metric parseval requires a parser, unlike {runs[0].path}")
    return are_trees


# ---------------------------------------------------------------------------------------------
# What is printed


def _print_scores(
    systems: Sequence[System],
    references: Sequence[Sequence[str]],
    metrics: Sequence[Metric],
    tgt_lang: str | None,
    *,
    runs: Sequence[Run],
    paired: bool,
    as_json: bool,
) -> None:
    """Print the scores of whole texts, with tests of the differences if `paired`."""
    from mtkit.cli import tables
    from mtkit.score import compare, note_twins
    from mtkit.score import score as corpus_score

    if paired:
        note_twins(systems)
        by_metric = [compare(systems, references, metric=m, tgt_lang=tgt_lang) for m in metrics]
    else:
        by_metric = [
            [
                corpus_score(system.translations, references, metric=metric, tgt_lang=tgt_lang)
                for system in systems
            ]
            for metric in metrics
        ]
    names, groups = [one_line(system.name) for system in systems], _seed_groups(runs)
    print_text(tables.scores(names, by_metric, groups, as_json=as_json, width=width()))


def _seed_groups(runs: Sequence[Run]) -> list[list[int]]:
    """Groups of runs with the same configuration and data but different seeds.

    Returns:
        The indices in `runs` of each group of two or more.
    """
    from mtkit.config import MAY_CHANGE, differences

    # Of the settings that may change, only the length of training and the search are compared.
    ignore = [key for key in MAY_CHANGE if key not in ("train.max_steps", "decode.")]
    ignore += ["train.seed", "decode.seed", "decode.batch_tokens"]
    groups: list[list[int]] = []
    for place, run in enumerate(runs):
        for group in groups:
            first = runs[group[0]]
            seeds = [runs[other].config.train.seed for other in group]
            if (
                run.config.train.seed not in seeds
                and first.data_fingerprint == run.data_fingerprint
                and not differences(first.config, run.config, ignore=ignore)
            ):
                group.append(place)
                break
        else:
            groups.append([place])
    return [group for group in groups if len(group) > 1]


def _print_sentence_scores(
    system: System,
    references: Sequence[Sequence[str]],
    metrics: Sequence[Metric],
    tgt_lang: str | None,
    *,
    worst_first: bool,
    as_json: bool,
) -> None:
    """Print the scores of each sentence, and the signatures as notes."""
    from mtkit.cli import tables
    from mtkit.score import sentence_scores

    by_metric = [
        sentence_scores(system.translations, references, metric=metric, tgt_lang=tgt_lang)
        for metric in metrics
    ]
    for scores in by_metric:
        log.info("%s %s", scores[0].name, scores[0].signature)
    print_text(
        tables.sentences(system, references, by_metric, worst_first=worst_first, as_json=as_json)
    )


def _print_alignment_scores(
    hypotheses: tuple[Path, ...],
    references: tuple[Path, ...],
    *,
    swap_links: bool,
    as_json: bool,
) -> None:
    """Compare word alignments with a gold alignment, and print the scores."""
    from mtkit.cli import tables
    from mtkit.score import refuse_unequal
    from mtkit.word_alignment import alignment_score, parse_gold, parse_links, swapped

    refuse_given([*TEXT_SCORES, *TRANSLATING], "cannot be combined with --align")
    if not hypotheses or len(references) != 1:
        raise click.UsageError("--align requires HYP, a file of links, and one --reference")
    refuse_stdin_twice([*hypotheses, *references])
    (path,) = references
    wanted = list(lines_of(path))
    golds = [
        parse_gold(line, place=f"{name_of(path)}, line {number}")
        for number, line in enumerate(wanted, start=1)
    ]
    if not any(gold.sure for gold in golds):
        raise MtkitError(f"{name_of(path)}: has no sure link (i-j), so nothing can be scored")
    scores = []
    for file in hypotheses:
        lines = list(lines_of(file))
        refuse_unequal(name_of(file), lines, name_of(path), wanted)
        links = [
            parse_links(line, place=f"{name_of(file)}, line {number}")
            for number, line in enumerate(lines, start=1)
        ]
        scores.append(alignment_score(list(map(swapped, links)) if swap_links else links, golds))
    names = [one_line(str(file)) for file in hypotheses]
    print_text(tables.alignment_scores(names, scores, as_json=as_json, width=width()))


def _print_log_probabilities(
    hypotheses: tuple[Path, ...],
    run_paths: tuple[Path, ...],
    src_path: Path,
    hyp_path: Path,
    options: DecodeOptions,
    as_json: bool,
) -> None:
    """Force-decode given translations, and print their log-probabilities."""
    from mtkit.cli import tables
    from mtkit.score import refuse_unequal

    refuse_given(SCORING, "cannot be combined with --model-score")
    if hypotheses or len(run_paths) > 1:
        raise click.UsageError("--model-score requires one --run at most, and no HYP: use --hyp")
    refuse_stdin_twice([src_path, hyp_path])
    run = open_run(run_paths[0] if run_paths else None)
    sources, translations = list(lines_of(src_path)), list(lines_of(hyp_path))
    refuse_unequal(str(hyp_path), translations, str(src_path), sources)
    translator = options.load([run], workers=1)
    print_text(tables.model_scores(translator.score_given(sources, translations), as_json=as_json))


# ---------------------------------------------------------------------------------------------
# What is scored


def _systems_of_files(
    hypotheses: tuple[Path, ...], references: tuple[Path, ...]
) -> tuple[list[System], list[list[str]]]:
    """The translations in files, and the references; all of the same number of lines."""
    from mtkit.score import System, refuse_unequal

    if not references:
        raise click.UsageError("HYP requires at least one --reference")
    refuse_stdin_twice([*hypotheses, *references])
    systems = [System(str(path), list(lines_of(path))) for path in hypotheses]
    reference_sets = [list(lines_of(path)) for path in references]
    for system in systems:
        for path, lines in zip(references, reference_sets, strict=True):
            refuse_unequal(system.name, system.translations, str(path), lines)
    return systems, reference_sets


def _systems_of_runs(
    runs: list[Run], data_path: Path | None, split: Split, options: DecodeOptions
) -> tuple[list[System], list[list[str]]]:
    """The translations of every run, and the references; all of the same text."""
    from mtkit.score import System

    src, tgt = _common_text(runs, data_path, split)
    systems = []
    for run in runs:
        texts = [best.text for best in options.translations(run, src)]
        systems.append(System(str(run.path), texts))
    return systems, [tgt]


def _trees_of_runs(
    runs: list[Run], data_path: Path | None, split: Split, options: DecodeOptions
) -> tuple[list[TreeSystem], list[Tree]]:
    """The trees of every run, and the gold trees; all of the same sentences."""
    from mtkit.trees import parse_trees

    src, tgt = _common_text(runs, data_path, split)
    golds = list(parse_trees(tgt, name=f"{split} trees"))
    return [system_of_run(run, src, options) for run in runs], golds


def _common_text(
    runs: list[Run], data_path: Path | None, split: Split
) -> tuple[list[str], list[str]]:
    """The text of both sides that all runs are scored on."""
    texts = []
    for run in runs:
        data = _data_of(run, data_path)
        if data.task != run.manifest.data.task:
            raise MtkitError(
                f"{data.path}: is data for {data.task}, and {run.path} is for "
                f"{run.manifest.data.task}; give another --data"
            )
        texts.append(data.text(split))
        if texts[-1] != texts[0]:
            raise MtkitError(
                f"{run.path} was trained on data with another {split} text than {runs[0].path}, so"
                " their scores cannot be compared; give --data to translate the same text with all"
            )
    return texts[0]


def _data_of(run: Run, path: Path | None) -> PreparedData:
    """The data at a path, or else the data that a run was trained on, unchanged since then."""
    from mtkit.data import PreparedData

    if path is not None:
        return PreparedData.open(path)
    if run.manifest.imported is not None:
        raise MtkitError(
            f"{run.path}: was imported, so it has no test set; give --data, or HYP and --reference"
        )
    try:
        data = PreparedData.open(run.data_path)
    except MtkitError as error:
        raise MtkitError(
            f"the test set of {run.path} is missing ({error}); give --data, or HYP and --reference"
        ) from error
    if data.fingerprint != run.data_fingerprint:
        raise MtkitError(
            f"{data.path}: was prepared anew after {run.path} was trained on it; "
            "give --data to score on it nevertheless"
        )
    return data
