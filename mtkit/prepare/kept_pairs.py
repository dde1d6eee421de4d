"""Checks the pairs that a preparation keeps with the rules of `mtkit check`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mtkit.base.errors import one_line
from mtkit.base.processes import ordered_map
from mtkit.check import (
    MAX_SAMPLED,
    BlockReport,
    Checker,
    Counts,
    FindingTable,
    PairFacts,
    check_block,
)
from mtkit.prepare.blocks import PairBlock, decoded, taken
from mtkit.prepare.corpus import Corpus

log = logging.getLogger(__name__)

Pair = tuple[str, str]
PairNumbers = npt.NDArray[np.int64]
# Gives reasons to drop pairs of a block, and the numbers of these pairs, from 0.
Finder = Callable[[PairBlock], list[tuple[str, PairNumbers]]]


def check_kept_pairs(
    blocks: Callable[[], Iterator[PairBlock]],
    corpus: Corpus,
    path: Path,
    *,
    kept: Sequence[int],
    workers: int,
    advance: Callable[[int], object],
) -> Counts:
    """Check the kept pairs of all blocks, and write what is found to a table, worst first.

    What is usual is learned from an even sample of the kept pairs of each direction.

    Args:
        blocks: reads the training sources once more; the codes of the blocks are the final ones.
        kept: pairs of each source.
        advance: called with the number of pairs that are done.
    """
    checkers = _checkers(blocks(), corpus, kept)
    counts = Counts(silences=_silences(checkers))
    names = [one_line(label) for label in corpus.labels]
    with FindingTable(path, has_places=True) as table:
        check = partial(_check, checkers, names)
        for block, report in ordered_map(check, blocks(), workers=workers):
            counts.add(report.counts)
            table.add(report.rows)
            advance(len(block))
        table.write()
    return counts


def finder_of_kinds(
    blocks: Iterator[PairBlock], corpus: Corpus, kinds: Collection[str], *, kept: Sequence[int]
) -> Finder:
    """Finds kept pairs with findings of these kinds; the rest is as for `check_kept_pairs`."""
    checkers = _checkers(blocks, corpus, kept)
    for sentence in _silences(checkers):
        log.info("%s", sentence)
    return partial(_marked, checkers, frozenset(kinds))


def _marked(
    checkers: Sequence[Checker], kinds: frozenset[str], block: PairBlock
) -> list[tuple[str, PairNumbers]]:
    check, indices = checkers[block.direction].check, block.kept
    is_marked = [
        any(finding.kind in kinds for finding in check(*pair).findings)
        for pair in _pairs(block, indices.tolist())
    ]
    return [("finding", block.start + indices[np.array(is_marked, bool)])]


def _checkers(blocks: Iterator[PairBlock], corpus: Corpus, kept: Sequence[int]) -> list[Checker]:
    """For each direction, a checker that has learned what is usual from its kept pairs."""
    return [
        Checker(PairFacts.learn(sample, src_lang=direction.src_lang, tgt_lang=direction.tgt_lang))
        for direction, sample in zip(corpus.directions, _samples(blocks, corpus, kept), strict=True)
    ]


def _silences(checkers: Sequence[Checker]) -> tuple[str, ...]:
    """For each direction, what the rules do not report."""
    facts = [checker.facts for checker in checkers if checker.facts.silence]
    return tuple(f"{known.src_lang} to {known.tgt_lang}: {known.silence}" for known in facts)


def _check(checkers: Sequence[Checker], names: Sequence[str], block: PairBlock) -> BlockReport:
    """Check the kept pairs of a block, in any process."""
    indices = block.kept
    return check_block(
        checkers[block.direction],
        _pairs(block, indices.tolist()),
        numbers=block.lines[indices].tolist(),
        place=names[block.source],
        first=block.start,
        with_rows=True,
    )


def _samples(blocks: Iterator[PairBlock], corpus: Corpus, kept: Sequence[int]) -> list[list[Pair]]:
    """Evenly sampled pairs of each direction, at most `MAX_SAMPLED`."""
    sizes = np.bincount(corpus.direction_of, kept, minlength=len(corpus.directions))
    strides = [max(1, -(-int(size) // MAX_SAMPLED)) for size in sizes]
    seen = [0] * len(strides)
    samples: list[list[Pair]] = [[] for _ in strides]
    for block in blocks:
        number, indices = block.direction, block.kept.tolist()
        stride = strides[number]
        samples[number] += _pairs(block, indices[-seen[number] % stride :: stride])
        seen[number] += len(indices)
    return samples


def _pairs(block: PairBlock, indices: list[int]) -> list[Pair]:
    return list(zip(*decoded(taken(block.pairs, indices)), strict=True))
