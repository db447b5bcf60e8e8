"""Why a request gets no answer, each with its HTTP status. Any other `KermitError` is a request that cannot be: 422."""

from __future__ import annotations

from kermit.errors import KermitError


class RefusalError(KermitError):
    """Base of all refusals."""

    status = 500
    retry_after: int | None = None


class TokenError(RefusalError):
    """No token, or not the right one."""

    status = 401


class TooLongError(RefusalError):
    """A text of too many tokens, or too many texts."""

    status = 422


class QueueFullError(RefusalError):
    """No place in the queue."""

    status = 429
    retry_after = 1


class CallerGoneError(RefusalError):
    """The caller has hung up, so that nobody will read this."""

    status = 499


class InternalError(RefusalError):
    """A defect of ours; the log has the traceback."""

    status = 500


class StoppingError(RefusalError):
    """The service answers what it has accepted and takes nothing new."""

    status = 503
    retry_after = 5


class DeadlineError(RefusalError):
    """The request took longer than so many seconds."""

    status = 503
    retry_after = 5

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within {seconds:g} seconds; ask for less at a time")
