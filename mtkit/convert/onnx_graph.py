"""A model as graphs of ONNX: an encoder, and a decoder with a cache of keys and values.

The nodes are written one by one, from the weights as they are. So the files do not depend on how a
version of PyTorch traces Python, the two graphs fit on a page, and whatever the model can express,
the graphs can. Inputs and outputs have the names that transformers.js and optimum give those of a
Marian model.

`use_cache_branch` is false in the first step of a decoding. Then the given cache is ignored, and
the keys and values of the encoder's output are projected; in later steps they come from the cache.
Only this is in the branches of an `If`; everything else is the same in both cases.

In int8, a matrix has a scale for each of its outputs, and the vector that it multiplies is rounded
when the graph runs. The bytes are unsigned, because products of signed ones overflow on some CPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mtkit.model import Transformer
from mtkit.tokenizer import UNK_ID
from mtkit.weights import full_matrix

# LayerNormalization is there from this version on.
OPSET = 17
_IR_VERSION = 8
# Added to the scores of positions that are not seen.
_HIDDEN = -1e9
# The byte of zero in int8.
_ZERO = 128

_KINDS = ("key", "value")
_SOURCE = ["batch_size", "encoder_sequence_length"]
_TARGET = ["batch_size", "decoder_sequence_length"]


def encoder_graph(model: Transformer, *, longest: int, is_int8: bool) -> Any:
    """The encoder as a `ModelProto`.

    `input_ids` and `attention_mask` (B, S), the mask 1 at subwords and 0 at padding, to
    `last_hidden_state` (B, S, D). It has `longest` positions, or all learned ones; those after the
    last one are encoded as the last one.

    If the source has a vocabulary of its own, its ids are those of `joint_ids`.
    """
    config = model.config
    graph = _Graph(model, longest=longest, is_int8=is_int8)
    places = graph.range(graph.integers(0), graph.size("input_ids", 1))
    x = graph.embed_src("input_ids", places)
    bias = graph.hide_padding("attention_mask")
    if config.attention_window is not None:
        bias = graph.node("Add", bias, graph.band(places, places, is_causal=False))
    for number in range(config.encoder_layers):
        name = f"encoder.{number}"
        x = graph.layer(name, x, partial(graph.attend_to_self, name, bias=bias))
    graph.node("Identity", graph.final_norm("encoder_norm", x), to_name="last_hidden_state")
    inputs = [_value(name, "INT64", _SOURCE) for name in ("input_ids", "attention_mask")]
    outputs = [_value("last_hidden_state", "FLOAT", [*_SOURCE, config.d_model])]
    return graph.model("encoder", inputs, outputs)


def decoder_graph(model: Transformer, *, longest: int, is_int8: bool) -> Any:
    """The decoder as a `ModelProto`, from the newest ids to logits.

    `input_ids` (B, T), `encoder_hidden_states` (B, S, D), `encoder_attention_mask` (B, S) and the
    cache, to `logits` (B, T, V) and the new cache. Its keys are (B, H, N, K) and its values
    (B, H, N, Kv). Positions are as in the encoder.
    """
    config = model.config
    graph = _Graph(model, longest=longest, is_int8=is_int8)
    _choose_cache(graph)
    first = graph.size("cache.0.decoder.key", 2)
    end = graph.node("Add", first, graph.size("input_ids", 1))
    places = graph.range(first, end)
    x = graph.embed("embedding.weight", "input_ids", places)
    own_bias = graph.band(places, graph.range(graph.integers(0), end), is_causal=True)
    memory_bias = graph.hide_padding("encoder_attention_mask")
    for number in range(config.decoder_layers):
        name = f"decoder.{number}"
        to_self = partial(graph.attend_to_self, name, bias=own_bias, cache=number)
        to_memory = partial(graph.attend_to_memory, name, bias=memory_bias, cache=number)
        x = graph.layer(name, x, to_self, to_memory)
    graph.node("Identity", graph.logits(graph.final_norm("decoder_norm", x)), to_name="logits")
    inputs = [
        _value("encoder_attention_mask", "INT64", _SOURCE),
        _value("input_ids", "INT64", _TARGET),
        _value("encoder_hidden_states", "FLOAT", [*_SOURCE, config.d_model]),
    ]
    outputs = [_value("logits", "FLOAT", [*_TARGET, model.vocab_size])]
    for name in _cache_names(config.decoder_layers):
        _, side, kind = name.split(".")
        width = config.key_width if kind == "key" else config.value_width
        for values, begin in ((inputs, "past_key_values"), (outputs, "present")):
            shape = ["batch_size", config.n_heads, f"{begin}_{side}_sequence_length", width]
            values.append(_value(f"{begin}.{name}", "FLOAT", shape))
    inputs.append(_value("use_cache_branch", "BOOL", [1]))
    return graph.model("decoder", inputs, outputs)


def _cache_names(layers: int) -> list[str]:
    """The names of the parts of the cache, in the order of transformers' own exports."""
    return [
        f"{number}.{side}.{kind}"
        for number in range(layers)
        for side in ("decoder", "encoder")
        for kind in _KINDS
    ]


