"""All settings, as one frozen tree.

A `Config` has four sections. The defaults are the paper's base model (*Attention Is All You Need*,
2017), but that `translate` may end a search earlier (`decode.stop`). So a preset lists only what it
changes. Configurations are read by `load_config` and written by `dump_config`. The settings of
`prepare` are in `prepare_config`; they are stored with the data, not with the run.

Precedence: these defaults, the YAML file, then overrides such as ``train.max_steps=20000``.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from mtkit.base.arguments import checks_arguments
from mtkit.base.errors import MtkitError
from mtkit.base.files import shareable_name
from mtkit.base.models import Around, Check, InvalidValuesError, Limits, Model, explain
from mtkit.base.overrides import Expecting, parse_value
from mtkit.base.yaml import NotYamlError, cut, dump_yaml, parse_yaml, shown

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

log = logging.getLogger(__name__)

# Parameters that M2M-100 does not have, so that they keep the values that they were imported with.
KEPT_FROZEN = ("learned_positions", "output_bias")
_PRESETS = Path(__file__).with_name("presets")

# Limits, so that numbers, and products of sizes, fit in 64 bits.
LARGEST = 10**18
Count = Annotated[int, Limits(ge=1, le=LARGEST)]
BeamSize = Annotated[int, Limits(ge=1, le=1000)]
Number = Annotated[int, Limits(ge=0, le=LARGEST)]
Layers = Annotated[int, Limits(ge=1, le=1000)]
Heads = Annotated[int, Limits(ge=1, le=4096)]
Width = Annotated[int, Limits(ge=1, le=2**20)]
Seed = Annotated[int, Limits(ge=0, lt=2**64)]
Probability = Annotated[float, Limits(ge=0.0, lt=1.0)]


DeviceTokens = Annotated[
    Count | Annotated[str, Limits(pattern=r"^auto(:[1-9]\d{0,17})?$")] | None,
    Expecting("a whole number from 1 to 10^18, auto or null"),
]
AutoSwitch = Annotated[bool | Literal["auto"], Expecting("true, false or auto")]


class _AsNames(Around):
    """YAML has lists, but no tuples; one name needs no list."""

    def checked(self, value: Any, check: Check) -> Any:
        if isinstance(value, str):
            return check((value,))
        return check(tuple(value) if isinstance(value, list) else value)


Names = Annotated[tuple[Annotated[str, Limits(min_length=1)], ...], _AsNames()]


class Section(Model):
    """A group of settings."""

    # allow_inf_nan: a learning rate of .nan would only be noticed hours later, as a loss of nan;
    # protected_namespaces: older versions of pydantic warn of a setting `model_…`.
    model_config: ClassVar[dict[str, Any]] = {
        **Model.model_config,
        "allow_inf_nan": False,
        "protected_namespaces": (),
    }

    def changed(self, *keys: str) -> list[str]:
        """Those of some settings whose values are not the defaults."""
        return [key for key in keys if getattr(self, key) != self._fields[key].default]


def setting(default: Any, description: str) -> Any:
    """A field of a section."""
    return dataclasses.field(default=default, metadata={"description": description})


class DataConfig(Section):
    """Which prepared data a run is trained on."""

    # No operating system has file names with a NUL.
    dir: Annotated[str, Limits(pattern=r"^[^\x00]*$")] | None = setting(
        None, "prepared folder; --data takes precedence"
    )
    src_lang: str | None = setting(None, "refuse data with another source language")
    tgt_lang: str | None = setting(None, "refuse data with another target language")


class ModelConfig(Section):
    """The shape of the Transformer (Section 3; Table 3 names the variants)."""

    encoder_layers: Layers = setting(6, "encoder layers, N (Section 3.1)")
    decoder_layers: Layers = setting(6, "decoder layers, N (Section 3.1)")
    d_model: Width = setting(512, "width of every sub-layer's output (Section 3.1)")
    d_ff: Width = setting(2048, "inner width of the feed-forward network (Section 3.3)")
    n_heads: Heads = setting(8, "attention heads, h (Section 3.2.2)")
    d_k: Width | None = setting(None, "width of a head's keys; null: d_model / n_heads")
    d_v: Width | None = setting(None, "width of a head's values; null: d_k")
    attention_scale: Annotated[float, Limits(gt=0.0)] | None = setting(
        None, "factor on the products of queries and keys (3.2.1); null: 1 / sqrt(d_k)"
    )
    narrow_attention: bool = setting(
        False,
        "self-attention whose heads project only their own d_model / n_heads numbers of a vector; "
        "false: the whole vector (paper)",
    )
    dropout: Probability = setting(0.1, "dropout of sub-layers and embeddings (5.4)")
    attention_dropout: Probability = setting(0.0, "dropout of attention weights; 0 in the paper")
    activation_dropout: Probability = setting(
        0.0, "dropout inside the feed-forward network; 0 in the paper"
    )
    positions: Literal["sinusoidal", "learned", "words", "none"] = setting(
        "sinusoidal",
        "positional encoding: sinusoidal, learned (Table 3, row E), none (the order of words is "
        "lost), or words, for parsers: half of it tells which word of the sentence is read",
    )
    max_positions: Width = setting(1024, "maximum sequence length with learned positions")
    norm: Literal["post", "pre"] = setting(
        "post", "layer norm; post: after the residual sum (paper), pre: before the sub-layer"
    )
    attention_window: Count | None = setting(
        None, "limit self-attention to this many neighbours per side (Section 4)"
    )
    activation: Literal["relu", "silu"] = setting(
        "relu",
        "activation of the feed-forward network: relu (Section 3.3), or silu (SiLU, also called "
        "swish), for imported models",
    )
    output_bias: bool = setting(False, "bias of the logits, for imported models; none in the paper")
    norm_epsilon: Annotated[float, Limits(gt=0.0, lt=1.0)] = setting(
        1e-6,
        "added to the variance by layer norm; 1e-6 as in tensor2tensor and Marian, 1e-5 in models "
        "imported from transformers",
    )
    shared_embedding: bool = setting(
        False,
        "one embedding matrix for both sides although each has its own tokenizer, for imported "
        "models; both tokenizers must have the same list of subwords",
    )

    @property
    def key_width(self) -> int:
        """K: width of one head's queries and keys."""
        return self.d_k or self.d_model // self.n_heads

    @property
    def value_width(self) -> int:
        """Width of one head's values."""
        return self.d_v or self.key_width

    @property
    def max_tokens(self) -> int | None:
        """Tokens of a sequence that there are positions for; None if there are for any number."""
        return self.max_positions if self.positions == "learned" else None

    @property
    def query_factor(self) -> float:
        """What queries are multiplied by, so that scores divided by √K have `attention_scale`."""
        scale = self.attention_scale
        return 1.0 if scale is None else scale * math.sqrt(self.key_width)

    def _check(self) -> None:
        if self.d_k is None and self.d_model % self.n_heads:
            raise ValueError(
                f"n_heads: {self.n_heads} heads do not divide d_model {self.d_model}; give d_k"
            )
        narrow = self.d_model / self.n_heads
        if self.narrow_attention and not narrow == self.key_width == self.value_width:
            raise ValueError(
                f"narrow_attention: needs keys and values of d_model / n_heads, {narrow:g}; leave "
                "out d_k and d_v"
            )
        unit = {"sinusoidal": 2, "words": 4}.get(self.positions, 1)
        if self.d_model % unit:
            raise ValueError(
                f"d_model: {self.d_model}, but positions {self.positions} need a multiple of {unit}"
            )


