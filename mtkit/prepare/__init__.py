"""From raw text to a prepared folder `data/NAME`. Nothing here loads PyTorch."""

from __future__ import annotations

from mtkit.prepare.catalogue import CATALOGUE
from mtkit.prepare.passes import Report
from mtkit.prepare.pipeline import prepare_corpus, prepare_files
from mtkit.prepare.readers import parallel_files, parse_source
from mtkit.prepare.source import Source
from mtkit.prepare.statistics import check_page, write_page

__all__ = [
    "CATALOGUE",
    "Report",
    "Source",
    "check_page",
    "parallel_files",
    "parse_source",
    "prepare_corpus",
    "prepare_files",
    "write_page",
]
