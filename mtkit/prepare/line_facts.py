"""What the training lines are like: how many have several sentences, and how long they are."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from mtkit.base.sentences import LONG_ENOUGH, LineFacts, split
from mtkit.prepare.source import Block

# Pairs that are sampled evenly from the whole corpus.
SAMPLED = 100_000
# Ratios of lengths are counted in steps of this fraction of an octave.
_STEPS = 16


@dataclass
class LineCounts:
    """The counts of the pairs so far.

    Attributes:
        pairs: number of pairs, of which every n-th is sampled.
        sampled, several, longest: as in `LineFacts`.
        ratios: number of sampled pairs by the ratio of their lengths, in steps on a log scale.
    """

    pairs: int = 0
    sampled: int = 0
    several: int = 0
    longest: int = 0
    ratios: dict[str, int] = field(default_factory=dict)

    def add(self, block: Block, *, every: int, language: str) -> None:
        """Count the kept pairs of a block; `every` is the distance between two sampled pairs."""
        src, tgt = block
        self.longest = max([self.longest, *map(len, src)])
        first = -self.pairs % every
        self.pairs += len(src)
        steps: Counter[str] = Counter(self.ratios)
        for source, target in zip(src[first::every], tgt[first::every], strict=True):
            self.sampled += 1
            self.several += len(split(source.decode(), language)) > 1
            if len(source) >= LONG_ENOUGH:
                steps[str(math.floor(_STEPS * math.log2(len(target) / len(source))))] += 1
        self.ratios = dict(steps)

    def facts(self) -> LineFacts:
        """The counts as they are recorded."""
        seen, shortest = 0, {}
        for step, count in sorted((int(step), count) for step, count in self.ratios.items()):
            seen += count
            if 1000 * seen > sum(self.ratios.values()):
                shortest = {"shortest": round(2 ** (step / _STEPS), 3)}
                break
        return LineFacts(
            sampled=self.sampled, several=self.several, longest=self.longest, **shortest
        )
