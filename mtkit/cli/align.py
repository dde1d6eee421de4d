"""The command `mtkit align`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtkit.align import METHODS
from mtkit.base.errors import MtkitError
from mtkit.cli import options as shared
from mtkit.cli.output import Windows, check_output, output_of, refuse_torchrun, write_output

if TYPE_CHECKING:
    from mtkit.align import Alignment, Method
    from mtkit.cli.progress import Progress
    from mtkit.run_folder import Run
    from mtkit.translate import Translator

align_option = shared.option_group("Alignment")


@shared.command(
    "Align the words of given translations.",
    "mtkit align test.en test.de --run runs/mine",
    "mtkit align test.en test.de --run runs/mine --output links.txt",
    "mtkit align test.en test.de --run runs/mine --symmetrize union --json",
)
@click.argument("src_path", metavar="SRC", type=shared.PathArgument)
@click.argument("tgt_path", metavar="TGT", type=shared.PathArgument)
@shared.output_options
@shared.in_out_option(
    "--json",
    "as_json",
    help="Print a JSON object per pair: links with weights, and the characters of each word.",
)
@align_option(
    "--reverse FOLDER",
    "reverse_path",
    help="Run of the reverse direction. The alignments of both directions are joined"
    " (--symmetrize).",
)
@align_option(
    "--symmetrize",
    "method",
    type=click.Choice(METHODS),
    default="grow-diag-final-and",
    help="Method to join the links of the two directions. Default: grow-diag-final-and.",
)
@shared.run_option
@shared.language_options
@shared.checkpoint_option
@shared.device_option
@shared.hardware_option(
    "--batch-tokens N", help="Batch size in tokens of either side. Lower it if memory runs out."
)
def align(
    src_path: Path,
    tgt_path: Path,
    output_path: Path | None,
    as_json: bool,
    restart: bool,
    shard: tuple[int, int] | None,
    reverse_path: Path | None,
    method: Method,
    run_path: Path | None,
    **decode: Any,
) -> None:
    """Align the words of each line of SRC with those of its translation, the same line of TGT.

    A line of output has the links of a pair: 0-0 1-2 links the first words of both lines, and the
    second word of the source with the third word of the target. Words are the parts of a line
    between spaces. SRC or TGT may be -, standard input.

    With --output, partial results are kept next to the output file until it is complete. To resume
    an interrupted run, run the same command again. To divide files among processes, give each
    another --shard I/N of the same files, and join the outputs.
    """
    from mtkit.check import with_languages_noted

    refuse_torchrun("mtkit align", advice="give each process another --shard I/N")
    shared.refuse_stdin_twice([src_path, tgt_path])
    output = output_of(output_path)
    inputs = {"SRC": src_path, "TGT": tgt_path}
    check_output(output, inputs, restart=restart, shard=shard)
    run = shared.open_run(run_path)
    shared.refuse_parser(run)
    reverse = None if reverse_path is None else shared.open_run(reverse_path)
    options = shared.DecodeOptions.parse(workers=1, **shared.IN_PYTORCH, **decode)
    with ExitStack() as stack:
        translator = stack.enter_context(options.load([run]))
        backward = None
        if reverse is not None:
            # Only a multilingual model needs the languages.
            languages = {"src_lang": decode["tgt_lang"], "tgt_lang": decode["src_lang"]}
            backward = stack.enter_context(options.load([reverse], **languages))
            _check_languages(run, translator, reverse, backward)
        for used in filter(None, (translator, backward)):
            used.decoder.try_weights()
        files = src_path, tgt_path
        pairs = shared.zip_lines(*map(shared.lines_of, files), paths=files)
        pairs = with_languages_noted(pairs, (translator.src_lang, translator.tgt_lang))
        from mtkit.cli.progress import part_with_progress

        part, progress = stack.enter_context(
            part_with_progress(pairs, src_path, output, shard, what="aligning")
        )
        reverse_aligner = None if backward is None else backward.aligner()
        aligned = partial(translator.aligner().align, reverse=reverse_aligner, method=method)
        settings = {
            "--symmetrize": method,
            "--json": str(as_json),
            **_settings("--run", run, translator),
            **(_settings("--reverse", reverse, backward) if reverse and backward else {}),
            **({} if shard is None else {"--shard": "{}/{}".format(*shard)}),
        }
        write_output(
            output,
            # No line has a line end in it.
            map("\n".join, part),
            partial(_outputs, align=aligned, progress=progress, as_json=as_json),
            progress,
            settings=settings,
            restart=restart,
        )


def _check_languages(run: Run, forward: Translator, reverse: Run, backward: Translator) -> None:
    from mtkit.base.language_id import is_same_language

    turned = (forward.src_lang, forward.tgt_lang), (backward.tgt_lang, backward.src_lang)
    if all(map(is_same_language, *turned)):
        return
    advice = ""
    if forward.src_prefix or backward.src_prefix:
        advice = "; a model of several languages needs --src-lang and --tgt-lang here"
    raise MtkitError(
        f"{reverse.path}: translates {backward.src_lang} to {backward.tgt_lang}, which is "
        f"not the reverse of {run.path}, {forward.src_lang} to {forward.tgt_lang}{advice}"
    )


def _outputs(
    windows: Windows,
    align: Callable[..., Sequence[Alignment]],
    progress: Progress,
    *,
    as_json: bool,
) -> Iterator[tuple[int, bytes]]:
    """The output for each window of joined pairs, with the number of its first line."""
    for first_line, window in windows:
        if not window:
            continue
        progress.begin(first_line)
        sources, targets = map(list, zip(*(pair.split("\n") for pair in window), strict=True))
        numbers = range(first_line, first_line + len(window))
        alignments = align(sources, targets, numbers=numbers)
        lines: Iterable[str] = map(str, alignments)
        if as_json:
            lines = (
                json.dumps({"line": number, **alignment.as_dict()})
                for number, alignment in zip(numbers, alignments, strict=True)
            )
        yield first_line, "".join(f"{line}\n" for line in lines).encode()
        progress.finish(numbers[-1])


def _settings(name: str, run: Run, translator: Translator) -> dict[str, str]:
    """All that the output depends on of one of the runs; a resumed run must have the same."""
    settings = {name: shared.identity(run), f"checkpoint of {name}": translator.checkpoint}
    if translator.src_prefix:
        settings[f"target language of {name}"] = translator.tgt_lang
    settings[f"heads of {name}"] = ", ".join(map(str, translator.aligner().heads))
    most, setting = translator.runs.source_limit
    settings[f"{setting} of {name}"] = str(most)
    return settings
