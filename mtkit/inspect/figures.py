"""Colours and words of the figures on a page, and trees as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from mtkit.base.html import escaped
from mtkit.parsing import Phrase, Tree

# Before a subword that continues a word.
_CONTINUED = "\u2027"

# Okabe and Ito's colours, which differ for every kind of colour vision, and four more for models
# with many heads; after twelve heads they begin again.
COLORS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d00", "#666666"),
    *("#7b3294", "#a6611a", "#01665e", "#b2182b"),
)

# Size of the letters in pixels, and their width on average as a share of it.
_FONT, _LETTER = 13, 0.58
# Letters of a word that are shown, as in the script of the page.
_MAX_LETTERS = 24
# Pixels between two levels of a tree.
_LEVEL = 36


def label(subword: str) -> str:
    """A subword as pictures show it: a dot before it if it continues a word, no sign of a space."""
    if subword.startswith("▁"):
        return subword[1:] or "▁"
    return f"{_CONTINUED}{subword}" if subword[:1].isalnum() else subword


def tree_figure(tree: Tree) -> str:
    """An `<svg>`: the root above, the words in a row below, lines from phrases to their parts."""
    words = list(map(_short, tree.words))
    # A word is as wide as its letters, and as the labels of phrases over it alone.
    letters = [len(word) for word in words]
    for label_, start, end in tree.phrases:
        if end == start + 1:
            letters[start] = max(letters[start], len(_short(label_)))
    ends = [0.0, *accumulate(14 + count * _FONT * _LETTER for count in letters)]
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
        f'y2="{y[node] - _FONT}" stroke="{COLORS[0]}" stroke-opacity="0.6"/>'
        for node, parent in enumerate(parents)
        if parent is not None
    ]
    texts = [
        f'<text x="{x[node]:.1f}" y="{y[node]}" text-anchor="middle" '
        f'font-weight="{700 if node < phrases else 400}" fill="currentColor">{escaped(text)}</text>'
        for node, text in enumerate([*(_short(phrase.label) for phrase in tree.phrases), *words])
    ]
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" '
        f'width="{width:g}" height="{height}" role="img" aria-label="Tree" '
        f'font-family="system-ui, sans-serif" font-size="{_FONT}">'
    )
    return "\n".join([svg, '<g class="links">', *lines, "</g>", *texts, "</svg>\n"])


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


def _short(word: str) -> str:
    return word if len(word) <= _MAX_LETTERS else f"{word[: _MAX_LETTERS - 1]}…"
