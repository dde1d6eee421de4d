"""Gives the weights of a run to the native engine: a tensor at a time, padded and checked.

Names of tensors are those of `Transformer.state_dict`. How rows are padded is in `src/shape.h`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mtkit.base.errors import MtkitError
from mtkit.config import ModelConfig
from mtkit.native.library import (
    POSITIONS,
    PRECISIONS,
    Precision,
    Shape,
    address,
    check,
    check_done,
    library,
)

Floats = npt.NDArray[np.float32]

# As PAD and LANES in shape.h.
PAD, LANES = 64, 16


def load(
    weights: Mapping[str, npt.NDArray[Any]],
    config: ModelConfig,
    vocab_size: int,
    src_vocab_size: int | None = None,
    *,
    precision: Precision = "fp32",
) -> int:
    """A model of the library with these weights; `mtkit_free` ends it.

    Args:
        weights: of each name its tensor. Each is asked for once, so a mapping that reads a file
            needs the memory of one tensor at a time.
        vocab_size: V, of the joint vocabulary, or of the target's.
        src_vocab_size: of the source's own vocabulary; None if it is joint.

    Raises:
        MtkitError: if a tensor is missing or has another shape, or the model is too large.
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
        silu=config.activation == "silu",
        # A window longer than any sentence restricts nothing.
        window=-1 if config.attention_window is None else min(config.attention_window, 2**31 - 1),
        positions=POSITIONS.index(config.positions),
        max_positions=config.max_positions,
        norm_epsilon=config.norm_epsilon,
    )
    model = check(library().mtkit_new(shape, PRECISIONS.index(precision)))
    try:
        _Loader(model, weights, config).load(vocab_size, src_vocab_size if own_src else None)
        check_done(library().mtkit_ready(model))
    except BaseException:
        library().mtkit_free(model)
        raise
    return int(model)


class _Loader:
    """Reads, checks, pads and sets the tensors of a model."""

    def __init__(
        self, model: int, weights: Mapping[str, npt.NDArray[Any]], config: ModelConfig
    ) -> None:
        self.model = model
        self.weights = weights
        self.config = config
        self.library = library()

    def load(self, vocab_size: int, src_vocab_size: int | None) -> None:
        """Set all tensors."""
        config = self.config
        width = config.d_model
        self._set_embedding(vocab_size)
        if src_vocab_size is not None:
            self._set_table("src_embedding", "src_embedding.weight", src_vocab_size)
        if config.positions == "learned":
            self._set_table("learned_positions", "learned_positions", config.max_positions)
        if config.positions == "words":
            self._set_words("src_words", src_vocab_size or vocab_size)
            self._set_words("tgt_words", vocab_size)
        keys, values = (config.n_heads, config.key_width), (config.n_heads, config.value_width)
        for stack, layers, norms in (
            ("encoder", config.encoder_layers, 2),
            ("decoder", config.decoder_layers, 3),
        ):
            for i in range(layers):
                own, cross, ff = "self_attention.", "cross_attention.", "feed_forward."
                self._set_linear(stack, i, f"{own}in_proj", [keys, keys, values], [(1, width)])
                self._set_linear(stack, i, f"{own}out_proj", [(1, width)], [values])
                if stack == "decoder":
                    self._set_linear(stack, i, f"{cross}q_proj", [keys], [(1, width)])
                    self._set_linear(stack, i, f"{cross}kv_proj", [keys, values], [(1, width)])
                    self._set_linear(stack, i, f"{cross}out_proj", [(1, width)], [values])
                self._set_linear(stack, i, f"{ff}inner", [(1, config.d_ff)], [(1, width)])
                self._set_linear(stack, i, f"{ff}outer", [(1, width)], [(1, config.d_ff)])
                for n in range(norms):
                    self._set_norm(
                        f"{stack}.residuals.{n}.norm", f"{stack}.{i}.residuals.{n}.norm", i
                    )
            if config.norm == "pre":
                self._set_norm(f"{stack}_norm", f"{stack}_norm", -1)

    def _tensor(self, name: str, *shape: int) -> npt.NDArray[Any]:
        if name not in self.weights:
            raise MtkitError(f"the weights have no tensor {name}")
        tensor = self.weights[name]
        if tensor.shape != shape:
            raise MtkitError(f"the tensor {name} is of shape {tensor.shape}, not {shape}")
        return tensor

    def _set_embedding(self, vocab_size: int) -> None:
        width = self.config.d_model
        weight = self._tensor("embedding.weight", vocab_size, width)
        padded = pad(pad(weight, [(1, vocab_size)]), [(1, width)], axis=1)
        bias = None
        if self.config.output_bias:
            bias = pad(self._tensor("output_bias", vocab_size), [(1, vocab_size)])
        self._linear("embedding", -1, padded, bias)

    def _set_linear(
        self,
        stack: str,
        layer: int,
        part: str,
        rows: list[tuple[int, int]],
        columns: list[tuple[int, int]],
    ) -> None:
        sizes = [sum(count * width for count, width in blocks) for blocks in (rows, columns)]
        name = f"{stack}.{layer}.{part}"
        weight = self._tensor(f"{name}.weight", *sizes)
        bias = self._tensor(f"{name}.bias", sizes[0])
        padded = pad(pad(weight, rows), columns, axis=1)
        self._linear(f"{stack}.{part}", layer, padded, pad(bias, rows))

    def _linear(self, name: str, layer: int, weight: Floats, bias: Floats | None) -> None:
        check_done(
            self.library.mtkit_set_linear(
                self.model, name.encode(), layer, address(weight), address(bias), *weight.shape
            )
        )

    def _set_norm(self, name: str, of_weights: str, layer: int) -> None:
        width = self.config.d_model
        gain, bias = (
            pad(self._tensor(f"{of_weights}.{part}", width), [(1, width)])
            for part in ("weight", "bias")
        )
        check_done(
            self.library.mtkit_set_norm(
                self.model, name.encode(), layer, address(gain), address(bias), len(gain)
            )
        )

    def _set_table(self, name: str, of_weights: str, rows: int) -> None:
        width = self.config.d_model
        table = pad(self._tensor(of_weights, rows, width), [(1, width)], axis=1)
        check_done(
            self.library.mtkit_set_table(self.model, name.encode(), address(table), *table.shape)
        )

    def _set_words(self, name: str, size: int) -> None:
        words = np.ascontiguousarray(self._tensor(name, size) != 0).view(np.uint8)
        check_done(self.library.mtkit_set_words(self.model, name.encode(), address(words), size))


def pad(x: npt.NDArray[Any], blocks: list[tuple[int, int]], *, axis: int = 0) -> Floats:
    """A tensor with zeros inserted along an axis, in float32.

    Args:
        blocks: parts of the axis, one after the other: the number of heads and their width, or 1
            and the whole width. Each head is padded to a multiple of 16, each part to one of 64.
    """
    parts = []
    start = 0
    for heads, width in blocks:
        part = x.take(range(start, start + heads * width), axis) if len(blocks) > 1 else x
        start += heads * width
        part = np.moveaxis(part, axis, 0)
        room = _round_up(width, LANES) if heads > 1 else width
        padded = np.zeros((_round_up(heads * room, PAD), *part.shape[1:]), dtype=np.float32)
        by_head = padded[: heads * room].reshape(heads, room, *part.shape[1:])
        by_head[:, :width] = part.reshape(heads, width, *part.shape[1:])
        parts.append(np.moveaxis(padded, 0, axis))
    return np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts, axis))


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
