"""The command `mtkit translate`."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import shlex
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from mtkit.cli.options import (
    PathArgument,
    decode_options,
    example,
    lines_of,
    load_translator,
    open_run,
)
from mtkit.cli.streams import has_input, has_output, output_file
from mtkit.errors import MtkitError

if TYPE_CHECKING:
    from mtkit.config import DecodeConfig
    from mtkit.run_folder import Run
    from mtkit.translate import Translation, Translator, Window

log = logging.getLogger(__name__)


@click.command(
    epilog=example("echo 'The old woman buys a red umbrella.' | mtkit translate"),
    context_settings={"allow_extra_args": True},
)
@click.option(
    "--run",
    "run_paths",
    type=PathArgument,
    multiple=True,
    help="Run folder; repeatable, for the mean of several models; default: the newest under runs/.",
)
@click.option(
    "--input", "input_path", type=PathArgument, help="File; default, and -: standard input."
)
@click.option(
    "--output", "output_path", type=PathArgument, help="File; default, and -: standard output."
)
@decode_options
@click.option(
    "--nbest",
    type=click.IntRange(1, 1000),
    help="Print this many translations of each line: line number, score and text, tab-separated"
    " (with --mbr-samples, at most the different ones drawn).",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON object for each line: translations with scores, subwords and seconds.",
)
@click.option(
    "--target-prefix",
    "prefix_path",
    type=PathArgument,
    help="File with what each translation is to begin with, a line for each line of input.",
)
@click.option("--min-length", type=click.IntRange(0), help="Subwords before an output may end.")
@click.option("--max-length", type=click.IntRange(1), help="Most subwords of an output.")
@click.option(
    "--no-repeat-ngram",
    type=click.IntRange(0),
    help="So many subwords in a row never come twice in an output; 0 allows all.",
)
@click.option(
    "--sample/--no-sample", default=None, help="Draw translations instead of searching the best."
)
@click.option(
    "--mbr-samples",
    type=click.IntRange(0),
    help="Draw so many and take the one most like the others by chrF (minimum Bayes risk).",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0, min_open=True),
    help="Of draws: below 1 the probable come more often.",
)
@click.option(
    "--top-k",
    type=click.IntRange(0),
    help="Draw from so many of the most probable subwords; 0 for all.",
)
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1, min_open=True),
    help="Draw from the most probable subwords that have so much of the probability together.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**64 - 1),
    help="Of draws: with the number of a line it fixes what is drawn.",
)
@click.option(
    "--split-sentences/--no-split-sentences",
    default=None,
    help="Translate the sentences of a line one by one; needs pip install 'mtkit[split]'.",
)
@click.option(
    "--restart", is_flag=True, help="Forget what an interrupted start with --output has done."
)
def translate(
    run_paths: tuple[Path, ...],
    input_path: Path | None,
    output_path: Path | None,
    nbest: int | None,
    as_json: bool,
    prefix_path: Path | None,
    restart: bool,
    **decode: Any,
) -> None:
    """Translate lines of text: one line in, one line out, in order.

    With --output, what is done lies beside the file until all is: after a kill, the same command
    goes on. Started on several machines with torchrun, it shares the lines out among them.
    """
    if words := click.get_current_context().args:
        raise click.UsageError(_how_text_is_given(words))
    runs = [open_run(path) for path in run_paths or (None,)]
    _refuse_useless(runs[0].config.decode, decode)
    input_path = None if str(input_path) == "-" else input_path
    output_path = None if str(output_path) == "-" else output_path
    if input_path is None and not has_input():
        raise click.UsageError("standard input is closed; give --input")
    if output_path is None and not has_output():
        raise click.UsageError("standard output is closed; give --output")
    if decode["split_sentences"] or runs[0].config.decode.split_sentences:
        given = {"--nbest": (nbest or 1) > 1, "--target-prefix": prefix_path is not None}
        if useless := [option for option, is_given in given.items() if is_given]:
            raise click.UsageError(
                f"{useless[0]} is for lines that are translated whole, not with --split-sentences"
            )
    from mtkit.cli.progress import count_lines, shown_progress
    from mtkit.processes import given_rank, given_world_size
    from mtkit.text import decode_lines, open_binary
    from mtkit.translate import Job, Window, ready_lines, windows

    if output_path is not None:
        # A link stays a link, and two of them are one output.
        if output_path.is_symlink():
            output_path = output_path.resolve()
        _refuse_to_replace(output_path, input_path, prefix_path)
    if restart and not _keeps_parts(output_path):
        raise click.UsageError("--restart is for a translation into a file with --output")
    if restart and given_world_size() > 1:
        raise click.UsageError("--restart: run it once without torchrun, or delete the parts")
    with ExitStack() as stack:
        typed = input_path is None and sys.stdin.isatty()
        if input_path is None:
            lines = lines_of(Path("-"))
        else:
            source = stack.enter_context(open_binary(input_path))
            lines = decode_lines(source, name=str(input_path))
        prefixes = None if prefix_path is None else list(lines_of(prefix_path))
        if prefixes is not None:
            lines = _as_many_as(prefixes, lines, name=str(prefix_path))
        translator = stack.enter_context(load_translator(runs, **decode))
        if typed:
            log.info("translating what you type; end with Ctrl-D")

        to_be_shown = (
            log.isEnabledFor(logging.INFO)
            and sys.stderr.isatty()
            and (output_path is not None or not sys.stdout.isatty())
        )
        is_counted = to_be_shown and input_path is not None and input_path.is_file()
        total = count_lines(input_path) if is_counted and input_path is not None else None
        progress = stack.enter_context(shown_progress(total, is_wanted=is_counted))

        def translated(windows: Iterable[tuple[int, list[str]]]) -> Iterator[bytes]:
            # The translator looks ahead of what it yields.
            first_lines: deque[int] = deque()

            def given() -> Iterator[Window]:
                for first_line, window in windows:
                    progress.begin(first_line)
                    first_lines.append(first_line)
                    start = first_line - 1
                    of_window = prefixes and prefixes[start : start + len(window)]
                    yield Window(first_line, window, of_window)

            for found in translator.translate_windows(
                given(), n_best=nbest or 1, progress=progress.advance
            ):
                first_line = first_lines.popleft()
                numbered = enumerate(found, first_line)
                if as_json:
                    yield _objects(numbered)
                elif nbest is not None:
                    yield _rows(numbered)
                else:
                    yield "".join(f"{best.text}\n" for best, *_ in found).encode()
                # It is asked for the next one when this is written.
                progress.finish(first_line - 1 + len(found))

        if output_path is not None and _keeps_parts(output_path):
            how = _how(runs, translator, nbest=nbest, as_json=as_json, prefixes=prefixes)
            rank, world_size = given_rank() or 0, given_world_size()
            job = Job(output_path, how, restart=restart, rank=rank, world_size=world_size)
            try:
                job.run((window for _, window in windows(lines, size=len)), translated)
            except KeyboardInterrupt:
                saved = "no lines are saved yet"
                if job.has_parts():
                    saved = "what is done is saved"
                    if world_size == 1 and progress.done:
                        saved = f"the first {progress.done:,} lines are saved"
                    saved += "; to continue, run the same command, without --restart"
                raise KeyboardInterrupt(saved) from None
            return
        output: IO[bytes] = sys.stdout.buffer
        if output_path is not None:
            output = stack.enter_context(output_file(output_path))
        if typed and prefixes is None:
            ready = _typed_lines(f"{translator.src_lang or 'source'}> ")
        else:
            ready = ready_lines(lines)
        try:
            for text in translated(_numbered(ready)):
                output.write(text)
                # At once, so that the reader does not wait.
                output.flush()
        except KeyboardInterrupt:
            if typed:
                raise
            raise KeyboardInterrupt(f"{progress.done:,} lines were written") from None


def _refuse_to_replace(output: Path, source: Path | None, prefixes: Path | None) -> None:
    """Refuse an output that is one of the inputs."""
    if not output.is_file():
        return
    if source is None and sys.stdin is not None:
        with suppress(OSError, ValueError):  # it is not a file
            if os.path.samestat(os.fstat(sys.stdin.fileno()), output.stat()):
                raise click.UsageError("--output would replace the standard input")
    for option, path in (("--input", source), ("--target-prefix", prefixes)):
        if path is not None and path.exists() and output.samefile(path):
            raise click.UsageError(f"--output would replace the {option}")


def _how_text_is_given(words: Sequence[str]) -> str:
    """The usage error for text, or the name of a file, that is given as an argument."""
    for word in words:
        if os.path.isfile(word):
            return f"{shlex.quote(word)} is a file: give it with --input {shlex.quote(word)}"
    text = shlex.quote(" ".join(words))
    if len(text) > 60:
        text = "'...'"
    return f"text comes from standard input: echo {text} | mtkit translate; a file with --input"


def _refuse_useless(config: DecodeConfig, given: dict[str, Any]) -> None:
    """Options about draws, where a run and its options draw nothing."""
    drawn = given["sample"] or given["mbr_samples"] or config.sample or config.mbr_samples
    for name in ("temperature", "top_k", "top_p", "seed"):
        if given[name] is not None and not drawn:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{option} is about draws, and nothing is drawn; add --sample or --mbr-samples N"
            )


def _typed_lines(prompt: str) -> Iterator[list[str]]:
    """What a person types, a line at a time, until Ctrl-D; each is answered before the next."""
    with suppress(ImportError):
        import readline  # noqa: F401 - with it `input` edits lines and knows the earlier ones
    # Bytes that are no text must not end what a person has begun.
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    # Into a file or pipe the prompt would be part of the data.
    prompt = prompt if sys.stdout.isatty() else ""
    while True:
        try:
            line = input(prompt)
        except EOFError:
            return
        yield [line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")]
        yield []


def _numbered(windows: Iterable[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Each window with the number of its first line, from 1."""
    first_line = 1
    for window in windows:
        yield first_line, window
        first_line += len(window)


