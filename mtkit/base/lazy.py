"""Names of a package that are imported on first use, because `--help` must not wait for them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from typing import Any


def lazy_names(package: str, names: Collection[str], *modules: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package: looks for its names in some of its modules, in this order."""

    def get(name: str) -> Any:
        for module in modules if name in names else ():
            found = importlib.import_module(f"{package}.{module}")
            if hasattr(found, name):
                return getattr(found, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get
