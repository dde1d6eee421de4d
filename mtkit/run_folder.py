"""The run folder: its identity and lock, and the choice of its checkpoints.

This module names the files in `runs/<name>/`, except vocabularies (`tokenizer`) and checkpoints
(`checkpoint`). Loading them never executes code.

Everything that a translation or a resumed training depends on has a checksum, which is verified
when it is read: the weights and the state of a checkpoint, the tokenizers, the manifest, and all
settings except those that may change (`MAY_CHANGE`). Metrics, samples and pages may be damaged or
deleted without an error.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtkit import __version__
from mtkit.base.errors import MtkitError
from mtkit.base.files import (
    MANIFEST,
    FileLock,
    lock,
    naming_file,
    read_record,
    sha256_of,
    write_record,
    write_whole,
)
from mtkit.checkpoint import (
    COMPLETE,
    Checkpoint,
    Selection,
    Tensors,
    checkpoint_name,
    step_of,
    validation_scores,
)
from mtkit.config import Config, change_decoding, dump_config, load_config
from mtkit.run_manifest import FORMAT, RunManifest, fixed_settings
from mtkit.tokenizer import VOCABULARY_FILES, Vocabularies

log = logging.getLogger(__name__)

CONFIG = "config.yaml"
METRICS = "metrics.jsonl"
SAMPLES = "samples.jsonl"
PAGE = "report.html"
# The folder of TensorBoard's files.
BOARD = "tensorboard"
# The heads that align words, chosen for the weights of a run (align.aligner).
ALIGNMENT = "alignment.json"
# What the checks of translations know, and their lexicon (check.run_checks).
CONFIDENCE = "confidence.json"
LEXICON = "lexicon.tsv"
# Training pairs that a thorough check compares with; an export has none.
EXAMPLES = "examples.tsv"
CHECKPOINTS = "checkpoints"
# All files but the manifest and the lock.
_OF_CHECKS = (CONFIDENCE, LEXICON, EXAMPLES)
_FILES = (CONFIG, METRICS, SAMPLES, PAGE, ALIGNMENT, *_OF_CHECKS, *VOCABULARY_FILES)
_LOCK = ".lock"

_TRAIN_AGAIN = "restore the file from a copy, or train again with another --run"


@dataclass(eq=False)
class Run:
    """A run folder, with its configuration and its manifest.

    If it is `held` by a lock, it is written only while it is the folder that was locked.
    """

    path: Path
    config: Config
    manifest: RunManifest
    held: FileLock | None = None

    def check_held(self) -> None:
        """Refuse to write if the locked folder was moved or deleted."""
        if self.held is not None and not self.held.is_in_place():
            raise MtkitError(
                f"{self.path}: the folder or its lock file {_LOCK} was moved or deleted while "
                "it was trained; nothing more is written there"
            )

    @classmethod
    def create(
        cls, path: Path, config: Config, vocabularies: Vocabularies, *, manifest: RunManifest
    ) -> Run:
        """A new run folder without checkpoints; deletes those of an old one.

        The checksums are added to the manifest here. Raises `MtkitError`, and deletes nothing, if
        a folder has the name of a file of a run.
        """
        for name in (MANIFEST, *_FILES):
            if (path / name).is_dir():
                raise MtkitError(f"{path / name}: is a folder; move it away")
        if (path / CHECKPOINTS).is_file():
            raise MtkitError(f"{path / CHECKPOINTS}: is a file; move it away")
        with naming_file(path):
            shutil.rmtree(path / CHECKPOINTS, ignore_errors=True)
            (path / CHECKPOINTS).mkdir(parents=True)
            # The manifest first, because a folder without one is created again.
            for old in (MANIFEST, *_FILES):
                (path / old).unlink(missing_ok=True)
            shutil.rmtree(path / BOARD, ignore_errors=True)
            (path / METRICS).write_bytes(b"")
            write_whole(path / CONFIG, dump_config(config))
            names = vocabularies.save(path)
            manifest = manifest.model_copy(
                update={
                    "kind": "run folder",
                    "format": FORMAT + vocabularies.has_tags_on_both_sides,
                    "files": {name: sha256_of(path / name) for name in names},
                    "settings": fixed_settings(config),
                }
            )
            # Last, because a folder is a run once it has a manifest.
            write_record(path / MANIFEST, manifest)
        return cls(path, config, manifest)

    @staticmethod
    @contextlib.contextmanager
    def lock(path: Path) -> Iterator[FileLock]:
        """Lock a run folder for training; it is created if needed, and removed if it stays empty.

        `MtkitError` if another process trains in it, naming process, host and time.
        """
        made = [folder for folder in (path, *path.parents) if not folder.exists()]
        try:
            with naming_file(path):
                path.mkdir(parents=True, exist_ok=True)
            with lock(path / _LOCK, what=path, doing="trained") as held:
                yield held
        finally:
            with contextlib.suppress(OSError):  # a folder is not empty
                for folder in made:
                    folder.rmdir()

    @staticmethod
    def may_create(path: Path) -> bool:
        """Whether `path` is free, or has a run or the rest of a killed `create`."""
        if not path.exists():
            return True
        if not path.is_dir():
            return False
        names = {file.name for file in path.iterdir() if not file.name.endswith(".partial")}
        names.discard(_LOCK)
        if (path / MANIFEST).is_file():
            # Of a run, undamaged, and not of prepared data.
            with contextlib.suppress(MtkitError):
                read_record(path / MANIFEST, RunManifest, advice=_TRAIN_AGAIN)
                return True
            return {CONFIG, CHECKPOINTS} <= names
        if any((path / CHECKPOINTS).glob("*")):
            return False
        # The rest of a killed `create`, which creates the folder of checkpoints first.
        return not names or (CHECKPOINTS in names and names <= {CHECKPOINTS, BOARD, *_FILES})

    @staticmethod
    def is_run(path: Path) -> bool:
        """Whether there is a run folder."""
        return (path / MANIFEST).is_file()

    @classmethod
    def open(cls, path: Path) -> Run:
        """The run at `path`; `MtkitError` if there is none, or a fixed setting was changed."""
        has_checkpoints = any((path / CHECKPOINTS).glob("step-*"))
        if not cls.is_run(path) and (path / CONFIG).is_file() and has_checkpoints:
            raise MtkitError(
                f"{path / MANIFEST}: missing or not a file; restore it from a copy, or "
                "train again in another folder"
            )
        manifest = read_record(path / MANIFEST, RunManifest, advice=_TRAIN_AGAIN)
        if manifest.format < FORMAT:
            raise MtkitError(f"{path}: was made by another version of mtkit; train again")
        if not (path / CONFIG).is_file():
            raise MtkitError(f"{path / CONFIG}: missing or not a file; {_TRAIN_AGAIN}")
        try:
            config = load_config(str(path / CONFIG))
        except MtkitError as error:
            made_by = manifest.versions.get("mtkit", __version__)
            if made_by == __version__:
                raise
            # A newer version may have more settings.
            raise MtkitError(
                f"{error} (the run was made by mtkit {made_by}, and this is mtkit {__version__})"
            ) from error
        # A setting that was added in a later version of mtkit has its default.
        made_with = fixed_settings(Config()) | manifest.settings
        for key, value in fixed_settings(config).items():
            if value != made_with[key]:
                raise MtkitError(
                    f"{path / CONFIG}: {key} was changed since the run was made, from "
                    f"{made_with[key]} to {str(value)[:100]} (the section decode may be edited); "
                    f"{_TRAIN_AGAIN}"
                )
        if manifest.data.lines is None and config.decode.split_sentences is False:
            # The default of the time when nothing was recorded about the training lines.
            decode = change_decoding(config.decode, {"split_sentences": "auto"})
            config = config.model_copy(update={"decode": decode})
        return cls(path, config, manifest)

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.path.resolve().name

    @property
    def in_command(self) -> str:
        """The folder as it is written in a command of the shell."""
        return shlex.quote(str(self.path))

    @property
    def data_path(self) -> Path:
        """The training data; if it is not where it was, `data/` and its name, if that exists."""
        origin = self.manifest.data
        by_name = Path("data", origin.name)
        if not origin.path:
            return by_name
        path = Path(os.path.normpath(self.path.resolve() / origin.path))
        return by_name if by_name.exists() and not path.exists() else path

    def write_config(self) -> None:
        """Save the run's current configuration in its folder."""
        with naming_file(self.path):
            write_whole(self.path / CONFIG, dump_config(self.config))

    def tokenizers(self) -> Vocabularies:
        """The vocabularies of both sides; `MtkitError` if a file is missing or was changed."""
        is_joint = VOCABULARY_FILES.joint in self.manifest.files
        if self.manifest.files.keys() != {*VOCABULARY_FILES.used(is_joint=is_joint)}:
            raise MtkitError(
                f"{self.path / MANIFEST}: does not list the tokenizer files; {_TRAIN_AGAIN}"
            )
        for name, checksum in self.manifest.files.items():
            path, again = self.path / name, self.manifest.converted_by
            if not path.is_file() or sha256_of(path) != checksum:
                other_way = f", or {again} again" if again else ""
                if not again and self.data_path.is_dir():
                    other_way = f", or from the prepared data, {self.data_path}"
                raise MtkitError(
                    f"{path}: missing, or changed since the run was made (its checksum is wrong); "
                    f"restore it from a copy{other_way}"
                )
        return Vocabularies.load(self.path, is_joint=is_joint)

    # Checkpoints

    def checkpoints(self) -> list[Checkpoint]:
        """All complete checkpoints, oldest first."""
        folder = self.path / CHECKPOINTS
        paths = folder.iterdir() if folder.is_dir() else ()
        steps = [(path, step_of(path.name)) for path in paths]
        saved = [
            Checkpoint(path, step, self.manifest.identity)
            for path, step in steps
            if step is not None
        ]
        return sorted(saved, key=lambda checkpoint: checkpoint.step)

    def checkpoint(self, step: int) -> Checkpoint:
        """The checkpoint of a step, which may not be there, or not be listed yet."""
        path = self.path / CHECKPOINTS / checkpoint_name(step)
        return Checkpoint(path, step, self.manifest.identity)

    def best(self, among: Sequence[Checkpoint] | None = None) -> Checkpoint | None:
        """The checkpoint with the best validation; the newest of equals.

        `train.best_metric` and `train.best_set` say what is the best.
        """
        checkpoints = self.checkpoints() if among is None else among
        states = ({**saved.load_state(), "step": saved.step} for saved in checkpoints)
        train = self.config.train
        best = max(validation_scores(states, train.best_metric, train.best_set), default=None)
        return next((saved for saved in checkpoints if best and saved.step == best.step), None)

    def last_good(self) -> str:
        """The newest checkpoint in a few words, for error messages."""
        saved = self.checkpoints()
        return (
            f"the last good checkpoint is step {saved[-1].step}" if saved else "nothing was saved"
        )

    def save(
        self,
        step: int,
        *,
        weights: Tensors,
        optimizer: Tensors | None,
        state: dict[str, Any],
        extra: bool = False,
    ) -> Checkpoint:
        """Add a checkpoint; a crash or a full disk does not change the older ones.

        Args:
            weights, optimizer: tensors by name; None for a model that is not trained further.
            state: counters, as plain values.
            extra: whether it is saved outside the schedule, as the best so far or after a signal.
                Such a checkpoint is kept while it is the best or the newest, and is used in
                averages only while it is the newest.
        """
        self.check_held()
        saved = self.checkpoint(step)
        saved.write(weights, optimizer, state, extra=extra)
        return saved

    def select(self, which: str | Selection | None) -> tuple[Tensors, str]:
        """The weights of `selection`, and their description; `MtkitError` for a damaged one."""
        selection = self.selection(which)
        return selection.load(), selection.description

    def selection(self, which: str | Selection | None) -> Selection:
        """What `chosen` names, with its description; raises likewise. A selection is itself."""
        if isinstance(which, Selection):
            return which
        checkpoints = self.chosen(which)
        first, last = checkpoints[0].step, checkpoints[-1].step
        description = f"step {last}{', the best' if which == 'best' else ''}"
        if (count := len(checkpoints)) > 1:
            description = f"the average of {count} checkpoints, steps {first} to {last}"
        return Selection(checkpoints, description)

    def chosen(self, which: str | None) -> list[Checkpoint]:
        """The selected checkpoint, or the checkpoints to average.

        `which` is `last`, `best`, a step, or `average:N` for the mean of the N newest; None is the
        average of `decode.average_checkpoints`, or of all if there are fewer. Raises `MtkitError`
        if there is no such checkpoint.
        """
        saved = self.checkpoints()
        if not saved:
            raise MtkitError(f"{self.path}: has no checkpoint yet; mtkit train writes them")
        average = re.fullmatch(r"average:(\d+)", which or "")
        if which is None or average is not None:
            # Those of the schedule, and the newest, up to which a stopped run has trained.
            regular = [checkpoint for checkpoint in saved[:-1] if not checkpoint.is_extra()]
            regular.append(saved[-1])
            if average is None:
                return regular[-self.config.decode.average_checkpoints :]
            if not 1 <= (count := int(average[1])) <= len(regular):
                has = f"the run has {len(regular)} checkpoints to average"
                raise MtkitError(f"{self.path}: {which}: {has}")
            return regular[-count:]
        if which == "best":
            if (best := self.best()) is None:
                raise MtkitError(f"{self.path}: no checkpoint was validated, so none is the best")
            return [best]
        if which != "last" and not which.isdecimal():
            raise MtkitError(
                f"{self.path}: {which!r} is not a checkpoint; write last, best, average:N or a step"
            )
        step = saved[-1].step if which == "last" else int(which)
        if chosen := [checkpoint for checkpoint in saved if checkpoint.step == step]:
            return chosen
        steps = ", ".join(str(checkpoint.step) for checkpoint in saved)
        raise MtkitError(f"{self.path}: has no checkpoint of step {which}, only of {steps}")

    def metrics(self) -> list[dict[str, Any]]:
        """The rows of `metrics.jsonl`."""
        from mtkit.metrics_rows import MetricsRow

        return self._rows(METRICS, MetricsRow.model_validate)

    def samples(self) -> list[dict[str, Any]]:
        """The rows of `samples.jsonl`: the translations of some lines by each validation."""
        from mtkit.metrics_rows import SamplesRow

        return self._rows(SAMPLES, SamplesRow.model_validate)

    def _rows(self, name: str, check: Callable[[Any], object]) -> list[dict[str, Any]]:
        """The rows of a file; damaged rows are left out, with a warning."""
        rows, damaged = [], 0
        try:
            *lines, last = (self.path / name).read_bytes().split(b"\n")
        except OSError:
            return []
        for line in filter(bytes.strip, [*lines, last]):
            try:
                row = json.loads(line)
                check(row)
            except (ValueError, RecursionError):
                # A kill may have cut the last row.
                damaged += line is not last
            else:
                rows.append(row)
        if damaged:
            log.warning("%s: %d damaged rows are left out", self.path / name, damaged)
        return rows


def find_run(root: Path) -> Run:
    """The run under `root` with the newest checkpoint; `MtkitError` if there is none."""
    folders = sorted(path.parent for path in root.glob(f"[!.]*/{MANIFEST}"))
    saved = [(path, folder) for folder in folders for path in (folder / CHECKPOINTS).glob(COMPLETE)]
    if not saved:
        what = f"the runs under {root}/ have no checkpoint yet"
        what = what if folders else f"no run under {root}/"
        raise MtkitError(f"{what}; run mtkit train first, or give --run")
    _, newest = max(saved, key=lambda pair: pair[0].stat().st_mtime_ns)  # the first of equal ones
    return Run.open(newest)
