"""Swapped pairs, pairs in other languages and damaged ones: seen in a sample, then dropped.

The log-odds of subwords find swapped pairs only where most of a corpus is right, and no third
language; the rules of `mtkit check` find these, but take longer. So they look at a sample of each
source, and at all pairs only where the sample has such pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mtkit.check import MIN_LETTERS, PairFacts, Text, in_other_languages, misread
from mtkit.prepare.blocks import PairBlock, decoded, taken
from mtkit.prepare_config import PrepareConfig

# By the kind of a fault: the reason for which pairs are dropped, and the advice if none is.
REASONS = {"language": "wrong language", "damage": "finding"}
_ADVICE = {
    "language": "correct the files, their order or the language codes",
    "damage": "correct the files: UTF-8 was read as another encoding",
}
# Pairs of a sample that say which words are usual, in 0.4 s; of the others, only those without
# such words are identified.
_MAX_LEARNED = 400
# Pairs of a sample with a fault, and their share, from which the source has such pairs. Of 33 good
# sets, from Multi30k to the messages of Vim in 25 languages, none has more than 0.25 %.
_MIN_PAIRS, _MIN_SHARE = 3, 0.004
# The share of them above which nothing is dropped: what is right may be the rest.
MAX_DROPPED_SHARE = 0.4
# Faults that a message names.
_MAX_NAMED = 3


@dataclass(frozen=True)
class FaultCounts:
    """The faults of a sample of pairs.

    Attributes:
        facts: what the sample says of its languages.
        sampled: pairs that are long enough to be identified.
        seen: by the kind of fault, how many pairs have which fault; only kinds that are frequent.
    """

    facts: PairFacts
    sampled: int
    seen: dict[str, Counter[str]]

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]], languages: tuple[str, str]) -> FaultCounts:
        """Look at pairs of these languages, in an order that says nothing about them."""
        src_lang, tgt_lang = languages
        facts = PairFacts.learn(pairs[:_MAX_LEARNED], src_lang=src_lang, tgt_lang=tgt_lang)
        sampled, seen = 0, {kind: Counter[str]() for kind in REASONS}
        for pair in pairs:
            sides = facts.texts(*pair)
            kind, fault = _fault(*sides, facts, REASONS)
            if kind:
                seen[kind][fault] += 1
            letters = max(sum(map(len, side.words)) for side in sides)
            sampled += bool(kind) or letters >= MIN_LETTERS
        least = max(_MIN_PAIRS, _MIN_SHARE * sampled)
        often = {kind: faults for kind, faults in seen.items() if faults.total() >= least}
        return cls(facts, sampled, often)

    def dropped(self, config: PrepareConfig) -> list[str]:
        """The kinds of faults for which pairs of the source are dropped."""
        is_on = {"language": config.drop_wrong_language, "damage": config.drop_control_characters}
        return [kind for kind in self.seen if is_on[kind] and self.share(kind) <= MAX_DROPPED_SHARE]

    def share(self, kind: str) -> float:
        """The share of pairs with a fault of this kind; 0 if there are few."""
        return sum(self.seen.get(kind, {}).values()) / max(1, self.sampled)

    def sentence(self, kind: str, *, is_dropped: bool) -> str:
        """What is said of the faults of a kind that is in `seen`."""
        faults = self.seen[kind].most_common(_MAX_NAMED)
        named = ", ".join(
            f"{count:,} {'has' if count == 1 else 'have'} {fault}" for fault, count in faults
        )
        end = "such pairs are dropped" if is_dropped else f"none is dropped; {_ADVICE[kind]}"
        return f"of {self.sampled:,} sampled pairs, {named}; {end}"


def faulty_pairs(
    samples: Sequence[FaultCounts], config: PrepareConfig, block: PairBlock
) -> list[tuple[str, npt.NDArray[np.int64]]]:
    """Reasons to drop pairs of a block, and their numbers; `samples` are those of all sources."""
    sample, kept = samples[block.source], block.kept
    kinds = sample.dropped(config)
    pairs = zip(*decoded(taken(block.pairs, kept.tolist())), strict=True) if kinds else ()
    faults = [_fault(*sample.facts.texts(*pair), sample.facts, kinds)[0] for pair in pairs]
    return [(REASONS[kind], block.start + kept[np.array(faults) == kind]) for kind in kinds]


def _fault(src: Text, tgt: Text, facts: PairFacts, kinds: Collection[str]) -> tuple[str, str]:
    """The kind of the fault of a pair, of these kinds, and its description; both may be empty."""
    if "damage" in kinds and any(misread(side.raw, side.language) for side in (src, tgt)):
        return "damage", "damaged characters"
    others = in_other_languages(src, tgt, facts) if "language" in kinds else ()
    named = sorted(f"a {side} in {language}" for side, language, _ in others)
    return ("language", " and ".join(named)) if named else ("", "")
