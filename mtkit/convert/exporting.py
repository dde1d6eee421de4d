"""A trained model for other software: CTranslate2, Hugging Face, or a run folder of one checkpoint.

Nothing gets its name before the written files were loaded again by the software they are for, and
did there what the run does: the same greedy translations, the same log-probabilities. What a
format cannot express is refused by the name of the setting.

CTranslate2 takes the weights as they are. `MarianMTModel` has its position encodings in halves,
sines and then cosines, and computes them itself, so the model's width is put into that order in
all matrices. Two things it cannot be told: its layer norms add 1e-5 to the variance where ours add
1e-6, and its tokenizer takes a text that begins with `>>…<<` for one with a language code. Either
takes a vocabulary for each side.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import logging
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

import mtkit
from mtkit.checkpoint import Run
from mtkit.config import Config, DecodeConfig, ModelConfig
from mtkit.data import PreparedData, check_writable, new_folder, read_lines
from mtkit.devices import memory_explained
from mtkit.errors import MtkitError
from mtkit.files import json_text
from mtkit.model import (
    LAYER_NORM_EPSILON,
    Attention,
    CrossAttention,
    Transformer,
    sinusoidal_positions,
)
from mtkit.score import score
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer
from mtkit.translate import Translator

log = logging.getLogger(__name__)

Format = Literal["ctranslate2", "huggingface", "safetensors"]
Quantization = Literal["float32", "float16", "int8"]

# Of the check: lines that are translated, and those whose log-probabilities are compared.
CHECKED_LINES = 500
COMPARED_LINES = 32
ROWS_AT_A_TIME = 32

_LIBRARIES = {"ctranslate2": "ctranslate2", "huggingface": "transformers"}
# A folder with this is an export.
_FACTS = "export.json"
_SENTENCEPIECE = "sentencepiece.model"
# Where source and target have vocabularies of their own; Marian has these names always.
_SENTENCEPIECES = ("source.spm", "target.spm")


@dataclass(frozen=True)
class Bounds:
    """What a check demands.

    Attributes:
        identical: least part of the lines that are translated alike.
        difference: largest difference of the log-probabilities of a token.
    """

    identical: float
    difference: float


BOUNDS: dict[Quantization, Bounds] = {
    "float32": Bounds(0.99, 1e-3),
    "float16": Bounds(0.9, 0.1),
    "int8": Bounds(0.5, 2.0),
}


@dataclass(frozen=True)
class Agreement:
    """How the written files compare with the run.

    Attributes:
        text: what was translated.
        lines: how many lines of it.
        identical: how many of them alike.
        bleu: of the export's translations against the run's.
        difference: the largest of two log-probabilities of a token.
        compared: lines whose log-probabilities were compared.
    """

    text: str
    lines: int
    identical: int
    bleu: float
    difference: float
    compared: int

    def holds(self, bounds: Bounds) -> bool:
        """Whether it is within bounds; one line of a short text may always differ, by a tie."""
        # Not a number is not within bounds either.
        allowed = max(1, int(self.lines * (1 - bounds.identical) + 1e-9))
        return self.lines - self.identical <= allowed and self.difference <= bounds.difference

    def __str__(self) -> str:
        return (
            f"{self.identical:,} of {self.lines:,} lines of {self.text} translated alike (greedy), "
            f"BLEU between both {self.bleu:.2f}, largest difference of a log-probability "
            f"{self.difference:.1e} in {self.compared} lines"
        )


@memory_explained("exporting; export on a machine with more memory")
def export(
    run: Run,
    out: Path,
    *,
    format: Format,
    checkpoint: str | None = None,
    quantization: Quantization = "float32",
    check: Path | None = None,
    force: bool = False,
) -> str:
    """Write the model of a run into a folder for other software, and check what was written.

    Args:
        run: the run.
        out: the folder to come.
        format: whom it is for.
        checkpoint: as `Run.select`.
        quantization: how CTranslate2 keeps matrices.
        check: source text to check with; by default the validation text of the run's data, and
            where that is gone the samples of the run folder.
        force: replace an earlier export.

    Returns:
        How to use the folder, in a few lines.

    Raises:
        MtkitError: if the format cannot express the model, its library is missing, the folder
            cannot be written, or what was written does not do what the run does.
    """
    library = _LIBRARIES.get(format)
    if library is not None and importlib.util.find_spec(library) is None:
        raise MtkitError(f"--format {format} needs {library}: pip install 'mtkit[export]'")
    check_expressible(run.config.model, format)
    check_writable(
        out,
        force=force,
        kind="an export",
        place="OUT",
        is_kind=lambda folder: (folder / _FACTS).is_file(),
    )
    which = checkpoint or _default_checkpoint(run)
    greedy = run.config.decode.greedy().model_copy(update={"precision": "fp32"})
    translator = Translator.load(run, checkpoint=which, config=greedy, device="cpu", prepared=False)
    text, lines = _check_text(run, translator, check)
    facts = {
        "format": format,
        "quantization": quantization,
        "run": run.name,
        "checkpoint": which,
        "steps": _steps(run, which),
        "data": run.manifest.data.model_dump(include={"name", "src_lang", "tgt_lang"}),
        "versions": {"mtkit": mtkit.__version__, **_version(library)},
    }
    with new_folder(out) as folder:
        _write(translator, run, folder, facts)
        log.info("written; what was written is loaded again, and checked")
        try:
            theirs = _load(folder, format, run.config.decode)
        except (MtkitError, SafetensorError, RuntimeError, ValueError, OSError) as error:
            reason = " ".join(str(error).split())
            raise MtkitError(
                f"{out}: not written, because what was written cannot be loaded: {reason[:300]}"
            ) from error
        agreement = compare(RunModel(translator), theirs, lines, text=text)
        bounds = BOUNDS[quantization]
        if not agreement.holds(bounds):
            raise MtkitError(
                f"{out}: not written, because what was written does not do what {run.path} does: "
                f"{agreement}; at least {bounds.identical:.0%} and at most {bounds.difference:g} "
                "are asked for"
            )
        log.info("checked: %s", agreement)
        # Where the text lay is nobody else's business.
        facts["check"] = {k: v for k, v in asdict(agreement).items() if k != "text"}
        _write_json(folder / _FACTS, facts)
    joint = translator.src_tokenizer is translator.tokenizer
    return _usage(out, format, run.config, joint=joint)


def check_expressible(config: ModelConfig, format: Format) -> None:
    """Refuse a model that a format has no words for.

    Raises:
        MtkitError: naming the setting.
    """
    if format == "safetensors":
        return
    name = {"ctranslate2": "CTranslate2's Transformer", "huggingface": "MarianMTModel"}[format]
    width = config.d_model / config.n_heads
    impossible = {
        "attention_window": (config.attention_window is not None, "sees every position"),
        "d_k": (config.key_width != width, f"has keys of d_model / n_heads, {width:g}"),
        "d_v": (config.value_width != width, f"has values of d_model / n_heads, {width:g}"),
    }
    if format == "huggingface":
        impossible["norm"] = (config.norm != "post", "normalises after the residual sum")
        impossible["positions"] = (config.positions != "sinusoidal", "has sinusoidal ones")
    for key, (is_so, difference) in impossible.items():
        if is_so:
            value = getattr(config, key)
            value = config.value_width if value is None else value  # d_v follows d_k
            raise MtkitError(
                f"--format {format} cannot express model.{key} {value}: {name} {difference}; "
                "--format safetensors takes every model"
            )


# ---------------------------------------------------------------------------------------------
# What is exported


def _default_checkpoint(run: Run) -> str:
    found = run.checkpoints()
    # Without one, `select` says what is missing.
    return f"average:{min(run.config.decode.average_checkpoints, max(1, len(found)))}"


def _steps(run: Run, which: str) -> list[int]:
    """The checkpoints that `Run.select` took."""
    steps = [checkpoint.step for checkpoint in run.checkpoints()]
    if which.startswith("average:"):
        return steps[-int(which.removeprefix("average:")) :]
    if which == "best":
        best = run.best()
        return [best.step] if best else []
    return steps[-1:] if which == "last" else [int(which)]


def _version(library: str | None) -> dict[str, str]:
    if library == "transformers":
        import transformers

        # Its notes are about loading anything at all.
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
    return {library: importlib.metadata.version(library)} if library else {}


def _check_text(run: Run, translator: Translator, check: Path | None) -> tuple[str, list[str]]:
    """What to check with: its name, and the lines.

    Blank lines are left out, because others translate them, and those that a model would cut.
    """
    if check is not None:
        name, lines = str(check), list(read_lines(check))
    else:
        try:
            data = PreparedData.open(run.data_path)
            name, lines = f"the validation text of {data.path}", data.text("valid")[0]
        except MtkitError as error:
            rows = run.samples()
            if not rows:
                raise MtkitError(
                    f"there is no text to check with ({error}); give source text as --check FILE"
                ) from error
            name = f"the samples of {run.path} (its data are gone; --check FILE takes other text)"
            lines = [sample["src"] for sample in rows[-1]["samples"]]
    room = _longest(run.config) - run.config.decode.max_extra_length - 1
    fitting = (line for line in lines if 0 < len(translator.src_tokenizer.encode(line)) <= room)
    chosen = list(islice(fitting, CHECKED_LINES))
    if not chosen:
        raise MtkitError(f"no line to check with in {name}; give source text as --check FILE")
    return name, chosen


def _longest(config: Config) -> int:
    """Positions that a model needs: the longest input that is not cut, and its output."""
    if config.model.positions == "learned":
        return config.model.max_positions
    return config.decode.max_source_tokens + config.decode.max_extra_length


# ---------------------------------------------------------------------------------------------
# Writing


def _write(translator: Translator, run: Run, folder: Path, facts: dict[str, Any]) -> None:
    model, src, tgt = translator.model, translator.src_tokenizer, translator.tokenizer
    match facts["format"]:
        case "ctranslate2":
            write_ctranslate2(
                model,
                tgt,
                folder,
                longest=_longest(run.config),
                quantization=facts["quantization"],
                src_tokenizer=src,
            )
            if src is tgt:
                tgt.save(folder / _SENTENCEPIECE)
            else:
                for tokenizer, name in zip((src, tgt), _SENTENCEPIECES, strict=True):
                    tokenizer.save(folder / name)
        case "huggingface":
            _write_huggingface(translator, run, folder)
        case _:
            manifest = run.manifest.model_copy(update={"exported": facts})
            exported = Run.create(folder, run.config, (src, tgt), manifest=manifest)
            weights = model.state_dict()
            exported.save(max(facts["steps"]), weights=weights, optimizer=None, state={})


def write_ctranslate2(
    model: Transformer,
    tokenizer: Tokenizer,
    folder: Path,
    *,
    longest: int,
    quantization: Quantization = "float32",
    src_tokenizer: Tokenizer | None = None,
) -> None:
    """Write the model for CTranslate2, by its own specification classes.

    Args:
        model: as `check_expressible` lets pass.
        tokenizer: of the model; of its target, if the source has another.
        folder: where to.
        longest: positions that are written; learned ones are as many as there are.
        quantization: how matrices are kept.
        src_tokenizer: of the source; by default the same.
    """
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
        # A copy, because quantization changes arrays in place.
        return tensor.detach().float().numpy().copy()

    def linear(target: Any, weight: Tensor, bias: Tensor) -> None:
        target.weight, target.bias = array(weight), array(bias)

    def norm(target: Any, source: Any) -> None:
        target.gamma, target.beta = array(source.weight), array(source.bias)

    embedding = array(model.embedding.weight)
    src_embedding = embedding
    if model.src_embedding is not None:
        src_embedding = array(model.src_embedding.weight)
    if config.positions == "learned":
        positions = array(model.learned_positions)
    else:
        positions = array(sinusoidal_positions(longest, config.d_model))
    for target in (spec.encoder, spec.decoder):
        target.scale_embeddings = True
        target.position_encodings.encodings = positions
    spec.encoder.embeddings[0].weight = src_embedding
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

    layer: Any
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

    pieces = _pieces(tokenizer)
    spec.register_source_vocabulary(_pieces(src_tokenizer or tokenizer))
    spec.register_target_vocabulary(pieces)
    spec.config.bos_token = spec.config.decoder_start_token = pieces[BOS_ID]
    spec.config.eos_token, spec.config.unk_token = pieces[EOS_ID], pieces[UNK_ID]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = LAYER_NORM_EPSILON
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    folder.mkdir(exist_ok=True)
    spec.save(str(folder))


def to_marian(model: Transformer, *, longest: int) -> nn.Module:
    """Hugging Face's `MarianMTModel` with the weights of a model, in its precision.

    Args:
        model: as `check_expressible` lets pass.
        longest: positions it is to have.
    """
    from transformers import MarianConfig, MarianMTModel

    config, own = model.config, model.src_embedding
    # What is not given has a default, and is not in the file.
    of_target = {} if own is None else {"decoder_vocab_size": model.vocab_size}
    theirs: nn.Module = MarianMTModel(
        MarianConfig(
            vocab_size=model.src_vocab_size or model.vocab_size,
            **of_target,
            d_model=config.d_model,
            encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers,
            encoder_attention_heads=config.n_heads,
            decoder_attention_heads=config.n_heads,
            encoder_ffn_dim=config.d_ff,
            decoder_ffn_dim=config.d_ff,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            activation_dropout=config.activation_dropout,
            activation_function="relu",
            scale_embedding=True,
            share_encoder_decoder_embeddings=own is None,
            max_position_embeddings=longest,
            pad_token_id=PAD_ID,
            bos_token_id=BOS_ID,
            eos_token_id=EOS_ID,
            decoder_start_token_id=BOS_ID,
            # Its default would end what was cut off with the padding.
            forced_eos_token_id=None,
        )
    ).to(model.embedding.weight.dtype)
    order = torch.cat((torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)))
    shared = model.embedding.weight[:, order]
    state = {
        "final_logits_bias": torch.zeros(1, model.vocab_size),
        "lm_head.weight": shared,
        "model.encoder.embed_tokens.weight": shared if own is None else own.weight[:, order],
        "model.decoder.embed_tokens.weight": shared,
    }
    if own is None:
        state["model.shared.weight"] = shared
    # Those are its own, and in no file.
    state |= {k: v for k, v in theirs.state_dict().items() if "embed_positions" in k}

    def put(name: str, weight: Tensor, bias: Tensor) -> None:
        state[f"{name}.weight"], state[f"{name}.bias"] = weight, bias

    def norm(name: str, residual: Any) -> None:
        put(name, residual.norm.weight[order], residual.norm.bias[order])

    def attend(at: str, attention: Attention) -> None:
        cuts = (attention.q_width, 2 * attention.q_width)
        weights = joined(attention, "weight")[:, order].tensor_split(cuts)
        biases = joined(attention, "bias").tensor_split(cuts)
        for name, weight, bias in zip(("q_proj", "k_proj", "v_proj"), weights, biases, strict=True):
            put(f"{at}.{name}", weight, bias)
        put(f"{at}.out_proj", attention.out_proj.weight[order], attention.out_proj.bias[order])

    for stack, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        layer: Any
        for i, layer in enumerate(layers):
            at = f"model.{stack}.layers.{i}"
            inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
            attend(f"{at}.self_attn", layer.self_attention)
            put(f"{at}.fc1", inner.weight[:, order], inner.bias)
            put(f"{at}.fc2", outer.weight[order], outer.bias[order])
            norm(f"{at}.self_attn_layer_norm", layer.residuals[0])
            norm(f"{at}.final_layer_norm", layer.residuals[-1])
            if stack == "decoder":
                attend(f"{at}.encoder_attn", layer.cross_attention)
                norm(f"{at}.encoder_attn_layer_norm", layer.residuals[1])
    theirs.load_state_dict(state)
    return theirs.eval()


def joined(attention: Attention, kind: str) -> Tensor:
    """The weights or biases of queries, keys and values, one below the other."""
    if isinstance(attention, CrossAttention):
        return torch.cat([getattr(p, kind) for p in (attention.q_proj, attention.kv_proj)])
    whole: Tensor = attention.in_proj.get_parameter(kind)  # type: ignore[union-attr]
    return whole


def _write_huggingface(translator: Translator, run: Run, folder: Path) -> None:
    from transformers import GenerationConfig, MarianTokenizer

    longest = _longest(run.config)
    model: Any = to_marian(translator.model, longest=longest)
    # What it does without being told otherwise is what is checked.
    model.generation_config = GenerationConfig(
        num_beams=1,
        do_sample=False,
        max_length=longest,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        decoder_start_token_id=BOS_ID,
    )
    model.save_pretrained(folder)
    src, tgt = translator.src_tokenizer, translator.tokenizer
    models = dict(zip(_SENTENCEPIECES, (src, tgt), strict=True))
    vocabularies = {"vocab.json": src} | ({} if src is tgt else {"target_vocab.json": tgt})
    for name, of_side in models.items():
        of_side.save(folder / name)
    for name, of_side in vocabularies.items():
        _write_json(folder / name, {piece: i for i, piece in enumerate(_pieces(of_side))})
    tokenizer = MarianTokenizer(
        *(str(folder / name) for name in (*models, *vocabularies)),
        source_lang=run.manifest.data.src_lang or None,
        target_lang=run.manifest.data.tgt_lang or None,
        bos_token=tgt.piece(BOS_ID),
        **({} if src is tgt else {"separate_vocabs": True}),
        model_max_length=run.config.decode.max_source_tokens,
        # The text `</s>` is text.
        split_special_tokens=True,
    )
    tokenizer.save_pretrained(folder)


def _pieces(tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.piece(i) for i in range(len(tokenizer))]


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json_text(value, indent=2) + "\n", encoding="utf-8")


# ---------------------------------------------------------------------------------------------
# Loading it again, and comparing


class LoadedModel(Protocol):
    """A model as some software loads it, with its way from text to text."""

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The translation of each line."""

    def log_probs(self, sources: Sequence[str], targets: Sequence[str]) -> list[Tensor]:
        """Log-probabilities (T,) of the tokens of each given translation, EOS at the end."""


