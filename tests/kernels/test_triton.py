"""What PyTorch's compiler writes for GPUs; this needs a CUDA build of PyTorch, but no GPU."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from support import triton_code


@pytest.mark.slow
@pytest.mark.skipif(
    torch.version.cuda is None or not importlib.util.find_spec("triton") or not shutil.which("g++"),
    reason="needs a CUDA build of PyTorch, Triton and g++",
)
@pytest.mark.parametrize("capability", ["80", "90"])
def test_the_triton_code_of_layers_and_loss_compiles(capability, tmp_path):
    # Nothing that was compiled before.
    caches = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    folders = {name: str(tmp_path / name) for name in caches}
    command = [sys.executable, triton_code.__file__, capability]
    env = {**os.environ, **folders}
    ended = subprocess.run(command, env=env, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    facts = json.loads(ended.stdout)
    print(ended.stdout)
    assert not facts["failed"]
    assert facts["finds_faults"]
    # Each layer is one graph, which has a gradient.
    assert not facts["breaks"]
    of = [graph["of"] for graph in facts["graphs"]]
    layers = [f"{preset} {stack}" for preset in ("base", "big") for stack in ("encoder", "decoder")]
    assert of == [layer for layer in layers for _ in range(2)] + ["loss", "loss with bias"]
    # The logits are read once, and their gradient is written once. Two bytes each.
    logits = triton_code.ROWS * 37_120 * 2
    for graph, launches in zip(facts["graphs"][-2:], (1, 3), strict=True):
        assert graph["launches"] <= launches
        assert 2 * logits < graph["bytes"] < 2.01 * logits
