"""The command `mtkit score`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from mtkit.base.errors import MtkitError, one_line
from mtkit.cli.console import print_text, width
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
    split_option,
    well_formed_option,
)
from mtkit.cli.score_trees import (
    TreeSystem,
    print_sentence_scores,
    print_tree_scores,
    system_of_run,
    systems_of_files,
)

if TYPE_CHECKING:
    from mtkit.data import PreparedData
    from mtkit.parsing import Tree
    from mtkit.run_folder import Run
    from mtkit.score import Metric, Score, System

log = logging.getLogger(__name__)

HeldOut = Literal["valid", "test"]

metric_option = option_group("Metrics")
analysis_option = option_group("Comparison and analysis")
alignment_option = option_group("Word alignments")
force_decoding_option = option_group("Log-probability of given translations")

# Options about a run that translates, but for --device, which does no harm.
TRANSLATING = (
    *("run_paths", "data_path", "split", "checkpoint", "beam_size", "length_penalty"),
    *("batch_tokens", "precision", "workers", "well_formed_trees", "split_sentences"),
)
# Options about scores of translations.
TEXT_SCORES = (
    *("data_path", "split", "metrics", "protocol", "src_lang", "tgt_lang"),
    *("paired", "sentence", "worst_first"),
)
# Options about scores, which --model-score does not compute.
SCORING = (
    *("references", "workers", "align", "swap_links"),
    *(name for name in TEXT_SCORES if name not in ("src_lang", "tgt_lang")),
)


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
@metric_option(
    "--tgt-lang",
    metavar="L",
    help="Language code of HYP, for --protocol paper. Of a model with several languages: score only"
    " this target language.",
)
@metric_option(
    "--src-lang",
    metavar="L",
    help="Of a model with several languages: score only this source language.",
)
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
@split_option
@well_formed_option
@hardware_options
def score(
    hypotheses: tuple[Path, ...],
    references: tuple[Path, ...],
    run_paths: tuple[Path, ...],
    data_path: Path | None,
    split: HeldOut,
    metrics: tuple[Metric | Literal["parseval"], ...],
    protocol: str,
    tgt_lang: str | None,
    src_lang: str | None,
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
    scored; with several languages, those of each direction. HYP is a file of detokenised
    translations, scored against --reference; - is standard input.

    The scores of trees are labelled precision, recall, F1 and exact match.

    Several files or several runs give a table. For runs that differ only in their seed, the table
    also has the mean and standard deviation.
    """
    options = DecodeOptions.parse(**decode)
    if given("model_score", "src_path", "hyp_path"):
        if not (model_score and src_path and hyp_path):
            raise click.UsageError("--model-score, --src and --hyp require each other")
        options = replace(options, src_lang=src_lang, tgt_lang=tgt_lang)
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
    if hypotheses:
        refuse_given(["src_lang"], "cannot be combined with HYP, which is translated already")
        if protocol != "paper" or not tgt_lang:
            refuse_given(["tgt_lang"], "requires --protocol paper, and a language code")
    runs = [] if hypotheses else [open_run(path) for path in run_paths or (None,)]
    if runs and data_path is None and not any(map(_is_multilingual, runs)):
        unlike = f"a model with several languages, unlike {runs[0].path}"
        refuse_given(["src_lang"], f"requires {unlike}")
        if protocol != "paper":
            refuse_given(["tgt_lang"], f"requires --protocol paper, or {unlike}")
    if len(hypotheses or runs) < 2:
        refuse_given(["paired"], "requires two or more HYP or --run")
    if paired or len(hypotheses or runs) > 1:
        refuse_given(["sentence"], "requires one system, and cannot be combined with --paired")
    if _are_trees(runs, metrics):
        of_translations = ["protocol", "src_lang", "tgt_lang", "split_sentences"]
        refuse_given(of_translations, "is for translations, and cannot be combined with trees")
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
    if protocol == "paper" and tgt_lang is None and not (runs and runs[0].manifest.data.tgt_lang):
        raise click.UsageError("--protocol paper requires --tgt-lang, for its tokeniser")
    from mtkit import score as scoring

    if paired:
        # Before anything is translated.
        scoring.check_seed()
    if runs:
        compared = _systems_of_runs(runs, data_path, split, options, src_lang, tgt_lang)
        if sentence and len(compared) > 1:
            directions = ", ".join(one.direction for one in compared)
            raise click.UsageError(
                f"--sentence requires one direction, not {directions}: give --src-lang and "
                "--tgt-lang"
            )
    else:
        compared = [_systems_of_files(hypotheses, references, tgt_lang)]
    wanted = [metric for metric in dict.fromkeys(metrics) if metric != "parseval"] or ["bleu"]
    if protocol == "paper":
        # Both kinds of BLEU come first.
        wanted = ["bleu", "paper", *(metric for metric in wanted if metric != "bleu")]
        log.info("%s", scoring.PAPER_NOTE)
    if "bleu" in wanted:
        for one in compared:
            for system in one.systems:
                scoring.note_tokenised(system.name, system.translations)
    if sentence:
        _print_sentence_scores(compared[0], wanted, worst_first=worst_first, as_json=as_json)
    else:
        _print_scores(compared, wanted, runs=runs, paired=paired, as_json=as_json)


