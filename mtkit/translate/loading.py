"""Loading the models of a run, or of several that form an ensemble."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from mtkit.data import Task
from mtkit.errors import MtkitError
from mtkit.model import Transformer
from mtkit.run_folder import Run
from mtkit.tokenizer import PAD_ID, Vocabularies

log = logging.getLogger(__name__)


def load_models(
    runs: Sequence[Run], vocabularies: Vocabularies, checkpoint: str | None
) -> tuple[list[Transformer], list[str]]:
    """The models of an ensemble of runs, and a description of the weights of each.

    Args:
        runs: the runs.
        vocabularies: of the first run; all runs must have the same.
        checkpoint: as in `Run.select`.

    Raises:
        MtkitError: if the checkpoint does not exist, or if the runs cannot form an ensemble.
    """
    first = runs[0]
    models, checkpoints = [], []
    for one in runs:
        of_run = vocabularies if one is first else one.tokenizers()
        if not of_run.is_same(vocabularies):
            raise MtkitError(f"{one.path}: has another vocabulary than {first.path}")
        if languages_of(one) != languages_of(first) or task_of(one) != task_of(first):
            pair, other = (" to ".join(languages_of(run)) for run in (one, first))
            raise MtkitError(f"{one.path}: translates {pair}, and {first.path} {other}")
        weights, description = one.select(checkpoint)
        one.check_sizes(weights)
        with torch.device("meta"):
            model = Transformer(one.config.model, len(of_run.tgt), PAD_ID, of_run.own_src_size)
        one.load_into(model, weights)
        log.info("%s: %s", one.path, description)
        models.append(model.eval())
        checkpoints.append(description)
    return models, checkpoints


def languages_of(run: Run) -> tuple[str, str]:
    """Codes of the source and target language, if the run knows them."""
    return run.manifest.data.src_lang, run.manifest.data.tgt_lang


def task_of(run: Run) -> Task:
    """What the run does."""
    return run.manifest.data.task
