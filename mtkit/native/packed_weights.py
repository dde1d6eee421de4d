"""Gives the weights of a run to the native engine, a tensor at a time."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from ctypes import byref, c_int64
from typing import Any

import numpy as np
import numpy.typing as npt

from mtkit.base.errors import MtkitError
from mtkit.config import ModelConfig
from mtkit.native.library import PRECISIONS, Precision, Shape, address, check, check_done, library
from mtkit.weights import full_matrix

# Their numbers in shape.h.
POSITIONS = ("sinusoidal", "learned", "words", "none")
ACTIVATIONS = ("none", "relu", "silu")


def load(
    weights: Mapping[str, npt.NDArray[Any]],
    config: ModelConfig,
    vocab_size: int,
    src_vocab_size: int | None = None,
    *,
    precision: Precision = "fp32",
) -> int:
    """A model of the library with these weights; `mtkit_free` ends it.

    Arguments and errors are those of `NativeModel`.
    """
    own_src = src_vocab_size is not None and not config.shared_embedding
    shape = Shape(
        d_model=config.d_model,
        d_ff=config.d_ff,
        heads=config.n_heads,
        key_width=config.key_width,
        value_width=config.value_width,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        src_vocabulary=src_vocab_size if own_src else vocab_size,
        tgt_vocabulary=vocab_size,
        own_src_embedding=own_src,
        pre_norm=config.norm == "pre",
        activation=ACTIVATIONS.index(config.activation),
        output_bias=config.output_bias,
        # A window longer than any sentence restricts nothing.
        window=-1 if config.attention_window is None else min(config.attention_window, 2**31 - 1),
        positions=POSITIONS.index(config.positions),
        max_positions=config.max_positions,
        norm_epsilon=config.norm_epsilon,
    )
    model = check(library().mtkit_new(shape, PRECISIONS.index(precision)))
    try:
        _set_tensors(model, weights, config)
        check_done(library().mtkit_ready(model))
    except BaseException:
        library().mtkit_free(model)
        raise
    return int(model)


def _set_tensors(model: int, weights: Mapping[str, npt.NDArray[Any]], config: ModelConfig) -> None:
    rows, columns = c_int64(), c_int64()
    for number in itertools.count():
        encoded = library().mtkit_tensor(model, number, byref(rows), byref(columns))
        if encoded is None:
            return
        name = encoded.decode()
        if name not in weights:
            raise MtkitError(f"the weights have no tensor {name}")
        # A mapping that reads a file needs the memory of one tensor at a time.
        tensor = weights[name]
        shape = (rows.value, columns.value) if rows.value else (columns.value,)
        _, _, part = name.partition("attention.")
        is_narrow = config.narrow_attention and part == "in_proj.weight"
        if is_narrow:
            shape = (rows.value, columns.value // config.n_heads)
        if tensor.shape != shape:
            raise MtkitError(f"the tensor {name} is of shape {tensor.shape}, not {shape}")
        if is_narrow:
            tensor = full_matrix(tensor, config.n_heads)
        if config.query_factor != 1.0 and part.startswith(("in_proj", "q_proj")):
            tensor = np.array(tensor, dtype=np.float32)
            tensor[: config.n_heads * config.key_width] *= np.float32(config.query_factor)
        values = np.ascontiguousarray(tensor, dtype=np.float32)
        check_done(library().mtkit_set(model, number, address(values), values.size))
