"""Which settings of a search the native engine is given."""

import ctypes
from dataclasses import fields, replace
from typing import Any
from unittest.mock import Mock

import pytest

from mtkit.native import engine
from mtkit.search_settings import Constraints, SearchSettings

# The value of each field that the engine must be given, other than that of `PLAIN`.
OTHER: dict[str, Any] = {
    "max_lengths": [7],
    "bos_id": 11,
    "eos_id": 12,
    "alpha": 0.25,
    "penalty_form": "power",
    "min_length": 3,
    "no_repeat_ngram": 4,
    "prefixes": [[8, 9]],
    "forbidden": [10],
    "stop": "likely",
}
# Only searches in Python have masks, and the native engine uses no GPU.
PYTHON_ONLY = {"masks", "device"}
PLAIN = SearchSettings([5], bos_id=2, eos_id=3, alpha=0.6, constraints=Constraints())


def passed(settings: SearchSettings, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the function in C is given: numbers, and arrays of numbers."""
    given: list[Any] = []

    def ints(at: int, size: int) -> list[int]:
        return list((ctypes.c_int32 * size).from_address(at)) if size else []

    def translate(_: Any, plain: Any, request: Any, *rest: Any) -> int:
        given.extend(getattr(plain, name) for name, _ in plain._fields_)
        (prefix,) = ints(request.prefix_lengths, 1)
        given.extend([ints(request.limits, 1), ints(request.prefixes, prefix)])
        given.append(ints(request.forbidden, request.forbidden_count))
        return 0

    monkeypatch.setattr(engine, "library", lambda: Mock(mtkit_translate=translate))
    monkeypatch.setattr(engine, "check_done", lambda status: None)
    engine.NativeModel.translate(Mock(), [[4, 3]], settings)
    return given


def test_every_setting_of_a_search_is_for_the_engine_or_for_python_only():
    names = {field.name for kind in (SearchSettings, Constraints) for field in fields(kind)}
    assert {*OTHER} | PYTHON_ONLY | {"constraints"} == names


@pytest.mark.parametrize("name", OTHER)
def test_the_engine_is_given_every_setting_of_a_search(name: str, monkeypatch: pytest.MonkeyPatch):
    change = {name: OTHER[name]}
    if name not in {field.name for field in fields(SearchSettings)}:
        change = {"constraints": replace(Constraints(), **change)}
    assert passed(replace(PLAIN, **change), monkeypatch) != passed(PLAIN, monkeypatch)
