"""The Transformer, against PyTorch's own and against what must hold of any."""

import math

import pytest
import torch
import torch.nn.functional as F
from support.program import printed
from torch import Tensor, nn

from mtkit.base.errors import MtkitError
from mtkit.config import ModelConfig, load_config
from mtkit.model import Transformer, parameter_counts, sinusoidal_positions
from mtkit.translate.pytorch.incremental import Engine

PAD, BOS, EOS, V = 0, 1, 2, 23
SHAPE = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "d_ff": 32, "n_heads": 4}
SHAPE["dropout"] = 0.0
VARIANTS = [
    {},
    {"norm": "pre"},
    {"positions": "learned", "max_positions": 40},
    {"positions": "words"},
    {"positions": "none"},
    {"attention_window": 1},
    {"attention_window": 3, "norm": "pre"},
    {"d_k": 3, "d_v": 5},
    {"attention_scale": 2.0, "d_k": 3},
    {"narrow_attention": True, "attention_scale": 0.1, "attention_window": 3},
    {"n_heads": 1, "d_k": 16},
    {"activation": "silu", "output_bias": True, "norm_epsilon": 1e-3},
]


# Where the source has a vocabulary of its own.
V_SRC = 31


def build(*, src_vocab_size: int | None = None, **changes: object) -> Transformer:
    torch.manual_seed(1)
    config = ModelConfig.model_validate(SHAPE | changes)
    model = Transformer(config, V, PAD, src_vocab_size).eval()
    # Biases begin at zero, which would hide a bias in the wrong place.
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter, std=0.1)
    if config.positions == "words":
        src_ids, tgt_ids = torch.arange(src_vocab_size or V), torch.arange(V)
        model.set_word_tokens((src_ids % 2 == 0) | (src_ids == EOS), tgt_ids % 3 == 0)
    return model


