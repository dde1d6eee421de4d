"""From a prepared folder to a run folder `runs/NAME`."""

from __future__ import annotations

from mtkit.train.assembly import forecast, forecast_without_data, run
from mtkit.train.distributed import BROKEN, is_launched, launch

__all__ = [
    "BROKEN",
    "forecast",
    "forecast_without_data",
    "is_launched",
    "launch",
    "run",
]
