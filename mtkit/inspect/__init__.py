"""Pictures and numbers of what a model does with one sentence."""

from __future__ import annotations

from mtkit.inspect.inspection import Inspection, inspect_pair
from mtkit.inspect.page import PageEntry, figure, index_page, inspection_page

__all__ = [
    "Inspection",
    "PageEntry",
    "figure",
    "index_page",
    "inspect_pair",
    "inspection_page",
]
