"""Training: a prepared folder to a run folder `runs/NAME`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtkit.base.lazy import lazy_names

if TYPE_CHECKING:
    from mtkit.train.assembly import run
    from mtkit.train.dry_run import forecast, forecast_without_data
    from mtkit.train.launcher import FAILED, is_launched, launch
    from mtkit.train.metrics import refresh_confidence

__all__ = [
    "FAILED",
    "forecast",
    "forecast_without_data",
    "is_launched",
    "launch",
    "refresh_confidence",
    "run",
]

__getattr__ = lazy_names(__name__, __all__, "launcher", "dry_run", "metrics", "assembly")