def compare(ours: LoadedModel, theirs: LoadedModel, lines: list[str], *, text: str) -> Agreement:
    """Translate lines with two models, and let both judge the first translations."""
    mine, other = (list(map(_comparable, one.translate(lines))) for one in (ours, theirs))
    batch = lines[:COMPARED_LINES], mine[:COMPARED_LINES]
    differences = [
        float((one - two).abs().max()) if len(one) == len(two) else torch.inf
        for one, two in zip(ours.log_probs(*batch), theirs.log_probs(*batch), strict=True)
    ]
    return Agreement(
        text=text,
        lines=len(lines),
        identical=sum(one == two for one, two in zip(mine, other, strict=True)),
        bleu=score(other, [mine]).value,
        # Where one is not a number, neither is this.
        difference=torch.tensor(differences).max().item(),
        compared=len(differences),
    )


def _comparable(text: str) -> str:
    """A translation without what tokenizers do each in their own way.

    Marian's takes the space off that a translation may end in, and has U+FFFD where bytes spell
    no character.
    """
    if "\ufffd" in text:
        text = re.sub(" +", " ", text.replace("\ufffd", ""))
    return text.strip()


def _load(folder: Path, format: Format, decode: DecodeConfig) -> LoadedModel:
    greedy = decode.greedy().model_copy(update={"precision": "fp32"})
    match format:
        case "ctranslate2":
            if (folder / _SENTENCEPIECE).exists():
                return CTranslate2Model(folder, Tokenizer.load(folder / _SENTENCEPIECE), greedy)
            src, tgt = (Tokenizer.load(folder / name) for name in _SENTENCEPIECES)
            return CTranslate2Model(folder, tgt, greedy, src_tokenizer=src)
        case "huggingface":
            return MarianModel(folder, decode)
        case _:
            return RunModel(Translator.load(folder, config=greedy, device="cpu"))


