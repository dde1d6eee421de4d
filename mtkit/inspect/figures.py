"""Figures as SVG: the word alignment as two rows of words joined by lines, and trees."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from mtkit.base.html import escaped
from mtkit.inspect.inspection import Inspection
from mtkit.parsing import Phrase, Tree

# Before a subword that continues a word.
_CONTINUED = "\u2027"

# Okabe and Ito's colours, which differ for every kind of colour vision, and four more for models
# with many heads; after twelve heads they begin again.
COLORS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d00", "#666666"),
    *("#7b3294", "#a6611a", "#01665e", "#b2182b"),
)


@dataclass(frozen=True)
class Shape:
    """The measures of a figure, for Python and for the script of the page.

    Attributes:
        step: between two words, in pixels.
        gap: between the rows.
        font: size of the letters.
        letter: their width on average, as a share of the font size; some are twice as wide.
        longest: letters of a word that are shown.
        least: lines of a smaller weight are left out: they cannot be seen, and there are many.
    """

    step: int = 22
    gap: int = 190
    font: int = 13
    letter: float = 0.58
    longest: int = 24
    least: float = 0.02


SHAPE = Shape()
# Pixels between two levels of a tree.
_LEVEL = 36


def label(subword: str) -> str:
    """A subword as pictures show it: a dot before it if it continues a word, no sign of a space."""
    if subword.startswith("▁"):
        return subword[1:] or "▁"
    return f"{_CONTINUED}{subword}" if subword[:1].isalnum() else subword


class AlignmentRows(NamedTuple):
    """The words of the translation and of the source; links have their indices and a weight."""

    above: list[str]
    below: list[str]
    links: list[tuple[int, int, float]]


def alignment_rows(inspection: Inspection, most: int) -> AlignmentRows:
    """The word alignment as pictures show it, of at most `most` words of a line."""
    alignment = inspection.alignment
    return AlignmentRows(
        [inspection.translation[slice(*span)] for span in alignment.tgt_words[:most]],
        [inspection.source[slice(*span)] for span in alignment.src_words[:most]],
        [
            (j, i, round(weight, 4))
            for (i, j), weight in alignment.weights.items()
            if i < most and j < most
        ],
    )


def alignment_figure(inspection: Inspection, most: int) -> str:
    """The word alignment as a figure; arguments as of `alignment_rows`, result as `tree_figure`."""
    above, below, links = alignment_rows(inspection, most)
    top, bottom = _row_height(above), _row_height(below)
    y_above, y_below = top, top + SHAPE.gap
    width = SHAPE.step * max(len(above), len(below), 1)
    parts = [_svg(width, y_below + bottom, "Word alignment"), '<g class="links">']
    parts += [
        f'<line x1="{_x(j):g}" y1="{y_above:.0f}" x2="{_x(i):g}" y2="{y_below:.0f}" '
        f'stroke="{COLORS[0]}" stroke-width="2" stroke-opacity="{max(weight, 0.25):.2f}"/>'
        for j, i, weight in links
        if weight >= SHAPE.least
    ]
    parts.append("</g>")
    for words, y, anchor in ((above, y_above - 6, "start"), (below, y_below + 6, "end")):
        parts += [
            f'<text transform="translate({_x(number) + 4:g} {y:.0f}) rotate(-90)" '
            f'text-anchor="{anchor}" fill="currentColor">{escaped(_short(word))}</text>'
            for number, word in enumerate(words)
        ]
    return "\n".join([*parts, "</svg>\n"])


def tree_figure(tree: Tree) -> str:
    """A tree: the root above, the words in a row below, lines from each phrase to its parts.

    It is an `<svg>` element, and a file of its own, too.
    """
    words = list(map(_short, tree.words))
    # A word is as wide as its letters, and as the labels of phrases over it alone.
    letters = [len(word) for word in words]
    for label_, start, end in tree.phrases:
        if end == start + 1:
            letters[start] = max(letters[start], len(_short(label_)))
    ends = [0.0, *accumulate(14 + count * SHAPE.font * SHAPE.letter for count in letters)]
    leaves = [(left + right) / 2 for left, right in pairwise(ends)]
    parents, depths = _parents(tree.phrases, len(words))
    phrases = len(tree.phrases)
    # Of phrases, then of words; a phrase is over the middle of its first and its last part.
    x = [0.0] * phrases + leaves
    parts: list[list[float]] = [[] for _ in tree.phrases]
    for node in reversed(range(len(x))):
        if node < phrases:
            x[node] = (min(parts[node]) + max(parts[node])) / 2
        if (parent := parents[node]) is not None:
            parts[parent].append(x[node])
    bottom = max(depths, default=-1) + 1
    y = [20 + _LEVEL * depth for depth in [*depths, *([bottom] * len(words))]]
    width, height = ends[-1], 20 + _LEVEL * bottom + 10
    lines = [
        f'<line x1="{x[parent]:.1f}" y1="{y[parent] + 5}" x2="{x[node]:.1f}" '
        f'y2="{y[node] - SHAPE.font}" stroke="{COLORS[0]}" stroke-opacity="0.6"/>'
        for node, parent in enumerate(parents)
        if parent is not None
    ]
    texts = [
        f'<text x="{x[node]:.1f}" y="{y[node]}" text-anchor="middle" '
        f'font-weight="{700 if node < phrases else 400}" fill="currentColor">{escaped(text)}</text>'
        for node, text in enumerate([*(_short(phrase.label) for phrase in tree.phrases), *words])
    ]
    return "\n".join(
        [_svg(width, height, "Tree"), '<g class="links">', *lines, "</g>", *texts, "</svg>\n"]
    )


def _parents(phrases: Sequence[Phrase], words: int) -> tuple[list[int | None], list[int]]:
    """The parent of each phrase and then of each word, None for the root; and their depths."""
    parents: list[int | None] = []
    depths: list[int] = []
    innermost: list[int | None] = [None] * words
    for number, phrase in enumerate(phrases):
        # Phrases around this one come before it, and those within it later.
        parents.append(parent := innermost[phrase.start])
        depths.append(0 if parent is None else depths[parent] + 1)
        innermost[phrase.start : phrase.end] = [number] * (phrase.end - phrase.start)
    return [*parents, *innermost], depths


def _svg(width: float, height: float, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:.0f}" '
        f'width="{width:g}" height="{height:.0f}" role="img" aria-label="{escaped(title)}" '
        f'font-family="system-ui, sans-serif" font-size="{SHAPE.font}">'
    )


def _row_height(words: Sequence[str]) -> float:
    longest = max((_letters(_short(word)) for word in words), default=1)
    return 10 + longest * SHAPE.font * SHAPE.letter


def _letters(word: str) -> float:
    """The width of a word, in letters of average width."""
    wide = sum(char in "mwMW@%…" or unicodedata.east_asian_width(char) in "WF" for char in word)
    return len(word) + 0.75 * wide + 0.25 * sum(map(str.isupper, word))


def _x(number: int) -> float:
    return SHAPE.step * (number + 0.5)


def _short(word: str) -> str:
    most = SHAPE.longest
    return word if len(word) <= most else f"{word[: most - 1]}…"
