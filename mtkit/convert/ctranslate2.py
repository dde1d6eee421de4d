"""Export to CTranslate2, which uses the weights unchanged."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtkit.config import Config, DecodeConfig
from mtkit.convert.export_record import (
    SENTENCEPIECE_FILES,
    Quantization,
    longest_sequence,
    power_penalty,
)
from mtkit.convert.target import Export, Target, example_tag, quoted
from mtkit.convert.verification import by_length, pieces_of
from mtkit.model import Transformer
from mtkit.tokenizer import BOS_ID, EOS_ID, UNK_ID, Tokenizer, Vocabularies
from mtkit.translate import Translator

# The subwords that CTranslate2 writes at most by default.
MAX_LENGTH = 256


def write_ctranslate2(
    model: Transformer,
    vocabularies: Vocabularies,
    folder: Path,
    *,
    longest: int,
    quantization: Quantization = "float32",
    src_tag: int | None = None,
) -> None:
    """Write the model for CTranslate2, with its own specification classes.

    The model must be accepted by `Target.check_expressible`. Of positions `longest` are written,
    and of learned ones all. Every source begins with `src_tag`, if it is given.
    """
    spec = _spec_of(model, longest)
    pieces = pieces_of(vocabularies.tgt)
    spec.register_source_vocabulary(pieces_of(vocabularies.src))
    spec.register_target_vocabulary(pieces)
    spec.config.bos_token = spec.config.decoder_start_token = pieces[BOS_ID]
    spec.config.eos_token, spec.config.unk_token = pieces[EOS_ID], pieces[UNK_ID]
    spec.config.add_source_eos = True
    if src_tag is not None:
        # A target begins with the start token of the decoder, which is another setting.
        spec.config.bos_token, spec.config.add_source_bos = vocabularies.src.piece(src_tag), True
    spec.config.layer_norm_epsilon = model.config.norm_epsilon
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    folder.mkdir(exist_ok=True)
    spec.save(str(folder))


def _spec_of(model: Transformer, longest: int) -> Any:
    activations = _library().specs.Activation
    from ctranslate2.specs.transformer_spec import TransformerSpec

    config = model.config
    spec = TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.n_heads,
        pre_norm=config.norm == "pre",
        # SiLU is also called swish.
        activation={"relu": activations.RELU, "silu": activations.SWISH}[config.activation],
    )

    def array(tensor: Tensor) -> Any:
        # A copy, because quantization changes arrays in place.
        return tensor.detach().float().numpy().copy()

    def fill(target: Any, source: Any) -> None:
        names = ("gamma", "beta") if hasattr(target, "gamma") else ("weight", "bias")
        for name, tensor in zip(names, (source.weight, source.bias), strict=True):
            setattr(target, name, array(tensor))

    embedding = array(model.embedding.weight)
    positions = array(model.positions(0, longest, like=model.embedding.weight))
    for target in (spec.encoder, spec.decoder):
        target.scale_embeddings = True
        target.position_encodings.encodings = positions
    own = model.src_embedding
    spec.encoder.embeddings[0].weight = embedding if own is None else array(own.weight)
    spec.decoder.embeddings.weight = embedding
    spec.decoder.projection.weight = embedding
    if model.output_bias is not None:
        spec.decoder.projection.bias = array(model.output_bias)
    if config.norm == "pre":
        fill(spec.encoder.layer_norm, model.encoder_norm)
        fill(spec.decoder.layer_norm, model.decoder_norm)
    layer: Any
    targets = (*spec.encoder.layer, *spec.decoder.layer)
    for target, layer in zip(targets, (*model.encoder, *model.decoder), strict=True):
        blocks = [(target.self_attention, layer.self_attention, ["in_proj", "out_proj"])]
        if hasattr(target, "attention"):
            names = ["q_proj", "kv_proj", "out_proj"]
            blocks.append((target.attention, layer.cross_attention, names))
        for (block, ours, names), residual in zip(blocks, layer.residuals, strict=False):
            for into, name in zip(block.linear, names, strict=True):
                fill(into, getattr(ours, name))
            fill(block.layer_norm, residual.norm)
        fill(target.ffn.linear_0, layer.feed_forward.inner)
        fill(target.ffn.linear_1, layer.feed_forward.outer)
        fill(target.ffn.layer_norm, layer.residuals[-1].norm)
    return spec


def _library() -> Any:
    # Its other matrix library, which it takes on CPUs that are not Intel's, saturates sums in int8
    # if the CPU has no VNNI; with MKL, whether a check holds does not depend on that. It reads the
    # variable when it is loaded. Other programs that this one starts choose for themselves.
    is_set_here = os.uname().machine == "x86_64" and "CT2_USE_MKL" not in os.environ
    if is_set_here:
        os.environ["CT2_USE_MKL"] = "1"
    try:
        import ctranslate2
    finally:
        if is_set_here:
            del os.environ["CT2_USE_MKL"]
    return ctranslate2


def open_ctranslate2(folder: Path) -> Any:
    """The `Translator` of CTranslate2 for a folder."""
    # The number of OpenMP's threads is that of the process, PyTorch's too.
    return _library().Translator(str(folder), intra_threads=torch.get_num_threads())


class CTranslate2Model:
    """A model loaded by CTranslate2, with beam size, length penalty and limits of `decode`."""

    def __init__(self, folder: Path, vocabularies: Vocabularies, decode: DecodeConfig) -> None:
        self._engine = open_ctranslate2(folder)
        self._vocabularies = vocabularies
        self._decode = decode
        self._ids = {piece: i for i, piece in enumerate(pieces_of(vocabularies.tgt))}

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The translation of each line."""
        sources = _pieces(lines, self._vocabularies.src)

        def translate(rows: list[int], length: int) -> list[str]:
            results = self._engine.translate_batch(
                [sources[row] for row in rows],
                beam_size=self._decode.beam_size,
                length_penalty=self._decode.length_penalty,
                max_decoding_length=length + 1 + self._decode.max_extra_length,
                # The default of 1 forbids an empty translation.
                min_decoding_length=0,
            )
            ids = ([self._ids[piece] for piece in result.hypotheses[0]] for result in results)
            return list(map(self._vocabularies.tgt.decode, ids))

        return by_length(sources, translate)

    def log_probs(self, sources: Sequence[str], targets: Sequence[str]) -> list[Tensor]:
        """Log-probabilities of the tokens of each given translation."""
        src, tgt = map(_pieces, (sources, targets), self._vocabularies)
        return [torch.tensor(scored.log_probs) for scored in self._engine.score_batch(src, tgt)]


