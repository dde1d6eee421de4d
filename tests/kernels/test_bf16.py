"""Linear maps in bfloat16 on a CPU, against PyTorch's own under autocast."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mtkit.config import ModelConfig
from mtkit.kernels import bf16
from mtkit.model import Transformer


def error(mine: Tensor, wanted: Tensor) -> float:
    """The length of the difference, as a part of the length of what is wanted."""
    mine, wanted = mine.detach().double(), wanted.detach().double()
    return ((mine - wanted).norm() / wanted.norm()).item()


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def test_rows_are_rounded_up_by_15_or_by_an_eighth_at_most() -> None:
    for rows in range(1, 5000):
        assert rows <= bf16.rounded(rows) <= max(rows + 15, rows * 9 / 8)
        assert bf16.rounded(rows) % 16 == 0
        assert bf16.rounded(bf16.rounded(rows)) == bf16.rounded(rows)
    assert len({bf16.rounded(rows) for rows in range(1025, 2049)}) == 8


SHAPES = pytest.mark.parametrize("shape", [(1, 1), (3, 5), (16, 1), (7, 43)])


def assert_near(result: Tensor, wanted: Tensor, given: list[Tensor], most: float) -> None:
    factor = draw(*wanted.shape, seed=9).detach()
    assert result.dtype == torch.bfloat16
    assert result.shape == wanted.shape
    assert error(result, wanted) < 0.005
    gradients = (torch.autograd.grad((y * factor).sum(), given) for y in (result, wanted))
    for mine, theirs in zip(*gradients, strict=True):
        assert mine.dtype == theirs.dtype
        assert error(mine, theirs) < most


@SHAPES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("with_bias", [True, False])
def test_a_linear_map_and_its_gradients_are_those_of_autocast(shape, dtype, with_bias):
    x = draw(*shape, 24, seed=1).detach().to(dtype).requires_grad_()
    given = [x, draw(40, 24, seed=2), *([draw(40, seed=3)] if with_bias else [])]
    x, weight, bias = [*given, None][:3]
    with torch.autocast("cpu"):
        assert bf16.applies_to(x)
        result, wanted = bf16.linear(x, weight, bias), F.linear(x, weight, bias)
    assert_near(result, wanted, given, 0.005)


@SHAPES
def test_a_feed_forward_network_and_its_gradients_are_those_of_autocast(shape: tuple[int, int]):
    x = draw(*shape, 24, seed=1)
    weights = [draw(40, 24, seed=2), draw(40, seed=3), draw(24, 40, seed=4), draw(24, seed=5)]
    with torch.autocast("cpu"):
        result = bf16.feed_forward(x, *weights)
        wanted = F.linear(F.relu(F.linear(x, *weights[:2])), *weights[2:])
    assert_near(result, wanted, [x, *weights], 0.01)


def test_without_gradients_the_results_are_the_same_to_the_last_bit() -> None:
    x, weights = draw(3, 19, 24, seed=1), [draw(40, 24, seed=2), draw(40, seed=3)]
    outer = [draw(24, 40, seed=4), draw(24, seed=5)]
    with torch.autocast("cpu"):
        trained = bf16.linear(x, *weights), bf16.feed_forward(x, *weights, *outer)
        with torch.no_grad():
            assert torch.equal(bf16.linear(x, *weights), trained[0])
            assert torch.equal(bf16.feed_forward(x, *weights, *outer), trained[1])


def test_only_autocast_on_a_cpu_computes_in_bfloat16() -> None:
    x = torch.zeros(2, 3)
    assert not bf16.applies_to(x)
    with torch.autocast("cpu", enabled=False):
        assert not bf16.applies_to(x)
    with torch.autocast("cpu"):
        assert bf16.applies_to(x)
        assert not bf16.applies_to(x.to("meta"))
    with torch.autocast("cpu", dtype=torch.float16):
        assert not bf16.applies_to(x)


class Calls(TorchDispatchMode):
    """Collects the shapes of matrix products, and the addresses of what is converted to bf16."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[Any, ...]] = set()
        self.converted: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            self.shapes.add(tuple(tuple(x.shape) for x in args if isinstance(x, Tensor)))
        if func is torch.ops.aten._to_copy.default and given.get("dtype") == torch.bfloat16:
            self.converted.append(args[0].data_ptr())
        return func(*args, **given)


def model() -> Transformer:
    torch.manual_seed(1)
    shape: dict[str, Any] = {"d_model": 16, "d_ff": 32, "n_heads": 4, "dropout": 0.0}
    return Transformer(ModelConfig(encoder_layers=2, decoder_layers=2, **shape), 23, pad_id=0)


def test_linear_maps_of_batches_of_many_shapes_have_few_shapes() -> None:
    transformer, calls = model(), Calls()
    numbers = []
    for count in range(104, 124):
        src, tgt_in = torch.full((count, 10), 5), torch.full((count, 9), 5)
        # Gradients are computed by this thread too, so that the mode sees them.
        with calls, torch.autocast("cpu"):
            torch.autograd.backward(transformer(src, tgt_in, states_only=True).sum())
        numbers.append(len(calls.shapes))
    # Target: 936 to 1,107 rows, rounded to 960, 1,024 and 1,152. Source: 1,040 to 1,230 rows,
    # rounded to 1,152 and 1,280.
    assert numbers[-1] <= 3 * numbers[0]


def test_a_models_gradients_in_bfloat16_are_near_those_in_float32() -> None:
    transformer = model()
    generator = torch.Generator().manual_seed(2)
    src, tgt_in = (torch.randint(3, 23, shape, generator=generator) for shape in ((4, 9), (4, 7)))
    gradients = []
    for enabled in (True, False):
        with torch.autocast("cpu", enabled=enabled):
            log_probs = transformer(src, tgt_in).float().log_softmax(-1)
        gradients.append(torch.autograd.grad(log_probs[..., 5].sum(), transformer.parameters()))
    names = [name for name, _ in transformer.named_parameters()]
    for name, rough, exact in zip(names, *gradients, strict=True):
        assert error(rough, exact) < 0.04, name


def test_weights_that_do_not_change_are_converted_once_with_the_same_results() -> None:
    transformer, calls = model(), Calls()
    src, tgt_in = torch.full((4, 9), 5), torch.full((4, 7), 6)

    def gradients() -> list[Tensor]:
        with torch.autocast("cpu"):
            logits = transformer(src, tgt_in)
        return list(torch.autograd.grad(logits.float().sum(), transformer.parameters()))

    wanted = gradients()
    with bf16.weights_unchanged(), calls:
        for _ in range(3):
            assert all(map(torch.equal, gradients(), wanted))
    matrices = [weight.data_ptr() for weight in transformer.parameters() if weight.ndim == 2]
    assert [calls.converted.count(address) for address in matrices] == [1] * len(matrices)


def test_a_weight_that_has_changed_is_converted_again() -> None:
    x, weight = draw(3, 24, seed=1), draw(40, 24, seed=2)
    results = []
    for _ in range(2):
        with bf16.weights_unchanged(), torch.autocast("cpu"):
            results.append(bf16.linear(x, weight, None))
        with torch.no_grad():
            weight.mul_(2.0)
    assert torch.equal(results[1], 2.0 * results[0])
