"""An engine in the place of `mtkit.native`, for tests of all that is around the real one.

As a program it is `mtkit` with that engine: native_engine.py ARGUMENTS... Its translation of a
sentence is the sentence, and it must not load PyTorch. A sentence of more than 50 subwords has no
end: it is searched until the engine is told to stop.
"""

from __future__ import annotations

import importlib.machinery
import sys
import time
import types
from typing import Any

from mtkit.translate.settings import Hypothesis

ENDLESS = 50


class Copier:
    """A model that translates a sentence to itself, if both vocabularies are one."""

    def __init__(self, config: Any, weights: Any, *, precision: str) -> None:
        self.sizes = {name: weights[name].size for name in weights}

    def search(self, sources: Any, settings: Any, *, stop: Any, n_best: int, **_: Any) -> Any:
        """The sentences, `n_best` times each."""
        if any(len(source) > ENDLESS for source in sources):
            sys.stderr.write("searching\n")
            while not stop[0]:
                time.sleep(0.01)
            return []
        return [
            [Hypothesis(tuple(one[:-1]), -1.0, -0.5, True, (-1.0 / len(one),) * len(one))] * n_best
            for one in sources
        ]


def module(model: Any = Copier, reason: str | None = None, amx: bool = False) -> Any:
    """What stands for `mtkit.native`; `reason` says why it is not available."""
    made: Any = types.ModuleType("mtkit.native")
    made.__spec__ = importlib.machinery.ModuleSpec("mtkit.native", None)
    made.NativeModel = model
    made.available = lambda: reason
    made.kernels = lambda precision: "amx" if amx and precision != "fp32" else "plain"
    return made


if __name__ == "__main__":
    from mtkit.__main__ import program

    sys.modules["mtkit.native"] = module()
    # A library that is not found cannot be loaded.
    sys.modules["torch"] = None  # type: ignore[assignment]
    program()
