"""Hold mtkit to implementations that no one here wrote, on the same weights.

    pip install -e '.[bench]'
    python benchmarks/agreement.py [--run RUN --input SRC.txt] [--sentences 1000]

Logits in float64 against `torch.nn.Transformer` and against Hugging Face's `MarianMTModel`: the
largest difference is at most 1e-8. With `--run`, greedy translations of the sentences of SRC
against CTranslate2 built from the same weights; where one differs, both are scored in float64,
to see which of them the model likes better. Prints a table, and exits with 1 if a bound is broken.

Each comparison has a conversion of its own: `to_torch`, `to_marian`, `to_ctranslate2`.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import mtkit
from mtkit.config import ModelConfig
from mtkit.data import read_lines
from mtkit.model import (
    LAYER_NORM_EPSILON,
    Attention,
    CrossAttention,
    Transformer,
    sinusoidal_positions,
)
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer
from mtkit.translate import Translator

# Largest difference of two logits in float64.
LOGITS_BOUND = 1e-8
LONGEST = 1024


@dataclass(frozen=True)
class Comparison:
    """One row of the table."""

    what: str
    against: str
    data: str
    result: str
    holds: bool


def joined(attention: Attention, kind: str) -> Tensor:
    """The weights or biases of queries, keys and values, one below the other."""
    if isinstance(attention, CrossAttention):
        return torch.cat([getattr(p, kind) for p in (attention.q_proj, attention.kv_proj)])
    whole: Tensor = getattr(attention.in_proj, kind)
    return whole


def projections(attention: Attention, prefix: str) -> dict[str, Tensor]:
    """Queries, keys, values and output of an attention as matrices of their own."""
    width = attention.q_width
    parts = {}
    for kind in ("weight", "bias"):
        q, k, v = joined(attention, kind).tensor_split((width, 2 * width))
        named = {"q_proj": q, "k_proj": k, "v_proj": v}
        named["out_proj"] = getattr(attention.out_proj, kind)
        parts |= {f"{prefix}.{name}.{kind}": tensor for name, tensor in named.items()}
    return parts


def to_torch(model: Transformer) -> nn.Transformer:
    """`torch.nn.Transformer` with the weights of a post-norm model; embeddings are outside."""
    config = model.config
    theirs = nn.Transformer(
        config.d_model,
        config.n_heads,
        config.encoder_layers,
        config.decoder_layers,
        config.d_ff,
        0.0,
        layer_norm_eps=LAYER_NORM_EPSILON,
        batch_first=True,
        dtype=torch.float64,
    )
    # It ends post-norm stacks in one more norm, which the paper does not have.
    theirs.encoder.norm = theirs.decoder.norm = None
    # A prototype in PyTorch, with a warning.
    theirs.encoder.enable_nested_tensor = False
    state = {}
    for stack, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        for i, layer in enumerate(layers):
            at = f"{stack}.layers.{i}"
            names = {"self_attn": layer.self_attention}
            if stack == "decoder":
                names["multihead_attn"] = layer.cross_attention
            for name, attention in names.items():
                for kind in ("weight", "bias"):
                    state[f"{at}.{name}.in_proj_{kind}"] = joined(attention, kind)
                    state[f"{at}.{name}.out_proj.{kind}"] = getattr(attention.out_proj, kind)
            modules = {"linear1": layer.feed_forward.inner, "linear2": layer.feed_forward.outer}
            modules |= {f"norm{n}": r.norm for n, r in enumerate(layer.residuals, 1)}
            state |= _parameters(modules, at)
    theirs.load_state_dict(state)
    return theirs.eval()


def torch_logits(model: Transformer, src: Tensor, tgt_in: Tensor) -> Tensor:
    """Logits (B, T, V) by `torch.nn.Transformer`, with the embeddings as the paper has them."""

    def embed(ids: Tensor) -> Tensor:
        positions = sinusoidal_positions(ids.shape[1], model.config.d_model)
        return model.embedding.weight[ids] * model.config.d_model**0.5 + positions

    hidden = src == PAD_ID
    out = to_torch(model)(
        embed(src),
        embed(tgt_in),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(
            tgt_in.shape[1], dtype=torch.float64
        ),
        src_key_padding_mask=hidden.double().masked_fill(hidden, -torch.inf),
        memory_key_padding_mask=hidden.double().masked_fill(hidden, -torch.inf),
    )
    return out @ model.embedding.weight.T


def to_marian(model: Transformer) -> nn.Module:
    """Hugging Face's `MarianMTModel` with the weights of a post-norm model, in its precision."""
    from transformers import MarianConfig, MarianMTModel

    config, weights = model.config, model.embedding.weight
    theirs = MarianMTModel(
        MarianConfig(
            vocab_size=model.vocab_size,
            d_model=config.d_model,
            encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers,
            encoder_attention_heads=config.n_heads,
            decoder_attention_heads=config.n_heads,
            encoder_ffn_dim=config.d_ff,
            decoder_ffn_dim=config.d_ff,
            activation_function="relu",
            scale_embedding=True,
            share_encoder_decoder_embeddings=True,
            max_position_embeddings=LONGEST,
            pad_token_id=PAD_ID,
            bos_token_id=BOS_ID,
            eos_token_id=EOS_ID,
            decoder_start_token_id=BOS_ID,
        )
    ).to(weights.dtype)
    positions = sinusoidal_positions(LONGEST, config.d_model)
    state = {
        "final_logits_bias": torch.zeros(1, model.vocab_size),
        "lm_head.weight": weights,
        "model.shared.weight": weights,
    }
    for stack, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        state[f"model.{stack}.embed_tokens.weight"] = weights
        # Its own are in halves, sines and then cosines.
        state[f"model.{stack}.embed_positions.weight"] = positions
        for i, layer in enumerate(layers):
            at = f"model.{stack}.layers.{i}"
            state |= projections(layer.self_attention, f"{at}.self_attn")
            norms = ["self_attn_layer_norm", "final_layer_norm"]
            if stack == "decoder":
                state |= projections(layer.cross_attention, f"{at}.encoder_attn")
                norms.insert(1, "encoder_attn_layer_norm")
            modules = {"fc1": layer.feed_forward.inner, "fc2": layer.feed_forward.outer}
            modules |= {n: r.norm for n, r in zip(norms, layer.residuals, strict=True)}
            state |= _parameters(modules, at)
    theirs.load_state_dict(state)
    for module in theirs.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = LAYER_NORM_EPSILON
    return theirs.eval()


