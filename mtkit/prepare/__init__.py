"""Data preparation: raw text to a prepared folder `data/NAME`. Nothing here loads PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtkit.base.lazy import lazy_names

if TYPE_CHECKING:
    from mtkit.prepare.catalogue import CATALOGUE
    from mtkit.prepare.corpus import Corpus, DirectionSources
    from mtkit.prepare.corpus_file import load_corpus
    from mtkit.prepare.readers import parallel_files, parse_source
    from mtkit.prepare.results import Report
    from mtkit.prepare.run import PrepareOptions, prepare, prepare_files
    from mtkit.prepare.source import Source
    from mtkit.prepare.statistics import check_page, write_page
    from mtkit.prepare.treebank import Treebank

__all__ = [
    "CATALOGUE",
    "Corpus",
    "DirectionSources",
    "PrepareOptions",
    "Report",
    "Source",
    "Treebank",
    "check_page",
    "load_corpus",
    "parallel_files",
    "parse_source",
    "prepare",
    "prepare_files",
    "write_page",
]

__getattr__ = lazy_names(
    __name__,
    __all__,
    *("run", "catalogue", "corpus_file", "treebank", "readers", "statistics"),
)
