"""Hold mtkit to implementations that no one here wrote, on the same weights.

    pip install -e '.[bench]'
    python benchmarks/agreement.py [--run RUN --input SRC.txt] [--sentences 1000]

Logits in float64 against `torch.nn.Transformer` and against Hugging Face's `MarianMTModel`: the
largest difference is at most 1e-8. With `--run`, greedy translations of the sentences of SRC
against CTranslate2 built from the same weights; where one differs, both are scored in float64,
to see which of them the model likes better. Prints a table, and exits with 1 if a bound is broken.

The conversions are `to_torch` and those of `mtkit export`.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from common import markdown, versions
from torch import Tensor, nn

from mtkit.base.text import read_lines
from mtkit.config import ModelConfig
from mtkit.convert.ctranslate2 import CTranslate2Model, write_ctranslate2
from mtkit.convert.huggingface import to_marian
from mtkit.model import Transformer, sinusoidal_positions
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID
from mtkit.translate import LoadedRuns, Torch, Translator

# Largest difference of two logits in float64.
LOGITS_BOUND = 1e-8


@dataclass(frozen=True)
class Comparison:
    """One row of the table."""

    what: str
    against: str
    data: str
    result: str
    holds: bool


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
        layer_norm_eps=config.norm_epsilon,
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
                inputs = [attention.in_proj] if name == "self_attn" else []
                inputs = inputs or [attention.q_proj, attention.kv_proj]
                for kind in ("weight", "bias"):
                    joined = torch.cat([getattr(linear, kind) for linear in inputs])
                    state[f"{at}.{name}.in_proj_{kind}"] = joined
                    state[f"{at}.{name}.out_proj.{kind}"] = getattr(attention.out_proj, kind)
            modules = {"linear1": layer.feed_forward.inner, "linear2": layer.feed_forward.outer}
            modules |= {f"norm{n}": r.norm for n, r in enumerate(layer.residuals, 1)}
            state |= _parameters(modules, at)
    theirs.load_state_dict(state)
    return theirs.eval()


def torch_logits(model: Transformer, src: Tensor, tgt_in: Tensor) -> Tensor:
    """Logits (B, T, V) by `torch.nn.Transformer`, with the embeddings as the paper has them."""

    def embed(ids: Tensor, embedding: nn.Embedding) -> Tensor:
        positions = sinusoidal_positions(ids.shape[1], model.config.d_model)
        return embedding.weight[ids] * model.config.d_model**0.5 + positions

    hidden = src == PAD_ID
    out = to_torch(model)(
        embed(src, model.src_embedding or model.embedding),
        embed(tgt_in, model.embedding),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(
            tgt_in.shape[1], dtype=torch.float64
        ),
        src_key_padding_mask=hidden.double().masked_fill(hidden, -torch.inf),
        memory_key_padding_mask=hidden.double().masked_fill(hidden, -torch.inf),
    )
    return out @ model.embedding.weight.T


def marian_logits(model: Transformer, src: Tensor, tgt_in: Tensor) -> Tensor:
    """Logits (B, T, V) by `MarianMTModel` as `mtkit export` makes it."""
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    longest = max(src.shape[1], tgt_in.shape[1])
    theirs = to_marian(model, longest=longest)
    positions = sinusoidal_positions(longest, model.config.d_model)
    for module in theirs.modules():
        if isinstance(module, nn.LayerNorm):
            # No configuration of it says so.
            module.eps = model.config.norm_epsilon
        elif isinstance(module, MarianSinusoidalPositionalEmbedding):
            # Its own are in halves as well, but in float32.
            halves = torch.cat((positions[:, 0::2], positions[:, 1::2]), dim=-1)
            module.weight = nn.Parameter(halves, requires_grad=False)
    mask = (src != PAD_ID).long()
    logits: Tensor = theirs(input_ids=src, attention_mask=mask, decoder_input_ids=tgt_in).logits
    return logits


def compare_logits(model: Transformer, src: Tensor, tgt_in: Tensor, data: str) -> list[Comparison]:
    """Logits of a float64 model where there is no padding, against both implementations."""
    import transformers

    real = tgt_in != PAD_ID
    with torch.no_grad():
        ours = model(src, tgt_in)[real]
        theirs = {
            f"torch.nn.Transformer {torch.__version__}": torch_logits(model, src, tgt_in),
            f"MarianMTModel, transformers {transformers.__version__}": marian_logits(
                model, src, tgt_in
            ),
        }
    rows = []
    for name, logits in theirs.items():
        difference = float((ours - logits[real]).abs().max())
        result = f"largest difference {difference:.1e}"
        rows.append(Comparison("logits", name, data, result, difference <= LOGITS_BOUND))
    return rows


def compare_translations(
    translator: Translator, lines: list[str], *, beam_size: int
) -> tuple[Comparison, list[str]]:
    """Translations by mtkit and by CTranslate2, both in float32.

    With a beam both rank by log-probability alone, because their length penalties differ; and
    because they end their searches by different rules, only greedy search has a bound.

    Returns:
        The row of the table, and what differs, with log-probabilities in float64.
    """
    import ctranslate2

    changes = {"beam_size": beam_size, "length_penalty": 0.0}
    config = translator.config.model_copy(update=changes)
    runs = LoadedRuns(translator.vocabularies, config)
    ours = Translator(runs, Torch([translator.model], runs))
    mine = list(ours.translate(lines))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model"
        longest = config.max_source_tokens + config.max_extra_length
        write_ctranslate2(ours.model, ours.vocabularies, place, longest=longest)
        theirs = CTranslate2Model(place, ours.vocabularies, config).translate(lines)
    model, *_ = real_case(ours, lines[:1])
    exact = Translator(runs, Torch([model], runs))
    different, better = [], 0
    for source, translation, other in zip(lines, mine, theirs, strict=True):
        if translation != other:
            a, b = (
                scored.log_prob for scored in exact.score_given([source] * 2, [translation, other])
            )
            different.append(f"{source}\n  mtkit {a:.4f}: {translation}\n  other {b:.4f}: {other}")
            better += a > b
    result = f"{len(lines) - len(different):,} equal"
    if different and beam_size > 1:
        result += f"; mtkit's the more probable in {better:,} of the other {len(different):,}"
    row = Comparison(
        "greedy translations" if beam_size == 1 else f"translations with beam {beam_size}, alpha 0",
        f"CTranslate2 {ctranslate2.__version__}",
        f"{len(lines):,} sentences",
        result,
        beam_size > 1 or not different,
    )
    return row, different


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
    run = translator.model
    model = Transformer(run.config, run.vocab_size, PAD_ID, run.src_vocab_size)
    model.load_state_dict(run.state_dict())
    sides = (
        [[*translator.src_tokenizer.encode(line), EOS_ID] for line in lines],
        [[BOS_ID, *translator.tokenizer.encode(line)] for line in translator.translate(lines)],
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
    different: dict[str, list[str]] = {}
    if arguments.run:
        translator = Translator.load(arguments.run, device="cpu", prepared=False)
        lines = list(itertools.islice(read_lines(arguments.input), arguments.sentences))
        size = sum(p.numel() for p in translator.model.parameters()) / 1e6
        named = f"{size:.1f} M trained weights, 32 sentences"
        rows += compare_logits(*real_case(translator, lines[:32]), named)
        for beam_size in (1, translator.config.beam_size):
            row, different[row.what] = compare_translations(translator, lines, beam_size=beam_size)
            rows.append(row)
    print(f"{versions()}\n")
    cells = [
        [row.what, row.against, row.data, row.result, "holds" if row.holds else "BROKEN"]
        for row in rows
    ]
    print(markdown(["what", "against", "on", "result", ""], cells))
    for what, texts in different.items():
        for text in texts[:3]:
            print(f"\n{what}: {text}")
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
