"""Constituency parsing, Section 6.3 of the paper. Nothing in it loads PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtkit.base.lazy import lazy_names

if TYPE_CHECKING:
    from mtkit.parsing.bracketing import Scores, compare_trees, different_words, score_trees
    from mtkit.parsing.parser import Parsing, counted_words, make_task
    from mtkit.parsing.task import Task
    from mtkit.parsing.trees import (
        Phrase,
        Tree,
        linearise,
        model_source,
        parse_trees,
        read_bracket,
        split_words,
    )

__all__ = [
    "Parsing",
    "Phrase",
    "Scores",
    "Task",
    "Tree",
    "compare_trees",
    "counted_words",
    "different_words",
    "linearise",
    "make_task",
    "model_source",
    "parse_trees",
    "read_bracket",
    "score_trees",
    "split_words",
]

__getattr__ = lazy_names(__name__, __all__, "task", "trees", "bracketing", "parser")
