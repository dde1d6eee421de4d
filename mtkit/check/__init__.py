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
    from mtkit.check.facts import PairFacts
    from mtkit.check.findings import KINDS, Finding

__all__ = [
    "KINDS",
    "Checked",
    "Checker",
    "ComparedSystem",
    "ComparedText",
    "Decoded",
    "Finding",
    "PairFacts",
    "comparison_page",
    "learned_checker",
]

__getattr__ = lazy_names(__name__, __all__, "findings", "facts", "checker", "compare")