class RunModel:
    """The model of a run folder."""

    def __init__(self, translator: Translator) -> None:
        self._translator = translator

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The translation of each line."""
        return list(self._translator.translate(lines))

    @torch.inference_mode()
    def log_probs(self, sources: Sequence[str], targets: Sequence[str]) -> list[Tensor]:
        """Log-probabilities of the tokens of each given translation."""
        src_tokenizer, tokenizer = self._translator.src_tokenizer, self._translator.tokenizer
        outputs = [[*tokenizer.encode(line), EOS_ID] for line in targets]
        model = self._translator.model.eval()
        src = _padded([[*src_tokenizer.encode(line), EOS_ID] for line in sources])
        logits = model(src, _padded([[BOS_ID, *ids[:-1]] for ids in outputs]))
        return _token_log_probs(logits, outputs)


class CTranslate2Model:
    """A model as CTranslate2 loads it.

    Args:
        folder: that it was written to.
        tokenizer: whose pieces are its vocabulary, or that of the target.
        decode: beam, length penalty and limits.
        src_tokenizer: likewise of the source; by default the same.
    """

    def __init__(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        decode: DecodeConfig,
        *,
        src_tokenizer: Tokenizer | None = None,
    ) -> None:
        import ctranslate2

        self._engine = ctranslate2.Translator(str(folder))
        self._src_tokenizer = src_tokenizer or tokenizer
        self._tokenizer = tokenizer
        self._decode = decode
        self._ids = {piece: i for i, piece in enumerate(_pieces(tokenizer))}

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The translation of each line."""
        sources = [_split(line, self._src_tokenizer) for line in lines]
        translations = [""] * len(lines)
        for length, rows in _rows_by_length(sources):
            found = self._engine.translate_batch(
                [sources[row] for row in rows],
                beam_size=self._decode.beam_size,
                length_penalty=self._decode.length_penalty,
                max_decoding_length=length + 1 + self._decode.max_extra_length,
                # Its default of 1 forbids the empty translation.
                min_decoding_length=0,
                max_batch_size=ROWS_AT_A_TIME,
            )
            for row, one in zip(rows, found, strict=True):
                ids = [self._ids[piece] for piece in one.hypotheses[0]]
                translations[row] = self._tokenizer.decode(ids)
        return translations

    def log_probs(self, sources: Sequence[str], targets: Sequence[str]) -> list[Tensor]:
        """Log-probabilities of the tokens of each given translation."""
        src = [_split(line, self._src_tokenizer) for line in sources]
        tgt = [_split(line, self._tokenizer) for line in targets]
        return [torch.tensor(found.log_probs) for found in self._engine.score_batch(src, tgt)]


