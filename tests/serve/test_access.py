"""Keys, and how often a client may ask."""

from __future__ import annotations

import hashlib

import pytest

from mtkit.serve import access
from mtkit.serve.access import Access


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which a test sets."""
    now = [1000.0]
    monkeypatch.setattr(access.time, "monotonic", lambda: now[0])
    return now


def test_only_the_hash_of_a_key_is_known() -> None:
    digest = hashlib.sha256("schlüssel".encode()).hexdigest()
    known = Access([digest])
    assert known.holder("schlüssel") == digest
    assert known.holder("") is known.holder(digest) is known.holder("\ud800") is None
    assert Access().holder("anything") == ""


def test_a_minute_has_so_many_texts(clock: list[float]) -> None:
    counted = Access(per_minute=6)
    assert [counted.wait("a", 1) for _ in range(6)] == [0.0] * 6
    assert counted.wait("a", 1) == pytest.approx(10)
    # A refused request does not count, and others are not concerned.
    assert counted.wait("a", 1) == pytest.approx(10)
    assert counted.wait("b", 6) == 0
    clock[0] += 10
    assert counted.wait("a", 1) == 0
    assert counted.wait("a", 2) == pytest.approx(20)
    clock[0] += 1000
    assert counted.wait("a", 6) == 0


def test_a_request_with_more_texts_than_a_minute_takes_all_of_it(clock: list[float]) -> None:
    counted = Access(per_minute=6)
    assert counted.wait("a", 100) == 0
    assert counted.wait("a", 100) == pytest.approx(60)
    clock[0] += 60
    assert counted.wait("a", 100) == 0


def test_without_a_limit_nothing_is_remembered() -> None:
    counted = Access()
    assert counted.wait("a", 1000) == 0
    assert not counted._left


def test_clients_that_were_quiet_for_longest_are_forgotten(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "_MOST_KNOWN", 3)
    counted = Access(per_minute=1)
    for client in "abcabd":
        counted.wait(client, 1)
    assert set(counted._left) == {"a", "b", "d"}
