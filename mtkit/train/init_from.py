"""The weights that a run starts from, if they are not random: those of another run."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from mtkit.base.errors import MtkitError
from mtkit.base.text import base_language
from mtkit.checkpoint import Tensors
from mtkit.config import Config
from mtkit.data import PreparedData
from mtkit.run_folder import Run
from mtkit.run_manifest import Initialisation

_CHECKPOINT = re.compile(r"(?P<run>.+?):(?P<which>last|best|average:\d+|\d+)", re.DOTALL)


class Initial(NamedTuple):
    """Weights to start from.

    Attributes:
        weights: by name.
        run: the folder of their run, as it was given.
        origin: where they come from, for the manifest.
        new_directions: source and target language of each direction of the new data on which
            their run was not trained.
    """

    weights: Tensors
    run: Path
    origin: Initialisation
    new_directions: list[tuple[str, str]]


def initial_weights(run: Run, which: str | None, data: PreparedData) -> Initial:
    """The weights of a run, to be trained further with other data.

    Args:
        run: the run.
        which: its checkpoint, as for `Run.select`.
        data: the data of the new run.

    Raises:
        MtkitError: if the data has another task, or was not prepared with the subwords of the run,
            and as `Run.select`.
    """
    if run.manifest.data.task != data.task:
        raise MtkitError(
            f"{run.path}: its task is {run.manifest.data.task}, and that of {data.path} is "
            f"{data.task}"
        )
    own, other = run.tokenizers(), data.tokenizers()
    if own.is_joint != other.is_joint or not own.is_same(other):
        raise MtkitError(
            f"{data.path}: was prepared with other subwords than those of {run.path}; prepare it "
            f"with --tokenizer-from {run.path}"
        )
    manifest = run.manifest
    origin = manifest.imported or manifest.started_from
    weights, description = run.select(which)
    return Initial(
        weights,
        run.path,
        Initialisation(
            run=run.name,
            weights=description,
            sha256=_sha256(weights),
            data=manifest.data.name,
            licence=origin.licence if origin is not None else "",
        ),
        _new_directions(run, data),
    )


def split_checkpoint(text: str) -> tuple[Path, str | None]:
    """The run and the checkpoint in RUN or RUN:CHECKPOINT.

    A folder of the full name is a run, whatever follows its last colon.

    Raises:
        MtkitError: if CHECKPOINT is not one of those that there can be.
    """
    match = None if Path(text).is_dir() else _CHECKPOINT.fullmatch(text)
    if not Path(text).exists() and not (match is not None and Run.is_run(Path(match["run"]))):
        for colon in re.finditer(":", text):
            run, which = text[: colon.start()], text[colon.end() :]
            if Run.is_run(Path(run)):
                raise MtkitError(
                    f"--init-from {text}: {which or 'nothing'} is not a checkpoint; write last, "
                    "best, a step or average:N after the colon"
                )
    if match is not None:
        return Path(match["run"]), match["which"]
    return Path(text), None


def config_to_start(config: Config, run: Run) -> Config:
    """The configuration of a training that starts from the weights of a run.

    Raises:
        MtkitError: for a setting of the model that contradicts the run.
    """
    return config.for_weights_of(run.config, origin=str(run.path))


def _new_directions(run: Run, data: PreparedData) -> list[tuple[str, str]]:
    """The directions that the data of a run lacks, as far as that is known."""
    origin = run.manifest.data
    pairs = [(one.src_lang, one.tgt_lang) for one in origin.directions]
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


def _sha256(weights: Tensors) -> str:
    checksum = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        checksum.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        checksum.update(tensor.contiguous().view(-1).numpy().tobytes())
    return checksum.hexdigest()
