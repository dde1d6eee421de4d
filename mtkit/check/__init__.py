"""Checks of pairs of lines: findings with reasons. What needs no model loads no PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtkit.base.lazy import lazy_names

if TYPE_CHECKING:
    from mtkit.check.checker import Checked, Checker, Decoded
    from mtkit.check.compare import (
        ComparedSystem,
        ComparedText,
        comparison_page,
        learned_checker,
    )
    from mtkit.check.confidence import Quality
    from mtkit.check.facts import SAMPLED, UNDETERMINED, PairFacts, language_of
    from mtkit.check.findings import KINDS, Finding
    from mtkit.check.fit import fit_pairs, fit_run
    from mtkit.check.report import (
        BlockReport,
        Counts,
        FindingTable,
        check_block,
        sortable_rows,
    )
    from mtkit.check.run_checks import (
        RunChecks,
        decoded_of,
        load_checker,
        warn_of_checkpoint,
    )

__all__ = [
    "KINDS",
    "SAMPLED",
    "UNDETERMINED",
    "BlockReport",
    "Checked",
    "Checker",
    "ComparedSystem",
    "ComparedText",
    "Counts",
    "Decoded",
    "Finding",
    "FindingTable",
    "PairFacts",
    "Quality",
    "RunChecks",
    "check_block",
    "comparison_page",
    "decoded_of",
    "fit_pairs",
    "fit_run",
    "language_of",
    "learned_checker",
    "load_checker",
    "sortable_rows",
    "warn_of_checkpoint",
]

__getattr__ = lazy_names(
    __name__,
    __all__,
    *("findings", "facts", "confidence", "checker", "report", "run_checks", "compare", "fit"),
)
