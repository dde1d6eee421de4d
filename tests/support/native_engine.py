"""An engine in the place of `mtkit.native`, for tests of all that is around the real one.

As a program it is `mtkit` with that engine: native_engine.py ARGUMENTS... Its translation of a
sentence is the sentence, and it must not load PyTorch. A sentence of more than 50 subwords has no
end: it is searched until the engine is told to stop.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from mtkit import native
from mtkit.search_settings import Hypothesis, SearchSettings

ENDLESS = 50


class Copier:
    """A model that translates a sentence to itself, if both vocabularies are one."""

    def __init__(self, weights: Any, *_: Any, precision: str) -> None:
        self.sizes = {name: weights[name].size for name in weights}

    def translate(
        self, sources: Any, _: SearchSettings, *, stop: Any, n_best: int = 1, **__: Any
    ) -> list[list[Hypothesis]]:
        """The sentences, `n_best` times each."""
        if any(len(source) > ENDLESS for source in sources):
            sys.stderr.write("searching\n")
            while not stop[0]:
                time.sleep(0.01)
            return []
        return [
            [Hypothesis(tuple(ids[:-1]), -1.0, -0.5, True, (-1.0 / len(ids),) * len(ids))] * n_best
            for ids in sources
        ]


def install(
    replace: Callable[[Any, str, Any], None] = setattr, *, reason: str = "", bf16: str = "plain"
) -> None:
    """Put it in the place of the engine; `reason` says why that is not available."""
    replace(native, "NativeModel", Copier)
    replace(native, "available", lambda: reason)
    replace(native, "kernels", lambda precision: bf16 if precision == "bf16" else "plain")


if __name__ == "__main__":
    from mtkit.__main__ import program

    install()
    # A library that is not found cannot be loaded.
    sys.modules["torch"] = None  # type: ignore[assignment]
    program()
