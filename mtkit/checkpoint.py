"""The run folder: created, saved to, loaded from, found, averaged.

This module owns the names inside `runs/<name>/`. Weights and optimizer states are safetensors, the
rest is JSON, YAML and the tokenizer, so loading never executes code. A checkpoint is written beside
its place, synced and renamed: one that has its name is whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mtkit.config import MAY_CHANGE, Config, differences, dump_config, load_config
from mtkit.errors import MtkitError
from mtkit.tokenizer import Tokenizer

log = logging.getLogger(__name__)

Tensors = dict[str, Tensor]

_CONFIG = "config.yaml"
_MANIFEST = "manifest.json"
_METRICS = "metrics.jsonl"
_SAMPLES = "samples.jsonl"
_PAGE = "report.html"
_BOARD = "tensorboard"
_TOKENIZER = "tokenizer.model"
_TOKENIZERS = ("tokenizer.src.model", "tokenizer.tgt.model")
_CHECKPOINTS = "checkpoints"
_MODEL = "model.safetensors"
_OPTIMIZER = "optimizer.safetensors"
_STATE = "state.json"
_STEP = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True)
class Checkpoint:
    """One saved state of a run."""

    path: Path
    step: int

    def load_weights(self) -> Tensors:
        """The model's tensors, on the CPU.

        Raises:
            MtkitError: if the file is missing, truncated or was changed.
        """
        self._check(_MODEL)
        return _load_tensors(self.path / _MODEL)

    def load_optimizer(self) -> Tensors:
        """The optimizer's tensors, on the CPU; raises as `load_weights`."""
        self._check(_OPTIMIZER)
        return _load_tensors(self.path / _OPTIMIZER)

    def load_state(self) -> dict[str, Any]:
        """The counters that `Run.save` was given."""
        state: dict[str, Any] = self._record()["state"]
        return state

    def is_extra(self) -> bool:
        """Whether it was saved between two others because it was the best then."""
        # A damaged one is told of when it is loaded.
        with contextlib.suppress(MtkitError):
            return bool(self._record().get("extra", False))
        return False

    def _record(self) -> dict[str, Any]:
        return _load_json(self.path / _STATE)

    def _check(self, name: str) -> None:
        file = self.path / name
        if _sha256(file) != self._record().get("sha256", {}).get(name):
            raise MtkitError(
                f"{file}: damaged (its checksum is not the one it was saved with); "
                "use another checkpoint"
            )


