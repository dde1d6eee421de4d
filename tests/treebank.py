"""A treebank for tests of parsing, which does not come with mtkit.

The tests use the CRAFT treebank, or any other, where the variable MTKIT_TREEBANK names a folder
with `train.clean.trees.gz` and `dev.clean.trees.gz`: one tree per line, without traces and function
tags.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

TREEBANK = Path(os.environ.get("MTKIT_TREEBANK", "treebank"))

needs_treebank = pytest.mark.skipif(
    not (TREEBANK / "train.clean.trees.gz").is_file(), reason="MTKIT_TREEBANK names no treebank"
)
