"""Time training on the CPU against the other toolkits, on the same batches, in one run.

    python benchmarks/train_cpu.py --data data/multi30k [--quick] [--size base] [--threads 2]

`--data` is a prepared corpus with 8,000 pieces (examples/multi30k). Each toolkit is installed
into an environment of its own under `--peers-dir`, all of them with the torch that mtkit has here,
and runs there in a process of its own, pinned to one core (or to two): its model, its loss and its
optimizer, driven from here one update at a time. One that cannot be installed or started is named
and left out. Only one process computes at a time, and they take turns: A B C, C B A, and so on.

What is timed is whole updates on the same batches in the same order, of about one length, padding
at the end; what is counted is real target tokens, EOS included and padding not. A round begins with
an update that is not timed, because between its turns a process gives back the memory it has free.
What is reported is the ratio of the rounds, paired, with its range, by the clock and by the time
that the CPU has worked, which other load on the machine hardly changes, and then the speeds.

Speed without learning is worth nothing, so before it is timed each toolkit makes 200 updates, and
is judged by one definition: the mean negative log-likelihood of a target token, in nats, without
smoothing and without dropout, of every fifth batch before it is trained on, and of the validation
set at the end. All begin with values drawn alike; `--seeds 3` shows what is noise.

All have the paper's settings: label smoothing and dropout of 0.1 (dropout on attention weights and
inside the feed-forward network is off, as in the paper, wherever a toolkit can switch it off), Adam
with (0.9, 0.98), the paper's schedule with 4,000 steps of warm-up, no clipping of gradients,
sinusoidal positions, and one matrix for both embeddings and the output.

This file runs in every environment, so at its top it imports nothing but torch, numpy and peers.py,
which makes the environments.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Last, because the modules beside this file are not for the toolkits to import.
sys.path.append(str(Path(__file__).parent))
from peers import (
    TOOLKITS,
    LeftOutError,
    Process,
    last_cores,
    malloc_trim,
    peak_bytes,
    processor,
    python_of,
    serve,
    spread,
    version_of,
)

# Those of mtkit.tokenizer, which the peers' environments do not have.
PAD, BOS, EOS, UNK = range(4)
SMOOTHING = DROPOUT = 0.1
BETAS, EPSILON = (0.9, 0.98), 1e-9
WARMUP_STEPS = 4000
LONGEST = 512
EVALUATE_EVERY = 5
TOKENS_PER_ROUND = 12_000
SETTLING_UPDATES = 3


@dataclass(frozen=True)
class Size:
    """The shape of a model, the same for encoder and decoder."""

    layers: int
    d_model: int
    d_ff: int
    heads: int


SIZES = {"small": Size(3, 256, 1024, 4), "base": Size(6, 512, 2048, 8)}


@dataclass(frozen=True)
class Setting:
    """What a worker gets when it starts.

    Attributes:
        size: of the model.
        vocabulary: number of pieces.
        seed: of the initial weights and of dropout.
        threads: to compute with.
        data: the prepared folder.
        batches: the file that `write_batches` wrote.
        budget: most slots of a batch on either side.
        overrides: for mtkit, `section.key=value`.
    """

    size: Size
    vocabulary: int
    seed: int
    threads: int
    data: str
    batches: str
    budget: int
    overrides: list[str]


@dataclass(frozen=True)
class Batch:
    """Sentence pairs side by side, padded at the end.

    Attributes:
        src: (B, S), each sentence ended by EOS.
        tgt_in: (B, T), begun by BOS.
        tgt_out: (B, T), ended by EOS.
        indices: (B,), which pairs of the corpus they are.
    """

    src: Tensor
    tgt_in: Tensor
    tgt_out: Tensor
    indices: np.ndarray

    @classmethod
    def of(cls, src: np.ndarray, tgt: np.ndarray, indices: np.ndarray) -> Batch:
        """The batch of two padded arrays of sentences that EOS ends."""
        tgt_out = torch.from_numpy(tgt).long()
        tgt_in = F.pad(tgt_out[:, :-1], (1, 0), value=BOS)
        tgt_in = tgt_in.masked_fill(tgt_in == EOS, PAD)
        return cls(torch.from_numpy(src).long(), tgt_in, tgt_out, indices)

    @property
    def num_tokens(self) -> int:
        """Target tokens, EOS counted, padding not."""
        return int((self.tgt_out != PAD).sum())

    def whole_target(self) -> Tensor:
        """(B, T + 1), begun by BOS and ended by EOS."""
        return F.pad(self.tgt_out, (1, 0), value=BOS)


def learning_rate(step: int, d_model: int) -> float:
    """The paper's, of update `step`, counted from 1 (Section 5.3, equation 3)."""
    return float(d_model**-0.5 * min(step**-0.5, step * WARMUP_STEPS**-1.5))


# ---------------------------------------------------------------------------------------------
# The toolkits, one function each, which imports its toolkit when it is called and not before


