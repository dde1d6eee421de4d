"""Export of models to other software."""

from __future__ import annotations

from mtkit.convert.exporting import export

__all__ = [
    "export",
]
