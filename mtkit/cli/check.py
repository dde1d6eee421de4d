"""The command `mtkit check`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mtkit.cli import options as shared
from mtkit.cli.console import print_text
from mtkit.cli.output import check_output, is_resumable, output_of, refuse_torchrun

if TYPE_CHECKING:
    from mtkit.check import BlockReport, Checker, Counts, FindingTable

log = logging.getLogger(__name__)

language_option = shared.option_group("Languages")

# Pairs that are sent to a process at a time.
BLOCK = 2000

Pair = tuple[str, str]
# The number of the first line of a block, and its pairs.
Block = tuple[int, list[Pair]]


@shared.command(
    "Find translations that are probably wrong.",
    "mtkit check test.en output.de",
    "mtkit check test.en output.de --findings findings.tsv",
    "mtkit check test.en output.de --src-lang en --tgt-lang de --json",
)
@click.argument("src_path", metavar="SRC", type=shared.PathArgument)
@click.argument("tgt_path", metavar="TGT", type=shared.PathArgument)
@shared.in_out_option(
    "--findings FILE",
    "findings_path",
    help="Write a table of all findings, worst first: line, kind, severity, reason, source and"
    " translation, tab-separated.",
)
@shared.in_out_option("--json", "as_json", help="Print a JSON object per pair, with its findings.")
@shared.in_out_option(
    "--output FILE",
    "output_path",
    help="Output file, compressed if its name ends in .gz, .bz2, .xz or .zst. Default, or -:"
    " standard output.",
)
@shared.one_run_option(
    shared.model_option,
    help="Run folder, whose data say what is usual. Default: the pairs themselves say it.",
)
@language_option("--src-lang L", help="Source language. Default: identified from the text.")
@language_option("--tgt-lang L", help="Target language. Default: identified from the text.")
@shared.hardware_option("--workers N", help="Processes. Default: one per core.")
def check(
    src_path: Path,
    tgt_path: Path,
    findings_path: Path | None,
    as_json: bool,
    output_path: Path | None,
    run_path: Path | None,
    src_lang: str | None,
    tgt_lang: str | None,
    workers: int | None,
) -> None:
    """Check each line of SRC with its translation, the same line of TGT.

    The translations may be from anywhere: another system, people, a corpus. Printed is how many
    lines are marked, and with what kind of finding. SRC and TGT may be compressed, and one of them
    may be -, standard input.

    Without --run, what is usual is learned from the first 20,000 pairs. Some of these may be wrong.
    """
    from mtkit.base.launched import available_cores
    from mtkit.base.text import check_language
    from mtkit.check import Counts, FindingTable

    refuse_torchrun("mtkit check")
    shared.refuse_stdin_twice([src_path, tgt_path])
    output = output_of(output_path)
    inputs: dict[str, Path | None] = {"SRC": src_path, "TGT": tgt_path}
    check_output(output, inputs)
    _check_table(findings_path, inputs | {"file of --output": output})
    for option, language in (("--src-lang", src_lang), ("--tgt-lang", tgt_lang)):
        if language is not None:
            check_language(option, language)
    if run_path is not None:
        shared.refuse_given(["src_lang", "tgt_lang"], "has no effect with --run")
    names = shared.name_of(src_path), shared.name_of(tgt_path)
    pairs = shared.zip_lines(shared.lines_of(src_path), shared.lines_of(tgt_path), names=names)
    checker, pairs = _checker(run_path, pairs, src_lang, tgt_lang)
    counts = Counts()
    with ExitStack() as stack:
        table = None
        if findings_path is not None:
            table = stack.enter_context(FindingTable(findings_path))
        function = _CheckBlock(checker, with_rows=table is not None, with_objects=as_json)
        parts = _checked(function, pairs, counts, table, workers or available_cores())
        if as_json:
            _write(output, parts)
            log.info("%s", counts.sentence())
        else:
            for _ in parts:
                pass
            from mtkit.cli import tables

            _write(output, [tables.findings(counts)])
        if table is not None:
            table.write()
            log.info("wrote %s", findings_path)


@dataclass(frozen=True)
class _CheckBlock:
    """Checks a block, in any process."""

    checker: Checker
    with_rows: bool
    with_objects: bool

    def __call__(self, block: Block) -> BlockReport:
        from mtkit.check import check_block

        first, pairs = block
        return check_block(
            self.checker,
            pairs,
            numbers=range(first, first + len(pairs)),
            first=first,
            with_rows=self.with_rows,
            with_objects=self.with_objects,
        )


def _check_table(path: Path | None, others: dict[str, Path | None]) -> None:
    """Refuse a file for --findings that cannot be written, or would replace another one."""
    from mtkit.base.errors import MtkitError

    if path is None:
        return
    for name, other in others.items():
        if other is not None and (
            path == other or (path.exists() and other.exists() and path.samefile(other))
        ):
            raise click.UsageError(f"--findings would replace the {name}")
    if path.is_dir() or not is_resumable(path):
        raise MtkitError(f"{path}: is not a file that can be replaced; give --findings FILE")
    if not path.parent.is_dir():
        raise MtkitError(f"{path}: the folder {path.parent} does not exist")


def _checker(
    run_path: Path | None,
    pairs: Iterator[Pair],
    src_lang: str | None,
    tgt_lang: str | None,
) -> tuple[Checker, Iterator[Pair]]:
    """The checker for some pairs, and these pairs, of which it may have read the first ones."""
    from mtkit.check import SAMPLED, UNDETERMINED, Checker, PairFacts, language_of, load_checker

    if run_path is not None:
        return load_checker(shared.open_run(run_path)), pairs
    sample = list(islice(pairs, SAMPLED))
    codes = [
        language_of([pair[side] for pair in sample]) if language is None else language
        for side, language in enumerate((src_lang, tgt_lang))
    ]
    if src_lang is None or tgt_lang is None:
        shown = ["not identified" if code == UNDETERMINED else code for code in codes]
        log.info(
            "source language: %s, target language: %s; --src-lang and --tgt-lang set them", *shown
        )
    facts = PairFacts.learn(sample, src_lang=codes[0], tgt_lang=codes[1])
    return Checker(facts), chain(sample, pairs)


def _checked(
    function: _CheckBlock,
    pairs: Iterator[Pair],
    counts: Counts,
    table: FindingTable | None,
    workers: int,
) -> Iterator[str]:
    """The JSON of each block, if it is asked for; fills in counts and table meanwhile."""
    from mtkit.base.processes import ordered_map
    from mtkit.cli.progress import shown_progress

    def blocks() -> Iterator[Block]:
        first = 1
        while block := list(islice(pairs, BLOCK)):
            yield first, block
            first += len(block)

    with shown_progress(None, what="checking", unit=" pairs") as progress:
        for _, report in ordered_map(function, blocks(), workers=workers):
            counts.add(report.counts)
            if table is not None:
                table.add(report.rows)
            progress.advance(report.counts.pairs)
            yield report.objects


def _write(output: Path | None, parts: Iterable[str]) -> None:
    """Write to a file that appears when it is complete, to a device, or to standard output."""
    from mtkit.base.files import write_whole
    from mtkit.cli.console import Output

    if output is None:
        for part in parts:
            print_text(part)
    elif is_resumable(output):
        write_whole(output, parts)
    else:
        with Output(output, str(output)) as stream:
            for part in parts:
                stream.write(part.encode())
