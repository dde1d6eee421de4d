"""The HTML page about prepared data.

The values come from `statistics`, which also writes the file. The template is
`templates/data.html`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mtkit.base.html import ONE, TWO, Chart, Line, number, render, share

# Length ratios are counted in steps of this fraction of an octave.
RATIO_STEPS = 32
# A subword that occurs less often than this in training is called rare.
RARE = 10
# The chart of lengths shows this share of the sentences; a few long ones would make it flat.
_ON_CHART = 0.995
_MAX_BARS = 60


@dataclass(frozen=True)
class Side:
    """Counts of one side of a split; EOS is a token and not a subword.

    Attributes:
        tokens, words, byte_tokens: their number; byte tokens are bytes of characters that are not
            in the vocabulary.
        rare_tokens: tokens whose subword is rare in training (`RARE`).
        covering: how many of the most frequent subwords make up 50, 90 and 99 % of the text.
        lengths: number of sentences by length in tokens.
    """

    tokens: int
    words: int
    byte_tokens: int
    rare_tokens: int
    covering: tuple[int, int, int]
    lengths: Mapping[int, int]

    @property
    def sentences(self) -> int:
        """Number of sentences."""
        return sum(self.lengths.values())

    @property
    def subwords(self) -> int:
        """Number of subwords."""
        return self.tokens - self.sentences

    @property
    def longest(self) -> int:
        """Tokens of the longest sentence."""
        return max(self.lengths, default=0)


class Vocabulary(NamedTuple):
    """A vocabulary: its label, and the numbers of all, learned, unused and rare subwords.

    All subwords are the learned ones, the special ones and those of single bytes.
    """

    label: str
    size: int
    learned: int
    unused: int
    rare: int


class Origin(NamedTuple):
    """A source of pairs: its place, pairs, pairs kept (of training), and weight.

    `fixed` is the number of fixed lines by kind, `digests` the SHA-256 by file. `languages` has for
    each side, `src` and `tgt`, the number of samples by the language that they look like.
    """

    split: str
    place: str
    pairs: int
    kept: int | None
    weight: float
    fixed: Mapping[str, int]
    digests: Mapping[str, str]
    languages: Mapping[str, Mapping[str, int]]


class Dropped(NamedTuple):
    """Training pairs dropped for one reason; samples are place, source and target."""

    reason: str
    meaning: str
    pairs: int
    samples: Sequence[tuple[str, str, str]]


class Setting(NamedTuple):
    """A setting of the preparation; its value is written as on the command line."""

    key: str
    value: str
    changed: bool
    meaning: str


@dataclass(frozen=True)
class DataFacts:
    """The contents of the page about prepared data.

    Attributes:
        name: the name of the data.
        findings: sentences about possible problems.
        summary: short facts by label, in the order in which they are shown.
        read, kept: number of training pairs.
        counted: number of kept pairs that lengths and subwords were counted in.
        dropped: by reason, in the order in which the reasons are checked.
        origins: the sources of the pairs.
        misaligned: misaligned segments: place, first and last line, and offset.
        train, valid: source and target side.
        ratios: number of pairs by target over source length, in steps of an octave divided by
            `RATIO_STEPS`.
        vocabularies: a joint one, or one for each side.
        samples: number, source and target of some kept pairs.
        settings, versions: needed to prepare the same data again.
    """

    name: str
    findings: Sequence[str]
    summary: Mapping[str, str]
    read: int
    kept: int
    counted: int
    dropped: Sequence[Dropped]
    origins: Sequence[Origin]
    misaligned: Sequence[tuple[str, int, int, int]]
    train: tuple[Side, Side]
    valid: tuple[Side, Side]
    ratios: Mapping[int, int]
    vocabularies: Sequence[Vocabulary]
    samples: Sequence[tuple[str, str, str]]
    settings: Sequence[Setting]
    versions: Mapping[str, str]


def data_page(facts: DataFacts) -> str:
    """The page about prepared data, as HTML in UTF-8."""
    sampled = ""
    if facts.counted < facts.kept:
        sampled = (
            f"Counted in {facts.counted:,} of the {facts.kept:,} pairs, in blocks sampled evenly "
            "from the whole corpus."
        )
    return render(
        "data.html",
        title=facts.name,
        kind="Prepared data",
        facts=facts,
        sampled=sampled,
        lengths=_lengths_chart(facts.train),
        ratios=_ratios(facts.ratios),
        sides=[
            (f"{name}, {split}", _use_of_subwords(side))
            for name, *sides in zip(("Source", "Target"), facts.train, facts.valid, strict=True)
            for split, side in zip(("training", "validation"), sides, strict=True)
        ],
        vocabularies=[(one.label, _use_of_vocabulary(one)) for one in facts.vocabularies],
    )


def _use_of_subwords(side: Side) -> dict[str, str]:
    return {
        "sentences": number(side.sentences),
        "words": number(side.words),
        "tokens, with the end of each sentence": number(side.tokens),
        "subwords per word": f"{side.subwords / side.words:.3f}" if side.words else "–",
        "single bytes among subwords": share(side.byte_tokens, side.subwords),
        f"subwords rare in training (below {RARE} times)": share(side.rare_tokens, side.subwords),
        **{
            f"different subwords that cover {percent}% of all": number(count)
            for percent, count in zip((50, 90, 99), side.covering, strict=True)
        },
        "median length in tokens": number(_quantile(side.lengths, 0.5)),
        "95% are not longer than": number(_quantile(side.lengths, 0.95)),
        "longest": number(side.longest),
    }


def _use_of_vocabulary(vocabulary: Vocabulary) -> dict[str, str]:
    def of_learned(count: int) -> str:
        return f"{count:,} ({share(count, vocabulary.learned)})"

    return {
        "size": number(vocabulary.size),
        "learned": number(vocabulary.learned),
        "never used in training": of_learned(vocabulary.unused),
        f"used 1 to {RARE - 1} times": of_learned(vocabulary.rare),
    }


def _ratios(counts: Mapping[int, int]) -> dict[str, str]:
    return {
        label: f"{2 ** (_quantile(counts, rank) / RATIO_STEPS):.2f}" if counts else "–"
        for label, rank in (
            ("1% of the pairs are not above", 0.01),
            ("5%", 0.05),
            ("median", 0.5),
            ("95%", 0.95),
            ("99%", 0.99),
        )
    }


def _quantile(counts: Mapping[int, int], rank: float) -> int:
    """The smallest key such that at least this share of the counts is not above it."""
    wanted, seen = rank * sum(counts.values()), 0
    for key in sorted(counts):
        seen += counts[key]
        if seen >= wanted:
            return key
    return 0


def _lengths_chart(sides: tuple[Side, Side]) -> Chart:
    """A histogram of the lengths of each side."""
    end = max(_quantile(side.lengths, _ON_CHART) for side in sides)
    width = max(1, -(-end // _MAX_BARS))
    bars = -(-end // width)
    lines, words, beyond = [], [], 0
    for label, color, side in zip(("source", "target"), (ONE, TWO), sides, strict=True):
        heights = [0] * bars
        for length, count in side.lengths.items():
            # The smallest length is 1, because of EOS.
            if length <= bars * width:
                heights[(length - 1) // width] += count
            else:
                beyond += count
        if side.sentences:
            shares = [height / side.sentences for height in heights]
            centers = [width * bar + (width + 1) / 2 for bar in range(bars)]
            xs = [0.5, *centers, bars * width + 0.5, bars * width + 0.5]
            points = list(zip(xs, [shares[0], *shares, shares[-1], 0.0], strict=True))
            lines.append(Line(label, points, color, dashed=color == TWO, steps=True))
        words.append(
            f"{label}: median {_quantile(side.lengths, 0.5)}, 95% up to "
            f"{_quantile(side.lengths, 0.95)}, longest {side.longest}."
        )
    note = (
        f"Share of the sentences; each step is {'one token' if width == 1 else f'{width} tokens'}."
    )
    if beyond:
        note += f" {beyond:,} sentences are longer, up to {max(side.longest for side in sides):,}."
    return Chart(
        "Length in tokens",
        " ".join(words),
        lines,
        "tokens of a sentence, with its end",
        "from zero",
        form=lambda height: f"{100 * height:.3g}%",
        note=note,
    )
