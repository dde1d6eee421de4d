"""Attention weights of given pairs."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from mtkit.align.attention_weights import weights_of_pairs
from mtkit.config import ModelConfig
from mtkit.model import Transformer

PAD = 0


SHAPES: list[dict[str, Any]] = [
    {},
    {"norm": "pre"},
    {"positions": "learned", "max_positions": 32},
    {"attention_window": 2},
    {"d_k": 3, "d_v": 5},
    {"n_heads": 1},
    {"attention_scale": 3.0},
    {"narrow_attention": True},
    {"norm": "pre", "attention_window": 1, "d_k": 6},
]


def random_model(**shape: Any) -> Transformer:
    """A model of one layer in each stack, with weights of a seed."""
    torch.manual_seed(1)
    small = {"d_model": 12, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "d_ff": 8}
    return Transformer(ModelConfig(**(small | shape)), 30, PAD).eval()


def plain_weights(q: Tensor, k: Tensor, sees: Any) -> Tensor:
    """Softmax of q·k/√d_k over the keys that a query sees, a number at a time."""
    heads, queries, width = q.shape
    weights = torch.zeros(heads, queries, k.shape[1])
    for h in range(heads):
        for t in range(queries):
            seen = [s for s in range(k.shape[1]) if sees(t, s)]
            scores = [
                math.exp(sum(q[h, t, i] * k[h, s, i] for i in range(width)) / math.sqrt(width))
                for s in seen
            ]
            for s, score in zip(seen, scores, strict=True):
                weights[h, t, s] = score / sum(scores)
    return weights


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention_weights_are_those_of_the_formula(shape: dict[str, Any]):
    model = random_model(**{"encoder_layers": 2, "decoder_layers": 2, **shape})
    lengths, target_lengths = (7, 4), (5, 6)
    src, tgt_in = torch.zeros(2, 7, dtype=torch.int64), torch.zeros(2, 6, dtype=torch.int64)
    for row in range(2):
        src[row, : lengths[row]] = torch.randint(4, 30, (lengths[row],))
        tgt_in[row, : target_lengths[row]] = torch.randint(4, 30, (target_lengths[row],))
    projected: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for name in ("encoder", "decoder"):
        for layer in getattr(model, name):
            own = layer.self_attention
            keep = projected.setdefault(name, [])
            own.register_forward_pre_hook(
                lambda module, args, kwargs, keep=keep: keep.append(module.project(args[0])[:2]),
                with_kwargs=True,
            )
    for layer in model.decoder_layers():
        keep = projected.setdefault("cross", [])
        layer.cross_attention.register_forward_pre_hook(
            lambda module, args, kwargs, keep=keep: keep.append(
                (module.queries(module.q_proj(args[0])), args[1][0])
            ),
            with_kwargs=True,
        )
    layers = range(2)
    weights = weights_of_pairs(model, src, tgt_in, encoder=layers, decoder=layers, cross=layers)
    window = model.config.attention_window or 100
    rules = {
        "encoder": (lengths, lengths, lambda t, s: abs(t - s) <= window),
        "decoder": (target_lengths, target_lengths, lambda t, s: 0 <= t - s <= window),
        "cross": (target_lengths, lengths, lambda t, s: True),
    }
    for name, (queries, keys, sees) in rules.items():
        of_stack = getattr(weights, name)
        assert sorted(of_stack) == [0, 1]
        for layer in layers:
            q, k = projected[name][layer]
            for row in range(2):
                T, S = queries[row], keys[row]
                of_row = of_stack[layer].weights[row, :, :T]
                expected = plain_weights(q[row, :, :T], k[row, :, :S], sees)
                assert torch.allclose(of_row[..., :S], expected, rtol=0, atol=1e-10)
                assert (of_row[..., S:] == 0).all()
                assert torch.allclose(of_row.sum(-1), torch.ones(()), rtol=0, atol=1e-12)


def test_only_the_wanted_layers_are_returned_and_the_model_is_left_as_it_was():
    model = random_model(encoder_layers=3, decoder_layers=3)
    src, tgt_in = torch.randint(4, 30, (2, 5)), torch.randint(4, 30, (2, 4))
    before = model(src, tgt_in)
    weights = weights_of_pairs(model, src, tgt_in, encoder=[2], cross=[0, 1])
    assert (set(weights.encoder), set(weights.decoder), set(weights.cross)) == ({2}, set(), {0, 1})
    assert weights.encoder[2].weights.shape == (2, 2, 5, 5)
    assert weights.cross[0].weights.shape == (2, 2, 4, 5)
    assert torch.equal(model(src, tgt_in), before)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_size_of_a_head_is_the_norm_of_what_it_adds(shape: dict[str, Any]):
    model = random_model(**shape)
    src, tgt_in = torch.randint(4, 30, (1, 5)), torch.randint(4, 30, (1, 4))
    sizes = weights_of_pairs(model, src, tgt_in, cross=[0], sizes=True).cross[0].sizes
    attention = model.decoder_layers()[0].cross_attention
    added: list[Tensor] = []
    attention.register_forward_hook(lambda module, args, out: added.append(out[0]))
    heads = attention.n_heads
    width = attention.out_proj.weight.shape[1] // heads
    for head in range(heads):
        # Without the columns of a head in the output matrix, its part is missing.
        kept = attention.out_proj.weight.detach().clone()
        model(src, tgt_in)
        with torch.no_grad():
            attention.out_proj.weight[:, head * width : (head + 1) * width] = 0
            model(src, tgt_in)
            attention.out_proj.weight.copy_(kept)
        whole, rest = added[-2:]
        assert torch.allclose((whole - rest).norm(dim=-1), sizes[0, head], rtol=0, atol=1e-10)
