"""Arguments of functions that users call, refused if they are of another type."""

from __future__ import annotations

import builtins
import collections.abc
import functools
import inspect
import itertools
import numbers
import os
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union

from mtkit.base.errors import MtkitError
from mtkit.base.yaml import shown

CallableT = TypeVar("CallableT", bound=Callable[..., Any])
_COMPARISONS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
# A limit from here on says nothing to users.
_HUGE = 10**18
_UNIONS = Union, UnionType
_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "True or False",
    Path: "a path",
    Mapping: "a dictionary",
    Callable: "a function",
    ...: "...",
    **dict.fromkeys((Iterable, Sequence, list), "a list"),
}


class ArgumentError(MtkitError, ValueError, TypeError):
    """An argument that a function cannot take."""


class _KnownLater(type):
    """The type of a name that is imported for type checkers only."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, str) or type(value).__module__ != "builtins"

    def __getitem__(cls, _: object) -> object:
        return cls


class _Names(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        return getattr(collections.abc, name, None) or _KnownLater(name, (), {})


def checks_arguments(function_or_class: CallableT) -> CallableT:
    """A function, or a class with its fields, that compares its arguments with their types.

    Text for a `Path` becomes one, and is no list; a number of NumPy becomes one of Python. Of an
    iterator, the items are not looked at.

    Raises:
        ArgumentError: by the function, before it does anything, naming the argument.
    """
    function: Any = function_or_class
    if isinstance(function_or_class, type):
        function = vars(function_or_class)["__init__"]

    @functools.wraps(function)
    def checking(*arguments: Any, **keywords: Any) -> Any:
        try:
            bound = _signature(function).bind(*arguments, **keywords)
        except TypeError as error:
            raise ArgumentError(f"{function_or_class.__qualname__}: {error}") from None
        for name, kind in _kinds(function).items():
            if name in bound.arguments:
                bound.arguments[name] = _checked(name, bound.arguments[name], kind)
        return function(*bound.args, **bound.kwargs)

    if isinstance(function_or_class, type):
        function_or_class.__init__ = checking  # type: ignore[misc]
        return function_or_class
    return typing.cast(CallableT, checking)


_signature = functools.cache(inspect.signature)


@functools.cache
def _kinds(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of the parameters, but not of those that take all other arguments."""
    inner = inspect.unwrap(function)
    names = _Names(vars(builtins) | inner.__globals__)
    kinds = typing.get_type_hints(inner, {}, names, include_extras=True)
    parameters = _signature(function).parameters.items()
    return {
        name: kinds[name]
        for name, parameter in parameters
        if name in kinds and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


def _checked(name: str, value: Any, kind: Any) -> Any:
    if not _fits(value, kind):
        origins = {*map(typing.get_origin, (kind, *typing.get_args(kind)))}
        if isinstance(value, str | bytes) and origins & {Iterable, Sequence}:
            got = type(value).__name__
            raise ArgumentError(f"{name}: pass a list of lines, such as [text], not {got}")
        raise ArgumentError(f"{name}: expected {_described(kind)}, not {shown(value)}")
    return _converted(value, kind)


def _converted(value: Any, kind: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if not _has_converted(kind):
        return value
    if kind is Path or (kind in (int, float) and not isinstance(value, int | float)):
        return kind(value)
    if origin is Annotated:
        return _converted(value, arguments[0])
    if origin in _UNIONS:
        kinds = [each for each in arguments if _fits(value, each)]
        return value if str in kinds else _converted(value, kinds[0])
    if isinstance(value, Mapping):
        return {key: _converted(item, arguments[1]) for key, item in value.items()}
    if isinstance(value, list | tuple):
        is_fixed = origin is tuple and arguments[1:] != (...,)
        items = map(_converted, value, arguments if is_fixed else itertools.repeat(arguments[0]))
        return list(items) if isinstance(value, list) else tuple(items)
    return value


def _has_converted(kind: Any) -> bool:
    return kind in (Path, int, float) or any(map(_has_converted, typing.get_args(kind)))


def _fits(value: Any, kind: Any) -> bool:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or isinstance(kind, TypeVar):
        return True
    if origin is Annotated:
        return _fits(value, arguments[0]) and all(rule.is_within(value) for rule in arguments[1:])
    if origin in _UNIONS:
        return any(_fits(value, each) for each in arguments)
    if origin is Literal:
        return any(value == choice for choice in arguments)
    if origin is tuple and arguments[1:] != (...,):
        is_tuple = isinstance(value, tuple) and len(value) == len(arguments)
        return is_tuple and all(map(_fits, value, arguments))
    if origin is not None:
        is_right_type = isinstance(value, origin) and not isinstance(value, str | bytes)
        if is_right_type and isinstance(value, Mapping):
            return issubclass(origin, Mapping) and all(
                _fits(key, arguments[0]) and _fits(item, arguments[1])
                for key, item in value.items()
            )
        if not is_right_type or not isinstance(value, list | tuple):
            return is_right_type
        # Mostly, all items are of one type.
        return {*map(type, value)} <= {arguments[0]} or all(_fits(i, arguments[0]) for i in value)
    if kind is None:
        return value is None
    if kind is Path:
        return isinstance(value, str | os.PathLike)
    if kind in (int, float):
        number = numbers.Integral if kind is int else numbers.Real
        return isinstance(value, number) and not isinstance(value, bool)
    return isinstance(value, kind)


def _described(kind: Any) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        limits = " and ".join(
            f"{_COMPARISONS[key]} {limit:,}"
            for key, limit in vars(arguments[1]).items()
            if key in _COMPARISONS and limit < _HUGE
        )
        return _described(arguments[0]) + (limits and f" of {limits}")
    if origin in _UNIONS:
        # Text is a path, too.
        left_out = {type(None), str if Path in arguments else None}
        words = " or ".join(_described(each) for each in arguments if each not in left_out)
        first, _, items = words.partition(" or a list of ")
        words = f"{first}, or a list of these" if first == items else words
        return f"None, or {words}" if type(None) in arguments else words
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is tuple:
        return f"({', '.join(map(_described, arguments))})"
    name = _WORDS.get(origin or kind) or str(getattr(kind, "__name__", kind))
    if origin in (None, Callable):
        return name
    return f"{name} of {' and '.join(map(_described, arguments))}"
