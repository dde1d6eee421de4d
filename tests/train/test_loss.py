"""The arithmetic of training: the paper's numbers, worked by hand or by another route."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mtkit.kernels.loss import loss_of_logits
from mtkit.train.loss import label_smoothed_loss

# The formula, and its faster form.
BOTH = pytest.mark.parametrize("loss_of", [label_smoothed_loss, loss_of_logits])
Loss = Callable[..., Tensor]


@BOTH
def test_the_smoothed_loss_equals_a_case_worked_by_hand(loss_of: Loss):
    # Probabilities 1/16, 1/2, 1/4, 1/8, 1/16; in bits 4, 1, 2, 3, 4. The truth is the second, so
    # with ε = 0.2 the loss is 0.8·1 + 0.05·(4 + 2 + 3 + 4) = 1.45 bits.
    logits = torch.tensor([[1 / 16, 1 / 2, 1 / 4, 1 / 8, 1 / 16]], dtype=torch.float64).log()
    loss = loss_of(logits, torch.tensor([1]), label_smoothing=0.2, pad_id=0)
    assert loss.item() == pytest.approx(1.45 * math.log(2), abs=1e-12)


def random_case(vocab_size: int = 11) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(4, 6, vocab_size, dtype=torch.float64, generator=generator) * 3
    targets = torch.randint(1, vocab_size, (4, 6), generator=generator)
    targets[0, 4:] = 0
    targets[2, 1:] = 0
    return logits.requires_grad_(), targets


@BOTH
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5])
def test_the_smoothed_loss_is_pytorchs_with_the_share_of_the_truth_given_back(
    epsilon: float, loss_of: Loss
):
    logits, targets = random_case()
    V = logits.shape[-1]
    # PyTorch spreads ε over all V, so ε·V/(V-1) leaves ε for the V - 1 others.
    expected = F.cross_entropy(
        logits.flatten(0, 1),
        targets.flatten(),
        ignore_index=0,
        reduction="sum",
        label_smoothing=epsilon * V / (V - 1),
    )
    (expected_gradient,) = torch.autograd.grad(expected, logits)
    loss = loss_of(logits, targets, label_smoothing=epsilon, pad_id=0)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert torch.allclose(gradient, expected_gradient, rtol=0, atol=1e-12)


@BOTH
def test_without_smoothing_the_loss_is_the_negative_log_likelihood(loss_of: Loss):
    logits, targets = random_case()
    loss = loss_of(logits, targets, label_smoothing=0.0, pad_id=0)
    expected = sum(
        -math.log(math.exp(row[target]) / sum(map(math.exp, row)))
        for row, target in zip(
            logits.flatten(0, 1).tolist(), targets.flatten().tolist(), strict=True
        )
        if target != 0
    )
    assert loss.item() == pytest.approx(expected, rel=1e-12)


@BOTH
def test_the_gradient_of_the_loss_equals_finite_differences(loss_of: Loss):
    logits, targets = random_case(vocab_size=5)

    def loss(x: Tensor) -> Tensor:
        # A factor, because the update divides by the number of tokens.
        return loss_of(x, targets, label_smoothing=0.1, pad_id=0) * 0.25

    assert torch.autograd.gradcheck(loss, (logits,))


@BOTH
def test_padding_does_not_change_the_loss(loss_of: Loss):
    logits, targets = random_case()
    row, truth = logits[2:3, :1], targets[2:3, :1]
    alone = loss_of(row, truth, label_smoothing=0.1, pad_id=0)
    # Whatever the model says at padding, even nonsense.
    padded_logits = torch.cat((row, 1e4 * torch.ones(1, 5, 11, dtype=torch.float64)), dim=1)
    padded = loss_of(padded_logits, F.pad(truth, (0, 5)), label_smoothing=0.1, pad_id=0)
    assert padded.item() == pytest.approx(alone.item(), rel=1e-12)
    (gradient,) = torch.autograd.grad(padded, logits)
    assert gradient[0].abs().sum() == 0


@BOTH
def test_the_loss_of_bf16_logits_is_summed_in_float32(loss_of: Loss):
    logits, targets = random_case()
    rounded = logits.detach().bfloat16().requires_grad_()
    exact = rounded.detach().double().requires_grad_()
    for epsilon in (0.0, 0.1):
        found, wanted = (
            loss_of(x, targets, label_smoothing=epsilon, pad_id=0) for x in (rounded, exact)
        )
        assert found.item() == pytest.approx(wanted.item(), rel=1e-6)
        (gradient,) = torch.autograd.grad(found, rounded)
        (expected,) = torch.autograd.grad(wanted, exact)
        assert gradient.dtype == torch.bfloat16
        assert torch.allclose(gradient.double(), expected, rtol=1e-2, atol=1e-4)
