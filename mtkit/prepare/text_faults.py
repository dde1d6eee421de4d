"""Swapped pairs, pairs in other languages and damaged ones: seen in a sample, then dropped.

The log-odds of subwords find swapped pairs only where most of a corpus is right, and no third
language; py3langid needs nothing of the corpus, but takes 0.3 ms for a pair. So it looks at a
sample of each source, and at all pairs only where the sample has such pairs.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mtkit.base.invisible import visible
from mtkit.check import Text, in_other_languages, misread
from mtkit.prepare.blocks import PairBlock, decoded, taken
from mtkit.prepare_config import PrepareConfig

# By the kind of a fault: the reason for which pairs are dropped, and the advice if none is.
REASONS = {"language": "wrong language", "damage": "finding"}
_ADVICE = {
    "language": "correct the files, their order or the language codes",
    "damage": "correct the files: UTF-8 was read as another encoding",
}
# The first pairs are all identified, in 0.06 s; of later ones only those with few known words.
_MIN_IDENTIFIED = 200
# Pairs of a sample with a fault, and their share, from which the source has such pairs. Of 33 good
# sets, from Multi30k to the messages of Vim in 25 languages, none has more than 0.25 %.
_MIN_PAIRS, _MIN_SHARE = 3, 0.004
# The share of them above which nothing is dropped: what is right may be the rest.
MAX_DROPPED_SHARE = 0.4
# Faults that a message names.
_MAX_NAMED = 3


@dataclass
class FaultCounts:
    """The faults of a sample of pairs.

    Attributes:
        sampled: pairs that are long enough to be identified.
        seen: by the kind of fault, how many pairs have which fault; only kinds that are frequent.
        known: words of the source and of the target that pairs without a fault have on one side.
    """

    sampled: int = 0
    seen: dict[str, dict[str, int]] = field(default_factory=dict)
    known: list[list[str]] = field(default_factory=list)

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]], languages: tuple[str, str]) -> FaultCounts:
        """Look at pairs of these languages, in an order that says nothing about them."""
        words, known = (set[str](), set[str]()), (set[str](), set[str]())
        sampled, seen = 0, {kind: Counter[str]() for kind in REASONS}
        for pair in pairs:
            sides = _texts(pair, languages)
            kind, fault = _fault(sides, REASONS, known)
            sampled += kind != "short"
            if kind in seen:
                seen[kind][fault] += 1
            for own, side in zip(words, sides, strict=True) if not kind else ():
                own.update(side.words)
            if sampled == _MIN_IDENTIFIED:
                known = words[0] - words[1], words[1] - words[0]
        least = max(_MIN_PAIRS, _MIN_SHARE * sampled)
        often = {kind: faults for kind, faults in seen.items() if faults.total() >= least}
        return cls(
            sampled,
            {kind: dict(faults.most_common()) for kind, faults in often.items()},
            [sorted(words[0] - words[1]), sorted(words[1] - words[0])] if often else [],
        )

    def dropped(self, config: PrepareConfig) -> list[str]:
        """The kinds of faults for which pairs of the source are dropped."""
        is_on = {"language": config.drop_wrong_language, "damage": config.drop_control_characters}
        return [kind for kind in self.seen if is_on[kind] and self.share(kind) <= MAX_DROPPED_SHARE]

    def share(self, kind: str) -> float:
        """The share of pairs with a fault of this kind; 0 if there are few."""
        return sum(self.seen.get(kind, {}).values()) / max(1, self.sampled)

    def sentence(self, kind: str, *, is_dropped: bool) -> str:
        """What is said of the faults of a kind that is in `seen`."""
        faults = itertools.islice(self.seen[kind].items(), _MAX_NAMED)
        named = ", ".join(f"{count:,} have {fault}" for fault, count in faults)
        end = "such pairs are dropped" if is_dropped else f"none is dropped; {_ADVICE[kind]}"
        return f"of {self.sampled:,} sampled pairs, {named}; {end}"


def faulty_pairs(
    samples: Sequence[FaultCounts],
    config: PrepareConfig,
    languages: Sequence[tuple[str, str]],
    block: PairBlock,
) -> list[tuple[str, npt.NDArray[np.int64]]]:
    """Reasons to drop pairs of a block, with the numbers of the pairs; in any process.

    `samples` are those of all sources, and `languages` those of all directions.
    """
    sample, kept = samples[block.source], block.kept
    kinds, known = sample.dropped(config), list(map(frozenset, sample.known))
    pairs = zip(*decoded(taken(block.pairs, kept.tolist())), strict=True)
    given = languages[block.direction]
    faults = [_fault(_texts(pair, given), kinds, known)[0] for pair in pairs]
    return [(REASONS[kind], block.start + kept[np.array(faults, str) == kind]) for kind in kinds]


def _texts(pair: tuple[str, str], languages: tuple[str, str]) -> list[Text]:
    # Training does not see invisible characters, so what is dropped does not depend on them.
    return [Text(visible(side), language) for side, language in zip(pair, languages, strict=True)]


def _fault(
    sides: Sequence[Text], kinds: Collection[str], known: Sequence[Collection[str]]
) -> tuple[str, str]:
    """The kind of the fault of a pair, and its description.

    The kind is "short" of a pair that is too short to be identified, and "" without a fault.
    """
    src, tgt = sides
    if any(misread(side.raw, side.language) for side in (src, tgt)):
        return "damage", "damaged characters"
    other = in_other_languages(src, tgt, known=known) if "language" in kinds else ""
    if other is None:
        return "short", ""
    return ("language", other) if other else ("", "")
