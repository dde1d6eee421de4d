"""The HTTP server: LibreTranslate's and DeepL's translation API, for one run or several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtkit.base.lazy import lazy_names

if TYPE_CHECKING:
    from mtkit.serve.access import Access, read_keys
    from mtkit.serve.directions import Directions
    from mtkit.serve.server import Server, listen
    from mtkit.serve.service import Limits, Service

__all__ = ["Access", "Directions", "Limits", "Server", "Service", "listen", "read_keys"]

__getattr__ = lazy_names(__name__, __all__, *("access", "directions", "service", "server"))
