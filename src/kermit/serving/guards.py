"""Checks around every route: a limit on bytes, security headers, metrics and the token."""

from __future__ import annotations

import secrets
import time

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kermit.serving.answers import Problem
from kermit.serving.metrics import Metrics

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SWAGGER = _POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'").replace("blob:", "data:")
"""The policy of the page, and what Swagger UI needs."""


def is_token(shown: str | None, token: str | None) -> bool:
    """Return whether a caller sent the right token; always True if the service has none."""
    return token is None or (shown is not None and secrets.compare_digest(shown.encode(), token.encode()))


async def hung_up(request: Request) -> None:
    """Wait until the caller disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Guard:
    """Limits requests to `most` bytes, adds security headers to answers, and counts both by route and status."""

    def __init__(self, app: ASGIApp, most: int, metrics: Metrics) -> None:
        self.app, self.most, self.metrics = app, most, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, received = time.perf_counter(), 500, 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.most:
                raise HTTPException(413, self._too_long().detail)
            return message

        async def with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"], headers["Referrer-Policy"] = "nosniff", "no-referrer"
                headers["Content-Security-Policy"] = _SWAGGER if scope["path"] == "/docs" else _POLICY
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        declared = Headers(scope=scope).get("content-length", "0")
        try:
            if declared.isdecimal() and int(declared) <= self.most:
                await self.app(scope, counted, with_headers)
            else:
                await JSONResponse(self._too_long().model_dump(), 413)(scope, receive, with_headers)
        finally:
            route = getattr(scope.get("route"), "path", "other")  # a bounded number of labels, whatever callers send
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(time.perf_counter() - began)

    def _too_long(self) -> Problem:
        return Problem(detail=f"the request has more than {self.most} bytes; split it", limit=self.most)
