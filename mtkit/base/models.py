"""Frozen values, checked without pydantic where they are plainly right.

Pydantic and its models take longer to load than NumPy. What is plainly right is taken without it;
for all else, pydantic makes a model of the same fields, and decides and explains. msgspec, tried
instead, takes longer to load than all of this at a start (5 ms, 4 ms); it knows neither choices in
messages, nor keys of dictionaries, nor which values were given: with them it is nearly as long.
"""

from __future__ import annotations

import copyreg
import functools
import math
import operator
import re
import typing
from collections.abc import Callable, Container, Iterator
from dataclasses import MISSING, Field, field
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, cast, dataclass_transform

from mtkit.base.errors import MtkitError
from mtkit.base.yaml import cut, shown

Check = Callable[[Any], Any]
# For mypy, classes with `__hash__` are not hashable.
_cached: Callable[[Check], Check] = functools.cache
# Whether a value is within a limit; of pydantic's other limits, `operator` has functions.
_WITHIN: dict[str, Callable[[Any, Any], Any]] = {
    "min_length": lambda text, least: len(text) >= least,
    "pattern": lambda text, pattern: re.fullmatch(pattern, text),
}


class _NotPlainError(ValueError):
    """A value that is wrong, or that pydantic would take as another one."""


class Limits:
    """Limits of a number (`ge`, `gt`, `le`, `lt`), or of a text (`min_length`, `pattern`)."""

    def __init__(self, **limits: Any) -> None:
        vars(self).update(limits)

    def is_within(self, value: Any) -> bool:
        """Whether a value of the right type is within the limits."""
        limits = vars(self).items()
        return all((_WITHIN.get(name) or getattr(operator, name))(value, at) for name, at in limits)

    def checked(self, value: Any, check: Check) -> Any:
        """The value, after `check` of its type, if it is within the limits."""
        value = check(value)
        if not self.is_within(value):
            raise _NotPlainError
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: Check) -> Any:
        return handler(source) | vars(self)


Natural = Annotated[int, Limits(ge=0)]


class Around:
    """Changes how values of the type that it annotates are checked."""

    def checked(self, value: Any, check: Check) -> Any:
        """The value after `check`, also for pydantic."""
        return check(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: Check) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_wrap_validator_function(self.checked, handler(source))


class InvalidValuesError(MtkitError, ValueError):
    """Values that are wrong, as pydantic's `errors` say; its text is about the first of them."""

    def __init__(self, origin: str, error: Any) -> None:
        self._errors: list[dict[str, Any]] = error.errors()
        super().__init__(f"{origin}: {explain(error)}")

    def errors(self) -> list[dict[str, Any]]:
        """As of pydantic's error."""
        return self._errors

    def __reduce__(self) -> tuple[Any, ...]:
        # Also of a worker process.
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


def explain(error: Any) -> str:
    """The first mistake of pydantic's error, or of `InvalidValuesError`, with its dotted key."""
    first = error.errors()[0]
    path = [cut(str(part)) for part in first["loc"]]
    key = "".join(f"{part}: " for part in [".".join(path)] if part)
    value = first.get("input")
    kind = first["type"]
    if kind == "extra_forbidden":
        return f"unknown key {'.'.join(path)}"
    if kind == "value_error":
        # Our own checks name the key inside their section themselves.
        return ".".join([*path, str(first["ctx"]["error"])])
    if kind == "model_type":
        return f"{key}expected settings by their names, not {shown(value)}"
    if kind == "string_pattern_mismatch":
        return f"{key}{shown(value)} cannot be the name of a folder"
    if kind in ("tuple_type", "string_too_short"):
        return f"{key}expected a name, or a list of names, not {shown(value)}"
    expected = first["msg"].removeprefix("Input should be ")
    return f"{key}expected {expected}, not {shown(value)}"


