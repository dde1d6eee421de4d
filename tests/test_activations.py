"""A new activation is in every table that names activations: the recipe of docs/architecture.md."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch.nn import functional as F

import mtkit
from mtkit.config import ModelConfig
from mtkit.convert.marian import marian_settings
from mtkit.convert.onnx_graph import encoder_graph
from mtkit.convert.transformers_folder import _Settings
from mtkit.model import Transformer
from mtkit.native.engine import ACTIVATIONS
from mtkit.tokenizer import PAD_ID
from mtkit.translate.pytorch.incremental import _IN_PLACE

NAMES = get_args(ModelConfig.model_fields["activation"].annotation)
# What transformers calls them; it decides what a folder of MarianMTModel may say.
TRANSFORMERS_NAMES = {"silu": "swish"}


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(name: str) -> Transformer:
    config = ModelConfig.model_validate(
        {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "d_ff": 8, "n_heads": 2}
        | {"activation": name, "dropout": 0.0}
    )
    torch.manual_seed(0)
    return Transformer(config, 20, PAD_ID).eval()


def test_the_feed_forward_network_applies_the_function_of_that_name(name, model):
    block: Any = model.encoder[0].feed_forward
    x = torch.linspace(-3, 3, 16).view(2, 8)
    function: Callable[[torch.Tensor], torch.Tensor] = getattr(F, name)
    assert torch.equal(block(x), block.outer(function(block.inner(x))))


def test_decoding_knows_the_same_function_in_place(name):
    x = torch.linspace(-3, 3, 16)
    expected = getattr(F, name)(x)
    assert torch.equal(_IN_PLACE[getattr(F, name)](x.clone()), expected)


def test_the_native_engine_lists_the_activations_in_the_order_of_its_header(name):
    header = Path(mtkit.__file__).parent / "native" / "src" / "shape.h"
    (values,) = re.findall(
        r"enum class Activation : int32_t \{ (.*?) \}", header.read_text("utf-8")
    )
    assert values == ", ".join(f"{known} = {i}" for i, known in enumerate(ACTIVATIONS))
    assert name in ACTIVATIONS


def test_every_export_and_import_can_express_it(name, model):
    pytest.importorskip("onnx")
    theirs = TRANSFORMERS_NAMES.get(name, name)
    assert marian_settings(model, 10)["activation_function"] == theirs
    assert theirs in get_args(_Settings.model_fields["activation_function"].annotation)
    encoder_graph(model, longest=10, is_int8=False)
    pytest.importorskip("ctranslate2")
    from mtkit.convert.ctranslate2 import _spec_of

    _spec_of(model, 10)