class TrainConfig(Section):
    """The optimisation (Section 5)."""

    max_steps: Count = setting(100_000, "optimizer updates (Section 5.2)")
    batch_tokens: Count = setting(25_000, "tokens of each side in one update over all workers")
    batches_per_update: Count = setting(
        8, "length-bucketed batches accumulated per update (8 GPUs in the paper)"
    )
    batching: Literal["length", "approximate"] = setting(
        "length",
        "which pairs share a batch; length: nearly equal lengths; approximate (earlier versions "
        "only) is refused in training",
    )
    device_batch_tokens: DeviceTokens = setting(
        None,
        "tokens on a device at a time; null: 25,000 on a GPU, 4,096 on a CPU; auto: the default, "
        "or fewer if memory is too small; the run stores the number as auto:NUMBER",
    )
    warmup_steps: Count = setting(4000, "updates with a rising learning rate (5.3)")
    schedule: Literal["paper", "constant", "linear", "cosine"] = setting(
        "paper",
        "learning rate after the warm-up; paper: the formula of Section 5.3, constant: "
        "train.learning_rate, linear or cosine: from there to zero at max_steps",
    )
    learning_rate_scale: Annotated[float, Limits(gt=0.0)] = setting(
        1.0, "factor on the learning rate of the schedule paper"
    )
    learning_rate: Annotated[float, Limits(ge=0.0)] | None = setting(
        None, "highest learning rate of the schedules constant, linear and cosine"
    )
    decay_steps: Number = setting(
        0, "final updates of linear decay of the learning rate to zero; 0 is off"
    )
    finish_after: Number = setting(0, "the step at which train --finish-in was given")
    finish_steps: Number = setting(0, "updates from there to the end; 0 is off")
    freeze: Names = setting(
        (),
        "parameters that are not trained: their names or the beginnings of them, such as "
        "embedding or encoder.0, patterns with *, or all rows but the last, such as "
        "embedding[:8000], as of a run that gets subwords",
    )
    lora_rank: Number = setting(
        0, "train only a change of this rank per matrix (LoRA, Hu et al. 2022); 0: all weights"
    )
    lora_alpha: Annotated[float, Limits(gt=0.0, le=1e6)] | None = setting(
        None, "factor on that change, divided by the rank; null: twice the rank"
    )
    lora_matrices: Names = setting(
        ("*attention.*", "*feed_forward.*"), "matrices that lora_rank changes, named as in freeze"
    )
    ema: Annotated[float, Limits(ge=0.0, lt=1.0)] = setting(
        0.0,
        "exponential moving average of the weights, which is validated and saved: the share that "
        "stays in each update, such as 0.999; 0 is off",
    )
    label_smoothing: Probability = setting(0.1, "label smoothing, epsilon_ls (5.4)")
    bpe_dropout: Probability = setting(
        0.0,
        "probability of skipping a BPE merge, each time a pair is read (Provilkov et al. 2020, "
        "who use 0.1, for small corpora); 0 in the paper",
    )
    guided_alignment: Annotated[float, Limits(ge=0.0)] = setting(
        0.0,
        "weight of the loss that trains one attention head on the word alignments of the data, or "
        "of a parser on the word that it reads next; 0 is off, others use 0.05 to 0.1 for word "
        "alignments",
    )
    guided_layer: Layers | None = setting(
        None, "decoder layer, from 1, whose first head guided_alignment trains; null: last but one"
    )
    optimizer: Literal["adam", "muon"] = setting(
        "adam",
        "adam (Section 5.3), or muon (Jordan et al. 2024) for the matrices of the layers and Adam "
        "for the rest, which learns more from each update",
    )
    adam_beta1: Probability = setting(0.9, "Adam's beta_1 (Section 5.3)")
    adam_beta2: Probability = setting(0.98, "Adam's beta_2 (Section 5.3)")
    adam_epsilon: Annotated[float, Limits(gt=0.0)] = setting(1e-9, "Adam's epsilon (5.3)")
    precision: Literal["auto", "fp32", "bf16"] = setting(
        "auto", "precision of matrix products; auto: bf16 if the hardware has it, else fp32"
    )
    tf32: bool = setting(
        False,
        "on GPUs since Ampere, products of float32 matrices in TF32, which is faster and has "
        "10 mantissa bits instead of 23; no effect on products in bf16",
    )
    compile: AutoSwitch = setting(
        "auto",
        "compile layers with torch.compile, on a GPU also the loss; auto: on a GPU where it works",
    )
    gpu_path: Literal["auto", "plain", "packed"] = setting(
        "auto",
        "how an update is computed; packed and auto: its batches in one pass, as one row of "
        "tokens; plain: batch by batch",
    )
    fsdp: bool = setting(False, "shard weights and optimizer over the workers (FSDP2)")
    seed: Seed = setting(1, "random seed of weights, data order and dropout")
    log_every: Count = setting(100, "updates between two rows of training metrics")
    valid_every: Count = setting(1500, "updates between two validations")
    valid_early: bool = setting(
        False, "also validate after an eighth, a quarter and half of valid_every updates"
    )
    checkpoint_every: Count = setting(
        1500,
        "updates between two checkpoints; 1,500 took the paper ten minutes (6.1); a new best "
        "model is also saved",
    )
    sustained_flops: Annotated[float, Limits(gt=0.0)] | None = setting(
        None,
        "sustained operations per second of all devices, to estimate the cost as in Table 2; the "
        "paper assumes 9.5e12 for each of its eight GPUs",
    )
    keep_checkpoints: Count = setting(5, "newest checkpoints to keep, and the best one")
    keep_every: Count | None = setting(None, "also keep the checkpoints at multiples of this step")
    best_metric: Literal["bleu", "chrf", "chrf++", "f1", "loss"] = setting(
        "bleu",
        "metric that selects the best checkpoint: bleu, chrf, chrf++ or loss; parsers: f1 or loss",
    )
    best_set: str | None = setting(
        None,
        "validation set that selects the best checkpoint: a further one (valid_also) or a "
        "direction, by name; null: the main one, or the mean over all directions",
    )
    may_lose: Annotated[float, Limits(ge=0.0)] | None = setting(
        None,
        "stop fine-tuning when a further set or a direction is by more than this worse in "
        "best_metric than before; null: only warn",
    )
    patience: Count | None = setting(
        None, "stop after this many validations in a row without a new best; null: never"
    )
    stall_timeout: Annotated[float, Limits(gt=0.0)] = setting(
        1800.0, "with several workers: seconds that one waits for another before the run ends"
    )

    @property
    def has_auto_tokens(self) -> bool:
        """Whether fewer tokens are computed at a time if memory is too small."""
        return isinstance(self.device_batch_tokens, str)

    @property
    def last_step(self) -> int:
        """The update after which training ends."""
        return self.finish_after + self.finish_steps if self.finish_steps else self.max_steps

    @property
    def early_validations(self) -> list[int]:
        """The updates after which `valid_early` has the model validated."""
        early = {self.valid_every // 8, self.valid_every // 4, self.valid_every // 2} - {0}
        return sorted(early) if self.valid_early else []

    def is_validated(self, step: int) -> bool:
        """Whether the model is validated after this update."""
        return step % self.valid_every == 0 or step in (self.last_step, *self.early_validations)

    def _check(self) -> None:
        if self.schedule == "paper" and self.learning_rate is not None:
            raise ValueError(
                "learning_rate: the schedule paper has a formula instead; set train.schedule to "
                "constant, linear or cosine, or set train.learning_rate_scale"
            )
        if self.schedule != "paper" and self.learning_rate is None:
            raise ValueError(f"learning_rate: the schedule {self.schedule} needs it")
        if not self.lora_rank:
            for key in self.changed("lora_alpha", "lora_matrices"):
                raise ValueError(f"{key}: has no effect without train.lora_rank")
        if self.fsdp:
            if self.has_auto_tokens:
                raise ValueError("device_batch_tokens: auto cannot be combined with train.fsdp")
            for key in self.changed("lora_rank", "ema", "freeze", "optimizer"):
                raise ValueError(f"{key}: cannot be combined with train.fsdp")


class DecodeConfig(Section):
    """How a run translates (Section 6.1)."""

    beam_size: BeamSize = setting(4, "beam size; 1 is greedy search")
    length_penalty: Annotated[float, Limits(ge=-10, le=10)] = setting(
        0.6, "length penalty alpha; higher favours longer translations"
    )
    length_penalty_form: Literal["gnmt", "power"] = setting(
        "gnmt", "length penalty; gnmt: ((5 + length) / 6) ** alpha (paper), power: length ** alpha"
    )
    stop: Literal["auto", "exact", "likely"] = setting(
        "auto",
        "when a beam search ends; exact: when no other hypothesis can win; likely: when none can "
        "win within three more subwords; auto: exact, but likely for translate and serve",
    )
    max_extra_length: Number = setting(
        50, "maximum output length, in subwords beyond the length of the input"
    )
    min_length: Number = setting(0, "minimum output length in subwords")
    max_length: Count | None = setting(
        None, "maximum output length in subwords, besides max_extra_length"
    )
    no_repeat_ngram: Number = setting(0, "block repeated n-grams of this many subwords; 0 is off")
    sample: bool = setting(False, "sample translations instead of beam search")
    mbr_samples: Annotated[int, Limits(ge=0, le=256)] = setting(
        0,
        "minimum Bayes risk decoding: samples per line, of which the one with the highest mean "
        "chrF to the others is chosen; 0 is off",
    )
    temperature: Annotated[float, Limits(ge=0.001)] = setting(
        1.0, "softmax temperature of sampling"
    )
    top_k: Number = setting(0, "sample from this many most probable subwords; 0 is off")
    top_p: Annotated[float, Limits(gt=0.0, le=1.0)] = setting(
        1.0, "nucleus sampling: sample from the fewest subwords that sum to this probability"
    )
    seed: Seed = setting(1, "random seed; the same seed and line number give the same sample")
    well_formed_trees: bool = setting(
        False, "of a parser: search only among well-formed trees; false: repair other outputs"
    )
    average_checkpoints: Count = setting(5, "newest checkpoints averaged to translate")
    batch_tokens: Count | None = setting(
        None,
        "batch size in source tokens, padding included; null: 1536 over the number of hypotheses "
        "in the native engine, otherwise 4096 on a CPU and 32768 on a GPU",
    )
    max_source_tokens: Count = setting(
        1024, "maximum input length in subwords; longer inputs are cut, with a warning"
    )
    split_sentences: AutoSwitch = setting(
        "auto",
        "translate the sentences of a line one by one; auto: if fewer than 10 % of the training "
        "lines have several, or nothing is known of them",
    )
    copy_numbers: bool = setting(
        True, "copy text without letters, or with addresses and placeholders only; not for a parser"
    )
    precision: Literal["auto", "fp32", "bf16", "int8"] = setting(
        "auto",
        "precision of matrix products; auto: bf16 in the native engine on CPUs with fast units "
        "for it (AMX, AMD since Zen 4), else fp32, the most exact; int8: the fastest on most "
        "CPUs, slightly less accurate; on a CPU bf16 and int8 need the native engine",
    )
    engine: Literal["auto", "native", "torch"] = setting(
        "auto",
        "what decodes on a CPU; native: the engine in C++, if it can; torch: PyTorch; auto: native "
        "for what it can, otherwise PyTorch",
    )
    gpu_path: Literal["auto", "plain", "device"] = setting(
        "auto",
        "how often the host asks which sentences are finished; auto: every 8 steps on a GPU, every "
        "step on a CPU; plain: every step; device: every 8 steps, also on a CPU, to compare",
    )

    def batch_tokens_on(self, device_type: str) -> int:
        """`batch_tokens`, or its default for `cpu` or another type of device."""
        return self.batch_tokens or (4096 if device_type == "cpu" else 32_768)

    def _check(self) -> None:
        if not self.sample and not self.mbr_samples:
            for key in self.changed("temperature", "top_k", "top_p"):
                value = getattr(self, key)
                raise ValueError(f"{key}: {value} requires sampling; set sample or mbr_samples")
        if self.max_length is not None and self.max_length < self.min_length:
            raise ValueError(
                f"max_length: {self.max_length} is less than min_length, {self.min_length}"
            )

    def greedy(self) -> DecodeConfig:
        """The same with greedy search, without sampling, and every line by the model as a whole."""
        plain = {"sample": False, "mbr_samples": 0, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        plain |= {"beam_size": 1, "split_sentences": False, "copy_numbers": False}
        return self.model_copy(update=plain)


class Config(Section):
    """Everything that a run depends on besides its data."""

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()

    def _check(self) -> None:
        layer, layers = self.train.guided_layer, self.model.decoder_layers
        if layer is not None and layer > layers:
            raise ValueError(f"train.guided_layer: {layer}, but model.decoder_layers is {layers}")

    def for_weights_of(self, other: Config, *, origin: str) -> Config:
        """This configuration, for a training that starts from the weights of a run.

        The sections `model` and `decode` come from that run, and its frozen `KEPT_FROZEN` stay so.
        Settings of the model that are given here must agree with it, except dropout, which is not
        part of the weights. Settings of decoding that are given here stay.

        Raises:
            MtkitError: naming the setting that contradicts those of the run.
        """
        model = other.model.model_dump()
        for key in sorted(self.model.model_fields_set):
            value = getattr(self.model, key)
            if not key.endswith("dropout") and value != model[key]:
                raise MtkitError(
                    f"model.{key}: {value} contradicts {origin}, where it is {model[key]}; leave "
                    "it out: the model section comes from there"
                )
            model[key] = value
        # How the checkpoints of a run are averaged depends on its own training.
        given = self.decode.model_fields_set | {"average_checkpoints"}
        decode = other.decode.model_dump() | self.decode.model_dump(include=given)
        tree = self.model_dump() | {"model": model, "decode": decode}
        kept = [name for name in KEPT_FROZEN if name in other.train.freeze]
        return parse_config(tree, origin=f"with the settings of {origin}").freezing(kept)

    def freezing(self, names: Iterable[str]) -> Config:
        """The same with more names in `train.freeze`."""
        freeze = tuple(dict.fromkeys((*self.train.freeze, *names)))
        return self.model_copy(update={"train": self.train.model_copy(update={"freeze": freeze})})

    def shareable(self) -> Config:
        """The same without the folders of this machine."""
        folder = self.data.dir
        if folder is None or shareable_name(folder) == folder:
            return self
        return self.model_copy(update={"data": self.data.model_copy(update={"dir": None})})

    @property
    def guided_layer(self) -> int:
        """The decoder layer that `train.guided_alignment` trains a head of, from 1."""
        return self.train.guided_layer or max(1, self.model.decoder_layers - 1)


def setting_fields(section: type[Section]) -> dict[str, FieldInfo]:
    """The fields of all settings by their dotted keys, such as `train.max_steps`."""
    fields: dict[str, FieldInfo] = {}
    for key, field in section.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            fields |= {f"{key}.{name}": field for name, field in setting_fields(inner).items()}
        else:
            fields[key] = field
    return fields


def presets() -> list[str]:
    """Names of the configurations that ship with mtkit."""
    return sorted(file.stem for file in _PRESETS.glob("*.yaml"))


def config_name(path_or_preset: str) -> str:
    """The name a run gets from its configuration: `configs/big.yaml` and `big` both give `big`."""
    return Path(path_or_preset).name.removesuffix(".yaml").removesuffix(".yml")


@checks_arguments
def load_config(path_or_preset: str, overrides: Iterable[str] = ()) -> Config:
    """The configuration of an existing file, otherwise of the preset with that name.

    Overrides, ``section.key=value`` with a value in YAML, are applied in their order.

    Raises:
        MtkitError: naming the file or override, the dotted key and the value.
    """
    path = Path(path_or_preset)
    if os.path.isfile(path):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MtkitError(f"{path}: cannot be read as a configuration: {error}") from error
    else:
        text = preset_text(path_or_preset)
    tree = _parse_yaml(text, where=path_or_preset)
    overrides = list(overrides)
    for override in overrides:
        _apply_override(tree, override)
    return parse_config(tree, origin=path_or_preset, overrides=overrides)


def parse_config(tree: Any, *, origin: str, overrides: Sequence[str] = ()) -> Config:
    """The configuration in a plain tree of dictionaries.

    Error messages name its origin, or the override, of those applied to it, that is wrong.
    """
    try:
        return Config.model_validate(tree)
    except InvalidValuesError as error:
        mistake = first_mistake(error, Config)
        where = ".".join(str(part) for part in error.errors()[0]["loc"][:2])
        for override in overrides:
            key = override.partition("=")[0].strip()
            # A mistake of a whole section names its settings; one of its name has no other words.
            is_named = "." in where or "unknown key" in mistake or key.partition(".")[2] in mistake
            if is_named and f"{key}.".startswith(f"{where}."):
                origin = f"--set {cut(override)}"
        raise MtkitError(f"{origin}: {mistake}") from None


def first_mistake(error: InvalidValuesError, root: type[Section]) -> str:
    """The first mistake of some settings in one line; an unknown key has a suggestion."""
    first = error.errors()[0]
    if first["type"] != "extra_forbidden":
        return explain(error)
    path = [cut(str(part)) for part in first["loc"]]
    group, key, known = path[0], path[-1], list(setting_fields(root))
    own = [name.partition(".")[2] for name in known if name.startswith(f"{group}.")]
    # In its section, as the setting of another section, or as anything else.
    near = [f"{group}.{match}" for match in difflib.get_close_matches(key, own, n=1)]
    near = near or [name for name in known if name.rpartition(".")[2] == key.rpartition(".")[2]]
    near = near or difflib.get_close_matches(".".join(path), [*root.model_fields, *known], n=1)
    return explain(error) + (f"; did you mean {near[0]}?" if near else "")


def change_decoding(decode: DecodeConfig, changes: dict[str, Any]) -> DecodeConfig:
    """The same settings with some values changed; an error names the setting and the value."""
    return parse_config({"decode": decode.model_dump() | changes}, origin="options").decode


def dump_config(config: Config) -> str:
    """YAML that `load_config` reads back to an equal tree."""
    return dump_yaml(config.model_dump())


def preset_text(name: str) -> str:
    """The YAML of a configuration that ships with mtkit."""
    stem = name.removesuffix(".yaml").removesuffix(".yml")
    if stem not in presets():
        near = difflib.get_close_matches(stem, presets(), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise MtkitError(
            f"{cut(name)}: neither a file nor a preset{hint} (presets: {', '.join(presets())})"
        )
    return (_PRESETS / f"{stem}.yaml").read_text(encoding="utf-8")


def _parse_yaml(text: str, *, where: str) -> dict[str, Any]:
    try:
        tree = parse_yaml(text)
    except NotYamlError as error:
        raise MtkitError(f"{where}: not YAML: {cut(str(error), 400)}") from None
    if tree is None:
        log.warning("%s: has no settings: all are those of the paper's base model", where)
        return {}
    if not isinstance(tree, dict):
        raise MtkitError(
            f"{where}: expected sections (data, model, train, decode), not {shown(tree)}"
        )
    # A section with every line commented out is an empty section.
    return {key: {} if value is None else value for key, value in tree.items()}


def _apply_override(tree: dict[str, Any], override: str) -> None:
    dotted, equals, text = override.partition("=")
    section, _, key = dotted.strip().partition(".")
    if not equals or not section or not key:
        raise MtkitError(
            f"--set {cut(override)}: write section.key=value, as in train.max_steps=20000"
        )
    value = parse_value(override, text)
    settings = tree.setdefault(section, {})
    if isinstance(settings, dict):  # else it is refused together with the file
        settings[key] = value
