"""The run folder: created, locked, saved to, loaded from, found.

This module defines the files in `runs/<name>/`, except vocabularies (`tokenizer`) and checkpoints
(`checkpoint`). Weights and optimizer states are safetensors, the rest is JSON, YAML and
SentencePiece models, so loading never executes code. A checkpoint is written under a temporary
name, synced and renamed: a checkpoint with its final name is complete.

Everything that a translation or a resumed training depends on has a checksum, which is verified
when it is read: the weights and the state of a checkpoint, the tokenizers, the manifest, and all
settings except those that may change (`MAY_CHANGE`). Metrics, samples and pages may be damaged or
deleted without an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field
from torch import nn

from mtkit.base.errors import MtkitError, reason_of
from mtkit.base.files import (
    FileLock,
    Record,
    json_text,
    lock,
    naming_file,
    partial_name,
    read_record,
    sha256_of,
    write_record,
    write_whole,
)
from mtkit.checkpoint import (
    COMPLETE,
    Checkpoint,
    Tensors,
    checkpoint_name,
    load_average,
    step_of,
    validation_scores,
    write_checkpoint,
)
from mtkit.config import MAY_CHANGE, Config, change_decoding, dump_config, load_config
from mtkit.run_manifest import FORMAT, RunManifest
from mtkit.tokenizer import VOCABULARY_FILES, Vocabularies

log = logging.getLogger(__name__)

CONFIG = "config.yaml"
_MANIFEST = "manifest.json"
_METRICS = "metrics.jsonl"
_SAMPLES = "samples.jsonl"
PAGE = "report.html"
# The heads that align words, chosen for the weights of a run (translate.alignment).
ALIGNMENT = "alignment.json"
_BOARD = "tensorboard"
_CHECKPOINTS = "checkpoints"
_LAYER = re.compile(r"(encoder|decoder)\.(\d+)\.")
_LOCK = ".lock"

_TRAIN_AGAIN = "restore the file from a copy, or train again with another --run"


class _MetricsRow(Record):
    """A row of `metrics.jsonl`: of training, or of a validation."""

    step: int = Field(ge=0)
    loss: float | None = None
    alignment_loss: float | None = None
    lr: float | None = None
    epoch: int | None = None
    tokens_per_second: float | None = None
    seconds_per_step: float | None = None
    tokens: int | None = None
    flops: float | None = None
    valid_loss: float | None = None
    valid_perplexity: float | None = None
    valid_bleu: float | None = None
    valid_chrf: float | None = None
    valid_f1: float | None = None
    valid_also: dict[str, dict[str, float]] | None = None  # of further sets, by their names


class _Sample(Record):
    src: str
    ref: str
    hyp: str


class _SamplesRow(Record):
    """A row of `samples.jsonl`."""

    step: int = Field(ge=0)
    samples: list[_Sample]


def _is_manifest_of_run(path: Path) -> bool:
    """Whether it is the undamaged manifest of a run, and not of prepared data."""
    try:
        read_record(path, RunManifest, advice=_TRAIN_AGAIN)
    except MtkitError:
        return False
    return True


class Run:
    """A run folder.

    Attributes:
        path: the folder.
        config: the configuration of the run.
        manifest: data fingerprint and folder, versions, command.
    """

    def __init__(self, path: Path, config: Config, manifest: RunManifest) -> None:
        self.path = path
        self.config = config
        self.manifest = manifest
        self._held: FileLock | None = None

    def attach_lock(self, held: FileLock) -> None:
        """From now on, write only while the folder is the one that was locked."""
        self._held = held

    def check_held(self) -> None:
        """Refuse to write if the folder is no longer the one that was locked.

        Raises:
            MtkitError: if it was moved or deleted during training.
        """
        if self._held is not None and not self._held.is_in_place():
            raise MtkitError(
                f"{self.path}: the folder or its lock file {_LOCK} was moved or deleted while "
                "it was trained; nothing more is written there"
            )

    @classmethod
    def create(
        cls,
        path: Path,
        config: Config,
        vocabularies: Vocabularies,
        *,
        manifest: RunManifest,
    ) -> Run:
        """A new run folder without checkpoints; deletes those of an old one.

        Args:
            path: the folder.
            config: of the run.
            vocabularies: of source and target.
            manifest: the manifest; the checksums are added here.

        Raises:
            MtkitError: if a folder has the name of a file of a run; nothing is deleted then.
        """
        old_files = (_METRICS, _SAMPLES, PAGE, ALIGNMENT, *VOCABULARY_FILES)
        for name in (_MANIFEST, CONFIG, *old_files):
            if (path / name).is_dir():
                raise MtkitError(f"{path / name}: is a folder; move it away")
        if (path / _CHECKPOINTS).is_file():
            raise MtkitError(f"{path / _CHECKPOINTS}: is a file; move it away")
        with naming_file(path):
            shutil.rmtree(path / _CHECKPOINTS, ignore_errors=True)
            (path / _CHECKPOINTS).mkdir(parents=True)
            # First, because a folder without a manifest is created again.
            (path / _MANIFEST).unlink(missing_ok=True)
            for old in old_files:
                (path / old).unlink(missing_ok=True)
            shutil.rmtree(path / _BOARD, ignore_errors=True)
            (path / _METRICS).write_bytes(b"")
            write_whole(path / CONFIG, dump_config(config))
            names = vocabularies.save(path)
            manifest = manifest.model_copy(
                update={
                    "kind": "run folder",
                    "format": FORMAT,
                    "files": {name: sha256_of(path / name) for name in names},
                    "settings": fixed_settings(config),
                }
            )
            # Last, because a folder is a run once it has a manifest.
            write_record(path / _MANIFEST, manifest)
        return cls(path, config, manifest)

    @staticmethod
    @contextlib.contextmanager
    def lock(path: Path) -> Iterator[FileLock]:
        """Lock a run folder for training; it is created if needed.

        A folder that was created here and is still empty at the end is removed.

        Raises:
            MtkitError: if another process trains in it, naming process, host and time.
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
        if (path / _MANIFEST).is_file():
            return CONFIG in names or _is_manifest_of_run(path / _MANIFEST)
        if any((path / _CHECKPOINTS).glob("*")):
            return False
        # The rest of a killed `create`, which creates the folder of checkpoints first.
        left = {_CHECKPOINTS, _METRICS, CONFIG, _SAMPLES, PAGE, _BOARD, ALIGNMENT}
        left.update(VOCABULARY_FILES)
        return not names or (_CHECKPOINTS in names and names <= left)

    @staticmethod
    def is_run(path: Path) -> bool:
        """Whether there is a run folder."""
        return (path / _MANIFEST).is_file()

    @classmethod
    def open(cls, path: Path) -> Run:
        """The run at `path`.

        Raises:
            MtkitError: if there is none, or a setting that may not change was changed.
        """
        if not cls.is_run(path):
            if (path / CONFIG).is_file() and any((path / _CHECKPOINTS).glob("step-*")):
                raise MtkitError(
                    f"{path / _MANIFEST}: missing or not a file; restore it from a copy, or "
                    "train again in another folder"
                )
            what = "is not a run folder" if path.exists() else "there is no such run folder"
            raise MtkitError(f"{path}: {what}; mtkit train makes one")
        manifest = read_record(path / _MANIFEST, RunManifest, advice=_TRAIN_AGAIN)
        if manifest.format != FORMAT:
            raise MtkitError(f"{path}: was made by another version of mtkit; train again")
        if not (path / CONFIG).is_file():
            raise MtkitError(f"{path / CONFIG}: missing or not a file; {_TRAIN_AGAIN}")
        config = load_config(str(path / CONFIG))
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
    def data_fingerprint(self) -> str:
        """The fingerprint of the training data."""
        return self.manifest.data.fingerprint

    @property
    def data_path(self) -> Path:
        """The training data; if it is not where it was, `data/` and its name, if that exists."""
        origin = self.manifest.data
        by_name = Path("data", origin.name)
        if not origin.path:
            return by_name
        path = Path(os.path.normpath(self.path.resolve() / origin.path))
        return by_name if by_name.exists() and not path.exists() else path

    def with_config(self, config: Config) -> Run:
        """The same run with another configuration; `write_config` saves it."""
        return Run(self.path, config, self.manifest)

    def write_config(self) -> None:
        """Save the run's current configuration in its folder."""
        with naming_file(self.path):
            write_whole(self.path / CONFIG, dump_config(self.config))

    def tokenizers(self) -> Vocabularies:
        """The run's copies of the vocabularies of source and target.

        Raises:
            MtkitError: if a file is missing or was changed.
        """
        is_joint, names = self._tokenizer_files()
        for name in names:
            if not self._is_tokenizer_intact(name):
                raise MtkitError(
                    f"{self.path / name}: missing, or changed since the run was made (its checksum "
                    f"is wrong); {self._tokenizer_advice()}"
                )
        return Vocabularies.load(self.path, is_joint=is_joint)

    def restore_tokenizers(self, vocabularies: Vocabularies, source: Path) -> None:
        """Write a missing or damaged copy of a vocabulary again.

        Args:
            vocabularies: those of the training data.
            source: the folder that they are from, for messages.

        Raises:
            MtkitError: if they are not the vocabularies of the run, or cannot be written.
        """
        _, names = self._tokenizer_files()
        for name, tokenizer in zip(names, vocabularies.distinct, strict=True):
            if self._is_tokenizer_intact(name):
                continue
            if hashlib.sha256(tokenizer.model).hexdigest() != self.manifest.files[name]:
                raise MtkitError(
                    f"{self.path / name}: missing or damaged, and {source} has another one; "
                    "restore it from a copy"
                )
            with naming_file(self.path / name):
                tokenizer.save(self.path / name)
            log.warning("%s: was missing or damaged; restored from %s", self.path / name, source)

    def _tokenizer_files(self) -> tuple[bool, tuple[str, ...]]:
        """Whether the vocabulary is joint, and the names of its files."""
        is_joint = VOCABULARY_FILES.joint in self.manifest.files
        names = VOCABULARY_FILES.used(is_joint=is_joint)
        if self.manifest.files.keys() != {*names}:
            raise MtkitError(f"{self.path / _MANIFEST}: names no tokenizers; {_TRAIN_AGAIN}")
        return is_joint, names

    def _is_tokenizer_intact(self, name: str) -> bool:
        path = self.path / name
        return path.is_file() and sha256_of(path) == self.manifest.files[name]

    def _tokenizer_advice(self) -> str:
        if self.manifest.exported is not None or self.manifest.imported is not None:
            again = "export" if self.manifest.imported is None else "import"
            return f"restore it from a copy, or {again} again"
        return (
            f"copy it from the prepared data, {self.data_path}, or run the command of the training "
            "again, which restores it"
        )

    # Checkpoints

    def checkpoints(self) -> list[Checkpoint]:
        """All complete checkpoints, oldest first."""
        found = []
        folder = self.path / _CHECKPOINTS
        for path in folder.iterdir() if folder.is_dir() else ():
            if (step := step_of(path.name)) is not None:
                found.append(self.checkpoint(path, step))
        return sorted(found, key=lambda checkpoint: checkpoint.step)

    def checkpoint(self, path: Path, step: int) -> Checkpoint:
        """The checkpoint in a folder, which a shared file system may not list yet."""
        return Checkpoint(path, step, self.manifest.identity)

    def best(self) -> Checkpoint | None:
        """The checkpoint with the best validation (`train.best_metric`), the newest of equal ones.

        Raises:
            MtkitError: if the state of a checkpoint is damaged, so that it cannot be compared.
        """
        return self._best_of(self.checkpoints())

    def _best_of(self, checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
        states = ({**one.load_state(), "step": one.step} for one in checkpoints)
        scores = validation_scores(states, self.config.train.best_metric)
        best = max(scores, default=None)
        return next((one for one in checkpoints if best and one.step == best.step), None)

    def last_good(self) -> str:
        """The newest checkpoint in a few words, for error messages."""
        saved = self.checkpoints()
        if not saved:
            return "nothing was saved"
        return f"the last good checkpoint is step {saved[-1].step}"

    def quarantine_after(self, step: int) -> list[str]:
        """Rename the checkpoints after `step`, which are damaged, so that they are not used.

        Returns:
            Their new names.
        """
        names = []
        for checkpoint in self.checkpoints():
            if checkpoint.step > step:
                place = checkpoint.path.with_name(f"damaged-{checkpoint.path.name}")
                with naming_file(place):
                    shutil.rmtree(place, ignore_errors=True)
                    checkpoint.path.rename(place)
                names.append(place.name)
        return names

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
            step: updates made so far.
            weights: of the model.
            optimizer: its tensors; None for a model that is not trained further.
            state: counters, as plain values.
            extra: whether it is saved outside the schedule, as the best so far or after a signal.
                Such a checkpoint is kept while it is the best or the newest, and is used in
                averages only while it is the newest.
        """
        self.check_held()
        place = self.path / _CHECKPOINTS / checkpoint_name(step)
        write_checkpoint(
            place,
            run=self.manifest.identity,
            step=step,
            weights=weights,
            optimizer=optimizer,
            state=state,
            extra=extra,
        )
        return self.checkpoint(place, step)

    def prune(self) -> None:
        """Delete the checkpoints that `train.keep_checkpoints` and similar settings do not keep.

        A checkpoint with a damaged state is kept: it may be the best.

        Raises:
            MtkitError: if a checkpoint cannot be deleted.
        """
        self.check_held()
        settings = self.config.train
        found = self.checkpoints()
        regular = [checkpoint for checkpoint in found if not checkpoint.is_extra()]
        readable = [checkpoint for checkpoint in found if checkpoint.is_readable()]
        best = self._best_of(readable)
        wanted = [*regular[-settings.keep_checkpoints :], *found[-1:], best]
        for checkpoint in found:
            kept = settings.keep_every is not None and checkpoint.step % settings.keep_every == 0
            if not kept and checkpoint not in wanted and checkpoint in readable:
                with naming_file(checkpoint.path):
                    # Renamed first: a kill must not leave an incomplete checkpoint with its name.
                    shutil.rmtree(checkpoint.path.rename(partial_name(checkpoint.path)))

    def select(self, which: str | None) -> tuple[Tensors, str]:
        """Weights by name.

        Args:
            which: as in `chosen`.

        Returns:
            The tensors, and their description.

        Raises:
            MtkitError: if there is no such checkpoint, or it is damaged.
        """
        chosen = self.chosen(which)
        if which is None or which.startswith("average:"):
            return load_average(chosen)
        (one,) = chosen
        return one.load_weights(), f"step {one.step}{', the best' if which == 'best' else ''}"

    def chosen(self, which: str | None) -> list[Checkpoint]:
        """The selected checkpoint, or the checkpoints to average.

        Args:
            which: `last`, `best`, a step, or `average:N` for the mean of the N newest; None is
                the average of `decode.average_checkpoints`, or of all if there are fewer.

        Raises:
            MtkitError: if there is no such checkpoint.
        """
        found = self.checkpoints()
        if not found:
            raise MtkitError(f"{self.path}: has no checkpoint yet; mtkit train writes them")
        # Those of the schedule, and the newest: a run that is stopped has trained up to there.
        regular = [*(one for one in found[:-1] if not one.is_extra()), found[-1]]
        if which is None:
            return regular[-self.config.decode.average_checkpoints :]
        if which == "last":
            return found[-1:]
        if which == "best":
            best = self.best()
            if best is None:
                raise MtkitError(f"{self.path}: no checkpoint was validated, so none is the best")
            return [best]
        if match := re.fullmatch(r"average:(\d+)", which):
            count = int(match[1])
            if not 1 <= count <= len(regular):
                raise MtkitError(
                    f"{self.path}: {which}: the run has {len(regular)} checkpoints to average"
                )
            return regular[-count:]
        if which.isdecimal():
            for checkpoint in found:
                if checkpoint.step == int(which):
                    return [checkpoint]
            steps = ", ".join(str(checkpoint.step) for checkpoint in found)
            raise MtkitError(f"{self.path}: has no checkpoint of step {which}, only of {steps}")
        raise MtkitError(
            f"{self.path}: {which!r} is not a checkpoint; write last, best, average:N or a step"
        )

    def check_sizes(self, weights: Tensors) -> None:
        """Compare the model's settings with its weights, before a model is built.

        Raises:
            MtkitError: if the weights have another number of layers or another width.
        """
        layers = {match[0] for name in weights if (match := _LAYER.match(name))}
        if not layers or "embedding.weight" not in weights:
            return  # not the weights of a Transformer, which `load_into` reports
        model = self.config.model
        wanted = {
            "encoder_layers": model.encoder_layers,
            "decoder_layers": model.decoder_layers,
            "d_model": model.d_model,
        }
        found = {
            "encoder_layers": sum(name.startswith("encoder") for name in layers),
            "decoder_layers": sum(name.startswith("decoder") for name in layers),
            "d_model": next(iter(weights["embedding.weight"].shape[1:]), 0),
        }
        for key, value in wanted.items():
            if value != found[key]:
                raise MtkitError(
                    f"{self.path}: the weights do not fit {CONFIG}: model.{key} is {value}, "
                    f"and the weights have {found[key]}"
                )

    def load_into(self, model: nn.Module, weights: Tensors) -> None:
        """Load these weights into a model.

        Raises:
            MtkitError: if they are for another model.
        """
        try:
            model.load_state_dict(weights, assign=True)
        except RuntimeError as error:
            raise MtkitError(
                f"{self.path}: the weights do not fit {CONFIG}: {reason_of(error, most=200)}"
            ) from error

    # Metrics

    def log(self, row: dict[str, Any]) -> None:
        """Append one row to `metrics.jsonl`."""
        self._append(_METRICS, row)

    def metrics(self) -> list[dict[str, Any]]:
        """All rows of `metrics.jsonl`."""
        return self._rows(_METRICS)

    def add_samples(self, step: int, samples: Sequence[dict[str, str]]) -> None:
        """Append the translations of a validation to `samples.jsonl`."""
        self._append(_SAMPLES, {"step": step, "samples": list(samples)})

    def samples(self) -> list[dict[str, Any]]:
        """All rows of `samples.jsonl`."""
        return self._rows(_SAMPLES)

    def truncate_metrics(self, step: int) -> None:
        """Delete rows after `step`, which a resumed run will write again."""
        for name in (_METRICS, _SAMPLES):
            rows = [row for row in self._rows(name) if row["step"] <= step]
            with naming_file(self.path / name):
                write_whole(self.path / name, "".join(f"{json_text(row)}\n" for row in rows))

    def write_page(self, html: str) -> None:
        """Write `report.html`."""
        self.check_held()
        with naming_file(self.path / PAGE):
            write_whole(self.path / PAGE, html)

    @property
    def board_path(self) -> Path:
        """The folder for TensorBoard's files."""
        return self.path / _BOARD

    def add_to_board(self, name: str, content: bytes) -> None:
        """Append to one of TensorBoard's files."""
        self.check_held()
        with naming_file(self.board_path / name):
            self.board_path.mkdir(exist_ok=True)
            with (self.board_path / name).open("ab") as file:
                file.write(content)

    def _append(self, name: str, row: dict[str, Any]) -> None:
        self.check_held()
        with naming_file(self.path / name), (self.path / name).open("a+b") as file:
            line = f"{json_text(row)}\n".encode()
            if file.tell():
                # A full disk or a kill may have cut the previous row.
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":
                    line = b"\n" + line
            file.write(line)

    def _rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a file; damaged rows are left out, with a warning."""
        kind = _MetricsRow if name == _METRICS else _SamplesRow
        rows, damaged = [], 0
        try:
            content = (self.path / name).read_bytes()
        except OSError:
            return []
        lines = content.split(b"\n")
        for number, line in enumerate(lines, start=1):
            try:
                row = kind.model_validate(json.loads(line))
            except (ValueError, RecursionError):
                # A kill may have cut the last row; after a complete one, the last part is empty.
                damaged += number < len(lines) and bool(line.strip())
            else:
                rows.append(row.model_dump(exclude_unset=True))
        if damaged:
            log.warning("%s: %d damaged rows are left out", self.path / name, damaged)
        return rows


def fixed_settings(config: Config) -> dict[str, Any]:
    """The settings that may not change in a run, by their dotted keys."""
    return {
        f"{section}.{key}": value
        for section, settings in config.model_dump().items()
        for key, value in settings.items()
        if f"{section}." not in MAY_CHANGE and f"{section}.{key}" not in MAY_CHANGE
    }


def find_run(root: Path) -> Run:
    """The run under `root` with the newest checkpoint.

    Raises:
        MtkitError: if there is no run with a checkpoint.
    """
    folders = sorted(path.parent for path in root.glob(f"[!.]*/{_MANIFEST}"))
    saved = [(one, folder) for folder in folders for one in (folder / _CHECKPOINTS).glob(COMPLETE)]
    if not saved:
        what = (
            f"the runs under {root}/ have no checkpoint yet" if folders else f"no run under {root}/"
        )
        raise MtkitError(f"{what}; run mtkit train first, or give --run")
    _, newest = max(saved, key=lambda one: one[0].stat().st_mtime_ns)  # the first of equal ones
    return Run.open(newest)
