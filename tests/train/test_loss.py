"""The arithmetic of training: the paper's numbers, worked by hand or by another route."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mtkit.model import NEVER
from mtkit.train import loss as loss_module
from mtkit.train.loss import label_smoothed_loss, loss_of_states

# ---------------------------------------------------------------------------------------------
# The loss


def test_the_smoothed_loss_equals_a_case_worked_by_hand():
    # Probabilities 1/16, 1/2, 1/4, 1/8, 1/16; in bits 4, 1, 2, 3, 4. The truth is the second, so
    # with ε = 0.2 the loss is 0.8·1 + 0.05·(4 + 2 + 3 + 4) = 1.45 bits.
    logits = torch.tensor([[1 / 16, 1 / 2, 1 / 4, 1 / 8, 1 / 16]], dtype=torch.float64).log()
    loss, count = label_smoothed_loss(logits, torch.tensor([1]), label_smoothing=0.2, pad_id=0)
    assert loss.item() == pytest.approx(1.45 * math.log(2), abs=1e-12)
    assert count.item() == 1


def random_case(vocab_size: int = 11) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(4, 6, vocab_size, dtype=torch.float64, generator=generator) * 3
    targets = torch.randint(1, vocab_size, (4, 6), generator=generator)
    targets[0, 4:] = 0
    targets[2, 1:] = 0
    return logits.requires_grad_(), targets


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5])
def test_the_smoothed_loss_is_pytorchs_with_the_share_of_the_truth_given_back(epsilon: float):
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
    loss, count = label_smoothed_loss(logits, targets, label_smoothing=epsilon, pad_id=0)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert count.item() == 24 - 2 - 5
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert torch.allclose(gradient, expected_gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 7, 24, 100])
@pytest.mark.parametrize("cached", [1, 5, 1000])
def test_the_loss_of_states_is_that_of_their_logits_and_so_are_its_gradients(
    epsilon: float, chunk: int, cached: int, monkeypatch: pytest.MonkeyPatch
):
    # Rows of eleven numbers.
    monkeypatch.setattr(loss_module, "MOST_BYTES", chunk * 11 * 8)
    monkeypatch.setattr(loss_module, "CACHED_BYTES", cached * 11 * 8)
    _, targets = random_case()
    generator = torch.Generator().manual_seed(4)
    states = torch.randn(4, 6, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    weight = torch.randn(11, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    how = {"label_smoothing": epsilon, "pad_id": 0}
    wanted, _ = label_smoothed_loss(F.linear(states, weight), targets, **how)
    found = loss_of_states(states, weight, targets, **how)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-12)
    for mine, theirs in zip(
        torch.autograd.grad(found * 0.3, (states, weight)),
        torch.autograd.grad(wanted * 0.3, (states, weight)),
        strict=True,
    ):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_tokens_that_a_bias_makes_impossible_are_as_if_they_did_not_exist(
    epsilon: float, chunk: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(loss_module, "MOST_BYTES", chunk * 11 * 8)
    _, targets = random_case()
    generator = torch.Generator().manual_seed(4)
    states, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, generator=generator)
        for shape in ((4, 6, 5), (11, 5), (11,))
    )
    # Tokens 0 (padding) and 4 are impossible; the others, renumbered, are all that there is.
    kept = torch.tensor([1, 2, 3, 5, 6, 7, 8, 9, 10])
    targets = targets.where(targets != 4, 5)
    bias[[0, 4]] = NEVER
    leaves = [x.requires_grad_() for x in (states, weight, bias)]
    how = {"label_smoothing": epsilon, "pad_id": 0}
    fewer = F.linear(states, weight[kept], bias[kept])
    renumbered = torch.searchsorted(kept, targets).where(targets != 0, -1)
    wanted, count = label_smoothed_loss(
        fewer, renumbered.clamp(min=0), label_smoothing=epsilon, pad_id=-1
    )
    padding = targets == 0
    of_padding, _ = label_smoothed_loss(
        fewer[padding], renumbered[padding].clamp(min=0), label_smoothing=epsilon, pad_id=-1
    )
    wanted = wanted - of_padding
    assert count == 24
    whole, _ = label_smoothed_loss(F.linear(states, weight, bias), targets, has_bias=True, **how)
    found = loss_of_states(states, weight, targets, bias=bias, **how)
    expected = torch.autograd.grad(wanted, leaves)
    for loss in (whole, found):
        assert loss.item() == pytest.approx(wanted.item(), rel=1e-12)
        for mine, theirs in zip(torch.autograd.grad(loss, leaves), expected, strict=True):
            assert torch.allclose(mine, theirs, rtol=0, atol=1e-12)


def test_the_loss_of_states_is_exact_where_a_token_is_certain():
    # The logits are 0 and ±1,000; e^1000 and e^-1000 are beyond float64.
    states = torch.tensor([[1000.0], [-1000.0]], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    how = {"label_smoothing": 0.0, "pad_id": 5}
    right = loss_of_states(states, weight, torch.tensor([0, 1]), **how)
    wrong = loss_of_states(states, weight, torch.tensor([1, 0]), **how)
    assert (right.item(), wrong.item()) == (0.0, 2000.0)
    assert torch.autograd.grad(wrong, states)[0].flatten().tolist() == [1.0, -1.0]


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [2, 7, 100])
def test_the_loss_of_states_in_bfloat16_is_that_of_rounded_states_and_weights(
    epsilon: float, chunk: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(loss_module, "MOST_BYTES", chunk * 11 * 2)
    monkeypatch.setattr(loss_module, "CACHED_BYTES", 5 * 11 * 4)
    _, targets = random_case()
    generator = torch.Generator().manual_seed(4)
    states = torch.randn(4, 6, 5, generator=generator, requires_grad=True)
    weight = torch.randn(11, 5, generator=generator, requires_grad=True)
    rounded = [x.detach().bfloat16().double().requires_grad_() for x in (states, weight)]
    how = {"label_smoothing": epsilon, "pad_id": 0}
    wanted, _ = label_smoothed_loss(F.linear(*rounded), targets, **how)
    found = loss_of_states(states, weight, targets, dtype=torch.bfloat16, **how)
    assert found.dtype == torch.float32
    # The logits and their gradient have eight bits.
    assert found.item() == pytest.approx(wanted.item(), rel=5e-3)
    for mine, theirs in zip(
        torch.autograd.grad(found, (states, weight)),
        torch.autograd.grad(wanted, rounded),
        strict=True,
    ):
        assert mine.dtype == torch.float32
        assert torch.allclose(mine.double(), theirs, rtol=0.05, atol=0.05)


def test_without_smoothing_the_loss_is_the_negative_log_likelihood():
    logits, targets = random_case()
    loss, _ = label_smoothed_loss(logits, targets, label_smoothing=0.0, pad_id=0)
    expected = sum(
        -math.log(math.exp(row[target]) / sum(map(math.exp, row)))
        for row, target in zip(
            logits.flatten(0, 1).tolist(), targets.flatten().tolist(), strict=True
        )
        if target != 0
    )
    assert loss.item() == pytest.approx(expected, rel=1e-12)


def test_the_gradient_of_the_loss_equals_finite_differences():
    logits, targets = random_case(vocab_size=5)

    def loss(x: Tensor) -> Tensor:
        # A factor, because the update divides by the number of tokens.
        return label_smoothed_loss(x, targets, label_smoothing=0.1, pad_id=0)[0] * 0.25

    assert torch.autograd.gradcheck(loss, (logits,))


def test_padding_changes_neither_loss_nor_count():
    logits, targets = random_case()
    row, truth = logits[2:3, :1], targets[2:3, :1]
    alone = label_smoothed_loss(row, truth, label_smoothing=0.1, pad_id=0)
    # Whatever the model says at padding, even nonsense.
    padded_logits = torch.cat((row, 1e4 * torch.ones(1, 5, 11, dtype=torch.float64)), dim=1)
    padded = label_smoothed_loss(padded_logits, F.pad(truth, (0, 5)), label_smoothing=0.1, pad_id=0)
    assert padded[0].item() == pytest.approx(alone[0].item(), rel=1e-12)
    assert padded[1].item() == alone[1].item() == 1
    (gradient,) = torch.autograd.grad(padded[0], logits)
    assert gradient[0].abs().sum() == 0


def test_the_loss_of_bf16_logits_is_summed_in_float32():
    logits, targets = random_case()
    rounded = logits.detach().bfloat16().requires_grad_()
    exact = rounded.detach().double().requires_grad_()
    for epsilon in (0.0, 0.1):
        found, wanted = (
            label_smoothed_loss(x, targets, label_smoothing=epsilon, pad_id=0)[0]
            for x in (rounded, exact)
        )
        assert found.item() == pytest.approx(wanted.item(), rel=1e-6)
        (gradient,) = torch.autograd.grad(found, rounded)
        (expected,) = torch.autograd.grad(wanted, exact)
        assert gradient.dtype == torch.bfloat16
        assert torch.allclose(gradient.double(), expected, rtol=1e-2, atol=1e-4)