class Run:
    """A run folder.

    Attributes:
        path: the folder.
        config: the configuration of the run.
        manifest: data fingerprint and folder, versions, command.
    """

    def __init__(self, path: Path, config: Config, manifest: dict[str, Any]) -> None:
        self.path = path
        self.config = config
        self.manifest = manifest

    @classmethod
    def create(
        cls,
        path: Path,
        config: Config,
        tokenizers: tuple[Tokenizer, Tokenizer],
        *,
        manifest: dict[str, Any],
    ) -> Run:
        """A new run folder without checkpoints, or an old one emptied of them.

        Args:
            path: the folder.
            config: of the run.
            tokenizers: of source and target, as `PreparedData.tokenizers` has them.
            manifest: what else is worth knowing; `data` holds the `fingerprint` and `path` of
                the prepared folder.
        """
        with _naming_the_file(path):
            shutil.rmtree(path / _CHECKPOINTS, ignore_errors=True)
            (path / _CHECKPOINTS).mkdir(parents=True)
            for old in (_SAMPLES, _PAGE, _TOKENIZER, *_TOKENIZERS):
                (path / old).unlink(missing_ok=True)
            shutil.rmtree(path / _BOARD, ignore_errors=True)
            (path / _METRICS).write_bytes(b"")
            (path / _CONFIG).write_text(dump_config(config), encoding="utf-8")
            src, tgt = tokenizers
            if src is tgt:
                src.save(path / _TOKENIZER)
            else:
                for tokenizer, name in zip(tokenizers, _TOKENIZERS, strict=True):
                    tokenizer.save(path / name)
            # Last, because a folder is a run once it has a manifest.
            _write_json(path / _MANIFEST, manifest)
        return cls(path, config, manifest)

    @staticmethod
    def may_create(path: Path) -> bool:
        """Whether `path` is free, or holds a run or what a killed `create` left of one."""
        if not path.exists():
            return True
        if not path.is_dir():
            return False
        names = {file.name for file in path.iterdir() if not file.name.endswith(".partial")}
        if _MANIFEST in names:
            return _CONFIG in names  # prepared data has a manifest too
        if names and any((path / _CHECKPOINTS).glob("*")):
            return False
        # In the order in which `create` writes them.
        return any(
            names == set([_CHECKPOINTS, _METRICS, _CONFIG, *tokenizers][: len(names)])
            for tokenizers in ((_TOKENIZER,), _TOKENIZERS)
        )

    @classmethod
    def open(cls, path: Path) -> Run:
        """The run at `path`.

        Raises:
            MtkitError: if there is none.
        """
        if not (path / _MANIFEST).is_file():
            what = "is not a run folder" if path.exists() else "there is no such run folder"
            raise MtkitError(f"{path}: {what}; mtkit train makes one")
        return cls(path, load_config(str(path / _CONFIG)), _load_json(path / _MANIFEST))

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.path.resolve().name

    @property
    def data_fingerprint(self) -> str:
        """Of the data that the run is trained on."""
        return str(self.manifest["data"]["fingerprint"])

    @property
    def data_path(self) -> Path:
        """Where that data was when the run was made."""
        return Path(self.manifest["data"]["path"])

    def with_config(self, config: Config) -> Run:
        """The same run with another configuration; `write_config` makes that last."""
        return Run(self.path, config, self.manifest)

    def write_config(self) -> None:
        """Keep the run's present configuration in its folder."""
        with _naming_the_file(self.path):
            _write_whole(self.path / _CONFIG, dump_config(self.config))

    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """The run's own copies of the subwords of source and target; one twice if joint."""
        if any((self.path / name).exists() for name in _TOKENIZERS):
            src, tgt = (Tokenizer.load(self.path / name) for name in _TOKENIZERS)
            return src, tgt
        joint = Tokenizer.load(self.path / _TOKENIZER)
        return joint, joint

    # Checkpoints

    def checkpoints(self) -> list[Checkpoint]:
        """All whole checkpoints, oldest first."""
        found = []
        folder = self.path / _CHECKPOINTS
        for path in folder.iterdir() if folder.is_dir() else ():
            if match := _STEP.fullmatch(path.name):
                found.append(Checkpoint(path, int(match[1])))
        return sorted(found, key=lambda checkpoint: checkpoint.step)

    def best(self) -> Checkpoint | None:
        """The checkpoint that validated best (`train.best_by`), the newest of equals, if any."""
        scored = []
        for checkpoint in self.checkpoints():
            # A damaged one cannot be the best, and is told of when it is loaded.
            with contextlib.suppress(MtkitError):
                value = goodness(checkpoint.load_state(), self.config.train.best_by)
                if value is not None:
                    scored.append((value, checkpoint.step, checkpoint))
        return max(scored)[2] if scored else None

    def last_good(self) -> str:
        """The newest checkpoint in a few words, for messages about what went wrong."""
        saved = self.checkpoints()
        if not saved:
            return "nothing was saved"
        return f"the last good checkpoint is step {saved[-1].step}"

    def set_aside_after(self, step: int) -> list[str]:
        """Rename the checkpoints beyond `step`, which are damaged, so that no one counts on them.

        Returns:
            Their new names.
        """
        names = []
        for checkpoint in self.checkpoints():
            if checkpoint.step > step:
                place = checkpoint.path.with_name(f"damaged-{checkpoint.path.name}")
                with _naming_the_file(place):
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
        """Add a checkpoint; a crash or a full disk on the way leaves the older ones as they were.

        Args:
            step: updates made so far.
            weights: of the model.
            optimizer: its tensors; None for a model that is not trained any further.
            state: counters, as plain values.
            extra: whether no checkpoint was due, and it is saved as the best so far. Such a one
                is kept as long as it is the best or the newest, and no average counts it.
        """
        place = self.path / _CHECKPOINTS / f"step-{step:08d}"
        partial = _partial(place)
        with _naming_the_file(place):
            try:
                # What a killed save or prune left goes too.
                for old in place.parent.glob(".*.partial"):
                    shutil.rmtree(old, ignore_errors=True)
                partial.mkdir()
                checksums = {}
                for name, tensors in ((_MODEL, weights), (_OPTIMIZER, optimizer)):
                    if tensors is not None:
                        _save_tensors(tensors, partial / name)
                        checksums[name] = _sha256(partial / name)
                record = {"step": step, "extra": extra, "sha256": checksums, "state": state}
                _write_json(partial / _STATE, record)
                _sync(partial)
                if place.exists():
                    shutil.rmtree(place)
                partial.rename(place)
                _sync(place.parent)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        return Checkpoint(place, step)

    def prune(self) -> None:
        """Delete the checkpoints that `train.keep_checkpoints` and the like do not ask for.

        Raises:
            MtkitError: if one cannot be deleted.
        """
        settings = self.config.train
        found = self.checkpoints()
        regular = [checkpoint for checkpoint in found if not checkpoint.is_extra()]
        wanted = [*regular[-settings.keep_checkpoints :], *found[-1:], self.best()]
        for checkpoint in found:
            kept = settings.keep_every is not None and checkpoint.step % settings.keep_every == 0
            if not kept and checkpoint not in wanted:
                with _naming_the_file(checkpoint.path):
                    # Renamed first: a kill must not leave one that has its name and is not whole.
                    shutil.rmtree(checkpoint.path.rename(_partial(checkpoint.path)))

    def select(self, which: str | None) -> tuple[Tensors, str]:
        """Weights by name.

        Args:
            which: `last`, `best`, a step, or `average:N` for the mean of the N newest; None is
                the average of `decode.average_checkpoints`, or of all where there are fewer.

        Returns:
            The tensors, and a few words that say what they are.

        Raises:
            MtkitError: if there is no such checkpoint.
        """
        found = self.checkpoints()
        if not found:
            raise MtkitError(f"{self.path}: has no checkpoint yet; mtkit train writes them")
        # Those at even distances, unless there is none yet.
        regular = [checkpoint for checkpoint in found if not checkpoint.is_extra()] or found
        if which is None:
            return _select_average(regular[-self.config.decode.average_checkpoints :])
        if which == "last":
            return found[-1].load_weights(), f"step {found[-1].step}"
        if which == "best":
            best = self.best()
            if best is None:
                raise MtkitError(f"{self.path}: no checkpoint was validated, so none is the best")
            return best.load_weights(), f"step {best.step}, the best"
        if match := re.fullmatch(r"average:(\d+)", which):
            count = int(match[1])
            if not 1 <= count <= len(regular):
                raise MtkitError(
                    f"--checkpoint {which}: {self.path} has {len(regular)} checkpoints to average"
                )
            return _select_average(regular[-count:])
        if which.isdecimal():
            for checkpoint in found:
                if checkpoint.step == int(which):
                    return checkpoint.load_weights(), f"step {checkpoint.step}"
            steps = ", ".join(str(checkpoint.step) for checkpoint in found)
            raise MtkitError(f"--checkpoint {which}: {self.path} has steps {steps}")
        raise MtkitError(f"--checkpoint {which}: write last, best, average:N or a step")

    def load_into(self, model: nn.Module, weights: Tensors) -> None:
        """Give a model these weights in place of its own.

        Raises:
            MtkitError: if they are of another model.
        """
        try:
            model.load_state_dict(weights, assign=True)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise MtkitError(
                f"{self.path}: the weights do not fit {_CONFIG}: {reason[:200]}"
            ) from error

    # Metrics

    def log(self, row: dict[str, float | int]) -> None:
        """Append one row to `metrics.jsonl`."""
        self._append(_METRICS, row)

    def metrics(self) -> list[dict[str, Any]]:
        """All rows of `metrics.jsonl`."""
        return self._rows(_METRICS)

    def add_samples(self, step: int, samples: Sequence[dict[str, str]]) -> None:
        """Append what was translated at a validation to `samples.jsonl`."""
        self._append(_SAMPLES, {"step": step, "samples": list(samples)})

    def samples(self) -> list[dict[str, Any]]:
        """All rows of `samples.jsonl`."""
        return self._rows(_SAMPLES)

    def forget_metrics_after(self, step: int) -> None:
        """Delete rows beyond `step`, which a resumed run is about to write again."""
        for name in (_METRICS, _SAMPLES):
            rows = [row for row in self._rows(name) if row["step"] <= step]
            with _naming_the_file(self.path / name):
                _write_whole(self.path / name, "".join(f"{_json_line(row)}\n" for row in rows))

    def write_page(self, html: str) -> None:
        """Write `report.html`."""
        with _naming_the_file(self.path / _PAGE):
            _write_whole(self.path / _PAGE, html)

    @property
    def board_path(self) -> Path:
        """The folder for TensorBoard's files."""
        return self.path / _BOARD

    def add_to_board(self, name: str, content: bytes) -> None:
        """Append to one of TensorBoard's files."""
        with _naming_the_file(self.board_path / name):
            self.board_path.mkdir(exist_ok=True)
            with (self.board_path / name).open("ab") as file:
                file.write(content)

    def _append(self, name: str, row: dict[str, Any]) -> None:
        with _naming_the_file(self.path / name), (self.path / name).open("a+b") as file:
            line = f"{_json_line(row)}\n".encode()
            if file.tell():
                # A full disk or a kill may have cut the row before.
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":
                    line = b"\n" + line
            file.write(line)

    def _rows(self, name: str) -> list[dict[str, Any]]:
        rows = []
        with _naming_the_file(self.path / name):
            if name == _SAMPLES and not (self.path / name).exists():
                return []
            with (self.path / name).open("rb") as file:
                for line in file:
                    # What was cut short, inside a character too, is left out.
                    with contextlib.suppress(ValueError):
                        rows.append(json.loads(line))
        return rows