class _PydanticFields:
    def __get__(self, _: object, owner: type[Model]) -> Any:
        return _in_pydantic(owner).model_fields


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Model:
    """Frozen values, which are checked when they are made; the methods are those of pydantic.

    Raises:
        InvalidValuesError: naming the first value that is wrong.
    """

    model_config: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    model_fields: ClassVar[Any] = _PydanticFields()
    model_fields_set: ClassVar[set[str]]  # of an instance: the values that were given
    _fields: ClassVar[dict[str, Field[Any]]] = {}

    def __init_subclass__(cls) -> None:
        cls._fields = dict(cls._fields)
        for name, kind in vars(cls).get("__annotations__", {}).items():
            if "ClassVar" not in str(kind):
                value = vars(cls).get(name, MISSING)
                cls._fields[name] = value if isinstance(value, Field) else field(default=value)
                if value is not MISSING:
                    delattr(cls, name)

    def __init__(self, **values: Any) -> None:
        vars(self).update(vars(self.model_validate(values)))

    def _check(self) -> None:
        """Refuse values that do not go together: a `ValueError` that begins with one's name."""

    @classmethod
    def model_validate(cls, content: Any) -> Self:
        """An instance of the values in a dictionary."""
        try:
            return cls._checked(content)
        except ValueError:
            try:
                return cast(Self, _in_pydantic(cls).model_validate(content))
            except ValueError as error:
                raise InvalidValuesError(cls.__name__, error) from None

    def model_copy(self, *, update: dict[str, Any]) -> Self:
        """The same with some values changed, which are not checked."""
        copied = object.__new__(type(self))
        vars(copied).update(self, **update, model_fields_set=self.model_fields_set | update.keys())
        return copied

    def model_dump(
        self, *, include: Container[str] | None = None, exclude_unset: bool = False
    ) -> dict[str, Any]:
        """The values as plain ones: dictionaries, and lists for tuples too."""
        names = self.model_fields_set if exclude_unset else self._fields
        wanted = names if include is None else [name for name in names if name in include]
        return {name: _plain(value, exclude_unset) for name, value in self if name in wanted}

    @classmethod
    def _checked(cls, content: Any) -> Self:
        if isinstance(content, cls):
            return content
        kinds = _kinds(cls)
        if type(content) is not dict:
            raise _NotPlainError
        if cls.model_config["extra"] == "ignore":
            content = {name: value for name, value in content.items() if name in kinds}
        if not content.keys() <= kinds.keys():
            raise _NotPlainError
        finite = not cls.model_config.get("allow_inf_nan", True)
        return cls._filled({name: _checked(content[name], kinds[name], finite) for name in content})

    @classmethod
    def _filled(cls, given: dict[str, Any]) -> Self:
        """An instance of values that were checked each by itself."""
        made = object.__new__(cls)
        for name, declared in cls._fields.items():
            factory = declared.default_factory
            default = declared.default if factory is MISSING else factory()
            vars(made)[name] = given.get(name, default)
        if MISSING in vars(made).values():
            raise _NotPlainError
        vars(made)["model_fields_set"] = {*given}
        made._check()
        return made

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Check) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_wrap_validator_function(
            lambda value, check: value if isinstance(value, cls) else check(value),
            handler(_in_pydantic(cls)),
        )

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return ((name, getattr(self, name)) for name in self._fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and (type(self), *self) == (type(other), *other)

    def __hash__(self) -> int:
        return hash((type(self), *self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self)})"

    def __setattr__(self, name: str, _: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be changed")

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)


@_cached
def _kinds(cls: Any) -> dict[str, Any]:
    """The types of the fields."""
    kinds = typing.get_type_hints(cls, include_extras=True)
    return {name: kinds[name] for name in cls._fields}


def _checked(value: Any, kind: Any, finite: bool) -> Any:
    """A value as pydantic takes it in strict mode; `ValueError` if it is not plainly right."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        inner, *rules = arguments
        check: Check = lambda value: _checked(value, inner, finite)  # noqa: E731
        for rule in rules:
            check = functools.partial(rule.checked, check=check)
        return check(value)
    if origin in (Union, UnionType):
        for each in arguments:
            try:
                return _checked(value, each, finite)
            except ValueError:
                continue
    elif origin is Literal:
        if any(type(value) is type(choice) and value == choice for choice in arguments):
            return value
    elif type(value) is origin in (list, tuple):
        if origin is list or arguments[1:] == (...,):
            return origin(_checked(item, arguments[0], finite) for item in value)
    elif type(value) is origin is dict:
        keys, items = arguments
        return {_checked(k, keys, finite): _checked(v, items, finite) for k, v in value.items()}
    elif isinstance(kind, type) and issubclass(kind, Model):
        return kind._checked(value)
    elif kind is Any or (type(value) is kind and _is_plain(value, finite)):
        return value
    raise _NotPlainError


def _is_plain(value: Any, finite: bool) -> bool:
    if type(value) is str:
        return value.isascii() or value.encode() != b""  # `ValueError` for what is not UTF-8
    return type(value) in (int, bool, type(None)) or (
        type(value) is float and (not finite or math.isfinite(value))
    )


def _plain(value: Any, exclude_unset: bool) -> Any:
    if isinstance(value, Model):
        return value.model_dump(exclude_unset=exclude_unset)
    if isinstance(value, dict):
        return {key: _plain(item, exclude_unset) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, exclude_unset) for item in value]
    return value


@_cached
def _in_pydantic(cls: Any) -> Any:
    """A model of pydantic with the same fields, which validates to instances of `cls`."""
    import pydantic

    fields: dict[str, Any] = {}
    for name, declared in cls._fields.items():
        # `_filled` gives the defaults; these ones say which values may be missing.
        default = None if declared.default_factory is not MISSING else declared.default
        default = ... if default is MISSING else default
        described = pydantic.Field(default, description=declared.metadata.get("description"))
        fields[name] = _kinds(cls)[name], described
    made = pydantic.model_validator(mode="after")(
        lambda model: cls._filled({name: getattr(model, name) for name in model.model_fields_set})
    )
    config = pydantic.ConfigDict(**cls.model_config)  # type: ignore[typeddict-item]
    checks: dict[str, Any] = {"made": made}
    return pydantic.create_model(cls.__name__, __config__=config, __validators__=checks, **fields)
