"""Requests that are answered with an error."""

from __future__ import annotations


class RequestError(Exception):
    """A request that is answered with an error.

    Attributes:
        status: of HTTP.
        retry_after: seconds after which the client may try again, if that helps.
        closes_connection: because the request was not read to its end.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        retry_after: int | None = None,
        closes_connection: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after
        self.closes_connection = closes_connection
