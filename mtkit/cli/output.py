"""Where commands write: a stream, or a file that appears when it is complete."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from mtkit.base.errors import MtkitError, in_words
from mtkit.cli.console import Output, print_text

if TYPE_CHECKING:
    from mtkit.cli.progress import Progress
    from mtkit.translate import IncompleteTranslations

log = logging.getLogger(__name__)

# The number of the first line of each window, and its lines.
Windows = Iterable[tuple[int, list[str]]]
# Turns windows into the output of each, with the number of its first line.
Translate = Callable[[Windows], Iterator[tuple[int, bytes]]]
Recut = Callable[[Iterable[list[str]]], Iterator[list[str]]]
Join = Callable[[Iterable[bytes]], Iterable[bytes]]


def is_resumable(output: Path) -> bool:
    """Whether the output is a file, which appears when it is complete; not a device or a pipe."""
    return output.is_file() or not output.exists()


def output_of(output: Path | None) -> Path | None:
    """The file of `--output`; None for standard output.

    A link to a file stays a link, and two links to one file are one output. A link to a stream,
    such as /dev/stdout, is opened by its own name: a pipe has no other.
    """
    from mtkit.base.files import resolved

    if output is None or str(output) == "-":
        return None
    is_file = is_resumable(output) or output.is_dir()
    return resolved(output) if is_file and output.is_symlink() else output


def check_output(
    output: Path | None,
    inputs: Mapping[str, Path | None],
    *,
    restart: bool = False,
    shard: tuple[int, int] | None = None,
    option: str = "--output",
) -> None:
    """Refuse an output that is a folder, in no writable folder, or an input; `-` is standard input.

    With `restart`, also one that cannot be resumed, and with a shard, lines (the first input) that
    are not in a file.
    """
    from mtkit.base.files import require_writable

    if output is not None and output.is_file():
        for name, path in inputs.items():
            if str(path) == "-":
                with suppress(OSError, ValueError, AttributeError):  # it is not a file, or closed
                    if os.path.samestat(os.fstat(sys.stdin.fileno()), output.stat()):
                        raise click.UsageError(f"{option} would replace the standard input")
            elif path is not None and path.exists() and output.samefile(path):
                raise click.UsageError(f"{option} would replace the {name}")
    if output is not None and output.is_dir():
        raise MtkitError(f"{output}: is a folder; give {option} FILE")
    if output is not None and not output.parent.is_dir():
        raise MtkitError(f"{output}: the folder {output.parent} does not exist")
    if output is not None and is_resumable(output):
        require_writable(output, output.parent)
    if restart and not (output is not None and is_resumable(output)):
        raise click.UsageError("--restart requires --output, and a file there")
    name, source = next(iter(inputs.items()), ("--input", None))
    if shard and (source is None or str(source) == "-" or not is_resumable(source)):
        raise click.UsageError(f"--shard requires {name}, and a file there")


def checked_file(option: str, path: Path | None, others: Mapping[str, Path | None]) -> Path | None:
    """The file that an option names, after a check that it can be written; a link stays a link.

    Raises:
        MtkitError: if it cannot be written.
        click.UsageError: if it is a stream, or would replace another file.
    """
    if path is None:
        return None
    file = output_of(path)
    if file is None or not (is_resumable(file) or file.is_dir()):
        raise click.UsageError(f"{option}: give the name of a file, not {path}")
    for name, other in others.items():
        if other is not None and file == other:
            raise click.UsageError(f"{option} would replace the {name}")
    check_output(file, others, option=option)
    return file


def refuse_torchrun(command: str, *, advice: str = "run it without") -> None:
    """Refuse a command of one process, if torchrun has started several."""
    from mtkit.base.launched import given_world_size

    if given_world_size() > 1:
        raise click.UsageError(f"{command} cannot be combined with torchrun; {advice}")


def write_text(output: Path | None, parts: Iterable[str]) -> None:
    """Write text to standard output, or to a file, which appears when it is complete."""
    if output is None:
        for part in parts:
            print_text(part)
        return
    if not is_resumable(output):
        with Output(output, str(output)) as stream:
            for part in parts:
                stream.write(part.encode())
    else:
        from mtkit.base.files import write_whole

        write_whole(output, parts)
    log.info("wrote %s", output)


def write_output(
    output: Path | None,
    lines: Iterable[str],
    translate: Translate,
    progress: Progress,
    *,
    settings: dict[str, str],
    restart: bool,
    typed: Iterator[list[str]] | None = None,
    recut: Recut = iter,
    join: Join = iter,
    counted: Callable[[int], str] = in_words,
    window_lines: int | None = None,
    doubts: IncompleteTranslations | None = None,
) -> None:
    """Write a file that appears when it is complete; or, to a stream, each result when it is ready.

    Args:
        translate: a window that it is given may be empty: there may be no more lines for a while.
        settings: everything that the output depends on besides its input.
        typed: windows that a person types, instead of `lines`.
        recut: makes other windows of the same lines.
        join: makes the output of the results.
        window_lines: how many lines of a file are saved at a time; None for 2,048.
    """
    from mtkit.translate import ResumableOutput, ready_lines, windows

    if output is not None and is_resumable(output):
        resumable = ResumableOutput(
            output, settings, restart=restart, join=join, counted=counted, doubts=doubts
        )
        replaced = "; the file that was there is replaced" if output.exists() else ""
        full = (window for _, window in windows(lines, size=len, count=window_lines))
        try:
            resumable.run(progress.numbered(recut(full)), translate)
            log.info("wrote %s, for %s%s", output, counted(progress.lines), replaced)
        except KeyboardInterrupt:
            saved = "nothing is saved yet"
            if resumable.has_parts():
                done = progress.done
                count = f"the first {counted(done)}" if done else "partial results"
                saved = f"{count} are saved; to continue, run the same command again"
            raise KeyboardInterrupt(saved) from None
        return
    with ExitStack() as stack:
        stream: IO[bytes] = sys.stdout.buffer
        if output is not None:
            stream = stack.enter_context(Output(output, str(output)))
        try:
            results = translate(progress.numbered(recut(typed or ready_lines(lines))))
            for text in join(text for _, text in results):
                stream.write(text)
                stream.flush()
        except KeyboardInterrupt:
            if typed is not None:
                raise
            # What is joined is written at the end.
            written = counted(progress.done if join is iter else 0)
            verb = "was" if written.startswith("1 ") else "were"
            raise KeyboardInterrupt(f"{written} {verb} written") from None
