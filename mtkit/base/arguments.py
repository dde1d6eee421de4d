"""Arguments of functions that users call, refused if they are of another type."""

from __future__ import annotations

import builtins
import collections.abc
import functools
import inspect
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


def checks_arguments(given: CallableT) -> CallableT:
    """A function, or a class with its fields, that compares its arguments with their types.

    Text is taken for a `Path`, and for no list. Of an iterator, the items are not looked at.

    Raises:
        ArgumentError: by the function, before it does anything, naming the argument.
    """
    function: Any = vars(given)["__init__"] if isinstance(given, type) else given

    @functools.wraps(function)
    def checking(*arguments: Any, **keywords: Any) -> Any:
        try:
            bound = _signature(function).bind(*arguments, **keywords)
        except TypeError as error:
            raise ArgumentError(f"{given.__qualname__}: {error}") from None
        for name, kind in _kinds(function).items():
            if name in bound.arguments:
                bound.arguments[name] = _checked(name, bound.arguments[name], kind)
        return function(*bound.args, **bound.kwargs)

    if isinstance(given, type):
        given.__init__ = checking  # type: ignore[misc]
        return given
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
        if name in kinds and parameter.kind is not parameter.VAR_KEYWORD
    }


def _checked(name: str, value: Any, kind: Any) -> Any:
    if not _fits(value, kind):
        origins = {*map(typing.get_origin, (kind, *typing.get_args(kind)))}
        if isinstance(value, str | bytes) and origins & {Iterable, Sequence}:
            got = type(value).__name__
            raise ArgumentError(f"{name}: pass a list of lines, such as [text], not {got}")
        raise ArgumentError(f"{name}: expected {_described(kind)}, not {shown(value)}")
    return Path(value) if kind is Path else value


def _fits(value: Any, kind: Any) -> bool:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or isinstance(kind, TypeVar):
        return True
    if origin is Annotated:
        return _fits(value, arguments[0]) and all(rule.is_within(value) for rule in arguments[1:])
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in arguments)
    if origin is Literal:
        return any(value == choice for choice in arguments)
    if origin is tuple and arguments[1:] != (...,):
        is_tuple = isinstance(value, tuple) and len(value) == len(arguments)
        return is_tuple and all(map(_fits, value, arguments))
    if origin is not None:
        is_one = isinstance(value, origin) and not isinstance(value, str | bytes)
        if is_one and isinstance(value, Mapping):
            return all(_fits(k, arguments[0]) and _fits(v, arguments[1]) for k, v in value.items())
        if not is_one or not isinstance(value, list | tuple):
            return is_one
        # Mostly, all items are of one type.
        return {*map(type, value)} <= {arguments[0]} or all(_fits(i, arguments[0]) for i in value)
    if kind is None:
        return value is None
    if kind is Path:
        return isinstance(value, str | os.PathLike)
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, int | float if kind is float else kind)


def _described(kind: Any) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        limits = (f"{_COMPARISONS[key]} {limit}" for key, limit in vars(arguments[1]).items())
        return f"{_described(arguments[0])}, {' and '.join(limits)}"
    if origin in (Union, UnionType):
        return " or ".join(map(_described, arguments))
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is not None and arguments:
        return f"{origin.__name__} of {', '.join(map(_described, arguments))}"
    return "None" if kind in (None, type(None)) else getattr(kind, "__name__", str(kind))
