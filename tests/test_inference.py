"""Linear layers for inference, and what precision does to translations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from plain_search import plain_search
from torch import Tensor, nn

from mtkit.checkpoint import Run
from mtkit.errors import MtkitError
from mtkit.inference import DenseLinear, Engine, Int8Linear, choose_precision, prepare
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID
from mtkit.translate import Translator

CPU = torch.device("cpu")
int8_only = pytest.mark.skipif(
    "fbgemm" not in torch.backends.quantized.supported_engines, reason="int8 needs an x86 CPU"
)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(1, 40), (5, 40), (64, 40), (65, 40), (3, 7, 40), (1, 1, 40)])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("packed_from", [0, 2_000_000])
def test_a_dense_layer_equals_pytorchs(
    shape: tuple[int, ...], biased: bool, packed_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtkit.inference.PACKED_SIZE", packed_from)
    plain = nn.Linear(40, 24, bias=biased)
    laid_out = DenseLinear(plain.weight, plain.bias)
    x = drawn(*shape)
    with torch.inference_mode():
        for _ in range(2):
            assert torch.allclose(laid_out(x), plain(x), atol=1e-5)


def eight_bit(x: Tensor, weight: Tensor, bias: Tensor) -> np.ndarray:
    """The product by integers: weights to ±127 a row, activations to ±63 a row."""
    w, a = weight.numpy().astype(np.float64), x.numpy().astype(np.float64)
    w_scale = np.abs(w).max(1) / 127
    a_scale = np.abs(a).max(1) / 63
    rounded = np.rint(a / a_scale[:, None]) @ np.rint(w / w_scale[:, None]).T
    return rounded * a_scale[:, None] * w_scale + bias.numpy()


@int8_only
@pytest.mark.parametrize("rows", [1, 3, 70])
def test_an_8_bit_layer_equals_integer_arithmetic(rows: int) -> None:
    weight, bias, x = drawn(24, 40, seed=1), drawn(24, seed=2), drawn(rows, 40, seed=3)
    with torch.inference_mode():
        found = Int8Linear(weight, bias)(x)
        assert np.abs(found.numpy() - eight_bit(x, weight, bias)).max() < 1e-4
        deep = Int8Linear(weight, bias)(x.view(rows, 1, 40))
    assert torch.equal(deep.view(rows, -1), found)


@int8_only
def test_sums_of_8_bit_products_do_not_saturate() -> None:
    # The largest there are, side by side: 16 bits hold two of them only with a bit to spare.
    weight, x = torch.ones(16, 512), torch.ones(8, 512)
    with torch.inference_mode():
        assert torch.allclose(Int8Linear(weight, None)(x), torch.full((8, 16), 512.0))
        assert torch.allclose(Int8Linear(-weight, None)(x), torch.full((8, 16), -512.0))


@int8_only
def test_an_8_bit_row_does_not_depend_on_its_neighbours() -> None:
    layer = Int8Linear(drawn(24, 40, seed=1), drawn(24, seed=2))
    x = drawn(6, 40, seed=3)
    loud = x.clone()
    loud[3] *= 1_000
    with torch.inference_mode():
        alone = torch.cat([layer(row.unsqueeze(0)) for row in x])
        assert torch.equal(layer(x), alone)
        quiet = torch.arange(6) != 3
        assert torch.equal(layer(loud)[quiet], alone[quiet])
        # A row of zeros, as a ReLU can leave, is the bias.
        assert torch.equal(layer(torch.zeros(2, 40))[0], layer._bias)


def test_precision_is_float32_unless_asked_and_8_bit_is_for_cpus(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose_precision("auto", CPU) == "fp32"
    with pytest.raises(MtkitError, match="int8 needs an x86 CPU"):
        choose_precision("int8", torch.device("cuda"))
    monkeypatch.setattr("mtkit.inference.has_native_bf16", lambda device: False)
    assert choose_precision("bf16", CPU) == "bf16"
    assert "no bf16 units" in caplog.text


@int8_only
@pytest.mark.parametrize(("precision", "most"), [("fp32", 1e-5), ("bf16", 0.1), ("int8", 0.1)])
def test_every_precision_gives_nearly_the_log_probabilities_of_the_model(
    tiny_run: Run, precision: str, most: float
) -> None:
    plain = Translator.load(tiny_run, device="cpu", prepared=False).model
    model = Translator.load(tiny_run, device="cpu", prepared=False).model
    prepare(model, precision, CPU)
    engine = Engine(model)
    src = torch.tensor([[5, 6, 7, EOS_ID], [8, EOS_ID, PAD_ID, PAD_ID]])
    prefix = torch.tensor([[BOS_ID, 9, 10], [BOS_ID, 11, 12]])
    with torch.inference_mode():
        cache = engine.start(src, 1)
        for t in range(3):
            wanted = plain(src, prefix[:, : t + 1])[:, -1].log_softmax(-1)
            found = engine.step(prefix[:, t], torch.arange(2), cache)
            assert found.dtype == torch.float32
            assert (found - wanted).abs().max() < most


@pytest.mark.parametrize("beam_size", [1, 4, 10])
@pytest.mark.parametrize(("alpha", "copied_to"), [(0.0, 2**16), (0.6, 2**16), (0.6, 0), (0.6, 400)])
def test_the_search_finds_what_a_plain_one_finds(
    tiny_run: Run,
    beam_size: int,
    alpha: float,
    copied_to: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Small caches grow by copying, large ones have room; some begin small.
    monkeypatch.setattr("mtkit.inference.COPIED_TO", copied_to)
    plain = Translator.load(tiny_run, device="cpu", prepared=False).model
    changes = {"beam_size": beam_size, "length_penalty": alpha, "max_extra_length": 4}
    config = tiny_run.config.decode.model_copy(update=changes)
    translator = Translator.load(tiny_run, device="cpu", config=config)
    lines = ["one two three", "nine", "four four five one two six", "seven eight", "two"] * 2
    for line, (found,) in zip(lines, translator.translate_nbest(lines, n_best=1), strict=True):
        ids = [*translator.tokenizer.encode(line), EOS_ID]
        score, tokens = plain_search(
            plain, ids, beam_size=beam_size, alpha=alpha, limit=len(ids) + 4
        )
        assert found.text == translator.tokenizer.decode(tokens)
        assert found.score == pytest.approx(score, abs=1e-5)