@dataclass(frozen=True)
class _Compared:
    """Translations of one text by all systems.

    Attributes:
        direction: its name, where there are several; otherwise empty.
        systems: the translations.
        references: the reference translations.
        tgt_lang: of both, if it is known.
    """

    direction: str
    systems: Sequence[System]
    references: Sequence[Sequence[str]]
    tgt_lang: str | None


def _is_multilingual(run: Run) -> bool:
    """Whether the sources of a run begin with the tag of a language."""
    return bool(run.tokenizers().src.language_tags)


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
    compared: Sequence[_Compared],
    metrics: Sequence[Metric],
    *,
    runs: Sequence[Run],
    paired: bool,
    as_json: bool,
) -> None:
    """Print the scores of whole texts, with tests of the differences if `paired`."""
    from mtkit.cli import tables
    from mtkit.score import note_twins

    groups = _seed_groups(runs)
    printed = {}
    for one in compared:
        if paired:
            note_twins(one.systems)
        names = [one_line(system.name) for system in one.systems]
        by_metric = [_scores(one, metric, paired=paired) for metric in metrics]
        printed[one.direction] = tables.scores(
            names, by_metric, groups, as_json=as_json, width=width()
        )
    if len(compared) > 1:
        print_text(tables.by_direction(printed, as_json=as_json))
    else:
        print_text(printed[compared[0].direction])


def _scores(compared: _Compared, metric: Metric, *, paired: bool) -> list[Score]:
    """The score of each system by a metric."""
    from mtkit.score import compare
    from mtkit.score import score as corpus_score

    references, tgt_lang = compared.references, compared.tgt_lang
    if paired:
        return compare(compared.systems, references, metric=metric, tgt_lang=tgt_lang)
    return [
        corpus_score(system.translations, references, metric=metric, tgt_lang=tgt_lang)
        for system in compared.systems
    ]


def _seed_groups(runs: Sequence[Run]) -> list[list[int]]:
    """Groups of runs with the same configuration and data but different seeds.

    Returns:
        The indices in `runs` of each group of two or more.
    """
    from mtkit.config import MAY_CHANGE, differences

    # Of the settings that may change, only the length of training and the search are compared.
    compared = ("train.max_steps", "train.finish_", "decode.")
    ignore = [key for key in MAY_CHANGE if not key.startswith(compared)]
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
    compared: _Compared, metrics: Sequence[Metric], *, worst_first: bool, as_json: bool
) -> None:
    """Print the scores of each sentence, and the signatures as notes."""
    from mtkit.cli import tables
    from mtkit.score import sentence_scores

    (system, *_), references = compared.systems, compared.references
    by_metric = [
        sentence_scores(system.translations, references, metric=metric, tgt_lang=compared.tgt_lang)
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
    from mtkit.align import alignment_score, parse_gold, parse_links, swapped
    from mtkit.cli import tables
    from mtkit.score import refuse_unequal

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
    hypotheses: tuple[Path, ...], references: tuple[Path, ...], tgt_lang: str | None
) -> _Compared:
    """The translations in files, and the references; all of the same number of lines."""
    from mtkit.score import System, refuse_unequal

    if not references:
        raise click.UsageError("HYP requires at least one --reference")
    refuse_stdin_twice([*hypotheses, *references])
    systems = [System(str(path), list(lines_of(path, keeps_mark=True))) for path in hypotheses]
    reference_sets = [list(lines_of(path, keeps_mark=True)) for path in references]
    for system in systems:
        for path, lines in zip(references, reference_sets, strict=True):
            refuse_unequal(system.name, system.translations, str(path), lines)
    return _Compared("", systems, reference_sets, tgt_lang)


