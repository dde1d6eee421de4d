"""The command `mtkit prepare`."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtkit.cli.console import need_output, print_text, width
from mtkit.cli.options import DATA_ROOT, PathArgument, example

if TYPE_CHECKING:
    from mtkit.data import PreparedData
    from mtkit.prepare import Report

log = logging.getLogger(__name__)


@click.command(epilog=example("mtkit prepare demo-en-de"))
@click.argument("name", required=False)
@click.option("--list", "list_corpora", is_flag=True, help="Print the catalogue and stop.")
@click.option("--src-lang", metavar="L", help="Source language of own files, such as en.")
@click.option("--tgt-lang", metavar="L", help="Target language of own files, such as de.")
@click.option(
    "--train",
    type=(PathArgument, PathArgument),
    multiple=True,
    metavar="SRC TGT",
    help="Own training files, plain or .gz, .bz2, .xz, .zst; repeatable.",
)
@click.option(
    "--train-from",
    multiple=True,
    metavar="SOURCE",
    help="Own training pairs in one place: hf:owner/dataset[:config][:split], a file that ends in"
    " .tsv, .tmx, .parquet or .jsonl, or what two files have before .en and .de; repeatable.",
)
@click.option(
    "--weight",
    type=click.FloatRange(0, min_open=True),
    multiple=True,
    help="How often an epoch sees the pairs of a --train, then of a --train-from; give as many.",
)
@click.option(
    "--valid", type=(PathArgument, PathArgument), metavar="SRC TGT", help="Own validation files."
)
@click.option("--valid-from", metavar="SOURCE", help="The same in one place.")
@click.option(
    "--test", type=(PathArgument, PathArgument), metavar="SRC TGT", help="Own test files."
)
@click.option("--test-from", metavar="SOURCE", help="The same in one place.")
@click.option(
    "--vocab-size",
    type=click.IntRange(1),
    help="Pieces of the joint BPE; default: the catalogue's, or 37,000 for own files.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a rule of cleaning or of the subwords, as in max_ratio=3; repeatable."
    " --settings prints them.",
)
@click.option(
    "--no-cleaning",
    is_flag=True,
    help="Keep every pair but those that are empty, too long or not UTF-8.",
)
@click.option("--settings", "list_settings", is_flag=True, help="Print the settings and stop.")
@click.option("--workers", type=click.IntRange(1), help="Processes; default: one for each core.")
@click.option(
    "--dry-run", is_flag=True, help="Print what would be dropped, with samples, and write nothing."
)
@click.option(
    "--report",
    "page_path",
    type=PathArgument,
    metavar="FILE",
    help="Write a page of HTML about it.",
)
@click.option("--out", type=PathArgument, help="Folder to write; default: data/NAME.")
@click.option("--force", is_flag=True, help="Replace the folder if it exists.")
def prepare(
    name: str | None,
    list_corpora: bool,
    src_lang: str | None,
    tgt_lang: str | None,
    train: tuple[tuple[Path, Path], ...],
    train_from: tuple[str, ...],
    weight: tuple[float, ...],
    valid: tuple[Path, Path] | None,
    valid_from: str | None,
    test: tuple[Path, Path] | None,
    test_from: str | None,
    vocab_size: int | None,
    overrides: tuple[str, ...],
    no_cleaning: bool,
    list_settings: bool,
    workers: int | None,
    dry_run: bool,
    page_path: Path | None,
    out: Path | None,
    force: bool,
) -> None:
    """Make training data of a corpus: fetch, clean, learn subwords, encode.

    NAME is a corpus of the catalogue (--list prints it), or any name for own data, which is
    given with --src-lang, --tgt-lang, --train and --valid, or --train-from and --valid-from.

    Every pair that is dropped is listed in dropped.tsv.gz, with file, line and reason. Stopped
    and started again, the same command goes on with what is done.
    """
    from mtkit.cli import tables as report

    if list_corpora:
        need_output()
        print_text(report.catalogue(width=width()))
        return
    if list_settings:
        need_output()
        print_text(report.preparation_settings(width=width()))
        return
    if name is None:
        raise click.UsageError("give the NAME of a corpus; mtkit prepare --list prints them")
    if Path(name).name != name or name.startswith("."):
        raise click.UsageError(f"NAME: {name!r} cannot be the name of a folder under data/")
    if (valid and valid_from) or (test and test_from):
        raise click.UsageError("give --valid or --valid-from, and --test or --test-from, not both")
    own = {
        "--src-lang": src_lang,
        "--tgt-lang": tgt_lang,
        "--train or --train-from": train or train_from,
        "--valid or --valid-from": valid or valid_from,
    }
    missing = [option for option, value in own.items() if not value]
    is_own = len(missing) < len(own) or bool(test or test_from)
    if is_own and missing:
        raise click.UsageError(f"own data needs {', '.join(own)}; missing: {', '.join(missing)}")
    if weight and len(weight) != len(train) + len(train_from):
        raise click.UsageError("--weight: give one for each --train and --train-from, or none")
    for number in weight:
        if not math.isfinite(number):
            raise click.UsageError(f"--weight: expected a finite number, not {number}")
    if dry_run:
        need_output()
    target = out or DATA_ROOT / name
    from mtkit.config import NO_CLEANING
    from mtkit.prepare import prepare_corpus, prepare_files

    common: dict[str, Any] = {
        "workers": workers,
        "force": force,
        "dry_run": dry_run,
        "look": _page_writer(page_path) if page_path else None,
        "vocab_size": vocab_size,
        "overrides": (*NO_CLEANING, *overrides) if no_cleaning else overrides,
    }
    if not is_own:
        done = prepare_corpus(name, target, **common)
    else:
        from mtkit.prepare import Source, parallel_files, parse_source

        assert src_lang is not None
        assert tgt_lang is not None

        def source(place: tuple[Path, Path] | str, weight: float = 1.0) -> Source:
            if isinstance(place, tuple):
                return parallel_files(*place, weight=weight)
            return parse_source(place, src_lang=src_lang, tgt_lang=tgt_lang, weight=weight)

        places: list[tuple[Path, Path] | str] = [*train, *train_from]
        valid_place, test_place = valid or valid_from, test or test_from
        assert valid_place is not None
        done = prepare_files(
            name,
            target,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            train=list(map(source, places, weight or [1.0] * len(places))),
            valid=source(valid_place),
            test=source(test_place) if test_place else None,
            **common,
        )
    if log.isEnabledFor(logging.INFO):
        click.echo(report.preparation(done), err=True, nl=False)
    if dry_run:
        print_text(report.dropped_samples(done))
        log.info("dry run: nothing was written")
    else:
        log.info("wrote %s", done.path)


def _page_writer(path: Path) -> Callable[[PreparedData, Report], None]:
    """Writes the page about a preparation to a file, which is there as a whole or not at all."""
    from mtkit.prepare import check_page, write_page

    # Not after hours of work.
    check_page(path)

    def write(data: PreparedData, done: Report) -> None:
        write_page(path, data, done)
        log.info("wrote %s", path)

    return write
