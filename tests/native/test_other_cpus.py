"""The engine compiled for another CPU, and run in an emulator, gives what it gives here."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.engine_builds import ENGINE, compile_engine

from mtkit.model import Transformer
from mtkit.native import NativeModel, Search, weights
from mtkit.native.library import PRECISIONS, Precision, Settings, int32s
from mtkit.tokenizer import BOS_ID, EOS_ID

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

MAIN = Path(__file__).parent / "cross" / "main.cpp"
EMULATOR = "qemu-aarch64"


class Recorder:
    """Writes what a model is made of into a file, instead of giving it to the library."""

    def __init__(self, file: Any, precision: int):
        self.file = file
        file.write(int32s(precision).tobytes())

    def array(self, address: int | None, size: int, kind: type[np.generic]) -> None:
        self.file.write(np.int64(size).tobytes())
        if size:
            assert address is not None
            self.file.write(ctypes.string_at(address, size * np.dtype(kind).itemsize))

    def text(self, text: bytes) -> None:
        self.file.write(np.int64(len(text)).tobytes() + text)

    def tensor(
        self, function: str, name: bytes, layer: int, *sizes: int, arrays: list[int | None]
    ) -> int:
        self.text(function.encode())
        self.text(name)
        rows, columns = sizes if len(sizes) == 2 else (sizes[0], 0)
        self.file.write(int32s(layer).tobytes() + np.array([rows, columns]).tobytes())
        lengths = [int(np.prod(sizes)), 0 if len(arrays) == 1 or arrays[1] is None else rows]
        words = function == "mtkit_set_words"
        for address, size in zip([*arrays, None], lengths[: 1 if words else 2], strict=False):
            self.array(address, size, np.uint8 if words else np.float32)
        return 0

    def mtkit_new(self, shape: ctypes.Structure, precision: int) -> int:
        self.file.write(bytes(shape))
        return 1

    def mtkit_set_linear(
        self, _: int, name: bytes, layer: int, weight: int, bias: int, *sizes: int
    ):
        return self.tensor("mtkit_set_linear", name, layer, *sizes, arrays=[weight, bias])

    def mtkit_set_norm(self, _: int, name: bytes, layer: int, gain: int, bias: int, size: int):
        return self.tensor("mtkit_set_norm", name, layer, size, arrays=[gain, bias])

    def mtkit_set_table(self, _: int, name: bytes, values: int, *sizes: int):
        return self.tensor("mtkit_set_table", name, -1, *sizes, arrays=[values])

    def mtkit_set_words(self, _: int, name: bytes, values: int, size: int):
        return self.tensor("mtkit_set_words", name, -1, size, arrays=[values])

    def mtkit_ready(self, _: int) -> int:
        self.text(b"")
        return 0


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine and `main.cpp` for 64-bit Arm CPUs, without shared libraries."""
    if importlib.util.find_spec("ziglang") is not None:
        zig = [sys.executable, "-m", "ziglang"]
    elif (found := shutil.which("zig")) is not None:
        zig = [found]
    else:
        pytest.skip("needs the package ziglang, whose compiler has the libraries of other CPUs")
    compiler = [*zig, "c++", "-target", "aarch64-linux-musl", "-O2"]
    return compile_engine(tmp_path_factory.mktemp("cross") / "translate", compiler, main=MAIN)


SEARCH = Search(BOS_ID, EOS_ID, beam_size=4, n_best=2, alpha=0.6)
VARIANTS: list[dict[str, Any]] = [
    {"d_k": 20, "d_v": 7},
    {"norm": "pre", "positions": "words", "activation": "silu", "output_bias": True},
    {"positions": "learned", "max_positions": 40, "attention_window": 3},
]


@pytest.mark.parametrize("kernels", ["plain", "neon"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("config", VARIANTS, ids=range(len(VARIANTS)))
def test_ids_and_scores_of_a_64_bit_arm_cpu_are_those_of_this_one(
    kernels: str,
    precision: Precision,
    config: dict[str, Any],
    draw: Callable[..., Transformer],
    to_native: Callable[..., NativeModel],
    program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
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
        recorder = Recorder(stream, PRECISIONS.index(precision))
        patch.setattr(weights, "library", lambda: recorder)
        arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
        weights.load(arrays, model.config, model.vocab_size, precision=precision)
        settings = Settings(beam_size=4, n_best=2, alpha=0.6, bos=BOS_ID, eos=EOS_ID)
        stream.write(bytes(settings))
        for numbers in ([i for one in sentences for i in one], [*map(len, sentences)], limits):
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
    found = to_native(model, precision=precision).translate(sentences, limits, SEARCH)
    expected = [(one.score, one.tokens) for hypotheses in found for one in hypotheses]
    split = [line.split() for line in lines]
    assert [(float.fromhex(s), tuple(map(int, ids))) for s, *ids in split] == expected
