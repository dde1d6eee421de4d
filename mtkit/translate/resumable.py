"""Resumable file translation, which can be divided among several machines.

The output file appears when it is complete, compressed if its name ends so. Until then the folder
`.NAME.parts` next to it has `job.json`, with the settings of the translation, and a file for every
finished window of lines. The name of a part has the checksums of its source and its content: parts
from other input are never used, and changed parts are translated again. One process at a time
writes an output, or one per share of the lines.

Several processes need only the folder to work together, and may start and end in any order. The
first one makes it, puts a random token in `launch`, joins the parts and deletes the folder. Another
one that has nothing left to translate copies the token to `ended-RANK`, and waits until `launch` is
deleted. The first one deletes nothing before all others have copied its own token, so no process
starts after the folder is gone, and the files of an earlier start that was killed mean nothing.
If the first one fails, it deletes `launch`. Those that have begun then end when their own lines are
done; one that has not begun waits for a new start.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from mtkit.base.errors import MtkitError
from mtkit.base.files import Record, lock, naming_file, read_record, sealed_text
from mtkit.base.text import compressed

log = logging.getLogger(__name__)

_JOB = "job.json"
_LAUNCH = "launch"
# Seconds between two checks for the files of other processes.
_PAUSE = 0.2


Translate = Callable[[Iterable[tuple[int, list[str]]]], Iterable[tuple[int, bytes]]]


class _How(Record):
    """The settings of a translation: everything that it depends on besides its input."""

    settings: dict[str, str]


class ResumableOutput:
    """The parts of one output file.

    Args:
        output: the file to write; `.gz`, `.bz2`, `.xz` or `.zst` at its end compresses it.
        how: everything that the translation depends on besides its input, by option name.
        restart: delete the parts of an earlier start.
        rank: of this process among those that work on the same file, from 0.
        world_size: number of processes; they take the windows in turn.
    """

    def __init__(
        self,
        output: Path,
        how: dict[str, str],
        *,
        restart: bool = False,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.output = output
        self.rank, self.world_size = rank, world_size
        self._how = _How(settings=how)
        self._restart = restart
        self._parts = output.with_name(f".{output.name}.parts")
        self._token = uuid.uuid4().bytes

    def run(
        self,
        windows: Iterable[list[str]],
        translate: Translate,
    ) -> None:
        """Translate the missing windows, and join the parts to the output.

        Args:
            windows: all of the input, divided in the same way every time.
            translate: takes windows, each with the number of its first line, from 1. It yields
                that number and the output for the window, and may read windows in advance.

        Raises:
            MtkitError: if another process writes the same output, if an earlier start had other
                input or settings, or if a part cannot be written. Finished parts are kept.
        """
        holding = self.output.with_name(f".{self.output.name}.{self.rank}.lock")
        with lock(holding, what=self.output, doing="written"):
            if self.rank == 0:
                with naming_file(self.output):
                    if self._restart:
                        shutil.rmtree(self._parts, ignore_errors=True)
                    self._parts.mkdir(exist_ok=True)
            try:
                self._check_same()
                self._run(windows, translate)
            finally:
                # Without a part there is nothing to resume.
                if self.world_size == 1 and not self._files():
                    shutil.rmtree(self._parts, ignore_errors=True)

    def has_parts(self) -> bool:
        """Whether there are finished parts next to the output."""
        return bool(self._files())

    def _run(
        self,
        windows: Iterable[list[str]],
        translate: Translate,
    ) -> None:
        names: dict[int, str] = {}
        try:
            for first_line, text in translate(self._missing(windows, names)):
                self._write(self._parts / f"{names[first_line]}-{_digest(text)}", [text])
            if self.rank == 0:
                self._join(list(names.values()))
                self._delete_parts()
            else:
                self._wait_for_first()
        except BaseException:
            if self.rank == 0:
                # The others end with their own lines, and do not wait for this process.
                self._end_launch()
            raise

    def _missing(
        self, windows: Iterable[list[str]], names: dict[int, str]
    ) -> Iterator[tuple[int, list[str]]]:
        """The windows that this process translates, each with the number of its first line.

        The name of a part begins with the number of its window and the checksum of its lines;
        these are added to `names` for all windows, by the number of the first line.
        """
        done = 0
        first_line = 1
        for index, window in enumerate(windows):
            text = "\n".join(window).encode("utf-8", "surrogatepass")
            name = f"{index:08d}-{_digest(text)}"
            names[first_line] = name
            if self._is_done(index, name, first_line):
                done += len(window)
            elif index % self.world_size == self.rank:
                if done:
                    log.info("%s: %s lines are done already", self.output, f"{done:,}")
                    done = 0
                yield first_line, window
            first_line += len(window)

    def _check_same(self) -> None:
        how = self._how.settings
        path = self._parts / _JOB
        job = sealed_text(self._how).encode()
        # Without a part, translations with different settings cannot be mixed.
        if self.rank == 0 and not self._files():
            self._write(path, [job])
        if self.rank == 0 and self.world_size > 1:
            self._write(self._parts / _LAUNCH, [self._token])
        while self.rank and not self._has_begun(job):
            time.sleep(_PAUSE)
        advice = "start over with --restart"
        begun = read_record(path, _How, advice=advice).settings
        for name in sorted({*how, *begun}):
            if how.get(name) != begun.get(name):
                raise MtkitError(
                    f"{self.output}: was started with {name} {begun.get(name)}, not "
                    f"{how.get(name)}; use the same again, or {advice}"
                )

    def _has_begun(self, job: bytes) -> bool:
        """Whether the first process has begun, and the settings in the folder will not change."""
        is_settled = bool(self._files()) or _content(self._parts / _JOB) == job
        return is_settled and (self._parts / _LAUNCH).exists()

    def _files(self) -> list[Path]:
        return sorted(self._parts.glob("[0-9]*-*[0-9a-f]"))

    def _is_done(self, index: int, name: str, first_line: int) -> bool:
        for path in self._parts.glob(f"{index:08d}-*[0-9a-f]"):
            if not path.name.startswith(f"{name}-"):
                raise MtkitError(
                    f"{self.output}: was started with different input (from line {first_line:,} "
                    "on); use the same input again, or start over with --restart"
                )
            # Another process may find the same change, and delete the part first.
            if (content := _content(path)) is None:
                continue
            if path.name == f"{name}-{_digest(content)}":
                return True
            log.warning("%s: was changed, so it is translated again", path)
            path.unlink(missing_ok=True)
        return False

    def _part(self, name: str) -> Path:
        """The file of a part; waits until it exists."""
        while not (found := sorted(self._parts.glob(f"{name}-*[0-9a-f]"))):
            time.sleep(_PAUSE)
        return found[0]

    def _join(self, names: list[str]) -> None:
        paths = [self._part(name) for name in names]
        if len(self._files()) > len(paths):
            raise MtkitError(
                f"{self.output}: was started with more input; "
                "use the same input again, or start over with --restart"
            )
        self._write(self.output, (path.read_bytes() for path in paths))

    def _delete_parts(self) -> None:
        """Delete the folder when all other processes have ended, whose output is complete."""
        others = [self._ended(rank) for rank in range(1, self.world_size)]
        while any(_content(path) != self._token for path in others):
            time.sleep(_PAUSE)
        self._end_launch()
        shutil.rmtree(self._parts, ignore_errors=True)

    def _end_launch(self) -> None:
        with suppress(OSError):
            (self._parts / _LAUNCH).unlink()

    def _wait_for_first(self) -> None:
        """Tell the first process that this one has ended, and wait until it knows."""
        told = None
        while (token := _content(self._parts / _LAUNCH)) is not None:
            if token != told:
                self._write(self._ended(self.rank), [token])
                told = token
            time.sleep(_PAUSE)

    def _ended(self, rank: int) -> Path:
        return self._parts / f"ended-{rank}"

    def _write(self, path: Path, pieces: Iterable[bytes]) -> None:
        """Write a file, which appears under its name when it is complete and on the disk."""
        partial = path.with_name(f".{path.name}.{self.rank}.partial")
        with naming_file(path):
            try:
                with partial.open("wb") as file:
                    with compressed(path, file) as stream:
                        for piece in pieces:
                            stream.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
                partial.replace(path)
            finally:
                with suppress(OSError):
                    partial.unlink()


def _content(path: Path) -> bytes | None:
    """The content of a file; None if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
