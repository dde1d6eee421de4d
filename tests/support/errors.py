"""Errors that users can fix."""

from collections.abc import Callable
from typing import Any

import pytest

from mtkit.base.errors import MtkitError


def message_of(function: Callable[..., object], *given: Any, **named: Any) -> str:
    """The message of the error with which a call ends."""
    with pytest.raises(MtkitError) as caught:
        function(*given, **named)
    return str(caught.value)
