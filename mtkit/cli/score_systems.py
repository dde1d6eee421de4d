"""What `mtkit score` compares: translations and trees, those in files and those of runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from mtkit.base.errors import MtkitError, one_line
from mtkit.cli.console import print_text
from mtkit.cli.options import DecodeOptions, given, lines_of, name_of, refuse_stdin_twice

if TYPE_CHECKING:
    from mtkit.data import DirectionText, PreparedData
    from mtkit.parsing import Tree
    from mtkit.public_test_sets import PublicTestSet
    from mtkit.run_folder import Run
    from mtkit.score import Metric, Score, System
    from mtkit.segment_scores import SegmentMetric
    from mtkit.translate import Translation, Translator

log = logging.getLogger(__name__)

# How other parsers write that they have found no tree.
_FAILURES = frozenset(("", "()", "(())"))


class TextChoice(NamedTuple):
    """Which text of the data of runs is translated; `advice` is for runs without data."""

    data_path: Path | None
    split: Literal["valid", "test"]
    src_lang: str | None
    tgt_lang: str | None
    advice: str = "or HYP and --reference"


@dataclass(frozen=True)
class ScoreOptions:
    """The values of the options, by their names in the program; `decode` has those of a run."""

    hypotheses: tuple[Path, ...]
    references: tuple[Path, ...]
    test_set: str | None
    run_paths: tuple[Path, ...]
    data_path: Path | None
    split: Literal["valid", "test"]
    metrics: tuple[Literal["bleu", "chrf", "chrf++", "ter", "parseval"], ...]
    lowercase: bool
    segment_scores: tuple[tuple[str, Path], ...]
    lower_is_better: tuple[str, ...]
    protocol: str
    src_lang: str | None
    tgt_lang: str | None
    paired: bool
    sentence: bool
    worst_first: bool
    as_json: bool
    decode: DecodeOptions

    @classmethod
    def parse(cls, **values: Any) -> ScoreOptions:
        """From the values of all options."""
        own = {one.name: values.pop(one.name) for one in fields(cls) if one.name != "decode"}
        return cls(**own, decode=DecodeOptions.parse(**values))

    @property
    def text(self) -> TextChoice:
        """Which text is scored, if no files are."""
        return TextChoice(self.data_path, self.split, self.src_lang, self.tgt_lang)


def is_multilingual(run: Run) -> bool:
    """Whether the sources of a run begin with the tag of a language."""
    return bool(run.tokenizers().src.language_tags)


# ---------------------------------------------------------------------------------------------
# Translations


class _Compared(NamedTuple):
    """Translations of one text by all systems.

    The language is None if it is not known. `test_set` is the full name of a public test set.
    """

    systems: Sequence[System]
    references: Sequence[Sequence[str]]
    tgt_lang: str | None
    test_set: str | None = None
    segment_metrics: Sequence[SegmentMetric] = ()


def score_files(options: ScoreOptions) -> None:
    """Print the scores of files of translations."""
    from mtkit.public_test_sets import find_test_set
    from mtkit.score import System, refuse_unequal

    has_only_outside = options.segment_scores and not (
        options.metrics or options.protocol == "paper"
    )
    if not (options.references or options.test_set is not None or has_only_outside):
        raise click.UsageError("HYP requires at least one --reference, or --test-set")
    scores = [path for _, path in options.segment_scores]
    refuse_stdin_twice([*options.hypotheses, *options.references, *scores])
    found = find_test_set(options.test_set) if options.test_set is not None else None
    tgt_lang = options.tgt_lang or (found.tgt_lang if found else None)
    _check(options, tgt_lang)
    systems = [
        System(str(path), list(lines_of(path, keeps_mark=True))) for path in options.hypotheses
    ]
    if found:
        references = [(found.full_name, lines) for lines in found.references]
    else:
        references = [
            (name_of(path), list(lines_of(path, keeps_mark=True))) for path in options.references
        ]
    for path, system in zip(options.hypotheses, systems, strict=True):
        for name, lines in references:
            refuse_unequal(name_of(path), system.translations, name, lines)
            if not lines:
                raise MtkitError(f"{name_of(path)} and {name} are empty: nothing to score")
    sizes = [
        (name_of(path), len(system.translations))
        for path, system in zip(options.hypotheses, systems, strict=True)
    ]
    compared = _Compared(
        systems,
        [lines for _, lines in references],
        tgt_lang,
        found.full_name if found else None,
        segment_metrics(options.segment_scores, sizes, lower_is_better=options.lower_is_better),
    )
    _print({"": compared}, options)


def segment_metrics(
    segment_scores: Sequence[tuple[str, Path]],
    systems: Sequence[tuple[str, int]],
    *,
    lower_is_better: Sequence[str],
) -> list[SegmentMetric]:
    """The metrics of `--segment-scores`, for systems given by name and number of lines."""
    from mtkit.segment_scores import SegmentMetric, parse_scores

    files: dict[str, list[Path]] = {}
    for name, path in segment_scores:
        files.setdefault(name, []).append(path)
    for name in lower_is_better:
        if name not in files:
            raise click.UsageError(
                f"--lower-is-better {name}: requires --segment-scores {name}=FILE"
            )
    for name, paths in files.items():
        if len(paths) != len(systems):
            raise click.UsageError(
                f"--segment-scores {name}: give one FILE for each system, in their order "
                f"(systems: {len(systems)}, files: {len(paths)})"
            )
    return [
        SegmentMetric(
            name,
            [
                parse_scores(lines_of(path), file=name_of(path), name=name, text=text, count=count)
                for path, (text, count) in zip(paths, systems, strict=True)
            ],
            lower_is_better=name in lower_is_better,
        )
        for name, paths in files.items()
    ]


def score_runs(runs: Sequence[Run], options: ScoreOptions) -> None:
    """Translate the test set with each run, and print the scores, for each direction."""
    from mtkit.base.sentences import split as sentences_of
    from mtkit.data import DirectionText
    from mtkit.score import System

    _check(options, options.tgt_lang or runs[0].manifest.data.tgt_lang)
    found = None
    if options.test_set is not None:
        found = test_set_of(
            runs[0], options.test_set, src_lang=options.src_lang, tgt_lang=options.tgt_lang
        )
    if found:
        text = DirectionText(found.src_lang, found.tgt_lang, found.src, found.references[0])
        texts = {"": text}
    else:
        texts = common_texts(runs, options.text)
    for option in given("sentence", "segment_scores") if len(texts) > 1 else ():
        raise click.UsageError(
            f"{option} requires one direction, not {', '.join(texts)}: give --src-lang and "
            "--tgt-lang"
        )
    sizes = [(str(run.path), len(next(iter(texts.values())).src)) for run in runs]
    outside = segment_metrics(
        options.segment_scores, sizes, lower_is_better=options.lower_is_better
    )
    whole = "; they are translated whole (--split-sentences: one by one)"
    compared = {}
    for name, text in texts.items():
        if several := sum(len(sentences_of(line, text.src_lang)) > 1 for line in text.src):
            log.info(
                "%s of %s source lines have several sentences%s",
                f"{several:,}",
                f"{len(text.src):,}",
                "" if options.decode.changes.get("split_sentences") else whole,
            )
        systems = []
        for run in runs:
            translations = translated(run, text, options.decode, has_directions=bool(name))
            systems.append(System(str(run.path), [best.text for best in translations]))
        compared[name] = _Compared(
            systems,
            found.references if found else [text.tgt],
            text.tgt_lang or None,
            found.full_name if found else None,
            outside,
        )
    _print(compared, options, _seed_groups(runs))


def translated(
    run: Run,
    text: DirectionText,
    decode: DecodeOptions,
    *,
    has_directions: bool,
    on_loaded: Callable[[Translator], None] | None = None,
) -> list[Translation]:
    """The translations of a text by a run; the data of the text may have several directions.

    `on_loaded` is as in `DecodeOptions.translations`.
    """
    # A bilingual model is not asked for languages, because they may be codes of regions.
    languages: dict[str, Any] = {}
    if has_directions or is_multilingual(run):
        languages = {"src_lang": text.src_lang or None, "tgt_lang": text.tgt_lang or None}
    return replace(decode, **languages).translations(run, text.src, on_loaded=on_loaded)


def test_set_of(
    run: Run, wanted: str, *, src_lang: str | None, tgt_lang: str | None
) -> PublicTestSet:
    """The test set of `--test-set`; if it names no direction, in that of the options or the run."""
    from mtkit.public_test_sets import find_test_set

    own = run.manifest.data
    languages = {"src_lang": src_lang or own.src_lang, "tgt_lang": tgt_lang or own.tgt_lang}
    found = find_test_set(wanted, **languages)
    is_known = all(languages.values()) and not is_multilingual(run)
    if is_known and [*languages.values()] != [found.src_lang, found.tgt_lang]:
        log.warning(
            "%s translates from %s to %s, and the test set is %s",
            run.path,
            *languages.values(),
            found.full_name,
        )
    return found


def _check(options: ScoreOptions, tgt_lang: str | None) -> None:
    """Refuse what cannot be scored, before anything is translated."""
    from mtkit.score import check_seed

    if options.protocol == "paper" and tgt_lang is None:
        raise click.UsageError("--protocol paper requires --tgt-lang, for its tokeniser")
    if options.paired:
        check_seed()


def _print(
    compared: Mapping[str, _Compared], options: ScoreOptions, groups: Sequence[Sequence[int]] = ()
) -> None:
    """Print the scores of each direction, or of the sentences of the only one."""
    from mtkit import score
    from mtkit.cli import tables

    metrics: list[Metric] = [one for one in dict.fromkeys(options.metrics) if one != "parseval"]
    if not metrics and all(one.references for one in compared.values()):
        metrics = ["bleu"]
    if options.protocol == "paper":
        # Both kinds of BLEU come first.
        metrics = ["bleu", "paper", *(metric for metric in metrics if metric != "bleu")]
        log.info("%s", score.PAPER_NOTE)
    printed = {}
    for direction, text in compared.items():
        names = [system.name for system in text.systems]
        common: dict[str, Any] = {
            "references": text.references,
            "tgt_lang": text.tgt_lang,
            "lowercase": options.lowercase,
            "test_set": text.test_set,
        }
        if "bleu" in metrics:
            for system in text.systems:
                score.note_tokenised(system.name, system.translations)
        by_metric: list[Sequence[Score]]
        if options.sentence:
            (system,) = text.systems
            by_metric = [
                score.sentence_scores(system.translations, metric=one, **common) for one in metrics
            ]
            by_metric += [one.of_lines() for one in text.segment_metrics]
            _print_sentences(system.translations, text.references, by_metric, options)
            return
        if options.paired:
            by_metric = [score.compare(text.systems, metric=one, **common) for one in metrics]
            by_metric += [one.compare(names) for one in text.segment_metrics]
        else:
            by_metric = [
                [score.score(system.translations, metric=one, **common) for system in text.systems]
                for one in metrics
            ]
            by_metric += [one.means() for one in text.segment_metrics]
        printed[direction] = tables.scores(
            list(map(one_line, names)), by_metric, groups, as_json=options.as_json
        )
    if len(printed) > 1:
        print_text(tables.by_direction(printed, as_json=options.as_json))
    else:
        print_text(*printed.values())


def _print_sentences(
    translations: Sequence[str],
    references: Sequence[Sequence[str]],
    by_metric: Sequence[Sequence[Score]],
    options: ScoreOptions,
) -> None:
    """Print the scores of each sentence, and the signatures as notes."""
    from mtkit.cli import tables

    for scores in by_metric:
        log.info("%s %s", scores[0].name, scores[0].signature)
    flags = {"worst_first": options.worst_first, "as_json": options.as_json}
    print_text(tables.sentences(translations, references, by_metric, **flags))


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
                and first.data_fingerprint == run.data_fingerprint
                and not differences(first.config, run.config, ignore=ignore)
            ):
                group.append(index)
                break
        else:
            groups.append([index])
    return [group for group in groups if len(group) > 1]


# ---------------------------------------------------------------------------------------------
# Trees


class _TreeSystem(NamedTuple):
    """The trees of a system, None for a sentence without one, and how many were repaired."""

    name: str
    trees: Sequence[Tree | None]
    repaired: int | None = None


def score_tree_files(options: ScoreOptions) -> None:
    """Print the scores of files with a tree on each line; the gold trees may have any layout."""
    from mtkit.parsing import parse_trees

    if len(options.references) != 1:
        raise click.UsageError("--metric parseval requires one --reference, a file of gold trees")
    refuse_stdin_twice([*options.hypotheses, *options.references])
    (path,) = options.references
    if not (golds := list(parse_trees(lines_of(path), name=name_of(path)))):
        raise MtkitError(f"{name_of(path)} has no trees: nothing to score")
    systems = [
        _TreeSystem(str(file), _trees_of_file(file, golds, gold_name=name_of(path)))
        for file in options.hypotheses
    ]
    _print_trees(systems, golds, options)


def _trees_of_file(path: Path, golds: Sequence[Tree], *, gold_name: str) -> list[Tree | None]:
    """The tree on each line, or None and a warning if it is not one tree of its sentence.

    Raises:
        MtkitError: if there are more or fewer lines than gold trees, or if all lines are wrong.
    """
    name, lines = name_of(path), list(lines_of(path))
    if len(lines) != len(golds):
        raise MtkitError(
            f"{name} has {len(lines)} lines and {gold_name} has {len(golds)} trees; line n of one "
            "must be the tree of sentence n of the other, or blank"
        )
    trees: list[Tree | None] = []
    failures = []
    for number, (line, gold) in enumerate(zip(lines, golds, strict=True), start=1):
        try:
            trees.append(_tree_of_line(line, gold, name=name, number=number))
        except MtkitError as error:
            trees.append(None)
            failures.append(str(error))
    if failures:
        count = f"{len(failures)} of {len(lines)} lines have no tree of their sentence"
        if len(failures) == len(lines) and not _FAILURES.issuperset(map(str.strip, lines)):
            raise MtkitError(f"{failures[0]}; {count} in {gold_name}")
        log.warning("%s; %s, and count as flat trees", failures[0], count)
    return trees


def _tree_of_line(line: str, gold: Tree, *, name: str, number: int) -> Tree:
    """The tree of a line, if it has one, and of the words of the gold tree."""
    from mtkit.parsing import different_words, parse_trees

    is_blank = line.strip() in _FAILURES
    trees = [] if is_blank else list(parse_trees([line], name=name, first_line=number))
    if len(trees) == 1 and trees[0].words == gold.words:
        return trees[0]
    difference = different_words(trees[0], gold) if len(trees) == 1 else f"{len(trees)} trees"
    raise MtkitError(f"{name}, line {number}: {difference}")


def score_parsers(runs: Sequence[Run], options: ScoreOptions) -> None:
    """Parse the test set with each run, and print the scores."""
    from mtkit.parsing import parse_trees

    ((_, _, sentences, lines),) = common_texts(runs, options.text).values()
    golds = list(parse_trees(lines, name=f"{options.split} trees"))
    systems = []
    for run in runs:
        found = options.decode.translations(run, sentences, tokenized=True)
        trees = [next(parse_trees([best.text], name="tree"), None) for best in found]
        systems.append(_TreeSystem(str(run.path), trees, sum(bool(one.repaired) for one in found)))
    _print_trees(systems, golds, options)


def _print_trees(
    systems: Sequence[_TreeSystem], golds: Sequence[Tree], options: ScoreOptions
) -> None:
    """Print the F1 of each sentence, or the scores of all systems."""
    from mtkit.cli import tables
    from mtkit.parsing import compare_trees, score_trees
    from mtkit.score import Score

    names, of_systems, repaired = zip(*systems, strict=True)
    if options.sentence:
        (trees,) = of_systems
        signature = score_trees(trees, golds).signature
        by_sentence = [
            Score("F1", score_trees([tree], [gold]).all.f1, signature)
            for tree, gold in zip(trees, golds, strict=True)
        ]
        texts = [str(tree or "") for tree in trees]
        _print_sentences(texts, [[str(gold) for gold in golds]], [by_sentence], options)
        return
    if options.paired:
        scores = compare_trees(of_systems, golds)
    else:
        scores = [score_trees(trees, golds) for trees in of_systems]
    printed = tables.tree_scores(
        list(map(one_line, names)), scores, repaired, as_json=options.as_json
    )
    print_text(printed)


# ---------------------------------------------------------------------------------------------
# Test sets of runs


def common_texts(runs: Sequence[Run], options: TextChoice) -> dict[str, DirectionText]:
    """The sentences and references that all runs are scored on.

    Returns:
        The text of each direction that is asked for, by its name, which is empty if the data has
        only one.

    Raises:
        MtkitError: if the runs have other test sets, or data for another task.
    """
    found: list[dict[str, DirectionText]] = []
    for run in runs:
        data = _data_of(run, options.data_path, advice=options.advice)
        if data.task != run.manifest.data.task:
            raise MtkitError(
                f"{data.path}: is data for {data.task}, and {run.path} is for "
                f"{run.manifest.data.task}; give another --data"
            )
        texts = data.texts(options.split)
        if data.directions:
            found.append(_wanted(data, texts, options, has_notes=not found))
        else:
            src_lang = options.src_lang or texts[0].src_lang
            tgt_lang = options.tgt_lang or texts[0].tgt_lang
            found.append({"": texts[0]._replace(src_lang=src_lang, tgt_lang=tgt_lang)})
        first, last = ([(one.src, one.tgt) for one in found[i].values()] for i in (0, -1))
        if first != last:
            raise MtkitError(
                f"{run.path} was trained on data with another {options.split} text than "
                f"{runs[0].path}, so their scores cannot be compared; give --data to translate the "
                "same text with all"
            )
    return found[0]


def _wanted(
    data: PreparedData, texts: Sequence[DirectionText], options: TextChoice, *, has_notes: bool
) -> dict[str, DirectionText]:
    """The texts of the directions that are asked for, by their names."""
    by_name = {f"{text.src_lang}-{text.tgt_lang}": text for text in texts}
    names = [
        one.name
        for one in data.directions
        if options.src_lang in (None, one.src_lang) and options.tgt_lang in (None, one.tgt_lang)
    ]
    lacking = [name for name in names if name not in by_name]
    if len(lacking) == len(names):
        raise MtkitError(
            f"{data.path}: no {options.split} set for this direction; "
            f"available: {', '.join(by_name)}"
        )
    if lacking and has_notes:
        log.info(
            "%s: no %s set for %s, so not scored", data.path, options.split, ", ".join(lacking)
        )
    return {name: by_name[name] for name in names if name in by_name}


def _data_of(run: Run, path: Path | None, *, advice: str) -> PreparedData:
    """The data at a path, or else the data that a run was trained on, unchanged since then."""
    from mtkit.data import PreparedData, is_prepared

    if path is not None:
        return PreparedData.open(path)
    if run.manifest.imported is not None:
        raise MtkitError(f"{run.path}: was imported, so it has no test set; give --data, {advice}")
    try:
        data = PreparedData.open(run.data_path)
    except MtkitError as error:
        reason = error if is_prepared(run.data_path) else f"{run.data_path} is not there"
        raise MtkitError(
            f"--data: give the folder with the test set of {run.path}, {advice} ({reason})"
        ) from error
    if data.fingerprint != run.data_fingerprint:
        raise MtkitError(
            f"{data.path}: was prepared anew after {run.path} was trained on it; "
            "give --data to score on it nevertheless"
        )
    return data
