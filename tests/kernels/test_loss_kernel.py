"""The output layer and its loss, against the formula in `train.loss`."""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mtkit.kernels import cpu_loss as kernel
from mtkit.kernels import gpu_loss
from mtkit.kernels.cpu_loss import GPU_TILE, NEVER, loss_of_states
from mtkit.kernels.gpu_loss import loss_on_gpu
from mtkit.train.loss import label_smoothed_loss


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


def assert_same(
    loss: Tensor,
    wanted: Tensor,
    leaves: Sequence[Tensor],
    others: Sequence[Tensor] | None = None,
    *,
    rel: float,
    **close: float,
) -> None:
    """Two losses and their gradients; those of the second are by other leaves if there are some."""
    assert loss.dtype == leaves[0].dtype
    assert loss.item() == pytest.approx(wanted.item(), rel=rel)
    gradients = torch.autograd.grad(loss * 0.3, leaves, retain_graph=True)
    expected = torch.autograd.grad(wanted * 0.3, others or leaves, retain_graph=True)
    for mine, theirs in zip(gradients, expected, strict=True):
        assert mine.dtype == loss.dtype
        assert torch.allclose(mine.to(theirs.dtype), theirs, **close)


# On a GPU in place, and what is given to the compiler.
FORMS = {"cpu": loss_of_states, "gpu": loss_on_gpu, "compiled": partial(loss_on_gpu, compiled=True)}


def assert_is_the_formula(
    form: str, vocabulary: int, dtype: torch.dtype, *, biased: bool, epsilon: float
) -> None:
    states, weight, targets, *bias = random_states(vocabulary, dtype, biased=biased)
    leaves = [x.requires_grad_() for x in (states, weight, *bias)]
    how = {"label_smoothing": epsilon, "pad_id": 0, "bias": bias[0] if bias else None}
    wanted = label_smoothed_loss(F.linear(states, weight, *bias), targets, **how)
    error = 1e-12 if dtype == torch.float64 else 1e-5
    loss = FORMS[form](states, weight, targets, **how)
    assert_same(loss, wanted, leaves, rel=error, rtol=0, atol=error)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("vocabulary", [11, GPU_TILE])
@pytest.mark.parametrize("chunk", [1, 7, 24])
@pytest.mark.parametrize("cached", [1, 5, 1000])
@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_the_loss_is_that_of_the_formula_and_so_are_its_gradients(
    form, dtype, vocabulary, chunk, cached, monkeypatch
):
    for name in ("MAX_BYTES", "MAX_BYTES_COMPILED"):
        monkeypatch.setattr(gpu_loss, name, chunk * GPU_TILE * dtype.itemsize)
    monkeypatch.setattr(kernel, "MAX_BYTES", chunk * vocabulary * dtype.itemsize)
    monkeypatch.setattr(kernel, "CACHED_BYTES", cached * vocabulary * dtype.itemsize)
    for_compiler = gpu_loss.losses_and_gradient
    monkeypatch.setattr(gpu_loss, "_compiled_losses_and_gradient", lambda: for_compiler)
    for biased, epsilon in itertools.product((False, True), (0.0, 0.1)):
        assert_is_the_formula(form, vocabulary, dtype, biased=biased, epsilon=epsilon)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what PyTorch's compiler says about itself
@pytest.mark.parametrize("vocabulary", [11, GPU_TILE])
@pytest.mark.parametrize("biased", [False, True])
def test_the_compiled_loss_for_a_gpu_is_that_of_the_formula(vocabulary: int, biased: bool):
    torch.compiler.reset()
    for dtype, epsilon in itertools.product((torch.float64, torch.float32), (0.0, 0.1)):
        assert_is_the_formula("compiled", vocabulary, dtype, biased=biased, epsilon=epsilon)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("impossible", [[1], [0, 1], [1, 5], [0, 4, 5]])
@pytest.mark.parametrize("true", [[1], [4, 1], [2, 5, 1, 3]])
@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_impossible_tokens_get_no_share_and_as_targets_count_by_their_log_probability(
    epsilon, impossible, true, chunk, monkeypatch
):
    monkeypatch.setattr(kernel, "MAX_BYTES", chunk * 6 * 8)
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
    how = {"label_smoothing": epsilon, "pad_id": -1, "bias": bias}
    formula = label_smoothed_loss(logits, targets, **how)
    for loss in (formula, loss_of_states(states, weight, targets, **how)):
        assert_same(loss, wanted, leaves, rel=1e-12, rtol=0, atol=1e-6)


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
@pytest.mark.parametrize(("form", "chunk"), [("cpu", 2), ("cpu", 7), ("cpu", 100), ("gpu", 100)])
def test_the_loss_in_bfloat16_is_that_of_rounded_states_and_weights(
    form: str, chunk: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kernel, "MAX_BYTES", chunk * 300 * 2)
    monkeypatch.setattr(kernel, "CACHED_BYTES", 5 * 300 * 4)
    states, weight, targets, bias = random_states(300, torch.float32, biased=True)
    rounded = [x.bfloat16().double().requires_grad_() for x in (states, weight)]
    exact = [*rounded, bias.double().requires_grad_()]
    leaves = [x.requires_grad_() for x in (states, weight, bias)]
    how = {"label_smoothing": epsilon, "pad_id": 0}
    wanted = label_smoothed_loss(F.linear(*exact), targets, bias=exact[2], **how)
    with torch.autocast("cpu", torch.bfloat16):
        loss = FORMS[form](states, weight, targets, bias=bias, dtype=torch.bfloat16, **how)
    # The logits and their gradient have eight bits; sums are in float32.
    assert_same(loss, wanted, leaves, exact, rel=5e-3, rtol=0.05, atol=0.05)


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
