"""Attention on a CPU, against PyTorch's fused function."""

import pytest
import torch
import torch.nn.functional as F

from mtkit.attention import attention
from mtkit.kernels.cpu_attention import attend_by_products


@pytest.mark.parametrize("kind", ["all", "causal", "padding", "band", "padding and band"])
@pytest.mark.parametrize(
    ("T", "S", "K", "Kv"),
    [(7, 7, 4, 4), (1, 9, 3, 5), (5, 2, 8, 1), (20, 33, 4, 6), (16, 16, 2, 2)],
)
def test_attention_by_products_has_the_results_and_gradients_of_the_fused_one(kind, T, S, K, Kv):
    if kind == "causal":
        S = T
    draw = torch.Generator().manual_seed(1)
    q, k, v = (
        torch.randn(3, 2, length, width, generator=draw, dtype=torch.float64).requires_grad_()
        for length, width in ((T, K), (S, K), (S, Kv))
    )
    mask = None
    if kind == "padding":
        mask = (torch.arange(S) < torch.tensor([S, 1, S - 1])[:, None])[:, None, None]
    elif "band" in kind:
        mask = (torch.arange(T)[:, None] - torch.arange(S)).abs() < 2
        if "padding" in kind:
            mask = mask & (torch.arange(S) < torch.tensor([S, 1, S - 1])[:, None])[:, None, None]
        mask[..., 0] = True
    causal = kind == "causal"
    result = attend_by_products(q, k, v, mask=mask, causal=causal)
    wanted = attention(q, k, v, mask, causal=causal)
    assert torch.allclose(result, wanted, rtol=0, atol=1e-12)
    factor = torch.randn(wanted.shape, generator=draw, dtype=torch.float64)
    gradients = (torch.autograd.grad((y * factor).sum(), (q, k, v)) for y in (result, wanted))
    for mine, theirs in zip(*gradients, strict=True):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-10)


def test_dropout_of_attention_by_products_has_the_gradients_of_its_results() -> None:
    draw = torch.Generator().manual_seed(1)
    q, k, v = (
        torch.randn(2, 2, 5, 3, generator=draw, dtype=torch.float64).requires_grad_()
        for _ in range(3)
    )

    def attend(q, k, v):
        torch.manual_seed(7)
        return attend_by_products(q, k, v, causal=True, dropout=0.4)

    # gradcheck compares with finite differences.
    assert torch.autograd.gradcheck(attend, (q, k, v))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_of_attention_by_products_keeps_the_mean(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    q, k = torch.randn(1, 1, 4, 8, dtype=dtype), torch.randn(1, 1, 20, 8, dtype=dtype)
    v = torch.rand(1, 1, 20, 1, dtype=dtype)
    q, k, v = (x.expand(2000, -1, -1, -1) for x in (q, k, v))
    dropped = attend_by_products(q, k, v, dropout=0.3)
    wanted = attend_by_products(q[:1], k[:1], v[:1])
    assert not torch.allclose(dropped[0], dropped[1])
    # Five standard errors of the mean.
    error = 5 * dropped.float().std(0) / 2000**0.5
    assert ((dropped.float().mean(0) - wanted[0].float()).abs() < error).all()


def test_attention_by_products_in_bfloat16_is_as_exact_as_the_fused_one() -> None:
    draw = torch.Generator().manual_seed(1)
    exact = [torch.randn(4, 2, 20, 32, generator=draw, dtype=torch.float64) for _ in range(3)]
    rounded = [x.bfloat16().requires_grad_() for x in exact]
    wide = [x.detach().double().requires_grad_() for x in rounded]
    factor = torch.randn(4, 2, 20, 32, generator=draw).bfloat16()

    def results(out, x):
        return [out.detach(), *torch.autograd.grad((out * factor).sum(), x)]

    wanted = results(attention(*wide, causal=True), wide)
    ours = results(attend_by_products(*rounded, causal=True), rounded)
    # PyTorch's, whatever `attention` would choose.
    fused = results(F.scaled_dot_product_attention(*rounded, is_causal=True), rounded)
    for mine, other, exactly in zip(ours, fused, wanted, strict=True):
        assert (mine.double() - exactly).norm() <= 1.1 * (other.double() - exactly).norm()


@pytest.mark.parametrize(
    ("dtype", "backward", "precision", "keys", "wanted"),
    [
        (torch.bfloat16, True, "highest", 20, True),
        (torch.bfloat16, False, "highest", 20, False),
        (torch.bfloat16, True, "highest", 2000, False),
        (torch.float32, True, "highest", 20, False),
        (torch.float32, True, "medium", 20, True),
        (torch.float32, False, "medium", 20, True),
        (torch.float64, True, "medium", 20, False),
    ],
)
def test_attention_is_by_products_where_the_fused_one_is_slow(
    dtype, backward, precision, keys, wanted, monkeypatch
):
    calls = []
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    monkeypatch.setattr("mtkit.attention.attend_by_products", lambda *_, **__: calls.append(1))
    x = torch.zeros(1, 1, keys, 2, dtype=dtype, requires_grad=backward)
    attention(x, x, x)
    assert bool(calls) == wanted
