"""The arithmetic of training: the paper's numbers, worked by hand or by another route."""

import math

import pytest
import torch
from torch import Tensor

from mtkit.train.loss import label_smoothed_loss


def test_the_smoothed_loss_equals_a_case_worked_by_hand():
    # Probabilities 1/16, 1/2, 1/4, 1/8, 1/16; in bits 4, 1, 2, 3, 4. The truth is the second, so
    # with ε = 0.2 the loss is 0.8·1 + 0.05·(4 + 2 + 3 + 4) = 1.45 bits.
    logits = torch.tensor([[1 / 16, 1 / 2, 1 / 4, 1 / 8, 1 / 16]], dtype=torch.float64).log()
    loss = label_smoothed_loss(logits, torch.tensor([1]), label_smoothing=0.2, pad_id=0)
    assert loss.item() == pytest.approx(1.45 * math.log(2), abs=1e-12)


def random_case() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(4, 6, 11, dtype=torch.float64, generator=generator) * 3
    targets = torch.randint(1, 11, (4, 6), generator=generator)
    targets[0, 4:] = 0
    targets[2, 1:] = 0
    return logits.requires_grad_(), targets


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5])
def test_the_smoothed_loss_is_the_cross_entropy_of_smoothed_targets(epsilon: float):
    logits, targets = random_case()
    V, real = logits.shape[-1], targets != 0
    smoothed = torch.full_like(logits, epsilon / (V - 1))
    smoothed.scatter_(-1, targets.unsqueeze(-1), 1.0 - epsilon)
    expected = -(smoothed * logits.log_softmax(-1))[real].sum()
    loss = label_smoothed_loss(logits, targets, label_smoothing=epsilon, pad_id=0)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    expected_gradient = (logits.softmax(-1) - smoothed) * real.unsqueeze(-1)
    assert torch.allclose(gradient, expected_gradient, rtol=0, atol=1e-12)


def test_the_loss_of_bf16_logits_is_summed_in_float32():
    logits, targets = random_case()
    rounded = logits.detach().bfloat16().requires_grad_()
    exact = rounded.detach().double().requires_grad_()
    for epsilon in (0.0, 0.1):
        loss, wanted = (
            label_smoothed_loss(x, targets, label_smoothing=epsilon, pad_id=0)
            for x in (rounded, exact)
        )
        assert loss.item() == pytest.approx(wanted.item(), rel=1e-6)
        (gradient,) = torch.autograd.grad(loss, rounded)
        (expected,) = torch.autograd.grad(wanted, exact)
        assert gradient.dtype == torch.bfloat16
        assert torch.allclose(gradient.double(), expected, rtol=1e-2, atol=1e-4)
