"""The command `mtkit check`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtkit.base.errors import MtkitError
from mtkit.cli import options as shared
from mtkit.cli.line_checks import below_option, report_verdict, thorough_option
from mtkit.cli.output import check_output, checked_file, output_of, refuse_torchrun, write_text
from mtkit.cli.scored_texts import is_multilingual

if TYPE_CHECKING:
    from mtkit.check import BlockReport, Checker, Counts, Decoded, FindingTable, Prober, Verdict
    from mtkit.run_folder import Run
    from mtkit.translate import Translator

log = logging.getLogger(__name__)

language_option = shared.option_group("Languages")

# With a larger share of marked lines, of at least this number, the files may not belong together.
_MAX_MARKED, _MIN_LINES = 0.8, 10
# Pairs that are read for --fit.
_MAX_FITTED = 500_000
# Pairs that are sent to a process at a time.
BLOCK = 2000

Pair = tuple[str, str]
# The number of the first line of a block, its pairs, and what a model knows of them.
Block = tuple[int, list[Pair], "list[Decoded] | None"]


@shared.command(
    "Find translations that are probably wrong.",
    "mtkit check test.en output.de",
    "mtkit check test.en output.de --findings findings.tsv",
    "mtkit check test.en output.de --run runs/mine --json",
    "mtkit check valid.en valid.de --run runs/imported --fit",
    "mtkit check --run runs/mine --fit",
)
@click.argument("src_path", metavar="[SRC]", required=False, type=shared.PathArgument)
@click.argument("tgt_path", metavar="[TGT]", required=False, type=shared.PathArgument)
@shared.in_out_option(
    "--findings FILE",
    "findings_path",
    help="Write a table of all findings, worst first: line, kind, severity, reason, source and"
    " translation, tab-separated.",
)
@shared.in_out_option(
    "--json",
    "as_json",
    help="Print a JSON object per pair, with its findings, and with --run its confidence: a"
    " forecast of the chrF that the translation would get, 0 to 100.",
)
@below_option
@thorough_option
@shared.output_option
@shared.one_run_option(
    shared.model_option,
    help="Run folder, whose data say what is usual, and which words translate each other."
    " Default: the pairs themselves say what is usual.",
)
@shared.model_option(
    "--fit",
    help="Do not check the pairs, but learn from them: write confidence.json and lexicon.tsv into"
    " the run folder, as training does at its end. For imported runs. Without SRC and TGT: learn"
    " from the data that the run was trained on. Requires --run.",
)
@shared.model_option(
    "--data FOLDER",
    "data_path",
    help="For --fit without SRC and TGT: where the data of the run are now, if they were moved.",
)
@language_option("--src-lang L", help="Source language. Default: identified, or that of the run.")
@language_option("--tgt-lang L", help="Target language. Default: identified, or that of the run.")
@shared.processes_option
def check(
    src_path: Path | None,
    tgt_path: Path | None,
    findings_path: Path | None,
    as_json: bool,
    below: float,
    thorough: bool,
    output_path: Path | None,
    run_path: Path | None,
    fit: bool,
    data_path: Path | None,
    src_lang: str | None,
    tgt_lang: str | None,
    workers: int | None,
) -> None:
    """Check each line of SRC with its translation, the same line of TGT.

    The translations may be from anywhere: another system, people, a corpus. Printed is how many
    lines are marked, and with what kind of finding. SRC and TGT may be compressed, and one of them
    may be -, standard input. Only --fit can do without SRC and TGT.

    Without --run, mtkit learns what is usual from the first 20,000 pairs. A few wrong pairs among
    them do no harm. With --run, words that were not translated are found too, and the mean
    confidence is printed: of all pairs with --json or --thorough, else of the first 2,000. --below
    and --thorough require --run.
    """
    from mtkit.base.language_id import check_languages
    from mtkit.base.launched import available_cores
    from mtkit.check import (
        MAX_SAMPLED,
        Counts,
        FindingTable,
        Prober,
        Verdict,
        warn_of_checkpoint,
        wrong_languages,
    )

    refuse_torchrun("mtkit check")
    if fit:
        useless = ["findings_path", "as_json", "output_path", "workers", "below", "thorough"]
        shared.refuse_given(useless, "has no effect with --fit")
        if run_path is None:
            raise click.UsageError("--fit requires --run")
    if fit and src_path is None:
        shared.refuse_given(["src_lang", "tgt_lang"], "has no effect with --fit without SRC")
        from mtkit.check import fit_run

        trained = shared.open_run(run_path)
        data = shared.data_of(trained, data_path, advice="give --data, or SRC and TGT instead")
        _fit(trained, partial(fit_run, trained, data))
        return
    shared.refuse_given(["data_path"], "has no effect without --fit, or with SRC")
    if src_path is None or tgt_path is None:
        raise click.UsageError("give two files: mtkit check SRC TGT")
    shared.refuse_stdin_twice([src_path, tgt_path])
    output = output_of(output_path)
    inputs: dict[str, Path | None] = {"SRC": src_path, "TGT": tgt_path}
    check_output(output, inputs)
    findings_path = checked_file("--findings", findings_path, inputs | {"file of --output": output})
    check_languages(src_lang, tgt_lang)
    files = src_path, tgt_path
    pairs = shared.zip_lines(*map(shared.lines_of, files), paths=files)
    run = None if run_path is None else shared.open_run(run_path)
    if run is not None:
        shared.refuse_parser(run)
    if fit and run is not None:
        from mtkit.check import fit_pairs

        some = list(islice(pairs, _MAX_FITTED))
        if next(pairs, None) is not None:
            log.info("only the first %s pairs are read", f"{_MAX_FITTED:,}")
        _fit(run, partial(fit_pairs, run, some, src_lang=src_lang, tgt_lang=tgt_lang))
        return
    if run is None:
        shared.refuse_given(["below", "thorough"], "requires --run")
    sample = list(islice(pairs, MAX_SAMPLED))
    checker = _checker(run, sample, src_lang, tgt_lang, thorough=thorough)
    languages = checker.facts.src_lang, checker.facts.tgt_lang
    pairs, wrong = chain(sample, pairs), wrong_languages(sample, languages)
    counts = Counts()
    with ExitStack() as stack:
        translator = prober = None
        verdict = Verdict(below)
        if run is not None and (thorough or checker.forecast is not None):
            # The validation set has translations of the run itself, which it finds more probable
            # than those of people, so their means cannot be compared.
            given = {} if thorough else {"precision": "fp32"}
            if is_multilingual(run):
                given |= zip(("src_lang", "tgt_lang"), languages, strict=True)
            translator = stack.enter_context(shared.DecodeOptions.parse(**given).load([run]))
            prober = stack.enter_context(
                Prober(translator, checker, with_samples=thorough, of_own=False)
            )
            warn_of_checkpoint(run, fitted_to=checker.fitted_to, used=translator.checkpoint)
        table = None
        if findings_path is not None:
            table = stack.enter_context(FindingTable(findings_path))
        function = partial(_check_block, checker, with_rows=table is not None, with_objects=as_json)
        blocks = _blocks(pairs, translator, prober, all_pairs=as_json or thorough)
        parts = _checked(function, blocks, counts, verdict, table, workers or available_cores())
        if as_json:
            write_text(output, parts)
            if counts.pairs:
                log.info("%s", counts.sentence())
        else:
            for _ in parts:
                pass
            from mtkit.cli import tables

            write_text(output, [tables.findings(counts)] if counts.pairs else [])
        if counts.pairs and checker.facts.silence:
            log.info("%s", checker.facts.silence)
        report_verdict(verdict)
        if not counts.pairs:
            log.warning("%s", counts.sentence())
        if wrong:
            log.warning("%s", wrong)
        elif counts.pairs >= _MIN_LINES and counts.marked > _MAX_MARKED * counts.pairs:
            log.warning(
                "%s of %s lines are marked: does each line of TGT translate the same line of SRC?",
                f"{counts.marked:,}",
                f"{counts.pairs:,}",
            )
        if table is not None:
            table.write()
            log.info("wrote %s", findings_path)


def _check_block(checker: Checker, block: Block, **wanted: Any) -> BlockReport:
    from mtkit.check import check_block

    first, pairs, decoded = block
    numbers = range(first, first + len(pairs))
    return check_block(checker, pairs, decoded=decoded, numbers=numbers, first=first, **wanted)


def _fit(run: Run, fit: Callable[[], object]) -> None:
    """Call `fit` for a run that can be fitted, and say what was written."""
    from mtkit.base.files import require_writable
    from mtkit.run_folder import CONFIDENCE, EXAMPLES, LEXICON, Run

    shared.refuse_parser(run)
    require_writable(run.path / CONFIDENCE, run.path)
    # A training may be writing the same files.
    with Run.lock(run.path):
        if fit() is None:
            raise MtkitError(f"{run.path}: not fitted: too few pairs in the validation set")
    log.info("wrote %s, %s and %s", run.path / CONFIDENCE, LEXICON, EXAMPLES)


def _checker(
    run: Run | None,
    sample: list[Pair],
    src_lang: str | None,
    tgt_lang: str | None,
    *,
    thorough: bool,
) -> Checker:
    """The checker for pairs, of which these are the first ones."""
    from mtkit.base.language_id import is_same_language
    from mtkit.check import (
        UNDETERMINED,
        Checker,
        PairFacts,
        changed_pairs,
        language_of,
        load_checker,
    )
    from mtkit.translate import known_code

    if run is not None:
        languages = {"src_lang": src_lang or "", "tgt_lang": tgt_lang or ""}
        checker = load_checker(run, **languages, thorough=thorough)
        known = checker.facts.src_lang
        if src_lang is not None and known_code(src_lang, [known]) != known:
            raise MtkitError(
                f"{run.path}: is for {known} to {checker.facts.tgt_lang}; leave --src-lang "
                f"{src_lang} out, or give another run"
            )
        return checker
    sample = changed_pairs(sample)
    codes = [
        language_of([pair[side] for pair in sample]) if language is None else language
        for side, language in enumerate((src_lang, tgt_lang))
    ]
    if sample and (src_lang is None or tgt_lang is None):
        shown = ["not identified" if code == UNDETERMINED else code for code in codes]
        log.info(
            "source language: %s, target language: %s; --src-lang and --tgt-lang set them", *shown
        )
    if UNDETERMINED not in codes and is_same_language(*codes):
        log.warning("both sides are in %s: is TGT the translation?", codes[0])
    facts = PairFacts.learn(sample, src_lang=codes[0], tgt_lang=codes[1])
    return Checker(facts)


def _blocks(
    pairs: Iterator[Pair], translator: Translator | None, prober: Prober | None, *, all_pairs: bool
) -> Iterator[Block]:
    """The pairs in blocks, with what a model knows of all, or of those of the first block."""
    from mtkit.translate import Translation

    first = 1
    while block := list(islice(pairs, BLOCK)):
        decoded = None
        if translator is not None and prober is not None:
            sources, translations = map(list, zip(*block, strict=True))
            scored = list(map(Translation, translations))
            if all_pairs or first == 1:
                scored = list(translator.score_given(sources, translations))
            decoded = prober.decoded(sources, scored)
        yield first, block, decoded
        first += len(block)


def _checked(
    function: Callable[[Block], BlockReport],
    blocks: Iterator[Block],
    counts: Counts,
    verdict: Verdict,
    table: FindingTable | None,
    workers: int,
) -> Iterator[str]:
    """The JSON of each block, if it is asked for; fills in counts, verdict and table meanwhile."""
    from mtkit.base.processes import ordered_map
    from mtkit.cli.progress import shown_progress

    with shown_progress(None, what="checking", unit=" pairs") as progress:
        for _, report in ordered_map(function, blocks, workers=workers):
            counts.add(report.counts)
            for confidence in report.confidences:
                verdict.add(confidence)
            if table is not None:
                table.add(report.rows)
            progress.advance(report.counts.pairs)
            yield report.objects
