"""The native engine: the forward pass and the search on a CPU, in C++ (`src`), called by ctypes.

It imports nothing of PyTorch. `src/model.cpp` equals `mtkit.model` and
`mtkit.translate.pytorch.incremental`, `src/search.cpp` equals `mtkit.translate.search.beam`; both
name the functions that they equal.
"""

from mtkit.native.engine import NativeDecoding, NativeModel, Watched
from mtkit.native.library import PRECISIONS, Precision, available, kernels

__all__ = [
    "PRECISIONS",
    "NativeDecoding",
    "NativeModel",
    "Precision",
    "Watched",
    "available",
    "kernels",
]
