"""Constituency parsing, Section 6.3 of the paper. Only `mask` loads PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtkit.base.lazy import lazy_names

if TYPE_CHECKING:
    from mtkit.parsing.bracketing import Scores, compare_trees, different_words, score_trees
    from mtkit.parsing.mask import BracketTokens, TreeMask
    from mtkit.parsing.trees import (
        Phrase,
        Tree,
        linearise,
        model_source,
        parse_trees,
        read_bracket,
        restore,
        split_words,
        treebank_words,
    )

__all__ = [
    "BracketTokens",
    "Phrase",
    "Scores",
    "Tree",
    "TreeMask",
    "compare_trees",
    "different_words",
    "linearise",
    "model_source",
    "parse_trees",
    "read_bracket",
    "restore",
    "score_trees",
    "split_words",
    "treebank_words",
]

# The mask loads PyTorch, so it is last.
__getattr__ = lazy_names(__name__, __all__, "trees", "bracketing", "mask")
