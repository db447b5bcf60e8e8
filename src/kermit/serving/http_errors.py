"""Errors of the service, each with its HTTP status. Any other `KermitError` is an invalid request: 422."""

from __future__ import annotations

from kermit.errors import KermitError


class RefusalError(KermitError):
    """Base of all refusals; `retry_after` is in seconds."""

    status = 500
    retry_after: int | None = None


class TokenError(RefusalError):
    """Missing or wrong token."""

    status = 401


class TooLongError(RefusalError):
    """A text of too many tokens, or too many texts."""

    status = 422


class QueueFullError(RefusalError):
    """The queue is full."""

    status, retry_after = 429, 1


class CallerGoneError(RefusalError):
    """The caller has disconnected."""

    status = 499


class InternalError(RefusalError):
    """A bug; the log has the traceback."""


class StoppingError(RefusalError):
    """The service is stopping: it answers accepted requests and refuses new ones."""

    status, retry_after = 503, 5


class DeadlineError(RefusalError):
    """The request took too long."""

    status, retry_after = 503, 5

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within {seconds:g} seconds; send fewer or shorter texts per request")


def status_of(error: KermitError) -> int:
    """Return the HTTP status of an error."""
    return error.status if isinstance(error, RefusalError) else 422


def headers_of(error: KermitError) -> dict[str, str]:
    """Return the HTTP headers of an error."""
    headers = {}
    if isinstance(error, RefusalError) and error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, TokenError):
        headers["WWW-Authenticate"] = "Bearer"
    return headers
