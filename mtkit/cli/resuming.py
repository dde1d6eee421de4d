"""Output: files that appear when they are complete, which an interrupted command can resume, and
streams.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from mtkit.base.errors import MtkitError
from mtkit.cli.console import Output

if TYPE_CHECKING:
    from mtkit.cli.progress import Progress

log = logging.getLogger(__name__)

# What turns windows of lines into the output of each.
Outputs = Callable[[Iterable[tuple[int, list[str]]]], Iterator[tuple[int, bytes]]]
Recut = Callable[[Iterable[list[str]]], Iterator[list[str]]]


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


def check_output(output: Path | None, inputs: Mapping[str, Path | None], *, restart: bool) -> None:
    """Refuse an output that is a folder, in no folder, or one of the inputs, `--restart` where
    nothing is resumed, and streams where several processes would share them.

    Args:
        output: the file; None for standard output.
        inputs: by option or argument; `-` is standard input.
        restart: whether `--restart` was given.
    """
    from mtkit.base.processes import given_world_size

    if output is not None and output.is_file():
        for name, path in inputs.items():
            if str(path) == "-":
                with suppress(OSError, ValueError, AttributeError):  # it is not a file, or closed
                    if os.path.samestat(os.fstat(sys.stdin.fileno()), output.stat()):
                        raise click.UsageError("--output would replace the standard input")
            elif path is not None and path.exists() and output.samefile(path):
                raise click.UsageError(f"--output would replace the {name}")
    if output is not None and output.is_dir():
        raise MtkitError(f"{output}: is a folder; give --output FILE")
    if output is not None and not output.parent.is_dir():
        raise MtkitError(f"{output}: the folder {output.parent} does not exist")
    if restart and not (output is not None and is_resumable(output)):
        raise click.UsageError("--restart requires --output, and a file there")
    if given_world_size() == 1:
        return
    if restart:
        refuse_torchrun("--restart", advice="run it once without, or delete the parts")
    if output is None or not is_resumable(output):
        refuse_torchrun("standard output, or a device,", advice="give --output, and a file there")
    if "-" in map(str, inputs.values()):
        refuse_torchrun("standard input", advice="give a file")


def refuse_torchrun(what: str, *, advice: str = "run it without") -> None:
    """Refuse what several processes cannot do together, if torchrun has started several.

    Args:
        what: is refused.
        advice: what to do instead.
    """
    from mtkit.base.processes import given_world_size

    if given_world_size() > 1:
        raise click.UsageError(f"{what} cannot be combined with torchrun; {advice}")


def write_output(
    output: Path | None,
    lines: Iterable[str],
    outputs: Outputs,
    progress: Progress,
    *,
    settings: dict[str, str],
    restart: bool,
    typed: Iterator[list[str]] | None = None,
    recut: Recut = iter,
) -> None:
    """Write a file that appears when it is complete; or, to a stream, each result when it is ready.

    Args:
        output: a file, a device or a pipe; None for standard output.
        lines: of the input.
        outputs: the output for each window; a window is the number of its first line, and its
            lines. It may be empty: there may be no more lines for a while.
        progress: counts the lines that are written.
        settings: everything that the output depends on besides its input.
        restart: discard the parts of an earlier start.
        typed: windows that a person types, instead of `lines`.
        recut: makes other windows of the same lines.
    """
    from mtkit.translate import ready_lines

    if output is not None and is_resumable(output):
        _write_resumably(
            output, lines, outputs, progress, settings=settings, restart=restart, recut=recut
        )
        return
    with ExitStack() as stack:
        stream: IO[bytes] = sys.stdout.buffer
        if output is not None:
            stream = stack.enter_context(Output(output, str(output)))
        try:
            for _, text in outputs(_numbered(recut(typed or ready_lines(lines)))):
                stream.write(text)
                stream.flush()
        except KeyboardInterrupt:
            if typed is not None:
                raise
            raise KeyboardInterrupt(f"{progress.done:,} lines were written") from None


def _numbered(windows: Iterable[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Each window with the number of its first line, from 1."""
    first_line = 1
    for window in windows:
        yield first_line, window
        first_line += len(window)


def _write_resumably(
    output: Path,
    lines: Iterable[str],
    outputs: Outputs,
    progress: Progress,
    *,
    settings: dict[str, str],
    restart: bool,
    recut: Recut,
) -> None:
    """Write a file that appears when it is complete, as `write_output` does."""
    from mtkit.base.processes import given_rank, given_world_size
    from mtkit.translate import ResumableOutput, windows

    rank, world_size = given_rank() or 0, given_world_size()
    resumable = ResumableOutput(output, settings, restart=restart, rank=rank, world_size=world_size)
    replaced, count = output.exists(), 0

    def counted() -> Iterator[list[str]]:
        nonlocal count
        for _, window in windows(lines, size=len):
            count += len(window)
            yield window

    try:
        resumable.run(recut(counted()), outputs)
        instead = "; the file that was there is replaced" if replaced else ""
        log.info("wrote %s, for %s lines%s", output, f"{count:,}", instead)
    except KeyboardInterrupt:
        saved = "no lines are saved yet"
        if resumable.has_parts():
            saved = "partial results are saved"
            if world_size == 1 and progress.done:
                saved = f"the first {progress.done:,} lines are saved"
            saved += "; to continue, run the same command again"
        raise KeyboardInterrupt(saved) from None
