"""Attention, against the formula of the paper."""

import math

import pytest
import torch
from torch import Tensor

from mtkit.attention import local_attention


def softmax_of_the_visible(
    q: Tensor, k: Tensor, v: Tensor, *, window: int, causal: bool, lengths: list[int]
) -> Tensor:
    """Equation 1 of the paper, a query at a time, over the positions that it may see."""
    out = torch.zeros(*q.shape[:3], v.shape[-1], dtype=q.dtype)
    for b, length in enumerate(lengths):
        for t in range(length):
            seen = slice(max(0, t - window), min(length, t + 1 if causal else t + window + 1))
            for h in range(q.shape[1]):
                weights = (k[b, h, seen] @ q[b, h, t] / math.sqrt(q.shape[-1])).softmax(0)
                out[b, h, t] = weights @ v[b, h, seen]
    return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("window", "longest"),
    # One mask, then blocks of 32 that fill up or do not, then blocks as long as the window.
    [(3, 20), (1, 192), (5, 193), (32, 300), (40, 199)],
)
@pytest.mark.parametrize("by_products", [False, True])
def test_restricted_attention_equals_a_softmax_over_the_neighbours(
    window: int, longest: int, causal: bool, by_products: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtkit.attention.is_fused_attention_slow", lambda *_: by_products)
    generator = torch.Generator().manual_seed(1)

    def draw(width: int) -> Tensor:
        return torch.randn(2, 2, longest, width, generator=generator, dtype=torch.float64)

    q, k, v = draw(4), draw(4), draw(3)
    lengths = [longest, longest // 3]
    visible = (torch.arange(longest) < torch.tensor(lengths)[:, None])[:, None, None]
    result = local_attention(q, k, v, visible, window=window, causal=causal)
    wanted = softmax_of_the_visible(q, k, v, window=window, causal=causal, lengths=lengths)
    assert result.isfinite().all()
    for b, length in enumerate(lengths):
        assert torch.allclose(result[b, :, :length], wanted[b, :, :length], atol=1e-12)
