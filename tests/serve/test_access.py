"""Keys, and how often a client may ask."""

import hashlib

import pytest
from support.served import Served

from mtkit.serve import access
from mtkit.serve.access import Access, read_keys


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which a test sets."""
    now = [1000.0]
    monkeypatch.setattr(access.time, "monotonic", lambda: now[0])
    return now


def test_only_the_hash_of_a_key_is_known():
    digest = hashlib.sha256("schlüssel".encode()).hexdigest()
    known = Access([digest])
    assert known.key_hash("schlüssel") == digest
    assert known.key_hash("") is known.key_hash(digest) is known.key_hash("\ud800") is None
    assert Access().key_hash("anything") == ""


def test_a_minute_has_so_many_texts(clock):
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


def test_a_request_with_more_texts_than_a_minute_takes_later_minutes_too(clock):
    counted = Access(per_minute=6)
    assert counted.wait("a", 60) == 0
    # 9 minutes for what was too much, and one that must be full again.
    assert counted.wait("a", 60) == pytest.approx(600)
    assert counted.wait("a", 1) == pytest.approx(550)
    # What costs nothing need not wait.
    assert counted.wait("a", 0) == 0
    clock[0] += 599
    assert counted.wait("a", 60) == pytest.approx(1)
    clock[0] += 1.01
    assert counted.wait("a", 60) == 0


def test_addresses_of_one_ipv6_network_are_one_client(clock):
    counted = Access(per_minute=1)
    assert counted.wait("2001:db8:0:1::1", 1) == 0
    assert counted.wait("2001:db8:0:1:ffff:ffff:ffff:ffff", 1) > 0
    assert counted.wait("2001:db8:0:2::1", 1) == 0
    assert counted.wait("::ffff:192.0.2.1", 1) == 0
    assert counted.wait("192.0.2.1", 1) > 0
    assert counted.wait("192.0.2.2", 1) == counted.wait("::ffff:192.0.2.3", 1) == 0


def test_hashes_of_keys_may_have_capitals(tmp_path):
    digest = hashlib.sha256(b"key").hexdigest()
    (tmp_path / "keys").write_text(f"{digest.upper()} the wiki\n")
    assert read_keys(tmp_path / "keys") == {digest}


def test_clients_that_have_used_up_their_minute_are_not_forgotten_before_others(clock, monkeypatch):
    monkeypatch.setattr(access, "_MAX_KNOWN", 3)
    counted = Access(per_minute=60)
    for client, cost in (("much", 200), ("some", 60), ("little", 1)):
        assert counted.wait(client, cost) == 0
        clock[0] += 1
    for i in range(10):
        assert counted.wait(f"new {i}", 1) == 0
    assert counted.wait("much", 1) > 0
    assert counted.wait("some", 60) > 0
    assert counted.wait("little", 60) == 0


def test_without_a_limit_nothing_is_remembered():
    counted = Access()
    assert counted.wait("a", 1000) == 0
    assert not counted._left


def test_clients_that_were_quiet_for_longest_are_forgotten(clock, monkeypatch):
    monkeypatch.setattr(access, "_MAX_KNOWN", 3)
    counted = Access(per_minute=1)
    for client in "abcabd":
        counted.wait(client, 1)
    assert set(counted._left) == {"a", "b", "d"}


def test_the_client_is_the_last_address_that_is_no_trusted_proxy(untrained):
    known = Access(per_minute=100)
    trusted = ["172.16.0.0/12", "10.0.0.7", "fd00::/8"]
    with Served([untrained], access=known, proxies=trusted) as server:
        for chain, client in {
            "1.2.3.4": "1.2.3.4",
            "9.9.9.9, 1.2.3.4": "1.2.3.4",
            "9.9.9.9, 1.2.3.4, 172.18.0.1": "1.2.3.4",
            "1.2.3.4, 10.0.0.7, 172.31.255.255, 127.0.0.1": "1.2.3.4",
            "10.0.0.7, 10.0.0.8": "10.0.0.8",
            "1.2.3.4, fd00::1": "1.2.3.4",
            "2001:db8::1, ::1": "2001:db8::",
            "1.2.3.4, x": "x",
            "": "127.0.0.1",
        }.items():
            fields = {"q": "1", "source": "en", "target": "de"}
            server.post("/translate", fields, X_Forwarded_For=chain)
            assert list(known._left)[-1].startswith(client), chain