def to_ctranslate2(model: Transformer, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the model for CTranslate2, by its own specification classes, in float32."""
    import ctranslate2
    from ctranslate2.specs.transformer_spec import TransformerSpec

    config = model.config
    spec = TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.n_heads,
        pre_norm=config.norm == "pre",
        activation=ctranslate2.specs.Activation.RELU,
    )

    def array(tensor: Tensor) -> Any:
        return tensor.detach().float().contiguous().numpy()

    def linear(target: Any, weight: Tensor, bias: Tensor) -> None:
        target.weight, target.bias = array(weight), array(bias)

    def norm(target: Any, source: nn.LayerNorm) -> None:
        target.gamma, target.beta = array(source.weight), array(source.bias)

    embedding = array(model.embedding.weight)
    if config.positions == "learned":
        positions = array(model.learned_positions)
    else:
        positions = array(sinusoidal_positions(LONGEST, config.d_model))
    for target in (spec.encoder, spec.decoder):
        target.scale_embeddings = True
        target.position_encodings.encodings = positions
    spec.encoder.embeddings[0].weight = embedding
    spec.decoder.embeddings.weight = embedding
    spec.decoder.projection.weight = embedding
    if config.norm == "pre":
        norm(spec.encoder.layer_norm, model.encoder_norm)
        norm(spec.decoder.layer_norm, model.decoder_norm)

    def feed_forward(target: Any, layer: Any, residual: Any) -> None:
        inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
        linear(target.linear_0, inner.weight, inner.bias)
        linear(target.linear_1, outer.weight, outer.bias)
        norm(target.layer_norm, residual.norm)

    def self_attention(target: Any, layer: Any) -> None:
        attention = layer.self_attention
        linear(target.linear[0], attention.in_proj.weight, attention.in_proj.bias)
        linear(target.linear[1], attention.out_proj.weight, attention.out_proj.bias)
        norm(target.layer_norm, layer.residuals[0].norm)

    for target, layer in zip(spec.encoder.layer, model.encoder, strict=True):
        self_attention(target.self_attention, layer)
        feed_forward(target.ffn, layer, layer.residuals[1])
    for target, layer in zip(spec.decoder.layer, model.decoder, strict=True):
        self_attention(target.self_attention, layer)
        cross = layer.cross_attention
        parts = (cross.q_proj, cross.kv_proj, cross.out_proj)
        for into, part in zip(target.attention.linear, parts, strict=True):
            linear(into, part.weight, part.bias)
        norm(target.attention.layer_norm, layer.residuals[1].norm)
        feed_forward(target.ffn, layer, layer.residuals[2])

    pieces = [tokenizer.piece(i) for i in range(len(tokenizer))]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.bos_token = spec.config.decoder_start_token = tokenizer.piece(BOS_ID)
    spec.config.eos_token, spec.config.unk_token = tokenizer.piece(EOS_ID), tokenizer.piece(UNK_ID)
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = LAYER_NORM_EPSILON
    spec.validate()
    spec.optimize(quantization=None)
    folder.mkdir(exist_ok=True)
    spec.save(str(folder))


def compare_logits(model: Transformer, src: Tensor, tgt_in: Tensor, data: str) -> list[Comparison]:
    """Logits of a float64 model where there is no padding, against both implementations."""
    import transformers

    real = tgt_in != PAD_ID
    with torch.no_grad():
        ours = model(src, tgt_in)[real]
        theirs = {
            f"torch.nn.Transformer {torch.__version__}": torch_logits(model, src, tgt_in),
            f"MarianMTModel, transformers {transformers.__version__}": to_marian(model)(
                input_ids=src, attention_mask=(src != PAD_ID).long(), decoder_input_ids=tgt_in
            ).logits,
        }
    rows = []
    for name, logits in theirs.items():
        difference = float((ours - logits[real]).abs().max())
        result = f"largest difference {difference:.1e}"
        rows.append(Comparison("logits", name, data, result, difference <= LOGITS_BOUND))
    return rows


@dataclass(frozen=True)
class Difference:
    """Two translations of a sentence with their log-probabilities in float64."""

    source: str
    ours: str
    theirs: str
    our_log_prob: float
    their_log_prob: float


def compare_translations(
    translator: Translator, lines: list[str], *, beam_size: int
) -> tuple[Comparison, list[Difference]]:
    """Translations by mtkit and by CTranslate2, both in float32.

    With a beam both rank by log-probability alone, because their length penalties differ; and
    because they end their searches by different rules, only greedy search has a bound.

    Returns:
        The row of the table, and what differs.
    """
    import ctranslate2

    changes = {"beam_size": beam_size, "length_penalty": 0.0}
    config = translator.config.model_copy(update=changes)
    ours = Translator(translator.model, translator.tokenizer, config, device=translator.device)
    mine = list(ours.translate(lines))
    theirs = translate_by_ctranslate2(ours, lines)
    exact = Translator(real_case(ours, lines[:1])[0], ours.tokenizer, config, device=ours.device)
    different = []
    for source, one, other in zip(lines, mine, theirs, strict=True):
        if one != other:
            scores = [scored.log_prob for scored in exact.score_given([source] * 2, [one, other])]
            different.append(Difference(source, one, other, *scores))
    result = f"{len(lines) - len(different):,} equal"
    if different and beam_size > 1:
        better = sum(d.our_log_prob > d.their_log_prob for d in different)
        result += f"; mtkit's the more probable in {better:,} of the other {len(different):,}"
    row = Comparison(
        "greedy translations" if beam_size == 1 else f"translations with beam {beam_size}, alpha 0",
        f"CTranslate2 {ctranslate2.__version__}",
        f"{len(lines):,} sentences",
        result,
        beam_size > 1 or not different,
    )
    return row, different


def translate_by_ctranslate2(translator: Translator, lines: list[str]) -> list[str]:
    """Translations by CTranslate2, with the model, beam and limits of `translator`."""
    import ctranslate2

    tokenizer, config = translator.tokenizer, translator.config
    pieces = [tokenizer.piece(i) for i in range(len(tokenizer))]
    ids = {piece: i for i, piece in enumerate(pieces)}
    sources = [tokenizer.encode(line) for line in lines]
    translations = [""] * len(lines)
    with tempfile.TemporaryDirectory() as folder:
        to_ctranslate2(translator.model, tokenizer, Path(folder) / "model")
        engine = ctranslate2.Translator(str(Path(folder) / "model"), compute_type="float32")
        # Its limit is that of a call, so sentences of one length go together.
        for length in sorted(set(map(len, sources))):
            rows = [row for row, source in enumerate(sources) if len(source) == length]
            found = engine.translate_batch(
                [[pieces[i] for i in sources[row]] for row in rows],
                beam_size=config.beam_size,
                length_penalty=config.length_penalty,
                max_decoding_length=length + 1 + config.max_extra_length,
                # Its default of 1 forbids the empty translation.
                min_decoding_length=0,
                max_batch_size=32,
            )
            for row, one in zip(rows, found, strict=True):
                translations[row] = tokenizer.decode([ids[piece] for piece in one.hypotheses[0]])
    return translations


def random_case() -> tuple[Transformer, Tensor, Tensor]:
    """A small random model in float64, and two sentences of different length on either side."""
    torch.manual_seed(1)
    shape = ModelConfig(encoder_layers=2, decoder_layers=3, d_model=32, d_ff=64, n_heads=4)
    model = Transformer(shape, 50, PAD_ID).double().eval()
    for name, parameter in model.named_parameters():
        # Biases begin at zero, which would hide a bias in the wrong place.
        if name.endswith("bias"):
            nn.init.normal_(parameter, std=0.1)
    src, tgt_in = torch.randint(4, 50, (2, 9)), torch.randint(4, 50, (2, 7))
    src[0, 6:], tgt_in[1, 5:] = PAD_ID, PAD_ID
    return model, src, tgt_in


def real_case(translator: Translator, lines: list[str]) -> tuple[Transformer, Tensor, Tensor]:
    """A run's model in float64, with the first sentences and its own translations of them."""
    model = Transformer(translator.model.config, translator.model.vocab_size, PAD_ID)
    model.load_state_dict(translator.model.state_dict())
    encode = translator.tokenizer.encode
    sides = (
        [[*encode(line), EOS_ID] for line in lines],
        [[BOS_ID, *encode(line)] for line in translator.translate(lines)],
    )
    src, tgt_in = (
        nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in side], True, PAD_ID)
        for side in sides
    )
    return model.double().eval(), src, tgt_in


