"""Each product kernel of the native engine against the register peak of its instructions.

    python benchmarks/kernels.py [--kernels avx2,vnni] [--library _engine.so]

The peak of AVX2 and AVX-512 is measured in the same run: a loop of the same instructions that reads
and writes nothing. In int8 on AVX2 these are vpmaddubsw, vpmaddwd and vpaddd, by which products of
sixteen and more rows are exact (`signs.h`). Fewer rows need vpsignb too, so their share of the peak
is at most two thirds on most Intel CPUs.
Products and peaks alternate; each figure is the best of several rounds of CPU time. Results are
in billions of operations a second (a multiplication and an addition are two), and in parentheses
the share of the peak. To see what another compiler makes of the sources, build the library with
it and name it with `--library`.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PRECISIONS = ("float32", "int8", "bf16")
NAMES = ("avx2", "vnni", "avx512bf16", "amx", "neon")
# Outputs and inputs of layers of the paper's base model, and its vocabulary.
SIZES = ((512, 512), (2048, 512), (512, 2048), (37056, 512))
ROWS = (1, 4, 64, 256)


def pointer(array: np.ndarray | None) -> ctypes.c_void_p:
    """The address of the numbers of an array."""
    return ctypes.c_void_p(None if array is None else array.ctypes.data)


class Kernels:
    """The kernels of one name, and the functions that call them."""

    def __init__(self, functions: ctypes.CDLL, name: str, table: int):
        self.functions = functions
        self.name = name
        self.table = ctypes.c_void_p(table)

    def peak(self, precision: int, steps: int = 400_000) -> float:
        """Billions of operations per second with all numbers in registers; 0 if unknown."""
        start = time.process_time()
        operations = self.functions.part_peak(self.table, precision, steps)
        return operations / (time.process_time() - start) / 1e9

    def product(self, matrix: int, x: np.ndarray, y: np.ndarray, repeat: int) -> float:
        """Billions of operations a second of a product."""
        start = time.process_time()
        status = self.functions.part_linear(
            *(self.table, ctypes.c_void_p(matrix), pointer(x), len(x), 0, 0, pointer(y), repeat)
        )
        assert status == 0
        operations = 2.0 * x.shape[0] * x.shape[1] * y.shape[1] * repeat
        return operations / (time.process_time() - start) / 1e9


def measure(kernels: Kernels, precision: int, rounds: int) -> None:
    """Print a table of one precision."""
    random = np.random.default_rng(1)
    peaks = [kernels.peak(precision) for _ in range(3)]
    print(f"\n{kernels.name}, {PRECISIONS[precision]}")
    print("| outputs x inputs | " + " | ".join(f"{rows} rows" for rows in ROWS) + " |")
    for out, into in SIZES:
        weight = random.standard_normal((out, into), dtype=np.float32)
        matrix = kernels.functions.part_pack(pointer(weight), None, out, into, precision)
        best = dict.fromkeys(ROWS, 0.0)
        inputs = {rows: random.standard_normal((rows, into), dtype=np.float32) for rows in ROWS}
        outputs = {rows: np.empty((rows, out), np.float32) for rows in ROWS}
        for _ in range(rounds):
            peaks.append(kernels.peak(precision))
            for rows in ROWS:
                repeat = int(max(1, 1e9 / (rows * out * into)))
                speed = kernels.product(matrix, inputs[rows], outputs[rows], repeat)
                best[rows] = max(best[rows], speed)
        kernels.functions.part_free(ctypes.c_void_p(matrix))
        peak = max(peaks)
        cells = [f"{best[r]:.0f}" + (f" ({best[r] / peak:.0%})" if peak else "") for r in ROWS]
        print(f"| {out} x {into} | " + " | ".join(cells) + " |", flush=True)
    print(f"peak {max(peaks):.0f}" if any(peaks) else "no peak is measured for these kernels")


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", default=",".join(NAMES), help="names, with commas")
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--library", help="default: the one of the installed package")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.library is not None:
        os.environ["MTKIT_NATIVE_LIBRARY"] = os.path.abspath(options.library)
    from mtkit.native.library import library

    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from support.kernel_parts import compile_parts

    with tempfile.TemporaryDirectory() as folder:
        functions = compile_parts(Path(folder))
    if functions is None:
        sys.exit("needs a C++ compiler")
    for name in options.kernels.split(","):
        table = library().mtkit_find_kernels(name.encode())
        if table is None:
            print(f"\nthis CPU or this build has no {name} kernels")
            continue
        for precision in options.precisions.split(","):
            measure(Kernels(functions, name, table), PRECISIONS.index(precision), options.rounds)


if __name__ == "__main__":
    main()
