"""Builds of the native engine for tests: with sanitizers, and for another CPU."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import mtkit
from mtkit import native

ENGINE = Path(mtkit.__file__).parent / "native" / "src"
# As setup.py has them.
FLAGS = ("-std=c++20", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden")


def compile_engine(output: Path, compiler: Sequence[str], *, main: Path | None = None) -> Path:
    """Compile the engine as a library, or as a program with this `main`.

    A compiler that fails fails the test, with what it said.
    """
    command = [*compiler, *FLAGS]
    sources = [*sorted(ENGINE.glob("*.cpp")), *([main] if main else [])]
    folder = output.with_suffix(".objects")
    folder.mkdir()

    def compile_one(source: Path) -> str:
        made = folder / f"{source.stem}.o"
        done(*command, "-fPIC", "-I", str(ENGINE), "-c", str(source), "-o", str(made))
        return str(made)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        objects = list(threads.map(compile_one, sources))
    done(*command, *objects, "-static" if main else "-shared", "-o", str(output))
    return output


def compiled(folder: Path, *sources: Path, options: Sequence[str] = ("-O2",)) -> ctypes.CDLL:
    """A library of these sources, which see those of the engine; skips without a compiler."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    path = folder / f"{sources[0].stem}.so"
    how = ["-std=c++20", "-fPIC", "-shared", "-ffp-contract=off", "-I", str(ENGINE), *options]
    subprocess.run([compiler, *how, *sources, "-o", path], check=True)
    return ctypes.CDLL(str(path))


def done(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


# Python is loaded before the engine, so it must have these from the start. The second is there for
# exceptions, which the first one watches.
SANITIZER_LIBRARIES = ("libasan.so", "libstdc++.so.6")
# Compiling the checks with optimisation takes many minutes.
SANITIZER_FLAGS = "-O0 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all"
# Python itself never frees some of its memory. An array of more than 1 GiB is refused, as if the
# machine had no more.
ASAN_OPTIONS = "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=1024"


def sanitized(folder: Path) -> dict[str, str]:
    """The environment of a Python whose engine checks addresses, sizes and undefined behaviour.

    The test is skipped where g++ cannot build it.
    """
    if not shutil.which("g++"):
        pytest.skip("needs g++")
    libraries = [done("g++", f"-print-file-name={name}").strip() for name in SANITIZER_LIBRARIES]
    if not all(map(os.path.isabs, libraries)):
        pytest.skip("needs the sanitizers of g++")
    # A test that compiles something by itself does so with the sanitizers too.
    compiler = folder / "sanitizing-g++"
    compiler.write_text(f'#!/bin/sh\nexec g++ "$@" {SANITIZER_FLAGS} -D_GLIBCXX_ASSERTIONS\n')
    compiler.chmod(0o700)
    return {
        **os.environ,
        "CXX": str(compiler),
        "LD_PRELOAD": ":".join(libraries),
        "ASAN_OPTIONS": ASAN_OPTIONS,
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "MTKIT_NATIVE_LIBRARY": str(compile_engine(folder / "sanitized.so", [str(compiler)])),
    }


def ask() -> None:
    """In a process of its own: print what is said of the engine that the environment names."""
    print(native.available())