@dataclass(frozen=True)
class Peer:
    """A toolkit's model, loss and optimizer.

    Attributes:
        model: what is trained.
        update: one optimizer step, of this number, on the mean loss of a target token.
        logits: (B, T, V), of the next target tokens.
        note: what to know about it that shows only when it runs.
    """

    model: nn.Module
    update: Callable[[Batch, int], None]
    logits: Callable[[Batch], Tensor]
    note: str = ""


def mtkit_fp32(setting: Setting, example: Batch) -> Peer:
    """mtkit without bfloat16, which it uses by default where the CPU has it."""
    overrides = [*setting.overrides, "train.precision=fp32"]
    return mtkit(dataclasses.replace(setting, overrides=overrides), example)


def mtkit(setting: Setting, example: Batch) -> Peer:
    """`mtkit.train.trainer.Trainer`, as `mtkit train` sets it up on a CPU."""
    from mtkit.base.devices import choose_device, disable_malloc_trim
    from mtkit.config import load_config
    from mtkit.data import PreparedData
    from mtkit.train.trainer import Trainer

    size = setting.size
    config = load_config(
        "base",
        [
            f"model.encoder_layers={size.layers}",
            f"model.decoder_layers={size.layers}",
            f"model.d_model={size.d_model}",
            f"model.d_ff={size.d_ff}",
            f"model.n_heads={size.heads}",
            f"model.dropout={DROPOUT}",
            f"train.batch_tokens={setting.budget}",
            f"train.device_batch_tokens={setting.budget}",
            "train.batches_per_update=1",
            f"train.label_smoothing={SMOOTHING}",
            f"train.warmup_steps={WARMUP_STEPS}",
            f"train.seed={setting.seed}",
            *setting.overrides,
        ],
    )
    device = choose_device("cpu")
    disable_malloc_trim()
    trainer = Trainer(config, PreparedData.open(Path(setting.data)), device=device)

    def update(batch: Batch, step: int) -> None:
        # It puts the batch together itself, from the pairs of the corpus.
        trainer.update([batch.indices])

    return Peer(
        trainer.model,
        update,
        lambda batch: trainer.model(batch.src, batch.tgt_in),
        note=", ".join(
            [trainer.precision, f"matrices by {trainer.matmul_backend}", *setting.overrides]
        ),
    )


