"""Packages that only some commands need: an extra of mtkit installs them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Literal

from mtkit.base.errors import MtkitError

Extra = Literal["export", "onnx", "serve"]


def install_advice(what: str, package: str, *, extra: Extra) -> str:
    """What needs a package that is not installed, and the command that installs it."""
    return f"{what} needs the package {package}; install it with: pip install 'mtkit[{extra}]'"


def require_packages(what: str, packages: Iterable[str], *, extra: Extra) -> None:
    """Refuse what needs packages that are not installed, with the command that installs them."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise MtkitError(install_advice(what, package, extra=extra))