def _rows(numbered: Iterable[tuple[int, list[Translation]]]) -> bytes:
    """Of each translation the line's number, the score and the text."""
    return "".join(
        f"{number}\t{translation.score:.6f}\t{translation.text}\n"
        for number, translations in numbered
        for translation in translations
    ).encode()


def _objects(numbered: Iterable[tuple[int, list[Translation]]]) -> bytes:
    """A JSON object for each line."""
    return "".join(
        json.dumps(
            {
                "line": number,
                "translations": [
                    {
                        "text": found.text,
                        "score": round(found.score, 6),
                        "log_prob": round(found.log_prob, 6),
                        "finished": found.finished,
                        "tokens": [
                            [piece, round(log_prob, 6)]
                            for piece, log_prob in zip(found.pieces, found.log_probs, strict=True)
                        ],
                    }
                    for found in translations
                ],
                "seconds": round(translations[0].seconds, 6),
            },
            ensure_ascii=False,
        )
        + "\n"
        for number, translations in numbered
    ).encode()


def _how(
    runs: Sequence[Run],
    translator: Translator,
    *,
    nbest: int | None,
    as_json: bool,
    prefixes: list[str] | None,
) -> dict[str, str]:
    """Whatever a translation depends on besides its input."""
    from mtkit.files import sha256_of_json

    settings = translator.config.model_dump()
    # How much is translated at a time changes nothing.
    del settings["batch_tokens"], settings["average_checkpoints"]
    names = [f"{run.path.name} {sha256_of_json(run.manifest.model_dump())[:16]}" for run in runs]
    return {
        "run": ", ".join(names),
        "checkpoint": translator.checkpoint,
        **{f"decode.{name}": str(value) for name, value in settings.items()},
        "--nbest": str(nbest),
        "--json": str(as_json),
        "--target-prefix": _digest("\n".join(prefixes)) if prefixes is not None else "none",
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _as_many_as(prefixes: list[str], lines: Iterator[str], *, name: str) -> Iterator[str]:
    """The lines, if there are as many of them."""
    count = 0
    for line in lines:
        if count == len(prefixes):
            raise MtkitError(f"{name}: ends after {count:,} lines, but the input goes on")
        yield line
        count += 1
    if count < len(prefixes):
        raise MtkitError(f"{name}: has {len(prefixes):,} lines, but the input has {count:,}")


def _keeps_parts(output: Path | None) -> bool:
    """Whether the output is a file that can appear as a whole; a device or a pipe cannot."""
    return output is not None and (output.is_file() or not output.exists())
