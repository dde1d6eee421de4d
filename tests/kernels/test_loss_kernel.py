"""The output layer and its loss, against the formula in `train.loss`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mtkit.kernels import cpu_loss as kernel
from mtkit.kernels import gpu_loss
from mtkit.kernels.cpu_loss import (
    GPU_TILE,
    NEVER,
    loss_of_states,
)
from mtkit.kernels.gpu_loss import loss_on_gpu
from mtkit.train.loss import label_smoothed_loss


def random_targets() -> Tensor:
    targets = torch.randint(1, 11, (4, 6), generator=torch.Generator().manual_seed(3))
    targets[0, 4:] = 0
    targets[2, 1:] = 0
    return targets


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 7, 24, 100])
@pytest.mark.parametrize("cached", [1, 5, 1000])
def test_the_loss_of_states_is_that_of_their_logits_and_so_are_its_gradients(
    epsilon: float, chunk: int, cached: int, monkeypatch: pytest.MonkeyPatch
):
    # Rows of eleven numbers.
    monkeypatch.setattr(kernel, "MAX_BYTES", chunk * 11 * 8)
    monkeypatch.setattr(kernel, "CACHED_BYTES", cached * 11 * 8)
    targets = random_targets()
    generator = torch.Generator().manual_seed(4)
    states = torch.randn(4, 6, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    weight = torch.randn(11, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    how = {"label_smoothing": epsilon, "pad_id": 0}
    wanted = label_smoothed_loss(F.linear(states, weight), targets, **how)
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
    monkeypatch.setattr(kernel, "MAX_BYTES", chunk * 11 * 8)
    targets = random_targets()
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
    wanted = label_smoothed_loss(fewer, renumbered.clamp(min=0), label_smoothing=epsilon, pad_id=-1)
    padding = targets == 0
    of_padding = label_smoothed_loss(
        fewer[padding], renumbered[padding].clamp(min=0), label_smoothing=epsilon, pad_id=-1
    )
    wanted = wanted - of_padding
    whole = label_smoothed_loss(F.linear(states, weight, bias), targets, bias=bias, **how)
    found = loss_of_states(states, weight, targets, bias=bias, **how)
    expected = torch.autograd.grad(wanted, leaves)
    for loss in (whole, found):
        assert loss.item() == pytest.approx(wanted.item(), rel=1e-12)
        for mine, theirs in zip(torch.autograd.grad(loss, leaves), expected, strict=True):
            assert torch.allclose(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("impossible", [[1], [0, 1], [1, 5], [0, 4, 5]])
@pytest.mark.parametrize("true", [[1], [4, 1], [2, 5, 1, 3]])
def test_an_impossible_target_counts_by_its_log_probability(
    epsilon: float, impossible: list[int], true: list[int]
):
    generator = torch.Generator().manual_seed(5)
    states, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, generator=generator)
        for shape in ((len(true), 3), (6, 3), (6,))
    )
    bias[impossible] = NEVER
    leaves = [x.requires_grad_() for x in (states, weight, bias)]
    logits, targets = F.linear(states, weight, bias), torch.tensor(true)
    # -Σ q·log p: ε for the other tokens that are possible, the same for each of them.
    share = epsilon / (6 - len(impossible) - 1)
    smoothed = torch.full_like(logits, share)
    smoothed[:, impossible] = 0.0
    smoothed[range(len(true)), true] += 1.0 - epsilon - share
    wanted = -(smoothed * logits.log_softmax(-1)).sum()
    expected = torch.autograd.grad(wanted, leaves, retain_graph=True)
    how = {"label_smoothing": epsilon, "pad_id": -1, "bias": bias}
    formula = label_smoothed_loss(logits, targets, **how)
    kernel_loss = loss_of_states(states, weight, targets, **how)
    for loss in (formula, kernel_loss):
        assert loss.item() == pytest.approx(wanted.item(), rel=1e-12)
        for mine, theirs in zip(torch.autograd.grad(loss, leaves), expected, strict=True):
            assert torch.allclose(mine, theirs, rtol=0, atol=1e-6)


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
    monkeypatch.setattr(kernel, "MAX_BYTES", chunk * 11 * 2)
    monkeypatch.setattr(kernel, "CACHED_BYTES", 5 * 11 * 4)
    targets = random_targets()
    generator = torch.Generator().manual_seed(4)
    states = torch.randn(4, 6, 5, generator=generator, requires_grad=True)
    weight = torch.randn(11, 5, generator=generator, requires_grad=True)
    rounded = [x.detach().bfloat16().double().requires_grad_() for x in (states, weight)]
    how = {"label_smoothing": epsilon, "pad_id": 0}
    wanted = label_smoothed_loss(F.linear(*rounded), targets, **how)
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


def random_states(vocabulary: int, dtype: torch.dtype, *, biased: bool) -> list[Tensor]:
    """States, weight, targets, and perhaps a bias with which tokens 0 and 4 are impossible."""
    generator = torch.Generator().manual_seed(vocabulary)
    targets = torch.randint(5, vocabulary, (4, 6), generator=generator)
    targets[0, 4:] = 0
    targets[2, 1:] = 0
    shapes = [(4, 6, 5), (vocabulary, 5), *([(vocabulary,)] if biased else [])]
    states, weight, *bias = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    if biased:
        bias[0][[0, 4]] = NEVER
    return [states, weight, targets, *bias]


def assert_gpu_loss_is_the_formula(
    vocabulary: int, dtype: torch.dtype, *, biased: bool, epsilon: float, compiled: bool = False
) -> None:
    states, weight, targets, *bias = random_states(vocabulary, dtype, biased=biased)
    leaves = [x.requires_grad_() for x in (states, weight, *bias)]
    how = {"label_smoothing": epsilon, "pad_id": 0, "bias": bias[0] if bias else None}
    wanted = label_smoothed_loss(F.linear(states, weight, *bias), targets, **how)
    found = loss_on_gpu(states, weight, targets, compiled=compiled, **how)
    close = {"rtol": 0, "atol": 1e-12 if dtype == torch.float64 else 1e-5}
    assert found.dtype == dtype
    assert found.item() == pytest.approx(wanted.item(), rel=close["atol"])
    for mine, theirs in zip(
        torch.autograd.grad(found * 0.3, leaves),
        torch.autograd.grad(wanted * 0.3, leaves),
        strict=True,
    ):
        assert torch.allclose(mine, theirs, **close)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("vocabulary", [11, GPU_TILE])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 7, 24])
@pytest.mark.parametrize("form", ["in place", "for the compiler"])
def test_the_loss_for_a_gpu_is_that_of_the_formula_and_so_are_its_gradients(
    vocabulary: int,
    dtype: torch.dtype,
    biased: bool,
    epsilon: float,
    chunk: int,
    form: str,
    monkeypatch: pytest.MonkeyPatch,
):
    for name in ("MAX_BYTES", "MAX_BYTES_COMPILED"):
        monkeypatch.setattr(gpu_loss, name, chunk * GPU_TILE * dtype.itemsize)
    for_compiler = gpu_loss.losses_and_gradient
    monkeypatch.setattr(gpu_loss, "_compiled_losses_and_gradient", lambda: for_compiler)
    compiled = form == "for the compiler"
    assert_gpu_loss_is_the_formula(
        vocabulary, dtype, biased=biased, epsilon=epsilon, compiled=compiled
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what PyTorch's compiler says about itself
@pytest.mark.parametrize("vocabulary", [11, GPU_TILE])
@pytest.mark.parametrize("biased", [False, True])
def test_the_compiled_loss_for_a_gpu_is_that_of_the_formula(vocabulary: int, biased: bool):
    torch.compiler.reset()
    for dtype in (torch.float64, torch.float32):
        for epsilon in (0.0, 0.1):
            assert_gpu_loss_is_the_formula(
                vocabulary, dtype, biased=biased, epsilon=epsilon, compiled=True
            )


def test_the_loss_for_a_gpu_in_bfloat16_is_that_of_rounded_states_and_weights():
    states, weight, targets, bias = random_states(300, torch.float32, biased=True)
    rounded = [x.bfloat16().double().requires_grad_() for x in (states, weight)]
    exact = [*rounded, bias.double().requires_grad_()]
    leaves = [x.requires_grad_() for x in (states, weight, bias)]
    how = {"label_smoothing": 0.1, "pad_id": 0}
    wanted = label_smoothed_loss(F.linear(*exact), targets, bias=exact[2], **how)
    with torch.autocast("cpu", torch.bfloat16):
        found = loss_on_gpu(states, weight, targets, bias=bias, dtype=torch.bfloat16, **how)
    assert found.dtype == torch.float32
    # The logits and their gradient have eight bits; sums are in float32.
    assert found.item() == pytest.approx(wanted.item(), rel=5e-3)
    for mine, theirs in zip(
        torch.autograd.grad(found, leaves), torch.autograd.grad(wanted, exact), strict=True
    ):
        assert mine.dtype == torch.float32
        assert torch.allclose(mine.double(), theirs, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("loss_of", [loss_of_states, loss_on_gpu])
@pytest.mark.parametrize("biased", [False, True])
def test_no_gradient_of_weights_that_do_not_change_is_computed(loss_of: Any, biased: bool):
    states, weight, targets = random_states(11, torch.float64, biased=False)
    bias = torch.linspace(-1, 1, 11, dtype=torch.float64) if biased else None
    given: dict[str, Any] = {"label_smoothing": 0.1, "pad_id": 0, "bias": bias}
    trained = loss_of(states.requires_grad_(), weight.clone().requires_grad_(), targets, **given)
    frozen = loss_of(states, weight, targets, **given)
    of_rows, *others = frozen.grad_fn.saved_tensors
    assert of_rows is not None
    assert others[0] is None
    assert trained.item() == frozen.item()
    first, second = (torch.autograd.grad(loss, states)[0] for loss in (trained, frozen))
    assert torch.equal(first, second)


def test_a_second_backward_pass_gives_the_same_gradient():
    # The gradient takes the place of the logits.
    states, weight, targets = random_states(11, torch.float64, biased=False)
    loss = loss_on_gpu(states.requires_grad_(), weight, targets, label_smoothing=0.1, pad_id=0)
    first, second = (torch.autograd.grad(loss, states, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
