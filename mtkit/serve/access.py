"""Who may use a server, and how often: API keys, texts per minute, and turns of documents."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from weakref import WeakValueDictionary

from mtkit.base.errors import MtkitError
from mtkit.base.text import read_lines
from mtkit.serve.http_errors import RequestError

# Clients that are remembered; of more, a tenth is forgotten.
_MAX_KNOWN = 10_000
# Documents of a client that have a turn; that wait, of a client and of all.
_MAX_TURNS, _MAX_WAITING, _MAX_ALL_WAITING = 4, 16, 32
# Seconds after which a client may try again to get a turn.
_RETRY = 10
_HASH = re.compile("[0-9a-fA-F]{64}")


def read_keys(path: Path) -> frozenset[str]:
    """The SHA-256 of each key in a file: one on each line, and a comment after a space.

    An MtkitError names the line that does not begin with a hash, or a file without a key.
    """
    hashes = set()
    for number, line in enumerate(read_lines(path), start=1):
        word = line.split("#")[0].split()
        if not word:
            continue
        if not _HASH.fullmatch(word[0]):
            wanted = (
                "a SHA-256 hash (64 hexadecimal digits); make one with: printf %s KEY | sha256sum"
            )
            raise MtkitError(f"{path}, line {number}: expected {wanted}")
        hashes.add(word[0].lower())
    if not hashes:
        raise MtkitError(f"{path}: has no key")
    return frozenset(hashes)


class Access:
    """Keeps count of clients by the SHA-256 of their keys, in hexadecimal, if keys are needed.

    A key, or an address, may send `per_minute` texts per minute; 0 for any number.
    """

    def __init__(self, keys: Collection[str] = (), *, per_minute: int = 0) -> None:
        self.keys = frozenset(keys)
        self.per_minute = per_minute
        # The characters of the texts that were answered, by key.
        self.used: Counter[str] = Counter()
        # What is left of each client's minute, and when that was.
        self._left: dict[str, tuple[float, float]] = {}

    def key_hash(self, key: str) -> str | None:
        """The SHA-256 of a key if it is one of the keys; empty if none is needed."""
        if not self.keys:
            return ""
        digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        return digest if digest in self.keys else None

    def wait(self, client: str, cost: int) -> float:
        """Seconds that a client must wait before `cost` texts; if 0, they are counted.

        A client that has been quiet for a minute may send a minute's texts at once. It may send
        more in one request, and then waits longer before the next one. IPv6 addresses of the same
        network of 64 bits are one client.
        """
        if not self.per_minute or not cost:
            return 0.0
        client, now = _network(client), time.monotonic()
        left = self._left_now(client, now)
        needed = min(cost, self.per_minute)
        is_allowed = left >= needed
        self._left.pop(client, None)
        if len(self._left) >= _MAX_KNOWN:
            self._forget(now)
        # The client becomes the last of the dictionary.
        self._left[client] = left - cost * is_allowed, now
        return 0.0 if is_allowed else (needed - left) * 60 / self.per_minute

    def _left_now(self, client: str, now: float) -> float:
        left, then = self._left.get(client, (float(self.per_minute), now))
        return min(self.per_minute, left + (now - then) * self.per_minute / 60)

    def _forget(self, now: float) -> None:
        """Forget the clients with the most time left: a new client has a whole minute."""
        known = sorted(self._left, key=lambda client: -self._left_now(client, now))
        for client in known[: max(1, _MAX_KNOWN // 10)]:
            del self._left[client]


class DocumentTurns:
    """Lets at most `most` documents be translated at a time; some may wait, for `seconds`."""

    def __init__(self, most: int, seconds: float) -> None:
        self._free, self._seconds = asyncio.Semaphore(most), seconds
        self._free_of = WeakValueDictionary[str, asyncio.Semaphore]()
        # How many documents wait, by client.
        self.waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """A turn of a client as in `Access.wait`; RequestError if it waits too long, or many do."""
        client = _network(client)
        refused = RequestError(429, "Slowdown: the queue of documents is full", _RETRY)
        if self.waiting[client] >= _MAX_WAITING or self.waiting.total() >= _MAX_ALL_WAITING:
            raise refused
        own = self._free_of.setdefault(client, asyncio.Semaphore(_MAX_TURNS))
        async with AsyncExitStack() as turns:
            self.waiting[client] += 1
            try:
                async with asyncio.timeout(self._seconds):
                    await turns.enter_async_context(own)
                    await turns.enter_async_context(self._free)
            except TimeoutError:
                raise refused from None
            finally:
                # Clients of which none waits are forgotten.
                self.waiting -= Counter([client])
            yield


def _network(client: str) -> str:
    """The network of an IPv6 address, of which a client has many; others as they are."""
    try:
        address = ipaddress.IPv6Address(client)
    except ValueError:
        return client
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