class PlainModel(nn.Module):
    """A translation model put together from `torch.nn.Transformer`, as a tutorial would."""

    def __init__(self, size: Size, vocabulary: int) -> None:
        super().__init__()
        self.scale = size.d_model**0.5
        self.embedding = nn.Embedding(vocabulary, size.d_model, padding_idx=PAD)
        self.dropout = nn.Dropout(DROPOUT)
        self.transformer = nn.Transformer(
            size.d_model,
            size.heads,
            size.layers,
            size.layers,
            size.d_ff,
            DROPOUT,
            batch_first=True,
        )
        rates = torch.exp(torch.arange(0, size.d_model, 2) * (-math.log(10_000) / size.d_model))
        angles = torch.arange(LONGEST)[:, None] * rates
        self.register_buffer("positions", torch.stack((angles.sin(), angles.cos()), -1).flatten(1))

    def embed(self, ids: Tensor) -> Tensor:
        """Scaled embeddings plus positions, (B, T, D)."""
        return self.dropout(self.embedding(ids) * self.scale + self.positions[: ids.shape[1]])

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits (B, T, V)."""
        hidden = src == PAD
        length = tgt_in.shape[1]
        out = self.transformer(
            self.embed(src),
            self.embed(tgt_in),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(length, dtype=torch.bool),
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
            tgt_is_causal=True,
        )
        return F.linear(out, self.embedding.weight)


def plain(setting: Setting, example: Batch) -> Peer:
    """The loop that one writes first: float32, `torch.optim.Adam`, logits at every position."""
    model = PlainModel(setting.size, setting.vocabulary)
    optimizer = torch.optim.Adam(model.parameters(), betas=BETAS, eps=EPSILON)
    return Peer(
        model,
        plain_update(setting, model, optimizer, contextlib.nullcontext),
        lambda batch: model(batch.src, batch.tgt_in),
    )


def plain_bf16(setting: Setting, example: Batch) -> Peer:
    """The same loop as one makes it fast: matrix products in bfloat16, and Adam in one kernel."""
    model = PlainModel(setting.size, setting.vocabulary)
    optimizer = torch.optim.Adam(model.parameters(), betas=BETAS, eps=EPSILON, fused=True)
    autocast = functools.partial(torch.autocast, "cpu", dtype=torch.bfloat16)
    return Peer(
        model,
        plain_update(setting, model, optimizer, autocast),
        lambda batch: model(batch.src, batch.tgt_in),
    )


def plain_update(
    setting: Setting,
    model: PlainModel,
    optimizer: torch.optim.Optimizer,
    arithmetic: Callable[[], contextlib.AbstractContextManager[Any]],
) -> Callable[[Batch, int], None]:
    """The update of a plain loop."""

    def update(batch: Batch, step: int) -> None:
        set_rate(optimizer, setting.size, step)
        optimizer.zero_grad()
        with arithmetic():
            loss = F.cross_entropy(
                model(batch.src, batch.tgt_in).flatten(0, 1),
                batch.tgt_out.flatten(),
                ignore_index=PAD,
                label_smoothing=SMOOTHING,
            )
        loss.backward()
        optimizer.step()

    return update


def marian(setting: Setting, example: Batch) -> Peer:
    """Hugging Face's `MarianMTModel`, trained by what their `Trainer` would train it by.

    That is its `LabelSmoother` and fused AdamW, here without weight decay, which makes it Adam.
    """
    from transformers import MarianConfig, MarianMTModel
    from transformers.trainer_pt_utils import LabelSmoother

    size = setting.size
    model = MarianMTModel(
        MarianConfig(
            vocab_size=setting.vocabulary,
            d_model=size.d_model,
            encoder_layers=size.layers,
            decoder_layers=size.layers,
            encoder_attention_heads=size.heads,
            decoder_attention_heads=size.heads,
            encoder_ffn_dim=size.d_ff,
            decoder_ffn_dim=size.d_ff,
            dropout=DROPOUT,
            attention_dropout=0.0,
            activation_dropout=0.0,
            activation_function="relu",
            scale_embedding=True,
            share_encoder_decoder_embeddings=True,
            max_position_embeddings=LONGEST,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
        )
    )
    smoother = LabelSmoother(epsilon=SMOOTHING)
    optimizer = torch.optim.AdamW(
        model.parameters(), betas=BETAS, eps=EPSILON, weight_decay=0.0, fused=True
    )

    def forward(batch: Batch) -> Any:
        return model(
            input_ids=batch.src,
            attention_mask=(batch.src != PAD).long(),
            decoder_input_ids=batch.tgt_in,
            use_cache=False,
        )

    def update(batch: Batch, step: int) -> None:
        set_rate(optimizer, size, step)
        labels = batch.tgt_out.masked_fill(batch.tgt_out == PAD, smoother.ignore_index)
        smoother(forward(batch), labels).backward()
        optimizer.step()
        model.zero_grad()

    return Peer(model, update, lambda batch: forward(batch).logits)


def joeynmt(setting: Setting, example: Batch) -> Peer:
    """JoeyNMT's model, loss, optimizer and batches; the step is that of its `TrainManager`.

    A `TrainManager` cannot be had without corpora and a folder of its own.
    """
    from joeynmt.batch import Batch as TheirBatch
    from joeynmt.builders import build_optimizer
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    size = setting.size
    special = {"unk": "<unk>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
    pieces = Vocabulary(
        [f"piece{i}" for i in range(len(special), setting.vocabulary)],
        SimpleNamespace(
            **{f"{name}_token": token for name, token in special.items()},
            **{f"{name}_id": number for number, name in enumerate(special)},
            sep_token=None,
            lang_tags=[],
        ),
    )
    # It insists on numbers of its own when it is made; afterwards only these are read.
    pieces.pad_index, pieces.bos_index, pieces.eos_index, pieces.unk_index = PAD, BOS, EOS, UNK
    stack = {
        "type": "transformer",
        "num_layers": size.layers,
        "num_heads": size.heads,
        "embeddings": {"embedding_dim": size.d_model, "scale": True, "dropout": DROPOUT},
        "hidden_size": size.d_model,
        "ff_size": size.d_ff,
        "dropout": DROPOUT,
        "layer_norm": "post",
    }
    tied = {"tied_embeddings": True, "tied_softmax": True}
    model = build_model({**tied, "encoder": stack, "decoder": stack}, pieces, pieces)
    model.loss_function = ("crossentropy", SMOOTHING)
    optimizer = build_optimizer({"optimizer": "adam", "adam_betas": BETAS}, model.parameters())

    def convert(batch: Batch) -> Any:
        return TheirBatch(
            src=batch.src,
            src_length=(batch.src != PAD).sum(1),
            src_prompt_mask=None,
            trg=batch.whole_target(),
            trg_prompt_mask=None,
            indices=torch.arange(len(batch.src)),
            device=torch.device("cpu"),
            pad_index=PAD,
            eos_index=EOS,
        )

    def update(batch: Batch, step: int) -> None:
        set_rate(optimizer, size, step)
        theirs = convert(batch)
        theirs.sort_by_src_length()
        summed, _, _, correct = model(return_type="loss", **vars(theirs))
        loss = theirs.normalize(summed, normalization="tokens")
        loss.backward()
        loss.item(), correct.item()
        optimizer.step()
        model.zero_grad()

    # Log-probabilities are logits too.
    return Peer(model, update, lambda batch: model(return_type="loss", **vars(convert(batch)))[1])


def sockeye(setting: Setting, example: Batch) -> Peer:
    """Sockeye's model, traced as its trainer does it, with its loss and its optimizer.

    The functions of `sockeye.train` make them, from options of its command line.
    """
    from sockeye import arguments, data_io, optimizers, train, training
    from sockeye.model import SockeyeModel, initialize_parameters

    size, vocabulary = setting.size, [setting.vocabulary]
    options = {
        "num-layers": size.layers,
        "transformer-model-size": size.d_model,
        "transformer-attention-heads": size.heads,
        "transformer-feed-forward-num-hidden": size.d_ff,
        "transformer-dropout-attention": 0.0,
        "transformer-dropout-act": 0.0,
        "transformer-dropout-prepost": DROPOUT,
        # Post-norm: dropout, residual, norm.
        "transformer-preprocess": "",
        "transformer-postprocess": "drn",
        "embed-dropout": 0.0,  # the stacks begin with one
        "weight-tying-type": "src_trg_softmax",
        "label-smoothing": SMOOTHING,
        "optimizer": "adam",
        "optimizer-betas": f"{BETAS[0]}:{BETAS[1]}",
        "optimizer-eps": EPSILON,
        "gradient-clipping-type": "none",
        # It wants files that exist, and reads none of them here.
        "source": __file__,
        "target": __file__,
        "validation-source": __file__,
        "validation-target": __file__,
        "output": os.devnull,
    }
    parser = arguments.ConfigArgumentParser()
    arguments.add_train_cli_args(parser)
    args = parser.parse_args(
        ["--shared-vocab", "--use-cpu", *(f"--{key}={value}" for key, value in options.items())]
    )
    corpus = data_io.DataStatistics(*[0] * 10, 1.0, 0.0, [], [], [])
    model = SockeyeModel(
        train.create_model_config(
            args=args,
            source_vocab_sizes=vocabulary,
            target_vocab_sizes=vocabulary,
            max_seq_len_source=LONGEST,
            max_seq_len_target=LONGEST,
            config_data=data_io.DataConfig(corpus, LONGEST, LONGEST, 1, 1),
        )
    )
    model.apply(initialize_parameters)
    optimizer_class, optimizer_options, zero_options = optimizers.get_optimizer(
        train.create_optimizer_config(args)
    )
    optimizer = optimizer_class(model.parameters(), **optimizer_options)

    def convert(batch: Batch) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        theirs = data_io.create_batch_from_parallel_sample(
            *(ids.int()[..., None] for ids in (batch.src, batch.tgt_in, batch.tgt_out))
        )
        inputs = theirs.source, theirs.source_length, theirs.target, theirs.target_length
        return inputs, theirs.labels

    traced = torch.jit.trace(model, convert(example)[0], strict=False)
    trained = training.ModelWithLoss(traced, train.create_losses(args, vocabulary))

    def update(batch: Batch, step: int) -> None:
        inputs, labels = convert(batch)
        loss, losses, counts = trained(*inputs, labels)
        loss.backward()
        losses[0].item(), counts[0].item()
        set_rate(optimizer, size, step)
        optimizer.step()
        optimizer.zero_grad(**zero_options)

    return Peer(model, update, lambda batch: model(*convert(batch)[0])["logits"])


def eole(setting: Setting, example: Batch) -> Peer:
    """eole's `Trainer`, one training step at a time, with its optimizer and schedule."""
    import pyonmttok
    from eole.config.models import TransformerModelConfig
    from eole.config.training import TrainingConfig
    from eole.models.model import EncoderDecoderModel
    from eole.trainer import Trainer, TrainerConfig
    from eole.utils import Statistics
    from eole.utils.loss import LossCompute
    from eole.utils.optimizers import Optimizer

    size = setting.size
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    pieces = pyonmttok.build_vocab_from_tokens(
        [f"piece{i}" for i in range(len(special), setting.vocabulary)],
        special_tokens=list(special.values()),
    )
    vocabularies = {"src": pieces, "tgt": pieces, "specials": special}
    shape = TransformerModelConfig(
        layers=size.layers,
        hidden_size=size.d_model,
        word_vec_size=size.d_model,
        transformer_ff=size.d_ff,
        heads=size.heads,
        share_embeddings=True,
        share_decoder_embeddings=True,
        add_qkvbias=True,
        add_final_linear_bias=True,
        add_ffnbias=True,
        position_encoding_type="SinusoidalInterleaved",
    )
    training = TrainingConfig(
        optim="adam",
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        adam_eps=EPSILON,
        learning_rate=1.0,
        decay_method="noam",
        warmup_steps=WARMUP_STEPS,
        max_grad_norm=0.0,
        dropout=[DROPOUT],
        attention_dropout=[0.0],
        label_smoothing=SMOOTHING,
        param_init_method="xavier_uniform",
        gpu_ranks=[],
    )
    config = SimpleNamespace(model=shape, training=training)
    model = EncoderDecoderModel.for_training(shape, vocabularies, training)
    trainer = Trainer(
        model=model,
        train_loss=LossCompute.from_config(config, model, vocabularies),
        valid_loss=None,
        scoring_preparator=None,
        valid_scorers={},
        optim=Optimizer.from_config(model, config),
        config=TrainerConfig(
            norm_method="tokens", n_gpu=0, gpu_rank=-1, dropout=[DROPOUT], attention_dropout=[0.0]
        ),
    )

    def update(batch: Batch, step: int) -> None:
        theirs = {
            "src": batch.src,
            "srclen": (batch.src != PAD).sum(1),
            "tgt": batch.whole_target(),
            "images": None,
            "prefix_len": None,
            "cid": ["corpus"] * len(batch.src),
            "cid_line_number": list(range(len(batch.src))),
        }
        trainer._train_step([theirs], batch.num_tokens, Statistics(), Statistics())

    def logits(batch: Batch) -> Tensor:
        out = model(batch.src, batch.whole_target(), (batch.src != PAD).sum(1))
        return model.generator(out[0])

    return Peer(model, update, logits)


