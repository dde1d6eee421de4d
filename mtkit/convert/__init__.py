"""Models to and from other software."""

from __future__ import annotations

from mtkit.convert.exporting import export
from mtkit.convert.importing import Imported, import_model

__all__ = [
    "Imported",
    "export",
    "import_model",
]
