"""Settings of a service: its limits, its token and the origins that may call it from a browser."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kermit.errors import ServingError

LONGEST = 86_400
"""The longest wait in seconds: a day."""


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a service.

    Args:
        token: the bearer token that callers must send; None to require none.
        queue: maximum number of waiting texts.
        max_batch: maximum number of texts per batch.
        max_wait_ms: how long the first text of a batch may wait for others, in milliseconds.
        deadline: how long a request may take, in seconds.
        max_tokens: maximum number of tokens of a given text, and of tokens inserted into a text; the translation of n
            tokens has at most 2 n + 10.
        max_body: maximum number of bytes of a request.
        cors: origins whose pages may call the service from a browser, such as ``https://example.com``; ``*`` for all.
    """

    token: str | None = None
    queue: int = 256
    max_batch: int = 32
    max_wait_ms: float = 5.0
    deadline: float = 30.0
    max_tokens: int = 256
    max_body: int = 2**20
    cors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("queue", "max_batch", "max_tokens", "max_body"):
            if getattr(self, name) < 1:
                raise ServingError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 < self.deadline <= LONGEST:
            raise ServingError(f"deadline must be above 0 and at most {LONGEST:,} seconds, not {self.deadline}")
        if not 0 <= self.max_wait_ms <= 1000 * LONGEST:
            raise ServingError(f"max_wait_ms must be at least 0 and at most {1000 * LONGEST:,}, not {self.max_wait_ms}")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token.strip()):
            raise ServingError("the token must be printable ASCII and not blank")

        for origin in self.cors:
            if origin != "*" and not re.fullmatch(r"https?://[^/\s*]+", origin):
                raise ServingError(f"{origin!r} is not an origin; write one such as https://example.com, or *")

    @property
    def max_texts(self) -> int:
        """The maximum number of texts per request: one batch, or the whole queue if that is smaller."""
        return min(self.max_batch, self.queue)
