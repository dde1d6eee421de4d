"""Requests that are answered with an error."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class RequestError(Exception):
    """A request that is answered with an error.

    After `retry_after` seconds the client may try again, if that helps. The connection is closed if
    the request was not read to its end.
    """

    status: int
    message: str
    retry_after: int | None = None
    closes_connection: bool = False

    def __str__(self) -> str:
        return self.message


def invalid(why: str) -> RequestError:
    """The error of LibreTranslate for a request that makes no sense."""
    return RequestError(400, f"Invalid request: {why}")
