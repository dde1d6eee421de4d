"""What to say when memory runs out, and how the C library keeps it. Nothing here loads PyTorch."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mtkit.base.errors import MtkitError

# If this can be allocated, memory is not short; it is more than any product needs.
AMPLE = 2**30
# Bytes of weights, 250 million in float32, from which on a training keeps no freed blocks.
LARGE_MODEL = 10**9


# Parts of the error messages for out of memory.
NO_MEMORY = ("allocate memory", "bad_alloc", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out; call it in the handler, before the failing code's memory is freed."""
    # PyTorch's error for a GPU is known by its name, so that PyTorch is not loaded.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error)
    if any(words in text for words in NO_MEMORY):
        return True
    # oneDNN has the same message for any reason, so the memory must be tested.
    if not text.startswith(("could not create a ", "could not execute a ")):
        return False
    try:
        # The memory is not used, so this costs nothing. For the heap see
        # `disable_malloc_trim`.
        mmap.mmap(-1, AMPLE).close()
    except OSError:
        return True
    return False


@contextmanager
def memory_explained(what: str | Callable[[], str]) -> Iterator[None]:
    """Report out-of-memory errors in one line; `what` was done, and what the user can do.

    A function gives the whole message, when it is needed.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        message = what() if callable(what) else f"out of memory {what}"
        raise MtkitError(message) from error


def disable_malloc_trim(*, model_bytes: int = 0) -> None:
    """Have glibc keep large freed blocks instead of returning them to the system.

    A training step on a CPU frees and allocates the same hundreds of megabytes again. By default
    the kernel must zero and map new pages each time, which took a quarter of a step of the `small`
    preset. Other systems are not changed.

    Of a large model every large block is returned: otherwise they leave gaps. In three updates of
    600 million parameters these took 4 GiB, and new pages take little of an update there.
    """
    if not sys.platform.startswith("linux"):
        return
    # Of malloc.h.
    trim_threshold, mmap_threshold, mmap_max = -1, -3, -4
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    if model_bytes >= LARGE_MODEL:
        mallopt(mmap_threshold, 2**20)
        return
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(mmap_max, 0)
