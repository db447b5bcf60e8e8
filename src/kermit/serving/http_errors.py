"""Errors of the service, each with its HTTP status and headers. Any other `KermitError` is an invalid request: 422."""

from __future__ import annotations

from typing import ClassVar

from kermit.errors import KermitError


class RefusalError(KermitError):
    """Base of all refusals."""

    status = 500
    headers: ClassVar[dict[str, str]] = {}


class TokenError(RefusalError):
    """Missing or wrong token."""

    status, headers = 401, {"WWW-Authenticate": "Bearer"}


class QueueFullError(RefusalError):
    """The queue is full."""

    status, headers = 429, {"Retry-After": "1"}


class CallerGoneError(RefusalError):
    """The caller has disconnected."""

    status = 499


class InternalError(RefusalError):
    """A bug; the log has the traceback."""


class StoppingError(RefusalError):
    """The service is stopping: it answers accepted requests and refuses new ones."""

    status, headers = 503, {"Retry-After": "5"}


class DeadlineError(RefusalError):
    """The request took too long."""

    status, headers = 503, {"Retry-After": "5"}

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within {seconds:g} seconds; send fewer or shorter texts per request")


def status_and_headers(error: KermitError) -> tuple[int, dict[str, str]]:
    """Return the HTTP status and headers of an error."""
    return (error.status, error.headers) if isinstance(error, RefusalError) else (422, {})
