"""The program: `mtkit`, and `python -m mtkit`."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

# Seconds after which an interrupt that came during an import is raised again.
_AGAIN = 0.05


def program() -> None:
    """Run the command line; Ctrl-C and SIGTERM end it with one line, also during an import."""
    handled = [signal.SIGINT]
    if "RANK" not in os.environ:
        # SIGTERM ends a worker at once, also while it waits for one that has failed.
        handled.append(signal.SIGTERM)
    for number in handled:
        if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL):
            signal.signal(number, interrupt_between_imports)
    try:
        from mtkit.cli import main

        main()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_IGN)


def interrupt_between_imports(number: int, frame: FrameType | None) -> None:
    """The handler of Ctrl-C and SIGTERM: raises KeyboardInterrupt, but not during an import.

    If the import of a module of PyTorch or NumPy is interrupted, the process cannot import it
    again, and PyTorch's C++ code ignores the exception while it imports NumPy: Ctrl-C would be lost
    or give the traceback of another error.
    """
    if _is_importing(frame):
        # To the main thread, so that it wakes up if it is waiting.
        first = threading.main_thread().ident
        again = threading.Timer(_AGAIN, signal.pthread_kill, [first, number])
        again.daemon = True
        again.start()
    else:
        signal.default_int_handler(number, frame)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    program()
