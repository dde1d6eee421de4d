"""Where a training starts: at a checkpoint, at the weights of another run, or at random weights.

This also decides where a run that continues ends, if `train --finish-in` sets that. It is kept in
the configuration of the run (`train.finish_after` and `train.finish_steps`), so a run that is
resumed needs no option.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mtkit.base.errors import MtkitError
from mtkit.base.text import base_language
from mtkit.checkpoint import Tensors
from mtkit.config import Config
from mtkit.data import PreparedData
from mtkit.run_folder import Run
from mtkit.run_manifest import MAY_CHANGE, Initialisation, RunManifest, differences
from mtkit.train.added_rows import AddedRows
from mtkit.train.distributed import Workers
from mtkit.train.launcher import is_restarted, launch_id
from mtkit.train.parameters import ROWS, is_named
from mtkit.train.schedule import Schedule

_CHECKPOINT = re.compile(r"(.+?):(last|best|average:\d+|\d+)", re.DOTALL)


@dataclass(frozen=True)
class Job:
    """What a training is asked to do.

    The fields are as in `assembly.run`; `config` is that for the weights that it starts from.
    """

    config: Config
    data: PreparedData
    run_path: Path
    initial: Initial | None
    restart: bool = False
    finish_in: int | None = None
    command: list[str] | None = None


class Initial(NamedTuple):
    """Weights to start from, of the run in a folder."""

    weights: Tensors
    run: Path
    origin: Initialisation
    # Source and target language of each direction of the data on which the run was not trained.
    new_directions: list[tuple[str, str]]
    # Of the rows that its embeddings got; empty if they have all subwords of the data.
    added_rows: str = ""


def initial_weights(run: Run, which: str | None, data: PreparedData) -> Initial:
    """The weights of a checkpoint, to be trained further with other data.

    Raises as `Run.select`, and `MtkitError` if the data has another task or other subwords.
    """
    if run.manifest.data.task != data.task:
        raise MtkitError(
            f"{run.path}: its task is {run.manifest.data.task}, and that of {data.path} is "
            f"{data.task}"
        )
    languages = (data.manifest.tokenizer_from or {}).get("added_languages", {})
    added = AddedRows.between(run.tokenizers(), data.tokenizers(), languages)
    if added is None:
        raise MtkitError(
            f"{data.path}: was prepared with other subwords than those of {run.path}; prepare it "
            f"with --tokenizer-from {run.in_command}"
        )
    manifest = run.manifest
    origin = manifest.imported or manifest.started_from
    weights, description = run.select(which)
    initialisation = Initialisation(
        run=run.name,
        weights=description,
        sha256=_sha256(weights),
        data=manifest.data.name,
        licence=origin.licence if origin is not None else "",
    )
    added.add_to(weights)
    directions = _new_directions(run, data)
    return Initial(weights, run.path, initialisation, directions, added.description)


def split_checkpoint(text: str) -> tuple[Path, str | None]:
    """The run and the checkpoint in RUN or RUN:CHECKPOINT.

    A folder of the full name is a run, whatever follows its last colon.
    """
    if Path(text).is_dir():
        return Path(text), None
    for colon in reversed([*re.finditer(":", text)]):
        if Run.is_run(run := Path(text[: colon.start()])):
            return run, text[colon.end() :]
    # Of a run that was deleted.
    match = _CHECKPOINT.fullmatch(text)
    return (Path(match[1]), match[2]) if match else (Path(text), None)


def _new_directions(run: Run, data: PreparedData) -> list[tuple[str, str]]:
    """The directions that the data of a run lacks, as far as that is known."""
    origin = run.manifest.data
    pairs = [(direction.src_lang, direction.tgt_lang) for direction in origin.directions]
    if not pairs and run.tokenizers().src.language_tags:
        # An imported model does not say which directions it was trained on.
        return []
    pairs = pairs or [(origin.src_lang, origin.tgt_lang)]
    known = [(base_language(src), base_language(tgt)) for src, tgt in pairs if src and tgt]
    return [
        (src, tgt)
        for src, tgt in data.language_pairs
        if known and (base_language(src), base_language(tgt)) not in known
    ]


def _frozen_rows(config: Config, run: Run, data: PreparedData) -> list[str]:
    """The rows of frozen embeddings that the run has; those that it gets must be trained."""
    settings, names = config.train, []
    olds, news = run.tokenizers().distinct, data.tokenizers().distinct
    matrices = ("src_embedding", "embedding")[-len(news) :]
    for name, old, new in zip(matrices, olds, news, strict=False):
        patterns = ["*"] if settings.lora_rank else settings.freeze
        is_frozen = any(is_named(f"{name}.weight", pattern) for pattern in patterns)
        if is_frozen and len(new) > len(old):
            names.append(f"{name}[:{len(old)}]")
    return names


def _sha256(weights: Tensors) -> str:
    checksum = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        checksum.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        checksum.update(tensor.contiguous().view(-1).numpy().tobytes())
    return checksum.hexdigest()


def start_of(
    config: Config,
    data: PreparedData,
    run_path: Path | None,
    init_from: str | None,
    *,
    restart: bool = False,
    check: Callable[[Config], object] = lambda _: None,
) -> tuple[Config, Initial | None]:
    """The configuration for the weights that training starts from, and these weights.

    They are None if they are random, or if a run continues without `init_from`. Arguments are as in
    `run`; without `run_path` nothing is trained. `check` gets the configuration before any weights
    are loaded.
    """
    begun = None
    if run_path is not None and Run.is_run(run_path):
        # A restart is also for a run that cannot be opened any more.
        with suppress(MtkitError) if restart else nullcontext():
            begun = Run.open(run_path)
    if begun is not None and (by := begun.manifest.converted_by):
        raise MtkitError(
            f"{begun.path}: was made by mtkit {by}, and has no state of a training; to train it "
            f"further, give another --run, and --init-from {begun.in_command}"
        )
    origin = begun.manifest.started_from if begun is not None else None
    is_own = begun is not None and is_restarted() and _was_begun_by_launch(begun)
    continues = begun is not None and bool(begun.checkpoints()) and (not restart or is_own)
    if init_from is not None:
        path, which = split_checkpoint(init_from)
        is_same = origin is not None and origin.run_name == path.resolve().name
        # Restarted workers have the command that began the run, whatever RUN has become.
        if not (continues and is_same and (is_own or not path.exists())):
            run = Run.open(path)
            if run_path is not None and run_path.exists() and path.samefile(run_path):
                raise MtkitError(f"{path}: a run cannot start from itself; give another --run")
            config = config.for_weights_of(run.config, origin=str(path))
            config = config.freezing(_frozen_rows(config, run, data))
            check(config)
            return config, initial_weights(run, which, data)
    if begun is not None and origin is not None:
        # It continues without the weights that it was started from, but with their settings.
        if not continues:
            why = "was started from other weights" if restart else "has no checkpoint yet"
            raise MtkitError(
                f"{run_path}: {why}; give --init-from again, for {origin.description}, "
                "or another --run"
            )
        rows = filter(ROWS.fullmatch, begun.config.train.freeze)
        return config.for_weights_of(begun.config, origin=str(begun.path)).freezing(rows), None
    if config.train.lora_rank and not continues:
        raise MtkitError(
            "train.lora_rank: only changes the weights of another run; give --init-from RUN"
        )
    return config, None


def existing_run(workers: Workers, job: Job) -> Run | None:
    """The run that all workers continue, as the first one decides; None to start a new one."""
    restarted = workers.any(is_restarted())
    continues = workers.of_rank_zero(lambda: _continues(job, restarted=restarted))
    return workers.run_on_all_ranks(lambda: _run_to_continue(job) if continues else None)


def _continues(job: Job, *, restarted: bool) -> bool:
    """Whether there is a run to continue; refuses a different one without checkpoints."""
    if not Run.is_run(job.run_path) or (job.restart and not restarted):
        return False
    if not Run(job.run_path, job.config, RunManifest()).checkpoints():
        if not job.restart:
            # The same run, killed before its first checkpoint, has nothing to lose.
            _run_to_continue(job)
        return False
    return not job.restart or _was_begun_by_launch(Run.open(job.run_path))


def _was_begun_by_launch(run: Run) -> bool:
    """Whether these workers, or those that they replace, have begun a run.

    Restarted workers continue such a run, and never an older one, whatever --restart says.
    """
    return run.manifest.launch == launch_id()


def _run_to_continue(job: Job) -> Run:
    run, data, initial = Run.open(job.run_path), job.data, job.initial
    if run.manifest.data.fingerprint != data.fingerprint:
        raise MtkitError(
            f"{run.path}: was trained on other data than {data.path} "
            f"({run.manifest.data.name}, by checksum); give another --run, or --restart"
        )
    begun = run.manifest.started_from
    if initial is not None and (begun is None or begun.sha256 != initial.origin.sha256):
        before = begun.description if begun is not None else "random weights"
        advice = "to continue it, leave out --init-from"
        if begun is not None and not run.checkpoints():
            advice = "to begin it again, give --init-from for the weights that it was started from"
        raise MtkitError(
            f"{run.path}: was not started from {initial.origin.description}, "
            f"but from {before}; {advice}; else give another --run, or --restart"
        )
    if changed := differences(run.config, job.config, ignore=MAY_CHANGE):
        raise MtkitError(
            f"{run.path}: was begun with other settings: {', '.join(changed)}; "
            "give another --run, or --restart"
        )
    return run


def with_finish(job: Job, run: Run | None, workers: Workers) -> Config:
    """The configuration with the end that `--finish-in` sets, now or in an earlier training.

    It also has the number that `train.device_batch_tokens: auto` took in an earlier one. The first
    worker decides, because the others may see an older state of the run that continues. Raises
    `MtkitError` if there is nothing to finish, or if the run has another end already.
    """
    config = job.config
    if run is None:
        if job.finish_in is not None:
            raise MtkitError(
                "--finish-in: is for a run that has a checkpoint; for a new run, set "
                "train.max_steps"
            )
        return config
    (after, steps), tokens = workers.of_rank_zero(
        lambda: (_finish(config, run, job.finish_in), run.config.train.device_batch_tokens)
    )
    changes = {"finish_after": after, "finish_steps": steps}
    if config.train.device_batch_tokens == "auto" and tokens not in ("auto", None):
        changes["device_batch_tokens"] = f"auto:{str(tokens).removeprefix('auto:')}"
    settings = config.train.model_copy(update=changes)
    return config.model_copy(update={"train": settings})


def _finish(config: Config, run: Run, finish_in: int | None) -> tuple[int, int]:
    """From which step over how many updates; 0 updates if the run ends as planned."""
    recorded = run.config.train.finish_after, run.config.train.finish_steps
    given = config.train.finish_after, config.train.finish_steps
    if given not in ((0, 0), recorded):
        raise MtkitError(
            f"{run.path}: train.finish_after and train.finish_steps: cannot be changed while a run "
            "continues; leave them out, and give --finish-in"
        )
    after, steps = recorded
    if finish_in is None or finish_in == steps:
        return recorded
    if steps:
        raise MtkitError(
            f"{run.path}: ends at step {after + steps} already (--finish-in {steps} at step "
            f"{after}); leave out --finish-in"
        )
    after = run.checkpoints()[-1].step
    if not Schedule.from_config(config).rate(after + 1):
        raise MtkitError(
            f"{run.path}: its learning rate has fallen to zero after {after} updates; to train "
            f"further, start a new run with --init-from {run.in_command}"
        )
    return after, finish_in
