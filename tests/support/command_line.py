"""The program in this process: its output, its exit status, and the files that it leaves."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mtkit.cli import main

if TYPE_CHECKING:
    from conftest import TinyText


@dataclasses.dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line of an error that the user can fix."""
        assert self.status in (1, 2), self.err
        assert self.out == ""
        (line,) = self.err.splitlines()
        assert line.startswith("mtkit: error: ")
        assert self.err == f"{line}\n"
        return line


class Place:
    """A working directory and the program in it."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]
    ) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._capture = capture

    def mtkit(self, *arguments: str | Path, stdin: bytes = b"") -> Outcome:
        """Run the program in this process."""
        with self._monkeypatch.context() as patch:
            patch.chdir(self.folder)
            patch.setattr(sys, "argv", ["mtkit", *map(str, arguments)])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
            self._capture.readouterr()
            with pytest.raises(SystemExit) as caught:
                main()
            out, err = self._capture.readouterr()
        status = caught.value.code
        assert isinstance(status, int)
        return Outcome(status, out, err)

    def done(self, *arguments: str | Path, stdin: bytes = b"") -> Outcome:
        """Run the program, which must succeed."""
        outcome = self.mtkit(*arguments, stdin=stdin)
        assert outcome.status == 0, outcome.err
        return outcome

    def files(self) -> dict[Path, bytes | None]:
        """Everything there is, with the bytes of files."""
        return {
            path: path.read_bytes() if path.is_file() else None for path in self.folder.rglob("*")
        }

    def refused(self, *arguments: str | Path, stdin: bytes = b"") -> str:
        """The one line that refuses these arguments, which leave everything as it was."""
        before = self.files()
        # Quiet, so that the error is all there is.
        outcome = self.mtkit("-q", *arguments, stdin=stdin)
        assert self.files() == before
        return outcome.error

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path


def prepare_arguments(text: TinyText, **changes: tuple[Path, Path]) -> list[str]:
    """The command line that prepares the tiny corpus, with other files where given."""
    files = {"train": text.train, "valid": text.valid, "test": text.test, **changes}
    arguments = ["prepare", "tiny", "--src-lang", "en", "--tgt-lang", "de", "--vocab-size", "300"]
    for split, (src, tgt) in files.items():
        arguments += [f"--{split}", str(src), str(tgt)]
    return arguments


@contextlib.contextmanager
def full_disk(size: int = 200) -> Iterator[None]:
    """No file can grow beyond `size` bytes, except for an error message on standard error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
