"""Models whose classes are plain until pydantic checks a value."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError
from support.program import python

from mtkit.base.files import Record
from mtkit.base.models import restored, stored
from mtkit.base.sentences import LineFacts
from mtkit.config import Config, DecodeConfig, ModelConfig, TrainConfig, load_config, presets
from mtkit.data import Direction
from mtkit.run_manifest import DataOrigin, ImportRecord, OldIds, OldIdsOfSides, RunManifest

SIDE = OldIds(size=9, pad=8, eos=0, unk=1, start=8)
MANIFEST = RunManifest(
    data=DataOrigin(
        name="größer",
        path="a\udce9b",  # a name that is not UTF-8
        directions=[Direction(src_lang="en", tgt_lang="de")],
        lines=LineFacts(sampled=100, several=50, shortest=0.1),
    ),
    imported=ImportRecord(
        source="a",
        commit="",
        licence="",
        citations=["b"],
        subwords=OldIdsOfSides(src=SIDE, tgt=SIDE, pad_bias=-1e-30),
    ),
    exported={"values": {"model": "mtkit.config", "": [1, 2.5, None, True]}},
    seed=2**64 - 1,
)
VALUES = [
    *map(load_config, presets()),
    Config(train=TrainConfig(freeze=("encoder", "embedding"), warmup_steps=1)),
    Config(decode=DecodeConfig(length_penalty=0.1 + 0.2, min_length=10**18)),
    MANIFEST,
    RunManifest(),
]


@pytest.mark.parametrize("value", VALUES)
def test_a_restored_value_is_equal_to_what_was_stored(value: Config | RunManifest):
    again = restored(stored(value))
    assert isinstance(again, type(value).__plain__)  # type: ignore[attr-defined]
    assert again == value
    assert again.model_dump() == value.model_dump()
    for name, part in value:
        assert getattr(again, name) == part
        assert type(getattr(again, name)) in (type(part), getattr(part, "__plain__", None))
    assert stored(again) == stored(value)


@pytest.mark.parametrize(
    "of",
    [
        lambda value: value.model_dump(include={"model", "data"}),
        lambda value: value.model_dump(exclude={"data"}),
        lambda value: value.model_copy(update={"data": None}).data,
        lambda value: isinstance(value, Record),
        lambda value: getattr(value, "identity", None),
        lambda value: value == RunManifest(),
        lambda value: value != load_config("base"),
    ],
)
@pytest.mark.parametrize("value", VALUES[-3:])
def test_a_restored_value_answers_as_the_one_that_was_checked(
    value: Config | RunManifest, of: Callable[[Any], Any]
):
    assert of(restored(stored(value))) == of(value)


def test_methods_and_properties_of_restored_values_are_those_of_their_classes():
    config = restored(stored(load_config("base")))
    assert config.model.key_width == 64
    assert config.decode.greedy().beam_size == 1
    assert config.train.last_step == load_config("base").train.last_step
    manifest = restored(stored(MANIFEST))
    assert not manifest.data.has_single_sentences
    assert not hasattr(manifest, "anything_else")


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
@pytest.mark.parametrize("value", VALUES[-3:])
def test_copies_and_pickles_of_models_are_equal(
    value: Config | RunManifest, copied: Callable[[Any], Any]
):
    for of in (value, restored(stored(value))):
        assert copied(of) == of
        assert type(copied(of)) is type(of)
    assert copied(value).model_fields_set == value.model_fields_set


def test_a_checked_value_is_an_instance_of_its_class_and_of_no_other():
    model = ModelConfig(n_heads=4)
    assert isinstance(model, ModelConfig)
    assert not isinstance(model, DecodeConfig | Record)
    assert not isinstance({}, ModelConfig)
    with pytest.raises(ValidationError, match="frozen"):
        model.n_heads = 2  # type: ignore[misc]
    with pytest.raises(ValidationError, match="n_heads: 7 heads do not divide"):
        ModelConfig(n_heads=7)
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        ModelConfig(n_heads=0)
    with pytest.raises(AttributeError, match="no attribute"):
        ModelConfig.anything_else  # type: ignore[attr-defined]  # noqa: B018


def test_what_is_restored_needs_no_pydantic():
    program = f"""
import sys, mtkit.run_folder
from mtkit.base.models import restored
config, manifest = map(restored, ({stored(load_config("base"))!r}, {stored(MANIFEST)!r}))
print(config.decode.beam_size, manifest.identity, config.model_copy(update={{}}) == config)
print("pydantic" in sys.modules)
"""
    done = python("-c", program)
    assert done.stdout == f"4 {MANIFEST.identity} True\nFalse\n", done.stderr
