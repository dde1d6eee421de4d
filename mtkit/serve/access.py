"""Who may use a server, and how often: API keys, and requests a minute."""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from mtkit.base.errors import MtkitError
from mtkit.base.text import read_lines

# Addresses that are remembered; those that have been quiet for a minute are forgotten first.
_MOST_KNOWN = 10_000
_HASH = re.compile("[0-9a-f]{64}")


def read_keys(path: Path) -> frozenset[str]:
    """The SHA-256 of each key in a file: one on each line, and a remark after a space.

    Raises:
        MtkitError: naming the line that is no SHA-256.
    """
    hashes = set()
    for number, line in enumerate(read_lines(path), start=1):
        word = line.split("#")[0].split()
        if not word:
            continue
        if not _HASH.fullmatch(word[0]):
            raise MtkitError(
                f"{path}, line {number}: begins with no SHA-256, which has 64 digits from 0 to f; "
                "make one with: printf %s KEY | sha256sum"
            )
        hashes.add(word[0])
    if not hashes:
        raise MtkitError(f"{path}: has no key")
    return frozenset(hashes)


class Access:
    """Keeps count of clients.

    Args:
        keys: the SHA-256 of the keys, in hexadecimal; none if no key is needed.
        per_minute: texts a minute of a key, or of an address; 0 for any number.
    """

    def __init__(self, keys: Collection[str] = (), *, per_minute: int = 0) -> None:
        self.keys = frozenset(keys)
        self.per_minute = per_minute
        # The characters that were translated with each key.
        self.used: Counter[str] = Counter()
        # What is left of each client's minute, and when that was.
        self._left: dict[str, tuple[float, float]] = {}

    def holder(self, key: str) -> str | None:
        """The SHA-256 of a key if it is one of the keys; empty if none is needed."""
        if not self.keys:
            return ""
        digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        return digest if digest in self.keys else None

    def wait(self, client: str, cost: int) -> float:
        """Seconds that a client must wait before so many texts; 0 if it need not, and they count.

        A client that has been quiet for a minute may send a minute's texts at once; more in one
        request count as a minute's.
        """
        if not self.per_minute:
            return 0.0
        now, speed = time.monotonic(), self.per_minute / 60
        left, then = self._left.pop(client, (float(self.per_minute), now))
        left = min(self.per_minute, left + (now - then) * speed)
        cost = min(cost, self.per_minute)
        is_allowed = left >= cost
        # The client becomes the last of the dictionary.
        self._left[client] = left - cost * is_allowed, now
        if len(self._left) > _MOST_KNOWN:
            del self._left[next(iter(self._left))]
        return 0.0 if is_allowed else (cost - left) / speed
