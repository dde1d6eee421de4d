"""Rules for the ends of sentences, as a small ONNX model for MiniSBD, which splits lines for Argos.

Without a model in the package, MiniSBD fetches one from the network. It gives a model the
characters of a text and takes a class for each: 2 is the last character of a sentence. The rules
are conjunctions of facts about a character and its neighbours, so two convolutions express them
exactly: each output of the first is 1 if a rule holds and otherwise 0, and the second adds them up.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mtkit.base.files import json_text
from mtkit.base.text import base_language

# Classes of characters; their order gives their ids, from 2 on. 0 is padding, 1 any other one.
_CLASSES = {
    "stop": ".",
    "mark": "!?…‽؟۔।॥։።",
    "ideographic": "。！？｡",
    "closing": "\"'”’»«›‹)]」』）］】〉》",
    # It closes a German quotation, and opens others.
    "quote": "“",
    "lower": "".join(c for c in map(chr, range(sys.maxunicode)) if c.islower()),
}
# Facts that MiniSBD computes itself; the last one marks the first character.
_FEATURES = ("space_before", "capitalized", "numeric", "start_of_para")
_CHANNELS = ("padding", "other", *_CLASSES, "space", "capital", "digit", "first")
# The characters that a rule sees: so many before, and two after.
_BEFORE, _AFTER = 3, 2


class _Rule(NamedTuple):
    """A rule: `weight` is added to the class of an end where all of `needs` and no `lacks` hold.

    Both are channels joined by |, by the distance from the character.
    """

    weight: float
    needs: Mapping[int, str]
    lacks: Mapping[int, str] = {}


_RULES = (
    _Rule(1, {0: "stop|mark", 1: "space"}, {2: "lower"}),
    _Rule(1, {-1: "stop|mark", 0: "closing|quote", 1: "space"}, {2: "lower"}),
    _Rule(1, {0: "ideographic"}, {1: "ideographic|closing"}),
    _Rule(1, {-1: "ideographic", 0: "closing"}, {1: "ideographic|closing"}),
    # A single letter with a point is an initial, or of an abbreviation: "z. B.".
    _Rule(-1, {-2: "space|stop", -1: "lower|capital", 0: "stop"}),
    _Rule(-1, {-1: "first", 0: "stop"}, {-1: "digit"}),
)
# In German an ordinal number has a point: "im 19. Jahrhundert".
_GERMAN = (
    _Rule(-1, {-1: "digit", 0: "stop"}, {-2: "digit"}),
    _Rule(-1, {-2: "digit", -1: "digit", 0: "stop"}, {-3: "digit"}),
)


def sentence_model(language: str, *, splits: bool = True) -> bytes:
    """An ONNX model that finds the ends of sentences of a language.

    Without `splits` it takes every line for one sentence.
    """
    rules = _RULES + (_GERMAN if base_language(language) == "de" else ())
    width = _BEFORE + 1 + _AFTER
    first = np.zeros((len(rules), len(_CHANNELS), width), np.float32)
    threshold = np.zeros(len(rules), np.float32)
    # Classes 0, 1 and 2: nothing, and the ends of a word and of a sentence.
    last = np.zeros((3, len(rules), 1), np.float32)
    for number, rule in enumerate(rules):
        for sign, facts in ((1, rule.needs), (-1, rule.lacks)):
            for distance, channels in facts.items():
                for channel in channels.split("|"):
                    first[number, _CHANNELS.index(channel), _BEFORE + distance] = sign
        threshold[number] = 1 - len(rule.needs)
        last[2, number] = rule.weight
    ids = {c: i for i, of_class in enumerate(_CLASSES.values(), start=2) for c in of_class}
    units = {"<PAD>": 0, "<UNK>": 1} | ids
    tensors = {
        # A vector for each class: 1 in its own channel.
        "classes": np.eye(2 + len(_CLASSES), dtype=np.float32),
        "first": first,
        "threshold": threshold,
        "last": last,
        "bias": np.array([0.5, -1, 0], np.float32),
    }
    graph = b"".join(
        [
            _node("Gather", ["classes", "units"], "known"),
            _node("Concat", ["known", "features"], "facts", axis=2),
            _node("Transpose", ["facts"], "columns", perm=[0, 2, 1]),
            _node("Conv", ["columns", "first", "threshold"], "sums", pads=[_BEFORE, _AFTER]),
            _node("Relu", ["sums"], "rules"),
            _node("Conv", ["rules", "last", "bias"], "scores"),
            _node("Transpose", ["scores"], "output", perm=[0, 2, 1]),
            _field(2, "sentences"),
            *(_field(5, _tensor(name, tensor)) for name, tensor in tensors.items()),
            _value(11, "units", _INT64, ["B", "N"]),
            _value(11, "features", _FLOAT, ["B", "N", len(_FEATURES)]),
            _value(12, "output", _FLOAT, ["B", "N", 3]),
        ]
    )
    properties = {
        "lang_code": base_language(language),
        "config": json_text({"feat_funcs": _FEATURES, "no_ssplit": not splits}),
        "vocab": json_text({"lang": "", "_unit2id": units, "_id2unit": list(units)}),
    }
    listed = (_field(14, _field(1, key) + _field(2, value)) for key, value in properties.items())
    return b"".join([_field(1, _IR), _field(7, graph), _field(8, _field(2, _OPSET)), *listed])


# ---------------------------------------------------------------------------------------------
# The format of ONNX: messages of Protocol Buffers, by the numbers of its schema

_IR, _OPSET = 8, 13
_FLOAT, _INT64 = 1, 7


def _field(number: int, value: int | str | bytes) -> bytes:
    """A field of a message: an integer, a text, or a message."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    content = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _node(operation: str, inputs: list[str], output: str, **attributes: int | list[int]) -> bytes:
    content = b"".join(_field(1, name) for name in inputs) + _field(2, output)
    content += _field(4, operation)
    for name, value in attributes.items():
        if isinstance(value, int):
            content += _field(5, _field(1, name) + _field(3, value) + _field(20, 2))
        else:
            listed = b"".join(_field(8, one) for one in value)
            content += _field(5, _field(1, name) + listed + _field(20, 7))
    return _field(1, content)


def _tensor(name: str, tensor: npt.NDArray[np.float32]) -> bytes:
    dims = b"".join(_field(1, size) for size in tensor.shape)
    return dims + _field(2, _FLOAT) + _field(8, name) + _field(9, tensor.tobytes())


def _value(number: int, name: str, kind: int, shape: list[str | int]) -> bytes:
    """An input or output: a name stands for a size that is not fixed."""
    dims = b"".join(_field(1, _field(1 if isinstance(n, int) else 2, n)) for n in shape)
    return _field(number, _field(1, name) + _field(2, _field(1, _field(1, kind) + _field(2, dims))))
