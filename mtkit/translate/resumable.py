"""An output file that an interrupted translation resumes.

The file appears when it is complete, compressed if its name ends so. Until then the folder
`.NAME.parts` next to it has `job.json`, with the settings of the translation, and a file for every
finished window of lines. The name of a part has the checksums of its source and its content: parts
from other input are never used, and changed parts are translated again. The warnings of a window
are in a file of their own, which is written before its part.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from mtkit.base import files
from mtkit.base.errors import MtkitError, in_words
from mtkit.translate.doubts import Doubts, IncompleteTranslations

log = logging.getLogger(__name__)

# The number of the first line of each window, and its lines.
Windows = Iterable[tuple[int, list[str]]]
# Turns windows into their output, each with the number of its first line; it may read ahead.
Translate = Callable[[Windows], Iterable[tuple[int, bytes]]]
Join = Callable[[Iterable[bytes]], Iterable[bytes]]

_ADVICE = "start over with --restart"


class _Job(files.Record):
    """The settings of a translation: everything that it depends on besides its input."""

    settings: dict[str, str]


class ResumableOutput:
    """The parts of one output file, which one process at a time writes.

    Args:
        settings: everything that the translation depends on besides its input, by option name.
        join: makes the content of the file of the parts.
        doubts: what each window adds is saved with its part.
    """

    def __init__(
        self,
        output: Path,
        settings: dict[str, str],
        *,
        restart: bool = False,
        join: Join = iter,
        counted: Callable[[int], str] = in_words,
        doubts: IncompleteTranslations | None = None,
    ) -> None:
        self.output = output
        self._counted, self._doubts = counted, doubts
        # By the number of the first line of a window.
        self._taken: dict[int, Doubts] = {}
        self._job = _Job(settings=settings)
        self._restart, self._join = restart, join
        self._parts = output.with_name(f".{output.name}.parts")

    def run(self, windows: Windows, translate: Translate) -> None:
        """Translate the missing windows, and join the parts to the output.

        The windows are all of the input, divided in the same way every time. If this fails,
        finished parts are kept.

        Raises:
            MtkitError: if another process writes the same output, if an earlier start had other
                input or settings, or if a part cannot be written.
        """
        holding = self.output.with_name(f".{self.output.name}.lock")
        with files.lock(holding, what=self.output, doing="written"):
            with files.naming_file(self.output):
                if self._restart:
                    shutil.rmtree(self._parts, ignore_errors=True)
                self._parts.mkdir(exist_ok=True)
            try:
                self._check_settings()
                self._translate_and_join(windows, translate)
            finally:
                if not self.has_parts():
                    shutil.rmtree(self._parts, ignore_errors=True)

    def has_parts(self) -> bool:
        """Whether there are finished parts next to the output."""
        return bool(self._files())

    def _check_settings(self) -> None:
        path = self._parts / "job.json"
        # Without a part, translations with different settings cannot be mixed.
        if not self.has_parts():
            with files.naming_file(path):
                files.write_record(path, self._job)
        now, begun = self._job.settings, files.read_record(path, _Job, advice=_ADVICE).settings
        # In this order, because another run has other checkpoints too.
        for name in {**now, **begun}:
            before, after = (_as_given(name, of.get(name)) for of in (begun, now))
            if before != after:
                raise MtkitError(
                    f"{self.output}: was started {before}, now {after}; use the same again, or "
                    f"{_ADVICE}"
                )

    def _translate_and_join(self, windows: Windows, translate: Translate) -> None:
        names: dict[int, str] = {}
        for first_line, text in translate(self._missing(windows, names)):
            if self._doubts:
                self._taken[first_line] = self._doubts.take()
                path = self._doubts_file(names[first_line])
                with files.naming_file(path):
                    files.write_record(path, self._taken[first_line])
            self._write(self._parts / f"{names[first_line]}-{_digest(text)}", [text])
        parts = self._files()
        if len(parts) > len(names):
            raise self._other_input("was started with more input")
        if self._doubts:
            for first_line in names:
                self._doubts.add(self._taken[first_line])
        self._write(self.output, self._join(path.read_bytes() for path in parts))
        shutil.rmtree(self._parts, ignore_errors=True)

    def _missing(self, windows: Windows, names: dict[int, str]) -> Iterator[tuple[int, list[str]]]:
        """The windows without a part; the beginnings of the names of all parts go to `names`."""
        done = 0
        for index, (first_line, window) in enumerate(windows):
            text = "\n".join(window).encode("utf-8", "surrogatepass")
            names[first_line] = f"{index:08d}-{_digest(text)}"
            if self._is_done(index, names[first_line], first_line):
                done += len(window)
                continue
            if done:
                log.info("%s: %s are done already", self.output, self._counted(done))
                done = 0
            yield first_line, window

    def _is_done(self, index: int, name: str, first_line: int) -> bool:
        for path in self._parts.glob(f"{index:08d}-*[0-9a-f]"):
            if not path.name.startswith(f"{name}-"):
                raise self._other_input(
                    f"was started with different input (from line {first_line:,} on)"
                )
            try:
                if path.name != f"{name}-{_digest(path.read_bytes())}":
                    raise MtkitError(f"{path}: was changed, so it is translated again")
                if self._doubts:
                    self._taken[first_line] = files.read_record(
                        self._doubts_file(name), Doubts, advice="its lines are translated again"
                    )
                return True
            except MtkitError as error:
                log.warning("%s", error)
            path.unlink()
        return False

    def _other_input(self, what: str) -> MtkitError:
        return MtkitError(f"{self.output}: {what}; use the same input again, or {_ADVICE}")

    def _files(self) -> list[Path]:
        return sorted(self._parts.glob("[0-9]*-*[0-9a-f]"))

    def _doubts_file(self, name: str) -> Path:
        return self._parts / f"doubts-{name[:8]}.json"

    def _write(self, path: Path, pieces: Iterable[bytes]) -> None:
        with files.naming_file(path):
            files.write_whole(path, pieces)


def _as_given(name: str, value: str | None) -> str:
    """A setting as its option is written: `without --json`, `with --nbest 4`."""
    if value in (None, "False", "None", "none"):
        return f"without {name}"
    return f"with {name} {value.removeprefix('True')}".replace("  ", " ").strip()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
