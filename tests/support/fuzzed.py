"""Whether hostile lines are translated alike in any batch: fuzzed.py RUN COUNT [SEED]

Translates COUNT lines of `hostile` with the command line in batches of 1, 500 and 100,000 tokens,
in another order, and by two workers, and compares texts and scores with the first.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.hostile import hostile_lines

from mtkit.native import available

# Short outputs, so that 30,000 lines one by one take minutes and not hours.
OPTIONS = ["--beam-size", "2", "--max-length", "20", "--precision", "fp32", "--device", "cpu"]
VARIANTS = {
    "batches of 1 token": ["--batch-tokens", "1"],
    "batches of 500 tokens": ["--batch-tokens", "500"],
    "batches of 100,000 tokens": ["--batch-tokens", "100000"],
    "another order": ["--batch-tokens", "500"],
    "two workers": ["--batch-tokens", "500", "--workers", "2"],
}
# The native engine has the same bits in every batch.
TOLERANCE = 1e-5 if available() else 0.0


@dataclass(frozen=True)
class Compared:
    """How many lines of a variant came out, how many texts differ from the first, and scores."""

    lines: int
    texts: int
    difference: float


def fuzzed_lines(count: int, seed: int) -> list[bytes]:
    """Hostile lines; the first is plain, because a byte-order mark in front of it is not text."""
    repeated = [b"one " * n for n in (2, 50, 300)] + [b"x" * 5000, "é".encode() * 700]
    return [b"one", *repeated, *hostile_lines(count - 1 - len(repeated), seed)]


def translated(run: Path, lines: list[bytes], options: list[str]) -> list[dict[str, Any]]:
    """The JSON object that the command prints for each line."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in")
        source.write_bytes(b"".join(line + b"\n" for line in lines))
        command = [sys.executable, "-m", "mtkit", "-q", "translate", "--run", str(run), "--json"]
        done = subprocess.run(
            [*command, "--input", str(source), *OPTIONS, *options],
            stdout=subprocess.PIPE,
            check=True,
        )
    rows = done.stdout.decode().split("\n")
    assert rows.pop() == "", "the last line has no end"
    objects = [json.loads(row) for row in rows]
    assert [one["line"] for one in objects] == list(range(1, len(lines) + 1))
    return objects


def compare(run: Path, lines: list[bytes], seed: int) -> dict[str, Compared]:
    """Each variant beside the first."""
    order = list(range(1, len(lines)))
    random.Random(seed).shuffle(order)
    order = [0, *order]
    found, first = {}, None
    for name, options in VARIANTS.items():
        if name == "another order":
            shuffled = translated(run, [lines[i] for i in order], options)
            rows = [row for _, row in sorted(zip(order, shuffled, strict=True), key=lambda p: p[0])]
        else:
            rows = translated(run, lines, options)
        first = first or rows
        pairs = [
            (a["translations"][0], b["translations"][0]) for a, b in zip(first, rows, strict=True)
        ]
        found[name] = Compared(
            len(rows),
            sum(a["text"] != b["text"] for a, b in pairs),
            max(abs(a["score"] - b["score"]) for a, b in pairs),
        )
    return found


def main() -> None:
    """Print a row for each variant; the status is 1 if one differs."""
    run, count = Path(sys.argv[1]), int(sys.argv[2])
    seed = int(sys.argv[3]) if sys.argv[3:] else 1
    found = compare(run, fuzzed_lines(count, seed), seed)
    for name, one in found.items():
        print(f"{name}: {one.lines:,} lines, {one.texts} texts differ, ", end="")
        print(f"largest difference of two scores {one.difference:.1e}")
    sys.exit(any(one.texts or one.difference > TOLERANCE for one in found.values()))


if __name__ == "__main__":
    main()
