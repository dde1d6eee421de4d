"""The choice of the attention heads that align words best."""

from __future__ import annotations

import functools
import logging
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from mtkit.align.aligner import (
    Aligner,
    AlignmentHead,
    AlignmentSettings,
    WordAttention,
    all_heads,
    default_heads,
    heads_of,
    links_of,
)
from mtkit.align.links import Alignment, Gold, alignment_score, swapped
from mtkit.base.errors import MtkitError
from mtkit.run_folder import Run

if TYPE_CHECKING:
    from mtkit.model import Transformer

log = logging.getLogger(__name__)

# The most heads that are chosen; on Multi30k four were the best.
MAX_HEADS = 8
# The most pairs that are used, and the most words on a side of one, because the attention of all
# heads is kept in memory.
MAX_PAIRS = 1000
MAX_WORDS = 100
# With fewer pairs, heads may be chosen by chance.
FEW_PAIRS = 100


def tune_heads(
    run: Run,
    model: Transformer,
    aligner: Callable[[list[AlignmentHead]], Aligner],
    pairs: Sequence[tuple[str, str]],
    reference: Sequence[Gold] | Callable[[list[str], list[str]], Iterable[Alignment]],
    *,
    name: str,
    kind: Literal["gold", "reverse", "lexicon"],
    progress: Callable[[], None] = lambda: None,
) -> None:
    """Choose the heads that agree best with a reference on some pairs, and store them in the run.

    Args:
        aligner: makes an aligner with these heads.
        reference: the gold alignment of each pair; or what aligns targets with sources, a model of
            the other direction.
        name: what the reference is called in messages.
        kind: of the reference.
        progress: called after each candidate.

    Raises:
        MtkitError: if no pair can be used, or the run is not writable.
    """
    if not os.access(run.path, os.W_OK):
        raise MtkitError(f"{run.path}: is not writable, so the choice cannot be stored")
    usable = [
        index
        for index, pair in enumerate(pairs)
        if all(0 < len(line.split()) <= MAX_WORDS for line in pair)
    ][:MAX_PAIRS]
    if not usable:
        raise MtkitError(
            "no pair can be used to choose heads: each has a blank line, or more than "
            f"{MAX_WORDS} words on a side"
        )
    sources, targets = ([pairs[index][side] for index in usable] for side in (0, 1))
    if callable(reference):
        links = [swapped(alignment.links) for alignment in reference(targets, sources)]
        golds = [Gold(sure, sure) for sure in links]
    else:
        golds = [reference[index] for index in usable]
    if not any(gold.sure for gold in golds):
        raise MtkitError(f"{name}: no sure link (i-j) in the pairs that are used")
    if len(golds) < FEW_PAIRS:
        log.warning("pairs to choose heads with: only %d, %d are better", len(golds), FEW_PAIRS)
    known = [default_heads(model.config)]
    try:
        known.append(heads_of(run, model.config))
    except MtkitError as error:
        log.warning("%s; its choice is replaced", error)
    every = aligner(all_heads(model.config))
    choice = choose_heads(every, sources, targets, golds, known=known, progress=progress)
    AlignmentSettings(
        heads=choice.heads,
        error_rate=choice.error_rate,
        pairs=len(golds),
        reference=kind,
    ).save(run.path)
    log.info(
        "%s: stored the heads %s; alignment error rate %.1f on these pairs (%d), before %.1f",
        run.path,
        ", ".join(map(str, choice.heads)),
        100 * choice.error_rate,
        len(golds),
        100 * choice.known_error_rates[-1],
    )


class HeadChoice(NamedTuple):
    """Heads, the error rate of their mean attention from 0 to 1, and that of each known choice."""

    heads: list[AlignmentHead]
    error_rate: float
    known_error_rates: list[float]


def choose_heads(
    aligner: Aligner,
    sources: Sequence[str],
    translations: Sequence[str],
    golds: Sequence[Gold],
    *,
    known: Sequence[Sequence[AlignmentHead]] = (),
    progress: Callable[[], None] = lambda: None,
) -> HeadChoice:
    """The heads whose mean agrees best with gold alignments.

    Heads are added one by one, each time the one that lowers the error rate most, while one does.

    Args:
        aligner: with all heads that may be chosen.
        known: choices that the result must not be worse than.
        progress: called after each candidate.
    """
    attentions = aligner.by_head(sources, translations)
    error_rate = functools.partial(_error_rate, attentions, golds)
    choices = [[aligner.heads.index(head) for head in heads] for heads in known]
    known_rates = list(map(error_rate, choices))
    chosen: list[int] = []
    lowest = math.inf
    while len(chosen) < MAX_HEADS:
        rates = {}
        for candidate in sorted(set(range(len(aligner.heads))) - set(chosen)):
            rates[candidate] = error_rate([*chosen, candidate])
            progress()
        best = min(rates, key=rates.__getitem__, default=None)
        if best is None or rates[best] >= lowest:
            break
        chosen.append(best)
        lowest = rates[best]
    candidates = zip([lowest, *known_rates], [chosen, *choices], strict=True)
    lowest, chosen = min(candidates, key=lambda pair: pair[0])
    return HeadChoice([aligner.heads[i] for i in chosen], lowest, known_rates)


def _error_rate(
    attentions: Sequence[Sequence[WordAttention]], golds: Sequence[Gold], chosen: Sequence[int]
) -> float:
    """The alignment error rate of the mean of some heads."""
    links = []
    for of_heads in attentions:
        mean = np.mean([of_heads[i].matrix for i in chosen], axis=0)
        links.append(frozenset(links_of(replace(of_heads[0], matrix=mean))))
    return alignment_score(links, golds).error_rate
