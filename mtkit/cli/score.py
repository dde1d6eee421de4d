"""The command `mtkit score`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from mtkit.base.errors import MtkitError, one_line
from mtkit.cli import options as shared
from mtkit.cli import score_systems
from mtkit.cli.console import print_text
from mtkit.cli.score_systems import ScoreOptions

log = logging.getLogger(__name__)

metric_option = shared.option_group("Metrics")
analysis_option = shared.option_group("Comparison and analysis")
alignment_option = shared.option_group("Word alignments")
force_decoding_option = shared.option_group("Log-probability of given translations")

# Options about a run that translates, but for --device, which does no harm.
TRANSLATING = (
    *("run_paths", "data_path", "split", "checkpoint", "beam_size", "length_penalty", "src_lang"),
    *("batch_tokens", "engine", "precision", "workers", "well_formed_trees", "split_sentences"),
)
# Options about scores of texts.
TEXT_SCORES = (
    *("data_path", "split", "test_set", "metrics", "protocol", "lowercase", "segment_scores"),
    *("lower_is_better", "paired", "sentence", "worst_first"),
)
# Options about texts that trees have no use for.
TEXTS_ONLY = (
    *("test_set", "protocol", "lowercase", "segment_scores", "lower_is_better"),
    *("src_lang", "tgt_lang", "split_sentences"),
)


@shared.command(
    "Score translations with BLEU, chrF or TER.",
    "mtkit score",
    "mtkit score output.de --reference test.de --metric bleu --metric chrf",
    "mtkit score output.de other.de --reference test.de --paired",
    "mtkit score output.de --reference test.de --segment-scores COMET=comet.txt",
    "mtkit score output.trees --reference gold.trees --metric parseval",
    "mtkit score --align links.txt --reference gold.txt",
    "mtkit score --model-score --run runs/mine --src test.en --hyp output.de",
)
@click.argument("hypotheses", metavar="[HYP]...", nargs=-1, type=shared.PathArgument)
@shared.references_option
@shared.in_out_option(
    "--data FOLDER",
    "data_path",
    help="Prepared folder with the test set. Default: the one that the run was trained on.",
)
@shared.in_out_option(
    "--split [test|valid]",
    default="test",
    help="Translate and score the test set (default) or the validation set.",
)
@shared.test_set_option
@shared.in_out_option("--json", "as_json", help="Print JSON.")
@metric_option(
    "--metric [bleu|chrf|chrf++|ter|parseval]",
    "metrics",
    multiple=True,
    help="Metric. Repeatable. Default: bleu. parseval, the default for a parser: precision, recall"
    " and F1 of the brackets of trees, by the rules of evalb.",
)
@metric_option(
    "--protocol [wmt|paper]",
    default="wmt",
    help="wmt (default): detokenised BLEU. paper: also the BLEU of the paper, with Moses"
    " tokenisation and split compounds.",
)
@metric_option("--lowercase", help="Ignore upper and lower case. TER always does.")
@shared.segment_score_options(metric_option)
@metric_option(
    "--tgt-lang L",
    help="Language code of HYP, for --protocol paper. Of a model with several languages: score only"
    " this target language.",
)
@metric_option(
    "--src-lang L", help="Of a model with several languages: score only this source language."
)
@analysis_option(
    "--paired",
    help="Test the difference of each system from the first: 95 % confidence intervals, and"
    " p-values of paired bootstrap resampling and approximate randomisation.",
)
@analysis_option(
    "--sentence",
    help="Print sentence-level scores: line number, scores, translation and reference,"
    " tab-separated.",
)
@analysis_option("--worst-first", help="Sort --sentence by the first metric, worst score first.")
@alignment_option(
    "--align",
    help="HYP has word alignments, and --reference gold alignments: print the alignment error rate"
    " (AER), precision and recall, in percent.",
)
@alignment_option("--swap-links", help="With --align: exchange source and target of HYP.")
@alignment_option("--one-based", help="With --align: --reference counts words from 1, not from 0.")
@force_decoding_option(
    "--model-score",
    help="Print log P(hyp given src) for each line of --src and --hyp: line number,"
    " log-probability, and score (with the length penalty), tab-separated. With --json, also of"
    " each token.",
)
@force_decoding_option("--src FILE", "src_path", help="Source text.")
@force_decoding_option("--hyp FILE", "hyp_path", help="Translations of --src.")
@shared.model_option(
    "--run FOLDER",
    "run_paths",
    multiple=True,
    help="Run folder. Repeatable, to compare runs. Default: the newest under runs/.",
)
@shared.checkpoint_option
@shared.beam_options
@shared.search_option(
    "--split-sentences/--no-split-sentences",
    default=None,
    help="Translate the sentences of a line one by one. Default: each line as a whole, as"
    " published scores are.",
)
@shared.well_formed_option
@shared.hardware_options
def score(
    align: bool,
    swap_links: bool,
    one_based: bool,
    model_score: bool,
    src_path: Path | None,
    hyp_path: Path | None,
    **values: Any,
) -> None:
    """Score translations with sacreBLEU, and print each score with its signature.

    \b
    mtkit score [--run RUN]...          translate the test set, and score it
      with --test-set NAME              ... a test set of sacreBLEU
    mtkit score HYP --reference FILE    score a file of detokenised translations
      with --metric parseval            ... of trees
      with --align                      ... of word alignments
    mtkit score --model-score           print log P(hyp given src) of two files

    Several HYP or --run give a table. For runs that differ only in their seed, it also has the
    mean and standard deviation. HYP may be -, standard input. A run of several languages has a
    score for each direction, and a parser has those of trees.
    """
    options = ScoreOptions.parse(**values)
    if shared.given("model_score", "src_path", "hyp_path"):
        if not (model_score and src_path and hyp_path):
            raise click.UsageError("--model-score, --src and --hyp require each other")
        _print_log_probabilities(src_path, hyp_path, options)
        return
    if align:
        _print_alignment_scores(options, swap_links=swap_links, one_based=one_based)
        return
    shared.refuse_given(["swap_links", "one_based"], "requires --align")
    if not options.sentence:
        shared.refuse_given(["worst_first"], "requires --sentence")
    if options.hypotheses:
        shared.refuse_given(TRANSLATING, "cannot be combined with HYP, which is translated already")
        _check_number(options.hypotheses, options)
        if "parseval" in options.metrics:
            _check_trees(options)
            score_systems.score_tree_files(options)
            return
        if options.protocol != "paper" or not options.tgt_lang:
            shared.refuse_given(["tgt_lang"], "requires --protocol paper, and a language code")
        if options.test_set is not None:
            shared.refuse_given(["references"], "cannot be combined with --test-set")
        score_systems.score_files(options)
        return
    shared.refuse_given(["references"], "requires HYP, the translations to score")
    runs = [shared.open_run(path) for path in options.run_paths or (None,)]
    _check_number(runs, options)
    paths = {run.manifest.data.task: run.path for run in runs}
    if len(paths) > 1:
        raise MtkitError(
            f"cannot compare a parser ({paths['parsing']}) with a translation model "
            f"({paths['translation']})"
        )
    if "parsing" in paths:
        _check_trees(options)
        score_systems.score_parsers(runs, options)
        return
    if options.test_set is not None:
        shared.refuse_given(["data_path", "split"], "cannot be combined with --test-set")
    if "parseval" in options.metrics:
        raise click.UsageError(f"--metric parseval requires a parser, unlike {runs[0].path}")
    shared.refuse_given(["well_formed_trees"], "requires a parser")
    if options.data_path is None and not any(map(score_systems.is_multilingual, runs)):
        unlike = f"a model with several languages, unlike {runs[0].path}"
        shared.refuse_given(["src_lang"], f"requires {unlike}")
        if options.protocol != "paper":
            shared.refuse_given(["tgt_lang"], f"requires --protocol paper, or {unlike}")
    score_systems.score_runs(runs, options)


def _check_number(systems: Sequence[object], options: ScoreOptions) -> None:
    if len(systems) < 2:
        shared.refuse_given(["paired"], "requires two or more HYP or --run")
    if options.paired or len(systems) > 1:
        shared.refuse_given(
            ["sentence"], "requires one system, and cannot be combined with --paired"
        )


def _check_trees(options: ScoreOptions) -> None:
    shared.refuse_given(TEXTS_ONLY, "is for translations, and cannot be combined with trees")
    for metric in options.metrics:
        if metric != "parseval":
            raise click.UsageError(f"--metric {metric} is for translations, not for trees")


def _print_alignment_scores(options: ScoreOptions, *, swap_links: bool, one_based: bool) -> None:
    """Compare word alignments with a gold alignment, and print the scores."""
    from mtkit.align import alignment_score, index_doubt, parse_links, read_golds, swapped
    from mtkit.cli import tables
    from mtkit.score import refuse_unequal

    shared.refuse_given([*TEXT_SCORES, *TRANSLATING, "tgt_lang"], "cannot be combined with --align")
    if not options.hypotheses or len(options.references) != 1:
        raise click.UsageError("--align requires HYP, a file of links, and one --reference")
    shared.refuse_stdin_twice([*options.hypotheses, *options.references])
    gold_name = shared.name_of(options.references[0])
    gold_lines = list(shared.lines_of(options.references[0]))
    golds = read_golds(gold_lines, name=gold_name, first=int(one_based))
    gold_doubt = "" if one_based else index_doubt(gold_lines)
    if not any(gold.sure for gold in golds):
        raise MtkitError(f"{gold_name}: has no sure link (i-j), so nothing can be scored")
    scores, warnings = [], {}
    for path in options.hypotheses:
        name, lines = shared.name_of(path), list(shared.lines_of(path))
        refuse_unequal(name, lines, gold_name, gold_lines)
        links = [
            parse_links(line, place=f"{name}, line {number}")
            for number, line in enumerate(lines, start=1)
        ]
        doubt = index_doubt(lines)
        # If both texts count from 1, the scores are right.
        if doubt and not gold_doubt:
            warnings[name] = f"{doubt}; if so, subtract 1 from each index"
        elif gold_doubt and not doubt:
            warnings[gold_name] = f"{gold_doubt}; if so, give --one-based"
        scores.append(alignment_score(list(map(swapped, links)) if swap_links else links, golds))
    for warning in warnings.items():
        log.warning("%s: %s", *warning)
    names = [one_line(str(path)) for path in options.hypotheses]
    print_text(tables.alignment_scores(names, scores, as_json=options.as_json))


def _print_log_probabilities(src_path: Path, hyp_path: Path, options: ScoreOptions) -> None:
    """Force-decode given translations, and print their log-probabilities."""
    from mtkit.cli import tables
    from mtkit.score import refuse_unequal

    others = (*TEXT_SCORES, "references", "workers", "align", "swap_links", "one_based")
    shared.refuse_given(others, "cannot be combined with --model-score")
    if options.hypotheses or len(options.run_paths) > 1:
        raise click.UsageError("--model-score takes at most one --run, and --hyp instead of HYP")
    shared.refuse_stdin_twice([src_path, hyp_path])
    run = shared.open_run(options.run_paths[0] if options.run_paths else None)
    sources, translations = list(shared.lines_of(src_path)), list(shared.lines_of(hyp_path))
    refuse_unequal(shared.name_of(hyp_path), translations, shared.name_of(src_path), sources)
    decode = replace(
        options.decode,
        workers=1,
        changes={**options.decode.changes, "engine": "torch"},
        src_lang=options.src_lang,
        tgt_lang=options.tgt_lang,
    )
    scored = decode.load([run]).score_given(sources, translations)
    print_text(tables.model_scores(scored, as_json=options.as_json))
