"""Statistics of prepared data, and the HTML page that shows them.

The pairs are read once, block by block, so memory does not grow with the corpus. In a very large
corpus, only evenly sampled blocks are counted, and the page says so. The template is
`templates/data.html`.
"""

from __future__ import annotations

import bisect
import itertools
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mtkit.base.errors import in_words, one_line
from mtkit.base.files import naming_file, write_whole
from mtkit.base.html import ONE, TWO, Chart, Line, render, share
from mtkit.data import IntArray, PreparedData, Split, TokenArray, also_split
from mtkit.prepare.filters import MEANINGS
from mtkit.prepare.results import Report
from mtkit.tokenizer import UNK_ID, Tokenizer

# Pairs read at a time, and the most pairs counted (within a block), which takes about 20 seconds.
_BLOCK_PAIRS = 1 << 16
_MAX_PAIRS = 64_000_000
_SIDES = ("source", "target")
# A subword that occurs less often than this in training is called rare.
RARE = 10
# Length ratios are counted in steps of this fraction of an octave.
_RATIO_STEPS = 32
_RATIO_RANKS = (0.01, 0.05, 0.5, 0.95, 0.99)
# The chart of lengths shows this share of the sentences; a few long ones would make it flat.
_ON_CHART = 0.995
_MAX_BARS = 60
# A larger share of dropped pairs is reported.
_MUCH_DROPPED = 0.2


def write_page(path: Path, data: PreparedData, report: Report) -> None:
    """Write the page about a finished folder to an HTML file, atomically."""
    html = data_page(data, report)
    with naming_file(path):
        write_whole(path, html)


def data_page(data: PreparedData, report: Report) -> str:
    """The page about a finished folder, as HTML in UTF-8."""
    train, valid = (_Counts(data, split) for split in ("train", "valid"))
    src, tgt = train.sides
    vocabularies = [("source", _uses(src, src.counts)), ("target", _uses(tgt, tgt.counts))]
    if data.tokenizers().is_joint:
        vocabularies = [("joint", _uses(src, src.counts + tgt.counts))]
    return render(
        "data.html",
        title=one_line(report.path.resolve().name),
        kind="Prepared data",
        findings=_findings(report),
        summary=_summary(data, report),
        read=report.pairs["train"],
        kept=report.kept,
        counted=train.pairs,
        dropped=report.dropped,
        meanings={
            reason: MEANINGS[reason].format(**data.manifest.settings) for reason in report.dropped
        },
        samples=report.samples,
        sources=[(split, s) for split, many in data.manifest.sources.items() for s in many],
        lengths=_lengths_chart(train.sides),
        ratios={
            f"{rank:.0%}": f"{2 ** (_quantile(train.ratios, rank) / _RATIO_STEPS):.2f}"
            for rank in _RATIO_RANKS
        },
        sides=[
            (f"{name}, {split}", side.table())
            for name, *both in zip(_SIDES, train.sides, valid.sides, strict=True)
            for split, side in zip(("training", "validation"), both, strict=True)
        ],
        vocabularies=vocabularies,
    )


# ---------------------------------------------------------------------------------------------
# Counting


