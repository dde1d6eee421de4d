"""The command `mtkit inspect`."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtkit.base.errors import MtkitError
from mtkit.cli import options as shared
from mtkit.cli.output import check_output, output_of, refuse_torchrun, write_text

if TYPE_CHECKING:
    from mtkit.inspect import Inspection

log = logging.getLogger(__name__)

# Each sentence is a page of its own.
MAX_SENTENCES = 1000


@shared.command(
    "Look inside a model: its attention for a sentence.",
    "mtkit inspect 'The old woman buys a red umbrella.' --output page.html",
    "mtkit inspect --input test.en --output pages",
)
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@shared.in_out_option(
    "--input FILE",
    "input_path",
    help="File of sentences, one per line, instead of TEXT. -: standard input.",
)
@shared.in_out_option(
    "--target TEXT",
    "targets",
    multiple=True,
    help="Translation of TEXT to inspect, instead of the model's own. Repeatable, once per TEXT.",
)
@shared.in_out_option(
    "--target-file FILE",
    "target_path",
    help="File of translations to inspect, one per line of --input.",
)
@shared.in_out_option(
    "--output PATH",
    "output_path",
    help="HTML page to write; for --input or several TEXTs, a new folder of pages with an index."
    " With --json, a file; default: standard output.",
)
@shared.in_out_option(
    "--force", help="Replace the folder --output if it is an earlier one of pages."
)
@shared.in_out_option("--json", "as_json", help="Print all numbers, as JSON per sentence.")
@shared.run_option
@shared.language_options
@shared.checkpoint_option
@shared.device_option
def inspect(
    texts: tuple[str, ...],
    input_path: Path | None,
    targets: tuple[str, ...],
    target_path: Path | None,
    output_path: Path | None,
    force: bool,
    as_json: bool,
    run_path: Path | None,
    **decode: Any,
) -> None:
    """Show what a model does with sentences: attention of every layer and head, word alignment,
    and the probability of each subword.

    TEXT is a sentence of the source language; it is translated first. The page is one file that
    loads nothing, and opens in every browser.
    """
    if bool(texts) == (input_path is not None):
        raise click.UsageError("give the sentences as TEXT, or as a file with --input")
    if targets and len(targets) != len(texts):
        wanted = len(texts)
        raise click.UsageError(f"give --target once for each TEXT: {wanted}, not {len(targets)}")
    if target_path is not None and input_path is None:
        raise click.UsageError("--target-file requires --input")
    shared.refuse_stdin_twice([input_path, target_path])
    refuse_torchrun("mtkit inspect")
    output = output_of(output_path)
    if not as_json and output is None:
        raise click.UsageError("give --output PAGE.html (or --json)")
    if input_path is None:
        sources = [_line_of(text, "TEXT") for text in texts]
    else:
        # One more than is allowed, so that a long file need not be read.
        sources = list(itertools.islice(shared.lines_of(input_path), MAX_SENTENCES + 1))
    name = "TEXT" if input_path is None else shared.name_of(input_path)
    if not sources:
        raise MtkitError(f"{name}: has no lines")
    if len(sources) > MAX_SENTENCES:
        raise MtkitError(f"{name}: has more than {MAX_SENTENCES:,} lines, and each is a page")
    for number, source in enumerate(sources, start=1):
        if not source.strip():
            raise MtkitError(f"{name}, line {number}: is blank")
    translations: Iterable[str | None] = itertools.repeat(None, len(sources))
    if input_path is not None and target_path is not None:
        both = shared.zip_lines(
            sources, shared.lines_of(target_path), paths=(input_path, target_path)
        )
        translations = [translation for _, translation in both]
    elif targets:
        translations = [_line_of(text, "--target") for text in targets]
    is_folder = not as_json and (input_path is not None or len(sources) > 1)
    if force and not is_folder:
        raise click.UsageError("--force is for a folder of pages")
    if is_folder and output is not None:
        from mtkit.base.folders import check_writable

        check_writable(
            output, force=force, kind="a folder of pages", place="--output", is_kind=_has_only_pages
        )
    else:
        check_output(output, {"--input": input_path, "--target-file": target_path})
    run = shared.open_run(run_path)
    # The attention is that of the whole text.
    options = shared.DecodeOptions.parse(
        workers=1, split_sentences=False, **shared.IN_PYTORCH, **decode
    )
    from mtkit.inspect import inspect_pair, inspection_page

    with options.load([run]) as translator:
        pairs = enumerate(zip(sources, translations, strict=True), start=1)
        inspections = (inspect_pair(translator, *pair, number=number) for number, pair in pairs)
        if as_json:
            printed: Iterable[str] = (
                f"{json.dumps(item.as_dict(), ensure_ascii=False)}\n" for item in inspections
            )
        else:
            page = partial(inspection_page, run=run.name, checkpoint=translator.checkpoint)
            if is_folder and output is not None:
                _write_pages(output, page, inspections, run=run.name)
                return
            printed = map(page, inspections)
        write_text(output, printed)


def _line_of(text: str, name: str) -> str:
    """Text of the command line, as one line."""
    try:
        text.encode()
    except UnicodeEncodeError:
        # Bytes that are not UTF-8 are lone surrogates there.
        raise MtkitError(f"{name}: is not UTF-8") from None
    return " ".join(text.splitlines())


def _has_only_pages(folder: Path) -> bool:
    """Whether a folder has pages of `mtkit inspect` and nothing else."""
    index = folder / "index.html"
    names = {path.stem for path in folder.iterdir() if path.suffix == ".html"}
    is_whole = len(names) == sum(1 for _ in folder.iterdir()) and index.is_file()
    return is_whole and " – Attention</title>" in index.read_text("utf-8", "replace")


def _write_pages(
    folder: Path, page: Callable[[Inspection], str], inspections: Iterable[Inspection], *, run: str
) -> None:
    from mtkit.base.folders import new_folder
    from mtkit.inspect import PageEntry, index_page

    entries = []
    with new_folder(folder) as partial_folder:
        for number, inspection in enumerate(inspections, start=1):
            entry = PageEntry(f"{number:04}.html", inspection.source, inspection.translation)
            (partial_folder / entry.file).write_text(page(inspection), encoding="utf-8")
            entries.append(entry)
        (partial_folder / "index.html").write_text(index_page(entries, run=run), encoding="utf-8")
    log.info("wrote %s (%d pages); open index.html there", folder, len(entries))