def _parameters(modules: dict[str, nn.Module], prefix: str) -> dict[str, Tensor]:
    return {
        f"{prefix}.{name}.{kind}": getattr(module, kind)
        for name, module in modules.items()
        for kind in ("weight", "bias")
    }


def main() -> int:
    """Compare, print a table, and return 1 if a bound is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--run", type=Path, help="run folder of a model as the paper has it")
    parser.add_argument("--input", type=Path, help="source text to translate with it")
    parser.add_argument("--sentences", type=int, default=1000)
    arguments = parser.parse_args()
    if (arguments.run is None) != (arguments.input is None):
        parser.error("--run and --input go together")
    rows = compare_logits(*random_case(), "small random weights, padding")
    different: dict[str, list[Difference]] = {}
    if arguments.run:
        translator = Translator.load(arguments.run, device="cpu")
        lines = list(itertools.islice(read_lines(arguments.input), arguments.sentences))
        size = sum(p.numel() for p in translator.model.parameters()) / 1e6
        named = f"{size:.1f} M trained weights, 32 sentences"
        rows += compare_logits(*real_case(translator, lines[:32]), named)
        for beam_size in (1, translator.config.beam_size):
            row, different[row.what] = compare_translations(translator, lines, beam_size=beam_size)
            rows.append(row)
    print(
        f"mtkit {mtkit.__version__}, torch {torch.__version__}, "
        f"Python {platform.python_version()}\n"
    )
    print("| what | against | on | result | |")
    print("|---|---|---|---|---|")
    for row in rows:
        verdict = "holds" if row.holds else "BROKEN"
        print(f"| {row.what} | {row.against} | {row.data} | {row.result} | {verdict} |")
    for what, found in different.items():
        for d in found[:3]:
            print(f"\n{what}: {d.source}\n  mtkit {d.our_log_prob:.4f}: {d.ours}")
            print(f"  other {d.their_log_prob:.4f}: {d.theirs}")
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
