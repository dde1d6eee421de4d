"""Python in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def python(
    *arguments: object, cwd: Path | None = None, stdin: str | None = None, **more: str | None
) -> subprocess.CompletedProcess[str]:
    """Run Python, away from the network; `more` are variables of its environment, None is unset."""
    variables = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | more
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={name: value for name, value in variables.items() if value is not None},
        cwd=cwd,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def succeeded(*arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run Python as `python` does; it must succeed."""
    done = python(*arguments, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def printed(*arguments: object, **more: Any) -> str:
    """What Python prints in a process of its own, which must succeed."""
    return succeeded(*arguments, **more).stdout
