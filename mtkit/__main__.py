"""The program: `mtkit`, and `python -m mtkit`."""

from __future__ import annotations

import signal
import sys


def program() -> None:
    """Run the command line; Ctrl-C never gives a traceback, while it is imported or ends either."""
    try:
        from mtkit.cli import main

        main()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    program()
