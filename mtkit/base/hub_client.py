"""The client of the Hugging Face hub, as `prepare` and `import` use it.

The client is slow to import, so it is imported where it is used.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet_client(*others: str) -> Iterator[None]:
    """Silence the client, the loggers `others`, and the progress bars unless on a terminal.

    Large files are downloaded without Xet unless HF_HUB_DISABLE_XET is set: networks block its
    storage, and its client retries for minutes.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils.tqdm import disable_progress_bars

    without_xet = constants.HF_HUB_DISABLE_XET
    constants.HF_HUB_DISABLE_XET = without_xet or "HF_HUB_DISABLE_XET" not in os.environ
    if not sys.stderr.isatty():
        disable_progress_bars()
    loggers = [logging.getLogger(name) for name in ("huggingface_hub", *others)]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        constants.HF_HUB_DISABLE_XET = without_xet
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def transport_errors() -> tuple[Any, ...]:
    """The exceptions of a request that gets no answer."""
    from huggingface_hub.errors import HfHubHTTPError

    # All errors of the HTTP client have the base class of the library's own error.
    return tuple(base for base in HfHubHTTPError.__bases__ if base is not OSError)


def the_hub() -> str:
    """The hub with its address, for messages."""
    from huggingface_hub import constants

    return f"the Hugging Face hub at {constants.ENDPOINT}"
