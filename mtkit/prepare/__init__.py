"""Data preparation: raw text to a prepared folder `data/NAME`. Nothing here loads PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtkit.base.lazy import lazy_names

if TYPE_CHECKING:
    from mtkit.prepare.catalogue import CATALOGUE
    from mtkit.prepare.pipeline import (
        prepare_corpus,
        prepare_files,
        prepare_multilingual,
        prepare_trees,
    )
    from mtkit.prepare.readers import parallel_files, parse_source
    from mtkit.prepare.report import Report
    from mtkit.prepare.source import Source
    from mtkit.prepare.statistics import check_page, write_page
    from mtkit.prepare.treebank import Treebank

__all__ = [
    "CATALOGUE",
    "Report",
    "Source",
    "Treebank",
    "check_page",
    "parallel_files",
    "parse_source",
    "prepare_corpus",
    "prepare_files",
    "prepare_multilingual",
    "prepare_trees",
    "write_page",
]

__getattr__ = lazy_names(
    __name__,
    __all__,
    *("catalogue", "source", "report", "treebank", "readers", "statistics", "pipeline"),
)
