"""The HTML page about a sentence: attention to look at, and numbers.

The values come from `inspection`. The template is `templates/inspection.html`; its script,
`templates/inspection.js`, draws what the reader chooses, and loads nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mtkit.base.html import render
from mtkit.inspect.inspection import FloatArray, Inspection, Stack
from mtkit.parsing import Tree

# A page shows at most this number of subwords of a line; more could not be told apart.
MAX_SUBWORDS = 60
# The position encoding is shown in at most this number of columns.
_MAX_DIMENSIONS = 256

# Before a subword that continues a word.
_CONTINUED = "\u2027"

# Okabe and Ito's colours, which differ for every kind of colour vision, and four more for models
# with many heads; after twelve heads they begin again.
COLORS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d00", "#666666"),
    *("#7b3294", "#a6611a", "#01665e", "#b2182b"),
)

TITLES = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Decoder to encoder",
}


class PageEntry(NamedTuple):
    """A line of the index: the name of a page, and its texts."""

    file: str
    source: str
    translation: str


def inspection_page(inspection: Inspection, *, run: str, checkpoint: str) -> str:
    """The page about one pair, as HTML in UTF-8; `run` and `checkpoint` are names to show."""
    most = MAX_SUBWORDS
    source = inspection.source
    cross = inspection.stacks["cross"]
    cut = any(inspection.cut) or max(len(cross.queries), len(cross.keys)) > most
    positions = inspection.positions[:most]
    return render(
        "inspection.html",
        title=source if len(source) <= 80 else f"{source[:79].rstrip()}…",
        kind="Attention",
        script="inspection.js",
        source=source,
        translation=inspection.translation,
        facts={"Run": run, "Checkpoint": checkpoint},
        cut=most if cut else None,
        data={
            "colors": COLORS,
            "stacks": {name: _packed(stack, most) for name, stack in inspection.stacks.items()},
            "titles": TITLES,
            "aligned": inspection.aligned,
            "alignment": _alignment(inspection, most),
            "positions": None
            if inspection.positions_kind == "none"
            else {
                "encoding": _bytes((_few_columns(positions) + 1) / 2),
                "products": _bytes(_scaled(positions @ positions.T)),
                "columns": _few_columns(positions).shape[1],
            },
        },
        tree=None if inspection.tree is None else _boxes(inspection.tree),
        predictions=inspection.predictions[:most],
        label=label,
        # Of each layer the entropy and the size of each head.
        heads=[
            (TITLES[name], np.stack([stack.entropies, stack.sizes], axis=-1).tolist())
            for name, stack in inspection.stacks.items()
        ],
        positions_kind=inspection.positions_kind,
        dimensions=positions.shape[1],
    )


def index_page(entries: Sequence[PageEntry], *, run: str) -> str:
    """A page with a link to the page of each sentence."""
    return render("inspection_index.html", title=run, kind="Attention", entries=entries)


def label(subword: str) -> str:
    """A subword as pictures show it: a dot before it if it continues a word, no sign of a space."""
    if subword.startswith("▁"):
        return subword[1:] or "▁"
    return f"{_CONTINUED}{subword}" if subword[:1].isalnum() else subword


def _boxes(tree: Tree) -> list[tuple[str, int, range]]:
    """The texts of a grid with the row and the columns of each, from 1: phrases, then words."""
    depths, boxes = [1] * len(tree.words), []
    # A phrase comes before those within it.
    for name, start, end in tree.phrases:
        boxes.append((name, depths[start], range(start + 1, end + 1)))
        depths[start:end] = [depths[start] + 1] * (end - start)
    bottom = max(depths)
    words = enumerate(tree.words, start=1)
    return boxes + [(word, bottom, range(number, number + 1)) for number, word in words]


def _alignment(inspection: Inspection, most: int) -> dict[str, Any]:
    """The word alignment of at most `most` words of a line; links are of a word above and below."""
    alignment = inspection.alignment
    return {
        "above": [inspection.translation[slice(*span)] for span in alignment.tgt_words[:most]],
        "below": [inspection.source[slice(*span)] for span in alignment.src_words[:most]],
        "links": [
            (j, i, round(weight, 4))
            for (i, j), weight in alignment.weights.items()
            if i < most and j < most
        ],
    }


def _packed(stack: Stack, most: int) -> dict[str, Any]:
    """A stack for the script: weights as bytes, 0 to 255; rows that are cut may sum to less."""
    layers, heads, *_ = stack.weights.shape
    return {
        "queries": list(map(label, stack.queries[:most])),
        "keys": list(map(label, stack.keys[:most])),
        "layers": layers,
        "heads": heads,
        "weights": _bytes(stack.weights[:, :, :most, :most]),
    }


def _bytes(values: FloatArray) -> str:
    """Values between 0 and 1 as bytes, in base64."""
    levels = np.clip(np.round(values * 255), 0, 255).astype(np.uint8)
    return base64.b64encode(levels.tobytes()).decode()


def _scaled(values: FloatArray) -> FloatArray:
    """Values between 0, the lowest, and 1, the highest."""
    low, high = values.min(), values.max()
    scaled: FloatArray = (values - low) / (high - low if high > low else 1)
    return scaled


def _few_columns(values: FloatArray) -> FloatArray:
    """At most `_MAX_DIMENSIONS` of the columns, evenly apart."""
    step = -(-values.shape[1] // _MAX_DIMENSIONS)
    return values[:, ::step]
