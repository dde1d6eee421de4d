"""Pictures and numbers of what a model does with one sentence."""

from __future__ import annotations

from mtkit.inspect.figures import tree_figure
from mtkit.inspect.inspection import STACKS, Inspection, Stack, StackName, inspect_pair
from mtkit.inspect.page import MOST_SUBWORDS, PageEntry, figure, index_page, inspection_page

__all__ = [
    "MOST_SUBWORDS",
    "STACKS",
    "Inspection",
    "PageEntry",
    "Stack",
    "StackName",
    "figure",
    "index_page",
    "inspect_pair",
    "inspection_page",
    "tree_figure",
]