def fairseq(setting: Setting, example: Batch) -> Peer:
    """fairseq's `Trainer`, from options of its command line, one `train_step` at a time.

    Its encoder has a second copy of its matrices, for inference, which counts among its parameters
    and is never trained.
    """
    # numpy has given up these names for Python's types.
    np.float, np.int = float, int
    with hashable_dataclasses():
        from fairseq import options
        from fairseq.data import Dictionary
        from fairseq.dataclass.utils import convert_namespace_to_omegaconf
        from fairseq.tasks.translation import TranslationTask
        from fairseq.trainer import Trainer

    size = setting.size
    pieces = Dictionary()
    for i in range(len(pieces), setting.vocabulary):
        pieces.add_symbol(f"piece{i}")
    # It numbers these two the other way round; only the attributes are read.
    pieces.pad_index, pieces.bos_index = PAD, BOS
    values = {
        "arch": "transformer",
        "dropout": DROPOUT,
        "criterion": "label_smoothed_cross_entropy",
        "label-smoothing": SMOOTHING,
        "optimizer": "adam",
        "adam-betas": BETAS,
        "adam-eps": EPSILON,
        "clip-norm": 0.0,
        "max-tokens": LONGEST,
        "seed": setting.seed,
    }
    for stack in ("encoder", "decoder"):
        values |= {
            f"{stack}-layers": size.layers,
            f"{stack}-embed-dim": size.d_model,
            f"{stack}-ffn-embed-dim": size.d_ff,
            f"{stack}-attention-heads": size.heads,
        }
    arguments = [f"--{key}={value}" for key, value in values.items()]
    config = convert_namespace_to_omegaconf(
        options.parse_args_and_arch(
            options.get_training_parser(),
            [os.devnull, "--share-all-embeddings", "--cpu", *arguments],
        )
    )
    task = TranslationTask(config.task, pieces, pieces)
    model = task.build_model(config.model)
    trainer = Trainer(config, task, model, task.build_criterion(config.criterion))

    def inputs(batch: Batch) -> dict[str, Tensor]:
        return {
            "src_tokens": batch.src,
            "src_lengths": (batch.src != PAD).sum(1),
            "prev_output_tokens": batch.tgt_in,
        }

    def update(batch: Batch, step: int) -> None:
        trainer.optimizer.set_lr(learning_rate(step, size.d_model))
        sample = {
            "id": torch.arange(len(batch.src)),
            "nsentences": len(batch.src),
            "ntokens": batch.num_tokens,
            "net_input": inputs(batch),
            "target": batch.tgt_out,
        }
        trainer.train_step([sample])

    return Peer(model, update, lambda batch: model(**inputs(batch))[0])


