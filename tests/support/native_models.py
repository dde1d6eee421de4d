"""What the tests of the native engine use: small models, in PyTorch and in the engine."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from mtkit.base.errors import MtkitError
from mtkit.config import ModelConfig
from mtkit.model import Transformer
from mtkit.native import NativeModel, kernels
from mtkit.tokenizer import PAD_ID

TABLES = ("plain", "avx2", "vnni", "avx512bf16", "amx", "neon")


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Kernels that the engine uses in this test, of those that this CPU has."""
    monkeypatch.setenv("MTKIT_KERNELS", request.param)
    try:
        kernels("fp32")
    except MtkitError as error:
        pytest.skip(str(error))
    return str(request.param)


def drawn_model(
    vocab_size: int = 70, src_vocab_size: int | None = None, seed: int = 1, **config: Any
) -> Transformer:
    """A model whose parameters are all random, also gains and biases."""
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 24, "d_ff": 40, "n_heads": 2}
    # Its first values too are the same in every run.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Transformer(
            ModelConfig.model_validate(sizes | config), vocab_size, PAD_ID, src_vocab_size
        )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    if model.config.positions == "words":
        model.set_word_tokens(
            torch.rand(src_vocab_size or vocab_size, generator=generator) < 0.5,
            torch.rand(vocab_size, generator=generator) < 0.5,
        )
    return model.eval()


def native_of(model: Transformer, **options: Any) -> NativeModel:
    """The same model in the native engine."""
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    return NativeModel(weights, model.config, model.vocab_size, model.src_vocab_size, **options)


@pytest.fixture(scope="session")
def draw() -> Callable[..., Transformer]:
    return drawn_model


@pytest.fixture(scope="session")
def to_native() -> Callable[..., NativeModel]:
    return native_of
