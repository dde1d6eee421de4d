"""What processes of their own do in tests; without pytest, which each would import."""

import os
import signal
import time

from mtkit.base.errors import MtkitError


def squared(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def refuses_five(number: int) -> int:
    if number == 5:
        error = MtkitError("five: is refused; take six")
        error.status = 7
        raise error
    return number


class UnsendableError(Exception):
    """An exception that cannot be made again from its text."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def breaks_at_five(number: int) -> int:
    if number == 5:
        raise UnsendableError(1, 2)
    return number


def dies_at_five(number: int, *, how: str) -> int:
    if number == 5:
        if how == "left":
            os._exit(3)
        os.kill(os.getpid(), signal.Signals[how])
    return number


def sleeps(number: int) -> int:
    if number:
        time.sleep(1000)  # longer than a test may last
    return number
