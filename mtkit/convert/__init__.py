"""Models to and from other software."""

from mtkit.convert.export_run import export
from mtkit.convert.import_run import Imported, import_model

__all__ = ["Imported", "export", "import_model"]
