"""The command `mtkit compare`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtkit.base.errors import MtkitError, one_line
from mtkit.cli import options as shared
from mtkit.cli.options import DecodeOptions
from mtkit.cli.output import check_output, output_of, refuse_torchrun, write_text
from mtkit.cli.scored_texts import (
    TRANSLATING,
    TextChoice,
    is_multilingual,
    segment_metrics,
    texts_of,
    translated,
)

if TYPE_CHECKING:
    from mtkit.check import Checker, ComparedSystem
    from mtkit.run_folder import Run
    from mtkit.score import Metric, ScoredText
    from mtkit.translate import Translation, Translator

log = logging.getLogger(__name__)

# Lines that say which language a file is in.
_IDENTIFIED = 2000


@shared.command(
    "Compare systems line by line, on an HTML page.",
    "mtkit compare runs/first runs/second --output page.html",
    "mtkit compare runs/mine --split valid --output worst.html",
    "mtkit compare old.de new.de --reference test.de --output page.html",
    "mtkit compare runs/mine --src input.en --output doubtful.html",
)
@click.argument(
    "paths", metavar="RUN_OR_FILE...", nargs=-1, required=True, type=shared.PathArgument
)
@shared.in_out_option(
    "--output FILE", "output_path", required=True, help="HTML page to write. -: standard output."
)
@shared.references_option
@shared.test_set_option
@shared.in_out_option(
    "--src FILE",
    "src_path",
    help="Source text of --reference; without it, the lines of files are not checked. Without"
    " --reference: a text that has none, so there are no scores.",
)
@shared.data_text_options
@shared.in_out_option(
    "--metric [bleu|chrf|chrf++|ter]",
    "metrics",
    multiple=True,
    default=("bleu", "chrf"),
    help="Metric of the table of scores. Repeatable. Default: bleu and chrf. Lines are compared by"
    " chrF.",
)
@shared.segment_score_options(shared.in_out_option)
@shared.model_option(
    "--src-lang L", help="Source language. Of a model with several: compare only this one."
)
@shared.model_option(
    "--tgt-lang L", help="Target language. Of a model with several: compare only this one."
)
@shared.checkpoint_option
@shared.beam_options
@shared.whole_lines_option
@shared.hardware_options
def compare(
    paths: tuple[Path, ...],
    output_path: Path,
    metrics: tuple[Metric, ...],
    segment_scores: tuple[tuple[str, Path], ...],
    lower_is_better: tuple[str, ...],
    src_path: Path | None,
    references: tuple[Path, ...],
    **decode: Any,
) -> None:
    """Write a page with the scores of systems, and their lines, worst first, compared with
    the first system.

    \b
    mtkit compare RUN...                translate the test set, and compare
    mtkit compare RUN FILE              ... with translations of the test set
    mtkit compare FILE... --reference R compare files of translations
      with --test-set NAME              compare on a test set of sacreBLEU
      with --src S alone                compare on a text without references

    A RUN is a folder, and a FILE has one translation per line. With one system, it is the page of
    its worst lines. Each line has its findings: what is probably wrong with it. Without references
    there are no scores: the lines of one system are sorted by forecast or finding, and those of
    several by how different their words are. The page is one file that loads nothing, and opens in
    every browser.
    """
    choice = TextChoice.taken_from(decode, advice="or --src and --reference")
    files = [path for path in paths if not path.is_dir()]
    _check(paths, files, src_path, references)
    output = output_of(output_path)
    given = {f"file {path}": path for path in [*files, *(path for _, path in segment_scores)]}
    given |= {f"--reference {path}": path for path in references}
    check_output(output, {"--src": src_path, **given})
    from mtkit.check import comparison_page, note_wrong_files
    from mtkit.score import note_tokenised, note_unspaced

    runs = {path: shared.open_run(path) for path in paths if path not in files}
    for run in runs.values():
        shared.refuse_parser(run)
    given_lines = {path: list(shared.lines_of(path, keeps_mark=True)) for path in files}
    text, has_directions = _text(list(runs.values()), given_lines, src_path, references, choice)
    if not text.size:
        raise MtkitError(f"no lines in {text.name}: nothing to compare")
    sizes = [(str(path), text.size) for path in paths]
    outside = segment_metrics(segment_scores, sizes, lower_is_better=lower_is_better)
    options = DecodeOptions.parse(**decode)
    named = [(shared.name_of(path), lines) for path, lines in given_lines.items()]
    names = [*map(shared.name_of, references)] or [text.name] * len(text.references)
    note_wrong_files(named, list(zip(names, text.references, strict=True)))
    systems = _systems(paths, runs, given_lines, text, options, has_directions=has_directions)
    if not text.src:
        log.info("the lines were not checked, because there is no --src")
    if {"bleu", "ter"} & {*metrics} and text.references:
        note_unspaced(text.references[0])
    if "bleu" in metrics and text.references:
        for system in systems:
            note_tokenised(system.name, system.translations)
    if len(systems) > 1 and (text.references or outside):
        log.info("testing the differences of %s lines", f"{text.size:,}")
    page = comparison_page(systems, text, metrics=metrics, segment_metrics=outside)
    write_text(output, page)


def _check(
    paths: Sequence[Path], files: Sequence[Path], src_path: Path | None, references: Sequence[Path]
) -> None:
    """Refuse options that do not go with these systems and with each other."""
    from mtkit.score import check_seed

    refuse_torchrun("mtkit compare")
    if len(set(paths)) < len(paths):
        raise click.UsageError("RUN_OR_FILE: give each system once")
    for path in files:
        if str(path) != "-" and not path.exists():
            raise MtkitError(f"{path}: does not exist; give a run folder or a file of translations")
    has_runs = len(files) < len(paths)
    if not has_runs:
        shared.refuse_given(TRANSLATING, "requires a RUN")
    if shared.given("test_set"):
        others = ["references", "src_path", "data_path", "split"]
        shared.refuse_given(others, "cannot be combined with --test-set")
    elif references:
        shared.refuse_given(["data_path", "split"], "cannot be combined with --reference")
        if has_runs and src_path is None:
            raise click.UsageError("--reference requires --src, which RUN translates")
    elif src_path is not None:
        shared.refuse_given(["metrics"], "requires --reference")
        shared.refuse_given(["data_path", "split"], "cannot be combined with --src")
    elif not has_runs:
        raise click.UsageError(
            "files of translations require --reference, --test-set or --src, and a RUN does not"
        )
    shared.refuse_stdin_twice([*files, src_path, *references])
    if len(paths) > 1:
        check_seed()


def _text(
    runs: Sequence[Run],
    files: dict[Path, list[str]],
    src_path: Path | None,
    reference_paths: Sequence[Path],
    choice: TextChoice,
) -> tuple[ScoredText, bool]:
    """The text of the files, or else of the data of the runs; and whether this has directions."""
    from mtkit.base.files import shareable_name
    from mtkit.score import ScoredText, refuse_unequal

    if choice.test_set is not None or (not reference_paths and src_path is None):
        texts = texts_of(runs, choice)
        if len(texts) > 1:
            raise click.UsageError(
                f"mtkit compare takes one direction, not {', '.join(texts)}: give --src-lang and "
                "--tgt-lang"
            )
        ((direction, text),) = texts.items()
        name = "validation set" if choice.split == "valid" else "test set"
        name = text.test_set or f"{direction} {name} of the data".strip()
        return text._replace(name=name), bool(direction)
    from mtkit.base.language_id import check_languages, is_same_language

    check_languages(choice.src_lang, choice.tgt_lang)
    src_lang, tgt_lang = choice.src_lang or "", choice.tgt_lang or ""
    sets = [list(shared.lines_of(path, keeps_mark=True)) for path in reference_paths]
    names = list(map(shared.name_of, reference_paths))
    sources: list[str] = []
    if src_path is not None:
        sources = list(shared.lines_of(src_path))
        names.append(shared.name_of(src_path))
    first, *others = zip(names, [*sets, sources], strict=False)
    for name, lines in others:
        refuse_unequal(name, lines, *first)
    if runs and not is_multilingual(runs[0]):
        data = runs[0].manifest.data
        src_lang, tgt_lang = src_lang or data.src_lang, tgt_lang or data.tgt_lang
    src_lang = src_lang or _language(sources)
    tgt_lang = tgt_lang or _language(next(iter([*sets, *files.values()]), ()))
    if src_lang and tgt_lang and is_same_language(src_lang, tgt_lang):
        log.warning(
            "the source and its translations are in %s: are these the right files?", src_lang
        )
    shown = " and ".join(map(shareable_name, names[: len(sets)] or names))
    return ScoredText(src_lang, tgt_lang, sources, sets, name=shown), False


def _language(lines: Sequence[str]) -> str:
    """The language that most lines are in; empty if it cannot be identified."""
    from mtkit.check import UNDETERMINED, language_of

    language = language_of(lines[:_IDENTIFIED])
    return "" if language == UNDETERMINED else language


def _systems(
    paths: Sequence[Path],
    runs: dict[Path, Run],
    files: dict[Path, list[str]],
    text: ScoredText,
    options: DecodeOptions,
    *,
    has_directions: bool,
) -> list[ComparedSystem]:
    """The translations of all systems, and what is found in them."""
    from mtkit.check import Checker, ComparedSystem, decoded_of, learned_checker, warn_of_checkpoint
    from mtkit.score import refuse_unequal

    other_text = ("the source", text.src)
    if text.references:
        other_text = ("the reference", text.references[0])
    for path, lines in files.items():
        refuse_unequal(shared.name_of(path), lines, *other_text)
    checkers = {path: _checker(run, text) for path, run in runs.items()}
    from_runs: dict[Path, list[Translation]] = {}
    for path, run in runs.items():
        checker = checkers[path]

        def report(translator: Translator, run: Run = run, own: Checker | None = checker) -> None:
            log.info("engine: %s", translator.engine)
            if own is not None and own.forecast is not None:
                warn_of_checkpoint(run, fitted_to=own.fitted_to, used=translator.checkpoint)

        from_runs[path] = translated(
            run, text, options, has_directions=has_directions, on_loaded=report
        )
    translations = files | {path: [t.text for t in best] for path, best in from_runs.items()}
    # Files are checked like the first run that can say what is usual.
    usual = next(filter(None, checkers.values()), None)
    usual = usual or learned_checker(text, *translations.values())
    # The forecast and the vocabulary of a run say nothing of other systems.
    other = usual and Checker(usual.facts, coverage=usual.coverage)
    systems = []
    for path, name in zip(paths, _names(paths), strict=True):
        checker = checkers.get(path) or other
        lines, checked = translations[path], None
        if checker is not None and text.src:
            best = from_runs.get(path, [None] * len(lines))
            decoded = [None if each is None else decoded_of(each) for each in best]
            pairs = zip(text.src, lines, decoded, strict=True)
            checked = [checker.check(*pair) for pair in pairs]
        systems.append(ComparedSystem(name, lines, checked))
    return systems


def _checker(run: Run, text: ScoredText) -> Checker | None:
    """The checker of a run; None, with a note, if it has none."""
    from mtkit.check import load_checker

    try:
        return load_checker(run, src_lang=text.src_lang, tgt_lang=text.tgt_lang)
    except MtkitError as error:
        log.info("%s: its lines are checked by the rules alone (%s)", run.path, error)
        return None


def _names(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, or as much of it as no other system has."""
    names = [path.name or str(path) for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    return [one_line(name) for name in names]
