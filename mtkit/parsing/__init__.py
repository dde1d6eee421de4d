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

__getattr__ = lazy_names(
    __name__,
    {
        "BracketTokens": "mtkit.parsing.mask",
        "Phrase": "mtkit.parsing.trees",
        "Scores": "mtkit.parsing.bracketing",
        "Tree": "mtkit.parsing.trees",
        "TreeMask": "mtkit.parsing.mask",
        "compare_trees": "mtkit.parsing.bracketing",
        "different_words": "mtkit.parsing.bracketing",
        "linearise": "mtkit.parsing.trees",
        "model_source": "mtkit.parsing.trees",
        "parse_trees": "mtkit.parsing.trees",
        "read_bracket": "mtkit.parsing.trees",
        "restore": "mtkit.parsing.trees",
        "score_trees": "mtkit.parsing.bracketing",
        "split_words": "mtkit.parsing.trees",
        "treebank_words": "mtkit.parsing.trees",
    },
)