def _pieces(lines: Sequence[str], tokenizer: Tokenizer) -> list[list[str]]:
    return [[tokenizer.piece(i) for i in tokenizer.encode(line)] for line in lines]


class _CTranslate2(Target):
    name = "ctranslate2"
    library = "ctranslate2"
    model = "CTranslate2's Transformer"
    needs = "Needs `pip install ctranslate2 sentencepiece`. In this folder:"
    note = "Leave blank lines out; mtkit would keep them blank."
    quantizations = ("float32", "float16", "int8")

    def write(self, export: Export) -> None:
        translator, run, folder, record = export
        write_ctranslate2(
            translator.model,
            translator.vocabularies,
            folder,
            longest=longest_sequence(run.config),
            quantization=record.quantization,
        )
        translator.vocabularies.save(folder, SENTENCEPIECE_FILES)

    def load(self, folder: Path, decode: DecodeConfig) -> CTranslate2Model:
        vocabularies = Vocabularies.load(folder, SENTENCEPIECE_FILES)
        return CTranslate2Model(folder, vocabularies, decode)

    def usage(self, out: Path, config: Config, translator: Translator) -> str:
        vocabularies = translator.vocabularies
        is_joint = vocabularies.is_joint
        names = ("pieces",) if is_joint else ("source_pieces", "target_pieces")
        files = dict(zip(names, SENTENCEPIECE_FILES.used(is_joint=is_joint), strict=True))
        load = "".join(
            f"{name} = sentencepiece.SentencePieceProcessor(model_file={quoted(out / file)})\n"
            for name, file in files.items()
        )
        decode = config.decode
        search = f"beam_size={decode.beam_size}, length_penalty={power_penalty(decode):g}"
        # Its own limit is beyond the last position of some models.
        if (most := longest_sequence(config) - 1) < MAX_LENGTH:
            search += f", max_decoding_length={most}"
        before = f"[{quoted(tag)}] + " if (tag := example_tag(vocabularies)) else ""
        return f"""\
import ctranslate2, sentencepiece
{load}translator = ctranslate2.Translator({quoted(out)})
source = {before}{names[0]}.encode("Text to translate.", out_type=str)
found = translator.translate_batch([source], {search})
print({names[-1]}.decode(found[0].hypotheses[0]))
"""


CTRANSLATE2 = _CTranslate2()