def _systems_of_runs(
    runs: list[Run],
    data_path: Path | None,
    split: HeldOut,
    options: DecodeOptions,
    src_lang: str | None,
    tgt_lang: str | None,
) -> list[_Compared]:
    """The translations of every run, and the references, for each direction of their data."""
    from mtkit.score import System

    found = []
    for text in _common_texts(runs, data_path, split, src_lang, tgt_lang):
        _note_several(text, options)
        systems = []
        for run in runs:
            # A bilingual model is not asked for languages, because they may be codes of regions.
            languages: dict[str, Any] = {}
            if text.name or _is_multilingual(run):
                languages = {"src_lang": text.src_lang or None, "tgt_lang": text.tgt_lang or None}
            translations = replace(options, **languages).translations(run, text.src)
            systems.append(System(str(run.path), [best.text for best in translations]))
        found.append(_Compared(text.name, systems, [text.tgt], tgt_lang or text.tgt_lang or None))
    return found


def _note_several(text: _Text, options: DecodeOptions) -> None:
    """Say how many lines have several sentences, and how they are translated."""
    from mtkit.base.sentences import split as sentences_of

    if several := sum(len(sentences_of(line, text.src_lang)) > 1 for line in text.src):
        log.info(
            "%s of %s source lines have several sentences%s",
            f"{several:,}",
            f"{len(text.src):,}",
            ""
            if options.changes.get("split_sentences")
            else "; they are translated whole (--split-sentences: one by one)",
        )


def _trees_of_runs(
    runs: list[Run], data_path: Path | None, split: HeldOut, options: DecodeOptions
) -> tuple[list[TreeSystem], list[Tree]]:
    """The trees of every run, and the gold trees; all of the same sentences."""
    from mtkit.parsing import parse_trees

    ((_, _, src, tgt, _),) = _common_texts(runs, data_path, split)
    golds = list(parse_trees(tgt, name=f"{split} trees"))
    return [system_of_run(run, src, options) for run in runs], golds


class _Text(NamedTuple):
    """The text of a direction; its name is empty if the data has only one."""

    src_lang: str
    tgt_lang: str
    src: list[str]
    tgt: list[str]
    name: str


def _common_texts(
    runs: list[Run],
    data_path: Path | None,
    split: HeldOut,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
) -> list[_Text]:
    """The text of both sides that all runs are scored on, for each direction that is wanted."""
    texts: list[list[_Text]] = []
    for run in runs:
        data = _data_of(run, data_path)
        if data.task != run.manifest.data.task:
            raise MtkitError(
                f"{data.path}: is data for {data.task}, and {run.path} is for "
                f"{run.manifest.data.task}; give another --data"
            )
        found = [
            _Text(*text, f"{text.src_lang}-{text.tgt_lang}" if data.directions else "")
            for text in data.texts(split)
        ]
        if data.directions:
            names = [
                one.name
                for one in data.directions
                if src_lang in (None, one.src_lang) and tgt_lang in (None, one.tgt_lang)
            ]
            wanted = [one for one in found if one.name in names]
            if not wanted:
                raise MtkitError(
                    f"{data.path}: has no {split} set of this direction, but of "
                    f"{', '.join(one.name for one in found)}"
                )
            there = [one.name for one in wanted]
            lacking = [name for name in names if name not in there]
            if lacking and not texts:
                log.info(
                    "%s: has no %s set of %s; %s not scored",
                    data.path,
                    split,
                    ", ".join(lacking),
                    "this direction is" if len(lacking) == 1 else "these directions are",
                )
            found = wanted
        elif src_lang is not None or tgt_lang is not None:
            found = [
                one._replace(src_lang=src_lang or one.src_lang, tgt_lang=tgt_lang or one.tgt_lang)
                for one in found
            ]
        texts.append(found)
        if [text[2:4] for text in texts[-1]] != [text[2:4] for text in texts[0]]:
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
