"""Files of clients, in memory only: uploads, and translated documents that are kept for a while."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import quote

from starlette.responses import StreamingResponse

# Bytes that are sent at a time: a slow client has the seconds of an answer for each.
_CHUNK = 65536


class ClientFile(NamedTuple):
    """A file of a client, and its name without folders."""

    name: str
    data: bytes

    @classmethod
    def named(cls, path: str, data: bytes) -> ClientFile:
        """A file with a name as a client writes it, perhaps with folders of Windows."""
        return cls(PurePosixPath(path.replace("\\", "/")).name, data)

    @property
    def ending(self) -> str:
        """The ending of its name, in lower case and without the point; empty if it has none."""
        return PurePosixPath(self.name).suffix.lower().removeprefix(".")

    def response(self) -> StreamingResponse:
        """The answer with which a browser saves the file, and shows nothing of it."""
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(len(self.data)),
            # RFC 6266, section 4.3, and RFC 8187.
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(self.name, safe='')}",
        }
        return StreamingResponse(self._chunks(), headers=headers)

    async def _chunks(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.data), _CHUNK):
            yield self.data[start : start + _CHUNK]


class Results:
    """Files for clients to fetch, under names that cannot be guessed.

    Args:
        max_bytes: of all files; of more, the oldest are deleted.
        seconds: after which a file is deleted.
    """

    def __init__(self, max_bytes: int, seconds: float) -> None:
        self._max_bytes, self._seconds = max_bytes, seconds
        self._files: dict[str, ClientFile] = {}

    def add(self, file: ClientFile) -> str:
        """Keep a file; returns the name by which `get` finds it."""
        name = f"{secrets.token_urlsafe(32)}.{file.ending}"
        self._files[name] = file
        while len(self._files) > 1 and self._size() > self._max_bytes:
            del self._files[next(iter(self._files))]
        asyncio.get_running_loop().call_later(self._seconds, self._files.pop, name, None)
        return name

    def get(self, name: str) -> ClientFile | None:
        """A file, if it is still there."""
        return self._files.get(name)

    def _size(self) -> int:
        return sum(len(file.data) for file in self._files.values())
