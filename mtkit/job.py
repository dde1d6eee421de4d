"""A long translation that goes on where it was stopped, and may be shared out among machines.

The output file appears when it is whole. Until then the folder `.NAME.parts` beside it has
`job.json`, which says how the translation is made, and a file for every window of lines that is
done. A part carries the hash of its source in its name, so what was translated from other input
is never taken for done.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mtkit.errors import MtkitError

log = logging.getLogger(__name__)

_JOB = "job.json"
# Seconds between two looks for the parts of other processes.
_PAUSE = 0.2


class Job:
    """The parts of one output file.

    Args:
        output: the file to write.
        how: whatever the translation depends on besides its input, by the name a user knows.
        restart: delete what an earlier start has left.
        rank: of this process among those that work on the same file, from 0.
        world_size: how many there are; a window is done by the one whose turn it is.

    Raises:
        MtkitError: if an earlier start translated otherwise, or the folder cannot be written.
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
        self._parts = output.with_name(f".{output.name}.parts")
        with _naming(output):
            if restart:
                shutil.rmtree(self._parts, ignore_errors=True)
            self._parts.mkdir(exist_ok=True)
            self._check_same(how)

    def run(
        self,
        windows: Iterable[list[str]],
        translate: Callable[[Iterable[tuple[int, list[str]]]], Iterable[bytes]],
    ) -> None:
        """Translate what is not done yet, and put the output together.

        Args:
            windows: all of the input, cut alike every time.
            translate: from windows, each the number of its first line, from 1, and its lines, to
                what the output has for each. It may ask for windows ahead of what it gives.

        Raises:
            MtkitError: if the input is not the one that was begun with, or a part cannot be
                written; those that are done stay.
        """
        names: list[str] = []
        begun: deque[str] = deque()
        try:
            for text in translate(self._missing(windows, names, begun)):
                self._write(self._parts / begun.popleft(), [text])
            if self.rank == 0:
                self._join(names)
        finally:
            # Without a part there is nothing to go on with.
            if self.world_size == 1 and not self._files():
                shutil.rmtree(self._parts, ignore_errors=True)

    def _missing(
        self, windows: Iterable[list[str]], names: list[str], begun: deque[str]
    ) -> Iterator[tuple[int, list[str]]]:
        """The windows to translate here; `names` gets the parts of all, `begun` of these."""
        done = 0
        first_line = 1
        for index, window in enumerate(windows):
            text = "\n".join(window).encode("utf-8", "surrogatepass")
            name = f"{index:08d}-{hashlib.sha256(text).hexdigest()[:16]}"
            names.append(name)
            if self._is_done(index, name, first_line):
                done += len(window)
            elif index % self.world_size == self.rank:
                if done:
                    log.info("%s: %s lines are done already", self.output, f"{done:,}")
                    done = 0
                begun.append(name)
                yield first_line, window
            first_line += len(window)

    def _check_same(self, how: dict[str, str]) -> None:
        path = self._parts / _JOB
        # Without a part there is nothing that another translation would be mixed with.
        if not path.exists() or not self._files():
            self._write(path, [json.dumps(how, indent=1, sort_keys=True).encode()])
            return
        try:
            begun: dict[str, str] = json.loads(path.read_bytes())
        except ValueError:
            begun = {}
        for name in sorted({*how, *begun}):
            if how.get(name) != begun.get(name):
                raise MtkitError(
                    f"{self.output}: was begun with {name} {begun.get(name)}, not {how.get(name)}; "
                    "go on with that, or begin again with --restart"
                )

    def _files(self) -> list[Path]:
        return sorted(self._parts.glob("[0-9]*-*[0-9a-f]"))

    def _is_done(self, index: int, name: str, first_line: int) -> bool:
        found = [path.name for path in self._parts.glob(f"{index:08d}-*[0-9a-f]")]
        if found and found != [name]:
            raise MtkitError(
                f"{self.output}: was begun with other input (from line {first_line:,} on); "
                "go on with that, or begin again with --restart"
            )
        return bool(found)

    def _join(self, names: list[str]) -> None:
        for name in names:
            while not (self._parts / name).exists():
                time.sleep(_PAUSE)
        if len(self._files()) > len(names):
            raise MtkitError(
                f"{self.output}: was begun with more input; "
                "go on with that, or begin again with --restart"
            )
        self._write(self.output, ((self._parts / name).read_bytes() for name in names))
        shutil.rmtree(self._parts, ignore_errors=True)

    def _write(self, path: Path, pieces: Iterable[bytes]) -> None:
        """A file that appears under its name when it is whole and on the disk."""
        partial = path.with_name(f".{path.name}.{self.rank}.partial")
        with _naming(path):
            try:
                with partial.open("wb") as file:
                    for piece in pieces:
                        file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
                partial.replace(path)
            finally:
                with suppress(OSError):
                    partial.unlink()


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MtkitError(f"{path}: {error.strerror}") from error
