"""Dropout on a CPU: its share, its seeds and its gradients."""

import pytest
import torch

from mtkit.kernels.dropout import Dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dropout_drops_its_share_and_scales_up_the_rest(p: float, dtype: torch.dtype):
    torch.manual_seed(1)
    x = torch.full((997, 301), 2.0, dtype=dtype, requires_grad=True)
    y = Dropout(p).train()(x)
    count = x.numel()
    dropped = int((y == 0).sum())
    # Five standard deviations of a binomial.
    assert abs(dropped - p * count) < 5 * (p * (1 - p) * count) ** 0.5
    kept = y[y != 0]
    assert torch.allclose(kept, torch.full_like(kept, 2 / (1 - p)), rtol=1e-4)
    assert y.dtype == torch.promote_types(dtype, torch.float32)
    # In bfloat16 the gradient is rounded.
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient * 2, y.to(dtype))
    # Neighbours, and every fourth element, which share a draw, are independent.
    for shift in (1, 2, 3, 4, 301):
        zero = (y.flatten() == 0).double()
        both = (zero[:-shift] * zero[shift:]).mean().item()
        assert both == pytest.approx(p * p, abs=5 * p / count**0.5)


def test_dropout_of_nearly_everything_keeps_its_numbers_finite():
    y = Dropout(0.9999999).train()(torch.ones(1000, 1000))
    # An element is dropped with at most 65,535 of 65,536 draws.
    assert set(y.unique().tolist()) <= {0.0, 65_536.0}


def test_dropout_repeats_under_one_seed_and_does_nothing_in_evaluation():
    x = torch.randn(50, 40)
    layer = Dropout(0.4)
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append((layer(x), layer(x)))
    (first, second), again, (other, _) = draws
    assert all(map(torch.equal, (first, second), again))
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)
    assert layer.eval()(x) is x
