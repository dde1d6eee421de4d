"""Models of pydantic that cost nothing until a value is checked.

Pydantic takes as long to load as NumPy, and its classes as long again. So a model is a plain class;
pydantic's class is made of it when it is first needed, and instances are of that one. `restored`
makes instances of the plain class, of values that were checked before: without pydantic.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from pydantic import (
        BaseModel,
        BeforeValidator,
        ConfigDict,
        Field,
        InstanceOf,
        PlainSerializer,
        WrapValidator,
        model_validator,
    )

__all__ = ["BaseModel", "BeforeValidator", "ConfigDict", "Field", "InstanceOf", "PlainSerializer"]
__all__ += ["WrapValidator", "defaults", "model_validator", "restored", "stored"]

Model = TypeVar("Model", bound="BaseModel")
_making = threading.RLock()


class _Deferred:
    """A call of pydantic, made when it is needed; it decorates as what it returns."""

    # In `Annotated`, pydantic takes what it iterates over in its place.
    __is_annotated_types_grouped_metadata__ = True

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __call__(self, function: Callable[..., Any]) -> _Deferred:
        return _Deferred(lambda: self.make()(function))

    def __iter__(self) -> Iterator[Any]:
        made = self.make()
        return iter(getattr(made, "metadata", None) or [made])


def _deferred(name: str) -> Callable[..., _Deferred]:
    return lambda *values, **named: _Deferred(
        lambda: getattr(importlib.import_module("pydantic"), name)(*values, **named)
    )


class _PlainClass(type):
    def __call__(cls, *values: Any, **named: Any) -> Any:
        return _pydantic_class(cls)(*values, **named)

    def __getattr__(cls, name: str) -> Any:
        if not name.startswith("model_"):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        return getattr(_pydantic_class(cls), name)

    def __instancecheck__(cls, value: object) -> bool:
        return issubclass(getattr(type(value), "__plain__", type(value)), cls)


def _pydantic_class(plain: Any) -> Any:
    with _making:
        return _made(plain)


@functools.cache
def _made(plain: Any) -> Any:
    import pydantic

    base: Any = pydantic.BaseModel
    if plain is BaseModel:
        return base
    content = {k: v for k, v in vars(plain).items() if k not in ("__dict__", "__weakref__")}
    content = {k: v.make() if isinstance(v, _Deferred) else v for k, v in content.items()}
    # By the name of a class, pickle finds the plain one.
    pickled = lambda model: (_unpickled, (plain, model.model_fields_set, vars(model)))  # noqa: E731
    content |= {"__plain__": plain, "__reduce__": pickled}
    return type(base)(plain.__name__, tuple(map(_made, plain.__bases__)), content)


def _unpickled(plain: Any, given: set[str], values: dict[str, Any]) -> Any:
    return _pydantic_class(plain).model_construct(given, **values)


def _unchecked(plain: Any, values: dict[str, Any]) -> Any:
    model = object.__new__(plain)
    vars(model).update(values)
    return model


def defaults(model: type[Model]) -> Model:
    """A model whose values are all defaults, without pydantic."""
    return cast(Model, _unchecked(model, {k: getattr(model, k) for k in model.__annotations__}))


def stored(value: Any) -> str:
    """JSON of a value with models in it."""

    def tree(model: Any) -> dict[str, Any]:
        return {"model of": type(model).__module__, type(model).__name__: dict(model)}

    return json.dumps(value, default=tree)


def restored(text: str | bytes) -> Any:
    """The value of which the same version of mtkit stored this JSON, without pydantic."""

    def value(tree: dict[str, Any]) -> Any:
        if "model of" not in tree:
            return tree
        (_, module), (name, values) = tree.items()
        plain = vars(sys.modules[module])[name]
        kinds = plain.__annotations__
        return _unchecked(
            plain, {k: tuple(v) if kinds.get(k) == "Names" else v for k, v in values.items()}
        )

    return json.loads(text, object_hook=value)


if not TYPE_CHECKING:
    BeforeValidator, Field, InstanceOf = map(_deferred, ("BeforeValidator", "Field", "InstanceOf"))
    PlainSerializer, WrapValidator = map(_deferred, ("PlainSerializer", "WrapValidator"))
    model_validator, ConfigDict = _deferred("model_validator"), dict

    class BaseModel(metaclass=_PlainClass):
        """As `pydantic.BaseModel`; this class itself has instances of checked values only."""

        @classmethod
        def __get_pydantic_core_schema__(cls, source, handler):
            return handler(_pydantic_class(cls))

        def __getattr__(self, name):
            if not name.startswith("model_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(type(self).model_validate(self.model_dump()), name)

        def __iter__(self):
            return iter(vars(self).items())

        def __eq__(self, other):
            return isinstance(other, type(self)) and self.model_dump() == other.model_dump()

        def model_copy(self, *, update):
            """As of `pydantic.BaseModel`."""
            return _unchecked(type(self), vars(self) | update)

        def model_dump(self, **options):
            """As of `pydantic.BaseModel`."""
            values = json.loads(json.dumps(self, default=dict))
            return type(self)(**values).model_dump(**options) if options else values