@contextlib.contextmanager
def hashable_dataclasses() -> Iterator[None]:
    """Have dataclasses be defaults of each other's fields, which Python 3.11 began to refuse."""
    original = dataclasses.dataclass
    dataclasses.dataclass = functools.partial(original, unsafe_hash=True)
    try:
        yield
    finally:
        dataclasses.dataclass = original


def set_rate(optimizer: torch.optim.Optimizer, size: Size, step: int) -> None:
    """Give every group of parameters the learning rate of this step."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, size.d_model)


def initialise(model: nn.Module, setting: Setting) -> None:
    """Draw initial values from the same distributions for every toolkit.

    N(0, D^-½) for the embeddings and Glorot's uniform for each matrix, of which some toolkits keep
    two or three in one, zero for biases. Theirs differ: of embeddings alone enough to make a loss
    of 9.0 at the start where others have 9.5, which no seed would explain.
    """
    width = setting.size.d_model
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                if name.endswith("bias"):
                    parameter.zero_()
            elif len(parameter) == setting.vocabulary:
                parameter.normal_(std=width**-0.5)[PAD].zero_()
            elif parameter.requires_grad:
                stacked = parameter.shape in ((2 * width, width), (3 * width, width))
                for matrix in parameter.split(width) if stacked else (parameter,):
                    nn.init.xavier_uniform_(matrix)


# By the names of `peers.TOOLKITS`: how to make each, in its own process, and what to know about it.
PEERS: dict[str, tuple[Callable[[Setting, Batch], Peer], str]] = {
    "mtkit": (mtkit, ""),
    "mtkit-fp32": (mtkit_fp32, ""),
    "torch": (
        plain,
        "drops out attention weights and feed-forward activations too, and has one more norm at "
        "the end of either stack",
    ),
    "torch-bf16": (
        plain_bf16,
        "the same in bfloat16 by autocast, with fused Adam",
    ),
    "marian": (
        marian,
        "the Trainer's LabelSmoother and default optimizer, without the Trainer",
    ),
    "joeynmt": (
        joeynmt,
        "the step of its TrainManager, without the TrainManager; drops out attention weights and "
        "feed-forward activations too",
    ),
    "sockeye": (
        sockeye,
        "the step of its trainer on the model that it traces, without the trainer",
    ),
    "eole": (
        eole,
        "its own trainer; pre-norm, because its decoder knows no other; drops out feed-forward "
        "activations too",
    ),
    "fairseq": (
        fairseq,
        "its own trainer, repaired where Python 3.11 and numpy 2 keep it from being imported",
    ),
}


# ---------------------------------------------------------------------------------------------
# The worker: one toolkit in its own process, asked by lines of JSON and answering likewise


class Worker:
    """Trains one peer with its settings."""

    def __init__(self, name: str, setting: Setting) -> None:
        torch.set_num_threads(setting.threads)
        torch.manual_seed(setting.seed)
        self.batches, self.valid = read_batches(setting.batches)
        start, note = PEERS[name]
        self.peer = start(setting, self.batches[0])
        initialise(self.peer.model, setting)
        self.peer.model.train()
        self.facts = {
            "version": version_of(name),
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "note": self.peer.note or note,
            "parameters": sum(p.numel() for p in self.peer.model.parameters() if p.requires_grad),
        }
        self.step = 0

    def learn(self, updates: int) -> dict[str, Any]:
        """Make updates and watch the loss.

        Returns:
            The mean loss of a target token of every fifth batch before it is trained on, and of the
            validation set after the last update.
        """
        curve = []
        for number in range(updates):
            if number % EVALUATE_EVERY == 0:
                curve.append(self._loss([self._batch()]))
            self._update()
        valid = self._loss(self.valid)
        malloc_trim()
        return {"curve": curve, "valid": valid}

    def race(self, untimed: int, timed: int) -> dict[str, Any]:
        """Make updates, the last `timed` of them on the clock."""
        for _ in range(untimed):
            self._update()
        tokens = 0
        started, worked = time.perf_counter(), time.process_time()
        for _ in range(timed):
            tokens += self._update()
        seconds, worked = time.perf_counter() - started, time.process_time() - worked
        malloc_trim()
        return {
            "speed": tokens / seconds,
            "cpu_speed": tokens / worked,
            "peak_bytes": peak_bytes(),
        }

    def _batch(self) -> Batch:
        return self.batches[self.step % len(self.batches)]

    def _update(self) -> int:
        batch = self._batch()
        self.step += 1
        self.peer.update(batch, self.step)
        return batch.num_tokens

    @torch.no_grad()
    def _loss(self, batches: Sequence[Batch]) -> float:
        self.peer.model.eval()
        summed = sum(
            F.cross_entropy(
                self.peer.logits(batch).flatten(0, 1),
                batch.tgt_out.flatten(),
                ignore_index=PAD,
                reduction="sum",
            ).item()
            for batch in batches
        )
        self.peer.model.train()
        return summed / sum(batch.num_tokens for batch in batches)


# ---------------------------------------------------------------------------------------------
# Batches, planned once for everyone


def write_batches(folder: Path, path: Path, *, budget: int) -> tuple[int, list[int]]:
    """Plan batches of a prepared corpus and write them, padded.

    Pairs of about the same length go together, and no batch has more than `budget` slots on
    either side, padding counted. The batches are in random order; those of the validation set run
    from short to long.

    Returns:
        Size of the vocabulary, and the target tokens of each training batch.
    """
    from mtkit.data import PreparedData

    data = PreparedData.open(folder)
    arrays: dict[str, np.ndarray] = {}
    tokens = []
    for split in ("train", "valid"):
        pairs = data.pairs(split)
        plan = plan_batches(pairs.src.lengths, pairs.tgt.lengths, budget=budget)
        if split == "train":
            plan = [plan[i] for i in np.random.default_rng(1).permutation(len(plan))]
            tokens = [int(pairs.tgt.lengths[indices].sum()) for indices in plan]
        for number, indices in enumerate(plan):
            for side, sentences in (("src", pairs.src), ("tgt", pairs.tgt)):
                padded = sentences.padded(indices).astype(np.int32)
                arrays[f"{split} {number:05} {side}"] = padded
            arrays[f"{split} {number:05} indices"] = indices
    np.savez(path, **arrays)
    return len(data.tokenizers()[1]), tokens


def plan_batches(
    src_lengths: np.ndarray, tgt_lengths: np.ndarray, *, budget: int
) -> list[np.ndarray]:
    """Indices of the pairs of each batch, from short to long."""
    longest = np.maximum(src_lengths, tgt_lengths)
    plan: list[np.ndarray] = []
    batch: list[int] = []
    for index in np.lexsort((src_lengths, tgt_lengths, longest)):
        # Lengths rise, so the newest pair is the widest.
        if batch and (len(batch) + 1) * longest[index] > budget:
            plan.append(np.array(batch))
            batch = []
        batch.append(int(index))
    return [*plan, np.array(batch)]


def read_batches(path: str) -> tuple[list[Batch], list[Batch]]:
    """The batches that `write_batches` wrote, of the training and of the validation set."""
    found: dict[str, list[Batch]] = {"train": [], "valid": []}
    with np.load(path) as arrays:
        for name in sorted(arrays.files):
            batch, _, part = name.rpartition(" ")
            if part == "src":
                parts = (arrays[f"{batch} {other}"] for other in ("src", "tgt", "indices"))
                found[batch.split()[0]].append(Batch.of(*parts))
    return found["train"], found["valid"]


# ---------------------------------------------------------------------------------------------
# The race


@dataclass
class Row:
    """What is known of one toolkit.

    Attributes:
        facts: versions, what to know about it, and number of parameters.
        speeds: target tokens per second, of each round.
        cpu_speeds: the same, per second that the CPU worked for it, on all cores together.
        peak_bytes: the most memory it had.
        losses: of each seed, what `Worker.learn` returned.
    """

    facts: dict[str, Any]
    speeds: list[float]
    cpu_speeds: list[float]
    peak_bytes: int | None
    losses: list[dict[str, Any]]


class Race:
    """All toolkits of a run, and how it goes for them.

    Attributes:
        rows: by name, in the order of the table.
        left_out: by name, why a toolkit is not in the table.
    """

    def __init__(self, names: Sequence[str], start: Callable[[str, int], Process]) -> None:
        self._start = start
        self._processes: dict[str, Process] = {}
        self.rows: dict[str, Row] = {}
        self.left_out: dict[str, str] = {}
        for name in names:
            with self._may_drop_out(name):
                process = self._processes[name] = start(name, 1)
                self.rows[name] = Row(process.facts, [], [], None, [])

    def learn(self, updates: int, seeds: int) -> None:
        """Watch everyone's loss over the first updates, by each seed."""
        for seed in range(1, seeds + 1):
            for name in list(self.rows):
                print(f"{TOOLKITS[name].title}: loss, seed {seed}", file=sys.stderr)
                with self._may_drop_out(name):
                    # The first seed's worker goes on to be timed.
                    process = self._processes[name] if seed == 1 else self._start(name, seed)
                    self.rows[name].losses.append(process.ask("learn", updates=updates))
                    if seed > 1:
                        process.close()

    def rounds(self, number: int, updates: int) -> None:
        """Time everyone's updates, in turns."""
        for turn in range(number):
            print(f"round {turn + 1} of {number}", file=sys.stderr)
            names = list(self.rows)
            for name in names if turn % 2 == 0 else reversed(names):
                with self._may_drop_out(name):
                    untimed = 1 if turn else SETTLING_UPDATES
                    timed = self._processes[name].ask("race", untimed=untimed, timed=updates)
                    row = self.rows[name]
                    row.speeds.append(timed["speed"])
                    row.cpu_speeds.append(timed["cpu_speed"])
                    row.peak_bytes = timed["peak_bytes"]

    def close(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            process.close()

    @contextlib.contextmanager
    def _may_drop_out(self, name: str) -> Iterator[None]:
        try:
            yield
        except LeftOutError as error:
            print(f"{TOOLKITS[name].title}: left out: {error}", file=sys.stderr)
            self.left_out[name] = str(error)
            self.rows.pop(name, None)
            if name in self._processes:
                self._processes.pop(name).close()


def ratios(
    rows: dict[str, Row], name: str, *, ours: str = "mtkit", cpu: bool = False
) -> list[float]:
    """mtkit's speed divided by that of a toolkit, for each round.

    Args:
        rows: of all toolkits.
        name: of the toolkit.
        ours: which row is mtkit's.
        cpu: compare by the time that the CPU has worked, not by the clock.
    """
    if ours not in rows:
        return []
    mine, theirs = ((row.cpu_speeds if cpu else row.speeds) for row in (rows[ours], rows[name]))
    return [a / b for a, b in zip(mine, theirs, strict=True)]


def table(rows: dict[str, Row]) -> str:
    """The rows in Markdown, and a note for each that needs one."""
    columns = [
        "implementation",
        "mtkit / it, median (range)",
        "the same by CPU time",
        "mtkit in float32 / it",
        "target tokens/s",
        "peak memory",
        "loss on the way",
        "validation loss",
    ]
    lines = [columns, ["---"] * len(columns)]
    for name, row in rows.items():
        compared = [("mtkit", False), ("mtkit", True), ("mtkit-fp32", False)]
        lines.append(
            [
                f"{TOOLKITS[name].title} {row.facts['version']}",
                *(
                    "1" if name == ours else spread(ratios(rows, name, ours=ours, cpu=cpu), ".2f")
                    for ours, cpu in compared
                ),
                spread(row.speeds, ",.0f"),
                "–" if row.peak_bytes is None else f"{row.peak_bytes / 2**30:.1f} GiB",
                spread([statistics.fmean(losses["curve"]) for losses in row.losses], ".3f"),
                spread([losses["valid"] for losses in row.losses], ".3f"),
            ]
        )
    notes = [f"- {TOOLKITS[name].title}: {row.facts['note']}." for name, row in rows.items()]
    return "\n".join([*(f"| {' | '.join(cells)} |" for cells in lines), "", *notes])


def describe(facts: dict[str, Any]) -> str:
    """Under which circumstances the numbers were taken, in a paragraph."""
    threads = f"{facts['threads']} thread{'s' if facts['threads'] > 1 else ''}"
    pinned = facts["cores"] is not None
    where = f"{threads} on {facts['threads']} of {os.cpu_count()} cores" if pinned else threads
    return (
        f"`{facts['size']}`, {facts['vocabulary']:,} pieces, batches of "
        f"{facts['real_batch_tokens']:,.0f} target tokens (at most {facts['batch_tokens']:,} with "
        f"padding). {facts['processor']}, load before {facts['load']:.1f}; {where}. Rounds: "
        f"{facts['rounds']}, of {facts['updates']} updates. Losses: of the first "
        f"{facts['loss_updates']} updates, median (range) of {facts['seeds']} seeds. torch "
        f"{facts['torch']}, Python {facts['python']}."
        + (" Freed memory is kept for everyone." if facts["disable_malloc_trim"] else "")
    )


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help="prepared corpus, such as data/multi30k")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument(
        "--batch-tokens", type=int, default=4096, help="most target tokens of a batch, padded"
    )
    parser.add_argument("--threads", type=int, default=1, help="and cores, for each toolkit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--updates", type=int, help="timed in a round; as many as make some 12,000 target tokens"
    )
    parser.add_argument(
        "--loss-updates", type=int, default=200, help="before the rounds, to watch the loss"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="about eight minutes: the same as --batch-tokens 1500 --loss-updates 0 --updates 6",
    )
    parser.add_argument("--seeds", type=int, default=1, help="to watch the loss with")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of mtkit's"
    )
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument(
        "--disable-malloc-trim",
        action="store_true",
        help="set the C library up for everyone as mtkit does for itself",
    )
    parser.add_argument("--peers-dir", type=Path, default=Path("build/peers"))
    parser.add_argument("--json", type=Path, help="file for all that was measured")
    arguments = parser.parse_args()
    if arguments.worker is None and arguments.data is None:
        parser.error("--data is required")
    if arguments.quick:
        arguments.batch_tokens, arguments.loss_updates, arguments.updates = 1500, 0, 6
    return arguments


