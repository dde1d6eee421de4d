"""Models that are checked without pydantic, against models of pydantic."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WrapValidator, model_validator

from mtkit.base.files import FileName
from mtkit.base.models import InvalidValuesError, Limits, Model, _in_pydantic
from mtkit.config import AutoSwitch, Config, DecodeConfig, ModelConfig, Names, load_config
from mtkit.run_manifest import RunManifest


class Inner(Model):
    size: Annotated[int, Limits(ge=0, lt=9)] = 3
    name: str

    def _check(self) -> None:
        if self.size == 7:
            raise ValueError("size: 7 is not a size")


class Outer(Model):
    share: Annotated[float, Limits(gt=0.0, le=1.0)] | None = None
    kind: Literal["post", "pre"] | bool = "post"
    word: Annotated[str, Limits(min_length=1, pattern=r"^[a-z]*$")] = "a"
    parts: list[Inner] = field(default_factory=list)
    whole: Inner | None = None
    table: dict[str, int | float] = field(default_factory=dict)
    texts: tuple[str, ...] = ()
    path: FileName = ""


class PydanticInner(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    size: int = Field(3, ge=0, lt=9)
    name: str

    @model_validator(mode="after")
    def _check(self):
        if self.size == 7:
            raise ValueError("size: 7 is not a size")
        return self


class PydanticOuter(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    share: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    kind: Literal["post", "pre"] | bool = "post"
    word: Annotated[str, Field(min_length=1, pattern=r"^[a-z]*$")] = "a"
    parts: list[PydanticInner] = []
    whole: PydanticInner | None = None
    table: dict[str, int | float] = {}
    texts: tuple[str, ...] = ()
    path: Annotated[str, WrapValidator(lambda v, take: v if isinstance(v, str) else take(v))] = ""


plain = st.none() | st.booleans() | st.integers(-2, 10) | st.floats()
plain |= st.sampled_from(["post", "pre", "a", "", "a\n", "é", "\udce9", 0.5, 2**70])
inner = st.fixed_dictionaries({}, optional={"size": plain, "name": plain, "other": plain}) | plain
ANY = {
    **dict.fromkeys(("share", "kind", "word", "path", "other"), plain),
    "parts": st.lists(inner, max_size=3) | plain,
    "whole": inner,
    "table": st.dictionaries(plain, plain, max_size=2) | plain,
    "texts": st.lists(plain, max_size=2).map(tuple) | st.lists(plain, max_size=2),
}


def outcome(kind: Any, content: Any, dump: Callable[[Any], Any]) -> Any:
    try:
        made = kind.model_validate(content)
    except (ValidationError, InvalidValuesError) as error:
        return [(e["type"], e["msg"].replace("Pydantic", ""), e["loc"]) for e in error.errors()]
    # NaN and -0.0 too.
    return repr(dump(made)), repr(sorted(made.model_fields_set))


@given(st.fixed_dictionaries({}, optional=ANY))
def test_a_model_takes_and_refuses_the_same_values_as_one_of_pydantic(content: dict[str, Any]):
    expected = outcome(PydanticOuter, content, lambda made: made.model_dump() | {"texts": ()})
    assert outcome(Outer, content, lambda made: made.model_dump() | {"texts": ()}) == expected


@given(st.dictionaries(st.sampled_from([*DecodeConfig.model_fields]), plain, max_size=3))
def test_settings_are_taken_without_pydantic_as_with_it(content: dict[str, Any]):
    try:
        taken = DecodeConfig._checked(content)
    except ValueError:
        return
    assert repr(taken) == repr(_in_pydantic(DecodeConfig).model_validate(content))


class Choices(Model):
    names: Names = ()
    switch: AutoSwitch = "auto"


@pytest.mark.parametrize(
    ("given_names", "taken"), [("a", ("a",)), (["a", "b"], ("a", "b")), ([], ()), (("c",), ("c",))]
)
def test_a_name_or_a_list_of_names_becomes_a_tuple(given_names: Any, taken: tuple[str, ...]):
    for choices in (
        Choices(names=given_names),
        _in_pydantic(Choices).model_validate({"names": given_names}),
    ):
        assert choices.names == taken
        assert choices.model_dump() == {"names": list(taken), "switch": "auto"}


VALUES = [
    load_config("big"),
    Config(model=ModelConfig(n_heads=4)),
    RunManifest(command=["a\udce9"], settings={"a": [1]}, data={"lines": {"sampled": 3}}),
]


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_frozen_and_its_copies_are_equal(value: Model):
    for copied in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert copied == value
        assert type(copied) is type(value)
        assert copied.model_fields_set == value.model_fields_set
    name, _ = next(iter(value))
    for change in (lambda: setattr(value, name, None), lambda: delattr(value, name)):
        with pytest.raises(AttributeError, match="frozen"):
            change()
    assert value.model_copy(update={name: None}) != value
    assert type(value).model_validate(value.model_dump()) == value


def test_an_instance_is_made_with_the_checks_of_its_class_and_its_methods_can_be_replaced(
    monkeypatch,
):
    for wrong in ({"n_heads": 0}, {"n_heads": 7}, {"n_heads": "4"}, {"heads": 4}):
        with pytest.raises(InvalidValuesError, match=r"ModelConfig: \w+") as refused:
            ModelConfig(**wrong)
        # From a worker process.
        copy = pickle.loads(pickle.dumps(refused.value))
        assert (str(copy), str(copy.errors())) == (str(refused.value), str(refused.value.errors()))
    assert isinstance(load_config("base").model, ModelConfig)
    monkeypatch.setattr(ModelConfig, "key_width", property(lambda _: 5))
    assert load_config("base").model.key_width == 5


@pytest.mark.parametrize("given", [{}, {"size": 3}, {"size": 4, "name": "b"}])
def test_only_values_that_were_given_are_written_if_that_is_wanted(given: dict[str, Any]):
    outer = Outer(parts=[{"name": "a", **given}])  # type: ignore[list-item]
    assert outer.model_dump(exclude_unset=True) == {"parts": [{"name": "a", **given}]}
    assert outer.model_dump(include={"word"}) == {"word": "a"}