def _split(line: str, tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.piece(i) for i in tokenizer.encode(line)]


class MarianModel:
    """A model and a tokenizer as Hugging Face's automatic classes load them.

    Args:
        folder: that they were written to.
        decode: limits.
    """

    def __init__(self, folder: Path, decode: DecodeConfig) -> None:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        self._model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._decode = decode

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The greedy translation of each line."""
        sources = self._tokenizer(list(lines))["input_ids"]
        translations = [""] * len(lines)
        for length, rows in _rows_by_length(sources):
            for start in range(0, len(rows), ROWS_AT_A_TIME):
                some = rows[start : start + ROWS_AT_A_TIME]
                found = self._model.generate(
                    **self._tokenizer([lines[row] for row in some], return_tensors="pt"),
                    max_new_tokens=length + self._decode.max_extra_length,
                )
                texts = self._tokenizer.batch_decode(found, skip_special_tokens=True)
                for row, text in zip(some, texts, strict=True):
                    translations[row] = text
        return translations

    @torch.inference_mode()
    def log_probs(self, sources: Sequence[str], targets: Sequence[str]) -> list[Tensor]:
        """Log-probabilities of the tokens of each given translation."""
        outputs = self._tokenizer(text_target=list(targets))["input_ids"]
        tgt_in = _padded([[self._model.config.decoder_start_token_id, *y[:-1]] for y in outputs])
        inputs = self._tokenizer(list(sources), padding=True, return_tensors="pt")
        return _token_log_probs(self._model(**inputs, decoder_input_ids=tgt_in).logits, outputs)


def _rows_by_length(sentences: Sequence[Sequence[Any]]) -> list[tuple[int, list[int]]]:
    """Sentences of one length together: how much they may grow is set for all of a call."""
    rows: dict[int, list[int]] = {}
    for row, sentence in enumerate(sentences):
        rows.setdefault(len(sentence), []).append(row)
    return sorted(rows.items())


def _padded(sentences: Sequence[Sequence[int]]) -> Tensor:
    rows = [torch.tensor(ids) for ids in sentences]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD_ID)


def _token_log_probs(logits: Tensor, outputs: Sequence[Sequence[int]]) -> list[Tensor]:
    """Of (B, T, V) logits the log-probability of each token that came out."""
    log_probs = logits.log_softmax(-1)
    return [log_probs[row, range(len(ids)), torch.tensor(ids)] for row, ids in enumerate(outputs)]


# ---------------------------------------------------------------------------------------------


def _quoted(path: Path) -> str:
    """As Python reads it."""
    return json.dumps(str(path), ensure_ascii=not str(path).isprintable())


def _usage(out: Path, format: Format, config: Config, *, joint: bool) -> str:
    beam = config.decode.beam_size
    match format:
        case "ctranslate2":
            src, tgt = "pieces", "pieces"
            files = {src: _SENTENCEPIECE}
            if not joint:
                src, tgt = "source_pieces", "target_pieces"
                files = dict(zip((src, tgt), _SENTENCEPIECES, strict=True))
            load = "".join(
                f"{name} = sentencepiece.SentencePieceProcessor(model_file={_quoted(out / file)})\n"
                for name, file in files.items()
            )
            return f"""\
import ctranslate2, sentencepiece
{load}translator = ctranslate2.Translator({_quoted(out)})
source = {src}.encode("Text to translate.", out_type=str)
found = translator.translate_batch([source], beam_size={beam})
print({tgt}.decode(found[0].hypotheses[0]))
"""
        case "huggingface":
            return f"""\
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained({_quoted(out)})
model = AutoModelForSeq2SeqLM.from_pretrained({_quoted(out)})
source = tokenizer(["Text to translate."], padding=True, return_tensors="pt")
found = model.generate(**source, num_beams={beam})
print(*tokenizer.batch_decode(found, skip_special_tokens=True))
"""
        case _:
            return f"mtkit translate --run {shlex.quote(str(out))} < input.txt\n"