def main() -> None:
    """Set up, race, print a table."""
    arguments = parse()
    if arguments.worker is not None:
        name, text = arguments.worker
        fields = json.loads(text)
        setting = Setting(**fields | {"size": Size(**fields["size"])})
        serve(name, lambda: Worker(name, setting))
        return
    peers = arguments.peers_dir.resolve()
    peers.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    cores = last_cores(arguments.threads)
    extra = {}
    if arguments.disable_malloc_trim:
        extra = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1)}
    with tempfile.TemporaryDirectory() as folder:
        batches = Path(folder) / "batches.npz"
        vocabulary, tokens = write_batches(arguments.data, batches, budget=arguments.batch_tokens)
        size = SIZES[arguments.size]
        updates = arguments.updates or max(2, round(TOKENS_PER_ROUND / statistics.fmean(tokens)))

        def start(name: str, seed: int) -> Process:
            setting = Setting(
                size=size,
                vocabulary=vocabulary,
                seed=seed,
                threads=arguments.threads,
                data=str(arguments.data.resolve()),
                batches=str(batches),
                budget=arguments.batch_tokens,
                overrides=arguments.set,
            )
            python = python_of(name, peers)
            log = peers / f"{name}-{seed}.log"
            return Process(
                name,
                python,
                script=__file__,
                setting=asdict(setting),
                threads=arguments.threads,
                cores=cores,
                log=log,
                extra=extra,
            )

        race = Race(arguments.only, start)
        try:
            if arguments.loss_updates:
                race.learn(arguments.loss_updates, arguments.seeds)
            race.rounds(arguments.rounds, updates)
        finally:
            race.close()
    facts = {
        "processor": processor(),
        "cores": cores,
        "load": load,
        "threads": arguments.threads,
        "size": arguments.size,
        "vocabulary": vocabulary,
        "batch_tokens": arguments.batch_tokens,
        "real_batch_tokens": statistics.fmean(tokens),
        "rounds": arguments.rounds,
        "updates": updates,
        "loss_updates": arguments.loss_updates,
        "seeds": arguments.seeds,
        "disable_malloc_trim": arguments.disable_malloc_trim,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }
    print(describe(facts), end="\n\n")
    print(table(race.rows))
    for name, reason in race.left_out.items():
        print(f"- left out: {TOOLKITS[name].title}: {reason}")
    if arguments.json:
        rows = {
            name: asdict(row)
            | {
                "ratios": ratios(race.rows, name),
                "cpu_ratios": ratios(race.rows, name, cpu=True),
                "ratios_of_float32": ratios(race.rows, name, ours="mtkit-fp32"),
            }
            for name, row in race.rows.items()
        }
        result = facts | {"rows": rows, "left_out": race.left_out}
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