def joint_ids(src_ids: Sequence[int], vocab_size: int) -> list[int]:
    """The ids of a source in the graphs, where the source has a vocabulary of its own.

    transformers.js has one list of subwords for both sides. There, the subwords of the target come
    first, with the V ids that they have; those of the source follow, without the special ones.
    """
    return [i if i <= UNK_ID else i + vocab_size - (UNK_ID + 1) for i in src_ids]


class _Graph:
    """A graph that is being written; its methods add nodes, and return the names of results."""

    def __init__(self, model: Transformer, *, longest: int, is_int8: bool) -> None:
        self.config, self.weights = model.config, model.state_dict()
        self.vocab_size = model.vocab_size
        self.table = _array(model.positions(0, longest, like=model.embedding.weight))
        self.is_int8 = is_int8
        self.initializers: dict[str, Any] = {}
        self.prefix = ""
        self.nodes: list[Any] = []
        # The results of rounding.
        self.rounded: dict[str, list[str]] = {}

    def branch(self, prefix: str) -> _Graph:
        inner = copy(self)
        inner.prefix, inner.nodes, inner.rounded = prefix, [], {}
        return inner

    def node(self, op: str, *inputs: str, to_name: str = "", **attributes: Any) -> str:
        return self.nodes_of(op, *inputs, outputs=[to_name] if to_name else 1, **attributes)[0]

    def nodes_of(
        self, op: str, *inputs: str, outputs: int | list[str], **attributes: Any
    ) -> list[str]:
        """The results of an operation that has several; `outputs` are their number or names."""
        from onnx import helper

        if isinstance(outputs, int):
            name = f"{self.prefix}{op}_{len(self.nodes)}"
            outputs = [name, *(f"{name}_{i}" for i in range(1, outputs))]
        self.nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        return outputs

    def constant(self, name: str, values: npt.NDArray[Any]) -> str:
        """A constant tensor, which is stored once."""
        from onnx import numpy_helper

        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(np.ascontiguousarray(values), name)
        return name

    def integer(self, value: int) -> str:
        return self.constant(f"integer_{value}", np.array(value, dtype=np.int64))

    def integers(self, *values: int) -> str:
        name = "integers_" + "_".join(map(str, values))
        return self.constant(name, np.array(values, dtype=np.int64))

    def number(self, value: float) -> str:
        return self.constant(f"number_{value!r}", np.array(value, dtype=np.float32))

    def weight(self, name: str) -> str:
        return self.constant(name, _array(self.weights[name]))

    def size(self, x: str, axis: int) -> str:
        """(1,)."""
        return self.node("Shape", x, start=axis, end=axis + 1)

    def range(self, start: str, end: str) -> str:
        """The integers from `start` (1,) to `end` (1,) - 1."""
        first, last = self.node("Squeeze", start), self.node("Squeeze", end)
        return self.node("Range", first, last, self.integer(1))

    def hide(self, hidden: str) -> str:
        """What is added to scores: a large negative number where `hidden` is true."""
        return self.node("Where", hidden, self.number(_HIDDEN), self.number(0.0))

    def hide_padding(self, mask: str) -> str:
        """(B, 1, 1, S) to add to scores, of a mask (B, S) that is 0 at padding."""
        hidden = self.hide(self.node("Equal", mask, self.integer(0)))
        return self.node("Unsqueeze", hidden, self.integers(1, 2))

    def band(self, queries: str, keys: str, *, is_causal: bool) -> str:
        """(T, N) to add to the scores of queries and keys at these positions, (T,) and (N,).

        It hides what is outside of the window, and if it is causal, later positions.
        """
        ahead = self.node("Sub", keys, self.node("Unsqueeze", queries, self.integers(1)))
        hidden = []
        if is_causal:
            hidden.append(self.node("Greater", ahead, self.integer(0)))
        if (window := self.config.attention_window) is not None:
            hidden.append(self.node("Greater", self.node("Abs", ahead), self.integer(window)))
        return self.hide(reduce(partial(self.node, "Or"), hidden))

    def linear(self, name: str, x: str) -> str:
        matrix: npt.NDArray[Any] = _array(self.weights[f"{name}.weight"])
        if self.config.narrow_attention and name.endswith("in_proj"):
            matrix = full_matrix(matrix, self.config.n_heads)
        scales = []
        if self.is_int8:
            matrix, scale = _rounded(matrix)
            scales = [self.constant(f"{name}.scale", scale[:, 0])]
        product = self.product(x, self.constant(f"{name}.weight", matrix.T), *scales)
        return self.node("Add", product, self.weight(f"{name}.bias"))

    def product(self, x: str, matrix: str, scale: str = "") -> str:
        """(..., in) times (in, out); in int8 with the scale (out,) of the matrix."""
        if not self.is_int8:
            return self.node("MatMul", x, matrix)
        if x not in self.rounded:
            self.rounded[x] = self.nodes_of("DynamicQuantizeLinear", x, outputs=3)
        bytes_, x_scale, x_zero = self.rounded[x]
        zero = self.constant("zero", np.array(_ZERO, dtype=np.uint8))
        whole = self.node("MatMulInteger", bytes_, matrix, x_zero, zero)
        return self.node(
            "Mul", self.node("Cast", whole, to=_type("FLOAT")), self.node("Mul", x_scale, scale)
        )

    def embedding(self, name: str) -> list[str]:
        """An embedding matrix (V, D), and in int8 its scale (V, 1)."""
        if not self.is_int8:
            return [self.weight(name)]
        bytes_, scale = _rounded(_array(self.weights[name]))
        return [self.constant(name, bytes_), self.constant(f"{name}.scale", scale)]

    def logits(self, x: str) -> str:
        matrix, *scale = self.embedding("embedding.weight")
        scales = [self.node("Reshape", name, self.integers(-1)) for name in scale]
        logits = self.product(x, self.node("Transpose", matrix, perm=[1, 0]), *scales)
        if "output_bias" not in self.weights:
            return logits
        return self.node("Add", logits, self.weight("output_bias"))

    def embed_src(self, ids: str, places: str) -> str:
        if "src_embedding.weight" not in self.weights:
            return self.embed("embedding.weight", ids, places)
        special = UNK_ID + 1
        own = self.node("Sub", ids, self.integer(self.vocab_size - special))
        own = self.node("Where", self.node("Less", ids, self.integer(special)), ids, own)
        return self.embed("src_embedding.weight", own, places)

    def embed(self, name: str, ids: str, places: str) -> str:
        """Scaled embeddings plus positions, (B, T, D), of ids at the positions `places` (T,)."""
        matrix, *scale = self.embedding(name)
        x = self.node("Gather", matrix, ids)
        if scale:
            x = self.node("Cast", x, to=_type("FLOAT"))
            x = self.node("Sub", x, self.number(_ZERO))
            x = self.node("Mul", x, self.node("Gather", *scale, ids))
        x = self.node("Mul", x, self.number(math.sqrt(self.config.d_model)))
        places = self.node("Min", places, self.integer(len(self.table) - 1))
        table = self.constant("positions", self.table)
        return self.node("Add", x, self.node("Gather", table, places))

    def norm(self, name: str, x: str) -> str:
        weight, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        epsilon = self.config.norm_epsilon
        return self.node("LayerNormalization", x, weight, bias, axis=-1, epsilon=epsilon)

    def final_norm(self, name: str, x: str) -> str:
        return self.norm(name, x) if self.config.norm == "pre" else x

    def layer(self, name: str, x: str, *attentions: Callable[[str], str]) -> str:
        sublayers: list[Callable[[str], str]] = [*attentions, partial(self.feed_forward, name)]
        for number, sublayer in enumerate(sublayers):
            norm = partial(self.norm, f"{name}.residuals.{number}.norm")
            if self.config.norm == "pre":
                x = self.node("Add", x, sublayer(norm(x)))
            else:
                x = norm(self.node("Add", x, sublayer(x)))
        return x

    def feed_forward(self, layer: str, x: str) -> str:
        inner = self.linear(f"{layer}.feed_forward.inner", x)
        if self.config.activation == "relu":
            active = self.node("Relu", inner)
        else:
            active = self.node("Mul", inner, self.node("Sigmoid", inner))
        return self.linear(f"{layer}.feed_forward.outer", active)

    def attend_to_self(self, layer: str, x: str, *, bias: str, cache: int | None = None) -> str:
        """Self-attention; with `cache`, the number of the layer, also to earlier positions."""
        name = f"{layer}.self_attention"
        q, k, v = self.split(self.linear(f"{name}.in_proj", x), with_queries=True)
        if cache is not None:
            names = [f"{cache}.decoder.{kind}" for kind in _KINDS]
            k, v = (
                self.node("Concat", f"cache.{of}", new, to_name=f"present.{of}", axis=2)
                for of, new in zip(names, (k, v), strict=True)
            )
        return self.linear(f"{name}.out_proj", self.attention(q, k, v, bias))

    def attend_to_memory(self, layer: str, x: str, *, bias: str, cache: int) -> str:
        name = f"{layer}.cross_attention"
        q = self.heads(self.linear(f"{name}.q_proj", x))
        k, v = (f"present.{cache}.encoder.{kind}" for kind in _KINDS)
        return self.linear(f"{name}.out_proj", self.attention(q, k, v, bias))

    def attention(self, q: str, k: str, v: str, bias: str) -> str:
        """The results of all heads, joined: (B, T, H·Kv)."""
        scores = self.node("MatMul", q, self.node("Transpose", k, perm=[0, 1, 3, 2]))
        scale = self.number(self.config.query_factor / math.sqrt(self.config.key_width))
        scores = self.node("Add", self.node("Mul", scores, scale), bias)
        heads = self.node("MatMul", self.node("Softmax", scores, axis=-1), v)
        joined = self.node("Transpose", heads, perm=[0, 2, 1, 3])
        return self.node("Reshape", joined, self.integers(0, 0, -1))

    def split(self, x: str, *, with_queries: bool = False) -> list[str]:
        """Keys and values (B, H, T, K or Kv) of (B, T, ...), which may begin with queries."""
        widths = [self.config.key_width] * (1 + with_queries) + [self.config.value_width]
        sizes = self.integers(*(width * self.config.n_heads for width in widths))
        parts = self.nodes_of("Split", x, sizes, outputs=len(widths), axis=-1)
        return [self.heads(part) for part in parts]

    def heads(self, x: str) -> str:
        """(B, T, H·K) to (B, H, T, K)."""
        shape = self.integers(0, 0, self.config.n_heads, -1)
        return self.node("Transpose", self.node("Reshape", x, shape), perm=[0, 2, 1, 3])

    def model(self, name: str, inputs: list[Any], outputs: list[Any]) -> Any:
        from onnx import helper

        graph = helper.make_graph(
            self.nodes, name, inputs, outputs, initializer=list(self.initializers.values())
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=_IR_VERSION,
            producer_name="mtkit",
        )


