"""The engine compiled for another CPU, and run in an emulator, gives what it gives here."""

import ctypes
import importlib.util
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.engine_builds import ENGINE, compile_engine

from mtkit.native import engine
from mtkit.native.library import PRECISIONS, Settings, int32s, library
from mtkit.search_settings import SearchSettings
from mtkit.tokenizer import BOS_ID, EOS_ID

pytestmark = pytest.mark.slow

MAIN = Path(__file__).parent / "cross" / "main.cpp"
EMULATOR = "qemu-aarch64"


class Recorder:
    """The library, which also writes into a file what a model is made of."""

    def __init__(self, file: Any):
        self.file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(library(), name)

    def mtkit_new(self, shape: ctypes.Structure, precision: int) -> Any:
        self.file.write(int32s(precision).tobytes() + bytes(shape))
        return library().mtkit_new(shape, precision)

    def mtkit_set(self, model: int, number: int, address: int, size: int) -> Any:
        self.file.write(np.int64(size).tobytes() + ctypes.string_at(address, 4 * size))
        return library().mtkit_set(model, number, address, size)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine and `main.cpp` for 64-bit Arm CPUs, without shared libraries."""
    if importlib.util.find_spec("ziglang") is not None:
        zig = [sys.executable, "-m", "ziglang"]
    elif (path := shutil.which("zig")) is not None:
        zig = [path]
    else:
        pytest.skip("needs the package ziglang, whose compiler has the libraries of other CPUs")
    compiler = [*zig, "c++", "-target", "aarch64-linux-musl", "-O2"]
    return compile_engine(tmp_path_factory.mktemp("cross") / "translate", compiler, main=MAIN)


VARIANTS: list[dict[str, Any]] = [
    {"d_k": 20, "d_v": 7},
    {"norm": "pre", "positions": "words", "activation": "silu", "output_bias": True},
    {"positions": "learned", "max_positions": 40, "attention_window": 3},
]


@pytest.mark.parametrize("kernels", ["plain", "neon"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("config", VARIANTS, ids=range(len(VARIANTS)))
def test_ids_and_scores_of_a_64_bit_arm_cpu_are_those_of_this_one(
    kernels, precision, config, draw, to_native, program, tmp_path, monkeypatch
):
    if not shutil.which(EMULATOR):
        pytest.skip(f"needs {EMULATOR}, which emulates the CPU; the program was compiled")
    if not (ENGINE / f"target_{kernels}.cpp").exists():
        pytest.skip(f"the engine has no {kernels} kernels")
    rng = random.Random(1)
    model = draw(**config)
    sentences = [[*(rng.randrange(4, 70) for _ in range(n)), EOS_ID] for n in (0, 3, 17)]
    limits = [12] * len(sentences)
    file = tmp_path / "model"
    with file.open("wb") as stream, monkeypatch.context() as patch:
        patch.setattr(engine, "library", lambda: Recorder(stream))
        to_native(model, precision=precision)
        stream.write(np.int64(0).tobytes())
        settings = Settings(beam_size=4, n_best=2, alpha=0.6, bos_id=BOS_ID, eos_id=EOS_ID)
        stream.write(bytes(settings))
        flat = [i for sentence in sentences for i in sentence]
        for numbers in (flat, [*map(len, sentences)], limits):
            stream.write(np.int64(len(numbers)).tobytes() + int32s(numbers).tobytes())
    done = subprocess.run(
        [EMULATOR, "-cpu", "max", str(program), str(file)],
        env={**os.environ, "MTKIT_KERNELS": kernels},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    name, *lines = done.stdout.splitlines()
    assert name == kernels
    # Plain C++ has one way to compute on each CPU.
    monkeypatch.setenv("MTKIT_KERNELS", "plain")
    search = SearchSettings(limits, BOS_ID, EOS_ID, alpha=0.6)
    native = to_native(model, precision=precision)
    nbests = native.translate(sentences, search, beam_size=4, n_best=2)
    expected = [(best.score, best.tokens) for nbest in nbests for best in nbest]
    split = [line.split() for line in lines]
    assert [(float.fromhex(s), tuple(map(int, ids))) for s, *ids in split] == expected
