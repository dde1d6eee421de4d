"""Implementations that no one here wrote, where they are installed (the `bench` extra)."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest
import torch

from mtkit.checkpoint import Run
from mtkit.translate import Translator

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def agreement() -> ModuleType:
    """benchmarks/agreement.py, as a module."""
    path = ROOT / "benchmarks" / "agreement.py"
    spec = importlib.util.spec_from_file_location("agreement", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Where its dataclasses look for it.
    sys.modules["agreement"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_logits_equal_those_of_pytorch_and_of_hugging_face(agreement: ModuleType) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("transformers")
        rows = agreement.compare_logits(*agreement.random_case(), "random weights")
    assert [row.against.split()[0] for row in rows] == ["torch.nn.Transformer", "MarianMTModel,"]
    for row in rows:
        assert row.holds, row


@pytest.mark.parametrize("beam_size", [1, 3])
def test_translations_equal_those_of_ctranslate2(
    agreement: ModuleType, tiny_run: Run, beam_size: int
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("ctranslate2")
    translator = Translator.load(tiny_run, device="cpu")
    # Weights after four updates nearly tie everywhere; larger ones have opinions.
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in translator.model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    # The same words, because CTranslate2 takes one limit of the length for all lines.
    lines = ["one two three", "three two one", "two one three"]
    assert len({len(translator.tokenizer.encode(line)) for line in lines}) == 1
    _, different = agreement.compare_translations(translator, lines, beam_size=beam_size)
    assert not different