def goodness(scores: Mapping[str, Any], best_by: str) -> float | None:
    """How good a validation was, by its row of metrics or its saved state; higher is better.

    Args:
        scores: with `valid_bleu` and the like.
        best_by: as `train.best_by`.

    Returns:
        None if there was no such validation.
    """
    value: float | None = scores.get(f"valid_{best_by}")
    return -value if best_by == "loss" and value is not None else value


class CheckpointWriter:
    """Saves checkpoints of a run in a thread of its own, one after the other.

    What it is given must be nobody else's: training goes on meanwhile. As a context manager it
    ends when nothing is being saved any more, whatever happened inside.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._saving: tuple[int, Future[None]] | None = None

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.settle()
        self._thread.shutdown()

    def save(
        self,
        step: int,
        *,
        weights: Tensors,
        optimizer: Tensors,
        state: dict[str, Any],
        extra: bool = False,
    ) -> None:
        """Begin to save a checkpoint, as `Run.save`; one being saved is waited for first."""
        self.settle()

        def work() -> None:
            self._run.save(step, weights=weights, optimizer=optimizer, state=state, extra=extra)
            try:
                self._run.prune()
            except MtkitError as error:
                log.warning("an old checkpoint could not be deleted: %s", error)

        self._saving = (step, self._thread.submit(work))

    def settle(self, *, wait: bool = True) -> None:
        """Return when nothing is being saved any more; without `wait`, look whether that is so.

        A checkpoint that could not be saved, because the disk is full for instance, is told of,
        and training goes on: there will be another.
        """
        if self._saving is not None and (wait or self._saving[1].done()):
            try:
                self.finish()
            except MtkitError as error:
                log.warning("%s", error)

    def last_good(self) -> str:
        """As `Run.last_good`, once nothing is being saved any more."""
        self.settle()
        return self._run.last_good()

    def finish(self) -> None:
        """Wait for the last checkpoint of a run.

        Raises:
            MtkitError: if it was not saved.
        """
        if self._saving is None:
            return
        step, saving = self._saving
        error = saving.exception()
        self._saving = None
        if isinstance(error, MtkitError):
            what = f"step {step} was not saved: {error}; {self._run.last_good()}"
            raise MtkitError(what) from error
        if error is not None:
            raise error


def find_run(root: Path) -> Run:
    """The run under `root` whose newest checkpoint is the newest of all.

    Raises:
        MtkitError: if there is no run with a checkpoint.
    """
    newest: tuple[int, Path] | None = None
    folders = sorted(path.parent for path in root.glob(f"[!.]*/{_MANIFEST}"))
    for folder in folders:
        for checkpoint in (folder / _CHECKPOINTS).glob(f"step-*/{_STATE}"):
            when = checkpoint.stat().st_mtime_ns
            if newest is None or when > newest[0]:
                newest = (when, folder)
    if newest is None:
        what = (
            f"the runs under {root}/ have no checkpoint yet" if folders else f"no run under {root}/"
        )
        raise MtkitError(f"{what}; run mtkit train first, or give --run")
    return Run.open(newest[1])


def seed_groups(runs: Sequence[Run]) -> list[list[int]]:
    """Which of these runs are one configuration on the same data under different seeds.

    Returns:
        The places in `runs` of each group of two or more.
    """
    # How long a run was trained makes a difference, and how it searches, unlike the rest of what
    # may change.
    ignore = [key for key in MAY_CHANGE if key not in ("train.max_steps", "decode.")]
    ignore += ["train.seed", "decode.seed", "decode.batch_tokens"]
    groups: list[list[int]] = []
    for place, run in enumerate(runs):
        for group in groups:
            first = runs[group[0]]
            seeds = [runs[other].config.train.seed for other in group]
            if (
                run.config.train.seed not in seeds
                and first.data_fingerprint == run.data_fingerprint
                and not differences(first.config, run.config, ignore=ignore)
            ):
                group.append(place)
                break
        else:
            groups.append([place])
    return [group for group in groups if len(group) > 1]


def average(load: list[Callable[[], Tensors]]) -> Tensors:
    """The mean of several sets of weights, one in memory at a time, summed in float64."""
    total: Tensors = {}
    dtypes = {}
    for get in load:
        for name, tensor in get().items():
            dtypes[name] = tensor.dtype
            # Plus, not in place: the first may be somebody else's float64 tensor.
            total[name] = total[name] + tensor if name in total else tensor.double()
    return {name: (tensor / len(load)).to(dtypes[name]) for name, tensor in total.items()}


def _select_average(checkpoints: list[Checkpoint]) -> tuple[Tensors, str]:
    if len(checkpoints) == 1:
        return checkpoints[0].load_weights(), f"step {checkpoints[0].step}"
    weights = average([checkpoint.load_weights for checkpoint in checkpoints])
    first, last = checkpoints[0].step, checkpoints[-1].step
    return weights, f"the average of {len(checkpoints)} checkpoints, steps {first} to {last}"


@contextlib.contextmanager
def _naming_the_file(path: Path) -> Iterator[None]:
    """Turn what the disk refuses into one line that names the place."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MtkitError(f"{getattr(error, 'filename', None) or path}: {reason}") from error


def _partial(place: Path) -> Path:
    """Beside it, for what is not whole yet, or any more."""
    return place.with_name(f".{place.name}.partial")


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise MtkitError(f"{path}: {error.strerror}") from error


def _load_tensors(path: Path) -> Tensors:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise MtkitError(f"{path}: cannot be loaded ({error}); use another checkpoint") from error


def _save_tensors(tensors: Tensors, path: Path) -> None:
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    _sync(path)


def _load_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MtkitError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise MtkitError(f"{path}: damaged ({error})") from error
    if not isinstance(value, dict):
        raise MtkitError(f"{path}: damaged (not a JSON object)")
    return value


def _json_line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False)


def _write_json(path: Path, value: Any) -> None:
    _write_whole(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _write_whole(path: Path, text: str) -> None:
    """Replace a file in one instant."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    _sync(partial)
    partial.replace(path)


def _sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
