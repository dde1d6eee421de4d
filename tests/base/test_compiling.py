"""Whether torch.compile can be used, and what is said where it cannot."""

import importlib.util
import logging
import shutil
import sysconfig
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from support.errors import message_of
from torch import nn

from mtkit.base.compiling import compile_layers, is_compiled
from mtkit.base.errors import MtkitError


@pytest.fixture
def machine(monkeypatch, tmp_path) -> Iterator[dict[str, Any]]:
    """A machine with a GPU, Triton, a C compiler and headers; a test may take something away."""
    has: dict[str, Any] = {"triton": True, "programs": {"gcc", "g++"}, "error": None}
    has["headers"] = "."

    def compiled(function: object) -> object:
        def call(*_: object) -> None:
            if has["error"] is not None:
                raise RuntimeError(has["error"])

        return call

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: has["triton"] or None)
    monkeypatch.setattr(shutil, "which", lambda name: name if name in has["programs"] else None)
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / has["headers"]))
    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: None)
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "Python.h").touch()
    is_compiled.cache_clear()
    yield has
    is_compiled.cache_clear()


# What may be missing, as `machine` has it, and what is said then.
MISSING = [
    ({"triton": False}, "Triton is not installed (pip install triton)"),
    ({"programs": set()}, "there is no C compiler (gcc)"),
    ({"programs": {"g++"}, "CC": "my-cc"}, "there is no C compiler (my-cc)"),
    ({"headers": "none"}, "the C headers of Python are not installed (python3-dev)"),
    (
        {"error": "backend='inductor' raised:\nthe GPU is too old\nfor Triton"},
        "torch.compile failed: backend='inductor' raised: the GPU is too old for Triton",
    ),
]


def test_by_default_a_gpu_compiles_and_a_cpu_does_not(machine, caplog):
    assert is_compiled("auto", "cuda")
    assert not is_compiled("auto", "cpu")
    assert [is_compiled(True, device) for device in ("cpu", "cuda")] == [True, True]
    assert [is_compiled(False, device) for device in ("cpu", "cuda")] == [False, False]
    assert not caplog.messages


@pytest.mark.parametrize(("missing", "said"), MISSING)
def test_a_gpu_does_not_compile_without_what_it_needs_and_the_log_says_why_in_one_line(
    missing, said, machine, monkeypatch, caplog
):
    machine |= missing
    if "CC" in missing:
        monkeypatch.setenv("CC", missing["CC"])
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            assert not is_compiled("auto", "cuda")
    assert caplog.messages == [f"train.compile: off, which makes training slower; {said}"]
    error = message_of(is_compiled, True, "cuda")
    assert error == f"train.compile: {said}; set it to auto or false"
    assert not is_compiled(False, "cuda")


def test_compiling_for_a_cpu_without_a_compiler_is_refused_in_one_line(machine):
    machine["programs"] = {"gcc"}
    with pytest.raises(MtkitError, match=r"^train\.compile: there is no C\+\+ compiler \(g\+\+\);"):
        is_compiled(True, "cpu")
    assert not is_compiled("auto", "cpu")


@pytest.mark.filterwarnings("ignore")  # what PyTorch's compiler says about itself
def test_the_tag_of_compiled_code_names_the_instructions_of_the_cpu(monkeypatch):
    # The tag is part of the key under which PyTorch keeps compiled code. Code for one kind of CPU,
    # run on another, corrupts memory: the process aborts.
    for capability in ("AVX2", "AVX512"):
        monkeypatch.setattr(torch.compiler.config, "cache_key_tag", "mine")
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda it=capability: it)
        for _ in range(2):
            compile_layers([nn.Linear(1, 1)])
            assert torch.compiler.config.cache_key_tag == f"mine {capability}"
