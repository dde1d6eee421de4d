"""The program: `mtkit`, and `python -m mtkit`."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from types import FrameType

from mtkit.base.errors import FAULT

# Seconds after which an interrupt that came during an import is raised again.
_AGAIN = 0.05


def program() -> None:
    """Run the command line; Ctrl-C and SIGTERM end it with one line, also during an import."""
    if sys.platform == "win32":
        # The locks of files, and much about processes and signals, are of POSIX systems.
        sys.exit("mtkit: error: Windows is not supported; install mtkit in WSL, which is Linux")
    handled = [signal.SIGINT]
    if "RANK" not in os.environ:
        # SIGTERM ends a worker at once, also while it waits for one that has failed.
        handled.append(signal.SIGTERM)
    for number in handled:
        if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL):
            signal.signal(number, interrupt_between_imports)
    # Modules are not garbage; `commands` or `translate` begins to collect when they are loaded.
    gc.disable()
    status: object = 0
    try:
        from mtkit.cli import main

        main()
    except KeyboardInterrupt:
        status = 130
    except SystemExit as end:
        status = end.code
    except Exception:
        sys.excepthook(*sys.exc_info())
        status = FAULT
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_IGN)
    _exit(status)


def _exit(status: object) -> None:
    """End the process without taking the interpreter down, which takes up to 0.3 s with PyTorch.

    What was registered for the end is done. Python itself ends the process if the status is a
    message, a thread must be waited for, or a profiler still needs the interpreter.
    """
    threads = [thread for thread in threading.enumerate() if not thread.daemon]
    observed = sys.gettrace() or sys.getprofile()
    if not isinstance(status, int | None) or threads != [threading.main_thread()] or observed:
        sys.exit(status)  # type: ignore[arg-type]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status or 0)


def interrupt_between_imports(number: int, frame: FrameType | None) -> None:
    """The handler of Ctrl-C and SIGTERM: raises KeyboardInterrupt once, but not during an import.

    If the import of a module of PyTorch or NumPy is interrupted, the process cannot import it
    again, and PyTorch's C++ code ignores the exception while it imports NumPy: Ctrl-C would be lost
    or give the traceback of another error.
    """
    if isinstance(sys.exc_info()[1], KeyboardInterrupt):
        return  # a second one could stop the cleaning up after the first, as while a lock is taken
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
