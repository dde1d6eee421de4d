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
    # All small letters. `sentence_model` adds them, because finding them takes a while.
    "lower": "",
}
# Facts that MiniSBD computes itself; the last one marks the first character.
_FEATURES = ("space_before", "capitalized", "numeric", "start_of_para")
_CHANNELS = ("padding", "other", *_CLASSES, "space", "capital", "digit", "first")
# How many characters before an end a rule sees; after it, it sees two.
_BEFORE, _AFTER = 3, 2
# The pads are `_BEFORE` and `_AFTER`.
_MODEL = """
<ir_version: 8, opset_import: ["": 13]>
sentences (int64[B, N] units, float[B, N, 4] features) => (float[B, N, 3] output) {
    known = Gather(classes, units)
    facts = Concat<axis = 2>(known, features)
    columns = Transpose<perm = [0, 2, 1]>(facts)
    sums = Conv<pads = [3, 2]>(columns, first, threshold)
    rules = Relu(sums)
    scores = Conv(rules, last, bias)
    output = Transpose<perm = [0, 2, 1]>(scores)
}
"""


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
    from onnx import helper, numpy_helper, parser

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
    lower = "".join(c for c in map(chr, range(sys.maxunicode)) if c.islower())
    classes = _CLASSES | {"lower": lower}
    ids = {c: i for i, of_class in enumerate(classes.values(), start=2) for c in of_class}
    units = {"<PAD>": 0, "<UNK>": 1} | ids
    tensors = {
        # A vector for each class: 1 in its own channel.
        "classes": np.eye(2 + len(_CLASSES), dtype=np.float32),
        "first": first,
        "threshold": threshold,
        "last": last,
        "bias": np.array([0.5, -1, 0], np.float32),
    }
    model = parser.parse_model(_MODEL)
    model.graph.initializer.extend(numpy_helper.from_array(*item[::-1]) for item in tensors.items())
    properties = {
        "lang_code": base_language(language),
        "config": json_text({"feat_funcs": _FEATURES, "no_ssplit": not splits}),
        "vocab": json_text({"lang": "", "_unit2id": units, "_id2unit": list(units)}),
    }
    helper.set_model_props(model, properties)
    content: bytes = model.SerializeToString()
    return content