def sentences(*lengths: int, seed: int = 0) -> Tensor:
    """Random sentences of these lengths, ended by EOS and padded."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in enumerate(lengths):
        ids[row, : length - 1] = torch.randint(3, V, (length - 1,), generator=generator)
        ids[row, length - 1] = EOS
    return ids


def shifted(tgt: Tensor) -> Tensor:
    return torch.cat((torch.full((len(tgt), 1), BOS), tgt[:, :-1]), dim=1)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("marian", [False, True])
def test_logits_equal_those_of_torch_nn_transformer(marian: bool) -> None:
    settings = {"activation": "silu", "output_bias": True, "norm_epsilon": 1e-5} if marian else {}
    ours = build(**settings)
    epsilon = 1e-5 if marian else 1e-6
    theirs = nn.Transformer(
        16, 4, 2, 2, 32, 0.0, layer_norm_eps=epsilon, batch_first=True, norm_first=False
    ).eval()
    if marian:
        for layer in (*theirs.encoder.layers, *theirs.decoder.layers):
            layer.activation, layer.activation_relu_or_gelu = F.silu, 0
    theirs.encoder.norm = theirs.decoder.norm = None
    with torch.no_grad():
        for mine, other in zip(ours.encoder, theirs.encoder.layers, strict=True):
            copy_attention(mine.self_attention, other.self_attn)
            copy_rest(mine, other, [other.norm1, other.norm2])
        for mine, other in zip(ours.decoder, theirs.decoder.layers, strict=True):
            copy_attention(mine.self_attention, other.self_attn)
            copy_attention(mine.cross_attention, other.multihead_attn)
            copy_rest(mine, other, [other.norm1, other.norm2, other.norm3])
    src, tgt_in = sentences(9, 5, 7), shifted(sentences(6, 8, 3, seed=1))
    embedding = ours.embedding.weight

    def embed(ids: Tensor) -> Tensor:
        table = torch.zeros(ids.shape[1], 16)
        for position in range(ids.shape[1]):
            for i in range(8):
                angle = position / 10000 ** (2 * i / 16)
                table[position, 2 * i] = math.sin(angle)
                table[position, 2 * i + 1] = math.cos(angle)
        return embedding[ids] * 4.0 + table

    # With gradients, because without them PyTorch takes a fused path that drops padded rows.
    out = theirs(
        embed(src),
        embed(tgt_in),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(8, dtype=torch.bool),
        src_key_padding_mask=src == PAD,
        memory_key_padding_mask=src == PAD,
    )
    expected = out @ embedding.T
    if ours.output_bias is not None:
        expected = expected + ours.output_bias
    assert (ours(src, tgt_in) - expected).abs().max() < 1e-9


def test_one_embedding_serves_two_tokenizers_only_if_their_sizes_are_equal() -> None:
    single, two = build(shared_embedding=True, src_vocab_size=V), build(src_vocab_size=V)
    assert single.src_embedding is None
    assert single.src_vocab_size is None
    assert two.src_embedding is not None
    with pytest.raises(MtkitError, match=r"^model.shared_embedding: the source has 31 subwords"):
        build(shared_embedding=True, src_vocab_size=V_SRC)


def copy_attention(mine: nn.Module, other: nn.MultiheadAttention) -> None:
    parts = [mine.q_proj, mine.kv_proj] if hasattr(mine, "q_proj") else [mine.in_proj]
    other.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
    other.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    other.out_proj.weight.copy_(mine.out_proj.weight)
    other.out_proj.bias.copy_(mine.out_proj.bias)


def copy_rest(mine: nn.Module, other: nn.Module, norms: list[nn.LayerNorm]) -> None:
    for residual, norm in zip(mine.residuals, norms, strict=True):
        norm.load_state_dict(residual.norm.state_dict())
    other.linear1.load_state_dict(mine.feed_forward.inner.state_dict())
    other.linear2.load_state_dict(mine.feed_forward.outer.state_dict())


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("variant", VARIANTS)
def test_stepping_with_the_cache_equals_the_full_forward_pass(variant: dict[str, object]) -> None:
    model = build(**variant)
    src = sentences(9, 4, 6, 1)
    W = 3
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        engine = Engine(model)
        cache = engine.start(src, W)
        tokens = torch.full((4, W), BOS)
        prefixes = tokens.unsqueeze(-1)
        # Any hypotheses may be dead, and then are again the start of live ones.
        alive = torch.ones(4, W, dtype=torch.bool)
        for step in range(25):
            slots = alive.flatten().nonzero().squeeze(1)
            log_probs = engine.step(tokens.flatten()[slots], slots, cache)
            for row, slot in enumerate(slots.tolist()):
                b, w = divmod(slot, W)
                full = model(src[b : b + 1], prefixes[b : b + 1, w])[0, -1].log_softmax(-1)
                assert (log_probs[row] - full).abs().max() < 1e-9
            # Hypotheses change places, and at one point a sentence leaves the batch.
            parents = torch.randint(0, W, (len(src), W), generator=generator)
            first = alive.int().argmax(1, keepdim=True).expand(-1, W)
            parents = torch.where(alive.gather(1, parents), parents, first)
            cache.reorder(parents)
            prefixes = prefixes.gather(1, parents.unsqueeze(-1).expand_as(prefixes))
            if step == 8:
                rows = torch.tensor([2, 0])
                cache.select(rows)
                src, prefixes = src[rows], prefixes[rows]
            alive = torch.rand(len(src), W, generator=generator) < 0.7
            alive[:, step % W] = True
            tokens = torch.randint(3, V, (len(src), W), generator=generator)
            prefixes = torch.cat((prefixes, tokens.unsqueeze(-1)), dim=-1)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_does_not_change_the_logits(variant: dict[str, object]) -> None:
    model = build(**variant)
    src, tgt_in = sentences(9, 5), shifted(sentences(8, 4, seed=1))
    with torch.no_grad():
        together = model(src, tgt_in)
        alone = model(src[1:, :5], tgt_in[1:, :4])
    assert (together[1:, :4] - alone).abs().max() < 1e-12


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_later_target_token_does_not_change_an_earlier_prediction(variant):
    model = build(**variant)
    src, tgt_in = sentences(6), shifted(sentences(8, seed=1))
    changed = tgt_in.clone()
    changed[0, 5] = 3 if tgt_in[0, 5] != 3 else 4
    with torch.no_grad():
        before, after = model(src, tgt_in), model(src, changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])


@pytest.mark.usefixtures("in_float64")
def test_an_encoder_without_positions_permutes_with_its_input() -> None:
    src = sentences(9, 9)
    order = torch.tensor([4, 0, 8, 2, 6, 1, 3, 7, 5])
    for positions, permutes in (("none", True), ("sinusoidal", False), ("learned", False)):
        model = build(positions=positions)
        with torch.no_grad():
            difference = model.encode(src[:, order]).states - model.encode(src).states[:, order]
        assert (difference.abs().max() < 1e-12) == permutes, positions


@pytest.mark.usefixtures("in_float64")
def test_a_head_of_narrow_attention_sees_its_block_and_the_scale_is_that_of_the_scores() -> None:
    attention = build(narrow_attention=True, attention_scale=0.7).encoder[0].self_attention
    x = torch.randn(2, 5, 16)
    heads = []
    for h, block in enumerate(x.split(4, dim=-1)):
        # Rows are ordered by queries, keys and values, then by head.
        rows = [slice(16 * part + 4 * h, 16 * part + 4 * h + 4) for part in range(3)]
        weight, bias = attention.in_proj.weight, attention.in_proj.bias
        q, k, v = (block @ weight[part].T + bias[part] for part in rows)
        heads.append((0.7 * q @ k.transpose(1, 2)).softmax(-1) @ v)
    expected = attention.out_proj(torch.cat(heads, dim=-1))
    assert (attention(x) - expected).abs().max() < 1e-12


def test_narrow_attention_under_autocast_has_the_type_of_a_linear_layer() -> None:
    attention = build(narrow_attention=True).encoder[0].self_attention
    x = torch.randn(2, 5, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        projected = attention.in_proj(x)
        assert projected.dtype == attention.out_proj(x).dtype == torch.bfloat16
    # bfloat16 has 8 significant bits.
    torch.testing.assert_close(projected.float(), attention.in_proj(x), rtol=2e-2, atol=2e-2)


@pytest.mark.usefixtures("in_float64")
def test_restricted_attention_trains_in_blocks_as_it_does_in_one_mask(monkeypatch):
    gradients = []
    for smallest in (4, 1000):
        monkeypatch.setattr("mtkit.attention.SMALLEST_BLOCK", smallest)
        model = build(attention_window=3)
        src, tgt_in = sentences(41, 30), shifted(sentences(37, 50, seed=1))
        model(src, tgt_in)[tgt_in != PAD].logsumexp(-1).sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for blocks, mask in zip(*gradients, strict=True):
        assert torch.allclose(blocks, mask, atol=1e-10)


def test_a_window_as_long_as_the_sequence_is_full_attention_to_the_last_bit() -> None:
    src, tgt_in = sentences(150, 7), shifted(sentences(150, 9, seed=1))
    full, restricted = build(), build(attention_window=149)
    with torch.no_grad():
        assert torch.equal(full(src, tgt_in), restricted(src, tgt_in))


@pytest.mark.parametrize(
    ("preset", "millions", "body"), [("base", 63.1, 44.14), ("big", 214.3, 176.36)]
)
def test_the_presets_have_the_parameters_of_the_paper(preset, millions, body):
    with torch.device("meta"):
        counts = parameter_counts(Transformer(load_config(preset).model, 37_000, PAD))
    assert sum(counts.values()) / 1e6 == pytest.approx(millions, abs=0.06)
    assert (counts["encoder"] + counts["decoder"]) / 1e6 == pytest.approx(body, abs=0.01)
    assert counts["embedding"] == 37_000 * load_config(preset).model.d_model


def test_position_encodings_equal_values_worked_by_hand() -> None:
    table = sinusoidal_positions(3, 4)
    # 10000^(0/4) = 1 and 10000^(2/4) = 100, sine and cosine taking turns.
    expected = [
        [0.0, 1.0, 0.0, 1.0],
        [0.8414709848, 0.5403023059, 0.0099998333, 0.9999500004],
        [0.9092974268, -0.4161468365, 0.0199986667, 0.9998000067],
    ]
    assert torch.allclose(table, torch.tensor(expected, dtype=torch.float64), atol=1e-10)


def test_positions_of_words_are_half_the_token_and_half_the_word_that_is_read() -> None:
    model = build(positions="words")
    halves = sinusoidal_positions(9, 8).float()

    def encoded(tokens: list[int], words: list[int]) -> Tensor:
        rows = [torch.cat((halves[t], halves[w])) for t, w in zip(tokens, words, strict=True)]
        return torch.stack(rows)

    # Even ids begin a word of the source, and so does EOS, which is 2; 5 goes on with a word.
    src = torch.tensor([[4, 5, 8, EOS], [5, EOS, PAD, PAD]])
    x = model.embed_src(src) - 4 * model.embedding(src)
    torch.testing.assert_close(x[0], encoded([0, 1, 2, 3], [0, 0, 1, 2]))
    torch.testing.assert_close(x[1, :2], encoded([0, 1], [0, 0]))
    # Multiples of 3 read a word of the source: after two of them the third word is next.
    tgt_in = torch.tensor([[BOS, 4, 3, 6, 5]])
    x = model.embed_tgt(tgt_in) - 4 * model.embedding(tgt_in)
    torch.testing.assert_close(x[0], encoded([0, 1, 2, 3, 4], [0, 0, 1, 2, 2]))


def test_initial_values_are_glorot_over_the_matrices_of_the_papers_code() -> None:
    torch.manual_seed(0)
    D = 64
    shape = SHAPE | {"d_model": D, "d_ff": 256}
    model = Transformer(ModelConfig.model_validate(shape), 4000, PAD)

    def holds(weight: Tensor, fan_in: int, fan_out: int) -> None:
        bound = math.sqrt(6 / (fan_in + fan_out))
        assert weight.abs().max() <= bound
        assert weight.abs().max() > 0.98 * bound
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)

    layer = model.decoder[0]
    narrow = Transformer(ModelConfig.model_validate(shape | {"narrow_attention": True}), 9, PAD)
    H = model.config.n_heads
    holds(narrow.encoder[0].self_attention.in_proj.weight, D // H, 3 * D // H)
    holds(layer.self_attention.in_proj.weight, D, 3 * D)
    holds(layer.cross_attention.q_proj.weight, D, D)
    holds(layer.cross_attention.kv_proj.weight, D, 2 * D)
    holds(layer.self_attention.out_proj.weight, D, D)
    holds(layer.feed_forward.inner.weight, D, 256)
    holds(layer.feed_forward.outer.weight, 256, D)
    assert model.embedding.weight[1:].std().item() == pytest.approx(D**-0.5, rel=0.02)
    assert not model.embedding.weight[PAD].any()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name


def test_an_embedding_of_the_source_begins_as_the_shared_one_does() -> None:
    torch.manual_seed(0)
    model = Transformer(ModelConfig.model_validate(SHAPE | {"d_model": 64}), V, PAD, 4000)
    weight = model.src_embedding.weight
    assert weight[1:].std().item() == pytest.approx(64**-0.5, rel=0.02)
    assert not weight[PAD].any()


def test_the_encoder_alone_reads_the_embedding_of_the_source() -> None:
    model = build(src_vocab_size=V_SRC)
    sizes = [p.shape[0] for n, p in model.named_parameters() if "embedding" in n]
    assert sorted(sizes) == [V, V_SRC]
    # An id that the target does not have.
    src, tgt_in = torch.tensor([[V_SRC - 1, EOS]]), torch.tensor([[BOS, 4]])
    before, memory = model(src, tgt_in), model.encode(src).states
    assert before.shape == (1, 2, V)
    with torch.no_grad():
        model.embedding.weight[4:] += 1.0
        assert torch.equal(model.encode(src).states, memory)
        model.embedding.weight[4:] -= 1.0
        model.src_embedding.weight[V_SRC - 1] += 1.0
        assert not torch.allclose(model.encode(src).states, memory)
    # Rows of the source that it does not have make no difference.
    with torch.no_grad():
        model.src_embedding.weight[V_SRC - 1] -= 1.0
        model.src_embedding.weight[4:20] += 1.0
    torch.testing.assert_close(model(src, tgt_in), before)


@pytest.mark.parametrize("changes", VARIANTS)
def test_two_matrices_with_the_same_rows_do_what_one_does(changes: dict[str, object]) -> None:
    joint, model = build(**changes), build(src_vocab_size=V, **changes)
    weights = joint.state_dict()
    model.load_state_dict(weights | {"src_embedding.weight": weights["embedding.weight"]})
    src, tgt_in = sentences(5, 9, 3), shifted(sentences(7, 4, 6, seed=1))
    assert torch.equal(joint(src, tgt_in), model(src, tgt_in))


def test_one_matrix_is_source_embedding_target_embedding_and_output_layer() -> None:
    model = build()
    assert [p.shape for p in model.parameters() if V in p.shape] == [(V, 16)]
    src, tgt_in = torch.tensor([[3, EOS]]), torch.tensor([[BOS, 4]])
    before = model(src, tgt_in)
    with torch.no_grad():
        model.embedding.weight[3] += 1.0
    # The source token changes the states and so every logit; the output row changes its own.
    assert not torch.allclose(before[..., 5], model(src, tgt_in)[..., 5])
    with torch.no_grad():
        model.embedding.weight[3] -= 1.0
        model.embedding.weight[4] += 1.0
    after = model(src, tgt_in)
    assert torch.allclose(before[0, 0, 5], after[0, 0, 5])
    assert not torch.allclose(before[0, 1, 5], after[0, 1, 5])
    assert not torch.allclose(before[0, 0, 4], after[0, 0, 4])


def test_learned_positions_have_an_end_and_say_so() -> None:
    model = build(positions="learned", max_positions=6)
    with pytest.raises(MtkitError, match=r"model\.max_positions"):
        model(sentences(7), shifted(sentences(3)))


def test_dropout_acts_in_training_only() -> None:
    model = build(dropout=0.5, attention_dropout=0.5, activation_dropout=0.5)
    src, tgt_in = sentences(6), shifted(sentences(6, seed=1))
    assert torch.equal(model(src, tgt_in), model(src, tgt_in))
    model.train()
    assert not torch.equal(model(src, tgt_in), model(src, tgt_in))


def test_a_model_whose_weights_come_from_a_run_costs_no_import() -> None:
    # PyTorch imports SymPy and eight hundred modules more to draw a normal number that is none.
    program = """
import sys, torch
from mtkit.config import ModelConfig
from mtkit.model import Transformer
with torch.device("meta"):
    Transformer(ModelConfig(), 100, 0)
assert "sympy" not in sys.modules
"""
    printed("-c", program)
