"""Pictures and numbers of what a model does with one sentence."""

from __future__ import annotations

from mtkit.inspect.figures import COLORS, lines_figure, tree_figure
from mtkit.inspect.inspection import STACKS, Inspection, Stack, StackName, inspect_pair
from mtkit.inspect.page import MOST_SUBWORDS, PageEntry, index_page, inspection_page

__all__ = [
    "COLORS",
    "MOST_SUBWORDS",
    "STACKS",
    "Inspection",
    "PageEntry",
    "Stack",
    "StackName",
    "index_page",
    "inspect_pair",
    "inspection_page",
    "lines_figure",
    "tree_figure",
]
