"""The command `mtkit score`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtkit.base.errors import MtkitError, in_words, one_line
from mtkit.cli import options as shared
from mtkit.cli import scored_texts
from mtkit.cli.console import print_text
from mtkit.cli.scored_texts import TextChoice

if TYPE_CHECKING:
    from mtkit.run_folder import Run
    from mtkit.score import Metric, Score, ScoredText, SegmentMetric, System, TextMetric

log = logging.getLogger(__name__)

metric_option = shared.option_group("Metrics")
analysis_option = shared.option_group("Comparison and analysis")

# Above this share of lines that are nearly in the training text, the score is said without them.
_MUCH_NEAR = 0.01


@dataclass(frozen=True)
class _Scores:
    """Which scores are computed and printed; the values of options, by their names."""

    metrics: tuple[Metric, ...]
    protocol: str
    lowercase: bool
    segment_scores: tuple[tuple[str, Path], ...]
    lower_is_better: tuple[str, ...]
    paired: bool
    sentence: bool
    no_interval: bool
    as_json: bool

    @property
    def has_intervals(self) -> bool:
        return not (self.no_interval or self.sentence)

    def of_lines(self, systems: Sequence[tuple[str, int]]) -> list[SegmentMetric]:
        """The scores from outside, of systems given by name and number of lines."""
        given = self.segment_scores
        return scored_texts.segment_metrics(given, systems, lower_is_better=self.lower_is_better)


@shared.command(
    "Score translations with BLEU, chrF or TER.",
    "mtkit score",
    "mtkit score output.de --reference test.de --metric bleu --metric chrf",
    "mtkit score output.de other.de --reference test.de --paired",
    "mtkit score output.de --reference test.de --segment-scores COMET=comet.txt",
)
@click.argument("hypotheses", metavar="[HYP]...", nargs=-1, type=shared.PathArgument)
@shared.references_option
@shared.data_text_options
@shared.test_set_option
@shared.json_option
@metric_option(
    "--metric [bleu|chrf|chrf++|ter]",
    "metrics",
    multiple=True,
    help="Metric. Repeatable. Default: bleu.",
)
@metric_option(
    "--protocol [wmt|paper]",
    default="wmt",
    help="wmt (default): detokenised BLEU. paper: also the BLEU of the paper, with Moses"
    " tokenisation and split compounds.",
)
@metric_option("--lowercase", help="Ignore upper and lower case. TER always does.")
@metric_option(
    "--no-interval", help="Leave out the 95 % intervals, by bootstrap resampling, of the scores."
)
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
    " p-values of paired bootstrap resampling and of approximate randomisation.",
)
@analysis_option(
    "--sentence",
    help="Print sentence-level scores: line number, scores, output and reference, tab-separated.",
)
@shared.scored_runs_option
@shared.checkpoint_option
@shared.beam_options
@shared.whole_lines_option
@shared.hardware_options
def score(
    hypotheses: tuple[Path, ...],
    references: tuple[Path, ...],
    run_paths: tuple[Path, ...],
    **values: Any,
) -> None:
    """Score translations with sacreBLEU, and print each score with its signature.

    \b
    mtkit score [--run RUN]...          translate the test set, and score it
    mtkit score HYP --reference FILE    score a file of detokenised translations
      with --test-set NAME              ... on a test set of sacreBLEU

    Several HYP or --run give a table. For runs that differ only in their seed, it also has the
    mean and standard deviation. HYP may be -, standard input. A run of several languages has a
    score for each direction. mtkit score-trees is for parsers.
    """
    scores = _Scores(**{field.name: values.pop(field.name) for field in fields(_Scores)})
    if scores.paired or scores.sentence:
        shared.refuse_given(["no_interval"], "cannot be combined with --paired or --sentence")
    if len(hypotheses or run_paths) < 2:
        shared.refuse_given(["paired"], "requires two or more files or --run")
    else:
        shared.refuse_given(
            ["sentence"], "requires one system, and cannot be combined with --paired"
        )
    choice = TextChoice.taken_from(values)
    decode = shared.DecodeOptions.parse(**values)
    if hypotheses:
        _score_files(hypotheses, references, choice, scores)
        return
    shared.refuse_given(["references"], "requires HYP, the translations to score")
    runs = [shared.open_run(path) for path in run_paths or (None,)]
    for run in runs:
        if run.manifest.data.task == "parsing":
            raise MtkitError(f"{run.path}: is a parser, which mtkit score-trees scores")
    if choice.test_set is not None:
        shared.refuse_given(["data_path", "split"], "cannot be combined with --test-set")
    elif choice.data_path is None and not any(map(scored_texts.is_multilingual, runs)):
        unlike = f"a model with several languages, unlike {runs[0].path}"
        shared.refuse_given(["src_lang"], f"requires {unlike}")
        if scores.protocol != "paper":
            shared.refuse_given(["tgt_lang"], f"requires --protocol paper, or {unlike}")
    _score_runs(runs, choice, scores, decode)


def _score_files(
    paths: Sequence[Path], references: Sequence[Path], choice: TextChoice, scores: _Scores
) -> None:
    from mtkit.base.language_id import check_languages
    from mtkit.check import note_wrong_files
    from mtkit.score import ScoredText, System, refuse_unequal

    check_languages(None, choice.tgt_lang)
    shared.refuse_given(
        [*scored_texts.TRANSLATING, "src_lang"],
        "cannot be combined with HYP, which is translated already",
    )
    is_paper = scores.protocol == "paper"
    if not (is_paper and choice.tgt_lang):
        why = "requires --protocol paper: no other score of HYP depends on the language"
        shared.refuse_given(["tgt_lang"], why)
    if choice.test_set is not None:
        shared.refuse_given(["references"], "cannot be combined with --test-set")
    elif not references and (scores.metrics or is_paper or not scores.segment_scores):
        raise click.UsageError("HYP requires at least one --reference, or --test-set")
    shared.refuse_stdin_twice([*paths, *references, *(path for _, path in scores.segment_scores)])
    text = ScoredText("", choice.tgt_lang or "", [], [])
    names = [*map(shared.name_of, references)]
    if choice.test_set is not None:
        (text,) = scored_texts.texts_of([], choice).values()
        text = text._replace(tgt_lang=choice.tgt_lang or text.tgt_lang)
        names = [choice.test_set] * len(text.references)
    _check(scores, text.tgt_lang)
    systems = [System(str(path), list(shared.lines_of(path, keeps_mark=True))) for path in paths]
    text.references.extend(list(shared.lines_of(path, keeps_mark=True)) for path in references)
    for path, (_, lines) in zip(paths, systems, strict=True):
        for name, reference in zip(names, text.references, strict=True):
            refuse_unequal(shared.name_of(path), lines, name, reference)
            if not lines:
                raise MtkitError(f"{shared.name_of(path)} and {name} are empty: nothing to score")
    named = [(shared.name_of(path), lines) for path, (_, lines) in zip(paths, systems, strict=True)]
    note_wrong_files(named, list(zip(names, text.references, strict=True)))
    sizes = [(name, len(lines)) for name, lines in named]
    _print({"": (text, systems)}, scores.of_lines(sizes), scores)


def _score_runs(
    runs: Sequence[Run], choice: TextChoice, scores: _Scores, decode: shared.DecodeOptions
) -> None:
    """Translate the text with each run, and print the scores, for each direction."""
    from mtkit.base.sentences import split as sentences_of
    from mtkit.score import System

    _check(scores, choice.tgt_lang or runs[0].manifest.data.tgt_lang)
    texts = scored_texts.texts_of(runs, choice)
    for option in shared.given("sentence", "segment_scores") if len(texts) > 1 else ():
        raise click.UsageError(
            f"{option} requires one direction, not {', '.join(texts)}: give --src-lang and "
            "--tgt-lang"
        )
    size = len(next(iter(texts.values())).src)
    outside = scores.of_lines([(str(run.path), size) for run in runs])
    whole = "; they are translated whole (--split-sentences: one by one)"
    translated = {}
    for name, text in texts.items():
        if several := sum(len(sentences_of(line, text.src_lang)) > 1 for line in text.src):
            log.info(
                "%s of %s %s several sentences%s",
                f"{several:,}",
                in_words(len(text.src), "source line"),
                "has" if several == 1 else "have",
                "" if decode.changes.get("split_sentences") else whole,
            )
        systems = []
        for run in runs:
            best = scored_texts.translated(run, text, decode, has_directions=bool(name))
            systems.append(System(str(run.path), [translation.text for translation in best]))
        translated[name] = text, systems
    _print(translated, outside, scores, _seed_groups(runs))


def _check(scores: _Scores, tgt_lang: str | None) -> None:
    """Refuse what cannot be scored, before anything is translated."""
    from mtkit.score import check_seed

    if scores.protocol == "paper" and not tgt_lang:
        raise click.UsageError("--protocol paper requires --tgt-lang, for its tokeniser")
    if scores.has_intervals:
        check_seed()


def _print(
    translated: Mapping[str, tuple[ScoredText, Sequence[System]]],
    outside: Sequence[SegmentMetric],
    scores: _Scores,
    groups: Sequence[Sequence[int]] = (),
) -> None:
    """Print the scores of each direction, or of the sentences of the only one."""
    from mtkit import score
    from mtkit.cli import tables

    metrics: list[Metric] = [*dict.fromkeys(scores.metrics)]
    if not metrics and all(text.references for text, _ in translated.values()):
        metrics = ["bleu"]
    if scores.protocol == "paper":
        # Both kinds of BLEU come first.
        metrics = ["bleu", "paper", *(metric for metric in metrics if metric != "bleu")]
        log.info("%s", score.PAPER_NOTE)
    printed = {}
    for direction, (text, systems) in translated.items():
        if {"bleu", "paper", "ter"} & {*metrics}:
            score.note_unspaced(text.references[0])
        if "bleu" in metrics:
            for system in systems:
                score.note_tokenised(*system)
        of_text = [
            score.TextMetric(
                *(systems, text.references, metric, text.tgt_lang or None),
                lowercase=scores.lowercase,
                test_set=text.test_set,
            )
            for metric in metrics
        ]
        of_rest = None
        if text.near and len(text.near) > _MUCH_NEAR * len(text.src):
            of_rest = _without_near(text, systems, of_text)
        all_metrics = [*of_text, *outside]
        if scores.sentence:
            by_line = [metric.of_lines() for metric in all_metrics]
            for first, *_ in by_line:
                log.info("%s %s", first.name, first.signature)
            lines = systems[0].translations, text.references, by_line
            print_text(tables.sentences(*lines, as_json=scores.as_json))
            return
        if scores.paired:
            by_metric = [metric.compare() for metric in all_metrics]
        else:
            by_metric = [metric.means(interval=scores.has_intervals) for metric in of_text]
            by_metric += [metric.means() for metric in outside]
        printed[direction] = tables.scores(
            *([one_line(system.name) for system in systems], by_metric, groups),
            as_json=scores.as_json,
            without_near=of_rest,
        )
    if len(printed) > 1:
        print_text(tables.by_direction(printed, as_json=scores.as_json))
    else:
        print_text(*printed.values())


def _without_near(
    text: ScoredText, systems: Sequence[System], metrics: Sequence[TextMetric]
) -> list[list[Score]] | None:
    """Say the scores without the lines that are nearly in the training text, and give them."""
    rest = [index for index in range(len(text.src)) if index not in text.near]
    total = len(text.src)
    share = f"{len(text.near):,} of {in_words(total)} ({len(text.near) / total:.1%})"
    if not rest:
        log.warning("all lines are nearly the same as a training pair")
        return None
    fewer = [
        system._replace(translations=[system.translations[i] for i in rest]) for system in systems
    ]
    references = [[reference[i] for i in rest] for reference in text.references]
    by_metric = []
    for metric in metrics:
        scores = replace(metric, systems=fewer, references=references).means(interval=False)
        log.warning(
            "%s are nearly the same as a training pair; without them: %s",
            share,
            ", ".join(f"{score.name} {score.value:.2f}" for score in scores),
        )
        by_metric.append(scores)
    return by_metric


def _seed_groups(runs: Sequence[Run]) -> list[list[int]]:
    """The indices of runs with the same configuration and data but different seeds, in groups."""
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
                and first.manifest.data.fingerprint == run.manifest.data.fingerprint
                and not differences(first.config, run.config, ignore=ignore)
            ):
                group.append(index)
                break
        else:
            groups.append([index])
    return [group for group in groups if len(group) > 1]
