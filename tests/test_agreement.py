"""Implementations that no one here wrote, where they are installed (the `bench` extra).

They run in a process of their own: CTranslate2 changes how its process computes, and PyTorch's
results with it, in the last digits.
"""

import importlib.util
from pathlib import Path

import pytest
import torch
from support.program import printed
from support.runs import remade

AGREEMENT = Path(__file__).parent.parent / "benchmarks" / "agreement.py"


@pytest.mark.slow
@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("transformers", "ctranslate2")),
    reason="the bench extra is not installed",
)
def test_logits_and_translations_equal_those_of_other_implementations(tiny_run, tmp_path):
    weights = tiny_run.checkpoints()[-1].load_weights()
    # After four updates nearly everything is a tie; larger weights have opinions.
    generator = torch.Generator().manual_seed(3)
    for name, tensor in weights.items():
        weights[name] = tensor + torch.randn(tensor.shape, generator=generator) * 0.3
    run = remade(tiny_run, tmp_path / "run", weights=weights)
    text = tmp_path / "text"
    text.write_text("one two three\nnine\nfour four five one two six\nseven eight\n")
    out = printed(AGREEMENT, "--run", run.path, "--input", text)
    rows = [line.split(" | ") for line in out.splitlines() if line.endswith("| holds |")]
    logits, greedy = rows[:4], rows[4]
    for row, other in zip(logits, 2 * ["torch.nn.Transformer", "MarianMTModel"], strict=True):
        assert row[0] == "| logits"
        assert row[1].startswith(other)
        assert float(row[3].split()[-1]) < 1e-8
    assert greedy[1].startswith("CTranslate2")
    assert greedy[3] == "4 equal"
