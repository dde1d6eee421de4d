"""Runs as they were when a translation last opened them, in the user's cache folder.

An entry is for a run and a choice of its checkpoints. It has the checked configuration and manifest
and, of several checkpoints, their average, which is the same for every CPU and precision. No entry
is used after a file of the run or of mtkit has changed; everything works without the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import time
import weakref
from pathlib import Path
from typing import Any

import xxhash

from mtkit.base.errors import MtkitError
from mtkit.base.files import replacing, sha256_of_json, write_whole
from mtkit.base.models import restored, stored
from mtkit.checkpoint import MODEL, Selection, checkpoint_name
from mtkit.run_folder import CHECKPOINTS, CONFIG, MANIFEST, Run

_ENTRY, _AVERAGE = ".mtkit-run", ".mtkit-average"
# Bytes for each run, and seconds until an entry that is not used is deleted.
MAX_BYTES, MAX_AGE = 200 * 10**6, 90 * 86_400
# Seconds until a file that is changed again has another time on every file system.
SETTLED = 2.0


class CachedRun(Run):
    """A run whose entry has the checkpoints of one choice, or gets them."""

    def __init__(self, run: Run, which: str | None, entry: Path) -> None:
        super().__init__(run.path, run.config, run.manifest)
        self.which, self.entry = which, entry
        self.selected: Selection | None = None

    def selection(self, which: str | Selection | None) -> Selection:
        """As `Run.selection`."""
        if which != self.which:
            return super().selection(which)
        if self.selected is None:
            self.selected = super().selection(which)
            # The disk may be full, or the folder read-only; a damaged checkpoint is reported later.
            with contextlib.suppress(OSError, MtkitError):
                self._write(self.selected)
        return self.selected

    def use(self, selection: Selection) -> str:
        """Select checkpoints, with their weights in the cache; the checksum of these."""
        file = selection.checkpoints[0].path / MODEL
        if len(selection.checkpoints) > 1:
            # It stays open, because another process may delete the file.
            descriptor = os.open(self.entry.with_suffix(_AVERAGE), os.O_RDONLY)
            weakref.finalize(self, os.close, descriptor)
            file = Path(f"/dev/fd/{descriptor}")
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, xxhash.xxh3_128).hexdigest()
        self.selected = selection._replace(weights=file)
        return digest

    def _write(self, selection: Selection) -> None:
        weights = selection.arrays()
        self.entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if len(selection.checkpoints) > 1:
            if 4 * sum(map(math.prod, weights.shapes.values())) > MAX_BYTES:
                return
            with replacing(self.entry.with_suffix(_AVERAGE)) as partial:
                weights.write(partial)
        content: dict[str, Any] = {"config": self.config, "manifest": self.manifest}
        content |= {"steps": [saved.step for saved in selection.checkpoints]}
        content |= {"description": selection.description, "weights": self.use(selection)}
        if _entry(self.path, self.which) == self.entry:
            text = stored(content)
            write_whole(self.entry, f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")
        self._delete_old()

    def _delete_old(self) -> None:
        """Delete what is beyond the limits, the oldest first."""
        size, run = 0, self.entry.name.partition("-")[0]
        files = [(file, file.stat()) for file in self.entry.parent.glob("*-*.mtkit-*")]
        for file, facts in sorted(files, key=lambda pair: -pair[1].st_mtime_ns):
            size += facts.st_size if file.name.startswith(run) else 0
            if size > MAX_BYTES or time.time() - facts.st_mtime > MAX_AGE:
                file.unlink(missing_ok=True)


def open_run(path: Path, which: str | None = None) -> Run:
    """The run at `path`, for a translator with the checkpoints `which`; raises as `Run.open`."""
    entry = _entry(path, which)
    if entry is None:
        return Run.open(path)
    with contextlib.suppress(OSError, ValueError):
        digest, _, text = entry.read_bytes().partition(b"\n")
        if digest == hashlib.sha256(text).hexdigest().encode():
            content = restored(text)
            run = CachedRun(Run(path, content["config"], content["manifest"]), which, entry)
            names = {step: checkpoint_name(step) for step in content["steps"]}
            saved = [run.checkpoint(path / CHECKPOINTS / names[step], step) for step in names]
            if run.use(Selection(saved, content["description"])) == content["weights"]:
                with contextlib.suppress(OSError):
                    os.utime(entry)
                    os.utime(entry.with_suffix(_AVERAGE))
                return run
    return CachedRun(Run.open(path), which, entry)


def _entry(path: Path, which: str | None) -> Path | None:
    """Where the entry of a run with files as they are now belongs; None if it can have none."""
    given, cache = os.environ.get("MTKIT_RUN_CACHE"), os.environ.get("XDG_CACHE_HOME")
    folder = Path(cache or os.path.expanduser("~/.cache"), "mtkit", "runs")
    folder = folder if given is None else Path(given)
    own, checkpoints, facts = Path(__file__).parent, path / CHECKPOINTS, list[Any]([which])
    try:
        saved = sorted(checkpoints.iterdir())
        files = [file for folder in (own, own / "base", *saved) for file in folder.iterdir()]
        files = [file for file in sorted(files) if file.suffix in (".py", ".json", ".safetensors")]
        for file in (path / CONFIG, path / MANIFEST, *saved, *files):
            of = file.stat()
            if time.time() - of.st_ctime < SETTLED or not folder.is_absolute():
                return None
            facts.append([file.name, of.st_size, of.st_mtime_ns, of.st_ctime_ns, of.st_ino])
    except OSError:
        return None
    names = [sha256_of_json(of)[:32] for of in (os.path.realpath(path), facts)]
    return folder / f"{names[0]}-{names[1]}{_ENTRY}"