class _Side:
    """Counts of one side of a split.

    Attributes:
        counts: (V,), how often each subword occurs; EOS is one.
        lengths: number of sentences by length in tokens, EOS included.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.counts: IntArray = np.zeros(len(tokenizer), np.int64)
        self.lengths: Counter[int] = Counter()

    def add(self, side: TokenArray) -> None:
        self.counts += side.counts(len(self.counts))
        _add_values(self.lengths, side.lengths)

    def table(self) -> dict[str, str]:
        tokens, sentences = int(self.counts.sum()), self.lengths.total()
        subwords = tokens - sentences
        # Each begins with a space.
        pieces = map(self.tokenizer.piece, range(len(self.counts)))
        words = int(self.counts @ np.array([piece.count("▁") for piece in pieces]))
        # Of characters that are not in the vocabulary.
        single_bytes = int(self.counts[self.tokenizer.is_fallback].sum())
        return {
            "sentences": f"{sentences:,}",
            "words": f"{words:,}",
            "tokens, with the end of each sentence": f"{tokens:,}",
            "subwords per word": f"{subwords / words:.3f}" if words else "–",
            "single bytes among subwords": share(single_bytes, subwords),
            "median length in tokens": f"{_quantile(self.lengths, 0.5):,}",
            "95% are not longer than": f"{_quantile(self.lengths, 0.95):,}",
            "longest": f"{max(self.lengths):,}",
        }


def _uses(side: _Side, uses: IntArray) -> dict[str, str]:
    """How many subwords of a vocabulary are learned, and unused or rare in training.

    The others are the special ones and those of single bytes. `uses` (V,) is how often each occurs,
    on both sides together if they share it.
    """
    learned = uses[UNK_ID + 1 :][~side.tokenizer.is_fallback[UNK_ID + 1 :]]
    unused = int((learned == 0).sum())
    rare = int((learned < RARE).sum()) - unused
    return {
        "size": f"{len(uses):,}",
        "learned": f"{len(learned):,}",
        "never used in training": f"{unused:,} ({share(unused, len(learned))})",
        f"used 1 to {RARE - 1} times": f"{rare:,} ({share(rare, len(learned))})",
    }


class _Counts:
    """Counts of a split: the number of pairs, both sides, and the pairs by ratio of lengths."""

    def __init__(self, data: PreparedData, split: Split) -> None:
        src, tgt = data.tokenizers()
        self.pairs = 0
        self.sides = _Side(src), _Side(tgt)
        self.ratios: Counter[int] = Counter()
        pairs = data.pairs(split)
        every = max(1, round(len(pairs) / _MAX_PAIRS))
        for start in range(0, len(pairs), every * _BLOCK_PAIRS):
            block = [tokens.part(start, start + _BLOCK_PAIRS) for tokens in (pairs.src, pairs.tgt)]
            self.pairs += len(block[0])
            for side, tokens in zip(self.sides, block, strict=True):
                side.add(tokens)
            octaves = np.log2(block[1].lengths / block[0].lengths)
            _add_values(self.ratios, np.rint(_RATIO_STEPS * octaves).astype(np.int64))


def _add_values(counter: Counter[int], values: npt.NDArray[Any]) -> None:
    distinct, counts = np.unique(values, return_counts=True)
    counter.update(dict(zip(distinct.tolist(), counts.tolist(), strict=True)))


def _quantile(counts: Counter[int], rank: float) -> int:
    """The smallest key such that at least this share of the counts is not above it."""
    keys = sorted(counts)
    seen = list(itertools.accumulate(counts[key] for key in keys))
    return keys[bisect.bisect_left(seen, rank * seen[-1])]


# ---------------------------------------------------------------------------------------------
# What is shown


def _summary(data: PreparedData, report: Report) -> dict[str, str]:
    def lines(counts: Mapping[str, int]) -> str:
        return "\n".join(f"{label}: {count:,}" for label, count in counts.items()) or "none"

    sets = {
        "Validation": "valid",
        "Test": "test",
        **{f"Validation {name}": also_split(name) for name in data.valid_also},
    }
    return {
        "Languages": f"{data.src_lang} → {data.tgt_lang}",
        **{f"{name} pairs": f"{report.pairs[split]:,}" for name, split in sets.items()},
        "Vocabulary size": report.vocabulary,
        "Tokens kept": lines(dict(zip(_SIDES, report.tokens.values(), strict=True))),
        "Training pairs in validation or test": lines(
            dict(zip((*_SIDES, "both"), report.overlap.values(), strict=True))
        ),
        "Pairs that are in training too": lines(report.in_training),
        "Pairs that are nearly in training": lines(report.near_duplicates),
        "Fixed lines": lines(report.fixed),
        **(
            {"Kept pairs with findings": lines(dict(report.marked.in_order()))}
            if report.marked is not None
            else {}
        ),
        "Pairs with noise": lines(report.noise),
        "Licence": str(data.manifest.licence or "not known"),
    }


def _findings(report: Report) -> list[str]:
    warnings = [warning if warning.endswith("?") else f"{warning}." for warning in report.warnings]
    read, lost = report.pairs["train"], sum(report.dropped.values())
    if lost > _MUCH_DROPPED * read:
        reason, most = max(report.dropped.items(), key=operator.itemgetter(1))
        warnings.append(
            f"{lost / read:.0%} of the training pairs were dropped, most of them ({most:,}) for "
            f"the reason “{reason}”. Look at the samples below: the text may be bad, or the rule "
            "too strict."
        )
    if parts := report.misaligned:
        lines = sum(last - first + 1 for _, first, last, _ in parts)
        file, first, last, _ = parts[0]
        warnings.append(
            f"The sides are misaligned in {in_words(len(parts), 'part')} of the files, "
            f"{in_words(lines)} in all, such as lines {first:,} to {last:,} of "
            f"{file}. These pairs are dropped; to keep them, fix the files."
        )
    return warnings


def _lengths_chart(sides: Sequence[_Side]) -> Chart:
    end = max(_quantile(side.lengths, _ON_CHART) for side in sides)
    width = max(1, -(-end // _MAX_BARS))
    bars = -(-end // width)
    centers = [width * bar + (width + 1) / 2 for bar in range(bars)]
    xs = [0.5, *centers, bars * width + 0.5, bars * width + 0.5]
    lines, words, beyond = [], [], 0
    for label, color, side in zip(_SIDES, (ONE, TWO), sides, strict=True):
        # The smallest length is 1, because of EOS.
        places = [(length - 1) // width for length in side.lengths]
        of_bars = np.bincount(places, list(side.lengths.values()), minlength=bars)
        beyond += int(of_bars[bars:].sum())
        heights = (of_bars[:bars] / of_bars.sum()).tolist()
        points = list(zip(xs, [heights[0], *heights, heights[-1], 0.0], strict=True))
        lines.append(Line(label, points, color, style="--" if color == TWO else "-", steps=True))
        words.append(f"{label}: median {_quantile(side.lengths, 0.5)}.")
    note = f"Share of the sentences; each step is {width} token{'s' if width > 1 else ''}."
    if beyond:
        longest = max(length for side in sides for length in side.lengths)
        note += f" {beyond:,} sentences are longer, up to {longest:,}."
    return Chart(
        "Length in tokens",
        " ".join(words),
        lines,
        "tokens of a sentence, with its end",
        "from zero",
        form=lambda height: f"{100 * height:.3g}%",
        note=note,
    )