def _choose_cache(graph: _Graph) -> None:
    """Add the node that chooses: the cache as it is given, or a new one, without a position."""
    from onnx import helper

    caches = _cache_names(graph.config.decoder_layers)
    given, new = graph.branch("given/"), graph.branch("new/")
    for name in caches:
        given.node("Identity", f"past_key_values.{name}", to_name=f"given/{name}")
    for number in range(graph.config.decoder_layers):
        name = f"decoder.{number}.cross_attention.kv_proj"
        projected = new.split(new.linear(name, "encoder_hidden_states"))
        for kind, vectors in zip(_KINDS, projected, strict=True):
            begin, axis = new.integers(0), new.integers(2)
            new.node("Slice", vectors, begin, begin, axis, to_name=f"new/{number}.decoder.{kind}")
            new.node("Identity", vectors, to_name=f"new/{number}.encoder.{kind}")
    branches = {
        f"{condition}_branch": helper.make_graph(
            branch.nodes,
            condition,
            [],
            [_value(f"{branch.prefix}{name}", "FLOAT", None) for name in caches],
        )
        for condition, branch in (("then", given), ("else", new))
    }
    # Keys and values of the encoder's output do not change, those of the decoder grow.
    chosen = [f"present.{name}" if ".encoder." in name else f"cache.{name}" for name in caches]
    graph.nodes_of("If", "use_cache_branch", outputs=chosen, **branches)


def _array(tensor: Tensor) -> npt.NDArray[np.float32]:
    array: npt.NDArray[np.float32] = tensor.detach().to(torch.float32).numpy()
    return array


def _rounded(matrix: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.uint8], Any]:
    """A matrix (rows, columns) as bytes, and the scale of each row, (rows, 1)."""
    largest = np.abs(matrix).max(axis=1, keepdims=True)
    scale = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    return (np.rint(matrix / scale) + _ZERO).astype(np.uint8), scale


def _type(name: str) -> int:
    from onnx import TensorProto

    value: int = getattr(TensorProto, name)
    return value


def _value(name: str, kind: str, shape: Sequence[object] | None) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, _type(kind), shape)
